#include "store/ranged.h"

#include <stdbool.h>

enum {
	/* A call costs about as much as reading this from the page cache, and a disk reads pages anyway. */
	GAP_BYTES = 4096,
	/* A run of this length is not worth the second copy out of the scratch. */
	DIRECT_BYTES = 32 * 1024
};

/* A run of elements without gaps. */
typedef struct run {
	int64_t begin; /* offset in the view */
	int64_t elems;
} run;

typedef struct cursor {
	const zcci_view *view;
	int64_t at[ZCC_MAX_NDIM];
	int64_t offset;
	int64_t left; /* elements of the range that follow */
} cursor;

static void start(cursor *c, const zcci_view *view, int64_t first, int64_t count)
{
	*c = (cursor){.view = view, .left = count};
	for (int32_t i = view->ndim - 1; i >= 0; i--) {
		c->at[i] = first % view->shape[i];
		first /= view->shape[i];
		c->offset += c->at[i] * view->strides[i];
	}
}

static run next_run(const cursor *c)
{
	const zcci_view *view = c->view;
	int32_t last = view->ndim - 1;
	int64_t elems = last >= 0 && view->strides[last] == 1 ? view->shape[last] - c->at[last] : 1;
	return (run){c->offset, elems < c->left ? elems : c->left};
}

static void pass(cursor *c, run r)
{
	const zcci_view *view = c->view;
	c->left -= r.elems;
	int64_t step = r.elems;
	for (int32_t i = view->ndim - 1; i >= 0; i--) {
		c->at[i] += step;
		c->offset += step * view->strides[i];
		if (c->at[i] < view->shape[i])
			return;
		c->offset -= c->at[i] * view->strides[i];
		c->at[i] = 0;
		step = 1;
	}
}

/* Whether `next` is read together with `span`, which then covers both. The order of runs in the file may be any. */
static bool cover(run *span, run next, int64_t elem_bytes, int64_t scratch_bytes)
{
	int64_t begin = next.begin < span->begin ? next.begin : span->begin;
	int64_t end = next.begin + next.elems, span_end = span->begin + span->elems;
	int64_t elems = (end > span_end ? end : span_end) - begin;
	int64_t gap = elems - span->elems - next.elems;
	if (next.elems * elem_bytes >= DIRECT_BYTES || gap > GAP_BYTES / elem_bytes ||
	    elems > scratch_bytes / elem_bytes)
		return false;
	*span = (run){begin, elems};
	return true;
}

zcc_status zcci_ranged_read(zcci_ranged *ranged, zcc_file *file, int64_t at_bytes, const zcci_view *view, int64_t first,
                            int64_t count, int32_t elem_bytes, void *dense, zcc_error *error)
{
	if (count <= 0)
		return ZCC_OK;
	zcci_view simple = *view;
	zcci_view_simplify(&simple, NULL);
	cursor c;
	start(&c, &simple, first, count);
	char *out = dense;
	while (c.left > 0) {
		run one = next_run(&c), span = one;
		int64_t elems = one.elems;
		pass(&c, one);
		while (c.left > 0 && one.elems * elem_bytes < DIRECT_BYTES) {
			run next = next_run(&c);
			if (!cover(&span, next, elem_bytes, ranged->scratch_bytes))
				break;
			elems += next.elems;
			pass(&c, next);
		}
		bool alone = elems == one.elems;
		zcc_status status = zcc_file_read(file, at_bytes + span.begin * elem_bytes,
		                                  alone ? out : ranged->scratch, span.elems * elem_bytes, error);
		if (status != ZCC_OK)
			return status;
		ranged->read_bytes += span.elems * elem_bytes;
		if (!alone)
			zcci_pack_window(out, ranged->scratch, span.begin, &simple, first, elems, elem_bytes);
		out += elems * elem_bytes;
		first += elems;
	}
	return ZCC_OK;
}
