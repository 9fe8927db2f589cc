/* Sums of gradients. */
#ifndef ZCCI_ACCUMULATE_H
#define ZCCI_ACCUMULATE_H

#include "zcc/base.h"

/* target[i] = target[i] + source[i] in f32; source is F32, or BF16 or F16 widened exactly. A result that is a NaN is
 * 7FC00000. Any alignment; no overlap. Any thread. */
void zcci_accumulate(float *target, const void *source, int32_t source_dtype, int64_t elems);

#endif
