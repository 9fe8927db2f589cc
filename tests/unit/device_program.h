/* Random programs of copies, kernels, events and host accesses over several streams, free of races by construction:
 * each has just the waits it needs, found with vector clocks. A plain model runs the steps one after the other; a
 * device has to come to the same bytes, and with a wait left out it has not. */
#ifndef TEST_DEVICE_PROGRAM_H
#define TEST_DEVICE_PROGRAM_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "zcc/device.h"

enum {
	N_STREAMS = 3,
	N_EVENTS = 4,
	N_DEVICE = 6,   /* cells of device memory, then */
	N_PINNED = 4,   /* of pinned, then */
	N_PAGEABLE = 2, /* of ordinary memory */
	N_CELLS = N_DEVICE + N_PINNED + N_PAGEABLE,
	SIDE = 8,
	CELL = SIDE * SIDE, /* floats */
	CELL_BYTES = CELL * 4,
	MAX_STEPS = 4096
};

enum {
	COPY,
	COPY_2D,
	LERP,
	TRANSPOSE,
	N_OPS,
	RECORD,
	STREAM_WAIT_EVENT,
	EVENT_WAIT,
	STREAM_WAIT,
	POLL,
	HOST_WRITE,
	HOST_READ
};

typedef struct step {
	int kind, stream, event, target, source;
	float value;
} step;

typedef struct program {
	int n_steps, n_reads;
	step steps[MAX_STEPS];
} program;

/* Everything that can be seen of a run. */
typedef struct outcome {
	float cells[N_CELLS][CELL];
	float reads[MAX_STEPS];
} outcome;

static uint64_t program_random;

static inline int draw(int n)
{
	program_random = program_random * 6364136223846793005u + 1442695040888963407u;
	return (int)((program_random >> 33) % (uint64_t)n);
}

static inline uint64_t program_seed(void)
{
	const char *given = getenv("ZCC_SEED");
	uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) % 1000003;
	printf("ZCC_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

static inline int is_wait(const step *s)
{
	return s->kind >= STREAM_WAIT_EVENT && s->kind <= POLL;
}

static inline int is_pageable(int cell)
{
	return cell >= N_DEVICE + N_PINNED;
}

/* ---- making one ---- */

typedef struct clock_ {
	int seen[N_STREAMS]; /* how many operations of each stream are known to be over */
} clock_;

typedef struct maker {
	program *p;
	clock_ streams[N_STREAMS], events[N_EVENTS], host;
	int written_by[N_CELLS], written_at[N_CELLS]; /* last writer: stream or -1, its number */
	int read_at[N_CELLS][N_STREAMS];              /* last reader of each stream since */
} maker;

static inline void join(clock_ *into, const clock_ *from)
{
	for (int s = 0; s < N_STREAMS; s++)
		if (from->seen[s] > into->seen[s])
			into->seen[s] = from->seen[s];
}

static inline step *add_step(maker *m, int kind)
{
	step *s = &m->p->steps[m->p->n_steps++];
	*s = (step){.kind = kind};
	return s;
}

static inline void record(maker *m, int event, int stream)
{
	step *s = add_step(m, RECORD);
	s->event = event;
	s->stream = stream;
	m->events[event] = m->streams[stream];
}

/* The host, or a stream (>= 0), learns that operation `at` of stream `of` is over. */
static inline void need(maker *m, int who, int of, int at)
{
	clock_ *mine = who < 0 ? &m->host : &m->streams[who];
	if (of < 0 || mine->seen[of] >= at)
		return;
	int way = who < 0 ? draw(3) : 0;
	step *s;
	if (way == 1) {
		s = add_step(m, STREAM_WAIT);
		s->stream = of;
		join(mine, &m->streams[of]);
		return;
	}
	int event = draw(N_EVENTS);
	record(m, event, of);
	s = add_step(m, who >= 0 ? STREAM_WAIT_EVENT : way == 0 ? EVENT_WAIT : POLL);
	s->stream = who >= 0 ? who : 0;
	s->event = event;
	join(mine, &m->events[event]);
}

static inline void need_read(maker *m, int who, int cell)
{
	need(m, who, m->written_by[cell], m->written_at[cell]);
}

static inline void need_write(maker *m, int who, int cell)
{
	need_read(m, who, cell);
	for (int s = 0; s < N_STREAMS; s++)
		if (m->read_at[cell][s] > 0)
			need(m, who, s, m->read_at[cell][s]);
}

static inline void note_write(maker *m, int who, int at, int cell)
{
	m->written_by[cell] = who;
	m->written_at[cell] = at;
	memset(m->read_at[cell], 0, sizeof m->read_at[cell]);
}

static inline void make_work(maker *m)
{
	int kind = draw(N_OPS), stream = draw(N_STREAMS);
	int range = kind == COPY || kind == COPY_2D ? N_CELLS : N_DEVICE + N_PINNED;
	int target = draw(range), source = draw(range);
	if (target == source)
		return;
	need_read(m, stream, source);
	need_write(m, stream, target);
	step *s = add_step(m, kind);
	*s = (step){
	        .kind = kind, .stream = stream, .target = target, .source = source, .value = (float)draw(1000) / 1000};
	join(&m->streams[stream], &m->host);
	int at = ++m->streams[stream].seen[stream];
	/* Pageable memory has been read when the call returns. */
	if (!is_pageable(source))
		m->read_at[source][stream] = at;
	note_write(m, stream, at, target);
}

static inline void make_host_access(maker *m)
{
	int cell = N_DEVICE + draw(N_PINNED + N_PAGEABLE);
	if (draw(2) == 0) {
		need_write(m, -1, cell);
		step *s = add_step(m, HOST_WRITE);
		s->target = cell;
		s->value = (float)(m->p->n_steps + 0.5);
		note_write(m, -1, 0, cell);
	} else {
		need_read(m, -1, cell);
		add_step(m, HOST_READ)->source = cell;
		m->p->n_reads++;
	}
}

static inline void make_program(program *p, int length)
{
	maker m = {.p = p};
	*p = (program){0};
	for (int c = 0; c < N_CELLS; c++)
		m.written_by[c] = -1;
	for (int i = 0; i < length; i++) {
		if (draw(3) == 0)
			make_host_access(&m);
		else
			make_work(&m);
		/* Records that nobody asked for; the next record of the event replaces them. */
		if (draw(8) == 0)
			record(&m, draw(N_EVENTS), draw(N_STREAMS));
	}
	for (int s = 0; s < N_STREAMS; s++)
		add_step(&m, STREAM_WAIT)->stream = s;
}

static inline void fill_cells(outcome *o)
{
	for (int c = 0; c < N_CELLS; c++)
		for (int i = 0; i < CELL; i++)
			o->cells[c][i] = (float)(c * 1000 + i);
	memset(o->reads, 0, sizeof o->reads);
}

/* ---- the model ---- */

static inline float sum(const float *cell)
{
	float total = 0;
	for (int i = 0; i < CELL; i++)
		total += cell[i] * (float)(i + 1);
	return total;
}

static inline void model_work(const step *s, float *to, const float *from)
{
	for (int i = 0; i < CELL; i++)
		switch (s->kind) {
		case COPY:
			to[i] = from[i];
			break;
		case COPY_2D: /* the left half of every row becomes the right half */
			if (i % SIDE >= SIDE / 2)
				to[i] = from[i - SIDE / 2];
			break;
		case LERP:
			to[i] = fmaf((float)(1 - (double)s->value), from[i] - to[i], to[i]);
			break;
		case TRANSPOSE:
			to[i] = from[i % SIDE * SIDE + i / SIDE];
			break;
		}
}

static inline void run_model(const program *p, outcome *o)
{
	fill_cells(o);
	for (int i = 0, reads = 0; i < p->n_steps; i++) {
		const step *s = &p->steps[i];
		if (s->kind < N_OPS)
			model_work(s, o->cells[s->target], o->cells[s->source]);
		else if (s->kind == HOST_WRITE)
			for (int k = 0; k < CELL; k++)
				o->cells[s->target][k] = s->value + (float)k;
		else if (s->kind == HOST_READ)
			o->reads[reads++] = sum(o->cells[s->source]);
	}
}

/* ---- a device ---- */

typedef struct machine {
	zcc_device *device;
	zcc_stream *streams[N_STREAMS];
	zcc_event *events[N_EVENTS];
	char *cells[N_CELLS];
	void *memory, *pinned, *ordinary, *bounce;
} machine;

#define must(call)                                                                                                     \
	do {                                                                                                           \
		zcc_error must_error = {0};                                                                            \
		(void)must_error;                                                                                      \
		zcc_error *error = &must_error;                                                                        \
		if ((call) != ZCC_OK)                                                                                  \
			fail_msg("%s: %s", #call, must_error.message);                                                 \
	} while (0)

static inline void machine_open(machine *m, const char *name)
{
	must(zcc_device_open(name, &m->device, error));
	must(zcc_device_malloc(m->device, N_DEVICE * CELL_BYTES, &m->memory, error));
	must(zcc_pinned_malloc(m->device, N_PINNED * CELL_BYTES, &m->pinned, error));
	must(zcc_pinned_malloc(m->device, CELL_BYTES, &m->bounce, error));
	m->ordinary = calloc(N_PAGEABLE, CELL_BYTES);
	for (int c = 0; c < N_CELLS; c++)
		m->cells[c] = c < N_DEVICE              ? (char *)m->memory + c * CELL_BYTES
		              : c < N_DEVICE + N_PINNED ? (char *)m->pinned + (c - N_DEVICE) * CELL_BYTES
		                                        : (char *)m->ordinary + (c - N_DEVICE - N_PINNED) * CELL_BYTES;
	for (int s = 0; s < N_STREAMS; s++)
		must(zcc_stream_create(m->device, &m->streams[s], error));
	for (int e = 0; e < N_EVENTS; e++)
		must(zcc_event_create(m->device, &m->events[e], error));
}

static inline void machine_close(machine *m)
{
	for (int s = 0; s < N_STREAMS; s++)
		zcc_stream_destroy(m->streams[s]);
	for (int e = 0; e < N_EVENTS; e++)
		zcc_event_destroy(m->events[e]);
	zcc_device_free(m->device, m->memory);
	zcc_pinned_free(m->device, m->pinned);
	zcc_pinned_free(m->device, m->bounce);
	free(m->ordinary);
	zcc_device_close(m->device);
}

static inline void set_cells(machine *m)
{
	outcome *o = malloc(sizeof *o);
	fill_cells(o);
	for (int c = 0; c < N_CELLS; c++)
		if (c < N_DEVICE) {
			must(zcc_copy_async(m->streams[0], m->cells[c], o->cells[c], CELL_BYTES, error));
		} else {
			memcpy(m->cells[c], o->cells[c], CELL_BYTES);
		}
	must(zcc_stream_wait(m->streams[0], error));
	free(o);
}

static inline void get_cells(machine *m, outcome *o)
{
	for (int c = 0; c < N_CELLS; c++)
		if (c < N_DEVICE) {
			must(zcc_copy_async(m->streams[0], m->bounce, m->cells[c], CELL_BYTES, error));
			must(zcc_stream_wait(m->streams[0], error));
			memcpy(o->cells[c], m->bounce, CELL_BYTES);
		} else {
			memcpy(o->cells[c], m->cells[c], CELL_BYTES);
		}
}

static inline void device_work(machine *m, const step *s)
{
	zcc_stream *stream = m->streams[s->stream];
	char *to = m->cells[s->target], *from = m->cells[s->source];
	const int64_t shape[] = {SIDE, SIDE}, rows[] = {SIDE, 1}, columns[] = {1, SIDE};
	switch (s->kind) {
	case COPY:
		must(zcc_copy_async(stream, to, from, CELL_BYTES, error));
		break;
	case COPY_2D:
		must(zcc_copy_2d_async(stream, to + SIDE * 2, SIDE * 4, from, SIDE * 4, SIDE * 2, SIDE, error));
		break;
	case LERP:
		must(zcc_lerp_async(stream, (float *)(void *)to, from, ZCC_F32, (double)s->value, CELL, error));
		break;
	case TRANSPOSE:
		must(zcc_strided_async(stream, to, rows, from, columns, 2, shape, 4, error));
		break;
	}
}

static inline void device_order(machine *m, const step *s)
{
	int32_t done = 0;
	switch (s->kind) {
	case RECORD:
		must(zcc_event_record(m->events[s->event], m->streams[s->stream], error));
		break;
	case STREAM_WAIT_EVENT:
		must(zcc_stream_wait_event(m->streams[s->stream], m->events[s->event], error));
		break;
	case EVENT_WAIT:
		must(zcc_event_wait(m->events[s->event], error));
		break;
	case STREAM_WAIT:
		must(zcc_stream_wait(m->streams[s->stream], error));
		break;
	case POLL:
		while (!done)
			must(zcc_event_test(m->events[s->event], &done, error));
		break;
	}
}

/* Leaves out step number `skip`. */
static inline void run_device(machine *m, const program *p, int skip, outcome *o)
{
	set_cells(m);
	memset(o->reads, 0, sizeof o->reads);
	for (int i = 0, reads = 0; i < p->n_steps; i++) {
		const step *s = &p->steps[i];
		float *cell = (float *)(void *)m->cells[s->kind == HOST_READ ? s->source : s->target];
		if (i == skip)
			continue;
		if (s->kind < N_OPS)
			device_work(m, s);
		else if (s->kind == HOST_WRITE)
			for (int k = 0; k < CELL; k++)
				cell[k] = s->value + (float)k;
		else if (s->kind == HOST_READ)
			o->reads[reads++] = sum(cell);
		else
			device_order(m, s);
	}
	/* What a wait that was left out leaves behind is not part of the outcome. */
	for (int s = 0; s < N_STREAMS; s++)
		must(zcc_stream_wait(m->streams[s], error));
	get_cells(m, o);
}

#endif
