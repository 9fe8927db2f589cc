#include "device/late_queue.h"

#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "device/late.h"

/* splitmix64 (Steele, Lea, Flood 2014). */
int64_t zcci_late_random(late_device *device, int64_t n)
{
	uint64_t z = (device->random += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (int64_t)((z ^ (z >> 31)) % (uint64_t)n);
}

void zcci_late_append(late_stream *stream, late_item *item)
{
	item->next = NULL;
	*stream->tail = item;
	stream->tail = &item->next;
}

void zcci_late_drop_mark(late_mark *mark)
{
	if (mark != NULL && --mark->refs == 0)
		zcci_free(mark);
}

/* ---- ranges ---- */

static bool meet(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
	return (uintptr_t)a < (uintptr_t)b + (uintptr_t)b_bytes && (uintptr_t)b < (uintptr_t)a + (uintptr_t)a_bytes;
}

static bool writes(const late_item *i, const void *data, int64_t bytes)
{
	return i->kind == LATE_WORK && meet(i->work.target, zcci_work_target_bytes(&i->work), data, bytes);
}

static bool touches(const late_item *i, const void *data, int64_t bytes)
{
	return writes(i, data, bytes) ||
	       (i->kind == LATE_WORK && meet(i->work.source, zcci_work_source_bytes(&i->work), data, bytes));
}

bool zcci_late_writes(const late_device *device, const void *data, int64_t bytes)
{
	for (const late_stream *s = device->streams; s != NULL; s = s->next)
		for (const late_item *i = s->head; i != NULL; i = i->next)
			if (writes(i, data, bytes))
				return true;
	return false;
}

static late_stream *user(const late_device *device, const void *data, int64_t bytes)
{
	for (late_stream *s = device->streams; s != NULL; s = s->next)
		for (const late_item *i = s->head; i != NULL; i = i->next)
			if (touches(i, data, bytes))
				return s;
	return NULL;
}

bool zcci_late_touches(const late_device *device, const void *data, int64_t bytes)
{
	return user(device, data, bytes) != NULL;
}

/* ---- running ---- */

zcc_status zcci_late_settle(late_device *device, zcc_error *error)
{
	zcc_error fault;
	int32_t done = 0;
	zcc_status status;
	/* What has been handed on must have ended before anyone is told so, signal or not; it is one operation. */
	while ((status = device->ops->stream_wait(device->inner, device->inner_stream, &fault)) == ZCC_EINTR) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		status = device->ops->stream_test(device->inner, device->inner_stream, &done, &fault);
		if (status != ZCC_OK || done)
			break;
	}
	if (status != ZCC_OK && error != NULL)
		*error = fault;
	return status;
}

static bool blocked(const late_stream *s)
{
	return s->head->kind == LATE_WAIT && !s->head->mark->done;
}

/* Runs the first item of a stream that is not blocked. */
static void step(late_device *device, late_stream *s)
{
	late_item *i = s->head;
	s->head = i->next;
	if (s->head == NULL)
		s->tail = &s->head;
	if (i->kind == LATE_WORK) {
		zcc_error fault = {0};
		zcc_status status =
		        zcci_work_submit(&i->work, device->ops, device->inner, device->inner_stream, &fault);
		if (status == ZCC_OK)
			status = zcci_late_settle(device, &fault);
		if (status != ZCC_OK && s->fault.status == ZCC_OK)
			s->fault = fault;
	} else if (i->kind == LATE_RECORD) {
		i->mark->done = true;
		i->mark->status = s->fault.status;
		i->mark->stream = NULL;
	} else if (i->mark->status != ZCC_OK && s->fault.status == ZCC_OK) {
		zcci_fail(&s->fault, i->mark->status, 0, "stream wait",
		          "work before an event failed that this stream waited for; a wait for that work's own stream "
		          "says how");
	}
	zcci_late_drop_mark(i->mark);
	zcci_free(i->snapshot);
	zcci_free(i);
	s->n_tests = 0;
}

/* One of the streams that can go on, each as likely; NULL where none can. */
static late_stream *any(late_device *device)
{
	late_stream *chosen = NULL;
	int64_t n = 0;
	for (late_stream *s = device->streams; s != NULL; s = s->next)
		if (s->head != NULL && !blocked(s) && zcci_late_random(device, ++n) == 0)
			chosen = s;
	return chosen;
}

/* One step that brings the stream, which is not empty, nearer to its end. A record always precedes the wait for it, so
 * following the waits ends. */
static void advance(late_device *device, late_stream *s)
{
	if (device->mode == ZCCI_LATE_SHUFFLE) {
		step(device, any(device));
		return;
	}
	while (blocked(s))
		s = s->head->mark->stream;
	step(device, s);
}

static zcc_status check_signal(zcc_error *error)
{
	int32_t number = zcc_interrupted();
	return number == 0 ? ZCC_OK
	                   : zcci_fail(error, ZCC_EINTR, number, "device wait", "stopped by signal %d", (int)number);
}

zcc_status zcci_late_finish_mark(late_device *device, late_mark *mark, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	while (!mark->done && (status = check_signal(error)) == ZCC_OK)
		advance(device, mark->stream);
	return status;
}

zcc_status zcci_late_finish_stream(late_device *device, late_stream *stream, bool give_way, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	while (stream->head != NULL && (!give_way || (status = check_signal(error)) == ZCC_OK))
		advance(device, stream);
	return status;
}

void zcci_late_finish_bytes(late_device *device, const void *data, int64_t bytes)
{
	for (late_stream *s; (s = user(device, data, bytes)) != NULL;)
		advance(device, s);
}

void zcci_late_stir(late_device *device)
{
	if (device->mode != ZCCI_LATE_SHUFFLE)
		return;
	for (late_stream *s; zcci_late_random(device, 2) == 0 && (s = any(device)) != NULL;)
		step(device, s);
}
