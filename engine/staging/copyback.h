/* Inside of copy-back: what its two directions and the fused optimizer step share. */
#ifndef ZCCI_COPYBACK_H
#define ZCCI_COPYBACK_H

#include <pthread.h>
#include <stdbool.h>

#include "zcc/copyback.h"

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
	zcc_stream *stream;   /* NULL before the first use and after a fault */
	zcc_event *events[2]; /* after the last copy from or to the buffer */
	void *buffers[2];     /* NULL until first used */
	int32_t turn;         /* which buffer comes next */
	void *scratch;        /* ordinary memory of buffer_elems elements, for as long as the call; NULL until used */
};

/* Begins and ends a call. After a fault in between, leave first brings everything in flight to its end. */
zcc_status zcci_copyback_enter(zcc_copyback *copyback, const char *operation, zcc_error *error);
void zcci_copyback_leave(zcc_copyback *copyback, zcc_status status);

/* Makes the stream; with `staged` the two buffers, with `scratch` the scratch. */
zcc_status zcci_copyback_prepare(zcc_copyback *copyback, bool staged, bool scratch, zcc_error *error);
/* Waits for the last copy from or to a buffer. */
zcc_status zcci_copyback_wait(zcc_copyback *copyback, int32_t turn, zcc_error *error);
/* Waits for all copies of the call. */
zcc_status zcci_copyback_finish(zcc_copyback *copyback, zcc_error *error);
void zcci_copyback_count(zcc_copyback *copyback, bool staged, int64_t elems, int64_t copies);

/* Checks sizes and addresses and finds the place of both ends of a run: elems elements of `bytes` each from data.
 * `what` names it in messages: "piece 3: target". */
zcc_status zcci_copyback_place(zcc_copyback *copyback, const char *operation, int64_t piece, const char *what,
                               const void *data, int64_t elems, int64_t bytes, int32_t *place, zcc_error *error);

/* Writes elements [offset, offset + elems) of the handle's dtype to target. */
typedef void zcci_copyback_fill(void *context, void *target, int64_t offset, int64_t elems);
/* elems elements that fill makes, to device memory: through the two buffers, or (staged = false) through the scratch.
 * Returns with copies in flight; the memory of fill's context is not used any more. */
zcc_status zcci_copyback_send(zcc_copyback *copyback, bool staged, void *target, int64_t elems,
                              zcci_copyback_fill *fill, void *context, zcc_error *error);
/* ZCC_EINTR after SIGINT or SIGTERM. */
zcc_status zcci_copyback_interrupted(const char *operation, zcc_error *error);

#endif
