/* Regions: every target piece cut at the borders of the source's blocks. */
#include "affine/plan_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kernels/strided.h"

/* What one block covers along the axis that the index is sorted by. */
typedef struct span {
	int64_t begin;
	int64_t end;
	int64_t reach; /* largest end of this span and all before it */
	int64_t block;
} span;

/* One target piece meeting one source block. */
typedef struct hit {
	int64_t target_offset;
	int64_t piece;
	int64_t block;
} hit;

typedef struct finder {
	zcc_plan *plan;
	zcci_arena *scratch; /* reset before every parameter */
	const zcci_plan_param *param;
	int32_t param_index;
	int32_t axis; /* the spans' axis */
	const zcci_block *blocks;
	span *spans;
	const int64_t **origins; /* copies of the blocks' origins that outlive the scratch, NULL until first used */
	int64_t n_blocks;
	hit *hits;
	int64_t n_hits;
	int64_t hits_capacity;
} finder;

static zcc_status out_of_memory(const finder *f, zcc_error *error)
{
	return zcci_fail(error, ZCC_ENOMEM, 0, "plan create", "parameter %s: no memory for its regions",
	                 f->param->info.name);
}

/* Makes room for one item more; false when memory is out. */
static bool grow(void **items, int64_t used, int64_t *capacity, int64_t item_bytes)
{
	if (used < *capacity)
		return true;
	int64_t wanted = *capacity > 0 ? *capacity * 2 : 64;
	void *moved = zcci_realloc(*items, wanted, item_bytes);
	if (moved == NULL)
		return false;
	*items = moved;
	*capacity = wanted;
	return true;
}

static int compare_spans(const void *a, const void *b)
{
	const span *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->block < y->block ? -1 : x->block > y->block;
}

/* A parameter without axes is one element: [0, 1). */
static void fill_spans(const finder *f, int32_t axis, span *spans)
{
	bool scalar = f->param->info.ndim == 0;
	for (int64_t i = 0; i < f->n_blocks; i++) {
		spans[i].begin = scalar ? 0 : f->blocks[i].origin_elems[axis];
		spans[i].end = scalar ? 1 : spans[i].begin + f->blocks[i].shape_elems[axis];
		spans[i].block = i;
	}
	qsort(spans, (size_t)f->n_blocks, sizeof *spans, compare_spans);
}

/* Sorts the blocks along the axis where they begin at most places: there a search leaves the fewest to look at. */
static zcc_status index_blocks(finder *f, zcc_error *error)
{
	f->spans = zcci_arena_alloc(f->scratch, f->n_blocks, sizeof *f->spans);
	f->origins = zcci_arena_alloc(f->scratch, f->n_blocks, sizeof *f->origins);
	if (f->spans == NULL || f->origins == NULL)
		return out_of_memory(f, error);
	int64_t best = 0;
	int32_t last = -1;
	for (int32_t axis = 0; axis < f->param->info.ndim && best < f->n_blocks; axis++) {
		fill_spans(f, axis, f->spans);
		last = axis;
		int64_t begins = f->n_blocks > 0;
		for (int64_t i = 1; i < f->n_blocks; i++)
			begins += f->spans[i].begin != f->spans[i - 1].begin;
		if (begins > best) {
			best = begins;
			f->axis = axis;
		}
	}
	if (last < 0 || last != f->axis)
		fill_spans(f, f->axis, f->spans);
	for (int64_t i = 0, reach = 0; i < f->n_blocks; i++) {
		reach = f->spans[i].end > reach ? f->spans[i].end : reach;
		f->spans[i].reach = reach;
	}
	return ZCC_OK;
}

static int64_t count_elems(const int64_t *shape, int32_t ndim)
{
	int64_t elems = 1;
	for (int32_t i = 0; i < ndim; i++)
		elems *= shape[i];
	return elems;
}

/* Elements of the box where a piece and a block meet, 0 where they do not; the box goes to origin and shape. */
static int64_t intersect(int32_t ndim, const zcc_piece *piece, const zcci_block *block, int64_t *origin, int64_t *shape)
{
	int64_t elems = 1;
	for (int32_t i = 0; i < ndim; i++) {
		int64_t a = piece->origin_elems[i], b = block->origin_elems[i];
		int64_t a_end = a + piece->shape_elems[i], b_end = b + block->shape_elems[i];
		origin[i] = a > b ? a : b;
		shape[i] = (a_end < b_end ? a_end : b_end) - origin[i];
		if (shape[i] <= 0)
			return 0;
		elems *= shape[i];
	}
	return elems;
}

static int64_t address(int32_t ndim, const zcc_piece *piece, const int64_t *origin)
{
	int64_t offset = piece->dest_offset_elems;
	for (int32_t i = 0; i < ndim; i++)
		offset += (origin[i] - piece->origin_elems[i]) * piece->dest_strides_elems[i];
	return offset;
}

/* First span whose reach passes begin: no span before it ends later. */
static int64_t first_span(const finder *f, int64_t begin)
{
	int64_t low = 0, high = f->n_blocks;
	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		if (f->spans[middle].reach > begin)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static zcc_status find_hits(finder *f, int32_t rank, const zcc_piece *pieces, int64_t piece, zcc_error *error)
{
	const zcc_piece *p = &pieces[piece];
	int32_t ndim = f->param->info.ndim;
	int64_t begin = ndim == 0 ? 0 : p->origin_elems[f->axis];
	int64_t end = ndim == 0 ? 1 : begin + p->shape_elems[f->axis];
	int64_t found = 0;
	for (int64_t i = first_span(f, begin); i < f->n_blocks && f->spans[i].begin < end; i++) {
		int64_t origin[ZCC_MAX_NDIM], shape[ZCC_MAX_NDIM];
		int64_t elems = intersect(ndim, p, &f->blocks[f->spans[i].block], origin, shape);
		if (elems == 0)
			continue;
		if (!grow((void **)&f->hits, f->n_hits, &f->hits_capacity, sizeof *f->hits))
			return out_of_memory(f, error);
		f->hits[f->n_hits++] = (hit){address(ndim, p, origin), piece, f->spans[i].block};
		found += elems;
	}
	int64_t wanted = count_elems(p->shape_elems, ndim);
	if (found != wanted)
		return zcci_fail(
		        error, ZCC_EMAP, 0, "plan create",
		        "parameter %s, target rank %d, piece %lld: it has %lld elements, the source offers %lld",
		        f->param->info.name, (int)rank, (long long)piece, (long long)wanted, (long long)found);
	return ZCC_OK;
}

static int compare_hits(const void *a, const void *b)
{
	const hit *x = a, *y = b;
	return x->target_offset < y->target_offset ? -1 : x->target_offset > y->target_offset;
}

static void order_hits(finder *f)
{
	for (int64_t i = 1; i < f->n_hits; i++)
		if (f->hits[i].target_offset < f->hits[i - 1].target_offset) {
			qsort(f->hits, (size_t)f->n_hits, sizeof *f->hits, compare_hits);
			return;
		}
}

static bool keep_origin(finder *f, int64_t block)
{
	if (f->origins[block] != NULL)
		return true;
	int64_t *origin = zcci_arena_alloc(f->plan->draft, f->param->info.ndim, sizeof *origin);
	if (origin == NULL)
		return false;
	memcpy(origin, f->blocks[block].origin_elems, (size_t)f->param->info.ndim * sizeof *origin);
	f->origins[block] = origin;
	return true;
}

static bool grow_regions(zcc_plan *plan)
{
	int64_t places_capacity = plan->regions_capacity;
	return grow((void **)&plan->places, plan->n_regions, &places_capacity, sizeof *plan->places) &&
	       grow((void **)&plan->regions, plan->n_regions, &plan->regions_capacity, sizeof *plan->regions);
}

static zcc_status scale_factor(const finder *f, int32_t rank, double target, double source, double *factor,
                               zcc_error *error)
{
	*factor = target / source;
	if (*factor == 1)
		return ZCC_OK;
	if (!isfinite(*factor) || *factor == 0)
		return zcci_fail(error, ZCC_EMAP, 0, "plan create",
		                 "parameter %s, target rank %d: scale %g in the target, %g in the source",
		                 f->param->info.name, (int)rank, target, source);
	if (zcci_convert_supported(f->param->info.dtype, f->param->source_dtype, *factor))
		return ZCC_OK;
	return zcci_fail(error, ZCC_ELAYOUT, 0, "plan create",
	                 "parameter %s, target rank %d: a scale of %g needs F16, BF16, F32 or F64, its dtype is %s",
	                 f->param->info.name, (int)rank, *factor, zcc_dtype_name(f->param->info.dtype));
}

static zcc_status add_region(finder *f, int32_t rank, const zcc_piece *piece, const int64_t *strides, const hit *h,
                             zcc_error *error)
{
	zcc_plan *plan = f->plan;
	const zcci_block *block = &f->blocks[h->block];
	if (!keep_origin(f, h->block) || !grow_regions(plan))
		return out_of_memory(f, error);
	zcc_region *region = &plan->regions[plan->n_regions];
	zcci_place *place = &plan->places[plan->n_regions];
	*region = (zcc_region){
	        .param = f->param_index,
	        .target_rank = rank,
	        .n_holders = block->n_holders,
	        .chosen = -1,
	        .holders = block->holders,
	};
	*place = (zcci_place){
	        .target_offset_elems = h->target_offset,
	        .target_strides_elems = strides,
	        .block_origin_elems = f->origins[h->block],
	};
	region->elems = intersect(f->param->info.ndim, piece, block, region->origin_elems, region->shape_elems);
	if (zcci_mul_overflows(region->elems, zcc_dtype_bytes(f->param->source_dtype), &region->bytes))
		return zcci_fail(error, ZCC_EOVERFLOW, 0, "plan create",
		                 "parameter %s: %lld elements of %s do not fit 63 bits", f->param->info.name,
		                 (long long)region->elems, zcc_dtype_name(f->param->source_dtype));
	zcc_status status = scale_factor(f, rank, piece->scale, block->scale, &place->factor, error);
	if (status == ZCC_OK)
		plan->n_regions++;
	return status;
}

/* All regions of one parameter on one target rank. Looks at nothing of other target ranks, so that one rank can be
 * planned alone. */
static zcc_status plan_rank(finder *f, int32_t rank, zcc_error *error)
{
	zcc_piece *pieces;
	int64_t n_pieces;
	zcc_status status =
	        zcci_layout_shard_pieces(f->plan->target, f->param_index, rank, f->scratch, &pieces, &n_pieces, error);
	f->n_hits = 0;
	for (int64_t i = 0; status == ZCC_OK && i < n_pieces; i++)
		status = find_hits(f, rank, pieces, i, error);
	if (status != ZCC_OK || n_pieces == 0)
		return status;

	int32_t ndim = f->param->info.ndim;
	int64_t *strides = zcci_arena_alloc(f->plan->draft, n_pieces * ndim, sizeof *strides);
	if (strides == NULL)
		return out_of_memory(f, error);
	for (int64_t i = 0; i < n_pieces; i++)
		memcpy(strides + i * ndim, pieces[i].dest_strides_elems, (size_t)ndim * sizeof *strides);
	order_hits(f);
	for (int64_t i = 0; status == ZCC_OK && i < f->n_hits; i++) {
		const hit *h = &f->hits[i];
		status = add_region(f, rank, &pieces[h->piece], strides + h->piece * ndim, h, error);
	}
	return status;
}

static zcc_status plan_param(finder *f, int32_t param, zcc_error *error)
{
	zcc_plan *plan = f->plan;
	f->param = &plan->params[param];
	f->param_index = param;
	f->axis = 0;
	plan->params[param].first_region = plan->n_regions;
	zcci_arena_reset(f->scratch);
	zcci_block *blocks;
	zcc_status status =
	        zcci_layout_blocks(plan->source, f->param->source_param, f->scratch, &blocks, &f->n_blocks, error);
	if (status != ZCC_OK)
		return status;
	f->blocks = blocks;
	status = index_blocks(f, error);
	int32_t n_ranks;
	const int32_t *ranks = zcc_layout_ranks(plan->target, &n_ranks);
	for (int32_t i = 0; status == ZCC_OK && i < n_ranks; i++)
		status = plan_rank(f, ranks[i], error);
	return status;
}

zcc_status zcci_plan_find_regions(zcc_plan *plan, zcc_error *error)
{
	finder f = {.plan = plan, .scratch = zcci_arena_create()};
	if (f.scratch == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "plan create", "no memory for the regions");
	zcc_status status = ZCC_OK;
	for (int32_t param = 0; status == ZCC_OK && param < plan->n_params; param++)
		status = plan_param(&f, param, error);
	plan->params[plan->n_params].first_region = plan->n_regions;
	zcci_free(f.hits);
	zcci_arena_destroy(f.scratch);
	return status;
}
