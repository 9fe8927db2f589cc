#include "staging/runs.h"

#include "base/memory.h"
#include "base/threads.h"

/* Half a MiB of f32: as large as it takes for a kernel to write a half-precision result past the caches. */
enum { CHUNK_ELEMS = 1 << 17 };

zcc_status zcci_runs_add(zcci_runs *runs, int64_t elems)
{
	if (runs->n_runs == runs->room) {
		if (runs->room > INT32_MAX / 2)
			return ZCC_EOVERFLOW;
		int32_t room = runs->room > 0 ? 2 * runs->room : 16;
		int64_t *grown = zcci_realloc(runs->elems, room, sizeof *grown);
		if (grown == NULL)
			return ZCC_ENOMEM;
		runs->elems = grown;
		grown = zcci_realloc(runs->ends, room, sizeof *grown);
		if (grown == NULL)
			return ZCC_ENOMEM;
		runs->ends = grown;
		runs->room = room;
	}
	int64_t begin = runs->n_runs > 0 ? runs->ends[runs->n_runs - 1] : 0, end;
	if (zcci_add_overflows(begin, elems / CHUNK_ELEMS + (elems % CHUNK_ELEMS > 0), &end))
		return ZCC_EOVERFLOW;
	runs->elems[runs->n_runs] = elems;
	runs->ends[runs->n_runs++] = end;
	return ZCC_OK;
}

void zcci_runs_clear(zcci_runs *runs)
{
	zcci_free(runs->elems);
	zcci_free(runs->ends);
	*runs = (zcci_runs){0};
}

typedef struct each {
	const zcci_runs *runs;
	zcci_runs_body *body;
	void *context;
} each;

static void do_chunk(void *context, int64_t chunk, int64_t unused)
{
	(void)unused;
	const each *e = context;
	const zcci_runs *runs = e->runs;
	int32_t low = 0, high = runs->n_runs - 1;
	while (low < high) {
		int32_t middle = low + (high - low) / 2;
		if (runs->ends[middle] <= chunk)
			low = middle + 1;
		else
			high = middle;
	}
	int64_t begin = (chunk - (low > 0 ? runs->ends[low - 1] : 0)) * CHUNK_ELEMS;
	int64_t left = runs->elems[low] - begin;
	e->body(e->context, low, begin, begin + (left < CHUNK_ELEMS ? left : CHUNK_ELEMS));
}

void zcci_runs_each(const zcci_runs *runs, zcci_runs_body *body, void *context)
{
	each e = {runs, body, context};
	if (runs->n_runs > 0)
		zcci_parallel(runs->ends[runs->n_runs - 1], 1, do_chunk, &e);
}
