#include "transfer/move.h"

#include "base/memory.h"
#include "base/status.h"
#include "transfer/direct.h"
#include "transfer/filecopy.h"
#include "transfer/wire.h"

/* Bytes copied before messages are looked after again. */
enum { COPY_STEP_BYTES = 1 << 20 };

struct zcci_move {
	zcc_transfer *transfer;
	zcci_wire *wire;
	zcci_direct *direct;
	zcci_filecopy files;
	zcci_cursor local; /* in the list of work that needs no other process */
	bool stopping;
	bool stopped_by_peer;
	int64_t copied_bytes;
	bool ended;      /* nothing is left for this process to do */
	zcc_error fault; /* its first one */
	zcci_idle idle;
	int64_t idle_since_ns; /* 0 where something moved in the last turn */
};

zcc_status zcci_move_create(zcc_transfer *transfer, zcci_move **move, zcc_error *error)
{
	zcci_move *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "transfer run", "no memory for a run");
	made->transfer = transfer;
	zcc_status status =
	        zcci_filecopy_init(&made->files, transfer->staging_bytes, transfer->schedule->file_bytes, error);
	if (status == ZCC_OK)
		status = zcci_direct_create(transfer, &made->direct, error);
	if (status == ZCC_OK)
		status = zcci_wire_create(transfer, &made->wire, error);
	if (status != ZCC_OK) {
		zcci_move_destroy(made);
		return status;
	}
	*move = made;
	return ZCC_OK;
}

void zcci_move_destroy(zcci_move *move)
{
	if (move == NULL)
		return;
	zcci_filecopy_fini(&move->files);
	zcci_direct_destroy(move->direct);
	zcci_wire_destroy(move->wire);
	zcci_free(move);
}

bool zcci_move_unclean(const zcci_move *move)
{
	return zcci_wire_unclean(move->wire);
}

void zcci_move_result(const zcci_move *move, zcc_transfer_result *result)
{
	result->staging_peak_bytes = zcci_wire_staging(move->wire) + zcci_filecopy_staging(&move->files);
	result->wire_bytes = zcci_wire_sent_bytes(move->wire);
	const zcci_schedule *schedule = move->transfer->schedule;
	for (int32_t p = 0; p < schedule->n_peers; p++)
		result->wire_bytes += schedule->peers[p].pulled.bytes + schedule->peers[p].push.bytes;
	result->copied_bytes = move->copied_bytes;
	result->read_bytes = move->files.read_bytes;
	result->written_bytes = move->files.written_bytes;
}

static void count_total(const zcci_move *move)
{
	const zcci_schedule *schedule = move->transfer->schedule;
	int64_t total = schedule->local.bytes;
	for (int32_t p = 0; p < schedule->n_peers; p++)
		total += schedule->peers[p].out.bytes + schedule->peers[p].in.bytes + schedule->peers[p].pull.bytes +
		         schedule->peers[p].push.bytes;
	atomic_store_explicit(&move->transfer->done_bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&move->transfer->total_bytes, total, memory_order_relaxed);
}

static bool local_left(const zcci_move *move)
{
	return !move->stopping && move->local.segment < move->transfer->schedule->local.n_segments;
}

static bool work_left(const zcci_move *move)
{
	return local_left(move) || (!move->stopping && zcci_direct_left(move->direct));
}

/* Some of the work that needs no other process. */
static zcc_status local_step(zcci_move *move, zcc_error *error)
{
	const zcci_schedule *schedule = move->transfer->schedule;
	zcc_status status = ZCC_OK;
	for (int64_t moved = 0; status == ZCC_OK && moved < COPY_STEP_BYTES && local_left(move);) {
		const zcc_segment *segment = schedule->local.segments[move->local.segment];
		zcci_route route;
		zcci_schedule_route(schedule, segment, &route);
		zcci_transfer_bind_route(move->transfer, &route);
		int64_t first = move->local.elem;
		int64_t count = (COPY_STEP_BYTES - moved) / route.source_elem_bytes;
		if (count > segment->elems - first)
			count = segment->elems - first;
		if (route.from.file != NULL || route.to.file != NULL) {
			status = zcci_filecopy_step(&move->files, &route, first, &count, error);
		} else if (count > 0) {
			zcci_route_copy(&route, first, count);
			move->copied_bytes += count * route.source_elem_bytes;
		} else {
			break;
		}
		moved += count * route.source_elem_bytes;
		move->local.elem += count;
		if (move->local.elem == segment->elems)
			move->local = (zcci_cursor){.segment = move->local.segment + 1};
		atomic_fetch_add_explicit(&move->transfer->done_bytes, count * route.source_elem_bytes,
		                          memory_order_relaxed);
	}
	return status;
}

/* Some of the work in which no other process takes part, be it in this process's memory or in another's. */
static zcc_status work_step(zcci_move *move, zcc_error *error)
{
	if (local_left(move))
		return local_step(move, error);
	int64_t bytes;
	zcc_status status = zcci_direct_step(move->direct, &bytes, &move->stopped_by_peer, error);
	atomic_fetch_add_explicit(&move->transfer->done_bytes, bytes, memory_order_relaxed);
	return status;
}

static void stop(zcci_move *move)
{
	move->stopping = true;
	zcci_wire_stop(move->wire);
	zcci_direct_stop(move->transfer->comm, true);
}

/* Where the next fault goes: the first one counts. */
static zcc_error *first_fault(zcci_move *move)
{
	return move->fault.status == ZCC_OK ? &move->fault : NULL;
}

/* Nothing moved: waits a little, or gives up where that has been so for too long. */
static zcc_status wait_a_little(zcci_move *move, zcc_error *error)
{
	zcc_transfer *transfer = move->transfer;
	zcc_status status = zcci_comm_patience(transfer->comm, "transfer run", error);
	if (status != ZCC_OK)
		return status;
	int64_t now = zcc_clock_ns();
	if (move->idle_since_ns == 0)
		move->idle_since_ns = now;
	if (transfer->timeout_ns > 0 && now - move->idle_since_ns > transfer->timeout_ns) {
		zcci_comm_hurry(transfer->comm);
		return zcci_wire_abandon(move->wire, now - move->idle_since_ns, error);
	}
	zcci_idle_wait(&move->idle);
	return ZCC_OK;
}

/* A fault of the streams themselves leaves no way to carry them to their end. */
static void end(zcci_move *move, zcc_status status)
{
	move->ended = true;
	if (status != ZCC_OK)
		zcci_wire_abandon(move->wire, 0, NULL);
}

void zcci_move_start(zcci_move *move)
{
	count_total(move);
	zcc_status status = zcci_direct_meet(move->direct, &move->fault);
	if (status == ZCC_OK)
		status = zcci_wire_start(move->wire, &move->fault);
	if (status != ZCC_OK)
		end(move, status);
}

static void take_turn(zcci_move *move)
{
	bool moved;
	bool finished;
	zcc_status status = zcci_wire_turn(move->wire, &moved, &finished, first_fault(move));
	if (status == ZCC_OK && move->fault.status == ZCC_OK)
		zcci_wire_fault(move->wire, &move->fault);
	if (status != ZCC_OK || (finished && !work_left(move))) {
		end(move, status);
		return;
	}
	if (move->fault.status == ZCC_OK && zcc_interrupted()) {
		zcci_comm_interrupted("transfer run", &move->fault);
	} else if (!moved && work_left(move)) {
		work_step(move, &move->fault);
		moved = true;
	}
	bool stopped = move->fault.status != ZCC_OK || move->stopped_by_peer || zcci_wire_stopped(move->wire);
	if (stopped && !move->stopping)
		stop(move);
	if (moved) {
		move->idle = (zcci_idle){0};
		move->idle_since_ns = 0;
		return;
	}
	status = wait_a_little(move, first_fault(move));
	if (status != ZCC_OK)
		end(move, status);
}

bool zcci_move_work(zcci_move *move, int64_t until_ns)
{
	while (!move->ended) {
		take_turn(move);
		if (zcc_clock_ns() >= until_ns)
			break;
	}
	return move->ended;
}

const zcc_error *zcci_move_fault(const zcci_move *move)
{
	return &move->fault;
}

void zcci_move_abandon(zcci_move *move)
{
	stop(move);
	if (move->ended)
		return;
	if (move->transfer->comm->size > 1)
		zcci_comm_hurry(move->transfer->comm);
	zcci_wire_abandon(move->wire, 0, NULL);
}
