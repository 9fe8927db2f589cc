/* The offload queue: device memory to pinned host memory behind the trainer's back.
 *
 * Buffers are registered under a name. defer notes regions of them and gives a ticket; flush starts the copies, on
 * a thread of the queue and its own stream; wait and fence flush first, so a trainer that never flushes is
 * correct. From defer until the ticket's wait or a fence has returned nobody writes, frees or re-allocates the
 * source. What has landed can be read until it is released.
 *
 * Bytes go in the order of their tickets, in chunks; each is finished before the next is issued, so that a copy on
 * another stream waits for one chunk at most. A chunk may hold several small regions.
 *
 * All calls but close: any thread, several at once. */
#ifndef ZCC_OFFLOAD_H
#define ZCC_OFFLOAD_H

#include "device.h"
#include "pool.h"

typedef struct zcc_offload zcc_offload;

enum {
	/* What defer does while another snapshot is in flight. */
	ZCC_OFFLOAD_WAIT = 0,   /* flushes that one and waits until it has landed */
	ZCC_OFFLOAD_REFUSE = 1, /* ZCC_EBUSY */
	/* What happens when pinned memory runs out. */
	ZCC_OFFLOAD_PINNED_ONLY = 0, /* the ticket fails with ZCC_ENOMEM and the numbers */
	ZCC_OFFLOAD_OR_UNPINNED = 1  /* ordinary memory */
};

typedef struct zcc_offload_options {
	uint32_t struct_bytes; /* set by zcc_offload_options_init */
	int32_t busy;          /* ZCC_OFFLOAD_WAIT (default) or ZCC_OFFLOAD_REFUSE */
	int32_t memory;        /* ZCC_OFFLOAD_PINNED_ONLY (default) or ZCC_OFFLOAD_OR_UNPINNED */
	int32_t check;         /* 1: hash the source at defer and when it has landed; both block and are slow */
	int64_t chunk_bytes;   /* 64 MiB by default; 0 = all that may start at once is one chunk */
	/* The most regions that hold host memory at once; 0 (default) = all of a ticket, taken before its first byte
	 * moves. With n there are n pinned buffers, together no larger than the n largest regions, and regions take
	 * turns: take them with zcc_offload_next and release them. Released in order, n - 1 of them can be kept at any
	 * time. */
	int32_t slots;
	/* With slots, where every one holds landed bytes: 1 = wait and fence wait for another thread to release some;
	 * 0 = they are ZCC_EBUSY. */
	int32_t consumer;
} zcc_offload_options;

/* Bytes of a registered buffer. Views are regions: offset and length of what is wanted, not the whole storage. */
typedef struct zcc_offload_region {
	int64_t handle; /* of zcc_offload_register */
	int64_t offset_bytes;
	int64_t bytes; /* -1 = up to the end of the buffer; 0 is allowed */
} zcc_offload_region;

/* A region on the host. */
typedef struct zcc_offload_landed {
	const char *name;     /* of the buffer; owned by the queue */
	void *data;           /* valid until it is released; NULL where bytes = 0 */
	int64_t offset_bytes; /* in the buffer */
	int64_t bytes;
	int64_t ticket;
	int64_t index;      /* in the ticket, from 0; -1: no region */
	int64_t generation; /* of the buffer, 1 at its first registration */
	int64_t snapshot;
	int32_t place; /* ZCC_AT_PINNED or ZCC_AT_PAGEABLE */
	int32_t reserved;
} zcc_offload_landed;

typedef struct zcc_offload_stats {
	int64_t tickets; /* deferred so far */
	int64_t regions;
	int64_t deferred_bytes;
	int64_t copied_bytes; /* landed */
	int64_t chunks;
	int64_t copies; /* single copies given to the device */
	int64_t waits; /* calls of wait and fence, and of defer for another snapshot, that found something not landed */
	int64_t wait_ns;       /* how long they blocked, together */
	int64_t pending_bytes; /* deferred, not landed */
	int64_t held_bytes;    /* host memory that the queue has from its pool now */
	int64_t held_peak_bytes;
} zcc_offload_stats;

/* Fills in struct_bytes and the defaults; call it before setting any member. */
ZCC_API void zcc_offload_options_init(zcc_offload_options *options);
/* Starts the queue's thread. Keeps references to device and pool, which must be of that device. options may be NULL.
 * ZCC_EINVAL, ZCC_ENOMEM, ZCC_EDEVICE. */
ZCC_API zcc_status zcc_offload_create(zcc_device *device, zcc_pool *pool, const zcc_offload_options *options,
                                      zcc_offload **queue, zcc_error *error);
/* Cancels what has not been given to the device, waits for what has (one chunk at most), and frees all, landed
 * bytes included. Fence first to keep pending work. No other call may be running. NULL is allowed. */
ZCC_API void zcc_offload_close(zcc_offload *queue);

/* A buffer of this device or of the host, which stays the caller's; the name is copied. `bytes` may be 0, and data
 * NULL then. A name that is there already is registered anew: the generation grows,
 * and the old handle is stale from then on. Blocks while a chunk of the old memory is in flight. ZCC_EINVAL,
 * ZCC_ENOMEM. */
ZCC_API zcc_status zcc_offload_register(zcc_offload *queue, const char *name, const void *data, int64_t bytes,
                                        int64_t *handle, zcc_error *error);
/* The handle is stale from then on; call it before the memory is freed. Blocks while a chunk of it is in flight.
 * ZCC_ESTALE, ZCC_EINVAL. */
ZCC_API zcc_status zcc_offload_unregister(zcc_offload *queue, int64_t handle, zcc_error *error);

/* Notes regions; they land in one ticket, all or none. `after` (may be NULL): the copies run after what has been
 * submitted to that stream so far. `snapshot`: tickets of one number (the step) belong to one snapshot, and while
 * one is in flight another waits or is refused. Does not block but for that and in checking mode. ZCC_ESTALE names
 * the buffer; ZCC_EINVAL for a region that leaves its buffer or a handle that is none; ZCC_EOVERFLOW where the bytes of
 * all tickets so far do not fit 63 bits; ZCC_EBUSY, ZCC_ENOMEM, ZCC_EINTR. Tickets start at 1 and only grow. */
ZCC_API zcc_status zcc_offload_defer(zcc_offload *queue, int64_t snapshot, const zcc_offload_region *regions,
                                     int64_t n_regions, zcc_stream *after, int64_t *ticket, zcc_error *error);
/* Starts all that is deferred. Does not block. A ticket with a stale handle fails before any of its bytes moves:
 * ZCC_ESTALE. */
ZCC_API zcc_status zcc_offload_flush(zcc_offload *queue, zcc_error *error);
/* Starts the next share of the snapshot's bytes, 0 < fraction <= 1, and the chunk that it ends in. Otherwise as flush.
 * Nothing where nothing is pending. */
ZCC_API zcc_status zcc_offload_flush_fraction(zcc_offload *queue, double fraction, zcc_error *error);
/* Flushes up to that ticket and blocks until it and all before it are done: ZCC_OK only if the ticket has landed
 * (it may have been released since). The fault of a ticket that failed names the ticket and, where it was one, the
 * buffer, and is returned every time until the ticket is released: ZCC_ESTALE (registered anew or unregistered
 * since defer, or cancelled), ZCC_ENOMEM (no byte moved), ZCC_EVERIFY (checking: the source was written in
 * between), or the device's. ZCC_EINVAL for a ticket not given out yet; ZCC_EBUSY (see slots); ZCC_EINTR. */
ZCC_API zcc_status zcc_offload_wait(zcc_offload *queue, int64_t ticket, zcc_error *error);
/* *landed = 1 when wait would return ZCC_OK at once. Does not flush, does not block. Faults as wait. */
ZCC_API zcc_status zcc_offload_test(zcc_offload *queue, int64_t ticket, int32_t *landed, zcc_error *error);
/* Flushes everything and blocks until all of it is done; afterwards the sources may be written. A ticket's fault
 * that no call has returned yet is returned once. Otherwise as wait. */
ZCC_API zcc_status zcc_offload_fence(zcc_offload *queue, zcc_error *error);

/* Region `index` of a ticket. ZCC_EBUSY while it has not landed, ZCC_ESTALE when it has been released, ZCC_EINVAL,
 * the ticket's fault. */
ZCC_API zcc_status zcc_offload_get(zcc_offload *queue, int64_t ticket, int64_t index, zcc_offload_landed *landed,
                                   zcc_error *error);
/* Flushes up to that ticket and waits for its next region, in order, each given out once; index = -1 when all have
 * been. The fault of the ticket, ZCC_ESTALE for a released one, ZCC_EINVAL; ZCC_EBUSY where it can never land
 * unless something is released; ZCC_EINTR. */
ZCC_API zcc_status zcc_offload_next(zcc_offload *queue, int64_t ticket, zcc_offload_landed *landed, zcc_error *error);
/* Gives back the memory of one landed region. ZCC_EBUSY, ZCC_ESTALE (again), ZCC_EINVAL. */
ZCC_API zcc_status zcc_offload_release_region(zcc_offload *queue, int64_t ticket, int64_t index, zcc_error *error);
/* Gives back a ticket that landed or failed, with what is left of its memory. ZCC_EBUSY while it is in flight,
 * ZCC_ESTALE (again), ZCC_EINVAL. */
ZCC_API zcc_status zcc_offload_release(zcc_offload *queue, int64_t ticket, zcc_error *error);
/* Release, for a ticket in flight too: what has not been given to the device is dropped, a chunk in flight is
 * waited for. One that has landed is released, and waiting for it stays ZCC_OK. ZCC_ESTALE, ZCC_EINVAL. */
ZCC_API zcc_status zcc_offload_cancel(zcc_offload *queue, int64_t ticket, zcc_error *error);

/* Any thread. */
ZCC_API void zcc_offload_get_stats(zcc_offload *queue, zcc_offload_stats *stats);

#endif
