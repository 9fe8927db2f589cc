#include "device/cuda/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/status.h"
#include "device/cuda/blocks.h"
#include "device/cuda/call.h"
#include "device/cuda/range.h"

/* CUDA gives no address for 0 bytes. */
static size_t at_least_one(int64_t bytes)
{
	return bytes > 0 ? (size_t)bytes : 1;
}

static zcc_status remember(const zcci_cuda_device *d, void *data, int64_t bytes, int32_t place, zcc_error *error)
{
	zcci_cuda_block block = {
	        .data = data, .bytes = bytes, .base = data, .index = d->index, .owner = d, .place = place};
	if (zcci_cuda_blocks_add(&block) == ZCC_OK)
		return ZCC_OK;
	return zcci_fail(error, ZCC_ENOMEM, 0, "device malloc", "no memory to note an allocation of %lld bytes",
	                 (long long)bytes);
}

zcc_status zcci_cuda_malloc(void *device, int64_t bytes, void **data, zcc_error *error)
{
	const zcci_cuda_device *d = device;
	int previous;
	void *made = NULL;
	zcc_status status = zcci_cuda_enter(d, "device malloc", &previous, error);
	if (status != ZCC_OK)
		return status;
	cudaError_t code = cudaMalloc(&made, at_least_one(bytes));
	if (code == cudaErrorMemoryAllocation) {
		size_t free_bytes = 0;
		size_t total_bytes = 0;
		cudaGetLastError();
		cudaMemGetInfo(&free_bytes, &total_bytes);
		status = zcci_fail(error, ZCC_ENOMEM, (int32_t)code, "device malloc",
		                   "%lld bytes asked of cuda:%d, %zu of its %zu are free", (long long)bytes, d->index,
		                   free_bytes, total_bytes);
	} else if (code != cudaSuccess) {
		status = zcci_cuda_fault(error, code, "device malloc", "cudaMalloc of %lld bytes on cuda:%d",
		                         (long long)bytes, d->index);
	} else {
		status = remember(d, made, bytes, ZCC_AT_DEVICE, error);
		if (status == ZCC_OK)
			*data = made;
		else
			cudaFree(made);
	}
	zcci_cuda_leave(d, previous);
	return status;
}

bool zcci_cuda_free(void *device, void *data)
{
	const zcci_cuda_device *d = device;
	zcci_cuda_block block;
	int previous;
	if (!zcci_cuda_blocks_take(data, d, ZCC_AT_DEVICE, &block))
		return false;
	if (zcci_cuda_enter(d, "device free", &previous, NULL) != ZCC_OK)
		return true;
	/* CUDA does not promise that either call below waits for streams that do not block. */
	cudaDeviceSynchronize();
	if (block.imported)
		cudaIpcCloseMemHandle(block.base);
	else
		cudaFree(block.base);
	cudaGetLastError();
	zcci_cuda_leave(d, previous);
	return true;
}

zcc_status zcci_cuda_pinned_malloc(void *device, int64_t bytes, void **data, zcc_error *error)
{
	const zcci_cuda_device *d = device;
	int previous;
	void *made = NULL;
	zcc_status status = zcci_cuda_enter(d, "pinned malloc", &previous, error);
	if (status != ZCC_OK)
		return status;
	/* Pinned for every device of the process: it may be shared by several. */
	cudaError_t code = cudaHostAlloc(&made, at_least_one(bytes), cudaHostAllocPortable);
	if (code == cudaErrorMemoryAllocation) {
		cudaGetLastError();
		status = zcci_fail(
		        error, ZCC_ENOMEM, (int32_t)code, "pinned malloc",
		        "%lld bytes of pinned memory asked for; this machine has %lld bytes of memory, %lld unused",
		        (long long)bytes, (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE),
		        (long long)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE));
	} else if (code != cudaSuccess) {
		status = zcci_cuda_fault(error, code, "pinned malloc", "cudaHostAlloc of %lld bytes", (long long)bytes);
	} else {
		memset(made, 0, at_least_one(bytes));
		status = remember(d, made, bytes, ZCC_AT_PINNED, error);
		if (status == ZCC_OK)
			*data = made;
		else
			cudaFreeHost(made);
	}
	zcci_cuda_leave(d, previous);
	return status;
}

bool zcci_cuda_pinned_free(void *device, void *data)
{
	const zcci_cuda_device *d = device;
	zcci_cuda_block block;
	int previous;
	if (!zcci_cuda_blocks_take(data, d, ZCC_AT_PINNED, &block))
		return false;
	if (zcci_cuda_enter(d, "pinned free", &previous, NULL) != ZCC_OK)
		return true;
	cudaDeviceSynchronize();
	cudaFreeHost(block.base);
	cudaGetLastError();
	zcci_cuda_leave(d, previous);
	return true;
}

/* The kernel reads the address before it looks at the first argument, which is none it knows. Without this a pointer to
 * device memory that was freed would pass for ordinary memory. */
static bool is_readable(const void *data)
{
	int kept = errno;
	bool readable = syscall(SYS_rt_sigprocmask, -1, (uintptr_t)data & ~(uintptr_t)7, NULL, (size_t)8) == 0 ||
	                errno != EFAULT;
	errno = kept;
	return readable;
}

/* Memory that somebody else allocated: CUDA knows its kind, and the extent where it is on a device. */
static zcc_status ask_cuda(const zcci_cuda_device *d, const void *data, int64_t bytes, int32_t *place, zcc_error *error)
{
	struct cudaPointerAttributes about = {0};
	cudaError_t code = cudaPointerGetAttributes(&about, data);
	if (code == cudaErrorInvalidValue) {
		cudaGetLastError();
		about.type = cudaMemoryTypeUnregistered;
	} else if (code != cudaSuccess) {
		return zcci_cuda_fault(error, code, "device place", "cudaPointerGetAttributes(%p)", data);
	}
	if (about.type == cudaMemoryTypeUnregistered && !is_readable(data))
		return zcci_fail(error, ZCC_ESTALE, 0, "device place",
		                 "%p is neither allocated on a device nor ordinary memory", data);
	if (about.type == cudaMemoryTypeUnregistered || about.type == cudaMemoryTypeHost) {
		*place = about.type == cudaMemoryTypeHost ? ZCC_AT_PINNED : ZCC_AT_PAGEABLE;
		return ZCC_OK;
	}
	if (about.type == cudaMemoryTypeDevice && about.device != d->index)
		return zcci_fail(error, ZCC_EINVAL, 0, "device place", "%p is memory of cuda:%d, not of cuda:%d", data,
		                 about.device, d->index);
	void *base;
	int64_t whole;
	if (zcci_cuda_range(data, &base, &whole)) {
		int64_t left = whole - ((const char *)data - (const char *)base);
		if (bytes > left)
			return zcci_fail(error, ZCC_EINVAL, 0, "device place",
			                 "%lld bytes from %p, whose allocation ends after %lld", (long long)bytes, data,
			                 (long long)left);
	}
	*place = ZCC_AT_DEVICE;
	return ZCC_OK;
}

zcc_status zcci_cuda_place(void *device, const void *data, int64_t bytes, int32_t *place, zcc_error *error)
{
	const zcci_cuda_device *d = device;
	zcci_cuda_block block;
	if (!zcci_cuda_blocks_find(data, &block)) {
		int previous;
		zcc_status status = zcci_cuda_enter(d, "device place", &previous, error);
		if (status != ZCC_OK)
			return status;
		status = ask_cuda(d, data, bytes, place, error);
		zcci_cuda_leave(d, previous);
		return status;
	}
	int64_t left = block.bytes - ((const char *)data - block.data);
	if (bytes > left)
		return zcci_fail(error, ZCC_EINVAL, 0, "device place",
		                 "%lld bytes from byte %lld of an allocation of %lld", (long long)bytes,
		                 (long long)(block.bytes - left), (long long)block.bytes);
	if (block.place == ZCC_AT_DEVICE && block.index != d->index)
		return zcci_fail(error, ZCC_EINVAL, 0, "device place", "%p is memory of cuda:%d, not of cuda:%d", data,
		                 block.index, d->index);
	*place = block.place;
	return ZCC_OK;
}
