/* Streams of the host device: each is a thread with a queue. An event points at the mark of its last record; who waits
 * for the event waits for the mark it had then, whatever is recorded later. */
#ifndef ZCCI_HOST_STREAM_H
#define ZCCI_HOST_STREAM_H

#include "device/work.h"

/* Slots of the table. */
zcc_status zcci_host_stream_create(void *device, void **stream, zcc_error *error);
void zcci_host_stream_destroy(void *device, void *stream);
zcc_status zcci_host_stream_wait(void *device, void *stream, zcc_error *error);
zcc_status zcci_host_stream_test(void *device, void *stream, int32_t *done, zcc_error *error);
zcc_status zcci_host_stream_wait_event(void *device, void *stream, void *event, zcc_error *error);
zcc_status zcci_host_event_create(void *device, void **event, zcc_error *error);
void zcci_host_event_destroy(void *device, void *event);
zcc_status zcci_host_event_record(void *device, void *event, void *stream, zcc_error *error);
zcc_status zcci_host_event_wait(void *device, void *event, zcc_error *error);
zcc_status zcci_host_event_test(void *device, void *event, int32_t *done, zcc_error *error);

/* Submits work on memory as the caller names it. Returns after it has run where pageable memory is among it. */
zcc_status zcci_host_submit(void *stream, const zcci_work *work, zcc_error *error);

#endif
