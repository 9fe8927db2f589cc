/* The thread pool: every element once, whatever the number of threads, loops at once, and a process that forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/threads.h"

#ifdef __SANITIZE_THREAD__
/* Else it ends a child that starts threads of its own. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}
#endif

static int usual;

static int setup(void **state)
{
	(void)state;
	usual = zcc_threads_get();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return zcc_threads_set(usual, NULL);
}

typedef struct marks {
	_Atomic unsigned char *seen;
	int64_t chunk;
	_Atomic int64_t calls, wrong;
} marks;

static void mark(void *context, int64_t begin, int64_t end)
{
	marks *m = context;
	atomic_fetch_add(&m->calls, 1);
	/* cmocka's checks are for the main thread alone. */
	if (begin % m->chunk != 0 || end <= begin || end - begin > m->chunk)
		atomic_fetch_add(&m->wrong, 1);
	for (int64_t i = begin; i < end; i++)
		atomic_fetch_add(&m->seen[i], 1);
}

static void check(int64_t count, int64_t chunk)
{
	marks m = {.seen = calloc((size_t)count + 1, 1), .chunk = chunk};
	zcci_parallel(count, chunk, mark, &m);
	assert_int_equal(m.calls, count / chunk + (count % chunk > 0));
	assert_int_equal(m.wrong, 0);
	for (int64_t i = 0; i < count; i++)
		assert_int_equal(m.seen[i], 1);
	assert_int_equal(m.seen[count], 0);
	free((void *)m.seen);
}

static void every_element_is_visited_once_in_the_same_chunks_with_any_number_of_threads(void **state)
{
	(void)state;
	const int32_t threads[] = {1, 2, 3, 8, 2};
	for (size_t k = 0; k < 5; k++) {
		assert_int_equal(zcc_threads_set(threads[k], NULL), ZCC_OK);
		assert_int_equal(zcc_threads_get(), threads[k]);
		for (int64_t count = 0; count < 70; count++)
			for (int64_t chunk = 1; chunk < 80; chunk += 1 + chunk / 3)
				check(count, chunk);
		check(100000, 7);
		check(100000, INT64_MAX);
		check(100000, INT64_MAX / 2);
	}
}

/* Chunks that wait for each other end only if several threads run them. */
typedef struct meeting {
	pthread_barrier_t barrier;
	_Atomic int64_t calls;
} meeting;

static void meet(void *context, int64_t begin, int64_t end)
{
	meeting *m = context;
	(void)begin;
	(void)end;
	atomic_fetch_add(&m->calls, 1);
	pthread_barrier_wait(&m->barrier);
}

static void as_many_threads_help_as_are_allowed(void **state)
{
	(void)state;
	assert_int_equal(zcc_threads_set(4, NULL), ZCC_OK);
	for (int i = 0; i < 200; i++) {
		meeting m = {.calls = 0};
		pthread_barrier_init(&m.barrier, NULL, 4);
		zcci_parallel(4, 1, meet, &m);
		assert_int_equal(m.calls, 4);
		pthread_barrier_destroy(&m.barrier);
	}
}

typedef struct witness {
	pthread_t caller;
	_Atomic int64_t elsewhere;
} witness;

static void note_thread(void *context, int64_t begin, int64_t end)
{
	witness *w = context;
	(void)begin;
	(void)end;
	if (!pthread_equal(pthread_self(), w->caller))
		atomic_fetch_add(&w->elsewhere, 1);
	usleep(10);
}

static void one_thread_is_the_calling_one(void **state)
{
	(void)state;
	assert_int_equal(zcc_threads_set(3, NULL), ZCC_OK);
	check(1000, 1);
	assert_int_equal(zcc_threads_set(1, NULL), ZCC_OK);
	witness w = {.caller = pthread_self()};
	zcci_parallel(200, 1, note_thread, &w);
	assert_int_equal(w.elsewhere, 0);
}

static void add_up(void *context, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i++)
		atomic_fetch_add((_Atomic int64_t *)context, i);
}

static void *loops(void *wrong)
{
	for (int i = 0; i < 300; i++) {
		_Atomic int64_t sum = 0;
		zcci_parallel(500, 3, add_up, &sum);
		if (sum != 500 * 499 / 2)
			atomic_fetch_add((_Atomic int *)wrong, 1);
	}
	return NULL;
}

static void several_threads_run_loops_at_once(void **state)
{
	(void)state;
	assert_int_equal(zcc_threads_set(3, NULL), ZCC_OK);
	pthread_t threads[4];
	_Atomic int wrong = 0;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, loops, &wrong);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(wrong, 0);
}

static void a_forked_child_has_a_pool_of_its_own(void **state)
{
	(void)state;
	assert_int_equal(zcc_threads_set(3, NULL), ZCC_OK);
	check(1000, 1);
	pid_t child = fork();
	if (child == 0) {
		alarm(300);
		meeting m = {.calls = 0};
		pthread_barrier_init(&m.barrier, NULL, 3);
		zcci_parallel(3, 1, meet, &m);
		_exit(m.calls == 3 ? 0 : 1);
	}
	int status = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	check(1000, 1);
}

static void a_number_of_threads_out_of_range_is_refused(void **state)
{
	(void)state;
	zcc_error error;
	int32_t before = zcc_threads_get();
	const int32_t bad[] = {0, -1, ZCC_MAX_THREADS + 1};
	for (int i = 0; i < 3; i++)
		assert_int_equal(zcc_threads_set(bad[i], &error), ZCC_EINVAL);
	assert_non_null(strstr(error.message, "257 threads, allowed are 1 to 256"));
	assert_int_equal(zcc_threads_get(), before);
}

/* A process asks its environment once, so another one is needed for each value. */
static void zcc_threads_gives_the_number_at_first(void **state)
{
	(void)state;
	const struct {
		const char *text;
		int wanted; /* 0: the processors of this machine */
	} cases[] = {{"3", 3}, {"256", 256}, {"0", 0}, {"257", 0}, {"many", 0}, {"", 0}, {"2x", 0}};
	for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
		char command[4200], self[4096] = {0};
		assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
		snprintf(command, sizeof command, "ZCC_THREADS='%s' '%s' --print", cases[k].text, self);
		FILE *pipe = popen(command, "r");
		int found = 0;
		assert_int_equal(fscanf(pipe, "%d", &found), 1);
		assert_int_equal(pclose(pipe), 0);
		if (cases[k].wanted != 0)
			assert_int_equal(found, cases[k].wanted);
		else
			assert_true(found >= 1 && found <= sysconf(_SC_NPROCESSORS_ONLN));
	}
}

static void *read_mask(void *mask)
{
	pthread_sigmask(SIG_SETMASK, NULL, mask);
	return NULL;
}

static void threads_are_sent_no_signals_but_their_own_faults(void **state)
{
	(void)state;
	sigset_t before, after, there;
	pthread_t thread;
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	assert_int_equal(zcci_thread_start(&thread, read_mask, &there), 0);
	pthread_join(thread, NULL);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	const int sent[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGALRM, SIGUSR1, SIGPROF};
	for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
		assert_int_equal(sigismember(&there, sent[i]), 1);
		assert_int_equal(sigismember(&after, sent[i]), sigismember(&before, sent[i]));
	}
	const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		assert_int_equal(sigismember(&there, faults[i]), 0);
}

int main(int n, char **arguments)
{
	if (n > 1 && strcmp(arguments[1], "--print") == 0) {
		printf("%d\n", zcc_threads_get());
		return 0;
	}
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_element_is_visited_once_in_the_same_chunks_with_any_number_of_threads),
	        cmocka_unit_test(as_many_threads_help_as_are_allowed),
	        cmocka_unit_test(one_thread_is_the_calling_one),
	        cmocka_unit_test(several_threads_run_loops_at_once),
	        cmocka_unit_test(a_forked_child_has_a_pool_of_its_own),
	        cmocka_unit_test(threads_are_sent_no_signals_but_their_own_faults),
	        cmocka_unit_test(a_number_of_threads_out_of_range_is_refused),
	        cmocka_unit_test(zcc_threads_gives_the_number_at_first),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
