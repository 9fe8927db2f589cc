#include "transfer/route.h"

#include <string.h>

/* Elements converted at a time where both sides are strided: small enough for the first-level cache. */
enum { SCRATCH_ELEMS = 1024 };

static void set_view(zcci_view *view, const zcc_segment *segment, const int64_t *strides)
{
	view->ndim = segment->ndim;
	memcpy(view->shape, segment->shape_elems, (size_t)segment->ndim * sizeof *view->shape);
	memcpy(view->strides, strides, (size_t)segment->ndim * sizeof *view->strides);
}

void zcci_route_init(zcci_route *route, const zcc_segment *segment, int32_t source_dtype, int32_t target_dtype)
{
	route->segment = segment;
	route->source_dtype = source_dtype;
	route->target_dtype = target_dtype;
	route->source_elem_bytes = zcc_dtype_bytes(source_dtype);
	route->target_elem_bytes = zcc_dtype_bytes(target_dtype);
	route->converts = source_dtype != target_dtype || segment->factor != 1;
	set_view(&route->source, segment, segment->source_strides_elems);
	set_view(&route->target, segment, segment->target_strides_elems);
	zcci_view_simplify(&route->source, NULL);
	zcci_view_simplify(&route->target, NULL);
	route->from = (zcci_place){0};
	route->to = (zcci_place){0};
}

int64_t zcci_view_run(const zcci_view *view, int64_t first)
{
	int32_t last = view->ndim - 1;
	if (last < 0 || view->strides[last] != 1)
		return 1;
	return view->shape[last] - first % view->shape[last];
}

int64_t zcci_view_offset(const zcci_view *view, int64_t index)
{
	int64_t offset = 0;
	for (int32_t i = view->ndim - 1; i >= 0; i--) {
		offset += index % view->shape[i] * view->strides[i];
		index /= view->shape[i];
	}
	return offset;
}

static char *dense_range(char *data, const zcci_view *view, int64_t first, int64_t count, int32_t elem_bytes)
{
	if (data == NULL || zcci_view_run(view, first) < count)
		return NULL;
	return data + zcci_view_offset(view, first) * elem_bytes;
}

char *zcci_route_source_range(const zcci_route *route, int64_t first, int64_t count)
{
	return dense_range(route->from.data, &route->source, first, count, route->source_elem_bytes);
}

char *zcci_route_target_range(const zcci_route *route, int64_t first, int64_t count)
{
	if (route->converts)
		return NULL;
	return dense_range(route->to.data, &route->target, first, count, route->target_elem_bytes);
}

static void convert(const zcci_route *route, void *target, const void *source, int64_t count)
{
	zcci_convert(target, route->target_dtype, source, route->source_dtype, route->segment->factor, count);
}

void zcci_route_pack(const zcci_route *route, int64_t first, int64_t count, void *dense)
{
	zcci_pack(dense, route->from.data, &route->source, first, count, route->source_elem_bytes);
}

void zcci_route_unpack(const zcci_route *route, int64_t first, int64_t count, const void *dense)
{
	const char *source = dense;
	char *target = dense_range(route->to.data, &route->target, first, count, route->target_elem_bytes);
	if (!route->converts) {
		zcci_unpack(route->to.data, &route->target, first, count, dense, route->target_elem_bytes);
	} else if (target != NULL) {
		convert(route, target, source, count);
	} else {
		_Alignas(16) char scratch[SCRATCH_ELEMS * 8];
		for (int64_t done = 0; done < count; done += SCRATCH_ELEMS) {
			int64_t n = count - done < SCRATCH_ELEMS ? count - done : SCRATCH_ELEMS;
			convert(route, scratch, source + done * route->source_elem_bytes, n);
			zcci_unpack(route->to.data, &route->target, first + done, n, scratch, route->target_elem_bytes);
		}
	}
}

void zcci_route_copy(const zcci_route *route, int64_t first, int64_t count)
{
	if (!route->converts) {
		zcci_copy(route->to.data, &route->target, route->from.data, &route->source, first, count,
		          route->source_elem_bytes);
		return;
	}
	char *dense = zcci_route_source_range(route, first, count);
	if (dense != NULL) {
		zcci_route_unpack(route, first, count, dense);
		return;
	}
	_Alignas(16) char scratch[SCRATCH_ELEMS * 8];
	for (int64_t done = 0; done < count; done += SCRATCH_ELEMS) {
		int64_t n = count - done < SCRATCH_ELEMS ? count - done : SCRATCH_ELEMS;
		zcci_route_pack(route, first + done, n, scratch);
		zcci_route_unpack(route, first + done, n, scratch);
	}
}
