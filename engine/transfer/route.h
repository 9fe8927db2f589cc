/* A segment made ready to move: both views, the element sizes and, where this process holds them, the bytes. */
#ifndef ZCCI_ROUTE_H
#define ZCCI_ROUTE_H

#include <stdbool.h>

#include "kernels/strided.h"
#include "zcc/affine.h"
#include "zcc/store.h"

/* Where one side of a segment lies: memory or file; neither where another process has it. */
typedef struct zcci_place {
	char *data; /* element 0 */
	zcc_file *file;
	int64_t at_bytes; /* of element 0 in the file */
} zcci_place;

typedef struct zcci_route {
	const zcc_segment *segment;
	int32_t source_dtype;
	int32_t target_dtype;
	int32_t source_elem_bytes;
	int32_t target_elem_bytes;
	bool converts;    /* dtype or value changes: source elements are no target elements */
	zcci_view source; /* simplified on its own; element order is the segment's */
	zcci_view target;
	zcci_place from;
	zcci_place to;
} zcci_route;

/* Everything but the places, which are cleared. */
void zcci_route_init(zcci_route *route, const zcc_segment *segment, int32_t source_dtype, int32_t target_dtype);

/* Elements from `first` on that follow each other without a gap. At least 1. */
int64_t zcci_view_run(const zcci_view *view, int64_t first);
/* Offset in elements of element `index`. */
int64_t zcci_view_offset(const zcci_view *view, int64_t index);

/* Memory to memory. */
void zcci_route_copy(const zcci_route *route, int64_t first, int64_t count);
/* Source elements from memory to dense bytes, as they travel. */
void zcci_route_pack(const zcci_route *route, int64_t first, int64_t count, void *dense);
/* Dense source elements to the target's memory, converted on the way. */
void zcci_route_unpack(const zcci_route *route, int64_t first, int64_t count, const void *dense);
/* Where the range lies in memory, if it lies there as it travels: dense, and for the target without conversion. Else
 * NULL. */
char *zcci_route_source_range(const zcci_route *route, int64_t first, int64_t count);
char *zcci_route_target_range(const zcci_route *route, int64_t first, int64_t count);

#endif
