#include "device/late_poison.h"

#include <string.h>

#include "base/memory.h"
#include "device/late.h"

enum { POISON_BYTES = 256 << 10 };

zcc_status zcci_late_poison_create(late_device *device, zcc_error *error)
{
	void *bytes, *poison;
	zcc_status status = zcc_memory_create(POISON_BYTES, &bytes, error);
	if (status != ZCC_OK)
		return status;
	memset(bytes, ZCCI_LATE_POISON, POISON_BYTES);
	status = device->ops->malloc(device->inner, POISON_BYTES, &poison, error);
	if (status == ZCC_OK) {
		device->poison = poison;
		status = device->ops->copy(device->inner, device->inner_stream, poison, bytes, POISON_BYTES, error);
	}
	if (status == ZCC_OK)
		status = zcci_late_settle(device, error);
	zcc_memory_destroy(bytes, POISON_BYTES);
	return status;
}

void zcci_late_poison_destroy(late_device *device)
{
	if (device->poison != NULL)
		device->ops->free(device->inner, device->poison);
}

static zcc_status poison_device(late_device *device, char *data, int64_t bytes, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	for (int64_t at = 0; at < bytes && status == ZCC_OK; at += POISON_BYTES) {
		int64_t n = bytes - at < POISON_BYTES ? bytes - at : POISON_BYTES;
		status = device->ops->copy(device->inner, device->inner_stream, data + at, device->poison, n, error);
	}
	return status;
}

zcc_status zcci_late_poison_bytes(late_device *device, void *data, int32_t place, int64_t bytes, zcc_error *error)
{
	if (place != ZCC_AT_DEVICE) {
		memset(data, ZCCI_LATE_POISON, (size_t)bytes);
		return ZCC_OK;
	}
	zcc_status status = poison_device(device, data, bytes, error);
	return status == ZCC_OK ? zcci_late_settle(device, error) : status;
}

static zcc_status poison_rows(late_device *device, const zcci_work *work, int32_t place, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	char *row = work->target;
	for (int64_t i = 0; i < work->rows && status == ZCC_OK; i++, row += work->target_pitch_bytes)
		status = zcci_late_poison_bytes(device, row, place, work->count, error);
	return status;
}

/* A strided copy whose source has no strides at all: every element is the first of the poison. */
static zcc_status poison_strided(late_device *device, const zcci_work *work, zcc_error *error)
{
	zcci_work fill = *work;
	fill.source = device->poison;
	memset(fill.source_strides, 0, sizeof fill.source_strides);
	zcc_status status = zcci_work_submit(&fill, device->ops, device->inner, device->inner_stream, error);
	return status == ZCC_OK ? zcci_late_settle(device, error) : status;
}

zcc_status zcci_late_poison_target(late_device *device, const zcci_work *work, int32_t place, zcc_error *error)
{
	switch (work->kind) {
	case ZCCI_WORK_LERP:
		return ZCC_OK;
	case ZCCI_WORK_COPY_2D:
		return poison_rows(device, work, place, error);
	case ZCCI_WORK_STRIDED:
		return poison_strided(device, work, error);
	}
	return zcci_late_poison_bytes(device, work->target, place, zcci_work_target_bytes(work), error);
}
