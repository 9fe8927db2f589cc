#include "staging/offload.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* The first live ticket of that number or a later one. */
static int64_t find_index(const zcc_offload *queue, int64_t number)
{
	int64_t low = queue->first;
	int64_t high = queue->end;
	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		if (queue->tickets[middle]->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

zcci_offload_ticket *zcci_offload_find(const zcc_offload *queue, int64_t number)
{
	int64_t at = find_index(queue, number);
	return at < queue->end && queue->tickets[at]->number == number ? queue->tickets[at] : NULL;
}

void zcci_offload_drop(zcc_offload *queue, zcci_offload_ticket *ticket)
{
	for (int64_t i = 0; i < ticket->n_items; i++)
		zcci_offload_strip(queue, &ticket->items[i]);
	zcc_event_destroy(ticket->ready);
	zcci_free(ticket->fault);
	zcci_free(ticket);
}

/* Moves what is live to the start of the table, or makes the table larger. */
static zcc_status make_room_for_ticket(zcc_offload *queue, zcc_error *error)
{
	int64_t n = queue->end - queue->first;
	if (queue->first <= n) {
		int64_t room = queue->tickets_room == 0 ? 64 : 2 * queue->tickets_room;
		zcci_offload_ticket **grown = zcci_realloc(queue->tickets, room, sizeof(zcci_offload_ticket *));
		if (grown == NULL)
			return zcci_fail(error, ZCC_ENOMEM, 0, "offload defer",
			                 "no memory for the table of %lld tickets", (long long)room);
		queue->tickets = grown;
		queue->tickets_room = room;
		return ZCC_OK;
	}
	memmove(queue->tickets, queue->tickets + queue->first, (size_t)n * sizeof *queue->tickets);
	queue->head -= queue->first;
	queue->first = 0;
	queue->end = n;
	return ZCC_OK;
}

zcc_status zcci_offload_make_room(zcc_offload *queue, zcc_error *error)
{
	if (queue->end == queue->tickets_room) {
		zcc_status status = make_room_for_ticket(queue, error);
		if (status != ZCC_OK)
			return status;
	}
	/* Any live ticket may get lost, and that must not fail. */
	int64_t most_lost = queue->n_lost + (queue->end - queue->first) + 1;
	if (most_lost > queue->lost_room) {
		int64_t *grown = zcci_realloc(queue->lost, 2 * most_lost, sizeof *grown);
		if (grown == NULL)
			return zcci_fail(error, ZCC_ENOMEM, 0, "offload defer",
			                 "no memory for the table of %lld tickets", (long long)most_lost);
		queue->lost = grown;
		queue->lost_room = 2 * most_lost;
	}
	return ZCC_OK;
}

void zcci_offload_append(zcc_offload *queue, zcci_offload_ticket *ticket)
{
	ticket->number = ++queue->last_ticket;
	if (ticket->total_bytes == 0) {
		ticket->state = ZCCI_OFFLOAD_LANDED;
		for (int64_t i = 0; i < ticket->n_items; i++)
			ticket->items[i].state = ZCCI_OFFLOAD_LANDED;
	} else {
		queue->n_pending++;
	}
	queue->tickets[queue->end++] = ticket;
	if (ticket->snapshot != queue->snapshot || ticket->number == 1)
		queue->snapshot_bytes = 0;
	queue->snapshot = ticket->snapshot;
	queue->snapshot_bytes += ticket->total_bytes;
	queue->stats.tickets++;
	queue->stats.regions += ticket->n_items;
	queue->stats.deferred_bytes += ticket->total_bytes;
	queue->stats.pending_bytes += ticket->total_bytes;
}

void zcci_offload_permit(zcc_offload *queue, int64_t number)
{
	for (int64_t i = queue->head; i < queue->end && queue->tickets[i]->number <= number; i++)
		queue->tickets[i]->permitted_bytes = queue->tickets[i]->total_bytes;
	pthread_cond_signal(&queue->work);
}

zcc_status zcci_offload_report(zcci_offload_ticket *ticket, zcc_error *error)
{
	ticket->reported = true;
	if (ticket->fault == NULL)
		return zcci_fail(error, ticket->status, 0, "offload",
		                 "ticket %lld failed, and there was no memory to keep why", (long long)ticket->number);
	if (error != NULL)
		*error = *ticket->fault;
	return ticket->status;
}

zcc_status zcci_offload_check_number(const zcc_offload *queue, int64_t ticket, const char *operation, zcc_error *error)
{
	if (ticket < 1 || ticket > queue->last_ticket)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "ticket %lld has not been given out; the last one is %lld", (long long)ticket,
		                 (long long)queue->last_ticket);
	for (int64_t i = 0; i < queue->n_lost; i++)
		if (queue->lost[i] == ticket)
			return zcci_fail(error, ZCC_ESTALE, 0, operation,
			                 "ticket %lld failed or was cancelled, and has been released",
			                 (long long)ticket);
	return ZCC_OK;
}

void zcci_offload_forget(zcc_offload *queue, zcci_offload_ticket *ticket)
{
	int64_t at = find_index(queue, ticket->number);
	if (ticket->state == ZCCI_OFFLOAD_FAILED)
		queue->lost[queue->n_lost++] = ticket->number;
	if (at == queue->first) {
		queue->first++;
		if (queue->head < queue->first)
			queue->head = queue->first;
	} else {
		memmove(&queue->tickets[at], &queue->tickets[at + 1],
		        (size_t)(queue->end - at - 1) * sizeof *queue->tickets);
		queue->end--;
		if (queue->head > at)
			queue->head--;
	}
	zcci_offload_drop(queue, ticket);
}
