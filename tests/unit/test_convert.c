/* Conversions against tables of every 16-bit value, decoded with ldexp and searched for the nearest by exact
 * comparison. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <float.h>

#include <cmocka.h>

#include "kernels/strided.h"

static uint64_t random_state;

static uint64_t random_bits(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return random_state ^ random_state >> 29;
}

/* A 16-bit format and the values of its codes from 0 up to infinity, which counts as the next power of two. */
typedef struct format {
	int32_t dtype;
	int exponent_bits;
	int fraction_bits;
	int infinity;
	double values[32768];
} format;

static format half = {ZCC_F16, 5, 10, 0x7c00, {0}};
static format brain = {ZCC_BF16, 8, 7, 0x7f80, {0}};

static void tabulate(format *f)
{
	int bias = (1 << (f->exponent_bits - 1)) - 1, leading = 1 << f->fraction_bits;
	for (int code = 0; code <= f->infinity; code++) {
		int exponent = code >> f->fraction_bits, fraction = code % leading;
		if (exponent == 0)
			f->values[code] = ldexp(fraction, 1 - bias - f->fraction_bits);
		else
			f->values[code] = ldexp(leading + fraction, exponent - bias - f->fraction_bits);
	}
}

static int setup(void **state)
{
	(void)state;
	const char *given = getenv("ZCC_SEED");
	random_state = given != NULL ? strtoull(given, NULL, 0) : 20240611;
	printf("ZCC_SEED=%llu\n", (unsigned long long)random_state);
	tabulate(&half);
	tabulate(&brain);
	return 0;
}

/* lower + upper and 2 * x are exact in a double, so the comparison is. */
static uint16_t nearest(const format *f, double x)
{
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	x = fabs(x);
	if (x >= f->values[f->infinity])
		return (uint16_t)(sign | f->infinity);
	int low = 0, high = f->infinity;
	while (high - low > 1) {
		int middle = (low + high) / 2;
		if (f->values[middle] <= x)
			low = middle;
		else
			high = middle;
	}
	double twice = ldexp(x, 1), both = f->values[low] + f->values[high];
	int code = twice < both ? low : twice > both ? high : low % 2 == 0 ? low : high;
	return (uint16_t)(sign | code);
}

static float f32_of(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static uint32_t bits_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

static uint64_t bits64_of(double value)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

static double f64_of(uint64_t bits)
{
	double value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static void every_16_bit_value_widens_exactly_and_comes_back(void **state)
{
	(void)state;
	const format *formats[] = {&half, &brain};
	for (int i = 0; i < 2; i++) {
		const format *f = formats[i];
		static uint16_t codes[65536], back[65536];
		static uint32_t narrow[65536];
		static uint64_t wide[65536];
		uint16_t quiet = (uint16_t)(1 << (f->fraction_bits - 1));
		for (int c = 0; c < 65536; c++)
			codes[c] = (uint16_t)c;
		zcci_convert(narrow, ZCC_F32, codes, f->dtype, 1, 65536);
		zcci_convert(wide, ZCC_F64, codes, f->dtype, 1, 65536);
		for (int c = 0; c < 65536; c++) {
			int magnitude = c & 0x7fff;
			if (magnitude > f->infinity) {
				uint64_t fraction = (uint64_t)(magnitude % (1 << f->fraction_bits)) | quiet;
				uint64_t sign = (uint64_t)c >> 15;
				assert_int_equal(narrow[c],
				                 sign << 31 | 0x7f800000 | fraction << (23 - f->fraction_bits));
				assert_int_equal(wide[c],
				                 sign << 63 | 0x7ff0000000000000 | fraction << (52 - f->fraction_bits));
				continue;
			}
			double value = magnitude == f->infinity ? INFINITY : f->values[magnitude];
			assert_int_equal(narrow[c], bits_of((float)(c > 0x7fff ? -value : value)));
			assert_int_equal(wide[c], bits64_of(c > 0x7fff ? -value : value));
		}
		for (int way = 0; way < 2; way++) {
			memset(back, 0, sizeof back);
			if (way == 0)
				zcci_convert(back, f->dtype, narrow, ZCC_F32, 1, 65536);
			else
				zcci_convert(back, f->dtype, wide, ZCC_F64, 1, 65536);
			for (int c = 0; c < 65536; c++)
				assert_int_equal(back[c], (c & 0x7fff) > f->infinity ? c | quiet : c);
		}
	}
}

static void f32_to_bf16_rounds_as_published_cases_say(void **state)
{
	(void)state;
	const uint32_t in[] = {0x3f808000, 0x3f818000, 0x7f7fffff, 0x7f800001,
	                       0x00018000, 0x80008001, 0xffffffff, 0x80000000};
	const uint16_t want[] = {0x3f80, 0x3f82, 0x7f80, 0x7fc0, 0x0002, 0x8001, 0xffff, 0x8000};
	uint16_t got[8];
	zcci_convert(got, ZCC_BF16, in, ZCC_F32, 1, 8);
	assert_memory_equal(got, want, sizeof want);
}

enum { BATCH = 4096 };

/* Collects numbers and checks them by the batch, once from F32 where they fit and always from F64. */
typedef struct batch {
	const format *format;
	int n;
	double values[BATCH];
} batch;

static void check(batch *b)
{
	static float narrow[BATCH];
	static uint16_t from_f32[BATCH], from_f64[BATCH];
	for (int i = 0; i < b->n; i++)
		narrow[i] = (float)b->values[i];
	zcci_convert(from_f32, b->format->dtype, narrow, ZCC_F32, 1, b->n);
	zcci_convert(from_f64, b->format->dtype, b->values, ZCC_F64, 1, b->n);
	for (int i = 0; i < b->n; i++) {
		assert_int_equal(from_f64[i], nearest(b->format, b->values[i]));
		assert_int_equal(from_f32[i], nearest(b->format, narrow[i]));
	}
	b->n = 0;
}

static void add(batch *b, double value)
{
	b->values[b->n++] = value;
	if (b->n == BATCH)
		check(b);
}

/* A number just beside a tie must not be rounded to F32 first: it would become the tie. */
static void every_tie_and_its_neighbours_round_once_to_nearest_even(void **state)
{
	(void)state;
	const format *formats[] = {&half, &brain};
	static batch b;
	for (int i = 0; i < 2; i++) {
		b.format = formats[i];
		for (int code = 0; code < b.format->infinity; code++)
			for (int sign = -1; sign <= 1; sign += 2) {
				double tie = (b.format->values[code] + b.format->values[code + 1]) / 2 * sign;
				add(&b, tie);
				add(&b, nextafter(tie, INFINITY));
				add(&b, nextafter(tie, -INFINITY));
				add(&b, nextafterf((float)tie, INFINITY));
				add(&b, nextafterf((float)tie, -INFINITY));
				add(&b, nextafter(b.format->values[code] * sign, -INFINITY));
			}
		const double limits[] = {0.0,       -0.0,       INFINITY, -INFINITY, DBL_MAX,   -DBL_MAX, DBL_MIN,
		                         0x1p-1074, -0x1p-1074, FLT_MAX,  FLT_MIN,   0x1p-149,  0x1p-150, 65519.999,
		                         65520,     65504,      0x1p-24,  0x1p-25,   0x1.8p-25, 0x1p-134, 0x1.8p-134};
		for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
			add(&b, limits[k]);
			add(&b, nextafter(limits[k], 0));
		}
		check(&b);
	}
}

static void random_bit_patterns_round_to_nearest_even(void **state)
{
	(void)state;
	static batch b;
	const format *formats[] = {&half, &brain};
	for (int i = 0; i < 2; i++) {
		b.format = formats[i];
		for (int k = 0; k < 1000000; k++) {
			double value = k % 4 == 0 ? f64_of(random_bits()) : f32_of((uint32_t)random_bits());
			if (k % 4 == 1) /* the range of half precision */
				value = ldexp((double)(int64_t)random_bits(), -63 - (int)(random_bits() % 60) + 17);
			if (!isnan(value))
				add(&b, value);
		}
		check(&b);
	}
}

static void f64_to_f32_lies_nearest_with_ties_to_even(void **state)
{
	(void)state;
	for (int k = 0; k < 300000; k++) {
		double x = f64_of(random_bits());
		if (k % 3 != 0)
			x = ldexp((double)(int64_t)random_bits(), -63 + (int)(random_bits() % 280) - 150);
		if (k % 3 == 2) { /* a tie, or right beside one */
			float f = f32_of((uint32_t)random_bits() & 0xff7fffff);
			x = ((double)f + (double)nextafterf(f, INFINITY)) / 2;
			if (k % 2 == 0)
				x = nextafter(x, random_bits() % 2 ? INFINITY : -INFINITY);
		}
		if (isnan(x))
			continue;
		float got;
		zcci_convert(&got, ZCC_F32, &x, ZCC_F64, 1, 1);
		assert_int_equal(signbit(got) != 0, signbit(x) != 0);
		double g = isinf(got) ? 0x1p128 : fabs((double)got), a = fabs(x);
		if (isinf(got) && a >= 0x1p128)
			continue;
		double below = g > 0 ? (isinf(got) ? FLT_MAX : nextafterf((float)g, 0)) : 0;
		double above = isinf(got) ? 0x1p128 : g >= FLT_MAX ? 0x1p128 : nextafterf((float)g, INFINITY);
		bool even = bits_of(got) % 2 == 0;
		assert_true(even ? 2 * a >= g + below && 2 * a <= g + above : 2 * a > g + below && 2 * a < g + above);
	}
}

static void nans_become_quiet_and_keep_sign_and_upper_payload(void **state)
{
	(void)state;
	for (int k = 0; k < 20000; k++) {
		uint32_t in = (uint32_t)random_bits() | 0x7f800000;
		if (k < 40)
			in = (k % 2 ? 0xff800000 : 0x7f800000) | 1u << (k / 2);
		if ((in & 0x7fffff) == 0)
			continue;
		uint32_t sign = in >> 31, fraction = in & 0x7fffff;
		uint16_t code;
		zcci_convert(&code, ZCC_BF16, &in, ZCC_F32, 1, 1);
		assert_int_equal(code, sign << 15 | 0x7fc0 | fraction >> 16);
		zcci_convert(&code, ZCC_F16, &in, ZCC_F32, 1, 1);
		assert_int_equal(code, sign << 15 | 0x7e00 | fraction >> 13);
		zcci_convert(&code, ZCC_F16, &in, ZCC_F32, -0.25, 1);
		assert_int_equal(code, sign << 15 | 0x7e00 | fraction >> 13);
		uint64_t wide, want = (uint64_t)sign << 63 | 0x7ff8000000000000 | (uint64_t)fraction << 29;
		zcci_convert(&wide, ZCC_F64, &in, ZCC_F32, 1, 1);
		assert_int_equal(wide, want);
		uint32_t scaled;
		zcci_convert(&scaled, ZCC_F32, &in, ZCC_F32, 0.5, 1);
		assert_int_equal(scaled, in | 0x400000);

		uint64_t in64 = (uint64_t)sign << 63 | 0x7ff0000000000000 | (random_bits() & 0xfffffffffffff) | 1;
		zcci_convert(&code, ZCC_BF16, &in64, ZCC_F64, 1, 1);
		assert_int_equal(code, sign << 15 | 0x7fc0 | (in64 >> 45 & 0x7f));
		zcci_convert(&code, ZCC_F16, &in64, ZCC_F64, 1, 1);
		assert_int_equal(code, sign << 15 | 0x7e00 | (in64 >> 42 & 0x3ff));
		zcci_convert(&scaled, ZCC_F32, &in64, ZCC_F64, 1, 1);
		assert_int_equal(scaled, sign << 31 | 0x7fc00000 | (in64 >> 29 & 0x7fffff));
	}
}

/* Factors of few bits: the double holds the product, so the nearest code of the product is the only right answer. */
static void a_factor_is_applied_in_double_and_rounded_once(void **state)
{
	(void)state;
	const double factors[] = {0.5, 3, 1.0 / 4096, -7, 0x1.000001p0, 0, 1 - 0x1p-20};
	for (int k = 0; k < 200000; k++) {
		float x = f32_of((uint32_t)random_bits());
		double factor = factors[k % 7];
		if (isnan(x) || isnan(factor * (double)x))
			continue;
		uint16_t code;
		zcci_convert(&code, ZCC_BF16, &x, ZCC_F32, factor, 1);
		assert_int_equal(code, nearest(&brain, factor * (double)x));
		zcci_convert(&code, ZCC_F16, &x, ZCC_F32, factor, 1);
		assert_int_equal(code, nearest(&half, factor * (double)x));
		uint16_t b = (uint16_t)(bits_of(x) >> 16);
		float wide;
		zcci_convert(&wide, ZCC_F32, &b, ZCC_BF16, factor, 1);
		if (isinf(f32_of((uint32_t)b << 16)) && factor == 0)
			continue;
		assert_int_equal(bits_of(wide), bits_of((float)(factor * (double)f32_of((uint32_t)b << 16))));
	}
}

static void halves_go_over_without_a_stop_at_f32(void **state)
{
	(void)state;
	for (int c = 0; c < 65536; c++) {
		uint16_t in = (uint16_t)c, got;
		int magnitude = c & 0x7fff;
		if (magnitude < half.infinity) {
			zcci_convert(&got, ZCC_BF16, &in, ZCC_F16, 1, 1);
			assert_int_equal(
			        got, nearest(&brain, c > 0x7fff ? -half.values[magnitude] : half.values[magnitude]));
		}
		if (magnitude <= brain.infinity) {
			zcci_convert(&got, ZCC_F16, &in, ZCC_BF16, 1, 1);
			assert_int_equal(
			        got, nearest(&half, c > 0x7fff ? -brain.values[magnitude] : brain.values[magnitude]));
		}
	}
}

static void equal_dtypes_are_copied_bit_for_bit(void **state)
{
	(void)state;
	for (int32_t dtype = ZCC_BOOL; dtype <= ZCC_C64; dtype++) {
		unsigned char in[8 * 37], out[8 * 37];
		for (size_t i = 0; i < sizeof in; i++)
			in[i] = (unsigned char)random_bits();
		memset(in, 0xff, 16); /* signalling or not, a NaN stays what it is */
		in[7] = 0x7f;
		memset(out, 0, sizeof out);
		zcci_convert(out, dtype, in, dtype, 1, 37);
		assert_memory_equal(in, out, (size_t)(37 * zcc_dtype_bytes(dtype)));
	}
}

static void any_length_and_any_alignment_stay_within_the_target(void **state)
{
	(void)state;
	const int32_t dtypes[] = {ZCC_F16, ZCC_BF16, ZCC_F32, ZCC_F64};
	for (int pair = 0; pair < 16; pair++) {
		int32_t to = dtypes[pair / 4], from = dtypes[pair % 4];
		for (int n = 0; n < 1100; n += n < 40 ? 1 : 53)
			for (size_t shift = 0; shift < 3; shift++) {
				static unsigned char in[8 * 1100 + 8], out[8 * 1100 + 24];
				double factor = n % 2 ? 1 : 2;
				for (size_t i = 0; i < sizeof in; i++)
					in[i] = (unsigned char)random_bits();
				memset(out, 0x5a, sizeof out);
				size_t bytes = (size_t)(n * zcc_dtype_bytes(to));
				zcci_convert(out + 8 + shift, to, in + shift, from, factor, n);
				for (size_t i = 0; i < 8 + shift; i++)
					assert_int_equal(out[i], 0x5a);
				for (size_t i = 8 + shift + bytes; i < sizeof out; i++)
					assert_int_equal(out[i], 0x5a);
				/* One by one gives what many at once give. */
				for (int i = 0; i < n; i++) {
					unsigned char one[8];
					zcci_convert(one, to, in + shift + i * zcc_dtype_bytes(from), from, factor, 1);
					assert_memory_equal(one, out + 8 + shift + i * zcc_dtype_bytes(to),
					                    (size_t)zcc_dtype_bytes(to));
				}
			}
	}
}

static void only_floating_dtypes_convert_or_scale(void **state)
{
	(void)state;
	for (int32_t to = 0; to <= ZCC_C64 + 1; to++)
		for (int32_t from = 0; from <= ZCC_C64 + 1; from++) {
			bool known = to >= ZCC_BOOL && to <= ZCC_C64;
			bool floats = (to == ZCC_F16 || to == ZCC_BF16 || to == ZCC_F32 || to == ZCC_F64) &&
			              (from == ZCC_F16 || from == ZCC_BF16 || from == ZCC_F32 || from == ZCC_F64);
			assert_int_equal(zcci_convert_supported(to, from, 1), floats || (known && to == from));
			assert_int_equal(zcci_convert_supported(to, from, 0.5), floats);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_16_bit_value_widens_exactly_and_comes_back),
	        cmocka_unit_test(f32_to_bf16_rounds_as_published_cases_say),
	        cmocka_unit_test(every_tie_and_its_neighbours_round_once_to_nearest_even),
	        cmocka_unit_test(random_bit_patterns_round_to_nearest_even),
	        cmocka_unit_test(f64_to_f32_lies_nearest_with_ties_to_even),
	        cmocka_unit_test(nans_become_quiet_and_keep_sign_and_upper_payload),
	        cmocka_unit_test(a_factor_is_applied_in_double_and_rounded_once),
	        cmocka_unit_test(halves_go_over_without_a_stop_at_f32),
	        cmocka_unit_test(equal_dtypes_are_copied_bit_for_bit),
	        cmocka_unit_test(any_length_and_any_alignment_stay_within_the_target),
	        cmocka_unit_test(only_floating_dtypes_convert_or_scale),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
