/* The AVX2 path of zcci_convert. */
#ifndef ZCCI_CONVERT_AVX2_H
#define ZCCI_CONVERT_AVX2_H

#include "zcc/base.h"

/* As zcci_convert with a factor of 1, for F32 to or from BF16 or F16, on a processor that has AVX2, FMA and F16C.
 * Returns how many elements from the first it has converted: all but the last few. */
int64_t zcci_convert_avx2(char *target, int32_t target_dtype, const char *source, int32_t source_dtype, int64_t count);

#endif
