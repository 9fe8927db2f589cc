/* Ranges of shared memory mapped twice: a window without access rights, whose addresses are handed out, and the same
 * pages for the device's own threads. One file (memfd) holds many ranges. Calls are made under the host device's lock
 * where nothing else is said. */
#ifndef ZCCI_HOST_SLAB_H
#define ZCCI_HOST_SLAB_H

#include <stdbool.h>

#include "zcc/base.h"

typedef struct slab {
	struct slab *next;
	char *window;
	char *real;
	int64_t bytes;
	int32_t fd;
	int32_t process; /* a forked child shares the pages, so it takes no ranges from here */
	int64_t n_ranges, room_ranges;
	struct range {
		int64_t offset, bytes;
	} * ranges;     /* taken, ascending */
	int64_t cursor; /* the search goes on where the last one ended: addresses come back as late as they can */
} slab;

/* The slab whose window holds that address, or NULL. */
slab *zcci_slab_of(const void *data);
/* A range of at least `bytes`, aligned to pages. */
zcc_status zcci_slab_take(int64_t bytes, slab **from, char **window, char **real, zcc_error *error);
/* Gives it back. */
void zcci_slab_give(slab *from, const char *window);
/* Of a range that is taken, without the lock: its pages go back to the system; those of another file come, or go again,
 * in their place. False where they could not go: then the range is not given back, or its next owner would write to the
 * other file. */
void zcci_slab_empty(const slab *from, char *real, int64_t bytes);
zcc_status zcci_slab_replace(char *real, int64_t bytes, int fd, int64_t offset, zcc_error *error);
bool zcci_slab_restore(const slab *from, char *real, int64_t bytes);

#endif
