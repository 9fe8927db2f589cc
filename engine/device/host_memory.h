/* Memory of the host device. What it hands out as device memory lies in a mapping without access rights, so that a
 * caller that dereferences it faults; the device's own threads reach the same pages through a second mapping. */
#ifndef ZCCI_HOST_MEMORY_H
#define ZCCI_HOST_MEMORY_H

#include <pthread.h>

#include "device/device.h"

/* Guards all of the host device: blocks, streams, events. Never held while bytes move. */
extern pthread_mutex_t zcci_host_lock;
/* Broadcast whenever an item of a stream is done. */
extern pthread_cond_t zcci_host_progress;

typedef struct zcci_host_block zcci_host_block;

/* An allocation, device or pinned. Fields are read under the lock. */
struct zcci_host_block {
	char *data; /* as handed out */
	char *real; /* the same bytes for the device's threads */
	int64_t bytes;
	const void *owner; /* the opened device */
	struct slab *slab; /* NULL: pinned */
	int32_t busy;      /* work in flight that uses it */
	bool imported;
	bool going; /* being freed */
};

/* Slots of the table. */
zcc_status zcci_host_malloc(void *device, int64_t bytes, void **data, zcc_error *error);
bool zcci_host_free(void *device, void *data);
zcc_status zcci_host_pinned_malloc(void *device, int64_t bytes, void **data, zcc_error *error);
bool zcci_host_pinned_free(void *device, void *data);
zcc_status zcci_host_place(void *device, const void *data, int64_t bytes, int32_t *place, zcc_error *error);
zcc_status zcci_host_export(void *device, void *data, uint8_t handle[ZCC_EXPORT_BYTES], zcc_error *error);
zcc_status zcci_host_import(void *device, const uint8_t handle[ZCC_EXPORT_BYTES], void **data, int64_t *bytes,
                            zcc_error *error);

/* Lock held. The block that holds `bytes` from `data`; NULL in *block for memory that is not the device's. Faults as
 * the table's place. */
zcc_status zcci_host_reach(const void *data, int64_t bytes, zcci_host_block **block, zcc_error *error);

#endif
