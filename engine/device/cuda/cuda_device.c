#include "device/cuda/cuda_device.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "device/cuda/call.h"
#include "device/cuda/export.h"
#include "device/cuda/launch.h"
#include "device/cuda/memory.h"
#include "device/cuda/order.h"

/* CUDA's versions are 1000 * major + 10 * minor. */
static void print_version(char text[16], int version)
{
	snprintf(text, 16, "%d.%d", version / 1000, version % 1000 / 10);
}

static zcc_status count_devices(int32_t *count, zcc_error *error)
{
	int n = 0;
	cudaError_t code = cudaGetDeviceCount(&n);
	if (code == cudaSuccess) {
		*count = n;
		return ZCC_OK;
	}
	int driver = 0;
	char has[16];
	char wants[16];
	cudaDriverGetVersion(&driver);
	print_version(has, driver);
	print_version(wants, CUDART_VERSION);
	if (driver == 0)
		return zcci_cuda_fault(error, code, "device count",
		                       "no driver of a GPU is installed, CUDA %s is wanted", wants);
	return zcci_cuda_fault(error, code, "device count",
	                       "cudaGetDeviceCount with a driver for CUDA %s, this is CUDA %s", has, wants);
}

static zcc_status properties(int32_t index, const char *operation, struct cudaDeviceProp *about, zcc_error *error)
{
	int32_t count = 0;
	zcc_status status = count_devices(&count, error);
	if (status != ZCC_OK)
		return status;
	if (index < 0 || index >= count)
		return zcci_fail(error, ZCC_EDEVICE, (int32_t)cudaErrorInvalidDevice, operation,
		                 "cuda:%d asked for, this machine has %d", index, count);
	cudaError_t code = cudaGetDeviceProperties(about, index);
	return code == cudaSuccess
	               ? ZCC_OK
	               : zcci_cuda_fault(error, code, operation, "cudaGetDeviceProperties of cuda:%d", index);
}

static zcc_status describe(int32_t index, char text[256], zcc_error *error)
{
	struct cudaDeviceProp about;
	zcc_status status = properties(index, "device describe", &about, error);
	if (status != ZCC_OK)
		return status;
	int driver = 0;
	char has[16];
	cudaDriverGetVersion(&driver);
	print_version(has, driver);
	snprintf(text, 256, "%.128s, %.1f GiB, compute capability %d.%d, driver for CUDA %s", about.name,
	         (double)about.totalGlobalMem / (1 << 30), about.major, about.minor, has);
	return ZCC_OK;
}

static zcc_status open_device(int32_t index, void **device, zcc_error *error)
{
	struct cudaDeviceProp about;
	int previous;
	zcc_status status = properties(index, "device open", &about, error);
	if (status != ZCC_OK)
		return status;
	zcci_cuda_device *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "device open", "no memory to open cuda:%d", index);
	made->index = index;
	made->processors = about.multiProcessorCount > 0 ? about.multiProcessorCount : 1;
	made->max_pitch = (int64_t)about.memPitch;
	memcpy(made->uuid, about.uuid.bytes, sizeof made->uuid);
	/* What makes CUDA set the device up; without it the first allocation of a caller would. */
	status = zcci_cuda_enter(made, "device open", &previous, error);
	if (status == ZCC_OK) {
		cudaError_t code = cudaFree(NULL);
		if (code != cudaSuccess)
			status = zcci_cuda_fault(error, code, "device open", "setting up cuda:%d", index);
		zcci_cuda_leave(made, previous);
	}
	if (status != ZCC_OK) {
		zcci_free(made);
		return status;
	}
	*device = made;
	return ZCC_OK;
}

static void close_device(void *device)
{
	zcci_free(device);
}

static const zcci_device_ops ops = {
        .version = ZCCI_DEVICE_VERSION,
        .struct_bytes = sizeof ops,
        .name = "cuda",
        .count = count_devices,
        .describe = describe,
        .open = open_device,
        .close = close_device,
        .malloc = zcci_cuda_malloc,
        .free = zcci_cuda_free,
        .pinned_malloc = zcci_cuda_pinned_malloc,
        .pinned_free = zcci_cuda_pinned_free,
        .place = zcci_cuda_place,
        .export = zcci_cuda_export,
        .import = zcci_cuda_import,
        .stream_create = zcci_cuda_stream_create,
        .stream_destroy = zcci_cuda_stream_destroy,
        .stream_wait = zcci_cuda_stream_wait,
        .stream_test = zcci_cuda_stream_test,
        .stream_wait_event = zcci_cuda_stream_wait_event,
        .event_create = zcci_cuda_event_create,
        .event_destroy = zcci_cuda_event_destroy,
        .event_record = zcci_cuda_event_record,
        .event_wait = zcci_cuda_event_wait,
        .event_test = zcci_cuda_event_test,
        .copy = zcci_cuda_copy,
        .copy_2d = zcci_cuda_copy_2d,
        .cast = zcci_cuda_cast_elems,
        .lerp = zcci_cuda_lerp_elems,
        .strided = zcci_cuda_strided_elems,
};

const zcci_device_ops *zcc_device_plugin(uint32_t core_version)
{
	(void)core_version;
	return &ops;
}
