/* How packed chunks travel between the devices of different processes: one table of functions for each way. `mpi` is
 * always there and goes through pinned memory of the host; `nccl` comes from a plug-in and goes from device to device.
 */
#ifndef ZCCI_TRANSPORT_H
#define ZCCI_TRANSPORT_H

#include <stdbool.h>

#include "zcc/device.h"
#include "zcc/transfer.h"

enum { ZCCI_TRANSPORT_VERSION = 1, ZCCI_TRANSPORT_ID_BYTES = 256 };

/* One message of a round, in memory of the device. */
typedef struct zcci_message {
	void *data;
	int64_t bytes; /* > 0; the same on both sides */
	int32_t peer;
	bool sends;
} zcci_message;

/* What a group is opened with. */
typedef struct zcci_transport_site {
	zcc_comm *comm; /* for what is built in; a plug-in has rank and size */
	zcc_device *device;
	int32_t device_index; /* N of "cuda:N" */
	int32_t rank;
	int32_t size;
	int64_t round_bytes;                 /* the most that the messages of one round of this process hold together */
	int64_t timeout_ns;                  /* 0 = never */
	uint8_t id[ZCCI_TRANSPORT_ID_BYTES]; /* made by process 0, the same for all */
} zcci_transport_site;

typedef struct zcci_transport_ops {
	uint32_t version; /* ZCCI_TRANSPORT_VERSION */
	uint32_t struct_bytes;
	const char *name;
	const char *device; /* the kind of device it needs, "cuda"; NULL: any */
	/* Process 0 alone: the name of a new group. NULL: needs none. */
	zcc_status (*make_id)(uint8_t id[ZCCI_TRANSPORT_ID_BYTES], zcc_error *error);
	/* By all processes, each of which then asks ready until it is. Does not wait for the others. */
	zcc_status (*open)(const zcci_transport_site *site, void **group, zcc_error *error);
	/* Whether everything asked for so far has been handed to the device; faults of the group. Does not wait. */
	zcc_status (*ready)(void *group, int32_t *ready, zcc_error *error);
	/* Hands the messages of one round to a stream (native: the device's own handle of it), to run there in order
	 * with what else is submitted to it. Every process brings its messages of the same rounds in the same order.
	 * The next call comes when ready says so. */
	zcc_status (*exchange)(void *group, zcc_stream *stream, void *native, const zcci_message *messages,
	                       int32_t n_messages, zcc_error *error);
	/* Ends what is under way without waiting for others, and frees the group. */
	void (*abort)(void *group);
	/* Frees the group; nothing is under way. */
	void (*close)(void *group);
} zcci_transport_ops;

/* The one symbol that libzcc_nccl.so exports. */
typedef const zcci_transport_ops *(*zcci_transport_plugin)(uint32_t core_version);
#define ZCCI_TRANSPORT_PLUGIN_SYMBOL "zcc_transport_plugin"

extern const zcci_transport_ops zcci_staged_ops;

/* The table of a way: "mpi" or "nccl". ZCC_EINVAL lists them; ZCC_EDEVICE says why a plug-in is none. Main thread. */
zcc_status zcci_transport_find(const char *name, const zcci_transport_ops **ops, zcc_error *error);

#endif
