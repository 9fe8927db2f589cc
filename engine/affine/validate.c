/* Coverage, tiling and agreement of an explicit map, exact to the element but by geometry: what identical boxes say is
 * compared once, and only boxes that overlap without being identical are intersected. */
#include "affine/explicit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "affine/boxtree.h"
#include "base/status.h"

/* A piece on its rank. */
typedef struct ref {
	const zcci_explicit_piece *piece;
	int32_t rank;
} ref;

/* Identical boxes: refs first … first + n − 1, ascending ranks. */
typedef struct group {
	int64_t first;
	int64_t n;
} group;

typedef struct check {
	zcci_explicit *map;
	zcc_error *error;
	ref *refs;
	int64_t n_refs;
	group *groups;
	int64_t n_groups;
	zcci_box *boxes; /* of the groups */
	int64_t at;      /* the group looked at */
	__int128 stored; /* elements of it that ranks of other groups store, rank by rank */
} check;

#define refuse(check, format, ...)                                                                                     \
	zcci_fail((check)->error, ZCC_EMAP, 0, "layout validate", "parameter %s, " format,                             \
	          (check)->map->base.info.name, __VA_ARGS__)

static zcc_status no_memory(const check *c)
{
	return zcci_fail(c->error, ZCC_ENOMEM, 0, "layout validate", "parameter %s: no memory to check %lld pieces",
	                 c->map->base.info.name, (long long)c->n_refs);
}

static zcc_status too_intricate(const check *c)
{
	return zcci_fail(c->error, ZCC_ELAYOUT, 0, "layout validate",
	                 "parameter %s: its %lld pieces overlap in too intricate a way to be checked",
	                 c->map->base.info.name, (long long)c->n_refs);
}

typedef struct box_text {
	char text[340];
} box_text;

/* "[2, 4] at [0, 8]" */
static const char *describe(const check *c, const zcc_piece *piece, box_text *out)
{
	char shape[160], origin[160];
	int32_t ndim = c->map->base.info.ndim;
	snprintf(out->text, sizeof out->text, "%s at %s", zcci_list_text(shape, sizeof shape, piece->shape_elems, ndim),
	         zcci_list_text(origin, sizeof origin, piece->origin_elems, ndim));
	return out->text;
}

static int64_t volume_of(int32_t ndim, const int64_t *shape)
{
	int64_t elems = 1;
	for (int32_t d = 0; d < ndim; d++)
		elems *= shape[d];
	return elems;
}

/* ---- tiling: within one shard ---- */

static int compare_dest(const void *left, const void *right)
{
	const zcci_explicit_piece *a = left, *b = right;
	if (a->piece.dest_offset_elems != b->piece.dest_offset_elems)
		return a->piece.dest_offset_elems < b->piece.dest_offset_elems ? -1 : 1;
	return (a->number > b->number) - (a->number < b->number);
}

/* Of one shard; hostile documents name any number. */
enum { MOST_BOXES = 1 << 20 };

/* Where the pieces lie in the shard: one box a piece, or in a flat shard one a run of it, ascending. */
typedef struct tiling {
	const check *check;
	const zcci_explicit_shard *shard;
	zcci_box *boxes;
	int64_t *owners; /* the piece of each box */
	int64_t n_boxes;
	int64_t at;
} tiling;

/* Elements that the pieces of two boxes share. */
static int64_t count_shared(const tiling *t, int64_t a, int64_t b)
{
	const int64_t *owners = t->owners, of_a = owners[a], of_b = owners[b];
	int64_t shared = 0;
	while (a > 0 && owners[a - 1] == of_a)
		a--;
	while (b > 0 && owners[b - 1] == of_b)
		b--;
	while (a < t->n_boxes && owners[a] == of_a && b < t->n_boxes && owners[b] == of_b) {
		const zcci_box *left = &t->boxes[a], *right = &t->boxes[b];
		shared += zcci_box_common(t->shard->ndim, left, right);
		bool left_ends = left->origin[0] + left->shape[0] <= right->origin[0] + right->shape[0];
		*(left_ends ? &a : &b) += 1;
	}
	return shared;
}

static zcc_status refuse_twice(void *context, int64_t k)
{
	const tiling *t = context;
	const zcci_explicit_piece *a = &t->shard->pieces[t->owners[t->at]], *b = &t->shard->pieces[t->owners[k]];
	return refuse(t->check,
	              "rank %d: pieces %lld and %lld both claim %lld elements of the shard; they are at offsets %lld "
	              "and %lld of its %lld "
	              "elements",
	              t->shard->rank, (long long)a->number, (long long)b->number, (long long)count_shared(t, t->at, k),
	              (long long)a->piece.dest_offset_elems, (long long)b->piece.dest_offset_elems,
	              (long long)t->shard->elems);
}

/* A piece in a flat shard is so many runs of run_elems elements each. */
static int64_t count_runs(const zcc_piece *piece, int64_t *run_elems)
{
	int32_t d = piece->ndim - 1;
	*run_elems = 1;
	while (d >= 0 && piece->dest_strides_elems[d] == *run_elems)
		*run_elems *= piece->shape_elems[d--];
	return volume_of(d + 1, piece->shape_elems);
}

static void place_in_flat(tiling *t, int64_t owner)
{
	const zcc_piece *piece = &t->shard->pieces[owner].piece;
	int64_t run_elems, n = count_runs(piece, &run_elems), index[ZCC_MAX_NDIM] = {0};
	for (int64_t i = 0; i < n; i++) {
		zcci_box *box = &t->boxes[t->n_boxes];
		box->origin[0] = piece->dest_offset_elems;
		box->shape[0] = run_elems;
		for (int32_t d = 0; d < piece->ndim; d++)
			box->origin[0] += index[d] * piece->dest_strides_elems[d];
		t->owners[t->n_boxes++] = owner;
		/* The axes of a run never get their turn: there are n of the others. */
		int32_t d = piece->ndim - 1;
		for (int64_t inner = 1; d >= 0 && inner < run_elems; d--)
			inner *= piece->shape_elems[d];
		for (; d >= 0 && ++index[d] == piece->shape_elems[d]; d--)
			index[d] = 0;
	}
}

static void place_in_shard(tiling *t, int64_t owner)
{
	const zcci_explicit_shard *shard = t->shard;
	const zcc_piece *piece = &shard->pieces[owner].piece;
	if (shard->ndim != piece->ndim) {
		place_in_flat(t, owner);
		return;
	}
	zcci_box *box = &t->boxes[t->n_boxes];
	int64_t rest = piece->dest_offset_elems;
	for (int32_t d = 0; d < shard->ndim; d++) {
		box->origin[d] = rest / shard->strides_elems[d];
		rest %= shard->strides_elems[d];
		box->shape[d] = piece->shape_elems[d];
	}
	t->owners[t->n_boxes++] = owner;
}

static zcc_status count_boxes(const check *c, const zcci_explicit_shard *shard, int64_t *n)
{
	*n = 0;
	for (int64_t i = 0; i < shard->n_pieces; i++) {
		int64_t run_elems, runs = 1;
		if (shard->ndim != shard->pieces[i].piece.ndim)
			runs = count_runs(&shard->pieces[i].piece, &run_elems);
		if (runs > MOST_BOXES - *n)
			return zcci_fail(c->error, ZCC_ELAYOUT, 0, "layout validate",
			                 "parameter %s, rank %d: its pieces are more than %d runs of the flat shard",
			                 c->map->base.info.name, shard->rank, MOST_BOXES);
		*n += runs;
	}
	return ZCC_OK;
}

static zcc_status check_tiling(const check *c, const zcci_explicit_shard *shard)
{
	if (shard->n_pieces < 2)
		return ZCC_OK;
	int64_t n;
	zcc_status status = count_boxes(c, shard, &n);
	if (status != ZCC_OK)
		return status;
	tiling t = {c, shard, zcci_calloc(n, sizeof *t.boxes), zcci_calloc(n, sizeof *t.owners), 0, 0};
	zcci_boxtree *tree = NULL;
	if (t.boxes != NULL && t.owners != NULL) {
		for (int64_t i = 0; i < shard->n_pieces; i++)
			place_in_shard(&t, i);
		tree = zcci_boxtree_create(shard->ndim, t.boxes, n);
	}
	status = tree != NULL ? ZCC_OK : no_memory(c);
	for (; t.at < n && status == ZCC_OK; t.at++) {
		status = zcci_boxtree_overlaps(tree, t.at, refuse_twice, &t);
		if (status == ZCC_ELAYOUT)
			too_intricate(c);
	}
	zcci_boxtree_destroy(tree);
	zcci_free(t.boxes);
	zcci_free(t.owners);
	return status;
}

/* ---- agreement: among ranks ---- */

static int compare_refs(const void *left, const void *right)
{
	const ref *a = left, *b = right;
	for (int32_t d = 0; d < ZCC_MAX_NDIM; d++)
		if (a->piece->piece.origin_elems[d] != b->piece->piece.origin_elems[d])
			return a->piece->piece.origin_elems[d] < b->piece->piece.origin_elems[d] ? -1 : 1;
	for (int32_t d = 0; d < ZCC_MAX_NDIM; d++)
		if (a->piece->piece.shape_elems[d] != b->piece->piece.shape_elems[d])
			return a->piece->piece.shape_elems[d] < b->piece->piece.shape_elems[d] ? -1 : 1;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return (a->piece->number > b->piece->number) - (a->piece->number < b->piece->number);
}

static bool same_box(const zcc_piece *a, const zcc_piece *b)
{
	return memcmp(a->origin_elems, b->origin_elems, sizeof a->origin_elems) == 0 &&
	       memcmp(a->shape_elems, b->shape_elems, sizeof a->shape_elems) == 0;
}

/* Two pieces that share elements must list the same holders and the same scale. */
static zcc_status compare_pieces(const check *c, const ref *a, const ref *b)
{
	box_text texts[2];
	const zcc_piece *p = &a->piece->piece, *q = &b->piece->piece;
	if (a->rank == b->rank)
		return refuse(c, "rank %d: pieces %lld (%s) and %lld (%s) store the same elements", a->rank,
		              (long long)a->piece->number, describe(c, p, &texts[0]), (long long)b->piece->number,
		              describe(c, q, &texts[1]));
	if (p->holders != q->holders)
		return refuse(c,
		              "rank %d, piece %lld (%s) and rank %d, piece %lld (%s) share elements but list different "
		              "locations: %d and "
		              "%d ranks, the first %d and %d",
		              a->rank, (long long)a->piece->number, describe(c, p, &texts[0]), b->rank,
		              (long long)b->piece->number, describe(c, q, &texts[1]), p->n_holders, q->n_holders,
		              p->holders[0], q->holders[0]);
	if (p->scale != q->scale)
		return refuse(c,
		              "rank %d, piece %lld (%s) and rank %d, piece %lld (%s) share elements but have scales %g "
		              "and %g",
		              a->rank, (long long)a->piece->number, describe(c, p, &texts[0]), b->rank,
		              (long long)b->piece->number, describe(c, q, &texts[1]), p->scale, q->scale);
	return ZCC_OK;
}

static zcc_status find_groups(check *c)
{
	for (int64_t i = 0; i < c->n_refs; i++) {
		const ref *r = &c->refs[i];
		group *last = c->n_groups > 0 ? &c->groups[c->n_groups - 1] : NULL;
		if (last == NULL || !same_box(&c->refs[last->first].piece->piece, &r->piece->piece)) {
			zcci_box *box = &c->boxes[c->n_groups];
			memcpy(box->origin, r->piece->piece.origin_elems, sizeof box->origin);
			memcpy(box->shape, r->piece->piece.shape_elems, sizeof box->shape);
			c->groups[c->n_groups++] = (group){i, 1};
			continue;
		}
		zcc_status status = compare_pieces(c, &c->refs[i - 1], r);
		if (status != ZCC_OK)
			return status;
		last->n++;
	}
	return ZCC_OK;
}

/* Both lists ascend by rank. */
static zcc_status refuse_shared_rank(const check *c, const group *a, const group *b)
{
	for (int64_t i = a->first, k = b->first; i < a->first + a->n && k < b->first + b->n;) {
		if (c->refs[i].rank == c->refs[k].rank)
			return compare_pieces(c, &c->refs[i], &c->refs[k]);
		if (c->refs[i].rank < c->refs[k].rank)
			i++;
		else
			k++;
	}
	return ZCC_OK;
}

static zcc_status meet_group(void *context, int64_t k)
{
	check *c = context;
	const group *here = &c->groups[c->at], *there = &c->groups[k];
	const ref *a = &c->refs[here->first], *b = &c->refs[there->first];
	zcc_status status = refuse_shared_rank(c, here, there);
	if (status == ZCC_OK)
		status = compare_pieces(c, a, b);
	if (status != ZCC_OK)
		return status;
	c->stored += (__int128)zcci_box_common(c->map->base.info.ndim, &c->boxes[c->at], &c->boxes[k]) * there->n;
	if (c->map->cut_here == NULL) {
		c->map->cut_here = &a->piece->piece;
		c->map->cut_here_rank = a->rank;
		c->map->cut_there = &b->piece->piece;
		c->map->cut_there_rank = b->rank;
	}
	return ZCC_OK;
}

/* Finds the listed rank that does not store all of the group's box, for the message. */
static zcc_status refuse_false_holder(const check *c, const ref *r)
{
	const zcc_piece *piece = &r->piece->piece;
	const zcci_box *box = &c->boxes[c->at];
	int32_t ndim = c->map->base.info.ndim;
	int64_t elems = volume_of(ndim, piece->shape_elems), stored = 0;
	int32_t rank = -1;
	for (int32_t h = 0; h < piece->n_holders && rank < 0; h++) {
		const zcci_explicit_shard *shard = zcci_explicit_shard_of(c->map, piece->holders[h]);
		stored = 0;
		for (int64_t i = 0; shard != NULL && i < shard->n_pieces; i++) {
			zcci_box other;
			memcpy(other.origin, shard->pieces[i].piece.origin_elems, sizeof other.origin);
			memcpy(other.shape, shard->pieces[i].piece.shape_elems, sizeof other.shape);
			stored += zcci_box_common(ndim, box, &other);
		}
		if (stored < elems)
			rank = piece->holders[h];
	}
	box_text text;
	return refuse(c, "rank %d, piece %lld (%s) lists rank %d as a location, which stores %lld of its %lld elements",
	              r->rank, (long long)r->piece->number, describe(c, piece, &text), rank, (long long)stored,
	              (long long)elems);
}

/* Every rank listed stores every element of the box: as each stores an element once and all list the same, counting is
 * enough. */
static zcc_status check_group(check *c, zcci_boxtree *tree)
{
	const group *g = &c->groups[c->at];
	const ref *r = &c->refs[g->first];
	c->stored = 0;
	zcc_status status = zcci_boxtree_overlaps(tree, c->at, meet_group, c);
	if (status != ZCC_OK)
		return status == ZCC_ELAYOUT ? too_intricate(c) : status;
	int64_t elems = volume_of(c->map->base.info.ndim, r->piece->piece.shape_elems);
	if (c->stored + (__int128)elems * g->n != (__int128)elems * r->piece->piece.n_holders)
		return refuse_false_holder(c, r);
	return ZCC_OK;
}

/* ---- coverage ---- */

/* The pieces of each block's lowest holder are disjoint and together what is stored. */
static zcc_status check_coverage(const check *c)
{
	const zcc_param_info *info = &c->map->base.info;
	int64_t covered = 0;
	for (int64_t i = 0; i < c->n_refs; i++) {
		const zcc_piece *piece = &c->refs[i].piece->piece;
		if (piece->holders[0] == c->refs[i].rank)
			covered += volume_of(info->ndim, piece->shape_elems);
	}
	char text[160];
	if (covered != info->elems)
		return refuse(c, "shape %s: the pieces of its %d ranks cover %lld of its %lld elements",
		              zcci_list_text(text, sizeof text, info->shape_elems, info->ndim), c->map->n_shards,
		              (long long)covered, (long long)info->elems);
	return ZCC_OK;
}

static zcc_status check_among_ranks(check *c)
{
	int64_t n = 0;
	for (int32_t s = 0; s < c->map->n_shards; s++)
		for (int64_t i = 0; i < c->map->shards[s].n_pieces; i++)
			c->refs[n++] = (ref){&c->map->shards[s].pieces[i], c->map->shards[s].rank};
	if (n > 1)
		qsort(c->refs, (size_t)n, sizeof *c->refs, compare_refs);
	zcc_status status = find_groups(c);
	if (status != ZCC_OK)
		return status;
	zcci_boxtree *tree = zcci_boxtree_create(c->map->base.info.ndim, c->boxes, c->n_groups);
	status = tree != NULL ? ZCC_OK : no_memory(c);
	for (c->at = 0; c->at < c->n_groups && status == ZCC_OK; c->at++)
		status = check_group(c, tree);
	zcci_boxtree_destroy(tree);
	return status == ZCC_OK ? check_coverage(c) : status;
}

zcc_status zcci_explicit_finish(zcci_explicit *map, zcc_error *error)
{
	check c = {.map = map, .error = error};
	for (int32_t s = 0; s < map->n_shards; s++) {
		zcci_explicit_shard *shard = &map->shards[s];
		c.n_refs += shard->n_pieces;
		if (shard->n_pieces > 1)
			qsort(shard->pieces, (size_t)shard->n_pieces, sizeof *shard->pieces, compare_dest);
	}
	zcc_status status = ZCC_OK;
	for (int32_t s = 0; s < map->n_shards && status == ZCC_OK; s++)
		status = check_tiling(&c, &map->shards[s]);
	if (status != ZCC_OK)
		return status;
	c.refs = zcci_calloc(c.n_refs, sizeof *c.refs);
	c.groups = zcci_calloc(c.n_refs, sizeof *c.groups);
	c.boxes = zcci_calloc(c.n_refs, sizeof *c.boxes);
	status = c.refs != NULL && c.groups != NULL && c.boxes != NULL ? check_among_ranks(&c) : no_memory(&c);
	zcci_free(c.refs);
	zcci_free(c.groups);
	zcci_free(c.boxes);
	return status;
}
