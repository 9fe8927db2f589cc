/* The explicit kind of map: for every rank its list of pieces, as a document gave them. Private to engine/affine. */
#ifndef ZCCI_EXPLICIT_H
#define ZCCI_EXPLICIT_H

#include "affine/map.h"

typedef struct zcci_explicit_piece {
	zcc_piece piece;
	int64_t number; /* in the rank's list in the document, from 0; a flat run gives several pieces of one number */
} zcci_explicit_piece;

typedef struct zcci_explicit_shard {
	int32_t rank;
	int32_t ndim; /* as the parameter, or 1 */
	int64_t shape_elems[ZCC_MAX_NDIM];
	int64_t strides_elems[ZCC_MAX_NDIM];
	int64_t elems;
	int64_t n_pieces;
	zcci_explicit_piece *pieces; /* none is empty; ascending dest offset */
} zcci_explicit_shard;

typedef struct zcci_explicit {
	zcci_map base;
	int32_t n_shards;
	zcci_explicit_shard *shards; /* ascending rank */
	/* Pieces of two ranks that share elements but are different boxes, or NULL: fine in a target, not supported in
	 * a source. */
	const zcc_piece *cut_here;
	const zcc_piece *cut_there;
	int32_t cut_here_rank;
	int32_t cut_there_rank;
} zcci_explicit;

extern const zcci_map_ops zcci_explicit_ops;

/* The parameter's shard on a rank, NULL where there is none. */
const zcci_explicit_shard *zcci_explicit_shard_of(const zcci_explicit *map, int32_t rank);

/* The list of n ascending ranks, kept by the layout; equal lists give equal pointers. ranks[-1] must be there and is
 * written. NULL: no memory. */
const int32_t *zcci_explicit_holders(zcci_explicit *map, int32_t *ranks, int32_t n);

/* Sorts the pieces of every shard and checks coverage, tiling, agreement (validate.c); bounds are the reader's. Sets
 * cut_here and cut_there. A map that passed stays valid: nothing changes it. */
zcc_status zcci_explicit_finish(zcci_explicit *map, zcc_error *error);

#endif
