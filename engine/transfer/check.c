/* What must hold before a byte moves. */
#include "transfer/handle.h"

#include <stdlib.h>

#include "affine/plan.h"
#include "base/memory.h"
#include "base/status.h"
#include "transfer/device_route.h"

static const char *param_name(const zcc_transfer *transfer, const zcc_segment *segment)
{
	zcc_param_info info = {.name = "?"};
	zcc_layout_param(transfer->sides[ZCC_TARGET].layout, segment->param, &info, NULL);
	return info.name;
}

/* Bytes from element 0 of a buffer to the end of the last element a segment reaches; −1 where that does not fit 63
 * bits. */
static int64_t reach_bytes(const zcc_segment *segment, int32_t side, int32_t elem_bytes)
{
	const int64_t *strides = side == ZCC_SOURCE ? segment->source_strides_elems : segment->target_strides_elems;
	int64_t offset = side == ZCC_SOURCE ? segment->source_offset_elems : segment->target_offset_elems;
	int64_t last = offset;
	for (int32_t i = 0; i < segment->ndim; i++) {
		int64_t step;
		if (strides[i] < 0 || segment->shape_elems[i] < 1 ||
		    zcci_mul_overflows(segment->shape_elems[i] - 1, strides[i], &step) ||
		    zcci_add_overflows(last, step, &last))
			return -1;
	}
	int64_t bytes;
	if (offset < 0 || zcci_add_overflows(last, 1, &last) || zcci_mul_overflows(last, elem_bytes, &bytes))
		return -1;
	return bytes;
}

static zcc_status check_end(const zcc_transfer *transfer, const zcc_segment *segment, int32_t side, zcc_error *error)
{
	const zcci_side *table = &transfer->sides[side];
	int32_t rank = side == ZCC_SOURCE ? segment->source_rank : segment->target_rank;
	int32_t process = table->process[zcci_side_find(table, rank)];
	bool is_file = process == ZCC_ENDPOINT_FILE;
	if (!is_file && process != transfer->comm->rank)
		return ZCC_OK;
	const char *name = param_name(transfer, segment);
	const zcci_binding *binding = zcci_transfer_binding(transfer, segment, side);
	if (binding == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer check",
		                 "parameter '%s': nothing is bound for %s rank %d", name, zcci_side_name(side), rank);
	if (is_file != (binding->file != NULL))
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer check", "parameter '%s': %s rank %d is %s", name,
		                 zcci_side_name(side), rank,
		                 is_file ? "a file, but memory is bound" : "on a process, but a file is bound");
	const zcci_dtypes *dtypes = &transfer->schedule->dtypes[segment->param];
	int32_t dtype = side == ZCC_SOURCE ? dtypes->source : dtypes->target;
	int64_t reach = reach_bytes(segment, side, zcc_dtype_bytes(dtype));
	if (reach < 0 || reach > binding->bytes)
		return zcci_fail(
		        error, ZCC_EINVAL, 0, "transfer check",
		        "parameter '%s': a segment reaches byte %lld of the buffer of %s rank %d, which has %lld", name,
		        (long long)reach, zcci_side_name(side), rank, (long long)binding->bytes);
	return ZCC_OK;
}

static zcc_status check_list(const zcc_transfer *transfer, const zcci_list *list, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	for (int64_t i = 0; status == ZCC_OK && i < list->n_segments; i++) {
		const zcc_segment *segment = list->segments[i];
		const zcci_dtypes *dtypes = &transfer->schedule->dtypes[segment->param];
		if (!zcci_convert_supported(dtypes->target, dtypes->source, segment->factor))
			return zcci_fail(error, ZCC_ELAYOUT, 0, "transfer check",
			                 "parameter '%s': no conversion from %s to %s with factor %g",
			                 param_name(transfer, segment), zcc_dtype_name(dtypes->source),
			                 zcc_dtype_name(dtypes->target), segment->factor);
		zcci_route route;
		zcci_schedule_route(transfer->schedule, segment, &route);
		if (transfer->device != NULL && !zcci_device_route_supported(&route))
			return zcci_fail(
			        error, ZCC_ELAYOUT, 0, "transfer check",
			        "parameter '%s': %s to %s with factor %g between devices; F16, BF16 and F32 are "
			        "converted there, with factor 1",
			        param_name(transfer, segment), zcc_dtype_name(dtypes->source),
			        zcc_dtype_name(dtypes->target), segment->factor);
		status = check_end(transfer, segment, ZCC_SOURCE, error);
		if (status == ZCC_OK)
			status = check_end(transfer, segment, ZCC_TARGET, error);
	}
	return status;
}

/* ---- overlap of bound memory ---- */

typedef struct extent {
	uintptr_t begin;
	uintptr_t end;
	int32_t side;
	int32_t rank;
	int32_t param;
} extent;

static int by_begin(const void *a, const void *b)
{
	uintptr_t x = ((const extent *)a)->begin;
	uintptr_t y = ((const extent *)b)->begin;
	return x < y ? -1 : x > y;
}

static int64_t collect(const zcc_transfer *transfer, extent *extents)
{
	int64_t n = 0;
	for (int32_t side = 0; side < 2; side++) {
		const zcci_side *table = &transfer->sides[side];
		for (int32_t i = 0; i < table->n_ranks; i++) {
			for (int32_t k = 0; table->bindings[i] != NULL && k < table->n_params; k++) {
				const zcci_binding *binding = &table->bindings[i][k];
				if (binding->data == NULL || binding->bytes == 0 ||
				    table->process[i] != transfer->comm->rank)
					continue;
				uintptr_t begin = (uintptr_t)binding->data;
				if (extents != NULL)
					extents[n] = (extent){begin, begin + (uintptr_t)binding->bytes, side,
					                      table->ranks[i], k};
				n++;
			}
		}
	}
	return n;
}

static zcc_status overlap(const zcc_transfer *transfer, const extent *a, const extent *b, zcc_error *error)
{
	const extent *source = a->side == ZCC_SOURCE ? a : b;
	const extent *target = a->side == ZCC_SOURCE ? b : a;
	zcc_param_info from = {.name = "?"};
	zcc_param_info to = {.name = "?"};
	zcc_layout_param(transfer->sides[ZCC_SOURCE].layout, source->param, &from, NULL);
	zcc_layout_param(transfer->sides[ZCC_TARGET].layout, target->param, &to, NULL);
	return zcci_fail(error, ZCC_EINVAL, 0, "transfer check",
	                 "the buffer of '%s' of source rank %d overlaps that of '%s' of target rank %d", from.name,
	                 source->rank, to.name, target->rank);
}

static zcc_status check_overlap(const zcc_transfer *transfer, zcc_error *error)
{
	int64_t n = collect(transfer, NULL);
	extent *extents = zcci_calloc(n, sizeof *extents);
	if (extents == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "transfer check", "no memory to compare %lld buffers",
		                 (long long)n);
	collect(transfer, extents);
	qsort(extents, (size_t)n, sizeof *extents, by_begin);
	/* The buffer that reaches farthest so far, of each side. */
	const extent *farthest[2] = {NULL, NULL};
	zcc_status status = ZCC_OK;
	for (int64_t i = 0; status == ZCC_OK && i < n; i++) {
		const extent *e = &extents[i];
		const extent *other = farthest[!e->side];
		if (other != NULL && other->end > e->begin)
			status = overlap(transfer, other, e, error);
		if (farthest[e->side] == NULL || farthest[e->side]->end < e->end)
			farthest[e->side] = e;
	}
	zcci_free(extents);
	return status;
}

zcc_status zcci_transfer_check(zcc_transfer *transfer, zcc_error *error)
{
	const zcci_schedule *schedule = transfer->schedule;
	zcc_status status = check_list(transfer, &schedule->local, error);
	for (int32_t p = 0; status == ZCC_OK && p < schedule->n_peers; p++) {
		const zcci_peer *peer = &schedule->peers[p];
		const zcci_list *lists[] = {&peer->out,  &peer->in,     &peer->pull,
		                            &peer->push, &peer->pulled, &peer->pushed};
		for (size_t i = 0; status == ZCC_OK && i < sizeof lists / sizeof *lists; i++)
			status = check_list(transfer, lists[i], error);
	}
	return status == ZCC_OK ? check_overlap(transfer, error) : status;
}
