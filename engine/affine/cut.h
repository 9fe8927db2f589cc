/* One mesh axis cutting one axis of a parameter: parts, units, padding, given extents. Private to engine/affine. */
#ifndef ZCCI_CUT_H
#define ZCCI_CUT_H

#include "affine/map.h"

typedef struct zcci_cut {
	int32_t axis;     /* of the mesh */
	int32_t dim;      /* of the parameter */
	int32_t n_coords; /* size of the mesh axis */
	int32_t n_parts;  /* 0 with starts */
	const zcc_part *parts;
	const int64_t *starts; /* given extents: coordinate c takes starts[c] … starts[c + 1] − 1; NULL with parts */
} zcci_cut;

/* Consecutive elements of an axis that a shard stores consecutively. For every mesh axis that cuts this axis,
 * coordinates low … high − 1 store this very interval; the other mesh axes' entries are 0. */
typedef struct zcci_interval {
	int64_t start; /* in the parameter */
	int64_t length;
	int64_t local; /* in the shard */
	int32_t low[ZCCI_MAX_AXES];
	int32_t high[ZCCI_MAX_AXES];
} zcci_interval;

/* Refuses a cut that does not fit an axis of `extent` elements. `name` and `axis_name` are for the message. */
zcc_status zcci_cut_check(const zcci_cut *cut, int64_t extent, const char *name, const char *axis_name,
                          zcc_error *error);

/* Extent, padding included, that the cut leaves to a coordinate. */
int64_t zcci_cut_extent(const zcci_cut *cut, int32_t coord);

/* Extent of the coordinate that is left the most. */
int64_t zcci_cut_most(const zcci_cut *cut);

/* Whether all coordinates are left as much; where not, *coord is one that is left less or more than coordinate 0. */
bool zcci_cut_is_even(const zcci_cut *cut, int32_t *coord);

/* Whether some part is stored by more than one coordinate. */
bool zcci_cut_replicates(const zcci_cut *cut);

/* What the cut leaves to a coordinate of n intervals (ascending by local): at most n plus its parts (1 with given
 * extents), merged where they touch on both sides and have the same holders. `out` is another array. Returns how many.
 */
int32_t zcci_cut_apply(const zcci_cut *cut, int32_t coord, const zcci_interval *intervals, int32_t n,
                       zcci_interval *out);

#endif
