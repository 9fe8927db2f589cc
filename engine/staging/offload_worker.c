#include "staging/offload.h"

#include <string.h>

#include "base/omit.h"
#include "base/status.h"
#include "base/threads.h"

/* What goes to the device together: items [first, end) from from_bytes of the first one to until_bytes of the last. */
typedef struct chunk {
	int64_t first, end;
	int64_t from_bytes, until_bytes;
	int64_t bytes;
} chunk;

zcci_offload_ticket *zcci_offload_head(zcc_offload *queue)
{
	while (queue->head < queue->end && queue->tickets[queue->head]->state != ZCCI_OFFLOAD_PENDING)
		queue->head++;
	return queue->head < queue->end ? queue->tickets[queue->head] : NULL;
}

static void settle(zcc_offload *queue, zcci_offload_ticket *ticket, zcci_offload_state state)
{
	ticket->state = state;
	queue->n_pending--;
	queue->stuck = false;
	if (state == ZCCI_OFFLOAD_FAILED)
		queue->stats.pending_bytes -= ticket->total_bytes - ticket->copied_bytes;
	if (queue->n_pending == 0)
		zcci_offload_rest(queue);
	pthread_cond_broadcast(&queue->done);
	pthread_cond_signal(&queue->work);
}

void zcci_offload_fail(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_status status, const zcc_error *fault)
{
	ticket->status = status;
	ticket->fault = zcci_malloc(sizeof *ticket->fault);
	if (ticket->fault != NULL)
		*ticket->fault = *fault;
	for (int64_t i = 0; i < ticket->n_items; i++)
		if (ticket->items[i].state == ZCCI_OFFLOAD_PENDING)
			zcci_offload_strip(queue, &ticket->items[i]);
	settle(queue, ticket, ZCCI_OFFLOAD_FAILED);
}

/* ---- one chunk ---- */

/* As much as one chunk takes; nothing where the first region finds no slot. */
static zcc_status gather(zcc_offload *queue, zcci_offload_ticket *ticket, chunk *out, zcc_error *error)
{
	int64_t room = queue->options.chunk_bytes;
	if (room == 0)
		room = ticket->permitted_bytes - ticket->copied_bytes;
	*out = (chunk){.first = ticket->at_item, .end = ticket->at_item, .from_bytes = ticket->at_bytes};
	int64_t at = ticket->at_bytes;
	while (out->end < ticket->n_items) {
		zcci_offload_item *item = &ticket->items[out->end];
		if ((out->bytes == room && item->bytes > 0) || !zcci_offload_furnish(queue, item))
			break;
		int64_t left = item->bytes - at;
		int64_t n = left < room - out->bytes ? left : room - out->bytes;
		item->source = queue->buffers[item->buffer].data + item->offset_bytes;
		out->bytes += n;
		out->until_bytes = at + n;
		out->end++;
		if (n < left)
			break;
		at = 0;
	}
	queue->stuck = out->end == out->first;
	for (int64_t i = out->first; i < out->end; i++)
		if (zcci_offload_stale(queue, &ticket->items[i]))
			return zcci_offload_check_stale(queue, ticket, error);
	return ZCC_OK;
}

static zcc_status name_items(const zcci_offload_ticket *ticket, const chunk *c, zcc_status status, zcc_error *error)
{
	int64_t others = c->end - c->first - 1;
	if (others == 0)
		return zcci_context(error, status, "copy of buffer '%s'", ticket->items[c->first].name);
	return zcci_context(error, status, "copy of buffer '%s' and %lld more regions up to '%s'",
	                    ticket->items[c->first].name, (long long)others, ticket->items[c->end - 1].name);
}

/* A wait that was given up leaves copies in flight; the stream's end is waited for all the same, and the stream is
 * another then. */
static zcc_status drain(zcc_offload *queue, zcc_error *error)
{
	zcc_stream *fresh = NULL;
	zcc_status status = zcc_stream_create(queue->device, &fresh, error);
	zcc_stream_destroy(queue->stream);
	queue->stream = fresh;
	return status;
}

/* Without the lock. Everything given to the device has ended when it returns. */
static zcc_status copy(zcc_offload *queue, const zcci_offload_ticket *ticket, const chunk *c, int64_t *n_copies,
                       zcc_error *error)
{
	if (queue->stream == NULL)
		return zcci_fail(error, ZCC_EDEVICE, 0, "offload", "the queue has lost its stream");
	zcc_status status = ZCC_OK;
	if (ticket->ready != NULL)
		status = ZCCI_WAIT(offload_source, zcc_stream_wait_event(queue->stream, ticket->ready, error));
	for (int64_t i = c->first; status == ZCC_OK && i < c->end; i++) {
		const zcci_offload_item *item = &ticket->items[i];
		int64_t from = i == c->first ? c->from_bytes : 0;
		int64_t until = i == c->end - 1 ? c->until_bytes : item->bytes;
		if (until == from)
			continue;
		status = zcc_copy_async(queue->stream, item->data + from, item->source + from, until - from, error);
		if (status != ZCC_OK)
			zcci_context(error, status, "copy of buffer '%s'", item->name);
		else
			++*n_copies;
	}
	zcc_error fault = {0};
	zcc_status waited = ZCCI_WAIT(offload_chunk, zcc_stream_wait(queue->stream, &fault));
	if (waited == ZCC_EINTR)
		drain(queue, NULL);
	if (status == ZCC_OK && waited != ZCC_OK) {
		*error = fault;
		status = name_items(ticket, c, waited, error);
	}
	return status;
}

static void land(zcc_offload *queue, zcci_offload_ticket *ticket, const chunk *c, int64_t whole)
{
	for (int64_t i = c->first; i < whole; i++)
		ticket->items[i].state = ZCCI_OFFLOAD_LANDED;
	ticket->at_item = whole;
	ticket->at_bytes = whole < c->end ? c->until_bytes : 0;
	ticket->copied_bytes += c->bytes;
	queue->stats.pending_bytes -= c->bytes;
	queue->stats.copied_bytes += c->bytes;
	queue->stats.chunks++;
	pthread_cond_broadcast(&queue->done);
}

/* Lock held, and released meanwhile. A stuck queue has done nothing. */
static zcc_status run_chunk(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error)
{
	chunk c;
	zcc_status status = gather(queue, ticket, &c, error);
	if (status != ZCC_OK || queue->stuck)
		return status;
	/* The last item may be cut by the chunk. */
	int64_t whole = c.until_bytes == ticket->items[c.end - 1].bytes ? c.end : c.end - 1;
	int64_t n_copies = 0;
	zcci_offload_use(queue, ticket, c.first, c.end, 1);
	pthread_mutex_unlock(&queue->lock);
	status = copy(queue, ticket, &c, &n_copies, error);
	if (status == ZCC_OK && queue->options.check)
		status = zcci_offload_check_landed(ticket, c.first, whole, error);
	pthread_mutex_lock(&queue->lock);
	zcci_offload_use(queue, ticket, c.first, c.end, -1);
	queue->stats.copies += n_copies;
	if (status == ZCC_OK)
		land(queue, ticket, &c, whole);
	return status;
}

/* ---- the thread ---- */

/* One step of a ticket: a chunk, and its memory where that is missing. */
static zcc_status run(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	if (!ticket->reserved)
		status = zcci_offload_reserve(queue, ticket, error);
	/* All of it before the first byte; a chunk looks at its own regions only. */
	if (status == ZCC_OK && ticket->copied_bytes == 0)
		status = zcci_offload_check_stale(queue, ticket, error);
	if (status == ZCC_OK && !ticket->cancelled && !queue->closing)
		status = run_chunk(queue, ticket, error);
	if (status == ZCC_OK && queue->options.check && ticket->at_item == ticket->n_items)
		status = zcci_offload_check_after(queue, ticket, error);
	return status;
}

static void finish(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_status status, zcc_error *fault)
{
	if (ticket->cancelled) {
		status = zcci_fail(fault, ZCC_ESTALE, 0, "offload", "cancelled");
		ticket->reported = true;
	}
	if (status != ZCC_OK) {
		zcci_context(fault, status, "ticket %lld", (long long)ticket->number);
		zcci_offload_fail(queue, ticket, status, fault);
	} else if (ticket->at_item == ticket->n_items) {
		settle(queue, ticket, ZCCI_OFFLOAD_LANDED);
	}
}

static bool may_go_on(zcc_offload *queue, const zcci_offload_ticket *head)
{
	return head != NULL && head->copied_bytes < head->permitted_bytes && !queue->stuck;
}

static void *serve(void *argument)
{
	zcc_offload *queue = argument;
	zcc_error fault;
	pthread_mutex_lock(&queue->lock);
	while (!queue->closing) {
		zcci_offload_ticket *ticket = zcci_offload_head(queue);
		if (!may_go_on(queue, ticket)) {
			pthread_cond_wait(&queue->work, &queue->lock);
			continue;
		}
		queue->busy = ticket;
		zcc_status status = run(queue, ticket, &fault);
		queue->busy = NULL;
		finish(queue, ticket, status, &fault);
	}
	pthread_mutex_unlock(&queue->lock);
	return NULL;
}

zcc_status zcci_offload_start(zcc_offload *queue, zcc_error *error)
{
	int code = zcci_thread_start(&queue->worker, serve, queue);
	if (code != 0)
		return zcci_fail(error, ZCC_ENOMEM, code, "offload create", "no thread for the queue: %s",
		                 strerror(code));
	return ZCC_OK;
}

void zcci_offload_stop(zcc_offload *queue)
{
	pthread_mutex_lock(&queue->lock);
	queue->closing = true;
	pthread_cond_signal(&queue->work);
	pthread_mutex_unlock(&queue->lock);
	pthread_join(queue->worker, NULL);
}
