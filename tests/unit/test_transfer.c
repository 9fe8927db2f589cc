/* The executor in one process: what it asks of files, what it counts, and memory that runs out at any point. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "zcc.h"

static zcc_error error;

static void must(zcc_status status)
{
	if (status != ZCC_OK)
		fail_msg("%s: %s", zcc_status_name(status), error.message);
}

/* [rows, cols] of bf16 whole on rank 0. */
static zcc_status whole_layout(int64_t rows, int64_t cols, zcc_layout **layout, zcc_error *e)
{
	int64_t one = 1;
	int64_t shape[2] = {rows, cols};
	int32_t mesh;
	int32_t param;
	zcc_status status = zcc_layout_create(layout, e);
	if (status != ZCC_OK)
		return status;
	zcc_param_options options;
	zcc_param_options_init(&options);
	options.name = "w";
	options.dtype = ZCC_BF16;
	options.ndim = 2;
	options.shape_elems = shape;
	status = zcc_layout_add_mesh(*layout, 0, 1, "a", &one, &mesh, e);
	if (status == ZCC_OK)
		status = zcc_layout_add_param(*layout, &options, &param, e);
	return status;
}

/* [rows, cols] cut into two along axis `dim`. */
static void cut_layout(int64_t rows, int64_t cols, int32_t dim, int32_t dtype, zcc_layout **layout)
{
	int64_t two = 2;
	int64_t shape[2] = {rows, cols};
	int32_t mesh;
	int32_t param;
	zcc_part part = {.size_elems = shape[dim], .units = shape[dim], .cut = ZCC_CUT_EVEN};
	zcc_placement placement = {.kind = ZCC_PLACE_SHARD, .dim = dim, .n_parts = 1, .parts = &part};
	zcc_param_options options;
	zcc_param_options_init(&options);
	options.name = "w";
	options.dtype = dtype;
	options.ndim = 2;
	options.shape_elems = shape;
	options.placements = &placement;
	options.n_placements = 1;
	must(zcc_layout_create(layout, &error));
	must(zcc_layout_add_mesh(*layout, 0, 1, "a", &two, &mesh, &error));
	must(zcc_layout_add_param(*layout, &options, &param, &error));
}

static zcc_plan *lowest_plan(zcc_layout *target, zcc_layout *source)
{
	zcc_plan *plan;
	int64_t n;
	must(zcc_plan_create(target, source, &plan, &error));
	zcc_plan_regions(plan, &n);
	for (int64_t i = 0; i < n; i++)
		must(zcc_plan_choose(plan, i, 0, &error));
	must(zcc_plan_build(plan, &error));
	return plan;
}

static zcc_file *file_of(const void *data, int64_t bytes)
{
	char path[] = "/tmp/zcc-unit-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, (size_t)bytes), bytes);
	close(fd);
	zcc_file *file;
	must(zcc_file_open_write(path, &file, &error));
	unlink(path);
	return file;
}

/* A whole file to two column halves of which only the second is taken: reads `bytes`. */
static int64_t bytes_read_for_second_half(int64_t rows, int64_t cols)
{
	zcc_layout *source;
	zcc_layout *target;
	must(whole_layout(rows, cols, &source, &error));
	cut_layout(rows, cols, 1, ZCC_BF16, &target);
	zcc_plan *plan = lowest_plan(target, source);
	zcc_comm *comm;
	must(zcc_comm_create_local(&comm, &error));
	zcc_transfer *transfer;
	must(zcc_transfer_create(plan, comm, NULL, &transfer, &error));
	int64_t elems = rows * cols;
	uint16_t *data = malloc((size_t)elems * 2);
	for (int64_t i = 0; i < elems; i++)
		data[i] = (uint16_t)(i * 40503);
	zcc_file *file = file_of(data, elems * 2);
	uint16_t *halves[2] = {malloc((size_t)elems), malloc((size_t)elems)};
	must(zcc_transfer_place(transfer, ZCC_SOURCE, 0, ZCC_ENDPOINT_FILE, &error));
	must(zcc_transfer_bind_file(transfer, ZCC_SOURCE, 0, 0, file, 0, elems * 2, &error));
	zcc_file_close(file);
	for (int32_t r = 0; r < 2; r++) {
		must(zcc_transfer_place(transfer, ZCC_TARGET, r, 0, &error));
		must(zcc_transfer_bind_memory(transfer, ZCC_TARGET, r, 0, halves[r], elems, &error));
	}
	zcc_transfer_result result;
	must(zcc_transfer_run(transfer, &result, &error));
	for (int64_t row = 0; row < rows; row++)
		for (int32_t r = 0; r < 2; r++)
			assert_memory_equal(halves[r] + row * cols / 2, data + row * cols + r * cols / 2, (size_t)cols);
	assert_int_equal(result.copied_bytes, 0);
	assert_int_equal(result.wire_bytes, 0);
	assert_int_equal(result.written_bytes, 0);
	assert_true(result.staging_peak_bytes <= 8 << 20);
	free(data);
	free(halves[0]);
	free(halves[1]);
	zcc_transfer_destroy(transfer);
	zcc_comm_destroy(comm);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(target);
	zcc_layout_destroy(source);
	return result.read_bytes;
}

static void reads_ask_for_the_ranges_needed(void **state)
{
	(void)state;
	/* Rows of 16 KiB: each half is read by itself. */
	assert_int_equal(bytes_read_for_second_half(33, 8192), 33 * 16384);
	/* One row: contiguous. */
	assert_int_equal(bytes_read_for_second_half(1, 100), 200);
	/* Rows of 64 bytes: both halves read across the gaps between their rows, but not beyond them. */
	assert_int_equal(bytes_read_for_second_half(1000, 32), 2 * (999 * 64 + 32));
}

/* Two row halves in memory, f32, to two column halves in one bf16 file, and the bytes around them. */
static void writes_touch_what_belongs_to_the_shard(void **state)
{
	(void)state;
	enum { ROWS = 20, COLS = 12, LEAD = 5, GAP = 7 };
	zcc_layout *source;
	zcc_layout *target;
	cut_layout(ROWS, COLS, 0, ZCC_F32, &source);
	cut_layout(ROWS, COLS, 1, ZCC_BF16, &target);
	zcc_plan *plan = lowest_plan(target, source);
	zcc_comm *comm;
	must(zcc_comm_create_local(&comm, &error));
	zcc_transfer *transfer;
	must(zcc_transfer_create(plan, comm, NULL, &transfer, &error));
	float halves[2][ROWS / 2 * COLS];
	for (int32_t i = 0; i < ROWS * COLS; i++)
		halves[i / (ROWS / 2 * COLS)][i % (ROWS / 2 * COLS)] = (float)i;
	enum { SHARD = ROWS * COLS / 2 * 2, BYTES = LEAD + 2 * SHARD + 2 * GAP };
	char before[BYTES];
	memset(before, 0x77, sizeof before);
	zcc_file *file = file_of(before, BYTES);
	for (int32_t r = 0; r < 2; r++) {
		must(zcc_transfer_place(transfer, ZCC_SOURCE, r, 0, &error));
		must(zcc_transfer_bind_memory(transfer, ZCC_SOURCE, r, 0, halves[r], sizeof halves[r], &error));
		must(zcc_transfer_place(transfer, ZCC_TARGET, r, ZCC_ENDPOINT_FILE, &error));
		must(zcc_transfer_bind_file(transfer, ZCC_TARGET, r, 0, file, LEAD + r * (SHARD + GAP), SHARD, &error));
	}
	zcc_transfer_result result;
	must(zcc_transfer_run(transfer, &result, &error));
	assert_int_equal(result.written_bytes, 2 * SHARD);
	assert_int_equal(result.read_bytes, 0);
	char want[BYTES];
	memset(want, 0x77, sizeof want);
	for (int32_t i = 0; i < ROWS * COLS; i++) {
		float value = (float)i; /* below 256: a bf16 is the upper half */
		int32_t col = i % COLS;
		int64_t at = LEAD + col / (COLS / 2) * (SHARD + GAP) + (i / COLS * (COLS / 2) + col % (COLS / 2)) * 2;
		memcpy(want + at, (char *)&value + 2, 2);
	}
	char after[BYTES];
	must(zcc_file_read(file, 0, after, BYTES, &error));
	assert_memory_equal(after, want, BYTES);
	zcc_file_close(file);
	zcc_transfer_destroy(transfer);
	zcc_comm_destroy(comm);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(target);
	zcc_layout_destroy(source);
}

/* Making, placing, binding and running; everything made is given back at any point. */
static zcc_status whole_life(zcc_plan *plan, zcc_file *file, void *halves, zcc_error *e)
{
	zcc_comm *comm = NULL;
	zcc_transfer *transfer = NULL;
	zcc_status status = zcc_comm_create_local(&comm, e);
	if (status == ZCC_OK)
		status = zcc_transfer_create(plan, comm, NULL, &transfer, e);
	if (status == ZCC_OK)
		status = zcc_transfer_place(transfer, ZCC_SOURCE, 0, ZCC_ENDPOINT_FILE, e);
	if (status == ZCC_OK)
		status = zcc_transfer_bind_file(transfer, ZCC_SOURCE, 0, 0, file, 0, 64, e);
	for (int32_t r = 0; r < 2 && status == ZCC_OK; r++) {
		status = zcc_transfer_place(transfer, ZCC_TARGET, r, 0, e);
		if (status == ZCC_OK)
			status = zcc_transfer_bind_memory(transfer, ZCC_TARGET, r, 0, (char *)halves + r * 32, 32, e);
	}
	if (status == ZCC_OK)
		status = zcc_transfer_run(transfer, NULL, e);
	zcc_transfer_destroy(transfer);
	zcc_comm_destroy(comm);
	return status;
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	zcc_layout *source;
	zcc_layout *target;
	must(whole_layout(8, 4, &source, &error));
	cut_layout(8, 4, 1, ZCC_BF16, &target);
	zcc_plan *plan = lowest_plan(target, source);
	char data[64];
	char halves[64];
	zcc_memory_fill_random(data, 64, 1);
	zcc_file *file = file_of(data, 64);
	int64_t n = 1;
	for (;; n++) {
		zcci_fail_alloc(n);
		zcc_status status = whole_life(plan, file, halves, &error);
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
		if (!hit)
			break;
		assert_true(n < 200);
	}
	assert_true(n > 10);
	for (int32_t i = 0; i < 64; i++)
		assert_int_equal(halves[i / 4 % 2 * 32 + i / 8 * 4 + i % 4], data[i]);
	zcc_file_close(file);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(target);
	zcc_layout_destroy(source);
}

/* What was made for the run is given back (seen by the sanitizer), and the group can go on. */
static void a_run_destroyed_in_flight_leaves_nothing_behind(void **state)
{
	(void)state;
	enum { ROWS = 4096, COLS = 1024 };
	zcc_layout *source;
	zcc_layout *target;
	must(whole_layout(ROWS, COLS, &source, &error));
	cut_layout(ROWS, COLS, 1, ZCC_BF16, &target);
	zcc_plan *plan = lowest_plan(target, source);
	zcc_comm *comm;
	must(zcc_comm_create_local(&comm, &error));
	char *whole = malloc(ROWS * COLS * 2);
	char *halves[2] = {malloc(ROWS * COLS), malloc(ROWS * COLS)};
	zcc_memory_fill_random(whole, ROWS * COLS * 2, 1);
	for (int32_t turn = 0; turn < 3; turn++) {
		zcc_transfer *transfer;
		must(zcc_transfer_create(plan, comm, NULL, &transfer, &error));
		must(zcc_transfer_place(transfer, ZCC_SOURCE, 0, 0, &error));
		must(zcc_transfer_bind_memory(transfer, ZCC_SOURCE, 0, 0, whole, ROWS * COLS * 2, &error));
		for (int32_t r = 0; r < 2; r++) {
			must(zcc_transfer_place(transfer, ZCC_TARGET, r, 0, &error));
			must(zcc_transfer_bind_memory(transfer, ZCC_TARGET, r, 0, halves[r], ROWS * COLS, &error));
		}
		int32_t finished = 0;
		must(zcc_transfer_submit(transfer, &error));
		must(zcc_transfer_test(transfer, 0, &finished, &error));
		assert_false(finished);
		int64_t done;
		int64_t total;
		zcc_transfer_progress(transfer, &done, &total);
		assert_true(done > 0 && done < total);
		if (turn == 2)
			must(zcc_transfer_wait(transfer, NULL, &error));
		zcc_transfer_destroy(transfer);
	}
	for (int32_t row = 0; row < ROWS; row++)
		for (int32_t r = 0; r < 2; r++)
			assert_memory_equal(halves[r] + row * COLS, whole + row * COLS * 2 + r * COLS, COLS);
	free(whole);
	free(halves[0]);
	free(halves[1]);
	zcc_comm_destroy(comm);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(target);
	zcc_layout_destroy(source);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(reads_ask_for_the_ranges_needed),
	        cmocka_unit_test(writes_touch_what_belongs_to_the_shard),
	        cmocka_unit_test(every_allocation_may_fail),
	        cmocka_unit_test(a_run_destroyed_in_flight_leaves_nothing_behind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
