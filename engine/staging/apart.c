#include "staging/apart.h"

#include <stdlib.h>

#include "base/status.h"

static int by_begin(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const zcci_range *)a)->data, y = (uintptr_t)((const zcci_range *)b)->data;
	return (x > y) - (x < y);
}

static uintptr_t end_of(const zcci_range *range)
{
	return (uintptr_t)range->data + (uintptr_t)range->bytes;
}

static const zcci_range *further(const zcci_range *a, const zcci_range *b)
{
	return a == NULL || end_of(b) > end_of(a) ? b : a;
}

/* In order of their beginnings: who begins before the furthest end so far overlaps its owner. */
zcc_status zcci_check_apart(zcci_range *ranges, int64_t n_ranges, const char *operation, zcc_error *error)
{
	const zcci_range *furthest = NULL, *furthest_written = NULL;
	qsort(ranges, (size_t)n_ranges, sizeof *ranges, by_begin);
	for (int64_t i = 0; i < n_ranges; i++) {
		const zcci_range *r = &ranges[i], *before = r->written ? furthest : furthest_written;
		if (r->bytes == 0)
			continue;
		if (before != NULL && (uintptr_t)r->data < end_of(before))
			return zcci_fail(error, ZCC_EINVAL, 0, operation, "the %s of '%s' and the %s of '%s' overlap",
			                 before->part, before->name, r->part, r->name);
		furthest = further(furthest, r);
		if (r->written)
			furthest_written = further(furthest_written, r);
	}
	return ZCC_OK;
}
