#include "zcc/transfer.h"

#include <string.h>
#include <xxhash.h>

#include "base/status.h"
#include "transfer/device_move.h"
#include "transfer/direct.h"
#include "transfer/handle.h"
#include "transfer/move.h"

/* ---- beginning ---- */

static int64_t hash_text(const char *text)
{
	return (int64_t)XXH3_64bits(text, strlen(text));
}

static int64_t hash_endpoints(const zcci_side *side)
{
	XXH64_hash_t ranks = XXH3_64bits(side->ranks, (size_t)side->n_ranks * sizeof *side->ranks);
	return (int64_t)XXH3_64bits_withSeed(side->process, (size_t)side->n_ranks * sizeof *side->process, ranks);
}

/* One exchange where all agree; what differs is looked for only when something does. */
static zcc_status agree_on_work(zcc_transfer *transfer, zcc_error *error)
{
	const struct {
		const char *what;
		int64_t value;
	} parts[] = {
	        {"the library version", hash_text(zcc_version())},
	        {"the plan", transfer->digest},
	        {"the source endpoints", hash_endpoints(&transfer->sides[ZCC_SOURCE])},
	        {"the target endpoints", hash_endpoints(&transfer->sides[ZCC_TARGET])},
	        {"the staging budget", transfer->staging_bytes},
	        {"the way between devices", transfer->transport != NULL ? hash_text(transfer->transport->name) : 0},
	};
	enum { N_PARTS = sizeof parts / sizeof *parts };
	int64_t values[N_PARTS];
	for (int32_t i = 0; i < N_PARTS; i++)
		values[i] = parts[i].value;
	zcc_status status =
	        zcc_comm_same(transfer->comm, "the transfer", (int64_t)XXH3_64bits(values, sizeof values), error);
	if (status != ZCC_EAGREE)
		return status;
	for (int32_t i = 0; i < N_PARTS; i++) {
		zcc_status part = zcc_comm_same(transfer->comm, parts[i].what, parts[i].value, error);
		if (part != ZCC_OK)
			return part;
	}
	return status;
}

static zcc_status prepare(zcc_transfer *transfer, zcci_move **move, zcc_error *error)
{
	if (transfer->comm->moving)
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer submit", "a run is in flight between these processes");
	zcci_direct_stop(transfer->comm, false);
	zcc_status status = ZCC_OK;
	if (transfer->schedule == NULL)
		status = zcci_schedule_create(transfer, &transfer->schedule, error);
	if (status == ZCC_OK)
		status = zcci_transfer_check(transfer, error);
	if (status == ZCC_OK && transfer->device == NULL)
		status = zcci_move_create(transfer, move, error);
	else if (status == ZCC_OK && transfer->device_move == NULL)
		status = zcci_device_move_create(transfer, &transfer->device_move, error);
	return status;
}

zcc_status zcc_transfer_submit(zcc_transfer *transfer, zcc_error *error)
{
	int64_t start_ns = zcc_clock_ns();
	zcci_move *move = NULL;
	zcc_error mine = {.status = ZCC_OK};
	prepare(transfer, &move, &mine);
	zcc_status status = agree_on_work(transfer, error);
	if (status == ZCC_OK)
		status = zcc_comm_agree(transfer->comm, &mine, error);
	if (status != ZCC_OK) {
		zcci_move_destroy(move);
		return status;
	}
	transfer->move = move;
	transfer->in_flight = true;
	transfer->start_ns = start_ns;
	transfer->comm->moving = true;
	if (move != NULL)
		zcci_move_start(move);
	return ZCC_OK;
}

/* ---- in flight ---- */

static zcc_status refuse_idle(const zcc_transfer *transfer, const char *operation, zcc_error *error)
{
	if (transfer->in_flight)
		return ZCC_OK;
	return zcci_fail(error, ZCC_EINVAL, 0, operation, "no run of this transfer is in flight");
}

zcc_status zcc_transfer_test(zcc_transfer *transfer, int64_t slice_ns, int32_t *finished, zcc_error *error)
{
	zcc_status status = refuse_idle(transfer, "transfer test", error);
	if (status != ZCC_OK)
		return status;
	/* Devices go through rounds that all processes make together: that is for zcc_transfer_wait. */
	if (transfer->move == NULL) {
		*finished = 1;
		return ZCC_OK;
	}
	int64_t now = zcc_clock_ns();
	*finished = zcci_move_work(transfer->move, slice_ns < INT64_MAX - now ? now + slice_ns : INT64_MAX);
	return ZCC_OK;
}

/* ---- ending ---- */

static void drop_move(zcc_transfer *transfer)
{
	zcci_move_destroy(transfer->move);
	transfer->move = NULL;
	transfer->in_flight = false;
	transfer->comm->moving = false;
}

/* Both leave the group of processes fit for the next run, or broken. */
static zcc_status finish_on_host(zcc_transfer *transfer, zcc_error *error)
{
	zcc_comm *comm = transfer->comm;
	zcci_move_work(transfer->move, INT64_MAX);
	zcc_status status = zcc_comm_agree(comm, zcci_move_fault(transfer->move), error);
	int64_t unclean = zcci_move_unclean(transfer->move);
	if (status != ZCC_OK && zcc_comm_max(comm, &unclean, 1, NULL) == ZCC_OK)
		comm->broken = unclean != 0;
	return status;
}

static zcc_status run_on_device(zcc_transfer *transfer, zcc_error *error)
{
	zcci_device_move *move = transfer->device_move;
	zcc_error mine = {.status = ZCC_OK};
	/* Some process may have made its schedule anew. */
	int64_t to_join = transfer->comm->size > 1 && !zcci_device_move_joined(move);
	zcc_status status = zcc_comm_max(transfer->comm, &to_join, 1, error);
	if (status == ZCC_OK && to_join)
		status = zcci_device_move_join(move, error);
	if (status != ZCC_OK)
		return status;
	zcci_device_move_run(move, &mine);
	status = zcc_comm_agree(transfer->comm, &mine, error);
	if (status != ZCC_OK)
		zcci_device_move_leave(move);
	return status;
}

zcc_status zcc_transfer_wait(zcc_transfer *transfer, zcc_transfer_result *result, zcc_error *error)
{
	zcc_error mine = {.status = ZCC_OK};
	/* Without a run there is still one to agree with where the others have one. */
	if (refuse_idle(transfer, "transfer wait", &mine) != ZCC_OK)
		return zcc_comm_agree(transfer->comm, &mine, error);
	bool host = transfer->move != NULL;
	zcc_status status = host ? finish_on_host(transfer, error) : run_on_device(transfer, error);
	if (status == ZCC_OK && result != NULL) {
		if (host)
			zcci_move_result(transfer->move, result);
		else
			zcci_device_move_result(transfer->device_move, result);
		result->ns = zcc_clock_ns() - transfer->start_ns;
	}
	drop_move(transfer);
	return status;
}

void zcci_transfer_abandon(zcc_transfer *transfer)
{
	if (!transfer->in_flight)
		return;
	if (transfer->move != NULL)
		zcci_move_abandon(transfer->move);
	/* The others are still about to send, and to agree. */
	transfer->comm->broken = transfer->comm->broken || transfer->comm->size > 1;
	drop_move(transfer);
}

zcc_status zcc_transfer_run(zcc_transfer *transfer, zcc_transfer_result *result, zcc_error *error)
{
	zcc_status status = zcc_transfer_submit(transfer, error);
	return status == ZCC_OK ? zcc_transfer_wait(transfer, result, error) : status;
}
