/* Groups of processes: what is agreed on, what is shared, and how a process leaves. */
#include <signal.h>
#include <unistd.h>

#include "multi.h"

static zcc_comm *comm;
static int32_t rank;
static int32_t size;
static zcc_error error;

static void no_fault_agrees_to_ok(void)
{
	zcc_error mine = {.status = ZCC_OK};
	MUST(zcc_comm_agree(comm, NULL, &error));
	MUST(zcc_comm_agree(comm, &mine, &error));
}

static void everyone_gets_the_fault_of_the_lowest_process(void)
{
	for (int32_t lowest = 0; lowest < size; lowest++) {
		zcc_error mine = {.status = ZCC_OK, .process = -1};
		if (rank >= lowest) {
			mine.status = ZCC_EIO;
			mine.code = 1000 + rank;
			snprintf(mine.message, sizeof mine.message, "fault of %d", rank);
		}
		char want[64];
		snprintf(want, sizeof want, "fault of %d", lowest);
		memset(&error, 0, sizeof error);
		CHECK(zcc_comm_agree(comm, &mine, &error) == ZCC_EIO, "lowest %d", lowest);
		CHECK(error.status == ZCC_EIO && error.process == lowest && error.code == 1000 + lowest, "process %d",
		      error.process);
		CHECK(strcmp(error.message, want) == 0, "'%s'", error.message);
		CHECK(zcc_comm_agree(comm, &mine, NULL) == ZCC_EIO, "without an error to fill");
	}
}

static void sums_and_maxima_are_element_by_element(void)
{
	enum { N = 100003 }; /* more than one piece */
	int64_t *sum = malloc(N * sizeof *sum);
	int64_t *max = malloc(N * sizeof *max);
	for (int64_t i = 0; i < N; i++) {
		sum[i] = i * (rank + 1);
		max[i] = (i % size == rank ? i : -i) * (int64_t)1000000007;
	}
	MUST(zcc_comm_sum(comm, sum, N, &error));
	MUST(zcc_comm_max(comm, max, N, &error));
	for (int64_t i = 0; i < N; i++) {
		CHECK(sum[i] == i * size * (size + 1) / 2, "element %lld is %lld", (long long)i, (long long)sum[i]);
		CHECK(max[i] == i * 1000000007, "element %lld is %lld", (long long)i, (long long)max[i]);
	}
	MUST(zcc_comm_sum(comm, NULL, 0, &error));
	free(sum);
	free(max);
}

static void every_byte_of_a_broadcast_arrives(void)
{
	enum { N = 5 * 1024 * 1024 + 3 };
	char *data = malloc(N + 1);
	char *want = malloc(N + 1);
	for (int32_t root = 0; root < size; root++) {
		zcc_memory_fill_random(want, N, 77 + root);
		memset(data, 0x5a, N + 1);
		if (rank == root)
			memcpy(data, want, N);
		MUST(zcc_comm_broadcast(comm, data, N, root, &error));
		CHECK(memcmp(data, want, N) == 0 && data[N] == 0x5a, "root %d", root);
	}
	MUST(zcc_comm_broadcast(comm, NULL, 0, 0, &error));
	CHECK(zcc_comm_broadcast(comm, data, 1, size, &error) == ZCC_EINVAL, "a root that does not exist");
	free(data);
	free(want);
}

static void those_who_differ_are_named(void)
{
	MUST(zcc_comm_same(comm, "the number", 42, &error));
	if (size == 1)
		return;
	for (int32_t odd = 0; odd < size; odd++) {
		CHECK(zcc_comm_same(comm, "the number", rank == odd ? 7 : 42, &error) == ZCC_EAGREE, "odd %d", odd);
		/* Of two processes, process 0 is the one that is right. */
		int32_t named = size == 2 ? 1 : odd;
		char want[32];
		snprintf(want, sizeof want, "process %d has ", named);
		CHECK(error.process == named && strstr(error.message, want) != NULL, "'%s'", error.message);
		CHECK(strstr(error.message, "the number") != NULL, "'%s'", error.message);
		for (int32_t other = 0; other < size; other++) {
			snprintf(want, sizeof want, "process %d has ", other);
			CHECK(other == named || strstr(error.message, want) == NULL, "'%s'", error.message);
		}
	}
}

static void one_process_speaks_for_each_message(void)
{
	int32_t speak = -1;
	int32_t all_here = -1;
	zcc_comm_farewell(comm, rank % 3 == 1 ? "second" : "first", 0, (int64_t)300000000000, &speak, &all_here);
	CHECK(all_here == 1, "%d", all_here);
	CHECK(speak == (rank == 0 || rank == 1), "%d", speak);
}

/* The last process knows why; process 1 has nothing to say. */
static void a_message_that_yields_is_said_only_where_there_is_no_other(void)
{
	int32_t speak = -1;
	int32_t all_here = -1;
	int32_t knows = rank == size - 1;
	zcc_comm_farewell(comm,
	                  knows       ? "the reason"
	                  : rank == 1 ? NULL
	                              : "ended",
	                  !knows, (int64_t)300000000000, &speak, &all_here);
	CHECK(all_here == 1, "%d", all_here);
	if (rank != 1 || knows)
		CHECK(speak == knows, "%d", speak);
}

/* The last process is stuck in a sum that the others never join before their time is up. */
static void a_missing_process_is_noticed_in_time(void)
{
	int64_t value = 1;
	if (rank < size - 1) {
		int32_t speak = -1;
		int32_t all_here = -1;
		int64_t start = zcc_clock_ns();
		/* So that messages of those who are here have time to arrive. */
		zcc_comm_farewell(comm, "gone", 0, (int64_t)5000000000, &speak, &all_here);
		CHECK(all_here == 0, "%d", all_here);
		CHECK(speak == (rank == 0), "%d", speak);
		CHECK(zcc_clock_ns() - start < (int64_t)30000000000, "%lld ns", (long long)(zcc_clock_ns() - start));
	}
	MUST(zcc_comm_sum(comm, &value, 1, &error));
	CHECK(value == size, "%lld", (long long)value);
}

/* Process 0 gets the signal; the others learn of it when they agree. Then one waits for those who never come. */
static void a_signal_ends_waiting(void)
{
	zcc_interrupt_watch();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		kill(getpid(), SIGTERM);
	CHECK(zcc_comm_agree(comm, NULL, &error) == ZCC_EINTR, "%d", error.status);
	CHECK(error.code == SIGTERM && error.process == 0, "%d", error.code);
	int64_t value = 1;
	int64_t start = zcc_clock_ns();
	if (rank == 0 && size > 1) {
		CHECK(zcc_comm_sum(comm, &value, 1, &error) == ZCC_EINTR, "%d", error.status);
		CHECK(zcc_clock_ns() - start < (int64_t)30000000000, "%lld ns", (long long)(zcc_clock_ns() - start));
		CHECK(zcc_comm_sum(comm, &value, 1, &error) == ZCC_EPEER, "a group that was given up says no more");
	}
	int32_t speak;
	int32_t all_here;
	zcc_comm_farewell(comm, "stopped", 1, (int64_t)300000000000, &speak, &all_here);
	CHECK(all_here == 1, "%d", all_here);
	CHECK(speak == (rank == 0), "%d", speak);
}

static void a_process_alone_needs_no_mpi(void)
{
	zcc_comm *alone;
	MUST(zcc_comm_create_local(&alone, &error));
	CHECK(zcc_comm_rank(alone) == 0 && zcc_comm_size(alone) == 1, "rank and size");
	int64_t value = 5;
	MUST(zcc_comm_sum(alone, &value, 1, &error));
	MUST(zcc_comm_max(alone, &value, 1, &error));
	MUST(zcc_comm_broadcast(alone, &value, 8, 0, &error));
	MUST(zcc_comm_same(alone, "it", 5, &error));
	CHECK(value == 5, "%lld", (long long)value);
	zcc_error mine = {.status = ZCC_EMAP, .process = -1};
	CHECK(zcc_comm_agree(alone, &mine, &error) == ZCC_EMAP && error.process == 0, "%d", error.process);
	int32_t speak;
	int32_t all_here;
	zcc_comm_farewell(alone, "bye", 0, 0, &speak, &all_here);
	CHECK(speak == 1 && all_here == 1, "farewell");
	zcc_comm_destroy(alone);
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";
	CHECK(zcc_comm_create_mpi(&comm, &error) == ZCC_EINVAL, "before MPI_Init");
	MPI_Init(&argc, &argv);
	MUST(zcc_comm_create_mpi(&comm, &error));
	rank = zcc_comm_rank(comm);
	size = zcc_comm_size(comm);
	if (strcmp(part, "farewell") == 0) {
		a_missing_process_is_noticed_in_time();
	} else if (strcmp(part, "interrupt") == 0) {
		a_signal_ends_waiting();
	} else {
		no_fault_agrees_to_ok();
		everyone_gets_the_fault_of_the_lowest_process();
		sums_and_maxima_are_element_by_element();
		every_byte_of_a_broadcast_arrives();
		those_who_differ_are_named();
		a_process_alone_needs_no_mpi();
		one_process_speaks_for_each_message();
		a_message_that_yields_is_said_only_where_there_is_no_other();
	}
	zcc_comm_destroy(comm);
	MPI_Finalize();
	return 0;
}
