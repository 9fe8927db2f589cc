/* Verification spread over processes: together they look at every byte, and all hear of the one that is wrong. */
#include <unistd.h>

#include "multi.h"

enum { N_PARAMS = 11, ELEMS = 24, N_SOURCE = 2, N_TARGET = 4, SHARE = ELEMS / N_TARGET };

static zcc_comm *comm;
static zcc_error error;
static char folder[64];
static zcc_file *files[2][N_TARGET];

static void path_of(char path[128], int side, int rank)
{
	snprintf(path, 128, "%s/%d-%d", folder, side, rank);
}

/* Every source rank has all of every parameter, a target rank its quarter. Process 0 writes. */
static void write_file(int side, int rank, int64_t wrong_at)
{
	int32_t n = side == ZCC_SOURCE ? ELEMS : SHARE, first = side == ZCC_SOURCE ? 0 : rank * SHARE;
	int32_t content[N_PARAMS * ELEMS];
	char path[128];
	path_of(path, side, rank);
	for (int32_t p = 0; p < N_PARAMS; p++)
		for (int32_t k = 0; k < n; k++)
			content[p * n + k] = p * 1000 + first + k;
	if (wrong_at >= 0)
		content[wrong_at] ^= 0x10000;
	FILE *file = fopen(path, "wb");
	CHECK(file != NULL && fwrite(content, 4, (size_t)(N_PARAMS * n), file) == (size_t)(N_PARAMS * n) &&
	              fclose(file) == 0,
	      "%s", path);
}

static zcc_layout *layout_of(int side)
{
	zcc_layout *layout;
	int64_t ranks = side == ZCC_SOURCE ? N_SOURCE : N_TARGET, elems = ELEMS;
	int32_t mesh, index;
	zcc_part part = {.size_elems = ELEMS, .units = ELEMS, .cut = ZCC_CUT_EVEN};
	zcc_placement place = {.kind = ZCC_PLACE_SHARD, .n_parts = 1, .parts = &part};
	MUST(zcc_layout_create(&layout, &error));
	MUST(zcc_layout_add_mesh(layout, 0, 1, "a", &ranks, &mesh, &error));
	for (int32_t p = 0; p < N_PARAMS; p++) {
		char name[16];
		zcc_param_options options;
		zcc_param_options_init(&options);
		snprintf(name, sizeof name, "p%02d", p);
		options.name = name;
		options.dtype = ZCC_I32;
		options.ndim = 1;
		options.shape_elems = &elems;
		options.placements = &place;
		options.n_placements = side == ZCC_TARGET;
		MUST(zcc_layout_add_param(layout, &options, &index, &error));
	}
	return layout;
}

/* A wrong element of one file: every process names its parameter, index and rank. */
static void spoil_and_look(zcc_verify *verify, int side, int rank, int32_t p, int32_t k)
{
	int32_t n = side == ZCC_SOURCE ? ELEMS : SHARE;
	int64_t bytes = -7;
	if (zcc_comm_rank(comm) == 0)
		write_file(side, rank, p * n + k);
	MPI_Barrier(MPI_COMM_WORLD);
	/* Some processes have done a part of it, or all, when the others begin. */
	int32_t finished = 0;
	for (int32_t steps = (zcc_comm_rank(comm) + p) % 3 * k; steps > 0 && !finished; steps--)
		zcc_verify_test(verify, comm, 0, &finished, NULL);
	zcc_status status = zcc_verify_run(verify, comm, &bytes, &error);
	char text[64];
	int32_t index = side == ZCC_SOURCE ? k : rank * SHARE + k;
	snprintf(text, sizeof text, "parameter p%02d, element [%d]: ", p, index);
	CHECK(status == ZCC_EVERIFY && strstr(error.message, text) != NULL && bytes == -7, "%s: %s; %s expected",
	      zcc_status_name(status), error.message, text);
	/* A wrong lowest replica is seen in two places; each names it. */
	snprintf(text, sizeof text, "%s rank %d (", side == ZCC_SOURCE ? "source" : "target", rank);
	CHECK(strstr(error.message, text) != NULL, "%s; %s expected", error.message, text);
	uint64_t sum = 0;
	for (const char *c = error.message; *c != '\0'; c++)
		sum = sum * 31 + (unsigned char)*c;
	MUST(zcc_comm_same(comm, "message", (int64_t)(sum >> 1), &error));
	if (zcc_comm_rank(comm) == 0)
		write_file(side, rank, -1);
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MUST(zcc_comm_create_mpi(&comm, &error));
	if (zcc_comm_rank(comm) == 0) {
		snprintf(folder, sizeof folder, "/tmp/zcc-multi-XXXXXX");
		CHECK(mkdtemp(folder) != NULL, "no temporary folder");
	}
	MUST(zcc_comm_broadcast(comm, folder, sizeof folder, 0, &error));
	zcc_layout *layouts[2] = {layout_of(ZCC_SOURCE), layout_of(ZCC_TARGET)};
	zcc_verify *verify;
	MUST(zcc_verify_create(layouts[ZCC_TARGET], layouts[ZCC_SOURCE], &verify, &error));
	for (int side = 0; side < 2; side++)
		for (int rank = 0; rank < (side == ZCC_SOURCE ? N_SOURCE : N_TARGET); rank++) {
			char path[128];
			path_of(path, side, rank);
			if (zcc_comm_rank(comm) == 0)
				write_file(side, rank, -1);
			MPI_Barrier(MPI_COMM_WORLD);
			MUST(zcc_file_open(path, &files[side][rank], &error));
			int64_t n = side == ZCC_SOURCE ? ELEMS : SHARE;
			for (int32_t p = 0; p < N_PARAMS; p++)
				MUST(zcc_verify_bind_file(verify, side, rank, p, files[side][rank], p * n * 4, n * 4,
				                          &error));
			zcc_file_close(files[side][rank]);
		}
	int64_t bytes = 0;
	MUST(zcc_verify_run(verify, comm, &bytes, &error));
	/* All of the target and one of the two replicas. */
	CHECK(bytes == 2 * N_PARAMS * ELEMS * 4, "%lld bytes", (long long)bytes);
	for (int32_t p = 0; p < N_PARAMS; p++) {
		for (int rank = 0; rank < N_TARGET; rank++)
			spoil_and_look(verify, ZCC_TARGET, rank, p, (p + rank) % SHARE);
		for (int rank = 0; rank < N_SOURCE; rank++)
			spoil_and_look(verify, ZCC_SOURCE, rank, p, (p * 7 + rank) % ELEMS);
	}
	MUST(zcc_verify_run(verify, comm, &bytes, &error));
	zcc_verify_destroy(verify);
	zcc_layout_destroy(layouts[0]);
	zcc_layout_destroy(layouts[1]);
	if (zcc_comm_rank(comm) == 0)
		for (int side = 0; side < 2; side++)
			for (int rank = 0; rank < (side == ZCC_SOURCE ? N_SOURCE : N_TARGET); rank++) {
				char path[128];
				path_of(path, side, rank);
				unlink(path);
			}
	if (zcc_comm_rank(comm) == 0)
		rmdir(folder);
	zcc_comm_destroy(comm);
	MPI_Finalize();
	return 0;
}
