/* Each kernel's reference on the CPU, under its name. They hold the launcher to what a kernel relies on: alignment of
 * vectors, extents of memory. */
#include "device/cuda/kernels.h"

#include <string.h>

#include "kernels/lerp.h"
#include "kernels/strided.h"
#include "standin_impl.h"

static void check_vectors(int64_t vectors, int64_t elems, const void *a, int64_t a_bytes, const void *b,
                          int64_t b_bytes)
{
	if (vectors == 0)
		return;
	uintptr_t misfit = (uintptr_t)a % (uintptr_t)(a_bytes * ZCCI_CUDA_VECTOR) |
	                   (uintptr_t)b % (uintptr_t)(b_bytes * ZCCI_CUDA_VECTOR);
	if (misfit != 0 || vectors < 0 || vectors * ZCCI_CUDA_VECTOR > elems)
		standin_abort("%lld vectors at %p and %p", (long long)vectors, a, b);
}

static void cast(const void *argument, int32_t to, int32_t from)
{
	const zcci_cuda_cast *c = argument;
	int64_t to_bytes = zcc_dtype_bytes(to);
	int64_t from_bytes = zcc_dtype_bytes(from);
	check_vectors(c->vectors, c->elems, c->target, to_bytes, c->source, from_bytes);
	zcci_convert(standin_reach(c->target, c->elems * to_bytes, "cast to"), to,
	             standin_reach(c->source, c->elems * from_bytes, "cast from"), from, 1, c->elems);
}

static void lerp(const void *argument, int32_t from)
{
	const zcci_cuda_lerp *l = argument;
	check_vectors(l->vectors, l->elems, l->ema, 4, l->param, zcc_dtype_bytes(from));
	/* 1 - decay comes back exactly: the weight is a float. */
	zcci_lerp(standin_reach(l->ema, l->elems * 4, "lerp to"),
	          standin_reach(l->param, l->elems * zcc_dtype_bytes(from), "lerp from"), from, 1 - (double)l->weight,
	          l->elems);
}

static void strided(const void *argument, int64_t elem_bytes)
{
	const zcci_cuda_strided *s = argument;
	for (int64_t row = 0; row < s->rows; row++) {
		int64_t to = 0;
		int64_t from = 0;
		int64_t rest = row;
		for (int32_t axis = s->axes - 1; axis >= 0; axis--) {
			to += rest % s->extents[axis] * s->target_strides[axis];
			from += rest % s->extents[axis] * s->source_strides[axis];
			rest /= s->extents[axis];
		}
		for (int64_t i = 0; i < s->inner; i++) {
			char *target = (char *)s->target + (to + i * s->target_step) * elem_bytes;
			const char *source = (const char *)s->source + (from + i * s->source_step) * elem_bytes;
			if (((uintptr_t)target | (uintptr_t)source) % (uintptr_t)elem_bytes != 0)
				standin_abort("elements of %lld bytes at %p and %p", (long long)elem_bytes,
				              (void *)target, (const void *)source);
			memcpy(standin_reach(target, elem_bytes, "strided copy to"),
			       standin_reach(source, elem_bytes, "strided copy from"), (size_t)elem_bytes);
		}
	}
}

#define CAST(to, TO, from, FROM)                                                                                       \
	static void cast_##to##_##from(const void *argument)                                                           \
	{                                                                                                              \
		cast(argument, ZCC_##TO, ZCC_##FROM);                                                                  \
	}
CAST(f16, F16, f32, F32)
CAST(bf16, BF16, f32, F32)
CAST(f32, F32, f16, F16)
CAST(f32, F32, bf16, BF16)
CAST(f16, F16, bf16, BF16)
CAST(bf16, BF16, f16, F16)

#define LERP(from, FROM)                                                                                               \
	static void lerp_##from(const void *argument)                                                                  \
	{                                                                                                              \
		lerp(argument, ZCC_##FROM);                                                                            \
	}
LERP(f32, F32)
LERP(bf16, BF16)
LERP(f16, F16)

#define STRIDED(bytes)                                                                                                 \
	static void strided_##bytes(const void *argument)                                                              \
	{                                                                                                              \
		strided(argument, bytes);                                                                              \
	}
STRIDED(1)
STRIDED(2)
STRIDED(4)
STRIDED(8)
STRIDED(16)

#define ROW(name, type)                                                                                                \
	{                                                                                                              \
#name, (const void *)name, sizeof(type)                                                                \
	}
const zcci_cuda_kernel zcci_cuda_kernels[] = {
        ROW(cast_f16_f32, zcci_cuda_cast),  ROW(cast_bf16_f32, zcci_cuda_cast), ROW(cast_f32_f16, zcci_cuda_cast),
        ROW(cast_f32_bf16, zcci_cuda_cast), ROW(cast_f16_bf16, zcci_cuda_cast), ROW(cast_bf16_f16, zcci_cuda_cast),
        ROW(lerp_f32, zcci_cuda_lerp),      ROW(lerp_bf16, zcci_cuda_lerp),     ROW(lerp_f16, zcci_cuda_lerp),
        ROW(strided_1, zcci_cuda_strided),  ROW(strided_2, zcci_cuda_strided),  ROW(strided_4, zcci_cuda_strided),
        ROW(strided_8, zcci_cuda_strided),  ROW(strided_16, zcci_cuda_strided), {NULL, NULL, 0},
};

const char *standin_kernel(const void *function, int32_t *argument_bytes, standin_reference **reference)
{
	for (const zcci_cuda_kernel *k = zcci_cuda_kernels; k->name != NULL; k++) {
		if (k->function != function)
			continue;
		*argument_bytes = k->argument_bytes;
		*reference = (standin_reference *)(uintptr_t)k->function;
		return k->name;
	}
	return NULL;
}
