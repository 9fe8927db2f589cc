/* One step of AdamW: held against double precision step by step, and every path against the plain one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "kernels/adamw.h"
#include "kernels/strided.h"
#include "paths.h"

static const int32_t dtypes[] = {ZCC_F32, ZCC_BF16, ZCC_F16};

static int setup(void **state)
{
	(void)state;
	seed_random();
	return 0;
}

static double uniform(void)
{
	return (double)(random_bits() >> 11) * 0x1p-53;
}

/* The definition in double precision, written from PyTorch's documentation and not from the kernel. */
typedef struct reference {
	double p, m, v;
} reference;

typedef struct settings {
	double lr, beta1, beta2, eps, decay, grad_scale;
} settings;

static reference reference_step(reference r, double grad, settings s, int step)
{
	grad *= s.grad_scale;
	r.p = r.p - s.lr * s.decay * r.p;
	r.m = s.beta1 * r.m + (1 - s.beta1) * grad;
	r.v = s.beta2 * r.v + (1 - s.beta2) * grad * grad;
	double m_hat = r.m / (1 - pow(s.beta1, step)), v_hat = r.v / (1 - pow(s.beta2, step));
	r.p -= s.lr * m_hat / (sqrt(v_hat) + s.eps);
	return r;
}

/* u = 2^-24 is the largest relative error of a rounding; what double precision adds is 2^-29 of that. Counting
 * roundings, those of the constants included: m' = fma(w, g - m, m)      u |m'| + w |g - m| (u for the difference, u
 * for w) v' = fma(w g, g, b v)      all terms positive: 3 u v' (u for w or b, u for the product, u for the sum) D =
 * sqrt(v') / root + eps  1.5 u from v', then one u each for sqrt, root, the division, eps, the sum: below 6.5 u D q = s
 * m' / D               u for s, u for the product, 6.5 u from D, u for the division: 9.5 u |q|, and |q| times the
 * relative error of m' p' = p keep - q            u |p| for keep, u |p| for the product, u |p'| One hundredth more
 * covers the products of these. Below 2^-126 a rounding may be off by half of 2^-149 instead. */
static void check_step(reference before, reference after, double grad, settings s, int step, float p, float m, float v)
{
	const double u = 0x1p-24 * 1.01, least = 0x1p-149;
	double g = grad * s.grad_scale, w = 1 - s.beta1;
	double m_error = u * (fabs(after.m) + 2 * w * fabs(g - before.m)) + 2 * least;
	double v_error = 3 * u * after.v + 3 * least;
	assert_true(fabs(m - after.m) <= m_error);
	assert_true(fabs(v - after.v) <= v_error);
	/* D from the v that the kernel rounded, so that only its own roundings are left to count. */
	double size = s.lr / (1 - pow(s.beta1, step)), d = sqrt((double)v / (1 - pow(s.beta2, step))) + s.eps;
	double q = size * fabs((double)m) / d;
	double exact = before.p * (1 - s.lr * s.decay) - size * (double)m / d;
	assert_true(fabs(p - exact) <= u * (2 * fabs(before.p) + fabs((double)p) + 9.5 * q) + 4 * least);
	/* And from end to end. */
	assert_true(fabs(p - after.p) <= u * (2 * fabs(before.p) + fabs((double)p) + 9.5 * q) + size * m_error / d +
	                                         q * 1.6 * v_error / (after.v + least) + 4 * least);
}

/* Elements of very different gradients, from 1e-9 (where eps decides) to 1e3, over 3000 steps with changing learning
 * rates. */
static void every_step_is_within_its_roundings_of_double_precision(void **state)
{
	(void)state;
	enum { N = 37, STEPS = 3000 };
	const settings base[] = {
	        {1e-3, 0.9, 0.999, 1e-8, 0.01, 1},
	        {3e-4, 0.9, 0.95, 1e-8, 0.1, 0.5},
	        {1e-2, 0.95, 0.9999, 1e-6, 0, 1.0 / 3},
	        {0, 0, 0, 1e-8, 0.1, 1},
	};
	FOR_EACH_PATH(path)
	{
		for (size_t k = 0; k < sizeof base / sizeof *base; k++) {
			settings s = base[k];
			float p[N], m[N] = {0}, v[N] = {0}, grad[N];
			for (int i = 0; i < N; i++)
				p[i] = (float)(2 * uniform() - 1);
			for (int step = 1; step <= STEPS; step++) {
				s.lr = base[k].lr * (0.6 + 0.4 * cos(step * 0.01));
				reference before[N];
				zcci_adamw_step numbers;
				for (int i = 0; i < N; i++) {
					before[i] = (reference){p[i], m[i], v[i]};
					grad[i] = (float)((2 * uniform() - 0.8) * pow(10, i % 13 - 9));
				}
				zcci_adamw_prepare(&numbers, s.lr, s.beta1, s.beta2, s.eps, s.decay, s.grad_scale,
				                   step);
				zcci_adamw(&numbers, p, m, v, grad, ZCC_F32, NULL, 0, N);
				for (int i = 0; i < N; i++) {
					/* The product with grad_scale rounds too, as the scale itself does: take the
					 * gradient that the definition says it is. */
					double given =
					        (double)(float)((float)grad[i] * (float)s.grad_scale) / s.grad_scale;
					check_step(before[i], reference_step(before[i], given, s, step), given, s, step,
					           p[i], m[i], v[i]);
				}
			}
		}
	}
}

/* The whole way in double precision beside it. A step is at most lr / (1 - beta1) (|m| <= (1 - beta1) sum beta1^k
 * |g_k|, sqrt(v) alike), in truth about lr, and wrong by at most 9.5 u + half the relative error of v, which grows by 3
 * u a step up to 3 u / (1 - beta2) = 3000 u; the constants' own rounding adds as much. After T steps that is at most T
 * lr 6000 u + 3 T u |p|; with T = 4000, lr = 1e-3, |p| < 5 it is below 5e-3. Without bias correction the first hundred
 * steps alone move p by 3e-2 too far, with coupled decay p ends 0.1 off. */
static void a_whole_training_stays_beside_double_precision(void **state)
{
	(void)state;
	enum { N = 24, STEPS = 4000 };
	const settings s = {1e-3, 0.9, 0.999, 1e-8, 0.05, 1};
	float p[N], m[N] = {0}, v[N] = {0}, grad[N];
	reference r[N] = {{0}};
	zcci_cpu_force(zcci_cpu_best());
	for (int i = 0; i < N; i++)
		r[i].p = p[i] = (float)(4 * uniform() - 2);
	for (int step = 1; step <= STEPS; step++) {
		zcci_adamw_step numbers;
		zcci_adamw_prepare(&numbers, s.lr, s.beta1, s.beta2, s.eps, s.decay, s.grad_scale, step);
		for (int i = 0; i < N; i++) {
			grad[i] = (float)(uniform() - (i % 2 == 0 ? 0.3 : 0.7));
			r[i] = reference_step(r[i], grad[i], s, step);
		}
		zcci_adamw(&numbers, p, m, v, grad, ZCC_F32, NULL, 0, N);
		for (int i = 0; i < N; i++)
			assert_true(fabs(p[i] - r[i].p) < 5e-3 * step / STEPS + 1e-6);
	}
}

/* First step from rest: the update is lr * sign(g), whatever the size of the gradient; decay is lr * weight_decay of
 * the parameter. */
static void the_first_step_is_the_learning_rate(void **state)
{
	(void)state;
	FOR_EACH_PATH(path)
	{
		float p[40], m[40] = {0}, v[40] = {0}, grad[40];
		zcci_adamw_step numbers;
		zcci_adamw_prepare(&numbers, 0.01, 0.9, 0.999, 0, 0.1, 1, 1);
		for (int i = 0; i < 40; i++) {
			p[i] = 1;
			grad[i] = (float)((i % 2 == 0 ? 1 : -1) * pow(10, i % 20 - 10));
		}
		zcci_adamw(&numbers, p, m, v, grad, ZCC_F32, NULL, 0, 40);
		for (int i = 0; i < 40; i++)
			assert_true(fabs(p[i] - (0.999 - (i % 2 == 0 ? 0.01 : -0.01))) < 1e-6);
	}
}

enum { GUARD = 64 };

/* Four arrays and a result, each at its own misalignment, with bytes around that must stay. */
typedef struct set {
	char *memory[5];
	size_t bytes[5], shift[5];
} set;

static void *in(const set *s, int which)
{
	return s->memory[which] + GUARD + s->shift[which];
}

static set make(int64_t count, int32_t grad_dtype, int32_t out_dtype, size_t shift)
{
	set s;
	const int32_t kinds[] = {ZCC_F32, ZCC_F32, ZCC_F32, grad_dtype, out_dtype};
	for (int k = 0; k < 5; k++) {
		s.shift[k] = (shift * (size_t)(2 * k + 1)) % 65;
		s.bytes[k] = (size_t)(count * zcc_dtype_bytes(kinds[k])) + 2 * GUARD + 65;
		s.memory[k] = malloc(s.bytes[k]);
		memset(s.memory[k], 0x5a, s.bytes[k]);
	}
	return s;
}

static void drop(set *s)
{
	for (int k = 0; k < 5; k++)
		free(s->memory[k]);
}

static void compare(int64_t count, int32_t grad_dtype, int32_t out_dtype, size_t shift)
{
	set wanted = make(count, grad_dtype, out_dtype, shift), got = make(count, grad_dtype, out_dtype, shift);
	set start = make(count, grad_dtype, out_dtype, shift);
	for (int64_t i = 0; i < count; i++)
		for (int k = 0; k < 4; k++)
			put_random(in(&start, k), k == 3 ? grad_dtype : ZCC_F32, i);
	zcci_adamw_step numbers;
	zcci_adamw_prepare(&numbers, 0.002, 0.9, 0.99, 1e-8, 0.1, shift % 2 == 0 ? 1 : 0.3, 3);
	FOR_EACH_PATH(path)
	{
		set *s = path == ZCCI_CPU_PLAIN ? &wanted : &got;
		for (int k = 0; k < 5; k++)
			memcpy(s->memory[k], start.memory[k], start.bytes[k]);
		zcci_adamw(&numbers, in(s, 0), in(s, 1), in(s, 2), in(s, 3), grad_dtype, in(s, 4), out_dtype, count);
		for (int k = 0; k < 5; k++)
			if (memcmp(s->memory[k], wanted.memory[k], wanted.bytes[k]) != 0)
				fail_msg("%s: array %d differs: %lld elements, gradient %s, result %s, shift %zu",
				         zcci_cpu_path_name(path), k, (long long)count, zcc_dtype_name(grad_dtype),
				         zcc_dtype_name(out_dtype), shift);
	}
	/* The gradient is only read, the result is the rounded master, and nothing around was touched. */
	assert_memory_equal(wanted.memory[3], start.memory[3], start.bytes[3]);
	char *cast = malloc((size_t)(count * zcc_dtype_bytes(out_dtype)) + 1);
	zcci_convert(cast, out_dtype, in(&wanted, 0), ZCC_F32, 1, count);
	assert_memory_equal(cast, in(&wanted, 4), (size_t)(count * zcc_dtype_bytes(out_dtype)));
	free(cast);
	for (int k = 0; k < 5; k++) {
		size_t head = GUARD + wanted.shift[k],
		       data = (size_t)count * (k < 3 ? 4 : (size_t)zcc_dtype_bytes(k == 3 ? grad_dtype : out_dtype));
		assert_memory_equal(wanted.memory[k], start.memory[k], head);
		assert_memory_equal(wanted.memory[k] + head + data, start.memory[k] + head + data,
		                    start.bytes[k] - head - data);
	}
	drop(&wanted);
	drop(&got);
	drop(&start);
}

static void every_length_and_alignment_gives_the_same_bits_on_every_path(void **state)
{
	(void)state;
	for (int g = 0; g < 3; g++)
		for (int o = 0; o < 3; o++)
			for (int64_t count = 0; count <= 70; count++)
				for (size_t shift = 0; shift < 33; shift += 1 + shift / 3)
					compare(count, dtypes[g], dtypes[o], shift);
}

/* From 256 KiB on the result is written past the caches, after a head up to the first whole line. */
static void large_results_have_the_same_bits_on_every_path(void **state)
{
	(void)state;
	for (int g = 0; g < 3; g++)
		for (int o = 0; o < 3; o++)
			for (size_t shift = 0; shift < 5; shift++)
				compare((256 << 10) / zcc_dtype_bytes(dtypes[o]) + (int64_t)(shift % 3) * 17 - 1,
				        dtypes[g], dtypes[o], shift);
}

static void nans_come_out_as_one_nan(void **state)
{
	(void)state;
	FOR_EACH_PATH(path)
	{
		float p[17], m[17] = {0}, v[17] = {0}, grad[17];
		uint16_t out[17];
		for (int i = 0; i < 17; i++) {
			p[i] = 1;
			grad[i] = f32_of(0xff812345);
		}
		zcci_adamw_step numbers;
		zcci_adamw_prepare(&numbers, 0.002, 0.9, 0.99, 1e-8, 0.1, 1, 1);
		zcci_adamw(&numbers, p, m, v, grad, ZCC_F32, out, ZCC_BF16, 17);
		for (int i = 0; i < 17; i++) {
			assert_int_equal(bits_of(p[i]), 0x7fc00000);
			assert_int_equal(bits_of(m[i]), 0x7fc00000);
			assert_int_equal(bits_of(v[i]), 0x7fc00000);
			assert_int_equal(out[i], 0x7fc0);
		}
	}
}

/* Second moments of small gradients are denormals. */
static void denormals_are_not_flushed(void **state)
{
	(void)state;
	FOR_EACH_PATH(path)
	{
		float p[40], m[40] = {0}, v[40] = {0}, grad[40], wanted[3][40];
		zcci_adamw_step numbers;
		zcci_adamw_prepare(&numbers, 0.01, 0.9, 0.999, 0, 0, 1, 1);
		for (int flushing = 0; flushing < 2; flushing++) {
			for (int i = 0; i < 40; i++) {
				p[i] = 1;
				m[i] = v[i] = 0;
				grad[i] = (float)(1e-20 * (i + 1));
			}
			unsigned usual = flushing ? begin_flushing() : 0;
			zcci_adamw(&numbers, p, m, v, grad, ZCC_F32, NULL, 0, 40);
			assert_true(!flushing || end_flushing(usual));
			if (!flushing) {
				memcpy(wanted[0], p, sizeof p);
				memcpy(wanted[1], m, sizeof m);
				memcpy(wanted[2], v, sizeof v);
				assert_true(v[0] > 0 && v[0] < 0x1p-126f);
			}
		}
		assert_memory_equal(p, wanted[0], sizeof p);
		assert_memory_equal(m, wanted[1], sizeof m);
		assert_memory_equal(v, wanted[2], sizeof v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_step_is_within_its_roundings_of_double_precision),
	        cmocka_unit_test(a_whole_training_stays_beside_double_precision),
	        cmocka_unit_test(the_first_step_is_the_learning_rate),
	        cmocka_unit_test(every_length_and_alignment_gives_the_same_bits_on_every_path),
	        cmocka_unit_test(large_results_have_the_same_bits_on_every_path),
	        cmocka_unit_test(nans_come_out_as_one_nan),
	        cmocka_unit_test(denormals_are_not_flushed),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
