/* The EMA step against exact integers, and every path against the plain one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "exact.h"
#include "kernels/lerp.h"
#include "paths.h"

static int setup(void **state)
{
	(void)state;
	seed_random();
	return 0;
}

/* The bits of ema + w * round(param - ema), all but the two roundings exact. */
static uint32_t exact_lerp(float ema, float param, double decay)
{
	/* The weight comes by way of text: another rounding than a cast. */
	char text[128];
	snprintf(text, sizeof text, "%.60g", 1 - decay);
	float w = strtof(text, NULL);
	exact difference = {{0}}, sum = {{0}};
	exact_add(&difference, param);
	exact_add(&difference, -ema);
	float d = f32_of(exact_round(difference));
	if (isinf(d))
		return bits_of(d);
	exact_add_product(&sum, w, d);
	exact_add(&sum, ema);
	return exact_round(sum);
}

static float some_finite(void)
{
	uint32_t bits;
	do
		bits = random_f32();
	while ((bits & 0x7f800000) == 0x7f800000);
	return f32_of(bits);
}

static void the_step_is_exact_but_for_two_roundings(void **state)
{
	(void)state;
	enum { N = 40000 };
	float *ema = malloc(N * sizeof *ema), *param = malloc(N * sizeof *param), *old = malloc(N * sizeof *old);
	const double decays[] = {0.999, 0.9999, 0.9, 0.5, 0, 0.99999999, 0.1234567};
	FOR_EACH_PATH(path)
	{
		for (size_t k = 0; k < sizeof decays / sizeof *decays; k++) {
			for (int i = 0; i < N; i++) {
				old[i] = ema[i] = some_finite();
				/* Half of them so near that the step is a few last places. */
				uint32_t near = bits_of(old[i]) + (uint32_t)(random_bits() % 4096);
				param[i] =
				        i % 2 == 0 || (near & 0x7f800000) == 0x7f800000 ? some_finite() : f32_of(near);
			}
			zcci_lerp(ema, param, ZCC_F32, decays[k], N);
			for (int i = 0; i < N; i++) {
				uint32_t wanted = exact_lerp(old[i], param[i], decays[k]);
				/* A sum of 0 is exact, and its sign that of both terms or plus. */
				if (wanted == 0 && bits_of(ema[i]) == 0x80000000 && signbit(old[i]))
					continue;
				if (bits_of(ema[i]) != wanted)
					fail_msg("%s: decay %g, ema %a, param %a: got %a, exact is %a",
					         zcci_cpu_path_name(path), decays[k], old[i], param[i], ema[i],
					         f32_of(wanted));
			}
		}
	}
	free(ema);
	free(param);
	free(old);
}

/* Through bf16 parameters, whose values are exact in f32. */
static void a_bf16_parameter_counts_with_its_exact_value(void **state)
{
	(void)state;
	FOR_EACH_PATH(path)
	{
		for (uint32_t base = 0; base < 65536; base += 64) {
			uint16_t param[64];
			float ema[64], old[64];
			for (uint32_t i = 0; i < 64; i++) {
				param[i] = (uint16_t)(base + i);
				old[i] = ema[i] = some_finite();
			}
			zcci_lerp(ema, param, ZCC_BF16, 0.99, 64);
			for (uint32_t i = 0; i < 64; i++) {
				float value = f32_of((uint32_t)param[i] << 16);
				uint32_t wanted = isnan(value)   ? 0x7fc00000
				                  : isinf(value) ? bits_of(value)
				                                 : exact_lerp(old[i], value, 0.99);
				assert_int_equal(bits_of(ema[i]), wanted);
			}
		}
	}
}

static void a_nan_comes_out_as_one_nan(void **state)
{
	(void)state;
	const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xffffffff, 0x7fc12345};
	FOR_EACH_PATH(path)
	{
		for (int a = 0; a < 6; a++)
			for (int b = 0; b < 6; b++) {
				float ema[19], param[19];
				for (int i = 0; i < 19; i++) {
					ema[i] = a < 5 ? f32_of(nans[a]) : a == b ? INFINITY : 2;
					param[i] = b < 5 ? f32_of(nans[b]) : INFINITY;
				}
				zcci_lerp(ema, param, ZCC_F32, 0.9, 19);
				for (int i = 0; i < 19; i++)
					assert_int_equal(bits_of(ema[i]), 0x7fc00000);
			}
	}
}

static void every_length_and_alignment_gives_the_same_bits_on_every_path(void **state)
{
	(void)state;
	const int32_t dtypes[] = {ZCC_F32, ZCC_BF16, ZCC_F16};
	enum { GUARD = 16, ROOM = 4 * 70 + 64 + 2 * GUARD };
	for (int k = 0; k < 3; k++)
		for (int64_t count = 0; count <= 70; count++)
			for (size_t shift = 0; shift < 33; shift += 1 + shift / 5) {
				char start[ROOM], wanted[ROOM], got[ROOM];
				size_t param_bytes = (size_t)(count * zcc_dtype_bytes(dtypes[k])),
				       param_shift = (shift * 7) % 33;
				char *param = malloc(param_bytes + param_shift + 1);
				memset(start, 0x5a, ROOM);
				for (int64_t i = 0; i < count; i++) {
					put_random(start + GUARD + shift, ZCC_F32, i);
					put_random(param + param_shift, dtypes[k], i);
				}
				zcci_cpu_force(ZCCI_CPU_PLAIN);
				memcpy(wanted, start, ROOM);
				zcci_lerp((float *)(void *)(wanted + GUARD + shift), param + param_shift, dtypes[k],
				          0.97, count);
				assert_memory_equal(wanted, start, GUARD + shift);
				FOR_EACH_PATH(path)
				{
					memcpy(got, start, ROOM);
					zcci_lerp((float *)(void *)(got + GUARD + shift), param + param_shift,
					          dtypes[k], 0.97, count);
					assert_memory_equal(got, wanted, ROOM);
				}
				free(param);
			}
}

/* Denormals move, one last place at a time where the step is that small, also for a thread that flushes its own. */
static void denormals_are_not_flushed(void **state)
{
	(void)state;
	FOR_EACH_PATH(path)
	{
		for (int flushing = 0; flushing < 2; flushing++) {
			float ema[40], param[40];
			for (uint32_t i = 0; i < 40; i++) {
				ema[i] = f32_of(i);
				param[i] = f32_of(i + 2);
			}
			unsigned usual = flushing ? begin_flushing() : 0;
			zcci_lerp(ema, param, ZCC_F32, 0.5, 40);
			assert_true(!flushing || end_flushing(usual));
			for (int i = 0; i < 40; i++)
				assert_int_equal(bits_of(ema[i]), i + 1);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_step_is_exact_but_for_two_roundings),
	        cmocka_unit_test(a_bf16_parameter_counts_with_its_exact_value),
	        cmocka_unit_test(a_nan_comes_out_as_one_nan),
	        cmocka_unit_test(every_length_and_alignment_gives_the_same_bits_on_every_path),
	        cmocka_unit_test(denormals_are_not_flushed),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
