#include "transfer/wire.h"

#include "base/memory.h"
#include "base/status.h"

/* A chunk in flight. */
typedef struct slot {
	bool busy;
	zcci_chunk chunk;
	int64_t sequence;
	char *data;
} slot;

/* One direction of a peer. */
typedef struct lane {
	int32_t peer;
	bool sends;
	bool ended; /* nothing more will be started */
	const zcci_list *list;
	zcci_cursor next;
	int64_t sequence;    /* of the next chunk */
	int64_t stage_bytes; /* per slot, 0 where no chunk is staged */
	char *stage;
	int32_t n_busy;
	slot *slots; /* depth, and one for the empty message that ends a stream early */
} lane;

struct zcci_wire {
	zcc_transfer *transfer;
	const zcci_schedule *schedule;
	int32_t n_lanes;
	lane *lanes;        /* receiving ones first */
	int32_t lane_slots; /* depth + 1 */
	slot *slots;
	int32_t *done; /* for poll */
	int64_t *done_bytes;
	int64_t staging_bytes;
	int64_t sent_bytes;
	bool stopping;
	bool stopped_by_peer;
	bool abandoned; /* messages may still come in */
	bool confused;  /* a message was none of those due: */
	zcc_error confusion;
};

/* ---- making ---- */

static void add_lane(zcci_wire *wire, int32_t peer, bool sends, const zcci_list *list, int64_t stage_bytes)
{
	if (list->n_segments == 0)
		return;
	lane *l = &wire->lanes[wire->n_lanes];
	*l = (lane){.peer = peer, .sends = sends, .list = list, .stage_bytes = stage_bytes};
	l->slots = wire->slots + (int64_t)wire->n_lanes * wire->lane_slots;
	wire->n_lanes++;
}

static zcc_status take_staging(zcci_wire *wire, zcc_error *error)
{
	for (int32_t i = 0; i < wire->n_lanes; i++) {
		lane *l = &wire->lanes[i];
		if (l->stage_bytes == 0)
			continue;
		/* A stream that fits one chunk has only one in flight. */
		int64_t bytes =
		        l->list->bytes <= l->stage_bytes ? l->stage_bytes : l->stage_bytes * wire->schedule->depth;
		l->stage = zcci_malloc(bytes);
		if (l->stage == NULL)
			return zcci_fail(error, ZCC_ENOMEM, 0, "transfer run",
			                 "no memory for %lld bytes of staging for process %d", (long long)bytes,
			                 l->peer);
		wire->staging_bytes += bytes;
	}
	return ZCC_OK;
}

zcc_status zcci_wire_create(zcc_transfer *transfer, zcci_wire **wire, zcc_error *error)
{
	const zcci_schedule *schedule = transfer->schedule;
	int64_t lanes = 2 * (int64_t)schedule->n_peers;
	zcci_wire *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "transfer run", "no memory for streams");
	made->transfer = transfer;
	made->schedule = schedule;
	made->lane_slots = schedule->depth + 1;
	int64_t n_slots = lanes * made->lane_slots;
	made->lanes = zcci_calloc(lanes, sizeof *made->lanes);
	made->slots = zcci_calloc(n_slots, sizeof *made->slots);
	made->done = zcci_calloc(n_slots, sizeof *made->done);
	made->done_bytes = zcci_calloc(n_slots, sizeof *made->done_bytes);
	zcc_status status = ZCC_OK;
	if (made->lanes == NULL || made->slots == NULL || made->done == NULL || made->done_bytes == NULL)
		status = zcci_fail(error, ZCC_ENOMEM, 0, "transfer run", "no memory for streams to %d processes",
		                   schedule->n_peers);
	if (status == ZCC_OK) {
		for (int32_t p = 0; p < schedule->n_peers; p++)
			add_lane(made, schedule->peers[p].process, false, &schedule->peers[p].in,
			         schedule->peers[p].in_stage_bytes);
		for (int32_t p = 0; p < schedule->n_peers; p++)
			add_lane(made, schedule->peers[p].process, true, &schedule->peers[p].out,
			         schedule->peers[p].out_stage_bytes);
		status = take_staging(made, error);
	}
	if (status == ZCC_OK && made->n_lanes > 0)
		status = transfer->comm->ops->reserve(transfer->comm, made->n_lanes * made->lane_slots, error);
	if (status != ZCC_OK) {
		zcci_wire_destroy(made);
		return status;
	}
	*wire = made;
	return ZCC_OK;
}

void zcci_wire_destroy(zcci_wire *wire)
{
	if (wire == NULL)
		return;
	for (int32_t i = 0; !wire->abandoned && i < wire->n_lanes; i++)
		zcci_free(wire->lanes[i].stage);
	zcci_free(wire->lanes);
	zcci_free(wire->slots);
	zcci_free(wire->done);
	zcci_free(wire->done_bytes);
	zcci_free(wire);
}

int64_t zcci_wire_staging(const zcci_wire *wire)
{
	return wire->staging_bytes;
}

int64_t zcci_wire_sent_bytes(const zcci_wire *wire)
{
	return wire->sent_bytes;
}

/* ---- chunks ---- */

static int32_t slot_number(const zcci_wire *wire, const lane *l, int32_t index)
{
	return (int32_t)(l - wire->lanes) * wire->lane_slots + index;
}

static slot *free_slot(const zcci_wire *wire, const lane *l, int32_t *index)
{
	for (int32_t i = 0; i < wire->schedule->depth; i++) {
		if (!l->slots[i].busy) {
			*index = i;
			return &l->slots[i];
		}
	}
	return NULL;
}

/* A chunk of one part that is dense here needs no staging. */
static char *own_memory(const zcci_wire *wire, const lane *l, const zcci_chunk *chunk)
{
	if (chunk->n_parts != 1)
		return NULL;
	zcci_cursor at = chunk->begin;
	zcci_part part;
	zcci_part_next(wire->schedule, l->list, &at, 0, &part);
	zcci_transfer_bind_route(wire->transfer, &part.route);
	return l->sends ? zcci_route_source_range(&part.route, part.first, part.count)
	                : zcci_route_target_range(&part.route, part.first, part.count);
}

static void fill_or_empty(const zcci_wire *wire, const lane *l, const zcci_chunk *chunk, char *stage)
{
	zcci_cursor at = chunk->begin;
	int64_t used = 0;
	for (int64_t i = 0; i < chunk->n_parts; i++) {
		zcci_part part;
		zcci_part_next(wire->schedule, l->list, &at, used, &part);
		zcci_transfer_bind_route(wire->transfer, &part.route);
		if (l->sends)
			zcci_route_pack(&part.route, part.first, part.count, stage + used);
		else
			zcci_route_unpack(&part.route, part.first, part.count, stage + used);
		used += part.bytes;
	}
}

static zcc_status send_stop(zcci_wire *wire, lane *l, zcc_error *error)
{
	static char nothing;
	int32_t index = wire->schedule->depth;
	l->ended = true;
	l->slots[index].busy = true;
	l->n_busy++;
	zcc_comm *comm = wire->transfer->comm;
	return comm->ops->send(comm, slot_number(wire, l, index), l->peer, &nothing, 0, error);
}

/* Starts the next chunk of a lane where a slot is free. */
static zcc_status advance(zcci_wire *wire, lane *l, zcc_error *error)
{
	zcc_comm *comm = wire->transfer->comm;
	int32_t index = 0;
	slot *s = free_slot(wire, l, &index);
	if (s == NULL || l->ended)
		return ZCC_OK;
	if (l->next.segment >= l->list->n_segments) {
		l->ended = true;
		return ZCC_OK;
	}
	if (l->sends && wire->stopping)
		return send_stop(wire, l, error);
	zcci_chunk_next(wire->schedule, l->list, &l->next, &s->chunk);
	l->ended = l->next.segment >= l->list->n_segments;
	char *own = own_memory(wire, l, &s->chunk);
	s->data = own != NULL ? own : l->stage + index * l->stage_bytes;
	s->sequence = l->sequence++;
	s->busy = true;
	l->n_busy++;
	if (l->sends && own == NULL)
		fill_or_empty(wire, l, &s->chunk, s->data);
	int32_t number = slot_number(wire, l, index);
	if (l->sends)
		return comm->ops->send(comm, number, l->peer, s->data, s->chunk.bytes, error);
	return comm->ops->receive(comm, number, l->peer, s->data, s->chunk.bytes, error);
}

zcc_status zcci_wire_start(zcci_wire *wire, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	for (int32_t turn = 0; turn < 2; turn++) {
		bool sends = turn == 1;
		for (int32_t k = 0; k < wire->schedule->depth; k++)
			for (int32_t i = 0; status == ZCC_OK && i < wire->n_lanes; i++)
				if (wire->lanes[i].sends == sends)
					status = advance(wire, &wire->lanes[i], error);
	}
	return status;
}

/* The peer stopped after the chunks before this one: those behind it will not come. */
static zcc_status stream_stopped(zcci_wire *wire, lane *l, int64_t sequence, zcc_error *error)
{
	zcc_comm *comm = wire->transfer->comm;
	zcc_status status = ZCC_OK;
	l->ended = true;
	wire->stopped_by_peer = true;
	for (int32_t i = 0; status == ZCC_OK && i < wire->schedule->depth; i++) {
		slot *s = &l->slots[i];
		if (!s->busy || s->sequence <= sequence)
			continue;
		status = comm->ops->cancel(comm, slot_number(wire, l, i), error);
		s->busy = false;
		l->n_busy--;
	}
	return status;
}

static zcc_status message_ended(zcci_wire *wire, int32_t number, int64_t bytes, zcc_error *error)
{
	lane *l = &wire->lanes[number / wire->lane_slots];
	slot *s = &l->slots[number % wire->lane_slots];
	s->busy = false;
	l->n_busy--;
	bool is_stop = number % wire->lane_slots == wire->schedule->depth;
	if (l->sends && is_stop)
		return ZCC_OK;
	if (!l->sends && bytes == 0)
		return stream_stopped(wire, l, s->sequence, error);
	if (!l->sends && bytes != s->chunk.bytes && !wire->confused) {
		wire->confused = true;
		zcci_fail(&wire->confusion, ZCC_EPEER, 0, "transfer run", "process %d sent %lld bytes, %lld were due",
		          l->peer, (long long)bytes, (long long)s->chunk.bytes);
	}
	if (l->sends)
		wire->sent_bytes += s->chunk.bytes;
	else if (!wire->stopping && !wire->confused && own_memory(wire, l, &s->chunk) == NULL)
		fill_or_empty(wire, l, &s->chunk, s->data);
	atomic_fetch_add_explicit(&wire->transfer->done_bytes, s->chunk.bytes, memory_order_relaxed);
	return advance(wire, l, error);
}

zcc_status zcci_wire_turn(zcci_wire *wire, bool *moved, bool *finished, zcc_error *error)
{
	zcc_comm *comm = wire->transfer->comm;
	int32_t n_done = 0;
	*moved = false;
	*finished = true;
	if (wire->n_lanes == 0)
		return ZCC_OK;
	zcc_status status = comm->ops->poll(comm, wire->done, wire->done_bytes, &n_done, error);
	for (int32_t i = 0; status == ZCC_OK && i < n_done; i++)
		status = message_ended(wire, wire->done[i], wire->done_bytes[i], error);
	*moved = n_done > 0;
	for (int32_t i = 0; i < wire->n_lanes; i++)
		*finished = *finished && wire->lanes[i].ended && wire->lanes[i].n_busy == 0;
	return status;
}

/* ---- endings ---- */

void zcci_wire_stop(zcci_wire *wire)
{
	wire->stopping = true;
}

bool zcci_wire_stopped(const zcci_wire *wire)
{
	return wire->stopped_by_peer;
}

bool zcci_wire_unclean(const zcci_wire *wire)
{
	return wire->abandoned || wire->confused;
}

zcc_status zcci_wire_fault(const zcci_wire *wire, zcc_error *error)
{
	if (wire->confused && error != NULL)
		*error = wire->confusion;
	return wire->confused ? wire->confusion.status : ZCC_OK;
}

zcc_status zcci_wire_abandon(zcci_wire *wire, int64_t waited_ns, zcc_error *error)
{
	zcc_comm *comm = wire->transfer->comm;
	zcc_status status = ZCC_OK;
	if (wire->abandoned)
		return status;
	wire->abandoned = true;
	for (int32_t i = 0; i < wire->n_lanes; i++) {
		lane *l = &wire->lanes[i];
		if (l->ended && l->n_busy == 0)
			continue;
		if (status == ZCC_OK)
			status = zcci_fail(error, ZCC_EPEER, 0, "transfer run", "%s process %d did not move for %.1f s",
			                   l->sends ? "the stream to" : "the stream from", l->peer,
			                   (double)waited_ns / 1e9);
		for (int32_t k = 0; !l->sends && k < wire->schedule->depth; k++)
			if (l->slots[k].busy && comm->ops->cancel(comm, slot_number(wire, l, k), NULL) != ZCC_OK)
				return status;
	}
	return status;
}
