/* What an EMA refuses, by name and numbers, and what is left after a fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ema_rig.h"

static zcc_ema_buffer buffer_of(zcc_ema *ema, const char *name, void *average, const void *param, int64_t elems)
{
	zcc_ema_buffer b;
	zcc_ema_buffer_init(&b);
	if (zcc_ema_group(ema, 0.9, &b.group, &error) != ZCC_OK)
		abort();
	b.name = name;
	b.ema = average;
	b.param = param;
	b.elems = elems;
	return b;
}

static void an_average_in_fewer_bits_is_refused_with_the_reason(void **state)
{
	(void)state;
	set s = {.device = open_device(0)};
	zcc_ema *ema = new_ema(&s, 1);
	uint16_t average[8] = {0};
	float param[8] = {0};
	const int32_t halves[] = {ZCC_BF16, ZCC_F16};
	for (int i = 0; i < 2; i++) {
		zcc_ema_buffer b = buffer_of(ema, "layers.0.w", average, param, 8);
		b.ema_dtype = halves[i];
		assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
		assert_says("layers.0.w");
		assert_says(zcc_dtype_name(halves[i]));
		assert_says("F32");
		assert_says("never move");
	}
	assert_int_equal(zcc_ema_count(ema), 0);
	zcc_ema_destroy(ema);
	zcc_device_close(s.device);
}

static void a_buffer_in_another_place_than_declared_is_refused_by_name_and_both_places(void **state)
{
	(void)state;
	set s = {.device = open_device(1)};
	zcc_ema *ema = new_ema(&s, 1);
	float average[8] = {0}, param[8] = {0}, other[8] = {0};
	void *on_device, *more, *pinned;
	MUST(zcc_device_malloc(s.device, 32, &on_device, &error));
	MUST(zcc_device_malloc(s.device, 32, &more, &error));
	MUST(zcc_pinned_malloc(s.device, 32, &pinned, &error));
	zcc_ema_buffer b = buffer_of(ema, "w", average, param, 8);
	b.ema_place = ZCC_AT_DEVICE;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("EMA buffer of 'w'");
	assert_says("declared to be in device memory and is in pageable memory");
	b = buffer_of(ema, "w", average, pinned, 8);
	b.param_place = ZCC_AT_PAGEABLE;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("parameter buffer of 'w'");
	assert_says("declared to be in pageable memory and is in pinned memory");
	b = buffer_of(ema, "w", average, on_device, 8);
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("the EMA buffer is in pageable memory, its parameter in device memory");
	b = buffer_of(ema, "w", average, param, 8);
	MUST(zcc_ema_add(ema, &b, NULL, &error));
	b = buffer_of(ema, "v", on_device, more, 8);
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("'v' is in device memory, 'w' in pageable memory");
	assert_int_equal(zcc_ema_count(ema), 1);
	b = buffer_of(ema, "v", other, pinned, 8);
	MUST(zcc_ema_add(ema, &b, NULL, &error));
	zcc_ema_destroy(ema);
	zcc_device_free(s.device, on_device);
	zcc_device_free(s.device, more);
	zcc_pinned_free(s.device, pinned);
	zcc_device_close(s.device);
}

static void a_buffer_that_left_its_place_stops_the_update_before_anything_is_written(void **state)
{
	(void)state;
	for (int d = 0; d < N_DEVICES; d++) {
		set s = {.device = open_device(d)};
		zcc_ema *ema = new_ema(&s, 1);
		float average[8] = {0}, param[8] = {1, 1, 1, 1, 1, 1, 1, 1}, other[8] = {0};
		void *pinned;
		MUST(zcc_pinned_malloc(s.device, 32, &pinned, &error));
		zcc_ema_buffer b = buffer_of(ema, "first", average, param, 8);
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		b = buffer_of(ema, "second", other, pinned, 8);
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		zcc_pinned_free(s.device, pinned);
		assert_int_not_equal(zcc_ema_update(ema, NULL, NULL, &error), ZCC_OK);
		assert_says("'second'");
		assert_int_equal(zcc_ema_calls(ema), 0);
		for (int i = 0; i < 8; i++)
			assert_true(average[i] == 0);
		zcc_ema_destroy(ema);
		zcc_device_close(s.device);
	}
}

static void freed_device_memory_is_an_error_that_names_the_buffer(void **state)
{
	(void)state;
	for (int d = 0; d < N_DEVICES; d++) {
		set s = make(d, 1);
		MUST(zcc_stream_wait(s.stream, &error));
		zcc_device_free(s.device, s.param_memory[5]);
		assert_int_not_equal(zcc_ema_update(s.ema, s.stream, NULL, &error), ZCC_OK);
		assert_says("parameter buffer of 'param.5'");
		assert_int_equal(zcc_ema_calls(s.ema), 0);
		check(&s);
		s.param_memory[5] = NULL;
		drop(&s);
	}
}

static void device_buffers_need_a_stream(void **state)
{
	(void)state;
	set s = make(0, 1);
	assert_int_equal(zcc_ema_update(s.ema, NULL, NULL, &error), ZCC_EINVAL);
	assert_says("no stream");
	assert_int_equal(zcc_ema_read(s.ema, 0, s.average[0], 20, NULL, &error), ZCC_EINVAL);
	assert_int_equal(zcc_ema_read(s.ema, 0, s.average[0], 16, s.stream, &error), ZCC_EINVAL);
	assert_says("16 bytes for 'param.0', which has 20");
	zcc_device *other;
	zcc_stream *others;
	MUST(zcc_device_open("late:host", &other, &error));
	MUST(zcc_stream_create(other, &others, &error));
	assert_int_equal(zcc_ema_update(s.ema, others, NULL, &error), ZCC_EINVAL);
	assert_says("the stream is of device late:host,lazy, the EMA of host");
	assert_int_equal(zcc_ema_start(s.ema, others, &error), ZCC_EINVAL);
	assert_int_equal(zcc_ema_read(s.ema, 0, s.average[0], 20, others, &error), ZCC_EINVAL);
	assert_int_equal(zcc_ema_write(s.ema, 0, s.average[0], 20, others, &error), ZCC_EINVAL);
	zcc_stream_destroy(others);
	zcc_device_close(other);
	assert_int_equal(zcc_ema_read(s.ema, N, s.average[0], 16, s.stream, &error), ZCC_EINVAL);
	drop(&s);
}

static void a_buffer_is_read_into_host_memory_and_written_from_there(void **state)
{
	(void)state;
	for (int which = -1; which < 1; which++) {
		set s = make(which, 1);
		void *elsewhere;
		MUST(zcc_device_malloc(s.device, 20, &elsewhere, &error));
		assert_int_equal(zcc_ema_read(s.ema, 0, elsewhere, 20, s.stream, &error), ZCC_EINVAL);
		assert_says("the caller's buffer for 'param.0' is in device memory");
		assert_int_equal(zcc_ema_write(s.ema, 0, elsewhere, 20, s.stream, &error), ZCC_EINVAL);
		assert_int_equal(zcc_ema_read(s.ema, 0, NULL, 20, s.stream, &error), ZCC_EINVAL);
		check(&s);
		zcc_device_free(s.device, elsewhere);
		drop(&s);
	}
}

static void overlapping_buffers_are_refused_and_tied_parameters_are_not(void **state)
{
	(void)state;
	float memory[100] = {0}, param[50];
	for (int i = 0; i < 50; i++)
		param[i] = 4;
	const struct {
		float *average;
		const float *param;
		bool fine;
	} cases[] = {{memory + 10, param, true},       {memory + 9, param, false},
	             {memory, param, false},           {param + 15, param + 10, false},
	             {memory + 20, memory + 9, false}, {memory + 20, memory + 30, true},
	             {memory + 20, memory + 29, false}};
	for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
		set s = {.device = open_device(0)};
		zcc_ema *ema = new_ema(&s, 1);
		memset(memory, 0, sizeof memory);
		zcc_ema_buffer b = buffer_of(ema, "a", memory, param, 10);
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		MUST(zcc_ema_update(ema, NULL, NULL, &error));
		b = buffer_of(ema, "b", cases[k].average, cases[k].param, 10);
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		zcc_status status = zcc_ema_update(ema, NULL, NULL, &error);
		assert_int_equal(status, cases[k].fine ? ZCC_OK : ZCC_EINVAL);
		if (!cases[k].fine) {
			assert_says("overlap");
			assert_says("'b'");
			assert_int_equal(zcc_ema_updates(ema), 1);
		}
		zcc_ema_destroy(ema);
		zcc_device_close(s.device);
	}
}

static void nonsense_is_refused_with_the_numbers(void **state)
{
	(void)state;
	set s = {.device = open_device(0)};
	zcc_ema *ema = new_ema(&s, 1), *other = NULL;
	zcc_ema_options options;
	zcc_ema_options_init(&options);
	assert_int_equal(zcc_ema_create(&options, &other, &error), ZCC_EINVAL);
	options.device = s.device;
	options.interval = 0;
	assert_int_equal(zcc_ema_create(&options, &other, &error), ZCC_EINVAL);
	assert_says("interval of 0");
	options.struct_bytes = 8;
	assert_int_equal(zcc_ema_create(&options, &other, &error), ZCC_EINVAL);
	assert_null(other);
	int32_t group = 77;
	const double bad[] = {1, -0.1, NAN, INFINITY, 1.5};
	for (int i = 0; i < 5; i++)
		assert_int_equal(zcc_ema_group(ema, bad[i], &group, &error), ZCC_EINVAL);
	assert_int_equal(group, 77);
	float average[8] = {0}, param[8] = {0};
	zcc_ema_buffer b = buffer_of(ema, "w", average, param, 8);
	MUST(zcc_ema_add(ema, &b, NULL, &error));
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("'w' is taken");
	b.name = "";
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	b.name = "v";
	b.elems = -1;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	b.elems = INT64_MAX / 2;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	b.elems = 8;
	b.group = 99;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("group 99");
	b.group = 0;
	b.param_dtype = ZCC_F16;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("parameter of dtype F16");
	b.param_dtype = ZCC_F32;
	b.param = NULL;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("NULL");
	b.param = (char *)param + 1;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_int_equal(zcc_ema_resume(ema, 3, 4, &error), ZCC_EINVAL);
	assert_int_equal(zcc_ema_resume(ema, 3, -1, &error), ZCC_EINVAL);
	/* The next call would count past the end. */
	assert_int_equal(zcc_ema_resume(ema, INT64_MAX, 3, &error), ZCC_EINVAL);
	assert_says("3 updates of 9223372036854775807 calls");
	MUST(zcc_ema_resume(ema, INT64_MAX / 2, 3, &error));
	b.param = param;
	MUST(zcc_ema_update(ema, NULL, NULL, &error));
	assert_true(zcc_ema_calls(ema) == INT64_MAX / 2 + 1);
	assert_int_equal(zcc_ema_count(ema), 1);
	zcc_ema_destroy(ema);
	zcc_device_close(s.device);
}

/* ---- memory that runs out ---- */

/* Where an allocation fails, the same call succeeds the next time, and all that was added is there. */
static void every_failed_allocation_is_reported_and_leaves_all_as_it_was(void **state)
{
	(void)state;
	zcc_device *device = open_device(0);
	enum { ALL = 40 };
	bool done = false;
	for (int64_t n = 1; !done; n++) {
		float average[ALL] = {0}, param[ALL];
		zcc_ema *ema = NULL;
		zcc_ema_options options;
		zcc_ema_options_init(&options);
		options.device = device;
		zcci_fail_alloc(n);
		int failed = 0;
		failed += zcc_ema_create(&options, &ema, &error) == ZCC_ENOMEM;
		if (failed > 0)
			MUST(zcc_ema_create(&options, &ema, &error));
		zcc_ema_buffer b;
		zcc_ema_buffer_init(&b);
		for (int g = 0; g < 5; g++)
			if (zcc_ema_group(ema, 0.5, &b.group, &error) != ZCC_OK) {
				failed++;
				MUST(zcc_ema_group(ema, 0.5, &b.group, &error));
			}
		for (int i = 0; i < ALL; i++) {
			char name[16];
			snprintf(name, sizeof name, "w%d", i);
			param[i] = (float)i;
			b.name = name;
			b.ema = &average[i];
			b.param = &param[i];
			b.elems = 1;
			if (zcc_ema_add(ema, &b, NULL, &error) != ZCC_OK) {
				failed++;
				MUST(zcc_ema_add(ema, &b, NULL, &error));
			}
		}
		if (zcc_ema_update(ema, NULL, NULL, &error) != ZCC_OK) {
			failed++;
			MUST(zcc_ema_update(ema, NULL, NULL, &error));
		}
		done = !zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		assert_int_equal(failed, done ? 0 : 1);
		assert_int_equal(zcc_ema_count(ema), ALL);
		for (int i = 0; i < ALL; i++)
			assert_true(average[i] == 0.5f * (float)i);
		zcc_ema_destroy(ema);
	}
	zcc_device_close(device);
}

/* Work that a device refuses in the middle leaves some buffers ahead of others: said, and refused until it is put
 * right. */
static void a_torn_ema_refuses_updates_until_it_is_resumed(void **state)
{
	(void)state;
	for (int d = 0; d < N_DEVICES; d++) {
		/* A plug-in takes no memory of ours while work is submitted. */
		if (strncmp(device_name(d), "cuda", 4) == 0)
			continue;
		set s = make(d, 1);
		check(&s);
		bool torn = false;
		for (int64_t n = 1; !torn; n++) {
			zcci_fail_alloc(n);
			zcc_status status = zcc_ema_update(s.ema, s.stream, NULL, &error);
			bool hit = zcci_fail_alloc_hit();
			zcci_fail_alloc(0);
			if (!hit)
				break;
			/* ZCC_OK: the device itself was hit later on. */
			if (status != ZCC_OK)
				assert_int_equal(status, ZCC_ENOMEM);
			status = zcc_ema_update(s.ema, s.stream, NULL, &error);
			torn = status != ZCC_OK;
			if (torn) {
				assert_int_equal(status, ZCC_EDEVICE);
				assert_says("torn");
			}
		}
		assert_true(torn);
		assert_int_equal(zcc_ema_read(s.ema, 0, s.average[0], 20, s.stream, &error), ZCC_EDEVICE);
		zcc_stream_wait(s.stream, NULL);
		for (int i = 0; i < N; i++)
			MUST(zcc_ema_write(s.ema, i, s.wanted[i], 4 * sizes[i], s.stream, &error));
		MUST(zcc_ema_resume(s.ema, 7, 7, &error));
		step(&s);
		check(&s);
		assert_int_equal(zcc_ema_calls(s.ema), 8);
		drop(&s);
	}
}

/* Whoever waits for the stream is told first, and that may not be the EMA. */
static void work_that_fails_after_its_update_tears_the_ema_too(void **state)
{
	(void)state;
	for (int d = 0; d < N_DEVICES; d++) {
		if (strstr(device_name(d), "lazy") == NULL)
			continue;
		for (int reads = 0; reads < 2; reads++) {
			set s = make(d, 1);
			check(&s);
			MUST(zcc_ema_update(s.ema, s.stream, NULL, &error));
			/* The first of a read is the copy's own, which is only noted. */
			zcci_fail_alloc(reads ? 2 : 1);
			zcc_status status = reads ? zcc_ema_read(s.ema, 0, s.average[0], 20, s.stream, &error)
			                          : zcc_stream_wait(s.stream, &error);
			assert_true(zcci_fail_alloc_hit());
			zcci_fail_alloc(0);
			assert_int_equal(status, ZCC_ENOMEM);
			assert_int_equal(zcc_ema_update(s.ema, s.stream, NULL, &error), ZCC_EDEVICE);
			assert_says("torn");
			assert_int_equal(zcc_ema_read(s.ema, 0, s.average[0], 20, s.stream, &error), ZCC_EDEVICE);
			assert_int_equal(zcc_ema_calls(s.ema), 1);
			zcc_stream_wait(s.stream, NULL);
			for (int i = 0; i < N; i++)
				MUST(zcc_ema_write(s.ema, i, s.wanted[i], 4 * sizes[i], s.stream, &error));
			MUST(zcc_ema_resume(s.ema, 1, 1, &error));
			step(&s);
			check(&s);
			drop(&s);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(an_average_in_fewer_bits_is_refused_with_the_reason),
	        cmocka_unit_test(a_buffer_in_another_place_than_declared_is_refused_by_name_and_both_places),
	        cmocka_unit_test(a_buffer_that_left_its_place_stops_the_update_before_anything_is_written),
	        cmocka_unit_test(freed_device_memory_is_an_error_that_names_the_buffer),
	        cmocka_unit_test(device_buffers_need_a_stream),
	        cmocka_unit_test(a_buffer_is_read_into_host_memory_and_written_from_there),
	        cmocka_unit_test(overlapping_buffers_are_refused_and_tied_parameters_are_not),
	        cmocka_unit_test(nonsense_is_refused_with_the_numbers),
	        cmocka_unit_test(every_failed_allocation_is_reported_and_leaves_all_as_it_was),
	        cmocka_unit_test(a_torn_ema_refuses_updates_until_it_is_resumed),
	        cmocka_unit_test(work_that_fails_after_its_update_tears_the_ema_too),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
