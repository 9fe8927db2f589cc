#include "staging/offload.h"

#include <errno.h>
#include <math.h>
#include <time.h>

#include "base/memory.h"
#include "base/omit.h"
#include "base/status.h"
#include "staging/pool.h"

static const int64_t CHUNK_USUAL_BYTES = (int64_t)64 << 20;
enum { MOST_SLOTS = 4096 };
/* How soon a wait sees a signal. */
static const int64_t PATIENCE_NS = 20 * 1000000;

/* ---- the handle ---- */

void zcc_offload_options_init(zcc_offload_options *options)
{
	*options = (zcc_offload_options){.struct_bytes = sizeof *options, .chunk_bytes = CHUNK_USUAL_BYTES};
}

static zcc_status check_options(const zcc_offload_options *options, zcc_error *error)
{
	if (options->struct_bytes != sizeof *options)
		return zcci_fail(error, ZCC_EINVAL, 0, "offload create", "options of %u bytes, this library's have %zu",
		                 options->struct_bytes, sizeof *options);
	if (options->busy != ZCC_OFFLOAD_WAIT && options->busy != ZCC_OFFLOAD_REFUSE)
		return zcci_fail(error, ZCC_EINVAL, 0, "offload create", "busy is %d, neither wait nor refuse",
		                 (int)options->busy);
	if (options->memory != ZCC_OFFLOAD_PINNED_ONLY && options->memory != ZCC_OFFLOAD_OR_UNPINNED)
		return zcci_fail(error, ZCC_EINVAL, 0, "offload create",
		                 "memory is %d, neither pinned only nor unpinned too", (int)options->memory);
	if (options->chunk_bytes < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "offload create", "chunks of %lld bytes",
		                 (long long)options->chunk_bytes);
	if (options->slots < 0 || options->slots > MOST_SLOTS)
		return zcci_fail(error, ZCC_EINVAL, 0, "offload create", "%d slots, 0 to %d are allowed",
		                 (int)options->slots, MOST_SLOTS);
	return ZCC_OK;
}

static void start_locks(zcc_offload *queue)
{
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&queue->lock, NULL);
	pthread_cond_init(&queue->work, &attributes);
	pthread_cond_init(&queue->done, &attributes);
	pthread_condattr_destroy(&attributes);
}

static void destroy(zcc_offload *queue)
{
	for (int64_t i = queue->first; i < queue->end; i++)
		zcci_offload_drop(queue, queue->tickets[i]);
	zcci_offload_rest(queue);
	zcc_stream_destroy(queue->stream);
	zcc_pool_destroy(queue->pool);
	pthread_cond_destroy(&queue->done);
	pthread_cond_destroy(&queue->work);
	pthread_mutex_destroy(&queue->lock);
	zcci_names_clear(&queue->names);
	zcci_free(queue->buffers);
	zcci_free(queue->tickets);
	zcci_free(queue->lost);
	zcci_free(queue->slots);
	zcci_free(queue);
}

static zcc_status make_slots(zcc_offload *queue, zcc_error *error)
{
	int32_t n = queue->options.slots;
	if (n == 0)
		return ZCC_OK;
	queue->slots = zcci_calloc(n, sizeof *queue->slots);
	if (queue->slots == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "offload create", "no memory for the table of %d slots", (int)n);
	return ZCC_OK;
}

zcc_status zcc_offload_create(zcc_device *device, zcc_pool *pool, const zcc_offload_options *options,
                              zcc_offload **queue, zcc_error *error)
{
	zcc_offload_options usual;
	zcc_offload_options_init(&usual);
	if (options == NULL)
		options = &usual;
	zcc_status status = check_options(options, error);
	if (status == ZCC_OK)
		status = zcci_pool_check(pool, device, "offload create", error);
	if (status != ZCC_OK)
		return status;
	zcc_offload *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "offload create", "no memory for a queue");
	made->device = device;
	made->pool = pool;
	made->options = *options;
	zcci_pool_retain(pool);
	start_locks(made);
	status = make_slots(made, error);
	if (status == ZCC_OK)
		status = zcc_stream_create(device, &made->stream, error);
	if (status == ZCC_OK)
		status = zcci_offload_start(made, error);
	if (status != ZCC_OK) {
		destroy(made);
		return status;
	}
	*queue = made;
	return ZCC_OK;
}

void zcc_offload_close(zcc_offload *queue)
{
	if (queue == NULL)
		return;
	zcci_offload_stop(queue);
	destroy(queue);
}

/* ---- waiting ---- */

zcc_status zcci_offload_sleep(zcc_offload *queue, const char *operation, zcc_error *error)
{
	int32_t number = zcc_interrupted();
	if (number != 0)
		return zcci_fail(error, ZCC_EINTR, number, operation, "stopped by signal %d", (int)number);
	const zcci_offload_ticket *head = zcci_offload_head(queue);
	if (queue->stuck && !queue->options.consumer && head != NULL)
		return zcci_fail(error, ZCC_EBUSY, 0, operation,
		                 "ticket %lld (%lld of %lld bytes landed) needs one of %d slots, and all hold landed "
		                 "regions that nobody has released",
		                 (long long)head->number, (long long)head->copied_bytes, (long long)head->total_bytes,
		                 (int)queue->options.slots);
	int64_t until = zcc_clock_ns() + PATIENCE_NS;
	struct timespec at = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
	pthread_cond_timedwait(&queue->done, &queue->lock, &at);
	return ZCC_OK;
}

static bool is_pending(zcc_offload *queue, int64_t number)
{
	const zcci_offload_ticket *head = zcci_offload_head(queue);
	return head != NULL && head->number <= number;
}

/* Until nothing up to that ticket is pending. */
static zcc_status finish(zcc_offload *queue, int64_t number, const char *operation, zcc_error *error)
{
	if (!is_pending(queue, number))
		return ZCC_OK;
	int64_t begin = zcc_clock_ns();
	zcc_status status = ZCC_OK;
	while (status == ZCC_OK && is_pending(queue, number))
		status = zcci_offload_sleep(queue, operation, error);
	queue->stats.waits++;
	queue->stats.wait_ns += zcc_clock_ns() - begin;
	return status;
}

static zcc_status wait_for(zcc_offload *queue, int64_t number, zcc_error *error)
{
	zcc_status status = zcci_offload_check_number(queue, number, "offload wait", error);
	if (status != ZCC_OK)
		return status;
	zcci_offload_permit(queue, number);
	status = ZCCI_WAIT(offload_wait, finish(queue, number, "offload wait", error));
	if (status != ZCC_OK)
		return status;
	zcci_offload_ticket *ticket = zcci_offload_find(queue, number);
	if (ticket != NULL && ticket->state == ZCCI_OFFLOAD_FAILED)
		return zcci_offload_report(ticket, error);
	/* It may have been cancelled meanwhile. */
	return zcci_offload_check_number(queue, number, "offload wait", error);
}

zcc_status zcc_offload_wait(zcc_offload *queue, int64_t ticket, zcc_error *error)
{
	pthread_mutex_lock(&queue->lock);
	zcc_status status = wait_for(queue, ticket, error);
	pthread_mutex_unlock(&queue->lock);
	return status;
}

zcc_status zcc_offload_test(zcc_offload *queue, int64_t ticket, int32_t *landed, zcc_error *error)
{
	pthread_mutex_lock(&queue->lock);
	zcc_status status = zcci_offload_check_number(queue, ticket, "offload test", error);
	if (status == ZCC_OK) {
		zcci_offload_ticket *found = zcci_offload_find(queue, ticket);
		if (found != NULL && found->state == ZCCI_OFFLOAD_FAILED)
			status = zcci_offload_report(found, error);
		else
			*landed = !is_pending(queue, ticket);
	}
	pthread_mutex_unlock(&queue->lock);
	return status;
}

/* The first fault that nobody has been told of; all are told with it. */
static zcc_status report_once(zcc_offload *queue, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	int64_t more = 0;
	for (int64_t i = queue->first; i < queue->end; i++) {
		zcci_offload_ticket *ticket = queue->tickets[i];
		if (ticket->state != ZCCI_OFFLOAD_FAILED || ticket->reported)
			continue;
		if (status == ZCC_OK)
			status = zcci_offload_report(ticket, error);
		else
			more++;
		ticket->reported = true;
	}
	if (more > 0)
		zcci_context(error, status, "the first of %lld tickets that failed", (long long)more + 1);
	return status;
}

zcc_status zcc_offload_fence(zcc_offload *queue, zcc_error *error)
{
	pthread_mutex_lock(&queue->lock);
	int64_t last = queue->last_ticket;
	zcci_offload_permit(queue, last);
	zcc_status status = ZCCI_WAIT(offload_fence, finish(queue, last, "offload fence", error));
	if (status == ZCC_OK)
		status = report_once(queue, error);
	pthread_mutex_unlock(&queue->lock);
	return status;
}

/* ---- starting ---- */

/* Tickets that have not begun and whose buffers are not there any more fail here, so that the caller hears of it at
 * once. */
static zcc_status fail_stale(zcc_offload *queue, zcc_error *error)
{
	zcc_error fault;
	zcc_status first = ZCC_OK;
	for (int64_t i = queue->head; i < queue->end; i++) {
		zcci_offload_ticket *ticket = queue->tickets[i];
		if (ticket->state != ZCCI_OFFLOAD_PENDING || ticket->reserved || ticket == queue->busy)
			continue;
		zcc_status status = zcci_offload_check_stale(queue, ticket, &fault);
		if (status == ZCC_OK)
			continue;
		zcci_context(&fault, status, "ticket %lld", (long long)ticket->number);
		zcci_offload_fail(queue, ticket, status, &fault);
		if (first == ZCC_OK)
			first = zcci_offload_report(ticket, error);
	}
	return first;
}

zcc_status zcc_offload_flush(zcc_offload *queue, zcc_error *error)
{
	pthread_mutex_lock(&queue->lock);
	zcc_status status = fail_stale(queue, error);
	zcci_offload_permit(queue, queue->last_ticket);
	pthread_mutex_unlock(&queue->lock);
	return status;
}

zcc_status zcc_offload_flush_fraction(zcc_offload *queue, double fraction, zcc_error *error)
{
	if (!(fraction > 0 && fraction <= 1))
		return zcci_fail(error, ZCC_EINVAL, 0, "offload flush",
		                 "a fraction of %g, more than 0 and at most 1 is allowed", fraction);
	pthread_mutex_lock(&queue->lock);
	zcc_status status = fail_stale(queue, error);
	int64_t share = queue->snapshot_bytes;
	/* Not for all of it: the double next to 2^63 - 1 is no int64_t. */
	if (fraction < 1)
		share = (int64_t)ceil((double)share * fraction);
	for (int64_t i = queue->head; i < queue->end && share > 0; i++) {
		zcci_offload_ticket *ticket = queue->tickets[i];
		if (ticket->state != ZCCI_OFFLOAD_PENDING)
			continue;
		int64_t left = ticket->total_bytes - ticket->permitted_bytes;
		int64_t n = left < share ? left : share;
		ticket->permitted_bytes += n;
		share -= n;
	}
	pthread_cond_signal(&queue->work);
	pthread_mutex_unlock(&queue->lock);
	return status;
}

/* ---- deferring ---- */

static zcc_status create_ticket(zcc_offload *queue, int64_t snapshot, int64_t n_regions, zcc_stream *after,
                                zcci_offload_ticket **ticket, zcc_error *error)
{
	int64_t bytes;
	zcci_offload_ticket *made = NULL;
	if (!zcci_mul_overflows(n_regions, sizeof(zcci_offload_item), &bytes) &&
	    !zcci_add_overflows(bytes, sizeof *made, &bytes))
		made = zcci_calloc(1, bytes);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "offload defer", "no memory for a ticket of %lld regions",
		                 (long long)n_regions);
	made->snapshot = snapshot;
	made->n_items = n_regions;
	if (after != NULL) {
		zcc_status status = zcc_event_create(queue->device, &made->ready, error);
		if (status == ZCC_OK)
			status = zcc_event_record(made->ready, after, error);
		if (status != ZCC_OK) {
			zcc_event_destroy(made->ready);
			zcci_free(made);
			return status;
		}
	}
	*ticket = made;
	return ZCC_OK;
}

static zcc_status resolve(zcc_offload *queue, const zcc_offload_region *regions, zcci_offload_ticket *ticket,
                          zcc_error *error)
{
	int64_t total = 0;
	for (int64_t i = 0; i < ticket->n_items; i++) {
		zcci_offload_item *item = &ticket->items[i];
		zcc_status status = zcci_offload_resolve(queue, &regions[i], i, item, error);
		if (status != ZCC_OK)
			return status;
		if (zcci_add_overflows(total, item->bytes, &total))
			return zcci_fail(error, ZCC_EOVERFLOW, 0, "offload defer",
			                 "the bytes of %lld regions do not fit 63 bits", (long long)ticket->n_items);
	}
	ticket->total_bytes = total;
	return ZCC_OK;
}

static zcc_status check_before(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error)
{
	zcci_offload_use(queue, ticket, 0, ticket->n_items, 1);
	pthread_mutex_unlock(&queue->lock);
	zcc_status status = zcci_offload_check_before(queue, ticket, error);
	pthread_mutex_lock(&queue->lock);
	zcci_offload_use(queue, ticket, 0, ticket->n_items, -1);
	return status;
}

/* Another snapshot in flight lands first, or this one is refused. */
static zcc_status take_turn(zcc_offload *queue, int64_t snapshot, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	while (status == ZCC_OK && zcci_offload_head(queue) != NULL && queue->snapshot != snapshot) {
		const zcci_offload_ticket *head = zcci_offload_head(queue);
		if (queue->options.busy == ZCC_OFFLOAD_REFUSE)
			return zcci_fail(error, ZCC_EBUSY, 0, "offload defer",
			                 "snapshot %lld while %lld is in flight (ticket %lld, %lld bytes to go)",
			                 (long long)snapshot, (long long)queue->snapshot, (long long)head->number,
			                 (long long)queue->stats.pending_bytes);
		zcci_offload_permit(queue, queue->last_ticket);
		if (ZCCI_OMITTED(offload_snapshot))
			break;
		status = finish(queue, queue->last_ticket, "offload defer", error);
	}
	return status;
}

/* All other sums of bytes are parts of this one. */
static zcc_status check_sum(const zcc_offload *queue, const zcci_offload_ticket *ticket, zcc_error *error)
{
	int64_t sum;
	if (!zcci_add_overflows(queue->stats.deferred_bytes, ticket->total_bytes, &sum))
		return ZCC_OK;
	return zcci_fail(error, ZCC_EOVERFLOW, 0, "offload defer",
	                 "%lld bytes after the %lld that have been deferred so far do not fit 63 bits",
	                 (long long)ticket->total_bytes, (long long)queue->stats.deferred_bytes);
}

static zcc_status enter(zcc_offload *queue, const zcc_offload_region *regions, zcci_offload_ticket *ticket,
                        zcc_error *error)
{
	zcc_status status = resolve(queue, regions, ticket, error);
	if (status == ZCC_OK && queue->options.check)
		status = check_before(queue, ticket, error);
	if (status == ZCC_OK)
		status = take_turn(queue, ticket->snapshot, error);
	/* Buffers may have gone while the lock was released. */
	if (status == ZCC_OK)
		status = zcci_offload_check_stale(queue, ticket, error);
	if (status == ZCC_OK)
		status = check_sum(queue, ticket, error);
	if (status == ZCC_OK)
		status = zcci_offload_make_room(queue, error);
	if (status == ZCC_OK)
		zcci_offload_append(queue, ticket);
	return status;
}

zcc_status zcc_offload_defer(zcc_offload *queue, int64_t snapshot, const zcc_offload_region *regions, int64_t n_regions,
                             zcc_stream *after, int64_t *ticket, zcc_error *error)
{
	if (n_regions < 0 || (regions == NULL && n_regions > 0))
		return zcci_fail(error, ZCC_EINVAL, 0, "offload defer", "%lld regions at %p", (long long)n_regions,
		                 (const void *)regions);
	zcci_offload_ticket *made = NULL;
	zcc_status status = create_ticket(queue, snapshot, n_regions, after, &made, error);
	if (status != ZCC_OK)
		return status;
	pthread_mutex_lock(&queue->lock);
	status = enter(queue, regions, made, error);
	int64_t number = made->number;
	pthread_mutex_unlock(&queue->lock);
	if (status != ZCC_OK) {
		zcc_event_destroy(made->ready);
		zcci_free(made);
		return status;
	}
	*ticket = number;
	return ZCC_OK;
}

void zcc_offload_get_stats(zcc_offload *queue, zcc_offload_stats *stats)
{
	pthread_mutex_lock(&queue->lock);
	*stats = queue->stats;
	pthread_mutex_unlock(&queue->lock);
}
