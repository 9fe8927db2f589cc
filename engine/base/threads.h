/* How the engine starts threads, and its one thread pool: fixed threads, made on first use, that help the calling
 * thread with loops. */
#ifndef ZCCI_THREADS_H
#define ZCCI_THREADS_H

#include <pthread.h>

#include "zcc/threads.h"

/* A thread that is sent no signal: those are for the program's own threads. Faults of its own end the program as
 * anywhere else. An errno, 0: started. */
int zcci_thread_start(pthread_t *thread, void *(*run)(void *context), void *context);

/* [begin, end) lies inside one chunk. Must not call back into the pool. */
typedef void zcci_parallel_body(void *context, int64_t begin, int64_t end);

/* Runs body over [0, count) cut into chunks of `chunk` (the last one may be shorter), in any order, by this thread and
 * as many others as zcc_threads_get allows; returns when all have run. The cut does not depend on the number of
 * threads. Any thread; several loops may run at once. Allocates nothing and cannot fail: where no other thread is to be
 * had, the calling one does it all. */
void zcci_parallel(int64_t count, int64_t chunk, zcci_parallel_body *body, void *context);

#endif
