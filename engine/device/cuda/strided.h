/* A strided copy put into the order and the element size that suit a GPU. */
#ifndef ZCCI_CUDA_STRIDED_PLAN_H
#define ZCCI_CUDA_STRIDED_PLAN_H

#include "device/cuda/kernels.h"

/* Fills *argument with the same copy: axes of extent 1 dropped, axes by falling target stride so that neighbouring
 * threads write neighbouring elements, axes joined that follow each other on both sides, and rows that are dense on
 * both sides moved as larger elements (up to 16 bytes) where alignment allows. *elem_bytes is that of the elements on
 * entry and of those moved on return. No extent is 0. */
void zcci_cuda_strided_plan(zcci_cuda_strided *argument, int32_t *elem_bytes, void *target,
                            const int64_t *target_strides, const void *source, const int64_t *source_strides,
                            int32_t ndim, const int64_t *shape);

#endif
