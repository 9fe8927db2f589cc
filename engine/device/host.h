/* The host device: streams are threads, memory is shared memory. */
#ifndef ZCCI_HOST_H
#define ZCCI_HOST_H

#include "device/device.h"

extern const zcci_device_ops zcci_host_ops;

#endif
