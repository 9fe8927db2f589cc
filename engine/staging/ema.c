#include "staging/ema.h"

#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "device/handles.h"
#include "staging/apart.h"

/* That can be resumed: as many more can be counted after them. */
static const int64_t MOST_CALLS = INT64_MAX / 2;
static const char *const place_names[] = {"nowhere", "pageable", "pinned", "device"};

void zcc_ema_options_init(zcc_ema_options *options)
{
	*options = (zcc_ema_options){.struct_bytes = sizeof *options, .interval = 1};
}

void zcc_ema_buffer_init(zcc_ema_buffer *buffer)
{
	*buffer = (zcc_ema_buffer){.struct_bytes = sizeof *buffer, .ema_dtype = ZCC_F32, .param_dtype = ZCC_F32};
}

zcc_status zcc_ema_create(const zcc_ema_options *options, zcc_ema **ema, zcc_error *error)
{
	const char *operation = "EMA create";
	if (options == NULL || options->struct_bytes != sizeof *options)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "options of %u bytes, this library's have %zu",
		                 options != NULL ? options->struct_bytes : 0, sizeof *options);
	if (options->interval < 1)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "an interval of %d calls; at least 1 is allowed",
		                 options->interval);
	if (options->device == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "no device, which tells the place of an address");
	zcc_ema *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, operation, "no memory for an EMA");
	made->device = zcci_device_retain(options->device);
	made->interval = options->interval;
	*ema = made;
	return ZCC_OK;
}

void zcc_ema_destroy(zcc_ema *ema)
{
	if (ema == NULL)
		return;
	zcc_event_destroy(ema->last);
	zcc_device_close(ema->device);
	zcci_runs_clear(&ema->runs);
	zcci_names_clear(&ema->names);
	zcci_free(ema->buffers);
	zcci_free(ema->decays);
	zcci_free(ema);
}

/* ---- groups ---- */

static zcc_status check_decay(double decay, zcc_error *error)
{
	if (decay >= 0 && decay < 1)
		return ZCC_OK;
	return zcci_fail(error, ZCC_EINVAL, 0, "EMA group", "a decay of %g; from 0 to below 1 is allowed", decay);
}

zcc_status zcc_ema_group(zcc_ema *ema, double decay, int32_t *group, zcc_error *error)
{
	zcc_status status = check_decay(decay, error);
	if (status != ZCC_OK)
		return status;
	if (ema->n_groups == ema->group_room) {
		int32_t room = ema->group_room > 0 ? 2 * ema->group_room : 4;
		double *grown = room > 0 ? zcci_realloc(ema->decays, room, sizeof *grown) : NULL;
		if (grown == NULL)
			return zcci_fail(error, ZCC_ENOMEM, 0, "EMA group", "no memory for group %d", ema->n_groups);
		ema->decays = grown;
		ema->group_room = room;
	}
	ema->decays[ema->n_groups] = decay;
	*group = ema->n_groups++;
	return ZCC_OK;
}

static zcc_status check_group(const zcc_ema *ema, int32_t group, zcc_error *error)
{
	if (group >= 0 && group < ema->n_groups)
		return ZCC_OK;
	return zcci_fail(error, ZCC_EINVAL, 0, "EMA group", "group %d; there are %d, counted from 0", group,
	                 ema->n_groups);
}

zcc_status zcc_ema_set_decay(zcc_ema *ema, int32_t group, double decay, zcc_error *error)
{
	zcc_status status = check_group(ema, group, error);
	if (status == ZCC_OK)
		status = check_decay(decay, error);
	if (status == ZCC_OK)
		ema->decays[group] = decay;
	return status;
}

/* ---- places ---- */

zcc_status zcci_ema_find_place(const zcc_ema *ema, const char *name, const char *what, const void *data, int64_t bytes,
                               int32_t *place, zcc_error *error)
{
	*place = 0;
	if (bytes == 0)
		return ZCC_OK;
	if (data == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "EMA", "the %s buffer of '%s' is NULL and has %" PRId64 " bytes",
		                 what, name, bytes);
	int32_t first = 0, last = 0;
	zcc_status status = zcc_device_place(ema->device, data, &first, error);
	if (status == ZCC_OK)
		status = zcc_device_place(ema->device, (const char *)data + bytes - 1, &last, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "the %s buffer of '%s'", what, name);
	if (first != last)
		return zcci_fail(error, ZCC_EINVAL, 0, "EMA",
		                 "the %s buffer of '%s' begins in %s memory and ends, %" PRId64
		                 " bytes on, in %s memory",
		                 what, name, place_names[first], bytes, place_names[last]);
	*place = first;
	return ZCC_OK;
}

static zcc_status expect_place(const zcc_ema *ema, const char *name, const char *what, const void *data, int64_t bytes,
                               int32_t declared, int32_t *found, zcc_error *error)
{
	zcc_status status = zcci_ema_find_place(ema, name, what, data, bytes, found, error);
	if (status != ZCC_OK || *found == 0 || declared == 0 || declared == *found)
		return status;
	return zcci_fail(
	        error, ZCC_EINVAL, 0, "EMA",
	        "the %s buffer of '%s' is declared to be in %s memory and is in %s memory; an EMA moves nothing", what,
	        name, place_names[declared], place_names[*found]);
}

int32_t zcci_ema_place(const zcc_ema *ema)
{
	for (int32_t i = 0; i < ema->n_buffers; i++)
		if (ema->buffers[i].ema_place != 0)
			return ema->buffers[i].ema_place;
	return 0;
}

static const char *first_name(const zcc_ema *ema)
{
	for (int32_t i = 0; i < ema->n_buffers; i++)
		if (ema->buffers[i].ema_place != 0)
			return ema->buffers[i].name;
	return "";
}

/* All on the host or all on the device. */
static zcc_status check_sides(const zcc_ema *ema, const zcc_ema_buffer *b, zcc_error *error)
{
	if (b->elems == 0)
		return ZCC_OK;
	if ((b->ema_place == ZCC_AT_DEVICE) != (b->param_place == ZCC_AT_DEVICE))
		return zcci_fail(
		        error, ZCC_EINVAL, 0, "EMA add",
		        "'%s': the EMA buffer is in %s memory, its parameter in %s memory; both must be where the "
		        "update runs",
		        b->name, place_names[b->ema_place], place_names[b->param_place]);
	int32_t place = zcci_ema_place(ema);
	if (place != 0 && (place == ZCC_AT_DEVICE) != (b->ema_place == ZCC_AT_DEVICE))
		return zcci_fail(error, ZCC_EINVAL, 0, "EMA add",
		                 "'%s' is in %s memory, '%s' in %s memory; one EMA is updated in one place", b->name,
		                 place_names[b->ema_place], first_name(ema), place_names[place]);
	return ZCC_OK;
}

/* ---- buffers ---- */

static zcc_status check_fields(const zcc_ema *ema, const zcc_ema_buffer *b, zcc_error *error)
{
	const char *operation = "EMA add", *dtype;
	if (b == NULL || b->struct_bytes != sizeof *b)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "a buffer of %u bytes, this library's have %zu",
		                 b != NULL ? b->struct_bytes : 0, sizeof *b);
	if (b->name == NULL || b->name[0] == '\0')
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "buffer %d has no name", ema->n_buffers);
	if (zcci_names_find(&ema->names, b->name) >= 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "the name '%s' is taken", b->name);
	dtype = zcc_dtype_name(b->ema_dtype);
	if (b->ema_dtype != ZCC_F32)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "'%s': an EMA buffer of dtype %s; it must be F32%s",
		                 b->name, dtype != NULL ? dtype : "none",
		                 b->ema_dtype == ZCC_BF16 || b->ema_dtype == ZCC_F16
		                         ? ": a step of 1 - decay would be rounded away in so few bits, and the "
		                           "average never move"
		                         : "");
	dtype = zcc_dtype_name(b->param_dtype);
	if (b->param_dtype != ZCC_F32 && b->param_dtype != ZCC_BF16)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "'%s': a parameter of dtype %s; F32 and BF16 are averaged", b->name,
		                 dtype != NULL ? dtype : "none");
	int64_t bytes;
	if (b->elems < 0 || zcci_mul_overflows(b->elems, 4, &bytes))
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "'%s': %" PRId64 " elements", b->name, b->elems);
	if (b->ema_place < 0 || b->ema_place > ZCC_AT_DEVICE || b->param_place < 0 || b->param_place > ZCC_AT_DEVICE)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "'%s': places %d and %d; 0 to %d are known", b->name,
		                 b->ema_place, b->param_place, ZCC_AT_DEVICE);
	if ((uintptr_t)b->ema % 4 != 0 || (uintptr_t)b->param % (uintptr_t)zcc_dtype_bytes(b->param_dtype) != 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "'%s': a buffer is not aligned to its elements",
		                 b->name);
	return check_group(ema, b->group, error);
}

static zcc_status append(zcc_ema *ema, const zcc_ema_buffer *buffer, zcc_error *error)
{
	if (ema->n_buffers == ema->buffer_room) {
		int32_t room = ema->buffer_room > 0 ? 2 * ema->buffer_room : 16;
		zcc_ema_buffer *grown = room > 0 ? zcci_realloc(ema->buffers, room, sizeof *grown) : NULL;
		if (grown == NULL)
			goto no_memory;
		ema->buffers = grown;
		ema->buffer_room = room;
	}
	if (zcci_runs_add(&ema->runs, buffer->elems) != ZCC_OK)
		goto no_memory;
	if (zcci_names_add(&ema->names, buffer->name) != ZCC_OK) {
		ema->runs.n_runs--;
		goto no_memory;
	}
	ema->buffers[ema->n_buffers] = *buffer;
	ema->buffers[ema->n_buffers].name = ema->names.names[ema->n_buffers];
	ema->n_buffers++;
	ema->apart = false;
	return ZCC_OK;

no_memory:
	return zcci_fail(error, ZCC_ENOMEM, 0, "EMA add", "no memory for '%s', buffer %d", buffer->name,
	                 ema->n_buffers);
}

zcc_status zcc_ema_add(zcc_ema *ema, const zcc_ema_buffer *buffer, int32_t *index, zcc_error *error)
{
	zcc_status status = check_fields(ema, buffer, error);
	if (status != ZCC_OK)
		return status;
	zcc_ema_buffer b = *buffer;
	int64_t param_bytes = b.elems * zcc_dtype_bytes(b.param_dtype);
	status = expect_place(ema, b.name, "EMA", b.ema, 4 * b.elems, buffer->ema_place, &b.ema_place, error);
	if (status == ZCC_OK)
		status = expect_place(ema, b.name, "parameter", b.param, param_bytes, buffer->param_place,
		                      &b.param_place, error);
	if (status == ZCC_OK)
		status = check_sides(ema, &b, error);
	if (status == ZCC_OK)
		status = append(ema, &b, error);
	if (status == ZCC_OK && index != NULL)
		*index = ema->n_buffers - 1;
	return status;
}

/* ---- overlaps ---- */

static zcc_status check_apart(zcc_ema *ema, zcc_error *error)
{
	zcci_range *ranges = zcci_calloc(2 * (int64_t)ema->n_buffers, sizeof *ranges);
	if (ranges == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "EMA", "no memory to compare %d buffers", ema->n_buffers);
	for (int32_t i = 0; i < ema->n_buffers; i++) {
		const zcc_ema_buffer *b = &ema->buffers[i];
		ranges[2 * i] = (zcci_range){b->ema, 4 * b->elems, "EMA buffer", b->name, true};
		ranges[2 * i + 1] = (zcci_range){b->param, b->elems * zcc_dtype_bytes(b->param_dtype),
		                                 "parameter buffer", b->name, false};
	}
	zcc_status status = zcci_check_apart(ranges, 2 * (int64_t)ema->n_buffers, "EMA", error);
	zcci_free(ranges);
	ema->apart = status == ZCC_OK;
	return status;
}

zcc_status zcci_ema_check(zcc_ema *ema, zcc_error *error)
{
	for (int32_t i = 0; i < ema->n_buffers; i++) {
		const zcc_ema_buffer *b = &ema->buffers[i];
		int32_t found;
		zcc_status status =
		        expect_place(ema, b->name, "EMA", b->ema, 4 * b->elems, b->ema_place, &found, error);
		if (status == ZCC_OK)
			status =
			        expect_place(ema, b->name, "parameter", b->param,
			                     b->elems * zcc_dtype_bytes(b->param_dtype), b->param_place, &found, error);
		if (status != ZCC_OK)
			return status;
	}
	return ema->apart ? ZCC_OK : check_apart(ema, error);
}

/* ---- state ---- */

int32_t zcc_ema_count(const zcc_ema *ema)
{
	return ema->n_buffers;
}

zcc_status zcc_ema_buffer_get(const zcc_ema *ema, int32_t index, zcc_ema_buffer *buffer, zcc_error *error)
{
	if (index < 0 || index >= ema->n_buffers)
		return zcci_fail(error, ZCC_EINVAL, 0, "EMA buffer", "buffer %d; there are %d, counted from 0", index,
		                 ema->n_buffers);
	*buffer = ema->buffers[index];
	return ZCC_OK;
}

int64_t zcc_ema_calls(const zcc_ema *ema)
{
	return ema->calls;
}

int64_t zcc_ema_updates(const zcc_ema *ema)
{
	return ema->updates;
}

zcc_status zcc_ema_resume(zcc_ema *ema, int64_t calls, int64_t updates, zcc_error *error)
{
	if (updates < 0 || calls < updates || calls > MOST_CALLS)
		return zcci_fail(error, ZCC_EINVAL, 0, "EMA resume",
		                 "%" PRId64 " updates of %" PRId64 " calls; 0 <= updates <= calls <= %" PRId64
		                 " is allowed",
		                 updates, calls, MOST_CALLS);
	ema->calls = calls;
	ema->updates = updates;
	ema->torn = false;
	zcc_event_destroy(ema->last);
	ema->last = NULL;
	return ZCC_OK;
}
