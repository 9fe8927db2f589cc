/* From the host to the device. */
#include "staging/copyback.h"

#include "base/memory.h"
#include "base/omit.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/strided.h"

enum { CAST_CHUNK_ELEMS = 1 << 15 };

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static zcc_status send_slot(zcc_copyback *copyback, char *target, int64_t offset, int64_t elems,
                            zcci_copyback_fill *fill, void *context, zcc_error *error)
{
	zcci_copyback_slot *slot = NULL;
	zcc_status status = zcci_copyback_next_slot(copyback, &slot, error);
	if (status != ZCC_OK)
		return status;
	fill(context, slot->data, offset, elems);
	status = zcc_copy_async(copyback->stream, target + offset * copyback->elem_bytes, slot->data,
	                        elems * copyback->elem_bytes, error);
	return status == ZCC_OK ? zcci_copyback_mark_slot(copyback, slot, error) : status;
}

static zcc_status send_through_slots(zcc_copyback *copyback, char *target, int64_t elems, zcci_copyback_fill *fill,
                                     void *context, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	int64_t copies = 0;
	for (int64_t at = 0; at < elems && status == ZCC_OK; at += copyback->slot_elems, copies++) {
		status = zcci_copyback_interrupted("copy-back", error);
		if (status == ZCC_OK)
			status = send_slot(copyback, target, at, smaller(elems - at, copyback->slot_elems), fill,
			                   context, error);
	}
	if (status == ZCC_OK)
		zcci_copyback_count(copyback, true, elems, copies);
	return status;
}

/* As a copy without staging goes: cast, copy, wait, one after the other. Of all waits here this is the one that no test
 * can miss: late:X reads ordinary memory inside the call, as CUDA mostly does, but no device has to. */
static zcc_status send_through_scratch(zcc_copyback *copyback, char *target, int64_t elems, zcci_copyback_fill *fill,
                                       void *context, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	for (int64_t at = 0; at < elems && status == ZCC_OK; at += copyback->buffer_elems) {
		int64_t n = smaller(elems - at, copyback->buffer_elems);
		status = zcci_copyback_interrupted("copy-back", error);
		if (status == ZCC_OK) {
			fill(context, copyback->scratch, at, n);
			status = zcc_copy_async(copyback->stream, target + at * copyback->elem_bytes, copyback->scratch,
			                        n * copyback->elem_bytes, error);
		}
		if (status == ZCC_OK)
			status = zcc_stream_wait(copyback->stream, error);
	}
	if (status == ZCC_OK)
		zcci_copyback_count(copyback, false, elems, 0);
	return status;
}

zcc_status zcci_copyback_send(zcc_copyback *copyback, bool staged, void *target, int64_t elems,
                              zcci_copyback_fill *fill, void *context, zcc_error *error)
{
	return (staged ? send_through_slots : send_through_scratch)(copyback, target, elems, fill, context, error);
}

/* ---- cast ---- */

typedef struct cast {
	char *target;
	const float *source;
	int32_t dtype;
	int32_t elem_bytes;
} cast;

static void cast_chunk(void *context, int64_t begin, int64_t end)
{
	const cast *c = context;
	zcci_convert(c->target + begin * c->elem_bytes, c->dtype, c->source + begin, ZCC_F32, 1, end - begin);
}

/* context is the cast of the whole piece. */
static void cast_run(void *context, void *target, int64_t offset, int64_t elems)
{
	cast part = *(const cast *)context;
	part.target = target;
	part.source += offset;
	zcci_parallel(elems, CAST_CHUNK_ELEMS, cast_chunk, &part);
}

/* ---- which way ---- */

typedef enum way {
	NOTHING,
	STAGED,
	BY_HOST,    /* the CPU writes the target itself */
	BY_DEVICE,  /* the device reads the source itself */
	BY_SCRATCH, /* cast by the CPU into ordinary memory, copied from there */
} way;

static zcc_status choose(zcc_copyback *copyback, const zcc_copyback_piece *piece, int64_t number, way *chosen,
                         zcc_error *error)
{
	int32_t source, target;
	zcc_status status = zcci_copyback_place(copyback, "copy-back", number, "source", piece->source, piece->elems, 4,
	                                        &source, error);
	if (status == ZCC_OK)
		status = zcci_copyback_place(copyback, "copy-back", number, "target", piece->target, piece->elems,
		                             copyback->elem_bytes, &target, error);
	if (status == ZCC_OK)
		status = zcci_copyback_apart(piece, number, 4, copyback->elem_bytes, "copy-back", error);
	if (status != ZCC_OK)
		return status;
	if (source == ZCC_AT_DEVICE && target != ZCC_AT_DEVICE)
		return zcci_fail(error, ZCC_EINVAL, 0, "copy-back",
		                 "piece %lld: the source is device memory and the target is not; "
		                 "zcc_copyback_gradients goes that way",
		                 (long long)number);
	if (piece->elems == 0)
		*chosen = NOTHING;
	else if (target != ZCC_AT_DEVICE)
		*chosen = BY_HOST;
	else if (source != ZCC_AT_PAGEABLE)
		*chosen = BY_DEVICE;
	else if (copyback->pinning)
		*chosen = STAGED;
	else
		*chosen = copyback->dtype == ZCC_F32 ? BY_DEVICE : BY_SCRATCH;
	return ZCC_OK;
}

static zcc_status copy_piece(zcc_copyback *copyback, const zcc_copyback_piece *piece, way chosen, zcc_error *error)
{
	cast whole = {.source = piece->source, .dtype = copyback->dtype, .elem_bytes = (int32_t)copyback->elem_bytes};
	zcc_status status = ZCC_OK;
	switch (chosen) {
	case NOTHING:
		return ZCC_OK;
	case STAGED:
	case BY_SCRATCH:
		return zcci_copyback_send(copyback, chosen == STAGED, piece->target, piece->elems, cast_run, &whole,
		                          error);
	case BY_HOST:
		cast_run(&whole, piece->target, 0, piece->elems);
		break;
	case BY_DEVICE:
		if (copyback->dtype == ZCC_F32)
			status =
			        zcc_copy_async(copyback->stream, piece->target, piece->source, piece->elems * 4, error);
		else
			status = zcc_cast_async(copyback->stream, piece->target, copyback->dtype, piece->source,
			                        ZCC_F32, piece->elems, error);
		break;
	}
	if (status == ZCC_OK)
		zcci_copyback_count(copyback, false, piece->elems, 0);
	return status;
}

static zcc_status run(zcc_copyback *copyback, const zcc_copyback_piece *pieces, int64_t n_pieces, way *ways,
                      zcc_error *error)
{
	bool used[BY_SCRATCH + 1] = {false};
	zcc_status status = ZCC_OK;
	for (int64_t i = 0; i < n_pieces && status == ZCC_OK; i++) {
		status = choose(copyback, &pieces[i], i, &ways[i], error);
		used[ways[i]] = true;
	}
	if (status == ZCC_OK)
		status = zcci_copyback_prepare(copyback, used[STAGED], used[BY_SCRATCH], error);
	if (status != ZCC_OK)
		return status;
	for (int64_t i = 0; i < n_pieces; i++) {
		status = copy_piece(copyback, &pieces[i], ways[i], error);
		if (status != ZCC_OK)
			return zcci_context(error, status, "piece %lld of %lld", (long long)i, (long long)n_pieces);
	}
	return zcci_copyback_finish(copyback, error);
}

zcc_status zcc_copyback_run(zcc_copyback *copyback, const zcc_copyback_piece *pieces, int64_t n_pieces,
                            zcc_error *error)
{
	if (n_pieces < 0 || (n_pieces > 0 && pieces == NULL))
		return zcci_fail(error, ZCC_EINVAL, 0, "copy-back", "%lld pieces at %p", (long long)n_pieces,
		                 (const void *)pieces);
	zcc_status status = zcci_copyback_enter(copyback, "copy-back", error);
	if (status != ZCC_OK)
		return status;
	way *ways = zcci_calloc(n_pieces, sizeof *ways);
	if (ways != NULL)
		status = run(copyback, pieces, n_pieces, ways, error);
	else
		status = zcci_fail(error, ZCC_ENOMEM, 0, "copy-back", "no memory to note the ways of %lld pieces",
		                   (long long)n_pieces);
	zcci_free(ways);
	zcci_copyback_leave(copyback, status);
	return status;
}
