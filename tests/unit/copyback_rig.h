/* What tests of copy-back share: devices to run on, masters with every kind of number, what must come out (rounded by
 * another way than the engine's), and reading device memory. */
#ifndef TEST_COPYBACK_RIG_H
#define TEST_COPYBACK_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "zcc/copyback.h"

enum { BUFFER_ELEMS = 1000 };

static inline unsigned long seed_of_run(void)
{
	static unsigned long seed;
	static int known;
	if (!known) {
		const char *given = getenv("ZCC_SEED");
		seed = given != NULL ? strtoul(given, NULL, 10) : (unsigned long)zcc_clock_ns() % 1000000;
		printf("ZCC_SEED=%lu\n", seed);
		known = 1;
	}
	return seed;
}

/* Device number i of those that every test runs on, one more where $ZCC_TEST_DEVICE names it; NULL past the last. */
static inline const char *device_name(int i)
{
	static char shuffle[64];
	snprintf(shuffle, sizeof shuffle, "late:host,shuffle=%lu", seed_of_run());
	const char *const names[] = {"host",  "late:host,lazy",          "late:host,eager",
	                             shuffle, getenv("ZCC_TEST_DEVICE"), NULL};
	return names[i];
}

static inline zcc_device *open_device(const char *name)
{
	zcc_device *device = NULL;
	zcc_error error = {0};
	if (zcc_device_open(name, &device, &error) != ZCC_OK)
		fail_msg("%s: %s", name, error.message);
	return device;
}

#define FOR_EACH_DEVICE(device)                                                                                        \
	for (int device##_number = 0; device_name(device##_number) != NULL; device##_number++)                         \
		for (zcc_device *device = open_device(device_name(device##_number)); device != NULL;                   \
		     zcc_device_close(device), device = NULL)

static inline void assert_ok(zcc_status status, const zcc_error *error)
{
	if (status != ZCC_OK)
		fail_msg("%s: %s: %s", zcc_status_name(status), error->operation, error->message);
}

static inline void assert_says(const zcc_error *error, const char *part)
{
	if (strstr(error->message, part) == NULL)
		fail_msg("\"%s\" is not in: %s", part, error->message);
}

static inline zcc_copyback *copyback_of(zcc_device *device, int32_t dtype, int64_t buffer_elems, int32_t pinning)
{
	zcc_copyback_options options;
	zcc_copyback_options_init(&options);
	options.dtype = dtype;
	options.buffer_elems = buffer_elems;
	options.pinning = pinning;
	zcc_copyback *copyback = NULL;
	zcc_error error = {0};
	assert_ok(zcc_copyback_create(device, &options, &copyback, &error), &error);
	return copyback;
}

static inline zcc_copyback_stats stats_of(zcc_copyback *copyback)
{
	zcc_copyback_stats stats;
	zcc_copyback_get_stats(copyback, &stats);
	return stats;
}

/* ---- memory ---- */

static inline void *device_memory(zcc_device *device, int64_t bytes)
{
	void *data = NULL;
	zcc_error error = {0};
	assert_ok(zcc_device_malloc(device, bytes, &data, &error), &error);
	return data;
}

static inline void copy_now(zcc_device *device, void *target, const void *source, int64_t bytes)
{
	zcc_stream *stream = NULL;
	zcc_error error = {0};
	assert_ok(zcc_stream_create(device, &stream, &error), &error);
	assert_ok(zcc_copy_async(stream, target, source, bytes, &error), &error);
	assert_ok(zcc_stream_wait(stream, &error), &error);
	zcc_stream_destroy(stream);
}

/* Every 16-bit word (or half of a wider one) is 7FC0, as CASES C1 asks. */
static inline void *poisoned(zcc_device *device, int64_t bytes)
{
	uint16_t *words = malloc((size_t)bytes + 2);
	for (int64_t i = 0; i < (bytes + 1) / 2; i++)
		words[i] = 0x7FC0;
	void *data = device_memory(device, bytes);
	copy_now(device, data, words, bytes);
	free(words);
	return data;
}

/* The bytes of any memory, on the host; to be freed. */
static inline void *read_back(zcc_device *device, const void *data, int64_t bytes)
{
	void *copy = malloc((size_t)bytes + 1);
	copy_now(device, copy, data, bytes);
	return copy;
}

/* ---- numbers ---- */

static inline uint32_t bits_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, 4);
	return bits;
}

static inline float float_from(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, 4);
	return value;
}

/* Random bits, with ties, NaNs with payloads, infinities, denormals and -0 among them. */
static inline float *masters(int64_t elems, unsigned seed)
{
	static const uint32_t special[] = {0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F800001, 0x00018000,
	                                   0x80008001, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x80000000,
	                                   0x00000001, 0x807FFFFF, 0x7FC12345, 0x33000000, 0x33000001,
	                                   0x38800000, 0x387FF000, 0x477FF000, 0x477FEFFF, 0xC7800000};
	float *made = malloc((size_t)elems * 4 + 4);
	for (int64_t i = 0; i < elems; i++) {
		uint32_t bits = (uint32_t)rand_r(&seed) << 16 ^ (uint32_t)rand_r(&seed);
		if (rand_r(&seed) % 4 == 0)
			bits = special[(unsigned)rand_r(&seed) % (sizeof special / sizeof *special)];
		memcpy(made + i, &bits, 4);
	}
	return made;
}

/* The 16-bit number with that many exponent and fraction bits. */
static inline double value_of(uint32_t magnitude, int exponent_bits, int fraction_bits)
{
	int exponent = (int)(magnitude >> fraction_bits), bias = (1 << (exponent_bits - 1)) - 1;
	double fraction = magnitude & ((1u << fraction_bits) - 1);
	return exponent == 0 ? ldexp(fraction, 1 - bias - fraction_bits)
	                     : ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

/* The nearest 16-bit number, found by bisection among all of them; a tie goes to the even one. */
static inline uint16_t nearest(float value, int exponent_bits, int fraction_bits)
{
	uint32_t bits = bits_of(value), infinity = ((1u << exponent_bits) - 1) << fraction_bits;
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	if (isnan(value))
		return (uint16_t)(sign | infinity | 1u << (fraction_bits - 1) |
		                  (bits & 0x7FFFFF) >> (23 - fraction_bits));
	double magnitude = fabs((double)value);
	uint32_t low = 0, high = infinity;
	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;
		if (value_of(middle, exponent_bits, fraction_bits) <= magnitude)
			low = middle;
		else
			high = middle;
	}
	double below = value_of(low, exponent_bits, fraction_bits),
	       above = value_of(high, exponent_bits, fraction_bits);
	if (isinf(value) || magnitude - below > above - magnitude ||
	    (magnitude - below == above - magnitude && low % 2 != 0))
		low = high;
	return (uint16_t)(sign | low);
}

static inline void round_to(void *target, int32_t dtype, const float *source, int64_t elems)
{
	for (int64_t i = 0; i < elems; i++) {
		uint16_t half = dtype == ZCC_BF16 ? nearest(source[i], 8, 7) : nearest(source[i], 5, 10);
		if (dtype == ZCC_F32)
			memcpy((char *)target + i * 4, source + i, 4);
		else
			memcpy((char *)target + i * 2, &half, 2);
	}
}

static inline void assert_same(const void *got, const void *want, int64_t bytes, const char *what)
{
	for (int64_t i = 0; i < bytes; i++)
		if (((const unsigned char *)got)[i] != ((const unsigned char *)want)[i])
			fail_msg("%s: byte %lld of %lld is %02x, not %02x", what, (long long)i, (long long)bytes,
			         ((const unsigned char *)got)[i], ((const unsigned char *)want)[i]);
}

/* Device (or host) memory holds the rounded masters. */
static inline void assert_rounded(zcc_device *device, const void *data, int32_t dtype, const float *source,
                                  int64_t elems, const char *what)
{
	int64_t bytes = elems * zcc_dtype_bytes(dtype);
	void *want = malloc((size_t)bytes + 1), *got = read_back(device, data, bytes);
	round_to(want, dtype, source, elems);
	assert_same(got, want, bytes, what);
	free(got);
	free(want);
}

static inline void assert_poisoned(zcc_device *device, const void *data, int64_t bytes, const char *what)
{
	uint16_t *got = read_back(device, data, bytes);
	for (int64_t i = 0; i < bytes / 2; i++)
		if (got[i] != 0x7FC0)
			fail_msg("%s: half word %lld is %04x: it was to stay as it was", what, (long long)i, got[i]);
	free(got);
}

#endif
