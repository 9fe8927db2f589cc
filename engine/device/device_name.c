#include "device/device_name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/late.h"

static const char operation[] = "device open";
static const char prefix[] = "late:";

/* A whole decimal number of at most `limit` and nothing behind it. */
static bool read_number(const char *text, uint64_t limit, uint64_t *value)
{
	if (*text < '0' || *text > '9')
		return false;
	char *end;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0' && *value <= limit;
}

static zcc_status read_seed(const char *text, zcci_device_name *name, zcc_error *error)
{
	if (text == NULL)
		text = getenv("ZCC_SEED");
	if (text == NULL || *text == '\0') {
		name->seed = (uint64_t)zcc_clock_ns() % 1000000007;
		name->seed_drawn = true;
		return ZCC_OK;
	}
	if (!read_number(text, INT64_MAX, &name->seed))
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "the seed of a shuffled late device is a number of 0 to 2^63 - 1, found \"%.40s\"",
		                 text);
	return ZCC_OK;
}

/* "lazy", "eager", "shuffle", "shuffle=SEED". */
static zcc_status read_late(const char *word, const char *origin, zcci_device_name *name, zcc_error *error)
{
	if (strcmp(word, "lazy") == 0) {
		name->late = ZCCI_LATE_LAZY;
	} else if (strcmp(word, "eager") == 0) {
		name->late = ZCCI_LATE_EAGER;
	} else if (strcmp(word, "shuffle") == 0 || strncmp(word, "shuffle=", 8) == 0) {
		name->late = ZCCI_LATE_SHUFFLE;
		return read_seed(word[7] == '=' ? word + 8 : NULL, name, error);
	} else {
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "a late device is lazy, eager or shuffle=SEED, %s says \"%.40s\"", origin, word);
	}
	return ZCC_OK;
}

/* "host", "cuda:1", "cuda" (the first). */
static zcc_status read_kind(const char *whole, const char *text, const char *end, zcci_device_name *name,
                            zcc_error *error)
{
	char word[sizeof name->kind + 16];
	if ((size_t)(end - text) < sizeof word) {
		memcpy(word, text, (size_t)(end - text));
		word[end - text] = '\0';
		char *colon = strchr(word, ':');
		uint64_t index = 0;
		bool ok = colon == NULL || read_number(colon + 1, INT32_MAX, &index);
		if (colon != NULL)
			*colon = '\0';
		if (ok && *word != '\0' && strlen(word) < sizeof name->kind) {
			strcpy(name->kind, word);
			name->index = (int32_t)index;
			return ZCC_OK;
		}
	}
	return zcci_fail(error, ZCC_EINVAL, 0, operation,
	                 "\"%.60s\" is no device (they are host, cuda:N, late:host, late:cuda:N)", whole);
}

static void print(zcci_device_name *name)
{
	char number[16] = "", mode[48] = "";
	if (strcmp(name->kind, "host") != 0 || name->index != 0)
		snprintf(number, sizeof number, ":%d", (int)name->index);
	if (name->late == ZCCI_LATE_SHUFFLE)
		snprintf(mode, sizeof mode, ",shuffle=%llu", (unsigned long long)name->seed);
	else if (name->late != 0)
		snprintf(mode, sizeof mode, name->late == ZCCI_LATE_LAZY ? ",lazy" : ",eager");
	snprintf(name->text, sizeof name->text, "%s%s%s%s", name->late != 0 ? prefix : "", name->kind, number, mode);
}

zcc_status zcci_device_name_parse(const char *text, zcci_device_name *name, zcc_error *error)
{
	if (text == NULL || *text == '\0')
		text = getenv("ZCC_DEVICE");
	if (text == NULL || *text == '\0')
		text = "host";
	zcci_device_name made = {.index = 0};
	const char *kind = text, *end = text + strlen(text);
	if (strncmp(text, prefix, sizeof prefix - 1) == 0) {
		kind += sizeof prefix - 1;
		const char *comma = strchr(kind, ',');
		const char *word = comma != NULL ? comma + 1 : getenv("ZCC_LATE");
		if (comma != NULL)
			end = comma;
		zcc_status status = read_late(word != NULL && *word != '\0' ? word : "lazy",
		                              comma != NULL ? "the name" : "$ZCC_LATE", &made, error);
		if (status != ZCC_OK)
			return status;
	}
	zcc_status status = read_kind(text, kind, end, &made, error);
	if (status != ZCC_OK)
		return status;
	print(&made);
	*name = made;
	return ZCC_OK;
}
