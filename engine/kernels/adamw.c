#include "kernels/adamw.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "kernels/avx2.h"
#include "kernels/cpu.h"
#include "kernels/value.h"

void zcci_adamw_prepare(zcci_adamw_step *numbers, double lr, double beta1, double beta2, double eps,
                        double weight_decay, double grad_scale, int64_t step)
{
	*numbers = (zcci_adamw_step){
	        .grad_scale = (float)grad_scale,
	        .beta1_rest = (float)(1 - beta1),
	        .beta2 = (float)beta2,
	        .beta2_rest = (float)(1 - beta2),
	        .keep = (float)(1 - lr * weight_decay),
	        .step_size = (float)(lr / (1 - pow(beta1, (double)step))),
	        .root = (float)sqrt(1 - pow(beta2, (double)step)),
	        .eps = (float)eps,
	};
}

/* Where everything lies; any alignment. */
typedef struct operands {
	char *master, *m, *v;
	const void *grad;
	void *out;
	int32_t grad_dtype, out_dtype;
} operands;

static void step_plain(const zcci_adamw_step *n, const operands *o, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i++) {
		float g = zcci_load_float(o->grad, o->grad_dtype, i) * n->grad_scale;
		float p = zcci_load_float(o->master, ZCC_F32, i) * n->keep;
		float m = zcci_load_float(o->m, ZCC_F32, i);
		float v = zcci_load_float(o->v, ZCC_F32, i);
		m = zcci_one_nan(fmaf(n->beta1_rest, g - m, m));
		v = zcci_one_nan(fmaf(n->beta2_rest * g, g, n->beta2 * v));
		p = zcci_one_nan(p - n->step_size * m / (sqrtf(v) / n->root + n->eps));
		zcci_store_float(o->m, ZCC_F32, i, m);
		zcci_store_float(o->v, ZCC_F32, i, v);
		zcci_store_float(o->master, ZCC_F32, i, p);
		if (o->out != NULL)
			zcci_store_float(o->out, o->out_dtype, i, p);
	}
}

#ifdef __x86_64__

enum { LANES = 8, TURN = 16, LINE = 64, PREFETCH_BYTES = 1024 };

/* The new master of eight elements; moments are updated in place. */
ZCCI_AVX2_INLINE __m256 step_lanes(const zcci_adamw_step *n, const operands *o, int32_t grad_dtype, int64_t i)
{
	const char *grad = (const char *)o->grad + (grad_dtype == ZCC_F32 ? 4 : 2) * i;
	__m256 g = _mm256_mul_ps(zcci_load_avx2(grad, grad_dtype), _mm256_set1_ps(n->grad_scale));
	__m256 p = _mm256_mul_ps(zcci_load_avx2(o->master + 4 * i, ZCC_F32), _mm256_set1_ps(n->keep));
	__m256 m = zcci_load_avx2(o->m + 4 * i, ZCC_F32);
	__m256 v = zcci_load_avx2(o->v + 4 * i, ZCC_F32);
	m = zcci_one_nan_avx2(_mm256_fmadd_ps(_mm256_set1_ps(n->beta1_rest), _mm256_sub_ps(g, m), m));
	__m256 share = _mm256_mul_ps(_mm256_set1_ps(n->beta2_rest), g);
	v = zcci_one_nan_avx2(_mm256_fmadd_ps(share, g, _mm256_mul_ps(_mm256_set1_ps(n->beta2), v)));
	__m256 root = _mm256_div_ps(_mm256_sqrt_ps(v), _mm256_set1_ps(n->root));
	__m256 move = _mm256_mul_ps(_mm256_set1_ps(n->step_size), m);
	move = _mm256_div_ps(move, _mm256_add_ps(root, _mm256_set1_ps(n->eps)));
	p = zcci_one_nan_avx2(_mm256_sub_ps(p, move));
	zcci_store_avx2(o->m + 4 * i, ZCC_F32, m);
	zcci_store_avx2(o->v + 4 * i, ZCC_F32, v);
	zcci_store_avx2(o->master + 4 * i, ZCC_F32, p);
	return p;
}

ZCCI_AVX2_INLINE void prefetch(const operands *o, int32_t grad_dtype, int64_t i)
{
	_mm_prefetch(o->master + 4 * i + PREFETCH_BYTES, _MM_HINT_T0);
	_mm_prefetch(o->m + 4 * i + PREFETCH_BYTES, _MM_HINT_T0);
	_mm_prefetch(o->v + 4 * i + PREFETCH_BYTES, _MM_HINT_T0);
	_mm_prefetch((const char *)o->grad + (grad_dtype == ZCC_F32 ? 4 : 2) * i + PREFETCH_BYTES, _MM_HINT_T0);
}

/* Past the caches: a line that is written whole need not be read first. `target` is aligned to the turn's size. */
ZCCI_AVX2_INLINE void stream_turn(char *target, int32_t dtype, __m256 low, __m256 high)
{
	if (dtype == ZCC_F32) {
		_mm256_stream_ps((float *)(void *)target, low);
		_mm256_stream_ps((float *)(void *)(target + 32), high);
	} else {
		_mm256_stream_si256((__m256i *)(void *)target, zcci_narrow_avx2(low, high, dtype));
	}
}

ZCCI_AVX2_INLINE int64_t step_turns(const zcci_adamw_step *n, const operands *o, int32_t grad_dtype, int32_t out_dtype,
                                    bool stream, int64_t begin, int64_t end)
{
	int64_t i = begin;
	int64_t out_bytes = out_dtype == ZCC_F32 ? 4 : 2;
	for (; end - i >= TURN; i += TURN) {
		prefetch(o, grad_dtype, i);
		__m256 low = step_lanes(n, o, grad_dtype, i), high = step_lanes(n, o, grad_dtype, i + LANES);
		if (o->out == NULL)
			continue;
		char *out = (char *)o->out + out_bytes * i;
		if (stream) {
			stream_turn(out, out_dtype, low, high);
		} else {
			zcci_store_avx2(out, out_dtype, low);
			zcci_store_avx2(out + LANES * out_bytes, out_dtype, high);
		}
	}
	if (stream)
		_mm_sfence();
	return i;
}

ZCCI_AVX2_INLINE int64_t step_grad(const zcci_adamw_step *n, const operands *o, int32_t grad_dtype, bool stream,
                                   int64_t begin, int64_t end)
{
	if (o->out_dtype == ZCC_BF16)
		return step_turns(n, o, grad_dtype, ZCC_BF16, stream, begin, end);
	if (o->out_dtype == ZCC_F16)
		return step_turns(n, o, grad_dtype, ZCC_F16, stream, begin, end);
	return step_turns(n, o, grad_dtype, ZCC_F32, stream, begin, end);
}

/* Two instances of each pair of dtypes: one that writes the result past the caches, one that does not. */
ZCCI_AVX2 static int64_t step_avx2(const zcci_adamw_step *n, const operands *o, bool stream, int64_t begin, int64_t end)
{
	if (o->grad_dtype == ZCC_F32)
		return stream ? step_grad(n, o, ZCC_F32, true, begin, end)
		              : step_grad(n, o, ZCC_F32, false, begin, end);
	if (o->grad_dtype == ZCC_BF16)
		return stream ? step_grad(n, o, ZCC_BF16, true, begin, end)
		              : step_grad(n, o, ZCC_BF16, false, begin, end);
	return stream ? step_grad(n, o, ZCC_F16, true, begin, end) : step_grad(n, o, ZCC_F16, false, begin, end);
}

/* Smaller results are likely to be read again from a cache. */
enum { STREAM_BYTES = 256 << 10 };

static int64_t step_vectors(const zcci_adamw_step *n, const operands *o, int64_t elems)
{
	int64_t out_bytes = zcc_dtype_bytes(o->out_dtype);
	if (o->out == NULL || elems * out_bytes < STREAM_BYTES || (uintptr_t)o->out % (uintptr_t)out_bytes != 0)
		return step_avx2(n, o, false, 0, elems);
	int64_t head = (int64_t)(-(uintptr_t)o->out % LINE) / out_bytes;
	step_plain(n, o, 0, head);
	return step_avx2(n, o, true, head, elems);
}

#endif

void zcci_adamw(const zcci_adamw_step *numbers, float *master, float *m, float *v, const void *grad, int32_t grad_dtype,
                void *out, int32_t out_dtype, int64_t elems)
{
	operands o = {(char *)master, (char *)m, (char *)v, grad, out, grad_dtype, out_dtype};
	int64_t done = 0;
	uint32_t mode = zcci_float_enter();
#ifdef __x86_64__
	if (zcci_cpu_path() == ZCCI_CPU_AVX2)
		done = step_vectors(numbers, &o, elems);
#endif
	step_plain(numbers, &o, done, elems);
	zcci_float_leave(mode);
}
