/* Inside of the EMA: what its list of buffers and its updates share. */
#ifndef ZCCI_EMA_H
#define ZCCI_EMA_H

#include <stdbool.h>

#include "base/names.h"
#include "staging/runs.h"
#include "zcc/ema.h"

struct zcc_ema {
	zcc_device *device;
	int32_t interval;
	int32_t n_groups, group_room;
	double *decays;
	int32_t n_buffers, buffer_room;
	zcc_ema_buffer *buffers; /* places as found */
	zcci_names names;        /* numbers as in buffers */
	zcci_runs runs;          /* the same */
	bool apart;              /* no two buffers overlap, as far as has been looked */
	bool torn;               /* some buffers are one update ahead of others */
	zcc_event *last;         /* behind the last work on a stream; NULL: none since the last resume */
	int64_t calls, updates;
};

/* Where the EMA's buffers are, from the first that is not empty; 0 where there is none. */
int32_t zcci_ema_place(const zcc_ema *ema);
/* The place of a whole range, which must be the same at both ends. `what` names it in messages. */
zcc_status zcci_ema_find_place(const zcc_ema *ema, const char *name, const char *what, const void *data, int64_t bytes,
                               int32_t *place, zcc_error *error);
/* All buffers where they were when they were added, and apart from each other. */
zcc_status zcci_ema_check(zcc_ema *ema, zcc_error *error);

#endif
