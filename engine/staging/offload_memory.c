#include "staging/offload.h"

#include "base/status.h"

/* ---- from and to the pool ---- */

/* Without the lock: page-locking takes long. */
static zcc_status take(const zcc_offload *queue, int64_t bytes, void **data, int32_t *place, zcc_error *error)
{
	bool or_unpinned = queue->options.memory == ZCC_OFFLOAD_OR_UNPINNED;
	zcc_status status = zcc_pool_take(queue->pool, bytes, or_unpinned ? ZCC_POOL_OR_UNPINNED : 0, data, error);
	if (status != ZCC_OK)
		return status;
	*place = ZCC_AT_PINNED;
	return or_unpinned ? zcc_device_place(queue->device, *data, place, error) : ZCC_OK;
}

static void hold(zcc_offload *queue, int64_t bytes)
{
	queue->stats.held_bytes += bytes;
	if (queue->stats.held_bytes > queue->stats.held_peak_bytes)
		queue->stats.held_peak_bytes = queue->stats.held_bytes;
}

static void give(zcc_offload *queue, void *data, int64_t bytes)
{
	queue->stats.held_bytes -= bytes;
	zcc_pool_give(queue->pool, data, NULL);
}

/* ---- memory of its own for every region ---- */

static zcc_status reserve_all(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	int64_t taken_bytes = 0;
	pthread_mutex_unlock(&queue->lock);
	for (int64_t i = 0; status == ZCC_OK && i < ticket->n_items; i++) {
		zcci_offload_item *item = &ticket->items[i];
		void *data = NULL;
		if (item->bytes == 0)
			continue;
		status = take(queue, item->bytes, &data, &item->place, error);
		if (data != NULL)
			taken_bytes += item->bytes;
		item->data = data;
	}
	pthread_mutex_lock(&queue->lock);
	hold(queue, taken_bytes);
	return status;
}

/* ---- slots ---- */

/* The n-th region that has bytes goes to slot n modulo the number of slots, so whoever releases regions in order, and
 * keeps one less than there are slots, never waits in vain. A slot is as large as some region of its own turns, which
 * are no other slot's: together they are no larger than the largest regions are. */
static void assign_slots(zcc_offload *queue, zcci_offload_ticket *ticket)
{
	for (int64_t i = 0; i < ticket->n_items; i++)
		if (ticket->items[i].bytes > 0)
			ticket->items[i].slot = (int32_t)(queue->n_turns++ % queue->options.slots);
	ticket->assigned = true;
}

/* What the slots have to be for what is left of the ticket. */
static void find_needs(zcc_offload *queue, const zcci_offload_ticket *ticket)
{
	for (int32_t k = 0; k < queue->options.slots; k++)
		queue->slots[k].need_bytes = 0;
	for (int64_t i = ticket->at_item; i < ticket->n_items; i++) {
		const zcci_offload_item *item = &ticket->items[i];
		if (item->bytes > 0 && item->data == NULL && queue->slots[item->slot].need_bytes < item->bytes)
			queue->slots[item->slot].need_bytes = item->bytes;
	}
}

/* What the slot had goes back first, so that both are never held together. */
static zcc_status resize_slot(zcc_offload *queue, zcci_offload_slot *slot, int64_t bytes, zcc_error *error)
{
	if (slot->data != NULL)
		give(queue, slot->data, slot->bytes);
	*slot = (zcci_offload_slot){.used = true};
	void *data = NULL;
	int32_t place = 0;
	pthread_mutex_unlock(&queue->lock);
	zcc_status status = take(queue, bytes, &data, &place, error);
	pthread_mutex_lock(&queue->lock);
	*slot = (zcci_offload_slot){.data = data, .bytes = data != NULL ? bytes : 0, .place = place};
	hold(queue, slot->bytes);
	return status;
}

/* The slot that is too small by its needs and has the largest need; -1: none. */
static int32_t find_small_slot(const zcc_offload *queue, bool used)
{
	int32_t found = -1;
	for (int32_t k = 0; k < queue->options.slots; k++) {
		const zcci_offload_slot *slot = &queue->slots[k];
		if (slot->used == used && slot->bytes < slot->need_bytes &&
		    (found < 0 || slot->need_bytes > queue->slots[found].need_bytes))
			found = k;
	}
	return found;
}

/* Largest first: the pool then gives each one's memory of the last snapshot back to it, and not to a smaller one. A
 * slot in use grows when it has been released. */
static zcc_status reserve_slots(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error)
{
	if (!ticket->assigned)
		assign_slots(queue, ticket);
	zcc_status status = ZCC_OK;
	for (;;) {
		find_needs(queue, ticket);
		int32_t k = find_small_slot(queue, false);
		if (k < 0 || status != ZCC_OK)
			break;
		status = resize_slot(queue, &queue->slots[k], queue->slots[k].need_bytes, error);
	}
	ticket->reserved = find_small_slot(queue, true) < 0;
	return status;
}

zcc_status zcci_offload_reserve(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error)
{
	zcc_status status;
	if (queue->options.slots > 0) {
		status = reserve_slots(queue, ticket, error);
	} else {
		status = reserve_all(queue, ticket, error);
		ticket->reserved = true;
	}
	if (status != ZCC_OK && ticket->copied_bytes == 0)
		zcci_context(error, status, "%lld regions and %lld bytes, of which none has moved",
		             (long long)ticket->n_items, (long long)ticket->total_bytes);
	return status;
}

static bool fits(const zcci_offload_slot *slot, const zcci_offload_item *item)
{
	return !slot->used && slot->bytes >= item->bytes;
}

bool zcci_offload_furnish(zcc_offload *queue, zcci_offload_item *item)
{
	if (item->bytes == 0 || item->data != NULL)
		return true;
	int32_t k = item->slot;
	/* Where regions are not released in order: the smallest that will do. */
	if (!fits(&queue->slots[k], item)) {
		k = -1;
		for (int32_t i = 0; i < queue->options.slots; i++)
			if (fits(&queue->slots[i], item) && (k < 0 || queue->slots[i].bytes < queue->slots[k].bytes))
				k = i;
	}
	if (k < 0)
		return false;
	queue->slots[k].used = true;
	item->slot = k;
	item->data = queue->slots[k].data;
	item->place = queue->slots[k].place;
	return true;
}

void zcci_offload_rest(zcc_offload *queue)
{
	if (queue->slots == NULL)
		return;
	for (int32_t k = 0; k < queue->options.slots; k++)
		if (queue->slots[k].used)
			return;
	for (int32_t k = 0; k < queue->options.slots; k++) {
		if (queue->slots[k].data != NULL)
			give(queue, queue->slots[k].data, queue->slots[k].bytes);
		queue->slots[k] = (zcci_offload_slot){0};
	}
}

void zcci_offload_strip(zcc_offload *queue, zcci_offload_item *item)
{
	if (item->data == NULL)
		return;
	if (queue->options.slots > 0) {
		queue->slots[item->slot].used = false;
		queue->stuck = false;
		pthread_cond_signal(&queue->work);
	} else {
		give(queue, item->data, item->bytes);
	}
	item->data = NULL;
	if (queue->n_pending == 0)
		zcci_offload_rest(queue);
}
