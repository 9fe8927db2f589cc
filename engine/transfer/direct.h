/* Segments between processes of one host, copied once from shard to shard by one of the two processes. */
#ifndef ZCCI_DIRECT_H
#define ZCCI_DIRECT_H

#include "transfer/handle.h"

typedef struct zcci_direct zcci_direct;

/* ZCC_ENOMEM. */
zcc_status zcci_direct_create(zcc_transfer *transfer, zcci_direct **direct, zcc_error *error);
void zcci_direct_destroy(zcci_direct *direct);
/* Peers tell each other where their shards lie. Before any other message of the run; waits. */
zcc_status zcci_direct_meet(zcci_direct *direct, zcc_error *error);
/* Whether there is something left for this process to do. */
bool zcci_direct_left(const zcci_direct *direct);
/* Does some of what is left; *bytes is how much. *stopped: a peer ends its part early, and nothing was done. */
zcc_status zcci_direct_step(zcci_direct *direct, int64_t *bytes, bool *stopped, zcc_error *error);
/* Tells all peers that this process ends its part early, or begins a new run. */
void zcci_direct_stop(zcc_comm *comm, bool stop);

#endif
