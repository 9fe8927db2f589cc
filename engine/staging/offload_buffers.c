#include "staging/offload.h"

#include "base/omit.h"
#include "base/status.h"

/* A handle is generation * 2^24 + number of the name, and stays below 2^53. */
enum { NUMBER_BITS = 24 };
static const int64_t MOST_BUFFERS = (int64_t)1 << NUMBER_BITS;
static const int64_t MOST_GENERATIONS = (int64_t)1 << (52 - NUMBER_BITS);

bool zcci_offload_stale(const zcc_offload *queue, const zcci_offload_item *item)
{
	const zcci_offload_buffer *buffer = &queue->buffers[item->buffer];
	return !buffer->live || buffer->generation != item->generation;
}

static zcc_status fail_stale(const zcc_offload *queue, int32_t number, int64_t generation, const char *operation,
                             zcc_error *error)
{
	const zcci_offload_buffer *buffer = &queue->buffers[number];
	const char *name = queue->names.names[number];
	if (!buffer->live)
		return zcci_fail(error, ZCC_ESTALE, 0, operation,
		                 "buffer '%s' (generation %lld) is not registered any more", name,
		                 (long long)generation);
	return zcci_fail(error, ZCC_ESTALE, 0, operation,
	                 "buffer '%s' has been registered anew: generation %lld, the handle is of %lld", name,
	                 (long long)buffer->generation, (long long)generation);
}

zcc_status zcci_offload_check_stale(const zcc_offload *queue, const zcci_offload_ticket *ticket, zcc_error *error)
{
	for (int64_t i = 0; i < ticket->n_items; i++) {
		const zcci_offload_item *item = &ticket->items[i];
		if (zcci_offload_stale(queue, item))
			return fail_stale(queue, item->buffer, item->generation, "offload", error);
	}
	return ZCC_OK;
}

static zcc_status find_buffer(const zcc_offload *queue, int64_t handle, const char *operation, int32_t *number,
                              zcc_error *error)
{
	int64_t found = handle & (MOST_BUFFERS - 1);
	int64_t generation = handle >> NUMBER_BITS;
	if (handle < 0 || found >= queue->names.n_names || generation < 1 ||
	    generation > queue->buffers[found].generation)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "%lld is no handle of this queue", (long long)handle);
	if (!queue->buffers[found].live || generation != queue->buffers[found].generation)
		return fail_stale(queue, (int32_t)found, generation, operation, error);
	*number = (int32_t)found;
	return ZCC_OK;
}

zcc_status zcci_offload_resolve(const zcc_offload *queue, const zcc_offload_region *region, int64_t index,
                                zcci_offload_item *item, zcc_error *error)
{
	int32_t number = 0;
	zcc_status status = find_buffer(queue, region->handle, "offload defer", &number, error);
	if (status != ZCC_OK)
		return status;
	const zcci_offload_buffer *buffer = &queue->buffers[number];
	int64_t offset = region->offset_bytes;
	int64_t bytes = region->bytes;
	if (offset < 0 || offset > buffer->bytes || bytes < -1 || bytes > buffer->bytes - offset)
		return zcci_fail(error, ZCC_EINVAL, 0, "offload defer",
		                 "region %lld: %lld bytes at %lld of buffer '%s', which has %lld", (long long)index,
		                 (long long)bytes, (long long)offset, queue->names.names[number],
		                 (long long)buffer->bytes);
	*item = (zcci_offload_item){
	        .name = queue->names.names[number],
	        .buffer = number,
	        .generation = buffer->generation,
	        .offset_bytes = offset,
	        .bytes = bytes < 0 ? buffer->bytes - offset : bytes,
	        .source = buffer->data + offset,
	        .hash = item->hash,
	};
	return ZCC_OK;
}

void zcci_offload_use(zcc_offload *queue, zcci_offload_ticket *ticket, int64_t first, int64_t end, int32_t change)
{
	for (int64_t i = first; i < end; i++)
		queue->buffers[ticket->items[i].buffer].in_use += change;
	if (change < 0)
		pthread_cond_broadcast(&queue->done);
}

/* Nobody reads the memory of a buffer that goes away. One chunk at most is in flight, and what comes after it sees that
 * the buffer is stale. */
static zcc_status wait_unused(zcc_offload *queue, int32_t number)
{
	while (queue->buffers[number].in_use > 0)
		pthread_cond_wait(&queue->done, &queue->lock);
	return ZCC_OK;
}

static zcc_status add_name(zcc_offload *queue, const char *name, int32_t *number, zcc_error *error)
{
	int32_t n = queue->names.n_names;
	if (n >= MOST_BUFFERS)
		return zcci_fail(error, ZCC_EINVAL, 0, "offload register",
		                 "buffer '%s' is one too many, a queue has at most %lld names", name,
		                 (long long)MOST_BUFFERS);
	if (n == queue->buffers_room) {
		int32_t room = n == 0 ? 64 : 2 * n;
		zcci_offload_buffer *grown = zcci_realloc(queue->buffers, room, sizeof *grown);
		if (grown == NULL)
			return zcci_fail(error, ZCC_ENOMEM, 0, "offload register",
			                 "no memory for the table of %d buffers", (int)room);
		queue->buffers = grown;
		queue->buffers_room = room;
	}
	queue->buffers[n] = (zcci_offload_buffer){0};
	if (zcci_names_add(&queue->names, name) != ZCC_OK)
		return zcci_fail(error, ZCC_ENOMEM, 0, "offload register", "no memory for the name of buffer '%s'",
		                 name);
	*number = n;
	return ZCC_OK;
}

static zcc_status enter(zcc_offload *queue, const char *name, const void *data, int64_t bytes, int64_t *handle,
                        zcc_error *error)
{
	int32_t number = zcci_names_find(&queue->names, name);
	if (number < 0) {
		zcc_status status = add_name(queue, name, &number, error);
		if (status != ZCC_OK)
			return status;
	}
	if (queue->buffers[number].generation == MOST_GENERATIONS)
		return zcci_fail(error, ZCC_EOVERFLOW, 0, "offload register",
		                 "buffer '%s' has been registered %lld times, which is the most", name,
		                 (long long)MOST_GENERATIONS);
	/* Stale first: the worker starts no more of it while this waits for what is in flight. */
	queue->buffers[number].live = false;
	int64_t generation = ++queue->buffers[number].generation;
	(void)ZCCI_WAIT(offload_replace, wait_unused(queue, number));
	if (queue->buffers[number].generation != generation)
		return fail_stale(queue, number, generation, "offload register", error);
	queue->buffers[number].data = data;
	queue->buffers[number].bytes = bytes;
	queue->buffers[number].live = true;
	*handle = generation << NUMBER_BITS | number;
	return ZCC_OK;
}

zcc_status zcc_offload_register(zcc_offload *queue, const char *name, const void *data, int64_t bytes, int64_t *handle,
                                zcc_error *error)
{
	if (name == NULL || *name == '\0')
		return zcci_fail(error, ZCC_EINVAL, 0, "offload register", "a buffer without a name");
	if (bytes < 0 || (data == NULL && bytes > 0))
		return zcci_fail(error, ZCC_EINVAL, 0, "offload register", "buffer '%s' of %lld bytes at %p", name,
		                 (long long)bytes, data);
	pthread_mutex_lock(&queue->lock);
	zcc_status status = enter(queue, name, data, bytes, handle, error);
	pthread_mutex_unlock(&queue->lock);
	return status;
}

zcc_status zcc_offload_unregister(zcc_offload *queue, int64_t handle, zcc_error *error)
{
	int32_t number = 0;
	pthread_mutex_lock(&queue->lock);
	zcc_status status = find_buffer(queue, handle, "offload unregister", &number, error);
	if (status == ZCC_OK) {
		queue->buffers[number].live = false;
		(void)ZCCI_WAIT(offload_unregister, wait_unused(queue, number));
	}
	pthread_mutex_unlock(&queue->lock);
	return status;
}
