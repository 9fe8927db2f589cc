#include "transfer/comm.h"

#include <mpi.h>

#include "base/memory.h"
#include "base/status.h"

enum { TAG = 1 };

typedef struct mpi_comm {
	zcc_comm common;
	MPI_Comm main;
	MPI_Comm leaving; /* of its own, so that what is stuck in `main` cannot disturb it */
	int32_t n_slots;
	MPI_Request *slots;
	int32_t *done; /* n_slots, for MPI_Testsome */
	MPI_Status *statuses;
	MPI_Request *hello; /* farewell: 2 * size, made at once because farewell may not fail */
	int64_t *hashes;    /* size + 1, the last one this process's own */
} mpi_comm;

/* MPI's own words. Whatever MPI refuses leaves the group in an unknown state. */
static zcc_status refused(mpi_comm *comm, int code, const char *operation, zcc_error *error)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length = 0;
	int class = 0;
	MPI_Error_class(code, &class);
	MPI_Error_string(code, text, &length);
	if (comm != NULL)
		comm->common.broken = true;
	return zcci_fail(error, ZCC_EMPI, class, operation, "%s", text);
}

static zcc_status finish(mpi_comm *comm, MPI_Request *request, const char *operation, zcc_error *error)
{
	zcci_idle idle = {0};
	for (;;) {
		int done = 0;
		int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
		if (code != MPI_SUCCESS)
			return refused(comm, code, operation, error);
		if (done)
			return ZCC_OK;
		zcc_status status = zcci_comm_patience(&comm->common, operation, error);
		if (status != ZCC_OK)
			return status;
		zcci_idle_wait(&idle);
	}
}

static zcc_status reduce(zcc_comm *common, int32_t op, int32_t n_values, zcc_error *error)
{
	mpi_comm *comm = (mpi_comm *)common;
	MPI_Op mpi_op = op == ZCCI_REDUCE_SUM ? MPI_SUM : op == ZCCI_REDUCE_MAX ? MPI_MAX : MPI_MIN;
	MPI_Request request;
	int code = MPI_Iallreduce(MPI_IN_PLACE, common->piece, n_values, MPI_INT64_T, mpi_op, comm->main, &request);
	if (code != MPI_SUCCESS)
		return refused(comm, code, "MPI_Iallreduce", error);
	return finish(comm, &request, "MPI_Iallreduce", error);
}

static zcc_status gather(zcc_comm *common, zcc_error *error)
{
	mpi_comm *comm = (mpi_comm *)common;
	MPI_Request request;
	int code = MPI_Iallgather(&common->mine, 1, MPI_INT64_T, common->all, 1, MPI_INT64_T, comm->main, &request);
	if (code != MPI_SUCCESS)
		return refused(comm, code, "MPI_Iallgather", error);
	return finish(comm, &request, "MPI_Iallgather", error);
}

static zcc_status broadcast(zcc_comm *common, int32_t bytes, int32_t root, zcc_error *error)
{
	mpi_comm *comm = (mpi_comm *)common;
	MPI_Request request;
	int code = MPI_Ibcast(common->piece, bytes, MPI_BYTE, root, comm->main, &request);
	if (code != MPI_SUCCESS)
		return refused(comm, code, "MPI_Ibcast", error);
	return finish(comm, &request, "MPI_Ibcast", error);
}

/* Every process tells every other its message. One that hears the same message from a lower process stays silent, also
 * when some never arrive. */
static void farewell(zcc_comm *common, int64_t hash, int32_t yields, int64_t timeout_ns, int32_t *speak,
                     int32_t *all_here)
{
	mpi_comm *comm = (mpi_comm *)common;
	int32_t size = common->size;
	MPI_Request *hears = comm->hello;
	MPI_Request *tells = comm->hello + size;
	int64_t end = zcc_clock_ns() + timeout_ns;
	bool lost = false;
	*speak = 1;
	*all_here = 0;
	comm->hashes[size] = hash;
	for (int32_t p = 0; p < size; p++) {
		hears[p] = tells[p] = MPI_REQUEST_NULL;
		if (p == common->rank)
			continue;
		lost |= MPI_Irecv(&comm->hashes[p], 1, MPI_INT64_T, p, TAG, comm->leaving, &hears[p]) != MPI_SUCCESS;
		lost |= MPI_Isend(&comm->hashes[size], 1, MPI_INT64_T, p, TAG, comm->leaving, &tells[p]) != MPI_SUCCESS;
	}
	zcci_idle idle = {0};
	for (int done = 0; !lost && !done;) {
		lost = MPI_Testall(2 * size, comm->hello, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS;
		*all_here = !lost && done;
		if (zcc_clock_ns() > end)
			break;
		zcci_idle_wait(&idle);
	}
	for (int32_t p = 0; p < size; p++) {
		int heard = 1;
		if (p != common->rank && hears[p] != MPI_REQUEST_NULL)
			heard = MPI_Test(&hears[p], &heard, MPI_STATUS_IGNORE) == MPI_SUCCESS && heard;
		if (!heard)
			MPI_Cancel(&hears[p]);
		else if (comm->hashes[p] == hash ? p < common->rank : yields && comm->hashes[p] != 0)
			*speak = 0;
	}
}

static zcc_status reserve(zcc_comm *common, int32_t n_slots, zcc_error *error)
{
	mpi_comm *comm = (mpi_comm *)common;
	if (n_slots <= comm->n_slots)
		return ZCC_OK;
	MPI_Request *slots = zcci_calloc(n_slots, sizeof *slots);
	int32_t *done = zcci_calloc(n_slots, sizeof *done);
	MPI_Status *statuses = zcci_calloc(n_slots, sizeof *statuses);
	if (slots == NULL || done == NULL || statuses == NULL) {
		zcci_free(slots);
		zcci_free(done);
		zcci_free(statuses);
		return zcci_fail(error, ZCC_ENOMEM, 0, "comm reserve", "no memory for %d messages in flight", n_slots);
	}
	for (int32_t i = 0; i < n_slots; i++)
		slots[i] = MPI_REQUEST_NULL;
	zcci_free(comm->slots);
	zcci_free(comm->done);
	zcci_free(comm->statuses);
	comm->slots = slots;
	comm->done = done;
	comm->statuses = statuses;
	comm->n_slots = n_slots;
	return ZCC_OK;
}

static zcc_status start_send(zcc_comm *common, int32_t slot, int32_t peer, const void *data, int64_t bytes,
                             zcc_error *error)
{
	mpi_comm *comm = (mpi_comm *)common;
	int code = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, TAG, comm->main, &comm->slots[slot]);
	return code == MPI_SUCCESS ? ZCC_OK : refused(comm, code, "MPI_Isend", error);
}

static zcc_status start_receive(zcc_comm *common, int32_t slot, int32_t peer, void *data, int64_t bytes,
                                zcc_error *error)
{
	mpi_comm *comm = (mpi_comm *)common;
	int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, TAG, comm->main, &comm->slots[slot]);
	return code == MPI_SUCCESS ? ZCC_OK : refused(comm, code, "MPI_Irecv", error);
}

static zcc_status poll(zcc_comm *common, int32_t *slots, int64_t *bytes, int32_t *n_done, zcc_error *error)
{
	mpi_comm *comm = (mpi_comm *)common;
	int n = 0;
	int code = MPI_Testsome(comm->n_slots, comm->slots, &n, comm->done, comm->statuses);
	if (code == MPI_ERR_IN_STATUS) {
		for (int i = 0; i < n; i++)
			if (comm->statuses[i].MPI_ERROR != MPI_SUCCESS)
				code = comm->statuses[i].MPI_ERROR;
	}
	if (code != MPI_SUCCESS)
		return refused(comm, code, "MPI_Testsome", error);
	/* MPI_UNDEFINED: nothing is in flight. */
	*n_done = n == MPI_UNDEFINED ? 0 : n;
	for (int32_t i = 0; i < *n_done; i++) {
		int count = 0;
		MPI_Get_count(&comm->statuses[i], MPI_BYTE, &count);
		slots[i] = comm->done[i];
		bytes[i] = count;
	}
	return ZCC_OK;
}

static zcc_status cancel(zcc_comm *common, int32_t slot, zcc_error *error)
{
	mpi_comm *comm = (mpi_comm *)common;
	if (comm->slots[slot] == MPI_REQUEST_NULL)
		return ZCC_OK;
	int code = MPI_Cancel(&comm->slots[slot]);
	if (code != MPI_SUCCESS)
		return refused(comm, code, "MPI_Cancel", error);
	return finish(comm, &comm->slots[slot], "MPI_Cancel", error);
}

static void free_all(mpi_comm *comm)
{
	zcci_comm_fini(&comm->common);
	zcci_free(comm->slots);
	zcci_free(comm->done);
	zcci_free(comm->statuses);
	zcci_free(comm->hello);
	zcci_free(comm->hashes);
	zcci_free(comm);
}

static void destroy(zcc_comm *common)
{
	mpi_comm *comm = (mpi_comm *)common;
	int finalized = 1;
	MPI_Finalized(&finalized);
	/* What was abandoned may still write into this memory. */
	if (common->broken && !finalized)
		return;
	if (!finalized) {
		MPI_Comm_free(&comm->main);
		MPI_Comm_free(&comm->leaving);
	}
	free_all(comm);
}

static const zcci_comm_ops mpi_ops = {
        .version = ZCCI_COMM_VERSION,
        .name = "mpi",
        .reduce = reduce,
        .gather = gather,
        .broadcast = broadcast,
        .farewell = farewell,
        .destroy = destroy,
        .reserve = reserve,
        .send = start_send,
        .receive = start_receive,
        .poll = poll,
        .cancel = cancel,
};

static zcc_status duplicate(mpi_comm *comm, MPI_Comm *copy, zcc_error *error)
{
	MPI_Request request;
	MPI_Comm made;
	int code = MPI_Comm_idup(MPI_COMM_WORLD, &made, &request);
	if (code != MPI_SUCCESS)
		return refused(comm, code, "MPI_Comm_idup", error);
	zcc_status status = finish(comm, &request, "MPI_Comm_idup", error);
	if (status != ZCC_OK)
		return status;
	*copy = made;
	code = MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
	return code == MPI_SUCCESS ? ZCC_OK : refused(comm, code, "MPI_Comm_set_errhandler", error);
}

zcc_status zcc_comm_create_mpi(zcc_comm **comm, zcc_error *error)
{
	int initialized = 0;
	int finalized = 0;
	MPI_Initialized(&initialized);
	MPI_Finalized(&finalized);
	if (!initialized || finalized)
		return zcci_fail(error, ZCC_EINVAL, 0, "comm create", "MPI is %s",
		                 finalized ? "finalized" : "not initialized");
	int rank = 0;
	int size = 1;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	mpi_comm *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "comm create", "no memory for a group of %d processes", size);
	zcc_status status = zcci_comm_init(&made->common, &mpi_ops, rank, size, error);
	if (status != ZCC_OK) {
		zcci_free(made);
		return status;
	}
	made->main = made->leaving = MPI_COMM_NULL;
	made->hello = zcci_calloc(2 * (int64_t)size, sizeof *made->hello);
	made->hashes = zcci_calloc((int64_t)size + 1, sizeof *made->hashes);
	if (made->hello == NULL || made->hashes == NULL)
		status = zcci_fail(error, ZCC_ENOMEM, 0, "comm create", "no memory for a group of %d processes", size);
	if (status == ZCC_OK)
		status = duplicate(made, &made->main, error);
	if (status == ZCC_OK)
		status = duplicate(made, &made->leaving, error);
	if (status == ZCC_OK)
		status = zcci_comm_meet(&made->common, error);
	if (status != ZCC_OK) {
		/* A duplicate in the making may still write into `made`; there is nothing to give back in order. */
		if (!made->common.broken)
			free_all(made);
		return status;
	}
	*comm = &made->common;
	return ZCC_OK;
}
