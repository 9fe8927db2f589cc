#include "staging/pool.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "base/status.h"
#include "device/handles.h"

enum { PAGE_BYTES = 4096, N_CHAINS = 509 };

/* More than any machine has; two of them can still be added. */
static const int64_t MOST_BYTES = INT64_MAX / 2;

/* Taken: in the chain of its address. Kept: in the list, newest first. */
typedef struct block {
	struct block *next;
	struct block *previous; /* of kept ones */
	void *data;
	int64_t bytes; /* whole pages */
	int64_t asked_bytes;
	bool unpinned;
} block;

/* pinned_bytes of the statistics = in use (with what is being pinned right now) + kept + leaving. */
struct zcc_pool {
	zcc_device *device;
	pthread_mutex_t lock;
	pthread_cond_t left; /* broadcast when leaving_bytes falls */
	int64_t holders;     /* references but those of taken buffers */
	int64_t n_taken;
	int64_t leaving_bytes; /* on their way back to the system */
	int64_t kept_bytes;
	block *newest, *oldest;
	block *taken[N_CHAINS];
	zcc_pool_stats stats;
};

void zcc_pool_options_init(zcc_pool_options *options)
{
	*options = (zcc_pool_options){.struct_bytes = sizeof *options, .cap_bytes = -1};
}

static zcc_status check_options(const zcc_pool_options *options, zcc_error *error)
{
	if (options->struct_bytes != sizeof *options)
		return zcci_fail(error, ZCC_EINVAL, 0, "pool create", "options of %u bytes, this library's have %zu",
		                 options->struct_bytes, sizeof *options);
	if (options->cap_bytes < -1)
		return zcci_fail(error, ZCC_EINVAL, 0, "pool create", "a cap of %" PRId64 " bytes; -1 is none",
		                 options->cap_bytes);
	return ZCC_OK;
}

zcc_status zcc_pool_create(zcc_device *device, const zcc_pool_options *options, zcc_pool **pool, zcc_error *error)
{
	zcc_pool_options defaults;
	zcc_pool_options_init(&defaults);
	if (options == NULL)
		options = &defaults;
	zcc_status status = check_options(options, error);
	if (status != ZCC_OK)
		return status;
	if (device == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "pool create", "no device");
	zcc_pool *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "pool create", "no memory for a pool");
	made->device = zcci_device_retain(device);
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->left, NULL);
	made->holders = 1;
	made->stats.cap_bytes = options->cap_bytes;
	*pool = made;
	return ZCC_OK;
}

/* ---- lists; the lock is held ---- */

static block **chain_of(zcc_pool *pool, const void *data)
{
	return &pool->taken[((uintptr_t)data >> 8) % N_CHAINS];
}

static void keep(zcc_pool *pool, block *b)
{
	b->previous = NULL;
	b->next = pool->newest;
	*(b->next != NULL ? &b->next->previous : &pool->oldest) = b;
	pool->newest = b;
	pool->kept_bytes += b->bytes;
}

static void unkeep(zcc_pool *pool, block *b)
{
	*(b->previous != NULL ? &b->previous->next : &pool->newest) = b->next;
	*(b->next != NULL ? &b->next->previous : &pool->oldest) = b->previous;
	pool->kept_bytes -= b->bytes;
}

/* The smallest kept buffer that holds `bytes` and wastes no more than an eighth of it. */
static block *best_fit(zcc_pool *pool, int64_t bytes)
{
	block *best = NULL;
	for (block *b = pool->newest; b != NULL; b = b->next) {
		if (b->bytes < bytes || b->bytes - bytes > bytes / 8 || (best != NULL && b->bytes >= best->bytes))
			continue;
		best = b;
		if (b->bytes == bytes)
			break;
	}
	return best;
}

static void raise_to(int64_t *peak, int64_t value)
{
	if (*peak < value)
		*peak = value;
}

/* A buffer whose bytes are counted already. */
static void hand_out(zcc_pool *pool, block *b)
{
	block **chain = chain_of(pool, b->data);
	b->next = *chain;
	*chain = b;
	pool->n_taken++;
	zcc_pool_stats *stats = &pool->stats;
	stats->takes++;
	stats->unpinned_takes += b->unpinned;
	raise_to(&stats->peak_bytes, stats->in_use_bytes);
	raise_to(&stats->pinned_peak_bytes, stats->pinned_bytes);
	raise_to(&stats->unpinned_peak_bytes, stats->unpinned_bytes);
}

/* ---- back to the system; the lock is held, and let go meanwhile: unlocking pages takes its time ---- */

static void leave(zcc_pool *pool, block *list)
{
	int64_t bytes = 0;
	if (list == NULL)
		return;
	for (block *b = list; b != NULL; b = b->next)
		bytes += b->bytes;
	pool->leaving_bytes += bytes;
	pthread_mutex_unlock(&pool->lock);
	while (list != NULL) {
		block *next = list->next;
		zcc_pinned_free(pool->device, list->data);
		zcci_free(list);
		list = next;
	}
	pthread_mutex_lock(&pool->lock);
	pool->leaving_bytes -= bytes;
	pool->stats.pinned_bytes -= bytes;
	pthread_cond_broadcast(&pool->left);
}

static int64_t leave_all(zcc_pool *pool)
{
	block *list = pool->newest;
	int64_t bytes = pool->kept_bytes;
	pool->newest = pool->oldest = NULL;
	pool->kept_bytes = 0;
	leave(pool, list);
	return bytes;
}

/* Until `bytes` more may be pinned: not beyond the cap, nor beyond what has been in use at once, these included. */
static void make_room(zcc_pool *pool, int64_t bytes)
{
	for (;;) {
		zcc_pool_stats *stats = &pool->stats;
		int64_t limit = stats->in_use_bytes + bytes;
		raise_to(&limit, stats->peak_bytes);
		if (stats->cap_bytes >= 0 && limit > stats->cap_bytes)
			limit = stats->cap_bytes;
		block *b = pool->oldest;
		if (stats->pinned_bytes + bytes <= limit)
			return;
		if (b != NULL) {
			unkeep(pool, b);
			b->next = NULL;
			leave(pool, b);
		} else if (pool->leaving_bytes > 0) {
			pthread_cond_wait(&pool->left, &pool->lock);
		} else {
			return; /* others have taken the room meanwhile */
		}
	}
}

/* ---- take ---- */

/* All numbers that matter for a take that cannot be. */
static void describe(const zcc_pool *pool, int64_t asked_bytes, char text[320])
{
	char cap[48] = "no cap", locked[32] = "unlimited";
	if (pool->stats.cap_bytes >= 0)
		snprintf(cap, sizeof cap, "a cap of %" PRId64, pool->stats.cap_bytes);
	struct rlimit limit;
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		snprintf(locked, sizeof locked, "%llu", (unsigned long long)limit.rlim_cur);
	snprintf(text, 320,
	         "%" PRId64 " bytes asked of the pinned pool of %s: %" PRId64 " in use, %" PRId64
	         " kept, %s, memlock limit %s",
	         asked_bytes, zcc_device_name(pool->device), pool->stats.in_use_bytes, pool->kept_bytes, cap, locked);
}

static zcc_status refuse(const zcc_pool *pool, int64_t asked_bytes, zcc_error *error)
{
	char text[320];
	describe(pool, asked_bytes, text);
	return zcci_fail(error, ZCC_ENOMEM, 0, "pool take", "%s", text);
}

static bool over_cap(const zcc_pool *pool, int64_t bytes)
{
	return pool->stats.cap_bytes >= 0 && bytes > pool->stats.cap_bytes - pool->stats.in_use_bytes;
}

/* Pins b->bytes; the lock is held before and after. */
static zcc_status pin(zcc_pool *pool, block *b, zcc_error *error)
{
	zcc_pool_stats *stats = &pool->stats;
	make_room(pool, b->bytes);
	/* Checked once more: the lock was let go. */
	if (over_cap(pool, b->bytes))
		return refuse(pool, b->asked_bytes, error);
	stats->in_use_bytes += b->bytes;
	stats->pinned_bytes += b->bytes;
	pthread_mutex_unlock(&pool->lock);
	zcc_status status = zcc_pinned_malloc(pool->device, b->bytes, &b->data, error);
	pthread_mutex_lock(&pool->lock);
	if (status != ZCC_OK) {
		stats->in_use_bytes -= b->bytes;
		stats->pinned_bytes -= b->bytes;
	}
	return status;
}

/* What is kept counts against the system's limit: a refusal with something kept is tried again without it. */
static zcc_status pin_or_trim(zcc_pool *pool, block *b, zcc_error *error)
{
	if (over_cap(pool, b->bytes))
		return refuse(pool, b->asked_bytes, error);
	zcc_status status = pin(pool, b, error);
	if (status == ZCC_ENOMEM && pool->kept_bytes > 0) {
		leave_all(pool);
		status = pin(pool, b, error);
	}
	if (status == ZCC_ENOMEM && !over_cap(pool, b->bytes)) {
		char text[320];
		describe(pool, b->asked_bytes, text);
		zcci_context(error, status, "%s", text);
	}
	return status;
}

static zcc_status take_ordinary(zcc_pool *pool, block *b, zcc_error *error)
{
	zcc_status status = zcc_memory_create(b->bytes, &b->data, error);
	if (status != ZCC_OK)
		return status;
	b->unpinned = true;
	pool->stats.unpinned_bytes += b->bytes;
	return ZCC_OK;
}

static zcc_status take_new(zcc_pool *pool, int64_t asked_bytes, int64_t bytes, uint32_t flags, void **data,
                           zcc_error *error)
{
	block *b = zcci_calloc(1, sizeof *b);
	if (b == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "pool take", "no memory for the record of a buffer");
	b->bytes = bytes;
	b->asked_bytes = asked_bytes;
	zcc_error refused;
	zcc_status status = pin_or_trim(pool, b, flags & ZCC_POOL_OR_UNPINNED ? &refused : error);
	if (status == ZCC_ENOMEM && (flags & ZCC_POOL_OR_UNPINNED))
		status = take_ordinary(pool, b, error);
	else if (status != ZCC_OK && (flags & ZCC_POOL_OR_UNPINNED) && error != NULL)
		*error = refused;
	if (status != ZCC_OK) {
		zcci_free(b);
		return status;
	}
	hand_out(pool, b);
	*data = b->data;
	return ZCC_OK;
}

static int64_t whole_pages(int64_t bytes)
{
	return ((bytes > 0 ? bytes : 1) + PAGE_BYTES - 1) & ~(int64_t)(PAGE_BYTES - 1);
}

/* The lock is held. */
static zcc_status take(zcc_pool *pool, int64_t bytes, uint32_t flags, void **data, zcc_error *error)
{
	if (bytes > MOST_BYTES)
		return refuse(pool, bytes, error);
	int64_t pages = whole_pages(bytes);
	block *b = best_fit(pool, pages);
	if (b == NULL)
		return take_new(pool, bytes, pages, flags, data, error);
	unkeep(pool, b);
	pool->stats.in_use_bytes += b->bytes;
	pool->stats.hits++;
	hand_out(pool, b);
	*data = b->data;
	return ZCC_OK;
}

zcc_status zcc_pool_take(zcc_pool *pool, int64_t bytes, uint32_t flags, void **data, zcc_error *error)
{
	if (bytes < 0 || (flags & ~(uint32_t)ZCC_POOL_OR_UNPINNED) != 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "pool take", "%" PRId64 " bytes with flags %#x", bytes, flags);
	pthread_mutex_lock(&pool->lock);
	zcc_status status = take(pool, bytes, flags, data, error);
	pthread_mutex_unlock(&pool->lock);
	return status;
}

/* ---- give ---- */

static block *find_taken(zcc_pool *pool, const void *data)
{
	for (block **at = chain_of(pool, data); *at != NULL; at = &(*at)->next)
		if ((*at)->data == data) {
			block *b = *at;
			*at = b->next;
			return b;
		}
	return NULL;
}

/* The lock is held, and let go. */
static void unlock_or_free(zcc_pool *pool)
{
	bool last = pool->holders == 0 && pool->n_taken == 0 && pool->leaving_bytes == 0;
	pthread_mutex_unlock(&pool->lock);
	if (!last)
		return;
	zcc_device_close(pool->device);
	pthread_cond_destroy(&pool->left);
	pthread_mutex_destroy(&pool->lock);
	zcci_free(pool);
}

zcc_status zcc_pool_give(zcc_pool *pool, void *data, zcc_error *error)
{
	if (data == NULL)
		return ZCC_OK;
	pthread_mutex_lock(&pool->lock);
	block *b = find_taken(pool, data);
	if (b == NULL) {
		pthread_mutex_unlock(&pool->lock);
		return zcci_fail(error, ZCC_EINVAL, 0, "pool give",
		                 "%p is not taken from this pool (given back already?)", data);
	}
	if (b->unpinned) {
		pool->stats.unpinned_bytes -= b->bytes;
		zcc_memory_destroy(b->data, b->bytes);
		zcci_free(b);
	} else {
		pool->stats.in_use_bytes -= b->bytes;
		keep(pool, b);
		if (pool->holders == 0)
			leave_all(pool);
	}
	pool->n_taken--;
	unlock_or_free(pool);
	return ZCC_OK;
}

void zcc_pool_trim(zcc_pool *pool, int64_t *freed_bytes)
{
	pthread_mutex_lock(&pool->lock);
	int64_t bytes = leave_all(pool);
	pthread_mutex_unlock(&pool->lock);
	if (freed_bytes != NULL)
		*freed_bytes = bytes;
}

void zcc_pool_get_stats(zcc_pool *pool, zcc_pool_stats *stats)
{
	pthread_mutex_lock(&pool->lock);
	*stats = pool->stats;
	pthread_mutex_unlock(&pool->lock);
}

zcc_status zcci_pool_check(const zcc_pool *pool, const zcc_device *device, const char *operation, zcc_error *error)
{
	if (device == NULL || pool == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "no %s", device == NULL ? "device" : "pool");
	if (pool->device == device)
		return ZCC_OK;
	return zcci_fail(error, ZCC_EINVAL, 0, operation, "the pool pins for device %s, the work is on %s",
	                 zcc_device_name(pool->device), zcc_device_name(device));
}

void zcci_pool_retain(zcc_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->holders++;
	pthread_mutex_unlock(&pool->lock);
}

void zcc_pool_destroy(zcc_pool *pool)
{
	if (pool == NULL)
		return;
	pthread_mutex_lock(&pool->lock);
	if (--pool->holders == 0)
		leave_all(pool);
	unlock_or_free(pool);
}
