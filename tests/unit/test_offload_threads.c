/* Trainers, consumers and allocators at the offload queue at once. Checks are counted in the threads and made in the
 * main one. */
#include <pthread.h>
#include <stdatomic.h>

#include "offload_rig.h"

/* ---- a consumer that releases while the trainer waits ---- */

typedef struct consumer {
	rig *r;
	int64_t n_tickets;
	int64_t wrong;
	int64_t regions;
	zcc_status status;
} consumer;

static void *consume(void *argument)
{
	consumer *c = argument;
	for (int64_t ticket = 1; ticket <= c->n_tickets && c->status == ZCC_OK;) {
		zcc_offload_landed landed;
		zcc_status status = zcc_offload_next(c->r->queue, ticket, &landed, NULL);
		if (status == ZCC_EINVAL)
			continue; /* not deferred yet */
		if (status == ZCC_OK && landed.index >= 0) {
			c->regions++;
			c->wrong += count_wrong(&landed, (int32_t)landed.index, ticket);
			status = zcc_offload_release_region(c->r->queue, ticket, landed.index, NULL);
		} else if (status == ZCC_OK) {
			status = zcc_offload_release(c->r->queue, ticket, NULL);
			ticket++;
		}
		c->status = status;
	}
	return NULL;
}

static void a_fence_waits_for_the_consumer_that_has_the_slots(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.slots = 3;
		options.consumer = 1;
		options.chunk_bytes = 3000;
		rig r;
		open_rig(&r, device, &options);
		for (int i = 0; i < 20; i++)
			add_buffer(&r, 500 * i);
		consumer c = {.r = &r, .n_tickets = 15};
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, consume, &c), 0);
		for (int64_t step = 1; step <= 15; step++) {
			write_step(&r, step);
			int64_t ticket = defer_all(&r, step);
			assert_int_equal(ticket, step);
			if (step % 3 > 0)
				OK(zcc_offload_flush_fraction(r.queue, 0.4, &fault));
			if (step % 2 > 0)
				OK(zcc_offload_wait(r.queue, ticket, &fault));
			else
				OK(zcc_offload_fence(r.queue, &fault));
		}
		pthread_join(thread, NULL);
		assert_int_equal(c.status, ZCC_OK);
		assert_int_equal(c.wrong, 0);
		assert_int_equal(c.regions, 15 * 20);
		assert_int_equal(queue_stats(&r).held_bytes, 0);
		close_rig(&r);
	}
}

/* ---- many trainers of one queue ---- */

enum { N_TRAINERS = 4, ROUNDS = 60 };

typedef struct trainer {
	rig *r;
	int32_t buffer;
	int64_t wrong;
	int64_t last_ticket;
	zcc_status status;
	char message[1024];
} trainer;

static zcc_status train(trainer *t, int64_t round)
{
	zcc_error error = {0};
	rig *r = t->r;
	int64_t ticket = t->last_ticket + 1;
	zcc_offload_landed landed;
	zcc_offload_region region = {.handle = r->handle[t->buffer], .bytes = -1};
	zcc_status status = zcc_offload_defer(r->queue, 1, &region, 1, NULL, &ticket, &error);
	if (status == ZCC_OK && round % 3 == 0)
		status = zcc_offload_flush(r->queue, &error);
	if (status == ZCC_OK && round % 3 == 1)
		status = zcc_offload_flush_fraction(r->queue, 0.1, &error);
	if (status == ZCC_OK && round % 5 == 4) {
		status = zcc_offload_cancel(r->queue, ticket, &error);
	} else if (status == ZCC_OK) {
		status = round % 2 == 0 ? zcc_offload_wait(r->queue, ticket, &error)
		                        : zcc_offload_fence(r->queue, &error);
		if (status == ZCC_OK)
			status = zcc_offload_get(r->queue, ticket, 0, &landed, &error);
		if (status == ZCC_OK)
			t->wrong += count_wrong(&landed, t->buffer, 1);
		if (status == ZCC_OK)
			status = zcc_offload_release(r->queue, ticket, &error);
	}
	t->wrong += ticket <= t->last_ticket;
	t->last_ticket = ticket;
	if (status == ZCC_OK && round % 7 == 6)
		status = zcc_offload_register(r->queue, t->buffer == 0 ? "layer.0.weight" : "other", r->data[t->buffer],
		                              r->bytes[t->buffer], &r->handle[t->buffer], &error);
	if (status != ZCC_OK)
		memcpy(t->message, error.message, sizeof t->message);
	return status;
}

static void *run_trainer(void *argument)
{
	trainer *t = argument;
	for (int64_t round = 0; round < ROUNDS && t->status == ZCC_OK; round++)
		t->status = train(t, round);
	return NULL;
}

static void several_threads_defer_wait_cancel_and_register_at_once(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.chunk_bytes = 20000;
		rig r;
		open_rig(&r, device, &options);
		for (int i = 0; i < N_TRAINERS; i++)
			add_buffer(&r, 70000);
		write_step(&r, 1);
		trainer trainers[N_TRAINERS];
		pthread_t threads[N_TRAINERS];
		for (int i = 0; i < N_TRAINERS; i++) {
			trainers[i] = (trainer){.r = &r, .buffer = i};
			assert_int_equal(pthread_create(&threads[i], NULL, run_trainer, &trainers[i]), 0);
		}
		for (int i = 0; i < N_TRAINERS; i++)
			pthread_join(threads[i], NULL);
		for (int i = 0; i < N_TRAINERS; i++) {
			/* All but the first share one name, and make each other's handles stale; a fence tells anybody.
			 */
			if (trainers[i].status != ZCC_OK &&
			    (trainers[i].status != ZCC_ESTALE || strstr(trainers[i].message, "'other'") == NULL))
				fail_msg("trainer %d: %s", i, trainers[i].message);
			assert_int_equal(trainers[i].wrong, 0);
		}
		close_rig(&r);
	}
}

/* ---- one ticket, cancelled and released by several at once ---- */

enum { N_CANCELLERS = 4 };

typedef struct canceller {
	rig *r;
	int64_t ticket;
	zcc_status status;
} canceller;

static void *cancel(void *argument)
{
	canceller *c = argument;
	c->status = zcc_offload_cancel(c->r->queue, c->ticket, NULL);
	return NULL;
}

static void *release(void *argument)
{
	canceller *c = argument;
	do
		c->status = zcc_offload_release(c->r->queue, c->ticket, NULL);
	while (c->status == ZCC_EBUSY);
	return NULL;
}

static void a_ticket_that_several_threads_give_back_goes_once(void **state)
{
	(void)state;
	zcc_offload_options options = usual_options();
	options.chunk_bytes = 0;
	rig r;
	open_rig(&r, "host", &options);
	/* Long enough for all to find its one chunk in flight. */
	add_buffer(&r, 8 << 20);
	for (int64_t round = 1; round <= 40; round++) {
		int64_t kept = defer_all(&r, round), ticket = defer_all(&r, round);
		OK(zcc_offload_wait(r.queue, kept, &fault));
		OK(zcc_offload_flush(r.queue, &fault));
		canceller all[N_CANCELLERS];
		pthread_t threads[N_CANCELLERS];
		int n_done = 0;
		for (int i = 0; i < N_CANCELLERS; i++) {
			all[i] = (canceller){.r = &r, .ticket = ticket};
			assert_int_equal(pthread_create(&threads[i], NULL, i == 0 ? release : cancel, &all[i]), 0);
		}
		for (int i = 0; i < N_CANCELLERS; i++) {
			pthread_join(threads[i], NULL);
			n_done += all[i].status == ZCC_OK;
			assert_true(all[i].status == ZCC_OK || all[i].status == ZCC_ESTALE);
		}
		assert_int_equal(n_done, 1);
		OK(zcc_offload_release(r.queue, kept, &fault));
	}
	assert_int_equal(queue_stats(&r).held_bytes, 0);
	close_rig(&r);
}

/* ---- snapshots of two threads ---- */

typedef struct saver {
	rig *r;
	int64_t first_snapshot;
	int64_t wrong;
	zcc_status status;
} saver;

static void *save(void *argument)
{
	saver *s = argument;
	for (int64_t i = 0; i < ROUNDS && s->status == ZCC_OK; i++) {
		int64_t ticket;
		zcc_offload_landed landed;
		zcc_offload_region regions[2] = {{.handle = s->r->handle[0], .bytes = -1},
		                                 {.handle = s->r->handle[1], .bytes = -1}};
		s->status = zcc_offload_defer(s->r->queue, s->first_snapshot + 2 * i, regions, 2, NULL, &ticket, NULL);
		for (int k = 0; s->status == ZCC_OK && k < 2; k++) {
			s->status = zcc_offload_next(s->r->queue, ticket, &landed, NULL);
			s->wrong += s->status == ZCC_OK &&
			            (landed.snapshot != s->first_snapshot + 2 * i || count_wrong(&landed, k, 1) > 0);
		}
		if (s->status == ZCC_OK)
			s->status = zcc_offload_wait(s->r->queue, ticket, NULL);
		if (s->status == ZCC_OK)
			s->status = zcc_offload_release(s->r->queue, ticket, NULL);
	}
	return NULL;
}

static void snapshots_of_two_threads_take_turns(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		rig r;
		open_rig(&r, device, NULL);
		add_buffer(&r, 30000);
		add_buffer(&r, 10000);
		write_step(&r, 1);
		saver savers[2] = {{.r = &r, .first_snapshot = 0}, {.r = &r, .first_snapshot = 1}};
		pthread_t threads[2];
		for (int i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, save, &savers[i]), 0);
		for (int i = 0; i < 2; i++)
			pthread_join(threads[i], NULL);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(savers[i].status, ZCC_OK);
			assert_int_equal(savers[i].wrong, 0);
		}
		close_rig(&r);
	}
}

/* ---- buffers come and go under the copies ---- */

static void buffers_are_freed_and_made_anew_under_running_copies(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_offload_options options = usual_options();
		options.chunk_bytes = 4096;
		rig r;
		open_rig(&r, device, &options);
		for (int i = 0; i < 4; i++)
			add_buffer(&r, 50000);
		for (int64_t round = 1; round <= 40; round++) {
			write_step(&r, round);
			int64_t ticket = defer_all(&r, round);
			OK(zcc_offload_flush_fraction(r.queue, (double)(1 + draw(4)) / 4, &fault));
			int32_t gone = (int32_t)draw(5);
			if (gone < 4) {
				void *old = r.data[gone];
				OK(zcc_offload_unregister(r.queue, r.handle[gone], &fault));
				zcc_device_free(r.device, old);
				OK(zcc_device_malloc(r.device, 50000, (void **)&r.data[gone], &fault));
				OK(zcc_offload_register(r.queue, buffer_name(gone), r.data[gone], 50000,
				                        &r.handle[gone], &fault));
			}
			zcc_status status = zcc_offload_wait(r.queue, ticket, &fault);
			if (status == ZCC_OK) {
				assert_landed(&r, ticket, round);
			} else {
				assert_int_equal(status, ZCC_ESTALE);
				assert_says(&fault, buffer_name(gone));
			}
			OK(zcc_offload_release(r.queue, ticket, &fault));
		}
		close_rig(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_fence_waits_for_the_consumer_that_has_the_slots),
	        cmocka_unit_test(several_threads_defer_wait_cancel_and_register_at_once),
	        cmocka_unit_test(a_ticket_that_several_threads_give_back_goes_once),
	        cmocka_unit_test(snapshots_of_two_threads_take_turns),
	        cmocka_unit_test(buffers_are_freed_and_made_anew_under_running_copies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
