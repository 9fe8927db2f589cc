#include "affine/nest.h"

int32_t zcci_nest(int32_t ndim, const int64_t *shape, int64_t begin, int64_t end, zcci_box boxes[ZCCI_NEST_MAX])
{
	if (begin >= end)
		return 0;
	int64_t strides[ZCC_MAX_NDIM];
	for (int64_t d = ndim - 1, stride = 1; d >= 0; d--) {
		strides[d] = stride;
		stride *= shape[d];
	}
	if (ndim == 0)
		return 1;
	int32_t n = 0;
	for (int64_t at = begin; at < end;) {
		/* The outermost axis along which whole steps fit: the run climbs from the innermost axis and comes down
		 * again, each axis giving at most one box on either way. */
		int32_t axis = 0;
		while (at % strides[axis] != 0 || strides[axis] > end - at)
			axis++;
		zcci_box *box = &boxes[n++];
		int64_t rest = at;
		for (int32_t d = 0; d < ndim; d++) {
			box->origin[d] = rest / strides[d];
			rest %= strides[d];
			box->shape[d] = d < axis ? 1 : shape[d];
		}
		int64_t steps = (end - at) / strides[axis];
		int64_t left = shape[axis] - box->origin[axis];
		box->shape[axis] = steps < left ? steps : left;
		at += box->shape[axis] * strides[axis];
	}
	return n;
}
