/* The step of an exponential moving average. */
#ifndef ZCCI_LERP_H
#define ZCCI_LERP_H

#include "zcc/base.h"

/* ema[i] = fma(w, param[i] - ema[i], ema[i]) in f32, where w = 1 - decay, rounded to f32 once. param is F32, or BF16 or
 * F16 widened exactly. A result that is a NaN is 7FC00000. Any alignment; no overlap. Any thread. */
void zcci_lerp(float *ema, const void *param, int32_t param_dtype, double decay, int64_t elems);

#endif
