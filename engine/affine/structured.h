/* The structured kind of map: mesh, placements and flat cut, from which the pieces of any rank follow; nothing is
 * stored per rank. Private to engine/affine.
 *
 * Every mesh axis does one thing to a parameter: cut one of its axes, own it, take part in the flat cut, or replicate
 * it. So what a rank stores of an axis of the parameter depends only on the coordinates that cut that axis, its pieces
 * are products of intervals, and the holders of a piece are products of coordinate ranges. */
#ifndef ZCCI_STRUCTURED_H
#define ZCCI_STRUCTURED_H

#include "affine/cut.h"
#include "affine/map.h"

typedef struct zcci_structured {
	zcci_map base;
	const zcci_mesh *mesh;
	int32_t n_cuts;
	zcci_cut *cuts;                /* in the order they apply */
	int32_t dim_of[ZCCI_MAX_AXES]; /* which axis of the parameter the mesh axis cuts, or −1 */
	int32_t owner[ZCCI_MAX_AXES];  /* the owning coordinate, or −1 */
	int32_t room[ZCC_MAX_NDIM];    /* intervals that any coordinate can have along the axis, at most */
	int64_t all_room;              /* for two lists per axis */
	int32_t n_flat;                /* mesh axes of the flat cut; 0: shards keep the parameter's axes */
	int32_t flat[ZCCI_MAX_AXES];
	int32_t flat_coords; /* combined coordinates of those axes */
	int32_t group;       /* consecutive ones that share one copy of the parameter */
	int64_t align;
	double scale;
} zcci_structured;

extern const zcci_map_ops zcci_structured_ops; /* structured_map.c */

/* ---- walk.c ---- */

/* The rank's coordinates; false where it stores nothing of the parameter. */
bool zcci_structured_coords(const zcci_structured *map, int32_t rank, int32_t coords[ZCCI_MAX_AXES]);
/* Position within the group that shares one copy. */
int32_t zcci_structured_place(const zcci_structured *map, const int32_t *coords);
/* Shape of the shard, padding included; returns its number of axes. */
int32_t zcci_structured_shape(const zcci_structured *map, const int32_t *coords, int64_t shape[ZCC_MAX_NDIM]);

typedef struct zcci_found {
	const int32_t *coords; /* of the rank looked at */
	int64_t shape[ZCC_MAX_NDIM];
	int64_t origin[ZCC_MAX_NDIM];
	int64_t dest_offset;
	const int64_t *dest_strides;
	int32_t low[ZCCI_MAX_AXES]; /* along every mesh axis that cuts the parameter, the coordinates that hold the
	                               piece */
	int32_t high[ZCCI_MAX_AXES];
} zcci_found;

/* Anything but ZCC_OK ends the walk. */
typedef zcc_status (*zcci_visit)(void *context, const zcci_found *piece);

/* All pieces of the shard at these coordinates, ascending dest offset. */
zcc_status zcci_structured_walk(const zcci_structured *map, const int32_t *coords, zcci_visit each, void *context,
                                zcc_error *error);
/* Every distinct piece once: all coordinates that cut, one of those that replicate. */
zcc_status zcci_structured_walk_distinct(const zcci_structured *map, zcci_visit each, void *context, zcc_error *error);

#endif
