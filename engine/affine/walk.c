#include "affine/structured.h"

#include <string.h>

#include "affine/nest.h"
#include "base/status.h"

/* Intervals of all axes that are kept on the stack; more are allocated. */
enum { FEW_INTERVALS = 40 };

/* A shard before the flat cut. */
typedef struct local {
	int64_t shape[ZCC_MAX_NDIM];
	int64_t strides[ZCC_MAX_NDIM];
	int64_t elems;
	int64_t part; /* elements of the shard after the flat cut, padding included, and where it begins and ends */
	int64_t begin;
	int64_t end;
	int32_t n[ZCC_MAX_NDIM];
	const zcci_interval *intervals[ZCC_MAX_NDIM];
	zcci_interval few[FEW_INTERVALS];
	zcci_interval *many; /* NULL where few are enough */
} local;

/* The rank's coordinates; false where it stores nothing of the parameter. */
bool zcci_structured_coords(const zcci_structured *map, int32_t rank, int32_t coords[ZCCI_MAX_AXES])
{
	const zcci_mesh *mesh = map->mesh;
	int32_t rest = rank - mesh->base_rank;
	if (rest < 0 || rest >= mesh->n_ranks)
		return false;
	for (int32_t a = 0; a < mesh->n_axes; a++) {
		coords[a] = rest / mesh->steps[a];
		rest %= mesh->steps[a];
		if (map->owner[a] >= 0 && map->owner[a] != coords[a])
			return false;
	}
	return true;
}

/* Position within the group that shares one copy. */
int32_t zcci_structured_place(const zcci_structured *map, const int32_t *coords)
{
	int32_t combined = 0;
	for (int32_t i = 0; i < map->n_flat; i++)
		combined = combined * map->mesh->sizes[map->flat[i]] + coords[map->flat[i]];
	return combined % map->group;
}

static void find_shape(const zcci_structured *map, const int32_t *coords, local *shard)
{
	memcpy(shard->shape, map->base.info.shape_elems, sizeof shard->shape);
	for (int32_t i = 0; i < map->n_cuts; i++)
		shard->shape[map->cuts[i].dim] = zcci_cut_extent(&map->cuts[i], coords[map->cuts[i].axis]);
	zcci_row_major(map->base.info.ndim, shard->shape, shard->strides, &shard->elems);
	shard->begin = 0;
	shard->part = shard->end = shard->elems;
	if (map->n_flat == 0)
		return;
	int64_t unit = map->group * map->align;
	shard->part = (shard->elems + unit - 1) / unit * map->align;
	shard->begin = shard->part * zcci_structured_place(map, coords);
	shard->end = shard->begin + shard->part;
	shard->begin = shard->begin < shard->elems ? shard->begin : shard->elems;
	shard->end = shard->end < shard->elems ? shard->end : shard->elems;
}

int32_t zcci_structured_shape(const zcci_structured *map, const int32_t *coords, int64_t shape[ZCC_MAX_NDIM])
{
	local shard;
	find_shape(map, coords, &shard);
	if (map->n_flat > 0) {
		shape[0] = shard.part;
		return 1;
	}
	memcpy(shape, shard.shape, sizeof shard.shape);
	return map->base.info.ndim;
}

/* Free shard->many afterwards. */
static bool find_intervals(const zcci_structured *map, const int32_t *coords, local *shard)
{
	zcci_interval *next = shard->few;
	shard->many = NULL;
	if (map->all_room > FEW_INTERVALS) {
		next = shard->many = zcci_calloc(map->all_room, sizeof *next);
		if (next == NULL)
			return false;
	}
	for (int32_t d = 0; d < map->base.info.ndim; d++) {
		zcci_interval *from = next, *to = next + map->room[d];
		next = to + map->room[d];
		int64_t extent = map->base.info.shape_elems[d];
		int32_t n = extent > 0;
		*from = (zcci_interval){.length = extent};
		for (int32_t i = 0; i < map->n_cuts; i++) {
			const zcci_cut *cut = &map->cuts[i];
			if (cut->dim != d)
				continue;
			n = zcci_cut_apply(cut, coords[cut->axis], from, n, to);
			zcci_interval *swap = from;
			from = to;
			to = swap;
		}
		shard->intervals[d] = from;
		shard->n[d] = n;
	}
	return true;
}

/* ---- walking the pieces ---- */

/* The pieces that lie in one box of the shard, in its order. */
static zcc_status visit_box(const zcci_structured *map, const int32_t *coords, const local *shard, const zcci_box *box,
                            zcci_visit each, void *context)
{
	int32_t ndim = map->base.info.ndim;
	int32_t first[ZCC_MAX_NDIM], last[ZCC_MAX_NDIM], at[ZCC_MAX_NDIM];
	for (int32_t d = 0; d < ndim; d++) {
		const zcci_interval *list = shard->intervals[d];
		int32_t i = 0;
		while (i < shard->n[d] && list[i].local + list[i].length <= box->origin[d])
			i++;
		first[d] = at[d] = i;
		while (i < shard->n[d] && list[i].local < box->origin[d] + box->shape[d])
			i++;
		last[d] = i - 1;
		if (last[d] < first[d])
			return ZCC_OK;
	}
	for (;;) {
		zcci_found piece = {.coords = coords, .dest_offset = -shard->begin, .dest_strides = shard->strides};
		for (int32_t d = 0; d < ndim; d++) {
			const zcci_interval *part = &shard->intervals[d][at[d]];
			int64_t from = part->local > box->origin[d] ? part->local : box->origin[d];
			int64_t to = part->local + part->length;
			to = to < box->origin[d] + box->shape[d] ? to : box->origin[d] + box->shape[d];
			piece.shape[d] = to - from;
			piece.origin[d] = part->start + from - part->local;
			piece.dest_offset += from * shard->strides[d];
			for (int32_t a = 0; a < map->mesh->n_axes; a++) {
				if (map->dim_of[a] != d)
					continue;
				piece.low[a] = part->low[a];
				piece.high[a] = part->high[a];
			}
		}
		zcc_status status = each(context, &piece);
		if (status != ZCC_OK)
			return status;
		int32_t d = ndim - 1;
		while (d >= 0 && at[d] == last[d]) {
			at[d] = first[d];
			d--;
		}
		if (d < 0)
			return ZCC_OK;
		at[d]++;
	}
}

/* All pieces of the shard at these coordinates, ascending dest offset. Stops at the first status that is not ok. */
zcc_status zcci_structured_walk(const zcci_structured *map, const int32_t *coords, zcci_visit each, void *context,
                                zcc_error *error)
{
	local shard;
	find_shape(map, coords, &shard);
	if (shard.begin == shard.end)
		return ZCC_OK;
	if (!find_intervals(map, coords, &shard))
		return zcci_fail(error, ZCC_ENOMEM, 0, "layout map", "parameter %s: no memory for its pieces",
		                 map->base.info.name);
	zcci_box boxes[ZCCI_NEST_MAX];
	int32_t n = zcci_nest(map->base.info.ndim, shard.shape, shard.begin, shard.end, boxes);
	zcc_status status = ZCC_OK;
	for (int32_t i = 0; i < n && status == ZCC_OK; i++)
		status = visit_box(map, coords, &shard, &boxes[i], each, context);
	zcci_free(shard.many);
	return status;
}

/* Every distinct piece once: all coordinates that cut, one of those that replicate. */
zcc_status zcci_structured_walk_distinct(const zcci_structured *map, zcci_visit each, void *context, zcc_error *error)
{
	const zcci_mesh *mesh = map->mesh;
	int32_t coords[ZCCI_MAX_AXES] = {0};
	for (int32_t a = 0; a < mesh->n_axes; a++)
		coords[a] = map->owner[a] >= 0 ? map->owner[a] : 0;
	for (;;) {
		for (int32_t g = 0; g < map->group; g++) {
			int32_t rest = g;
			for (int32_t i = map->n_flat - 1; i >= 0; i--) {
				coords[map->flat[i]] = rest % mesh->sizes[map->flat[i]];
				rest /= mesh->sizes[map->flat[i]];
			}
			zcc_status status = zcci_structured_walk(map, coords, each, context, error);
			if (status != ZCC_OK)
				return status;
		}
		int32_t a = mesh->n_axes - 1;
		while (a >= 0 && (map->dim_of[a] < 0 || coords[a] == mesh->sizes[a] - 1)) {
			coords[a] = map->dim_of[a] < 0 ? coords[a] : 0;
			a--;
		}
		if (a < 0)
			return ZCC_OK;
		coords[a]++;
	}
}
