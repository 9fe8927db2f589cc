/* The EMA over many buffers, on the host and on devices. The expected averages come from a loop of the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "ema_rig.h"

static void many_buffers_average_as_the_definition_says_with_any_number_of_threads(void **state)
{
	(void)state;
	int32_t threads = zcc_threads_get();
	const int32_t counts[] = {1, 2, 5};
	for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
		MUST(zcc_threads_set(counts[k], &error));
		set s = make(-1, 1);
		check(&s);
		for (int i = 0; i < 4; i++)
			assert_true(step(&s));
		check(&s);
		assert_int_equal(zcc_ema_updates(s.ema), 4);
		drop(&s);
	}
	MUST(zcc_threads_set(threads, &error));
}

static void buffers_of_a_device_are_averaged_on_its_stream(void **state)
{
	(void)state;
	for (int d = 0; d < N_DEVICES; d++) {
		set s = make(d, 1);
		check(&s);
		for (int i = 0; i < 3; i++)
			assert_true(step(&s));
		check(&s);
		drop(&s);
	}
}

static void only_every_interval_th_call_updates(void **state)
{
	(void)state;
	for (int d = -1; d < N_DEVICES; d += 2) {
		set s = make(d, 3);
		for (int call = 1; call <= 8; call++) {
			assert_int_equal(step(&s), call % 3 == 0);
			assert_int_equal(zcc_ema_calls(s.ema), call);
			assert_int_equal(zcc_ema_updates(s.ema), call / 3);
		}
		check(&s);
		drop(&s);
	}
}

/* Another set takes up the saved bytes and counters. */
static void ten_steps_equal_five_and_five_after_resuming(void **state)
{
	(void)state;
	for (int d = -1; d < N_DEVICES; d++) {
		uint64_t seed = random_state;
		set whole = make(d, 2);
		for (int i = 0; i < 10; i++)
			step(&whole);
		random_state = seed;
		set first = make(d, 2);
		for (int i = 0; i < 5; i++)
			step(&first);
		for (int i = 0; i < N; i++)
			MUST(zcc_ema_read(first.ema, i, first.average[i], 4 * sizes[i], first.stream, &error));
		uint64_t middle = random_state;
		set second = make(d, 2);
		for (int i = 0; i < N; i++) {
			MUST(zcc_ema_write(second.ema, i, first.average[i], 4 * sizes[i], second.stream, &error));
			/* Written already: what the caller does with its copy is its own affair. */
			memset(first.average[i], 0xa5, 4 * (size_t)sizes[i]);
			memcpy(second.wanted[i], first.wanted[i], 4 * (size_t)sizes[i]);
		}
		MUST(zcc_ema_resume(second.ema, zcc_ema_calls(first.ema), zcc_ema_updates(first.ema), &error));
		random_state = middle;
		for (int i = 0; i < 5; i++)
			step(&second);
		check(&second);
		check(&whole);
		assert_int_equal(zcc_ema_calls(second.ema), zcc_ema_calls(whole.ema));
		assert_int_equal(zcc_ema_updates(second.ema), 5);
		for (int i = 0; i < N; i++)
			assert_memory_equal(whole.average[i], second.average[i], 4 * (size_t)sizes[i]);
		drop(&whole);
		drop(&first);
		drop(&second);
	}
}

static void thousands_of_updates_leave_every_buffer_where_it_was(void **state)
{
	(void)state;
	for (int d = 0; d < 2; d++) {
		zcc_device *device = open_device(d);
		zcc_stream *stream;
		MUST(zcc_stream_create(device, &stream, &error));
		void *average, *param;
		float ones[64], back[64];
		for (int i = 0; i < 64; i++)
			ones[i] = 1;
		MUST(zcc_device_malloc(device, sizeof ones, &average, &error));
		MUST(zcc_device_malloc(device, sizeof ones, &param, &error));
		set s = {.device = device};
		zcc_ema *ema = new_ema(&s, 1);
		zcc_ema_buffer b, after;
		zcc_ema_buffer_init(&b);
		MUST(zcc_ema_group(ema, 0.999, &b.group, &error));
		b.name = "w";
		b.ema = average;
		b.param = param;
		b.elems = 64;
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		memset(back, 0, sizeof back);
		MUST(zcc_ema_write(ema, 0, back, sizeof back, stream, &error));
		MUST(zcc_copy_async(stream, param, ones, sizeof ones, &error));
		float wanted = 0;
		for (int i = 0; i < 3000; i++) {
			MUST(zcc_ema_update(ema, stream, NULL, &error));
			wanted = fmaf((float)(1 - 0.999), 1 - wanted, wanted);
		}
		MUST(zcc_ema_read(ema, 0, back, sizeof back, stream, &error));
		for (int i = 0; i < 64; i++)
			assert_int_equal(bits_of(back[i]), bits_of(wanted));
		/* It moved: what stays near 1 - 0.999^3000 could not in fewer bits. */
		assert_true(fabs(wanted - (1 - pow(0.999, 3000))) < 1e-4);
		MUST(zcc_ema_buffer_get(ema, 0, &after, &error));
		assert_ptr_equal(after.ema, average);
		assert_ptr_equal(after.param, param);
		assert_int_equal(after.elems, 64);
		int32_t place;
		MUST(zcc_device_place(device, average, &place, &error));
		assert_int_equal(place, ZCC_AT_DEVICE);
		assert_int_equal(after.ema_place, ZCC_AT_DEVICE);
		zcc_ema_destroy(ema);
		zcc_device_free(device, average);
		zcc_device_free(device, param);
		zcc_stream_destroy(stream);
		zcc_device_close(device);
	}
}

/* Parameters that a copy of the device brings to pinned memory are waited for. */
static void parameters_on_their_way_to_the_host_are_waited_for(void **state)
{
	(void)state;
	for (int d = 0; d < N_DEVICES; d++) {
		zcc_device *device = open_device(d);
		zcc_stream *stream;
		void *on_device, *pinned;
		float average[32] = {0}, ones[32];
		for (int i = 0; i < 32; i++)
			ones[i] = 1;
		MUST(zcc_stream_create(device, &stream, &error));
		MUST(zcc_device_malloc(device, sizeof ones, &on_device, &error));
		MUST(zcc_pinned_malloc(device, sizeof ones, &pinned, &error));
		MUST(zcc_copy_async(stream, on_device, ones, sizeof ones, &error));
		MUST(zcc_stream_wait(stream, &error));
		set s = {.device = device};
		zcc_ema *ema = new_ema(&s, 1);
		zcc_ema_buffer b;
		zcc_ema_buffer_init(&b);
		MUST(zcc_ema_group(ema, 0.75, &b.group, &error));
		b.name = "w";
		b.ema = average;
		b.param = pinned;
		b.elems = 32;
		b.ema_place = ZCC_AT_PAGEABLE;
		b.param_place = ZCC_AT_PINNED;
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		MUST(zcc_copy_async(stream, pinned, on_device, sizeof ones, &error));
		MUST(zcc_ema_update(ema, stream, NULL, &error));
		for (int i = 0; i < 32; i++)
			assert_true(average[i] == 0.25f);
		zcc_ema_destroy(ema);
		zcc_device_free(device, on_device);
		zcc_pinned_free(device, pinned);
		zcc_stream_destroy(stream);
		zcc_device_close(device);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(many_buffers_average_as_the_definition_says_with_any_number_of_threads),
	        cmocka_unit_test(buffers_of_a_device_are_averaged_on_its_stream),
	        cmocka_unit_test(only_every_interval_th_call_updates),
	        cmocka_unit_test(ten_steps_equal_five_and_five_after_resuming),
	        cmocka_unit_test(thousands_of_updates_leave_every_buffer_where_it_was),
	        cmocka_unit_test(parameters_on_their_way_to_the_host_are_waited_for),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
