/* The kernels of cuda:0, or over the stand-in their launches, against loops over single elements. */
#include "cuda.h"

#include <math.h>

/* ---- conversions, one value at a time, from the definition of the formats ---- */

typedef struct format {
	int32_t dtype;
	int bytes, fraction_bits, bias, last; /* last: the exponent of infinities and NaNs */
} format;

static const format formats[] = {{ZCC_F16, 2, 10, 15, 31}, {ZCC_BF16, 2, 7, 127, 255}, {ZCC_F32, 4, 23, 127, 255}};

static uint32_t convert_one(uint32_t bits, const format *to, const format *from)
{
	uint32_t sign = bits >> (8 * from->bytes - 1) & 1;
	uint32_t exponent = bits >> from->fraction_bits & (uint32_t)from->last;
	uint32_t fraction = bits & ((1u << from->fraction_bits) - 1);
	uint32_t out_sign = sign << (8 * to->bytes - 1);
	uint32_t infinity = (uint32_t)to->last << to->fraction_bits;
	int wider = to->fraction_bits - from->fraction_bits;
	if (exponent == (uint32_t)from->last && fraction != 0) {
		uint32_t payload = wider >= 0 ? fraction << wider : fraction >> -wider;
		return out_sign | infinity | 1u << (to->fraction_bits - 1) | payload;
	}
	if (exponent == (uint32_t)from->last)
		return out_sign | infinity;
	double value = ldexp(exponent == 0 ? fraction : fraction + (1u << from->fraction_bits),
	                     (exponent == 0 ? 1 : (int)exponent) - from->bias - from->fraction_bits);
	if (value == 0)
		return out_sign;
	/* In units of the last place that the result has; rint rounds to nearest even. */
	int at;
	frexp(value, &at);
	at = at - 1 < 1 - to->bias ? 1 - to->bias : at - 1;
	double units = rint(ldexp(value, to->fraction_bits - at));
	if (units == ldexp(1, to->fraction_bits + 1)) {
		units /= 2;
		at++;
	}
	if (at > to->bias)
		return out_sign | infinity;
	if (units < ldexp(1, to->fraction_bits))
		return out_sign | (uint32_t)units;
	return out_sign | (uint32_t)(at + to->bias) << to->fraction_bits |
	       ((uint32_t)units - (1u << to->fraction_bits));
}

static uint32_t load(const void *data, int64_t i, int bytes)
{
	return bytes == 2 ? ((const uint16_t *)data)[i] : ((const uint32_t *)data)[i];
}

static void store(void *data, int64_t i, int bytes, uint32_t bits)
{
	if (bytes == 2)
		((uint16_t *)data)[i] = (uint16_t)bits;
	else
		((uint32_t *)data)[i] = bits;
}

/* Casts all of `source`, which begins `skew` elements into its allocation, and looks at what lies around the result. */
static void cast_and_check(const void *source, int64_t elems, const format *to, const format *from, int64_t skew)
{
	enum { AROUND = 5 };
	int64_t room = (elems + 2 * AROUND + skew) * to->bytes;
	uint8_t *host = malloc((size_t)room);
	memset(host, 0x5a, (size_t)room);
	char *target = on_device(host, room);
	char *origin = on_device(NULL, (elems + skew) * from->bytes);
	char *data = origin + skew * from->bytes;
	if (elems > 0)
		MUST(zcc_copy_async(stream, data, source, elems * from->bytes, &error));
	int64_t first = AROUND + skew;
	MUST(zcc_cast_async(stream, target + first * to->bytes, to->dtype, data, from->dtype, elems, &error));
	read_device(host, target, room);
	for (int64_t i = 0; i < elems + 2 * AROUND + skew; i++) {
		uint32_t found = load(host, i, to->bytes);
		uint32_t expected = to->bytes == 2 ? 0x5a5a : 0x5a5a5a5a;
		if (i >= first && i < first + elems)
			expected = convert_one(load(source, i - first, from->bytes), to, from);
		if (to == from && i >= first && i < first + elems)
			expected = load(source, i - first, from->bytes);
		if (found != expected) {
			fprintf(stderr, "%s of %s %08x is %08x, should be %08x\n", zcc_dtype_name(to->dtype),
			        zcc_dtype_name(from->dtype), load(source, i - first, from->bytes), found, expected);
			fail();
		}
	}
	zcc_device_free(device, target);
	zcc_device_free(device, origin);
	free(host);
}

static void every_half_becomes_what_the_format_says(void **state)
{
	(void)state;
	uint16_t all[65536];
	for (int32_t i = 0; i < 65536; i++)
		all[i] = (uint16_t)i;
	for (int32_t to = 0; to < 3; to++)
		for (int32_t from = 0; from < 2; from++)
			cast_and_check(all, 65536, &formats[to], &formats[from], 0);
}

static void singles_are_rounded_to_nearest_even(void **state)
{
	(void)state;
	enum { N = 200003 };
	static const uint32_t special[] = {0x3f808000, 0x3f818000, 0x7f7fffff, 0x7f800001, 0x00018000, 0x80008001,
	                                   0xffffffff, 0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
	                                   0x33000000, 0x33000001, 0x477fefff, 0x477ff000, 0x387fffff, 0x38800000,
	                                   0x00000001, 0x007fffff, 0x7fffffff, 0xffc12345};
	uint32_t *values = malloc(N * sizeof *values);
	for (int32_t i = 0; i < N; i++)
		values[i] = i < (int32_t)(sizeof special / sizeof *special) ? special[i] : (uint32_t)draw();
	/* Half of them where f16 has its numbers, ties among them. */
	for (int32_t i = N / 2; i < N; i++)
		values[i] = (values[i] & 0x8fffffff) | 0x30000000 | (uint32_t)below(2) << 27;
	for (int32_t i = N / 2; i < N; i += 3)
		values[i] &= ~0xfffu;
	cast_and_check(values, N, &formats[0], &formats[2], 0);
	cast_and_check(values, N, &formats[1], &formats[2], 0);
	cast_and_check(values, N, &formats[2], &formats[2], 0);
	free(values);
}

static void casts_of_any_length_at_any_element_leave_what_is_around(void **state)
{
	(void)state;
	uint32_t values[64];
	for (int32_t i = 0; i < 64; i++)
		values[i] = (uint32_t)draw();
	for (int32_t to = 0; to < 3; to++)
		for (int32_t from = 0; from < 3; from++)
			for (int64_t elems = 0; elems < 20; elems++)
				for (int64_t skew = 0; skew < 4; skew++)
					cast_and_check(values, elems, &formats[to], &formats[from], skew);
}

static void vectors_are_moved_where_both_sides_are_aligned(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	/* Alignment itself is the stand-in's to check. */
	int64_t before = standin.count("cast_bf16_f32");
	float values[32] = {0};
	cast_and_check(values, 32, &formats[1], &formats[2], 3);
	assert_int_equal(standin.count("cast_bf16_f32"), before + 1);
}

/* ---- moving averages ---- */

static void check_lerp(int32_t dtype, double decay, int64_t elems, int64_t skew)
{
	float *ema = malloc((size_t)(elems + skew) * sizeof *ema);
	float *after = malloc((size_t)(elems + skew) * sizeof *ema);
	uint32_t *param = malloc((size_t)(elems + skew) * sizeof *param);
	int bytes = dtype == ZCC_F32 ? 4 : 2;
	for (int64_t i = 0; i < elems + skew; i++) {
		uint32_t bits[2] = {(uint32_t)draw(), (uint32_t)draw()};
		if (i % 7 != 0)
			for (int32_t k = 0; k < 2; k++)
				bits[k] = (bits[k] & 0x83ffffff) | 0x3c000000;
		memcpy(&ema[i], &bits[0], 4);
		store(param, i, bytes, dtype == ZCC_F32 ? bits[1] : bits[1] >> 16);
	}
	float *there = on_device(ema, (elems + skew) * 4);
	char *from = on_device(param, (elems + skew) * bytes);
	MUST(zcc_lerp_async(stream, there + skew, from + skew * bytes, dtype, decay, elems, &error));
	read_device(after, there, (elems + skew) * 4);
	float weight = (float)(1 - decay);
	for (int64_t i = 0; i < elems + skew; i++) {
		uint32_t bits = load(param, i, bytes) << (bytes == 4 ? 0 : 16);
		float value;
		memcpy(&value, &bits, 4);
		volatile float difference = value - ema[i];
		float expected = i < skew ? ema[i] : fmaf(weight, difference, ema[i]);
		uint32_t one_nan = 0x7fc00000;
		if (i >= skew && isnan(expected))
			memcpy(&expected, &one_nan, 4);
		assert_memory_equal(&after[i], &expected, 4);
	}
	zcc_device_free(device, there);
	zcc_device_free(device, from);
	free(ema);
	free(after);
	free(param);
}

static void an_average_is_one_fused_step_with_one_rounding(void **state)
{
	(void)state;
	static const double decays[] = {0, 0.5, 0.9, 0.999, 0.9999, 1};
	for (int32_t d = 0; d < 6; d++) {
		check_lerp(ZCC_F32, decays[d], 10007, 0);
		check_lerp(ZCC_BF16, decays[d], 10007, 0);
	}
	for (int64_t elems = 0; elems < 12; elems++)
		for (int64_t skew = 0; skew < 4; skew++) {
			check_lerp(ZCC_F32, 0.99, elems, skew);
			check_lerp(ZCC_BF16, 0.99, elems, skew);
		}
}

/* ---- strided copies ---- */

typedef struct side {
	int64_t strides[ZCC_MAX_NDIM];
	int64_t first;
	int64_t elems; /* from 0 to past the last reached */
} side;

/* Strides under which no two elements meet: axes nested in a random order, with gaps. */
static side random_side(const int64_t *shape, int32_t ndim, bool dense)
{
	side s = {.first = dense ? 0 : below(4)};
	int32_t order[ZCC_MAX_NDIM] = {0};
	for (int32_t i = 0; i < ndim; i++) {
		int32_t k = (int32_t)below(i + 1);
		order[i] = order[k];
		order[k] = i;
	}
	int64_t step = dense ? 1 : 1 + below(2) * below(3);
	int64_t last = 0;
	for (int32_t i = 0; i < ndim; i++) {
		int32_t axis = dense ? ndim - 1 - i : order[i];
		s.strides[axis] = step;
		last += (shape[axis] - 1) * step;
		step = step * shape[axis] + (dense ? 0 : below(2) * below(5));
	}
	s.elems = s.first + last + 1;
	return s;
}

static int64_t offset_of(const side *s, const int64_t *index, int32_t ndim)
{
	int64_t at = s->first;
	for (int32_t axis = 0; axis < ndim; axis++)
		at += index[axis] * s->strides[axis];
	return at;
}

static void strided_and_check(const int64_t *shape, int32_t ndim, int32_t bytes, bool dense_target, bool dense_source)
{
	side to = random_side(shape, ndim, dense_target);
	side from = random_side(shape, ndim, dense_source);
	uint8_t *source = malloc((size_t)(from.elems * bytes));
	uint8_t *expected = malloc((size_t)(to.elems * bytes));
	uint8_t *found = malloc((size_t)(to.elems * bytes));
	for (int64_t i = 0; i < from.elems * bytes; i++)
		source[i] = (uint8_t)draw();
	memset(expected, 0x5a, (size_t)(to.elems * bytes));
	char *target_data = on_device(expected, to.elems * bytes);
	char *source_data = on_device(source, from.elems * bytes);
	int64_t index[ZCC_MAX_NDIM] = {0};
	for (bool more = true; more;) {
		memcpy(expected + offset_of(&to, index, ndim) * bytes, source + offset_of(&from, index, ndim) * bytes,
		       (size_t)bytes);
		more = false;
		for (int32_t axis = ndim - 1; axis >= 0 && !more; axis--) {
			more = ++index[axis] < shape[axis];
			index[axis] = more ? index[axis] : 0;
		}
	}
	MUST(zcc_strided_async(stream, target_data + to.first * bytes, to.strides, source_data + from.first * bytes,
	                       from.strides, ndim, shape, bytes, &error));
	read_device(found, target_data, to.elems * bytes);
	assert_memory_equal(found, expected, (size_t)(to.elems * bytes));
	zcc_device_free(device, target_data);
	zcc_device_free(device, source_data);
	free(source);
	free(expected);
	free(found);
}

static void any_strided_copy_moves_each_element_and_nothing_else(void **state)
{
	(void)state;
	for (int32_t turn = 0; turn < 800; turn++) {
		int64_t shape[ZCC_MAX_NDIM];
		int32_t ndim = 1 + (int32_t)below(ZCC_MAX_NDIM);
		for (int32_t axis = 0; axis < ndim; axis++)
			shape[axis] = 1 + below(ndim > 4 ? 3 : 9);
		strided_and_check(shape, ndim, 1 << below(4), below(3) == 0, below(3) == 0);
	}
}

static void many_rows_and_long_rows_are_copied(void **state)
{
	(void)state;
	strided_and_check((int64_t[]){70001, 3}, 2, 2, true, false);
	strided_and_check((int64_t[]){3, 70001}, 2, 4, false, true);
	strided_and_check((int64_t[]){512, 512}, 2, 8, true, false);
	strided_and_check((int64_t[]){1}, 1, 1, true, true);
}

static void rows_of_halves_are_moved_as_sixteen_bytes(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	int64_t before = standin.count("strided_16");
	void *from = on_device(NULL, 64 * 128 * 2);
	void *to = on_device(NULL, 64 * 64 * 2);
	MUST(zcc_strided_async(stream, to, (int64_t[]){64, 1}, from, (int64_t[]){128, 1}, 2, (int64_t[]){64, 64}, 2,
	                       &error));
	MUST(zcc_stream_wait(stream, &error));
	assert_int_equal(standin.count("strided_16"), before + 1);
	/* What is dense on both sides is a plain copy. */
	int64_t copies = standin.count("cudaMemcpyAsync");
	MUST(zcc_strided_async(stream, to, (int64_t[]){64, 1}, from, (int64_t[]){64, 1}, 2, (int64_t[]){64, 64}, 2,
	                       &error));
	MUST(zcc_stream_wait(stream, &error));
	assert_int_equal(standin.count("cudaMemcpyAsync"), copies + 1);
	zcc_device_free(device, from);
	zcc_device_free(device, to);
}

static void one_source_element_may_go_to_many_places(void **state)
{
	(void)state;
	uint16_t value = 4711;
	uint16_t found[12];
	void *from = on_device(&value, 2);
	void *to = on_device(NULL, 24);
	MUST(zcc_strided_async(stream, to, (int64_t[]){4, 1}, from, (int64_t[]){0, 0}, 2, (int64_t[]){3, 4}, 2,
	                       &error));
	read_device(found, to, 24);
	for (int32_t i = 0; i < 12; i++)
		assert_int_equal(found[i], 4711);
	zcc_device_free(device, from);
	zcc_device_free(device, to);
}

int main(void)
{
	read_seed();
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_half_becomes_what_the_format_says),
	        cmocka_unit_test(singles_are_rounded_to_nearest_even),
	        cmocka_unit_test(casts_of_any_length_at_any_element_leave_what_is_around),
	        cmocka_unit_test(vectors_are_moved_where_both_sides_are_aligned),
	        cmocka_unit_test(an_average_is_one_fused_step_with_one_rounding),
	        cmocka_unit_test(any_strided_copy_moves_each_element_and_nothing_else),
	        cmocka_unit_test(many_rows_and_long_rows_are_copied),
	        cmocka_unit_test(rows_of_halves_are_moved_as_sixteen_bytes),
	        cmocka_unit_test(one_source_element_may_go_to_many_places),
	};
	return cmocka_run_group_tests_name("cuda kernels", tests, open_all, close_all);
}
