/* The offload queue: what lands is what was there at defer, whatever flushes it and however it is cut. */
#include "offload_rig.h"

static const int64_t sizes[] = {0, 1, 255, 4096, 0, 0, 100001, 65536, 1, 0};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void add_sizes(rig *r)
{
	for (int i = 0; i < N_SIZES; i++)
		add_buffer(r, sizes[i]);
}

static void wait_alone_lands_every_region_of_every_size(void **state)
{
	(void)state;
	const int64_t chunks[] = {0, 1000, 4096, 100001, 1 << 30};
	FOR_EACH_DEVICE(device)
	{
		for (int c = 0; c < 5; c++) {
			zcc_offload_options options = usual_options();
			options.chunk_bytes = chunks[c];
			rig r;
			open_rig(&r, device, &options);
			add_sizes(&r);
			write_step(&r, 1);
			int64_t ticket = defer_all(&r, 1);
			OK(zcc_offload_wait(r.queue, ticket, &fault));
			write_step(&r, 2);
			assert_landed(&r, ticket, 1);
			OK(zcc_offload_release(r.queue, ticket, &fault));
			assert_int_equal(queue_stats(&r).held_bytes, 0);
			close_rig(&r);
		}
	}
}

static void fence_alone_lands_every_ticket_of_a_snapshot(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		open_rig(&r, device, NULL);
		add_sizes(&r);
		write_step(&r, 3);
		int64_t tickets[N_SIZES];
		for (int i = 0; i < N_SIZES; i++)
			OK(try_defer(&r, 3, i, i + 1, NULL, &tickets[i]));
		OK(zcc_offload_fence(r.queue, &fault));
		write_step(&r, 4);
		for (int i = 0; i < N_SIZES; i++) {
			zcc_offload_landed landed;
			int32_t done = 0;
			assert_int_equal(tickets[i], i + 1);
			OK(zcc_offload_test(r.queue, tickets[i], &done, &fault));
			assert_int_equal(done, 1);
			OK(zcc_offload_get(r.queue, tickets[i], 0, &landed, &fault));
			assert_int_equal(landed.bytes, sizes[i]);
			assert_int_equal(count_wrong(&landed, i, 3), 0);
		}
		close_rig(&r);
	}
}

static void a_view_lands_as_its_own_bytes_and_not_its_storage(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		open_rig(&r, device, NULL);
		add_buffer(&r, 1 << 20);
		write_step(&r, 5);
		zcc_offload_region view = {.handle = r.handle[0], .offset_bytes = 128, .bytes = 128};
		int64_t ticket;
		zcc_offload_landed landed;
		OK(zcc_offload_defer(r.queue, 5, &view, 1, NULL, &ticket, &fault));
		OK(zcc_offload_wait(r.queue, ticket, &fault));
		OK(zcc_offload_get(r.queue, ticket, 0, &landed, &fault));
		assert_int_equal(landed.offset_bytes, 128);
		assert_int_equal(landed.bytes, 128);
		assert_int_equal(landed.generation, 1);
		assert_int_equal(landed.snapshot, 5);
		assert_int_equal(landed.place, ZCC_AT_PINNED);
		assert_int_equal(count_wrong(&landed, 0, 5), 0);
		assert_int_equal(queue_stats(&r).held_bytes, 128);
		assert_int_equal(queue_stats(&r).copied_bytes, 128);
		close_rig(&r);
	}
}

/* Case A7. */
static void memory_of_the_host_is_a_snapshot_too(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		open_rig(&r, device, NULL);
		float rates[3] = {1, 2, 3};
		int64_t handle, ticket;
		zcc_offload_landed landed;
		OK(zcc_offload_register(r.queue, "learning rates", rates, sizeof rates, &handle, &fault));
		zcc_offload_region region = {.handle = handle, .bytes = -1};
		OK(zcc_offload_defer(r.queue, 1, &region, 1, NULL, &ticket, &fault));
		OK(zcc_offload_fence(r.queue, &fault));
		rates[1] = 9;
		OK(zcc_offload_get(r.queue, ticket, 0, &landed, &fault));
		float saved[3];
		memcpy(saved, landed.data, sizeof saved);
		assert_true(saved[0] == 1 && saved[1] == 2 && saved[2] == 3);
		close_rig(&r);
	}
}

static void copies_run_after_what_the_trainer_submitted_before_defer(void **state)
{
	(void)state;
	for (int check = 0; check < 2; check++) {
		FOR_EACH_DEVICE(device)
		{
			zcc_offload_options options = usual_options();
			options.check = check;
			rig r;
			open_rig(&r, device, &options);
			add_buffer(&r, 1 << 20);
			write_step(&r, 6);
			write_late(&r, 0, 7);
			int64_t ticket;
			OK(try_defer(&r, 7, 0, 1, r.trainer, &ticket));
			OK(zcc_offload_wait(r.queue, ticket, &fault));
			assert_landed(&r, ticket, 7);
			close_rig(&r);
		}
	}
}

/* Case A1: the barrier of the save before counts, and waits. */
static void the_next_steps_first_write_never_reaches_a_save(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.chunk_bytes = 1 << 16;
		rig r;
		open_rig(&r, device, &options);
		for (int i = 0; i < 4; i++)
			add_buffer(&r, 1 << 20);
		int64_t saves[8] = {0};
		for (int64_t step = 1; step <= 7; step++) {
			int64_t waits = queue_stats(&r).waits;
			OK(zcc_offload_fence(r.queue, &fault));
			waits = queue_stats(&r).waits - waits;
			/* Nothing is deferred that was not waited for. */
			assert_int_equal(waits, step > 1 && step % 2 == 1);
			write_step(&r, 0xA0 + step);
			if (step % 2 == 0)
				saves[step] = defer_all(&r, step);
		}
		for (int64_t step = 2; step <= 6; step += 2)
			assert_landed(&r, saves[step], 0xA0 + step);
		close_rig(&r);
	}
}

/* Case A3: ten saves with an EMA of what landed; one micro-step or many, one chunk or many, the same bits. */
enum { EMA_ELEMS = 5000 };

static void run_training(const char *device, int64_t micro_steps, int64_t n_chunks, float *ema)
{
	const int64_t bytes = EMA_ELEMS * 4;
	zcc_offload_options options = usual_options();
	options.chunk_bytes = (bytes + n_chunks - 1) / n_chunks;
	rig r;
	open_rig(&r, device, &options);
	add_buffer(&r, bytes);
	float *params = calloc(EMA_ELEMS, sizeof *params);
	memset(ema, 0, (size_t)bytes);
	for (int64_t step = 1; step <= 10; step++) {
		for (int i = 0; i < EMA_ELEMS; i++)
			params[i] = (float)((i * 37 + step * 11) % 101) / 7;
		OK(zcc_copy_async(r.trainer, r.data[0], params, bytes, &fault));
		OK(zcc_stream_wait(r.trainer, &fault));
		int64_t ticket = defer_all(&r, step);
		for (int64_t micro = 1; micro < micro_steps; micro++)
			OK(zcc_offload_flush_fraction(r.queue, 1.0 / (double)micro_steps, &fault));
		OK(zcc_offload_fence(r.queue, &fault));
		zcc_offload_landed landed;
		OK(zcc_offload_get(r.queue, ticket, 0, &landed, &fault));
		for (int i = 0; i < EMA_ELEMS; i++) {
			float param;
			memcpy(&param, (char *)landed.data + i * 4, 4);
			ema[i] = fmaf(0.125f, param - ema[i], ema[i]);
		}
		OK(zcc_offload_release(r.queue, ticket, &fault));
	}
	zcc_offload_stats stats = queue_stats(&r);
	assert_int_equal(stats.chunks, 10 * n_chunks);
	assert_int_equal(stats.copies, 10 * n_chunks);
	assert_int_equal(stats.copied_bytes, 10 * bytes);
	free(params);
	close_rig(&r);
}

static void micro_steps_and_chunks_change_nothing_but_when(void **state)
{
	(void)state;
	const int64_t micro_steps[] = {1, 2, 3, 7};
	const int64_t chunks[] = {1, 5, 8};
	float *want = calloc(EMA_ELEMS, sizeof *want);
	float *got = calloc(EMA_ELEMS, sizeof *got);
	for (int64_t step = 1; step <= 10; step++)
		for (int i = 0; i < EMA_ELEMS; i++)
			want[i] = fmaf(0.125f, (float)((i * 37 + step * 11) % 101) / 7 - want[i], want[i]);
	FOR_EACH_DEVICE(device)
	for (int m = 0; m < 4; m++)
		for (int c = 0; c < 3; c++) {
			run_training(device, micro_steps[m], chunks[c], got);
			assert_memory_equal(got, want, EMA_ELEMS * 4);
		}
	free(want);
	free(got);
}

static int64_t wait_until_copied(rig *r, int64_t bytes)
{
	int64_t deadline = zcc_clock_ns() + (int64_t)300 * 1000000000;
	while (queue_stats(r).copied_bytes < bytes && zcc_clock_ns() < deadline)
		;
	return queue_stats(r).copied_bytes;
}

static void a_fraction_starts_its_share_in_whole_chunks_and_no_more(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.chunk_bytes = 100;
		rig r;
		open_rig(&r, device, &options);
		for (int i = 0; i < 10; i++)
			add_buffer(&r, 100);
		write_step(&r, 1);
		int64_t first, second;
		OK(try_defer(&r, 1, 0, 5, NULL, &first));
		OK(try_defer(&r, 1, 5, 10, NULL, &second));
		OK(zcc_offload_flush_fraction(r.queue, 0.25, &fault));
		assert_int_equal(wait_until_copied(&r, 300), 300);
		OK(zcc_offload_flush_fraction(r.queue, 0.3, &fault));
		assert_int_equal(wait_until_copied(&r, 600), 600);
		int32_t done = 1;
		OK(zcc_offload_test(r.queue, second, &done, &fault));
		assert_int_equal(done, 0);
		OK(zcc_offload_test(r.queue, first, &done, &fault));
		assert_int_equal(done, 1);
		assert_int_equal(queue_stats(&r).copied_bytes, 600);
		assert_int_equal(queue_stats(&r).pending_bytes, 400);
		OK(zcc_offload_fence(r.queue, &fault));
		assert_int_equal(queue_stats(&r).chunks, 10);
		OK(zcc_offload_flush_fraction(r.queue, 1, &fault));
		close_rig(&r);
	}
}

static void shares_that_add_up_to_one_start_all(void **state)
{
	(void)state;
	for (int64_t n = 1; n <= 13; n++) {
		zcc_offload_options options = usual_options();
		options.chunk_bytes = 0;
		rig r;
		open_rig(&r, "host", &options);
		add_buffer(&r, 99991);
		write_step(&r, 1);
		int64_t ticket = defer_all(&r, 1);
		for (int64_t i = 0; i < n; i++)
			OK(zcc_offload_flush_fraction(r.queue, 1.0 / (double)n, &fault));
		assert_int_equal(wait_until_copied(&r, 99991), 99991);
		OK(zcc_offload_wait(r.queue, ticket, &fault));
		assert_landed(&r, ticket, 1);
		close_rig(&r);
	}
}

static void chunks_are_cut_by_bytes_over_regions(void **state)
{
	(void)state;
	const struct {
		int64_t chunk, chunks;
	} cases[] = {{0, 1}, {1000, 1}, {999, 2}, {500, 2}, {499, 3}, {100, 10}, {1, 1000}};
	for (int c = 0; c < 7; c++) {
		zcc_offload_options options = usual_options();
		options.chunk_bytes = cases[c].chunk;
		rig r;
		open_rig(&r, "late:host,lazy", &options);
		const int64_t parts[] = {1, 249, 0, 250, 500, 0};
		for (int i = 0; i < 6; i++)
			add_buffer(&r, parts[i]);
		write_step(&r, 1);
		int64_t ticket = defer_all(&r, 1);
		OK(zcc_offload_wait(r.queue, ticket, &fault));
		assert_int_equal(queue_stats(&r).chunks, cases[c].chunks);
		assert_landed(&r, ticket, 1);
		close_rig(&r);
	}
}

static void a_snapshot_in_flight_lands_before_the_next_is_deferred(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		open_rig(&r, device, NULL);
		for (int i = 0; i < 3; i++)
			add_buffer(&r, 100000);
		write_step(&r, 1);
		int64_t first = defer_all(&r, 1), second;
		OK(try_defer(&r, 2, 2, 3, NULL, &second));
		/* What the first one named may be written now. */
		write_late(&r, 0, 9);
		write_late(&r, 1, 9);
		OK(zcc_stream_wait(r.trainer, &fault));
		assert_landed(&r, first, 1);
		assert_int_equal(queue_stats(&r).waits, 1);
		OK(zcc_offload_fence(r.queue, &fault));
		close_rig(&r);
	}
}

static void a_snapshot_during_another_is_refused_by_choice(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.busy = ZCC_OFFLOAD_REFUSE;
		rig r;
		open_rig(&r, device, &options);
		add_buffer(&r, 1000);
		add_buffer(&r, 1000);
		write_step(&r, 1);
		int64_t ticket = 0, same, other = -1;
		OK(try_defer(&r, 41, 0, 1, NULL, &ticket));
		OK(try_defer(&r, 41, 1, 2, NULL, &same));
		assert_int_equal(try_defer(&r, 42, 0, 1, NULL, &other), ZCC_EBUSY);
		assert_says(&fault, "snapshot 42 while 41 is in flight (ticket 1, 2000 bytes to go)");
		assert_int_equal(other, -1);
		OK(zcc_offload_fence(r.queue, &fault));
		OK(try_defer(&r, 42, 0, 1, NULL, &other));
		assert_int_equal(other, 3);
		close_rig(&r);
	}
}

static void tickets_only_grow_and_are_known_for_what_they_are(void **state)
{
	(void)state;
	rig r;
	open_rig(&r, "late:host,lazy", NULL);
	add_buffer(&r, 10);
	write_step(&r, 1);
	int32_t done = 0;
	zcc_offload_landed landed;
	assert_int_equal(zcc_offload_wait(r.queue, 0, &fault), ZCC_EINVAL);
	assert_int_equal(zcc_offload_wait(r.queue, 1, &fault), ZCC_EINVAL);
	assert_says(&fault, "ticket 1 has not been given out; the last one is 0");
	int64_t last = 0;
	for (int i = 0; i < 300; i++) {
		int64_t ticket = defer_all(&r, i);
		assert_true(ticket > last);
		last = ticket;
		if (i % 3 == 0)
			OK(zcc_offload_wait(r.queue, ticket, &fault));
		if (i % 3 == 0)
			OK(zcc_offload_release(r.queue, ticket, &fault));
	}
	assert_int_equal(zcc_offload_get(r.queue, last, 0, &landed, &fault), ZCC_EBUSY);
	assert_says(&fault, "has not landed (0 of 10 bytes have)");
	assert_int_equal(zcc_offload_release(r.queue, last, &fault), ZCC_EBUSY);
	OK(zcc_offload_fence(r.queue, &fault));
	OK(zcc_offload_test(r.queue, 1, &done, &fault));
	assert_int_equal(done, 1);
	OK(zcc_offload_wait(r.queue, 1, &fault));
	assert_int_equal(zcc_offload_get(r.queue, 1, 0, &landed, &fault), ZCC_ESTALE);
	assert_int_equal(zcc_offload_release(r.queue, 1, &fault), ZCC_ESTALE);
	assert_says(&fault, "ticket 1 has been released");
	assert_int_equal(zcc_offload_get(r.queue, last, 1, &landed, &fault), ZCC_EINVAL);
	OK(zcc_offload_release_region(r.queue, last, 0, &fault));
	assert_int_equal(zcc_offload_release_region(r.queue, last, 0, &fault), ZCC_ESTALE);
	OK(zcc_offload_next(r.queue, last, &landed, &fault));
	assert_int_equal(landed.index, -1);
	OK(zcc_offload_release(r.queue, last, &fault));
	close_rig(&r);
}

static void a_ticket_of_nothing_has_landed(void **state)
{
	(void)state;
	rig r;
	open_rig(&r, "host", NULL);
	add_buffer(&r, 0);
	int64_t ticket;
	int32_t done = 0;
	zcc_offload_landed landed;
	OK(zcc_offload_defer(r.queue, 1, NULL, 0, NULL, &ticket, &fault));
	OK(zcc_offload_test(r.queue, ticket, &done, &fault));
	assert_int_equal(done, 1);
	ticket = defer_all(&r, 1);
	OK(zcc_offload_next(r.queue, ticket, &landed, &fault));
	assert_int_equal(landed.index, 0);
	assert_null(landed.data);
	OK(zcc_offload_release_region(r.queue, ticket, 0, &fault));
	OK(zcc_offload_flush(r.queue, &fault));
	OK(zcc_offload_fence(r.queue, &fault));
	assert_int_equal(queue_stats(&r).chunks, 0);
	close_rig(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(wait_alone_lands_every_region_of_every_size),
	        cmocka_unit_test(fence_alone_lands_every_ticket_of_a_snapshot),
	        cmocka_unit_test(a_view_lands_as_its_own_bytes_and_not_its_storage),
	        cmocka_unit_test(memory_of_the_host_is_a_snapshot_too),
	        cmocka_unit_test(copies_run_after_what_the_trainer_submitted_before_defer),
	        cmocka_unit_test(the_next_steps_first_write_never_reaches_a_save),
	        cmocka_unit_test(micro_steps_and_chunks_change_nothing_but_when),
	        cmocka_unit_test(a_fraction_starts_its_share_in_whole_chunks_and_no_more),
	        cmocka_unit_test(shares_that_add_up_to_one_start_all),
	        cmocka_unit_test(chunks_are_cut_by_bytes_over_regions),
	        cmocka_unit_test(a_snapshot_in_flight_lands_before_the_next_is_deferred),
	        cmocka_unit_test(a_snapshot_during_another_is_refused_by_choice),
	        cmocka_unit_test(tickets_only_grow_and_are_known_for_what_they_are),
	        cmocka_unit_test(a_ticket_of_nothing_has_landed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
