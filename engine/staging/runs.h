/* Many buffers as one loop of the thread pool: each is a run of elements, cut into chunks. */
#ifndef ZCCI_RUNS_H
#define ZCCI_RUNS_H

#include "zcc/base.h"

/* Zeroed is empty. */
typedef struct zcci_runs {
	int32_t n_runs;
	int32_t room;
	int64_t *elems;
	int64_t *ends; /* chunks up to the end of each run */
} zcci_runs;

/* ZCC_ENOMEM or ZCC_EOVERFLOW, without a message: the list is as it was. */
zcc_status zcci_runs_add(zcci_runs *runs, int64_t elems);
void zcci_runs_clear(zcci_runs *runs);

/* Elements [begin, end) of a run, inside one chunk. */
typedef void zcci_runs_body(void *context, int32_t run, int64_t begin, int64_t end);
/* All chunks of all runs, over the thread pool; returns when all are done. The cut does not depend on the number of
 * threads. */
void zcci_runs_each(const zcci_runs *runs, zcci_runs_body *body, void *context);

#endif
