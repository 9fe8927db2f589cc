/* One run of a transfer: the streams to other processes and the work that needs none, side by side. */
#ifndef ZCCI_MOVE_H
#define ZCCI_MOVE_H

#include "transfer/handle.h"

typedef struct zcci_move zcci_move;

/* All memory that the run needs. ZCC_ENOMEM. */
zcc_status zcci_move_create(zcc_transfer *transfer, zcci_move **move, zcc_error *error);
void zcci_move_destroy(zcci_move *move);
/* Tells peers what they need to know, waiting for what they tell, and starts the first messages. */
void zcci_move_start(zcci_move *move);
/* Moves what this process takes part in until all of it is done, or until that time on the clock of zcc_clock_ns; at
 * least one turn. Returns whether nothing is left. After a fault here or at a peer the protocol is still carried to its
 * end, so that the processes can agree on the fault. */
bool zcci_move_work(zcci_move *move, int64_t until_ns);
/* This process's fault so far, ZCC_OK where there is none; a fault of a peer alone is none. */
const zcc_error *zcci_move_fault(const zcci_move *move);
/* Gives up what is not done: no message is left that could write to bound memory, if the others let that happen within
 * a few seconds. */
void zcci_move_abandon(zcci_move *move);
/* Whether this group of processes can carry no further run. */
bool zcci_move_unclean(const zcci_move *move);
/* Everything but ns. */
void zcci_move_result(const zcci_move *move, zcc_transfer_result *result);

#endif
