#include "kernels/convert_avx2.h"

#ifdef __x86_64__

#include <stdbool.h>

#include "kernels/avx2.h"

/* What comes from memory is limited by how many reads are under way at a time, which is most where a core follows
 * several streams: a block is read as STRETCHES stretches side by side, PREFETCH_BYTES ahead. Results larger than a
 * core's own cache are written past the caches. (In one stream the cast of a gibibyte reaches 0.55 to 0.65 of memcpy's
 * rate, so 0.86 to 0.89; small blocks into a buffer that is used again take half the time.) */
enum { UNIT = 16, TURN = 2 * UNIT, STRETCH = 4096, STRETCHES = 8, BLOCK = STRETCHES * STRETCH };
enum { PREFETCH_BYTES = 512, LINE = 64, STREAM_BYTES = 2 << 20 };

ZCCI_AVX2_INLINE __m256 widen(const char *source, int32_t dtype)
{
	__m256 x = zcci_load_avx2(source, dtype);
	__m256 quiet = _mm256_or_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x400000)));
	return _mm256_blendv_ps(x, quiet, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

ZCCI_AVX2_INLINE void put(char *target, __m256i bits, bool stream)
{
	if (stream)
		_mm256_stream_si256((__m256i *)(void *)target, bits);
	else
		_mm256_storeu_si256((__m256i *)(void *)target, bits);
}

/* One unit, read and written whole. */
ZCCI_AVX2_INLINE void convert_unit(char *target, int32_t target_dtype, const char *source, int32_t source_dtype,
                                   bool stream)
{
	if (target_dtype == ZCC_F32) {
		__m256 low = widen(source, source_dtype), high = widen(source + 16, source_dtype);
		put(target, _mm256_castps_si256(low), stream);
		put(target + 32, _mm256_castps_si256(high), stream);
		return;
	}
	__m256 low = zcci_load_avx2(source, ZCC_F32), high = zcci_load_avx2(source + 32, ZCC_F32);
	put(target, zcci_narrow_avx2(low, high, target_dtype), stream);
}

ZCCI_AVX2_INLINE void convert_block(char *target, int32_t to, const char *source, int32_t from, bool stream)
{
	int64_t target_bytes = to == ZCC_F32 ? 4 : 2, source_bytes = from == ZCC_F32 ? 4 : 2;
	for (int64_t i = 0; i < STRETCH; i += TURN)
		for (int64_t k = i; k < BLOCK; k += STRETCH) {
			const char *in = source + k * source_bytes;
			char *out = target + k * target_bytes;
			for (int64_t line = 0; line < TURN * source_bytes; line += LINE)
				_mm_prefetch(in + PREFETCH_BYTES + line, _MM_HINT_T0);
			convert_unit(out, to, in, from, stream);
			convert_unit(out + UNIT * target_bytes, to, in + UNIT * source_bytes, from, stream);
		}
}

/* Elements up to the first whole line; count where there is none, because the elements themselves lie across lines. */
static int64_t head_of(const char *target, int64_t target_bytes, int64_t count)
{
	int64_t head_bytes = (int64_t)(-(uintptr_t)target % LINE);
	return head_bytes % target_bytes == 0 ? head_bytes / target_bytes : count;
}

/* Inlined for each pair, so that the dtypes are constants. */
ZCCI_AVX2_INLINE int64_t convert(char *target, int32_t to, const char *source, int32_t from, int64_t count)
{
	int64_t target_bytes = to == ZCC_F32 ? 4 : 2, source_bytes = from == ZCC_F32 ? 4 : 2;
	int64_t done = 0, head = head_of(target, target_bytes, count);
	if (count * target_bytes >= STREAM_BYTES && head < count) {
		/* The last of the units before the first whole line overlaps it. */
		for (; done < head; done += UNIT)
			convert_unit(target + done * target_bytes, to, source + done * source_bytes, from, false);
		for (done = head; count - done >= BLOCK; done += BLOCK)
			convert_block(target + done * target_bytes, to, source + done * source_bytes, from, true);
		_mm_sfence();
	}
	for (; count - done >= BLOCK; done += BLOCK)
		convert_block(target + done * target_bytes, to, source + done * source_bytes, from, false);
	for (; count - done >= UNIT; done += UNIT)
		convert_unit(target + done * target_bytes, to, source + done * source_bytes, from, false);
	return done;
}

ZCCI_AVX2 int64_t zcci_convert_avx2(char *target, int32_t target_dtype, const char *source, int32_t source_dtype,
                                    int64_t count)
{
	if (target_dtype == ZCC_BF16)
		return convert(target, ZCC_BF16, source, ZCC_F32, count);
	if (target_dtype == ZCC_F16)
		return convert(target, ZCC_F16, source, ZCC_F32, count);
	if (source_dtype == ZCC_BF16)
		return convert(target, ZCC_F32, source, ZCC_BF16, count);
	return convert(target, ZCC_F32, source, ZCC_F16, count);
}

#endif
