#include "device/late.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "device/late_poison.h"
#include "device/late_queue.h"

/* As many polls in a row may find work undone; then it moves, or code that only polls would never end. */
enum { PATIENCE = 3 };

zcc_status zcci_late_open(const zcci_device_ops *inner_ops, void *inner, int32_t mode, uint64_t seed, void **device,
                          zcc_error *error)
{
	late_device *made = zcci_calloc(1, sizeof *made);
	zcc_status status;
	if (made == NULL) {
		status = zcci_fail(error, ZCC_ENOMEM, 0, "device open", "no memory for a late device");
		goto close_inner;
	}
	*made = (late_device){.ops = inner_ops, .inner = inner, .mode = mode, .random = seed};
	status = inner_ops->stream_create(inner, &made->inner_stream, error);
	if (status != ZCC_OK)
		goto free_made;
	status = zcci_late_poison_create(made, error);
	if (status != ZCC_OK)
		goto destroy_stream;
	pthread_mutex_init(&made->lock, NULL);
	*device = made;
	return ZCC_OK;

destroy_stream:
	inner_ops->stream_destroy(inner, made->inner_stream);
	zcci_late_poison_destroy(made);
free_made:
	zcci_free(made);
close_inner:
	inner_ops->close(inner);
	return status;
}

static void close_late(void *device)
{
	late_device *d = device;
	d->ops->stream_destroy(d->inner, d->inner_stream);
	zcci_late_poison_destroy(d);
	d->ops->close(d->inner);
	pthread_mutex_destroy(&d->lock);
	zcci_free(d);
}

static late_device *enter(void *device)
{
	late_device *d = device;
	pthread_mutex_lock(&d->lock);
	return d;
}

static void leave(late_device *device)
{
	pthread_mutex_unlock(&device->lock);
}

/* ---- memory ---- */

static late_block *create_block(zcc_error *error)
{
	late_block *block = zcci_calloc(1, sizeof *block);
	if (block == NULL)
		zcci_fail(error, ZCC_ENOMEM, 0, "device malloc", "no memory to note an allocation");
	return block;
}

static void link_block(late_device *d, late_block *block, void *data, int64_t bytes)
{
	*block = (late_block){.next = d->blocks, .data = data, .bytes = bytes};
	d->blocks = block;
}

static zcc_status malloc_late(void *device, int64_t bytes, void **data, zcc_error *error)
{
	late_block *block = create_block(error);
	if (block == NULL)
		return ZCC_ENOMEM;
	late_device *d = enter(device);
	void *memory;
	zcc_status status = d->ops->malloc(d->inner, bytes, &memory, error);
	if (status == ZCC_OK) {
		status = zcci_late_poison_bytes(d, memory, ZCC_AT_DEVICE, bytes, error);
		if (status != ZCC_OK)
			d->ops->free(d->inner, memory);
	}
	if (status == ZCC_OK) {
		link_block(d, block, memory, bytes);
		*data = memory;
	} else {
		zcci_free(block);
	}
	leave(d);
	return status;
}

static zcc_status pinned_malloc_late(void *device, int64_t bytes, void **data, zcc_error *error)
{
	late_block *block = create_block(error);
	if (block == NULL)
		return ZCC_ENOMEM;
	late_device *d = enter(device);
	zcc_status status = d->ops->pinned_malloc(d->inner, bytes, data, error);
	if (status == ZCC_OK)
		link_block(d, block, *data, bytes);
	else
		zcci_free(block);
	leave(d);
	return status;
}

static zcc_status import_late(void *device, const uint8_t handle[ZCC_EXPORT_BYTES], void **data, int64_t *bytes,
                              zcc_error *error)
{
	late_device *d = device;
	if (d->ops->import == NULL)
		return zcci_fail(error, ZCC_EDEVICE, 0, "device import", "the %s device cannot import memory",
		                 d->ops->name);
	late_block *block = create_block(error);
	if (block == NULL)
		return ZCC_ENOMEM;
	enter(d);
	zcc_status status = d->ops->import(d->inner, handle, data, bytes, error);
	if (status == ZCC_OK)
		link_block(d, block, *data, *bytes);
	else
		zcci_free(block);
	leave(d);
	return status;
}

static zcc_status export_late(void *device, void *data, uint8_t handle[ZCC_EXPORT_BYTES], zcc_error *error)
{
	late_device *d = device;
	if (d->ops->export == NULL)
		return zcci_fail(error, ZCC_EDEVICE, 0, "device export", "the %s device cannot export memory",
		                 d->ops->name);
	return d->ops->export(d->inner, data, handle, error);
}

static bool release(late_device *d, void *data, bool (*inner_free)(void *device, void *data))
{
	late_block **link = &d->blocks;
	while (*link != NULL && (*link)->data != data)
		link = &(*link)->next;
	late_block *block = *link;
	if (block == NULL)
		return false;
	zcci_late_finish_bytes(d, data, block->bytes);
	bool freed = inner_free(d->inner, data);
	if (freed) {
		*link = block->next;
		zcci_free(block);
	}
	return freed;
}

static bool free_late(void *device, void *data)
{
	late_device *d = enter(device);
	bool freed = release(d, data, d->ops->free);
	leave(d);
	return freed;
}

static bool pinned_free_late(void *device, void *data)
{
	late_device *d = enter(device);
	bool freed = release(d, data, d->ops->pinned_free);
	leave(d);
	return freed;
}

static zcc_status place_late(void *device, const void *data, int64_t bytes, int32_t *place, zcc_error *error)
{
	late_device *d = device;
	return d->ops->place(d->inner, data, bytes, place, error);
}

/* ---- streams and events ---- */

static zcc_status stream_create(void *device, void **stream, zcc_error *error)
{
	late_stream *s = zcci_calloc(1, sizeof *s);
	if (s == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "stream create", "no memory for a stream");
	s->tail = &s->head;
	late_device *d = enter(device);
	s->next = d->streams;
	d->streams = s;
	leave(d);
	*stream = s;
	return ZCC_OK;
}

static void stream_destroy(void *device, void *stream)
{
	late_device *d = enter(device);
	zcci_late_finish_stream(d, stream, false, NULL);
	for (late_stream **link = &d->streams; *link != NULL; link = &(*link)->next)
		if (*link == stream) {
			*link = (*link)->next;
			break;
		}
	leave(d);
	zcci_free(stream);
}

static zcc_status report(late_stream *s, zcc_error *error)
{
	zcc_status status = s->fault.status;
	if (status != ZCC_OK && error != NULL)
		*error = s->fault;
	s->fault.status = ZCC_OK;
	return status;
}

static zcc_status stream_wait(void *device, void *stream, zcc_error *error)
{
	late_device *d = enter(device);
	zcc_status status = zcci_late_finish_stream(d, stream, true, error);
	if (status == ZCC_OK)
		status = report(stream, error);
	leave(d);
	return status;
}

static zcc_status stream_test(void *device, void *stream, int32_t *done, zcc_error *error)
{
	late_device *d = enter(device);
	late_stream *s = stream;
	zcc_status status = ZCC_OK;
	zcci_late_stir(d);
	if (s->head != NULL && ++s->n_tests >= PATIENCE)
		status = zcci_late_finish_stream(d, s, true, error);
	if (status == ZCC_OK)
		*done = s->head == NULL;
	leave(d);
	return status;
}

static late_item *create_item(int32_t kind, zcc_error *error)
{
	late_item *i = zcci_calloc(1, sizeof *i);
	if (i == NULL)
		zcci_fail(error, ZCC_ENOMEM, 0, "stream", "no memory to queue an operation");
	else
		i->kind = kind;
	return i;
}

static zcc_status stream_wait_event(void *device, void *stream, void *event, zcc_error *error)
{
	late_event *e = event;
	late_item *i = create_item(LATE_WAIT, error);
	if (i == NULL)
		return ZCC_ENOMEM;
	late_device *d = enter(device);
	/* A failure before the event goes on to who waits for it. */
	if (e->last == NULL || (e->last->done && e->last->status == ZCC_OK)) {
		zcci_free(i);
	} else {
		i->mark = e->last;
		i->mark->refs++;
		zcci_late_append(stream, i);
	}
	if (d->mode == ZCCI_LATE_EAGER)
		zcci_late_finish_stream(d, stream, false, NULL);
	zcci_late_stir(d);
	leave(d);
	return ZCC_OK;
}

static zcc_status event_create(void *device, void **event, zcc_error *error)
{
	(void)device;
	late_event *e = zcci_calloc(1, sizeof *e);
	if (e == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "event create", "no memory for an event");
	*event = e;
	return ZCC_OK;
}

static void event_destroy(void *device, void *event)
{
	late_device *d = enter(device);
	late_event *e = event;
	zcci_late_drop_mark(e->last);
	leave(d);
	zcci_free(e);
}

static zcc_status event_record(void *device, void *event, void *stream, zcc_error *error)
{
	late_event *e = event;
	late_mark *mark = zcci_calloc(1, sizeof *mark);
	late_item *i = mark != NULL ? create_item(LATE_RECORD, NULL) : NULL;
	if (i == NULL) {
		zcci_free(mark);
		return zcci_fail(error, ZCC_ENOMEM, 0, "event record", "no memory to queue a record");
	}
	late_device *d = enter(device);
	*mark = (late_mark){.refs = 2, .stream = stream};
	i->mark = mark;
	zcci_late_drop_mark(e->last);
	e->last = mark;
	zcci_late_append(stream, i);
	if (d->mode == ZCCI_LATE_EAGER)
		zcci_late_finish_stream(d, stream, false, NULL);
	zcci_late_stir(d);
	leave(d);
	return ZCC_OK;
}

static zcc_status report_mark(const late_mark *mark, const char *operation, zcc_error *error)
{
	if (mark == NULL || !mark->done || mark->status == ZCC_OK)
		return ZCC_OK;
	return zcci_fail(error, mark->status, 0, operation,
	                 "work before this event failed; a wait for the stream says how");
}

static zcc_status event_wait(void *device, void *event, zcc_error *error)
{
	late_device *d = enter(device);
	late_mark *mark = ((late_event *)event)->last;
	zcc_status status = ZCC_OK;
	if (mark != NULL && (status = zcci_late_finish_mark(d, mark, error)) == ZCC_OK)
		status = report_mark(mark, "event wait", error);
	leave(d);
	return status;
}

static zcc_status event_test(void *device, void *event, int32_t *done, zcc_error *error)
{
	late_device *d = enter(device);
	late_mark *mark = ((late_event *)event)->last;
	zcc_status status = ZCC_OK;
	zcci_late_stir(d);
	if (mark != NULL && !mark->done && ++mark->n_tests >= PATIENCE)
		status = zcci_late_finish_mark(d, mark, error);
	if (status == ZCC_OK)
		status = report_mark(mark, "event test", error);
	if (status == ZCC_OK)
		*done = mark == NULL || mark->done;
	leave(d);
	return status;
}

/* ---- work ---- */

/* Pageable memory is read inside the call, as CUDA stages it. What the stream was asked to write there before comes
 * first. */
static zcc_status take_snapshot(late_device *d, late_stream *s, late_item *i, zcc_error *error)
{
	int64_t bytes = zcci_work_source_bytes(&i->work);
	if (zcci_late_writes(d, i->work.source, bytes))
		zcci_late_finish_stream(d, s, false, NULL);
	if (i->work.kind == ZCCI_WORK_COPY_2D)
		bytes = i->work.rows * i->work.count;
	i->snapshot = zcci_malloc(bytes);
	if (i->snapshot == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "copy", "no memory to stage %lld bytes of pageable memory",
		                 (long long)bytes);
	if (i->work.kind == ZCCI_WORK_COPY_2D) {
		const char *from = i->work.source;
		for (int64_t row = 0; row < i->work.rows; row++)
			memcpy((char *)i->snapshot + row * i->work.count, from + row * i->work.source_pitch_bytes,
			       (size_t)i->work.count);
		i->work.source_pitch_bytes = i->work.count;
	} else {
		memcpy(i->snapshot, i->work.source, (size_t)bytes);
	}
	i->work.source = i->snapshot;
	return ZCC_OK;
}

static zcc_status prepare(late_device *d, late_stream *s, late_item *i, zcc_error *error)
{
	int64_t target_bytes = zcci_work_target_bytes(&i->work);
	int32_t target_place = 0, source_place = 0;
	zcc_status status = d->ops->place(d->inner, i->work.target, target_bytes, &target_place, error);
	if (status == ZCC_OK)
		status =
		        d->ops->place(d->inner, i->work.source, zcci_work_source_bytes(&i->work), &source_place, error);
	if (status == ZCC_OK && source_place == ZCC_AT_PAGEABLE)
		status = take_snapshot(d, s, i, error);
	/* Poison would be wrong before pending work that reads the bytes, and lost before pending work that writes
	 * them. */
	if (status == ZCC_OK && !zcci_late_touches(d, i->work.target, target_bytes))
		status = zcci_late_poison_target(d, &i->work, target_place, error);
	return status;
}

static zcc_status submit(void *device, void *stream, const zcci_work *work, zcc_error *error)
{
	late_item *i = create_item(LATE_WORK, error);
	if (i == NULL)
		return ZCC_ENOMEM;
	i->work = *work;
	late_device *d = enter(device);
	zcc_status status = prepare(d, stream, i, error);
	if (status != ZCC_OK) {
		leave(d);
		zcci_free(i->snapshot);
		zcci_free(i);
		return status;
	}
	zcci_late_append(stream, i);
	if (d->mode == ZCCI_LATE_EAGER)
		zcci_late_finish_stream(d, stream, false, NULL);
	zcci_late_stir(d);
	leave(d);
	return ZCC_OK;
}

static zcc_status copy(void *device, void *stream, void *target, const void *source, int64_t bytes, zcc_error *error)
{
	zcci_work work = zcci_work_of_copy(target, source, bytes);
	return submit(device, stream, &work, error);
}

static zcc_status copy_2d(void *device, void *stream, void *target, int64_t target_pitch, const void *source,
                          int64_t source_pitch, int64_t bytes, int64_t rows, zcc_error *error)
{
	zcci_work work = zcci_work_of_copy_2d(target, target_pitch, source, source_pitch, bytes, rows);
	return submit(device, stream, &work, error);
}

static zcc_status cast(void *device, void *stream, void *target, int32_t target_dtype, const void *source,
                       int32_t source_dtype, int64_t elems, zcc_error *error)
{
	zcci_work work = zcci_work_of_cast(target, target_dtype, source, source_dtype, elems);
	return submit(device, stream, &work, error);
}

static zcc_status lerp(void *device, void *stream, float *ema, const void *param, int32_t param_dtype, double decay,
                       int64_t elems, zcc_error *error)
{
	zcci_work work = zcci_work_of_lerp(ema, param, param_dtype, decay, elems);
	return submit(device, stream, &work, error);
}

static zcc_status strided(void *device, void *stream, void *target, const int64_t *target_strides, const void *source,
                          const int64_t *source_strides, int32_t ndim, const int64_t *shape, int32_t elem_bytes,
                          zcc_error *error)
{
	zcci_work work = zcci_work_of_strided(target, target_strides, source, source_strides, ndim, shape, elem_bytes);
	return submit(device, stream, &work, error);
}

const zcci_device_ops zcci_late_ops = {
        .version = ZCCI_DEVICE_VERSION,
        .struct_bytes = sizeof(zcci_device_ops),
        .name = "late",
        .close = close_late,
        .malloc = malloc_late,
        .free = free_late,
        .pinned_malloc = pinned_malloc_late,
        .pinned_free = pinned_free_late,
        .place = place_late,
        .export = export_late,
        .import = import_late,
        .stream_create = stream_create,
        .stream_destroy = stream_destroy,
        .stream_wait = stream_wait,
        .stream_test = stream_test,
        .stream_wait_event = stream_wait_event,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_wait = event_wait,
        .event_test = event_test,
        .copy = copy,
        .copy_2d = copy_2d,
        .cast = cast,
        .lerp = lerp,
        .strided = strided,
};
