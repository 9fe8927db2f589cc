/* Whether memory that is written lies apart from all other memory of a call. */
#ifndef ZCCI_APART_H
#define ZCCI_APART_H

#include <stdbool.h>

#include "zcc/base.h"

/* Some bytes, which is all or nothing of a buffer, and how they are called in a message. */
typedef struct zcci_range {
	const char *data;
	int64_t bytes;
	const char *part, *name; /* "the PART of 'NAME'" */
	bool written;
} zcci_range;

/* ZCC_EINVAL names two ranges that share a byte which at least one of them writes; what is only read may share memory.
 * Leaves the ranges in another order. */
zcc_status zcci_check_apart(zcci_range *ranges, int64_t n_ranges, const char *operation, zcc_error *error);

#endif
