/* Strided reads of a file against one element at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/ranged.h"

enum { FILE_BYTES = 1 << 20 };

static uint64_t random_state;
static char path[] = "/tmp/zcc_ranged_XXXXXX";
static unsigned char content[FILE_BYTES];
static zcc_file *file;

static uint32_t pick(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

static int setup(void **state)
{
	(void)state;
	const char *given = getenv("ZCC_SEED");
	random_state = given != NULL ? strtoull(given, NULL, 0) : 20240611;
	printf("ZCC_SEED=%llu\n", (unsigned long long)random_state);
	for (int i = 0; i < FILE_BYTES; i++)
		content[i] = (unsigned char)pick(256);
	int fd = mkstemp(path);
	if (fd < 0 || write(fd, content, FILE_BYTES) != FILE_BYTES || close(fd) != 0)
		return -1;
	return zcc_file_open(path, &file, NULL);
}

static int teardown(void **state)
{
	(void)state;
	zcc_file_close(file);
	return unlink(path);
}

static void any_range_of_any_view_is_read_densely(void **state)
{
	(void)state;
	const int widths[] = {1, 2, 4, 8};
	const int64_t scratches[] = {0, 16, 1000, 65536, FILE_BYTES};
	static unsigned char got[1 << 18], want[1 << 18], scratch[FILE_BYTES];
	for (int round = 0; round < 3000; round++) {
		int elem = widths[pick(4)];
		/* Three axes in either order, with gaps up to some kilobytes and now and then long rows. */
		zcci_view view = {.ndim = 3,
		                  .shape = {1 + pick(5), 1 + pick(9), pick(8) == 0 ? 1 + pick(12000) : 1 + pick(60)}};
		int64_t stride = pick(5) == 0 ? 2 + pick(30) : 1;
		int order[3] = {2, 1, 0};
		if (pick(3) == 0) {
			order[0] = 0;
			order[2] = 2;
		}
		for (int i = 0; i < 3; i++) {
			view.strides[order[i]] = stride;
			stride = stride * view.shape[order[i]] + (pick(2) ? pick(pick(4) ? 200 : 6000) : 0);
		}
		int64_t n = view.shape[0] * view.shape[1] * view.shape[2];
		int64_t at = pick(50);
		int64_t reach = view.strides[0] * (view.shape[0] - 1) + view.strides[1] * (view.shape[1] - 1) +
		                view.strides[2] * (view.shape[2] - 1) + 1;
		if (at + reach * elem > FILE_BYTES || n * elem > (int64_t)sizeof got)
			continue;
		int64_t first = pick((uint32_t)n), count = pick((uint32_t)(n - first) + 1);
		memset(got, 0xa5, sizeof got);
		memset(want, 0xa5, sizeof want);
		for (int64_t k = first; k < first + count; k++) {
			int64_t x = k % view.shape[2], y = k / view.shape[2] % view.shape[1],
			        z = k / view.shape[2] / view.shape[1];
			int64_t offset = x * view.strides[2] + y * view.strides[1] + z * view.strides[0];
			memcpy(want + (k - first) * elem, content + at + offset * elem, (size_t)elem);
		}
		zcci_ranged ranged = {.scratch = scratch, .scratch_bytes = scratches[pick(5)]};
		memset(scratch, 0x77, sizeof scratch);
		zcc_error error;
		assert_int_equal(zcci_ranged_read(&ranged, file, at, &view, first, count, elem, got, &error), ZCC_OK);
		assert_memory_equal(got, want, sizeof got);
		assert_true(ranged.read_bytes >= count * elem);
		for (size_t i = (size_t)ranged.scratch_bytes; i < sizeof scratch; i++)
			if (scratch[i] != 0x77)
				fail_msg("byte %zu of a scratch of %d", i, (int)ranged.scratch_bytes);
	}
}

static void short_gaps_are_read_over_and_long_ones_are_not(void **state)
{
	(void)state;
	static unsigned char got[65536], scratch[65536];
	zcci_view near = {2, {100, 10}, {20, 1}}, far = {2, {100, 10}, {8192, 1}};
	zcci_ranged ranged = {.scratch = scratch, .scratch_bytes = sizeof scratch};
	assert_int_equal(zcci_ranged_read(&ranged, file, 0, &near, 0, 1000, 1, got, NULL), ZCC_OK);
	assert_int_equal(ranged.read_bytes, 99 * 20 + 10);
	ranged.read_bytes = 0;
	assert_int_equal(zcci_ranged_read(&ranged, file, 0, &far, 0, 1000, 1, got, NULL), ZCC_OK);
	assert_int_equal(ranged.read_bytes, 1000);
}

static void a_range_past_the_end_is_a_fault(void **state)
{
	(void)state;
	unsigned char got[64], scratch[4096];
	zcci_view view = {2, {4, 4}, {8, 1}};
	zcci_ranged ranged = {.scratch = scratch, .scratch_bytes = sizeof scratch};
	zcc_error error;
	assert_int_equal(zcci_ranged_read(&ranged, file, FILE_BYTES - 27, &view, 0, 16, 1, got, &error), ZCC_EIO);
	assert_int_equal(zcci_ranged_read(&ranged, file, FILE_BYTES - 28, &view, 0, 16, 1, got, &error), ZCC_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(any_range_of_any_view_is_read_densely),
	        cmocka_unit_test(short_gaps_are_read_over_and_long_ones_are_not),
	        cmocka_unit_test(a_range_past_the_end_is_a_fault),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
