#include "device/cuda/call.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/status.h"

zcc_status zcci_cuda_fault_at(zcc_error *error, cudaError_t code, const char *operation, const char *file, int32_t line,
                              const char *format, ...)
{
	char what[512];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	cudaGetLastError();
	return zcci_fail_at(error, ZCC_EDEVICE, (int32_t)code, operation, file, line, "%s: %s (%s, %d)", what,
	                    cudaGetErrorString(code), cudaGetErrorName(code), (int)code);
}

zcc_status zcci_cuda_enter(const zcci_cuda_device *device, const char *operation, int *previous, zcc_error *error)
{
	*previous = device->index;
	cudaError_t code = cudaGetDevice(previous);
	if (code == cudaSuccess && *previous != device->index)
		code = cudaSetDevice(device->index);
	return code == cudaSuccess ? ZCC_OK
	                           : zcci_cuda_fault(error, code, operation, "cudaSetDevice(%d)", device->index);
}

void zcci_cuda_leave(const zcci_cuda_device *device, int previous)
{
	if (previous != device->index)
		cudaSetDevice(previous);
}
