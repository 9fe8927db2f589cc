/* What every call to CUDA needs: its faults in words, and the device it is meant for. */
#ifndef ZCCI_CUDA_CALL_H
#define ZCCI_CUDA_CALL_H

#include <cuda_runtime_api.h>

#include "device/device.h"

/* An opened device. Streams and events of the table are CUDA's own. */
typedef struct zcci_cuda_device {
	int32_t index;
	int32_t processors;
	int64_t max_pitch;
	unsigned char uuid[16];
} zcci_cuda_device;

/* ZCC_EDEVICE: "WHAT: CUDA's text (its name, number)", WHAT being the call with its sizes. Takes the fault off CUDA's
 * own record, where it would be taken for that of a later call. */
#define zcci_cuda_fault(error, code, operation, ...)                                                                   \
	zcci_cuda_fault_at(error, code, operation, __FILE__, __LINE__, __VA_ARGS__)

zcc_status zcci_cuda_fault_at(zcc_error *error, cudaError_t code, const char *operation, const char *file, int32_t line,
                              const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Makes the device the calling thread's current one, which it may share with a framework: leave puts back what it was.
 */
zcc_status zcci_cuda_enter(const zcci_cuda_device *device, const char *operation, int *previous, zcc_error *error);
void zcci_cuda_leave(const zcci_cuda_device *device, int previous);

#endif
