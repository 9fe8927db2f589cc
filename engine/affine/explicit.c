#include "affine/explicit.h"

#include <string.h>

#include "affine/holders.h"
#include "base/status.h"

const zcci_explicit_shard *zcci_explicit_shard_of(const zcci_explicit *map, int32_t rank)
{
	int32_t low = 0, high = map->n_shards;
	while (low < high) {
		int32_t middle = low + (high - low) / 2;
		if (map->shards[middle].rank < rank)
			low = middle + 1;
		else
			high = middle;
	}
	return low < map->n_shards && map->shards[low].rank == rank ? &map->shards[low] : NULL;
}

/* The key is the number of ranks and the ranks. */
static void copy_ranks(const void *key, int32_t *ranks)
{
	const int32_t *list = key;
	memcpy(ranks, list + 1, (size_t)list[0] * sizeof *ranks);
}

const int32_t *zcci_explicit_holders(zcci_explicit *map, int32_t *ranks, int32_t n)
{
	ranks[-1] = n;
	return zcci_holders_get(map->base.holders, ranks - 1, ((int64_t)n + 1) * (int64_t)sizeof *ranks, n, copy_ranks);
}

static zcc_status explicit_shard(const zcci_map *base, int32_t rank, zcc_shard_info *info, zcc_error *error)
{
	(void)error;
	const zcci_explicit_shard *shard = zcci_explicit_shard_of((const zcci_explicit *)base, rank);
	*info = (zcc_shard_info){0};
	if (shard == NULL)
		return ZCC_OK;
	info->present = 1;
	info->ndim = shard->ndim;
	memcpy(info->shape_elems, shard->shape_elems, sizeof info->shape_elems);
	info->elems = shard->elems;
	info->n_pieces = shard->n_pieces;
	return ZCC_OK;
}

static zcc_status explicit_pieces(const zcci_map *base, int32_t rank, zcc_piece *pieces, int64_t capacity,
                                  int64_t *n_pieces, zcc_error *error)
{
	(void)error;
	const zcci_explicit_shard *shard = zcci_explicit_shard_of((const zcci_explicit *)base, rank);
	*n_pieces = shard != NULL ? shard->n_pieces : 0;
	for (int64_t i = 0; i < *n_pieces && i < capacity; i++)
		pieces[i] = shard->pieces[i].piece;
	return ZCC_OK;
}

static zcc_status explicit_count(const zcci_map *base, int64_t *n_pieces, zcc_error *error)
{
	(void)error;
	const zcci_explicit *map = (const zcci_explicit *)base;
	*n_pieces = 0;
	for (int32_t i = 0; i < map->n_shards; i++)
		*n_pieces += map->shards[i].n_pieces;
	return ZCC_OK;
}

static zcc_status refuse_cuts(const zcci_explicit *map, zcc_error *error)
{
	const zcc_piece *here = map->cut_here, *there = map->cut_there;
	char texts[4][160];
	int32_t ndim = map->base.info.ndim;
	return zcci_fail(error, ZCC_ELAYOUT, 0, "layout blocks",
	                 "parameter %s: replicas are cut at different boundaries, which a source must not be: the "
	                 "block at %s of shape %s on rank %d overlaps the one at %s of shape %s on rank %d",
	                 map->base.info.name, zcci_list_text(texts[0], sizeof texts[0], here->origin_elems, ndim),
	                 zcci_list_text(texts[1], sizeof texts[1], here->shape_elems, ndim), map->cut_here_rank,
	                 zcci_list_text(texts[2], sizeof texts[2], there->origin_elems, ndim),
	                 zcci_list_text(texts[3], sizeof texts[3], there->shape_elems, ndim), map->cut_there_rank);
}

/* Each block from its lowest holder. */
static zcc_status explicit_blocks(const zcci_map *base, zcci_arena *arena, zcci_block **blocks, int64_t *n_blocks,
                                  zcc_error *error)
{
	const zcci_explicit *map = (const zcci_explicit *)base;
	if (map->cut_here != NULL)
		return refuse_cuts(map, error);
	int64_t n = 0;
	for (int32_t s = 0; s < map->n_shards; s++)
		for (int64_t i = 0; i < map->shards[s].n_pieces; i++)
			n += map->shards[s].pieces[i].piece.holders[0] == map->shards[s].rank;
	zcci_block *all = zcci_arena_alloc(arena, n, sizeof *all);
	if (all == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "layout blocks", "parameter %s: no memory for %lld blocks",
		                 base->info.name, (long long)n);
	n = 0;
	for (int32_t s = 0; s < map->n_shards; s++) {
		for (int64_t i = 0; i < map->shards[s].n_pieces; i++) {
			const zcc_piece *piece = &map->shards[s].pieces[i].piece;
			if (piece->holders[0] != map->shards[s].rank)
				continue;
			zcci_block *block = &all[n++];
			*block = (zcci_block){
			        .scale = piece->scale, .n_holders = piece->n_holders, .holders = piece->holders};
			memcpy(block->origin_elems, piece->origin_elems, sizeof block->origin_elems);
			memcpy(block->shape_elems, piece->shape_elems, sizeof block->shape_elems);
		}
	}
	*blocks = all;
	*n_blocks = n;
	return ZCC_OK;
}

/* Checked when it was read (zcci_explicit_finish), and unchanged since. */
static zcc_status explicit_validate(const zcci_map *base, zcc_error *error)
{
	(void)base;
	(void)error;
	return ZCC_OK;
}

const zcci_map_ops zcci_explicit_ops = {
        .shard = explicit_shard,
        .pieces = explicit_pieces,
        .blocks = explicit_blocks,
        .count = explicit_count,
        .validate = explicit_validate,
};
