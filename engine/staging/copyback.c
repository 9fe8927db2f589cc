#include "staging/copyback.h"

#include <inttypes.h>
#include <math.h>

#include "base/memory.h"
#include "base/omit.h"
#include "base/status.h"
#include "device/handles.h"
#include "staging/pool.h"

void zcc_copyback_options_init(zcc_copyback_options *options)
{
	*options = (zcc_copyback_options){
	        .struct_bytes = sizeof *options, .dtype = ZCC_BF16, .pinning = 1, .buffer_elems = 1 << 26};
}

static zcc_status check_options(const zcc_copyback_options *options, zcc_error *error)
{
	const char *operation = "copy-back create";
	if (options->struct_bytes != sizeof *options)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "options of %u bytes, this library's have %zu",
		                 options->struct_bytes, sizeof *options);
	if (options->dtype != ZCC_BF16 && options->dtype != ZCC_F16 && options->dtype != ZCC_F32) {
		const char *name = zcc_dtype_name(options->dtype);
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "dtype %d (%s); BF16, F16 and F32 can be copied back",
		                 options->dtype, name != NULL ? name : "none");
	}
	if (options->pinning != 0 && options->pinning != 1)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "pinning is %d; 0 or 1 is allowed", options->pinning);
	if ((options->pool_flags & ~(uint32_t)ZCC_POOL_OR_UNPINNED) != 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "pool flags %#x; only %#x is known",
		                 options->pool_flags, ZCC_POOL_OR_UNPINNED);
	int64_t bytes;
	if (options->buffer_elems < 1 || zcci_mul_overflows(options->buffer_elems, 8, &bytes))
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "buffers of %" PRId64 " elements",
		                 options->buffer_elems);
	return ZCC_OK;
}

zcc_status zcc_copyback_create(zcc_device *device, const zcc_copyback_options *options, zcc_copyback **copyback,
                               zcc_error *error)
{
	zcc_copyback_options defaults;
	zcc_copyback_options_init(&defaults);
	if (options == NULL)
		options = &defaults;
	zcc_status status = check_options(options, error);
	if (status != ZCC_OK)
		return status;
	if (device == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "copy-back create", "no device");
	if (options->pool != NULL &&
	    (status = zcci_pool_check(options->pool, device, "copy-back create", error)) != ZCC_OK)
		return status;
	zcc_copyback *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "copy-back create", "no memory for a copy-back");
	made->device = zcci_device_retain(device);
	made->own_pool = options->pool == NULL;
	made->pool = options->pool;
	if (!made->own_pool)
		zcci_pool_retain(made->pool);
	else if ((status = zcc_pool_create(device, NULL, &made->pool, error)) != ZCC_OK)
		goto close_device;
	made->pinning = options->pinning != 0;
	made->pool_flags = options->pool_flags;
	made->dtype = options->dtype;
	made->elem_bytes = zcc_dtype_bytes(options->dtype);
	made->buffer_elems = options->buffer_elems;
	pthread_mutex_init(&made->lock, NULL);
	made->references = 1;
	*copyback = made;
	return ZCC_OK;

close_device:
	zcc_device_close(made->device);
	zcci_free(made);
	return status;
}

/* Nothing is in flight. */
static void give_buffers(zcc_copyback *copyback)
{
	zcci_copyback_destroy_slots(copyback);
	for (int i = 0; i < 2; i++) {
		zcc_pool_give(copyback->pool, copyback->buffers[i], NULL);
		copyback->buffers[i] = NULL;
	}
	if (copyback->own_pool)
		zcc_pool_trim(copyback->pool, NULL);
	pthread_mutex_lock(&copyback->lock);
	copyback->stats.buffer_bytes = copyback->stats.unpinned_bytes = 0;
	pthread_mutex_unlock(&copyback->lock);
}

/* The only wait that does not give way to signals: what is in flight uses memory that the caller may free next. */
static void destroy_order(zcc_copyback *copyback)
{
	zcc_stream_destroy(copyback->stream);
	copyback->stream = NULL;
	zcci_copyback_forget_events(copyback);
}

static void drop(zcc_copyback *copyback)
{
	pthread_mutex_lock(&copyback->lock);
	bool last = --copyback->references == 0;
	pthread_mutex_unlock(&copyback->lock);
	if (!last)
		return;
	destroy_order(copyback);
	give_buffers(copyback);
	zcc_pool_destroy(copyback->pool);
	zcc_device_close(copyback->device);
	pthread_mutex_destroy(&copyback->lock);
	zcci_free(copyback);
}

void zcc_copyback_destroy(zcc_copyback *copyback)
{
	if (copyback != NULL)
		drop(copyback);
}

void zcc_copyback_get_stats(zcc_copyback *copyback, zcc_copyback_stats *stats)
{
	pthread_mutex_lock(&copyback->lock);
	*stats = copyback->stats;
	pthread_mutex_unlock(&copyback->lock);
}

int64_t zcc_copyback_first_host_group(int64_t n_groups, double ratio)
{
	if (n_groups < 0 || !(ratio >= 0 && ratio <= 1))
		return -1;
	return (int64_t)floor((1 - ratio) * (double)n_groups);
}

/* ---- one call ---- */

zcc_status zcci_copyback_enter(zcc_copyback *copyback, const char *operation, zcc_error *error)
{
	pthread_mutex_lock(&copyback->lock);
	bool busy = copyback->busy;
	if (!busy) {
		copyback->busy = true;
		copyback->references++;
	}
	pthread_mutex_unlock(&copyback->lock);
	return busy ? zcci_fail(error, ZCC_EBUSY, 0, operation, "another thread uses this copy-back") : ZCC_OK;
}

void zcci_copyback_leave(zcc_copyback *copyback, zcc_status status)
{
	if (status != ZCC_OK)
		destroy_order(copyback);
	zcc_memory_destroy(copyback->scratch, copyback->buffer_elems * copyback->elem_bytes);
	copyback->scratch = NULL;
	pthread_mutex_lock(&copyback->lock);
	copyback->busy = false;
	pthread_mutex_unlock(&copyback->lock);
	drop(copyback);
}

zcc_status zcc_copyback_release(zcc_copyback *copyback, zcc_error *error)
{
	zcc_status status = zcci_copyback_enter(copyback, "copy-back release", error);
	if (status != ZCC_OK)
		return status;
	give_buffers(copyback);
	zcci_copyback_leave(copyback, ZCC_OK);
	return ZCC_OK;
}

/* Both buffers or none. */
static zcc_status take_buffers(zcc_copyback *copyback, zcc_error *error)
{
	int64_t bytes = copyback->buffer_elems * copyback->elem_bytes;
	int64_t unpinned_bytes = 0;
	zcc_status status = ZCC_OK;
	for (int i = 0; i < 2 && status == ZCC_OK; i++) {
		status = zcc_pool_take(copyback->pool, bytes, copyback->pool_flags, &copyback->buffers[i], error);
		int32_t place = 0;
		if (status == ZCC_OK)
			status = zcc_device_place(copyback->device, copyback->buffers[i], &place, error);
		unpinned_bytes += place == ZCC_AT_PAGEABLE ? bytes : 0;
	}
	if (status == ZCC_OK)
		status = zcci_copyback_create_slots(copyback, error);
	if (status != ZCC_OK) {
		give_buffers(copyback);
		return zcci_context(error, status, "two staging buffers of %" PRId64 " bytes", bytes);
	}
	pthread_mutex_lock(&copyback->lock);
	copyback->stats.buffer_bytes = 2 * bytes;
	copyback->stats.unpinned_bytes = unpinned_bytes;
	pthread_mutex_unlock(&copyback->lock);
	return ZCC_OK;
}

zcc_status zcci_copyback_prepare(zcc_copyback *copyback, bool staged, bool scratch, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	if (copyback->stream == NULL)
		status = zcc_stream_create(copyback->device, &copyback->stream, error);
	if (status == ZCC_OK && staged && copyback->buffers[0] == NULL)
		status = take_buffers(copyback, error);
	if (status == ZCC_OK && staged)
		zcci_copyback_reset_slots(copyback);
	if (status == ZCC_OK && scratch)
		status = zcc_memory_create(copyback->buffer_elems * copyback->elem_bytes, &copyback->scratch, error);
	return status;
}

zcc_status zcci_copyback_finish(zcc_copyback *copyback, zcc_error *error)
{
	return ZCCI_WAIT(copyback_last, zcc_stream_wait(copyback->stream, error));
}

void zcci_copyback_count(zcc_copyback *copyback, bool staged, int64_t elems, int64_t copies)
{
	pthread_mutex_lock(&copyback->lock);
	zcc_copyback_stats *stats = &copyback->stats;
	*(staged ? &stats->staged_pieces : &stats->direct_pieces) += 1;
	*(staged ? &stats->staged_elems : &stats->direct_elems) += elems;
	stats->copies += copies;
	pthread_mutex_unlock(&copyback->lock);
}

zcc_status zcci_copyback_interrupted(const char *operation, zcc_error *error)
{
	int32_t number = zcc_interrupted();
	return number == 0 ? ZCC_OK : zcci_fail(error, ZCC_EINTR, number, operation, "given up on signal %d", number);
}

zcc_status zcci_copyback_place(zcc_copyback *copyback, const char *operation, int64_t piece, const char *what,
                               const void *data, int64_t elems, int64_t bytes, int32_t *place, zcc_error *error)
{
	int64_t total;
	if (elems < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "piece %" PRId64 " has %" PRId64 " elements", piece,
		                 elems);
	if (zcci_mul_overflows(elems, bytes, &total))
		return zcci_fail(error, ZCC_EOVERFLOW, 0, operation,
		                 "piece %" PRId64 ": the bytes of %" PRId64 " elements do not fit 63 bits", piece,
		                 elems);
	*place = 0;
	if (elems == 0)
		return ZCC_OK;
	if (data == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "piece %" PRId64 ": the %s of %" PRId64 " elements is NULL", piece, what, elems);
	if ((uintptr_t)data % (uintptr_t)bytes != 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "piece %" PRId64 ": the %s is at %p, no multiple of its %" PRId64 " bytes an element",
		                 piece, what, data, bytes);
	int32_t first = 0, last = 0;
	zcc_status status = zcc_device_place(copyback->device, data, &first, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "piece %" PRId64 ": %s", piece, what);
	status = zcc_device_place(copyback->device, (const char *)data + total - 1, &last, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "piece %" PRId64 ": the last of the %" PRId64 " bytes of its %s",
		                    piece, total, what);
	if (first != last)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "piece %" PRId64 ": the %s of %" PRId64
		                 " bytes begins in one place (%d) and ends in another (%d)",
		                 piece, what, total, first, last);
	*place = first;
	return ZCC_OK;
}

zcc_status zcci_copyback_apart(const zcc_copyback_piece *piece, int64_t number, int64_t source_bytes,
                               int64_t target_bytes, const char *operation, zcc_error *error)
{
	uintptr_t source = (uintptr_t)piece->source, target = (uintptr_t)piece->target;
	if (piece->elems == 0 || source >= target + (uintptr_t)(piece->elems * target_bytes) ||
	    target >= source + (uintptr_t)(piece->elems * source_bytes))
		return ZCC_OK;
	return zcci_fail(error, ZCC_EINVAL, 0, operation,
	                 "piece %" PRId64 ": its source at %p and its target at %p, of %" PRId64
	                 " elements each, overlap",
	                 number, piece->source, piece->target, piece->elems);
}
