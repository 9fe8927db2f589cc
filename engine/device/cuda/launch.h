/* Work on memory of the device: slots of the table. */
#ifndef ZCCI_CUDA_LAUNCH_H
#define ZCCI_CUDA_LAUNCH_H

#include "device/device.h"

zcc_status zcci_cuda_copy(void *device, void *stream, void *target, const void *source, int64_t bytes,
                          zcc_error *error);
zcc_status zcci_cuda_copy_2d(void *device, void *stream, void *target, int64_t target_pitch, const void *source,
                             int64_t source_pitch, int64_t bytes, int64_t rows, zcc_error *error);
zcc_status zcci_cuda_cast_elems(void *device, void *stream, void *target, int32_t target_dtype, const void *source,
                                int32_t source_dtype, int64_t elems, zcc_error *error);
zcc_status zcci_cuda_lerp_elems(void *device, void *stream, float *ema, const void *param, int32_t param_dtype,
                                double decay, int64_t elems, zcc_error *error);
zcc_status zcci_cuda_strided_elems(void *device, void *stream, void *target, const int64_t *target_strides,
                                   const void *source, const int64_t *source_strides, int32_t ndim,
                                   const int64_t *shape, int32_t elem_bytes, zcc_error *error);

#endif
