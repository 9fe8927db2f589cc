/* A flat run of a row-major array as boxes, compared element by element with counting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "affine/nest.h"

/* The row-major number of the element at `index` of the array. */
static int64_t number_of(int32_t ndim, const int64_t *shape, const int64_t *index)
{
	int64_t number = 0;
	for (int32_t d = 0; d < ndim; d++)
		number = number * shape[d] + index[d];
	return number;
}

static int64_t size_of(int32_t ndim, const int64_t *shape)
{
	int64_t size = 1;
	for (int32_t d = 0; d < ndim; d++)
		size *= shape[d];
	return size;
}

/* Walks the boxes in order and expects begin, begin + 1, …, end − 1. */
static void expect_run(int32_t ndim, const int64_t *shape, int64_t begin, int64_t end)
{
	zcci_box boxes[ZCCI_NEST_MAX];
	int32_t n = zcci_nest(ndim, shape, begin, end, boxes);
	assert_true(n <= (ndim == 0 ? 1 : 2 * ndim - 1));
	int64_t next = begin;
	for (int32_t b = 0; b < n; b++) {
		int64_t size = size_of(ndim, boxes[b].shape);
		assert_true(size > 0);
		for (int64_t k = 0; k < size; k++) {
			int64_t index[ZCC_MAX_NDIM], rest = k;
			for (int32_t d = ndim - 1; d >= 0; d--) {
				index[d] = boxes[b].origin[d] + rest % boxes[b].shape[d];
				rest /= boxes[b].shape[d];
				assert_in_range(index[d], 0, shape[d] - 1);
			}
			assert_int_equal(number_of(ndim, shape, index), next++);
		}
	}
	assert_int_equal(next, end > begin ? end : begin);
}

static void every_run_of_small_arrays_is_covered_in_order(void **state)
{
	(void)state;
	static const struct {
		int32_t ndim;
		int64_t shape[ZCC_MAX_NDIM];
	} arrays[] = {
	        {0, {0}},
	        {1, {7}},
	        {1, {0}},
	        {2, {5, 4}},
	        {2, {4, 5}},
	        {2, {1, 6}},
	        {2, {6, 1}},
	        {2, {0, 3}},
	        {3, {4, 3, 5}},
	        {3, {2, 1, 3}},
	        {4, {2, 3, 1, 4}},
	        {4, {3, 2, 2, 2}},
	        {5, {2, 2, 2, 2, 2}},
	        {8, {2, 1, 2, 1, 2, 1, 2, 2}},
	};
	for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
		int64_t size = size_of(arrays[i].ndim, arrays[i].shape);
		for (int64_t begin = 0; begin <= size; begin++)
			for (int64_t end = begin; end <= size; end++)
				expect_run(arrays[i].ndim, arrays[i].shape, begin, end);
	}
}

static void a_run_of_rows_is_one_box_whatever_its_length(void **state)
{
	(void)state;
	int64_t shape[] = {1000000000, 4, 2};
	zcci_box boxes[ZCCI_NEST_MAX];
	assert_int_equal(zcci_nest(3, shape, 8 * 17, 8 * INT64_C(999999999), boxes), 1);
	assert_int_equal(boxes[0].origin[0], 17);
	assert_int_equal(boxes[0].shape[0], 999999999 - 17);
}

/* The second of five parts of (4, 3, 5): 12 … 23 is the end of row 2 of plane 0, and the first 9 of plane 1. */
static void a_run_inside_rows_has_a_head_a_middle_and_a_tail(void **state)
{
	(void)state;
	int64_t shape[] = {4, 3, 5};
	zcci_box boxes[ZCCI_NEST_MAX];
	assert_int_equal(zcci_nest(3, shape, 12, 24, boxes), 3);
	const int64_t origins[3][3] = {{0, 2, 2}, {1, 0, 0}, {1, 1, 0}},
	              shapes[3][3] = {{1, 1, 3}, {1, 1, 5}, {1, 1, 4}};
	for (int b = 0; b < 3; b++) {
		assert_memory_equal(boxes[b].origin, origins[b], sizeof origins[b]);
		assert_memory_equal(boxes[b].shape, shapes[b], sizeof shapes[b]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_run_of_small_arrays_is_covered_in_order),
	        cmocka_unit_test(a_run_of_rows_is_one_box_whatever_its_length),
	        cmocka_unit_test(a_run_inside_rows_has_a_head_a_middle_and_a_tail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
