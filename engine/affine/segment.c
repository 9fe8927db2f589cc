/* Segments: every chosen region as one strided copy from the holder's shard into the target's. */
#include "affine/plan_impl.h"

#include <stdlib.h>
#include <string.h>

#include "affine/map.h"
#include "base/status.h"

/* The pieces of one source shard, ordered by their origin in the parameter. */
typedef struct shard {
	int32_t param; /* target index of the parameter they belong to, −1 for none yet */
	zcc_piece *pieces;
	int64_t n_pieces;
} shard;

typedef struct composer {
	zcc_plan *plan;
	const zcci_plan_param *param;
	zcci_arena *scratch;  /* reset before every parameter */
	const int32_t *ranks; /* of the source, ascending */
	int32_t n_ranks;
	shard *shards; /* one a source rank */
	zcci_merger merger;
	zcc_segment *segments;
	int64_t n_segments;
} composer;

static int compare_origins(const int64_t *a, const int64_t *b, int32_t ndim)
{
	for (int32_t i = 0; i < ndim; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

static int compare_pieces(const void *a, const void *b)
{
	const zcc_piece *x = a, *y = b;
	return compare_origins(x->origin_elems, y->origin_elems, x->ndim);
}

static int compare_ranks(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	return x < y ? -1 : x > y;
}

static zcc_status load_shard(composer *c, int32_t param, int32_t rank, const shard **out, zcc_error *error)
{
	const int32_t *at = bsearch(&rank, c->ranks, (size_t)c->n_ranks, sizeof rank, compare_ranks);
	if (at == NULL)
		return zcci_fail(error, ZCC_EMAP, 0, "plan build", "parameter %s: holder %d is no rank of the source",
		                 c->param->info.name, (int)rank);
	shard *s = &c->shards[at - c->ranks];
	*out = s;
	if (s->param == param)
		return ZCC_OK;
	zcc_status status = zcci_layout_shard_pieces(c->plan->source, c->param->source_param, rank, c->scratch,
	                                             &s->pieces, &s->n_pieces, error);
	if (status != ZCC_OK)
		return status;
	if (s->n_pieces > 1)
		qsort(s->pieces, (size_t)s->n_pieces, sizeof *s->pieces, compare_pieces);
	s->param = param;
	return ZCC_OK;
}

/* The piece that begins where the block begins; pieces of one shard are disjoint, so there is one at most. */
static const zcc_piece *find_piece(const shard *s, const int64_t *origin, int32_t ndim)
{
	int64_t low = 0, high = s->n_pieces;
	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		int order = compare_origins(s->pieces[middle].origin_elems, origin, ndim);
		if (order == 0)
			return &s->pieces[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

static bool contains(const zcc_piece *piece, const zcc_region *region)
{
	for (int32_t i = 0; i < piece->ndim; i++)
		if (region->origin_elems[i] + region->shape_elems[i] > piece->origin_elems[i] + piece->shape_elems[i])
			return false;
	return true;
}

static zcc_status compose(composer *c, int64_t index, zcc_error *error)
{
	const zcc_region *region = &c->plan->regions[index];
	const zcci_place *place = &c->plan->places[index];
	int32_t ndim = c->param->info.ndim;
	int32_t rank = region->holders[region->chosen];
	const shard *s = NULL;
	zcc_status status = load_shard(c, region->param, rank, &s, error);
	if (status != ZCC_OK)
		return status;
	const zcc_piece *piece = find_piece(s, place->block_origin_elems, ndim);
	if (piece == NULL || !contains(piece, region)) {
		char origin[192];
		return zcci_fail(
		        error, ZCC_EMAP, 0, "plan build",
		        "parameter %s: source rank %d is named as a holder of the block at %s and has no such piece",
		        c->param->info.name, (int)rank,
		        zcci_list_text(origin, sizeof origin, place->block_origin_elems, ndim));
	}

	zcc_segment *segment = &c->segments[c->n_segments++];
	*segment = (zcc_segment){
	        .param = region->param,
	        .source_rank = rank,
	        .target_rank = region->target_rank,
	        .ndim = ndim,
	        .elems = region->elems,
	        .source_offset_elems = piece->dest_offset_elems,
	        .target_offset_elems = place->target_offset_elems,
	        .factor = place->factor,
	};
	for (int32_t i = 0; i < ndim; i++) {
		segment->shape_elems[i] = region->shape_elems[i];
		segment->origin_elems[i] = region->origin_elems[i];
		segment->source_strides_elems[i] = piece->dest_strides_elems[i];
		segment->target_strides_elems[i] = place->target_strides_elems[i];
		segment->source_offset_elems +=
		        (region->origin_elems[i] - piece->origin_elems[i]) * piece->dest_strides_elems[i];
	}
	return ZCC_OK;
}

static int compare_segments(const void *a, const void *b)
{
	const zcc_segment *x = a, *y = b;
	if (x->source_rank != y->source_rank)
		return x->source_rank < y->source_rank ? -1 : 1;
	return x->target_offset_elems < y->target_offset_elems ? -1 : x->target_offset_elems > y->target_offset_elems;
}

static void order_segments(zcc_segment *segments, int64_t n)
{
	for (int64_t i = 1; i < n; i++)
		if (compare_segments(&segments[i - 1], &segments[i]) > 0) {
			qsort(segments, (size_t)n, sizeof *segments, compare_segments);
			return;
		}
}

/* Segments from `first` on are those of one parameter and target rank: brings them into order and joins what one source
 * rank sends. */
static zcc_status merge_rank(composer *c, int64_t first, zcc_error *error)
{
	order_segments(c->segments + first, c->n_segments - first);
	int64_t kept = first;
	for (int64_t begin = first, end; begin < c->n_segments; begin = end) {
		for (end = begin + 1; end < c->n_segments; end++)
			if (c->segments[end].source_rank != c->segments[begin].source_rank)
				break;
		int64_t n = end - begin;
		zcc_status status = n > 1 ? zcci_merge_segments(&c->merger, c->segments + begin, &n, error) : ZCC_OK;
		if (status != ZCC_OK)
			return status;
		if (kept != begin)
			memmove(c->segments + kept, c->segments + begin, (size_t)n * sizeof *c->segments);
		kept += n;
	}
	c->n_segments = kept;
	return ZCC_OK;
}

static zcc_status build_param(composer *c, int32_t param, zcc_error *error)
{
	const zcc_plan *plan = c->plan;
	c->param = &plan->params[param];
	plan->params[param].first_segment = c->n_segments;
	zcci_arena_reset(c->scratch);
	int64_t end = plan->params[param + 1].first_region;
	for (int64_t i = c->param->first_region; i < end;) {
		int64_t first = c->n_segments;
		int32_t rank = plan->regions[i].target_rank;
		zcc_status status = ZCC_OK;
		for (; status == ZCC_OK && i < end && plan->regions[i].target_rank == rank; i++)
			status = compose(c, i, error);
		if (status == ZCC_OK)
			status = merge_rank(c, first, error);
		if (status != ZCC_OK)
			return status;
	}
	return ZCC_OK;
}

static zcc_status count_bytes(const zcc_plan *plan, zcc_plan_stats *stats, zcc_error *error)
{
	for (int64_t i = 0; i < plan->n_regions; i++) {
		const zcc_region *r = &plan->regions[i];
		bool local = r->holders[r->chosen] == r->target_rank;
		int64_t *bytes = local ? &stats->local_bytes : &stats->sent_bytes;
		if (zcci_add_overflows(stats->elems, r->elems, &stats->elems) ||
		    zcci_add_overflows(*bytes, r->bytes, bytes))
			return zcci_fail(error, ZCC_EOVERFLOW, 0, "plan build",
			                 "the bytes of all regions do not fit 63 bits");
	}
	return ZCC_OK;
}

static zcc_status check_chosen(const zcc_plan *plan, zcc_error *error)
{
	for (int64_t i = 0; i < plan->n_regions; i++) {
		const zcc_region *r = &plan->regions[i];
		if (r->chosen < 0)
			return zcci_fail(error, ZCC_EPOLICY, 0, "plan build",
			                 "parameter %s, target rank %d, region %lld: none of its %d holders was chosen",
			                 plan->params[r->param].info.name, (int)r->target_rank, (long long)i,
			                 (int)r->n_holders);
	}
	return ZCC_OK;
}

static zcc_status prepare(composer *c, zcc_error *error)
{
	c->ranks = zcc_layout_ranks(c->plan->source, &c->n_ranks);
	c->scratch = zcci_arena_create();
	c->shards = zcci_malloc(c->n_ranks * (int64_t)sizeof *c->shards);
	c->segments = zcci_malloc(c->plan->n_regions * (int64_t)sizeof *c->segments);
	if (c->scratch == NULL || c->shards == NULL || c->segments == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "plan build", "no memory for %lld segments",
		                 (long long)c->plan->n_regions);
	for (int32_t i = 0; i < c->n_ranks; i++)
		c->shards[i].param = -1;
	return ZCC_OK;
}

static void publish(zcc_plan *plan, composer *c, const zcc_plan_stats *stats)
{
	/* Shrinking may fail without harm. */
	zcc_segment *shrunk = zcci_realloc(c->segments, c->n_segments, sizeof *c->segments);
	plan->segments = shrunk != NULL ? shrunk : c->segments;
	c->segments = NULL;
	plan->params[plan->n_params].first_segment = c->n_segments;
	plan->stats = *stats;
	plan->stats.segments = c->n_segments;
	plan->built = true;
	zcci_free(plan->places);
	zcci_arena_destroy(plan->draft);
	plan->places = NULL;
	plan->draft = NULL;
}

zcc_status zcc_plan_build(zcc_plan *plan, zcc_error *error)
{
	if (plan->built)
		return zcci_fail(error, ZCC_EINVAL, 0, "plan build", "the segments are built already");
	zcc_status status = check_chosen(plan, error);
	zcc_plan_stats stats = plan->stats;
	if (status == ZCC_OK)
		status = count_bytes(plan, &stats, error);
	if (status != ZCC_OK)
		return status;
	composer c = {.plan = plan};
	status = prepare(&c, error);
	for (int32_t param = 0; status == ZCC_OK && param < plan->n_params; param++)
		status = build_param(&c, param, error);
	if (status == ZCC_OK)
		publish(plan, &c, &stats);
	zcci_merger_free(&c.merger);
	zcci_free(c.shards);
	zcci_free(c.segments);
	zcci_arena_destroy(c.scratch);
	return status;
}
