/* Exponential moving averages of parameters: ema = fma(1 - decay, param - ema, ema) in f32, in place, many buffers in
 * one call.
 *
 * It runs where the buffers are: those of the host over the thread pool, those of a device on a stream. No buffer ever
 * changes its place, address or size; a buffer found elsewhere than declared is an error. A handle is used by one
 * thread at a time. */
#ifndef ZCC_EMA_H
#define ZCC_EMA_H

#include "device.h"

typedef struct zcc_ema zcc_ema;

typedef struct zcc_ema_options {
	uint32_t struct_bytes; /* set by zcc_ema_options_init */
	int32_t interval;      /* every interval-th call of zcc_ema_update updates; 1 by default, >= 1 */
	zcc_device *device;    /* tells the place of an address; needed. The EMA holds a reference */
} zcc_ema_options;

/* One averaged parameter, or a shard of it. The caller keeps both buffers alive where they are, as long as the EMA. */
typedef struct zcc_ema_buffer {
	uint32_t struct_bytes; /* set by zcc_ema_buffer_init */
	int32_t group;         /* as zcc_ema_group gave it */
	const char *name;      /* copied; no two alike */
	void *ema;             /* may be NULL where elems is 0 */
	const void *param;     /* the same; no overlap with any EMA buffer */
	int64_t elems;         /* >= 0 */
	int32_t ema_dtype;     /* ZCC_F32: in BF16, steps of 1 - 0.999 would be rounded away */
	int32_t param_dtype;   /* ZCC_F32 or ZCC_BF16 */
	int32_t ema_place;     /* ZCC_AT_ where it is declared to be; 0 = wherever it is found now */
	int32_t param_place;   /* the same */
} zcc_ema_buffer;

/* Fills in struct_bytes and the defaults; call it before setting any member. */
ZCC_API void zcc_ema_options_init(zcc_ema_options *options);
/* ZCC_EINVAL, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_ema_create(const zcc_ema_options *options, zcc_ema **ema, zcc_error *error);
/* Touches no buffer. Device work of an update that is in flight must have been waited for. NULL is allowed. */
ZCC_API void zcc_ema_destroy(zcc_ema *ema);

/* A group of buffers with one decay, 0 <= decay < 1. ZCC_EINVAL, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_ema_group(zcc_ema *ema, double decay, int32_t *group, zcc_error *error);
/* A decay for the updates to come. ZCC_EINVAL. */
ZCC_API zcc_status zcc_ema_set_decay(zcc_ema *ema, int32_t group, double decay, zcc_error *error);
/* The same for a buffer: F32 parameters, group 0, any place. */
ZCC_API void zcc_ema_buffer_init(zcc_ema_buffer *buffer);
/* *index counts from 0. Refused (ZCC_EINVAL, naming buffer, what was found and what is allowed): another dtype, a place
 * that is not the declared one, a host buffer in an EMA with device buffers, a name that is taken. ZCC_ENOMEM. */
ZCC_API zcc_status zcc_ema_add(zcc_ema *ema, const zcc_ema_buffer *buffer, int32_t *index, zcc_error *error);

/* Counts a call and, where it is the interval's turn, updates all buffers; *updated (may be NULL) tells which.
 *
 * On the host it blocks until done. `stream` may be NULL; where it is not, what was submitted to it is waited for
 * first: parameters that are on their way to host memory.
 *
 * On a device the work is submitted to `stream`, which must belong to the EMA's device, and the call returns at once.
 * Parameters must stay unchanged until the stream has been waited for.
 *
 * Before anything is written, all places are checked, and that no EMA buffer overlaps another buffer. ZCC_EINVAL names
 * the buffer, the place declared and the one found, ZCC_ESTALE a buffer in device memory that has been freed. After a
 * fault of the device some of the buffers may be updated: the EMA is torn and refuses updates and reads (ZCC_EDEVICE)
 * until zcc_ema_start, or zcc_ema_resume once all buffers have been written again. */
ZCC_API zcc_status zcc_ema_update(zcc_ema *ema, zcc_stream *stream, int32_t *updated, zcc_error *error);
/* Sets every EMA buffer to its parameter and both counters to 0. Streams as for zcc_ema_update. */
ZCC_API zcc_status zcc_ema_start(zcc_ema *ema, zcc_stream *stream, zcc_error *error);

/* ---- state: the buffers and two counters ---- */

/* Buffers added so far. */
ZCC_API int32_t zcc_ema_count(const zcc_ema *ema);
/* As it was added, its places as found. `name` is owned by the EMA. ZCC_EINVAL for an index that is none. */
ZCC_API zcc_status zcc_ema_buffer_get(const zcc_ema *ema, int32_t index, zcc_ema_buffer *buffer, zcc_error *error);
/* Calls of zcc_ema_update so far, and how many of them updated. */
ZCC_API int64_t zcc_ema_calls(const zcc_ema *ema);
ZCC_API int64_t zcc_ema_updates(const zcc_ema *ema);
/* Takes up saved counters, 0 <= updates <= calls < 2^62. ZCC_EINVAL. */
ZCC_API zcc_status zcc_ema_resume(zcc_ema *ema, int64_t calls, int64_t updates, zcc_error *error);
/* Copies EMA buffer `index` to host memory, or from it; `bytes` must be exactly its size. One in device memory is
 * copied on `stream`, after what was submitted to it; one on the host needs none. Blocks until the copy is done.
 * ZCC_EINVAL for an index or size that is none, ZCC_ESTALE, ZCC_EDEVICE (the device's, or reading a torn EMA). */
ZCC_API zcc_status zcc_ema_read(zcc_ema *ema, int32_t index, void *data, int64_t bytes, zcc_stream *stream,
                                zcc_error *error);
ZCC_API zcc_status zcc_ema_write(zcc_ema *ema, int32_t index, const void *data, int64_t bytes, zcc_stream *stream,
                                 zcc_error *error);

#endif
