/* Every path of zcci_convert gives the bits of the plain one, which test_convert.c holds against tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/strided.h"
#include "paths.h"

static const struct {
	int32_t to, from;
} pairs[] = {{ZCC_BF16, ZCC_F32}, {ZCC_F16, ZCC_F32}, {ZCC_F32, ZCC_BF16}, {ZCC_F32, ZCC_F16}};
enum { N_PAIRS = sizeof pairs / sizeof *pairs, GUARD = 64 };

static int setup(void **state)
{
	(void)state;
	seed_random();
	return 0;
}

static void f32_to_bf16_rounds_as_published_cases_say_on_every_path(void **state)
{
	(void)state;
	const uint32_t cases[] = {0x3f808000, 0x3f818000, 0x7f7fffff, 0x7f800001, 0x00018000, 0x80008001, 0xffffffff};
	const uint16_t wanted[] = {0x3f80, 0x3f82, 0x7f80, 0x7fc0, 0x0002, 0x8001, 0xffff};
	FOR_EACH_PATH(path)
	{
		/* Each case in each lane. */
		for (int shift = 0; shift < 7; shift++) {
			uint32_t in[70];
			uint16_t out[70];
			for (int i = 0; i < 70; i++)
				in[i] = cases[(i + shift) % 7];
			zcci_convert(out, ZCC_BF16, in, ZCC_F32, 1, 70);
			for (int i = 0; i < 70; i++)
				assert_int_equal(out[i], wanted[(i + shift) % 7]);
		}
	}
}

/* Converts `count` elements between misaligned addresses on all paths and compares them, and the bytes around. */
static void compare(int pair, int64_t count, size_t in_shift, size_t out_shift)
{
	int32_t to = pairs[pair].to, from = pairs[pair].from;
	size_t in_bytes = (size_t)(count * zcc_dtype_bytes(from)), out_bytes = (size_t)(count * zcc_dtype_bytes(to));
	/* Exactly as large as it is, so that a sanitizer sees a read past the end. */
	char *in = malloc(in_shift + in_bytes + 1), *wanted = malloc(out_bytes + 2 * GUARD + 64),
	     *out = malloc(out_bytes + 2 * GUARD + 64);
	for (int64_t i = 0; i < count; i++)
		put_random(in + in_shift, from, i);
	memset(wanted, 0x5a, out_bytes + 2 * GUARD + 64);
	zcci_cpu_force(ZCCI_CPU_PLAIN);
	zcci_convert(wanted + GUARD + out_shift, to, in + in_shift, from, 1, count);
	FOR_EACH_PATH(path)
	{
		memset(out, 0x5a, out_bytes + 2 * GUARD + 64);
		zcci_convert(out + GUARD + out_shift, to, in + in_shift, from, 1, count);
		if (memcmp(out, wanted, out_bytes + 2 * GUARD + 64) != 0)
			fail_msg("%s: %s from %s, %lld elements, shifts %zu and %zu", zcci_cpu_path_name(path),
			         zcc_dtype_name(to), zcc_dtype_name(from), (long long)count, in_shift, out_shift);
	}
	free(in);
	free(wanted);
	free(out);
}

static void every_length_and_alignment_gives_the_same_bits_on_every_path(void **state)
{
	(void)state;
	for (int pair = 0; pair < N_PAIRS; pair++)
		for (int64_t count = 0; count <= 70; count++)
			for (size_t shift = 0; shift < 34; shift += 1 + shift / 4)
				compare(pair, count, shift, (shift * 3) % 35);
}

/* From 32768 elements on, blocks are read in stretches; from 2 MiB of result on they are written past the caches, after
 * a head up to the first whole line. */
static void large_casts_give_the_same_bits_on_every_path(void **state)
{
	(void)state;
	const int64_t block = 32768, stream = 1 << 20;
	const int64_t counts[] = {block - 1,  block,  2 * block + 31,     3 * block + 77,
	                          stream - 1, stream, stream + block + 45};
	for (int pair = 0; pair < N_PAIRS; pair++)
		for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
			const size_t shifts[] = {0, 1, 2, 4, 30, 32, 62, 63};
			int64_t count =
			        counts[k] >= stream - 1 && pairs[pair].to == ZCC_F32 ? counts[k] / 2 : counts[k];
			compare(pair, count, shifts[k], shifts[(k * 3 + 1) % 8]);
			compare(pair, count, 0, k % 2 == 0 ? 0 : 4 * k);
		}
}

static void all_bit_patterns_of_a_half_widen_alike_on_every_path(void **state)
{
	(void)state;
	static uint16_t in[65536];
	static uint32_t wanted[65536], out[65536];
	for (int i = 0; i < 65536; i++)
		in[i] = (uint16_t)i;
	for (int pair = 2; pair < N_PAIRS; pair++) {
		zcci_cpu_force(ZCCI_CPU_PLAIN);
		zcci_convert(wanted, ZCC_F32, in, pairs[pair].from, 1, 65536);
		FOR_EACH_PATH(path)
		{
			zcci_convert(out, ZCC_F32, in, pairs[pair].from, 1, 65536);
			assert_memory_equal(out, wanted, sizeof out);
		}
	}
}

/* Every upper half of the pattern with those lower halves that decide the rounding. */
static void f32_narrows_alike_on_every_path_all_through_its_range(void **state)
{
	(void)state;
	static uint32_t in[65536];
	static uint16_t wanted[65536], out[65536];
	const uint32_t low[] = {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x1fff, 0x2000,
	                        0x3000, 0x7fff, 0x8000, 0x8001, 0xf000, 0xffff};
	for (size_t k = 0; k < sizeof low / sizeof *low; k++) {
		for (uint32_t i = 0; i < 65536; i++)
			in[i] = i << 16 | low[k];
		for (int pair = 0; pair < 2; pair++) {
			zcci_cpu_force(ZCCI_CPU_PLAIN);
			zcci_convert(wanted, pairs[pair].to, in, ZCC_F32, 1, 65536);
			FOR_EACH_PATH(path)
			{
				zcci_convert(out, pairs[pair].to, in, ZCC_F32, 1, 65536);
				assert_memory_equal(out, wanted, sizeof out);
			}
		}
	}
}

/* Libraries built with -ffast-math set this when they are loaded. */
static void a_thread_that_flushes_denormals_gets_the_same_bits_and_keeps_its_mode(void **state)
{
	(void)state;
	FOR_EACH_PATH(path)
	{
		for (int pair = 0; pair < N_PAIRS; pair++) {
			/* Values that become denormals of F16, and denormals of BF16, among them. */
			char in[4 * 1000], wanted[4 * 1000] = {0}, out[4 * 1000] = {0};
			for (int64_t i = 0; i < 1000; i++) {
				uint32_t small = 0x33000000 + (uint32_t)(random_bits() % 0x5800000);
				uint16_t half = (uint16_t)(random_bits() & 0x83ff);
				if (pairs[pair].from == ZCC_F32)
					memcpy(in + 4 * i, &small, 4);
				else
					memcpy(in + 2 * i, &half, 2);
			}
			zcci_convert(wanted, pairs[pair].to, in, pairs[pair].from, 1, 1000);
			unsigned usual = begin_flushing();
			zcci_convert(out, pairs[pair].to, in, pairs[pair].from, 1, 1000);
			assert_true(end_flushing(usual));
			assert_memory_equal(out, wanted, sizeof out);
		}
	}
}

static void a_path_that_is_none_is_refused(void **state)
{
	(void)state;
	int32_t before = zcci_cpu_path();
	assert_false(zcci_cpu_force(ZCCI_CPU_PATHS));
	assert_false(zcci_cpu_force(-1));
	assert_int_equal(zcci_cpu_path(), before);
	assert_null(zcci_cpu_path_name(ZCCI_CPU_PATHS));
}

int main(void)
{
	printf("the best path here is %s\n", zcci_cpu_path_name(zcci_cpu_best()));
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(f32_to_bf16_rounds_as_published_cases_say_on_every_path),
	        cmocka_unit_test(every_length_and_alignment_gives_the_same_bits_on_every_path),
	        cmocka_unit_test(large_casts_give_the_same_bits_on_every_path),
	        cmocka_unit_test(all_bit_patterns_of_a_half_widen_alike_on_every_path),
	        cmocka_unit_test(f32_narrows_alike_on_every_path_all_through_its_range),
	        cmocka_unit_test(a_thread_that_flushes_denormals_gets_the_same_bits_and_keeps_its_mode),
	        cmocka_unit_test(a_path_that_is_none_is_refused),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
