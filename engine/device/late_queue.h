/* What a late device has been asked to do and has not done. All under the device's lock. */
#ifndef ZCCI_LATE_QUEUE_H
#define ZCCI_LATE_QUEUE_H

#include <pthread.h>

#include "device/work.h"

typedef struct late_stream late_stream;

/* A point of a stream. */
typedef struct late_mark {
	int32_t refs;
	bool done;
	zcc_status status;   /* of work before it that failed, once done */
	int32_t n_tests;     /* in a row that found it not done */
	late_stream *stream; /* until it is done */
} late_mark;

typedef struct late_event {
	late_mark *last; /* NULL: never recorded */
} late_event;

enum { LATE_WORK, LATE_WAIT, LATE_RECORD };

typedef struct late_item {
	struct late_item *next;
	int32_t kind;
	late_mark *mark;
	zcci_work work;
	void *snapshot; /* copy of a pageable source */
} late_item;

struct late_stream {
	late_stream *next;
	late_item *head, **tail;
	int32_t n_tests;
	zcc_error fault; /* the first that was not reported yet; status ZCC_OK where there is none */
};

/* An allocation, so that freeing it can tell which work uses it. */
typedef struct late_block {
	struct late_block *next;
	void *data;
	int64_t bytes;
} late_block;

typedef struct late_device {
	const zcci_device_ops *ops; /* of the device underneath */
	void *inner;
	void *inner_stream; /* everything runs on this one, each to its end */
	void *poison;       /* device memory full of poison */
	int32_t mode;
	uint64_t random;
	pthread_mutex_t lock;
	late_stream *streams;
	late_block *blocks;
} late_device;

/* 0 to n - 1. */
int64_t zcci_late_random(late_device *device, int64_t n);

/* Appends; the item belongs to the stream from then on. */
void zcci_late_append(late_stream *stream, late_item *item);
void zcci_late_drop_mark(late_mark *mark);

/* Whether pending work touches those bytes, or writes them. */
bool zcci_late_touches(const late_device *device, const void *data, int64_t bytes);
bool zcci_late_writes(const late_device *device, const void *data, int64_t bytes);

/* Run what is pending until the mark is done, the stream is empty, no work uses the bytes. The first gives way to
 * signals (ZCC_EINTR), the second where it is told to. */
zcc_status zcci_late_finish_mark(late_device *device, late_mark *mark, zcc_error *error);
zcc_status zcci_late_finish_stream(late_device *device, late_stream *stream, bool give_way, zcc_error *error);
void zcci_late_finish_bytes(late_device *device, const void *data, int64_t bytes);
/* At a random moment: nothing, or a few random steps. */
void zcci_late_stir(late_device *device);
/* Waits for the inner stream, whatever signals come. */
zcc_status zcci_late_settle(late_device *device, zcc_error *error);

#endif
