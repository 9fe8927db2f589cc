/* The offload queue, as its parts see it. Calls of zcc/offload.h: queue and waits in offload.c, buffers in
 * offload_buffers.c, what has landed in offload_landed.c. The queue's thread (offload_worker.c) takes tickets in order,
 * one chunk after the other. */
#ifndef ZCCI_OFFLOAD_H
#define ZCCI_OFFLOAD_H

#include <pthread.h>
#include <stdbool.h>

#include "base/names.h"
#include "zcc/offload.h"

typedef struct zcci_offload_buffer {
	const char *data;
	int64_t bytes;
	int64_t generation; /* grows with every registration of its name */
	int32_t in_use;     /* regions of it that the device or a hash is reading now */
	bool live;
} zcci_offload_buffer;

typedef enum zcci_offload_state {
	ZCCI_OFFLOAD_PENDING,
	ZCCI_OFFLOAD_LANDED,
	ZCCI_OFFLOAD_FAILED,  /* tickets */
	ZCCI_OFFLOAD_RELEASED /* regions */
} zcci_offload_state;

/* A region of a ticket. */
typedef struct zcci_offload_item {
	const char *name; /* of the buffer; the queue's */
	int32_t buffer;
	int32_t slot;       /* with slots: which one it waits for, then has */
	int64_t generation; /* of the buffer at defer */
	int64_t offset_bytes;
	int64_t bytes;
	const char *source; /* set when a chunk of it is made */
	char *data;         /* NULL: no memory yet, or any more, or no bytes */
	int32_t place;      /* of data */
	zcci_offload_state state;
	uint64_t hash; /* of the source at defer, in checking mode */
} zcci_offload_item;

typedef struct zcci_offload_ticket {
	int64_t number;
	int64_t snapshot;
	int64_t n_items;
	int64_t total_bytes;
	int64_t permitted_bytes; /* may have started */
	int64_t copied_bytes;    /* in finished chunks */
	int64_t at_item;         /* where the next chunk begins */
	int64_t at_bytes;        /* in that item */
	int64_t next_out;        /* the region that zcc_offload_next gives */
	zcc_event *ready;        /* the source is written; NULL: it was at defer */
	bool assigned;           /* knows its slots */
	bool reserved;           /* all its memory is there, or every slot is large enough */
	bool cancelled;          /* to end when the worker is through with its step */
	bool reported;           /* its fault has been returned */
	zcci_offload_state state;
	zcc_status status;
	zcc_error *fault; /* NULL where there is none, or was no memory for it */
	zcci_offload_item items[];
} zcci_offload_ticket;

/* With options.slots: memory that one region after the other uses. */
typedef struct zcci_offload_slot {
	void *data;
	int64_t bytes;
	int64_t need_bytes; /* what a ticket that begins wants of it */
	int32_t place;
	bool used;
} zcci_offload_slot;

struct zcc_offload {
	zcc_device *device; /* kept open by the pool */
	zcc_pool *pool;
	zcc_offload_options options;
	zcc_stream *stream; /* of the worker */
	pthread_t worker;
	pthread_mutex_t lock; /* over all that follows */
	pthread_cond_t work;  /* something to do for the worker */
	pthread_cond_t done;  /* something has landed, failed, or is not in use any more */
	bool closing;
	bool stuck; /* the worker waits for a slot to be released */
	zcci_names names;
	zcci_offload_buffer *buffers; /* by the number of their name */
	int32_t buffers_room;
	zcci_offload_ticket **tickets; /* [first, end), ascending: all that have not been released */
	int64_t first, head, end;      /* what lies before head is not pending */
	int64_t tickets_room;
	int64_t *lost; /* numbers of those that failed and have been released */
	int64_t n_lost, lost_room;
	zcci_offload_ticket *busy; /* the worker's; its items are the worker's alone */
	int64_t last_ticket;
	int64_t n_pending;
	int64_t snapshot;         /* of the last defer */
	int64_t snapshot_bytes;   /* all that was deferred under that number */
	zcci_offload_slot *slots; /* options.slots */
	int64_t n_turns;          /* regions that have been assigned to slots */
	zcc_offload_stats stats;
};

/* All of these: lock held, unless they say otherwise. */

/* ---- offload_buffers.c ---- */

bool zcci_offload_stale(const zcc_offload *queue, const zcci_offload_item *item);
/* ZCC_ESTALE for the first item whose buffer has been registered anew or unregistered. */
zcc_status zcci_offload_check_stale(const zcc_offload *queue, const zcci_offload_ticket *ticket, zcc_error *error);
/* Fills an item from a region, which must be good now. */
zcc_status zcci_offload_resolve(const zcc_offload *queue, const zcc_offload_region *region, int64_t index,
                                zcci_offload_item *item, zcc_error *error);
/* Items [first, end) are read (+1), or not any more (-1). */
void zcci_offload_use(zcc_offload *queue, zcci_offload_ticket *ticket, int64_t first, int64_t end, int32_t change);

/* ---- offload_memory.c ---- */

/* What a ticket needs before its first byte moves, as far as slots are free. Releases the lock while the pool works.
 * ZCC_ENOMEM. */
zcc_status zcci_offload_reserve(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error);
/* Memory for an item; false: a slot has to be released first. */
bool zcci_offload_furnish(zcc_offload *queue, zcci_offload_item *item);
/* Takes it away; what is waiting for a slot goes on. */
void zcci_offload_strip(zcc_offload *queue, zcci_offload_item *item);
/* Nothing is pending: slots go back to the pool where none is used. */
void zcci_offload_rest(zcc_offload *queue);

/* ---- offload_check.c ---- */

/* At defer: hashes of all items, whose buffers are in use. Without the lock. */
zcc_status zcci_offload_check_before(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error);
/* The landed bytes of items [first, end) are those of defer; by the worker, without the lock. */
zcc_status zcci_offload_check_landed(const zcci_offload_ticket *ticket, int64_t first, int64_t end, zcc_error *error);
/* All landed: the sources are still what they were. By the worker; releases the lock. */
zcc_status zcci_offload_check_after(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error);

/* ---- offload_worker.c ---- */

zcc_status zcci_offload_start(zcc_offload *queue, zcc_error *error);
/* Without the lock. Waits for the chunk in flight. */
void zcci_offload_stop(zcc_offload *queue);
/* The first pending ticket, or NULL. */
zcci_offload_ticket *zcci_offload_head(zcc_offload *queue);
/* Its fault is copied; memory that has not landed is given back. */
void zcci_offload_fail(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_status status, const zcc_error *fault);

/* ---- offload_tickets.c ---- */

/* The live ticket of that number, NULL where there is none. */
zcci_offload_ticket *zcci_offload_find(const zcc_offload *queue, int64_t number);
/* ZCC_EINVAL for one that has not been given out, ZCC_ESTALE for one that did not land and is forgotten. */
zcc_status zcci_offload_check_number(const zcc_offload *queue, int64_t ticket, const char *operation, zcc_error *error);
/* Room in the tables for one more ticket; append then gives it its number. */
zcc_status zcci_offload_make_room(zcc_offload *queue, zcc_error *error);
void zcci_offload_append(zcc_offload *queue, zcci_offload_ticket *ticket);
/* Everything up to that ticket may start. */
void zcci_offload_permit(zcc_offload *queue, int64_t number);
/* Returns a failed ticket's fault. */
zcc_status zcci_offload_report(zcci_offload_ticket *ticket, zcc_error *error);
/* Takes a ticket that is not pending out of the tables and drops it. */
void zcci_offload_forget(zcc_offload *queue, zcci_offload_ticket *ticket);
/* Frees its memory, its event and itself. */
void zcci_offload_drop(zcc_offload *queue, zcci_offload_ticket *ticket);

/* ---- offload.c ---- */

/* Until something has changed, or a while has passed. ZCC_EINTR; ZCC_EBUSY where nothing will change unless a slot is
 * released. */
zcc_status zcci_offload_sleep(zcc_offload *queue, const char *operation, zcc_error *error);

#endif
