/* A list of distinct names with an index: the n-th name added has number n - 1. One thread adds; several may find. */
#ifndef ZCCI_NAMES_H
#define ZCCI_NAMES_H

#include "base/memory.h"

/* Zeroed is empty. */
typedef struct zcci_names {
	int32_t n_names;
	int32_t room;
	int32_t n_slots; /* a power of two, at least twice the room */
	int32_t reserved;
	const char **names;
	int32_t *slots; /* number + 1 by hash, 0 = free; open addressing */
	zcci_arena *arena;
} zcci_names;

/* The number of a name, -1 where it is not there. */
int32_t zcci_names_find(const zcci_names *names, const char *name);
/* Adds a copy of a name that is not there. ZCC_ENOMEM, without a message: the list is as it was. */
zcc_status zcci_names_add(zcci_names *names, const char *name);
void zcci_names_clear(zcci_names *names);

#endif
