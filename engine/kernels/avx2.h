/* Eight numbers at a time: what the AVX2 paths share. Only for functions marked ZCCI_AVX2, which run where
 * zcci_cpu_path says so. */
#ifndef ZCCI_AVX2_H
#define ZCCI_AVX2_H

#ifdef __x86_64__

#include <immintrin.h>

#include "zcc/base.h"

#define ZCCI_AVX2 __attribute__((target("avx2,fma,f16c")))
#define ZCCI_AVX2_INLINE static inline __attribute__((target("avx2,fma,f16c"), always_inline))

/* NaNs as `one`, which is one for all of them (see zcci_one_nan). */
ZCCI_AVX2_INLINE __m256 zcci_one_nan_avx2(__m256 x)
{
	__m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
	return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* Eight elements of F32, BF16 or F16 as f32. NaNs of BF16 stay as they are, quiet or not. */
ZCCI_AVX2_INLINE __m256 zcci_load_avx2(const char *source, int32_t dtype)
{
	if (dtype == ZCC_F32)
		return _mm256_loadu_ps((const float *)(const void *)source);
	__m128i halves = _mm_loadu_si128((const __m128i *)(const void *)source);
	if (dtype == ZCC_F16)
		return _mm256_cvtph_ps(halves);
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* The bits of a BF16 in the lower half of each of eight words. */
ZCCI_AVX2_INLINE __m256i zcci_round_bf16_avx2(__m256 x)
{
	__m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
	__m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
	__m256i rounded =
	        _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
	__m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
	return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}

/* Sixteen elements as BF16 or F16, rounded to nearest even; NaNs become quiet and keep sign and upper payload. */
ZCCI_AVX2_INLINE __m256i zcci_narrow_avx2(__m256 a, __m256 b, int32_t dtype)
{
	if (dtype == ZCC_F16) {
		__m128i low = _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
		__m128i high = _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
		return _mm256_set_m128i(high, low);
	}
	__m256i packed = _mm256_packus_epi32(zcci_round_bf16_avx2(a), zcci_round_bf16_avx2(b));
	return _mm256_permute4x64_epi64(packed, 0xd8); /* the pack works within halves of the register */
}

/* Eight elements to F32, BF16 or F16. */
ZCCI_AVX2_INLINE void zcci_store_avx2(char *target, int32_t dtype, __m256 x)
{
	if (dtype == ZCC_F32)
		_mm256_storeu_ps((float *)(void *)target, x);
	else
		_mm_storeu_si128((__m128i *)(void *)target, _mm256_castsi256_si128(zcci_narrow_avx2(x, x, dtype)));
}

#endif

#endif
