/* The transfer handle, as its parts see it. */
#ifndef ZCCI_HANDLE_H
#define ZCCI_HANDLE_H

#include <stdatomic.h>

#include "transfer/comm.h"
#include "transfer/route.h"
#include "transfer/schedule.h"
#include "transfer/transport.h"

/* A shard bound by the caller: memory or a range of a file. */
typedef struct zcci_binding {
	void *data;
	zcc_file *file;
	int64_t offset_bytes;
	int64_t bytes;
} zcci_binding;

enum { ZCCI_UNPLACED = -1 };

typedef struct zcci_side {
	const zcc_layout *layout;
	const int32_t *ranks; /* ascending */
	int32_t n_ranks;
	int32_t n_params;
	int32_t *process;        /* endpoint of each rank, or ZCCI_UNPLACED */
	zcci_binding **bindings; /* by rank, then parameter; NULL for a rank with none */
} zcci_side;

struct zcc_transfer {
	zcc_plan *plan;
	zcc_comm *comm;
	int64_t staging_bytes;
	int64_t timeout_ns;
	int64_t digest; /* of the plan */
	const zcc_segment *segments;
	int64_t n_segments;
	zcci_side sides[2]; /* ZCC_SOURCE, ZCC_TARGET */
	zcc_device *device; /* whose memory is bound; NULL: ordinary memory and files */
	const zcci_transport_ops *transport;
	struct zcci_device_move *device_move; /* lives and dies with the schedule */
	zcci_schedule *schedule;              /* NULL until it is needed, and again when an endpoint changes */
	bool in_flight;                       /* a run was submitted */
	struct zcci_move *move;               /* the run in flight in ordinary memory, or NULL */
	int64_t start_ns;                     /* when it was submitted */
	_Atomic int64_t done_bytes;
	_Atomic int64_t total_bytes;
};

/* "source" or "target". */
const char *zcci_side_name(int32_t side);
/* Index of a rank in the side's tables, or −1. */
int32_t zcci_side_find(const zcci_side *side, int32_t rank);
/* The process that carries out a segment's end, resolving files: see zcci_schedule_create. ZCCI_UNPLACED where an
 * end has no endpoint. */
void zcci_transfer_ends(const zcc_transfer *transfer, const zcc_segment *segment, int32_t *source, int32_t *target);
/* The binding of one end of a segment, NULL where there is none. */
const zcci_binding *zcci_transfer_binding(const zcc_transfer *transfer, const zcc_segment *segment, int32_t side);
/* A route with the places of the ends that are bound here. */
void zcci_transfer_bind_route(const zcc_transfer *transfer, zcci_route *route);
/* Endpoints, bindings and reach of every segment that this process takes part in, and overlap of source and target
 * memory. */
zcc_status zcci_transfer_check(zcc_transfer *transfer, zcc_error *error);
/* Gives up the run in flight, if there is one, and the group of processes with it. */
void zcci_transfer_abandon(zcc_transfer *transfer);

#endif
