/* A thread that waits for another's next move, which is most often a few microseconds away. */
#ifndef ZCCI_SPIN_H
#define ZCCI_SPIN_H

#include <sched.h>

#include "zcc/base.h"

/* To wake a thread that sleeps costs its waker a system call, and the thread tens of microseconds on a virtual machine
 * whose processor went idle: as much as the piece of work it is woken for. So it looks for so long before it sleeps. */
enum { ZCCI_SPIN_NS = 100000 };

/* Until the condition, which reads atomics, is false, or a while has passed. Whoever wants the processor gets it. */
#define ZCCI_SPIN_WHILE(condition)                                                                                     \
	do {                                                                                                           \
		int64_t zcci_spin_end = zcc_clock_ns() + ZCCI_SPIN_NS;                                                 \
		while ((condition) && zcc_clock_ns() < zcci_spin_end)                                                  \
			sched_yield();                                                                                 \
	} while (0)

#endif
