/* Loops over strided memory. Pure functions, any thread. A range [first, first + count) counts the elements of a view
 * in row-major order, so that a chunk may begin and end inside a row. */
#ifndef ZCCI_STRIDED_H
#define ZCCI_STRIDED_H

#include <stdbool.h>

#include "zcc/base.h"

/* Strides in elements, >= 0. ndim = 0 is one element. */
typedef struct zcci_view {
	int32_t ndim;
	int64_t shape[ZCC_MAX_NDIM];
	int64_t strides[ZCC_MAX_NDIM];
} zcci_view;

/* Drops axes of extent 1 and joins axes that are contiguous in both views; element order stays. `b` may be NULL. */
void zcci_view_simplify(zcci_view *a, zcci_view *b);
/* Row-major and without gaps. */
bool zcci_view_dense(const zcci_view *view);

/* Strided to dense: dense[0] becomes element `first`. base is the view's element 0. */
void zcci_pack(void *dense, const void *base, const zcci_view *view, int64_t first, int64_t count, int32_t elem_bytes);
/* The same where memory holds only a window of the storage: window[0] is the element at offset window_elems of the
 * view. */
void zcci_pack_window(void *dense, const void *window, int64_t window_elems, const zcci_view *view, int64_t first,
                      int64_t count, int32_t elem_bytes);
/* Dense to strided. */
void zcci_unpack(void *base, const zcci_view *view, int64_t first, int64_t count, const void *dense,
                 int32_t elem_bytes);
/* Strided to strided; the shapes may differ (a view may have been simplified by itself) but hold equally many elements.
 * No overlap. */
void zcci_copy(void *target, const zcci_view *target_view, const void *source, const zcci_view *source_view,
               int64_t first, int64_t count, int32_t elem_bytes);

/* Whether a dtype becomes another under a factor: equal dtypes with factor 1, and every pair of F16, BF16, F32, F64
 * with any factor. */
bool zcci_convert_supported(int32_t target_dtype, int32_t source_dtype, double factor);
/* Dense to dense: target[i] = round(factor * source[i]), to nearest even, once where a double holds the product; NaNs
 * become quiet and keep sign and upper payload. Equal dtypes with factor 1 are copied bit for bit. */
void zcci_convert(void *target, int32_t target_dtype, const void *source, int32_t source_dtype, double factor,
                  int64_t count);

#endif
