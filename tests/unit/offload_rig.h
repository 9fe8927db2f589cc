/* What tests of the offload queue share: a device to run on, a queue, registered buffers, and bytes that say of which
 * buffer and step they are. Device memory is written and read through copies. */
#ifndef TEST_OFFLOAD_RIG_H
#define TEST_OFFLOAD_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "zcc/offload.h"

enum { MOST_BUFFERS = 1024 };

typedef struct rig {
	zcc_device *device;
	zcc_pool *pool;
	zcc_offload *queue;
	zcc_stream *trainer;
	unsigned char *staging; /* pinned, of the trainer */
	int64_t staging_bytes;
	int32_t n_buffers;
	unsigned char *data[MOST_BUFFERS];
	int64_t bytes[MOST_BUFFERS];
	int64_t handle[MOST_BUFFERS];
} rig;

static uint64_t rig_random;

static inline uint64_t seed_of_run(void)
{
	static uint64_t seed;
	static bool known;
	if (!known) {
		const char *given = getenv("ZCC_SEED");
		seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)zcc_clock_ns() % 1000000;
		printf("ZCC_SEED=%llu\n", (unsigned long long)seed);
		rig_random = seed;
		known = true;
	}
	return seed;
}

static inline int64_t draw(int64_t below)
{
	seed_of_run();
	rig_random = rig_random * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)(rig_random >> 33) % below;
}

/* Device number i of those that every test runs on, one more where $ZCC_TEST_DEVICE names it; NULL past the last. */
static inline const char *rig_device(int i)
{
	static char shuffle[64];
	snprintf(shuffle, sizeof shuffle, "late:host,shuffle=%llu", (unsigned long long)seed_of_run());
	const char *const names[] = {"host",  "late:host,lazy",          "late:host,eager",
	                             shuffle, getenv("ZCC_TEST_DEVICE"), NULL};
	return names[i];
}

#define FOR_EACH_DEVICE(name)                                                                                          \
	for (int name##_i = 0; rig_device(name##_i) != NULL; name##_i++)                                               \
		for (const char *name = rig_device(name##_i); name != NULL; name = NULL)

#define OK(call) assert_ok(call, &fault, __LINE__)
static zcc_error fault;

static inline void assert_ok(zcc_status status, const zcc_error *error, int line)
{
	if (status != ZCC_OK)
		fail_msg("line %d: %s: %s", line, zcc_status_name(status), error->message);
}

static inline void assert_says(const zcc_error *error, const char *text)
{
	if (strstr(error->message, text) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", error->message, text);
}

static inline zcc_offload_options usual_options(void)
{
	zcc_offload_options options;
	zcc_offload_options_init(&options);
	return options;
}

static inline void open_rig_with_cap(rig *r, const char *device, const zcc_offload_options *options, int64_t cap_bytes)
{
	*r = (rig){0};
	zcc_pool_options pool_options;
	zcc_pool_options_init(&pool_options);
	pool_options.cap_bytes = cap_bytes;
	OK(zcc_device_open(device, &r->device, &fault));
	OK(zcc_pool_create(r->device, &pool_options, &r->pool, &fault));
	OK(zcc_offload_create(r->device, r->pool, options, &r->queue, &fault));
	OK(zcc_stream_create(r->device, &r->trainer, &fault));
}

static inline void open_rig(rig *r, const char *device, const zcc_offload_options *options)
{
	open_rig_with_cap(r, device, options, -1);
}

static inline void close_rig(rig *r)
{
	zcc_offload_close(r->queue);
	OK(zcc_stream_wait(r->trainer, &fault));
	zcc_stream_destroy(r->trainer);
	zcc_pinned_free(r->device, r->staging);
	for (int32_t i = 0; i < r->n_buffers; i++)
		zcc_device_free(r->device, r->data[i]);
	zcc_pool_stats stats;
	zcc_pool_get_stats(r->pool, &stats);
	assert_int_equal(stats.in_use_bytes, 0);
	assert_int_equal(stats.unpinned_bytes, 0);
	zcc_pool_destroy(r->pool);
	zcc_device_close(r->device);
}

/* ---- bytes ---- */

/* Byte i of a buffer as a step leaves it. */
static inline unsigned char byte_of(int32_t buffer, int64_t step, int64_t i)
{
	return (unsigned char)(i * 131 + (i >> 8) * 7 + buffer * 29 + step * 53 + 1);
}

/* The trainer fills a buffer with its bytes of that step, and does not wait. */
static inline void write_late(rig *r, int32_t buffer, int64_t step)
{
	int64_t bytes = r->bytes[buffer];
	if (bytes == 0)
		return;
	OK(zcc_stream_wait(r->trainer, &fault));
	if (bytes > r->staging_bytes) {
		zcc_pinned_free(r->device, r->staging);
		OK(zcc_pinned_malloc(r->device, bytes, (void **)&r->staging, &fault));
		r->staging_bytes = bytes;
	}
	for (int64_t i = 0; i < bytes; i++)
		r->staging[i] = byte_of(buffer, step, i);
	OK(zcc_copy_async(r->trainer, r->data[buffer], r->staging, bytes, &fault));
}

static inline void write_step(rig *r, int64_t step)
{
	for (int32_t i = 0; i < r->n_buffers; i++)
		write_late(r, i, step);
	OK(zcc_stream_wait(r->trainer, &fault));
}

static inline char *buffer_name(int32_t i)
{
	static char name[32];
	snprintf(name, sizeof name, "layer.%d.weight", (int)i);
	return name;
}

static inline int32_t add_buffer(rig *r, int64_t bytes)
{
	int32_t i = r->n_buffers++;
	r->bytes[i] = bytes;
	OK(zcc_device_malloc(r->device, bytes, (void **)&r->data[i], &fault));
	OK(zcc_offload_register(r->queue, buffer_name(i), r->data[i], bytes, &r->handle[i], &fault));
	return i;
}

/* ---- tickets ---- */

/* All of buffers [first, end) in one ticket. */
static inline zcc_status try_defer(rig *r, int64_t snapshot, int32_t first, int32_t end, zcc_stream *after,
                                   int64_t *ticket)
{
	zcc_offload_region regions[MOST_BUFFERS];
	for (int32_t i = first; i < end; i++)
		regions[i - first] = (zcc_offload_region){.handle = r->handle[i], .bytes = -1};
	return zcc_offload_defer(r->queue, snapshot, regions, end - first, after, ticket, &fault);
}

static inline int64_t defer_all(rig *r, int64_t snapshot)
{
	int64_t ticket = 0;
	OK(try_defer(r, snapshot, 0, r->n_buffers, NULL, &ticket));
	return ticket;
}

/* How many bytes of a landed region are not those of that buffer's step. */
static inline int64_t count_wrong(const zcc_offload_landed *landed, int32_t buffer, int64_t step)
{
	int64_t wrong = 0;
	for (int64_t i = 0; i < landed->bytes; i++)
		wrong += ((unsigned char *)landed->data)[i] != byte_of(buffer, step, landed->offset_bytes + i);
	return wrong;
}

/* The ticket of defer_all holds just the bytes of that step. */
static inline void assert_landed(rig *r, int64_t ticket, int64_t step)
{
	for (int32_t i = 0; i < r->n_buffers; i++) {
		zcc_offload_landed landed;
		OK(zcc_offload_get(r->queue, ticket, i, &landed, &fault));
		assert_int_equal(landed.bytes, r->bytes[i]);
		assert_int_equal(landed.ticket, ticket);
		assert_string_equal(landed.name, buffer_name(i));
		if (count_wrong(&landed, i, step) != 0)
			fail_msg("%s: %lld wrong bytes in ticket %lld of step %lld", landed.name,
			         (long long)count_wrong(&landed, i, step), (long long)ticket, (long long)step);
	}
}

static inline zcc_offload_stats queue_stats(rig *r)
{
	zcc_offload_stats stats;
	zcc_offload_get_stats(r->queue, &stats);
	return stats;
}

static inline zcc_pool_stats pool_stats(rig *r)
{
	zcc_pool_stats stats;
	zcc_pool_get_stats(r->pool, &stats);
	return stats;
}

#endif
