/* The allocation around an address of device memory. */
#ifndef ZCCI_CUDA_RANGE_H
#define ZCCI_CUDA_RANGE_H

#include <stdbool.h>

#include "zcc/base.h"

/* Of the current device. False where the driver does not tell. */
bool zcci_cuda_range(const void *data, void **base, int64_t *bytes);

#endif
