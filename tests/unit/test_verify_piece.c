/* Pieces and padding larger than what is looked at at once, in any order of axes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "layouts.h"
#include "scratch.h"
#include "transfer/verify_piece.h"

static zcci_checker checker;

static int setup(void **state)
{
	seed_random(20240611);
	return scratch_make(state) || zcci_checker_init(&checker, NULL);
}

static int teardown(void **state)
{
	zcci_checker_fini(&checker);
	return scratch_remove(state);
}

static zcc_file *open_file(const char *name, const void *data, size_t bytes)
{
	zcc_file *file;
	put_file(at(name), data, bytes);
	assert_int_equal(zcc_file_open(at(name), &file, NULL), ZCC_OK);
	return file;
}

/* Writes in place: an open file sees it. */
static void poke(const char *name, const void *data, size_t bytes, long at_bytes)
{
	FILE *file = fopen(at(name), "r+b");
	assert_non_null(file);
	assert_int_equal(fseek(file, at_bytes, SEEK_SET), 0);
	assert_int_equal(fwrite(data, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

/* Columns [300, 600) of a row-major matrix against a shard that stores them column by column. */
static void every_element_of_a_large_piece_is_compared(void **state)
{
	(void)state;
	enum { R = 700, C = 1200, FIRST = 300, N = 300 };
	static uint32_t whole[R][C], turned[N][R];
	for (int i = 0; i < R; i++)
		for (int k = 0; k < C; k++)
			whole[i][k] = (uint32_t)(i * C + k) * 2654435761u;
	for (int i = 0; i < R; i++)
		for (int k = 0; k < N; k++)
			turned[k][i] = whole[i][FIRST + k];
	zcci_stored mine = {"big", "target", 3, ZCC_U32, open_file("turned", turned, sizeof turned), 0};
	zcci_stored reference = {"big", "source", 0, ZCC_U32, open_file("whole", whole, sizeof whole), 0};
	zcc_piece my_piece = {
	        .ndim = 2, .shape_elems = {R, N}, .origin_elems = {0, FIRST}, .dest_strides_elems = {1, R}, .scale = 1};
	zcc_piece reference_piece = {.ndim = 2, .shape_elems = {R, C}, .dest_strides_elems = {C, 1}, .scale = 1};
	zcci_box box = {2, {0, 0}, {R, C}};
	zcc_error error;
	assert_int_equal(zcci_box_meet(&box, my_piece.origin_elems, my_piece.shape_elems), R * N);
	checker.compared_bytes = 0;
	assert_int_equal(zcci_piece_compare(&checker, &box, &mine, &my_piece, &reference, &reference_piece, &error),
	                 ZCC_OK);
	assert_int_equal(checker.compared_bytes, sizeof turned);
	for (int round = 0; round < 40; round++) {
		int i = round == 0   ? 0
		        : round == 1 ? R - 1
		                     : pick(0, R - 1),
		    k = round == 0   ? 0
		        : round == 1 ? N - 1
		                     : pick(0, N - 1);
		uint32_t wrong = turned[k][i] ^ 1u << pick(0, 31);
		poke("turned", &wrong, 4, (long)((k * R + i) * 4));
		assert_int_equal(
		        zcci_piece_compare(&checker, &box, &mine, &my_piece, &reference, &reference_piece, &error),
		        ZCC_EVERIFY);
		char text[160];
		snprintf(text, sizeof text, "parameter big, element [%d, %d]: 0x%08x on target rank 3 (", i, FIRST + k,
		         wrong);
		assert_says(&error, text);
		snprintf(text, sizeof text, "), but 0x%08x on source rank 0 (", turned[k][i]);
		assert_says(&error, text);
		poke("turned", &turned[k][i], 4, (long)((k * R + i) * 4));
	}
	zcc_file_close(mine.file);
	zcc_file_close(reference.file);
}

/* A random piece of up to three axes in any order with gaps between them; marks what it covers. */
static void random_piece(zcc_piece *piece, int64_t elems, unsigned char *covered)
{
	*piece = (zcc_piece){.ndim = pick(1, 3), .scale = 1};
	int order[3] = {0, 1, 2};
	if (pick(0, 1) == 0) {
		order[0] = piece->ndim - 1;
		order[piece->ndim - 1] = 0;
	}
	int64_t reach = 1;
	for (int i = 0; i < piece->ndim; i++) {
		int axis = order[i];
		int64_t most = elems / reach < 4000 ? elems / reach : 4000;
		piece->dest_strides_elems[axis] = reach;
		piece->shape_elems[axis] = most > 0 ? pick(1, (int32_t)most) : 1;
		reach = reach * piece->shape_elems[axis] + (pick(0, 2) == 0 ? pick(0, 40) : 0);
	}
	int64_t last = 0;
	for (int i = 0; i < piece->ndim; i++)
		last += (piece->shape_elems[i] - 1) * piece->dest_strides_elems[i];
	if (last >= elems) {
		*piece = (zcc_piece){.ndim = 1, .shape_elems = {elems}, .dest_strides_elems = {1}, .scale = 1};
		last = elems - 1;
	}
	piece->dest_offset_elems = pick(0, (int32_t)(elems - 1 - last));
	int64_t i[3] = {0};
	for (i[0] = 0; i[0] < piece->shape_elems[0]; i[0]++)
		for (i[1] = 0; i[1] < (piece->ndim > 1 ? piece->shape_elems[1] : 1); i[1]++)
			for (i[2] = 0; i[2] < (piece->ndim > 2 ? piece->shape_elems[2] : 1); i[2]++) {
				int64_t place = piece->dest_offset_elems;
				for (int d = 0; d < piece->ndim; d++)
					place += i[d] * piece->dest_strides_elems[d];
				covered[place] = 1;
			}
}

static void padding_is_found_between_the_elements_of_any_piece(void **state)
{
	(void)state;
	enum { ROWS = 1000, COLS = 250, ELEMS = ROWS * COLS };
	static uint64_t content[ELEMS];
	static unsigned char covered[ELEMS];
	zcc_shard_info info = {.present = 1, .ndim = 2, .shape_elems = {ROWS, COLS}, .elems = ELEMS};
	zcci_stored shard = {"padded", "target", 5, ZCC_U64, open_file("padded", content, sizeof content), 0};
	int found = 0;
	for (int round = 0; round < 60; round++) {
		zcc_piece piece;
		zcc_error error;
		memset(covered, 0, sizeof covered);
		random_piece(&piece, ELEMS, covered);
		for (int64_t k = 0; k < ELEMS; k++)
			content[k] = covered[k] ? 0x0101010101010101u * (uint64_t)(k % 255 + 1) : 0;
		poke("padded", content, sizeof content, 0);
		assert_int_equal(zcci_padding_check(&checker, &shard, &info, &piece, 1, &error), ZCC_OK);
		for (int turn = 0; turn < 4; turn++) {
			/* Some element, or the nearest padding after it. */
			int64_t k = turn == 0 ? 0 : pick(0, ELEMS - 1);
			while (turn % 2 == 0 && covered[k] && k < ELEMS - 1)
				k++;
			uint64_t wrong = content[k] ^ (uint64_t)1 << pick(0, 63);
			poke("padded", &wrong, 8, (long)(k * 8));
			zcc_status status = zcci_padding_check(&checker, &shard, &info, &piece, 1, &error);
			poke("padded", &content[k], 8, (long)(k * 8));
			assert_int_equal(status, covered[k] ? ZCC_OK : ZCC_EVERIFY);
			if (covered[k])
				continue;
			char text[160];
			snprintf(text, sizeof text,
			         "parameter padded, padding [%d, %d] of the shard: 0x%016llx on target rank 5 (",
			         (int)(k / COLS), (int)(k % COLS), (unsigned long long)wrong);
			assert_says(&error, text);
			found++;
		}
	}
	assert_true(found > 20);
	zcc_file_close(shard.file);
}

/* Everything but one element, on either side of every edge of what is read at once. */
static void a_single_element_of_padding_is_not_missed(void **state)
{
	(void)state;
	enum { ELEMS = 100000, WINDOW = 32768 };
	static uint64_t content[ELEMS];
	memset(content, 0x11, sizeof content);
	zcc_shard_info info = {.present = 1, .ndim = 1, .shape_elems = {ELEMS}, .elems = ELEMS};
	zcci_stored shard = {"padded", "target", 0, ZCC_U64, open_file("single", content, sizeof content), 0};
	const int64_t places[] = {0,          1,          WINDOW - 1, WINDOW,   WINDOW + 1, 2 * WINDOW - 1,
	                          2 * WINDOW, 3 * WINDOW, ELEMS - 2,  ELEMS - 1};
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		int64_t k = places[i];
		uint64_t zero = 0;
		zcc_piece pieces[2] = {
		        {.ndim = 1, .shape_elems = {k}, .dest_strides_elems = {1}, .scale = 1},
		        {.ndim = 1,
		         .shape_elems = {ELEMS - 1 - k},
		         .dest_strides_elems = {1},
		         .dest_offset_elems = k + 1,
		         .scale = 1},
		};
		assert_int_equal(zcci_padding_check(&checker, &shard, &info, pieces, 2, NULL), ZCC_EVERIFY);
		poke("single", &zero, 8, (long)(k * 8));
		assert_int_equal(zcci_padding_check(&checker, &shard, &info, pieces, 2, NULL), ZCC_OK);
		poke("single", &content[k], 8, (long)(k * 8));
	}
	zcc_file_close(shard.file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_element_of_a_large_piece_is_compared),
	        cmocka_unit_test(padding_is_found_between_the_elements_of_any_piece),
	        cmocka_unit_test(a_single_element_of_padding_is_not_missed),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
