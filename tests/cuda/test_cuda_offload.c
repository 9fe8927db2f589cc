/* How much of an offload lies ahead of a copy that the trainer makes meanwhile. */
#include "cuda.h"

enum { N_BUFFERS = 7, BUFFER_BYTES = 100000, WHOLE_BYTES = N_BUFFERS * BUFFER_BYTES, SMALL_BYTES = 4096 };

/* The most bytes that were under way at once during an offload in chunks, small copies on the trainer's stream left
 * out: there is one of those at a time. */
static int64_t most_ahead(int64_t chunk_bytes, int32_t slots)
{
	zcc_pool *pool = NULL;
	zcc_offload *queue = NULL;
	zcc_offload_options options;
	zcc_offload_options_init(&options);
	options.chunk_bytes = chunk_bytes;
	options.slots = slots;
	MUST(zcc_pool_create(device, NULL, &pool, &error));
	MUST(zcc_offload_create(device, pool, &options, &queue, &error));
	uint8_t *bytes = malloc(BUFFER_BYTES), *small_from = pinned(SMALL_BYTES);
	void *buffers[N_BUFFERS], *small_to = on_device(NULL, SMALL_BYTES);
	zcc_offload_region regions[N_BUFFERS];
	for (int i = 0; i < N_BUFFERS; i++) {
		char name[24];
		snprintf(name, sizeof name, "buffer.%d", i);
		memset(bytes, 10 + i, BUFFER_BYTES);
		buffers[i] = on_device(bytes, BUFFER_BYTES);
		regions[i] = (zcc_offload_region){.bytes = -1};
		MUST(zcc_offload_register(queue, name, buffers[i], BUFFER_BYTES, &regions[i].handle, &error));
	}
	int64_t ticket = 0;
	zcc_offload_landed landed = {.index = 0};
	standin.most_pending_bytes();
	MUST(zcc_offload_defer(queue, 1, regions, N_BUFFERS, NULL, &ticket, &error));
	MUST(zcc_offload_flush(queue, &error));
	for (int i = 0; landed.index >= 0; i++) {
		MUST(zcc_copy_async(stream, small_to, small_from, SMALL_BYTES, &error));
		MUST(zcc_stream_wait(stream, &error));
		MUST(zcc_offload_next(queue, ticket, &landed, &error));
		if (landed.index < 0)
			continue;
		assert_int_equal(landed.index, i);
		memset(bytes, 10 + i, BUFFER_BYTES);
		assert_memory_equal(landed.data, bytes, BUFFER_BYTES);
		MUST(zcc_offload_release_region(queue, ticket, landed.index, &error));
	}
	int64_t most = standin.most_pending_bytes();
	zcc_offload_close(queue);
	zcc_pool_destroy(pool);
	for (int i = 0; i < N_BUFFERS; i++)
		zcc_device_free(device, buffers[i]);
	zcc_device_free(device, small_to);
	zcc_pinned_free(device, small_from);
	free(bytes);
	return most;
}

static void a_small_copy_never_waits_for_more_than_one_chunk(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	const int64_t chunks[] = {1000, 4096, BUFFER_BYTES, 2 * BUFFER_BYTES + 1};
	for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
		for (int32_t slots = 0; slots <= 2; slots += 2) {
			int64_t most = most_ahead(chunks[c], slots);
			if (most > chunks[c] + SMALL_BYTES)
				fail_msg("chunks of %lld bytes, %d slots: %lld bytes were ahead of a small copy",
				         (long long)chunks[c], slots, (long long)most);
		}
	}
}

static void in_one_copy_all_of_it_is_ahead(void **state)
{
	(void)state;
	NEEDS_STANDIN();
	assert_true(most_ahead(0, 0) >= WHOLE_BYTES);
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
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_small_copy_never_waits_for_more_than_one_chunk),
	        cmocka_unit_test(in_one_copy_all_of_it_is_ahead),
	        cmocka_unit_test(nothing_is_left_behind),
	};
	return cmocka_run_group_tests_name("cuda offload", tests, open_all, close_all);
}
