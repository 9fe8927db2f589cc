/* NCCL's send and receive as a way between GPUs: a plug-in. */
#ifndef ZCCI_NCCL_TRANSPORT_H
#define ZCCI_NCCL_TRANSPORT_H

#include "transfer/transport.h"

/* zcci_transport_plugin of transfer/transport.h. The core compares the table's version with its own. */
ZCC_API const zcci_transport_ops *zcc_transport_plugin(uint32_t core_version);

#endif
