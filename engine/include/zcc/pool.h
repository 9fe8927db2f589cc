/* Pinned host memory that is used again: page-locking is slow, and what is locked is taken from everybody else.
 *
 * Buffers are as large as asked for, in whole pages of 4096 bytes, never rounded to powers of two. A buffer that is
 * given back is kept; it serves a later take of its size or up to 1/9 less (so at most 1/8 of what was asked is
 * wasted). What is pinned, in use and kept together, never passes the cap, nor what has been in use at once so far:
 * kept buffers are returned to the system, longest kept first, before another is pinned. All calls: any thread, several
 * at once. */
#ifndef ZCC_POOL_H
#define ZCC_POOL_H

#include "device.h"

typedef struct zcc_pool zcc_pool;

typedef struct zcc_pool_options {
	uint32_t struct_bytes; /* set by zcc_pool_options_init */
	uint32_t reserved;     /* 0 */
	int64_t cap_bytes;     /* of pinned memory; -1 (default) = only the system's limit, 0 = none is pinned */
} zcc_pool_options;

enum {
	/* Beyond the cap or the system's limit give ordinary memory instead of an error; the statistics count it. */
	ZCC_POOL_OR_UNPINNED = 1
};

typedef struct zcc_pool_stats {
	int64_t cap_bytes;    /* -1 = none */
	int64_t in_use_bytes; /* pinned and taken, in the sizes of the buffers */
	int64_t peak_bytes;   /* the most of it so far */
	int64_t pinned_bytes; /* in use and kept */
	int64_t pinned_peak_bytes;
	int64_t unpinned_bytes; /* taken, ordinary memory */
	int64_t unpinned_peak_bytes;
	int64_t takes;          /* buffers given out */
	int64_t hits;           /* of them: kept ones used again */
	int64_t unpinned_takes; /* of them: ordinary memory */
} zcc_pool_stats;

/* Fills in struct_bytes and the defaults; call it before setting any member. */
ZCC_API void zcc_pool_options_init(zcc_pool_options *options);
/* A pool for copies from and to that device, which it keeps open. options may be NULL. ZCC_EINVAL, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_pool_create(zcc_device *device, const zcc_pool_options *options, zcc_pool **pool,
                                   zcc_error *error);
/* Drops the caller's reference; buffers that are still taken keep it. NULL is allowed. */
ZCC_API void zcc_pool_destroy(zcc_pool *pool);

/* bytes >= 0; contents undefined, aligned to 256. flags: ZCC_POOL_ or 0. May block while the system pins. ZCC_ENOMEM
 * names what was asked, in use, kept, the cap and the memlock limit; ZCC_EINVAL. */
ZCC_API zcc_status zcc_pool_take(zcc_pool *pool, int64_t bytes, uint32_t flags, void **data, zcc_error *error);
/* Back to the pool, as it was taken, when no copy from or to it is in flight. NULL is allowed. ZCC_EINVAL for what is
 * not taken from this pool (any more). */
ZCC_API zcc_status zcc_pool_give(zcc_pool *pool, void *data, zcc_error *error);
/* Returns all kept buffers to the system; *freed_bytes (may be NULL) is how much. */
ZCC_API void zcc_pool_trim(zcc_pool *pool, int64_t *freed_bytes);
/* The numbers of this moment. */
ZCC_API void zcc_pool_get_stats(zcc_pool *pool, zcc_pool_stats *stats);

#endif
