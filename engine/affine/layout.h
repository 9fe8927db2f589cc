/* What the planner needs of a layout, the same for structured and explicit maps. */
#ifndef ZCCI_LAYOUT_H
#define ZCCI_LAYOUT_H

#include "base/memory.h"
#include "zcc/affine.h"

/* A distinct block of a parameter and every rank that stores it. In a valid source layout blocks of one parameter are
 * disjoint. */
typedef struct zcci_block {
	int64_t origin_elems[ZCC_MAX_NDIM];
	int64_t shape_elems[ZCC_MAX_NDIM];
	double scale;
	int32_t n_holders;
	int32_t reserved;
	const int32_t *holders; /* ascending; kept as long as the layout */
} zcci_block;

/* All distinct non-empty blocks of a parameter, ordered by origin (first axis first), in the caller's arena. Visits the
 * parts of the mesh that cut the parameter, not its replicas. Holders are owned by the layout. ZCC_ELAYOUT where a
 * document's replicas are cut at different boundaries, which only a target may have; ZCC_ENOMEM. */
zcc_status zcci_layout_blocks(const zcc_layout *layout, int32_t param, zcci_arena *arena, zcci_block **blocks,
                              int64_t *n_blocks, zcc_error *error);

/* The non-empty pieces of one shard, ascending dest offset, in the caller's arena; holders are owned by the layout. */
zcc_status zcci_layout_shard_pieces(const zcc_layout *layout, int32_t param, int32_t rank, zcci_arena *arena,
                                    zcc_piece **pieces, int64_t *n_pieces, zcc_error *error);

/* A reference more, for plans. Drop it with zcc_layout_destroy. Any thread. */
zcc_layout *zcci_layout_retain(zcc_layout *layout);

#endif
