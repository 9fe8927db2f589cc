/* How many threads the loops over memory take: EMA, AdamW, casts of copy-back. */
#ifndef ZCC_THREADS_H
#define ZCC_THREADS_H

#include "base.h"

enum { ZCC_MAX_THREADS = 256 };

/* The calling thread included. At first $ZCC_THREADS, where it is a number from 1 to ZCC_MAX_THREADS, else the
 * processors this process may run on. */
ZCC_API int32_t zcc_threads_get(void);
/* 1 to ZCC_MAX_THREADS, else ZCC_EINVAL; 1 = the calling thread alone. Any thread; loops that run keep what they have.
 */
ZCC_API zcc_status zcc_threads_set(int32_t threads, zcc_error *error);

#endif
