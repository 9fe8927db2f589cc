/* Streams between this process and others: chunks in flight in both directions of every peer, none waiting for
 * another. */
#ifndef ZCCI_WIRE_H
#define ZCCI_WIRE_H

#include "transfer/handle.h"

typedef struct zcci_wire zcci_wire;

/* Takes all staging memory at once, so that nothing can be missing in the middle. ZCC_ENOMEM. */
zcc_status zcci_wire_create(zcc_transfer *transfer, zcci_wire **wire, zcc_error *error);
/* Staging that an abandoned message may still touch is not freed. */
void zcci_wire_destroy(zcci_wire *wire);
/* Receives first, then sends. A fault is one of MPI's and leaves the group broken. */
zcc_status zcci_wire_start(zcci_wire *wire, zcc_error *error);
/* Looks after every message that ended; *moved: there was one; *finished: nothing is left. */
zcc_status zcci_wire_turn(zcci_wire *wire, bool *moved, bool *finished, zcc_error *error);
/* Ends the streams of this process early, with an empty message to each peer, and drops what still comes in. Peers
 * do the same when they see it, so that every process ends in order. */
void zcci_wire_stop(zcci_wire *wire);
/* Whether a peer ended its stream early. */
bool zcci_wire_stopped(const zcci_wire *wire);
/* A peer sent what was not due. The streams go on, but what they bring is worth nothing. */
zcc_status zcci_wire_fault(const zcci_wire *wire, zcc_error *error);
/* Gives up on messages that do not end; the fault names a peer. */
zcc_status zcci_wire_abandon(zcci_wire *wire, int64_t waited_ns, zcc_error *error);

/* Whether late messages of this run could be taken for those of the next. */
bool zcci_wire_unclean(const zcci_wire *wire);

int64_t zcci_wire_staging(const zcci_wire *wire);
int64_t zcci_wire_sent_bytes(const zcci_wire *wire);

#endif
