#include "device/host_stream.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/spin.h"
#include "base/status.h"
#include "base/threads.h"
#include "device/host_memory.h"

/* A point of a stream. All fields here and below: under the host lock. */
typedef struct mark {
	int32_t refs;
	bool done;
} mark;

typedef struct event {
	mark *last; /* NULL: nothing to wait for */
} event;

enum { WORK, WAIT, RECORD };

typedef struct item {
	struct item *next;
	int32_t kind;
	mark *mark;
	zcci_work work; /* on memory that the thread can reach */
	zcci_host_block *target, *source;
} item;

typedef struct stream {
	pthread_t thread;
	pthread_cond_t filled;
	item *head, **tail;
	int64_t n_done;
	/* Changed under the lock too, but the thread also looks without. */
	_Atomic int64_t n_submitted;
	_Atomic bool closing;
} stream;

static void lock(void)
{
	pthread_mutex_lock(&zcci_host_lock);
}

static void unlock(void)
{
	pthread_mutex_unlock(&zcci_host_lock);
}

static void drop_mark(mark *m)
{
	if (m != NULL && --m->refs == 0)
		zcci_free(m);
}

static void use(zcci_host_block *block, int32_t change)
{
	if (block != NULL)
		block->busy += change;
}

/* ---- the thread ---- */

static void run(stream *s, item *i)
{
	switch (i->kind) {
	case WAIT:
		while (!i->mark->done)
			pthread_cond_wait(&zcci_host_progress, &zcci_host_lock);
		break;
	case RECORD:
		i->mark->done = true;
		break;
	case WORK:
		unlock();
		zcci_work_run(&i->work);
		lock();
		use(i->target, -1);
		use(i->source, -1);
		break;
	}
	drop_mark(i->mark);
	s->n_done++;
	pthread_cond_broadcast(&zcci_host_progress);
}

/* Lock held, and released meanwhile; by the thread, which alone changes n_done. */
static void await_item(stream *s)
{
	unlock();
	ZCCI_SPIN_WHILE(s->n_submitted == s->n_done && !s->closing);
	lock();
	while (s->head == NULL && !s->closing)
		pthread_cond_wait(&s->filled, &zcci_host_lock);
}

static void *serve(void *argument)
{
	stream *s = argument;
	lock();
	while (!s->closing || s->head != NULL) {
		item *i = s->head;
		if (i == NULL) {
			await_item(s);
			continue;
		}
		s->head = i->next;
		if (s->head == NULL)
			s->tail = &s->head;
		run(s, i);
		zcci_free(i);
	}
	unlock();
	return NULL;
}

zcc_status zcci_host_stream_create(void *device, void **out, zcc_error *error)
{
	(void)device;
	stream *s = zcci_calloc(1, sizeof *s);
	if (s == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "stream create", "no memory for a stream");
	s->tail = &s->head;
	pthread_cond_init(&s->filled, NULL);
	int code = zcci_thread_start(&s->thread, serve, s);
	if (code != 0) {
		pthread_cond_destroy(&s->filled);
		zcci_free(s);
		return zcci_fail(error, ZCC_EDEVICE, code, "stream create", "no thread for a stream: %s",
		                 strerror(code));
	}
	*out = s;
	return ZCC_OK;
}

void zcci_host_stream_destroy(void *device, void *stream_)
{
	(void)device;
	stream *s = stream_;
	lock();
	s->closing = true;
	pthread_cond_signal(&s->filled);
	unlock();
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->filled);
	zcci_free(s);
}

/* ---- submission ---- */

/* Lock held. */
static void append(stream *s, item *i)
{
	*s->tail = i;
	s->tail = &i->next;
	s->n_submitted++;
	pthread_cond_signal(&s->filled);
}

static item *create_item(int32_t kind, zcc_error *error)
{
	item *i = zcci_calloc(1, sizeof *i);
	if (i == NULL) {
		zcci_fail(error, ZCC_ENOMEM, 0, "stream", "no memory to queue an operation");
		return NULL;
	}
	i->kind = kind;
	return i;
}

static void *real_address(const zcci_host_block *block, const void *data)
{
	return block != NULL ? block->real + ((const char *)data - block->data) : (void *)(uintptr_t)data;
}

zcc_status zcci_host_submit(void *stream_, const zcci_work *work, zcc_error *error)
{
	stream *s = stream_;
	item *i = create_item(WORK, error);
	if (i == NULL)
		return ZCC_ENOMEM;
	i->work = *work;
	lock();
	zcc_status status = zcci_host_reach(work->target, zcci_work_target_bytes(work), &i->target, error);
	if (status == ZCC_OK)
		status = zcci_host_reach(work->source, zcci_work_source_bytes(work), &i->source, error);
	if (status != ZCC_OK) {
		unlock();
		zcci_free(i);
		return status;
	}
	i->work.target = real_address(i->target, work->target);
	i->work.source = real_address(i->source, work->source);
	use(i->target, 1);
	use(i->source, 1);
	bool pageable = i->target == NULL || i->source == NULL;
	append(s, i);
	/* Not even a signal lets go of it: the thread is about to use the caller's memory. */
	int64_t mine = s->n_submitted;
	while (pageable && s->n_done < mine)
		pthread_cond_wait(&zcci_host_progress, &zcci_host_lock);
	unlock();
	return ZCC_OK;
}

/* ---- order ---- */

/* Lock held. Sleeps until something has happened; now and then looks for a signal. */
static zcc_status sleep_a_while(zcc_error *error)
{
	int32_t signal_number = zcc_interrupted();
	if (signal_number != 0)
		return zcci_fail(error, ZCC_EINTR, signal_number, "device wait", "stopped by signal %d",
		                 (int)signal_number);
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += 20 * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_cond_clockwait(&zcci_host_progress, &zcci_host_lock, CLOCK_MONOTONIC, &until);
	return ZCC_OK;
}

zcc_status zcci_host_stream_wait(void *device, void *stream_, zcc_error *error)
{
	(void)device;
	stream *s = stream_;
	zcc_status status = ZCC_OK;
	lock();
	int64_t last = s->n_submitted;
	while (s->n_done < last && status == ZCC_OK)
		status = sleep_a_while(error);
	unlock();
	return status;
}

zcc_status zcci_host_stream_test(void *device, void *stream_, int32_t *done, zcc_error *error)
{
	(void)device, (void)error;
	stream *s = stream_;
	lock();
	*done = s->n_done == s->n_submitted;
	unlock();
	return ZCC_OK;
}

zcc_status zcci_host_stream_wait_event(void *device, void *stream_, void *event_, zcc_error *error)
{
	(void)device;
	event *e = event_;
	item *i = create_item(WAIT, error);
	if (i == NULL)
		return ZCC_ENOMEM;
	lock();
	if (e->last == NULL || e->last->done) {
		unlock();
		zcci_free(i);
		return ZCC_OK;
	}
	i->mark = e->last;
	i->mark->refs++;
	append(stream_, i);
	unlock();
	return ZCC_OK;
}

zcc_status zcci_host_event_create(void *device, void **out, zcc_error *error)
{
	(void)device;
	event *e = zcci_calloc(1, sizeof *e);
	if (e == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "event create", "no memory for an event");
	*out = e;
	return ZCC_OK;
}

void zcci_host_event_destroy(void *device, void *event_)
{
	(void)device;
	event *e = event_;
	lock();
	drop_mark(e->last);
	unlock();
	zcci_free(e);
}

zcc_status zcci_host_event_record(void *device, void *event_, void *stream_, zcc_error *error)
{
	(void)device;
	event *e = event_;
	stream *s = stream_;
	mark *m = zcci_calloc(1, sizeof *m);
	item *i = m != NULL ? create_item(RECORD, NULL) : NULL;
	if (i == NULL) {
		zcci_free(m);
		return zcci_fail(error, ZCC_ENOMEM, 0, "event record", "no memory to queue a record");
	}
	i->mark = m;
	m->refs = 2;
	lock();
	drop_mark(e->last);
	e->last = m;
	append(s, i);
	unlock();
	return ZCC_OK;
}

zcc_status zcci_host_event_wait(void *device, void *event_, zcc_error *error)
{
	(void)device;
	event *e = event_;
	zcc_status status = ZCC_OK;
	lock();
	mark *m = e->last;
	if (m != NULL) {
		m->refs++;
		while (!m->done && status == ZCC_OK)
			status = sleep_a_while(error);
		drop_mark(m);
	}
	unlock();
	return status;
}

zcc_status zcci_host_event_test(void *device, void *event_, int32_t *done, zcc_error *error)
{
	(void)device, (void)error;
	event *e = event_;
	lock();
	*done = e->last == NULL || e->last->done;
	unlock();
	return ZCC_OK;
}
