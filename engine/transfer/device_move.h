/* One run of a transfer between devices: packed on the device, sent in rounds, unpacked there. All processes go through
 * the same rounds, in each of which a process sends and receives one chunk for each peer; they agree on each round
 * before it begins, so that after a fault none waits for a message that will not come. */
#ifndef ZCCI_DEVICE_MOVE_H
#define ZCCI_DEVICE_MOVE_H

#include "transfer/handle.h"

typedef struct zcci_device_move zcci_device_move;

/* All memory that runs need. Local. ZCC_ENOMEM, ZCC_EDEVICE. */
zcc_status zcci_device_move_create(zcc_transfer *transfer, zcci_device_move **move, zcc_error *error);
void zcci_device_move_destroy(zcci_device_move *move);
/* Collective, where some process is not joined: makes the processes a group of the transport. Every process has come to
 * the same result where it returns. */
zcc_status zcci_device_move_join(zcci_device_move *move, zcc_error *error);
/* Whether it is a member of a group. */
bool zcci_device_move_joined(const zcci_device_move *move);
/* Gives the group up, and all that is under way in it. Local. */
void zcci_device_move_leave(zcci_device_move *move);
/* Collective, all joined. A fault of a peer alone is ZCC_OK here. */
zcc_status zcci_device_move_run(zcci_device_move *move, zcc_error *error);
/* Everything but ns. */
void zcci_device_move_result(const zcci_device_move *move, zcc_transfer_result *result);

#endif
