/* The inside of a plan, shared by the planner's own files. */
#ifndef ZCCI_PLAN_IMPL_H
#define ZCCI_PLAN_IMPL_H

#include "affine/layout.h"
#include "affine/plan.h"

/* One target parameter and its counterpart in the source layout. */
typedef struct zcci_plan_param {
	zcc_param_info info; /* of the target */
	int32_t source_param;
	int32_t source_dtype;
	int64_t first_region; /* its regions end where the next parameter's begin */
	int64_t first_segment;
} zcci_plan_param;

/* What composing a region needs and no caller sees. */
typedef struct zcci_place {
	int64_t target_offset_elems;
	const int64_t *target_strides_elems; /* of the target piece */
	const int64_t *block_origin_elems;   /* of the source block that the region lies in: finds the holder's piece */
	double factor;
} zcci_place;

struct zcc_plan {
	_Atomic int32_t references;
	bool built;
	int32_t n_params;
	zcc_layout *source;
	zcc_layout *target;
	zcci_plan_param *params; /* n_params + 1: the last one only ends the ranges */
	zcc_region *regions;
	zcci_place *places; /* one a region, until the segments are built */
	int64_t n_regions;
	int64_t regions_capacity;
	zcc_segment *segments;
	zcci_arena *draft; /* what places point to */
	zcc_plan_stats stats;
};

/* All regions of all parameters, in canonical order. */
zcc_status zcci_plan_find_regions(zcc_plan *plan, zcc_error *error);

/* Scratch memory of the merger, kept from one call to the next. */
typedef struct zcci_merger {
	int32_t *slots;     /* hash table: index + 1 of a segment, 0 = free */
	int64_t n_slots;    /* in use; a power of two, at least twice the segments */
	zcc_segment *plain; /* segments as they were before their axes were joined */
	zcc_segment *other; /* the second of two ways to join them */
	int64_t capacity;   /* of all three */
} zcci_merger;

/* Joins segments of one (parameter, target rank, source rank), ascending target offset, in place; *n_segments is how
 * many are left, still ascending. ZCC_ENOMEM. */
zcc_status zcci_merge_segments(zcci_merger *merger, zcc_segment *segments, int64_t *n_segments, zcc_error *error);
void zcci_merger_free(zcci_merger *merger);

#endif
