#include "kernels/lerp.h"

#include <math.h>

#include "kernels/avx2.h"
#include "kernels/cpu.h"
#include "kernels/value.h"

static void lerp_plain(char *ema, const char *param, int32_t param_dtype, float weight, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i++) {
		float old = zcci_load_float(ema, ZCC_F32, i);
		float difference = zcci_load_float(param, param_dtype, i) - old;
		zcci_store_float(ema, ZCC_F32, i, zcci_one_nan(fmaf(weight, difference, old)));
	}
}

#ifdef __x86_64__

enum { LANES = 8, PREFETCH_BYTES = 4096 };

ZCCI_AVX2_INLINE int64_t lerp_lanes(char *ema, const char *param, int32_t param_dtype, float weight, int64_t elems)
{
	int64_t param_bytes = param_dtype == ZCC_F32 ? 4 : 2, i = 0;
	__m256 w = _mm256_set1_ps(weight);
	for (; elems - i >= 2 * LANES; i += 2 * LANES) {
		char *at = ema + 4 * i;
		const char *from = param + param_bytes * i;
		_mm_prefetch(at + PREFETCH_BYTES, _MM_HINT_T0);
		_mm_prefetch(from + PREFETCH_BYTES, _MM_HINT_T0);
		__m256 a = zcci_load_avx2(at, ZCC_F32), b = zcci_load_avx2(at + 32, ZCC_F32);
		__m256 c = _mm256_sub_ps(zcci_load_avx2(from, param_dtype), a);
		__m256 d = _mm256_sub_ps(zcci_load_avx2(from + LANES * param_bytes, param_dtype), b);
		zcci_store_avx2(at, ZCC_F32, zcci_one_nan_avx2(_mm256_fmadd_ps(w, c, a)));
		zcci_store_avx2(at + 32, ZCC_F32, zcci_one_nan_avx2(_mm256_fmadd_ps(w, d, b)));
	}
	return i;
}

ZCCI_AVX2 static int64_t lerp_avx2(char *ema, const char *param, int32_t param_dtype, float weight, int64_t elems)
{
	if (param_dtype == ZCC_F32)
		return lerp_lanes(ema, param, ZCC_F32, weight, elems);
	if (param_dtype == ZCC_BF16)
		return lerp_lanes(ema, param, ZCC_BF16, weight, elems);
	return lerp_lanes(ema, param, ZCC_F16, weight, elems);
}

#endif

void zcci_lerp(float *ema, const void *param, int32_t param_dtype, double decay, int64_t elems)
{
	float weight = (float)(1 - decay);
	int64_t done = 0;
	uint32_t mode = zcci_float_enter();
#ifdef __x86_64__
	if (zcci_cpu_path() == ZCCI_CPU_AVX2)
		done = lerp_avx2((char *)ema, param, param_dtype, weight, elems);
#endif
	lerp_plain((char *)ema, param, param_dtype, weight, done, elems);
	zcci_float_leave(mode);
}
