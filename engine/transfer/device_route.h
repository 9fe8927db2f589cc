/* What route.h does, by the kernels of a device: every call hands work to a stream. */
#ifndef ZCCI_DEVICE_ROUTE_H
#define ZCCI_DEVICE_ROUTE_H

#include "transfer/route.h"
#include "zcc/device.h"

/* Room of the stream for conversions, in memory of the device; calls on one stream share one. */
typedef struct zcci_scratch {
	char *source; /* source elements in a row, source_bytes; NULL where only chunks are unpacked */
	char *target; /* target elements in a row, target_bytes */
	int64_t source_bytes;
	int64_t target_bytes;
} zcci_scratch;

/* Whether the device's kernels can do it: any elements as they are, F16, BF16 and F32 into each other without a factor.
 */
bool zcci_device_route_supported(const zcci_route *route);
/* All of a segment, memory to memory. */
zcc_status zcci_device_route_copy(const zcci_route *route, zcc_stream *stream, const zcci_scratch *scratch,
                                  zcc_error *error);
/* As zcci_route_pack, to a chunk at `dense`. */
zcc_status zcci_device_route_pack(const zcci_route *route, int64_t first, int64_t count, void *dense,
                                  zcc_stream *stream, zcc_error *error);
/* As zcci_route_unpack. */
zcc_status zcci_device_route_unpack(const zcci_route *route, int64_t first, int64_t count, const void *dense,
                                    zcc_stream *stream, const zcci_scratch *scratch, zcc_error *error);

#endif
