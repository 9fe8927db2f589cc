/* A device as a table of functions, and how plug-ins bring one. The public calls (device.c) check arguments, keep
 * references and call through the table; a slot never sees NULL handles, negative sizes or foreign handles. No slot but
 * those marked blocks. */
#ifndef ZCCI_DEVICE_H
#define ZCCI_DEVICE_H

#include <stdbool.h>

#include "zcc/device.h"

/* Grows with every change of the table; a plug-in of another number is refused, and the message names both. */
enum { ZCCI_DEVICE_VERSION = 1 };

typedef struct zcci_device_ops {
	uint32_t version; /* ZCCI_DEVICE_VERSION */
	uint32_t struct_bytes;
	const char *name; /* "host", "cuda" */
	/* How many there are; a sentence about one of them. */
	zcc_status (*count)(int32_t *count, zcc_error *error);
	zcc_status (*describe)(int32_t index, char about[256], zcc_error *error);
	zcc_status (*open)(int32_t index, void **device, zcc_error *error);
	void (*close)(void *device);
	zcc_status (*malloc)(void *device, int64_t bytes, void **data, zcc_error *error);
	/* Blocks for work in flight that uses it. False where it is no allocation of this device, which is left alone.
	 */
	bool (*free)(void *device, void *data);
	zcc_status (*pinned_malloc)(void *device, int64_t bytes, void **data, zcc_error *error);
	bool (*pinned_free)(void *device, void *data); /* as free */
	/* Of the `bytes` from there. ZCC_EINVAL where they begin in an allocation known to the device and go past its
	 * end, ZCC_ESTALE where they lie in device memory that is not allocated (a device that cannot tell says
	 * pageable). */
	zcc_status (*place)(void *device, const void *data, int64_t bytes, int32_t *place, zcc_error *error);
	zcc_status (*export)(void *device, void *data, uint8_t handle[128], zcc_error *error); /* NULL: cannot */
	zcc_status (*import)(void *device, const uint8_t handle[128], void **data, int64_t *bytes, zcc_error *error);
	zcc_status (*stream_create)(void *device, void **stream, zcc_error *error);
	void (*stream_destroy)(void *device, void *stream);                      /* blocks */
	zcc_status (*stream_wait)(void *device, void *stream, zcc_error *error); /* blocks */
	zcc_status (*stream_test)(void *device, void *stream, int32_t *done, zcc_error *error);
	zcc_status (*stream_wait_event)(void *device, void *stream, void *event, zcc_error *error);
	zcc_status (*event_create)(void *device, void **event, zcc_error *error);
	void (*event_destroy)(void *device, void *event);
	zcc_status (*event_record)(void *device, void *event, void *stream, zcc_error *error);
	zcc_status (*event_wait)(void *device, void *event, zcc_error *error); /* blocks */
	zcc_status (*event_test)(void *device, void *event, int32_t *done, zcc_error *error);
	zcc_status (*copy)(void *device, void *stream, void *target, const void *source, int64_t bytes,
	                   zcc_error *error);
	zcc_status (*copy_2d)(void *device, void *stream, void *target, int64_t target_pitch, const void *source,
	                      int64_t source_pitch, int64_t bytes, int64_t rows, zcc_error *error);
	zcc_status (*cast)(void *device, void *stream, void *target, int32_t target_dtype, const void *source,
	                   int32_t source_dtype, int64_t elems, zcc_error *error);
	zcc_status (*lerp)(void *device, void *stream, float *ema, const void *param, int32_t param_dtype, double decay,
	                   int64_t elems, zcc_error *error);
	zcc_status (*strided)(void *device, void *stream, void *target, const int64_t *target_strides,
	                      const void *source, const int64_t *source_strides, int32_t ndim, const int64_t *shape,
	                      int32_t elem_bytes, zcc_error *error);
} zcci_device_ops;

/* The one symbol that libzcc_cuda.so exports. `core_version` is the library's ZCCI_DEVICE_VERSION, for the plug-in's
 * own check. */
typedef const zcci_device_ops *(*zcci_device_plugin)(uint32_t core_version);
#define ZCCI_DEVICE_PLUGIN_SYMBOL "zcc_device_plugin"

#endif
