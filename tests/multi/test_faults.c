/* What all processes must come to when one of them has a fault. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/memory.h"
#include "shards.h"
#include "transfer/comm.h"

static zcc_comm *comm;
static int32_t rank;
static int32_t size;
static bool in_slices; /* how runs are made */
static zcc_error error;

enum { N_PARAMS = 6 };

/* Replicas on the source side, so that there is something to choose; every process sends to every other. */
typedef struct scene {
	param params[N_PARAMS];
	zcc_layout *source;
	zcc_layout *target;
	zcc_plan *plan;
	int32_t *process[2];
	job j;
} scene;

static void make_layouts(scene *s, int64_t rows, int64_t cols)
{
	for (int32_t i = 0; i < N_PARAMS; i++) {
		param *p = &s->params[i];
		*p = (param){.ndim = 2, .shape = {rows + i, cols}, .source_scale = 1, .target_scale = 1};
		p->source_dtype = p->target_dtype = i % 2 == 0 ? ZCC_BF16 : ZCC_U8;
		snprintf(p->name, sizeof p->name, "layer%d", i);
	}
	s->source = simple_layout(s->params, N_PARAMS, ZCC_SOURCE, 4, 0, 0);
	s->target = simple_layout(s->params, N_PARAMS, ZCC_TARGET, 4, 1, 0);
	for (int32_t side = 0; side < 2; side++) {
		s->process[side] = malloc(4 * sizeof **s->process);
		for (int32_t r = 0; r < 4; r++)
			s->process[side][r] = (r + side) % size;
	}
}

static void open_scene(scene *s, int64_t rows, const zcc_transfer_options *options)
{
	dice d = {1};
	make_layouts(s, rows, 96);
	s->plan = random_plan(&d, s->target, s->source);
	job_open(&s->j, comm, s->params, N_PARAMS, 11, s->plan, s->target, s->source, s->process, options);
}

static void close_scene(scene *s)
{
	job_close(&s->j);
	free(s->process[0]);
	free(s->process[1]);
	zcc_plan_destroy(s->plan);
	zcc_layout_destroy(s->target);
	zcc_layout_destroy(s->source);
}

/* Every process gets this status and a message with these words, about the same process, within 30 s. */
static void all_get(scene *s, zcc_status want, int32_t process, const char *words)
{
	int64_t start = zcc_clock_ns();
	memset(&error, 0, sizeof error);
	zcc_transfer_result result = {.ns = -7};
	zcc_status status = in_slices ? run_in_slices(s->j.transfer, 0, &result, &error)
	                              : zcc_transfer_run(s->j.transfer, &result, &error);
	CHECK(status == want, "%s instead of %s: %s", zcc_status_name(status), zcc_status_name(want), error.message);
	CHECK(process < 0 || error.process == process, "process %d: %s", error.process, error.message);
	CHECK(strstr(error.message, words) != NULL, "'%s' is not in '%s'", words, error.message);
	CHECK(result.ns == -7, "a result of a run that failed");
	CHECK(zcc_clock_ns() - start < (int64_t)30000000000, "%lld ns", (long long)(zcc_clock_ns() - start));
}

static void still_works(scene *s)
{
	job_clear_targets(&s->j);
	MUST(zcc_transfer_run(s->j.transfer, NULL, &error));
	job_check(&s->j);
}

/* ---- before a byte moves ---- */

static void a_plan_of_its_own_is_named(void)
{
	if (size < 3)
		return;
	scene s;
	make_layouts(&s, 40, 96);
	zcc_layout_destroy(s.source);
	/* All ranks hold all, and the last process chooses another holder for one region. */
	for (int32_t i = 0; i < N_PARAMS; i++)
		s.params[i].ndim = 2;
	int64_t sizes = 4;
	int32_t mesh;
	MUST(zcc_layout_create(&s.source, &error));
	MUST(zcc_layout_add_mesh(s.source, 0, 1, "a", &sizes, &mesh, &error));
	for (int32_t i = 0; i < N_PARAMS; i++) {
		zcc_param_options options;
		zcc_param_options_init(&options);
		options.dtype = s.params[i].source_dtype;
		options.name = s.params[i].name;
		options.ndim = 2;
		options.shape_elems = s.params[i].shape;
		int32_t index;
		MUST(zcc_layout_add_param(s.source, &options, &index, &error));
	}
	MUST(zcc_plan_create(s.target, s.source, &s.plan, &error));
	int64_t n;
	zcc_plan_regions(s.plan, &n);
	for (int64_t i = 0; i < n; i++)
		MUST(zcc_plan_choose(s.plan, i, i == 7 && rank == size - 1 ? 2 : 1, &error));
	MUST(zcc_plan_build(s.plan, &error));
	job_open(&s.j, comm, s.params, N_PARAMS, 11, s.plan, s.target, s.source, s.process, NULL);
	all_get(&s, ZCC_EAGREE, size - 1, "the plan");
	close_scene(&s);
}

static void endpoints_and_budgets_of_its_own_are_named(void)
{
	if (size < 3)
		return;
	scene s;
	open_scene(&s, 40, NULL);
	if (rank == 1)
		MUST(zcc_transfer_place(s.j.transfer, ZCC_TARGET, 3, 1, &error));
	else
		MUST(zcc_transfer_place(s.j.transfer, ZCC_TARGET, 3, 0, &error));
	all_get(&s, ZCC_EAGREE, 1, "the target endpoints");
	close_scene(&s);
	zcc_transfer_options options;
	zcc_transfer_options_init(&options);
	options.staging_bytes += rank == 0;
	open_scene(&s, 40, &options);
	all_get(&s, ZCC_EAGREE, 0, "the staging budget");
	close_scene(&s);
}

/* Side, rank and parameter are in the message. */
static void a_missing_buffer_is_named(void)
{
	scene s;
	open_scene(&s, 40, NULL);
	zcc_transfer *full = s.j.transfer;
	MUST(zcc_transfer_create(s.plan, comm, NULL, &s.j.transfer, &error));
	for (int32_t side = 0; side < 2; side++)
		for (int32_t r = 0; r < 4; r++)
			MUST(zcc_transfer_place(s.j.transfer, side, r, s.process[side][r], &error));
	all_get(&s, ZCC_EINVAL, 0, "parameter 'layer0': nothing is bound for");
	zcc_transfer_destroy(s.j.transfer);
	MUST(zcc_transfer_create(s.plan, comm, NULL, &s.j.transfer, &error));
	all_get(&s, ZCC_EINVAL, 0, "source rank 0 is placed on no process");
	zcc_transfer_destroy(s.j.transfer);
	s.j.transfer = full;
	still_works(&s);
	close_scene(&s);
}

static void overlapping_buffers_are_refused(void)
{
	scene s;
	open_scene(&s, 40, NULL);
	char *memory = malloc(1 << 20);
	/* Rank 1 on the source side and rank 0 on the target side live on process 1, or all on process 0. */
	if (rank == 1 % size) {
		MUST(zcc_transfer_bind_memory(s.j.transfer, ZCC_SOURCE, 1, 0, memory, 10 * 96 * 2 + 96, &error));
		MUST(zcc_transfer_bind_memory(s.j.transfer, ZCC_TARGET, 0, 2, memory + 10 * 96 * 2 + 95, 42 * 24 * 2,
		                              &error));
	}
	all_get(&s, ZCC_EINVAL, 1 % size,
	        "the buffer of 'layer0' of source rank 1 overlaps that of 'layer2' of target rank 0");
	free(memory);
	close_scene(&s);
}

static void arguments_are_checked_with_numbers(void)
{
	scene s;
	open_scene(&s, 40, NULL);
	zcc_transfer *t = s.j.transfer;
	char memory[8];
	CHECK(zcc_transfer_place(t, 2, 0, 0, &error) == ZCC_EINVAL, "side");
	CHECK(zcc_transfer_place(t, ZCC_SOURCE, 4, 0, &error) == ZCC_EINVAL && strstr(error.message, "rank 4"), "%s",
	      error.message);
	CHECK(zcc_transfer_place(t, ZCC_SOURCE, 0, size, &error) == ZCC_EINVAL, "process");
	CHECK(zcc_transfer_place(t, ZCC_SOURCE, 0, -1, &error) == ZCC_EINVAL, "process");
	CHECK(zcc_transfer_bind_memory(t, ZCC_TARGET, 0, N_PARAMS, memory, 8, &error) == ZCC_EINVAL, "parameter");
	CHECK(zcc_transfer_bind_memory(t, ZCC_TARGET, 0, 1, memory, 8, &error) == ZCC_EINVAL, "bytes");
	CHECK(strstr(error.message, "'layer1': 8 bytes") && strstr(error.message, "984 U8"), "%s", error.message);
	CHECK(zcc_transfer_bind_memory(t, ZCC_TARGET, 0, 1, NULL, 4096, &error) == ZCC_EINVAL, "no memory");
	CHECK(zcc_transfer_bind_file(t, ZCC_TARGET, 0, 1, NULL, 0, 4096, &error) == ZCC_EINVAL, "no file");
	zcc_transfer_options options;
	zcc_transfer_options_init(&options);
	options.staging_bytes = 4095;
	CHECK(zcc_transfer_create(s.plan, comm, &options, &t, &error) == ZCC_EINVAL, "budget");
	CHECK(strstr(error.message, "4095") && strstr(error.message, "4096"), "%s", error.message);
	options.struct_bytes--;
	CHECK(zcc_transfer_create(s.plan, comm, &options, &t, &error) == ZCC_EINVAL, "options");
	zcc_plan *unbuilt;
	MUST(zcc_plan_create(s.target, s.source, &unbuilt, &error));
	CHECK(zcc_transfer_create(unbuilt, comm, NULL, &t, &error) == ZCC_EINVAL, "a plan that is not built");
	zcc_plan_destroy(unbuilt);
	close_scene(&s);
}

static void every_allocation_may_fail_on_one_process(void)
{
	int32_t victim = size - 1;
	scene s;
	open_scene(&s, 400, NULL);
	for (int64_t n = 1;; n++) {
		if (rank == victim)
			zcci_fail_alloc(n);
		memset(&error, 0, sizeof error);
		zcc_status status = zcc_transfer_run(s.j.transfer, NULL, &error);
		int64_t hit = rank == victim && zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		CHECK(zcc_comm_max(comm, &hit, 1, &error) == ZCC_OK, "max");
		CHECK(status == (hit ? ZCC_ENOMEM : ZCC_OK), "allocation %lld: %s", (long long)n,
		      zcc_status_name(status));
		if (!hit)
			break;
		CHECK(n < 1000, "no end");
	}
	job_check(&s.j);
	close_scene(&s);
}

/* ---- in the middle ---- */

/* A source file loses its second half after it was opened. Tensors are large enough for many chunks in all streams, or
 * for many steps in the memory of others. */
static void a_read_error_reaches_everyone(int64_t rows, int64_t cols)
{
	scene s;
	zcc_transfer_options options;
	zcc_transfer_options_init(&options);
	options.staging_bytes = 32768;
	dice d = {1};
	make_layouts(&s, rows, cols);
	s.plan = random_plan(&d, s.target, s.source);
	s.process[ZCC_SOURCE][2] = ZCC_ENDPOINT_FILE;
	job_open(&s.j, comm, s.params, N_PARAMS, 11, s.plan, s.target, s.source, s.process, &options);
	char path[128];
	snprintf(path, sizeof path, "%s/source-2", s.j.folder);
	int64_t bytes = zcc_file_bytes(s.j.files[ZCC_SOURCE][2]);
	char *saved = malloc((size_t)bytes);
	MUST(zcc_file_read(s.j.files[ZCC_SOURCE][2], 0, saved, bytes, &error));
	for (int32_t turn = 0; turn < 3; turn++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0)
			CHECK(truncate(path, bytes / 2) == 0, "truncate");
		MPI_Barrier(MPI_COMM_WORLD);
		all_get(&s, ZCC_EIO, -1, "source-2");
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0) {
			int fd = open(path, O_WRONLY);
			CHECK(fd >= 0 && pwrite(fd, saved, (size_t)bytes, 0) == bytes, "restore");
			close(fd);
		}
		MPI_Barrier(MPI_COMM_WORLD);
		still_works(&s);
	}
	free(saved);
	close_scene(&s);
}

/* Process 1 meets a fault when it starts to read; process 0, whose work lies in the memory of process 1, does not go
 * on. */
static void a_stopped_neighbour_is_left_alone(void)
{
	if (size != 2 || !comm->others[1 - rank].near)
		return;
	param p = {.name = "big", .ndim = 2, .shape = {64, 1 << 19}, .source_scale = 1, .target_scale = 1};
	p.source_dtype = p.target_dtype = ZCC_U8;
	zcc_layout *source = simple_layout(&p, 1, ZCC_SOURCE, 2, 0, 0);
	zcc_layout *target = simple_layout(&p, 1, ZCC_TARGET, 2, 1, 0);
	dice d = {1};
	zcc_plan *plan = random_plan(&d, target, source);
	int32_t from[2] = {0, ZCC_ENDPOINT_FILE};
	int32_t to[2] = {0, 1};
	int32_t *process[2] = {from, to};
	job j;
	job_open(&j, comm, &p, 1, 5, plan, target, source, process, NULL);
	if (rank == 1) {
		char path[128];
		zcc_file *file;
		snprintf(path, sizeof path, "%s/short", j.folder);
		MUST(zcc_file_create(path, 16 << 20, &file, &error));
		MUST(zcc_transfer_bind_file(j.transfer, ZCC_SOURCE, 1, 0, file, 0, 16 << 20, &error));
		CHECK(truncate(path, 100) == 0, "truncate");
		zcc_file_close(file);
		unlink(path);
	}
	/* Process 1 has met it when process 0 begins, whichever gets a processor first. */
	int32_t finished;
	MUST(zcc_transfer_submit(j.transfer, &error));
	for (int32_t turn = 0; rank == 1 && turn < 100; turn++)
		MUST(zcc_transfer_test(j.transfer, 0, &finished, &error));
	MPI_Barrier(MPI_COMM_WORLD);
	CHECK(zcc_transfer_wait(j.transfer, NULL, &error) == ZCC_EIO && error.process == 1, "%s", error.message);
	CHECK(strstr(error.message, "short") != NULL, "%s", error.message);
	int64_t done;
	int64_t total;
	zcc_transfer_progress(j.transfer, &done, &total);
	CHECK(done < total, "%lld of %lld bytes were moved in spite of the fault", (long long)done, (long long)total);
	job_close(&j);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(target);
	zcc_layout_destroy(source);
}

/* The group's own sends, but the third of process 0 never leaves. */
static zcci_comm_ops lossy;
static const zcci_comm_ops *real;
static int32_t sends;

static zcc_status lose_third(zcc_comm *c, int32_t slot, int32_t peer, const void *data, int64_t bytes, zcc_error *e)
{
	if (++sends == 3 && rank == 0)
		return ZCC_OK;
	return real->send(c, slot, peer, data, bytes, e);
}

static void a_lost_completion_ends_by_time_out_and_names_the_peer(void)
{
	if (size == 1)
		return;
	scene s;
	zcc_transfer_options options;
	zcc_transfer_options_init(&options);
	options.staging_bytes = 32768;
	options.timeout_ns = 500000000;
	open_scene(&s, 4000, &options);
	real = comm->ops;
	lossy = *real;
	lossy.send = lose_third;
	comm->ops = &lossy;
	all_get(&s, ZCC_EPEER, -1, "process ");
	comm->ops = real;
	/* Late messages could be taken for others: the group is used up. */
	all_get(&s, ZCC_EPEER, -1, "given up");
}

static void *raise_later(void *argument)
{
	usleep(*(const useconds_t *)argument);
	kill(getpid(), SIGTERM);
	return NULL;
}

/* Launchers pass a signal on to all processes, not at the same instant. What each was in the middle of ends on all. */
static void a_signal_stops_everyone(void)
{
	scene s;
	open_scene(&s, 2000, NULL);
	zcc_interrupt_watch();
	useconds_t delay = 150000 + 3000 * (useconds_t)rank;
	pthread_t thread;
	pthread_create(&thread, NULL, raise_later, &delay);
	zcc_status status = ZCC_OK;
	for (int32_t i = 0; status == ZCC_OK; i++)
		status = i % 2 == 0 ? zcc_transfer_run(s.j.transfer, NULL, &error)
		                    : run_in_slices(s.j.transfer, 100000, NULL, &error);
	CHECK(status == ZCC_EINTR || (comm->broken && status == ZCC_EPEER), "%s: %s", zcc_status_name(status),
	      error.message);
	CHECK(status != ZCC_EINTR || error.code == SIGTERM, "%d", error.code);
	pthread_join(thread, NULL);
	int64_t start = zcc_clock_ns();
	status = zcc_transfer_run(s.j.transfer, NULL, &error);
	CHECK(status == ZCC_EINTR || (comm->broken && status == ZCC_EPEER), "%s: %s", zcc_status_name(status),
	      error.message);
	CHECK(zcc_clock_ns() - start < (int64_t)30000000000, "%lld ns", (long long)(zcc_clock_ns() - start));
	close_scene(&s);
}

/* ---- between submit and wait ---- */

static void a_run_in_flight_is_not_changed(void)
{
	scene s;
	open_scene(&s, 4000, NULL);
	zcc_transfer *other;
	MUST(zcc_transfer_create(s.plan, comm, NULL, &other, &error));
	job_clear_targets(&s.j);
	char memory[8];
	int32_t finished = 0;
	MUST(zcc_transfer_submit(s.j.transfer, &error));
	MUST(zcc_transfer_test(s.j.transfer, 0, &finished, &error));
	CHECK(zcc_transfer_place(s.j.transfer, ZCC_TARGET, 3, 0, &error) == ZCC_EINVAL &&
	              strstr(error.message, "in flight"),
	      "%s", error.message);
	CHECK(zcc_transfer_bind_memory(s.j.transfer, ZCC_TARGET, 0, 1, memory, 8, &error) == ZCC_EINVAL &&
	              strstr(error.message, "in flight"),
	      "%s", error.message);
	CHECK(zcc_transfer_submit(s.j.transfer, &error) == ZCC_EINVAL && strstr(error.message, "in flight"), "%s",
	      error.message);
	CHECK(zcc_transfer_submit(other, &error) == ZCC_EINVAL && strstr(error.message, "in flight"), "%s",
	      error.message);
	MUST(zcc_transfer_wait(s.j.transfer, NULL, &error));
	job_check(&s.j);
	zcc_transfer_destroy(other);
	still_works(&s);
	close_scene(&s);
}

static void no_run_is_no_run_for_anyone(void)
{
	scene s;
	open_scene(&s, 40, NULL);
	int32_t finished = -7;
	CHECK(zcc_transfer_test(s.j.transfer, 0, &finished, &error) == ZCC_EINVAL && finished == -7, "%s",
	      error.message);
	CHECK(zcc_transfer_wait(s.j.transfer, NULL, &error) == ZCC_EINVAL && error.process == 0, "%s", error.message);
	still_works(&s);
	close_scene(&s);
}

/* Process 0 drops the transfer and frees its memory while the others send to it. */
static void a_run_destroyed_in_flight_ends_here_and_by_time_out_there(void)
{
	for (int32_t p = 0; p < size; p++)
		comm->others[p].near = false;
	scene s;
	zcc_transfer_options options;
	zcc_transfer_options_init(&options);
	options.staging_bytes = 32768;
	options.timeout_ns = 500000000;
	open_scene(&s, 4000, &options);
	int64_t start = zcc_clock_ns();
	int32_t finished = 0;
	MUST(zcc_transfer_submit(s.j.transfer, &error));
	MUST(zcc_transfer_test(s.j.transfer, 0, &finished, &error));
	CHECK(!finished, "all was moved at once");
	if (rank == 0) {
		zcc_transfer_destroy(s.j.transfer);
		s.j.transfer = NULL;
	} else {
		CHECK(zcc_transfer_wait(s.j.transfer, NULL, &error) == ZCC_EPEER, "%s", error.message);
	}
	CHECK(zcc_clock_ns() - start < (int64_t)30000000000, "%lld ns", (long long)(zcc_clock_ns() - start));
	int64_t value = 1;
	CHECK(zcc_comm_sum(comm, &value, 1, &error) == ZCC_EPEER, "the group can still be used");
	close_scene(&s);
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";
	MPI_Init(&argc, &argv);
	MUST(zcc_comm_create_mpi(&comm, &error));
	rank = zcc_comm_rank(comm);
	size = zcc_comm_size(comm);
	if (strcmp(part, "lost") == 0) {
		a_lost_completion_ends_by_time_out_and_names_the_peer();
	} else if (strcmp(part, "signal") == 0) {
		a_signal_stops_everyone();
	} else if (strcmp(part, "destroyed") == 0) {
		a_run_destroyed_in_flight_ends_here_and_by_time_out_there();
	} else {
		in_slices = strcmp(part, "slices") == 0;
		a_plan_of_its_own_is_named();
		endpoints_and_budgets_of_its_own_are_named();
		a_missing_buffer_is_named();
		overlapping_buffers_are_refused();
		arguments_are_checked_with_numbers();
		every_allocation_may_fail_on_one_process();
		a_read_error_reaches_everyone(4000, 96);
		a_read_error_reaches_everyone(300, 8192);
		a_stopped_neighbour_is_left_alone();
		a_run_in_flight_is_not_changed();
		no_run_is_no_run_for_anyone();
	}
	zcc_comm_destroy(comm);
	MPI_Finalize();
	return 0;
}
