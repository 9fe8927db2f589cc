#include "device/cuda/launch.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "device/cuda/call.h"
#include "device/cuda/kernels.h"
#include "device/cuda/strided.h"

/* Threads of a block, and blocks for each processor of the device: enough to keep it busy, few enough that each has
 * work to loop over. */
enum { THREADS = 256, BLOCKS_PER_PROCESSOR = 16 };

/* ---- copies ---- */

static zcc_status copy_here(const zcci_cuda_device *d, cudaStream_t stream, void *target, const void *source,
                            int64_t bytes, zcc_error *error)
{
	cudaError_t code = cudaMemcpyAsync(target, source, (size_t)bytes, cudaMemcpyDefault, stream);
	if (code == cudaSuccess)
		return ZCC_OK;
	return zcci_cuda_fault(error, code, "copy", "cudaMemcpyAsync of %lld bytes from %p to %p on cuda:%d",
	                       (long long)bytes, source, target, d->index);
}

zcc_status zcci_cuda_copy(void *device, void *stream, void *target, const void *source, int64_t bytes, zcc_error *error)
{
	const zcci_cuda_device *d = device;
	int previous;
	if (bytes == 0)
		return ZCC_OK;
	zcc_status status = zcci_cuda_enter(d, "copy", &previous, error);
	if (status != ZCC_OK)
		return status;
	status = copy_here(d, stream, target, source, bytes, error);
	zcci_cuda_leave(d, previous);
	return status;
}

zcc_status zcci_cuda_copy_2d(void *device, void *stream, void *target, int64_t target_pitch, const void *source,
                             int64_t source_pitch, int64_t bytes, int64_t rows, zcc_error *error)
{
	const zcci_cuda_device *d = device;
	int previous;
	if (bytes == 0 || rows == 0)
		return ZCC_OK;
	zcc_status status = zcci_cuda_enter(d, "copy 2d", &previous, error);
	if (status != ZCC_OK)
		return status;
	if (rows == 1 || (target_pitch == bytes && source_pitch == bytes)) {
		status = copy_here(d, stream, target, source, bytes * rows, error);
	} else if (target_pitch > d->max_pitch || source_pitch > d->max_pitch) {
		/* CUDA takes no such pitch. Rows that far apart are few. */
		for (int64_t row = 0; status == ZCC_OK && row < rows; row++)
			status = copy_here(d, stream, (char *)target + row * target_pitch,
			                   (const char *)source + row * source_pitch, bytes, error);
	} else {
		cudaError_t code = cudaMemcpy2DAsync(target, (size_t)target_pitch, source, (size_t)source_pitch,
		                                     (size_t)bytes, (size_t)rows, cudaMemcpyDefault, stream);
		if (code != cudaSuccess)
			status = zcci_cuda_fault(error, code, "copy 2d",
			                         "cudaMemcpy2DAsync of %lld rows of %lld bytes, %lld and %lld apart, "
			                         "from %p to %p on cuda:%d",
			                         (long long)rows, (long long)bytes, (long long)source_pitch,
			                         (long long)target_pitch, source, target, d->index);
	}
	zcci_cuda_leave(d, previous);
	return status;
}

/* ---- kernels ---- */

static int64_t at_most(int64_t value, int64_t limit)
{
	return value < limit ? value : limit;
}

static int64_t round_up(int64_t value, int64_t unit)
{
	return (value - 1) / unit + 1;
}

static zcc_status launch(const zcci_cuda_device *d, cudaStream_t stream, const char *name, void *argument, dim3 grid,
                         dim3 block, const char *operation, int64_t elems, zcc_error *error)
{
	const zcci_cuda_kernel *kernel = zcci_cuda_kernels;
	while (kernel->name != NULL && strcmp(kernel->name, name) != 0)
		kernel++;
	if (kernel->name == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "this plug-in has no kernel '%s'", name);
	int previous;
	zcc_status status = zcci_cuda_enter(d, operation, &previous, error);
	if (status != ZCC_OK)
		return status;
	cudaError_t code = cudaLaunchKernel(kernel->function, grid, block, &argument, 0, stream);
	if (code != cudaSuccess)
		status = zcci_cuda_fault(error, code, operation, "launch of kernel %s for %lld elements on cuda:%d",
		                         name, (long long)elems, d->index);
	zcci_cuda_leave(d, previous);
	return status;
}

/* A thread for each vector and, where there are none, each element, up to what keeps the device busy. */
static zcc_status launch_flat(const zcci_cuda_device *d, cudaStream_t stream, const char *name, void *argument,
                              int64_t elems, int64_t vectors, const char *operation, zcc_error *error)
{
	int64_t items = vectors > 0 ? vectors : elems;
	int64_t blocks = at_most(round_up(items, THREADS), (int64_t)d->processors * BLOCKS_PER_PROCESSOR);
	return launch(d, stream, name, argument, (dim3){(unsigned)blocks, 1, 1}, (dim3){THREADS, 1, 1}, operation,
	              elems, error);
}

static int64_t whole_vectors(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes, int64_t elems)
{
	bool aligned = (uintptr_t)a % (uintptr_t)(a_bytes * ZCCI_CUDA_VECTOR) == 0 &&
	               (uintptr_t)b % (uintptr_t)(b_bytes * ZCCI_CUDA_VECTOR) == 0;
	return aligned ? elems / ZCCI_CUDA_VECTOR : 0;
}

/* NULL for a dtype that no kernel takes. */
static const char *short_name(int32_t dtype)
{
	return dtype == ZCC_F32 ? "f32" : dtype == ZCC_BF16 ? "bf16" : dtype == ZCC_F16 ? "f16" : NULL;
}

static const char *dtype_name(int32_t dtype)
{
	const char *name = zcc_dtype_name(dtype);
	return name != NULL ? name : "no dtype";
}

zcc_status zcci_cuda_cast_elems(void *device, void *stream, void *target, int32_t target_dtype, const void *source,
                                int32_t source_dtype, int64_t elems, zcc_error *error)
{
	char name[32];
	int64_t target_bytes = zcc_dtype_bytes(target_dtype);
	int64_t source_bytes = zcc_dtype_bytes(source_dtype);
	if (short_name(target_dtype) == NULL || short_name(source_dtype) == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "cast",
		                 "no cast from %s to %s on cuda; F16, BF16 and F32 are cast", dtype_name(source_dtype),
		                 dtype_name(target_dtype));
	if (target_dtype == source_dtype)
		return zcci_cuda_copy(device, stream, target, source, elems * source_bytes, error);
	if (elems == 0)
		return ZCC_OK;
	snprintf(name, sizeof name, "cast_%s_%s", short_name(target_dtype), short_name(source_dtype));
	zcci_cuda_cast argument = {.target = target, .source = source, .elems = elems};
	argument.vectors = whole_vectors(target, target_bytes, source, source_bytes, elems);
	return launch_flat(device, stream, name, &argument, elems, argument.vectors, "cast", error);
}

zcc_status zcci_cuda_lerp_elems(void *device, void *stream, float *ema, const void *param, int32_t param_dtype,
                                double decay, int64_t elems, zcc_error *error)
{
	char name[32];
	if (short_name(param_dtype) == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "lerp",
		                 "no moving average of %s on cuda; F16, BF16 and F32 are averaged",
		                 dtype_name(param_dtype));
	if (elems == 0)
		return ZCC_OK;
	snprintf(name, sizeof name, "lerp_%s", short_name(param_dtype));
	zcci_cuda_lerp argument = {.ema = ema, .param = param, .elems = elems, .weight = (float)(1 - decay)};
	argument.vectors = whole_vectors(ema, sizeof *ema, param, zcc_dtype_bytes(param_dtype), elems);
	return launch_flat(device, stream, name, &argument, elems, argument.vectors, "lerp", error);
}

/* ---- strided ---- */

/* A block is `across` threads along a row and as many rows as are left of THREADS. */
static zcc_status launch_strided(const zcci_cuda_device *d, cudaStream_t stream, zcci_cuda_strided *argument,
                                 int32_t elem_bytes, zcc_error *error)
{
	enum { MOVES_PER_THREAD = 4, MAX_GRID_Y = 65535 };
	char name[32];
	int64_t across = 1;
	while (across < THREADS && across < argument->inner)
		across *= 2;
	int64_t down = THREADS / across;
	int64_t columns = at_most(round_up(argument->inner, across * MOVES_PER_THREAD), MAX_GRID_Y);
	int64_t limit = (int64_t)d->processors * BLOCKS_PER_PROCESSOR;
	int64_t rows = at_most(round_up(argument->rows, down), columns < limit ? limit / columns : 1);
	snprintf(name, sizeof name, "strided_%d", elem_bytes);
	return launch(d, stream, name, argument, (dim3){(unsigned)rows, (unsigned)columns, 1},
	              (dim3){(unsigned)across, (unsigned)down, 1}, "strided copy", argument->rows * argument->inner,
	              error);
}

zcc_status zcci_cuda_strided_elems(void *device, void *stream, void *target, const int64_t *target_strides,
                                   const void *source, const int64_t *source_strides, int32_t ndim,
                                   const int64_t *shape, int32_t elem_bytes, zcc_error *error)
{
	zcci_cuda_strided argument;
	if (elem_bytes != 1 && elem_bytes != 2 && elem_bytes != 4 && elem_bytes != 8)
		return zcci_fail(error, ZCC_EINVAL, 0, "strided copy", "elements of %d bytes; 1, 2, 4 and 8 are copied",
		                 elem_bytes);
	for (int32_t axis = 0; axis < ndim; axis++)
		if (shape[axis] == 0)
			return ZCC_OK;
	zcci_cuda_strided_plan(&argument, &elem_bytes, target, target_strides, source, source_strides, ndim, shape);
	if (argument.rows == 1 && argument.target_step == 1 && argument.source_step == 1)
		return zcci_cuda_copy(device, stream, target, source, argument.inner * elem_bytes, error);
	return launch_strided(device, stream, &argument, elem_bytes, error);
}
