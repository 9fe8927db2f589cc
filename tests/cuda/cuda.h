/* What the programs that test the CUDA plug-in share. They run over the stand-in, whose plug-in lies beside them, and
 * on a machine with a GPU over the real one: then what only the stand-in can tell is passed over. */
#ifndef ZCC_TESTS_CUDA_H
#define ZCC_TESTS_CUDA_H

#include <dlfcn.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "standin.h"
#include "zcc.h"

static zcc_error error;

#define MUST(call) must(call, #call, __LINE__)

static inline void must(zcc_status status, const char *call, int line)
{
	if (status == ZCC_OK)
		return;
	fprintf(stderr, "line %d: %s: %s: %s\n", line, call, zcc_status_name(status), error.message);
	fail();
}

static inline void assert_says(const char *words)
{
	if (strstr(error.message, words) == NULL) {
		fprintf(stderr, "\"%s\" is not in \"%s\"\n", words, error.message);
		fail();
	}
}

/* ---- the stand-in, where it is what was loaded ---- */

static struct {
	__typeof__(standin_count) *count;
	__typeof__(standin_fail) *inject;
	__typeof__(standin_in_use) *in_use;
	__typeof__(standin_set_memory) *set_memory;
	__typeof__(standin_pending) *pending;
	__typeof__(standin_most_pending_bytes) *most_pending_bytes;
	__typeof__(standin_set_device) *set_device;
	__typeof__(standin_device) *device;
	__typeof__(standin_fail_alloc) *fail_alloc;
	__typeof__(standin_fail_alloc_hit) *fail_alloc_hit;
} standin;
static bool has_standin;

/* After the first device was opened. */
static inline void find_standin(void)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
	path[n > 0 ? n : 0] = '\0';
	char *slash = strrchr(path, '/');
	strcpy(slash != NULL ? slash + 1 : path, "libzcc_cuda.so");
	void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	if (library == NULL || dlsym(library, "standin_count") == NULL)
		return;
	*(void **)&standin.count = dlsym(library, "standin_count");
	*(void **)&standin.inject = dlsym(library, "standin_fail");
	*(void **)&standin.in_use = dlsym(library, "standin_in_use");
	*(void **)&standin.set_memory = dlsym(library, "standin_set_memory");
	*(void **)&standin.pending = dlsym(library, "standin_pending");
	*(void **)&standin.most_pending_bytes = dlsym(library, "standin_most_pending_bytes");
	*(void **)&standin.set_device = dlsym(library, "standin_set_device");
	*(void **)&standin.device = dlsym(library, "standin_device");
	*(void **)&standin.fail_alloc = dlsym(library, "standin_fail_alloc");
	*(void **)&standin.fail_alloc_hit = dlsym(library, "standin_fail_alloc_hit");
	has_standin = true;
}

/* Ends a test that is about the stand-in's ways. */
#define NEEDS_STANDIN()                                                                                                \
	do {                                                                                                           \
		if (!has_standin)                                                                                      \
			skip();                                                                                        \
	} while (0)

/* ---- a device, and memory by value ---- */

static zcc_device *device;
static zcc_stream *stream;

static inline int open_all(void **state)
{
	(void)state;
	zcc_status status = zcc_device_open("cuda:0", &device, &error);
	if (status != ZCC_OK) {
		printf("no cuda:0: %s\n", error.message);
		exit(77);
	}
	find_standin();
	return zcc_stream_create(device, &stream, &error);
}

static inline int close_all(void **state)
{
	(void)state;
	zcc_stream_destroy(stream);
	zcc_device_close(device);
	return 0;
}

static inline void *on_device(const void *bytes, int64_t n)
{
	void *data;
	MUST(zcc_device_malloc(device, n, &data, &error));
	if (bytes != NULL)
		MUST(zcc_copy_async(stream, data, bytes, n, &error));
	MUST(zcc_stream_wait(stream, &error));
	return data;
}

static inline void read_device(void *bytes, const void *data, int64_t n)
{
	MUST(zcc_copy_async(stream, bytes, data, n, &error));
	MUST(zcc_stream_wait(stream, &error));
}

static inline void *pinned(int64_t n)
{
	void *data;
	MUST(zcc_pinned_malloc(device, n, &data, &error));
	return data;
}

static uint64_t seed;

static inline uint64_t draw(void)
{
	uint64_t z = seed += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static inline int64_t below(int64_t n)
{
	return (int64_t)(draw() % (uint64_t)n);
}

static inline void read_seed(void)
{
	const char *text = getenv("ZCC_SEED");
	seed = text != NULL ? strtoull(text, NULL, 10) : 20261129;
	printf("ZCC_SEED=%llu\n", (unsigned long long)seed);
}

#endif
