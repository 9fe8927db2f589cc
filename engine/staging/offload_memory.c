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

static zcc_status explain(const zcci_offload_ticket *ticket, zcc_status status, zcc_error *error)
{
	return zcci_context(error, status, "ticket %lld of %lld regions and %lld bytes, of which none has moved",
	                    (long long)ticket->number, (long long)ticket->n_items, (long long)ticket->total_bytes);
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

/* The largest regions that have bytes, largest first, at most n; how many there are. */
static int32_t find_largest(const zcci_offload_ticket *ticket, int64_t *largest, int32_t n)
{
	int32_t found = 0;
	for (int64_t i = 0; i < ticket->n_items; i++) {
		int64_t bytes = ticket->items[i].bytes;
		if (bytes == 0 || (found == n && bytes <= largest[n - 1]))
			continue;
		int32_t at = found < n ? found++ : n - 1;
		for (; at > 0 && largest[at - 1] < bytes; at--)
			largest[at] = largest[at - 1];
		largest[at] = bytes;
	}
	return found;
}

/* The unused slots, largest first; how many there are. */
static int32_t find_unused(const zcc_offload *queue, zcci_offload_slot **unused)
{
	int32_t found = 0;
	for (int32_t i = 0; i < queue->n_slots; i++) {
		zcci_offload_slot *slot = &queue->slots[i];
		if (slot->used)
			continue;
		int32_t at = found++;
		for (; at > 0 && unused[at - 1]->bytes < slot->bytes; at--)
			unused[at] = unused[at - 1];
		unused[at] = slot;
	}
	return found;
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

/* The k-th largest unused slot gets as large as the k-th largest region: so the largest region finds one once those
 * before it are released, and each slot is as large as some region, each as another one, so together they are no larger
 * than the largest regions are. */
static zcc_status reserve_slots(zcc_offload *queue, const zcci_offload_ticket *ticket, zcc_error *error)
{
	int32_t room = queue->options.slots;
	int32_t n_unused = find_unused(queue, queue->unused);
	int32_t free_slots = n_unused + room - queue->n_slots;
	int32_t n = find_largest(ticket, queue->largest, free_slots);
	zcc_status status = ZCC_OK;
	queue->stuck = free_slots == 0;
	for (int32_t k = 0; status == ZCC_OK && k < n; k++) {
		if (k < n_unused && queue->unused[k]->bytes >= queue->largest[k])
			continue;
		if (queue->n_slots < room) {
			status = resize_slot(queue, &queue->slots[queue->n_slots++], queue->largest[k], error);
		} else {
			zcci_offload_slot *smallest = queue->unused[n_unused - 1];
			status = resize_slot(queue, smallest, queue->largest[k], error);
		}
		n_unused = find_unused(queue, queue->unused);
	}
	return status;
}

zcc_status zcci_offload_reserve(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error)
{
	bool in_slots = queue->options.slots > 0;
	zcc_status status = in_slots ? reserve_slots(queue, ticket, error) : reserve_all(queue, ticket, error);
	if (status != ZCC_OK)
		return explain(ticket, status, error);
	ticket->reserved = !queue->stuck;
	return ZCC_OK;
}

bool zcci_offload_furnish(zcc_offload *queue, zcci_offload_item *item)
{
	if (item->bytes == 0 || item->data != NULL)
		return true;
	int32_t found = -1;
	for (int32_t i = 0; i < queue->n_slots; i++) {
		const zcci_offload_slot *slot = &queue->slots[i];
		if (!slot->used && slot->bytes >= item->bytes && (found < 0 || slot->bytes < queue->slots[found].bytes))
			found = i;
	}
	if (found < 0)
		return false;
	queue->slots[found].used = true;
	item->slot = found;
	item->data = queue->slots[found].data;
	item->place = queue->slots[found].place;
	return true;
}

void zcci_offload_rest(zcc_offload *queue)
{
	for (int32_t i = 0; i < queue->n_slots; i++)
		if (queue->slots[i].used)
			return;
	for (int32_t i = 0; i < queue->n_slots; i++)
		if (queue->slots[i].data != NULL)
			give(queue, queue->slots[i].data, queue->slots[i].bytes);
	queue->n_slots = 0;
}

void zcci_offload_strip(zcc_offload *queue, zcci_offload_item *item)
{
	if (item->data == NULL)
		return;
	if (item->slot < 0) {
		give(queue, item->data, item->bytes);
	} else {
		queue->slots[item->slot].used = false;
		queue->stuck = false;
		pthread_cond_signal(&queue->work);
	}
	item->data = NULL;
	item->slot = -1;
	if (queue->n_pending == 0)
		zcci_offload_rest(queue);
}
