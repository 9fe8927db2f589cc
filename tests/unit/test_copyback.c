/* Copy-back from the host to a device: bits, paths, buffers. */
#include "copyback_rig.h"

#include "staging/copyback.h"
#include "zcc/threads.h"

static const int32_t dtypes[] = {ZCC_BF16, ZCC_F16, ZCC_F32};
enum { N_DTYPES = 3, GUARD_BYTES = 64 };

static void run_one(zcc_copyback *copyback, void *target, const float *source, int64_t elems)
{
	zcc_copyback_piece piece = {.target = target, .source = source, .elems = elems};
	zcc_error error = {0};
	assert_ok(zcc_copyback_run(copyback, &piece, 1, &error), &error);
}

/* CASES C2, and A10: what lies behind a shorter use is left alone. */
static void every_length_comes_out_as_the_rounded_master_through_two_buffers(void **state)
{
	(void)state;
	enum { S = BUFFER_ELEMS };
	const int64_t lengths[] = {5 * S + 3, 0, 1, S - 1, S, S + 1, 2 * S, 2 * S + 1, 7, 3 * S};
	float *source = masters(5 * S + 3, (unsigned)seed_of_run());
	FOR_EACH_DEVICE(device)
	{
		for (int d = 0; d < N_DTYPES; d++) {
			int64_t bytes = zcc_dtype_bytes(dtypes[d]), copies = 0;
			zcc_copyback *copyback = copyback_of(device, dtypes[d], S, 1);
			for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
				char what[128];
				snprintf(what, sizeof what, "%s %s %lld elements", device_name(device_number),
				         zcc_dtype_name(dtypes[d]), (long long)lengths[i]);
				char *target = poisoned(device, lengths[i] * bytes + GUARD_BYTES);
				run_one(copyback, target, source, lengths[i]);
				assert_rounded(device, target, dtypes[d], source, lengths[i], what);
				assert_poisoned(device, target + lengths[i] * bytes, GUARD_BYTES, what);
				copies += (lengths[i] + S - 1) / S;
				assert_int_equal(stats_of(copyback).copies, copies);
				assert_int_equal(stats_of(copyback).buffer_bytes, 2 * S * bytes);
				assert_int_equal(stats_of(copyback).direct_pieces, 0);
				zcc_device_free(device, target);
			}
			zcc_copyback_destroy(copyback);
		}
	}
	free(source);
}

static void buffers_of_one_element_and_larger_than_the_whole_give_the_same_bits(void **state)
{
	(void)state;
	enum { N = 333 };
	const int64_t sizes[] = {1, 2, N - 1, N, 100000};
	float *source = masters(N, (unsigned)seed_of_run());
	FOR_EACH_DEVICE(device)
	{
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			zcc_copyback *copyback = copyback_of(device, ZCC_BF16, sizes[i], 1);
			void *target = poisoned(device, N * 2);
			run_one(copyback, target, source, N);
			assert_rounded(device, target, ZCC_BF16, source, N, device_name(device_number));
			zcc_device_free(device, target);
			zcc_copyback_destroy(copyback);
		}
	}
	free(source);
}

static void the_two_buffers_take_turns(void **state)
{
	(void)state;
	enum { S = BUFFER_ELEMS };
	float *source = masters(3 * S, (unsigned)seed_of_run());
	FOR_EACH_DEVICE(device)
	{
		zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
		void *target = poisoned(device, 3 * S * 2);
		run_one(copyback, target, source, 3 * S);
		/* Of three buffers' worth the third lies where the first was. */
		assert_rounded(device, copyback->buffers[0], ZCC_BF16, source + 2 * S, S, "first buffer");
		assert_rounded(device, copyback->buffers[1], ZCC_BF16, source + S, S, "second buffer");
		zcc_device_free(device, target);
		zcc_copyback_destroy(copyback);
	}
	free(source);
}

/* More than one slot in a buffer, and more than one chunk for the threads. */
static void large_buffers_are_filled_by_several_threads_and_sent_in_slots(void **state)
{
	(void)state;
	enum { S = 1300000, N = 3 * S + 11 };
	float *source = masters(N, (unsigned)seed_of_run());
	const int threads[] = {1, 2, 3, 16};
	for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
		zcc_error error = {0};
		assert_ok(zcc_threads_set(threads[t], &error), &error);
		FOR_EACH_DEVICE(device)
		{
			zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
			void *target = poisoned(device, N * 2);
			run_one(copyback, target, source, N);
			assert_rounded(device, target, ZCC_BF16, source, N, device_name(device_number));
			int64_t slots_a_buffer = S / (threads[t] << 18) > 0 ? S / (threads[t] << 18) : 1;
			int64_t slot_elems = S / slots_a_buffer;
			assert_int_equal(stats_of(copyback).copies, (N + slot_elems - 1) / slot_elems);
			assert_int_equal(stats_of(copyback).buffer_bytes, 2 * S * 2);
			zcc_device_free(device, target);
			zcc_copyback_destroy(copyback);
		}
	}
	free(source);
}

/* No copy of this device ends before it is waited for: the casts go on into every part of both buffers, and then wait
 * for the oldest one. */
static void a_device_that_falls_behind_is_given_all_of_both_buffers(void **state)
{
	(void)state;
	enum { SLOT = 1 << 18, S = 5 * SLOT, N = 12 * SLOT };
	zcc_error error = {0};
	assert_ok(zcc_threads_set(1, &error), &error);
	float *source = masters(N, (unsigned)seed_of_run());
	zcc_device *device = open_device("late:host,lazy");
	zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
	void *target = poisoned(device, N * 2);
	run_one(copyback, target, source, N);
	assert_int_equal(copyback->n_slots, 10);
	assert_int_equal(copyback->n_ring, 10);
	/* The first eight parts lie in the slots of the small ring, two at a time from either buffer, the next two in
	 * those that were added, and the last two where the first two have been. */
	const int part_of_slot[] = {10, 11, 2, 3, 4, 5, 6, 7, 8, 9};
	for (int i = 0; i < 10; i++)
		assert_rounded(device, (uint16_t *)copyback->buffers[i % 2] + i / 2 * SLOT, ZCC_BF16,
		               source + part_of_slot[i] * SLOT, SLOT, "slot");
	assert_rounded(device, target, ZCC_BF16, source, N, "target");
	/* The next call begins with the small ring again. */
	run_one(copyback, target, source, SLOT);
	assert_int_equal(copyback->n_ring, 8);
	zcc_device_free(device, target);
	zcc_copyback_destroy(copyback);
	zcc_device_close(device);
	free(source);
}

/* CASES C1: each group's masters are cut over its ranks; the parameter is filled from all of them. */
static void groups_sharded_eight_and_two_ways_fill_every_element(void **state)
{
	(void)state;
	enum { N = 8 * 777 };
	const int ways[] = {8, 2};
	FOR_EACH_DEVICE(device)
	{
		zcc_copyback *copyback = copyback_of(device, ZCC_BF16, BUFFER_ELEMS, 1);
		for (int g = 0; g < 2; g++) {
			float *source = masters(N, (unsigned)seed_of_run() + (unsigned)g);
			uint16_t *target = poisoned(device, N * 2);
			zcc_copyback_piece pieces[8];
			for (int rank = 0; rank < ways[g]; rank++)
				pieces[rank] = (zcc_copyback_piece){.target = target + rank * (N / ways[g]),
				                                    .source = source + rank * (N / ways[g]),
				                                    .elems = N / ways[g]};
			zcc_error error = {0};
			assert_ok(zcc_copyback_run(copyback, pieces, ways[g], &error), &error);
			assert_rounded(device, target, ZCC_BF16, source, N, device_name(device_number));
			zcc_device_free(device, target);
			free(source);
		}
		assert_int_equal(stats_of(copyback).staged_pieces, 10);
		assert_int_equal(stats_of(copyback).staged_elems, 2 * N);
		zcc_copyback_destroy(copyback);
	}
}

/* CASES C8. */
static void empty_pieces_between_full_ones_disturb_neither(void **state)
{
	(void)state;
	enum { N = 2 * BUFFER_ELEMS + 5 };
	float *source = masters(2 * N, (unsigned)seed_of_run());
	FOR_EACH_DEVICE(device)
	{
		zcc_copyback *copyback = copyback_of(device, ZCC_F16, BUFFER_ELEMS, 1);
		uint16_t *target = poisoned(device, 2 * N * 2);
		const zcc_copyback_piece pieces[] = {
		        {NULL, NULL, 0},   {target, source, N},         {target + 5, NULL, 0},
		        {NULL, source, 0}, {target + N, source + N, N}, {NULL, NULL, 0}};
		zcc_error error = {0};
		assert_ok(zcc_copyback_run(copyback, pieces, 6, &error), &error);
		assert_rounded(device, target, ZCC_F16, source, 2 * N, device_name(device_number));
		assert_int_equal(stats_of(copyback).staged_pieces, 2);
		assert_ok(zcc_copyback_run(copyback, pieces, 1, &error), &error);
		assert_ok(zcc_copyback_run(copyback, NULL, 0, &error), &error);
		zcc_device_free(device, target);
		zcc_copyback_destroy(copyback);
	}
	free(source);
}

/* pinning x source x target x dtype: staged where pinning is on, the source ordinary host memory and the target the
 * device's; always the same bits. */
static void a_piece_is_staged_only_under_all_three_conditions(void **state)
{
	(void)state;
	enum { N = 2 * BUFFER_ELEMS + 1 };
	static const int32_t places[] = {ZCC_AT_PAGEABLE, ZCC_AT_PINNED, ZCC_AT_DEVICE};
	float *source = masters(N, (unsigned)seed_of_run());
	FOR_EACH_DEVICE(device)
	{
		void *pinned_source = NULL, *pinned_target = NULL;
		assert_int_equal(zcc_pinned_malloc(device, N * 4, &pinned_source, NULL), ZCC_OK);
		assert_int_equal(zcc_pinned_malloc(device, N * 4, &pinned_target, NULL), ZCC_OK);
		memcpy(pinned_source, source, N * 4);
		void *device_source = device_memory(device, N * 4);
		copy_now(device, device_source, source, N * 4);
		void *const sources[] = {source, pinned_source, device_source};
		for (int row = 0; row < 2 * 3 * 3 * N_DTYPES; row++) {
			int pinning = row % 2, s = row / 2 % 3, t = row / 6 % 3, d = row / 18;
			char what[128];
			snprintf(what, sizeof what, "%s pinning %d, source at %d, target at %d, %s",
			         device_name(device_number), pinning, places[s], places[t], zcc_dtype_name(dtypes[d]));
			zcc_copyback *copyback = copyback_of(device, dtypes[d], BUFFER_ELEMS, pinning);
			void *plain = malloc(N * 4), *on_device = poisoned(device, N * 4);
			void *const targets[] = {plain, pinned_target, on_device};
			zcc_copyback_piece piece = {.target = targets[t], .source = sources[s], .elems = N};
			zcc_error error = {0};
			zcc_status status = zcc_copyback_run(copyback, &piece, 1, &error);
			if (s == 2 && t != 2) {
				assert_int_equal(status, ZCC_EINVAL);
				assert_says(&error, "zcc_copyback_gradients");
			} else {
				bool staged = pinning && places[s] == ZCC_AT_PAGEABLE && places[t] == ZCC_AT_DEVICE;
				assert_ok(status, &error);
				assert_rounded(device, targets[t], dtypes[d], source, N, what);
				zcc_copyback_stats stats = stats_of(copyback);
				assert_int_equal(stats.staged_pieces, staged);
				assert_int_equal(stats.direct_pieces, !staged);
				assert_int_equal(stats.staged_elems, staged ? N : 0);
				assert_int_equal(stats.direct_elems, staged ? 0 : N);
				assert_int_equal(stats.copies, staged ? 3 : 0);
				assert_int_equal(stats.buffer_bytes,
				                 staged ? 2 * BUFFER_ELEMS * zcc_dtype_bytes(dtypes[d]) : 0);
			}
			free(plain);
			zcc_device_free(device, on_device);
			zcc_copyback_destroy(copyback);
		}
		zcc_device_free(device, device_source);
		zcc_pinned_free(device, pinned_source);
		zcc_pinned_free(device, pinned_target);
	}
	free(source);
}

static void the_ratio_of_partial_offload_counts_whole_sub_groups(void **state)
{
	(void)state;
	assert_int_equal(zcc_copyback_first_host_group(10, 0), 10);
	assert_int_equal(zcc_copyback_first_host_group(10, 1), 0);
	assert_int_equal(zcc_copyback_first_host_group(10, 0.65), 3);
	assert_int_equal(zcc_copyback_first_host_group(3, 0.5), 1);
	assert_int_equal(zcc_copyback_first_host_group(0, 0.5), 0);
	assert_int_equal(zcc_copyback_first_host_group(-1, 0.5), -1);
	assert_int_equal(zcc_copyback_first_host_group(10, -0.1), -1);
	assert_int_equal(zcc_copyback_first_host_group(10, 1.01), -1);
	assert_int_equal(zcc_copyback_first_host_group(10, NAN), -1);
}

/* Of many sub-groups only those that live on the host are copied. */
static void only_the_groups_on_the_host_are_written(void **state)
{
	(void)state;
	enum { GROUPS = 20, N = 701 };
	float *source = masters(GROUPS * N, (unsigned)seed_of_run());
	FOR_EACH_DEVICE(device)
	{
		zcc_copyback *copyback = copyback_of(device, ZCC_BF16, BUFFER_ELEMS, 1);
		uint16_t *target = poisoned(device, GROUPS * N * 2);
		zcc_copyback_piece pieces[GROUPS];
		int64_t first = zcc_copyback_first_host_group(GROUPS, 0.65);
		assert_int_equal(first, 7);
		for (int i = 0; i < GROUPS; i++)
			pieces[i] =
			        (zcc_copyback_piece){.target = target + i * N, .source = source + i * N, .elems = N};
		zcc_error error = {0};
		assert_ok(zcc_copyback_run(copyback, pieces + first, GROUPS - first, &error), &error);
		assert_rounded(device, target + first * N, ZCC_BF16, source + first * N, (GROUPS - first) * N,
		               device_name(device_number));
		assert_poisoned(device, target, first * N * 2, device_name(device_number));
		zcc_device_free(device, target);
		zcc_copyback_destroy(copyback);
	}
	free(source);
}

/* The default buffers are made as large for one element as for a model of any size. */
static void what_is_pinned_does_not_depend_on_the_size_of_the_masters(void **state)
{
	(void)state;
	enum { SMALL = 1, LARGE = 20 * 1000 * 1000 };
	const int64_t sizes[] = {SMALL, LARGE};
	zcc_device *device = open_device("host");
	for (int i = 0; i < 2; i++) {
		zcc_pool *pool = NULL;
		assert_int_equal(zcc_pool_create(device, NULL, &pool, NULL), ZCC_OK);
		zcc_copyback_options options;
		zcc_copyback_options_init(&options);
		assert_int_equal(options.buffer_elems, 67108864);
		options.pool = pool;
		options.buffer_elems = 1 << 20;
		zcc_copyback *copyback = NULL;
		assert_int_equal(zcc_copyback_create(device, &options, &copyback, NULL), ZCC_OK);
		zcc_pool_stats pinned;
		zcc_pool_get_stats(pool, &pinned);
		assert_int_equal(pinned.pinned_bytes, 0);
		/* Never touched: reading it costs nothing but the zero page. */
		void *source = NULL, *target = device_memory(device, sizes[i] * 2);
		assert_int_equal(zcc_memory_create(sizes[i] * 4, &source, NULL), ZCC_OK);
		run_one(copyback, target, source, sizes[i]);
		run_one(copyback, target, source, sizes[i]);
		zcc_pool_get_stats(pool, &pinned);
		assert_int_equal(pinned.pinned_bytes, 2 * 2 << 20);
		assert_int_equal(pinned.pinned_peak_bytes, 2 * 2 << 20);
		assert_int_equal(pinned.takes, 2);
		assert_ok(zcc_copyback_release(copyback, NULL), NULL);
		assert_int_equal(stats_of(copyback).buffer_bytes, 0);
		zcc_pool_get_stats(pool, &pinned);
		assert_int_equal(pinned.in_use_bytes, 0);
		/* Made again by the next use. */
		run_one(copyback, target, source, 1);
		zcc_pool_get_stats(pool, &pinned);
		assert_int_equal(pinned.in_use_bytes, 2 * 2 << 20);
		zcc_memory_destroy(source, sizes[i] * 4);
		zcc_device_free(device, target);
		zcc_copyback_destroy(copyback);
		zcc_pool_get_stats(pool, &pinned);
		assert_int_equal(pinned.in_use_bytes, 0);
		zcc_pool_destroy(pool);
	}
	zcc_device_close(device);
}

static void many_pieces_of_any_size_in_one_call(void **state)
{
	(void)state;
	enum { PIECES = 300, MOST = 3 * BUFFER_ELEMS };
	unsigned seed = (unsigned)seed_of_run();
	FOR_EACH_DEVICE(device)
	{
		zcc_copyback_piece pieces[PIECES];
		int64_t total = 0;
		for (int i = 0; i < PIECES; i++) {
			pieces[i].elems = rand_r(&seed) % 8 == 0 ? rand_r(&seed) % MOST : rand_r(&seed) % 20;
			total += pieces[i].elems;
		}
		float *source = masters(total, seed);
		uint16_t *target = poisoned(device, total * 2);
		int64_t at = 0;
		for (int i = 0; i < PIECES; i++) {
			pieces[i].source = source + at;
			pieces[i].target = target + at;
			at += pieces[i].elems;
		}
		zcc_copyback *copyback = copyback_of(device, ZCC_BF16, BUFFER_ELEMS, 1);
		for (int round = 0; round < 3; round++) {
			zcc_error error = {0};
			assert_ok(zcc_copyback_run(copyback, pieces, PIECES, &error), &error);
		}
		assert_rounded(device, target, ZCC_BF16, source, total, device_name(device_number));
		zcc_device_free(device, target);
		zcc_copyback_destroy(copyback);
		free(source);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_length_comes_out_as_the_rounded_master_through_two_buffers),
	        cmocka_unit_test(buffers_of_one_element_and_larger_than_the_whole_give_the_same_bits),
	        cmocka_unit_test(the_two_buffers_take_turns),
	        cmocka_unit_test(large_buffers_are_filled_by_several_threads_and_sent_in_slots),
	        cmocka_unit_test(a_device_that_falls_behind_is_given_all_of_both_buffers),
	        cmocka_unit_test(groups_sharded_eight_and_two_ways_fill_every_element),
	        cmocka_unit_test(empty_pieces_between_full_ones_disturb_neither),
	        cmocka_unit_test(a_piece_is_staged_only_under_all_three_conditions),
	        cmocka_unit_test(the_ratio_of_partial_offload_counts_whole_sub_groups),
	        cmocka_unit_test(only_the_groups_on_the_host_are_written),
	        cmocka_unit_test(what_is_pinned_does_not_depend_on_the_size_of_the_masters),
	        cmocka_unit_test(many_pieces_of_any_size_in_one_call),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
