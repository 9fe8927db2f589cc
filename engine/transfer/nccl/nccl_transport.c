#include "transfer/nccl/nccl_transport.h"

#include <nccl.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct group {
	ncclComm_t comm;
	int32_t device;
	int32_t rank;
} group;

_Static_assert(sizeof(ncclUniqueId) <= ZCCI_TRANSPORT_ID_BYTES, "an id has room for NCCL's");

/* ---- faults ---- */

/* NCCL's words, those of the last error included: that is where it says which connection or which setting it was. */
static zcc_status refused(zcc_error *error, ncclResult_t code, ncclComm_t comm, const char *call, int32_t device)
{
	const char *last = ncclGetLastError(comm);
	zcc_status status = code == ncclRemoteError ? ZCC_EPEER : ZCC_EDEVICE;
	return zcci_fail(error, status, (int32_t)code, "transfer run", "%s on cuda:%d: %s (NCCL's error %d)%s%s", call,
	                 device, ncclGetErrorString(code), (int)code, last != NULL && *last != '\0' ? ": " : "",
	                 last != NULL ? last : "");
}

/* NCCL's versions are 10000 * major + 100 * minor + patch since 2.9. */
static zcc_status check_version(zcc_error *error)
{
	int has = 0;
	ncclResult_t code = ncclGetVersion(&has);
	if (code != ncclSuccess)
		return zcci_fail(error, ZCC_EDEVICE, (int32_t)code, "transfer run", "ncclGetVersion: %s",
		                 ncclGetErrorString(code));
	if (has / 10000 == NCCL_MAJOR && has >= NCCL_VERSION_CODE)
		return ZCC_OK;
	return zcci_fail(error, ZCC_EDEVICE, 0, "transfer run",
	                 "NCCL %d.%d.%d was loaded; this plug-in needs %d.%d.%d or a later %d.x", has / 10000,
	                 has / 100 % 100, has % 100, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, NCCL_MAJOR);
}

/* Makes the group's device the thread's current one, which it may share with a framework. */
static zcc_status enter(int32_t device, int *previous, zcc_error *error)
{
	*previous = device;
	cudaError_t code = cudaGetDevice(previous);
	if (code == cudaSuccess && *previous != device)
		code = cudaSetDevice(device);
	if (code == cudaSuccess)
		return ZCC_OK;
	return zcci_fail(error, ZCC_EDEVICE, (int32_t)code, "transfer run", "cudaSetDevice(%d): %s", device,
	                 cudaGetErrorString(code));
}

static void leave(int32_t device, int previous)
{
	if (previous != device)
		cudaSetDevice(previous);
}

/* ---- groups ---- */

static zcc_status make_id(uint8_t id[ZCCI_TRANSPORT_ID_BYTES], zcc_error *error)
{
	ncclUniqueId made;
	zcc_status status = check_version(error);
	if (status != ZCC_OK)
		return status;
	ncclResult_t code = ncclGetUniqueId(&made);
	if (code != ncclSuccess)
		return refused(error, code, NULL, "ncclGetUniqueId", 0);
	memset(id, 0, ZCCI_TRANSPORT_ID_BYTES);
	memcpy(id, &made, sizeof made);
	return ZCC_OK;
}

static zcc_status open_group(const zcci_transport_site *site, void **out, zcc_error *error)
{
	ncclUniqueId id;
	int previous;
	zcc_status status = check_version(error);
	if (status != ZCC_OK)
		return status;
	group *g = zcci_calloc(1, sizeof *g);
	if (g == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "transfer run", "no memory for a group of NCCL");
	g->device = site->device_index;
	g->rank = site->rank;
	memcpy(&id, site->id, sizeof id);
	/* No call waits for other processes: the caller looks for signals and time-outs between them. */
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	config.blocking = 0;
	status = enter(g->device, &previous, error);
	if (status == ZCC_OK) {
		ncclResult_t code = ncclCommInitRankConfig(&g->comm, site->size, id, site->rank, &config);
		if (code != ncclSuccess && code != ncclInProgress)
			status = refused(error, code, NULL, "ncclCommInitRankConfig", g->device);
		leave(g->device, previous);
	}
	if (status != ZCC_OK) {
		zcci_free(g);
		return status;
	}
	*out = g;
	return ZCC_OK;
}

static zcc_status is_ready(void *opened, int32_t *ready, zcc_error *error)
{
	group *g = opened;
	ncclResult_t state = ncclSuccess;
	ncclResult_t code = ncclCommGetAsyncError(g->comm, &state);
	if (code != ncclSuccess)
		return refused(error, code, g->comm, "ncclCommGetAsyncError", g->device);
	if (state != ncclSuccess && state != ncclInProgress)
		return refused(error, state, g->comm, "NCCL", g->device);
	*ready = state == ncclSuccess;
	return ZCC_OK;
}

static void abort_group(void *opened)
{
	group *g = opened;
	ncclCommAbort(g->comm);
	zcci_free(g);
}

static void close_group(void *opened)
{
	static const int64_t LIMIT_NS = 5000000000;
	group *g = opened;
	int64_t end_ns = zcc_clock_ns() + LIMIT_NS;
	int32_t done = 0;
	ncclResult_t code = ncclCommFinalize(g->comm);
	bool going = code == ncclSuccess || code == ncclInProgress;
	/* The others finalize too, or are gone. */
	while (going && !done && zcc_clock_ns() < end_ns && !zcc_interrupted()) {
		going = is_ready(g, &done, NULL) == ZCC_OK;
		if (going && !done)
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	}
	if (done)
		ncclCommDestroy(g->comm);
	else
		ncclCommAbort(g->comm);
	zcci_free(g);
}

/* ---- messages ---- */

/* InProgress: NCCL goes on with it by itself, and is_ready tells. */
static bool failed(ncclResult_t code)
{
	return code != ncclSuccess && code != ncclInProgress;
}

static ncclResult_t hand_over(const group *g, cudaStream_t stream, const zcci_message *messages, int32_t n,
                              const char **call)
{
	*call = "ncclGroupStart";
	ncclResult_t code = ncclGroupStart();
	if (failed(code))
		return code;
	for (int32_t i = 0; !failed(code) && i < n; i++) {
		const zcci_message *m = &messages[i];
		*call = m->sends ? "ncclSend" : "ncclRecv";
		code = m->sends ? ncclSend(m->data, (size_t)m->bytes, ncclUint8, m->peer, g->comm, stream)
		                : ncclRecv(m->data, (size_t)m->bytes, ncclUint8, m->peer, g->comm, stream);
	}
	/* A group that was begun is ended, also after a fault within it. */
	ncclResult_t end = ncclGroupEnd();
	if (failed(code))
		return code;
	*call = "ncclGroupEnd";
	return end;
}

static zcc_status exchange(void *opened, zcc_stream *stream, void *native, const zcci_message *messages,
                           int32_t n_messages, zcc_error *error)
{
	group *g = opened;
	int previous;
	const char *call;
	(void)stream;
	zcc_status status = enter(g->device, &previous, error);
	if (status != ZCC_OK)
		return status;
	ncclResult_t code = hand_over(g, native, messages, n_messages, &call);
	leave(g->device, previous);
	if (!failed(code))
		return ZCC_OK;
	status = refused(error, code, g->comm, call, g->device);
	return zcci_context(error, status, "process %d, %d messages", g->rank, n_messages);
}

static const zcci_transport_ops ops = {
        .version = ZCCI_TRANSPORT_VERSION,
        .struct_bytes = sizeof ops,
        .name = "nccl",
        .device = "cuda",
        .make_id = make_id,
        .open = open_group,
        .ready = is_ready,
        .exchange = exchange,
        .abort = abort_group,
        .close = close_group,
};

const zcci_transport_ops *zcc_transport_plugin(uint32_t core_version)
{
	(void)core_version;
	return &ops;
}
