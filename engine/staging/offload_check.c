#include "staging/offload.h"

#include <xxhash.h>

#include "base/memory.h"
#include "base/omit.h"
#include "base/status.h"

static const int64_t SCRATCH_BYTES = 1 << 20;

/* Its stream goes before its memory: a copy may be in flight when a wait was given up. */
typedef struct checker {
	zcc_stream *stream;
	char *scratch;
	XXH3_state_t *state;
} checker;

static zcc_status open_checker(zcc_offload *queue, checker *c, zcc_error *error)
{
	*c = (checker){.scratch = zcci_malloc(SCRATCH_BYTES), .state = XXH3_createState()};
	if (c->scratch == NULL || c->state == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "offload check", "no memory to hash with");
	return zcc_stream_create(queue->device, &c->stream, error);
}

static void close_checker(checker *c)
{
	zcc_stream_destroy(c->stream);
	XXH3_freeState(c->state);
	zcci_free(c->scratch);
}

/* XXH3-64 of device or host memory, read through the stream. */
static zcc_status hash(checker *c, const char *data, int64_t bytes, uint64_t *hash, zcc_error *error)
{
	XXH3_64bits_reset(c->state);
	for (int64_t at = 0; at < bytes; at += SCRATCH_BYTES) {
		int64_t n = bytes - at < SCRATCH_BYTES ? bytes - at : SCRATCH_BYTES;
		zcc_status status = zcc_copy_async(c->stream, c->scratch, data + at, n, error);
		if (status == ZCC_OK)
			status = ZCCI_WAIT(offload_hash, zcc_stream_wait(c->stream, error));
		if (status != ZCC_OK)
			return status;
		XXH3_64bits_update(c->state, c->scratch, (size_t)n);
	}
	*hash = XXH3_64bits_digest(c->state);
	return ZCC_OK;
}

zcc_status zcci_offload_check_before(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error)
{
	checker c;
	zcc_status status = open_checker(queue, &c, error);
	if (status == ZCC_OK && ticket->ready != NULL)
		status = ZCCI_WAIT(offload_hash_source, zcc_stream_wait_event(c.stream, ticket->ready, error));
	for (int64_t i = 0; status == ZCC_OK && i < ticket->n_items; i++) {
		zcci_offload_item *item = &ticket->items[i];
		status = hash(&c, item->source, item->bytes, &item->hash, error);
	}
	close_checker(&c);
	return status;
}

static zcc_status fail_broken(const zcci_offload_ticket *ticket, const zcci_offload_item *item, uint64_t found,
                              const char *when, zcc_error *error)
{
	return zcci_fail(error, ZCC_EVERIFY, 0, "offload check",
	                 "%lld bytes at %lld of buffer '%s', ticket %lld of snapshot %lld, were written %s: XXH3 "
	                 "%016llx at defer, then %016llx",
	                 (long long)item->bytes, (long long)item->offset_bytes, item->name, (long long)ticket->number,
	                 (long long)ticket->snapshot, when, (unsigned long long)item->hash, (unsigned long long)found);
}

zcc_status zcci_offload_check_landed(const zcci_offload_ticket *ticket, int64_t first, int64_t end, zcc_error *error)
{
	for (int64_t i = first; i < end; i++) {
		const zcci_offload_item *item = &ticket->items[i];
		uint64_t found = item->bytes > 0 ? XXH3_64bits(item->data, (size_t)item->bytes) : item->hash;
		if (found != item->hash)
			return fail_broken(ticket, item, found, "between defer and their copy", error);
	}
	return ZCC_OK;
}

zcc_status zcci_offload_check_after(zcc_offload *queue, zcci_offload_ticket *ticket, zcc_error *error)
{
	zcc_status status = zcci_offload_check_stale(queue, ticket, error);
	if (status != ZCC_OK)
		return status;
	zcci_offload_use(queue, ticket, 0, ticket->n_items, 1);
	pthread_mutex_unlock(&queue->lock);
	checker c;
	status = open_checker(queue, &c, error);
	for (int64_t i = 0; status == ZCC_OK && i < ticket->n_items; i++) {
		const zcci_offload_item *item = &ticket->items[i];
		uint64_t found = item->hash;
		status = hash(&c, item->source, item->bytes, &found, error);
		if (status == ZCC_OK && found != item->hash)
			status =
			        fail_broken(ticket, item, found, "after defer and before the ticket had landed", error);
	}
	close_checker(&c);
	pthread_mutex_lock(&queue->lock);
	zcci_offload_use(queue, ticket, 0, ticket->n_items, -1);
	return status;
}
