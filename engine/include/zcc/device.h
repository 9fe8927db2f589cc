/* Devices: memory, streams, events and the few kernels that run where the data is. One table of functions per device
 * (engine/device/device.h); `host` is always there, `cuda:N` comes from a plug-in, `late:X` wraps X for tests.
 *
 * Addresses of device memory are opaque: they take part in pointer arithmetic, but only the calls below may read or
 * write what is there. Everything named _async returns at once and runs in the order of its stream; the caller keeps
 * all memory it names alive and, for a source, unchanged until something has waited for it. Handles may be used by
 * several threads; one stream by one thread at a time. */
#ifndef ZCC_DEVICE_H
#define ZCC_DEVICE_H

#include "base.h"

typedef struct zcc_device zcc_device;
typedef struct zcc_stream zcc_stream;
typedef struct zcc_event zcc_event;

/* "host"; "late:host" with ",lazy" (default), ",eager" or ",shuffle=SEED" behind it ($ZCC_LATE gives the same words); a
 * shuffle without a seed takes $ZCC_SEED, else draws one and prints it to stderr; "cuda:N". NULL or "" takes
 * $ZCC_DEVICE, else "host". A name that is open already gives the same device once more. ZCC_EINVAL for a name that is
 * none (lists the known), ZCC_EDEVICE with the plug-in's or the driver's words. */
ZCC_API zcc_status zcc_device_open(const char *name, zcc_device **device, zcc_error *error);
/* Drops the caller's reference; streams, events and memory of the device keep it open. NULL is allowed. */
ZCC_API void zcc_device_close(zcc_device *device);
/* As it would be opened again. Owned by the device. */
ZCC_API const char *zcc_device_name(const zcc_device *device);
/* Device number `index` of this machine: its name and a sentence about it, both cut to their capacity. *found = 0 past
 * the last one. A plug-in that is missing or refuses to load is one row whose sentence says why. */
ZCC_API zcc_status zcc_device_list(int32_t index, char name[32], char about[256], int32_t *found, zcc_error *error);

/* ---- memory ---- */

enum {
	ZCC_AT_PAGEABLE = 1, /* ordinary memory of the process */
	ZCC_AT_PINNED = 2,   /* page-locked for this device */
	ZCC_AT_DEVICE = 3
};

/* bytes >= 0, contents undefined, aligned to 256. ZCC_ENOMEM names asked and free bytes. */
ZCC_API zcc_status zcc_device_malloc(zcc_device *device, int64_t bytes, void **data, zcc_error *error);
/* Waits for work in flight that uses it. The start of an allocation of this very device, or NULL. */
ZCC_API void zcc_device_free(zcc_device *device, void *data);
/* Page-locked host memory, zeroed, that the device copies from and to asynchronously; readable and writable by the
 * caller. Use a pool (zcc/pool.h) rather than this. ZCC_ENOMEM names asked bytes and the limit. */
ZCC_API zcc_status zcc_pinned_malloc(zcc_device *device, int64_t bytes, void **data, zcc_error *error);
/* As zcc_device_free: waits for work in flight that uses it; a start, or NULL. */
ZCC_API void zcc_pinned_free(zcc_device *device, void *data);
/* ZCC_AT_ of any address, also inside an allocation. Memory that the device does not know is pageable. ZCC_ESTALE for
 * device memory that has been freed, which the calls for work report likewise; they give ZCC_EINVAL for a range that
 * goes past the end of its allocation. */
ZCC_API zcc_status zcc_device_place(zcc_device *device, const void *data, int32_t *place, zcc_error *error);

/* A device allocation as bytes that another process of the same user on this machine can import; the exporter keeps it
 * allocated. The import is freed with zcc_device_free. ZCC_EFORMAT for a handle that is none of this device, ZCC_ESTALE
 * where the exporter is gone, ZCC_EINVAL for one of this process where the device cannot map its own memory again. */
enum { ZCC_EXPORT_BYTES = 128 };
ZCC_API zcc_status zcc_device_export(zcc_device *device, void *data, uint8_t handle[128], zcc_error *error);
ZCC_API zcc_status zcc_device_import(zcc_device *device, const uint8_t handle[128], void **data, int64_t *bytes,
                                     zcc_error *error);

/* ---- order ---- */

/* A stream of its own, in order with no other. It keeps the device open. ZCC_ENOMEM, ZCC_EDEVICE. */
ZCC_API zcc_status zcc_stream_create(zcc_device *device, zcc_stream **stream, zcc_error *error);
/* Waits for its work. NULL is allowed. */
ZCC_API void zcc_stream_destroy(zcc_stream *stream);
/* Blocks until all that was submitted has run; reports the first fault of any of it (once). Gives way to signals
 * (ZCC_EINTR). */
ZCC_API zcc_status zcc_stream_wait(zcc_stream *stream, zcc_error *error);
/* *done = 1 when all that was submitted has run. Does not block. */
ZCC_API zcc_status zcc_stream_test(zcc_stream *stream, int32_t *done, zcc_error *error);
/* What is submitted to `stream` from now on runs after the event's last record so far. Does not block. */
ZCC_API zcc_status zcc_stream_wait_event(zcc_stream *stream, zcc_event *event, zcc_error *error);
/* An event without a record. It keeps the device open. ZCC_ENOMEM, ZCC_EDEVICE. */
ZCC_API zcc_status zcc_event_create(zcc_device *device, zcc_event **event, zcc_error *error);
/* Does not wait: streams that were told to wait for it still do. NULL is allowed. */
ZCC_API void zcc_event_destroy(zcc_event *event);
/* Marks this point of the stream; a new record replaces the last. */
ZCC_API zcc_status zcc_event_record(zcc_event *event, zcc_stream *stream, zcc_error *error);
/* Blocks until the last record is reached; at once where there was none. A fault of work before it is returned every
 * time. */
ZCC_API zcc_status zcc_event_wait(zcc_event *event, zcc_error *error);
/* *done = 1 when the last record is reached; faults as for the wait. Does not block. */
ZCC_API zcc_status zcc_event_test(zcc_event *event, int32_t *done, zcc_error *error);

/* ---- work ---- */

/* Faults that the call sees itself: ZCC_EINVAL (negative sizes, a range past its allocation, a dtype, a pointer that is
 * not aligned to its elements, dense ranges that overlap), ZCC_ESTALE (freed device memory), ZCC_EOVERFLOW,
 * ZCC_EDEVICE. What goes wrong later is reported by a wait for the stream. */

/* Any place to any place of this device and the host. Pageable memory is allowed and may make the call block; a
 * pageable source has been read when it returns (a target is complete only after a wait, as any). No overlap. */
ZCC_API zcc_status zcc_copy_async(zcc_stream *stream, void *target, const void *source, int64_t bytes,
                                  zcc_error *error);
/* `rows` rows of `bytes`, pitch_bytes (>= bytes) apart on each side. */
ZCC_API zcc_status zcc_copy_2d_async(zcc_stream *stream, void *target, int64_t target_pitch_bytes, const void *source,
                                     int64_t source_pitch_bytes, int64_t bytes, int64_t rows, zcc_error *error);
/* The kernels below take device or pinned memory only (ZCC_EINVAL names the place found). */
/* target[i] = source[i] rounded to nearest even; pairs of F16, BF16, F32. */
ZCC_API zcc_status zcc_cast_async(zcc_stream *stream, void *target, int32_t target_dtype, const void *source,
                                  int32_t source_dtype, int64_t elems, zcc_error *error);
/* ema[i] = fma(1 - decay, param[i] - ema[i], ema[i]) in f32 (1 - decay is rounded to f32 once); decay 0 to 1; param
 * F32, or BF16 widened exactly. A NaN comes out as 7FC00000. */
ZCC_API zcc_status zcc_lerp_async(zcc_stream *stream, float *ema, const void *param, int32_t param_dtype, double decay,
                                  int64_t elems, zcc_error *error);
/* Strided to strided: the same shape (1 to ZCC_MAX_NDIM axes), strides in elements (>= 0, a target's > 0), elements of
 * 1, 2, 4 or 8 bytes. Dense strides on one side pack or unpack. */
ZCC_API zcc_status zcc_strided_async(zcc_stream *stream, void *target, const int64_t *target_strides_elems,
                                     const void *source, const int64_t *source_strides_elems, int32_t ndim,
                                     const int64_t *shape_elems, int32_t elem_bytes, zcc_error *error);

#endif
