/* A stand-in for NCCL over the stand-in for the CUDA runtime (tests/cuda/standin.h): groups of processes that find each
 * other in a folder, and messages as files in it. Nothing is done in the call: a group reaches its stream only after it
 * has been asked for several times, and moves when the stream runs. Sizes that differ between the two sides, a second
 * call before the first has reached the stream, and messages to oneself end the program. */
#include <dlfcn.h>
#include <limits.h>
#include <nccl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda/standin.h"

/* nccl.h declares these two for C++. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

/* So many times ncclCommGetAsyncError says "in progress". */
enum { PATIENCE = 3, MAX_MESSAGES = 64 };

typedef struct message {
	void *data;
	size_t bytes;
	int peer;
	bool sends;
	bool done;
	int64_t number; /* of the messages between the two in this direction */
} message;

typedef struct batch {
	struct batch *next;
	struct ncclComm *comm;
	cudaStream_t stream;
	int n;
	message messages[MAX_MESSAGES];
} batch;

struct ncclComm {
	char folder[108];
	int rank;
	int size;
	int asked;
	bool joined;
	bool aborted;
	int64_t *sent; /* by peer */
	int64_t *received;
	batch *waiting; /* not yet on its stream */
	int in_flight;  /* batches on streams */
};

static __thread batch *open_batch;
static __thread int depth;
static char last_error[200];

static void die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "stand-in for NCCL: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	abort();
}

/* ---- the other stand-in ---- */

static __typeof__(standin_submit) *submit;
static __typeof__(standin_real) *real;
static __typeof__(standin_device) *device;
static __typeof__(standin_set_device) *set_device;

static void find_cuda(void)
{
	char path[PATH_MAX];
	Dl_info self;
	if (submit != NULL)
		return;
	if (dladdr((void *)find_cuda, &self) == 0)
		die("it does not know where it is");
	snprintf(path, sizeof path, "%s", self.dli_fname);
	snprintf(strrchr(path, '/') + 1, 64, "libzcc_cuda.so");
	void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	if (library == NULL)
		die("%s is not loaded", path);
	*(void **)&real = dlsym(library, "standin_real");
	*(void **)&device = dlsym(library, "standin_device");
	*(void **)&set_device = dlsym(library, "standin_set_device");
	*(void **)&submit = dlsym(library, "standin_submit");
}

cudaError_t CUDARTAPI cudaGetDevice(int *index)
{
	find_cuda();
	*index = device();
	return cudaSuccess;
}

cudaError_t CUDARTAPI cudaSetDevice(int index)
{
	find_cuda();
	set_device(index);
	return cudaSuccess;
}

const char *CUDARTAPI cudaGetErrorString(cudaError_t code)
{
	return code == cudaSuccess ? "no error" : "some error";
}

/* ---- failing: $STANDIN_NCCL_FAIL = "ncclGroupEnd,3,1,RANK" fails the third call with code 1 in that process ---- */

static ncclResult_t enter(const char *call, const struct ncclComm *comm)
{
	static int count;
	char name[40];
	int n;
	int code;
	int rank = -1;
	static char told[80];
	const char *text = getenv("STANDIN_NCCL_FAIL");
	if (text == NULL || strcmp(text, told) != 0)
		count = 0;
	snprintf(told, sizeof told, "%s", text != NULL ? text : "");
	if (text == NULL || sscanf(text, "%39[^,],%d,%d,%d", name, &n, &code, &rank) < 3 || strcmp(name, call) != 0)
		return ncclSuccess;
	if ((rank >= 0 && comm != NULL && comm->rank != rank) || ++count != n)
		return ncclSuccess;
	snprintf(last_error, sizeof last_error, "the stand-in was told to fail %s", call);
	return (ncclResult_t)code;
}

/* ---- groups ---- */

ncclResult_t ncclGetVersion(int *version)
{
	const char *text = getenv("STANDIN_NCCL_VERSION");
	*version = text != NULL ? atoi(text) : NCCL_VERSION_CODE;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t code)
{
	return code == ncclSystemError   ? "unhandled system error"
	       : code == ncclRemoteError ? "remote process exited"
	                                 : "some error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return last_error;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	ncclResult_t code = enter("ncclGetUniqueId", NULL);
	memset(id, 0, sizeof *id);
	snprintf(id->internal, sizeof id->internal, "/dev/shm/zcc-standin-XXXXXX");
	if (code == ncclSuccess && mkdtemp(id->internal) == NULL)
		die("no folder %s", id->internal);
	return code;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	char path[160];
	if (config->blocking != 0)
		die("a group that blocks");
	find_cuda();
	struct ncclComm *made = calloc(1, sizeof *made);
	snprintf(made->folder, sizeof made->folder, "%.100s", id.internal);
	made->rank = rank;
	made->size = size;
	made->sent = calloc((size_t)size, sizeof *made->sent);
	made->received = calloc((size_t)size, sizeof *made->received);
	*comm = made;
	ncclResult_t code = enter("ncclCommInitRankConfig", made);
	if (code != ncclSuccess)
		return code;
	snprintf(path, sizeof path, "%s/member-%d", made->folder, rank);
	FILE *file = fopen(path, "w");
	if (file == NULL)
		die("no %s", path);
	fclose(file);
	return ncclInProgress;
}

static bool all_joined(const struct ncclComm *comm)
{
	char path[160];
	for (int i = 0; i < comm->size; i++) {
		snprintf(path, sizeof path, "%s/member-%d", comm->folder, i);
		if (access(path, F_OK) != 0)
			return false;
	}
	return true;
}

/* The last one out turns off the light: names of messages that nobody took are left behind otherwise. */
static void free_comm(struct ncclComm *comm)
{
	char path[160];
	snprintf(path, sizeof path, "%s/member-%d", comm->folder, comm->rank);
	unlink(path);
	rmdir(comm->folder);
	free(comm->sent);
	free(comm->received);
	free(comm);
}

/* ---- messages ---- */

static void name_message(const struct ncclComm *comm, const message *m, const char *end, char path[160])
{
	int from = m->sends ? comm->rank : m->peer;
	int to = m->sends ? m->peer : comm->rank;
	snprintf(path, 160, "%s/%d-%d-%lld%s", comm->folder, from, to, (long long)m->number, end);
}

static void put(const struct ncclComm *comm, const message *m)
{
	char part[160];
	char path[160];
	name_message(comm, m, ".part", part);
	name_message(comm, m, "", path);
	FILE *file = fopen(part, "w");
	if (file == NULL || fwrite(real(m->data, (int64_t)m->bytes), 1, m->bytes, file) != m->bytes ||
	    fclose(file) != 0 || rename(part, path) != 0)
		die("cannot write %s", path);
}

static bool take(const struct ncclComm *comm, const message *m)
{
	char path[160];
	struct stat about;
	name_message(comm, m, "", path);
	FILE *file = fopen(path, "r");
	if (file == NULL)
		return false;
	if (fstat(fileno(file), &about) != 0 || (size_t)about.st_size != m->bytes)
		die("process %d sends %lld bytes to %d, which expects %zu", m->peer, (long long)about.st_size,
		    comm->rank, m->bytes);
	if (fread(real(m->data, (int64_t)m->bytes), 1, m->bytes, file) != m->bytes)
		die("cannot read %s", path);
	fclose(file);
	unlink(path);
	return true;
}

static int32_t run(void *context)
{
	batch *b = context;
	bool done = true;
	for (int i = 0; !b->comm->aborted && i < b->n; i++) {
		message *m = &b->messages[i];
		if (m->sends && !m->done)
			put(b->comm, m);
		m->done = m->done || m->sends || take(b->comm, m);
		done = done && m->done;
	}
	if (!done && !b->comm->aborted)
		return 0;
	b->comm->in_flight--;
	if (b->comm->aborted && b->comm->in_flight == 0)
		free_comm(b->comm);
	free(b);
	return 1;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
	ncclResult_t code = enter("ncclCommGetAsyncError", comm);
	*state = code;
	if (code != ncclSuccess)
		return ncclSuccess;
	bool going = !comm->joined || comm->waiting != NULL;
	if (going && (++comm->asked <= PATIENCE || (!comm->joined && !all_joined(comm)))) {
		*state = ncclInProgress;
		return ncclSuccess;
	}
	comm->asked = 0;
	comm->joined = true;
	if (comm->waiting != NULL) {
		comm->in_flight++;
		submit(comm->waiting->stream, run, comm->waiting);
	}
	comm->waiting = NULL;
	return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
	if (depth++ == 0)
		open_batch = calloc(1, sizeof *open_batch);
	return enter("ncclGroupStart", NULL);
}

static ncclResult_t add(const char *call, void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                        cudaStream_t stream, bool sends)
{
	if (depth == 0)
		die("%s outside a group", call);
	if (type != ncclUint8 || count == 0 || peer == comm->rank || peer < 0 || peer >= comm->size ||
	    open_batch->n == MAX_MESSAGES)
		die("%s of %zu elements of type %d to %d from %d", call, count, (int)type, peer, comm->rank);
	if (!comm->joined || comm->waiting != NULL)
		die("%s before the last group has reached its stream", call);
	ncclResult_t code = enter(call, comm);
	if (code != ncclSuccess)
		return code;
	open_batch->comm = comm;
	open_batch->stream = stream;
	open_batch->messages[open_batch->n++] =
	        (message){.data = data,
	                  .bytes = count,
	                  .peer = peer,
	                  .sends = sends,
	                  .number = sends ? comm->sent[peer]++ : comm->received[peer]++};
	return ncclSuccess;
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
	return add("ncclSend", (void *)(uintptr_t)data, count, type, peer, comm, stream, true);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
	return add("ncclRecv", data, count, type, peer, comm, stream, false);
}

ncclResult_t ncclGroupEnd(void)
{
	if (--depth > 0)
		return ncclSuccess;
	batch *b = open_batch;
	open_batch = NULL;
	ncclResult_t code = enter("ncclGroupEnd", b->comm);
	if (b->n == 0 || code != ncclSuccess) {
		free(b);
		return code;
	}
	b->comm->waiting = b;
	b->comm->asked = 0;
	return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	if (comm->waiting != NULL || comm->in_flight > 0)
		die("a group is finalized with %d batches under way", comm->in_flight);
	return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	free_comm(comm);
	return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	comm->aborted = true;
	free(comm->waiting);
	comm->waiting = NULL;
	if (comm->in_flight == 0)
		free_comm(comm);
	return ncclSuccess;
}
