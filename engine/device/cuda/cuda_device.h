/* GPUs as a plug-in. */
#ifndef ZCCI_CUDA_DEVICE_H
#define ZCCI_CUDA_DEVICE_H

#include "device/device.h"

/* zcci_device_plugin of device/device.h. The core compares the table's version with its own. */
ZCC_API const zcci_device_ops *zcc_device_plugin(uint32_t core_version);

#endif
