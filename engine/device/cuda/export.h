/* Device memory for other processes, by CUDA's IPC: slots of the table. */
#ifndef ZCCI_CUDA_EXPORT_H
#define ZCCI_CUDA_EXPORT_H

#include "device/device.h"

zcc_status zcci_cuda_export(void *device, void *data, uint8_t handle[ZCC_EXPORT_BYTES], zcc_error *error);
zcc_status zcci_cuda_import(void *device, const uint8_t handle[ZCC_EXPORT_BYTES], void **data, int64_t *bytes,
                            zcc_error *error);

#endif
