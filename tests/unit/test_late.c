/* The late device produces legal orders only, and finds every wait that is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>

#include "device/late.h"
#include "device_program.h"

static const char *const modes[] = {"late:host,lazy", "late:host,eager", "late:host,shuffle=1", "late:host,shuffle=2"};
enum { N_MODES = sizeof modes / sizeof *modes };

static int same(const outcome *a, const outcome *b)
{
	return memcmp(a->cells, b->cells, sizeof a->cells) == 0 && memcmp(a->reads, b->reads, sizeof a->reads) == 0;
}

static void programs_without_races_give_the_bytes_of_the_model_in_every_mode(void **state)
{
	(void)state;
	uint64_t seed = program_seed();
	program_random = seed;
	program *p = malloc(sizeof *p);
	outcome *want = malloc(sizeof *want), *got = malloc(sizeof *got);
	for (int mode = 0; mode < 5; mode++) {
		char name[64];
		snprintf(name, sizeof name, "late:host,shuffle=%llu", (unsigned long long)seed);
		machine m;
		machine_open(&m, mode < N_MODES ? modes[mode] : name);
		for (int round = 0; round < 40; round++) {
			make_program(p, 5 + draw(150));
			run_model(p, want);
			run_device(&m, p, -1, got);
			assert_true(same(got, want));
		}
		machine_close(&m);
	}
	free(p);
	free(want);
	free(got);
}

/* Whether lazy or one of many shuffles gives other bytes than the model's. */
static int found_out(const program *p, int skip, const outcome *want, outcome *got)
{
	for (int seed = 0; seed < 40; seed++) {
		char name[64];
		snprintf(name, sizeof name, seed == 0 ? "late:host,lazy" : "late:host,shuffle=%d", seed);
		machine m;
		machine_open(&m, name);
		run_device(&m, p, skip, got);
		machine_close(&m);
		if (!same(got, want))
			return 1;
	}
	return 0;
}

/* In a random program a later copy may hide what went wrong, so not every wait shows; most do. */
static void random_programs_with_one_wait_left_out_give_wrong_bytes(void **state)
{
	(void)state;
	program_random = program_seed();
	program *p = malloc(sizeof *p);
	outcome *want = malloc(sizeof *want), *got = malloc(sizeof *got);
	int left_out = 0, found = 0;
	for (int round = 0; round < 100; round++) {
		make_program(p, 12);
		run_model(p, want);
		int n_waits = 0, skip;
		for (int i = 0; i < p->n_steps - N_STREAMS; i++)
			n_waits += is_wait(&p->steps[i]);
		if (n_waits == 0)
			continue;
		int chosen = draw(n_waits);
		for (skip = 0; !is_wait(&p->steps[skip]) || chosen-- > 0; skip++)
			;
		left_out++;
		found += found_out(p, skip, want, got);
	}
	printf("%d of %d waits left out gave wrong bytes\n", found, left_out);
	assert_true(left_out > 50);
	assert_true(found * 10 >= left_out * 6);
	free(p);
	free(want);
	free(got);
}

/* ---- each kind of wait in the smallest program that needs it; the wait is step `skip` ---- */

enum { D0, D1, D2, P0 = N_DEVICE, P1, H0 = N_DEVICE + N_PINNED };

static void check_needed(const step *steps, int n_steps, int skip)
{
	program *p = calloc(1, sizeof *p);
	outcome *want = malloc(sizeof *want), *got = malloc(sizeof *got);
	memcpy(p->steps, steps, (size_t)n_steps * sizeof *steps);
	p->n_steps = n_steps;
	run_model(p, want);
	for (int mode = 0; mode < N_MODES; mode++) {
		machine m;
		machine_open(&m, modes[mode]);
		run_device(&m, p, -1, got);
		machine_close(&m);
		assert_true(same(got, want));
	}
	assert_true(is_wait(&steps[skip]));
	assert_true(found_out(p, skip, want, got));
	free(p);
	free(want);
	free(got);
}

#define CHECK_NEEDED(skip, ...)                                                                                        \
	do {                                                                                                           \
		const step steps[] = {__VA_ARGS__};                                                                    \
		check_needed(steps, sizeof steps / sizeof *steps, skip);                                               \
	} while (0)
#define WORK(op, on, to, from)                                                                                         \
	{                                                                                                              \
		.kind = op, .stream = on, .target = to, .source = from, .value = 0.25f                                 \
	}

static void a_stream_that_reads_what_another_wrote_needs_its_wait(void **state)
{
	(void)state;
	CHECK_NEEDED(2, WORK(COPY, 0, D1, D0), {.kind = RECORD}, {.kind = STREAM_WAIT_EVENT, .stream = 1},
	             WORK(COPY, 1, D2, D1), {.kind = STREAM_WAIT, .stream = 1});
}

static void a_stream_that_overwrites_what_another_reads_needs_its_wait(void **state)
{
	(void)state;
	CHECK_NEEDED(2, WORK(COPY, 0, D1, D0), {.kind = RECORD}, {.kind = STREAM_WAIT_EVENT, .stream = 1},
	             WORK(COPY, 1, D0, D2));
}

static void a_stream_that_overwrites_what_another_wrote_needs_its_wait(void **state)
{
	(void)state;
	CHECK_NEEDED(2, WORK(COPY, 0, D1, D0), {.kind = RECORD}, {.kind = STREAM_WAIT_EVENT, .stream = 1},
	             WORK(COPY, 1, D1, D2));
}

static void the_host_that_reads_a_copy_needs_its_wait(void **state)
{
	(void)state;
	CHECK_NEEDED(2, WORK(COPY, 0, P0, D0), {.kind = RECORD}, {.kind = EVENT_WAIT},
	             {.kind = HOST_READ, .source = P0});
	CHECK_NEEDED(1, WORK(COPY, 0, P0, D0), {.kind = STREAM_WAIT}, {.kind = HOST_READ, .source = P0});
	CHECK_NEEDED(2, WORK(COPY, 0, P0, D0), {.kind = RECORD}, {.kind = POLL}, {.kind = HOST_READ, .source = P0});
}

static void the_host_that_reads_a_kernels_result_needs_its_wait(void **state)
{
	(void)state;
	for (int op = COPY_2D; op < N_OPS; op++)
		CHECK_NEEDED(1, WORK(op, 0, P0, P1), {.kind = STREAM_WAIT}, {.kind = HOST_READ, .source = P0});
}

static void the_host_that_reads_a_copy_in_pageable_memory_needs_its_wait(void **state)
{
	(void)state;
	CHECK_NEEDED(1, WORK(COPY, 0, H0, D0), {.kind = STREAM_WAIT}, {.kind = HOST_READ, .source = H0});
}

static void the_host_that_refills_a_staging_buffer_needs_its_wait(void **state)
{
	(void)state;
	CHECK_NEEDED(3, {.kind = HOST_WRITE, .target = P0, .value = 1}, WORK(COPY, 0, D0, P0), {.kind = RECORD},
	             {.kind = EVENT_WAIT}, {.kind = HOST_WRITE, .target = P0, .value = 2}, WORK(COPY, 0, D1, P0),
	             {.kind = STREAM_WAIT});
}

static void a_record_that_comes_too_early_does_not_do(void **state)
{
	(void)state;
	/* The wait is there, for a record before the copy: the program is wrong, and every shuffle or lazy run may say
	 * so. */
	program *p = calloc(1, sizeof *p);
	outcome *want = malloc(sizeof *want), *got = malloc(sizeof *got);
	const step steps[] = {
	        {.kind = RECORD}, WORK(COPY, 0, P0, D0), {.kind = EVENT_WAIT}, {.kind = HOST_READ, .source = P0}};
	memcpy(p->steps, steps, sizeof steps);
	p->n_steps = 4;
	run_model(p, want);
	assert_true(found_out(p, -1, want, got));
	free(p);
	free(want);
	free(got);
}

static void pageable_sources_need_no_wait_before_they_change(void **state)
{
	(void)state;
	program *p = calloc(1, sizeof *p);
	outcome *want = malloc(sizeof *want), *got = malloc(sizeof *got);
	/* A copy into the same memory is still pending on the stream when it is read. */
	const step steps[] = {WORK(COPY, 0, H0, D0),
	                      WORK(COPY, 0, D1, H0),
	                      WORK(COPY_2D, 0, D2, H0),
	                      {.kind = HOST_WRITE, .target = H0, .value = 7},
	                      WORK(COPY, 0, P0, D1)};
	memcpy(p->steps, steps, sizeof steps);
	p->n_steps = sizeof steps / sizeof *steps;
	run_model(p, want);
	assert_false(found_out(p, -1, want, got));
	free(p);
	free(want);
	free(got);
}

/* ---- the modes themselves ---- */

static void lazy_runs_only_what_the_wait_needs(void **state)
{
	(void)state;
	machine m;
	machine_open(&m, "late:host");
	assert_string_equal(zcc_device_name(m.device), "late:host,lazy");
	set_cells(&m);
	unsigned char *first = (unsigned char *)m.cells[P0], *second = (unsigned char *)m.cells[P1];
	float before = *(float *)(void *)first;
	must(zcc_copy_async(m.streams[0], m.cells[P0], m.cells[D1], CELL_BYTES, error));
	must(zcc_event_record(m.events[0], m.streams[0], error));
	must(zcc_copy_async(m.streams[0], m.cells[P1], m.cells[D1], CELL_BYTES, error));
	for (int i = 0; i < CELL_BYTES; i++) {
		assert_int_equal(first[i], ZCCI_LATE_POISON);
		assert_int_equal(second[i], ZCCI_LATE_POISON);
	}
	must(zcc_event_wait(m.events[0], error));
	assert_true(*(float *)(void *)first == 1000 && before == (float)(P0 * 1000));
	assert_int_equal(second[0], ZCCI_LATE_POISON);
	/* The third poll in a row moves it. */
	int32_t done = 1;
	for (int i = 0; i < 2; i++) {
		must(zcc_stream_test(m.streams[0], &done, error));
		assert_int_equal(done, 0);
		assert_int_equal(second[0], ZCCI_LATE_POISON);
	}
	must(zcc_stream_test(m.streams[0], &done, error));
	assert_int_equal(done, 1);
	assert_true(*(float *)(void *)second == 1000);
	machine_close(&m);
}

static void poison_stays_out_of_the_gaps_and_of_what_pending_work_uses(void **state)
{
	(void)state;
	machine m;
	machine_open(&m, "late:host,lazy");
	set_cells(&m);
	const unsigned char *p0 = (unsigned char *)m.cells[P0], *p1 = (unsigned char *)m.cells[P1];
	const int64_t shape[] = {SIDE}, apart[] = {2};
	memset(m.cells[P0], 0, CELL_BYTES);
	memset(m.cells[P1], 0, CELL_BYTES);
	must(zcc_copy_2d_async(m.streams[0], m.cells[P0], 8, m.cells[D0], 4, 3, 10, error));
	must(zcc_strided_async(m.streams[0], m.cells[P1], apart, m.cells[D0], apart, 1, shape, 4, error));
	for (int i = 0; i < 80; i++)
		assert_int_equal(p0[i] == ZCCI_LATE_POISON, i % 8 < 3);
	for (int i = 0; i < 2 * SIDE * 4; i++)
		assert_int_equal(p1[i] == ZCCI_LATE_POISON, i / 4 % 2 == 0);
	must(zcc_stream_wait(m.streams[0], error));
	/* Pending work reads P0: poison there would be a wrong byte, not a late one. */
	must(zcc_copy_async(m.streams[0], m.cells[D1], m.cells[P0], CELL_BYTES, error));
	must(zcc_copy_async(m.streams[0], m.cells[P0], m.cells[D2], CELL_BYTES, error));
	assert_int_not_equal(p0[100], ZCCI_LATE_POISON);
	machine_close(&m);
}

static void fresh_device_memory_holds_poison(void **state)
{
	(void)state;
	machine m;
	machine_open(&m, "late:host,lazy");
	outcome *got = malloc(sizeof *got);
	get_cells(&m, got);
	for (size_t i = 0; i < N_DEVICE * CELL_BYTES; i++)
		assert_int_equal(((unsigned char *)got->cells)[i], ZCCI_LATE_POISON);
	free(got);
	machine_close(&m);
}

static void eager_has_done_it_when_the_call_returns(void **state)
{
	(void)state;
	machine m;
	machine_open(&m, "late:host,eager");
	set_cells(&m);
	int32_t done = 0;
	must(zcc_copy_async(m.streams[0], m.cells[P0], m.cells[D1], CELL_BYTES, error));
	must(zcc_event_record(m.events[0], m.streams[0], error));
	assert_true(*(float *)(void *)m.cells[P0] == 1000);
	must(zcc_event_test(m.events[0], &done, error));
	assert_int_equal(done, 1);
	machine_close(&m);
}

/* Which of two unordered copies to the same place runs last. */
static float last_of_two(int seed)
{
	char name[64];
	snprintf(name, sizeof name, "late:host,shuffle=%d", seed);
	machine m;
	machine_open(&m, name);
	set_cells(&m);
	must(zcc_copy_async(m.streams[0], m.cells[P0], m.cells[D1], CELL_BYTES, error));
	must(zcc_copy_async(m.streams[1], m.cells[P0], m.cells[D2], CELL_BYTES, error));
	must(zcc_stream_wait(m.streams[0], error));
	must(zcc_stream_wait(m.streams[1], error));
	float value = *(float *)(void *)m.cells[P0];
	machine_close(&m);
	return value;
}

static void a_shuffle_takes_either_order_and_the_same_with_the_same_seed(void **state)
{
	(void)state;
	int n_first = 0, n_second = 0;
	for (int seed = 0; seed < 64; seed++) {
		float value = last_of_two(seed);
		n_first += value == 1000;
		n_second += value == 2000;
		assert_true(value == last_of_two(seed));
	}
	assert_int_equal(n_first + n_second, 64);
	assert_true(n_first > 5 && n_second > 5);
}

static void freeing_runs_the_work_that_uses_the_memory_and_no_other(void **state)
{
	(void)state;
	machine m;
	machine_open(&m, "late:host,lazy");
	set_cells(&m);
	void *memory;
	must(zcc_device_malloc(m.device, CELL_BYTES, &memory, error));
	must(zcc_copy_async(m.streams[0], memory, m.cells[D1], CELL_BYTES, error));
	must(zcc_copy_async(m.streams[0], m.cells[P0], memory, CELL_BYTES, error));
	must(zcc_copy_async(m.streams[1], m.cells[P1], m.cells[D1], CELL_BYTES, error));
	zcc_device_free(m.device, memory);
	assert_true(*(float *)(void *)m.cells[P0] == 1000);
	assert_int_equal(*(unsigned char *)m.cells[P1], ZCCI_LATE_POISON);
	machine_close(&m);
}

static void a_long_chain_of_waits_ends(void **state)
{
	(void)state;
	machine m;
	machine_open(&m, "late:host,lazy");
	set_cells(&m);
	for (int i = 0; i < 20000; i++) {
		must(zcc_event_record(m.events[i % N_EVENTS], m.streams[i % 2], error));
		must(zcc_stream_wait_event(m.streams[(i + 1) % 2], m.events[i % N_EVENTS], error));
	}
	must(zcc_copy_async(m.streams[0], m.cells[P0], m.cells[D1], CELL_BYTES, error));
	must(zcc_stream_wait(m.streams[0], error));
	assert_true(*(float *)(void *)m.cells[P0] == 1000);
	machine_close(&m);
}

static void the_environment_gives_what_the_name_leaves_open(void **state)
{
	(void)state;
	static const char *const rows[][4] = {
	        /* $ZCC_LATE, $ZCC_SEED, asked for, opened */
	        {"eager", NULL, "late:host", "late:host,eager"},
	        {"eager", NULL, "late:host,lazy", "late:host,lazy"},
	        {"shuffle=9", NULL, "late:host", "late:host,shuffle=9"},
	        {"shuffle", "11", "late:host", "late:host,shuffle=11"},
	        {NULL, "12", "late:host,shuffle", "late:host,shuffle=12"},
	        {"", NULL, "late:host", "late:host,lazy"},
	        {"eager", NULL, "host", "host"},
	};
	char *seed = getenv("ZCC_SEED") != NULL ? strdup(getenv("ZCC_SEED")) : NULL;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		rows[i][0] != NULL ? setenv("ZCC_LATE", rows[i][0], 1) : unsetenv("ZCC_LATE");
		rows[i][1] != NULL ? setenv("ZCC_SEED", rows[i][1], 1) : unsetenv("ZCC_SEED");
		zcc_device *device;
		must(zcc_device_open(rows[i][2], &device, error));
		assert_string_equal(zcc_device_name(device), rows[i][3]);
		zcc_device_close(device);
	}
	setenv("ZCC_LATE", "sometimes", 1);
	zcc_device *device;
	zcc_error error;
	assert_int_equal(zcc_device_open("late:host", &device, &error), ZCC_EINVAL);
	assert_non_null(strstr(error.message, "$ZCC_LATE says \"sometimes\""));
	unsetenv("ZCC_LATE");
	seed != NULL ? setenv("ZCC_SEED", seed, 1) : unsetenv("ZCC_SEED");
	free(seed);
}

/* Last, for the signal stays noted. */
static void waits_give_way_to_a_signal_and_destroying_does_not(void **state)
{
	(void)state;
	machine m;
	machine_open(&m, "late:host,lazy");
	set_cells(&m);
	must(zcc_copy_async(m.streams[0], m.cells[P0], m.cells[D1], CELL_BYTES, error));
	must(zcc_event_record(m.events[0], m.streams[0], error));
	zcc_interrupt_watch();
	raise(SIGTERM);
	zcc_error error;
	assert_int_equal(zcc_stream_wait(m.streams[0], &error), ZCC_EINTR);
	assert_int_equal(zcc_event_wait(m.events[0], &error), ZCC_EINTR);
	assert_int_equal(*(unsigned char *)m.cells[P0], ZCCI_LATE_POISON);
	zcc_stream_destroy(m.streams[0]);
	assert_true(*(float *)(void *)m.cells[P0] == 1000);
	m.streams[0] = NULL;
	machine_close(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(programs_without_races_give_the_bytes_of_the_model_in_every_mode),
	        cmocka_unit_test(random_programs_with_one_wait_left_out_give_wrong_bytes),
	        cmocka_unit_test(a_stream_that_reads_what_another_wrote_needs_its_wait),
	        cmocka_unit_test(a_stream_that_overwrites_what_another_reads_needs_its_wait),
	        cmocka_unit_test(a_stream_that_overwrites_what_another_wrote_needs_its_wait),
	        cmocka_unit_test(the_host_that_reads_a_copy_needs_its_wait),
	        cmocka_unit_test(the_host_that_reads_a_kernels_result_needs_its_wait),
	        cmocka_unit_test(the_host_that_reads_a_copy_in_pageable_memory_needs_its_wait),
	        cmocka_unit_test(the_host_that_refills_a_staging_buffer_needs_its_wait),
	        cmocka_unit_test(a_record_that_comes_too_early_does_not_do),
	        cmocka_unit_test(pageable_sources_need_no_wait_before_they_change),
	        cmocka_unit_test(lazy_runs_only_what_the_wait_needs),
	        cmocka_unit_test(poison_stays_out_of_the_gaps_and_of_what_pending_work_uses),
	        cmocka_unit_test(fresh_device_memory_holds_poison),
	        cmocka_unit_test(eager_has_done_it_when_the_call_returns),
	        cmocka_unit_test(a_shuffle_takes_either_order_and_the_same_with_the_same_seed),
	        cmocka_unit_test(freeing_runs_the_work_that_uses_the_memory_and_no_other),
	        cmocka_unit_test(a_long_chain_of_waits_ends),
	        cmocka_unit_test(the_environment_gives_what_the_name_leaves_open),
	        cmocka_unit_test(waits_give_way_to_a_signal_and_destroying_does_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
