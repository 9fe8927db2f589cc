/* The kernels of the CUDA plug-in, by name. Each takes one of the structs below by value; kernels.cu defines them, and
 * a build for tests that has no GPU puts functions of the same names in their place. C and CUDA read this header. */
#ifndef ZCCI_CUDA_KERNELS_H
#define ZCCI_CUDA_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	ZCCI_CUDA_VECTOR = 4, /* elements that a thread moves at once where both addresses are aligned to that many */
	ZCCI_CUDA_MAX_AXES = 8
};

/* Names: "cast_" target "_" source, of f16, bf16, f32. */
typedef struct zcci_cuda_cast {
	void *target;
	const void *source;
	int64_t elems;
	int64_t vectors; /* how many whole vectors may be moved as such: 0, or elems / ZCCI_CUDA_VECTOR */
} zcci_cuda_cast;

/* Names: "lerp_" and the parameters' f32, bf16 or f16. */
typedef struct zcci_cuda_lerp {
	float *ema;
	const void *param;
	int64_t elems;
	int64_t vectors;
	float weight; /* 1 - decay */
} zcci_cuda_lerp;

/* Names: "strided_" and the bytes of an element: 1, 2, 4, 8, 16. `rows` rows, the product of the outer extents, of
 * `inner` elements. */
typedef struct zcci_cuda_strided {
	void *target;
	const void *source;
	int64_t rows;
	int64_t inner;
	int64_t target_step; /* from an element of a row to the next, in elements */
	int64_t source_step;
	int32_t axes; /* outer axes, outermost first */
	int64_t extents[ZCCI_CUDA_MAX_AXES];
	int64_t target_strides[ZCCI_CUDA_MAX_AXES];
	int64_t source_strides[ZCCI_CUDA_MAX_AXES];
} zcci_cuda_strided;

typedef struct zcci_cuda_kernel {
	const char *name;
	const void *function; /* for cudaLaunchKernel */
	int32_t argument_bytes;
} zcci_cuda_kernel;

/* Ends at name == NULL. */
extern const zcci_cuda_kernel zcci_cuda_kernels[];

#ifdef __cplusplus
}
#endif

#endif
