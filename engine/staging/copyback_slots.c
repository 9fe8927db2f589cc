/* The two buffers as a ring of slots, each with an event after its last copy. */
#include "staging/copyback.h"

#include "base/memory.h"
#include "base/omit.h"
#include "base/status.h"
#include "base/threads.h"

/* What one thread casts before the first copy begins and between two of them: 1 MiB of masters. A tenth of a
 * millisecond, next to which handing it to the device costs little. */
enum { SLOT_ELEMS_A_THREAD = 1 << 18 };
/* Few enough to be read from a cache by the copy, and enough that neither side waits for the other's next move. */
enum { USUAL_SLOTS = 8 };
enum { MOST_SLOTS_A_BUFFER = 256 };

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

zcc_status zcci_copyback_create_slots(zcc_copyback *copyback, zcc_error *error)
{
	int64_t least =
	        larger((int64_t)SLOT_ELEMS_A_THREAD * zcc_threads_get(), copyback->buffer_elems / MOST_SLOTS_A_BUFFER);
	int64_t n = larger(copyback->buffer_elems / least, 1);
	copyback->slots = zcci_calloc(2 * n, sizeof *copyback->slots);
	if (copyback->slots == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "copy-back", "no memory for a table of %lld slots",
		                 (long long)(2 * n));
	copyback->n_slots = (int32_t)(2 * n);
	copyback->slot_elems = copyback->buffer_elems / n;
	for (int32_t i = 0; i < copyback->n_slots; i++)
		copyback->slots[i].data =
		        (char *)copyback->buffers[i % 2] + i / 2 * copyback->slot_elems * copyback->elem_bytes;
	return ZCC_OK;
}

void zcci_copyback_destroy_slots(zcc_copyback *copyback)
{
	zcci_copyback_forget_events(copyback);
	zcci_free(copyback->slots);
	copyback->slots = NULL;
	copyback->n_slots = copyback->n_ring = 0;
}

void zcci_copyback_forget_events(zcc_copyback *copyback)
{
	for (int32_t i = 0; i < copyback->n_slots; i++) {
		zcc_event_destroy(copyback->slots[i].event);
		copyback->slots[i].event = NULL;
	}
}

void zcci_copyback_reset_slots(zcc_copyback *copyback)
{
	int32_t n = copyback->n_slots < USUAL_SLOTS ? copyback->n_slots : USUAL_SLOTS;
	for (int32_t i = 0; i < n; i++) {
		copyback->slots[i].sent = false;
		copyback->slots[i].after = (i + 1) % n;
	}
	copyback->n_ring = n;
	copyback->last = n - 1;
}

/* An event only says that something before it failed; the stream says what. */
static zcc_status explain(zcc_copyback *copyback, zcc_status status, zcc_error *error)
{
	if (status != ZCC_OK && status != ZCC_EINTR)
		zcc_stream_wait(copyback->stream, error);
	return status;
}

zcc_status zcci_copyback_await_slot(zcc_copyback *copyback, zcci_copyback_slot *slot, zcc_error *error)
{
	return explain(copyback, zcc_event_wait(slot->event, error), error);
}

zcc_status zcci_copyback_mark_slot(zcc_copyback *copyback, zcci_copyback_slot *slot, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	if (slot->event == NULL)
		status = zcc_event_create(copyback->device, &slot->event, error);
	if (status == ZCC_OK)
		status = zcc_event_record(slot->event, copyback->stream, error);
	slot->sent = status == ZCC_OK;
	return status;
}

/* Puts a slot that has not been used into the ring, before the oldest one. */
static int32_t widen(zcc_copyback *copyback)
{
	int32_t fresh = copyback->n_ring++;
	zcci_copyback_slot *last = &copyback->slots[copyback->last];
	copyback->slots[fresh].sent = false;
	copyback->slots[fresh].after = last->after;
	last->after = fresh;
	return fresh;
}

/* Until the copy from the oldest slot has ended, or until there is another slot. */
static zcc_status free_oldest(zcc_copyback *copyback, int32_t *oldest, zcc_error *error)
{
	zcci_copyback_slot *slot = &copyback->slots[*oldest];
	int32_t done = 0;
	zcc_status status = explain(copyback, zcc_event_test(slot->event, &done, error), error);
	if (status != ZCC_OK || done)
		return status;
	if (copyback->n_ring == copyback->n_slots)
		return zcci_copyback_await_slot(copyback, slot, error);
	*oldest = widen(copyback);
	return ZCC_OK;
}

zcc_status zcci_copyback_next_slot(zcc_copyback *copyback, zcci_copyback_slot **slot, zcc_error *error)
{
	int32_t next = copyback->slots[copyback->last].after;
	zcc_status status = ZCC_OK;
	if (copyback->slots[next].sent)
		status = ZCCI_WAIT(copyback_reuse, free_oldest(copyback, &next, error));
	if (status != ZCC_OK)
		return status;
	copyback->last = next;
	*slot = &copyback->slots[next];
	return ZCC_OK;
}
