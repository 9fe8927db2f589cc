#include "base/threads.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/spin.h"
#include "base/status.h"

/* One call of zcci_parallel, on its caller's stack. */
typedef struct loop {
	zcci_parallel_body *body;
	void *context;
	int64_t count, chunk, n_chunks;
	_Atomic int64_t next; /* the first chunk that nobody has taken; may run past the last */
	/* Changed under the pool's mutex: how many threads may still join, how many run, and the place in the list of
	 * loops that want more. */
	int32_t wanted;
	_Atomic int32_t running;
	bool listed;
	_Atomic(struct loop *) after;
	pthread_cond_t left; /* the last one that ran has left */
} loop;

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t work;
	/* Changed under the mutex too, but threads also look without. */
	_Atomic(loop *) first;
	_Atomic bool ending;
	int32_t n_threads;
	pthread_t threads[ZCC_MAX_THREADS];
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

static _Atomic int32_t allowed; /* 0: not asked for yet */

static int32_t usual_threads(void)
{
	const char *text = getenv("ZCC_THREADS");
	char *end = NULL;
	long number = text != NULL ? strtol(text, &end, 10) : 0;
	if (text != NULL && end != text && *end == '\0' && number >= 1 && number <= ZCC_MAX_THREADS)
		return (int32_t)number;
	cpu_set_t mask;
	number = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : sysconf(_SC_NPROCESSORS_ONLN);
	return number < 1 ? 1 : number > ZCC_MAX_THREADS ? ZCC_MAX_THREADS : (int32_t)number;
}

int32_t zcc_threads_get(void)
{
	int32_t threads = atomic_load(&allowed);
	if (threads == 0) {
		int32_t usual = usual_threads();
		threads = atomic_compare_exchange_strong(&allowed, &threads, usual) ? usual : threads;
	}
	return threads;
}

zcc_status zcc_threads_set(int32_t threads, zcc_error *error)
{
	if (threads < 1 || threads > ZCC_MAX_THREADS)
		return zcci_fail(error, ZCC_EINVAL, 0, "zcc_threads_set", "%d threads, allowed are 1 to %d", threads,
		                 ZCC_MAX_THREADS);
	atomic_store(&allowed, threads);
	return ZCC_OK;
}

int zcci_thread_start(pthread_t *thread, void *(*run)(void *context), void *context)
{
	/* Blocked, a fault would kill the program before any handler could say where it was. */
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
	sigset_t masked, before;
	sigfillset(&masked);
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		sigdelset(&masked, faults[i]);
	pthread_sigmask(SIG_SETMASK, &masked, &before);
	int code = pthread_create(thread, NULL, run, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

/* Chunk by chunk until none is left. */
static void run(loop *l)
{
	int64_t index;
	while ((index = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed)) < l->n_chunks) {
		int64_t begin = index * l->chunk;
		l->body(l->context, begin, l->count - begin < l->chunk ? l->count : begin + l->chunk);
	}
}

static void unlist(loop *l)
{
	if (!l->listed)
		return;
	_Atomic(loop *) *at = &pool.first;
	while (*at != l)
		at = &(*at)->after;
	*at = l->after;
	l->listed = false;
}

/* With the mutex held, and released meanwhile. */
static void await_loop(void)
{
	pthread_mutex_unlock(&pool.mutex);
	ZCCI_SPIN_WHILE(pool.first == NULL && !pool.ending);
	pthread_mutex_lock(&pool.mutex);
	while (pool.first == NULL && !pool.ending)
		pthread_cond_wait(&pool.work, &pool.mutex);
}

static void *help(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&pool.mutex);
	while (!pool.ending) {
		loop *l = pool.first;
		if (l == NULL) {
			await_loop();
			continue;
		}
		l->running++;
		if (--l->wanted == 0)
			unlist(l);
		pthread_mutex_unlock(&pool.mutex);
		run(l);
		pthread_mutex_lock(&pool.mutex);
		/* Under the mutex: once the caller sees 0, the loop is gone. */
		if (--l->running == 0)
			pthread_cond_signal(&l->left);
	}
	pthread_mutex_unlock(&pool.mutex);
	return NULL;
}

/* In a child after fork none of the threads exist, and the loops belong to threads that do not either. */
static void before_fork(void)
{
	pthread_mutex_lock(&pool.mutex);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&pool.mutex);
}

static void after_fork_in_child(void)
{
	pthread_mutex_init(&pool.mutex, NULL);
	pthread_cond_init(&pool.work, NULL);
	pool.first = NULL;
	pool.n_threads = 0;
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* With the mutex held. Fewer than asked for is no fault. */
static void grow(int32_t threads)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, watch_forks);
	while (!pool.ending && pool.n_threads < threads &&
	       zcci_thread_start(&pool.threads[pool.n_threads], help, NULL) == 0)
		pool.n_threads++;
}

/* A plug-in that has a pool of its own may be unloaded while the process goes on. */
__attribute__((destructor)) static void end_pool(void)
{
	pthread_mutex_lock(&pool.mutex);
	pool.ending = true;
	pthread_cond_broadcast(&pool.work);
	pthread_mutex_unlock(&pool.mutex);
	for (int32_t i = 0; i < pool.n_threads; i++)
		pthread_join(pool.threads[i], NULL);
	pool.n_threads = 0;
}

static void share(loop *l, int32_t helpers)
{
	pthread_mutex_lock(&pool.mutex);
	if (pool.n_threads < helpers)
		grow(helpers);
	l->wanted = helpers;
	l->listed = true;
	_Atomic(loop *) *at = &pool.first;
	while (*at != NULL)
		at = &(*at)->after;
	*at = l;
	for (int32_t i = 0; i < helpers; i++)
		pthread_cond_signal(&pool.work);
	pthread_mutex_unlock(&pool.mutex);
}

void zcci_parallel(int64_t count, int64_t chunk, zcci_parallel_body *body, void *context)
{
	loop l = {.body = body, .context = context, .count = count, .chunk = chunk, .left = PTHREAD_COND_INITIALIZER};
	l.n_chunks = count / chunk + (count % chunk > 0);
	int64_t helpers = zcc_threads_get() - 1;
	if (helpers > l.n_chunks - 1)
		helpers = l.n_chunks - 1;
	if (helpers <= 0) {
		run(&l);
		return;
	}
	share(&l, (int32_t)helpers);
	run(&l);
	pthread_mutex_lock(&pool.mutex);
	unlist(&l);
	pthread_mutex_unlock(&pool.mutex);
	ZCCI_SPIN_WHILE(l.running > 0);
	pthread_mutex_lock(&pool.mutex);
	while (l.running > 0)
		pthread_cond_wait(&l.left, &pool.mutex);
	pthread_mutex_unlock(&pool.mutex);
	pthread_cond_destroy(&l.left);
}
