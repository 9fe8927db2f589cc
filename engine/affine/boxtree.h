/* Which boxes overlap, without comparing every pair: a binary tree of bounding boxes. Private to engine/affine. */
#ifndef ZCCI_BOXTREE_H
#define ZCCI_BOXTREE_H

#include "affine/nest.h"
#include "base/memory.h"

typedef struct zcci_boxtree zcci_boxtree;

/* Over n non-empty boxes of ndim axes, borrowed. NULL: no memory. */
zcci_boxtree *zcci_boxtree_create(int32_t ndim, const zcci_box *boxes, int64_t n);
void zcci_boxtree_destroy(zcci_boxtree *tree);

/* Calls `each` for every box that shares an element with box i, i itself excepted; what it returns ends the search
 * unless it is ZCC_OK. A tree answers a bounded number of comparisons, so that boxes made to defeat it end in
 * ZCC_ELAYOUT (no message) after seconds. */
zcc_status zcci_boxtree_overlaps(zcci_boxtree *tree, int64_t i, zcc_status (*each)(void *context, int64_t k),
                                 void *context);

/* Elements that two boxes share. */
int64_t zcci_box_common(int32_t ndim, const zcci_box *a, const zcci_box *b);

#endif
