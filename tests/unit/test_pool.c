/* The pool of pinned memory. What is locked is counted by the kernel (VmLck), not by the pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "zcc/pool.h"

/* Small enough for the 8 MiB that others than root may lock. */
enum { PAGE = 4096, UNIT = 1 << 16, MIB = 1 << 20 };

static zcc_device *device;

static int open_device(void **state)
{
	(void)state;
	return zcc_device_open("host", &device, NULL);
}

static int close_device(void **state)
{
	(void)state;
	zcc_device_close(device);
	return 0;
}

/* Bytes that this process has locked, from /proc. */
static int64_t locked(void)
{
	long long kib = -1;
	char line[256];
	FILE *file = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "VmLck: %lld kB", &kib) == 1)
			break;
	fclose(file);
	return kib * 1024;
}

static zcc_pool *pool_of(int64_t cap_bytes)
{
	zcc_pool_options options;
	zcc_pool_options_init(&options);
	options.cap_bytes = cap_bytes;
	zcc_pool *pool = NULL;
	assert_int_equal(zcc_pool_create(device, &options, &pool, NULL), ZCC_OK);
	return pool;
}

static void *take(zcc_pool *pool, int64_t bytes)
{
	void *data = NULL;
	zcc_error error = {0};
	if (zcc_pool_take(pool, bytes, 0, &data, &error) != ZCC_OK)
		fail_msg("take of %lld: %s", (long long)bytes, error.message);
	assert_int_equal((uintptr_t)data % 256, 0);
	return data;
}

static void give(zcc_pool *pool, void *data)
{
	assert_int_equal(zcc_pool_give(pool, data, NULL), ZCC_OK);
}

static zcc_pool_stats stats_of(zcc_pool *pool)
{
	zcc_pool_stats stats;
	zcc_pool_get_stats(pool, &stats);
	return stats;
}

static int32_t place_of(const void *data)
{
	int32_t place = 0;
	assert_int_equal(zcc_device_place(device, data, &place, NULL), ZCC_OK);
	return place;
}

static void a_buffer_is_as_large_as_asked_for_in_whole_pages(void **state)
{
	(void)state;
	const int64_t sizes[] = {0, 1, PAGE - 1, PAGE, PAGE + 1, 5 * UNIT, 33 * UNIT + 1, 5 * MIB};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		zcc_pool *pool = pool_of(-1);
		int64_t base = locked();
		char *data = take(pool, sizes[i]);
		int64_t pages = (sizes[i] + PAGE - 1) / PAGE * PAGE;
		if (pages == 0)
			pages = PAGE;
		assert_int_equal(locked() - base, pages);
		assert_int_equal(stats_of(pool).pinned_bytes, pages);
		assert_int_equal(stats_of(pool).in_use_bytes, pages);
		assert_int_equal(place_of(data), ZCC_AT_PINNED);
		if (sizes[i] > 0)
			memset(data, 0xAA, (size_t)sizes[i]);
		give(pool, data);
		zcc_pool_destroy(pool);
		assert_int_equal(locked(), base);
	}
}

static void a_kept_buffer_serves_what_wastes_at_most_an_eighth(void **state)
{
	(void)state;
	zcc_pool *pool = pool_of(-1);
	/* As much in use at once as the rest of the test keeps. */
	void *first = take(pool, 9 * UNIT), *second = take(pool, 32 * UNIT);
	give(pool, second);
	give(pool, first);
	void *data = take(pool, 8 * UNIT);
	assert_ptr_equal(data, first);
	assert_int_equal(stats_of(pool).hits, 1);
	assert_int_equal(stats_of(pool).in_use_bytes, 9 * UNIT);
	give(pool, data);
	data = take(pool, 8 * UNIT - PAGE);
	assert_ptr_not_equal(data, first);
	assert_int_equal(stats_of(pool).hits, 1);
	assert_int_equal(stats_of(pool).in_use_bytes, 8 * UNIT - PAGE);
	give(pool, data);
	zcc_pool_destroy(pool);
}

static void the_best_of_the_buffers_that_fit_is_taken(void **state)
{
	(void)state;
	zcc_pool *pool = pool_of(-1);
	void *kept[4];
	const int64_t pages[] = {90, 84, 88, 79};
	for (int i = 0; i < 4; i++)
		kept[i] = take(pool, pages[i] * PAGE);
	for (int i = 0; i < 4; i++)
		give(pool, kept[i]);
	assert_ptr_equal(take(pool, 80 * PAGE), kept[1]);
	assert_ptr_equal(take(pool, 80 * PAGE), kept[2]);
	assert_ptr_equal(take(pool, 80 * PAGE), kept[0]);
	give(pool, kept[0]);
	give(pool, kept[1]);
	give(pool, kept[2]);
	zcc_pool_destroy(pool);
}

static void assert_names(const zcc_error *error, const char *part)
{
	if (strstr(error->message, part) == NULL)
		fail_msg("\"%s\" is not in: %s", part, error->message);
}

/* CASES A10: sized for four buckets, used with six, then with two. */
static void beyond_the_cap_is_an_error_with_the_numbers_before_any_byte_moves(void **state)
{
	(void)state;
	zcc_pool *pool = pool_of(4 * UNIT);
	void *buckets[6];
	for (int i = 0; i < 4; i++)
		buckets[i] = take(pool, UNIT);
	zcc_error error = {0};
	void *untouched = &error;
	assert_int_equal(zcc_pool_take(pool, UNIT - 5, 0, &untouched, &error), ZCC_ENOMEM);
	assert_ptr_equal(untouched, &error);
	assert_names(&error, "65531 bytes asked");
	assert_names(&error, "262144 in use");
	assert_names(&error, "a cap of 262144");
	assert_names(&error, "memlock limit");
	assert_names(&error, "host");
	/* By choice it grows, unpinned. */
	for (int i = 4; i < 6; i++) {
		assert_int_equal(zcc_pool_take(pool, UNIT, ZCC_POOL_OR_UNPINNED, &buckets[i], &error), ZCC_OK);
		assert_int_equal(place_of(buckets[i]), ZCC_AT_PAGEABLE);
	}
	assert_int_equal(stats_of(pool).unpinned_takes, 2);
	assert_int_equal(stats_of(pool).unpinned_bytes, 2 * UNIT);
	for (int i = 0; i < 6; i++) {
		memset(buckets[i], i, UNIT);
		give(pool, buckets[i]);
	}
	assert_int_equal(stats_of(pool).unpinned_bytes, 0);
	assert_int_equal(stats_of(pool).unpinned_peak_bytes, 2 * UNIT);
	int64_t hits = stats_of(pool).hits;
	for (int i = 0; i < 2; i++)
		buckets[i] = take(pool, UNIT);
	assert_int_equal(stats_of(pool).hits - hits, 2);
	assert_int_equal(stats_of(pool).in_use_bytes, 2 * UNIT);
	assert_int_equal(stats_of(pool).pinned_bytes, 4 * UNIT);
	give(pool, buckets[0]);
	give(pool, buckets[1]);
	zcc_pool_destroy(pool);
}

static void kept_buffers_make_room_under_the_cap_longest_kept_first(void **state)
{
	(void)state;
	zcc_pool *pool = pool_of(10 * UNIT);
	void *old = take(pool, 5 * UNIT), *young = take(pool, 4 * UNIT);
	give(pool, old);
	give(pool, young);
	int64_t base = locked();
	void *data = take(pool, 2 * UNIT);
	assert_int_equal(locked() - base, (2 - 5) * UNIT);
	void *again = take(pool, 4 * UNIT);
	assert_ptr_equal(again, young);
	/* Exactly the cap. */
	void *rest = take(pool, 4 * UNIT);
	assert_int_equal(stats_of(pool).pinned_bytes, 10 * UNIT);
	give(pool, data);
	give(pool, again);
	give(pool, rest);
	zcc_pool_destroy(pool);
}

static void a_cap_of_zero_pins_nothing(void **state)
{
	(void)state;
	zcc_pool *pool = pool_of(0);
	int64_t base = locked();
	void *data = NULL;
	assert_int_equal(zcc_pool_take(pool, 1, 0, &data, NULL), ZCC_ENOMEM);
	assert_int_equal(zcc_pool_take(pool, UNIT, ZCC_POOL_OR_UNPINNED, &data, NULL), ZCC_OK);
	assert_int_equal(locked(), base);
	give(pool, data);
	zcc_pool_destroy(pool);
}

static void trim_returns_what_is_kept_to_the_system(void **state)
{
	(void)state;
	zcc_pool *pool = pool_of(-1);
	int64_t base = locked();
	void *a = take(pool, 3 * UNIT), *b = take(pool, 2 * UNIT);
	give(pool, a);
	assert_int_equal(locked() - base, 5 * UNIT);
	int64_t freed = -1;
	zcc_pool_trim(pool, &freed);
	assert_int_equal(freed, 3 * UNIT);
	assert_int_equal(locked() - base, 2 * UNIT);
	assert_int_equal(stats_of(pool).pinned_bytes, 2 * UNIT);
	give(pool, b);
	zcc_pool_trim(pool, NULL);
	assert_int_equal(locked(), base);
	assert_int_equal(stats_of(pool).pinned_bytes, 0);
	assert_int_equal(stats_of(pool).peak_bytes, 5 * UNIT);
	zcc_pool_destroy(pool);
}

static unsigned seed_of(void)
{
	const char *given = getenv("ZCC_SEED");
	unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)zcc_clock_ns();
	printf("ZCC_SEED=%u\n", seed);
	return seed;
}

static void nothing_grows_over_ten_thousand_uses(void **state)
{
	(void)state;
	unsigned seed = seed_of();
	zcc_pool *pool = pool_of(-1);
	int64_t base = locked(), most = 0, in_use = 0;
	struct {
		void *data;
		int64_t bytes;
	} held[8] = {{0}};
	for (int i = 0; i < 10000; i++) {
		int at = rand_r(&seed) % 8;
		in_use -= held[at].bytes;
		give(pool, held[at].data);
		held[at].data = NULL;
		held[at].bytes = 0;
		if (rand_r(&seed) % 4 == 0)
			continue;
		int64_t pages = 1 + rand_r(&seed) % 64;
		held[at].data = take(pool, pages * PAGE - rand_r(&seed) % PAGE);
		/* What may be wasted is in use. */
		held[at].bytes = (pages + pages / 8) * PAGE;
		in_use += held[at].bytes;
		if (most < in_use)
			most = in_use;
		assert_true(locked() - base <= most);
		assert_int_equal(locked() - base, stats_of(pool).pinned_bytes);
		assert_true(stats_of(pool).pinned_bytes <= stats_of(pool).peak_bytes);
	}
	for (int at = 0; at < 8; at++)
		give(pool, held[at].data);
	zcc_pool_trim(pool, NULL);
	assert_int_equal(locked(), base);
	assert_int_equal(stats_of(pool).in_use_bytes, 0);
	zcc_pool_destroy(pool);
}

static int descending(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x < y) - (x > y);
}

/* CASES A11. */
static void tensors_through_a_queue_of_four_pin_no_more_than_the_four_largest(void **state)
{
	(void)state;
	enum { N = 631, QUEUE = 4 };
	unsigned seed = seed_of();
	int64_t sizes[N], sorted[N], base = locked();
	for (int i = 0; i < N; i++)
		sorted[i] = sizes[i] = (1 + rand_r(&seed) % 300) * PAGE;
	qsort(sorted, N, sizeof *sorted, descending);
	zcc_pool *pool = pool_of(-1);
	void *queue[QUEUE] = {NULL};
	int64_t most = 0;
	for (int i = 0; i < N; i++) {
		give(pool, queue[i % QUEUE]);
		queue[i % QUEUE] = take(pool, sizes[i]);
		if (most < locked() - base)
			most = locked() - base;
	}
	assert_true(most <= sorted[0] + sorted[1] + sorted[2] + sorted[3]);
	assert_int_equal(stats_of(pool).pinned_peak_bytes, most);
	assert_int_equal(stats_of(pool).takes, N);
	for (int i = 0; i < QUEUE; i++)
		give(pool, queue[i]);
	zcc_pool_trim(pool, NULL);
	assert_int_equal(locked(), base);
	zcc_pool_destroy(pool);
}

static void what_is_not_taken_cannot_be_given(void **state)
{
	(void)state;
	zcc_pool *pool = pool_of(-1), *other = pool_of(-1);
	char *data = take(pool, UNIT);
	zcc_error error = {0};
	assert_int_equal(zcc_pool_give(other, data, &error), ZCC_EINVAL);
	assert_int_equal(zcc_pool_give(pool, data + 1, &error), ZCC_EINVAL);
	assert_int_equal(zcc_pool_give(pool, &error, &error), ZCC_EINVAL);
	give(pool, data);
	assert_int_equal(zcc_pool_give(pool, data, &error), ZCC_EINVAL);
	assert_names(&error, "not taken from this pool");
	assert_int_equal(zcc_pool_give(pool, NULL, &error), ZCC_OK);
	assert_int_equal(stats_of(pool).in_use_bytes, 0);
	zcc_pool_destroy(other);
	zcc_pool_destroy(pool);
	zcc_pool_destroy(NULL);
}

static void arguments_that_no_call_may_bring_are_refused(void **state)
{
	(void)state;
	zcc_pool *pool = NULL;
	zcc_pool_options options;
	zcc_pool_options_init(&options);
	options.cap_bytes = -2;
	assert_int_equal(zcc_pool_create(device, &options, &pool, NULL), ZCC_EINVAL);
	zcc_pool_options_init(&options);
	options.struct_bytes = 8;
	assert_int_equal(zcc_pool_create(device, &options, &pool, NULL), ZCC_EINVAL);
	assert_int_equal(zcc_pool_create(NULL, NULL, &pool, NULL), ZCC_EINVAL);
	assert_null(pool);
	pool = pool_of(-1);
	void *data;
	assert_int_equal(zcc_pool_take(pool, -1, 0, &data, NULL), ZCC_EINVAL);
	assert_int_equal(zcc_pool_take(pool, 1, 2, &data, NULL), ZCC_EINVAL);
	assert_int_equal(zcc_pool_take(pool, INT64_MAX, 0, &data, NULL), ZCC_ENOMEM);
	assert_int_equal(zcc_pool_take(pool, INT64_MAX - PAGE, 0, &data, NULL), ZCC_ENOMEM);
	assert_int_equal(zcc_pool_take(pool, INT64_MAX - PAGE, ZCC_POOL_OR_UNPINNED, &data, NULL), ZCC_ENOMEM);
	assert_int_equal(stats_of(pool).peak_bytes, 0);
	zcc_pool_destroy(pool);
}

/* Sums with what is in use already do not overflow either. */
static void nonsense_is_refused_with_numbers_whatever_is_in_use(void **state)
{
	(void)state;
	zcc_pool *pool = pool_of(-1);
	const int64_t sizes[] = {INT64_MAX, INT64_MAX - PAGE + 1, INT64_MAX - PAGE, INT64_MAX - 2 * PAGE,
	                         INT64_MAX / 2 + 1};
	void *used = take(pool, UNIT), *data = NULL;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		zcc_error error = {0};
		char asked[64];
		snprintf(asked, sizeof asked, "%lld bytes asked of the pinned pool of host: 65536 in use",
		         (long long)sizes[i]);
		assert_int_equal(zcc_pool_take(pool, sizes[i], 0, &data, &error), ZCC_ENOMEM);
		assert_non_null(strstr(error.message, asked));
		assert_int_equal(zcc_pool_take(pool, sizes[i], ZCC_POOL_OR_UNPINNED, &data, &error), ZCC_ENOMEM);
	}
	assert_null(data);
	assert_int_equal(stats_of(pool).in_use_bytes, UNIT);
	assert_int_equal(stats_of(pool).unpinned_bytes, 0);
	give(pool, used);
	zcc_pool_destroy(pool);
}

static void taken_buffers_outlive_the_callers_reference(void **state)
{
	(void)state;
	int64_t base = locked();
	zcc_pool *pool = pool_of(-1);
	char *a = take(pool, UNIT), *b = take(pool, UNIT), *c = take(pool, UNIT);
	give(pool, c);
	zcc_pool_destroy(pool);
	assert_int_equal(locked() - base, 2 * UNIT);
	memset(a, 1, UNIT);
	give(pool, a);
	assert_int_equal(locked() - base, UNIT);
	memset(b, 1, UNIT);
	give(pool, b);
	assert_int_equal(locked(), base);
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	int64_t base = locked();
	bool hit = true;
	for (int64_t n = 1; hit; n++) {
		zcc_pool *pool = NULL;
		void *data = NULL;
		zcc_error error = {0};
		zcci_fail_alloc(n);
		zcc_status status = zcc_pool_create(device, NULL, &pool, &error);
		if (status == ZCC_OK)
			status = zcc_pool_take(pool, UNIT, 0, &data, &error);
		hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
		if (pool != NULL)
			give(pool, data);
		zcc_pool_destroy(pool);
		assert_int_equal(locked(), base);
	}
}

/* CASES C7. Runs in a child that is not root any more; its exit status tells which line was not as it must be. */
static int memlock_child(void)
{
	const struct rlimit limit = {MIB, MIB};
	if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setuid(65534) != 0)
		return 77;
	zcc_pool *pool = NULL;
	void *small = NULL, *data = NULL;
	zcc_error error = {0};
	if (zcc_pool_create(device, NULL, &pool, &error) != ZCC_OK ||
	    zcc_pool_take(pool, MIB / 2, 0, &small, &error) != ZCC_OK)
		return 1;
	if (zcc_pool_take(pool, 8 * MIB, 0, &data, &error) != ZCC_ENOMEM ||
	    strstr(error.message, "8388608 bytes asked") == NULL ||
	    strstr(error.message, "memlock limit 1048576") == NULL || strstr(error.message, "524288 in use") == NULL)
		return 2;
	if (zcc_pool_take(pool, 8 * MIB, ZCC_POOL_OR_UNPINNED, &data, &error) != ZCC_OK ||
	    place_of(data) != ZCC_AT_PAGEABLE)
		return 3;
	memset(data, 0x5A, 8 * MIB);
	zcc_pool_give(pool, data, NULL);
	/* What is kept gives way to what is asked for, though no cap says so. */
	zcc_pool_give(pool, small, NULL);
	if (zcc_pool_take(pool, 3 * MIB / 4, 0, &data, &error) != ZCC_OK || locked() != 3 * MIB / 4)
		return 4;
	zcc_pool_give(pool, data, NULL);
	zcc_pool_destroy(pool);
	return locked() == 0 ? 0 : 5;
}

static void the_systems_limit_is_named_or_fallen_back_from(void **state)
{
	(void)state;
	pid_t child = fork();
	if (child == 0)
		_exit(memlock_child());
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 500, CAP_PAGES = 40 };

typedef struct worker {
	zcc_pool *pool;
	unsigned seed;
	unsigned char mark;
	int refused;
} worker;

static void *work(void *context)
{
	worker *w = context;
	for (int i = 0; i < ROUNDS; i++) {
		int64_t bytes = (1 + rand_r(&w->seed) % 15) * PAGE;
		unsigned char *data = NULL;
		if (zcc_pool_take(w->pool, bytes, 0, (void **)&data, NULL) != ZCC_OK) {
			w->refused++;
			continue;
		}
		memset(data, w->mark, (size_t)bytes);
		if (i % 50 == 0)
			zcc_pool_trim(w->pool, NULL);
		for (int64_t k = 0; k < bytes; k += 97)
			if (data[k] != w->mark)
				return "another thread was given the same bytes";
		if (zcc_pool_give(w->pool, data, NULL) != ZCC_OK)
			return "not given";
	}
	return NULL;
}

static void threads_share_a_pool(void **state)
{
	(void)state;
	unsigned seed = seed_of();
	zcc_pool *pool = pool_of(CAP_PAGES * PAGE);
	pthread_t threads[THREADS];
	worker workers[THREADS];
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (worker){.pool = pool, .seed = seed + (unsigned)i, .mark = (unsigned char)(i + 1)};
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	int64_t refused = 0;
	for (int i = 0; i < THREADS; i++) {
		void *fault = NULL;
		pthread_join(threads[i], &fault);
		if (fault != NULL)
			fail_msg("%s", (const char *)fault);
		refused += workers[i].refused;
	}
	zcc_pool_stats stats = stats_of(pool);
	assert_int_equal(stats.takes, THREADS * ROUNDS - refused);
	assert_int_equal(stats.in_use_bytes, 0);
	assert_true(stats.pinned_peak_bytes <= CAP_PAGES * PAGE);
	zcc_pool_trim(pool, NULL);
	assert_int_equal(stats_of(pool).pinned_bytes, 0);
	zcc_pool_destroy(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_buffer_is_as_large_as_asked_for_in_whole_pages),
	        cmocka_unit_test(a_kept_buffer_serves_what_wastes_at_most_an_eighth),
	        cmocka_unit_test(the_best_of_the_buffers_that_fit_is_taken),
	        cmocka_unit_test(beyond_the_cap_is_an_error_with_the_numbers_before_any_byte_moves),
	        cmocka_unit_test(kept_buffers_make_room_under_the_cap_longest_kept_first),
	        cmocka_unit_test(a_cap_of_zero_pins_nothing),
	        cmocka_unit_test(trim_returns_what_is_kept_to_the_system),
	        cmocka_unit_test(nothing_grows_over_ten_thousand_uses),
	        cmocka_unit_test(tensors_through_a_queue_of_four_pin_no_more_than_the_four_largest),
	        cmocka_unit_test(what_is_not_taken_cannot_be_given),
	        cmocka_unit_test(arguments_that_no_call_may_bring_are_refused),
	        cmocka_unit_test(nonsense_is_refused_with_numbers_whatever_is_in_use),
	        cmocka_unit_test(taken_buffers_outlive_the_callers_reference),
	        cmocka_unit_test(every_allocation_may_fail),
	        cmocka_unit_test(the_systems_limit_is_named_or_fallen_back_from),
	        cmocka_unit_test(threads_share_a_pool),
	};
	return cmocka_run_group_tests(tests, open_device, close_device);
}
