/* Copy-back that cannot: arguments, limits, memory that runs out, signals, two threads; and that nothing is in flight
 * afterwards. */
#include "copyback_rig.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "staging/copyback.h"

enum { S = BUFFER_ELEMS, N = 3 * S + 5 };

static void options_that_no_call_may_bring_are_refused(void **state)
{
	(void)state;
	zcc_device *device = open_device("host");
	zcc_copyback_options options;
	zcc_copyback *copyback = NULL;
	zcc_error error = {0};
#define REFUSED(field, value, part)                                                                                    \
	do {                                                                                                           \
		zcc_copyback_options_init(&options);                                                                   \
		options.field = (value);                                                                               \
		assert_int_equal(zcc_copyback_create(device, &options, &copyback, &error), ZCC_EINVAL);                \
		assert_says(&error, part);                                                                             \
	} while (0)
	REFUSED(struct_bytes, 4, "options of 4 bytes");
	REFUSED(dtype, ZCC_I32, "I32");
	REFUSED(dtype, 99, "none");
	REFUSED(pinning, 2, "pinning is 2");
	REFUSED(pool_flags, 6, "pool flags 0x6");
	REFUSED(buffer_elems, 0, "0 elements");
	REFUSED(buffer_elems, INT64_MAX / 4, "elements");
	assert_int_equal(zcc_copyback_create(NULL, NULL, &copyback, &error), ZCC_EINVAL);
	zcc_device *other = open_device("late:host,lazy");
	zcc_pool *pool = NULL;
	assert_ok(zcc_pool_create(other, NULL, &pool, &error), &error);
	REFUSED(pool, pool, "the pool pins for device late:host,lazy, the work is on host");
	zcc_pool_destroy(pool);
	zcc_device_close(other);
	assert_null(copyback);
	zcc_copyback_destroy(NULL);
	zcc_device_close(device);
}

static void pieces_that_no_call_may_bring_are_refused_before_anything_is_written(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		float *source = masters(N, (unsigned)seed_of_run());
		zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
		char *target = poisoned(device, N * 2), *freed = device_memory(device, 64);
		zcc_device_free(device, freed);
		const struct {
			zcc_copyback_piece piece;
			zcc_status status;
			const char *part;
		} rows[] = {
		        {{target, source, -1}, ZCC_EINVAL, "piece 1 has -1 elements"},
		        {{target, source, INT64_MAX / 2}, ZCC_EOVERFLOW, "piece 1"},
		        {{NULL, source, 5}, ZCC_EINVAL, "piece 1: the target of 5 elements is NULL"},
		        {{target, NULL, 5}, ZCC_EINVAL, "piece 1: the source of 5 elements is NULL"},
		        {{target + 1, source, 5}, ZCC_EINVAL, "piece 1: the target is at"},
		        {{target, (char *)source + 2, 5}, ZCC_EINVAL, "piece 1: the source is at"},
		        {{freed, source, 5}, ZCC_ESTALE, "piece 1: target"},
		        {{target, freed, 5}, ZCC_ESTALE, "piece 1: source"},
		};
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			const zcc_copyback_piece pieces[] = {{target, source, N}, rows[i].piece};
			zcc_error error = {0};
			assert_int_equal(zcc_copyback_run(copyback, pieces, 2, &error), rows[i].status);
			assert_says(&error, rows[i].part);
			assert_int_equal(zcc_copyback_run(copyback, pieces, 2, NULL), rows[i].status);
		}
		zcc_error error = {0};
		assert_int_equal(zcc_copyback_run(copyback, NULL, 1, &error), ZCC_EINVAL);
		assert_int_equal(zcc_copyback_run(copyback, NULL, -1, &error), ZCC_EINVAL);
		assert_int_equal(zcc_copyback_gradients(copyback, NULL, 1, 0, &error), ZCC_EINVAL);
		assert_poisoned(device, target, N * 2, device_name(device_number));
		assert_int_equal(stats_of(copyback).buffer_bytes, 0);
		zcc_device_free(device, target);
		zcc_copyback_destroy(copyback);
		free(source);
	}
}

/* Source and target share bytes: whatever comes out would depend on what is read first. */
static void pieces_that_overlap_themselves_are_refused(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
		float *host = masters(64, (unsigned)seed_of_run());
		char *memory = poisoned(device, 64 * 4);
		char *places[] = {(char *)host, memory};
		for (int i = 0; i < 2; i++) {
			/* 32 elements: 128 bytes of f32, 64 of bf16; the last byte of the one is the first of the
			 * other. */
			const zcc_copyback_piece wrong[] = {{places[i], places[i], 32},
			                                    {places[i] + 124, places[i], 32},
			                                    {places[i], places[i] + 60, 32}};
			for (int k = 0; k < 3; k++) {
				zcc_error error = {0};
				assert_int_equal(zcc_copyback_run(copyback, &wrong[k], 1, &error), ZCC_EINVAL);
				assert_says(&error, "piece 0: its source at ");
				assert_says(&error, "overlap");
			}
			const zcc_copyback_piece right[] = {{places[i] + 128, places[i], 32},
			                                    {places[i], places[i] + 64, 32}};
			zcc_error error = {0};
			assert_ok(zcc_copyback_run(copyback, right, 2, &error), &error);
		}
		zcc_error error = {0};
		const zcc_copyback_piece sum = {host, (char *)host + 124, 32};
		assert_int_equal(zcc_copyback_gradients(copyback, &sum, 1, 1, &error), ZCC_EINVAL);
		assert_says(&error, "overlap");
		zcc_device_free(device, memory);
		zcc_copyback_destroy(copyback);
		free(host);
	}
}

/* Of two pieces, the second one's target ends past its allocation, in the next one: found when it is copied. */
static void a_fault_in_the_middle_leaves_nothing_in_flight(void **state)
{
	(void)state;
	enum { CELLS = 64, CELL = 4096 };
	FOR_EACH_DEVICE(device)
	{
		float *source = masters(2 * CELL, (unsigned)seed_of_run());
		char *cells[CELLS], *low = NULL;
		for (int i = 0; i < CELLS; i++)
			cells[i] = device_memory(device, CELL);
		for (int i = 0; i < CELLS; i++)
			for (int k = 0; k < CELLS; k++)
				if (cells[k] == cells[i] + CELL)
					low = cells[i];
		if (low != NULL) {
			zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
			char *target = poisoned(device, N * 2);
			const zcc_copyback_piece pieces[] = {{target, source, N}, {low, source, CELL}};
			zcc_error error = {0};
			assert_int_equal(zcc_copyback_run(copyback, pieces, 2, &error), ZCC_EINVAL);
			assert_says(&error, "piece 1 of 2");
			/* The first piece has landed though nobody has waited since, and the source may go. */
			memset(source, 0x55, 2 * CELL * 4);
			zcc_copyback_release(copyback, NULL);
			void *got = read_back(device, target, N * 2);
			free(got);
			float *again = masters(2 * CELL, (unsigned)seed_of_run());
			assert_rounded(device, target, ZCC_BF16, again, N, device_name(device_number));
			assert_ok(zcc_copyback_run(copyback, pieces, 1, &error), &error);
			assert_rounded(device, target, ZCC_BF16, source, N, device_name(device_number));
			free(again);
			zcc_device_free(device, target);
			zcc_copyback_destroy(copyback);
		} else {
			print_message("%s: no two allocations side by side\n", device_name(device_number));
		}
		for (int i = 0; i < CELLS; i++)
			zcc_device_free(device, cells[i]);
		free(source);
	}
}

/* The n-th allocation of the calling thread fails, for n from 1 until none does; the same handle then does it right. */
static void every_allocation_may_fail(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		float *source = masters(N, (unsigned)seed_of_run()), *sum = malloc(N * 4);
		for (int row = 0; row < 4; row++) {
			int pinning = row % 2, backward = row / 2;
			bool hit = true;
			for (int64_t n = 1; hit; n++) {
				zcc_copyback *copyback = NULL;
				void *target = poisoned(device, N * 2);
				const zcc_copyback_piece to = {target, source, N}, from = {sum, target, N};
				zcc_copyback_options options;
				zcc_copyback_options_init(&options);
				options.buffer_elems = S;
				options.pinning = pinning;
				zcc_error error = {0};
				zcci_fail_alloc(n);
				zcc_status status = zcc_copyback_create(device, &options, &copyback, &error);
				if (status == ZCC_OK)
					status = backward ? zcc_copyback_gradients(copyback, &from, 1, 1, &error)
					                  : zcc_copyback_run(copyback, &to, 1, &error);
				hit = zcci_fail_alloc_hit();
				zcci_fail_alloc(0);
				assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
				if (copyback != NULL) {
					if (hit)
						assert_ok(zcc_copyback_run(copyback, &to, 1, &error), &error);
					if (hit || !backward)
						assert_rounded(device, target, ZCC_BF16, source, N,
						               device_name(device_number));
				}
				zcc_copyback_destroy(copyback);
				zcc_device_free(device, target);
			}
		}
		free(source);
		free(sum);
	}
}

/* ---- in a child ---- */

static void run_child(int (*child)(void))
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		_exit(child());
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status))
		fail_msg("ended by signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* CASES C7: not root, memlock limit 1 MiB, staging of 8 MiB. */
static int memlock_child(void)
{
	enum { BUFFER = 2 << 20 };
	const struct rlimit limit = {1 << 20, 1 << 20};
	if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setuid(65534) != 0)
		return 77;
	zcc_device *device = open_device("host");
	zcc_error error = {0};
	float *source = masters(3 * S, 1);
	void *target = device_memory(device, 3 * S * 2);
	zcc_copyback_piece piece = {target, source, 3 * S};
	for (int fallback = 0; fallback < 2; fallback++) {
		zcc_copyback_options options;
		zcc_copyback_options_init(&options);
		options.buffer_elems = BUFFER;
		options.pool_flags = fallback ? ZCC_POOL_OR_UNPINNED : 0;
		zcc_copyback *copyback = NULL;
		if (zcc_copyback_create(device, &options, &copyback, &error) != ZCC_OK)
			return 1;
		zcc_status status = zcc_copyback_run(copyback, &piece, 1, &error);
		if (!fallback &&
		    (status != ZCC_ENOMEM || strstr(error.message, "two staging buffers of 4194304 bytes") == NULL ||
		     strstr(error.message, "memlock limit 1048576") == NULL || stats_of(copyback).buffer_bytes != 0))
			return 2;
		if (fallback) {
			if (status != ZCC_OK || stats_of(copyback).unpinned_bytes != 2 * BUFFER * 2)
				return 3;
			assert_rounded(device, target, ZCC_BF16, source, 3 * S, "unpinned");
		}
		zcc_copyback_destroy(copyback);
	}
	zcc_copyback *direct = copyback_of(device, ZCC_BF16, BUFFER, 0);
	if (zcc_copyback_run(direct, &piece, 1, &error) != ZCC_OK || stats_of(direct).direct_pieces != 1)
		return 4;
	assert_rounded(device, target, ZCC_BF16, source, 3 * S, "direct");
	zcc_copyback_destroy(direct);
	zcc_device_free(device, target);
	zcc_device_close(device);
	free(source);
	return 0;
}

static void the_systems_limit_is_named_or_fallen_back_from_with_the_same_bits(void **state)
{
	(void)state;
	run_child(memlock_child);
}

static int signal_child(void)
{
	zcc_device *device = open_device("host");
	zcc_error error = {0};
	float *source = masters(N, 1);
	float sum[N];
	void *target = device_memory(device, N * 2);
	const zcc_copyback_piece to = {target, source, N}, from = {sum, target, N};
	zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
	zcc_interrupt_watch();
	raise(SIGTERM);
	if (zcc_copyback_run(copyback, &to, 1, &error) != ZCC_EINTR || error.code != SIGTERM)
		return 1;
	if (zcc_copyback_gradients(copyback, &from, 1, 1, &error) != ZCC_EINTR)
		return 2;
	zcc_copyback_destroy(copyback);
	zcc_device_free(device, target);
	zcc_device_close(device);
	free(source);
	return 0;
}

static void a_signal_ends_it_between_buffers(void **state)
{
	(void)state;
	run_child(signal_child);
}

/* ---- two users ---- */

static void a_second_user_is_refused_and_the_last_one_frees(void **state)
{
	(void)state;
	zcc_device *device = open_device("host");
	zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
	zcc_error error = {0};
	assert_ok(zcci_copyback_enter(copyback, "test", &error), &error);
	assert_int_equal(zcc_copyback_run(copyback, NULL, 0, &error), ZCC_EBUSY);
	assert_int_equal(zcc_copyback_gradients(copyback, NULL, 0, 0, &error), ZCC_EBUSY);
	assert_int_equal(zcc_copyback_release(copyback, &error), ZCC_EBUSY);
	/* The call that runs keeps it. */
	zcc_copyback_destroy(copyback);
	assert_int_equal(stats_of(copyback).staged_pieces, 0);
	zcci_copyback_leave(copyback, ZCC_OK);
	zcc_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(options_that_no_call_may_bring_are_refused),
	        cmocka_unit_test(pieces_that_no_call_may_bring_are_refused_before_anything_is_written),
	        cmocka_unit_test(pieces_that_overlap_themselves_are_refused),
	        cmocka_unit_test(a_fault_in_the_middle_leaves_nothing_in_flight),
	        cmocka_unit_test(every_allocation_may_fail),
	        cmocka_unit_test(the_systems_limit_is_named_or_fallen_back_from_with_the_same_bits),
	        cmocka_unit_test(a_signal_ends_it_between_buffers),
	        cmocka_unit_test(a_second_user_is_refused_and_the_last_one_frees),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
