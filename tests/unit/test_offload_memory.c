/* Host memory of the offload queue: taken before a byte moves or refused, no more than asked, and given back. */
#include "offload_rig.h"

enum { PAGE = 4096 };

static int64_t in_pages(int64_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Case A10. */
static void a_pool_for_four_buckets_refuses_six_before_a_byte_moves(void **state)
{
	(void)state;
	const int64_t bucket = 50 * PAGE;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		open_rig_with_cap(&r, device, NULL, 4 * bucket);
		for (int i = 0; i < 6; i++)
			add_buffer(&r, bucket);
		write_step(&r, 1);
		int64_t four, six, two;
		OK(try_defer(&r, 1, 0, 4, NULL, &four));
		OK(zcc_offload_wait(r.queue, four, &fault));
		OK(zcc_offload_release(r.queue, four, &fault));
		int64_t copies = queue_stats(&r).copies;

		write_step(&r, 2);
		OK(try_defer(&r, 2, 0, 6, NULL, &six));
		assert_int_equal(zcc_offload_wait(r.queue, six, &fault), ZCC_ENOMEM);
		assert_says(&fault, "ticket 2: 6 regions and 1228800 bytes, of which none has moved");
		assert_says(&fault, "819200");
		assert_int_equal(queue_stats(&r).copies, copies);
		assert_int_equal(queue_stats(&r).held_bytes, 0);
		assert_int_equal(pool_stats(&r).in_use_bytes, 0);
		OK(zcc_offload_release(r.queue, six, &fault));

		write_step(&r, 3);
		OK(try_defer(&r, 3, 4, 6, NULL, &two));
		OK(zcc_offload_wait(r.queue, two, &fault));
		for (int i = 0; i < 2; i++) {
			zcc_offload_landed landed;
			OK(zcc_offload_get(r.queue, two, i, &landed, &fault));
			assert_int_equal(landed.bytes, bucket);
			assert_int_equal(count_wrong(&landed, 4 + i, 3), 0);
		}
		zcc_offload_landed none;
		assert_int_equal(zcc_offload_get(r.queue, two, 2, &none, &fault), ZCC_EINVAL);
		close_rig(&r);
	}
}

static void what_does_not_fit_lands_unpinned_by_choice(void **state)
{
	(void)state;
	const int64_t bucket = 50 * PAGE;
	FOR_EACH_DEVICE(device)
	{
		for (int slots = 0; slots < 7; slots += 6) {
			zcc_offload_options options = usual_options();
			options.memory = ZCC_OFFLOAD_OR_UNPINNED;
			options.slots = slots;
			rig r;
			open_rig_with_cap(&r, device, &options, 4 * bucket);
			for (int i = 0; i < 6; i++)
				add_buffer(&r, bucket);
			write_step(&r, 1);
			int64_t ticket = defer_all(&r, 1);
			OK(zcc_offload_wait(r.queue, ticket, &fault));
			assert_landed(&r, ticket, 1);
			int pinned = 0;
			for (int i = 0; i < 6; i++) {
				zcc_offload_landed landed;
				OK(zcc_offload_get(r.queue, ticket, i, &landed, &fault));
				pinned += landed.place == ZCC_AT_PINNED;
			}
			assert_int_equal(pinned, 4);
			assert_int_equal(pool_stats(&r).unpinned_bytes, 2 * bucket);
			OK(zcc_offload_release(r.queue, ticket, &fault));
			assert_int_equal(pool_stats(&r).unpinned_bytes, 0);
			close_rig(&r);
		}
	}
}

/* Case A11. Sizes over three orders of magnitude, the largest anywhere. */
enum { N_TENSORS = 631, N_SLOTS = 4 };

static int64_t sum_of_largest(const rig *r, int n)
{
	int64_t sum = 0, below = INT64_MAX;
	for (int k = 0; k < n; k++) {
		int64_t largest = -1;
		int times = 0;
		for (int i = 0; i < r->n_buffers; i++)
			if (r->bytes[i] < below && r->bytes[i] > largest)
				largest = r->bytes[i];
		for (int i = 0; i < r->n_buffers; i++)
			times += r->bytes[i] == largest;
		for (; times > 0 && k < n; times--, k++)
			sum += in_pages(largest);
		k--;
		below = largest;
	}
	return sum;
}

/* Holds up to `hold` regions before it releases the oldest. */
static void consume(rig *r, int64_t ticket, int64_t step, int32_t first, int hold)
{
	int64_t held[N_SLOTS];
	int n_held = 0;
	zcc_offload_landed landed;
	for (int64_t expected = 0;; expected++) {
		OK(zcc_offload_next(r->queue, ticket, &landed, &fault));
		if (landed.index < 0)
			break;
		assert_int_equal(landed.index, expected);
		assert_int_equal(landed.bytes, r->bytes[first + landed.index]);
		assert_int_equal(count_wrong(&landed, first + (int32_t)landed.index, step), 0);
		held[n_held++] = landed.index;
		if (n_held == hold) {
			OK(zcc_offload_release_region(r->queue, ticket, held[0], &fault));
			memmove(held, held + 1, (size_t)--n_held * sizeof *held);
		}
	}
	OK(zcc_offload_release(r->queue, ticket, &fault));
}

static void many_tensors_through_few_slots_pin_no_more_than_the_largest(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.slots = N_SLOTS;
		options.chunk_bytes = 30000;
		rig r;
		open_rig(&r, device, &options);
		for (int i = 0; i < N_TENSORS; i++)
			add_buffer(&r, draw(10) == 0 ? draw(200000) : draw(3000));
		int64_t base = pool_stats(&r).pinned_bytes;
		for (int64_t step = 1; step <= 2; step++) {
			write_step(&r, step);
			int64_t ticket = defer_all(&r, step);
			OK(zcc_offload_flush(r.queue, &fault));
			consume(&r, ticket, step, 0, step == 1 ? 1 : N_SLOTS);
			assert_true(pool_stats(&r).pinned_peak_bytes <= base + sum_of_largest(&r, N_SLOTS));
			assert_int_equal(queue_stats(&r).held_bytes, 0);
			zcc_pool_trim(r.pool, NULL);
			assert_int_equal(pool_stats(&r).pinned_bytes, base);
		}
		/* And so with a ticket for each. */
		write_step(&r, 3);
		int64_t tickets[N_TENSORS];
		for (int i = 0; i < N_TENSORS; i++)
			OK(try_defer(&r, 3, i, i + 1, NULL, &tickets[i]));
		for (int i = 0; i < N_TENSORS; i++)
			consume(&r, tickets[i], 3, i, 1 + i % 2);
		assert_true(pool_stats(&r).pinned_peak_bytes <= base + sum_of_largest(&r, N_SLOTS));
		assert_int_equal(queue_stats(&r).held_bytes, 0);
		close_rig(&r);
	}
}

static void a_slot_for_the_largest_region_is_there_before_a_byte_moves(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.slots = 2;
		rig r;
		open_rig_with_cap(&r, device, &options, 100 * PAGE);
		for (int i = 0; i < 8; i++)
			add_buffer(&r, i == 6 ? 101 * PAGE : PAGE);
		write_step(&r, 1);
		int64_t ticket = defer_all(&r, 1);
		zcc_offload_landed landed;
		assert_int_equal(zcc_offload_next(r.queue, ticket, &landed, &fault), ZCC_ENOMEM);
		assert_says(&fault, "of which none has moved");
		assert_int_equal(queue_stats(&r).copies, 0);
		OK(zcc_offload_release(r.queue, ticket, &fault));
		assert_int_equal(queue_stats(&r).held_bytes, 0);
		close_rig(&r);
	}
}

static void slots_that_nobody_releases_are_an_error_and_no_deadlock(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.slots = 2;
		rig r;
		open_rig(&r, device, &options);
		for (int i = 0; i < 5; i++)
			add_buffer(&r, 100);
		write_step(&r, 1);
		int64_t ticket = defer_all(&r, 1);
		zcc_offload_landed landed;
		assert_int_equal(zcc_offload_wait(r.queue, ticket, &fault), ZCC_EBUSY);
		assert_says(&fault, "ticket 1 (200 of 500 bytes landed) needs one of 2 slots");
		assert_int_equal(zcc_offload_fence(r.queue, &fault), ZCC_EBUSY);
		int64_t other;
		assert_int_equal(try_defer(&r, 2, 0, 1, NULL, &other), ZCC_EBUSY);
		OK(zcc_offload_next(r.queue, ticket, &landed, &fault));
		OK(zcc_offload_next(r.queue, ticket, &landed, &fault));
		assert_int_equal(zcc_offload_next(r.queue, ticket, &landed, &fault), ZCC_EBUSY);
		/* In any order. */
		OK(zcc_offload_release_region(r.queue, ticket, 1, &fault));
		OK(zcc_offload_next(r.queue, ticket, &landed, &fault));
		assert_int_equal(landed.index, 2);
		OK(zcc_offload_release_region(r.queue, ticket, 2, &fault));
		OK(zcc_offload_release_region(r.queue, ticket, 0, &fault));
		OK(zcc_offload_wait(r.queue, ticket, &fault));
		OK(zcc_offload_next(r.queue, ticket, &landed, &fault));
		assert_int_equal(landed.index, 3);
		assert_int_equal(count_wrong(&landed, 3, 1), 0);
		close_rig(&r);
	}
}

static void small_regions_do_not_keep_a_large_one_from_a_free_slot(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.slots = 3;
		rig r;
		open_rig(&r, device, &options);
		const int64_t bytes[] = {10, 50000, 20, 70000, 0, 60000, 30, 80000, 1};
		for (int i = 0; i < 9; i++)
			add_buffer(&r, bytes[i]);
		for (int hold = 1; hold <= 2; hold++) {
			write_step(&r, hold);
			int64_t ticket = defer_all(&r, hold);
			consume(&r, ticket, hold, 0, hold);
		}
		assert_true(queue_stats(&r).held_peak_bytes <= 80000 + 70000 + 60000);
		close_rig(&r);
	}
}

/* A pool may give a kept buffer that is a little larger than asked; the largest region has to get its own first. */
static void slots_of_another_snapshot_pin_no_more_than_the_largest_either(void **state)
{
	(void)state;
	zcc_offload_options options = usual_options();
	options.slots = 2;
	rig r;
	open_rig(&r, "host", &options);
	const int64_t pages[] = {100, 90, 95, 100};
	for (int i = 0; i < 4; i++)
		add_buffer(&r, pages[i] * PAGE);
	write_step(&r, 1);
	for (int i = 0; i < 2; i++) {
		int64_t ticket;
		OK(try_defer(&r, i, 2 * i, 2 * i + 2, NULL, &ticket));
		OK(zcc_offload_wait(r.queue, ticket, &fault));
		OK(zcc_offload_release(r.queue, ticket, &fault));
	}
	assert_int_equal(pool_stats(&r).pinned_peak_bytes, (100 + 95) * PAGE);
	close_rig(&r);
}

/* Held: a slot that the second ticket wants larger. */
static void open_held_slot(rig *r, const char *device, int64_t tickets[2])
{
	zcc_offload_options options = usual_options();
	options.slots = 2;
	open_rig(r, device, &options);
	const int64_t bytes[] = {10, 10, 50000, 5};
	for (int i = 0; i < 4; i++)
		add_buffer(r, bytes[i]);
	write_step(r, 1);
	zcc_offload_landed landed;
	OK(try_defer(r, 1, 0, 1, NULL, &tickets[0]));
	OK(zcc_offload_wait(r->queue, tickets[0], &fault));
	OK(try_defer(r, 1, 1, 3, NULL, &tickets[1]));
	OK(zcc_offload_next(r->queue, tickets[1], &landed, &fault));
	OK(zcc_offload_release_region(r->queue, tickets[1], 0, &fault));
	assert_int_equal(zcc_offload_next(r->queue, tickets[1], &landed, &fault), ZCC_EBUSY);
}

static void a_slot_in_use_grows_when_it_is_released(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		int64_t tickets[2];
		zcc_offload_landed landed;
		open_held_slot(&r, device, tickets);
		OK(zcc_offload_release(r.queue, tickets[0], &fault));
		OK(zcc_offload_next(r.queue, tickets[1], &landed, &fault));
		assert_int_equal(landed.bytes, 50000);
		assert_int_equal(count_wrong(&landed, 2, 1), 0);
		close_rig(&r);
	}
}

static void a_ticket_that_waits_for_a_slot_is_cancelled_and_the_next_goes_on(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		int64_t tickets[2], third;
		zcc_offload_landed landed;
		open_held_slot(&r, device, tickets);
		OK(zcc_offload_cancel(r.queue, tickets[1], &fault));
		OK(try_defer(&r, 1, 3, 4, NULL, &third));
		OK(zcc_offload_next(r.queue, third, &landed, &fault));
		assert_int_equal(count_wrong(&landed, 3, 1), 0);
		close_rig(&r);
	}
}

static void ten_thousand_snapshots_hold_what_one_holds(void **state)
{
	(void)state;
	rig r;
	open_rig(&r, "host", NULL);
	for (int i = 0; i < 4; i++)
		add_buffer(&r, 5000 * i);
	write_step(&r, 1);
	int64_t pinned = 0;
	for (int i = 0; i < 10000; i++) {
		int64_t ticket = defer_all(&r, i);
		OK(zcc_offload_wait(r.queue, ticket, &fault));
		OK(zcc_offload_release(r.queue, ticket, &fault));
		if (i == 0)
			pinned = pool_stats(&r).pinned_bytes;
	}
	assert_int_equal(pool_stats(&r).pinned_peak_bytes, pinned);
	assert_int_equal(queue_stats(&r).held_bytes, 0);
	close_rig(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_pool_for_four_buckets_refuses_six_before_a_byte_moves),
	        cmocka_unit_test(what_does_not_fit_lands_unpinned_by_choice),
	        cmocka_unit_test(many_tensors_through_few_slots_pin_no_more_than_the_largest),
	        cmocka_unit_test(a_slot_for_the_largest_region_is_there_before_a_byte_moves),
	        cmocka_unit_test(slots_that_nobody_releases_are_an_error_and_no_deadlock),
	        cmocka_unit_test(small_regions_do_not_keep_a_large_one_from_a_free_slot),
	        cmocka_unit_test(slots_of_another_snapshot_pin_no_more_than_the_largest_either),
	        cmocka_unit_test(a_slot_in_use_grows_when_it_is_released),
	        cmocka_unit_test(a_ticket_that_waits_for_a_slot_is_cancelled_and_the_next_goes_on),
	        cmocka_unit_test(ten_thousand_snapshots_hold_what_one_holds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
