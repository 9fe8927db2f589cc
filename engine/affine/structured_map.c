/* What a structured map answers: shards, pieces, blocks, holders. */
#include "affine/structured.h"

#include <stdlib.h>
#include <string.h>

#include "affine/holders.h"
#include "base/status.h"

static zcc_status no_memory(const zcci_structured *map, zcc_error *error)
{
	return zcci_fail(error, ZCC_ENOMEM, 0, "layout map", "parameter %s: no memory for its pieces",
	                 map->base.info.name);
}

/* What the holders of a piece follow from; equal keys, equal lists. Compared as bytes, so it is zeroed first. */
typedef struct holders_key {
	const zcci_mesh *mesh;
	int32_t low[ZCCI_MAX_AXES]; /* all coordinates but those of the flat cut */
	int32_t high[ZCCI_MAX_AXES];
	int32_t n_flat;
	int32_t flat[ZCCI_MAX_AXES];
	int32_t flat_coords;
	int32_t group;
	int32_t place; /* within the group */
	int32_t n_holders;
} holders_key;

static void find_key(const zcci_structured *map, const zcci_found *piece, holders_key *key)
{
	memset(key, 0, sizeof *key);
	key->mesh = map->mesh;
	key->n_flat = map->n_flat;
	memcpy(key->flat, map->flat, sizeof key->flat);
	key->flat_coords = map->flat_coords;
	key->group = map->group;
	key->place = zcci_structured_place(map, piece->coords);
	key->n_holders = map->flat_coords / map->group;
	for (int32_t a = 0; a < map->mesh->n_axes; a++) {
		bool cuts = map->dim_of[a] >= 0, owned = map->owner[a] >= 0;
		key->low[a] = cuts ? piece->low[a] : owned ? map->owner[a] : 0;
		key->high[a] = cuts ? piece->high[a] : owned ? map->owner[a] + 1 : map->mesh->sizes[a];
	}
	for (int32_t i = 0; i < map->n_flat; i++)
		key->low[map->flat[i]] = key->high[map->flat[i]] = 0;
	for (int32_t a = 0; a < map->mesh->n_axes; a++)
		key->n_holders *= key->high[a] > key->low[a] ? key->high[a] - key->low[a] : 1;
}

static int compare_ranks(const void *left, const void *right)
{
	int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
	return (a > b) - (a < b);
}

static void fill_holders(const void *bytes, int32_t *ranks)
{
	const holders_key *key = bytes;
	const zcci_mesh *mesh = key->mesh;
	int32_t n = 0;
	for (int32_t k = key->place; k < key->flat_coords; k += key->group) {
		ranks[n] = mesh->base_rank;
		for (int32_t i = key->n_flat - 1, rest = k; i >= 0; i--) {
			ranks[n] += rest % mesh->sizes[key->flat[i]] * mesh->steps[key->flat[i]];
			rest /= mesh->sizes[key->flat[i]];
		}
		n++;
	}
	for (int32_t a = 0; a < mesh->n_axes; a++) {
		if (key->high[a] == key->low[a])
			continue;
		int32_t before = n;
		for (int32_t i = 0; i < before; i++)
			ranks[i] += key->low[a] * mesh->steps[a];
		for (int32_t c = key->low[a] + 1; c < key->high[a]; c++)
			for (int32_t i = 0; i < before; i++)
				ranks[n++] = ranks[i] + (c - key->low[a]) * mesh->steps[a];
	}
	qsort(ranks, (size_t)n, sizeof *ranks, compare_ranks);
}

static const int32_t *holders_of(const zcci_structured *map, const holders_key *key)
{
	return zcci_holders_get(map->base.holders, key, sizeof *key, key->n_holders, fill_holders);
}

/* ---- what the interface asks ---- */

static zcc_status count_one(void *context, const zcci_found *piece)
{
	(void)piece;
	++*(int64_t *)context;
	return ZCC_OK;
}

static zcc_status structured_shard(const zcci_map *base, int32_t rank, zcc_shard_info *info, zcc_error *error)
{
	const zcci_structured *map = (const zcci_structured *)base;
	int32_t coords[ZCCI_MAX_AXES];
	zcc_shard_info result = {0};
	if (zcci_structured_coords(map, rank, coords)) {
		int64_t strides[ZCC_MAX_NDIM];
		result.present = 1;
		result.ndim = zcci_structured_shape(map, coords, result.shape_elems);
		zcci_row_major(result.ndim, result.shape_elems, strides, &result.elems);
		zcc_status status = zcci_structured_walk(map, coords, count_one, &result.n_pieces, error);
		if (status != ZCC_OK)
			return status;
	}
	*info = result;
	return ZCC_OK;
}

typedef struct piece_list {
	const zcci_structured *map;
	zcc_error *error;
	zcc_piece *pieces;
	int64_t capacity;
	int64_t n;
} piece_list;

static zcc_status add_piece(void *context, const zcci_found *piece)
{
	piece_list *list = context;
	const zcci_structured *map = list->map;
	if (list->n++ >= list->capacity)
		return ZCC_OK;
	holders_key key;
	find_key(map, piece, &key);
	zcc_piece *out = &list->pieces[list->n - 1];
	*out = (zcc_piece){.ndim = map->base.info.ndim,
	                   .n_holders = key.n_holders,
	                   .dest_offset_elems = piece->dest_offset,
	                   .holders = holders_of(map, &key),
	                   .scale = map->scale};
	memcpy(out->shape_elems, piece->shape, sizeof out->shape_elems);
	memcpy(out->origin_elems, piece->origin, sizeof out->origin_elems);
	memcpy(out->dest_strides_elems, piece->dest_strides, (size_t)out->ndim * sizeof *out->dest_strides_elems);
	return out->holders != NULL ? ZCC_OK : no_memory(map, list->error);
}

static zcc_status structured_pieces(const zcci_map *base, int32_t rank, zcc_piece *pieces, int64_t capacity,
                                    int64_t *n_pieces, zcc_error *error)
{
	int32_t coords[ZCCI_MAX_AXES];
	piece_list list = {(const zcci_structured *)base, error, pieces, capacity, 0};
	zcc_status status = ZCC_OK;
	if (zcci_structured_coords(list.map, rank, coords))
		status = zcci_structured_walk(list.map, coords, add_piece, &list, error);
	if (status == ZCC_OK)
		*n_pieces = list.n;
	return status;
}

typedef struct block_list {
	const zcci_structured *map;
	zcci_arena *arena; /* NULL: only holders are counted */
	zcc_error *error;
	zcci_block *blocks;
	int64_t capacity;
	int64_t n;
	int64_t n_holders; /* of all blocks */
} block_list;

/* Coordinates that store the same piece are all walked; the lowest of them stands for it. */
static bool stands_for_piece(const zcci_structured *map, const zcci_found *piece)
{
	for (int32_t a = 0; a < map->mesh->n_axes; a++)
		if (map->dim_of[a] >= 0 && piece->coords[a] != piece->low[a])
			return false;
	return true;
}

static bool reserve_block(block_list *list)
{
	if (list->n < list->capacity)
		return true;
	int64_t capacity = list->capacity > 0 ? 2 * list->capacity : 8;
	zcci_block *grown = zcci_arena_alloc(list->arena, capacity, sizeof *grown);
	if (grown == NULL)
		return false;
	if (list->n > 0)
		memcpy(grown, list->blocks, (size_t)list->n * sizeof *grown);
	list->blocks = grown;
	list->capacity = capacity;
	return true;
}

static zcc_status add_block(void *context, const zcci_found *piece)
{
	block_list *list = context;
	const zcci_structured *map = list->map;
	if (!stands_for_piece(map, piece))
		return ZCC_OK;
	holders_key key;
	find_key(map, piece, &key);
	list->n_holders += key.n_holders;
	if (list->arena == NULL)
		return ZCC_OK;
	const int32_t *holders = holders_of(map, &key);
	if (holders == NULL || !reserve_block(list))
		return no_memory(map, list->error);
	zcci_block *block = &list->blocks[list->n++];
	*block = (zcci_block){.scale = map->scale, .n_holders = key.n_holders, .holders = holders};
	memcpy(block->origin_elems, piece->origin, sizeof block->origin_elems);
	memcpy(block->shape_elems, piece->shape, sizeof block->shape_elems);
	return ZCC_OK;
}

static zcc_status structured_blocks(const zcci_map *base, zcci_arena *arena, zcci_block **blocks, int64_t *n_blocks,
                                    zcc_error *error)
{
	block_list list = {.map = (const zcci_structured *)base, .arena = arena, .error = error};
	zcc_status status = zcci_structured_walk_distinct(list.map, add_block, &list, error);
	if (status == ZCC_OK) {
		*blocks = list.blocks;
		*n_blocks = list.n;
	}
	return status;
}

/* A piece lies on each holder of its block and nowhere else. */
static zcc_status structured_count(const zcci_map *base, int64_t *n_pieces, zcc_error *error)
{
	block_list list = {.map = (const zcci_structured *)base, .error = error};
	zcc_status status = zcci_structured_walk_distinct(list.map, add_block, &list, error);
	if (status == ZCC_OK)
		*n_pieces = list.n_holders;
	return status;
}

/* zcci_structured_create refuses whatever could break a rule: parts add up to the axis, every unit has a coordinate,
 * and replicas are cut at the same places. */
static zcc_status structured_validate(const zcci_map *base, zcc_error *error)
{
	(void)base;
	(void)error;
	return ZCC_OK;
}

const zcci_map_ops zcci_structured_ops = {
        .shard = structured_shard,
        .pieces = structured_pieces,
        .blocks = structured_blocks,
        .count = structured_count,
        .validate = structured_validate,
};
