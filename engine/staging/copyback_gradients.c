/* From the device to the host. */
#include "staging/copyback.h"

#include "base/memory.h"
#include "base/omit.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/accumulate.h"
#include "kernels/strided.h"

enum { CHUNK_ELEMS = 1 << 15 };

static const char operation[] = "copy-back of gradients";

/* ---- what the CPU does ---- */

typedef struct sum {
	float *target;
	const char *source;
	int32_t dtype;
	int32_t elem_bytes;
	bool accumulate;
} sum;

static void sum_chunk(void *context, int64_t begin, int64_t end)
{
	const sum *s = context;
	const char *source = s->source + begin * s->elem_bytes;
	if (s->accumulate)
		zcci_accumulate(s->target + begin, source, s->dtype, end - begin);
	else
		zcci_convert(s->target + begin, ZCC_F32, source, s->dtype, 1, end - begin);
}

/* ---- one call ---- */

/* A slot on its way, whose elements go to target. */
typedef struct fetch {
	zcci_copyback_slot *slot;
	float *target;
	int64_t elems;
} fetch;

/* So that the device is not idle while the CPU works on what has come. */
enum { MOST_FETCHES = 8 };

typedef struct gather {
	zcc_copyback *copyback;
	bool accumulate;
	fetch fetches[MOST_FETCHES]; /* the k-th one is at k % MOST_FETCHES */
	int64_t n_started, n_finished;
	int64_t done_elems; /* that the CPU has stored or added, in order of the pieces */
} gather;

static void add(gather *g, float *target, const void *source, int64_t elems)
{
	sum s = {.target = target,
	         .source = source,
	         .dtype = g->copyback->dtype,
	         .elem_bytes = (int32_t)g->copyback->elem_bytes,
	         .accumulate = g->accumulate};
	zcci_parallel(elems, CHUNK_ELEMS, sum_chunk, &s);
	g->done_elems += elems;
}

static zcc_status finish_oldest(gather *g, zcc_error *error)
{
	const fetch *f = &g->fetches[g->n_finished % MOST_FETCHES];
	zcc_status status = ZCCI_WAIT(copyback_fetch, zcci_copyback_await_slot(g->copyback, f->slot, error));
	if (status != ZCC_OK)
		return status;
	add(g, f->target, f->slot->data, f->elems);
	g->n_finished++;
	return ZCC_OK;
}

static zcc_status finish_all(gather *g, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	while (status == ZCC_OK && g->n_finished < g->n_started)
		status = finish_oldest(g, error);
	return status;
}

static zcc_status start(gather *g, float *target, const char *source, int64_t elems, zcc_error *error)
{
	zcc_copyback *copyback = g->copyback;
	int32_t most = copyback->n_slots < MOST_FETCHES ? copyback->n_slots : MOST_FETCHES;
	zcc_status status = zcci_copyback_interrupted(operation, error);
	if (status == ZCC_OK && g->n_started - g->n_finished == most)
		status = finish_oldest(g, error);
	if (status != ZCC_OK)
		return status;
	zcci_copyback_slot *slot = &copyback->slots[g->n_started % most];
	status = zcc_copy_async(copyback->stream, slot->data, source, elems * copyback->elem_bytes, error);
	if (status == ZCC_OK)
		status = zcci_copyback_mark_slot(copyback, slot, error);
	if (status == ZCC_OK)
		g->fetches[g->n_started++ % MOST_FETCHES] = (fetch){slot, target, elems};
	return status;
}

static zcc_status fetch_staged(gather *g, const zcc_copyback_piece *piece, zcc_error *error)
{
	zcc_copyback *copyback = g->copyback;
	zcc_status status = ZCC_OK;
	int64_t copies = 0;
	for (int64_t at = 0; at < piece->elems && status == ZCC_OK; at += copyback->slot_elems, copies++) {
		int64_t left = piece->elems - at;
		status = start(g, (float *)piece->target + at, (const char *)piece->source + at * copyback->elem_bytes,
		               left < copyback->slot_elems ? left : copyback->slot_elems, error);
	}
	if (status == ZCC_OK)
		zcci_copyback_count(copyback, true, piece->elems, copies);
	return status;
}

static zcc_status fetch_through_scratch(gather *g, const zcc_copyback_piece *piece, zcc_error *error)
{
	zcc_copyback *copyback = g->copyback;
	zcc_status status = ZCC_OK;
	for (int64_t at = 0; at < piece->elems && status == ZCC_OK; at += copyback->buffer_elems) {
		int64_t n = piece->elems - at < copyback->buffer_elems ? piece->elems - at : copyback->buffer_elems;
		status = zcci_copyback_interrupted(operation, error);
		if (status == ZCC_OK)
			status = zcc_copy_async(copyback->stream, copyback->scratch,
			                        (const char *)piece->source + at * copyback->elem_bytes,
			                        n * copyback->elem_bytes, error);
		if (status == ZCC_OK)
			status = ZCCI_WAIT(copyback_scratch_fetch, zcc_stream_wait(copyback->stream, error));
		if (status == ZCC_OK)
			add(g, (float *)piece->target + at, copyback->scratch, n);
	}
	return status;
}

/* ---- which way ---- */

typedef enum way {
	NOTHING,
	STAGED,
	BY_HOST,    /* the CPU reads the source itself */
	BY_DEVICE,  /* the device writes the target itself */
	BY_SCRATCH, /* copied into ordinary memory, widened there by the CPU */
} way;

static zcc_status choose(const gather *g, const zcc_copyback_piece *piece, int64_t number, way *chosen,
                         zcc_error *error)
{
	zcc_copyback *copyback = g->copyback;
	int32_t source, target;
	zcc_status status = zcci_copyback_place(copyback, operation, number, "source", piece->source, piece->elems,
	                                        copyback->elem_bytes, &source, error);
	if (status == ZCC_OK)
		status = zcci_copyback_place(copyback, operation, number, "target", piece->target, piece->elems, 4,
		                             &target, error);
	if (status == ZCC_OK)
		status = zcci_copyback_apart(piece, number, copyback->elem_bytes, 4, operation, error);
	if (status != ZCC_OK)
		return status;
	if (target == ZCC_AT_DEVICE)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "piece %lld: the target is device memory; gradients are gathered on the host",
		                 (long long)number);
	bool same_dtype = copyback->dtype == ZCC_F32;
	if (piece->elems == 0)
		*chosen = NOTHING;
	else if (source != ZCC_AT_DEVICE)
		*chosen = BY_HOST;
	else if (!g->accumulate && target == ZCC_AT_PINNED)
		*chosen = BY_DEVICE;
	else if (copyback->pinning)
		*chosen = STAGED;
	else
		*chosen = !g->accumulate && same_dtype ? BY_DEVICE : BY_SCRATCH;
	return ZCC_OK;
}

static zcc_status fetch_piece(gather *g, const zcc_copyback_piece *piece, way chosen, zcc_error *error)
{
	zcc_copyback *copyback = g->copyback;
	zcc_status status;
	if (chosen == NOTHING)
		return ZCC_OK;
	if (chosen == STAGED)
		return fetch_staged(g, piece, error);
	/* In the order of the pieces: two of them may have the same target. */
	status = finish_all(g, error);
	if (status != ZCC_OK)
		return status;
	if (chosen == BY_HOST)
		add(g, piece->target, piece->source, piece->elems);
	else if (chosen == BY_SCRATCH)
		status = fetch_through_scratch(g, piece, error);
	else if (copyback->dtype == ZCC_F32)
		status = zcc_copy_async(copyback->stream, piece->target, piece->source, piece->elems * 4, error);
	else
		status = zcc_cast_async(copyback->stream, piece->target, ZCC_F32, piece->source, copyback->dtype,
		                        piece->elems, error);
	if (status == ZCC_OK)
		zcci_copyback_count(copyback, false, piece->elems, 0);
	return status;
}

static zcc_status run(gather *g, const zcc_copyback_piece *pieces, int64_t n_pieces, way *ways, zcc_error *error)
{
	bool used[BY_SCRATCH + 1] = {false};
	zcc_status status = ZCC_OK;
	for (int64_t i = 0; i < n_pieces && status == ZCC_OK; i++) {
		status = choose(g, &pieces[i], i, &ways[i], error);
		used[ways[i]] = true;
	}
	if (status == ZCC_OK)
		status = zcci_copyback_prepare(g->copyback, used[STAGED], used[BY_SCRATCH], error);
	if (status != ZCC_OK)
		return status;
	for (int64_t i = 0; i < n_pieces && status == ZCC_OK; i++)
		status = fetch_piece(g, &pieces[i], ways[i], error);
	if (status == ZCC_OK)
		status = finish_all(g, error);
	if (status == ZCC_OK)
		status = zcci_copyback_finish(g->copyback, error);
	if (status != ZCC_OK && g->accumulate)
		zcci_context(error, status, "after %lld elements, in order of the pieces, had been added",
		             (long long)g->done_elems);
	return status;
}

zcc_status zcc_copyback_gradients(zcc_copyback *copyback, const zcc_copyback_piece *pieces, int64_t n_pieces,
                                  int32_t accumulate, zcc_error *error)
{
	if (n_pieces < 0 || (n_pieces > 0 && pieces == NULL))
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "%lld pieces at %p", (long long)n_pieces,
		                 (const void *)pieces);
	zcc_status status = zcci_copyback_enter(copyback, operation, error);
	if (status != ZCC_OK)
		return status;
	gather g = {.copyback = copyback, .accumulate = accumulate != 0};
	way *ways = zcci_calloc(n_pieces, sizeof *ways);
	if (ways != NULL)
		status = run(&g, pieces, n_pieces, ways, error);
	else
		status = zcci_fail(error, ZCC_ENOMEM, 0, operation, "no memory to note the ways of %lld pieces",
		                   (long long)n_pieces);
	zcci_free(ways);
	zcci_copyback_leave(copyback, status);
	return status;
}
