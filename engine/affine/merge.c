/* Merging: copies that continue each other in both shards become one. What counts is where they lie in the shards, not
 * whether they are neighbours in the parameter. Blocks with gaps between them are never stacked. */
#include "affine/plan_impl.h"

#include <string.h>

#include "base/status.h"
#include "kernels/strided.h"

/* splitmix64's finalizer (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static int64_t first_slot(const zcci_merger *m, int64_t source_offset, int64_t target_offset)
{
	return (int64_t)(mix((uint64_t)source_offset ^ mix((uint64_t)target_offset)) & (uint64_t)(m->n_slots - 1));
}

/* A joined segment keeps its first element's offsets, so the table stays as it was built; elems = 0 marks what was
 * joined away. */
static void fill_table(zcci_merger *m, const zcc_segment *segments, int64_t n)
{
	memset(m->slots, 0, (size_t)m->n_slots * sizeof *m->slots);
	for (int64_t i = 0; i < n; i++) {
		int64_t slot = first_slot(m, segments[i].source_offset_elems, segments[i].target_offset_elems);
		while (m->slots[slot] != 0)
			slot = (slot + 1) & (m->n_slots - 1);
		m->slots[slot] = (int32_t)i + 1;
	}
}

static zcc_segment *find(const zcci_merger *m, zcc_segment *segments, int64_t source_offset, int64_t target_offset)
{
	for (int64_t slot = first_slot(m, source_offset, target_offset); m->slots[slot] != 0;
	     slot = (slot + 1) & (m->n_slots - 1)) {
		zcc_segment *s = &segments[m->slots[slot] - 1];
		if (s->elems > 0 && s->source_offset_elems == source_offset && s->target_offset_elems == target_offset)
			return s;
	}
	return NULL;
}

/* Equal but for the extent of `axis`. The stride of an axis of one element says nothing, unless both have one there. */
static bool alike(const zcc_segment *a, const zcc_segment *b, int32_t axis)
{
	if (a->ndim != b->ndim || a->factor != b->factor)
		return false;
	for (int32_t i = 0; i < a->ndim; i++) {
		bool free_stride = i == axis ? a->shape_elems[i] > 1 && b->shape_elems[i] == 1 : a->shape_elems[i] == 1;
		if (i != axis && a->shape_elems[i] != b->shape_elems[i])
			return false;
		if (!free_stride && (a->source_strides_elems[i] != b->source_strides_elems[i] ||
		                     a->target_strides_elems[i] != b->target_strides_elems[i]))
			return false;
	}
	return true;
}

/* Joins to `a` whatever continues it along the axis. */
static bool extend(const zcci_merger *m, zcc_segment *segments, zcc_segment *a, int32_t axis)
{
	bool joined = false;
	for (;;) {
		int64_t extent = a->shape_elems[axis];
		zcc_segment *b = find(m, segments, a->source_offset_elems + extent * a->source_strides_elems[axis],
		                      a->target_offset_elems + extent * a->target_strides_elems[axis]);
		if (b == NULL || b == a || !alike(a, b, axis))
			return joined;
		a->shape_elems[axis] += b->shape_elems[axis];
		a->elems += b->elems;
		b->elems = 0;
		joined = true;
	}
}

/* Inner axes first: rows are completed before they are stacked. */
static void join_all(const zcci_merger *m, zcc_segment *segments, int64_t n)
{
	for (bool joined = true; joined;) {
		joined = false;
		for (int32_t from_last = 1; from_last <= ZCC_MAX_NDIM; from_last++)
			for (int64_t i = 0; i < n; i++) {
				int32_t axis = segments[i].ndim - from_last;
				if (axis >= 0 && segments[i].elems > 0 && extend(m, segments, &segments[i], axis))
					joined = true;
			}
	}
}

/* Whether `row` is what `a` repeats along its first axis. */
static bool is_row(const zcc_segment *row, const zcc_segment *a)
{
	if (row->ndim != a->ndim - 1 || row->factor != a->factor)
		return false;
	for (int32_t i = 0; i < row->ndim; i++)
		if (row->shape_elems[i] != a->shape_elems[i + 1] ||
		    row->source_strides_elems[i] != a->source_strides_elems[i + 1] ||
		    row->target_strides_elems[i] != a->target_strides_elems[i + 1])
			return false;
	return true;
}

/* A single row lost its first axis when it was simplified: joins such rows to the end and to the beginning of `a`. */
static bool add_rows(const zcci_merger *m, zcc_segment *segments, zcc_segment *a)
{
	bool joined = false;
	for (;;) {
		int64_t extent = a->shape_elems[0];
		zcc_segment *row = find(m, segments, a->source_offset_elems + extent * a->source_strides_elems[0],
		                        a->target_offset_elems + extent * a->target_strides_elems[0]);
		if (row == NULL || !is_row(row, a))
			break;
		a->shape_elems[0]++;
		a->elems += row->elems;
		row->elems = 0;
		joined = true;
	}
	for (;;) {
		zcc_segment *row = find(m, segments, a->source_offset_elems - a->source_strides_elems[0],
		                        a->target_offset_elems - a->target_strides_elems[0]);
		if (row == NULL || !is_row(row, a))
			return joined;
		row->ndim = a->ndim;
		row->elems += a->elems;
		memcpy(row->shape_elems, a->shape_elems, sizeof row->shape_elems);
		memcpy(row->source_strides_elems, a->source_strides_elems, sizeof row->source_strides_elems);
		memcpy(row->target_strides_elems, a->target_strides_elems, sizeof row->target_strides_elems);
		row->shape_elems[0]++;
		a->elems = 0;
		a = row;
		joined = true;
	}
}

static void join_simplified(const zcci_merger *m, zcc_segment *segments, int64_t n)
{
	for (bool joined = true; joined;) {
		joined = false;
		join_all(m, segments, n);
		for (int64_t i = 0; i < n; i++)
			if (segments[i].elems > 0 && segments[i].ndim > 1 && add_rows(m, segments, &segments[i]))
				joined = true;
	}
}

static int64_t drop_joined(zcc_segment *segments, int64_t n)
{
	int64_t left = 0;
	for (int64_t i = 0; i < n; i++)
		if (segments[i].elems > 0) {
			if (left != i)
				segments[left] = segments[i];
			left++;
		}
	return left;
}

/* Axes that are contiguous on both sides become one, so that runs join whatever shape they are cut into. */
static void simplify(zcc_segment *segment)
{
	zcci_view source = {.ndim = segment->ndim}, target = {.ndim = segment->ndim};
	memcpy(source.shape, segment->shape_elems, sizeof source.shape);
	memcpy(target.shape, segment->shape_elems, sizeof target.shape);
	memcpy(source.strides, segment->source_strides_elems, sizeof source.strides);
	memcpy(target.strides, segment->target_strides_elems, sizeof target.strides);
	zcci_view_simplify(&source, &target);
	if (source.ndim == 0) {
		source.ndim = 1;
		source.shape[0] = source.strides[0] = target.strides[0] = 1;
	}
	segment->ndim = source.ndim;
	for (int32_t i = 0; i < ZCC_MAX_NDIM; i++) {
		bool used = i < source.ndim;
		segment->shape_elems[i] = used ? source.shape[i] : 0;
		segment->source_strides_elems[i] = used ? source.strides[i] : 0;
		segment->target_strides_elems[i] = used ? target.strides[i] : 0;
	}
}

/* Joins along the axes of the parameter; returns how many are left. */
static int64_t merge_plain(zcci_merger *m, zcc_segment *segments, int64_t n)
{
	fill_table(m, segments, n);
	join_all(m, segments, n);
	return drop_joined(segments, n);
}

/* Joins whatever is contiguous, across the axes of the parameter. */
static int64_t merge_simplified(zcci_merger *m, zcc_segment *segments, int64_t n)
{
	memcpy(m->plain, segments, (size_t)n * sizeof *segments);
	for (int64_t i = 0; i < n; i++)
		simplify(&segments[i]);
	fill_table(m, segments, n);
	join_simplified(m, segments, n);
	/* What joined nothing keeps its axes. */
	for (int64_t i = 0; i < n; i++)
		if (segments[i].elems == m->plain[i].elems)
			segments[i] = m->plain[i];
	return drop_joined(segments, n);
}

/* One way of joining can make what the other joins. */
static int64_t merge_fully(zcci_merger *m, zcc_segment *segments, int64_t n)
{
	for (int64_t before = n + 1; n > 1 && n < before;) {
		before = n;
		n = merge_simplified(m, segments, n);
		n = merge_plain(m, segments, n);
	}
	return n;
}

static bool reserve(zcci_merger *m, int64_t n)
{
	m->n_slots = 16;
	while (m->n_slots < 2 * n)
		m->n_slots *= 2;
	if (m->capacity >= m->n_slots)
		return true;
	zcci_merger_free(m);
	m->slots = zcci_malloc(m->n_slots * (int64_t)sizeof *m->slots);
	m->plain = zcci_malloc(m->n_slots * (int64_t)sizeof *m->plain);
	m->other = zcci_malloc(m->n_slots * (int64_t)sizeof *m->other);
	if (m->slots == NULL || m->plain == NULL || m->other == NULL)
		return false;
	m->capacity = m->n_slots;
	return true;
}

/* Blocks stacked with a gap can no longer join what lies in the gap, and a run that took up one row of a stack breaks
 * the stack. So both are tried, stacks first and runs first, and the one that leaves fewer counts; stacks where they
 * tie. */
zcc_status zcci_merge_segments(zcci_merger *m, zcc_segment *segments, int64_t *n_segments, zcc_error *error)
{
	int64_t n = *n_segments;
	if (n > INT32_MAX / 4 || !reserve(m, n))
		return zcci_fail(error, ZCC_ENOMEM, 0, "plan build", "no memory to merge %lld segments", (long long)n);
	memcpy(m->other, segments, (size_t)n * sizeof *segments);
	int64_t stacks = merge_fully(m, segments, merge_plain(m, segments, n));
	*n_segments = stacks;
	if (stacks == 1)
		return ZCC_OK;
	int64_t runs = merge_fully(m, m->other, merge_simplified(m, m->other, n));
	if (runs < stacks) {
		memcpy(segments, m->other, (size_t)runs * sizeof *segments);
		*n_segments = runs;
	}
	return ZCC_OK;
}

void zcci_merger_free(zcci_merger *m)
{
	zcci_free(m->slots);
	zcci_free(m->plain);
	zcci_free(m->other);
	m->slots = NULL;
	m->plain = NULL;
	m->other = NULL;
	m->capacity = 0;
}
