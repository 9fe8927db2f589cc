/* Single values as bits: f32, bf16, f16. The reference for every path. */
#ifndef ZCCI_VALUE_H
#define ZCCI_VALUE_H

#include <string.h>

#include "zcc/base.h"

static inline uint32_t zcci_float_bits(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

static inline float zcci_float_of(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

/* Which NaN an operation gives depends on the processor and on the order a compiler chose: kernels that compute write
 * this one. */
static inline float zcci_one_nan(float value)
{
	return value != value ? zcci_float_of(0x7fc00000) : value;
}

/* Both arms of each are computed, one is selected, so that loops over them can be vectorised. Rounding is to nearest
 * even; NaNs become quiet and keep sign and upper payload. */
static inline uint16_t zcci_bf16_of_f32(uint32_t bits)
{
	uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
	uint32_t quiet = (bits >> 16) | 0x40;
	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

static inline uint32_t zcci_f32_of_bf16(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	return (wide & 0x7fffffff) > 0x7f800000 ? wide | 0x400000 : wide;
}

static inline uint32_t zcci_f32_of_f16(uint16_t bits)
{
	uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
	uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13;
	uint32_t normal = magnitude + ((127 - 15) << 23);
	/* A denormal has no leading one: give it one at the least exponent, then take it off again. */
	uint32_t denormal = zcci_float_bits(zcci_float_of(magnitude + (113 << 23)) - zcci_float_of(113 << 23));
	uint32_t special = magnitude + ((255 - 31) << 23);
	special |= (special & 0x7fffff) != 0 ? 0x400000 : 0;
	uint32_t wide = magnitude < (1 << 23) ? denormal : normal;
	return sign | (magnitude >= (31 << 23) ? special : wide);
}

static inline uint16_t zcci_f16_of_f32(uint32_t bits)
{
	uint32_t sign = (bits >> 16) & 0x8000;
	uint32_t magnitude = bits & 0x7fffffff;
	uint32_t normal = (magnitude - ((127 - 15) << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
	/* Beside a number whose last place is the least denormal (2^-24), the addition itself rounds to nearest even.
	 */
	uint32_t anchor = (127 - 1) << 23;
	uint32_t denormal = zcci_float_bits(zcci_float_of(magnitude) + zcci_float_of(anchor)) - anchor;
	uint32_t special = magnitude > 0x7f800000 ? 0x7e00 | ((magnitude >> 13) & 0x3ff) : 0x7c00;
	uint32_t finite = magnitude < (113 << 23) ? denormal : normal;
	return (uint16_t)(sign | (magnitude >= ((127 + 16) << 23) ? special : finite));
}

/* Element i of a source of F32, BF16 or F16, at any alignment, as f32. */
static inline float zcci_load_float(const void *source, int32_t dtype, int64_t i)
{
	if (dtype == ZCC_F32) {
		float value;
		memcpy(&value, (const char *)source + 4 * i, sizeof value);
		return value;
	}
	uint16_t half;
	memcpy(&half, (const char *)source + 2 * i, sizeof half);
	return zcci_float_of(dtype == ZCC_BF16 ? zcci_f32_of_bf16(half) : zcci_f32_of_f16(half));
}

/* The same for a target, rounding. */
static inline void zcci_store_float(void *target, int32_t dtype, int64_t i, float value)
{
	if (dtype == ZCC_F32) {
		memcpy((char *)target + 4 * i, &value, sizeof value);
		return;
	}
	uint32_t bits = zcci_float_bits(value);
	uint16_t half = dtype == ZCC_BF16 ? zcci_bf16_of_f32(bits) : zcci_f16_of_f32(bits);
	memcpy((char *)target + 2 * i, &half, sizeof half);
}

#endif
