/* Inside of copy-back: what its two directions and the fused optimizer step share. */
#ifndef ZCCI_COPYBACK_H
#define ZCCI_COPYBACK_H

#include <pthread.h>
#include <stdbool.h>

#include "zcc/copyback.h"

/* A part of one of the two buffers. */
typedef struct zcci_copyback_slot {
	char *data;
	zcc_event *event; /* after the last copy from or to it; NULL until first used and after a fault */
	bool sent;        /* in this call, and not known to have arrived */
	int32_t after;    /* in the ring */
} zcci_copyback_slot;

struct zcc_copyback {
	zcc_device *device;
	zcc_pool *pool;
	bool own_pool;
	bool pinning;
	uint32_t pool_flags;
	int32_t dtype;
	int64_t elem_bytes;
	int64_t buffer_elems;
	pthread_mutex_t lock; /* of busy, references and the statistics */
	bool busy;
	int32_t references;
	zcc_copyback_stats stats;
	/* The rest belongs to the call that runs. */
	zcc_stream *stream;        /* NULL before the first use and after a fault */
	void *buffers[2];          /* NULL until first used */
	zcci_copyback_slot *slots; /* come and go with the buffers */
	int64_t slot_elems;
	int32_t n_slots;
	int32_t n_ring; /* of them in the ring; the others have not been needed in this call */
	int32_t last;   /* used; the one after it is the oldest */
	void *scratch;  /* ordinary memory of buffer_elems elements, for as long as the call; NULL until used */
};

/* Begins and ends a call. After a fault in between, leave first brings everything in flight to its end. */
zcc_status zcci_copyback_enter(zcc_copyback *copyback, const char *operation, zcc_error *error);
void zcci_copyback_leave(zcc_copyback *copyback, zcc_status status);

/* Makes the stream; with `staged` the two buffers, with `scratch` the scratch. */
zcc_status zcci_copyback_prepare(zcc_copyback *copyback, bool staged, bool scratch, zcc_error *error);
/* Waits for all copies of the call. */
zcc_status zcci_copyback_finish(zcc_copyback *copyback, zcc_error *error);
void zcci_copyback_count(zcc_copyback *copyback, bool staged, int64_t elems, int64_t copies);

/* ---- copyback_slots.c ---- */

/* For the buffers that are there. */
zcc_status zcci_copyback_create_slots(zcc_copyback *copyback, zcc_error *error);
void zcci_copyback_destroy_slots(zcc_copyback *copyback);
/* Nothing is in flight: a small ring again. */
void zcci_copyback_reset_slots(zcc_copyback *copyback);
/* Nothing is in flight; events remember faults. */
void zcci_copyback_forget_events(zcc_copyback *copyback);
/* One that may be written: the oldest where its copy has ended; else one not used so far, as long as there is one; else
 * the oldest after a wait. A device that keeps up so sees a few slots only, whose bytes are still in a cache, and one
 * that falls behind for a while does not stop the casts before both buffers are full. */
zcc_status zcci_copyback_next_slot(zcc_copyback *copyback, zcci_copyback_slot **slot, zcc_error *error);
/* The copy from or to a slot has been given to the stream. */
zcc_status zcci_copyback_mark_slot(zcc_copyback *copyback, zcci_copyback_slot *slot, zcc_error *error);
/* Waits for the copy from or to a slot. */
zcc_status zcci_copyback_await_slot(zcc_copyback *copyback, zcci_copyback_slot *slot, zcc_error *error);

/* ---- copyback.c ---- */

/* Checks sizes and addresses and finds the place of both ends of a run: elems elements of `bytes` each from data.
 * `what` names it in messages: "piece 3: target". */
zcc_status zcci_copyback_place(zcc_copyback *copyback, const char *operation, int64_t piece, const char *what,
                               const void *data, int64_t elems, int64_t bytes, int32_t *place, zcc_error *error);

/* Source and target of one piece, whose places are known, share no byte. */
zcc_status zcci_copyback_apart(const zcc_copyback_piece *piece, int64_t number, int64_t source_bytes,
                               int64_t target_bytes, const char *operation, zcc_error *error);

/* Writes elements [offset, offset + elems) of the handle's dtype to target. */
typedef void zcci_copyback_fill(void *context, void *target, int64_t offset, int64_t elems);
/* elems elements that fill makes, to device memory: through the two buffers, or (staged = false) through the scratch.
 * Returns with copies in flight; the memory of fill's context is not used any more. */
zcc_status zcci_copyback_send(zcc_copyback *copyback, bool staged, void *target, int64_t elems,
                              zcci_copyback_fill *fill, void *context, zcc_error *error);
/* ZCC_EINTR after SIGINT or SIGTERM. */
zcc_status zcci_copyback_interrupted(const char *operation, zcc_error *error);

#endif
