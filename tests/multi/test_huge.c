/* Segments of 2^31 and more bytes. The sources are pages that nobody wrote, but for a few bytes, so only targets
 * need memory. */
#include "shards.h"

static zcc_comm *comm;
static int32_t rank;
static int32_t size;
static zcc_error error;

static const int64_t NEEDED_BYTES = (int64_t)6 << 30;

static int64_t available_bytes(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];
	long long kib = 0;
	while (file != NULL && fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "MemAvailable: %lld", &kib) == 1)
			break;
	if (file != NULL)
		fclose(file);
	return kib * 1024;
}

/* Around every multiple of 2^30, where a number of 31 or 32 bits would wrap, and at both ends. */
static bool is_marked(int64_t element, int64_t elems)
{
	return (element & ((1 << 30) - 1)) < 2 || ((element + 2) & ((1 << 30) - 1)) < 2 || element == elems - 1;
}

static char mark(int64_t element)
{
	return (char)(1 + element % 251);
}

static void mark_source(char *data, int64_t elems)
{
	for (int64_t at = 0; at <= elems; at += 1 << 30)
		for (int64_t i = at - 2; i < at + 2; i++)
			if (i >= 0 && i < elems)
				data[i] = mark(i);
	data[elems - 1] = mark(elems - 1);
}

/* Bytes that stand for `n` elements from `element` on. */
static void check_run(const char *data, int64_t element, int64_t n, int64_t elems)
{
	static const char zeros[1 << 16];
	while (n > 0) {
		int64_t part = n < (int64_t)sizeof zeros ? n : (int64_t)sizeof zeros;
		bool maybe_marked =
		        element < 2 || (element - 2) >> 30 != (element + part + 2) >> 30 || element + part == elems;
		if (maybe_marked || memcmp(data, zeros, (size_t)part) != 0) {
			for (int64_t i = 0; i < part; i++) {
				char want = is_marked(element + i, elems) ? mark(element + i) : 0;
				CHECK(data[i] == want, "element %lld is %d, not %d", (long long)(element + i), data[i],
				      want);
			}
		}
		data += part;
		element += part;
		n -= part;
	}
}

/* Column `column` on of a matrix of that width, `rows` rows of `cols`. */
static void check_target(const char *data, int64_t rows, int64_t cols, int64_t width, int64_t column)
{
	for (int64_t row = 0; row < rows; row++)
		check_run(data + row * cols, row * width + column, cols, rows * width);
}

/* One source rank on process 0; target ranks cut the last axis, the first one on the last process. */
static void move(int64_t rows, int64_t width, int32_t n_targets)
{
	param p = {.name = "huge", .ndim = 2, .shape = {rows, width}, .source_scale = 1, .target_scale = 1};
	p.source_dtype = p.target_dtype = ZCC_U8;
	zcc_layout *source = simple_layout(&p, 1, ZCC_SOURCE, 1, 0, 0);
	zcc_layout *target = simple_layout(&p, 1, ZCC_TARGET, n_targets, 1, 0);
	dice d = {1};
	zcc_plan *plan = random_plan(&d, target, source);
	zcc_transfer *transfer;
	MUST(zcc_transfer_create(plan, comm, NULL, &transfer, &error));
	void *from = NULL;
	void *to[2] = {NULL, NULL};
	int64_t cols = width / n_targets;
	MUST(zcc_transfer_place(transfer, ZCC_SOURCE, 0, 0, &error));
	if (rank == 0) {
		MUST(zcc_memory_create(rows * width, &from, &error));
		mark_source(from, rows * width);
		MUST(zcc_transfer_bind_memory(transfer, ZCC_SOURCE, 0, 0, from, rows * width, &error));
	}
	for (int32_t r = 0; r < n_targets; r++) {
		int32_t process = (r + size - 1) % size;
		MUST(zcc_transfer_place(transfer, ZCC_TARGET, r, process, &error));
		if (rank != process)
			continue;
		MUST(zcc_memory_create(rows * cols, &to[r], &error));
		MUST(zcc_transfer_bind_memory(transfer, ZCC_TARGET, r, 0, to[r], rows * cols, &error));
	}
	MUST(zcc_transfer_run(transfer, NULL, &error));
	for (int32_t r = 0; r < n_targets; r++) {
		if (to[r] != NULL)
			check_target(to[r], rows, cols, width, r * cols);
		zcc_memory_destroy(to[r], rows * cols);
	}
	zcc_memory_destroy(from, rows * width);
	zcc_transfer_destroy(transfer);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MUST(zcc_comm_create_mpi(&comm, &error));
	rank = zcc_comm_rank(comm);
	size = zcc_comm_size(comm);
	int64_t short_of = available_bytes() < NEEDED_BYTES;
	MUST(zcc_comm_max(comm, &short_of, 1, &error));
	if (short_of) {
		if (rank == 0)
			printf("skipped: needs %lld bytes of memory\n", (long long)NEEDED_BYTES);
		MPI_Finalize();
		return 77;
	}
	move(1, (int64_t)1 << 31, 1);
	move(1, ((int64_t)1 << 32) + 4, 1);
	move(((int64_t)1 << 16) + 1, (int64_t)1 << 16, 2);
	zcc_comm_destroy(comm);
	MPI_Finalize();
	return 0;
}
