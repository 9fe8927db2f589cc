/* Work of the host device that reads from one place is held up until a test lets it go: what is in flight then stays
 * so, whatever gets a processor first. Programs with it are linked with --wrap=zcci_work_run. */
#ifndef TEST_GATE_H
#define TEST_GATE_H

#include <pthread.h>
#include <unistd.h>

#include "device/work.h"

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opened = PTHREAD_COND_INITIALIZER;
static const void *gate; /* NULL: open */

void __real_zcci_work_run(const zcci_work *work);
void __wrap_zcci_work_run(const zcci_work *work);

void __wrap_zcci_work_run(const zcci_work *work)
{
	pthread_mutex_lock(&gate_lock);
	while (gate != NULL && work->source == gate)
		pthread_cond_wait(&gate_opened, &gate_lock);
	pthread_mutex_unlock(&gate_lock);
	__real_zcci_work_run(work);
}

/* `source` is pinned: of device memory a thread of the device has another address. */
static inline void hold(const void *source)
{
	pthread_mutex_lock(&gate_lock);
	gate = source;
	pthread_mutex_unlock(&gate_lock);
}

static inline void let_go(void)
{
	pthread_mutex_lock(&gate_lock);
	gate = NULL;
	pthread_cond_broadcast(&gate_opened);
	pthread_mutex_unlock(&gate_lock);
}

static inline void *let_go_later(void *unused)
{
	usleep(50000);
	let_go();
	return unused;
}

#endif
