#include "kernels/strided.h"

#include <string.h>

#include "kernels/convert_avx2.h"
#include "kernels/cpu.h"
#include "kernels/value.h"

static bool is_floating(int32_t dtype)
{
	return dtype == ZCC_F16 || dtype == ZCC_BF16 || dtype == ZCC_F32 || dtype == ZCC_F64;
}

bool zcci_convert_supported(int32_t target_dtype, int32_t source_dtype, double factor)
{
	if (target_dtype == source_dtype && factor == 1)
		return zcc_dtype_bytes(target_dtype) > 0;
	return is_floating(target_dtype) && is_floating(source_dtype);
}

/* Straight from the double, so that nothing is rounded twice. exponent_bits and fraction_bits are those of the result.
 */
static inline uint16_t narrow(double value, int exponent_bits, int fraction_bits)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	uint16_t sign = (uint16_t)(bits >> 63 << 15);
	uint64_t fraction = bits & 0xfffffffffffff;
	int exponent = (int)(bits >> 52 & 0x7ff);
	int last = (1 << exponent_bits) - 1;
	uint16_t infinity = (uint16_t)(last << fraction_bits);
	if (exponent == 0x7ff && fraction != 0)
		return (uint16_t)(sign | infinity | 1 << (fraction_bits - 1) | fraction >> (52 - fraction_bits));
	exponent += (last >> 1) - 1023;
	if (exponent >= last)
		return sign | infinity;
	int shift = 52 - fraction_bits;
	if (exponent < 1) {
		shift += 1 - exponent;
		exponent = 1;
	}
	/* Less than half of the least denormal; the doubles without a leading one are among them. */
	if (shift > 53)
		return sign;
	uint64_t whole = fraction | (uint64_t)1 << 52;
	uint64_t rounded = (whole + ((uint64_t)1 << (shift - 1)) - 1 + (whole >> shift & 1)) >> shift;
	/* `rounded` brings its leading one along, and a carry out of it is the next exponent, up to infinity. */
	return (uint16_t)(sign | (((uint64_t)(exponent - 1) << fraction_bits) + rounded));
}

/* ---- direct loops ---- */

#define DEFINE_LOOP(name, to_type, from_type, value)                                                                   \
	static void name(void *restrict target, const void *restrict source, int64_t count)                            \
	{                                                                                                              \
		char *restrict out = target;                                                                           \
		const char *restrict in = source;                                                                      \
		for (int64_t i = 0; i < count; i++) {                                                                  \
			from_type x;                                                                                   \
			memcpy(&x, in + i * (int64_t)sizeof x, sizeof x);                                              \
			to_type y = value;                                                                             \
			memcpy(out + i * (int64_t)sizeof y, &y, sizeof y);                                             \
		}                                                                                                      \
	}

DEFINE_LOOP(bf16_from_f32, uint16_t, uint32_t, zcci_bf16_of_f32(x))
DEFINE_LOOP(f32_from_bf16, uint32_t, uint16_t, zcci_f32_of_bf16(x))
DEFINE_LOOP(f16_from_f32, uint16_t, uint32_t, zcci_f16_of_f32(x))
DEFINE_LOOP(f32_from_f16, uint32_t, uint16_t, zcci_f32_of_f16(x))

/* To and from double, where every product and every other pair is formed. */
DEFINE_LOOP(f64_from_f16, double, uint16_t, zcci_float_of(zcci_f32_of_f16(x)))
DEFINE_LOOP(f64_from_bf16, double, uint16_t, zcci_float_of(zcci_f32_of_bf16(x)))
DEFINE_LOOP(f64_from_f32, double, float, x)
DEFINE_LOOP(f16_from_f64, uint16_t, double, narrow(x, 5, 10))
DEFINE_LOOP(bf16_from_f64, uint16_t, double, narrow(x, 8, 7))
DEFINE_LOOP(f32_from_f64, float, double, (float)x)

typedef void convert_function(void *restrict target, const void *restrict source, int64_t count);

static convert_function *direct(int32_t target_dtype, int32_t source_dtype)
{
	if (target_dtype == ZCC_BF16 && source_dtype == ZCC_F32)
		return bf16_from_f32;
	if (target_dtype == ZCC_F32 && source_dtype == ZCC_BF16)
		return f32_from_bf16;
	if (target_dtype == ZCC_F16 && source_dtype == ZCC_F32)
		return f16_from_f32;
	if (target_dtype == ZCC_F32 && source_dtype == ZCC_F16)
		return f32_from_f16;
	return NULL;
}

static void load(double *values, int32_t dtype, const void *source, int64_t count)
{
	if (dtype == ZCC_F16)
		f64_from_f16(values, source, count);
	else if (dtype == ZCC_BF16)
		f64_from_bf16(values, source, count);
	else if (dtype == ZCC_F32)
		f64_from_f32(values, source, count);
	else
		memcpy(values, source, (size_t)count * sizeof *values);
}

static void store(void *target, int32_t dtype, const double *values, int64_t count)
{
	if (dtype == ZCC_F16)
		f16_from_f64(target, values, count);
	else if (dtype == ZCC_BF16)
		bf16_from_f64(target, values, count);
	else if (dtype == ZCC_F32)
		f32_from_f64(target, values, count);
	else
		memcpy(target, values, (size_t)count * sizeof *values);
}

static void scale(double *values, double factor, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		values[i] *= factor;
}

/* Between F32 and a half, whatever path. */
static void convert_direct(convert_function *plain, char *target, int32_t target_dtype, const char *source,
                           int32_t source_dtype, int64_t count)
{
	int64_t done = 0;
#ifdef __x86_64__
	if (zcci_cpu_path() == ZCCI_CPU_AVX2)
		done = zcci_convert_avx2(target, target_dtype, source, source_dtype, count);
#endif
	plain(target + done * zcc_dtype_bytes(target_dtype), source + done * zcc_dtype_bytes(source_dtype),
	      count - done);
}

enum { BLOCK_ELEMS = 512 };

static void convert_through_f64(char *target, int32_t target_dtype, const char *source, int32_t source_dtype,
                                double factor, int64_t count)
{
	double values[BLOCK_ELEMS];
	while (count > 0) {
		int64_t n = count < BLOCK_ELEMS ? count : BLOCK_ELEMS;
		load(values, source_dtype, source, n);
		if (factor != 1)
			scale(values, factor, n);
		store(target, target_dtype, values, n);
		target += n * zcc_dtype_bytes(target_dtype);
		source += n * zcc_dtype_bytes(source_dtype);
		count -= n;
	}
}

void zcci_convert(void *target, int32_t target_dtype, const void *source, int32_t source_dtype, double factor,
                  int64_t count)
{
	if (count <= 0)
		return;
	if (factor == 1 && target_dtype == source_dtype) {
		memcpy(target, source, (size_t)(count * zcc_dtype_bytes(source_dtype)));
		return;
	}
	uint32_t mode = zcci_float_enter();
	convert_function *plain = factor == 1 ? direct(target_dtype, source_dtype) : NULL;
	if (plain != NULL)
		convert_direct(plain, target, target_dtype, source, source_dtype, count);
	else
		convert_through_f64(target, target_dtype, source, source_dtype, factor, count);
	zcci_float_leave(mode);
}
