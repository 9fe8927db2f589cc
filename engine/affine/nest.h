/* A flat run of a row-major array as boxes of that array. */
#ifndef ZCCI_NEST_H
#define ZCCI_NEST_H

#include "zcc/affine.h"

enum { ZCCI_NEST_MAX = 2 * ZCC_MAX_NDIM - 1 };

typedef struct zcci_box {
	int64_t origin[ZCC_MAX_NDIM];
	int64_t shape[ZCC_MAX_NDIM];
} zcci_box;

/* Elements begin … end − 1 (0 <= begin, end <= elems) of an array of that shape as at most 2 * ndim − 1 boxes (one for
 * ndim = 0), in ascending order; each box is a contiguous run of its own. Returns how many; an empty run has none. The
 * array's elements must fit 63 bits. */
int32_t zcci_nest(int32_t ndim, const int64_t *shape, int64_t begin, int64_t end, zcci_box boxes[ZCCI_NEST_MAX]);

#endif
