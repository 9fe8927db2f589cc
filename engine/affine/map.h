/* One parameter's map behind one interface, whichever kind it is. Private to engine/affine. */
#ifndef ZCCI_MAP_H
#define ZCCI_MAP_H

#include "affine/layout.h"

enum { ZCCI_MAX_AXES = 8 };

/* Ranks base_rank … base_rank + n_ranks − 1, the last axis fastest. */
typedef struct zcci_mesh {
	int32_t base_rank;
	int32_t n_ranks;
	int32_t n_axes;
	int32_t sizes[ZCCI_MAX_AXES];
	int32_t steps[ZCCI_MAX_AXES]; /* rank distance between neighbours along the axis */
	const char *names[ZCCI_MAX_AXES];
} zcci_mesh;

typedef struct zcci_map zcci_map;
typedef struct zcci_holders zcci_holders;

/* What a kind of map must answer. `rank` is one of the layout's ranks. All are required, none blocks. */
typedef struct zcci_map_ops {
	/* Shape of the rank's shard and its number of non-empty pieces. */
	zcc_status (*shard)(const zcci_map *map, int32_t rank, zcc_shard_info *info, zcc_error *error);
	/* The first `capacity` non-empty pieces, ascending dest offset; *n_pieces is how many there are. */
	zcc_status (*pieces)(const zcci_map *map, int32_t rank, zcc_piece *pieces, int64_t capacity, int64_t *n_pieces,
	                     zcc_error *error);
	/* Distinct blocks in any order. */
	zcc_status (*blocks)(const zcci_map *map, zcci_arena *arena, zcci_block **blocks, int64_t *n_blocks,
	                     zcc_error *error);
	/* Pieces on all ranks. */
	zcc_status (*count)(const zcci_map *map, int64_t *n_pieces, zcc_error *error);
	/* Coverage, tiling, agreement, bounds. */
	zcc_status (*validate)(const zcci_map *map, zcc_error *error);
} zcci_map_ops;

/* First member of every kind's own struct; lives in the layout's arena. */
struct zcci_map {
	const zcci_map_ops *ops;
	zcci_holders *holders; /* the layout's */
	zcc_param_info info;
	int64_t strides_elems[ZCC_MAX_NDIM]; /* row-major, of info.shape_elems */
};

/* ---- the collection (layout.c) ---- */

zcci_arena *zcci_layout_arena(zcc_layout *layout);
/* NULL where there is no such mesh. */
const zcci_mesh *zcci_layout_mesh(const zcc_layout *layout, int32_t mesh);
/* Fills the members that every kind has: holders, info, strides. The name is borrowed until zcci_layout_append copies
 * it. Refuses a name that is taken or empty, an unknown dtype, too many axes, negative extents, sizes that do not fit
 * 63 bits. */
zcc_status zcci_map_init(zcc_layout *layout, zcci_map *map, const char *name, int32_t dtype, int32_t ndim,
                         const int64_t *shape_elems, zcc_error *error);
/* Puts a finished map, made in the layout's arena, at the end; *param is its index. */
zcc_status zcci_layout_append(zcc_layout *layout, zcci_map *map, int32_t *param, zcc_error *error);
/* Adds ranks (ascending, distinct) to those of the layout. */
zcc_status zcci_layout_add_ranks(zcc_layout *layout, const int32_t *ranks, int32_t n_ranks, zcc_error *error);

/* ---- structured.c, explicit.c ---- */

zcc_status zcci_structured_create(zcc_layout *layout, const zcc_param_options *options, zcci_map **map,
                                  zcc_error *error);

/* ---- geometry every kind uses (layout.c) ---- */

/* Row-major strides and the number of elements; true on overflow (of the product of the extents that are not 0). */
bool zcci_row_major(int32_t ndim, const int64_t *shape, int64_t *strides, int64_t *elems);
/* "[4, 8]" into text, cut where it does not fit; returns text. */
const char *zcci_list_text(char *text, int64_t text_bytes, const int64_t *list, int32_t n);

#endif
