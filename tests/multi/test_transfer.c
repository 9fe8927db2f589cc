/* The executor against a simulation of every element. */
#include "shards.h"
#include "transfer/comm.h"

static zcc_comm *comm;
static zcc_error error;
static zcc_device *device; /* NULL: ordinary memory */

static const int32_t dtypes[] = {ZCC_U8, ZCC_BF16, ZCC_F32, ZCC_I64, ZCC_BOOL, ZCC_C64};
static const int32_t floats[] = {ZCC_F16, ZCC_BF16, ZCC_F32, ZCC_F64};

static param random_param(dice *d, int32_t index, int64_t max_extent, bool converts)
{
	param p = {.ndim = (int32_t)dice_below(d, 5), .source_scale = 1, .target_scale = 1};
	snprintf(p.name, sizeof p.name, "p%d", index);
	for (int32_t a = 0; a < p.ndim; a++)
		p.shape[a] = dice_below(d, 12) == 0 ? dice_below(d, 2) : 1 + dice_below(d, max_extent);
	p.source_dtype = p.target_dtype = dtypes[dice_below(d, sizeof dtypes / sizeof *dtypes)];
	if (converts) {
		p.source_dtype = floats[dice_below(d, 4)];
		p.target_dtype = floats[dice_below(d, 4)];
		p.target_scale = dice_below(d, 2) == 0 ? 1 : 0.3125;
	}
	if (converts && device != NULL) {
		p.source_dtype = floats[dice_below(d, 3)];
		p.target_dtype = floats[dice_below(d, 3)];
		p.target_scale = 1;
	}
	return p;
}

/* Long rows, and blocks that take several steps. */
static param wide_param(dice *d, int32_t index)
{
	param p = {.ndim = 2 + (int32_t)dice_below(d, 2), .source_scale = 1, .target_scale = 1};
	snprintf(p.name, sizeof p.name, "p%d", index);
	p.shape[0] = 1 + dice_below(d, 60);
	p.shape[1] = 1 + dice_below(d, p.ndim == 2 ? 20000 : 40);
	p.shape[2] = p.ndim == 2 ? 0 : 1 + dice_below(d, 3000);
	p.source_dtype = p.target_dtype = dtypes[dice_below(d, sizeof dtypes / sizeof *dtypes)];
	return p;
}

static void check_result(const zcc_transfer_result *result, int64_t staging, bool files)
{
	int64_t peers = zcc_comm_size(comm) - 1 + (files || device != NULL ? 1 : 0);
	CHECK(result->staging_peak_bytes <= staging * peers, "%lld bytes of staging with %lld peers of %lld",
	      (long long)result->staging_peak_bytes, (long long)peers, (long long)staging);
}

/* Moves and judges, twice, at once and in the smallest slices. */
static zcc_transfer_result move_and_check(const param *params, int32_t n_params, uint64_t seed, zcc_plan *plan,
                                          zcc_layout *target, zcc_layout *source, int32_t *const process[2],
                                          int64_t staging, bool files)
{
	zcc_transfer_options options;
	zcc_transfer_options_init(&options);
	options.staging_bytes = staging;
	job j;
	job_open(&j, comm, params, n_params, seed, plan, target, source, process, &options);
	zcc_transfer_result result = {0};
	for (int32_t turn = 0; turn < 2; turn++) {
		job_clear_targets(&j);
		MUST(turn == 0 ? zcc_transfer_run(j.transfer, &result, &error)
		               : run_in_slices(j.transfer, 0, &result, &error));
		int64_t done;
		int64_t total;
		zcc_transfer_progress(j.transfer, &done, &total);
		CHECK(done == total, "%lld of %lld bytes done", (long long)done, (long long)total);
		check_result(&result, staging, files);
		job_check(&j);
	}
	job_close(&j);
	return result;
}

/* max_extent = 0: long rows. */
static void one_random_case(uint64_t seed, int64_t max_extent, bool converts, int32_t file_chance)
{
	dice d = {seed};
	param params[MAX_PARAMS];
	int32_t n_params = 1 + (int32_t)dice_below(&d, 5);
	for (int32_t i = 0; i < n_params; i++)
		params[i] = max_extent > 0 ? random_param(&d, i, max_extent, converts) : wide_param(&d, i);
	zcc_layout *source = random_layout(&d, params, n_params, ZCC_SOURCE, 8);
	zcc_layout *target = random_layout(&d, params, n_params, ZCC_TARGET, 8);
	zcc_plan *plan = random_plan(&d, target, source);
	int32_t n_source;
	int32_t n_target;
	zcc_layout_ranks(source, &n_source);
	zcc_layout_ranks(target, &n_target);
	int32_t *process[2] = {random_endpoints(&d, n_source, zcc_comm_size(comm), file_chance),
	                       random_endpoints(&d, n_target, zcc_comm_size(comm), file_chance)};
	static const int64_t budgets[] = {4096, 5000, 65536, 1 << 20, 8 << 20};
	int64_t staging = budgets[dice_below(&d, 5)];
	/* Conversions within a device go through a tenth of it: thousands of launches where it is tiny. */
	if (device != NULL && converts && staging < 65536)
		staging = 65536;
	move_and_check(params, n_params, seed, plan, target, source, process, staging, file_chance > 0);
	free(process[0]);
	free(process[1]);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(target);
	zcc_layout_destroy(source);
}

static void random_cases(uint64_t seed, int32_t n, int64_t max_extent, bool converts, int32_t file_chance)
{
	for (int32_t i = 0; i < n; i++)
		one_random_case(seed + (uint64_t)i, max_extent, converts, file_chance);
}

/* Tables of 4 to 64 KiB in both directions, every process placing and binding in an order of its own: no hang within
 * 90 s. */
static void tables_in_any_order_make_one_transfer(uint64_t seed)
{
	int64_t start = zcc_clock_ns();
	for (int32_t i = 0; i < 200; i++) {
		dice d = {seed + 5000 + (uint64_t)i};
		param params[4];
		for (int32_t k = 0; k < 4; k++) {
			params[k] = (param){.ndim = 2,
			                    .shape = {32, 128 + dice_below(&d, 15 * 128)},
			                    .source_scale = 1,
			                    .target_scale = 1};
			params[k].source_dtype = params[k].target_dtype = ZCC_U8;
			snprintf(params[k].name, sizeof params[k].name, "t%d", k);
		}
		int32_t size = zcc_comm_size(comm);
		zcc_layout *source = simple_layout(params, 4, ZCC_SOURCE, size, 0, 0);
		zcc_layout *target = simple_layout(params, 4, ZCC_TARGET, size, 1, 0);
		zcc_plan *plan = random_plan(&d, target, source);
		int32_t *order = malloc((size_t)size * sizeof *order);
		for (int32_t r = 0; r < size; r++)
			order[r] = r;
		int32_t *process[2] = {order, order};
		zcc_transfer_options options;
		zcc_transfer_options_init(&options);
		options.staging_bytes = 16384;
		job j;
		job_open(&j, comm, params, 4, seed, plan, target, source, process, &options);
		MUST(zcc_transfer_run(j.transfer, NULL, &error));
		if (i % 20 == 0)
			job_check(&j);
		job_close(&j);
		free(order);
		zcc_plan_destroy(plan);
		zcc_layout_destroy(target);
		zcc_layout_destroy(source);
	}
	CHECK(zcc_clock_ns() - start < (int64_t)90000000000, "%lld ms",
	      (long long)((zcc_clock_ns() - start) / 1000000));
}

/* 1 MiB for tensors of 2.5 MiB and 2 bytes in bf16 among bytes of odd length; dense, strided and flat. */
static void staging_is_bounded_for_tensors_that_exceed_it(uint64_t seed)
{
	param params[7];
	for (int32_t i = 0; i < 7; i++) {
		params[i] = (param){
		        .ndim = 1, .shape = {i % 2 == 0 ? 1001 + i : 1310721}, .source_scale = 1, .target_scale = 1};
		params[i].source_dtype = params[i].target_dtype = i % 2 == 0 ? ZCC_U8 : ZCC_BF16;
		snprintf(params[i].name, sizeof params[i].name, "t%d", i);
	}
	params[3].ndim = 2;
	params[3].shape[0] = 3;
	params[3].shape[1] = 436907;
	params[5].ndim = 2;
	params[5].shape[0] = 436907;
	params[5].shape[1] = 3;
	int32_t size = zcc_comm_size(comm);
	for (int32_t kind = 0; kind < 3; kind++) {
		dice d = {seed + 9000 + (uint64_t)kind};
		zcc_layout *source = simple_layout(params, 7, ZCC_SOURCE, 4, 0, kind == 1);
		zcc_layout *target = simple_layout(params, 7, ZCC_TARGET, 3, 1, kind == 2);
		zcc_plan *plan = random_plan(&d, target, source);
		int32_t from[4];
		int32_t to[3];
		for (int32_t r = 0; r < 4; r++)
			from[r] = r % size;
		for (int32_t r = 0; r < 3; r++)
			to[r] = (r + 1) % size;
		int32_t *process[2] = {from, to};
		move_and_check(params, 7, seed, plan, target, source, process, 1 << 20, false);
		zcc_plan_destroy(plan);
		zcc_layout_destroy(target);
		zcc_layout_destroy(source);
	}
}

/* More short rows than go into one call of the system, and back. */
static void many_rows_of_one_segment_arrive(uint64_t seed)
{
	param p = {.name = "rows", .ndim = 2, .shape = {6000, 1200}, .source_scale = 1, .target_scale = 1};
	p.source_dtype = p.target_dtype = ZCC_U8;
	int32_t size = zcc_comm_size(comm);
	int32_t endpoints[2] = {0, size - 1};
	int32_t *process[2] = {endpoints, endpoints};
	for (int32_t turn = 0; turn < 2; turn++) {
		dice d = {seed};
		zcc_layout *source = simple_layout(&p, 1, ZCC_SOURCE, 1 + turn, 1, 0);
		zcc_layout *target = simple_layout(&p, 1, ZCC_TARGET, 2 - turn, 1, 0);
		zcc_plan *plan = random_plan(&d, target, source);
		move_and_check(&p, 1, seed, plan, target, source, process, 1 << 20, false);
		zcc_plan_destroy(plan);
		zcc_layout_destroy(target);
		zcc_layout_destroy(source);
	}
}

/* Lets the executor use messages between processes that could read each other's memory. */
static void use_messages_only(void)
{
	for (int32_t p = 0; comm->others != NULL && p < comm->size; p++)
		comm->others[p].near = false;
}

/* "cuda:rank": each process has a GPU of its own. */
static zcc_status open_device(const char *name)
{
	char own[40];
	snprintf(own, sizeof own, "cuda:%d", zcc_comm_rank(comm));
	return zcc_device_open(strcmp(name, "cuda:rank") == 0 ? own : name, &device, &error);
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "random";
	MPI_Init(&argc, &argv);
	MUST(zcc_comm_create_mpi(&comm, &error));
	uint64_t seed = (uint64_t)multi_seed(20240611);
	if (argc > 2 && strcmp(argv[2], "messages") == 0) {
		use_messages_only();
	} else if (argc > 2 && open_device(argv[2]) != ZCC_OK) {
		printf("no device %s: %s\n", argv[2], error.message);
		MPI_Finalize();
		return 77;
	}
	if (device != NULL)
		jobs_use_device(device, argc > 3 ? argv[3] : NULL);
	if (strcmp(part, "random") == 0) {
		random_cases(seed, 120, 9, false, 0);
		random_cases(seed + 1000, 6, 70, false, 0);
	} else if (strcmp(part, "wide") == 0) {
		random_cases(seed + 6000, 8, 0, false, 0);
		many_rows_of_one_segment_arrive(seed);
	} else if (strcmp(part, "files") == 0) {
		random_cases(seed + 2000, 60, 9, false, 40);
		random_cases(seed + 2500, 20, 9, true, 40);
		random_cases(seed + 2900, 3, 60, false, 50);
	} else if (strcmp(part, "convert") == 0) {
		random_cases(seed + 3000, 60, 9, true, 0);
		random_cases(seed + 4000, 3, 50, true, 0);
	} else if (strcmp(part, "tables") == 0) {
		tables_in_any_order_make_one_transfer(seed);
	} else if (strcmp(part, "staging") == 0) {
		staging_is_bounded_for_tensors_that_exceed_it(seed);
	} else {
		CHECK(0, "no part '%s'", part);
	}
	jobs_use_device(NULL, NULL);
	zcc_device_close(device);
	zcc_comm_destroy(comm);
	MPI_Finalize();
	return 0;
}
