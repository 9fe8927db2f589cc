#include "device/cuda/strided.h"

#include <stdbool.h>
#include <string.h>

typedef struct axis {
	int64_t extent;
	int64_t target;
	int64_t source;
} axis;

static bool outside(const axis *a, const axis *b)
{
	return a->target != b->target ? a->target > b->target : a->source > b->source;
}

/* Axes of an extent above 1, by falling stride. */
static int32_t order(axis *axes, const int64_t *target_strides, const int64_t *source_strides, int32_t ndim,
                     const int64_t *shape)
{
	int32_t n = 0;
	for (int32_t i = 0; i < ndim; i++) {
		if (shape[i] == 1)
			continue;
		axis next = {shape[i], target_strides[i], source_strides[i]};
		int32_t at = n++;
		for (; at > 0 && outside(&next, &axes[at - 1]); at--)
			axes[at] = axes[at - 1];
		axes[at] = next;
	}
	return n;
}

static int32_t join(axis *axes, int32_t n)
{
	int32_t kept = 0;
	for (int32_t i = 1; i < n; i++) {
		axis *last = &axes[kept];
		if (last->target == axes[i].extent * axes[i].target && last->source == axes[i].extent * axes[i].source)
			axes[kept] = (axis){last->extent * axes[i].extent, axes[i].target, axes[i].source};
		else
			axes[++kept] = axes[i];
	}
	return n > 0 ? kept + 1 : 0;
}

static bool can_double(const axis *axes, int32_t n, int32_t elem_bytes, const void *target, const void *source)
{
	const axis *inner = &axes[n - 1];
	bool even = inner->target == 1 && inner->source == 1 && inner->extent % 2 == 0;
	even = even && ((uintptr_t)target | (uintptr_t)source) % (2 * (uintptr_t)elem_bytes) == 0;
	for (int32_t i = 0; even && i < n - 1; i++)
		even = axes[i].target % 2 == 0 && axes[i].source % 2 == 0;
	return even;
}

void zcci_cuda_strided_plan(zcci_cuda_strided *argument, int32_t *elem_bytes, void *target,
                            const int64_t *target_strides, const void *source, const int64_t *source_strides,
                            int32_t ndim, const int64_t *shape)
{
	axis axes[ZCCI_CUDA_MAX_AXES + 1];
	int32_t n = join(axes, order(axes, target_strides, source_strides, ndim, shape));
	if (n == 0)
		axes[n++] = (axis){1, 1, 1};
	while (*elem_bytes < 16 && can_double(axes, n, *elem_bytes, target, source)) {
		*elem_bytes *= 2;
		axes[n - 1].extent /= 2;
		for (int32_t i = 0; i < n - 1; i++) {
			axes[i].target /= 2;
			axes[i].source /= 2;
		}
	}
	memset(argument, 0, sizeof *argument);
	argument->target = target;
	argument->source = source;
	argument->rows = 1;
	argument->inner = axes[n - 1].extent;
	argument->target_step = axes[n - 1].target;
	argument->source_step = axes[n - 1].source;
	argument->axes = n - 1;
	for (int32_t i = 0; i < n - 1; i++) {
		argument->rows *= axes[i].extent;
		argument->extents[i] = axes[i].extent;
		argument->target_strides[i] = axes[i].target;
		argument->source_strides[i] = axes[i].source;
	}
}
