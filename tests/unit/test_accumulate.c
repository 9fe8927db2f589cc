/* Sums of gradients against exact integers, and every path against the plain one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "exact.h"
#include "kernels/accumulate.h"
#include "kernels/strided.h"
#include "paths.h"

static const int32_t dtypes[] = {ZCC_F32, ZCC_BF16, ZCC_F16};

static int setup(void **state)
{
	(void)state;
	seed_random();
	return 0;
}

static void sums_are_exact_and_rounded_once(void **state)
{
	(void)state;
	enum { N = 30000 };
	static float target[N], old[N], wide[N];
	static char source[4 * N];
	FOR_EACH_PATH(path)
	{
		for (int k = 0; k < 3; k++) {
			for (int64_t i = 0; i < N; i++) {
				put_random(target, ZCC_F32, i);
				put_random(source, dtypes[k], i);
			}
			memcpy(old, target, sizeof old);
			/* Widening is exact; test_convert.c holds it against tables. */
			zcci_convert(wide, ZCC_F32, source, dtypes[k], 1, N);
			zcci_accumulate(target, source, dtypes[k], N);
			for (int i = 0; i < N; i++) {
				uint32_t got = bits_of(target[i]);
				if (isnan(old[i]) || isnan(wide[i]) || (isinf(old[i]) && wide[i] == -old[i])) {
					assert_int_equal(got, 0x7fc00000);
				} else if (isinf(old[i]) || isinf(wide[i])) {
					assert_int_equal(got, bits_of(isinf(old[i]) ? old[i] : wide[i]));
				} else {
					exact sum = {{0}};
					exact_add(&sum, old[i]);
					exact_add(&sum, wide[i]);
					/* Two zeros of one sign keep it; any other sum of 0 is plus. */
					uint32_t zero = bits_of(old[i]) == 0x80000000 && bits_of(wide[i]) == 0x80000000
					                        ? 0x80000000
					                        : 0;
					uint32_t wanted = exact_round(sum);
					assert_int_equal(got, wanted == 0 ? zero : wanted);
				}
			}
		}
	}
}

static void every_length_and_alignment_gives_the_same_bits_on_every_path(void **state)
{
	(void)state;
	enum { GUARD = 16, ROOM = 4 * 70 + 64 + 2 * GUARD };
	for (int k = 0; k < 3; k++)
		for (int64_t count = 0; count <= 70; count++)
			for (size_t shift = 0; shift < 33; shift += 1 + shift / 5) {
				char start[ROOM], wanted[ROOM], got[ROOM];
				size_t bytes = (size_t)(count * zcc_dtype_bytes(dtypes[k])),
				       source_shift = (shift * 7) % 33;
				char *source = malloc(bytes + source_shift + 1);
				memset(start, 0x5a, ROOM);
				for (int64_t i = 0; i < count; i++) {
					put_random(start + GUARD + shift, ZCC_F32, i);
					put_random(source + source_shift, dtypes[k], i);
				}
				zcci_cpu_force(ZCCI_CPU_PLAIN);
				memcpy(wanted, start, ROOM);
				zcci_accumulate((float *)(void *)(wanted + GUARD + shift), source + source_shift,
				                dtypes[k], count);
				assert_memory_equal(wanted, start, GUARD + shift);
				FOR_EACH_PATH(path)
				{
					memcpy(got, start, ROOM);
					zcci_accumulate((float *)(void *)(got + GUARD + shift), source + source_shift,
					                dtypes[k], count);
					assert_memory_equal(got, wanted, ROOM);
				}
				free(source);
			}
}

static void denormals_are_not_flushed(void **state)
{
	(void)state;
	FOR_EACH_PATH(path)
	{
		float target[40], source[40];
		for (uint32_t i = 0; i < 40; i++) {
			target[i] = f32_of(i);
			source[i] = f32_of(2 * i + 1);
		}
		unsigned usual = begin_flushing();
		zcci_accumulate(target, source, ZCC_F32, 40);
		assert_true(end_flushing(usual));
		for (int i = 0; i < 40; i++)
			assert_int_equal(bits_of(target[i]), 3 * i + 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(sums_are_exact_and_rounded_once),
	        cmocka_unit_test(every_length_and_alignment_gives_the_same_bits_on_every_path),
	        cmocka_unit_test(denormals_are_not_flushed),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
