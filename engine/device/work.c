#include "device/work.h"

#include <string.h>

#include "kernels/lerp.h"
#include "kernels/strided.h"

zcci_work zcci_work_of_copy(void *target, const void *source, int64_t bytes)
{
	return (zcci_work){.kind = ZCCI_WORK_COPY, .target = target, .source = source, .count = bytes};
}

zcci_work zcci_work_of_copy_2d(void *target, int64_t target_pitch_bytes, const void *source, int64_t source_pitch_bytes,
                               int64_t bytes, int64_t rows)
{
	return (zcci_work){.kind = ZCCI_WORK_COPY_2D,
	                   .target = target,
	                   .target_pitch_bytes = target_pitch_bytes,
	                   .source = source,
	                   .source_pitch_bytes = source_pitch_bytes,
	                   .count = bytes,
	                   .rows = rows};
}

zcci_work zcci_work_of_cast(void *target, int32_t target_dtype, const void *source, int32_t source_dtype, int64_t elems)
{
	return (zcci_work){.kind = ZCCI_WORK_CAST,
	                   .target = target,
	                   .target_dtype = target_dtype,
	                   .source = source,
	                   .source_dtype = source_dtype,
	                   .count = elems};
}

zcci_work zcci_work_of_lerp(float *ema, const void *param, int32_t param_dtype, double decay, int64_t elems)
{
	return (zcci_work){.kind = ZCCI_WORK_LERP,
	                   .target = ema,
	                   .source = param,
	                   .source_dtype = param_dtype,
	                   .decay = decay,
	                   .count = elems};
}

zcci_work zcci_work_of_strided(void *target, const int64_t *target_strides, const void *source,
                               const int64_t *source_strides, int32_t ndim, const int64_t *shape, int32_t elem_bytes)
{
	zcci_work work = {
	        .kind = ZCCI_WORK_STRIDED, .target = target, .source = source, .ndim = ndim, .elem_bytes = elem_bytes};
	memcpy(work.shape, shape, (size_t)ndim * sizeof *shape);
	memcpy(work.target_strides, target_strides, (size_t)ndim * sizeof *target_strides);
	memcpy(work.source_strides, source_strides, (size_t)ndim * sizeof *source_strides);
	return work;
}

static int64_t rows_span(int64_t rows, int64_t pitch, int64_t bytes)
{
	return rows > 0 ? (rows - 1) * pitch + bytes : 0;
}

static int64_t strided_span(const zcci_work *work, const int64_t *strides)
{
	int64_t last = 0;
	for (int32_t axis = 0; axis < work->ndim; axis++) {
		if (work->shape[axis] == 0)
			return 0;
		last += (work->shape[axis] - 1) * strides[axis];
	}
	return (last + 1) * work->elem_bytes;
}

int64_t zcci_work_target_bytes(const zcci_work *work)
{
	switch (work->kind) {
	case ZCCI_WORK_COPY_2D:
		return rows_span(work->rows, work->target_pitch_bytes, work->count);
	case ZCCI_WORK_CAST:
		return work->count * zcc_dtype_bytes(work->target_dtype);
	case ZCCI_WORK_LERP:
		return work->count * (int64_t)sizeof(float);
	case ZCCI_WORK_STRIDED:
		return strided_span(work, work->target_strides);
	}
	return work->count;
}

int64_t zcci_work_source_bytes(const zcci_work *work)
{
	switch (work->kind) {
	case ZCCI_WORK_COPY_2D:
		return rows_span(work->rows, work->source_pitch_bytes, work->count);
	case ZCCI_WORK_CAST:
	case ZCCI_WORK_LERP:
		return work->count * zcc_dtype_bytes(work->source_dtype);
	case ZCCI_WORK_STRIDED:
		return strided_span(work, work->source_strides);
	}
	return work->count;
}

static void run_strided(const zcci_work *work)
{
	zcci_view to = {.ndim = work->ndim}, from = {.ndim = work->ndim};
	int64_t count = 1;
	for (int32_t axis = 0; axis < work->ndim; axis++) {
		to.shape[axis] = from.shape[axis] = work->shape[axis];
		to.strides[axis] = work->target_strides[axis];
		from.strides[axis] = work->source_strides[axis];
		count *= work->shape[axis];
	}
	zcci_copy(work->target, &to, work->source, &from, 0, count, work->elem_bytes);
}

void zcci_work_run(const zcci_work *work)
{
	char *target = work->target;
	const char *source = work->source;
	switch (work->kind) {
	case ZCCI_WORK_COPY:
		memcpy(target, source, (size_t)work->count);
		break;
	case ZCCI_WORK_COPY_2D:
		for (int64_t row = 0; row < work->rows; row++)
			memcpy(target + row * work->target_pitch_bytes, source + row * work->source_pitch_bytes,
			       (size_t)work->count);
		break;
	case ZCCI_WORK_CAST:
		zcci_convert(target, work->target_dtype, source, work->source_dtype, 1, work->count);
		break;
	case ZCCI_WORK_LERP:
		zcci_lerp(work->target, source, work->source_dtype, work->decay, work->count);
		break;
	case ZCCI_WORK_STRIDED:
		run_strided(work);
		break;
	}
}

zcc_status zcci_work_submit(const zcci_work *work, const zcci_device_ops *ops, void *device, void *stream,
                            zcc_error *error)
{
	switch (work->kind) {
	case ZCCI_WORK_COPY_2D:
		return ops->copy_2d(device, stream, work->target, work->target_pitch_bytes, work->source,
		                    work->source_pitch_bytes, work->count, work->rows, error);
	case ZCCI_WORK_CAST:
		return ops->cast(device, stream, work->target, work->target_dtype, work->source, work->source_dtype,
		                 work->count, error);
	case ZCCI_WORK_LERP:
		return ops->lerp(device, stream, work->target, work->source, work->source_dtype, work->decay,
		                 work->count, error);
	case ZCCI_WORK_STRIDED:
		return ops->strided(device, stream, work->target, work->target_strides, work->source,
		                    work->source_strides, work->ndim, work->shape, work->elem_bytes, error);
	}
	return ops->copy(device, stream, work->target, work->source, work->count, error);
}
