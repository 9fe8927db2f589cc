/* Memory, streams, events and faults of cuda:0. */
#include "cuda.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

static void a_listed_device_says_what_it_is(void **state)
{
	(void)state;
	char name[32];
	char about[256];
	int32_t found = 1;
	bool seen = false;
	for (int32_t i = 0; found; i++) {
		MUST(zcc_device_list(i, name, about, &found, &error));
		if (found && strcmp(name, "cuda:0") == 0) {
			seen = true;
			assert_non_null(strstr(about, "GiB"));
			assert_non_null(strstr(about, "compute capability"));
		}
	}
	assert_true(seen);
}

static void a_device_that_is_not_there_is_named_with_how_many_there_are(void **state)
{
	(void)state;
	zcc_device *none = NULL;
	assert_true(zcc_device_open("cuda:77", &none, &error) != ZCC_OK);
	assert_says("cuda:77");
	assert_null(none);
}

static void work_is_not_done_before_something_waited_for_it(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	uint8_t *from = pinned(100);
	uint8_t *to = pinned(100);
	memset(from, 7, 100);
	void *data = on_device(NULL, 100);
	int32_t done = 1;
	MUST(zcc_copy_async(stream, data, from, 100, &error));
	MUST(zcc_copy_async(stream, to, data, 100, &error));
	MUST(zcc_stream_test(stream, &done, &error));
	assert_int_equal(done, 0);
	assert_int_equal(to[0], 0);
	/* The source is read late: this is what a caller does who forgot to wait. */
	memset(from, 9, 100);
	MUST(zcc_stream_wait(stream, &error));
	assert_int_equal(to[0], 9);
	MUST(zcc_stream_test(stream, &done, &error));
	assert_int_equal(done, 1);
	zcc_device_free(device, data);
	zcc_pinned_free(device, from);
	zcc_pinned_free(device, to);
}

static void a_stream_runs_in_order(void **state)
{
	(void)state;
	uint8_t *from = pinned(8 * 1000);
	uint8_t *to = pinned(1000);
	void *data = on_device(NULL, 1000);
	for (int32_t i = 0; i < 8; i++) {
		memset(from + i * 1000, 10 + i, 1000);
		MUST(zcc_copy_async(stream, data, from + i * 1000, 1000, &error));
		MUST(zcc_copy_async(stream, to, data, 1000, &error));
	}
	MUST(zcc_stream_wait(stream, &error));
	for (int32_t i = 0; i < 1000; i++)
		assert_int_equal(to[i], 17);
	zcc_device_free(device, data);
	zcc_pinned_free(device, from);
	zcc_pinned_free(device, to);
}

static void an_event_orders_streams_by_its_last_record_so_far(void **state)
{
	(void)state;
	zcc_stream *other;
	zcc_event *event;
	MUST(zcc_stream_create(device, &other, &error));
	MUST(zcc_event_create(device, &event, &error));
	int32_t *from = pinned(4 * 3);
	int32_t *to = pinned(4);
	void *data = on_device(NULL, 4);
	for (int32_t i = 0; i < 3; i++) {
		from[i] = 100 + i;
		MUST(zcc_copy_async(stream, data, from + i, 4, &error));
		MUST(zcc_event_record(event, stream, &error));
		MUST(zcc_stream_wait_event(other, event, &error));
		MUST(zcc_copy_async(other, to, data, 4, &error));
		MUST(zcc_event_record(event, other, &error));
		MUST(zcc_stream_wait_event(stream, event, &error));
	}
	MUST(zcc_event_wait(event, &error));
	assert_int_equal(to[0], 102);
	int32_t done = 0;
	MUST(zcc_event_test(event, &done, &error));
	assert_int_equal(done, 1);
	zcc_event_destroy(event);
	zcc_stream_destroy(other);
	zcc_device_free(device, data);
	zcc_pinned_free(device, from);
	zcc_pinned_free(device, to);
}

static void an_event_without_a_record_is_reached(void **state)
{
	(void)state;
	zcc_event *event;
	int32_t done = 0;
	MUST(zcc_event_create(device, &event, &error));
	MUST(zcc_event_test(event, &done, &error));
	assert_int_equal(done, 1);
	MUST(zcc_event_wait(event, &error));
	MUST(zcc_stream_wait_event(stream, event, &error));
	MUST(zcc_stream_wait(stream, &error));
	zcc_event_destroy(event);
}

static void check_place(const void *data, int32_t expected)
{
	int32_t place = 0;
	MUST(zcc_device_place(device, data, &place, &error));
	assert_int_equal(place, expected);
}

static void the_place_of_memory_is_known(void **state)
{
	(void)state;
	char *data = on_device(NULL, 1000);
	char *host = pinned(1000);
	static char pageable[8];
	check_place(data, ZCC_AT_DEVICE);
	check_place(data + 999, ZCC_AT_DEVICE);
	check_place(host, ZCC_AT_PINNED);
	check_place(host + 999, ZCC_AT_PINNED);
	check_place(pageable, ZCC_AT_PAGEABLE);
	check_place(&data, ZCC_AT_PAGEABLE);
	zcc_device_free(device, data);
	zcc_pinned_free(device, host);
}

static void memory_that_was_freed_is_stale(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	char *data = on_device(NULL, 1 << 20);
	char pageable[16] = "";
	int32_t place = 0;
	zcc_device_free(device, data);
	assert_int_equal(zcc_device_place(device, data, &place, &error), ZCC_ESTALE);
	assert_int_equal(zcc_copy_async(stream, data, pageable, 16, &error), ZCC_ESTALE);
	assert_int_equal(zcc_copy_async(stream, pageable, data + 100, 16, &error), ZCC_ESTALE);
}

/* The same GPU, opened in two ways. */
static void memory_is_freed_by_the_opened_device_that_made_it(void **state)
{
	(void)state;
	zcc_device *late;
	void *data, *host;
	MUST(zcc_device_open("late:cuda:0", &late, &error));
	MUST(zcc_device_malloc(late, 64, &data, &error));
	MUST(zcc_pinned_malloc(late, 64, &host, &error));
	zcc_device_free(device, data);
	zcc_pinned_free(device, host);
	check_place(data, ZCC_AT_DEVICE);
	check_place(host, ZCC_AT_PINNED);
	zcc_device_free(late, data);
	zcc_pinned_free(late, host);
	zcc_device_close(late);
}

static void memory_of_another_device_is_refused_by_name(void **state)
{
	(void)state;
	zcc_device *second;
	if (zcc_device_open("cuda:1", &second, &error) != ZCC_OK)
		skip();
	void *data;
	MUST(zcc_device_malloc(second, 64, &data, &error));
	int32_t place;
	assert_int_equal(zcc_device_place(device, data, &place, &error), ZCC_EINVAL);
	assert_says("memory of cuda:1, not of cuda:0");
	zcc_device_free(second, data);
	zcc_device_close(second);
}

static void no_access_reaches_past_an_allocation(void **state)
{
	(void)state;
	char *data = on_device(NULL, 1000);
	char *host = pinned(2000);
	assert_int_equal(zcc_copy_async(stream, data, host, 1001, &error), ZCC_EINVAL);
	assert_says("1001 bytes from byte 0 of an allocation of 1000");
	assert_int_equal(zcc_copy_async(stream, data + 996, host, 5, &error), ZCC_EINVAL);
	assert_int_equal(zcc_cast_async(stream, data, ZCC_BF16, host, ZCC_F32, 501, &error), ZCC_EINVAL);
	MUST(zcc_copy_async(stream, data + 996, host, 4, &error));
	MUST(zcc_stream_wait(stream, &error));
	zcc_device_free(device, data);
	zcc_pinned_free(device, host);
}

static void pinned_memory_is_zeroed_and_comes_back(void **state)
{
	(void)state;
	for (int32_t turn = 0; turn < 3; turn++) {
		uint8_t *host = pinned(5000);
		for (int32_t i = 0; i < 5000; i++)
			assert_int_equal(host[i], 0);
		memset(host, 1, 5000);
		zcc_pinned_free(device, host);
	}
}

static void allocations_of_no_bytes_can_be_freed(void **state)
{
	(void)state;
	void *data = NULL;
	void *host = NULL;
	MUST(zcc_device_malloc(device, 0, &data, &error));
	MUST(zcc_pinned_malloc(device, 0, &host, &error));
	zcc_device_free(device, data);
	zcc_pinned_free(device, host);
}

static void memory_that_runs_out_is_told_with_what_was_asked_and_what_is_free(void **state)
{
	(void)state;
	void *data = &data;
	if (has_standin)
		standin.set_memory(standin.in_use() + 1000);
	assert_int_equal(zcc_device_malloc(device, (int64_t)1 << 50, &data, &error), ZCC_ENOMEM);
	assert_says("1125899906842624 bytes asked of cuda:0");
	assert_says(has_standin ? ", 1000 of its" : " are free");
	assert_ptr_equal(data, &data);
	/* Nothing is broken by it. */
	MUST(zcc_device_malloc(device, 500, &data, &error));
	zcc_device_free(device, data);
	if (has_standin)
		standin.set_memory((int64_t)1 << 30);
}

static void freeing_waits_for_work_that_uses_the_memory(void **state)
{
	(void)state;
	void *host = pinned(1 << 20);
	void *data = on_device(NULL, 1 << 20);
	for (int32_t i = 0; i < 20; i++)
		MUST(zcc_copy_async(stream, data, host, 1 << 20, &error));
	zcc_device_free(device, data);
	zcc_pinned_free(device, host);
	if (has_standin)
		assert_int_equal(standin.pending(), 0);
}

static void copies_from_and_to_pinned_memory_are_asynchronous_and_others_are_seen(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	void *host = pinned(64);
	char pageable[64] = "abc";
	void *data = on_device(NULL, 64);
	int64_t from = standin.count("copy from pageable");
	int64_t to = standin.count("copy to pageable");
	MUST(zcc_copy_async(stream, data, host, 64, &error));
	MUST(zcc_copy_async(stream, host, data, 64, &error));
	assert_int_equal(standin.count("copy from pageable"), from);
	assert_int_equal(standin.count("copy to pageable"), to);
	assert_int_equal(standin.pending(), 2);
	MUST(zcc_copy_async(stream, data, pageable, 64, &error));
	memset(pageable, 0, sizeof pageable);
	MUST(zcc_copy_async(stream, pageable, data, 64, &error));
	assert_string_equal(pageable, "abc");
	assert_int_equal(standin.count("copy from pageable"), from + 1);
	assert_int_equal(standin.count("copy to pageable"), to + 1);
	zcc_device_free(device, data);
	zcc_pinned_free(device, host);
}

static void the_caller_keeps_its_current_device(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	standin.set_device(1);
	void *host = pinned(64);
	void *data = on_device(NULL, 64);
	zcc_event *event;
	MUST(zcc_event_create(device, &event, &error));
	MUST(zcc_cast_async(stream, data, ZCC_BF16, host, ZCC_F32, 10, &error));
	MUST(zcc_event_record(event, stream, &error));
	MUST(zcc_event_wait(event, &error));
	standin.inject("cudaLaunchKernel", 1, cudaErrorInvalidConfiguration);
	assert_int_equal(zcc_cast_async(stream, data, ZCC_BF16, host, ZCC_F32, 10, &error), ZCC_EDEVICE);
	zcc_event_destroy(event);
	zcc_device_free(device, data);
	zcc_pinned_free(device, host);
	assert_int_equal(standin.device(), 1);
	standin.set_device(0);
}

/* ---- faults ---- */

static void a_fault_names_the_call_the_sizes_and_cudas_text(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	void *host = pinned(64);
	void *data = on_device(NULL, 64);
	standin.inject("cudaMemcpyAsync", 1, cudaErrorInvalidValue);
	assert_int_equal(zcc_copy_async(stream, data, host, 48, &error), ZCC_EDEVICE);
	assert_says("cudaMemcpyAsync of 48 bytes");
	assert_says("on cuda:0: invalid argument (cudaErrorInvalidValue, 1)");
	assert_int_equal(error.code, cudaErrorInvalidValue);
	standin.inject("cudaMemcpy2DAsync", 1, cudaErrorInvalidValue);
	assert_int_equal(zcc_copy_2d_async(stream, data, 16, host, 8, 4, 3, &error), ZCC_EDEVICE);
	assert_says("cudaMemcpy2DAsync of 3 rows of 4 bytes, 8 and 16 apart");
	standin.inject("cudaLaunchKernel", 1, cudaErrorInvalidConfiguration);
	assert_int_equal(zcc_cast_async(stream, data, ZCC_BF16, host, ZCC_F32, 10, &error), ZCC_EDEVICE);
	assert_says("launch of kernel cast_bf16_f32 for 10 elements on cuda:0: invalid configuration argument");
	/* Each of them once. */
	MUST(zcc_cast_async(stream, data, ZCC_BF16, host, ZCC_F32, 10, &error));
	MUST(zcc_stream_wait(stream, &error));
	zcc_device_free(device, data);
	zcc_pinned_free(device, host);
}

static void a_fault_of_work_comes_out_where_it_is_waited_for(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	void *host = pinned(64);
	void *data = on_device(NULL, 64);
	standin.inject("work", 1, cudaErrorLaunchFailure);
	MUST(zcc_cast_async(stream, data, ZCC_BF16, host, ZCC_F32, 10, &error));
	assert_int_equal(zcc_stream_wait(stream, &error), ZCC_EDEVICE);
	assert_says("work on a stream of cuda:0: unspecified launch failure (cudaErrorLaunchFailure, 719)");
	/* The device is lost then, and says so every time. */
	int32_t done = 7;
	assert_int_equal(zcc_stream_test(stream, &done, &error), ZCC_EDEVICE);
	assert_int_equal(done, 7);
	assert_int_equal(zcc_copy_async(stream, data, host, 64, &error), ZCC_EDEVICE);
	void *more = &more;
	assert_int_equal(zcc_device_malloc(device, 64, &more, &error), ZCC_EDEVICE);
	assert_ptr_equal(more, &more);
	standin.inject("work", 0, 0);
	zcc_device_free(device, data);
	zcc_pinned_free(device, host);
}

static void every_call_that_makes_something_passes_its_fault_on(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	void *out = &out;
	zcc_stream *made_stream = NULL;
	zcc_event *made_event = NULL;
	int64_t in_use = standin.in_use();
	standin.inject("cudaMalloc", 1, cudaErrorLaunchFailure);
	assert_int_equal(zcc_device_malloc(device, 10, &out, &error), ZCC_EDEVICE);
	assert_says("cudaMalloc of 10 bytes");
	standin.inject("cudaMalloc", 1, cudaErrorMemoryAllocation);
	assert_int_equal(zcc_device_malloc(device, 10, &out, &error), ZCC_ENOMEM);
	standin.inject("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
	assert_int_equal(zcc_pinned_malloc(device, 10, &out, &error), ZCC_ENOMEM);
	assert_says("10 bytes of pinned memory");
	standin.inject("cudaHostAlloc", 1, cudaErrorLaunchFailure);
	assert_int_equal(zcc_pinned_malloc(device, 10, &out, &error), ZCC_EDEVICE);
	standin.inject("cudaStreamCreateWithFlags", 1, cudaErrorLaunchFailure);
	assert_int_equal(zcc_stream_create(device, &made_stream, &error), ZCC_EDEVICE);
	standin.inject("cudaEventCreateWithFlags", 1, cudaErrorLaunchFailure);
	assert_int_equal(zcc_event_create(device, &made_event, &error), ZCC_EDEVICE);
	assert_ptr_equal(out, &out);
	assert_null(made_stream);
	assert_null(made_event);
	MUST(zcc_event_create(device, &made_event, &error));
	standin.inject("cudaEventRecord", 1, cudaErrorLaunchFailure);
	assert_int_equal(zcc_event_record(made_event, stream, &error), ZCC_EDEVICE);
	standin.inject("cudaStreamWaitEvent", 1, cudaErrorLaunchFailure);
	assert_int_equal(zcc_stream_wait_event(stream, made_event, &error), ZCC_EDEVICE);
	standin.inject("cudaEventQuery", 1, cudaErrorLaunchFailure);
	assert_int_equal(zcc_event_wait(made_event, &error), ZCC_EDEVICE);
	zcc_event_destroy(made_event);
	assert_int_equal(standin.in_use(), in_use);
}

static void no_memory_to_note_an_allocation_leaves_none_behind(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	int64_t in_use = standin.in_use();
	int32_t failed = 0;
	for (int32_t n = 0; n < 70; n++) {
		void *data[2] = {NULL, NULL};
		standin.fail_alloc(1);
		zcc_status status = zcc_device_malloc(device, 64, &data[0], &error);
		bool hit = standin.fail_alloc_hit();
		standin.fail_alloc(0);
		assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
		failed += hit;
		if (status == ZCC_OK)
			zcc_device_free(device, data[0]);
	}
	assert_true(failed > 0);
	assert_int_equal(standin.in_use(), in_use);
}

static void a_machine_without_a_usable_driver_is_told_so(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	zcc_device *none = NULL;
	standin.inject("cudaGetDeviceCount", 1, cudaErrorInsufficientDriver);
	assert_int_equal(zcc_device_open("cuda:1", &none, &error), ZCC_EDEVICE);
	assert_says("CUDA driver version is insufficient");
	assert_null(none);
}

/* ---- copies in two dimensions ---- */

static void rows_are_copied_and_what_lies_between_them_is_not(void **state)
{
	(void)state;
	for (int32_t turn = 0; turn < 60; turn++) {
		int64_t bytes = 1 + below(40);
		int64_t rows = 1 + below(20);
		int64_t from_pitch = bytes + below(3) * below(30);
		int64_t to_pitch = bytes + below(3) * below(30);
		uint8_t *from = pinned(rows * from_pitch);
		uint8_t *to = pinned(rows * to_pitch);
		for (int64_t i = 0; i < rows * from_pitch; i++)
			from[i] = (uint8_t)(1 + draw() % 255);
		void *data = on_device(from, rows * from_pitch);
		MUST(zcc_copy_2d_async(stream, to, to_pitch, data, from_pitch, bytes, rows, &error));
		MUST(zcc_stream_wait(stream, &error));
		for (int64_t i = 0; i < rows * to_pitch; i++)
			assert_int_equal(to[i],
			                 i % to_pitch < bytes ? from[i / to_pitch * from_pitch + i % to_pitch] : 0);
		zcc_device_free(device, data);
		zcc_pinned_free(device, from);
		zcc_pinned_free(device, to);
	}
}

static void rows_farther_apart_than_cuda_takes_are_copied_too(void **state)
{
	(void)state;
	int64_t pitch = ((int64_t)1 << 31) + 64;
	char *from;
	uint8_t to[16];
	MUST(zcc_memory_create(pitch + 8, (void **)&from, &error));
	memset(from, 3, 8);
	memset(from + pitch, 4, 8);
	void *data = on_device(NULL, 16);
	MUST(zcc_copy_2d_async(stream, data, 8, from, pitch, 8, 2, &error));
	read_device(to, data, 16);
	assert_int_equal(to[7], 3);
	assert_int_equal(to[8], 4);
	zcc_device_free(device, data);
	zcc_memory_destroy(from, pitch + 8);
}

/* ---- threads ---- */

static void *copy_to_and_fro(void *number)
{
	zcc_stream *own;
	zcc_error fault;
	uint8_t *host;
	void *data;
	bool ok = zcc_stream_create(device, &own, &fault) == ZCC_OK;
	for (int32_t i = 0; ok && i < 30; i++) {
		ok = zcc_pinned_malloc(device, 3000, (void **)&host, &fault) == ZCC_OK &&
		     zcc_device_malloc(device, 3000, &data, &fault) == ZCC_OK;
		if (!ok)
			break;
		memset(host, *(int *)number, 3000);
		ok = zcc_copy_async(own, data, host, 3000, &fault) == ZCC_OK && zcc_stream_wait(own, &fault) == ZCC_OK;
		memset(host, 0, 3000);
		ok = ok && zcc_copy_async(own, host, data, 3000, &fault) == ZCC_OK &&
		     zcc_stream_wait(own, &fault) == ZCC_OK;
		ok = ok && host[0] == *(int *)number && host[2999] == *(int *)number;
		zcc_device_free(device, data);
		zcc_pinned_free(device, host);
	}
	zcc_stream_destroy(own);
	return ok ? number : NULL;
}

static void threads_with_streams_of_their_own_do_not_disturb_each_other(void **state)
{
	(void)state;
	pthread_t threads[4];
	int numbers[4] = {1, 2, 3, 4};
	for (int32_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, copy_to_and_fro, &numbers[i]), 0);
	for (int32_t i = 0; i < 4; i++) {
		void *result = NULL;
		pthread_join(threads[i], &result);
		assert_ptr_equal(result, &numbers[i]);
	}
}

static void nothing_is_left_behind(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	assert_int_equal(standin.in_use(), 0);
	assert_int_equal(standin.pending(), 0);
}

int main(void)
{
	read_seed();
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_listed_device_says_what_it_is),
	        cmocka_unit_test(a_device_that_is_not_there_is_named_with_how_many_there_are),
	        cmocka_unit_test(work_is_not_done_before_something_waited_for_it),
	        cmocka_unit_test(a_stream_runs_in_order),
	        cmocka_unit_test(an_event_orders_streams_by_its_last_record_so_far),
	        cmocka_unit_test(an_event_without_a_record_is_reached),
	        cmocka_unit_test(the_place_of_memory_is_known),
	        cmocka_unit_test(memory_that_was_freed_is_stale),
	        cmocka_unit_test(memory_is_freed_by_the_opened_device_that_made_it),
	        cmocka_unit_test(memory_of_another_device_is_refused_by_name),
	        cmocka_unit_test(no_access_reaches_past_an_allocation),
	        cmocka_unit_test(pinned_memory_is_zeroed_and_comes_back),
	        cmocka_unit_test(allocations_of_no_bytes_can_be_freed),
	        cmocka_unit_test(memory_that_runs_out_is_told_with_what_was_asked_and_what_is_free),
	        cmocka_unit_test(freeing_waits_for_work_that_uses_the_memory),
	        cmocka_unit_test(copies_from_and_to_pinned_memory_are_asynchronous_and_others_are_seen),
	        cmocka_unit_test(the_caller_keeps_its_current_device),
	        cmocka_unit_test(a_fault_names_the_call_the_sizes_and_cudas_text),
	        cmocka_unit_test(a_fault_of_work_comes_out_where_it_is_waited_for),
	        cmocka_unit_test(every_call_that_makes_something_passes_its_fault_on),
	        cmocka_unit_test(no_memory_to_note_an_allocation_leaves_none_behind),
	        cmocka_unit_test(a_machine_without_a_usable_driver_is_told_so),
	        cmocka_unit_test(rows_are_copied_and_what_lies_between_them_is_not),
	        cmocka_unit_test(rows_farther_apart_than_cuda_takes_are_copied_too),
	        cmocka_unit_test(threads_with_streams_of_their_own_do_not_disturb_each_other),
	        cmocka_unit_test(nothing_is_left_behind),
	};
	return cmocka_run_group_tests_name("cuda", tests, open_all, close_all);
}
