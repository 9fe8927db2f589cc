/* One run of a transfer: the streams to other processes and the work that needs none, side by side. */
#ifndef ZCCI_MOVE_H
#define ZCCI_MOVE_H

#include "transfer/handle.h"

typedef struct zcci_move zcci_move;

/* All memory that the run needs. ZCC_ENOMEM. */
zcc_status zcci_move_create(zcc_transfer *transfer, zcci_move **move, zcc_error *error);
void zcci_move_destroy(zcci_move *move);
/* Moves everything that this process takes part in. After a fault here or at a peer the protocol is still carried to
 * its end, so that the processes can agree on the fault; a fault of a peer alone is ZCC_OK here. */
zcc_status zcci_move_run(zcci_move *move, zcc_error *error);
/* Whether this group of processes can carry no further run. */
bool zcci_move_unclean(const zcci_move *move);
/* Everything but ns. */
void zcci_move_result(const zcci_move *move, zcc_transfer_result *result);

#endif
