#include "kernels/accumulate.h"

#include "kernels/avx2.h"
#include "kernels/cpu.h"
#include "kernels/value.h"

static void accumulate_plain(char *target, const char *source, int32_t source_dtype, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i++) {
		float sum = zcci_load_float(target, ZCC_F32, i) + zcci_load_float(source, source_dtype, i);
		zcci_store_float(target, ZCC_F32, i, zcci_one_nan(sum));
	}
}

#ifdef __x86_64__

enum { LANES = 8, PREFETCH_BYTES = 4096 };

ZCCI_AVX2_INLINE int64_t accumulate_lanes(char *target, const char *source, int32_t source_dtype, int64_t elems)
{
	int64_t source_bytes = source_dtype == ZCC_F32 ? 4 : 2, i = 0;
	for (; elems - i >= 2 * LANES; i += 2 * LANES) {
		char *at = target + 4 * i;
		const char *from = source + source_bytes * i;
		_mm_prefetch(at + PREFETCH_BYTES, _MM_HINT_T0);
		_mm_prefetch(from + PREFETCH_BYTES, _MM_HINT_T0);
		__m256 a = _mm256_add_ps(zcci_load_avx2(at, ZCC_F32), zcci_load_avx2(from, source_dtype));
		__m256 b = _mm256_add_ps(zcci_load_avx2(at + 32, ZCC_F32),
		                         zcci_load_avx2(from + LANES * source_bytes, source_dtype));
		zcci_store_avx2(at, ZCC_F32, zcci_one_nan_avx2(a));
		zcci_store_avx2(at + 32, ZCC_F32, zcci_one_nan_avx2(b));
	}
	return i;
}

ZCCI_AVX2 static int64_t accumulate_avx2(char *target, const char *source, int32_t source_dtype, int64_t elems)
{
	if (source_dtype == ZCC_F32)
		return accumulate_lanes(target, source, ZCC_F32, elems);
	if (source_dtype == ZCC_BF16)
		return accumulate_lanes(target, source, ZCC_BF16, elems);
	return accumulate_lanes(target, source, ZCC_F16, elems);
}

#endif

void zcci_accumulate(float *target, const void *source, int32_t source_dtype, int64_t elems)
{
	int64_t done = 0;
	uint32_t mode = zcci_float_enter();
#ifdef __x86_64__
	if (zcci_cpu_path() == ZCCI_CPU_AVX2)
		done = accumulate_avx2((char *)target, source, source_dtype, elems);
#endif
	accumulate_plain((char *)target, source, source_dtype, done, elems);
	zcci_float_leave(mode);
}
