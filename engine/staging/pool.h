/* What else staging needs of a pool. */
#ifndef ZCCI_POOL_H
#define ZCCI_POOL_H

#include "zcc/pool.h"

/* One more reference, dropped with zcc_pool_destroy. */
void zcci_pool_retain(zcc_pool *pool);

#endif
