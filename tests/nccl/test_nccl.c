/* Faults of the way between devices, over the stand-ins: how they are told, and that every process comes back in
 * bounded time. */
#include "shards.h"

static zcc_comm *comm;
static zcc_error error;
static zcc_device *device;

static const int64_t SECOND_NS = 1000000000;

static void says(const char *words)
{
	CHECK(strstr(error.message, words) != NULL, "\"%s\" is not in \"%s\"", words, error.message);
}

/* Rows to columns, so that everybody sends to everybody, in `rounds` chunks or so. */
typedef struct setting {
	param params[1];
	zcc_layout *layouts[2];
	zcc_plan *plan;
	int32_t *process[2];
	job j;
} setting;

static void set_up(setting *s, int64_t timeout_ns)
{
	int32_t size = zcc_comm_size(comm);
	s->params[0] = (param){.name = "w",
	                       .ndim = 2,
	                       .shape = {64 * size, 64 * size},
	                       .source_dtype = ZCC_F32,
	                       .target_dtype = ZCC_F32,
	                       .source_scale = 1,
	                       .target_scale = 1};
	s->layouts[ZCC_SOURCE] = simple_layout(s->params, 1, ZCC_SOURCE, size, 0, 0);
	s->layouts[ZCC_TARGET] = simple_layout(s->params, 1, ZCC_TARGET, size, 1, 0);
	dice d = {1};
	s->plan = random_plan(&d, s->layouts[ZCC_TARGET], s->layouts[ZCC_SOURCE]);
	for (int32_t side = 0; side < 2; side++) {
		s->process[side] = malloc((size_t)size * sizeof(int32_t));
		for (int32_t r = 0; r < size; r++)
			s->process[side][r] = r;
	}
	zcc_transfer_options options;
	zcc_transfer_options_init(&options);
	options.staging_bytes = 40960;
	options.timeout_ns = timeout_ns;
	job_open(&s->j, comm, s->params, 1, 1, s->plan, s->layouts[ZCC_TARGET], s->layouts[ZCC_SOURCE], s->process,
	         &options);
}

static void tear_down(setting *s)
{
	job_close(&s->j);
	zcc_plan_destroy(s->plan);
	for (int32_t side = 0; side < 2; side++) {
		zcc_layout_destroy(s->layouts[side]);
		free(s->process[side]);
	}
}

/* A run that fails everywhere, then one that is well: the groups are made anew. */
static void fails_and_recovers(const char *fail, const char *words, int64_t timeout_ns, int64_t limit_ns)
{
	setting s;
	set_up(&s, timeout_ns);
	setenv("STANDIN_NCCL_FAIL", fail, 1);
	int64_t start = zcc_clock_ns();
	zcc_status status = zcc_transfer_run(s.j.transfer, NULL, &error);
	CHECK(status == ZCC_EDEVICE || status == ZCC_EPEER, "%s: %s", zcc_status_name(status),
	      status != ZCC_OK ? error.message : "");
	says(words);
	CHECK(zcc_clock_ns() - start < limit_ns, "%lld ms", (long long)((zcc_clock_ns() - start) / 1000000));
	unsetenv("STANDIN_NCCL_FAIL");
	job_clear_targets(&s.j);
	MUST(zcc_transfer_run(s.j.transfer, NULL, &error));
	job_check(&s.j);
	tear_down(&s);
}

static void a_process_that_cannot_hand_over_stops_all_at_the_next_round(void)
{
	fails_and_recovers(
	        "ncclGroupEnd,2,2,1",
	        "ncclGroupEnd on cuda:0: unhandled system error (NCCL's error 2): the stand-in was told to fail",
	        300 * SECOND_NS, 60 * SECOND_NS);
	/* The last of four rounds: agreed on like the others. */
	fails_and_recovers("ncclGroupEnd,4,2,1", "ncclGroupEnd on cuda:0", 30 * SECOND_NS, 60 * SECOND_NS);
	fails_and_recovers("ncclSend,1,2,0", "ncclSend on cuda:0", 300 * SECOND_NS, 60 * SECOND_NS);
	fails_and_recovers("ncclRecv,1,2,1", "ncclRecv on cuda:0", 300 * SECOND_NS, 60 * SECOND_NS);
}

static void a_group_that_does_not_come_together_is_a_fault_of_all(void)
{
	fails_and_recovers("ncclGetUniqueId,1,2", "ncclGetUniqueId", 300 * SECOND_NS, 60 * SECOND_NS);
	fails_and_recovers("ncclCommInitRankConfig,1,2,1", "ncclCommInitRankConfig on cuda:0", 300 * SECOND_NS,
	                   60 * SECOND_NS);
	/* The first question is that for the group itself. */
	fails_and_recovers("ncclCommGetAsyncError,1,6,1", "remote process exited", 300 * SECOND_NS, 60 * SECOND_NS);
}

static void a_fault_of_the_group_that_comes_later_is_seen(void)
{
	fails_and_recovers("ncclCommGetAsyncError,9,6,1", "remote process exited", 300 * SECOND_NS, 60 * SECOND_NS);
}

static void an_older_library_is_refused_by_both_versions(void)
{
	setting s;
	set_up(&s, 0);
	setenv("STANDIN_NCCL_VERSION", "21000", 1);
	CHECK(zcc_transfer_run(s.j.transfer, NULL, &error) == ZCC_EDEVICE, "%s", error.message);
	says("NCCL 2.10.0 was loaded; this plug-in needs 2.");
	setenv("STANDIN_NCCL_VERSION", "30100", 1);
	CHECK(zcc_transfer_run(s.j.transfer, NULL, &error) == ZCC_EDEVICE, "%s", error.message);
	says("NCCL 3.1.0 was loaded");
	setenv("STANDIN_NCCL_VERSION", "29900", 1);
	MUST(zcc_transfer_run(s.j.transfer, NULL, &error));
	unsetenv("STANDIN_NCCL_VERSION");
	job_check(&s.j);
	tear_down(&s);
}

static void what_does_not_fit_is_refused_before_anything_is_bound(void)
{
	setting s;
	zcc_device *host;
	zcc_transfer *transfer;
	jobs_use_device(NULL, NULL);
	set_up(&s, 0);
	MUST(zcc_device_open("host", &host, &error));
	MUST(zcc_transfer_create(s.plan, comm, NULL, &transfer, &error));
	CHECK(zcc_transfer_set_device(transfer, host, "nccl", &error) == ZCC_EINVAL, "%s", error.message);
	says("nccl goes between devices of cuda, this is host");
	CHECK(zcc_transfer_set_device(transfer, host, "smoke", &error) == ZCC_EINVAL, "%s", error.message);
	says("they are mpi, nccl");
	CHECK(zcc_transfer_set_device(s.j.transfer, device, "nccl", &error) == ZCC_EINVAL, "%s", error.message);
	says("is bound already");
	MUST(zcc_transfer_set_device(transfer, device, "nccl", &error));
	char pageable[64];
	CHECK(zcc_transfer_bind_memory(transfer, ZCC_SOURCE, zcc_comm_rank(comm), 0, pageable, 1 << 30, &error) ==
	              ZCC_EINVAL,
	      "%s", error.message);
	says("neither of device cuda:0 nor pinned");
	zcc_transfer_destroy(transfer);
	zcc_device_close(host);
	tear_down(&s);
	jobs_use_device(device, "nccl");
}

static void processes_that_chose_different_ways_are_named(void)
{
	setting s;
	jobs_use_device(device, zcc_comm_rank(comm) == 1 ? "mpi" : "nccl");
	set_up(&s, 0);
	CHECK(zcc_transfer_run(s.j.transfer, NULL, &error) == ZCC_EAGREE, "%s", error.message);
	says("the way between devices");
	tear_down(&s);
	jobs_use_device(device, "nccl");
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MUST(zcc_comm_create_mpi(&comm, &error));
	MUST(zcc_device_open("cuda:0", &device, &error));
	jobs_use_device(device, "nccl");
	a_process_that_cannot_hand_over_stops_all_at_the_next_round();
	a_group_that_does_not_come_together_is_a_fault_of_all();
	a_fault_of_the_group_that_comes_later_is_seen();
	an_older_library_is_refused_by_both_versions();
	what_does_not_fit_is_refused_before_anything_is_bound();
	processes_that_chose_different_ways_are_named();
	jobs_use_device(NULL, NULL);
	zcc_device_close(device);
	zcc_comm_destroy(comm);
	MPI_Finalize();
	return 0;
}
