#include "device/host.h"

#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "device/host_memory.h"
#include "device/host_stream.h"

static zcc_status count(int32_t *n, zcc_error *error)
{
	(void)error;
	*n = 1;
	return ZCC_OK;
}

static zcc_status describe(int32_t index, char about[256], zcc_error *error)
{
	(void)index, (void)error;
	double gib = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1 << 30);
	snprintf(about, 256, "this machine's %ld processors and %.1f GiB of memory", sysconf(_SC_NPROCESSORS_ONLN),
	         gib);
	return ZCC_OK;
}

/* All state is the process's; the handle tells whose an allocation is. */
static zcc_status open_host(int32_t index, void **device, zcc_error *error)
{
	(void)index;
	void *made = zcci_malloc(1);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "device open", "no memory for the host device");
	*device = made;
	return ZCC_OK;
}

static void close_host(void *device)
{
	zcci_free(device);
}

static zcc_status copy(void *device, void *stream, void *target, const void *source, int64_t bytes, zcc_error *error)
{
	(void)device;
	zcci_work work = zcci_work_of_copy(target, source, bytes);
	return zcci_host_submit(stream, &work, error);
}

static zcc_status copy_2d(void *device, void *stream, void *target, int64_t target_pitch, const void *source,
                          int64_t source_pitch, int64_t bytes, int64_t rows, zcc_error *error)
{
	(void)device;
	zcci_work work = zcci_work_of_copy_2d(target, target_pitch, source, source_pitch, bytes, rows);
	return zcci_host_submit(stream, &work, error);
}

static zcc_status cast(void *device, void *stream, void *target, int32_t target_dtype, const void *source,
                       int32_t source_dtype, int64_t elems, zcc_error *error)
{
	(void)device;
	zcci_work work = zcci_work_of_cast(target, target_dtype, source, source_dtype, elems);
	return zcci_host_submit(stream, &work, error);
}

static zcc_status lerp(void *device, void *stream, float *ema, const void *param, int32_t param_dtype, double decay,
                       int64_t elems, zcc_error *error)
{
	(void)device;
	zcci_work work = zcci_work_of_lerp(ema, param, param_dtype, decay, elems);
	return zcci_host_submit(stream, &work, error);
}

static zcc_status strided(void *device, void *stream, void *target, const int64_t *target_strides, const void *source,
                          const int64_t *source_strides, int32_t ndim, const int64_t *shape, int32_t elem_bytes,
                          zcc_error *error)
{
	(void)device;
	zcci_work work = zcci_work_of_strided(target, target_strides, source, source_strides, ndim, shape, elem_bytes);
	return zcci_host_submit(stream, &work, error);
}

const zcci_device_ops zcci_host_ops = {
        .version = ZCCI_DEVICE_VERSION,
        .struct_bytes = sizeof(zcci_device_ops),
        .name = "host",
        .count = count,
        .describe = describe,
        .open = open_host,
        .close = close_host,
        .malloc = zcci_host_malloc,
        .free = zcci_host_free,
        .pinned_malloc = zcci_host_pinned_malloc,
        .pinned_free = zcci_host_pinned_free,
        .place = zcci_host_place,
        .export = zcci_host_export,
        .import = zcci_host_import,
        .stream_create = zcci_host_stream_create,
        .stream_destroy = zcci_host_stream_destroy,
        .stream_wait = zcci_host_stream_wait,
        .stream_test = zcci_host_stream_test,
        .stream_wait_event = zcci_host_stream_wait_event,
        .event_create = zcci_host_event_create,
        .event_destroy = zcci_host_event_destroy,
        .event_record = zcci_host_event_record,
        .event_wait = zcci_host_event_wait,
        .event_test = zcci_host_event_test,
        .copy = copy,
        .copy_2d = copy_2d,
        .cast = cast,
        .lerp = lerp,
        .strided = strided,
};
