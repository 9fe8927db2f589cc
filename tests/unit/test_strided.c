/* Strided copies against an odometer that walks one element at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/strided.h"

enum { ROOM = 1 << 16, GUARD = 0xA5 };

static uint64_t random_state;

static uint32_t pick(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

static int seed(void **state)
{
	(void)state;
	const char *given = getenv("ZCC_SEED");
	random_state = given != NULL ? strtoull(given, NULL, 0) : 20240611;
	printf("ZCC_SEED=%llu\n", (unsigned long long)random_state);
	random_state = random_state * 2 + 1;
	return 0;
}

static int64_t count_of(const zcci_view *view)
{
	int64_t n = 1;
	for (int i = 0; i < view->ndim; i++)
		n *= view->shape[i];
	return n;
}

/* Offsets of all elements in row-major order, by counting up the coordinates one by one. */
static int64_t *offsets_of(const zcci_view *view)
{
	int64_t n = count_of(view);
	int64_t *offsets = malloc((size_t)(n + 1) * sizeof *offsets);
	int64_t at[ZCC_MAX_NDIM] = {0};
	for (int64_t k = 0; k < n; k++) {
		offsets[k] = 0;
		for (int i = 0; i < view->ndim; i++)
			offsets[k] += at[i] * view->strides[i];
		for (int i = view->ndim - 1; i >= 0; i--) {
			if (++at[i] < view->shape[i])
				break;
			at[i] = 0;
		}
	}
	return offsets;
}

/* A shape of few elements; extents of 1 and, now and then, 0 are in it. */
static void random_shape(zcci_view *view)
{
	view->ndim = (int32_t)pick(ZCC_MAX_NDIM + 1);
	int64_t budget = 600;
	for (int i = 0; i < view->ndim; i++) {
		int64_t most = budget < 40 ? budget : 40;
		int64_t extent = pick(3) == 0 ? 1 : 1 + pick((uint32_t)most);
		if (pick(60) == 0)
			extent = 0;
		view->shape[i] = extent;
		budget /= extent > 1 ? extent : 1;
	}
}

/* Strides under which no two elements meet: axes in a random or the natural order, with random gaps. Returns how far
 * they reach. */
static int64_t random_strides(zcci_view *view)
{
	int order[ZCC_MAX_NDIM];
	for (int i = 0; i < view->ndim; i++)
		order[i] = view->ndim - 1 - i;
	if (pick(3) == 0)
		for (int i = view->ndim - 1; i > 0; i--) {
			int k = (int)pick((uint32_t)i + 1), t = order[i];
			order[i] = order[k];
			order[k] = t;
		}
	int64_t stride = pick(4) == 0 ? 1 + pick(3) : 1;
	for (int i = 0; i < view->ndim; i++) {
		int axis = order[i];
		view->strides[axis] = stride;
		stride *= view->shape[axis] > 0 ? view->shape[axis] : 1;
		if (pick(3) == 0 && stride < 2000)
			stride += pick(5);
		if (view->shape[axis] <= 1 && pick(2) == 0)
			view->strides[axis] = pick(1000000);
	}
	return stride;
}

static void fill(unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)pick(256);
}

static const int widths[] = {1, 2, 4, 8};

static void pack_and_unpack_move_exactly_the_range(void **state)
{
	(void)state;
	static unsigned char source[ROOM], got[ROOM], want[ROOM];
	for (int round = 0; round < 6000; round++) {
		zcci_view view;
		random_shape(&view);
		if (random_strides(&view) > ROOM / 8 - 64)
			continue;
		int elem = widths[pick(4)];
		int64_t n = count_of(&view);
		int64_t first = pick((uint32_t)n + 1);
		int64_t count = pick((uint32_t)(n - first) + 1);
		if (pick(4) == 0)
			first = 0, count = n;
		int64_t *offsets = offsets_of(&view);
		size_t shift = pick(9);
		fill(source, ROOM);

		memset(got, GUARD, ROOM);
		memset(want, GUARD, ROOM);
		for (int64_t k = 0; k < count; k++)
			memcpy(want + shift + k * elem, source + shift + offsets[first + k] * elem, (size_t)elem);
		zcci_pack(got + shift, source + shift, &view, first, count, elem);
		assert_memory_equal(got, want, ROOM);

		memset(got, GUARD, ROOM);
		memset(want, GUARD, ROOM);
		for (int64_t k = 0; k < count; k++)
			memcpy(want + shift + offsets[first + k] * elem, source + shift + k * elem, (size_t)elem);
		zcci_unpack(got + shift, &view, first, count, source + shift, elem);
		assert_memory_equal(got, want, ROOM);
		free(offsets);
	}
}

/* The same number of elements under another shape: neighbouring axes joined, or one split, or all flat. */
static void reshape(zcci_view *view)
{
	int64_t n = count_of(view);
	if (n == 0)
		return;
	view->ndim = 0;
	while (n > 1 && view->ndim < ZCC_MAX_NDIM - 1) {
		int64_t factor = 2 + pick(6);
		if (n % factor == 0) {
			view->shape[view->ndim++] = factor;
			n /= factor;
		} else if (pick(8) == 0) {
			break;
		}
	}
	view->shape[view->ndim++] = n;
}

static void copy_moves_exactly_the_range_between_any_two_views(void **state)
{
	(void)state;
	static unsigned char source[ROOM], got[ROOM], want[ROOM];
	for (int round = 0; round < 8000; round++) {
		zcci_view from, to;
		random_shape(&from);
		to = from;
		if (round % 3 == 0)
			reshape(&to);
		if (random_strides(&from) > ROOM / 8 - 64 || random_strides(&to) > ROOM / 8 - 64)
			continue;
		int elem = widths[pick(4)];
		int64_t n = count_of(&from);
		int64_t first = pick(3) == 0 ? 0 : pick((uint32_t)n + 1);
		int64_t count = first == 0 && pick(2) == 0 ? n : pick((uint32_t)(n - first) + 1);
		int64_t *from_offsets = offsets_of(&from), *to_offsets = offsets_of(&to);
		size_t shift = pick(9);
		fill(source, ROOM);
		memset(got, GUARD, ROOM);
		memset(want, GUARD, ROOM);
		for (int64_t k = first; k < first + count; k++)
			memcpy(want + shift + to_offsets[k] * elem, source + from_offsets[k] * elem, (size_t)elem);
		if (pick(2) == 0)
			zcci_view_simplify(&from, NULL);
		zcci_copy(got + shift, &to, source, &from, first, count, elem);
		assert_memory_equal(got, want, ROOM);
		free(from_offsets);
		free(to_offsets);
	}
}

static void every_first_and_count_of_a_small_view_is_right(void **state)
{
	(void)state;
	const zcci_view views[] = {
	        {0, {0}, {0}},
	        {1, {7}, {3}},
	        {2, {4, 5}, {9, 1}},
	        {2, {4, 5}, {1, 4}},
	        {3, {3, 2, 4}, {20, 7, 1}},
	        {3, {3, 4, 2}, {2, 6, 1}},
	        {4, {2, 3, 1, 3}, {40, 3, 99, 1}},
	};
	for (size_t v = 0; v < sizeof views / sizeof *views; v++) {
		int64_t n = count_of(&views[v]);
		int64_t *offsets = offsets_of(&views[v]);
		for (int w = 0; w < 4; w++)
			for (int64_t first = 0; first <= n; first++)
				for (int64_t count = 0; first + count <= n; count++) {
					size_t elem = (size_t)widths[w];
					unsigned char source[1024], got[1024], want[1024];
					fill(source, sizeof source);
					memset(got, GUARD, sizeof got);
					memset(want, GUARD, sizeof want);
					for (int64_t k = 0; k < count; k++)
						memcpy(want + (size_t)k * elem,
						       source + (size_t)offsets[first + k] * elem, elem);
					zcci_pack(got, source, &views[v], first, count, (int)elem);
					assert_memory_equal(got, want, sizeof got);
					memset(got, GUARD, sizeof got);
					memset(want, GUARD, sizeof want);
					for (int64_t k = first; k < first + count; k++)
						memcpy(want + (size_t)offsets[k] * elem,
						       source + (size_t)offsets[k] * elem, elem);
					zcci_copy(got, &views[v], source, &views[v], first, count, (int)elem);
					assert_memory_equal(got, want, sizeof got);
				}
		free(offsets);
	}
}

static void simplify_joins_all_that_is_contiguous_in_both_and_keeps_the_order(void **state)
{
	(void)state;
	zcci_view a = {4, {2, 3, 1, 4}, {12, 4, 77, 1}};
	zcci_view_simplify(&a, NULL);
	assert_int_equal(a.ndim, 1);
	assert_int_equal(a.shape[0], 24);
	assert_int_equal(a.strides[0], 1);

	zcci_view dense = {3, {2, 3, 4}, {12, 4, 1}}, gaps = {3, {2, 3, 4}, {24, 8, 2}};
	zcci_view_simplify(&dense, &gaps);
	assert_int_equal(dense.ndim, 1);
	assert_int_equal(gaps.ndim, 1);
	assert_int_equal(gaps.strides[0], 2);

	zcci_view left = {3, {2, 3, 4}, {12, 4, 1}}, right = {3, {2, 3, 4}, {100, 4, 1}};
	zcci_view_simplify(&left, &right);
	assert_int_equal(left.ndim, 2);
	assert_int_equal(left.shape[0], 2);
	assert_int_equal(left.shape[1], 12);
	assert_int_equal(left.strides[0], 12);
	assert_int_equal(right.strides[0], 100);

	zcci_view empty = {2, {1000, 0}, {INT64_MAX, INT64_MAX}};
	zcci_view_simplify(&empty, NULL);
	assert_int_equal(count_of(&empty), 0);

	for (int round = 0; round < 3000; round++) {
		zcci_view x, y;
		random_shape(&x);
		y = x;
		random_strides(&x);
		random_strides(&y);
		int64_t n = count_of(&x);
		int64_t *x_before = offsets_of(&x), *y_before = offsets_of(&y);
		zcci_view_simplify(&x, &y);
		assert_int_equal(count_of(&x), n);
		assert_int_equal(count_of(&y), n);
		int64_t *x_after = offsets_of(&x), *y_after = offsets_of(&y);
		assert_memory_equal(x_before, x_after, (size_t)n * sizeof *x_after);
		assert_memory_equal(y_before, y_after, (size_t)n * sizeof *y_after);
		for (int i = 0; n > 0 && i < x.ndim; i++) {
			assert_int_not_equal(x.shape[i], 1);
			if (i + 1 < x.ndim)
				assert_false(x.strides[i] == x.shape[i + 1] * x.strides[i + 1] &&
				             y.strides[i] == y.shape[i + 1] * y.strides[i + 1]);
		}
		free(x_before);
		free(y_before);
		free(x_after);
		free(y_after);
	}
}

static void dense_means_that_offsets_count_up_from_zero(void **state)
{
	(void)state;
	for (int round = 0; round < 5000; round++) {
		zcci_view view;
		random_shape(&view);
		random_strides(&view);
		int64_t *offsets = offsets_of(&view);
		bool dense = true;
		for (int64_t k = 0; k < count_of(&view); k++)
			dense = dense && offsets[k] == k;
		assert_int_equal(zcci_view_dense(&view), dense);
		free(offsets);
	}
}

static void long_rows_and_large_transposes_arrive(void **state)
{
	(void)state;
	enum { ROWS = 300, COLS = 517 };
	uint16_t *source = malloc(sizeof *source * ROWS * COLS), *got = malloc(sizeof *got * ROWS * COLS);
	for (int i = 0; i < ROWS * COLS; i++)
		source[i] = (uint16_t)(i * 7919 % 65521);
	zcci_view to = {2, {ROWS, COLS}, {COLS, 1}}, from = {2, {ROWS, COLS}, {1, ROWS}};
	zcci_copy(got, &to, source, &from, 0, ROWS * COLS, 2);
	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < COLS; c++)
			assert_int_equal(got[r * COLS + c], source[c * ROWS + r]);
	memset(got, 0, sizeof *got * ROWS * COLS);
	zcci_copy(got, &from, source, &from, 5, ROWS * COLS - 9, 2);
	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < COLS; c++) {
			int k = r * COLS + c;
			assert_int_equal(got[c * ROWS + r], k >= 5 && k < ROWS * COLS - 4 ? source[c * ROWS + r] : 0);
		}
	free(source);
	free(got);
}

/* Large enough to go past the caches; odd lengths, so that rows begin at every offset within a cache line. */
static void large_blocks_arrive_whole_and_leave_the_gaps(void **state)
{
	(void)state;
	enum { BYTES = 12 << 20, SHIFT = 5 };
	unsigned char *source = malloc(BYTES), *got = malloc(BYTES), *want = malloc(BYTES);
	for (int i = 0; i < BYTES; i++)
		source[i] = (unsigned char)(i * 31 + (i >> 8));
	const int runs[] = {127, 128, 129, 191, 300, 1023, 4097, 300001};
	for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
		int64_t run = runs[k], rows = (BYTES - SHIFT) / (run + 9);
		zcci_view to = {2, {rows, run}, {run + 9, 1}}, from = {2, {rows, run}, {run + 3, 1}};
		memset(got, GUARD, BYTES);
		memset(want, GUARD, BYTES);
		for (int64_t i = 0; i < rows; i++)
			for (int64_t j = 0; j < run; j++)
				want[SHIFT + i * (run + 9) + j] = source[i * (run + 3) + j];
		zcci_copy(got + SHIFT, &to, source, &from, 0, rows * run, 1);
		assert_memory_equal(got, want, BYTES);
	}
	free(source);
	free(got);
	free(want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(pack_and_unpack_move_exactly_the_range),
	        cmocka_unit_test(copy_moves_exactly_the_range_between_any_two_views),
	        cmocka_unit_test(every_first_and_count_of_a_small_view_is_right),
	        cmocka_unit_test(simplify_joins_all_that_is_contiguous_in_both_and_keeps_the_order),
	        cmocka_unit_test(dense_means_that_offsets_count_up_from_zero),
	        cmocka_unit_test(long_rows_and_large_transposes_arrive),
	        cmocka_unit_test(large_blocks_arrive_whole_and_leave_the_gaps),
	};
	return cmocka_run_group_tests(tests, seed, NULL);
}
