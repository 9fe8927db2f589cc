/* Ranges of the host device's memory: each its own, whatever was taken and given back before. No page is touched, so
 * sizes are large and the search comes round to addresses that were in use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "device/host_memory.h"
#include "device/host_slab.h"

typedef struct taken {
	slab *slab;
	char *window, *real;
	int64_t bytes;
} taken;

static uint64_t state_;

static int64_t draw(int64_t n)
{
	state_ = state_ * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((state_ >> 20) % (uint64_t)n);
}

static void seed(void)
{
	const char *given = getenv("ZCC_SEED");
	state_ = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) % 1000003;
	printf("ZCC_SEED=%llu\n", (unsigned long long)state_);
}

static zcc_status take(taken *t, int64_t bytes)
{
	t->bytes = bytes;
	pthread_mutex_lock(&zcci_host_lock);
	zcc_status status = zcci_slab_take(bytes, &t->slab, &t->window, &t->real, NULL);
	pthread_mutex_unlock(&zcci_host_lock);
	return status;
}

static void give(taken *t)
{
	pthread_mutex_lock(&zcci_host_lock);
	zcci_slab_give(t->slab, t->window);
	pthread_mutex_unlock(&zcci_host_lock);
	t->slab = NULL;
}

static void ranges_that_are_taken_never_meet(void **state)
{
	(void)state;
	enum { N = 24 };
	taken all[N] = {{0}};
	seed();
	for (int round = 0; round < 5000; round++) {
		taken *t = &all[draw(N)];
		if (t->slab != NULL) {
			give(t);
			continue;
		}
		assert_int_equal(take(t, draw(4) == 0 ? draw(10000) : draw((int64_t)9 << 30)), ZCC_OK);
		assert_ptr_equal(zcci_slab_of(t->window), t->slab);
		assert_int_equal((uintptr_t)t->window % 4096, 0);
		assert_int_equal(t->window - t->slab->window, t->real - t->slab->real);
		assert_true(t->window - t->slab->window + t->bytes <= t->slab->bytes);
		for (int i = 0; i < N; i++)
			if (&all[i] != t && all[i].slab != NULL)
				assert_true(t->window + t->bytes <= all[i].window ||
				            all[i].window + all[i].bytes <= t->window);
	}
	for (int i = 0; i < N; i++)
		if (all[i].slab != NULL)
			give(&all[i]);
}

static void an_address_comes_back_after_all_others(void **state)
{
	(void)state;
	taken first, next;
	assert_int_equal(take(&first, 4096), ZCC_OK);
	give(&first);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(take(&next, 4096), ZCC_OK);
		assert_ptr_not_equal(next.window, first.window);
		give(&next);
	}
	/* What was device memory once is known as such. */
	assert_non_null(zcci_slab_of(first.window));
	assert_null(zcci_slab_of(&first));
	assert_null(zcci_slab_of(NULL));
}

static void a_range_larger_than_a_slab_gets_one_of_its_own(void **state)
{
	(void)state;
	taken large;
	assert_int_equal(take(&large, (int64_t)100 << 30), ZCC_OK);
	assert_true(large.slab->bytes >= (int64_t)100 << 30);
	give(&large);
	assert_int_equal(take(&large, INT64_MAX), ZCC_ENOMEM);
	assert_int_equal(take(&large, (int64_t)1 << 60), ZCC_ENOMEM);
}

static void no_memory_for_the_books_is_a_fault_and_takes_nothing(void **state)
{
	(void)state;
	taken all[200];
	int n_failed = 0;
	for (int i = 0; i < 200; i++) {
		zcci_fail_alloc(1);
		zcc_status status = take(&all[i], 1);
		if (zcci_fail_alloc_hit()) {
			assert_int_equal(status, ZCC_ENOMEM);
			n_failed++;
			zcci_fail_alloc(0);
			status = take(&all[i], 1);
		}
		zcci_fail_alloc(0);
		assert_int_equal(status, ZCC_OK);
	}
	assert_true(n_failed > 0);
	for (int i = 0; i < 200; i++)
		give(&all[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ranges_that_are_taken_never_meet),
	        cmocka_unit_test(an_address_comes_back_after_all_others),
	        cmocka_unit_test(a_range_larger_than_a_slab_gets_one_of_its_own),
	        cmocka_unit_test(no_memory_for_the_books_is_a_fault_and_takes_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
