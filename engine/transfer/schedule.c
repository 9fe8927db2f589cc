#include "transfer/schedule.h"

#include <string.h>

#include "affine/plan.h"
#include "base/status.h"
#include "transfer/handle.h"

enum {
	/* Packed chunks stay in the second-level cache between packing and sending. */
	CHUNK_MAX_BYTES = 1 << 20,
	DEPTH_MAX = 4,
	/* A run this long on both sides goes alone, from its own memory and into its own memory, in chunks that need no
	 * staging. */
	RUN_ALONE_BYTES = 64 << 10,
	ALONE_MAX_BYTES = 16 << 20,
	/* Between devices every chunk costs a few launches. */
	DEVICE_CHUNK_MAX_BYTES = 16 << 20,
	/* Between processes of one host a segment is copied once, by the process whose side has the shorter runs: a run
	 * of the other's memory costs the system more than one of its own. What has too short runs is packed. */
	OTHERS_RUN_BYTES = 16 << 10,
	OWN_RUN_BYTES = 256
};

enum { OUT, IN, PULL, PUSH, PULLED, PUSHED, N_WAYS };

void zcci_schedule_route(const zcci_schedule *schedule, const zcc_segment *segment, zcci_route *route)
{
	const zcci_dtypes *dtypes = &schedule->dtypes[segment->param];
	zcci_route_init(route, segment, dtypes->source, dtypes->target);
}

/* ---- chunks ---- */

bool zcci_part_next(const zcci_schedule *schedule, const zcci_list *list, zcci_cursor *cursor, int64_t used_bytes,
                    zcci_part *part)
{
	if (cursor->segment >= list->n_segments)
		return false;
	const zcc_segment *segment = list->segments[cursor->segment];
	zcci_route *route = &part->route;
	zcci_schedule_route(schedule, segment, route);
	int64_t first = cursor->elem;
	int64_t elem_bytes = route->source_elem_bytes;
	int64_t run = zcci_view_run(&route->source, first);
	int64_t target_run = zcci_view_run(&route->target, first);
	run = target_run < run ? target_run : run;
	part->at_bytes = (used_bytes + schedule->align_bytes - 1) / schedule->align_bytes * schedule->align_bytes;
	int64_t room = schedule->chunk_bytes - part->at_bytes;
	part->alone = !route->converts && run * elem_bytes >= RUN_ALONE_BYTES;
	if (part->alone && used_bytes > 0)
		return false;
	if (part->alone)
		room = schedule->alone_bytes;
	int64_t left = part->alone ? run : segment->elems - first;
	part->first = first;
	part->count = left < room / elem_bytes ? left : room / elem_bytes;
	if (part->count <= 0)
		return false;
	part->bytes = part->count * elem_bytes;
	cursor->elem += part->count;
	if (cursor->elem == segment->elems) {
		cursor->segment++;
		cursor->elem = 0;
	}
	return true;
}

bool zcci_chunk_next(const zcci_schedule *schedule, const zcci_list *list, zcci_cursor *cursor, zcci_chunk *chunk)
{
	chunk->begin = *cursor;
	chunk->n_parts = 0;
	chunk->bytes = 0;
	chunk->payload_bytes = 0;
	zcci_part part;
	while (zcci_part_next(schedule, list, cursor, chunk->bytes, &part)) {
		chunk->n_parts++;
		chunk->bytes = part.at_bytes + part.bytes;
		chunk->payload_bytes += part.bytes;
		if (part.alone || chunk->bytes >= schedule->chunk_bytes)
			break;
	}
	return chunk->n_parts > 0;
}

/* The largest chunk of a stream that the sending or the receiving side cannot leave in the shard's own memory. */
static int64_t largest_staged(const zcci_schedule *schedule, const zcci_list *list, int32_t side)
{
	int64_t largest = 0;
	zcci_cursor cursor = {0};
	zcci_chunk chunk;
	while (largest < schedule->chunk_bytes && zcci_chunk_next(schedule, list, &cursor, &chunk)) {
		zcci_cursor at = chunk.begin;
		zcci_part part;
		zcci_part_next(schedule, list, &at, 0, &part);
		const zcci_view *view = side == ZCC_SOURCE ? &part.route.source : &part.route.target;
		bool in_place = chunk.n_parts == 1 && zcci_view_run(view, part.first) >= part.count &&
		                (side == ZCC_SOURCE || !part.route.converts);
		if (!in_place && chunk.bytes > largest)
			largest = chunk.bytes;
	}
	return largest;
}

/* ---- lists ---- */

static zcc_status no_memory(zcc_error *error)
{
	return zcci_fail(error, ZCC_ENOMEM, 0, "transfer schedule", "no memory for the schedule");
}

static zcc_status make_dtypes(const zcc_transfer *transfer, zcci_schedule *schedule, zcc_error *error)
{
	const zcc_layout *target = transfer->sides[ZCC_TARGET].layout;
	const zcc_layout *source = transfer->sides[ZCC_SOURCE].layout;
	int32_t n = zcc_layout_params(target);
	zcci_dtypes *dtypes = zcci_arena_alloc(schedule->arena, n, sizeof *dtypes);
	if (dtypes == NULL)
		return no_memory(error);
	for (int32_t i = 0; i < n; i++) {
		zcc_param_info info;
		zcc_status status = zcc_layout_param(target, i, &info, error);
		if (status != ZCC_OK)
			return status;
		dtypes[i].target = info.dtype;
		status = zcc_layout_param(source, zcci_plan_source_param(transfer->plan, i), &info, error);
		if (status != ZCC_OK)
			return status;
		dtypes[i].source = info.dtype;
	}
	schedule->dtypes = dtypes;
	return ZCC_OK;
}

static zcc_status unplaced(const zcc_segment *segment, int32_t source, zcc_error *error)
{
	int32_t side = source == ZCCI_UNPLACED ? ZCC_SOURCE : ZCC_TARGET;
	return zcci_fail(error, ZCC_EINVAL, 0, "transfer schedule", "%s rank %d is placed on no process",
	                 zcci_side_name(side), side == ZCC_SOURCE ? segment->source_rank : segment->target_rank);
}

static void append(const zcci_schedule *schedule, zcci_list *list, const zcc_segment *segment)
{
	list->bytes += segment->elems * zcc_dtype_bytes(schedule->dtypes[segment->param].source);
	if (list->segments != NULL)
		list->segments[list->n_segments] = segment;
	list->n_segments++;
}

/* OUT, PULLED or PUSH: how a segment leaves for another process. Both ends come to the same answer. */
static int32_t way_out(const zcci_schedule *schedule, const zcc_segment *segment, bool near)
{
	zcci_route route;
	zcci_schedule_route(schedule, segment, &route);
	int64_t source_run = zcci_view_run(&route.source, 0) * route.source_elem_bytes;
	int64_t target_run = zcci_view_run(&route.target, 0) * route.target_elem_bytes;
	if (!near || route.converts || source_run < OWN_RUN_BYTES || target_run < OWN_RUN_BYTES)
		return OUT;
	if (source_run >= target_run)
		return source_run >= OTHERS_RUN_BYTES ? PULLED : OUT;
	return target_run >= OTHERS_RUN_BYTES ? PUSH : OUT;
}

/* The same seen from the other end. */
static int32_t way_in(int32_t way_out)
{
	return way_out == OUT ? IN : way_out == PULLED ? PULL : PUSHED;
}

/* Once to count (lists without memory), once to fill. `lists`: local, then N_WAYS of every process. */
static zcc_status distribute(const zcc_transfer *transfer, zcci_schedule *schedule, zcci_list *lists, zcc_error *error)
{
	int32_t me = transfer->comm->rank;
	const zcci_neighbour *others = transfer->comm->others;
	for (int64_t i = 0; i < transfer->n_segments; i++) {
		const zcc_segment *segment = &transfer->segments[i];
		if (segment->elems == 0)
			continue;
		int32_t source;
		int32_t target;
		zcci_transfer_ends(transfer, segment, &source, &target);
		if (source == ZCCI_UNPLACED || target == ZCCI_UNPLACED)
			return unplaced(segment, source, error);
		if (source == me && target == me)
			append(schedule, &lists[0], segment);
		if ((source == me) == (target == me))
			continue;
		int32_t peer = source == me ? target : source;
		bool near = transfer->device == NULL && others != NULL && others[peer].near;
		int32_t way = way_out(schedule, segment, near);
		if (target == me)
			way = way_in(way);
		append(schedule, &lists[1 + N_WAYS * (int64_t)peer + way], segment);
	}
	return ZCC_OK;
}

static zcc_status make_lists(const zcc_transfer *transfer, zcci_schedule *schedule, zcci_list *lists, zcc_error *error)
{
	int32_t size = transfer->comm->size;
	zcc_status status = distribute(transfer, schedule, lists, error);
	if (status != ZCC_OK)
		return status;
	for (int64_t i = 0; i < 1 + N_WAYS * (int64_t)size; i++) {
		int64_t n = lists[i].n_segments;
		lists[i] = (zcci_list){.segments = zcci_arena_alloc(schedule->arena, n, sizeof *lists[i].segments)};
		if (lists[i].segments == NULL)
			return no_memory(error);
	}
	status = distribute(transfer, schedule, lists, error);
	if (status != ZCC_OK)
		return status;
	schedule->local = lists[0];
	schedule->peers = zcci_arena_alloc(schedule->arena, size, sizeof *schedule->peers);
	if (schedule->peers == NULL)
		return no_memory(error);
	for (int32_t p = 0; p < size; p++) {
		const zcci_list *of = &lists[1 + N_WAYS * (int64_t)p];
		zcci_peer peer = {.process = p,
		                  .out = of[OUT],
		                  .in = of[IN],
		                  .pull = of[PULL],
		                  .push = of[PUSH],
		                  .pulled = of[PULLED],
		                  .pushed = of[PUSHED]};
		int64_t n = 0;
		for (int32_t way = 0; way < N_WAYS; way++)
			n += of[way].n_segments;
		if (n == 0)
			continue;
		peer.out_stage_bytes = largest_staged(schedule, &peer.out, ZCC_SOURCE);
		peer.in_stage_bytes = largest_staged(schedule, &peer.in, ZCC_TARGET);
		schedule->peers[schedule->n_peers++] = peer;
	}
	return ZCC_OK;
}

static int64_t count_file_bytes(const zcc_transfer *transfer, const zcci_schedule *schedule)
{
	const zcci_side *sides = transfer->sides;
	int64_t bytes = 0;
	for (int64_t i = 0; i < schedule->local.n_segments; i++) {
		const zcc_segment *segment = schedule->local.segments[i];
		int32_t source = sides[ZCC_SOURCE].process[zcci_side_find(&sides[ZCC_SOURCE], segment->source_rank)];
		int32_t target = sides[ZCC_TARGET].process[zcci_side_find(&sides[ZCC_TARGET], segment->target_rank)];
		if (source == ZCC_ENDPOINT_FILE || target == ZCC_ENDPOINT_FILE)
			bytes += segment->elems * zcc_dtype_bytes(schedule->dtypes[segment->param].source);
	}
	return bytes;
}

zcc_status zcci_schedule_create(const zcc_transfer *transfer, zcci_schedule **schedule, zcc_error *error)
{
	zcci_schedule *made = zcci_calloc(1, sizeof *made);
	zcci_list *lists = zcci_calloc(1 + N_WAYS * (int64_t)transfer->comm->size, sizeof *lists);
	if (made != NULL)
		made->arena = zcci_arena_create();
	zcc_status status = ZCC_OK;
	if (lists == NULL || made == NULL || made->arena == NULL)
		status = no_memory(error);
	if (status == ZCC_OK && transfer->device != NULL) {
		/* A peer has two chunks on the device in either direction and one on the host; up to three more are for
		 * conversions. */
		int64_t tenth = transfer->staging_bytes / 10;
		made->chunk_bytes = (tenth < DEVICE_CHUNK_MAX_BYTES ? tenth : DEVICE_CHUNK_MAX_BYTES) & ~(int64_t)255;
		made->alone_bytes = made->chunk_bytes;
		/* The device's kernels take whole elements at multiples of their size. */
		made->align_bytes = 8;
		made->depth = 2;
		status = make_dtypes(transfer, made, error);
	} else if (status == ZCC_OK) {
		/* Two directions share a peer's budget, with at least two chunks each. */
		made->alone_bytes = ALONE_MAX_BYTES;
		made->align_bytes = 1;
		int64_t quarter = transfer->staging_bytes / 4;
		made->chunk_bytes = (quarter < CHUNK_MAX_BYTES ? quarter : CHUNK_MAX_BYTES) & ~(int64_t)15;
		int64_t depth = transfer->staging_bytes / 2 / made->chunk_bytes;
		made->depth = depth < DEPTH_MAX ? (int32_t)depth : DEPTH_MAX;
		status = make_dtypes(transfer, made, error);
	}
	if (status == ZCC_OK)
		status = make_lists(transfer, made, lists, error);
	if (status == ZCC_OK)
		made->file_bytes = count_file_bytes(transfer, made);
	zcci_free(lists);
	if (status != ZCC_OK) {
		zcci_schedule_destroy(made);
		return status;
	}
	*schedule = made;
	return ZCC_OK;
}

void zcci_schedule_destroy(zcci_schedule *schedule)
{
	if (schedule == NULL)
		return;
	zcci_arena_destroy(schedule->arena);
	zcci_free(schedule);
}
