#include "standin_impl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum { COPY, KERNEL, FOREIGN, RECORD, WAIT } kind;

/* Submitted work. */
typedef struct item {
	struct item *next;
	kind kind;
	/* COPY: rows of bytes. `kept` is what a copy from pageable memory has read when it was submitted. */
	void *target;
	const void *source;
	char *kept;
	int64_t bytes, rows, target_pitch, source_pitch;
	/* KERNEL */
	char argument[512];
	const char *name;
	standin_reference *reference;
	/* FOREIGN */
	int32_t (*run)(void *context);
	void *context;
	/* RECORD, WAIT */
	struct record *record;
} item;

struct CUstream_st {
	struct CUstream_st *next;
	item *first;
	item **last;
	int asked; /* queries since something ran */
};

/* One record of an event: a wait means the last one before it, whatever becomes of the event. */
typedef struct record {
	struct CUstream_st *stream;
	bool reached;
	int64_t users; /* the event, and items */
} record;

struct CUevent_st {
	record *last;
	int asked;
};

/* So many times a query says "not ready" before it makes things happen: a caller that polls once and goes on is wrong.
 */
enum { PATIENCE = 3 };

static struct CUstream_st *streams;
static int64_t n_pending, pending_bytes, most_pending_bytes;

int64_t standin_pending(void)
{
	standin_lock();
	int64_t n = n_pending;
	standin_unlock();
	return n;
}

int64_t standin_most_pending_bytes(void)
{
	standin_lock();
	int64_t most = most_pending_bytes;
	most_pending_bytes = pending_bytes;
	standin_unlock();
	return most;
}

static void drop(record *r)
{
	if (r != NULL && --r->users == 0)
		free(r);
}

static void run_copy(item *it)
{
	for (int64_t row = 0; row < it->rows; row++) {
		const char *source = it->kept != NULL ? it->kept + row * it->bytes
		                                      : (const char *)it->source + row * it->source_pitch;
		char *target = (char *)it->target + row * it->target_pitch;
		memmove(standin_reach(target, it->bytes, "copy to"), standin_reach(source, it->bytes, "copy from"),
		        (size_t)it->bytes);
	}
	free(it->kept);
	pending_bytes -= it->bytes * it->rows;
}

static bool run_until(const record *r);

/* False where the first item cannot end yet: foreign work that waits for another process. It stays the first. */
static bool run_first(struct CUstream_st *stream)
{
	item *it = stream->first;
	bool done = true;
	stream->asked = 0;
	switch (it->kind) {
	case COPY:
		standin_note("work");
		run_copy(it);
		break;
	case KERNEL:
		standin_note("work");
		it->reference(it->argument);
		break;
	case FOREIGN:
		done = it->run(it->context);
		break;
	case RECORD:
		it->record->reached = true;
		drop(it->record);
		break;
	case WAIT:
		done = run_until(it->record);
		if (done)
			drop(it->record);
		break;
	}
	if (!done)
		return false;
	stream->first = it->next;
	if (stream->first == NULL)
		stream->last = &stream->first;
	n_pending--;
	free(it);
	return true;
}

/* The record was submitted before whatever waits for it, so this ends. */
static bool run_until(const record *r)
{
	while (!r->reached)
		if (!run_first(r->stream))
			return false;
	return true;
}

static bool run_all(struct CUstream_st *stream)
{
	while (stream->first != NULL)
		if (!run_first(stream))
			return false;
	return true;
}

/* Lock held; let go between the turns, for whoever can make the work end. */
static void run_to_the_end(struct CUstream_st *stream)
{
	while (!run_all(stream)) {
		standin_unlock();
		usleep(50);
		standin_lock();
	}
}

void standin_drain(void)
{
	for (struct CUstream_st *s = streams; s != NULL; s = s->next)
		run_to_the_end(s);
}

static item *submit(struct CUstream_st *stream, kind what)
{
	item *it = calloc(1, sizeof *it);
	it->kind = what;
	*stream->last = it;
	stream->last = &it->next;
	n_pending++;
	return it;
}

void standin_submit(void *stream, int32_t (*run)(void *context), void *context)
{
	standin_lock();
	item *it = submit(stream, FOREIGN);
	it->run = run;
	it->context = context;
	standin_unlock();
}

void *standin_real(const void *data, int64_t bytes)
{
	return standin_reach(data, bytes, "message");
}

/* ---- streams ---- */

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
	(void)flags;
	standin_lock();
	cudaError_t code = standin_enter("cudaStreamCreateWithFlags");
	if (code == cudaSuccess) {
		struct CUstream_st *made = calloc(1, sizeof *made);
		made->last = &made->first;
		made->next = streams;
		streams = made;
		*stream = made;
	}
	standin_unlock();
	return code;
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream)
{
	standin_lock();
	cudaError_t code = standin_enter("cudaStreamDestroy");
	if (stream->first != NULL)
		standin_abort("a stream is destroyed with work that has not run");
	struct CUstream_st **link = &streams;
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	free(stream);
	standin_unlock();
	return code;
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream)
{
	standin_lock();
	standin_enter("cudaStreamSynchronize");
	run_to_the_end(stream);
	cudaError_t code = standin_enter("after cudaStreamSynchronize");
	standin_unlock();
	return code;
}

cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream)
{
	standin_lock();
	cudaError_t code = standin_enter("cudaStreamQuery");
	if (code == cudaSuccess && stream->first != NULL && ++stream->asked <= PATIENCE) {
		code = cudaErrorNotReady;
	} else if (code == cudaSuccess) {
		code = run_all(stream) ? standin_enter("after cudaStreamQuery") : cudaErrorNotReady;
	}
	standin_unlock();
	return code;
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	(void)flags;
	standin_lock();
	cudaError_t code = standin_enter("cudaStreamWaitEvent");
	if (code == cudaSuccess && event->last != NULL && !event->last->reached) {
		submit(stream, WAIT)->record = event->last;
		event->last->users++;
	}
	standin_unlock();
	return code;
}

/* ---- events ---- */

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	(void)flags;
	standin_lock();
	cudaError_t code = standin_enter("cudaEventCreateWithFlags");
	if (code == cudaSuccess)
		*event = calloc(1, sizeof **event);
	standin_unlock();
	return code;
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event)
{
	standin_lock();
	cudaError_t code = standin_enter("cudaEventDestroy");
	drop(event->last);
	free(event);
	standin_unlock();
	return code;
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	standin_lock();
	cudaError_t code = standin_enter("cudaEventRecord");
	if (code == cudaSuccess) {
		drop(event->last);
		event->last = calloc(1, sizeof *event->last);
		*event->last = (record){.stream = stream, .users = 2};
		event->asked = 0;
		submit(stream, RECORD)->record = event->last;
	}
	standin_unlock();
	return code;
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event)
{
	standin_lock();
	cudaError_t code = standin_enter("cudaEventQuery");
	bool waits = event->last != NULL && !event->last->reached;
	if (code == cudaSuccess && waits && ++event->asked <= PATIENCE) {
		code = cudaErrorNotReady;
	} else if (code == cudaSuccess) {
		code = !waits || run_until(event->last) ? standin_enter("after cudaEventQuery") : cudaErrorNotReady;
	}
	standin_unlock();
	return code;
}

/* ---- work ---- */

static void keep_source(item *it)
{
	it->kept = malloc((size_t)(it->rows * it->bytes));
	for (int64_t row = 0; row < it->rows; row++)
		memcpy(it->kept + row * it->bytes, (const char *)it->source + row * it->source_pitch,
		       (size_t)it->bytes);
}

/* Copies from pageable memory have read it when they return, copies to it have written it: neither is asynchronous. */
static cudaError_t submit_copy(const char *call, cudaStream_t stream, const item *copy)
{
	standin_lock();
	cudaError_t code = standin_enter(call);
	if (code == cudaSuccess) {
		item *it = submit(stream, COPY);
		item *next = it->next;
		*it = *copy;
		it->next = next;
		pending_bytes += it->bytes * it->rows;
		if (pending_bytes > most_pending_bytes)
			most_pending_bytes = pending_bytes;
		bool to_pageable = standin_find(copy->target) == NULL;
		bool from_pageable = standin_find(copy->source) == NULL;
		if (from_pageable)
			keep_source(it);
		if (from_pageable)
			standin_note("copy from pageable");
		if (to_pageable)
			standin_note("copy to pageable");
		if (to_pageable) {
			run_to_the_end(stream);
			code = standin_enter("after copy");
		}
	}
	standin_unlock();
	return code;
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void *target, const void *source, size_t bytes, enum cudaMemcpyKind direction,
                                      cudaStream_t stream)
{
	if (direction != cudaMemcpyDefault || bytes == 0)
		standin_abort("a copy of %zu bytes of kind %d", bytes, (int)direction);
	item copy = {.kind = COPY, .target = target, .source = source, .bytes = (int64_t)bytes, .rows = 1};
	return submit_copy("cudaMemcpyAsync", stream, &copy);
}

cudaError_t CUDARTAPI cudaMemcpy2DAsync(void *target, size_t target_pitch, const void *source, size_t source_pitch,
                                        size_t bytes, size_t rows, enum cudaMemcpyKind direction, cudaStream_t stream)
{
	if (direction != cudaMemcpyDefault || target_pitch < bytes || source_pitch < bytes ||
	    target_pitch > 0x7fffffff || source_pitch > 0x7fffffff)
		return standin_answer(cudaErrorInvalidValue);
	item copy = {.kind = COPY,
	             .target = target,
	             .source = source,
	             .bytes = (int64_t)bytes,
	             .rows = (int64_t)rows,
	             .target_pitch = (int64_t)target_pitch,
	             .source_pitch = (int64_t)source_pitch};
	return submit_copy("cudaMemcpy2DAsync", stream, &copy);
}

cudaError_t CUDARTAPI cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                       cudaStream_t stream)
{
	int32_t argument_bytes;
	standin_reference *reference;
	(void)shared;
	standin_lock();
	cudaError_t code = standin_enter("cudaLaunchKernel");
	const char *name = standin_kernel(function, &argument_bytes, &reference);
	uint64_t threads = (uint64_t)block.x * block.y * block.z;
	if (name == NULL || argument_bytes > (int32_t)sizeof((item *)0)->argument)
		standin_abort("launch of what is no kernel");
	if (code == cudaSuccess && (threads == 0 || threads > 1024 || grid.x == 0 || grid.x > 0x7fffffff ||
	                            grid.y == 0 || grid.y > 65535 || grid.z == 0 || grid.z > 65535))
		code = standin_answer(cudaErrorInvalidConfiguration);
	if (code == cudaSuccess) {
		item *it = submit(stream, KERNEL);
		memcpy(it->argument, arguments[0], (size_t)argument_bytes);
		it->reference = reference;
		it->name = name;
		standin_note(name);
	}
	standin_unlock();
	return code;
}
