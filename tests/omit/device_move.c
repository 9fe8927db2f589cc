/* A transfer between devices of two processes on the late device, in rounds, with one wait left out. */
#include "../multi/shards.h"

enum { SIDE = 256 };

static zcc_comm *comm;
static zcc_error error;

static float value(int64_t row, int64_t column)
{
	return (float)(row * SIDE + column + 1);
}

/* Element i of the half that a process has of the rows (dim 0) or columns (1). */
static float value_of_half(int32_t dim, int32_t rank, int64_t i)
{
	return dim == 0 ? value(rank * SIDE / 2 + i / SIDE, i % SIDE)
	                : value(i / (SIDE / 2), rank * SIDE / 2 + i % (SIDE / 2));
}

/* Rows to columns (dim = 0: sent from a stage, received in place) or columns to rows (1: the other way round); what
 * arrived wrong, on both processes together. */
static int64_t wrong_values_from(int32_t dim, const char *name)
{
	param params[] = {{.name = "w",
	                   .ndim = 2,
	                   .shape = {SIDE, SIDE},
	                   .source_dtype = ZCC_F32,
	                   .target_dtype = ZCC_F32,
	                   .source_scale = 1,
	                   .target_scale = 1}};
	int32_t rank = zcc_comm_rank(comm);
	int64_t bytes = SIDE * SIDE / 2 * 4;
	zcc_layout *source = simple_layout(params, 1, ZCC_SOURCE, 2, dim, 0);
	zcc_layout *target = simple_layout(params, 1, ZCC_TARGET, 2, 1 - dim, 0);
	dice d = {1};
	zcc_plan *plan = random_plan(&d, target, source);
	zcc_transfer_options options;
	zcc_transfer_options_init(&options);
	options.staging_bytes = 40960;
	zcc_device *device;
	zcc_stream *stream;
	zcc_transfer *transfer;
	float *host;
	void *from;
	void *to;
	MUST(zcc_device_open(name, &device, &error));
	MUST(zcc_stream_create(device, &stream, &error));
	MUST(zcc_device_malloc(device, bytes, &from, &error));
	MUST(zcc_device_malloc(device, bytes, &to, &error));
	MUST(zcc_pinned_malloc(device, bytes, (void **)&host, &error));
	MUST(zcc_transfer_create(plan, comm, &options, &transfer, &error));
	MUST(zcc_transfer_set_device(transfer, device, "mpi", &error));
	for (int32_t r = 0; r < 2; r++) {
		MUST(zcc_transfer_place(transfer, ZCC_SOURCE, r, r, &error));
		MUST(zcc_transfer_place(transfer, ZCC_TARGET, r, r, &error));
	}
	MUST(zcc_transfer_bind_memory(transfer, ZCC_SOURCE, rank, 0, from, bytes, &error));
	MUST(zcc_transfer_bind_memory(transfer, ZCC_TARGET, rank, 0, to, bytes, &error));
	MUST(zcc_copy_async(stream, to, host, bytes, &error));
	MUST(zcc_stream_wait(stream, &error));
	for (int64_t i = 0; i < SIDE * SIDE / 2; i++)
		host[i] = value_of_half(dim, rank, i);
	MUST(zcc_copy_async(stream, from, host, bytes, &error));
	MUST(zcc_stream_wait(stream, &error));
	MUST(zcc_transfer_run(transfer, NULL, &error));
	MUST(zcc_copy_async(stream, host, to, bytes, &error));
	MUST(zcc_stream_wait(stream, &error));
	int64_t wrong = 0;
	for (int64_t i = 0; i < SIDE * SIDE / 2; i++)
		wrong += host[i] != value_of_half(1 - dim, rank, i);
	zcc_transfer_destroy(transfer);
	zcc_device_free(device, from);
	zcc_device_free(device, to);
	zcc_pinned_free(device, host);
	zcc_stream_destroy(stream);
	zcc_device_close(device);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
	MUST(zcc_comm_sum(comm, &wrong, 1, &error));
	return wrong;
}

static int64_t wrong_values(const char *name)
{
	return wrong_values_from(0, name) + wrong_values_from(1, name);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MUST(zcc_comm_create_mpi(&comm, &error));
	bool omits = ZCC_OMITTED[0] != '\0';
	int64_t lazy = wrong_values("late:host,lazy");
	bool right = omits ? lazy > 0 : lazy == 0 && wrong_values("late:host,eager") == 0;
	for (int32_t seed = 1; !omits && right && seed <= 5; seed++) {
		char name[40];
		snprintf(name, sizeof name, "late:host,shuffle=%d", seed);
		right = wrong_values(name) == 0;
	}
	if (!right && zcc_comm_rank(comm) == 0)
		fprintf(stderr, "without '%s' %lld values are wrong\n", ZCC_OMITTED, (long long)lazy);
	zcc_comm_destroy(comm);
	MPI_Finalize();
	return right ? 0 : 1;
}
