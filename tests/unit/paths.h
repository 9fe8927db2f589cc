/* Numbers that kernels stumble over, and every path of this machine in turn. */
#ifndef TEST_PATHS_H
#define TEST_PATHS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include "kernels/cpu.h"

static uint64_t random_state;

static inline void seed_random(void)
{
	const char *given = getenv("ZCC_SEED");
	random_state = given != NULL ? strtoull(given, NULL, 0) : 20240917;
	printf("ZCC_SEED=%llu\n", (unsigned long long)random_state);
}

static inline uint64_t random_bits(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return random_state ^ random_state >> 29;
}

static inline float f32_of(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static inline uint32_t bits_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

/* Zeros, denormals, both ends of the range, infinities, NaNs quiet and not with payloads, ties of BF16 and F16. */
static const uint32_t odd_f32[] = {
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x80800000,
        0x00018000, 0x80008001, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xff800001,
        0x7fc00000, 0xffc00000, 0x7fc12345, 0xffffffff, 0x7fbfffff, 0x7f80ffff, 0x3f808000, 0x3f818000,
        0x3f808001, 0x3f801000, 0x3f803000, 0x3f800000, 0xbf800000, 0x38800000, 0x387fc000, 0x33000000,
        0x33000001, 0x33800000, 0x477fe000, 0x477ff000, 0x477fefff, 0x00008000, 0x7f7f8000, 0x7f7f7fff,
};
enum { N_ODD = sizeof odd_f32 / sizeof *odd_f32 };

static inline uint32_t random_f32(void)
{
	uint64_t bits = random_bits();
	switch (bits >> 60) {
	case 0: /* one of the above */
		return odd_f32[(bits >> 8) % N_ODD];
	case 1: /* any pattern */
		return (uint32_t)bits;
	default: /* near 1, where sums do not vanish */
		return ((uint32_t)bits & 0x807fffff) | (120 + (uint32_t)(bits >> 32) % 14) << 23;
	}
}

/* A random element of F32, BF16 or F16; every kind of odd number among them. */
static inline void put_random(void *target, int32_t dtype, int64_t i)
{
	uint32_t bits = random_f32();
	uint16_t half = (uint16_t)(dtype == ZCC_BF16 ? bits >> 16
	                           : (bits & 7) == 0 ? bits >> 8
	                                             : (bits >> 13 & 0x3ff) | 0x3400 | bits >> 31 << 15);
	if (dtype == ZCC_F32)
		memcpy((char *)target + 4 * i, &bits, 4);
	else
		memcpy((char *)target + 2 * i, &half, 2);
}

/* A calling thread as a library built for speed leaves it: denormals flushed, and rounding toward zero on top. */
static inline unsigned begin_flushing(void)
{
#ifdef __x86_64__
	unsigned usual = _mm_getcsr();
	_mm_setcsr((usual & ~0x3fu) | 0x8040 | 0x6000);
	return usual;
#else
	return 0;
#endif
}

/* Whether the thread was still flushing; it is as it was before, now. */
static inline bool end_flushing(unsigned usual)
{
#ifdef __x86_64__
	bool flushing = (_mm_getcsr() & 0xe040) == 0xe040;
	_mm_setcsr(usual);
	return flushing;
#else
	(void)usual;
	return true;
#endif
}

/* for (…) over all paths that this machine has; ends with the best one. */
#define FOR_EACH_PATH(path)                                                                                            \
	for (int32_t path = ZCCI_CPU_PLAIN; path < ZCCI_CPU_PATHS; path++)                                             \
		if (zcci_cpu_force(path))

#endif
