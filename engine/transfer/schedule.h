/* Who moves what in which order. Both ends of a stream compute the same chunks from the plan alone. */
#ifndef ZCCI_SCHEDULE_H
#define ZCCI_SCHEDULE_H

#include "base/memory.h"
#include "transfer/route.h"

/* Segments in canonical plan order. */
typedef struct zcci_list {
	const zcc_segment **segments;
	int64_t n_segments;
	int64_t bytes; /* in the source dtype */
} zcci_list;

/* A place in a list: the next element to be moved. */
typedef struct zcci_cursor {
	int64_t segment;
	int64_t elem;
} zcci_cursor;

/* One message: some elements of one or more segments that follow each other in a list. */
typedef struct zcci_chunk {
	zcci_cursor begin;
	int64_t n_parts;
	int64_t bytes;
	int64_t payload_bytes; /* without what aligns the parts */
} zcci_chunk;

/* A range of one segment in a chunk. Its route has no places yet. */
typedef struct zcci_part {
	zcci_route route;
	int64_t first;
	int64_t count;
	int64_t bytes;
	int64_t at_bytes; /* in the chunk */
	bool alone;       /* a chunk of its own, in place on both sides */
} zcci_part;

/* All that goes between this process and another one. */
typedef struct zcci_peer {
	int32_t process;
	zcci_list out; /* by messages */
	zcci_list in;
	zcci_list pull;   /* this process reads them from the peer's memory */
	zcci_list push;   /* this process writes them to the peer's memory */
	zcci_list pulled; /* the peer reads them from here */
	zcci_list pushed; /* the peer writes them here */
	/* The largest chunk that has to be staged, 0 where none has to. */
	int64_t out_stage_bytes;
	int64_t in_stage_bytes;
} zcci_peer;

typedef struct zcci_dtypes {
	int32_t source;
	int32_t target;
} zcci_dtypes;

typedef struct zcci_schedule {
	zcci_arena *arena;
	const zcci_dtypes *dtypes; /* by target parameter */
	int64_t chunk_bytes;       /* of a chunk that may have to be staged */
	int64_t alone_bytes;       /* the most of a chunk that is in place on both sides */
	int64_t align_bytes;       /* of the parts of a chunk */
	int32_t depth;             /* chunks in flight in each direction of a peer, at least 2 */
	zcci_list local;           /* memory of this process and files */
	int32_t n_peers;
	zcci_peer *peers;   /* ascending process */
	int64_t file_bytes; /* what the local list moves from or to files */
} zcci_schedule;

struct zcc_transfer;
/* What this process does. A file has no process: the segment is carried out where its other end is, and between two
 * files by process (parameter mod size). ZCC_EINVAL for an endpoint that is missing, ZCC_ENOMEM. */
zcc_status zcci_schedule_create(const struct zcc_transfer *transfer, zcci_schedule **schedule, zcc_error *error);
void zcci_schedule_destroy(zcci_schedule *schedule);

/* The route of a segment, without places. */
void zcci_schedule_route(const zcci_schedule *schedule, const zcc_segment *segment, zcci_route *route);
/* Cuts the next chunk of a stream and moves the cursor behind it; false at the end. */
bool zcci_chunk_next(const zcci_schedule *schedule, const zcci_list *list, zcci_cursor *cursor, zcci_chunk *chunk);
/* The part at the cursor (at first chunk->begin, used_bytes = 0); moves the cursor behind it. As often as the chunk
 * has parts. */
bool zcci_part_next(const zcci_schedule *schedule, const zcci_list *list, zcci_cursor *cursor, int64_t used_bytes,
                    zcci_part *part);

#endif
