/* What the executor needs of a plan. */
#ifndef ZCCI_PLAN_H
#define ZCCI_PLAN_H

#include "zcc/affine.h"

/* Borrowed from the plan; side is ZCC_SOURCE or ZCC_TARGET. */
const zcc_layout *zcci_plan_layout(const zcc_plan *plan, int32_t side);
/* Index of the target parameter `param` in the source layout. */
int32_t zcci_plan_source_param(const zcc_plan *plan, int32_t param);
/* A reference more. Drop it with zcc_plan_destroy. Any thread. */
zcc_plan *zcci_plan_retain(zcc_plan *plan);

#endif
