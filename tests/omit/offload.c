/* Whether what the offload queue says has landed has. On late:host, which reads every source as late as the rules of
 * streams and events allow, and on host where only real time tells. Built with one of the waits left out, something
 * must be wrong. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/gate.h"
#include "staging/offload.h"

enum { BYTES = 8 << 20 };

static zcc_error error;

static void need(zcc_status status)
{
	if (status == ZCC_OK)
		return;
	fprintf(stderr, "%s: %s\n", error.operation, error.message);
	exit(2);
}

typedef struct rig {
	zcc_device *device;
	zcc_pool *pool;
	zcc_offload *queue;
	zcc_stream *trainer;
	char *source; /* on the device */
	char *values; /* pinned: BYTES of 1, then BYTES of 2 */
	int64_t handle;
} rig;

/* The source holds 1. */
static rig open_rig(const char *device, int64_t chunk_bytes, int32_t check)
{
	rig r;
	zcc_offload_options options;
	zcc_offload_options_init(&options);
	options.chunk_bytes = chunk_bytes;
	options.check = check;
	need(zcc_device_open(device, &r.device, &error));
	need(zcc_pool_create(r.device, NULL, &r.pool, &error));
	need(zcc_offload_create(r.device, r.pool, &options, &r.queue, &error));
	need(zcc_stream_create(r.device, &r.trainer, &error));
	need(zcc_device_malloc(r.device, BYTES, (void **)&r.source, &error));
	need(zcc_pinned_malloc(r.device, 2 * (int64_t)BYTES, (void **)&r.values, &error));
	memset(r.values, 1, BYTES);
	memset(r.values + BYTES, 2, BYTES);
	need(zcc_copy_async(r.trainer, r.source, r.values, BYTES, &error));
	need(zcc_stream_wait(r.trainer, &error));
	need(zcc_offload_register(r.queue, "weight", r.source, BYTES, &r.handle, &error));
	return r;
}

static void close_rig(rig *r)
{
	zcc_offload_close(r->queue);
	zcc_stream_destroy(r->trainer);
	zcc_device_free(r->device, r->source);
	zcc_pinned_free(r->device, r->values);
	zcc_pool_destroy(r->pool);
	zcc_device_close(r->device);
}

static int64_t defer(rig *r, int64_t snapshot, zcc_stream *after)
{
	zcc_offload_region region = {.handle = r->handle, .bytes = -1};
	int64_t ticket = 0;
	need(zcc_offload_defer(r->queue, snapshot, &region, 1, after, &ticket, &error));
	return ticket;
}

/* The trainer writes 2 from an offset on. */
static void write_late(rig *r, int64_t offset)
{
	need(zcc_copy_async(r->trainer, r->source + offset, r->values + BYTES, BYTES - offset, &error));
}

static int count_wrong(const zcc_offload_landed *landed, char value)
{
	int wrong = landed->data == NULL;
	for (int64_t i = 0; landed->data != NULL && i < landed->bytes; i++)
		wrong += ((const char *)landed->data)[i] != value;
	return wrong;
}

/* All bytes are wrong where it is not even said to have landed. */
static int check(rig *r, int64_t ticket, char value)
{
	zcc_offload_landed landed;
	if (zcc_offload_get(r->queue, ticket, 0, &landed, &error) != ZCC_OK)
		return BYTES;
	return count_wrong(&landed, value);
}

/* ---- one wait each ---- */

static int after_wait(const char *device, int32_t checking)
{
	rig r = open_rig(device, 4096, checking);
	int64_t ticket = defer(&r, 1, NULL);
	zcc_status status = zcc_offload_wait(r.queue, ticket, &error);
	int wrong = status == ZCC_EVERIFY ? BYTES : check(&r, ticket, 1);
	close_rig(&r);
	return wrong;
}

static int after_fence(const char *device)
{
	rig r = open_rig(device, 4096, 0);
	int64_t ticket = defer(&r, 1, NULL);
	need(zcc_offload_fence(r.queue, &error));
	int wrong = check(&r, ticket, 1);
	close_rig(&r);
	return wrong;
}

static int after_the_next_snapshot(const char *device)
{
	rig r = open_rig(device, 4096, 0);
	int64_t ticket = defer(&r, 1, NULL);
	defer(&r, 2, NULL);
	int wrong = check(&r, ticket, 1);
	close_rig(&r);
	return wrong;
}

static int from_next(const char *device)
{
	rig r = open_rig(device, 4096, 0);
	zcc_offload_landed landed;
	int64_t ticket = defer(&r, 1, NULL);
	need(zcc_offload_next(r.queue, ticket, &landed, &error));
	int wrong = count_wrong(&landed, 1);
	close_rig(&r);
	return wrong;
}

/* The source is written on the trainer's stream, and nobody waits for that but the queue. */
static int after_the_trainers_stream(const char *device, int32_t checking)
{
	rig r = open_rig(device, 1 << 20, checking);
	write_late(&r, 0);
	int64_t ticket = defer(&r, 1, r.trainer);
	zcc_status status = zcc_offload_wait(r.queue, ticket, &error);
	int wrong = status == ZCC_EVERIFY ? BYTES : check(&r, ticket, 2);
	close_rig(&r);
	return wrong;
}

/* What happens to the source while its only chunk is in flight. */
typedef struct loss {
	rig *r;
	bool replace;
	atomic_bool done;
} loss;

static void *lose(void *argument)
{
	loss *l = argument;
	static char other[16];
	int64_t handle;
	if (l->replace)
		need(zcc_offload_register(l->r->queue, "weight", other, sizeof other, &handle, &error));
	else
		need(zcc_offload_unregister(l->r->queue, l->r->handle, &error));
	write_late(l->r, 0);
	need(zcc_stream_wait(l->r->trainer, &error));
	l->done = true;
	return NULL;
}

/* The source goes while its only chunk is in flight, and is written as soon as the queue lets go of it; the chunk is
 * held up until then. With all waits the queue does not, so that the chunk has to be let go first. */
static int after_letting_go(bool replace, bool omitted)
{
	rig r = open_rig("host", 0, 0);
	zcc_stream *busy = NULL;
	void *elsewhere = NULL, *held = NULL;
	need(zcc_stream_create(r.device, &busy, &error));
	need(zcc_device_malloc(r.device, 64, &elsewhere, &error));
	need(zcc_pinned_malloc(r.device, 64, &held, &error));
	hold(held);
	need(zcc_copy_async(busy, elsewhere, held, 64, &error));
	int64_t ticket = defer(&r, 1, busy);
	need(zcc_offload_flush(r.queue, &error));
	for (bool begun = false; !begun;) {
		pthread_mutex_lock(&r.queue->lock);
		begun = r.queue->buffers[0].in_use > 0 || r.queue->stats.chunks > 0;
		pthread_mutex_unlock(&r.queue->lock);
	}
	loss l = {.r = &r, .replace = replace};
	pthread_t loser;
	if (pthread_create(&loser, NULL, lose, &l) != 0)
		exit(2);
	int64_t until = zcc_clock_ns() + (omitted ? (int64_t)60000000000 : 100000000);
	while (!l.done && zcc_clock_ns() < until)
		usleep(1000);
	let_go();
	pthread_join(loser, NULL);
	need(zcc_offload_wait(r.queue, ticket, &error));
	int wrong = check(&r, ticket, 1);
	zcc_stream_destroy(busy);
	zcc_device_free(r.device, elsewhere);
	zcc_pinned_free(r.device, held);
	close_rig(&r);
	return wrong;
}

static int count_all(const char *device)
{
	return after_wait(device, 0) + after_wait(device, 1) + after_fence(device) + after_the_next_snapshot(device) +
	       from_next(device) + after_the_trainers_stream(device, 0) + after_the_trainers_stream(device, 1);
}

int main(void)
{
	bool omitted = ZCC_OMITTED[0] != '\0';
	int wrong = count_all("late:host,lazy") + count_all("host");
	wrong += after_letting_go(true, strcmp(ZCC_OMITTED, "offload_replace") == 0);
	wrong += after_letting_go(false, strcmp(ZCC_OMITTED, "offload_unregister") == 0);
	if (!omitted)
		wrong += count_all("late:host,eager") + count_all("late:host,shuffle=1");
	printf("without '%s': %d wrong\n", ZCC_OMITTED, wrong);
	return omitted ? wrong == 0 : wrong > 0;
}
