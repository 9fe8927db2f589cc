/* A scratch folder for one test program, and whole files by plain stdio: expectations come by another way than the
 * store's. */
#ifndef TEST_SCRATCH_H
#define TEST_SCRATCH_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "zcc/base.h"

static char scratch[64];

static inline int scratch_make(void **state)
{
	(void)state;
	snprintf(scratch, sizeof scratch, "/tmp/zcc-test-XXXXXX");
	return mkdtemp(scratch) == NULL;
}

static inline int scratch_remove(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", scratch);
	return system(command);
}

/* A path in the scratch folder, by printf's rules; sixteen of them live at once. */
static inline __attribute__((format(printf, 1, 2))) char *at(const char *format, ...)
{
	static char paths[16][4096];
	static int next;
	char *path = paths[next++ % 16];
	size_t length = strlen(scratch);
	memcpy(path, scratch, length);
	path[length++] = '/';
	va_list args;
	va_start(args, format);
	vsnprintf(path + length, sizeof paths[0] - length, format, args);
	va_end(args);
	return path;
}

static inline void put_file(const char *path, const void *data, size_t bytes)
{
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

/* The whole file; freed by the caller. */
static inline char *get_file(const char *path, size_t *bytes)
{
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	fseek(file, 0, SEEK_END);
	*bytes = (size_t)ftell(file);
	rewind(file);
	char *data = malloc(*bytes + 1);
	assert_int_equal(fread(data, 1, *bytes, file), *bytes);
	data[*bytes] = '\0';
	fclose(file);
	return data;
}

static inline int exists(const char *path)
{
	struct stat info;
	return lstat(path, &info) == 0;
}

static inline void assert_says(const zcc_error *error, const char *part)
{
	if (strstr(error->message, part) == NULL)
		fail_msg("\"%s\" is not in: %s", part, error->message);
}

#endif
