#include "device/work.h"

#include "base/memory.h"
#include "base/status.h"
#include "device/handles.h"

static const char *const place_names[] = {"", "pageable", "pinned", "device"};

static zcc_status check_place(const zcc_device *device, const char *operation, const char *which, const void *data,
                              int64_t bytes, int64_t align, bool pageable, zcc_error *error)
{
	int32_t place = 0;
	if (data == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "the %s is NULL", which);
	if ((uintptr_t)data % (uintptr_t)align != 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "the %s is at %p, not a multiple of its %lld bytes an element", which, data,
		                 (long long)align);
	zcc_status status = device->ops->place(device->impl, data, bytes, &place, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "%s", which);
	if (place == ZCC_AT_PAGEABLE && !pageable)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "the %s is in %s memory; only pinned or device memory may be used here", which,
		                 place_names[place]);
	return ZCC_OK;
}

/* Checks where the memory is and hands the work on. align: bytes of an element on either side. */
static zcc_status submit(zcc_stream *stream, const zcci_work *work, const char *operation, int64_t target_align,
                         int64_t source_align, zcc_error *error)
{
	const zcc_device *device = stream->device;
	int64_t target_bytes = zcci_work_target_bytes(work), source_bytes = zcci_work_source_bytes(work);
	bool is_copy = work->kind == ZCCI_WORK_COPY || work->kind == ZCCI_WORK_COPY_2D;
	zcc_status status =
	        check_place(device, operation, "target", work->target, target_bytes, target_align, is_copy, error);
	if (status == ZCC_OK)
		status = check_place(device, operation, "source", work->source, source_bytes, source_align, is_copy,
		                     error);
	if (status != ZCC_OK)
		return status;
	uintptr_t target = (uintptr_t)work->target, source = (uintptr_t)work->source;
	bool dense = work->kind != ZCCI_WORK_STRIDED && work->kind != ZCCI_WORK_COPY_2D;
	if (dense && target < source + (uintptr_t)source_bytes && source < target + (uintptr_t)target_bytes)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "target %p (%lld bytes) and source %p (%lld bytes) overlap", work->target,
		                 (long long)target_bytes, work->source, (long long)source_bytes);
	return zcci_work_submit(work, device->ops, device->impl, stream->impl, error);
}

static zcc_status check_count(int64_t count, const char *what, int64_t bytes_each, const char *operation,
                              zcc_error *error)
{
	int64_t bytes;
	if (count < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "%lld %s", (long long)count, what);
	if (zcci_mul_overflows(count, bytes_each, &bytes))
		return zcci_fail(error, ZCC_EOVERFLOW, 0, operation, "%lld %s of %lld bytes are more than 2^63 - 1",
		                 (long long)count, what, (long long)bytes_each);
	return ZCC_OK;
}

zcc_status zcc_copy_async(zcc_stream *stream, void *target, const void *source, int64_t bytes, zcc_error *error)
{
	static const char operation[] = "copy";
	zcc_status status = check_count(bytes, "bytes", 1, operation, error);
	if (status != ZCC_OK || bytes == 0)
		return status;
	zcci_work work = zcci_work_of_copy(target, source, bytes);
	return submit(stream, &work, operation, 1, 1, error);
}

static zcc_status check_pitch(int64_t pitch, int64_t bytes, int64_t rows, const char *which, const char *operation,
                              zcc_error *error)
{
	int64_t reach;
	if (pitch < bytes)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "%s rows of %lld bytes, %lld bytes apart", which,
		                 (long long)bytes, (long long)pitch);
	if (zcci_mul_overflows(rows - 1, pitch, &reach) || zcci_add_overflows(reach, bytes, &reach))
		return zcci_fail(error, ZCC_EOVERFLOW, 0, operation,
		                 "%lld %s rows, %lld bytes apart, reach past 2^63 - 1", (long long)rows, which,
		                 (long long)pitch);
	return ZCC_OK;
}

zcc_status zcc_copy_2d_async(zcc_stream *stream, void *target, int64_t target_pitch_bytes, const void *source,
                             int64_t source_pitch_bytes, int64_t bytes, int64_t rows, zcc_error *error)
{
	static const char operation[] = "2-D copy";
	zcc_status status = check_count(bytes, "bytes", 1, operation, error);
	if (status == ZCC_OK)
		status = check_count(rows, "rows", 1, operation, error);
	if (status != ZCC_OK || bytes == 0 || rows == 0)
		return status;
	status = check_pitch(target_pitch_bytes, bytes, rows, "target", operation, error);
	if (status == ZCC_OK)
		status = check_pitch(source_pitch_bytes, bytes, rows, "source", operation, error);
	if (status != ZCC_OK)
		return status;
	zcci_work work = zcci_work_of_copy_2d(target, target_pitch_bytes, source, source_pitch_bytes, bytes, rows);
	return submit(stream, &work, operation, 1, 1, error);
}

static bool is_castable(int32_t dtype)
{
	return dtype == ZCC_F32 || dtype == ZCC_F16 || dtype == ZCC_BF16;
}

zcc_status zcc_cast_async(zcc_stream *stream, void *target, int32_t target_dtype, const void *source,
                          int32_t source_dtype, int64_t elems, zcc_error *error)
{
	static const char operation[] = "cast";
	if (!is_castable(target_dtype) || !is_castable(source_dtype)) {
		const char *to = zcc_dtype_name(target_dtype), *from = zcc_dtype_name(source_dtype);
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "%s to %s; F32, F16 and BF16 are cast",
		                 from != NULL ? from : "no dtype", to != NULL ? to : "no dtype");
	}
	zcc_status status = check_count(elems, "elements", sizeof(float), operation, error);
	if (status != ZCC_OK || elems == 0)
		return status;
	zcci_work work = zcci_work_of_cast(target, target_dtype, source, source_dtype, elems);
	return submit(stream, &work, operation, zcc_dtype_bytes(target_dtype), zcc_dtype_bytes(source_dtype), error);
}

zcc_status zcc_lerp_async(zcc_stream *stream, float *ema, const void *param, int32_t param_dtype, double decay,
                          int64_t elems, zcc_error *error)
{
	static const char operation[] = "lerp";
	if (param_dtype != ZCC_F32 && param_dtype != ZCC_BF16) {
		const char *name = zcc_dtype_name(param_dtype);
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "a parameter of %s; F32 and BF16 are averaged",
		                 name != NULL ? name : "no dtype");
	}
	if (!(decay >= 0 && decay <= 1))
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "decay %g; 0 to 1 is allowed", decay);
	zcc_status status = check_count(elems, "elements", sizeof(float), operation, error);
	if (status != ZCC_OK || elems == 0)
		return status;
	zcci_work work = zcci_work_of_lerp(ema, param, param_dtype, decay, elems);
	return submit(stream, &work, operation, sizeof(float), zcc_dtype_bytes(param_dtype), error);
}

/* Every axis, and that neither the elements nor the reach overflow. */
static zcc_status check_strides(const int64_t *strides, const int64_t *shape, int32_t ndim, int32_t elem_bytes,
                                const char *which, zcc_error *error)
{
	static const char operation[] = "strided copy";
	int64_t last = 0, reach;
	for (int32_t axis = 0; axis < ndim; axis++) {
		if (strides[axis] < 0)
			return zcci_fail(error, ZCC_EINVAL, 0, operation, "%s stride %lld on axis %d", which,
			                 (long long)strides[axis], (int)axis);
		if (zcci_mul_overflows(shape[axis] - 1, strides[axis], &reach) ||
		    zcci_add_overflows(last, reach, &last))
			goto overflow;
	}
	if (zcci_add_overflows(last, 1, &last) || zcci_mul_overflows(last, elem_bytes, &last))
		goto overflow;
	return ZCC_OK;
overflow:
	return zcci_fail(error, ZCC_EOVERFLOW, 0, operation, "the %s's strides reach past 2^63 - 1 bytes", which);
}

static zcc_status check_shape(const int64_t *shape, int32_t ndim, int32_t elem_bytes, int64_t *elems, zcc_error *error)
{
	static const char operation[] = "strided copy";
	if (ndim < 1 || ndim > ZCC_MAX_NDIM)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "%d axes; 1 to %d are allowed", (int)ndim,
		                 ZCC_MAX_NDIM);
	if (elem_bytes != 1 && elem_bytes != 2 && elem_bytes != 4 && elem_bytes != 8)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "elements of %d bytes; 1, 2, 4 and 8 are allowed",
		                 (int)elem_bytes);
	bool empty = false;
	for (int32_t axis = 0; axis < ndim; axis++) {
		if (shape[axis] < 0)
			return zcci_fail(error, ZCC_EINVAL, 0, operation, "extent %lld on axis %d",
			                 (long long)shape[axis], (int)axis);
		empty = empty || shape[axis] == 0;
	}
	*elems = empty ? 0 : 1;
	for (int32_t axis = 0; axis < ndim && !empty; axis++)
		if (zcci_mul_overflows(*elems, shape[axis], elems))
			return zcci_fail(error, ZCC_EOVERFLOW, 0, operation,
			                 "the shape has more than 2^63 - 1 elements");
	return ZCC_OK;
}

zcc_status zcc_strided_async(zcc_stream *stream, void *target, const int64_t *target_strides_elems, const void *source,
                             const int64_t *source_strides_elems, int32_t ndim, const int64_t *shape_elems,
                             int32_t elem_bytes, zcc_error *error)
{
	static const char operation[] = "strided copy";
	int64_t elems = 0;
	zcc_status status = check_shape(shape_elems, ndim, elem_bytes, &elems, error);
	if (status != ZCC_OK || elems == 0)
		return status;
	status = check_strides(target_strides_elems, shape_elems, ndim, elem_bytes, "target", error);
	if (status == ZCC_OK)
		status = check_strides(source_strides_elems, shape_elems, ndim, elem_bytes, "source", error);
	if (status != ZCC_OK)
		return status;
	for (int32_t axis = 0; axis < ndim; axis++)
		if (target_strides_elems[axis] == 0 && shape_elems[axis] > 1)
			return zcci_fail(error, ZCC_EINVAL, 0, operation,
			                 "target stride 0 on axis %d of extent %lld writes elements twice", (int)axis,
			                 (long long)shape_elems[axis]);
	zcci_work work = zcci_work_of_strided(target, target_strides_elems, source, source_strides_elems, ndim,
	                                      shape_elems, elem_bytes);
	return submit(stream, &work, operation, elem_bytes, elem_bytes, error);
}
