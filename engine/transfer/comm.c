#include "transfer/comm.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/status.h"

/* How long a wait goes on after a fault, so that all processes can still agree on it; then it is given up. After a
 * signal it is a fifth of the time until the launcher kills what is left: cleaning up has to be done by then. */
static const int64_t GRACE_NS = 4000000000;
enum { STOP_GRACE_SHARE = 5 };

zcc_status zcci_comm_init(zcc_comm *comm, const zcci_comm_ops *ops, int32_t rank, int32_t size, zcc_error *error)
{
	comm->ops = ops;
	comm->rank = rank;
	comm->size = size;
	comm->references = 1;
	comm->piece = zcci_malloc(ZCCI_COMM_PIECE_BYTES);
	comm->all = zcci_calloc(size, sizeof *comm->all);
	if (comm->piece == NULL || comm->all == NULL) {
		zcci_comm_fini(comm);
		return zcci_fail(error, ZCC_ENOMEM, 0, "comm create", "no memory for a group of %d processes", size);
	}
	return ZCC_OK;
}

void zcci_comm_fini(zcc_comm *comm)
{
	zcci_free(comm->piece);
	zcci_free(comm->all);
	zcci_free(comm->beacon);
	zcci_free(comm->others);
	comm->piece = NULL;
	comm->beacon = NULL;
	comm->others = NULL;
	comm->all = NULL;
}

/* ---- processes of one host ---- */

/* The same for processes that see each other's process numbers; 0 where that cannot be told. */
static int64_t host_identity(void)
{
	char text[256] = "";
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
	bool known = file != NULL && fgets(text, 64, file) != NULL;
	if (file != NULL)
		fclose(file);
	size_t used = strlen(text);
	ssize_t n = readlink("/proc/self/ns/pid", text + used, sizeof text - used);
	return known && n > 0 ? (int64_t)XXH3_64bits(text, used + (size_t)n) : 0;
}

static int64_t beacon_identity(int64_t host, int64_t pid, int64_t rank)
{
	int64_t parts[3] = {host, pid, rank};
	return (int64_t)XXH3_64bits(parts, sizeof parts);
}

static zcc_status gather(zcc_comm *comm, int64_t mine, zcc_error *error)
{
	comm->mine = mine;
	return comm->ops->gather(comm, error);
}

/* Whether the beacons of all neighbours can be read and are theirs. */
static bool sees_beacons(const zcc_comm *comm, int64_t host)
{
	bool all = true;
	for (int32_t p = 0; p < comm->size; p++) {
		const zcci_neighbour *other = &comm->others[p];
		if (!other->near)
			continue;
		zcci_beacon seen = {0};
		struct iovec here = {&seen, sizeof seen};
		struct iovec there = {(void *)other->beacon, sizeof seen};
		all = all && process_vm_readv(other->pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof seen &&
		      seen.identity == beacon_identity(host, other->pid, p);
	}
	return all;
}

zcc_status zcci_comm_meet(zcc_comm *comm, zcc_error *error)
{
	int64_t host = host_identity();
	comm->beacon = zcci_calloc(1, sizeof *comm->beacon);
	comm->others = zcci_calloc(comm->size, sizeof *comm->others);
	if (comm->beacon == NULL || comm->others == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "comm create", "no memory for a group of %d processes",
		                 comm->size);
	comm->beacon->identity = beacon_identity(host, getpid(), comm->rank);
	zcc_status status = gather(comm, host, error);
	for (int32_t p = 0; status == ZCC_OK && p < comm->size; p++)
		comm->others[p].near = p != comm->rank && host != 0 && comm->all[p] == host;
	if (status == ZCC_OK)
		status = gather(comm, getpid(), error);
	for (int32_t p = 0; status == ZCC_OK && p < comm->size; p++)
		comm->others[p].pid = (int32_t)comm->all[p];
	if (status == ZCC_OK)
		status = gather(comm, (int64_t)(uintptr_t)comm->beacon, error);
	for (int32_t p = 0; status == ZCC_OK && p < comm->size; p++)
		comm->others[p].beacon = (uintptr_t)comm->all[p];
	if (status != ZCC_OK)
		return status;
	bool sees = sees_beacons(comm, host);
	status = gather(comm, sees, error);
	for (int32_t p = 0; status == ZCC_OK && p < comm->size; p++)
		comm->others[p].near = comm->others[p].near && sees && comm->all[p];
	return status;
}

zcc_comm *zcci_comm_retain(zcc_comm *comm)
{
	comm->references++;
	return comm;
}

void zcc_comm_destroy(zcc_comm *comm)
{
	if (comm != NULL && --comm->references == 0)
		comm->ops->destroy(comm);
}

int32_t zcc_comm_rank(const zcc_comm *comm)
{
	return comm->rank;
}

int32_t zcc_comm_size(const zcc_comm *comm)
{
	return comm->size;
}

zcc_status zcci_comm_interrupted(const char *operation, zcc_error *error)
{
	int32_t number = zcc_interrupted();
	return zcci_fail(error, ZCC_EINTR, number, operation, "stopped by %s", strsignal(number));
}

void zcci_comm_hurry(zcc_comm *comm)
{
	if (comm->give_up_ns == 0)
		comm->give_up_ns = zcc_clock_ns() + GRACE_NS;
}

zcc_status zcci_comm_patience(zcc_comm *comm, const char *operation, zcc_error *error)
{
	if (zcc_interrupted() && !comm->stopped) {
		int64_t give_up_ns = zcc_clock_ns() + zcc_stop_ns() / STOP_GRACE_SHARE;
		comm->stopped = true;
		if (comm->give_up_ns == 0 || comm->give_up_ns > give_up_ns)
			comm->give_up_ns = give_up_ns;
	}
	if (comm->give_up_ns == 0 || zcc_clock_ns() < comm->give_up_ns)
		return ZCC_OK;
	comm->broken = true;
	if (zcc_interrupted())
		return zcci_comm_interrupted(operation, error);
	return zcci_fail(error, ZCC_EPEER, 0, operation, "no answer from the other processes");
}

void zcci_idle_wait(zcci_idle *idle)
{
	enum { SPIN_TURNS = 64, SLEEP_NS = 50000 };
	static const int64_t YIELD_NS = 1000000;

	if (idle->turns++ < SPIN_TURNS)
		return;
	if (idle->since_ns == 0)
		idle->since_ns = zcc_clock_ns();
	if (zcc_clock_ns() - idle->since_ns < YIELD_NS) {
		sched_yield();
		return;
	}
	struct timespec nap = {.tv_nsec = SLEEP_NS};
	nanosleep(&nap, NULL);
}

static zcc_status refuse_broken(const zcc_comm *comm, const char *operation, zcc_error *error)
{
	if (!comm->broken)
		return ZCC_OK;
	return zcci_fail(error, ZCC_EPEER, 0, operation, "an earlier exchange between the processes was given up");
}

static zcc_status reduce(zcc_comm *comm, const char *operation, int32_t op, int64_t *values, int64_t n_values,
                         zcc_error *error)
{
	enum { PIECE = ZCCI_COMM_PIECE_BYTES / 8 };
	zcc_status status = refuse_broken(comm, operation, error);
	if (status == ZCC_OK && n_values < 0)
		status = zcci_fail(error, ZCC_EINVAL, 0, operation, "%lld values asked for", (long long)n_values);
	for (int64_t done = 0; status == ZCC_OK && done < n_values; done += PIECE) {
		int32_t n = n_values - done < PIECE ? (int32_t)(n_values - done) : PIECE;
		memcpy(comm->piece, values + done, (size_t)n * 8);
		status = comm->ops->reduce(comm, op, n, error);
		if (status == ZCC_OK)
			memcpy(values + done, comm->piece, (size_t)n * 8);
	}
	return status;
}

zcc_status zcc_comm_sum(zcc_comm *comm, int64_t *values, int64_t n_values, zcc_error *error)
{
	return reduce(comm, "comm sum", ZCCI_REDUCE_SUM, values, n_values, error);
}

zcc_status zcc_comm_max(zcc_comm *comm, int64_t *values, int64_t n_values, zcc_error *error)
{
	return reduce(comm, "comm max", ZCCI_REDUCE_MAX, values, n_values, error);
}

zcc_status zcc_comm_broadcast(zcc_comm *comm, void *data, int64_t bytes, int32_t root, zcc_error *error)
{
	enum { PIECE = ZCCI_COMM_PIECE_BYTES };
	zcc_status status = refuse_broken(comm, "comm broadcast", error);
	if (status == ZCC_OK && (bytes < 0 || root < 0 || root >= comm->size))
		status = zcci_fail(error, ZCC_EINVAL, 0, "comm broadcast", "%lld bytes from process %d of %d",
		                   (long long)bytes, root, comm->size);
	for (int64_t done = 0; status == ZCC_OK && done < bytes; done += PIECE) {
		int32_t n = bytes - done < PIECE ? (int32_t)(bytes - done) : PIECE;
		if (comm->rank == root)
			memcpy(comm->piece, (char *)data + done, (size_t)n);
		status = comm->ops->broadcast(comm, n, root, error);
		if (status == ZCC_OK && comm->rank != root)
			memcpy((char *)data + done, comm->piece, (size_t)n);
	}
	return status;
}

zcc_status zcc_comm_agree(zcc_comm *comm, const zcc_error *mine, zcc_error *error)
{
	zcc_error shared = {.status = ZCC_OK};
	if (mine != NULL)
		shared = *mine;
	if (shared.status == ZCC_OK && zcc_interrupted())
		zcci_comm_interrupted("comm agree", &shared);
	if (comm->broken && shared.status == ZCC_OK)
		refuse_broken(comm, "comm agree", &shared);
	if (!comm->broken) {
		int64_t lowest = shared.status != ZCC_OK ? comm->rank : comm->size;
		zcc_status status = reduce(comm, "comm agree", ZCCI_REDUCE_MIN, &lowest, 1, error);
		if (status == ZCC_OK && lowest == comm->size)
			return ZCC_OK;
		if (status == ZCC_OK && comm->rank == lowest && shared.process < 0)
			shared.process = comm->rank;
		if (status == ZCC_OK)
			status = zcc_comm_broadcast(comm, &shared, sizeof shared, (int32_t)lowest, error);
		/* Where the others do not answer, this process's own fault says more. */
		if (status != ZCC_OK && shared.status == ZCC_OK)
			return status;
	}
	if (error != NULL)
		*error = shared;
	return shared.status;
}

/* The value that most processes bring; where several are equally frequent, process 0's. */
static int64_t most_common(const int64_t *values, int32_t n)
{
	int64_t best = values[0];
	int32_t best_count = 0;
	for (int32_t i = 0; i < n; i++) {
		int32_t count = 0;
		for (int32_t k = 0; k < n; k++)
			count += values[k] == values[i];
		if (count > best_count) {
			best = values[i];
			best_count = count;
		} else if (count == best_count && values[i] != best) {
			best = values[0];
		}
	}
	return best;
}

zcc_status zcc_comm_same(zcc_comm *comm, const char *what, int64_t value, zcc_error *error)
{
	enum { NAMED = 16 };
	zcc_status status = refuse_broken(comm, "comm same", error);
	comm->mine = value;
	if (status == ZCC_OK)
		status = comm->ops->gather(comm, error);
	if (status != ZCC_OK)
		return status;
	int32_t first = -1;
	int32_t n_differ = 0;
	char list[NAMED * 40] = "";
	size_t used = 0;
	/* Quick where all agree: counting is quadratic. */
	bool same = true;
	for (int32_t i = 1; i < comm->size; i++)
		same = same && comm->all[i] == comm->all[0];
	if (same)
		return ZCC_OK;
	int64_t common = most_common(comm->all, comm->size);
	for (int32_t i = 0; i < comm->size; i++) {
		if (comm->all[i] == common)
			continue;
		first = first < 0 ? i : first;
		if (n_differ++ < NAMED)
			used += (size_t)snprintf(list + used, sizeof list - used, "%sprocess %d has %016llx",
			                         n_differ > 1 ? ", " : "", i, (unsigned long long)comm->all[i]);
	}
	char more[40] = "";
	if (n_differ > NAMED)
		snprintf(more, sizeof more, " and %d more", n_differ - NAMED);
	status = zcci_fail(error, ZCC_EAGREE, 0, "comm same",
	                   "the processes do not agree on %s: %s%s, the others %016llx", what, list, more,
	                   (unsigned long long)common);
	if (error != NULL)
		error->process = first;
	return status;
}

void zcc_comm_farewell(zcc_comm *comm, const char *message, int32_t yields, int64_t timeout_ns, int32_t *speak,
                       int32_t *all_here)
{
	int64_t hash = message != NULL ? (int64_t)XXH3_64bits(message, strlen(message)) : 0;
	comm->ops->farewell(comm, hash, yields, timeout_ns, speak, all_here);
}
