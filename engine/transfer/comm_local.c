#include "transfer/comm.h"

#include "base/memory.h"
#include "base/status.h"

static zcc_status reduce(zcc_comm *comm, int32_t op, int32_t n_values, zcc_error *error)
{
	(void)comm, (void)op, (void)n_values, (void)error;
	return ZCC_OK;
}

static zcc_status gather(zcc_comm *comm, zcc_error *error)
{
	(void)error;
	comm->all[0] = comm->mine;
	return ZCC_OK;
}

static zcc_status broadcast(zcc_comm *comm, int32_t bytes, int32_t root, zcc_error *error)
{
	(void)comm, (void)bytes, (void)root, (void)error;
	return ZCC_OK;
}

static void farewell(zcc_comm *comm, int64_t hash, int32_t yields, int64_t timeout_ns, int32_t *speak,
                     int32_t *all_here)
{
	(void)comm, (void)hash, (void)yields, (void)timeout_ns;
	*speak = 1;
	*all_here = 1;
}

static void destroy(zcc_comm *comm)
{
	zcci_comm_fini(comm);
	zcci_free(comm);
}

static const zcci_comm_ops local_ops = {
        .version = ZCCI_COMM_VERSION,
        .name = "local",
        .reduce = reduce,
        .gather = gather,
        .broadcast = broadcast,
        .farewell = farewell,
        .destroy = destroy,
};

zcc_status zcc_comm_create_local(zcc_comm **comm, zcc_error *error)
{
	zcc_comm *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "comm create", "no memory for a group of 1 process");
	zcc_status status = zcci_comm_init(made, &local_ops, 0, 1, error);
	if (status != ZCC_OK) {
		zcci_free(made);
		return status;
	}
	*comm = made;
	return ZCC_OK;
}
