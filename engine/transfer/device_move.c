#include "transfer/device_move.h"

#include "base/memory.h"
#include "base/omit.h"
#include "base/status.h"
#include "device/handles.h"
#include "transfer/device_route.h"
#include "transfer/transport.h"

/* Rounds in flight: while one is sent, the next is packed. */
enum { DEPTH = 2 };

/* A chunk of one round. */
typedef struct slot {
	bool used;
	bool own; /* in the shard's own memory */
	zcci_chunk chunk;
	char *data;
} slot;

/* One direction of a peer. */
typedef struct lane {
	int32_t peer;
	bool sends;
	const zcci_list *list;
	zcci_cursor next;
	char *stage[DEPTH];
	slot slots[DEPTH];
} lane;

struct zcci_device_move {
	zcc_transfer *transfer;
	const zcci_schedule *schedule;
	void *group; /* of the transport; NULL: not joined */
	zcc_stream *packing;
	zcc_stream *wire;
	zcc_stream *local;
	zcc_event *packed[DEPTH];
	zcc_event *exchanged[DEPTH];
	int32_t n_lanes;
	lane *lanes;
	zcci_message *messages;
	int64_t n_rounds; /* of this process */
	char *staging;    /* everything below lies in it */
	int64_t staging_bytes;
	zcci_scratch unpack_scratch;
	zcci_scratch local_scratch;
	int64_t pinned_bytes; /* of the transport */
	int64_t sent_bytes;
	int64_t copied_bytes;
};

/* ---- making ---- */

static bool list_converts(const zcci_schedule *schedule, const zcci_list *list)
{
	bool converts = false;
	for (int64_t i = 0; !converts && i < list->n_segments; i++) {
		const zcc_segment *segment = list->segments[i];
		converts = schedule->dtypes[segment->param].source != schedule->dtypes[segment->param].target;
	}
	return converts;
}

static int64_t count_chunks(const zcci_schedule *schedule, const zcci_list *list)
{
	int64_t n = 0;
	zcci_cursor cursor = {0};
	zcci_chunk chunk;
	while (zcci_chunk_next(schedule, list, &cursor, &chunk))
		n++;
	return n;
}

/* Hands out the staging memory; with base == NULL only counts it. Everything is aligned to 256. */
static int64_t lay_out(zcci_device_move *move, char *base)
{
	const zcci_schedule *schedule = move->schedule;
	int64_t chunk_bytes = (schedule->chunk_bytes + 255) / 256 * 256;
	int64_t at = 0;
	bool converts = false;
	for (int32_t p = 0; p < schedule->n_peers; p++) {
		const zcci_peer *peer = &schedule->peers[p];
		converts = converts || list_converts(schedule, &peer->in);
		for (int32_t k = 0; k < 2 * DEPTH; k++) {
			lane *l = &move->lanes[2 * p + k / DEPTH];
			int64_t needed = l->sends ? peer->out_stage_bytes : peer->in_stage_bytes;
			l->stage[k % DEPTH] = base != NULL ? base + at : NULL;
			at += needed > 0 ? chunk_bytes : 0;
		}
	}
	if (converts) {
		move->unpack_scratch =
		        (zcci_scratch){.target = base != NULL ? base + at : NULL, .target_bytes = chunk_bytes};
		at += chunk_bytes;
	}
	if (list_converts(schedule, &schedule->local)) {
		move->local_scratch = (zcci_scratch){.source_bytes = chunk_bytes, .target_bytes = chunk_bytes};
		if (base != NULL) {
			move->local_scratch.source = base + at;
			move->local_scratch.target = base + at + chunk_bytes;
		}
		at += 2 * chunk_bytes;
	}
	return at;
}

static zcc_status make_order(zcci_device_move *move, zcc_error *error)
{
	zcc_device *device = move->transfer->device;
	zcc_status status = zcc_stream_create(device, &move->local, error);
	if (status == ZCC_OK)
		status = zcc_stream_create(device, &move->packing, error);
	if (status == ZCC_OK)
		status = zcc_stream_create(device, &move->wire, error);
	for (int32_t k = 0; status == ZCC_OK && k < DEPTH; k++) {
		status = zcc_event_create(device, &move->packed[k], error);
		if (status == ZCC_OK)
			status = zcc_event_create(device, &move->exchanged[k], error);
	}
	return status;
}

zcc_status zcci_device_move_create(zcc_transfer *transfer, zcci_device_move **move, zcc_error *error)
{
	const zcci_schedule *schedule = transfer->schedule;
	zcci_device_move *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "transfer run", "no memory for a run between devices");
	made->transfer = transfer;
	made->schedule = schedule;
	made->n_lanes = 2 * schedule->n_peers;
	made->lanes = zcci_calloc(made->n_lanes, sizeof *made->lanes);
	made->messages = zcci_calloc(made->n_lanes, sizeof *made->messages);
	zcc_status status = ZCC_OK;
	if (made->lanes == NULL || made->messages == NULL)
		status = zcci_fail(error, ZCC_ENOMEM, 0, "transfer run", "no memory for streams to %d processes",
		                   schedule->n_peers);
	for (int32_t p = 0; status == ZCC_OK && p < schedule->n_peers; p++) {
		const zcci_peer *peer = &schedule->peers[p];
		made->lanes[2 * p] = (lane){.peer = peer->process, .sends = false, .list = &peer->in};
		made->lanes[2 * p + 1] = (lane){.peer = peer->process, .sends = true, .list = &peer->out};
		int64_t in = count_chunks(schedule, &peer->in);
		int64_t out = count_chunks(schedule, &peer->out);
		made->n_rounds = in > made->n_rounds ? in : made->n_rounds;
		made->n_rounds = out > made->n_rounds ? out : made->n_rounds;
	}
	if (status == ZCC_OK)
		status = make_order(made, error);
	if (status == ZCC_OK) {
		void *staging = NULL;
		made->staging_bytes = lay_out(made, NULL);
		if (made->staging_bytes > 0)
			status = zcc_device_malloc(transfer->device, made->staging_bytes, &staging, error);
		made->staging = staging;
	}
	if (status != ZCC_OK) {
		zcci_device_move_destroy(made);
		return status;
	}
	lay_out(made, made->staging);
	*move = made;
	return ZCC_OK;
}

bool zcci_device_move_joined(const zcci_device_move *move)
{
	return move->group != NULL;
}

void zcci_device_move_leave(zcci_device_move *move)
{
	if (move->group != NULL)
		move->transfer->transport->abort(move->group);
	move->group = NULL;
}

void zcci_device_move_destroy(zcci_device_move *move)
{
	if (move == NULL)
		return;
	if (move->group != NULL)
		move->transfer->transport->close(move->group);
	zcc_stream_destroy(move->local);
	zcc_stream_destroy(move->packing);
	zcc_stream_destroy(move->wire);
	for (int32_t k = 0; k < DEPTH; k++) {
		zcc_event_destroy(move->packed[k]);
		zcc_event_destroy(move->exchanged[k]);
	}
	zcc_device_free(move->transfer->device, move->staging);
	zcci_free(move->lanes);
	zcci_free(move->messages);
	zcci_free(move);
}

/* ---- waiting ---- */

typedef struct waiting {
	zcci_idle idle;
	int64_t since_ns;
} waiting;

static zcc_status wait_a_little(const zcci_device_move *move, waiting *w, zcc_error *error)
{
	const zcc_transfer *transfer = move->transfer;
	zcc_status status = zcci_comm_patience(transfer->comm, "transfer run", error);
	int64_t now = zcc_clock_ns();
	w->since_ns = w->since_ns == 0 ? now : w->since_ns;
	if (status == ZCC_OK && transfer->timeout_ns > 0 && now - w->since_ns > transfer->timeout_ns)
		status = zcci_fail(error, ZCC_EPEER, 0, "transfer run", "nothing moved between devices for %.1f s",
		                   (double)(now - w->since_ns) / 1e9);
	if (status == ZCC_OK)
		zcci_idle_wait(&w->idle);
	return status;
}

static zcc_status await_group(const zcci_device_move *move, zcc_error *error)
{
	waiting w = {.since_ns = 0};
	for (;;) {
		int32_t ready = 0;
		zcc_status status = move->transfer->transport->ready(move->group, &ready, error);
		if (status != ZCC_OK || ready)
			return status;
		status = wait_a_little(move, &w, error);
		if (status != ZCC_OK)
			return status;
	}
}

static zcc_status await_stream(const zcci_device_move *move, zcc_stream *stream, zcc_error *error)
{
	waiting w = {.since_ns = 0};
	for (;;) {
		int32_t done = 0;
		int32_t ready = 0;
		zcc_status status = zcc_stream_test(stream, &done, error);
		if (status == ZCC_OK && !done && move->group != NULL)
			status = move->transfer->transport->ready(move->group, &ready, error);
		if (status != ZCC_OK || done)
			return status;
		status = wait_a_little(move, &w, error);
		if (status != ZCC_OK)
			return status;
	}
}

/* ---- joining ---- */

zcc_status zcci_device_move_join(zcci_device_move *move, zcc_error *error)
{
	zcc_transfer *transfer = move->transfer;
	const zcci_transport_ops *ops = transfer->transport;
	zcc_comm *comm = transfer->comm;
	zcci_device_name name;
	zcci_transport_site site = {.comm = comm,
	                            .device = transfer->device,
	                            .rank = comm->rank,
	                            .size = comm->size,
	                            .timeout_ns = transfer->timeout_ns};
	zcc_error mine = {.status = ZCC_OK};
	zcci_device_move_leave(move);
	if (zcci_device_name_parse(zcc_device_name(transfer->device), &name, &mine) == ZCC_OK)
		site.device_index = name.index;
	for (int32_t p = 0; p < move->schedule->n_peers; p++) {
		const zcci_peer *peer = &move->schedule->peers[p];
		site.round_bytes += (peer->out.n_segments > 0) * move->schedule->chunk_bytes;
		site.round_bytes += (peer->in.n_segments > 0) * move->schedule->chunk_bytes;
	}
	if (ops->make_id != NULL && comm->rank == 0)
		ops->make_id(site.id, &mine);
	zcc_status status = ops->make_id != NULL ? zcc_comm_agree(comm, &mine, error) : ZCC_OK;
	if (status == ZCC_OK && ops->make_id != NULL)
		status = zcc_comm_broadcast(comm, site.id, sizeof site.id, 0, error);
	if (status != ZCC_OK)
		return status;
	void *group = NULL;
	ops->open(&site, &group, &mine);
	/* Agreed on before anyone waits for the others to come: a process that could not open will not. */
	status = zcc_comm_agree(comm, &mine, error);
	move->group = group;
	if (status == ZCC_OK) {
		await_group(move, &mine);
		status = zcc_comm_agree(comm, &mine, error);
	}
	if (status != ZCC_OK)
		zcci_device_move_leave(move);
	move->pinned_bytes = status == ZCC_OK && ops == &zcci_staged_ops ? site.round_bytes : 0;
	return status;
}

/* ---- chunks ---- */

/* A chunk of one part that is dense here needs no staging. */
static char *own_memory(const zcci_device_move *move, const lane *l, const zcci_chunk *chunk)
{
	if (chunk->n_parts != 1)
		return NULL;
	zcci_cursor at = chunk->begin;
	zcci_part part;
	zcci_part_next(move->schedule, l->list, &at, 0, &part);
	zcci_transfer_bind_route(move->transfer, &part.route);
	return l->sends ? zcci_route_source_range(&part.route, part.first, part.count)
	                : zcci_route_target_range(&part.route, part.first, part.count);
}

static zcc_status fill_or_empty(const zcci_device_move *move, const lane *l, const slot *s, zcc_error *error)
{
	zcci_cursor at = s->chunk.begin;
	int64_t used = 0;
	zcc_status status = ZCC_OK;
	for (int64_t i = 0; status == ZCC_OK && i < s->chunk.n_parts; i++) {
		zcci_part part;
		zcci_part_next(move->schedule, l->list, &at, used, &part);
		zcci_transfer_bind_route(move->transfer, &part.route);
		if (l->sends)
			status = zcci_device_route_pack(&part.route, part.first, part.count, s->data + part.at_bytes,
			                                move->packing, error);
		else
			status = zcci_device_route_unpack(&part.route, part.first, part.count, s->data + part.at_bytes,
			                                  move->packing, &move->unpack_scratch, error);
		used = part.at_bytes + part.bytes;
	}
	return status;
}

/* ---- rounds ----
 *
 * The packing stream runs pack 0, pack 1, unpack 0, pack 2, unpack 1, …, the other one exchange 0, exchange 1, …. An
 * unpack waits for its exchange, an exchange for its pack. With that a stage is free when it is used again: pack r
 * comes after unpack r − 2, and so after exchange r − 2, which has read what was packed there; exchange r comes after
 * pack r, and so after unpack r − 2, which has read what had come in.
 */

static zcc_status pack(zcci_device_move *move, int64_t round, zcc_error *error)
{
	int32_t k = (int32_t)(round % DEPTH);
	zcc_status status = ZCC_OK;
	for (int32_t i = 0; status == ZCC_OK && i < move->n_lanes; i++) {
		lane *l = &move->lanes[i];
		slot *s = &l->slots[k];
		s->used = zcci_chunk_next(move->schedule, l->list, &l->next, &s->chunk);
		if (!s->used)
			continue;
		char *own = own_memory(move, l, &s->chunk);
		s->own = own != NULL;
		s->data = own != NULL ? own : l->stage[k];
		if (l->sends && !s->own)
			status = fill_or_empty(move, l, s, error);
	}
	return status == ZCC_OK ? zcc_event_record(move->packed[k], move->packing, error) : status;
}

static zcc_status exchange(zcci_device_move *move, int64_t round, zcc_error *error)
{
	int32_t k = (int32_t)(round % DEPTH);
	int32_t n = 0;
	for (int32_t i = 0; i < move->n_lanes; i++) {
		const lane *l = &move->lanes[i];
		const slot *s = &l->slots[k];
		if (s->used)
			move->messages[n++] = (zcci_message){
			        .data = s->data, .bytes = s->chunk.bytes, .peer = l->peer, .sends = l->sends};
	}
	zcc_status status = ZCCI_WAIT(device_exchange, zcc_stream_wait_event(move->wire, move->packed[k], error));
	if (status == ZCC_OK && n > 0)
		status = move->transfer->transport->exchange(move->group, move->wire, move->wire->impl, move->messages,
		                                             n, error);
	/* Only what has reached the stream can be marked. */
	if (status == ZCC_OK && n > 0)
		status = await_group(move, error);
	return status == ZCC_OK ? zcc_event_record(move->exchanged[k], move->wire, error) : status;
}

static zcc_status unpack(zcci_device_move *move, int64_t round, zcc_error *error)
{
	int32_t k = (int32_t)(round % DEPTH);
	int64_t bytes = 0;
	zcc_status status = ZCCI_WAIT(device_unpack, zcc_stream_wait_event(move->packing, move->exchanged[k], error));
	for (int32_t i = 0; status == ZCC_OK && i < move->n_lanes; i++) {
		const lane *l = &move->lanes[i];
		const slot *s = &l->slots[k];
		if (s->used && !l->sends && !s->own)
			status = fill_or_empty(move, l, s, error);
		bytes += s->used ? s->chunk.payload_bytes : 0;
		move->sent_bytes += s->used && l->sends ? s->chunk.payload_bytes : 0;
	}
	atomic_fetch_add_explicit(&move->transfer->done_bytes, bytes, memory_order_relaxed);
	return status;
}

static zcc_status copy_local(zcci_device_move *move, zcc_error *error)
{
	const zcci_list *list = &move->schedule->local;
	zcc_status status = ZCC_OK;
	for (int64_t i = 0; status == ZCC_OK && i < list->n_segments; i++) {
		zcci_route route;
		zcci_schedule_route(move->schedule, list->segments[i], &route);
		zcci_transfer_bind_route(move->transfer, &route);
		status = zcci_device_route_copy(&route, move->local, &move->local_scratch, error);
		int64_t bytes = list->segments[i]->elems * route.source_elem_bytes;
		move->copied_bytes += bytes;
		atomic_fetch_add_explicit(&move->transfer->done_bytes, bytes, memory_order_relaxed);
	}
	return status;
}

static void begin(zcci_device_move *move)
{
	int64_t total = move->schedule->local.bytes;
	for (int32_t i = 0; i < move->n_lanes; i++) {
		total += move->lanes[i].list->bytes;
		move->lanes[i].next = (zcci_cursor){0};
		for (int32_t k = 0; k < DEPTH; k++)
			move->lanes[i].slots[k].used = false;
	}
	move->sent_bytes = 0;
	move->copied_bytes = 0;
	atomic_store_explicit(&move->transfer->done_bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&move->transfer->total_bytes, total, memory_order_relaxed);
}

/* All rounds, or up to the first that some process cannot begin: *stopped. That the last has been handed over is agreed
 * on too: no device waits for what a process could not hand over. */
static zcc_status run_rounds(zcci_device_move *move, int64_t n_rounds, zcc_status fault, bool *stopped,
                             zcc_error *error)
{
	zcc_comm *comm = move->transfer->comm;
	if (fault == ZCC_OK && n_rounds > 0)
		fault = pack(move, 0, error);
	for (int64_t round = 0;; round++) {
		if (fault == ZCC_OK && round + 1 < n_rounds)
			fault = pack(move, round + 1, error);
		if (fault == ZCC_OK && zcc_interrupted())
			fault = zcci_comm_interrupted("transfer run", error);
		int64_t faults = fault != ZCC_OK;
		zcc_status status = zcc_comm_max(comm, &faults, 1, fault == ZCC_OK ? error : NULL);
		*stopped = status != ZCC_OK || faults > 0;
		if (*stopped || round == n_rounds)
			return fault != ZCC_OK ? fault : status;
		fault = exchange(move, round, error);
		if (fault == ZCC_OK)
			fault = unpack(move, round, error);
	}
}

zcc_status zcci_device_move_run(zcci_device_move *move, zcc_error *error)
{
	zcc_comm *comm = move->transfer->comm;
	bool stopped = false;
	int64_t n_rounds = move->n_rounds;
	begin(move);
	zcc_status status = zcc_comm_max(comm, &n_rounds, 1, error);
	if (status != ZCC_OK)
		return status;
	status = copy_local(move, error);
	status = run_rounds(move, n_rounds, status, &stopped, error);
	/* Nothing is touched any more when this returns, whatever happened. */
	zcc_stream *const streams[] = {move->packing, move->wire, move->local};
	for (int32_t i = 0; i < 3; i++) {
		if (status == ZCC_OK && !stopped)
			status = ZCCI_WAIT(device_end, await_stream(move, streams[i], error));
	}
	if (status != ZCC_OK || stopped)
		zcci_device_move_leave(move);
	for (int32_t i = 0; i < 3 && (status != ZCC_OK || stopped); i++)
		zcc_stream_wait(streams[i], NULL);
	return status;
}

void zcci_device_move_result(const zcci_device_move *move, zcc_transfer_result *result)
{
	*result = (zcc_transfer_result){
	        .staging_peak_bytes = move->staging_bytes + move->pinned_bytes,
	        .wire_bytes = move->sent_bytes,
	        .copied_bytes = move->copied_bytes,
	};
}
