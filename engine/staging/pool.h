/* What else staging needs of a pool. */
#ifndef ZCCI_POOL_H
#define ZCCI_POOL_H

#include "zcc/pool.h"

/* One more reference, dropped with zcc_pool_destroy. */
void zcci_pool_retain(zcc_pool *pool);
/* ZCC_EINVAL where there is none of both, or the pool pins for another device than the one that is going to copy. */
zcc_status zcci_pool_check(const zcc_pool *pool, const zcc_device *device, const char *operation, zcc_error *error);

#endif
