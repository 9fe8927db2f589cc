/* Sums of products of floats as integers of 736 bits, exact, and rounded to the nearest float, ties to even: no
 * floating-point operation takes part. */
#ifndef TEST_EXACT_H
#define TEST_EXACT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* value = sum of digit[i] * 2^(32 i - 320); digits may be negative until carried. Products of floats lie from 2^-298 to
 * 2^256. */
enum { EXACT_DIGITS = 23, EXACT_LOW = 320 };
typedef struct exact {
	int64_t digit[EXACT_DIGITS];
} exact;

/* A finite float as mantissa * 2^exponent. */
static inline int64_t exact_mantissa(float value, int *exponent)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	int e = bits >> 23 & 0xff;
	int64_t m = (int64_t)(bits & 0x7fffff) | (e > 0 ? 0x800000 : 0);
	*exponent = (e > 0 ? e : 1) - 150;
	return bits >> 31 ? -m : m;
}

static inline void exact_add_scaled(exact *sum, int64_t mantissa, int exponent)
{
	int shift = exponent + EXACT_LOW;
	__int128 rest = (__int128)mantissa * ((__int128)1 << shift % 32);
	for (int i = shift / 32; i < shift / 32 + 3; i++) {
		sum->digit[i] += (int64_t)(rest & 0xffffffff);
		rest >>= 32;
	}
	sum->digit[shift / 32 + 3] += (int64_t)rest;
}

static inline void exact_add(exact *sum, float value)
{
	int exponent;
	int64_t mantissa = exact_mantissa(value, &exponent);
	exact_add_scaled(sum, mantissa, exponent);
}

static inline void exact_add_product(exact *sum, float a, float b)
{
	int ea, eb;
	int64_t ma = exact_mantissa(a, &ea), mb = exact_mantissa(b, &eb);
	exact_add_scaled(sum, ma * mb, ea + eb);
}

static inline bool exact_bit(const exact *sum, int i)
{
	return i >= 0 && (sum->digit[i / 32] >> i % 32 & 1) != 0;
}

/* The bits of the nearest float. A sum of 0 gives +0: the caller knows the signs of its zeros. */
static inline uint32_t exact_round(exact sum)
{
	for (int i = 0; i + 1 < EXACT_DIGITS; i++) {
		sum.digit[i + 1] += sum.digit[i] >> 32;
		sum.digit[i] &= 0xffffffff;
	}
	uint32_t sign = 0;
	if (sum.digit[EXACT_DIGITS - 1] < 0) {
		sign = 0x80000000;
		int64_t carry = 1;
		for (int i = 0; i < EXACT_DIGITS; i++) {
			int64_t d = (~sum.digit[i] & 0xffffffff) + carry;
			sum.digit[i] = d & 0xffffffff;
			carry = d >> 32;
		}
	}
	int top = EXACT_DIGITS * 32 - 1;
	while (top >= 0 && !exact_bit(&sum, top))
		top--;
	/* The last place: 23 below the leading one, but never below 2^-149. */
	int last = top - 23 > EXACT_LOW - 149 ? top - 23 : EXACT_LOW - 149;
	uint32_t mantissa = 0;
	for (int i = top; i >= last; i--)
		mantissa = mantissa << 1 | exact_bit(&sum, i);
	bool half = exact_bit(&sum, last - 1), rest = false;
	for (int i = 0; i < last - 1; i++)
		rest = rest || exact_bit(&sum, i);
	if (half && (rest || (mantissa & 1)))
		mantissa++;
	/* The leading one adds itself to the exponent, also where the rounding carried. */
	int64_t exponent = last - (EXACT_LOW - 149);
	int64_t bits = (exponent << 23) + mantissa;
	return sign | (bits >= 0x7f800000 ? 0x7f800000 : (uint32_t)bits);
}

#endif
