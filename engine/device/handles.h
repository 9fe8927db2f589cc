/* The handles of zcc/device.h. */
#ifndef ZCCI_HANDLES_H
#define ZCCI_HANDLES_H

#include "device/device.h"
#include "device/device_name.h"

struct zcc_device {
	struct zcc_device *next; /* all that are open; under the lock of device.c, as are the references */
	int64_t refs;            /* the callers', and one for each stream, event and allocation */
	const zcci_device_ops *ops;
	void *impl;
	char name[ZCCI_DEVICE_NAME_BYTES];
};

/* A reference more, returned. Drop it with zcc_device_close. Any thread. */
zcc_device *zcci_device_retain(zcc_device *device);

struct zcc_stream {
	zcc_device *device;
	void *impl;
};

struct zcc_event {
	zcc_device *device;
	void *impl;
};

#endif
