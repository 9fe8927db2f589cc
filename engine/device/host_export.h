/* A range of another process's shared memory, named by a handle. */
#ifndef ZCCI_HOST_EXPORT_H
#define ZCCI_HOST_EXPORT_H

#include "zcc/device.h"

/* The handle of a range of a file that this process holds open. */
zcc_status zcci_host_export_write(int fd, int64_t offset, int64_t bytes, uint8_t handle[ZCC_EXPORT_BYTES],
                                  zcc_error *error);
/* The file behind a handle, to be closed by the caller, and the range. ZCC_EFORMAT for what is no handle of the host
 * device, ZCC_ESTALE where the process that exported it has ended, ZCC_EDEVICE where the system does not let its memory
 * be opened. */
zcc_status zcci_host_export_open(const uint8_t handle[ZCC_EXPORT_BYTES], int *fd, int64_t *offset, int64_t *bytes,
                                 zcc_error *error);

#endif
