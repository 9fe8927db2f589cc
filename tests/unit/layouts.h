/* Layouts laid out element by element, independently of the engine: what unit tests of maps compare against. A tensor's
 * elements are its row-major numbers, and −1 stands for padding. */
#ifndef LAYOUTS_H
#define LAYOUTS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "zcc/affine.h"

/* ---- random numbers ---- */

static uint64_t random_state;

/* The seed: ZCC_SEED, or the given one. Printed. */
static inline void seed_random(uint64_t fallback)
{
	const char *text = getenv("ZCC_SEED");
	random_state = text != NULL ? strtoull(text, NULL, 10) : fallback;
	printf("ZCC_SEED=%llu\n", (unsigned long long)random_state);
}

static inline int32_t pick(int32_t low, int32_t high)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return low + (int32_t)((random_state >> 33) % (uint64_t)(high - low + 1));
}

/* Processor time: what a limit can be set on when other tests run beside. */
static inline double cpu_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- one axis of one coordinate as a list of indices ---- */

typedef struct index_list {
	int64_t n;
	int64_t at[512];
} index_list;

static inline void push(index_list *list, int64_t value)
{
	if (list->n == 512)
		abort();
	list->at[list->n++] = value;
}

/* Splits `old` as the placement says and leaves what coordinate c of n gets. */
static inline void split_axis(index_list *list, const zcc_placement *placement, int64_t c, int64_t n)
{
	index_list old = *list;
	int64_t begin = 0;
	list->n = 0;
	if (placement->n_parts == 0) {
		for (int64_t k = 0; k < c; k++)
			begin += placement->extents[k];
		for (int64_t k = 0; k < placement->extents[c]; k++)
			push(list, old.at[begin + k]);
		return;
	}
	for (int32_t p = 0; p < placement->n_parts; p++) {
		const zcc_part *part = &placement->parts[p];
		index_list whole = {0};
		for (int64_t k = 0; k < part->size_elems; k++)
			push(&whole, old.at[begin + k]);
		begin += part->size_elems;
		while (whole.n < part->padded_elems)
			push(&whole, -1);
		/* Deal whole units out one by one and note whose each is. */
		int64_t unit = part->size_elems > 0 ? part->size_elems / part->units : 1;
		int64_t units = whole.n / unit;
		for (int64_t u = 0; u < units; u++) {
			bool mine;
			if (part->cut == ZCC_CUT_REPLICATE) {
				mine = true;
			} else if (part->cut == ZCC_CUT_GROUPED && units < n) {
				mine = c * units / n == u;
			} else {
				/* The first units % n coordinates have one more. */
				int64_t owner = 0, left = u;
				while (left >= units / n + (owner < units % n)) {
					left -= units / n + (owner < units % n);
					owner++;
				}
				mine = owner == c;
			}
			for (int64_t k = 0; mine && k < unit; k++)
				push(list, whole.at[u * unit + k]);
		}
	}
}

/* ---- one shard ---- */

typedef struct tensor {
	bool present;
	int32_t ndim;
	int64_t shape[ZCC_MAX_NDIM];
	int64_t elems;
	int64_t *at; /* elems row-major numbers of the parameter, −1 = padding */
} tensor;

static inline void coords_of_rank(int64_t rank, int32_t n_axes, const int64_t *sizes, int64_t *coords)
{
	for (int32_t a = n_axes - 1; a >= 0; a--) {
		coords[a] = rank % sizes[a];
		rank /= sizes[a];
	}
}

static inline void outer_product(const zcc_param_options *o, const index_list *lists, tensor *out)
{
	out->ndim = o->ndim;
	out->elems = 1;
	for (int32_t d = 0; d < o->ndim; d++) {
		out->shape[d] = lists[d].n;
		out->elems *= lists[d].n;
	}
	out->at = malloc((size_t)(out->elems + 1) * sizeof *out->at);
	for (int64_t e = 0; e < out->elems; e++) {
		int64_t rest = e, index[ZCC_MAX_NDIM], number = 0;
		for (int32_t d = o->ndim - 1; d >= 0; d--) {
			index[d] = lists[d].at[rest % lists[d].n];
			rest /= lists[d].n;
		}
		for (int32_t d = 0; d < o->ndim; d++)
			number = index[d] < 0 || number < 0 ? -1 : number * o->shape_elems[d] + index[d];
		out->at[e] = number;
	}
}

/* Flattens, pads and takes the share of the rank. */
static inline void cut_flat(const zcc_param_options *o, const int64_t *sizes, const int64_t *coords, tensor *out)
{
	int64_t combined = 0, all = 1;
	for (int32_t i = 0; i < o->n_cut_axes; i++) {
		combined = combined * sizes[o->cut_axes[i]] + coords[o->cut_axes[i]];
		all *= sizes[o->cut_axes[i]];
	}
	int64_t group = o->cut_group > 0 ? o->cut_group : all;
	int64_t padded = out->elems;
	while (padded % (group * (o->cut_align_elems > 1 ? o->cut_align_elems : 1)) != 0)
		padded++;
	int64_t share = padded / group, begin = combined % group * share;
	int64_t *at = malloc((size_t)(share + 1) * sizeof *at);
	for (int64_t k = 0; k < share; k++)
		at[k] = begin + k < out->elems ? out->at[begin + k] : -1;
	free(out->at);
	*out = (tensor){true, 1, {share}, share, at};
}

/* The shard of the rank-th rank of the mesh. Free its `at`. */
static inline tensor lay_out(const zcc_param_options *o, int32_t n_axes, const int64_t *sizes, int64_t rank)
{
	static index_list lists[ZCC_MAX_NDIM];
	int64_t coords[8];
	tensor out = {.present = true};
	coords_of_rank(rank, n_axes, sizes, coords);
	for (int32_t d = 0; d < o->ndim; d++) {
		lists[d].n = 0;
		for (int64_t k = 0; k < o->shape_elems[d]; k++)
			push(&lists[d], k);
	}
	for (int32_t i = 0; i < o->n_placements; i++) {
		const zcc_placement *p = &o->placements[i];
		if (p->kind == ZCC_PLACE_OWNER && coords[p->axis] != p->owner)
			return (tensor){0};
		if (p->kind == ZCC_PLACE_SHARD)
			split_axis(&lists[p->dim], p, coords[p->axis], sizes[p->axis]);
	}
	outer_product(o, lists, &out);
	if (o->n_cut_axes > 0)
		cut_flat(o, sizes, coords, &out);
	return out;
}

/* ---- what a map says, as such a tensor ---- */

/* Puts the piece's elements into the shard's tensor and the ranks' bit into `stored` (may be NULL), one mask per
 * element of the parameter. False where it leaves the shard or the parameter, or writes an element twice. */
static inline bool paint(const zcc_param_info *info, const zcc_piece *piece, tensor *shard, uint64_t *stored,
                         int32_t rank)
{
	int64_t size = 1;
	for (int32_t d = 0; d < piece->ndim; d++)
		size *= piece->shape_elems[d];
	if (size == 0)
		return false;
	for (int64_t e = 0; e < size; e++) {
		int64_t rest = e, number = 0, to = piece->dest_offset_elems, stride = 1;
		for (int32_t d = piece->ndim - 1; d >= 0; d--) {
			int64_t i = rest % piece->shape_elems[d];
			rest /= piece->shape_elems[d];
			if (piece->origin_elems[d] < 0 || piece->origin_elems[d] + i >= info->shape_elems[d])
				return false;
			number += (piece->origin_elems[d] + i) * stride;
			stride *= info->shape_elems[d];
			to += i * piece->dest_strides_elems[d];
		}
		if (to < 0 || to >= shard->elems || shard->at[to] != -1)
			return false;
		shard->at[to] = number;
		if (stored != NULL)
			stored[number] |= UINT64_C(1) << rank;
	}
	return true;
}

#endif
