/* A second, slow opinion on layouts and plans: what every element of every shard must be, worked out one element at a
 * time, and a plan carried out by a plain loop. Shared by the planner's tests. */
#ifndef PLAN_MODEL_H
#define PLAN_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "zcc/affine.h"

enum { MAX_PARAMS = 4, MAX_PLACEMENTS = 4, MAX_PARTS = 4, MAX_LIST = 512, PADDING = -1 };

/* The value that shards hold where no element lies; a target must keep it there. */
enum { SOURCE_POISON = -1000, TARGET_POISON = -2000 };

typedef struct model_param {
	char name[16];
	zcc_param_options options;
	int64_t shape[ZCC_MAX_NDIM];
	int32_t cut_axes[4];
	zcc_placement placements[MAX_PLACEMENTS];
	zcc_part parts[MAX_PLACEMENTS][MAX_PARTS];
	int64_t extents[MAX_PLACEMENTS][32];
} model_param;

typedef struct model {
	int32_t base;
	int32_t n_axes;
	int64_t sizes[4];
	int32_t n_params;
	model_param params[MAX_PARAMS];
} model;

#define DIMS(...)                                                                                                      \
	(int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])                               \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}
#define PARTS(...)                                                                                                     \
	(int32_t)(sizeof((zcc_part[]){__VA_ARGS__}) / sizeof(zcc_part)), (const zcc_part[])                            \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}

static inline void set_mesh(model *m, int32_t base, int32_t n_axes, const int64_t *sizes)
{
	memset(m, 0, sizeof *m);
	m->base = base;
	m->n_axes = n_axes;
	memcpy(m->sizes, sizes, (size_t)n_axes * sizeof *sizes);
}

static inline model_param *add_param(model *m, int32_t ndim, const int64_t *shape)
{
	assert_true(m->n_params < MAX_PARAMS);
	model_param *p = &m->params[m->n_params];
	snprintf(p->name, sizeof p->name, "p%d", (int)m->n_params++);
	zcc_param_options_init(&p->options);
	memcpy(p->shape, shape, (size_t)ndim * sizeof *shape);
	p->options.name = p->name;
	p->options.dtype = ZCC_I32;
	p->options.ndim = ndim;
	p->options.shape_elems = p->shape;
	p->options.placements = p->placements;
	p->options.cut_axes = p->cut_axes;
	p->options.scale = 1;
	return p;
}

static inline zcc_placement *add_placement(model_param *p, int32_t kind, int32_t axis, int32_t dim)
{
	assert_true(p->options.n_placements < MAX_PLACEMENTS);
	zcc_placement *place = &p->placements[p->options.n_placements++];
	*place = (zcc_placement){.kind = kind, .axis = axis, .dim = dim};
	return place;
}

static inline void shard_parts(model_param *p, int32_t axis, int32_t dim, int32_t n_parts, const zcc_part *parts)
{
	int32_t at = p->options.n_placements;
	zcc_placement *place = add_placement(p, ZCC_PLACE_SHARD, axis, dim);
	memcpy(p->parts[at], parts, (size_t)n_parts * sizeof *parts);
	place->n_parts = n_parts;
	place->parts = p->parts[at];
}

static inline void shard_even(model_param *p, int32_t axis, int32_t dim)
{
	shard_parts(p, axis, dim, PARTS({p->shape[dim], p->shape[dim], 0, ZCC_CUT_EVEN, 0}));
}

static inline void shard_extents(model_param *p, int32_t axis, int32_t dim, int32_t n, const int64_t *extents)
{
	int32_t at = p->options.n_placements;
	zcc_placement *place = add_placement(p, ZCC_PLACE_SHARD, axis, dim);
	memcpy(p->extents[at], extents, (size_t)n * sizeof *extents);
	place->n_extents = n;
	place->extents = p->extents[at];
}

static inline void place_owner(model_param *p, int32_t axis, int32_t owner)
{
	add_placement(p, ZCC_PLACE_OWNER, axis, 0)->owner = owner;
}

static inline void cut_flat(model_param *p, int64_t group, int64_t align, int32_t n_axes, const int64_t *axes)
{
	p->options.n_cut_axes = n_axes;
	for (int32_t i = 0; i < n_axes; i++)
		p->cut_axes[i] = (int32_t)axes[i];
	p->options.cut_group = group;
	p->options.cut_align_elems = align;
}

/* NULL where the layout says that it does not support this. */
static inline zcc_layout *try_layout(const model *m)
{
	static const char *const names[] = {"", "a", "a,b", "a,b,c", "a,b,c,d"};
	zcc_layout *layout = NULL;
	zcc_error error = {0};
	int32_t mesh = 0;
	assert_int_equal(zcc_layout_create(&layout, &error), ZCC_OK);
	if (zcc_layout_add_mesh(layout, m->base, m->n_axes, names[m->n_axes], m->sizes, &mesh, &error) != ZCC_OK)
		fail_msg("%s", error.message);
	for (int32_t i = 0; i < m->n_params; i++) {
		zcc_param_options options = m->params[i].options;
		int32_t index;
		options.mesh = mesh;
		zcc_status status = zcc_layout_add_param(layout, &options, &index, &error);
		if (status == ZCC_ELAYOUT) {
			zcc_layout_destroy(layout);
			return NULL;
		}
		if (status != ZCC_OK)
			fail_msg("%s", error.message);
		assert_int_equal(index, i);
	}
	return layout;
}

static inline zcc_layout *build_layout(const model *m)
{
	zcc_layout *layout = try_layout(m);
	assert_non_null(layout);
	return layout;
}

/* ---- the model's own answer: the logical element in every place of a shard ---- */

typedef struct list {
	int64_t n;
	int64_t at[MAX_LIST]; /* logical index along one axis, or PADDING */
} list;

static inline void append(list *out, const list *in, int64_t begin, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		out->at[out->n++] = in->at[begin + i];
}

static inline void cut_part(list *out, const list *in, int64_t base, const zcc_part *part, int64_t coordinate,
                            int64_t n)
{
	int64_t unit = part->units > 0 ? part->size_elems / part->units : 0;
	int64_t padded = part->padded_elems > 0 ? part->padded_elems : part->size_elems;
	if (part->cut == ZCC_CUT_REPLICATE) {
		append(out, in, base, part->size_elems);
	} else if (part->cut == ZCC_CUT_UNEVEN) {
		int64_t extra = part->units % n, share = part->units / n;
		int64_t begin = coordinate * share + (coordinate < extra ? coordinate : extra);
		append(out, in, base + begin * unit, (share + (coordinate < extra)) * unit);
	} else if (part->cut == ZCC_CUT_GROUPED && part->units < n) {
		append(out, in, base + coordinate * part->units / n * unit, unit);
	} else {
		for (int64_t i = 0; i < padded / n; i++) {
			int64_t row = coordinate * (padded / n) + i;
			out->at[out->n++] = row < part->size_elems ? in->at[base + row] : PADDING;
		}
	}
}

static inline void cut_axis(list *axis, const zcc_placement *place, int64_t coordinate, int64_t n)
{
	list in = *axis;
	axis->n = 0;
	if (place->n_extents > 0) {
		int64_t begin = 0;
		for (int64_t i = 0; i < coordinate; i++)
			begin += place->extents[i];
		append(axis, &in, begin, place->extents[coordinate]);
		return;
	}
	for (int32_t i = 0, base = 0; i < place->n_parts; base += (int32_t)place->parts[i].size_elems, i++)
		cut_part(axis, &in, base, &place->parts[i], coordinate, n);
}

static inline int64_t model_ranks(const model *m)
{
	int64_t ranks = 1;
	for (int32_t i = 0; i < m->n_axes; i++)
		ranks *= m->sizes[i];
	return ranks;
}

/* Elements of the shard, PADDING where none lies; NULL where the rank stores nothing. */
static inline int64_t *model_shard(const model *m, const model_param *p, int32_t rank, int64_t *n_elems)
{
	int64_t coordinates[4], rest = rank - m->base;
	for (int32_t i = m->n_axes - 1; i >= 0; rest /= m->sizes[i], i--)
		coordinates[i] = rest % m->sizes[i];
	list axes[ZCC_MAX_NDIM];
	for (int32_t i = 0; i < p->options.ndim; i++)
		for (axes[i].n = 0; axes[i].n < p->shape[i]; axes[i].n++)
			axes[i].at[axes[i].n] = axes[i].n;
	for (int32_t i = 0; i < p->options.n_placements; i++) {
		const zcc_placement *place = &p->placements[i];
		if (place->kind == ZCC_PLACE_OWNER && coordinates[place->axis] != place->owner)
			return NULL;
		if (place->kind == ZCC_PLACE_SHARD)
			cut_axis(&axes[place->dim], place, coordinates[place->axis], m->sizes[place->axis]);
	}
	int64_t n = 1;
	for (int32_t i = 0; i < p->options.ndim; i++)
		n *= axes[i].n;
	int64_t *elems = malloc((size_t)(n + 1) * sizeof *elems);
	for (int64_t i = 0; i < n; i++) {
		int64_t at = i, element = 0, weight = 1;
		for (int32_t k = p->options.ndim - 1; k >= 0; at /= axes[k].n, weight *= p->shape[k], k--) {
			int64_t index = axes[k].at[at % axes[k].n];
			element = index == PADDING || element == PADDING ? PADDING : element + index * weight;
		}
		elems[i] = element;
	}
	*n_elems = n;
	if (p->options.n_cut_axes == 0)
		return elems;

	int64_t position = 0, group = 1;
	for (int32_t i = 0; i < p->options.n_cut_axes; i++) {
		position = position * m->sizes[p->cut_axes[i]] + coordinates[p->cut_axes[i]];
		group *= m->sizes[p->cut_axes[i]];
	}
	group = p->options.cut_group > 0 ? p->options.cut_group : group;
	int64_t align = p->options.cut_align_elems > 1 ? p->options.cut_align_elems : 1;
	int64_t share = 0;
	while (share * group < n)
		share += align;
	int64_t *flat = malloc((size_t)(share + 1) * sizeof *flat);
	for (int64_t i = 0; i < share; i++) {
		int64_t from = position % group * share + i;
		flat[i] = from < n ? elems[from] : PADDING;
	}
	free(elems);
	*n_elems = share;
	return flat;
}

/* ---- policies ---- */

static inline void choose_lowest(zcc_plan *plan)
{
	int64_t n;
	zcc_plan_regions(plan, &n);
	for (int64_t i = 0; i < n; i++)
		assert_int_equal(zcc_plan_choose(plan, i, 0, NULL), ZCC_OK);
}

/* The same global rank, else the holder that sent the fewest bytes so far. */
static inline void choose_balanced(zcc_plan *plan)
{
	int64_t n, load[64] = {0};
	const zcc_region *regions = zcc_plan_regions(plan, &n);
	for (int64_t i = 0; i < n; i++) {
		int32_t best = 0;
		for (int32_t k = 0; k < regions[i].n_holders; k++) {
			assert_in_range(regions[i].holders[k], 0, 63);
			if (load[regions[i].holders[k]] < load[regions[i].holders[best]])
				best = k;
		}
		for (int32_t k = 0; k < regions[i].n_holders; k++)
			if (regions[i].holders[k] == regions[i].target_rank)
				best = k;
		load[regions[i].holders[best]] += regions[i].bytes;
		assert_int_equal(zcc_plan_choose(plan, i, best, NULL), ZCC_OK);
	}
}

typedef void policy(zcc_plan *plan);

static inline zcc_plan *make_plan(zcc_layout *target, zcc_layout *source, policy *choose)
{
	zcc_plan *plan = NULL;
	zcc_error error = {0};
	if (zcc_plan_create(target, source, &plan, &error) != ZCC_OK)
		fail_msg("%s", error.message);
	choose(plan);
	if (zcc_plan_build(plan, &error) != ZCC_OK)
		fail_msg("%s", error.message);
	return plan;
}

/* ---- carrying out a plan ---- */

typedef struct memory {
	int64_t n_ranks;
	struct {
		int32_t *data;
		int64_t n;
	} shards[MAX_PARAMS][64];
} memory;

/* source: elements in their places; target: poison everywhere. */
static inline memory *model_memory(const model *m, bool is_source)
{
	memory *mem = calloc(1, sizeof *mem);
	mem->n_ranks = model_ranks(m);
	assert_in_range(mem->n_ranks, 1, 64);
	for (int32_t p = 0; p < m->n_params; p++)
		for (int64_t r = 0; r < mem->n_ranks; r++) {
			int64_t n = 0;
			int64_t *elems = model_shard(m, &m->params[p], m->base + (int32_t)r, &n);
			if (elems == NULL)
				continue;
			mem->shards[p][r].n = n;
			mem->shards[p][r].data = malloc((size_t)(n + 1) * sizeof(int32_t));
			for (int64_t i = 0; i < n; i++)
				mem->shards[p][r].data[i] = !is_source            ? TARGET_POISON
				                            : elems[i] == PADDING ? SOURCE_POISON
				                                                  : (int32_t)elems[i];
			free(elems);
		}
	return mem;
}

static inline void free_memory(memory *mem)
{
	for (int32_t p = 0; p < MAX_PARAMS; p++)
		for (int64_t r = 0; r < 64; r++)
			free(mem->shards[p][r].data);
	free(mem);
}

static inline void run_segment(const zcc_segment *s, const int32_t *source, int64_t source_n, int32_t *target,
                               int64_t target_n)
{
	int64_t elems = 1;
	for (int32_t i = 0; i < s->ndim; i++)
		elems *= s->shape_elems[i];
	assert_int_equal(elems, s->elems);
	assert_true(elems > 0);
	for (int64_t e = 0; e < elems; e++) {
		int64_t from = s->source_offset_elems, to = s->target_offset_elems, at = e;
		for (int32_t i = s->ndim - 1; i >= 0; at /= s->shape_elems[i], i--) {
			from += at % s->shape_elems[i] * s->source_strides_elems[i];
			to += at % s->shape_elems[i] * s->target_strides_elems[i];
		}
		if (from < 0 || from >= source_n || to < 0 || to >= target_n)
			fail_msg("a segment reads element %lld of %lld and writes %lld of %lld", (long long)from,
			         (long long)source_n, (long long)to, (long long)target_n);
		if (target[to] != TARGET_POISON)
			fail_msg("element %lld of target rank %d is written twice", (long long)to, (int)s->target_rank);
		target[to] = source[from];
	}
}

static inline void check_target(const model *t, const memory *mem)
{
	for (int32_t p = 0; p < t->n_params; p++)
		for (int64_t r = 0; r < mem->n_ranks; r++) {
			int64_t n = 0;
			int64_t *elems = model_shard(t, &t->params[p], t->base + (int32_t)r, &n);
			for (int64_t i = 0; i < n; i++) {
				int64_t wanted = elems[i] == PADDING ? TARGET_POISON : elems[i];
				if (mem->shards[p][r].data[i] != wanted)
					fail_msg("param %d target rank %lld element %lld holds %d, wants %lld", (int)p,
					         (long long)(t->base + r), (long long)i, (int)mem->shards[p][r].data[i],
					         (long long)wanted);
			}
			free(elems);
		}
}

/* Carries out a plan between layouts of the two models and compares every element of every target shard. */
static inline void check_plan(const zcc_plan *plan, const model *t, const model *s)
{
	memory *from = model_memory(s, true), *to = model_memory(t, false);
	int64_t n;
	const zcc_segment *segments = zcc_plan_segments(plan, &n);
	for (int64_t i = 0; i < n; i++) {
		const zcc_segment *g = &segments[i];
		int64_t sr = g->source_rank - s->base, tr = g->target_rank - t->base;
		assert_in_range(sr, 0, from->n_ranks - 1);
		assert_in_range(tr, 0, to->n_ranks - 1);
		int32_t sp = 0;
		while (strcmp(s->params[sp].name, t->params[g->param].name) != 0)
			sp++;
		run_segment(g, from->shards[sp][sr].data, from->shards[sp][sr].n, to->shards[g->param][tr].data,
		            to->shards[g->param][tr].n);
	}
	check_target(t, to);
	free_memory(from);
	free_memory(to);
}

/* Plans and checks; returns the number of segments. */
static inline int64_t check_pair(const model *t, const model *s, policy *choose)
{
	zcc_layout *target = build_layout(t), *source = build_layout(s);
	zcc_plan *plan = make_plan(target, source, choose);
	int64_t n;
	zcc_plan_segments(plan, &n);
	check_plan(plan, t, s);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(target);
	zcc_layout_destroy(source);
	return n;
}

#endif
