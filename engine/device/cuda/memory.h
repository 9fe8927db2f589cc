/* Memory of the CUDA plug-in: slots of the table. */
#ifndef ZCCI_CUDA_MEMORY_H
#define ZCCI_CUDA_MEMORY_H

#include "device/device.h"

zcc_status zcci_cuda_malloc(void *device, int64_t bytes, void **data, zcc_error *error);
bool zcci_cuda_free(void *device, void *data);
zcc_status zcci_cuda_pinned_malloc(void *device, int64_t bytes, void **data, zcc_error *error);
bool zcci_cuda_pinned_free(void *device, void *data);
zcc_status zcci_cuda_place(void *device, const void *data, int64_t bytes, int32_t *place, zcc_error *error);

#endif
