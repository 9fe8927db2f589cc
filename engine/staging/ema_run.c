#include "staging/ema.h"

#include <inttypes.h>
#include <string.h>

#include "base/omit.h"
#include "base/status.h"
#include "device/handles.h"
#include "kernels/lerp.h"
#include "kernels/strided.h"

/* Work that was submitted may have failed since; whoever waited for the stream has been told, but not the EMA. */
static zcc_status check_torn(zcc_ema *ema, const char *operation, zcc_error *error)
{
	zcc_error fault;
	int32_t done;
	if (!ema->torn && ema->last != NULL) {
		zcc_status status = zcc_event_test(ema->last, &done, &fault);
		ema->torn = status != ZCC_OK && status != ZCC_EINTR;
	}
	if (!ema->torn)
		return ZCC_OK;
	return zcci_fail(
	        error, ZCC_EDEVICE, 0, operation,
	        "the EMA is torn: an update failed when some of its %d buffers were updated, after call %" PRId64
	        "; start again or resume from saved buffers",
	        ema->n_buffers, ema->calls);
}

static zcc_status check_stream(const zcc_ema *ema, const zcc_stream *stream, const char *operation, zcc_error *error)
{
	if (stream == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "the buffers are in device memory, and there is no stream to work on");
	if (stream->device != ema->device)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "the stream is of device %s, the EMA of %s",
		                 zcc_device_name(stream->device), zcc_device_name(ema->device));
	return ZCC_OK;
}

/* What one pass does with a buffer: an update, or the start of an average. */
typedef zcc_status on_device(const zcc_ema *ema, const zcc_ema_buffer *buffer, zcc_stream *stream, zcc_error *error);

typedef struct pass {
	const char *operation;
	zcci_runs_body *body; /* context is the EMA */
	on_device *submit;
} pass;

static void update_run(void *context, int32_t run, int64_t begin, int64_t end)
{
	const zcc_ema *ema = context;
	const zcc_ema_buffer *b = &ema->buffers[run];
	const char *param = (const char *)b->param + begin * zcc_dtype_bytes(b->param_dtype);
	zcci_lerp((float *)b->ema + begin, param, b->param_dtype, ema->decays[b->group], end - begin);
}

static zcc_status submit_update(const zcc_ema *ema, const zcc_ema_buffer *b, zcc_stream *stream, zcc_error *error)
{
	return zcc_lerp_async(stream, b->ema, b->param, b->param_dtype, ema->decays[b->group], b->elems, error);
}

static void start_run(void *context, int32_t run, int64_t begin, int64_t end)
{
	const zcc_ema *ema = context;
	const zcc_ema_buffer *b = &ema->buffers[run];
	const char *param = (const char *)b->param + begin * zcc_dtype_bytes(b->param_dtype);
	zcci_convert((float *)b->ema + begin, ZCC_F32, param, b->param_dtype, 1, end - begin);
}

static zcc_status submit_start(const zcc_ema *ema, const zcc_ema_buffer *b, zcc_stream *stream, zcc_error *error)
{
	(void)ema;
	if (b->param_dtype == ZCC_F32)
		return zcc_copy_async(stream, b->ema, b->param, 4 * b->elems, error);
	return zcc_cast_async(stream, b->ema, ZCC_F32, b->param, b->param_dtype, b->elems, error);
}

static zcc_status run_on_device(zcc_ema *ema, const pass *p, zcc_stream *stream, zcc_error *error)
{
	zcc_status status = check_stream(ema, stream, p->operation, error);
	bool some = false;
	if (status == ZCC_OK && ema->last == NULL)
		status = zcc_event_create(ema->device, &ema->last, error);
	for (int32_t i = 0; i < ema->n_buffers && status == ZCC_OK; i++) {
		const zcc_ema_buffer *b = &ema->buffers[i];
		if (b->elems == 0)
			continue;
		status = p->submit(ema, b, stream, error);
		if (status != ZCC_OK)
			zcci_context(error, status, "'%s'", b->name);
		some = some || status == ZCC_OK;
	}
	if (status == ZCC_OK)
		status = zcc_event_record(ema->last, stream, error);
	ema->torn = ema->torn || (status != ZCC_OK && some);
	return status;
}

static zcc_status run(zcc_ema *ema, const pass *p, zcc_stream *stream, zcc_error *error)
{
	zcc_status status = zcci_ema_check(ema, error);
	if (status != ZCC_OK)
		return status;
	if (zcci_ema_place(ema) == ZCC_AT_DEVICE)
		return run_on_device(ema, p, stream, error);
	/* Parameters may still be on their way to host memory. */
	if (stream != NULL)
		status = ZCCI_WAIT(ema_params, zcc_stream_wait(stream, error));
	if (status == ZCC_OK)
		zcci_runs_each(&ema->runs, p->body, ema);
	return status;
}

zcc_status zcc_ema_update(zcc_ema *ema, zcc_stream *stream, int32_t *updated, zcc_error *error)
{
	static const pass update = {"EMA update", update_run, submit_update};
	zcc_status status = check_torn(ema, update.operation, error);
	bool turn = (ema->calls + 1) % ema->interval == 0;
	if (status == ZCC_OK && turn)
		status = run(ema, &update, stream, error);
	if (status != ZCC_OK)
		return status;
	ema->calls++;
	ema->updates += turn;
	if (updated != NULL)
		*updated = turn;
	return ZCC_OK;
}

zcc_status zcc_ema_start(zcc_ema *ema, zcc_stream *stream, zcc_error *error)
{
	static const pass start = {"EMA start", start_run, submit_start};
	zcc_status status = run(ema, &start, stream, error);
	if (status != ZCC_OK)
		return status;
	ema->calls = ema->updates = 0;
	ema->torn = false;
	return ZCC_OK;
}

/* ---- one buffer to and from host memory ---- */

static zcc_status check_one(const zcc_ema *ema, int32_t index, const void *data, int64_t bytes, const char *operation,
                            zcc_error *error)
{
	zcc_ema_buffer b;
	zcc_status status = zcc_ema_buffer_get(ema, index, &b, error);
	if (status != ZCC_OK)
		return status;
	if (bytes != 4 * b.elems)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "%" PRId64 " bytes for '%s', which has %" PRId64,
		                 bytes, b.name, 4 * b.elems);
	int32_t found, others;
	status = zcci_ema_find_place(ema, b.name, "EMA", b.ema, bytes, &found, error);
	if (status == ZCC_OK && found != b.ema_place)
		status = zcci_fail(error, ZCC_EINVAL, 0, operation,
		                   "the EMA buffer of '%s' is not in the place where it was added", b.name);
	if (status == ZCC_OK)
		status = zcci_ema_find_place(ema, b.name, "caller's", data, bytes, &others, error);
	if (status == ZCC_OK && others == ZCC_AT_DEVICE)
		status = zcci_fail(error, ZCC_EINVAL, 0, operation,
		                   "the caller's buffer for '%s' is in device memory; host memory is needed", b.name);
	return status;
}

zcc_status zcc_ema_read(zcc_ema *ema, int32_t index, void *data, int64_t bytes, zcc_stream *stream, zcc_error *error)
{
	zcc_status status = check_one(ema, index, data, bytes, "EMA read", error);
	if (status == ZCC_OK)
		status = check_torn(ema, "EMA read", error);
	if (status != ZCC_OK || bytes == 0)
		return status;
	const zcc_ema_buffer *b = &ema->buffers[index];
	if (b->ema_place != ZCC_AT_DEVICE) {
		memcpy(data, b->ema, (size_t)bytes);
		return ZCC_OK;
	}
	status = check_stream(ema, stream, "EMA read", error);
	if (status == ZCC_OK)
		status = zcc_copy_async(stream, data, b->ema, bytes, error);
	if (status == ZCC_OK)
		status = ZCCI_WAIT(ema_read, zcc_stream_wait(stream, error));
	return status;
}

zcc_status zcc_ema_write(zcc_ema *ema, int32_t index, const void *data, int64_t bytes, zcc_stream *stream,
                         zcc_error *error)
{
	zcc_status status = check_one(ema, index, data, bytes, "EMA write", error);
	if (status != ZCC_OK || bytes == 0)
		return status;
	const zcc_ema_buffer *b = &ema->buffers[index];
	if (b->ema_place != ZCC_AT_DEVICE) {
		memcpy(b->ema, data, (size_t)bytes);
		return ZCC_OK;
	}
	status = check_stream(ema, stream, "EMA write", error);
	if (status == ZCC_OK)
		status = zcc_copy_async(stream, b->ema, data, bytes, error);
	/* The caller may do with its memory what it likes once this returns. */
	if (status == ZCC_OK)
		status = ZCCI_WAIT(ema_write, zcc_stream_wait(stream, error));
	return status;
}
