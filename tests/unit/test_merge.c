/* Which copies become one. Segments are given by hand; expectations follow from their addresses alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "affine/plan_impl.h"

/* A block of rows × columns at (row, column) of a shard `width` wide on both sides, the target's moved by `shift`. */
static zcc_segment block(int64_t row, int64_t column, int64_t rows, int64_t columns, int64_t width, int64_t shift)
{
	return (zcc_segment){
	        .ndim = 2,
	        .elems = rows * columns,
	        .shape_elems = {rows, columns},
	        .source_offset_elems = row * width + column,
	        .source_strides_elems = {width, 1},
	        .target_offset_elems = row * width + column + shift,
	        .target_strides_elems = {width, 1},
	        .origin_elems = {row, column},
	        .factor = 1,
	};
}

static int64_t merge(zcc_segment *segments, int64_t n)
{
	zcci_merger merger = {0};
	assert_int_equal(zcci_merge_segments(&merger, segments, &n, NULL), ZCC_OK);
	zcci_merger_free(&merger);
	return n;
}

/* A quadratic search would take minutes. */
static void a_large_grid_becomes_one_block(void **state)
{
	(void)state;
	enum { SIDE = 500 };
	zcc_segment *grid = malloc(sizeof *grid * SIDE * SIDE);
	for (int64_t i = 0; i < SIDE * SIDE; i++)
		grid[i] = block(i / SIDE, i % SIDE, 1, 1, SIDE + 3, 7);
	assert_int_equal(merge(grid, SIDE * SIDE), 1);
	assert_int_equal(grid[0].ndim, 2);
	assert_int_equal(grid[0].shape_elems[0], SIDE);
	assert_int_equal(grid[0].shape_elems[1], SIDE);
	assert_int_equal(grid[0].elems, SIDE * SIDE);
	assert_int_equal(grid[0].source_offset_elems, 0);
	assert_int_equal(grid[0].target_offset_elems, 7);
	free(grid);
}

static void blocks_with_gaps_stay_apart(void **state)
{
	(void)state;
	zcc_segment spaced[] = {block(0, 0, 1, 4, 8, 0), block(2, 0, 1, 4, 8, 0), block(4, 0, 1, 4, 8, 0)};
	assert_int_equal(merge(spaced, 3), 3);
	zcc_segment corners[] = {block(0, 0, 2, 2, 8, 0), block(2, 2, 2, 2, 8, 0)};
	assert_int_equal(merge(corners, 2), 2);
	/* Next to each other in the source, not in the target. */
	zcc_segment moved[] = {block(0, 0, 1, 2, 8, 0), block(0, 2, 1, 2, 8, 1)};
	assert_int_equal(merge(moved, 2), 2);
	zcc_segment back[] = {block(0, 0, 1, 2, 8, 4), block(0, 2, 1, 2, 8, 0)};
	assert_int_equal(merge(back, 2), 2);
}

static void another_factor_or_stride_is_another_copy(void **state)
{
	(void)state;
	zcc_segment factors[] = {block(0, 0, 1, 8, 8, 0), block(1, 0, 1, 8, 8, 0)};
	factors[1].factor = 2;
	assert_int_equal(merge(factors, 2), 2);
	zcc_segment row[] = {block(0, 0, 2, 4, 8, 0), block(2, 0, 1, 4, 8, 0)};
	row[1].source_strides_elems[0] = row[1].target_strides_elems[0] = 16;
	row[1].factor = 2;
	assert_int_equal(merge(row, 2), 2);
	zcc_segment strides[] = {block(0, 0, 2, 2, 8, 0), block(0, 2, 2, 2, 8, 0)};
	strides[1].target_strides_elems[0] = 9;
	assert_int_equal(merge(strides, 2), 2);
	zcc_segment extents[] = {block(0, 0, 2, 2, 8, 0), block(0, 2, 1, 2, 8, 0)};
	assert_int_equal(merge(extents, 2), 2);
}

static void the_stride_of_a_single_row_does_not_matter(void **state)
{
	(void)state;
	zcc_segment columns[] = {block(0, 0, 1, 2, 8, 0), block(0, 2, 1, 2, 8, 0)};
	columns[1].source_strides_elems[0] = 1;
	columns[1].target_strides_elems[0] = 99;
	assert_int_equal(merge(columns, 2), 1);
	zcc_segment rows[] = {block(0, 0, 3, 2, 8, 0), block(3, 0, 1, 2, 8, 0)};
	rows[1].source_strides_elems[0] = 2;
	rows[1].target_strides_elems[0] = 2;
	assert_int_equal(merge(rows, 2), 1);
	assert_int_equal(rows[0].shape_elems[0], 4);
	assert_int_equal(rows[0].source_strides_elems[0], 8);
}

/* A flat run in a (·, 7) parameter: three elements, two rows, five elements. */
static void dense_runs_join_whatever_their_shapes(void **state)
{
	(void)state;
	zcc_segment runs[] = {block(0, 4, 1, 3, 7, 0), block(1, 0, 2, 7, 7, 0), block(3, 0, 1, 5, 7, 0)};
	assert_int_equal(merge(runs, 3), 1);
	assert_int_equal(runs[0].ndim, 1);
	assert_int_equal(runs[0].shape_elems[0], 22);
	assert_int_equal(runs[0].source_strides_elems[0], 1);
	assert_int_equal(runs[0].target_strides_elems[0], 1);
	assert_int_equal(runs[0].source_offset_elems, 4);
	assert_int_equal(runs[0].origin_elems[0], 0);
	assert_int_equal(runs[0].origin_elems[1], 4);
	/* Dense in the source only. */
	zcc_segment half[] = {block(0, 4, 1, 3, 7, 0), block(1, 0, 2, 7, 7, 0)};
	half[1].target_strides_elems[0] = 9;
	assert_int_equal(merge(half, 2), 2);
}

static void what_joins_nothing_keeps_its_axes(void **state)
{
	(void)state;
	zcc_segment apart[] = {block(0, 0, 2, 7, 7, 0), block(4, 0, 1, 7, 7, 0)};
	assert_int_equal(merge(apart, 2), 2);
	for (int32_t i = 0; i < 2; i++) {
		assert_int_equal(apart[i].ndim, 2);
		assert_int_equal(apart[i].shape_elems[0], 2 - i);
		assert_int_equal(apart[i].shape_elems[1], 7);
		assert_int_equal(apart[i].target_strides_elems[0], 7);
	}
}

/* Half rows of 4-row matrices: the last of one, all of two more, the first of another. */
static void join_matrices(int64_t head, int64_t tail)
{
	zcc_segment parts[3];
	const int64_t first[] = {4 - head, 4, 12}, matrices[] = {1, 2, 1}, rows[] = {head, 4, tail};
	for (int32_t i = 0; i < 3; i++)
		parts[i] = (zcc_segment){
		        .ndim = 3,
		        .elems = matrices[i] * rows[i] * 3,
		        .shape_elems = {matrices[i], rows[i], 3},
		        .source_offset_elems = first[i] * 6,
		        .source_strides_elems = {24, 6, 1},
		        .target_offset_elems = first[i] * 5,
		        .target_strides_elems = {20, 5, 1},
		        .factor = 1,
		};
	assert_int_equal(merge(parts, 3), 1);
	assert_int_equal(parts[0].ndim, 2);
	assert_int_equal(parts[0].elems, (head + 8 + tail) * 3);
	assert_int_equal(parts[0].shape_elems[0], head + 8 + tail);
	assert_int_equal(parts[0].shape_elems[1], 3);
	assert_int_equal(parts[0].source_strides_elems[0], 6);
	assert_int_equal(parts[0].source_strides_elems[1], 1);
	assert_int_equal(parts[0].target_strides_elems[0], 5);
	assert_int_equal(parts[0].target_strides_elems[1], 1);
	assert_int_equal(parts[0].source_offset_elems, first[0] * 6);
	assert_int_equal(parts[0].target_offset_elems, first[0] * 5);
}

static void outer_axes_join_across_matrices(void **state)
{
	(void)state;
	join_matrices(2, 3);
	/* Single rows have an axis less. */
	join_matrices(2, 1);
	join_matrices(1, 2);
	join_matrices(1, 1);
}

/* A run of ten: three, then four and three; the threes also lie below each other. */
static void rows_are_completed_before_they_are_stacked(void **state)
{
	(void)state;
	zcc_segment run[] = {block(0, 4, 1, 3, 7, 0), block(1, 0, 1, 4, 7, 0), block(1, 4, 1, 3, 7, 0)};
	assert_int_equal(merge(run, 3), 1);
	assert_int_equal(run[0].elems, 10);
}

/* Each one fits only after the one before it has joined, to the right and below in turn. */
static void joining_goes_on_while_anything_fits(void **state)
{
	(void)state;
	zcc_segment growing[20] = {block(0, 0, 1, 1, 99, 0)};
	int64_t side = 1, n = 1;
	for (; n + 1 < 20; side++) {
		growing[n++] = block(0, side, side, 1, 99, 0);
		growing[n++] = block(side, 0, 1, side + 1, 99, 0);
	}
	assert_int_equal(merge(growing, n), 1);
	assert_int_equal(growing[0].shape_elems[0], side);
	assert_int_equal(growing[0].shape_elems[1], side);
}

/* A dense run in four pieces, of which the first and the last would also stack. */
static void a_stack_does_not_stand_in_the_way_of_a_run(void **state)
{
	(void)state;
	zcc_segment run[3];
	const int64_t first[] = {0, 12, 36}, rows[] = {2, 4, 2};
	for (int32_t i = 0; i < 3; i++)
		run[i] = (zcc_segment){
		        .ndim = 3,
		        .elems = rows[i] * 6,
		        .shape_elems = {1, rows[i], 6},
		        .source_offset_elems = first[i],
		        .source_strides_elems = {36, 6 + (i == 1), 1},
		        .target_offset_elems = first[i],
		        .target_strides_elems = {36, 6 + (i == 1), 1},
		        .factor = 1,
		};
	/* The middle is one row of 24, so that it continues the first only as a run. */
	run[1].shape_elems[1] = 1;
	run[1].shape_elems[2] = 24;
	assert_int_equal(merge(run, 3), 1);
	assert_int_equal(run[0].ndim, 1);
	assert_int_equal(run[0].shape_elems[0], 48);
}

static void single_elements_are_dense_runs(void **state)
{
	(void)state;
	zcc_segment corner[] = {block(0, 6, 1, 1, 7, 0), block(1, 0, 1, 1, 7, 0)};
	corner[0].source_strides_elems[1] = corner[1].source_strides_elems[1] = 7;
	assert_int_equal(merge(corner, 2), 1);
	assert_int_equal(corner[0].ndim, 1);
	assert_int_equal(corner[0].shape_elems[0], 2);
	assert_int_equal(corner[0].source_strides_elems[0], 1);
}

static void no_memory_is_reported(void **state)
{
	(void)state;
	zcc_segment two[] = {block(0, 0, 1, 8, 8, 0), block(1, 0, 1, 8, 8, 0)};
	for (int32_t n = 1; n <= 3; n++) {
		zcci_merger merger = {0};
		zcc_error error = {0};
		int64_t left = 2;
		zcci_fail_alloc(n);
		assert_int_equal(zcci_merge_segments(&merger, two, &left, &error), ZCC_ENOMEM);
		zcci_fail_alloc(0);
		assert_int_equal(error.status, ZCC_ENOMEM);
		assert_int_equal(left, 2);
		zcci_merger_free(&merger);
	}
	assert_int_equal(merge(two, 2), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_large_grid_becomes_one_block),
	        cmocka_unit_test(blocks_with_gaps_stay_apart),
	        cmocka_unit_test(another_factor_or_stride_is_another_copy),
	        cmocka_unit_test(the_stride_of_a_single_row_does_not_matter),
	        cmocka_unit_test(dense_runs_join_whatever_their_shapes),
	        cmocka_unit_test(what_joins_nothing_keeps_its_axes),
	        cmocka_unit_test(outer_axes_join_across_matrices),
	        cmocka_unit_test(rows_are_completed_before_they_are_stacked),
	        cmocka_unit_test(joining_goes_on_while_anything_fits),
	        cmocka_unit_test(a_stack_does_not_stand_in_the_way_of_a_run),
	        cmocka_unit_test(single_elements_are_dense_runs),
	        cmocka_unit_test(no_memory_is_reported),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
