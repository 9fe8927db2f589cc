#include "device/cuda/order.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "device/cuda/call.h"

zcc_status zcci_cuda_stream_create(void *device, void **stream, zcc_error *error)
{
	const zcci_cuda_device *d = device;
	cudaStream_t made = NULL;
	int previous;
	zcc_status status = zcci_cuda_enter(d, "stream create", &previous, error);
	if (status != ZCC_OK)
		return status;
	/* Not ordered with the legacy default stream, where a framework may have work of its own. */
	cudaError_t code = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
	if (code == cudaSuccess)
		*stream = made;
	else
		status =
		        zcci_cuda_fault(error, code, "stream create", "cudaStreamCreateWithFlags on cuda:%d", d->index);
	zcci_cuda_leave(d, previous);
	return status;
}

void zcci_cuda_stream_destroy(void *device, void *stream)
{
	const zcci_cuda_device *d = device;
	int previous;
	if (zcci_cuda_enter(d, "stream destroy", &previous, NULL) != ZCC_OK)
		return;
	cudaStreamSynchronize(stream);
	cudaStreamDestroy(stream);
	cudaGetLastError();
	zcci_cuda_leave(d, previous);
}

static zcc_status test_stream(const zcci_cuda_device *d, void *handle, int32_t *done, zcc_error *error)
{
	cudaError_t code = cudaStreamQuery(handle);
	*done = code == cudaSuccess;
	if (code == cudaSuccess || code == cudaErrorNotReady)
		return ZCC_OK;
	return zcci_cuda_fault(error, code, "stream wait", "work on a stream of cuda:%d", d->index);
}

static zcc_status test_event(const zcci_cuda_device *d, void *handle, int32_t *done, zcc_error *error)
{
	cudaError_t code = cudaEventQuery(handle);
	*done = code == cudaSuccess;
	if (code == cudaSuccess || code == cudaErrorNotReady)
		return ZCC_OK;
	return zcci_cuda_fault(error, code, "event wait", "work before an event of cuda:%d", d->index);
}

typedef zcc_status test_function(const zcci_cuda_device *d, void *handle, int32_t *done, zcc_error *error);

/* cudaStreamSynchronize and cudaEventSynchronize do not give way to signals. */
static zcc_status wait_for(const zcci_cuda_device *d, test_function *test, void *handle, const char *operation,
                           zcc_error *error)
{
	enum { SPIN_TURNS = 128, YIELD_TURNS = 512, NAP_NS = 20000 };
	int previous;
	int32_t done = 0;
	zcc_status status = zcci_cuda_enter(d, operation, &previous, error);
	if (status != ZCC_OK)
		return status;
	for (int32_t turn = 0;; turn++) {
		status = test(d, handle, &done, error);
		if (status != ZCC_OK || done)
			break;
		if (zcc_interrupted()) {
			status = zcci_fail(error, ZCC_EINTR, zcc_interrupted(), operation, "stopped by %s",
			                   strsignal(zcc_interrupted()));
			break;
		}
		if (turn > YIELD_TURNS) {
			turn = YIELD_TURNS;
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
		} else if (turn > SPIN_TURNS) {
			sched_yield();
		}
	}
	zcci_cuda_leave(d, previous);
	return status;
}

static zcc_status test_once(const zcci_cuda_device *d, test_function *test, void *handle, const char *operation,
                            int32_t *done, zcc_error *error)
{
	int previous;
	int32_t is_done = 0;
	zcc_status status = zcci_cuda_enter(d, operation, &previous, error);
	if (status != ZCC_OK)
		return status;
	status = test(d, handle, &is_done, error);
	if (status == ZCC_OK)
		*done = is_done;
	zcci_cuda_leave(d, previous);
	return status;
}

zcc_status zcci_cuda_stream_wait(void *device, void *stream, zcc_error *error)
{
	return wait_for(device, test_stream, stream, "stream wait", error);
}

zcc_status zcci_cuda_stream_test(void *device, void *stream, int32_t *done, zcc_error *error)
{
	return test_once(device, test_stream, stream, "stream test", done, error);
}

zcc_status zcci_cuda_event_wait(void *device, void *event, zcc_error *error)
{
	return wait_for(device, test_event, event, "event wait", error);
}

zcc_status zcci_cuda_event_test(void *device, void *event, int32_t *done, zcc_error *error)
{
	return test_once(device, test_event, event, "event test", done, error);
}

zcc_status zcci_cuda_stream_wait_event(void *device, void *stream, void *event, zcc_error *error)
{
	const zcci_cuda_device *d = device;
	int previous;
	zcc_status status = zcci_cuda_enter(d, "stream wait event", &previous, error);
	if (status != ZCC_OK)
		return status;
	cudaError_t code = cudaStreamWaitEvent(stream, event, 0);
	if (code != cudaSuccess)
		status = zcci_cuda_fault(error, code, "stream wait event", "cudaStreamWaitEvent on cuda:%d", d->index);
	zcci_cuda_leave(d, previous);
	return status;
}

zcc_status zcci_cuda_event_create(void *device, void **event, zcc_error *error)
{
	const zcci_cuda_device *d = device;
	cudaEvent_t made = NULL;
	int previous;
	zcc_status status = zcci_cuda_enter(d, "event create", &previous, error);
	if (status != ZCC_OK)
		return status;
	cudaError_t code = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
	if (code == cudaSuccess)
		*event = made;
	else
		status = zcci_cuda_fault(error, code, "event create", "cudaEventCreateWithFlags on cuda:%d", d->index);
	zcci_cuda_leave(d, previous);
	return status;
}

void zcci_cuda_event_destroy(void *device, void *event)
{
	const zcci_cuda_device *d = device;
	int previous;
	if (zcci_cuda_enter(d, "event destroy", &previous, NULL) != ZCC_OK)
		return;
	cudaEventDestroy(event);
	zcci_cuda_leave(d, previous);
}

zcc_status zcci_cuda_event_record(void *device, void *event, void *stream, zcc_error *error)
{
	const zcci_cuda_device *d = device;
	int previous;
	zcc_status status = zcci_cuda_enter(d, "event record", &previous, error);
	if (status != ZCC_OK)
		return status;
	cudaError_t code = cudaEventRecord(event, stream);
	if (code != cudaSuccess)
		status = zcci_cuda_fault(error, code, "event record", "cudaEventRecord on cuda:%d", d->index);
	zcci_cuda_leave(d, previous);
	return status;
}
