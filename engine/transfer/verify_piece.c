#include "transfer/verify_piece.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* Three chunks and the scratch of strided reads: small enough to stay in a cache of the second level. */
enum { CHUNK_BYTES = 256 * 1024, SCRATCH_BYTES = 512 * 1024 };

static const char operation[] = "verify run";

zcc_status zcci_checker_init(zcci_checker *checker, zcc_error *error)
{
	const int64_t bytes = 3 * CHUNK_BYTES + SCRATCH_BYTES;
	char *memory = zcci_malloc(bytes);
	if (memory == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, operation, "no memory for %" PRId64 " bytes of buffers", bytes);
	*checker = (zcci_checker){
	        .memory = memory,
	        .ranged = {.scratch = memory + 3 * CHUNK_BYTES, .scratch_bytes = SCRATCH_BYTES},
	};
	return ZCC_OK;
}

void zcci_checker_fini(zcci_checker *checker)
{
	zcci_free(checker->memory);
	checker->memory = NULL;
}

int64_t zcci_box_meet(zcci_box *box, const int64_t *origin_elems, const int64_t *shape_elems)
{
	int64_t elems = 1;
	for (int32_t d = 0; d < box->ndim; d++) {
		int64_t begin = box->origin_elems[d], end = begin + box->shape_elems[d];
		if (begin < origin_elems[d])
			begin = origin_elems[d];
		if (end > origin_elems[d] + shape_elems[d])
			end = origin_elems[d] + shape_elems[d];
		box->origin_elems[d] = begin;
		box->shape_elems[d] = end > begin ? end - begin : 0;
		elems *= box->shape_elems[d];
	}
	return elems;
}

/* ---- messages ---- */

typedef struct text {
	char text[320];
} text;

/* The bits of an element as one number, little endian as in the file. */
static uint64_t number_of(const char *element, int32_t elem_bytes)
{
	uint64_t value = 0;
	for (int32_t i = 0; i < elem_bytes; i++)
		value |= (uint64_t)(unsigned char)element[i] << 8 * i;
	return value;
}

static text hex_of(const char *element, int32_t elem_bytes)
{
	text out;
	snprintf(out.text, sizeof out.text, "0x%0*" PRIx64, 2 * elem_bytes, number_of(element, elem_bytes));
	return out;
}

/* "[12, 5]" for the row-major number of an element of a box. */
static text index_of(int64_t number, int32_t ndim, const int64_t *shape, const int64_t *origin)
{
	int64_t at[ZCC_MAX_NDIM];
	for (int32_t d = ndim - 1; d >= 0; d--) {
		at[d] = number % shape[d] + (origin != NULL ? origin[d] : 0);
		number /= shape[d];
	}
	text out;
	int length = snprintf(out.text, sizeof out.text, "[");
	for (int32_t d = 0; d < ndim; d++)
		length += snprintf(out.text + length, sizeof out.text - (size_t)length, "%s%" PRId64, d > 0 ? ", " : "",
		                   at[d]);
	snprintf(out.text + length, sizeof out.text - (size_t)length, "]");
	return out;
}

/* The end of a path says which file it is; all of it may not fit beside another one. */
static text place_of(const zcci_stored *stored)
{
	enum { PATH_MOST = 220 };
	const char *path = zcc_file_path(stored->file);
	size_t length = strlen(path);
	text out;
	snprintf(out.text, sizeof out.text, "%s rank %" PRId32 " (%s%s)", stored->side, stored->rank,
	         length > PATH_MOST ? "..." : "", length > PATH_MOST ? path + length - PATH_MOST : path);
	return out;
}

static zcc_status give_way(void)
{
	return zcc_interrupted() ? ZCC_EINTR : ZCC_OK;
}

static zcc_status interrupted(zcc_error *error)
{
	return zcci_fail(error, ZCC_EINTR, zcc_interrupted(), operation, "given up on signal %d", zcc_interrupted());
}

/* ---- comparing ---- */

static zcci_view view_of(const zcci_box *box, const zcc_piece *piece)
{
	zcci_view view = {.ndim = box->ndim};
	memcpy(view.shape, box->shape_elems, sizeof view.shape);
	memcpy(view.strides, piece->dest_strides_elems, sizeof view.strides);
	return view;
}

/* Where the first element of a box lies in the shard. */
static int64_t corner_of(const zcci_box *box, const zcc_piece *piece)
{
	int64_t offset = piece->dest_offset_elems;
	for (int32_t d = 0; d < box->ndim; d++)
		offset += (box->origin_elems[d] - piece->origin_elems[d]) * piece->dest_strides_elems[d];
	return offset;
}

/* One side of a comparison, ready to read. */
typedef struct side {
	const zcci_stored *stored;
	zcci_view view;
	int64_t at_bytes;
	int32_t elem_bytes;
	char *data;
} side;

static side side_of(const zcci_box *box, const zcci_stored *stored, const zcc_piece *piece, char *data)
{
	int32_t elem_bytes = zcc_dtype_bytes(stored->dtype);
	return (side){
	        .stored = stored,
	        .view = view_of(box, piece),
	        .at_bytes = stored->at_bytes + corner_of(box, piece) * elem_bytes,
	        .elem_bytes = elem_bytes,
	        .data = data,
	};
}

static zcc_status read_side(zcci_checker *checker, const side *s, int64_t first, int64_t count, zcc_error *error)
{
	zcc_status status = zcci_ranged_read(&checker->ranged, s->stored->file, s->at_bytes, &s->view, first, count,
	                                     s->elem_bytes, s->data, error);
	if (status == ZCC_OK)
		return ZCC_OK;
	return zcci_context(error, status, "parameter %.200s, %s rank %" PRId32, s->stored->param, s->stored->side,
	                    s->stored->rank);
}

/* Names the first of `count` elements, from `first` of the box on, that differs; wanted is what the reference makes of
 * it. */
static zcc_status report(const zcci_box *box, const side *mine, const side *reference, const char *wanted,
                         double factor, int64_t first, int64_t count, zcc_error *error)
{
	int64_t k = 0;
	while (k + 1 < count &&
	       memcmp(mine->data + k * mine->elem_bytes, wanted + k * mine->elem_bytes, (size_t)mine->elem_bytes) == 0)
		k++;
	text made = {""};
	if (wanted != reference->data)
		snprintf(made.text, sizeof made.text, " (%s times %.17g, as %s 0x%0*" PRIx64 ")",
		         zcc_dtype_name(reference->stored->dtype), factor, zcc_dtype_name(mine->stored->dtype),
		         2 * mine->elem_bytes, number_of(wanted + k * mine->elem_bytes, mine->elem_bytes));
	return zcci_fail(error, ZCC_EVERIFY, 0, operation, "parameter %.200s, element %s: %s on %s, but %s%s on %s",
	                 mine->stored->param, index_of(first + k, box->ndim, box->shape_elems, box->origin_elems).text,
	                 hex_of(mine->data + k * mine->elem_bytes, mine->elem_bytes).text, place_of(mine->stored).text,
	                 hex_of(reference->data + k * reference->elem_bytes, reference->elem_bytes).text, made.text,
	                 place_of(reference->stored).text);
}

zcc_status zcci_piece_compare(zcci_checker *checker, const zcci_box *box, const zcci_stored *mine,
                              const zcc_piece *my_piece, const zcci_stored *reference, const zcc_piece *reference_piece,
                              zcc_error *error)
{
	side left = side_of(box, mine, my_piece, checker->memory);
	side right = side_of(box, reference, reference_piece, checker->memory + CHUNK_BYTES);
	double factor = my_piece->scale / reference_piece->scale;
	char *wanted = right.data;
	if (mine->dtype != reference->dtype || factor != 1)
		wanted += CHUNK_BYTES;
	int64_t left_elems = 1;
	for (int32_t d = 0; d < box->ndim; d++)
		left_elems *= box->shape_elems[d];
	int64_t most = CHUNK_BYTES / (left.elem_bytes > right.elem_bytes ? left.elem_bytes : right.elem_bytes);
	for (int64_t first = 0; left_elems > 0;) {
		if (give_way() != ZCC_OK)
			return interrupted(error);
		int64_t n = left_elems < most ? left_elems : most;
		zcc_status status = read_side(checker, &left, first, n, error);
		if (status == ZCC_OK)
			status = read_side(checker, &right, first, n, error);
		if (status != ZCC_OK)
			return status;
		if (wanted != right.data)
			zcci_convert(wanted, mine->dtype, right.data, reference->dtype, factor, n);
		if (memcmp(left.data, wanted, (size_t)(n * left.elem_bytes)) != 0)
			return report(box, &left, &right, wanted, factor, first, n, error);
		checker->compared_bytes += n * left.elem_bytes;
		first += n;
		left_elems -= n;
	}
	return ZCC_OK;
}

/* ---- padding ---- */

/* Elements [begin, end) of a shard; data holds them once they are read. */
typedef struct window {
	int64_t begin;
	int64_t end;
	char *data;
	int32_t elem_bytes;
} window;

/* Counts the elements of axes axis … of a view that fall into the window and clears them in its data. `reach` holds,
 * for every axis, how far the axes within it extend. */
static int64_t clear(const zcci_view *view, const int64_t *reach, int32_t axis, int64_t offset, const window *w)
{
	if (axis == view->ndim) {
		if (offset < w->begin || offset >= w->end)
			return 0;
		if (w->data != NULL)
			memset(w->data + (offset - w->begin) * w->elem_bytes, 0, (size_t)w->elem_bytes);
		return 1;
	}
	int64_t step = view->strides[axis], low = 0, high = view->shape[axis];
	if (offset >= w->end)
		return 0;
	if (step > 0) {
		int64_t before = w->begin - offset - reach[axis];
		if (before > 0)
			low = (before + step - 1) / step;
		int64_t beyond = (w->end - 1 - offset) / step + 1;
		if (high > beyond)
			high = beyond;
	}
	if (low >= high)
		return 0;
	if (step == 1 && axis == view->ndim - 1) {
		if (w->data != NULL)
			memset(w->data + (offset + low - w->begin) * w->elem_bytes, 0,
			       (size_t)((high - low) * w->elem_bytes));
		return high - low;
	}
	int64_t covered = 0;
	for (int64_t i = low; i < high; i++)
		covered += clear(view, reach, axis + 1, offset + i * step, w);
	return covered;
}

static int64_t clear_piece(const zcc_piece *piece, const window *w)
{
	zcci_view view = {.ndim = piece->ndim};
	memcpy(view.shape, piece->shape_elems, sizeof view.shape);
	memcpy(view.strides, piece->dest_strides_elems, sizeof view.strides);
	zcci_view_simplify(&view, NULL);
	int64_t reach[ZCC_MAX_NDIM], sum = 0;
	for (int32_t i = view.ndim - 1; i >= 0; i--) {
		reach[i] = sum;
		sum += (view.shape[i] - 1) * view.strides[i];
	}
	return clear(&view, reach, 0, piece->dest_offset_elems, w);
}

static int64_t clear_pieces(const zcc_piece *pieces, int64_t n_pieces, const window *w)
{
	int64_t covered = 0;
	for (int64_t i = 0; i < n_pieces; i++)
		covered += clear_piece(&pieces[i], w);
	return covered;
}

static bool all_zero(const char *data, int64_t bytes)
{
	return data[0] == 0 && memcmp(data, data + 1, (size_t)(bytes - 1)) == 0;
}

static zcc_status check_window(zcci_checker *checker, const zcci_stored *shard, const zcc_shard_info *info,
                               const zcc_piece *pieces, int64_t n_pieces, window *w, zcc_error *error)
{
	int64_t elems = w->end - w->begin;
	if (clear_pieces(pieces, n_pieces, w) == elems)
		return ZCC_OK;
	zcc_status status = zcc_file_read(shard->file, shard->at_bytes + w->begin * w->elem_bytes, checker->memory,
	                                  elems * w->elem_bytes, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "parameter %.200s, %s rank %" PRId32, shard->param, shard->side,
		                    shard->rank);
	w->data = checker->memory;
	clear_pieces(pieces, n_pieces, w);
	if (all_zero(w->data, elems * w->elem_bytes))
		return ZCC_OK;
	int64_t k = 0;
	while (all_zero(w->data + k * w->elem_bytes, w->elem_bytes))
		k++;
	return zcci_fail(error, ZCC_EVERIFY, 0, operation,
	                 "parameter %.200s, padding %s of the shard: %s on %s, must be 0", shard->param,
	                 index_of(w->begin + k, info->ndim, info->shape_elems, NULL).text,
	                 hex_of(w->data + k * w->elem_bytes, w->elem_bytes).text, place_of(shard).text);
}

zcc_status zcci_padding_check(zcci_checker *checker, const zcci_stored *shard, const zcc_shard_info *info,
                              const zcc_piece *pieces, int64_t n_pieces, zcc_error *error)
{
	int32_t elem_bytes = zcc_dtype_bytes(shard->dtype);
	int64_t step = CHUNK_BYTES / elem_bytes;
	for (int64_t begin = 0; begin < info->elems; begin += step) {
		if (give_way() != ZCC_OK)
			return interrupted(error);
		window w = {.begin = begin,
		            .end = info->elems - begin < step ? info->elems : begin + step,
		            .elem_bytes = elem_bytes};
		zcc_status status = check_window(checker, shard, info, pieces, n_pieces, &w, error);
		if (status != ZCC_OK)
			return status;
	}
	return ZCC_OK;
}
