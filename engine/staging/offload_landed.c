#include "staging/offload.h"

#include "base/memory.h"
#include "base/omit.h"
#include "base/status.h"

static zcc_status find_ticket(const zcc_offload *queue, int64_t number, const char *operation,
                              zcci_offload_ticket **ticket, zcc_error *error)
{
	*ticket = zcci_offload_find(queue, number);
	if (*ticket != NULL)
		return ZCC_OK;
	if (number >= 1 && number <= queue->last_ticket)
		return zcci_fail(error, ZCC_ESTALE, 0, operation, "ticket %lld has been released", (long long)number);
	return zcci_fail(error, ZCC_EINVAL, 0, operation, "ticket %lld has not been given out; the last one is %lld",
	                 (long long)number, (long long)queue->last_ticket);
}

static zcc_status find_item(const zcc_offload *queue, int64_t number, int64_t index, const char *operation,
                            zcci_offload_ticket **ticket, zcci_offload_item **item, zcc_error *error)
{
	zcc_status status = find_ticket(queue, number, operation, ticket, error);
	if (status != ZCC_OK)
		return status;
	if (index < 0 || index >= (*ticket)->n_items)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "region %lld of ticket %lld, which has %lld",
		                 (long long)index, (long long)number, (long long)(*ticket)->n_items);
	*item = &(*ticket)->items[index];
	return ZCC_OK;
}

static zcc_status check_landed(const zcci_offload_ticket *ticket, const zcci_offload_item *item, const char *operation,
                               zcc_error *error)
{
	if (item->state == ZCCI_OFFLOAD_LANDED)
		return ZCC_OK;
	if (item->state == ZCCI_OFFLOAD_RELEASED)
		return zcci_fail(error, ZCC_ESTALE, 0, operation,
		                 "the region of buffer '%s' in ticket %lld has been released", item->name,
		                 (long long)ticket->number);
	return zcci_fail(error, ZCC_EBUSY, 0, operation,
	                 "the region of buffer '%s' in ticket %lld has not landed (%lld of %lld bytes have)",
	                 item->name, (long long)ticket->number, (long long)ticket->copied_bytes,
	                 (long long)ticket->total_bytes);
}

static void describe(const zcci_offload_ticket *ticket, int64_t index, zcc_offload_landed *landed)
{
	const zcci_offload_item *item = &ticket->items[index];
	*landed = (zcc_offload_landed){
	        .name = item->name,
	        .data = item->data,
	        .offset_bytes = item->offset_bytes,
	        .bytes = item->bytes,
	        .ticket = ticket->number,
	        .index = index,
	        .generation = item->generation,
	        .snapshot = ticket->snapshot,
	        .place = item->data != NULL ? item->place : ZCC_AT_PAGEABLE,
	};
}

static zcc_status get(zcc_offload *queue, int64_t number, int64_t index, zcc_offload_landed *landed, zcc_error *error)
{
	zcci_offload_ticket *ticket = NULL;
	zcci_offload_item *item = NULL;
	zcc_status status = find_item(queue, number, index, "offload get", &ticket, &item, error);
	if (status != ZCC_OK)
		return status;
	if (ticket->state == ZCCI_OFFLOAD_FAILED)
		return zcci_offload_report(ticket, error);
	status = check_landed(ticket, item, "offload get", error);
	if (status == ZCC_OK)
		describe(ticket, index, landed);
	return status;
}

zcc_status zcc_offload_get(zcc_offload *queue, int64_t ticket, int64_t index, zcc_offload_landed *landed,
                           zcc_error *error)
{
	pthread_mutex_lock(&queue->lock);
	zcc_status status = get(queue, ticket, index, landed, error);
	pthread_mutex_unlock(&queue->lock);
	return status;
}

/* The next region that has not been given out or released, or the end; false: it has not landed. */
static bool give_out(zcci_offload_ticket *ticket, zcc_offload_landed *landed)
{
	while (ticket->next_out < ticket->n_items && ticket->items[ticket->next_out].state == ZCCI_OFFLOAD_RELEASED)
		ticket->next_out++;
	if (ticket->next_out == ticket->n_items) {
		*landed = (zcc_offload_landed){.ticket = ticket->number, .index = -1, .snapshot = ticket->snapshot};
		return true;
	}
	if (ticket->items[ticket->next_out].state != ZCCI_OFFLOAD_LANDED && !ZCCI_OMITTED(offload_next))
		return false;
	describe(ticket, ticket->next_out++, landed);
	return true;
}

static zcc_status next(zcc_offload *queue, int64_t number, zcc_offload_landed *landed, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	while (status == ZCC_OK) {
		zcci_offload_ticket *ticket = NULL;
		status = find_ticket(queue, number, "offload next", &ticket, error);
		if (status != ZCC_OK)
			return status;
		if (ticket->state == ZCCI_OFFLOAD_FAILED)
			return zcci_offload_report(ticket, error);
		zcci_offload_permit(queue, number);
		if (give_out(ticket, landed))
			return ZCC_OK;
		status = zcci_offload_sleep(queue, "offload next", error);
	}
	return status;
}

zcc_status zcc_offload_next(zcc_offload *queue, int64_t ticket, zcc_offload_landed *landed, zcc_error *error)
{
	pthread_mutex_lock(&queue->lock);
	zcc_status status = next(queue, ticket, landed, error);
	pthread_mutex_unlock(&queue->lock);
	return status;
}

/* ---- releasing ---- */

static zcc_status release_region(zcc_offload *queue, int64_t number, int64_t index, zcc_error *error)
{
	zcci_offload_ticket *ticket = NULL;
	zcci_offload_item *item = NULL;
	zcc_status status = find_item(queue, number, index, "offload release", &ticket, &item, error);
	if (status == ZCC_OK)
		status = check_landed(ticket, item, "offload release", error);
	if (status == ZCC_OK) {
		item->state = ZCCI_OFFLOAD_RELEASED;
		zcci_offload_strip(queue, item);
	}
	return status;
}

zcc_status zcc_offload_release_region(zcc_offload *queue, int64_t ticket, int64_t index, zcc_error *error)
{
	pthread_mutex_lock(&queue->lock);
	zcc_status status = release_region(queue, ticket, index, error);
	pthread_mutex_unlock(&queue->lock);
	return status;
}

zcc_status zcc_offload_release(zcc_offload *queue, int64_t ticket, zcc_error *error)
{
	zcci_offload_ticket *found = NULL;
	pthread_mutex_lock(&queue->lock);
	zcc_status status = find_ticket(queue, ticket, "offload release", &found, error);
	if (status == ZCC_OK && found->state == ZCCI_OFFLOAD_PENDING)
		status = zcci_fail(error, ZCC_EBUSY, 0, "offload release",
		                   "ticket %lld is in flight (%lld of %lld bytes landed)", (long long)ticket,
		                   (long long)found->copied_bytes, (long long)found->total_bytes);
	if (status == ZCC_OK)
		zcci_offload_forget(queue, found);
	pthread_mutex_unlock(&queue->lock);
	return status;
}

/* The worker ends it after its step. Another thread may have released it meanwhile, which frees the ticket. */
static zcc_status stop_busy(zcc_offload *queue, int64_t number, zcci_offload_ticket **ticket, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	(*ticket)->cancelled = true;
	while (status == ZCC_OK && (*ticket)->state == ZCCI_OFFLOAD_PENDING) {
		pthread_cond_wait(&queue->done, &queue->lock);
		status = find_ticket(queue, number, "offload cancel", ticket, error);
	}
	return status;
}

zcc_status zcc_offload_cancel(zcc_offload *queue, int64_t ticket, zcc_error *error)
{
	zcci_offload_ticket *found = NULL;
	pthread_mutex_lock(&queue->lock);
	zcc_status status = find_ticket(queue, ticket, "offload cancel", &found, error);
	if (status == ZCC_OK && found == queue->busy) {
		status = stop_busy(queue, ticket, &found, error);
	} else if (status == ZCC_OK && found->state == ZCCI_OFFLOAD_PENDING) {
		zcc_error fault = {0};
		zcci_fail(&fault, ZCC_ESTALE, 0, "offload", "ticket %lld: cancelled", (long long)ticket);
		zcci_offload_fail(queue, found, ZCC_ESTALE, &fault);
	}
	if (status == ZCC_OK)
		zcci_offload_forget(queue, found);
	pthread_mutex_unlock(&queue->lock);
	return status;
}
