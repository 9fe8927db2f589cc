#include "transfer/handle.h"

#include <string.h>

#include "affine/plan.h"
#include "base/memory.h"
#include "base/status.h"
#include "device/handles.h"
#include "store/file.h"
#include "transfer/device_move.h"

static const int64_t STAGING_USUAL = 8 << 20;
static const int64_t STAGING_LEAST = 4 << 10;
static const int64_t TIMEOUT_USUAL_NS = (int64_t)300 * 1000000000;

void zcc_transfer_options_init(zcc_transfer_options *options)
{
	*options = (zcc_transfer_options){
	        .struct_bytes = sizeof *options,
	        .staging_bytes = STAGING_USUAL,
	        .timeout_ns = TIMEOUT_USUAL_NS,
	};
}

/* ---- tables ---- */

const char *zcci_side_name(int32_t side)
{
	return side == ZCC_SOURCE ? "source" : "target";
}

int32_t zcci_side_find(const zcci_side *side, int32_t rank)
{
	int32_t low = 0;
	int32_t high = side->n_ranks;
	while (low < high) {
		int32_t middle = low + (high - low) / 2;
		if (side->ranks[middle] < rank)
			low = middle + 1;
		else
			high = middle;
	}
	return low < side->n_ranks && side->ranks[low] == rank ? low : -1;
}

static int32_t endpoint(const zcci_side *side, int32_t rank)
{
	int32_t index = zcci_side_find(side, rank);
	return index < 0 ? ZCCI_UNPLACED : side->process[index];
}

void zcci_transfer_ends(const zcc_transfer *transfer, const zcc_segment *segment, int32_t *source, int32_t *target)
{
	*source = endpoint(&transfer->sides[ZCC_SOURCE], segment->source_rank);
	*target = endpoint(&transfer->sides[ZCC_TARGET], segment->target_rank);
	if (*source == ZCC_ENDPOINT_FILE && *target == ZCC_ENDPOINT_FILE)
		*source = *target = segment->param % transfer->comm->size;
	else if (*source == ZCC_ENDPOINT_FILE)
		*source = *target;
	else if (*target == ZCC_ENDPOINT_FILE)
		*target = *source;
}

const zcci_binding *zcci_transfer_binding(const zcc_transfer *transfer, const zcc_segment *segment, int32_t side)
{
	const zcci_side *table = &transfer->sides[side];
	int32_t rank = side == ZCC_SOURCE ? segment->source_rank : segment->target_rank;
	int32_t param = side == ZCC_SOURCE ? zcci_plan_source_param(transfer->plan, segment->param) : segment->param;
	int32_t index = zcci_side_find(table, rank);
	if (index < 0 || table->bindings[index] == NULL)
		return NULL;
	const zcci_binding *binding = &table->bindings[index][param];
	return binding->data == NULL && binding->file == NULL ? NULL : binding;
}

static void bind_place(const zcc_transfer *transfer, const zcci_route *route, int32_t side, zcci_place *place)
{
	const zcci_binding *binding = zcci_transfer_binding(transfer, route->segment, side);
	*place = (zcci_place){0};
	if (binding == NULL)
		return;
	bool source = side == ZCC_SOURCE;
	int64_t offset_elems = source ? route->segment->source_offset_elems : route->segment->target_offset_elems;
	int64_t at = offset_elems * (source ? route->source_elem_bytes : route->target_elem_bytes);
	if (binding->file != NULL) {
		place->file = binding->file;
		place->at_bytes = binding->offset_bytes + at;
	} else {
		place->data = (char *)binding->data + at;
	}
}

void zcci_transfer_bind_route(const zcc_transfer *transfer, zcci_route *route)
{
	bind_place(transfer, route, ZCC_SOURCE, &route->from);
	bind_place(transfer, route, ZCC_TARGET, &route->to);
}

/* ---- the handle ---- */

static zcc_status make_side(zcci_side *side, const zcc_layout *layout, zcc_error *error)
{
	side->layout = layout;
	side->ranks = zcc_layout_ranks(layout, &side->n_ranks);
	side->n_params = zcc_layout_params(layout);
	side->process = zcci_calloc(side->n_ranks, sizeof *side->process);
	side->bindings = zcci_calloc(side->n_ranks, sizeof *side->bindings);
	if (side->process == NULL || side->bindings == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "transfer create", "no memory for the tables of %d ranks",
		                 side->n_ranks);
	for (int32_t i = 0; i < side->n_ranks; i++)
		side->process[i] = ZCCI_UNPLACED;
	return ZCC_OK;
}

static void free_side(zcci_side *side)
{
	for (int32_t i = 0; side->bindings != NULL && i < side->n_ranks; i++) {
		for (int32_t k = 0; side->bindings[i] != NULL && k < side->n_params; k++)
			zcc_file_close(side->bindings[i][k].file);
		zcci_free(side->bindings[i]);
	}
	zcci_free(side->bindings);
	zcci_free(side->process);
}

zcc_status zcc_transfer_create(zcc_plan *plan, zcc_comm *comm, const zcc_transfer_options *options,
                               zcc_transfer **transfer, zcc_error *error)
{
	zcc_transfer_options usual;
	zcc_transfer_options_init(&usual);
	if (options == NULL)
		options = &usual;
	if (options->struct_bytes != sizeof *options)
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer create",
		                 "options of %u bytes, this library's have %zu", options->struct_bytes,
		                 sizeof *options);
	if (options->staging_bytes < STAGING_LEAST)
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer create",
		                 "a staging budget of %lld bytes, at least %lld are needed",
		                 (long long)options->staging_bytes, (long long)STAGING_LEAST);
	if (options->timeout_ns < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer create", "a time-out of %lld ns",
		                 (long long)options->timeout_ns);
	int64_t n_segments = 0;
	const zcc_segment *segments = zcc_plan_segments(plan, &n_segments);
	if (segments == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer create", "the plan is not built");
	zcc_transfer *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "transfer create", "no memory for a transfer");
	made->plan = zcci_plan_retain(plan);
	made->comm = zcci_comm_retain(comm);
	made->staging_bytes = options->staging_bytes;
	made->timeout_ns = options->timeout_ns;
	made->segments = segments;
	made->n_segments = n_segments;
	zcc_status status = zcc_plan_digest(plan, &made->digest, error);
	for (int32_t side = 0; status == ZCC_OK && side < 2; side++)
		status = make_side(&made->sides[side], zcci_plan_layout(plan, side), error);
	if (status != ZCC_OK) {
		zcc_transfer_destroy(made);
		return status;
	}
	*transfer = made;
	return ZCC_OK;
}

static void drop_schedule(zcc_transfer *transfer)
{
	zcci_device_move_destroy(transfer->device_move);
	transfer->device_move = NULL;
	zcci_schedule_destroy(transfer->schedule);
	transfer->schedule = NULL;
}

void zcc_transfer_destroy(zcc_transfer *transfer)
{
	if (transfer == NULL)
		return;
	zcci_transfer_abandon(transfer);
	drop_schedule(transfer);
	zcc_device_close(transfer->device);
	free_side(&transfer->sides[ZCC_SOURCE]);
	free_side(&transfer->sides[ZCC_TARGET]);
	zcc_plan_destroy(transfer->plan);
	zcc_comm_destroy(transfer->comm);
	zcci_free(transfer);
}

/* ---- placing and binding ---- */

static zcc_status find_rank(const zcc_transfer *transfer, const char *operation, int32_t side, int32_t rank,
                            int32_t *index, zcc_error *error)
{
	if (side != ZCC_SOURCE && side != ZCC_TARGET)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "side %d is neither source nor target", side);
	if (transfer->in_flight)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "a run is in flight");
	*index = zcci_side_find(&transfer->sides[side], rank);
	if (*index < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "the %s layout has no rank %d", zcci_side_name(side),
		                 rank);
	return ZCC_OK;
}

zcc_status zcc_transfer_place(zcc_transfer *transfer, int32_t side, int32_t rank, int32_t process, zcc_error *error)
{
	int32_t index = -1;
	zcc_status status = find_rank(transfer, "transfer place", side, rank, &index, error);
	if (status != ZCC_OK)
		return status;
	if (process != ZCC_ENDPOINT_FILE && (process < 0 || process >= transfer->comm->size))
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer place", "%s rank %d on process %d of %d",
		                 zcci_side_name(side), rank, process, transfer->comm->size);
	if (transfer->sides[side].process[index] != process)
		drop_schedule(transfer);
	transfer->sides[side].process[index] = process;
	return ZCC_OK;
}

zcc_status zcc_transfer_set_device(zcc_transfer *transfer, zcc_device *device, const char *transport, zcc_error *error)
{
	static const char operation[] = "transfer set device";
	const zcci_transport_ops *ops = NULL;
	for (int32_t side = 0; side < 2; side++)
		for (int32_t i = 0; i < transfer->sides[side].n_ranks; i++)
			if (transfer->sides[side].bindings[i] != NULL)
				return zcci_fail(error, ZCC_EINVAL, 0, operation,
				                 "memory of %s rank %d is bound already", zcci_side_name(side),
				                 transfer->sides[side].ranks[i]);
	zcc_status status = zcci_transport_find(transport != NULL ? transport : zcci_staged_ops.name, &ops, error);
	if (status == ZCC_OK && ops->device != NULL && strcmp(device->ops->name, ops->device) != 0)
		status = zcci_fail(error, ZCC_EINVAL, 0, operation, "%s goes between devices of %s, this is %s",
		                   ops->name, ops->device, zcc_device_name(device));
	if (status != ZCC_OK)
		return status;
	drop_schedule(transfer);
	zcci_device_retain(device);
	zcc_device_close(transfer->device);
	transfer->device = device;
	transfer->transport = ops;
	return ZCC_OK;
}

/* The entry of a shard, after checking that it exists and that `bytes` hold it. */
static zcc_status find_shard(zcc_transfer *transfer, const char *operation, int32_t side, int32_t rank, int32_t param,
                             int64_t bytes, zcci_binding **binding, zcc_error *error)
{
	int32_t index = -1;
	zcc_status status = find_rank(transfer, operation, side, rank, &index, error);
	if (status != ZCC_OK)
		return status;
	zcci_side *table = &transfer->sides[side];
	if (param < 0 || param >= table->n_params)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "parameter %d of %d of the %s layout", param,
		                 table->n_params, zcci_side_name(side));
	zcc_param_info info;
	zcc_shard_info shard;
	status = zcc_layout_param(table->layout, param, &info, error);
	if (status == ZCC_OK)
		status = zcc_layout_shard(table->layout, param, rank, &shard, error);
	if (status != ZCC_OK)
		return status;
	if (!shard.present)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "parameter '%s': %s rank %d stores nothing of it",
		                 info.name, zcci_side_name(side), rank);
	int64_t needed;
	if (zcci_mul_overflows(shard.elems, zcc_dtype_bytes(info.dtype), &needed) || bytes < needed)
		return zcci_fail(
		        error, ZCC_EINVAL, 0, operation,
		        "parameter '%s': %lld bytes bound for %s rank %d, whose shard of %lld %s elements needs more",
		        info.name, (long long)bytes, zcci_side_name(side), rank, (long long)shard.elems,
		        zcc_dtype_name(info.dtype));
	if (table->bindings[index] == NULL)
		table->bindings[index] = zcci_calloc(table->n_params, sizeof **table->bindings);
	if (table->bindings[index] == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, operation, "no memory for the buffers of %d parameters",
		                 table->n_params);
	*binding = &table->bindings[index][param];
	return ZCC_OK;
}

static zcc_status check_device_memory(const zcc_transfer *transfer, int32_t side, int32_t rank, int32_t param,
                                      const void *data, int64_t bytes, zcc_error *error)
{
	int32_t place = 0;
	zcc_status status = transfer->device->ops->place(transfer->device->impl, data, bytes, &place, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "parameter %d of %s rank %d", param, zcci_side_name(side), rank);
	zcc_param_info info = {.dtype = ZCC_U8};
	zcc_layout_param(transfer->sides[side].layout, param, &info, NULL);
	if ((uintptr_t)data % (uintptr_t)zcc_dtype_bytes(info.dtype) != 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer bind memory",
		                 "parameter %d of %s rank %d: %p is no address of a %s", param, zcci_side_name(side),
		                 rank, data, zcc_dtype_name(info.dtype));
	if (place == ZCC_AT_PAGEABLE)
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer bind memory",
		                 "parameter %d of %s rank %d: memory that is neither of device %s nor pinned for it",
		                 param, zcci_side_name(side), rank, zcc_device_name(transfer->device));
	return ZCC_OK;
}

zcc_status zcc_transfer_bind_memory(zcc_transfer *transfer, int32_t side, int32_t rank, int32_t param, void *data,
                                    int64_t bytes, zcc_error *error)
{
	zcci_binding *binding;
	zcc_status status = find_shard(transfer, "transfer bind memory", side, rank, param, bytes, &binding, error);
	if (status != ZCC_OK)
		return status;
	if (data == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer bind memory",
		                 "no memory given for parameter %d of %s rank %d", param, zcci_side_name(side), rank);
	if (transfer->device != NULL && bytes > 0) {
		status = check_device_memory(transfer, side, rank, param, data, bytes, error);
		if (status != ZCC_OK)
			return status;
	}
	zcc_file_close(binding->file);
	*binding = (zcci_binding){.data = data, .bytes = bytes};
	return ZCC_OK;
}

zcc_status zcc_transfer_bind_file(zcc_transfer *transfer, int32_t side, int32_t rank, int32_t param, zcc_file *file,
                                  int64_t offset_bytes, int64_t bytes, zcc_error *error)
{
	zcci_binding *binding;
	zcc_status status = find_shard(transfer, "transfer bind file", side, rank, param, bytes, &binding, error);
	if (status != ZCC_OK)
		return status;
	if (transfer->device != NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer bind file",
		                 "parameter %d of %s rank %d: no files in a transfer between devices", param,
		                 zcci_side_name(side), rank);
	int64_t end;
	if (file == NULL || offset_bytes < 0 || zcci_add_overflows(offset_bytes, bytes, &end) ||
	    end > zcc_file_bytes(file))
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer bind file",
		                 "parameter %d of %s rank %d: %lld bytes at %lld of '%s', which has %lld", param,
		                 zcci_side_name(side), rank, (long long)bytes, (long long)offset_bytes,
		                 file != NULL ? zcc_file_path(file) : "",
		                 file != NULL ? (long long)zcc_file_bytes(file) : 0);
	zcci_file_retain(file);
	zcc_file_close(binding->file);
	*binding = (zcci_binding){.file = file, .offset_bytes = offset_bytes, .bytes = bytes};
	return ZCC_OK;
}

void zcc_transfer_progress(const zcc_transfer *transfer, int64_t *done_bytes, int64_t *total_bytes)
{
	*done_bytes = atomic_load_explicit(&transfer->done_bytes, memory_order_relaxed);
	*total_bytes = atomic_load_explicit(&transfer->total_bytes, memory_order_relaxed);
}
