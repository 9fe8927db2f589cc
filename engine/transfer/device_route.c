#include "transfer/device_route.h"

#include "affine/nest.h"
#include "base/status.h"

static bool can_cast(int32_t dtype)
{
	return dtype == ZCC_F16 || dtype == ZCC_BF16 || dtype == ZCC_F32;
}

bool zcci_device_route_supported(const zcci_route *route)
{
	if (!route->converts)
		return true;
	return route->segment->factor == 1 && can_cast(route->source_dtype) && can_cast(route->target_dtype);
}

static void set_dense(int32_t ndim, const int64_t *shape, int64_t *strides)
{
	for (int64_t axis = ndim - 1, stride = 1; axis >= 0; axis--) {
		strides[axis] = stride;
		stride *= shape[axis];
	}
}

/* Elements first … first + count of a view, in a row at `dense`, out of it or (to_view) into it: box by box. */
static zcc_status move_range(const zcci_view *view, char *base, int64_t first, int64_t count, char *dense, bool to_view,
                             int32_t elem_bytes, zcc_stream *stream, zcc_error *error)
{
	static const int64_t one = 1;
	if (view->ndim == 0)
		return zcc_strided_async(stream, to_view ? base : dense, &one, to_view ? dense : base, &one, 1, &one,
		                         elem_bytes, error);
	zcci_box boxes[ZCCI_NEST_MAX];
	int32_t n = zcci_nest(view->ndim, view->shape, first, first + count, boxes);
	zcc_status status = ZCC_OK;
	for (int32_t i = 0; status == ZCC_OK && i < n; i++) {
		int64_t strides[ZCC_MAX_NDIM];
		int64_t offset = 0;
		int64_t elems = 1;
		set_dense(view->ndim, boxes[i].shape, strides);
		for (int32_t axis = 0; axis < view->ndim; axis++) {
			offset += boxes[i].origin[axis] * view->strides[axis];
			elems *= boxes[i].shape[axis];
		}
		char *at = base + offset * elem_bytes;
		if (to_view)
			status = zcc_strided_async(stream, at, view->strides, dense, strides, view->ndim,
			                           boxes[i].shape, elem_bytes, error);
		else
			status = zcc_strided_async(stream, dense, strides, at, view->strides, view->ndim,
			                           boxes[i].shape, elem_bytes, error);
		dense += elems * elem_bytes;
	}
	return status;
}

zcc_status zcci_device_route_pack(const zcci_route *route, int64_t first, int64_t count, void *dense,
                                  zcc_stream *stream, zcc_error *error)
{
	return move_range(&route->source, route->from.data, first, count, dense, false, route->source_elem_bytes,
	                  stream, error);
}

zcc_status zcci_device_route_unpack(const zcci_route *route, int64_t first, int64_t count, const void *dense,
                                    zcc_stream *stream, const zcci_scratch *scratch, zcc_error *error)
{
	int32_t elem_bytes = route->target_elem_bytes;
	if (!route->converts)
		return move_range(&route->target, route->to.data, first, count, (char *)(uintptr_t)dense, true,
		                  elem_bytes, stream, error);
	if (zcci_view_run(&route->target, first) >= count) {
		char *target = route->to.data + zcci_view_offset(&route->target, first) * elem_bytes;
		return zcc_cast_async(stream, target, route->target_dtype, dense, route->source_dtype, count, error);
	}
	const char *source = dense;
	int64_t room = scratch->target_bytes / elem_bytes;
	zcc_status status = ZCC_OK;
	for (int64_t done = 0; status == ZCC_OK && done < count; done += room) {
		int64_t n = count - done < room ? count - done : room;
		status = zcc_cast_async(stream, scratch->target, route->target_dtype,
		                        source + done * route->source_elem_bytes, route->source_dtype, n, error);
		if (status == ZCC_OK)
			status = move_range(&route->target, route->to.data, first + done, n, scratch->target, true,
			                    elem_bytes, stream, error);
	}
	return status;
}

zcc_status zcci_device_route_copy(const zcci_route *route, zcc_stream *stream, const zcci_scratch *scratch,
                                  zcc_error *error)
{
	static const int64_t one = 1;
	const zcc_segment *segment = route->segment;
	if (!route->converts && segment->ndim == 0)
		return zcc_strided_async(stream, route->to.data, &one, route->from.data, &one, 1, &one,
		                         route->source_elem_bytes, error);
	if (!route->converts)
		return zcc_strided_async(stream, route->to.data, segment->target_strides_elems, route->from.data,
		                         segment->source_strides_elems, segment->ndim, segment->shape_elems,
		                         route->source_elem_bytes, error);
	zcc_status status = ZCC_OK;
	for (int64_t done = 0, n; status == ZCC_OK && done < segment->elems; done += n) {
		/* Cast from where it lies as far as that goes. */
		int64_t room = scratch->source_bytes / route->source_elem_bytes;
		int64_t run = zcci_view_run(&route->source, done);
		const char *source = scratch->source;
		n = segment->elems - done < room ? segment->elems - done : room;
		if (run >= n)
			source = route->from.data + zcci_view_offset(&route->source, done) * route->source_elem_bytes;
		else
			status = zcci_device_route_pack(route, done, n, scratch->source, stream, error);
		if (status == ZCC_OK)
			status = zcci_device_route_unpack(route, done, n, source, stream, scratch, error);
	}
	return status;
}
