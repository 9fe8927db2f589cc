/* The host device keeps the order that streams and events give, and no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "device_program.h"
#include "gate.h"

static void programs_without_races_give_the_bytes_of_the_model(void **state)
{
	(void)state;
	program_random = program_seed();
	program *p = malloc(sizeof *p);
	outcome *want = malloc(sizeof *want), *got = malloc(sizeof *got);
	machine m;
	machine_open(&m, "host");
	for (int round = 0; round < 200; round++) {
		make_program(p, 5 + draw(150));
		run_model(p, want);
		run_device(&m, p, -1, got);
		assert_memory_equal(got->cells, want->cells, sizeof want->cells);
		assert_memory_equal(got->reads, want->reads, sizeof want->reads);
	}
	machine_close(&m);
	free(p);
	free(want);
	free(got);
}

/* `slow` is held up until it is let go. */
enum { BYTES = 4096 };

typedef struct bench {
	zcc_device *device;
	zcc_stream *slow, *fast;
	zcc_event *event, *other;
	void *a, *b, *gate, *small;
	int32_t done;
} bench;

static void bench_open(bench *l)
{
	must(zcc_device_open("host", &l->device, error));
	must(zcc_device_malloc(l->device, BYTES, &l->a, error));
	must(zcc_device_malloc(l->device, BYTES, &l->b, error));
	must(zcc_pinned_malloc(l->device, BYTES, &l->gate, error));
	must(zcc_pinned_malloc(l->device, BYTES, &l->small, error));
	must(zcc_stream_create(l->device, &l->slow, error));
	must(zcc_stream_create(l->device, &l->fast, error));
	must(zcc_event_create(l->device, &l->event, error));
	must(zcc_event_create(l->device, &l->other, error));
}

static void bench_close(bench *l)
{
	zcc_stream_destroy(l->slow);
	zcc_stream_destroy(l->fast);
	zcc_event_destroy(l->event);
	zcc_event_destroy(l->other);
	zcc_device_free(l->device, l->a);
	zcc_device_free(l->device, l->b);
	zcc_pinned_free(l->device, l->gate);
	zcc_pinned_free(l->device, l->small);
	zcc_device_close(l->device);
}

static void hold_up(bench *l)
{
	hold(l->gate);
	must(zcc_copy_async(l->slow, l->a, l->gate, BYTES, error));
}

static int32_t is_done(zcc_stream *stream)
{
	int32_t done = -1;
	must(zcc_stream_test(stream, &done, error));
	return done;
}

static void copies_return_before_they_have_run(void **state)
{
	(void)state;
	bench l;
	bench_open(&l);
	hold_up(&l);
	assert_int_equal(is_done(l.slow), 0);
	let_go();
	must(zcc_stream_wait(l.slow, error));
	assert_int_equal(is_done(l.slow), 1);
	bench_close(&l);
}

static void an_event_that_was_never_recorded_is_done_and_holds_nobody_up(void **state)
{
	(void)state;
	bench l;
	bench_open(&l);
	must(zcc_event_test(l.event, &l.done, error));
	assert_int_equal(l.done, 1);
	must(zcc_event_wait(l.event, error));
	must(zcc_stream_wait_event(l.fast, l.event, error));
	hold_up(&l);
	/* Recorded only now: what `fast` was told before does not change. */
	must(zcc_event_record(l.event, l.slow, error));
	must(zcc_stream_wait(l.fast, error));
	must(zcc_event_test(l.event, &l.done, error));
	assert_int_equal(l.done, 0);
	let_go();
	bench_close(&l);
}

static void a_wait_is_for_the_record_it_found_whatever_is_recorded_later(void **state)
{
	(void)state;
	bench l;
	bench_open(&l);
	hold_up(&l);
	must(zcc_event_record(l.event, l.slow, error));
	must(zcc_stream_wait_event(l.fast, l.event, error));
	/* Recorded anew on an idle stream: the event itself is done at once, who waited for the first record is not. */
	zcc_stream *idle;
	must(zcc_stream_create(l.device, &idle, error));
	must(zcc_event_record(l.event, idle, error));
	must(zcc_event_wait(l.event, error));
	must(zcc_event_record(l.other, l.fast, error));
	must(zcc_event_test(l.other, &l.done, error));
	assert_int_equal(l.done, 0);
	let_go();
	must(zcc_event_wait(l.other, error));
	assert_int_equal(is_done(l.slow), 1);
	zcc_stream_destroy(idle);
	bench_close(&l);
}

static void an_event_may_go_while_streams_wait_for_it(void **state)
{
	(void)state;
	bench l;
	bench_open(&l);
	zcc_event *gone;
	must(zcc_event_create(l.device, &gone, error));
	hold_up(&l);
	must(zcc_event_record(gone, l.slow, error));
	must(zcc_stream_wait_event(l.fast, gone, error));
	zcc_event_destroy(gone);
	assert_int_equal(is_done(l.fast), 0);
	let_go();
	must(zcc_stream_wait(l.fast, error));
	assert_int_equal(is_done(l.slow), 1);
	bench_close(&l);
}

static void a_copy_on_another_stream_overtakes(void **state)
{
	(void)state;
	bench l;
	bench_open(&l);
	hold_up(&l);
	must(zcc_copy_async(l.fast, l.small, l.b, BYTES, error));
	must(zcc_stream_wait(l.fast, error));
	assert_int_equal(is_done(l.slow), 0);
	let_go();
	bench_close(&l);
}

static void freeing_waits_for_work_that_uses_the_memory(void **state)
{
	(void)state;
	bench l;
	bench_open(&l);
	for (int target = 0; target < 2; target++) {
		pthread_t opener;
		hold_up(&l);
		assert_int_equal(pthread_create(&opener, NULL, let_go_later, NULL), 0);
		if (target)
			zcc_device_free(l.device, l.a);
		else
			zcc_pinned_free(l.device, l.gate);
		assert_int_equal(is_done(l.slow), 1);
		pthread_join(opener, NULL);
		if (target)
			must(zcc_device_malloc(l.device, BYTES, &l.a, error));
		else
			must(zcc_pinned_malloc(l.device, BYTES, &l.gate, error));
	}
	bench_close(&l);
}

static void streams_events_and_memory_keep_their_device_open(void **state)
{
	(void)state;
	bench l;
	bench_open(&l);
	zcc_device_close(l.device);
	must(zcc_copy_async(l.slow, l.b, l.a, BYTES, error));
	must(zcc_event_record(l.event, l.slow, error));
	must(zcc_event_wait(l.event, error));
	/* And it is the same one to who opens it meanwhile. */
	zcc_device *again;
	must(zcc_device_open("host", &again, error));
	assert_ptr_equal(again, l.device);
	bench_close(&l);
}

static void *submit_from_a_thread(void *argument)
{
	machine *m = argument;
	zcc_stream *stream;
	zcc_event *event;
	void *mine;
	must(zcc_stream_create(m->device, &stream, error));
	must(zcc_event_create(m->device, &event, error));
	must(zcc_device_malloc(m->device, CELL_BYTES, &mine, error));
	for (int i = 0; i < 300; i++) {
		must(zcc_copy_async(stream, mine, m->cells[i % N_DEVICE], CELL_BYTES, error));
		must(zcc_event_record(event, stream, error));
		if (i % 7 == 0)
			must(zcc_event_wait(event, error));
	}
	zcc_device_free(m->device, mine);
	zcc_stream_destroy(stream);
	zcc_event_destroy(event);
	return NULL;
}

static void several_threads_may_use_one_device(void **state)
{
	(void)state;
	machine m;
	machine_open(&m, "host");
	set_cells(&m);
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, submit_from_a_thread, &m), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	machine_close(&m);
}

/* Last, for the signal stays noted. */
static void waits_give_way_to_a_signal_and_destroying_does_not(void **state)
{
	(void)state;
	bench l;
	bench_open(&l);
	zcc_interrupt_watch();
	hold_up(&l);
	must(zcc_event_record(l.event, l.slow, error));
	raise(SIGTERM);
	zcc_error error;
	assert_int_equal(zcc_stream_wait(l.slow, &error), ZCC_EINTR);
	assert_int_equal(error.code, SIGTERM);
	assert_int_equal(zcc_event_wait(l.event, &error), ZCC_EINTR);
	must(zcc_copy_async(l.slow, l.small, l.gate, BYTES, error));
	memset(l.gate, 7, BYTES);
	pthread_t opener;
	assert_int_equal(pthread_create(&opener, NULL, let_go_later, NULL), 0);
	zcc_stream_destroy(l.slow);
	l.slow = NULL;
	assert_int_equal(((unsigned char *)l.small)[BYTES - 1], 7);
	pthread_join(opener, NULL);
	bench_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(programs_without_races_give_the_bytes_of_the_model),
	        cmocka_unit_test(copies_return_before_they_have_run),
	        cmocka_unit_test(an_event_that_was_never_recorded_is_done_and_holds_nobody_up),
	        cmocka_unit_test(a_wait_is_for_the_record_it_found_whatever_is_recorded_later),
	        cmocka_unit_test(an_event_may_go_while_streams_wait_for_it),
	        cmocka_unit_test(a_copy_on_another_stream_overtakes),
	        cmocka_unit_test(freeing_waits_for_work_that_uses_the_memory),
	        cmocka_unit_test(streams_events_and_memory_keep_their_device_open),
	        cmocka_unit_test(several_threads_may_use_one_device),
	        cmocka_unit_test(waits_give_way_to_a_signal_and_destroying_does_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
