#include "device/cuda/export.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/status.h"
#include "device/cuda/blocks.h"
#include "device/cuda/call.h"
#include "device/cuda/range.h"

/* CUDA's handle stands for a whole allocation; a buffer may lie anywhere in it. */
typedef struct shared {
	char kind[8];
	cudaIpcMemHandle_t memory;
	int64_t offset_bytes; /* of the buffer in the allocation */
	int64_t bytes;
	uint64_t process; /* random, of the exporter: its own handles cannot be opened by CUDA */
	unsigned char uuid[16];
} shared;
_Static_assert(sizeof(shared) <= ZCC_EXPORT_BYTES, "a handle has room for what is shared");

static const char KIND[8] = "zcc-cuda";
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t own_process;

static void name_process(void)
{
	if (getrandom(&own_process, sizeof own_process, 0) != sizeof own_process)
		own_process = (uint64_t)(uintptr_t)&own_process ^ (uint64_t)zcc_clock_ns();
}

/* The allocation around data, and what is left of it from there. */
static zcc_status find_extent(void *data, int64_t *offset_bytes, int64_t *left_bytes, zcc_error *error)
{
	zcci_cuda_block block;
	void *base;
	int64_t whole;
	bool own = zcci_cuda_blocks_find(data, &block) && block.place == ZCC_AT_DEVICE;
	if (own && block.imported)
		return zcci_fail(error, ZCC_EINVAL, 0, "device export",
		                 "%p was imported; the process that allocated it exports it", data);
	if (zcci_cuda_range(data, &base, &whole)) {
		*offset_bytes = (char *)data - (char *)base;
		*left_bytes = own ? block.bytes - ((char *)data - block.data) : whole - *offset_bytes;
		return ZCC_OK;
	}
	if (!own)
		return zcci_fail(error, ZCC_EINVAL, 0, "device export",
		                 "%p is no device memory that this driver tells the extent of", data);
	*offset_bytes = (char *)data - block.data;
	*left_bytes = block.bytes - *offset_bytes;
	return ZCC_OK;
}

zcc_status zcci_cuda_export(void *device, void *data, uint8_t handle[ZCC_EXPORT_BYTES], zcc_error *error)
{
	const zcci_cuda_device *d = device;
	shared out = {.bytes = 0};
	int previous;
	pthread_once(&once, name_process);
	memcpy(out.kind, KIND, sizeof KIND);
	memcpy(out.uuid, d->uuid, sizeof out.uuid);
	out.process = own_process;
	zcc_status status = zcci_cuda_enter(d, "device export", &previous, error);
	if (status != ZCC_OK)
		return status;
	status = find_extent(data, &out.offset_bytes, &out.bytes, error);
	if (status == ZCC_OK) {
		cudaError_t code = cudaIpcGetMemHandle(&out.memory, data);
		if (code != cudaSuccess)
			status = zcci_cuda_fault(error, code, "device export",
			                         "cudaIpcGetMemHandle of %lld bytes at %p on cuda:%d",
			                         (long long)out.bytes, data, d->index);
	}
	zcci_cuda_leave(d, previous);
	if (status == ZCC_OK) {
		memset(handle, 0, ZCC_EXPORT_BYTES);
		memcpy(handle, &out, sizeof out);
	}
	return status;
}

static zcc_status check(const zcci_cuda_device *d, const shared *in, zcc_error *error)
{
	if (memcmp(in->kind, KIND, sizeof KIND) != 0)
		return zcci_fail(error, ZCC_EFORMAT, 0, "device import", "the handle was not made by a CUDA device");
	if (in->offset_bytes < 0 || in->bytes < 0)
		return zcci_fail(error, ZCC_EFORMAT, 0, "device import", "the handle names %lld bytes at %lld",
		                 (long long)in->bytes, (long long)in->offset_bytes);
	if (in->process == own_process)
		return zcci_fail(error, ZCC_EINVAL, 0, "device import",
		                 "the handle was made by this process, which has the memory already");
	if (memcmp(in->uuid, d->uuid, sizeof d->uuid) != 0)
		return zcci_fail(error, ZCC_EFORMAT, 0, "device import", "the handle is of another GPU than cuda:%d",
		                 d->index);
	return ZCC_OK;
}

/* Notes what CUDA mapped at base, after holding the handle's numbers against the allocation. */
static zcc_status accept(const zcci_cuda_device *d, const shared *in, void *base, void **data, zcc_error *error)
{
	void *whole_base;
	int64_t whole;
	if (zcci_cuda_range(base, &whole_base, &whole) &&
	    (in->offset_bytes > whole || in->bytes > whole - in->offset_bytes))
		return zcci_fail(error, ZCC_EFORMAT, 0, "device import",
		                 "the handle names %lld bytes at %lld of an allocation of %lld", (long long)in->bytes,
		                 (long long)in->offset_bytes, (long long)whole);
	zcci_cuda_block block = {.data = (char *)base + in->offset_bytes,
	                         .bytes = in->bytes,
	                         .base = base,
	                         .index = d->index,
	                         .owner = d,
	                         .place = ZCC_AT_DEVICE,
	                         .imported = true};
	if (zcci_cuda_blocks_add(&block) != ZCC_OK)
		return zcci_fail(error, ZCC_ENOMEM, 0, "device import", "no memory to note an import of %lld bytes",
		                 (long long)in->bytes);
	*data = block.data;
	return ZCC_OK;
}

zcc_status zcci_cuda_import(void *device, const uint8_t handle[ZCC_EXPORT_BYTES], void **data, int64_t *bytes,
                            zcc_error *error)
{
	const zcci_cuda_device *d = device;
	shared in;
	int previous;
	void *base = NULL;
	pthread_once(&once, name_process);
	memcpy(&in, handle, sizeof in);
	zcc_status status = check(d, &in, error);
	if (status == ZCC_OK)
		status = zcci_cuda_enter(d, "device import", &previous, error);
	if (status != ZCC_OK)
		return status;
	cudaError_t code = cudaIpcOpenMemHandle(&base, in.memory, cudaIpcMemLazyEnablePeerAccess);
	if (code != cudaSuccess) {
		status = zcci_cuda_fault(error, code, "device import", "cudaIpcOpenMemHandle of %lld bytes on cuda:%d",
		                         (long long)in.bytes, d->index);
	} else {
		status = accept(d, &in, base, data, error);
		if (status == ZCC_OK)
			*bytes = in.bytes;
		else
			cudaIpcCloseMemHandle(base);
	}
	zcci_cuda_leave(d, previous);
	return status;
}
