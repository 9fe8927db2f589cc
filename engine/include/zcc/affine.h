/* Layouts (which rank stores which elements) and plans (how one layout becomes another).
 * Offsets, strides and extents are in elements. Nothing here touches a byte of tensor data or calls MPI. */
#ifndef ZCC_AFFINE_H
#define ZCC_AFFINE_H

#include "base.h"
#include "json.h"

/* ---- building a layout ---- */

typedef struct zcc_layout zcc_layout;

enum {
	ZCC_PLACE_SHARD = 1, /* a mesh axis cuts axis `dim` of the parameter */
	ZCC_PLACE_OWNER = 2 /* only coordinate `owner` of the mesh axis stores the parameter (pipeline stage, expert) */
};

enum {
	ZCC_CUT_EVEN = 1,      /* equal shares; ZCC_ELAYOUT where units do not divide */
	ZCC_CUT_UNEVEN = 2,    /* floor share, the first (units mod axis size) take one unit more; may be empty */
	ZCC_CUT_REPLICATE = 3, /* every coordinate stores the whole part (bigcode key/value rows) */
	ZCC_CUT_GROUPED = 4 /* units < axis size: coordinate c stores unit c * units / size (GQA heads when tp > heads);
	                       units >= axis size: as EVEN. One number must divide the other. */
};

/* One sub-parameter along a cut axis (q of a fused qkv). A plain axis is one part. Sizes add up to the axis. */
typedef struct zcc_part {
	int64_t size_elems; /* extent of this part along the axis, without padding */
	int64_t units; /* indivisible units in it: heads, or size_elems where any row may be cut; divides size_elems */
	int64_t padded_elems; /* extent after vocabulary padding, at least size_elems; 0 = no padding; EVEN only */
	int32_t cut;          /* ZCC_CUT_ */
	int32_t reserved;
} zcc_part;

/* What one mesh axis does to a parameter. Mesh axes not named by any placement replicate it. Placements apply in order:
 * a second cut of the same dim cuts what the first one left (its parts describe that local extent). */
typedef struct zcc_placement {
	int32_t kind;           /* ZCC_PLACE_ */
	int32_t axis;           /* index of the mesh axis */
	int32_t dim;            /* SHARD: axis of the parameter */
	int32_t owner;          /* OWNER: coordinate */
	int32_t n_parts;        /* SHARD: number of parts, or 0 with extents */
	int32_t n_extents;      /* SHARD: axis size, or 0 with parts */
	const zcc_part *parts;  /* copied */
	const int64_t *extents; /* given extents, one per coordinate, adding up to the axis; copied */
} zcc_placement;

/* One parameter of a structured layout. Pointers are read during the call only. */
typedef struct zcc_param_options {
	uint32_t struct_bytes; /* set by zcc_param_options_init */
	int32_t dtype;
	const char *name;
	int32_t ndim;               /* 0 to ZCC_MAX_NDIM */
	int32_t mesh;               /* id from zcc_layout_add_mesh */
	const int64_t *shape_elems; /* ndim extents, >= 0 */
	const zcc_placement *placements;
	int32_t n_placements;
	int32_t n_cut_axes;      /* ZeRO 3: mesh axes over whose ranks the flattened local shard is cut; 0 = not flat */
	const int32_t *cut_axes; /* outermost first */
	int64_t cut_group; /* hpZ, MiCS: cut over this many neighbours of the combined cut axes, replicate over the
	                      rest; 0 = over all of them; must divide */
	int64_t cut_align_elems; /* the padded flat extent is a multiple of this times the group; 0 is 1 */
	double scale;            /* 1 unless the stored value is scale * the parameter's */
} zcc_param_options;
ZCC_API void zcc_param_options_init(zcc_param_options *options);

/* An empty layout. ZCC_ENOMEM. One thread builds; a finished layout may be read by several. */
ZCC_API zcc_status zcc_layout_create(zcc_layout **layout, zcc_error *error);
/* Drops the caller's reference; plans keep theirs. NULL is allowed. */
ZCC_API void zcc_layout_destroy(zcc_layout *layout);

/* A mesh of n_axes axes (1 to 8), sizes outermost first (each >= 1), names a comma list of the same length, used in
 * messages. Its ranks are base_rank … base_rank + product − 1. Several meshes may span the same ranks (experts). At
 * most 2^24 ranks a mesh. ZCC_EINVAL, ZCC_EOVERFLOW, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_layout_add_mesh(zcc_layout *layout, int32_t base_rank, int32_t n_axes, const char *names,
                                       const int64_t *sizes, int32_t *mesh, zcc_error *error);

/* Adds a structured parameter; *param is its index. A name that is there already, a placement on an axis that does not
 * exist, parts that do not add up: ZCC_EINVAL; what does not divide: ZCC_ELAYOUT; ZCC_EOVERFLOW, ZCC_ENOMEM. The
 * message names the parameter, the axis and the numbers. */
ZCC_API zcc_status zcc_layout_add_param(zcc_layout *layout, const zcc_param_options *options, int32_t *param,
                                        zcc_error *error);

/* An explicit layout from a map document (README, "Documents": DeepSpeed affine_map version 1, also inside
 * {"affine_map": …}). `what` names the document in messages. Strides must be row-major; a block with the parameter's
 * axes lies in a shard with as many, or in a flat one as in an array that was flattened row by row (each stride leads
 * past all that the axes inside of it span); a one-axis piece of stride 1 is a run of the flattened parameter. Checks
 * all that zcc_layout_validate does; what zcc_layout_write wrote is read. ZCC_EFORMAT, ZCC_EMAP, ZCC_ELAYOUT,
 * ZCC_EOVERFLOW, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_layout_parse(const char *text, int64_t text_bytes, const char *what, zcc_layout **layout,
                                    zcc_error *error);
/* Writes the map document of any layout, parameters in index order, ranks ascending, pieces in canonical order. */
ZCC_API zcc_status zcc_layout_write(const zcc_layout *layout, zcc_json_writer *writer, zcc_error *error);

/* Coverage (every element lies in some piece), tiling (a rank's pieces are disjoint and, padding aside, fill its
 * shard), agreement (pieces that share an element list the same holders and scale) and bounds, element-exact but by
 * geometry. A layout cannot be changed into one that breaks them, so a part that was checked when it was added or read
 * is not checked again. ZCC_EMAP names parameter, rank, piece and numbers; ZCC_ELAYOUT for legitimate geometry that is
 * not supported; ZCC_ENOMEM. */
ZCC_API zcc_status zcc_layout_validate(const zcc_layout *layout, zcc_error *error);

/* ---- reading a layout ---- */

typedef struct zcc_param_info {
	const char *name; /* owned by the layout */
	int32_t dtype;
	int32_t ndim;
	int64_t shape_elems[ZCC_MAX_NDIM];
	int64_t elems;
} zcc_param_info;

typedef struct zcc_shard_info {
	int32_t present; /* 0: the rank stores nothing of this parameter and has no buffer for it */
	int32_t ndim;
	int64_t shape_elems[ZCC_MAX_NDIM]; /* padding included */
	int64_t elems;
	int64_t n_pieces;
} zcc_shard_info;

typedef struct zcc_piece {
	int32_t ndim; /* as the parameter */
	int32_t n_holders;
	int64_t shape_elems[ZCC_MAX_NDIM];
	int64_t origin_elems[ZCC_MAX_NDIM]; /* in the parameter */
	int64_t dest_offset_elems;          /* in the shard */
	int64_t dest_strides_elems[ZCC_MAX_NDIM];
	const int32_t *holders; /* ascending ranks that hold identical data, this one included; owned by the layout */
	double scale;
} zcc_piece;

ZCC_API int32_t zcc_layout_params(const zcc_layout *layout);
/* Index of the parameter with that name, −1 where there is none. Not linear. */
ZCC_API int32_t zcc_layout_find(const zcc_layout *layout, const char *name);
ZCC_API zcc_status zcc_layout_param(const zcc_layout *layout, int32_t param, zcc_param_info *info, zcc_error *error);
/* All ranks of the layout, ascending; owned by the layout. */
ZCC_API const int32_t *zcc_layout_ranks(const zcc_layout *layout, int32_t *n_ranks);
ZCC_API zcc_status zcc_layout_shard(const zcc_layout *layout, int32_t param, int32_t rank, zcc_shard_info *info,
                                    zcc_error *error);
/* The first `capacity` pieces of a shard, in canonical order (ascending dest offset); *n_pieces is how many there are.
 * zcc_piece.holders live as long as the layout. ZCC_EINVAL, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_layout_pieces(const zcc_layout *layout, int32_t param, int32_t rank, zcc_piece *pieces,
                                     int64_t capacity, int64_t *n_pieces, zcc_error *error);
/* Pieces of all parameters on all ranks. */
ZCC_API zcc_status zcc_layout_count_pieces(const zcc_layout *layout, int64_t *n_pieces, zcc_error *error);

/* ---- plans ---- */

typedef struct zcc_plan zcc_plan;

/* The two sides of a plan. */
enum { ZCC_SOURCE = 0, ZCC_TARGET = 1 };

/* A block wanted by one target rank. Ranks of source and target are two name spaces. */
typedef struct zcc_region {
	int32_t param; /* index in the target layout */
	int32_t target_rank;
	int32_t n_holders;
	int32_t chosen;         /* index into holders, −1 until chosen */
	const int32_t *holders; /* ascending source ranks; owned by the plan */
	int64_t elems;
	int64_t bytes; /* elems * element size of the source dtype */
	int64_t shape_elems[ZCC_MAX_NDIM];
	int64_t origin_elems[ZCC_MAX_NDIM]; /* in the parameter */
} zcc_region;

/* One strided copy. */
typedef struct zcc_segment {
	int32_t param; /* index in the target layout */
	int32_t source_rank;
	int32_t target_rank;
	int32_t ndim;
	int64_t elems;
	int64_t shape_elems[ZCC_MAX_NDIM];
	int64_t source_offset_elems;
	int64_t source_strides_elems[ZCC_MAX_NDIM];
	int64_t target_offset_elems;
	int64_t target_strides_elems[ZCC_MAX_NDIM];
	int64_t origin_elems[ZCC_MAX_NDIM]; /* of its first element, in the parameter; ndim of the parameter */
	double factor;                      /* target scale / source scale; 1 for plain copies */
} zcc_segment;

typedef struct zcc_plan_stats {
	int64_t regions;
	int64_t segments;
	int64_t elems;
	int64_t sent_bytes;  /* between different global ranks, source dtype */
	int64_t local_bytes; /* source rank == target rank */
} zcc_plan_stats;

/* Regions of every target rank, in canonical order: target parameter index, target rank, then dest offset. Validates
 * both layouts first. A parameter of one layout only, shapes that differ: ZCC_EMAP; a scale on a dtype that is not
 * floating, dtypes with no conversion: ZCC_ELAYOUT; ZCC_ENOMEM. Holds references to both layouts. One thread. */
ZCC_API zcc_status zcc_plan_create(zcc_layout *target, zcc_layout *source, zcc_plan **plan, zcc_error *error);
ZCC_API void zcc_plan_destroy(zcc_plan *plan);
/* Owned by the plan. Only `chosen` ever changes. */
ZCC_API const zcc_region *zcc_plan_regions(const zcc_plan *plan, int64_t *n_regions);
/* holder is an index into the region's holders. ZCC_EPOLICY for one out of range, naming parameter, rank, region,
 * number and limit. */
ZCC_API zcc_status zcc_plan_choose(zcc_plan *plan, int64_t region, int32_t holder, zcc_error *error);
/* Composes and merges the segments; every region must be chosen (ZCC_EPOLICY). Once per plan. Canonical order:
 * parameter, target rank, source rank, target offset. ZCC_ENOMEM. */
ZCC_API zcc_status zcc_plan_build(zcc_plan *plan, zcc_error *error);
/* NULL and 0 before zcc_plan_build. Owned by the plan. */
ZCC_API const zcc_segment *zcc_plan_segments(const zcc_plan *plan, int64_t *n_segments);
ZCC_API zcc_status zcc_plan_stats_get(const zcc_plan *plan, zcc_plan_stats *stats, zcc_error *error);
/* XXH3-64 over parameters, dtypes, shapes, ranks and segments: equal plans give equal digests on every process. */
ZCC_API zcc_status zcc_plan_digest(const zcc_plan *plan, int64_t *digest, zcc_error *error);
/* Writes the plan document (README, "Documents"). */
ZCC_API zcc_status zcc_plan_write(const zcc_plan *plan, zcc_json_writer *writer, zcc_error *error);

#endif
