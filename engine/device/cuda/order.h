/* Streams and events: slots of the table. Both are CUDA's own handles. */
#ifndef ZCCI_CUDA_ORDER_H
#define ZCCI_CUDA_ORDER_H

#include "device/device.h"

zcc_status zcci_cuda_stream_create(void *device, void **stream, zcc_error *error);
void zcci_cuda_stream_destroy(void *device, void *stream);
zcc_status zcci_cuda_stream_wait(void *device, void *stream, zcc_error *error);
zcc_status zcci_cuda_stream_test(void *device, void *stream, int32_t *done, zcc_error *error);
zcc_status zcci_cuda_stream_wait_event(void *device, void *stream, void *event, zcc_error *error);
zcc_status zcci_cuda_event_create(void *device, void **event, zcc_error *error);
void zcci_cuda_event_destroy(void *device, void *event);
zcc_status zcci_cuda_event_record(void *device, void *event, void *stream, zcc_error *error);
zcc_status zcci_cuda_event_wait(void *device, void *event, zcc_error *error);
zcc_status zcci_cuda_event_test(void *device, void *event, int32_t *done, zcc_error *error);

#endif
