/* What goes wrong around the offload queue is named, once, and nothing is read that is not there any more. */
#include <signal.h>

#include "base/memory.h"
#include "offload_rig.h"

/* The buffer's memory goes, and another takes its name. The old one is filled first, so that reading it shows. */
static void reallocate(rig *r, int32_t buffer)
{
	void *old = r->data[buffer];
	write_late(r, buffer, 0xDD);
	OK(zcc_stream_wait(r->trainer, &fault));
	OK(zcc_device_malloc(r->device, r->bytes[buffer], (void **)&r->data[buffer], &fault));
	OK(zcc_offload_register(r->queue, buffer_name(buffer), r->data[buffer], r->bytes[buffer], &r->handle[buffer],
	                        &fault));
	zcc_device_free(r->device, old);
}

static void open_three(rig *r, const char *device, const zcc_offload_options *options)
{
	open_rig(r, device, options);
	for (int i = 0; i < 3; i++)
		add_buffer(r, 100000);
	write_step(r, 1);
}

/* Case A2. */
static void a_buffer_reallocated_between_defer_and_flush_is_named(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		open_three(&r, device, NULL);
		int64_t ticket = defer_all(&r, 1), old = r.handle[1], other = 0;
		reallocate(&r, 1);
		assert_int_equal(zcc_offload_flush(r.queue, &fault), ZCC_ESTALE);
		assert_says(
		        &fault,
		        "ticket 1: buffer 'layer.1.weight' has been registered anew: generation 2, the handle is of 1");
		assert_int_equal(zcc_offload_wait(r.queue, ticket, &fault), ZCC_ESTALE);
		assert_says(&fault, "layer.1.weight");
		OK(zcc_offload_fence(r.queue, &fault));
		assert_int_equal(queue_stats(&r).copies, 0);
		assert_int_equal(queue_stats(&r).held_bytes, 0);

		zcc_offload_region region = {.handle = old, .bytes = -1};
		assert_int_equal(zcc_offload_defer(r.queue, 1, &region, 1, NULL, &other, &fault), ZCC_ESTALE);
		assert_says(&fault, "layer.1.weight");
		assert_int_equal(zcc_offload_unregister(r.queue, old, &fault), ZCC_ESTALE);
		write_step(&r, 2);
		ticket = defer_all(&r, 2);
		assert_int_equal(ticket, 2);
		OK(zcc_offload_fence(r.queue, &fault));
		assert_landed(&r, ticket, 2);
		zcc_offload_landed landed;
		OK(zcc_offload_get(r.queue, ticket, 1, &landed, &fault));
		assert_int_equal(landed.generation, 2);
		close_rig(&r);
	}
}

static void a_wait_that_flushes_names_a_reallocated_buffer_too(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.chunk_bytes = 1000;
		rig r;
		open_three(&r, device, &options);
		int64_t ticket = defer_all(&r, 1);
		reallocate(&r, 2);
		assert_int_equal(zcc_offload_wait(r.queue, ticket, &fault), ZCC_ESTALE);
		assert_says(&fault, "layer.2.weight");
		assert_int_equal(queue_stats(&r).copies, 0);
		OK(zcc_offload_release(r.queue, ticket, &fault));
		/* It did not land, and that stays so. */
		assert_int_equal(zcc_offload_wait(r.queue, ticket, &fault), ZCC_ESTALE);
		assert_says(&fault, "ticket 1 failed or was cancelled, and has been released");
		close_rig(&r);
	}
}

static void a_fence_tells_of_all_tickets_that_failed_at_once(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		open_three(&r, device, NULL);
		int64_t tickets[3];
		for (int i = 0; i < 3; i++)
			OK(try_defer(&r, 1, i, i + 1, NULL, &tickets[i]));
		for (int i = 0; i < 2; i++)
			reallocate(&r, i);
		assert_int_equal(zcc_offload_fence(r.queue, &fault), ZCC_ESTALE);
		assert_says(&fault, "the first of 2 tickets that failed: ticket 1: buffer 'layer.0.weight'");
		OK(zcc_offload_fence(r.queue, &fault));
		assert_int_equal(zcc_offload_wait(r.queue, tickets[1], &fault), ZCC_ESTALE);
		OK(zcc_offload_wait(r.queue, tickets[2], &fault));
		close_rig(&r);
	}
}

static void a_cancelled_ticket_is_no_fault_of_a_fence(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		open_three(&r, device, NULL);
		int64_t ticket = defer_all(&r, 1);
		OK(zcc_offload_cancel(r.queue, ticket, &fault));
		OK(zcc_offload_fence(r.queue, &fault));
		close_rig(&r);
	}
}

static void a_buffer_that_goes_in_mid_snapshot_is_named_and_not_read(void **state)
{
	(void)state;
	for (int again = 0; again < 2; again++) {
		FOR_EACH_DEVICE(device)
		{
			zcc_offload_options options = usual_options();
			options.chunk_bytes = 1000;
			rig r;
			open_three(&r, device, &options);
			int64_t ticket = defer_all(&r, 1);
			OK(zcc_offload_flush_fraction(r.queue, 0.5, &fault));
			if (again) {
				reallocate(&r, 2);
			} else {
				OK(zcc_offload_unregister(r.queue, r.handle[2], &fault));
				zcc_device_free(r.device, r.data[2]);
				r.data[2] = NULL;
			}
			assert_int_equal(zcc_offload_fence(r.queue, &fault), ZCC_ESTALE);
			assert_says(&fault, "ticket 1");
			assert_says(&fault, again ? "'layer.2.weight' has been registered anew"
			                          : "'layer.2.weight' (generation 1) is not "
			                            "registered any more");
			OK(zcc_offload_fence(r.queue, &fault));
			assert_int_equal(zcc_offload_wait(r.queue, ticket, &fault), ZCC_ESTALE);
			zcc_offload_landed landed;
			assert_int_equal(zcc_offload_get(r.queue, ticket, 0, &landed, &fault), ZCC_ESTALE);
			assert_int_equal(zcc_offload_next(r.queue, ticket, &landed, &fault), ZCC_ESTALE);
			close_rig(&r);
		}
	}
}

static void a_fault_of_the_device_reaches_the_fence_once_with_the_buffers_name(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.chunk_bytes = 4096;
		rig r;
		open_three(&r, device, &options);
		/* More than was allocated. */
		int64_t handle, good, bad, after;
		OK(zcc_offload_register(r.queue, "too long", r.data[0], (int64_t)1 << 30, &handle, &fault));
		zcc_offload_region region = {.handle = handle, .bytes = 110000};
		OK(try_defer(&r, 1, 0, 3, NULL, &good));
		OK(zcc_offload_defer(r.queue, 1, &region, 1, NULL, &bad, &fault));
		OK(try_defer(&r, 1, 0, 3, NULL, &after));
		OK(zcc_offload_flush(r.queue, &fault));
		zcc_status status = zcc_offload_fence(r.queue, &fault);
		assert_true(status == ZCC_EINVAL || status == ZCC_EDEVICE);
		assert_says(&fault, "ticket 2: copy of buffer 'too long'");
		OK(zcc_offload_fence(r.queue, &fault));
		assert_int_equal(zcc_offload_wait(r.queue, bad, &fault), status);
		assert_landed(&r, good, 1);
		assert_landed(&r, after, 1);
		OK(zcc_offload_release(r.queue, bad, &fault));
		close_rig(&r);
	}
}

static void a_write_between_defer_and_flush_is_found_in_checking_mode(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.check = 1;
		rig r;
		open_three(&r, device, &options);
		int64_t clean = defer_all(&r, 17);
		OK(zcc_offload_fence(r.queue, &fault));
		assert_landed(&r, clean, 1);
		int64_t broken = defer_all(&r, 18);
		write_late(&r, 1, 2);
		OK(zcc_stream_wait(r.trainer, &fault));
		assert_int_equal(zcc_offload_wait(r.queue, broken, &fault), ZCC_EVERIFY);
		assert_says(
		        &fault,
		        "buffer 'layer.1.weight', ticket 2 of snapshot 18, were written between defer and their copy");
		close_rig(&r);
	}
}

static void a_write_after_the_copy_and_before_the_fence_is_found_in_checking_mode(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.check = 1;
		options.chunk_bytes = 100000;
		rig r;
		open_three(&r, device, &options);
		int64_t ticket = defer_all(&r, 1);
		OK(zcc_offload_flush_fraction(r.queue, 0.3, &fault));
		zcc_offload_landed landed;
		while (zcc_offload_get(r.queue, ticket, 0, &landed, NULL) == ZCC_EBUSY)
			;
		write_late(&r, 0, 2);
		OK(zcc_stream_wait(r.trainer, &fault));
		assert_int_equal(zcc_offload_wait(r.queue, ticket, &fault), ZCC_EVERIFY);
		assert_says(&fault, "buffer 'layer.0.weight', ticket 1 of snapshot 1, were written after defer and "
		                    "before the ticket had landed");
		close_rig(&r);
	}
}

static void cancelling_gives_back_everything_whenever_it_comes(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.chunk_bytes = 500;
		rig r;
		open_three(&r, device, &options);
		for (int round = 0; round < 20; round++) {
			int64_t ticket, keep;
			OK(try_defer(&r, round, 0, 2, NULL, &ticket));
			OK(try_defer(&r, round, 2, 3, NULL, &keep));
			/* At most 0.6 of all; the ticket is two thirds, so it can never have landed before. */
			if (round % 4 > 0)
				OK(zcc_offload_flush_fraction(r.queue, round % 4 / 5.0, &fault));
			OK(zcc_offload_cancel(r.queue, ticket, &fault));
			assert_int_equal(zcc_offload_cancel(r.queue, ticket, &fault), ZCC_ESTALE);
			OK(zcc_offload_fence(r.queue, &fault));
			assert_int_equal(zcc_offload_wait(r.queue, ticket, &fault), ZCC_ESTALE);
			zcc_offload_landed landed;
			OK(zcc_offload_get(r.queue, keep, 0, &landed, &fault));
			assert_int_equal(count_wrong(&landed, 2, 1), 0);
			OK(zcc_offload_release(r.queue, keep, &fault));
			assert_int_equal(queue_stats(&r).held_bytes, 0);
			assert_int_equal(queue_stats(&r).pending_bytes, 0);
		}
		close_rig(&r);
	}
}

static void cancelling_what_has_landed_is_a_release(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		open_three(&r, device, NULL);
		int64_t ticket = defer_all(&r, 1);
		OK(zcc_offload_wait(r.queue, ticket, &fault));
		OK(zcc_offload_cancel(r.queue, ticket, &fault));
		assert_int_equal(queue_stats(&r).held_bytes, 0);
		OK(zcc_offload_wait(r.queue, ticket, &fault));
		assert_int_equal(zcc_offload_cancel(r.queue, ticket, &fault), ZCC_ESTALE);
		assert_int_equal(zcc_offload_release(r.queue, ticket, &fault), ZCC_ESTALE);
		close_rig(&r);
	}
}

static void a_queue_closes_with_work_in_every_state(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		for (int round = 0; round < 6; round++) {
			zcc_offload_options options = usual_options();
			options.chunk_bytes = 1000;
			options.slots = round >= 3 ? 2 : 0;
			rig r;
			open_three(&r, device, &options);
			write_late(&r, 0, 2);
			int64_t ticket;
			OK(try_defer(&r, 1, 0, 3, r.trainer, &ticket));
			if (round % 3 > 0)
				OK(zcc_offload_flush(r.queue, &fault));
			if (round % 3 > 1)
				zcc_offload_wait(r.queue, ticket, NULL);
			close_rig(&r);
		}
	}
}

static void what_no_call_may_bring_is_refused(void **state)
{
	(void)state;
	rig r;
	open_three(&r, "host", NULL);
	zcc_offload_options options = usual_options();
	zcc_offload *queue = NULL;
	options.chunk_bytes = -1;
	assert_int_equal(zcc_offload_create(r.device, r.pool, &options, &queue, &fault), ZCC_EINVAL);
	options = usual_options();
	options.slots = 5000;
	assert_int_equal(zcc_offload_create(r.device, r.pool, &options, &queue, &fault), ZCC_EINVAL);
	assert_says(&fault, "5000 slots, 0 to 4096 are allowed");
	options = usual_options();
	options.busy = 7;
	assert_int_equal(zcc_offload_create(r.device, r.pool, &options, &queue, &fault), ZCC_EINVAL);
	options = usual_options();
	options.memory = 2;
	assert_int_equal(zcc_offload_create(r.device, r.pool, &options, &queue, &fault), ZCC_EINVAL);
	options = usual_options();
	options.struct_bytes = 8;
	assert_int_equal(zcc_offload_create(r.device, r.pool, &options, &queue, &fault), ZCC_EINVAL);
	zcc_device *other;
	OK(zcc_device_open("late:host", &other, &fault));
	assert_int_equal(zcc_offload_create(other, r.pool, NULL, &queue, &fault), ZCC_EINVAL);
	assert_says(&fault, "the pool pins for device host, the work is on late:host,lazy");
	zcc_device_close(other);
	assert_int_equal(zcc_offload_create(NULL, r.pool, NULL, &queue, &fault), ZCC_EINVAL);
	assert_int_equal(zcc_offload_create(r.device, NULL, NULL, &queue, &fault), ZCC_EINVAL);
	assert_null(queue);

	int64_t handle = -7, ticket = -7;
	assert_int_equal(zcc_offload_register(r.queue, "", r.data[0], 1, &handle, &fault), ZCC_EINVAL);
	assert_int_equal(zcc_offload_register(r.queue, NULL, r.data[0], 1, &handle, &fault), ZCC_EINVAL);
	assert_int_equal(zcc_offload_register(r.queue, "x", r.data[0], -1, &handle, &fault), ZCC_EINVAL);
	assert_int_equal(zcc_offload_register(r.queue, "x", NULL, 1, &handle, &fault), ZCC_EINVAL);
	assert_int_equal(handle, -7);
	const zcc_offload_region bad[] = {
	        {.handle = 0, .bytes = 1},
	        {.handle = -1, .bytes = 1},
	        {.handle = INT64_MAX, .bytes = 1},
	        {.handle = INT64_MIN, .bytes = 1},
	        {.handle = r.handle[0] + ((int64_t)1 << 24), .bytes = 1},
	        {.handle = r.handle[2] + 1, .bytes = 1},
	        {.handle = r.handle[0], .offset_bytes = -1, .bytes = 1},
	        {.handle = r.handle[0], .offset_bytes = 100001, .bytes = -1},
	        {.handle = r.handle[0], .offset_bytes = 1, .bytes = 100000},
	        {.handle = r.handle[0], .offset_bytes = INT64_MAX, .bytes = INT64_MAX},
	        {.handle = r.handle[0], .offset_bytes = INT64_MIN, .bytes = INT64_MIN},
	        {.handle = r.handle[0], .bytes = -2},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		zcc_offload_region regions[2] = {{.handle = r.handle[1], .bytes = 10}, bad[i]};
		assert_int_equal(zcc_offload_defer(r.queue, 1, regions, 2, NULL, &ticket, &fault), ZCC_EINVAL);
	}
	assert_says(&fault, "region 1: -2 bytes at 0 of buffer 'layer.0.weight', which has 100000");
	assert_int_equal(zcc_offload_defer(r.queue, 1, NULL, 1, NULL, &ticket, &fault), ZCC_EINVAL);
	assert_int_equal(zcc_offload_defer(r.queue, 1, bad, -1, NULL, &ticket, &fault), ZCC_EINVAL);
	assert_int_equal(zcc_offload_defer(r.queue, 1, bad, INT64_MAX, NULL, &ticket, &fault), ZCC_ENOMEM);
	assert_int_equal(ticket, -7);
	const double fractions[] = {0, -1, 1.0001, NAN, INFINITY, -INFINITY};
	for (int i = 0; i < 6; i++)
		assert_int_equal(zcc_offload_flush_fraction(r.queue, fractions[i], &fault), ZCC_EINVAL);
	assert_int_equal(queue_stats(&r).tickets, 0);
	close_rig(&r);
}

/* One snapshot from nothing to nothing; the first fault. */
static zcc_status run_snapshot(zcc_device *device, zcc_pool *pool, void *data, int check)
{
	zcc_offload_options options = usual_options();
	options.check = check;
	options.slots = check;
	zcc_offload *queue = NULL;
	int64_t handle, ticket;
	zcc_status status = zcc_offload_create(device, pool, &options, &queue, &fault);
	if (status == ZCC_OK)
		status = zcc_offload_register(queue, "weight", data, 4000, &handle, &fault);
	zcc_offload_region region = {.handle = status == ZCC_OK ? handle : 0, .bytes = -1};
	if (status == ZCC_OK)
		status = zcc_offload_defer(queue, 1, &region, 1, NULL, &ticket, &fault);
	if (status == ZCC_OK)
		status = zcc_offload_wait(queue, ticket, &fault);
	zcc_offload_close(queue);
	return status;
}

/* No byte of such a buffer is ever read: there is no memory for it on the host. */
static void sums_of_bytes_do_not_overflow(void **state)
{
	(void)state;
	rig r;
	open_rig(&r, "host", NULL);
	int64_t handle, ticket, second = -7;
	OK(zcc_offload_register(r.queue, "huge", &r, INT64_MAX, &handle, &fault));
	zcc_offload_region region = {.handle = handle, .bytes = -1};
	OK(zcc_offload_defer(r.queue, 1, &region, 1, NULL, &ticket, &fault));
	assert_int_equal(zcc_offload_defer(r.queue, 1, &region, 1, NULL, &second, &fault), ZCC_EOVERFLOW);
	assert_says(&fault, "9223372036854775807 bytes after the 9223372036854775807");
	assert_int_equal(second, -7);
	OK(zcc_offload_flush_fraction(r.queue, 1, &fault));
	assert_int_equal(zcc_offload_wait(r.queue, ticket, &fault), ZCC_ENOMEM);
	close_rig(&r);
}

static void any_allocation_may_fail(void **state)
{
	(void)state;
	rig r;
	open_three(&r, "host", NULL);
	for (int check = 0; check < 2; check++) {
		int64_t failed = 0;
		for (int64_t n = 1;; n++) {
			zcci_fail_alloc(n);
			zcc_status status = run_snapshot(r.device, r.pool, r.data[0], check);
			bool hit = zcci_fail_alloc_hit();
			zcci_fail_alloc(0);
			if (!hit) {
				assert_int_equal(status, ZCC_OK);
				break;
			}
			if (status != ZCC_ENOMEM)
				fail_msg("allocation %lld: %s %s", (long long)n, zcc_status_name(status),
				         fault.message);
			failed++;
		}
		assert_true(failed >= 6);
	}
	close_rig(&r);
}

/* Last: the signal stays noted. */
static void a_wait_gives_way_to_a_signal_and_the_queue_still_closes(void **state)
{
	(void)state;
	rig rigs[4];
	zcc_offload_options options = usual_options();
	options.slots = 1;
	options.consumer = 1;
	zcc_interrupt_watch();
	FOR_EACH_DEVICE(device)
	open_three(&rigs[device_i], device, &options);
	for (int i = 0; i < 4; i++) {
		/* Nobody releases, so nothing but the signal ends this. */
		rig *r = &rigs[i];
		int64_t ticket = defer_all(r, 1);
		/* Not flushed: the queue's thread meets the signal too, and a ticket's fault is told once. */
		raise(SIGINT);
		assert_int_equal(zcc_offload_wait(r->queue, ticket, &fault), ZCC_EINTR);
		assert_int_equal(fault.code, SIGINT);
		assert_int_equal(zcc_offload_fence(r->queue, &fault), ZCC_EINTR);
	}
	for (int i = 0; i < 4; i++) {
		rig *r = &rigs[i];
		zcc_offload_close(r->queue);
		zcc_stream_destroy(r->trainer);
		zcc_pinned_free(r->device, r->staging);
		for (int32_t k = 0; k < r->n_buffers; k++)
			zcc_device_free(r->device, r->data[k]);
		assert_int_equal(pool_stats(r).in_use_bytes, 0);
		zcc_pool_destroy(r->pool);
		zcc_device_close(r->device);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_buffer_reallocated_between_defer_and_flush_is_named),
	        cmocka_unit_test(a_wait_that_flushes_names_a_reallocated_buffer_too),
	        cmocka_unit_test(a_fence_tells_of_all_tickets_that_failed_at_once),
	        cmocka_unit_test(a_cancelled_ticket_is_no_fault_of_a_fence),
	        cmocka_unit_test(a_buffer_that_goes_in_mid_snapshot_is_named_and_not_read),
	        cmocka_unit_test(a_fault_of_the_device_reaches_the_fence_once_with_the_buffers_name),
	        cmocka_unit_test(a_write_between_defer_and_flush_is_found_in_checking_mode),
	        cmocka_unit_test(a_write_after_the_copy_and_before_the_fence_is_found_in_checking_mode),
	        cmocka_unit_test(cancelling_gives_back_everything_whenever_it_comes),
	        cmocka_unit_test(cancelling_what_has_landed_is_a_release),
	        cmocka_unit_test(a_queue_closes_with_work_in_every_state),
	        cmocka_unit_test(what_no_call_may_bring_is_refused),
	        cmocka_unit_test(sums_of_bytes_do_not_overflow),
	        cmocka_unit_test(any_allocation_may_fail),
	        cmocka_unit_test(a_wait_gives_way_to_a_signal_and_the_queue_still_closes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
