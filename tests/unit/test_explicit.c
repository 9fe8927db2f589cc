/* Map documents: what is read, what is refused and why, what is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "affine/layout.h"

static zcc_error error;

static zcc_status parse(const char *text, zcc_layout **layout)
{
	memset(&error, 0, sizeof error);
	return zcc_layout_parse(text, (int64_t)strlen(text), "doc.json", layout, &error);
}

static zcc_layout *accepted(const char *text)
{
	zcc_layout *layout = NULL;
	if (parse(text, &layout) != ZCC_OK)
		fail_msg("%s\n%s", error.message, text);
	return layout;
}

static void expect_refused(const char *text, zcc_status status, const char *const *words)
{
	zcc_layout *layout = NULL;
	zcc_status found = parse(text, &layout);
	if (found != status)
		fail_msg("%s instead of %s: %s\n%s", zcc_status_name(found), zcc_status_name(status), error.message,
		         text);
	assert_null(layout);
	for (; *words != NULL; words++)
		if (strstr(error.message, *words) == NULL)
			fail_msg("\"%s\" does not name %s", error.message, *words);
}
#define refused(text, status, ...) expect_refused(text, status, (const char *const[]){"doc.json", __VA_ARGS__, NULL})

/* One parameter w, with single quotes for double ones. */
static const char *doc(const char *shape, const char *ranks)
{
	static char text[8192];
	snprintf(text, sizeof text, "{'version':1,'params':{'w':{'logical_shape':%s,'dtype':'F32','ranks':{%s}}}}",
	         shape, ranks);
	for (char *c = text; *c != '\0'; c++)
		if (*c == '\'')
			*c = '"';
	return text;
}

static char *written(const zcc_layout *layout)
{
	zcc_json_writer *writer;
	const char *text;
	int64_t n;
	assert_int_equal(zcc_json_writer_create(0, &writer, NULL), ZCC_OK);
	assert_int_equal(zcc_layout_write(layout, writer, &error), ZCC_OK);
	assert_int_equal(zcc_json_writer_text(writer, &text, &n, &error), ZCC_OK);
	char *copy = strdup(text);
	zcc_json_writer_destroy(writer);
	return copy;
}

/* ---- accepted ---- */

static void ranks_may_be_any_and_pieces_in_any_order(void **state)
{
	(void)state;
	zcc_layout *layout =
	        accepted(doc("[4,3]", "'9':{'shard_shape':[2,3],'pieces':["
	                              "{'shape':[1,3],'source':[9,[3,1]],'dest':[3,[3,1]],'locations':[9]},"
	                              "{'shape':[1,3],'source':[6,[3,1]],'dest':[0,[3,1]],'locations':[9]}]},"
	                              "'3':{'shard_shape':[2,3],'pieces':[{'shape':[2,3],'source':[0,[3,1]],'dest':[0,["
	                              "3,1]],'locations':[3]}]}"));
	int32_t n_ranks;
	const int32_t *ranks = zcc_layout_ranks(layout, &n_ranks);
	assert_int_equal(n_ranks, 2);
	assert_int_equal(ranks[0], 3);
	assert_int_equal(ranks[1], 9);
	zcc_piece pieces[4];
	int64_t n;
	assert_int_equal(zcc_layout_pieces(layout, 0, 9, pieces, 4, &n, &error), ZCC_OK);
	assert_int_equal(n, 2);
	assert_int_equal(pieces[0].origin_elems[0], 2);
	assert_int_equal(pieces[1].origin_elems[0], 3);
	assert_int_equal(pieces[1].dest_offset_elems, 3);
	zcc_layout_destroy(layout);
}

static void keys_may_be_patterns_and_the_map_wrapped(void **state)
{
	(void)state;
	zcc_layout *layout =
	        accepted("{\"step\":7,\"affine_map\":{\"version\":1,\"params\":{\"^model\\\\.layers\\\\.0\\\\-w$\":"
	                 "{\"logical_shape\":[2],\"dtype\":\"BF16\",\"ranks\":{\"0\":{\"shard_shape\":[2],\"pieces\":[{"
	                 "\"shape\":[2],"
	                 "\"source\":[0,[1]],\"dest\":[0,[1]],\"locations\":[0],\"scale\":0.5}]}}}}}}");
	assert_int_equal(zcc_layout_find(layout, "model.layers.0-w"), 0);
	zcc_piece piece;
	int64_t n;
	assert_int_equal(zcc_layout_pieces(layout, 0, 0, &piece, 1, &n, &error), ZCC_OK);
	assert_true(piece.scale == 0.5);
	zcc_layout_destroy(layout);
}

static void a_flat_run_is_nested_into_the_parameter(void **state)
{
	(void)state;
	/* 20 elements of (4, 5), cut at 7. */
	zcc_layout *layout = accepted(doc(
	        "[4,5]",
	        "'0':{'shard_shape':[8],'pieces':[{'shape':[7],'source':[0,[1]],'dest':[1,[1]],'locations':[0]}]},"
	        "'1':{'shard_shape':[13],'pieces':[{'shape':[13],'source':[7,[1]],'dest':[0,[1]],'locations':[1]}]}"));
	zcc_piece pieces[4];
	int64_t n;
	assert_int_equal(zcc_layout_pieces(layout, 0, 1, pieces, 4, &n, &error), ZCC_OK);
	assert_int_equal(n, 2);
	assert_int_equal(pieces[0].origin_elems[0], 1);
	assert_int_equal(pieces[0].origin_elems[1], 2);
	assert_int_equal(pieces[0].shape_elems[1], 3);
	assert_int_equal(pieces[1].shape_elems[0], 2);
	assert_int_equal(pieces[1].dest_offset_elems, 3);
	assert_int_equal(zcc_layout_pieces(layout, 0, 0, pieces, 4, &n, &error), ZCC_OK);
	assert_int_equal(n, 2);
	assert_int_equal(pieces[1].dest_offset_elems, 6);
	zcc_layout_destroy(layout);
}

static void padding_lies_anywhere_between_pieces(void **state)
{
	(void)state;
	/* 12 columns over 4 ranks, each padded to 4. */
	char ranks[2048] = "";
	for (int r = 0; r < 4; r++)
		snprintf(ranks + strlen(ranks), sizeof ranks - strlen(ranks),
		         "%s'%d':{'shard_shape':[2,4],'pieces':[{'shape':[2,3],'source':[%d,[12,1]],'dest':[%d,[4,1]],'"
		         "locations':[%d]}]}",
		         r > 0 ? "," : "", r, 3 * r, r % 2, r);
	zcc_layout *layout = accepted(doc("[2,12]", ranks));
	zcc_shard_info info;
	assert_int_equal(zcc_layout_shard(layout, 0, 3, &info, &error), ZCC_OK);
	assert_int_equal(info.elems, 8);
	assert_int_equal(info.n_pieces, 1);
	zcc_layout_destroy(layout);
}

static void empty_things_are_fine(void **state)
{
	(void)state;
	/* An empty piece one past the end, an empty shard, a shard without pieces. */
	zcc_layout_destroy(
	        accepted(doc("[6,7]", "'0':{'shard_shape':[6,7],'pieces':[{'shape':[6,7],'source':[0,[7,1]],'dest':[0,["
	                              "7,1]],'locations':[0]},"
	                              "{'shape':[6,0],'source':[42,[7,1]],'dest':[42,[7,1]],'locations':[0]}]},"
	                              "'1':{'shard_shape':[6,0],'pieces':[{'shape':[6,0],'source':[42,[7,1]],'dest':[0,"
	                              "[0,1]],'locations':[1]}]},"
	                              "'2':{'shard_shape':[4],'pieces':[]}")));
	zcc_layout_destroy(accepted(doc("[0,8]", "'0':{'shard_shape':[0,8],'pieces':[]}")));
	zcc_layout_destroy(accepted(doc("[0,8]", "")));
	refused(doc("[6,0]", "'0':{'shard_shape':[0],'pieces':[{'shape':[6,0],'source':[1,[7,1]],'dest':[0,[1,1]],'"
	                     "locations':[0]}]}"),
	        ZCC_EMAP, "parameter w", "rank 0", "piece 0", "offset 1");
}

static void a_scalar_has_no_axes(void **state)
{
	(void)state;
	zcc_layout *layout = accepted(
	        doc("[]",
	            "'0':{'shard_shape':[],'pieces':[{'shape':[],'source':[0,[]],'dest':[0,[]],'locations':[0,1,2]}]},"
	            "'1':{'shard_shape':[1],'pieces':[{'shape':[],'source':[0,[]],'dest':[0,[]],'locations':[0,1,2]}]},"
	            "'2':{'shard_shape':[2],'pieces':[{'shape':[1],'source':[0,[1]],'dest':[1,[1]],'locations':[0,1,2]}"
	            "]}"));
	zcc_piece piece;
	int64_t n;
	assert_int_equal(zcc_layout_pieces(layout, 0, 2, &piece, 1, &n, &error), ZCC_OK);
	assert_int_equal(n, 1);
	assert_int_equal(piece.ndim, 0);
	assert_int_equal(piece.dest_offset_elems, 1);
	assert_int_equal(piece.n_holders, 3);
	zcc_layout_destroy(layout);
}

static void strides_along_axes_of_one_do_not_matter(void **state)
{
	(void)state;
	zcc_layout_destroy(accepted(doc("[1,4]", "'0':{'shard_shape':[1,4],'pieces':[{'shape':[1,4],'source':[0,[99,1]]"
	                                         ",'dest':[0,[0,1]],'locations':[0]}]}")));
}

static void a_dense_piece_may_sit_in_a_flat_shard(void **state)
{
	(void)state;
	zcc_layout_destroy(accepted(doc("[4,3]", "'0':{'shard_shape':[14],'pieces':[{'shape':[4,3],'source':[0,[3,1]],'"
	                                         "dest':[2,[3,1]],'locations':[0,1]}]},"
	                                         "'1':{'shard_shape':[4,3],'pieces':[{'shape':[4,3],'source':[0,[3,1]],"
	                                         "'dest':[0,[3,1]],'locations':[0,1]}]}")));
}

/* Two columns each of [4,4], flattened row by row, and a cell between the rows; as a fused parameter cut along its
 * inner axis lies under ZeRO 3. */
static void a_piece_may_lie_in_a_flat_shard_row_by_row(void **state)
{
	(void)state;
	zcc_layout *layout =
	        accepted(doc("[4,4]", "'0':{'shard_shape':[20],'pieces':["
	                              "{'shape':[4,2],'source':[0,[4,1]],'dest':[1,[5,1]],'locations':[0]},"
	                              "{'shape':[4,2],'source':[2,[4,1]],'dest':[3,[5,1]],'locations':[0]}]}"));
	zcc_piece pieces[2];
	int64_t n;
	assert_int_equal(zcc_layout_pieces(layout, 0, 0, pieces, 2, &n, &error), ZCC_OK);
	assert_int_equal(n, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pieces[i].dest_offset_elems, 1 + 2 * i);
		assert_int_equal(pieces[i].dest_strides_elems[0], 5);
		assert_int_equal(pieces[i].dest_strides_elems[1], 1);
	}
	zcc_layout_destroy(layout);
	/* Every fourth cell: the innermost axis may have a stride as well. */
	zcc_layout_destroy(accepted(doc("[2,2]", "'0':{'shard_shape':[16],'pieces':[{'shape':[2,2],'source':[0,[2,1]],"
	                                         "'dest':[3,[8,4]],'locations':[0]}]}")));
	/* One step too few: the rows would overlap. */
	refused(doc("[4,3]", "'0':{'shard_shape':[16],'pieces':[{'shape':[4,3],'source':[0,[3,1]],'dest':[0,[2,1]],'"
	                     "locations':[0]}]}"),
	        ZCC_ELAYOUT, "parameter w", "rank 0", "piece 0", "[2, 1]", "axis 0", "the 3 elements");
	refused(doc("[4,3]", "'0':{'shard_shape':[16],'pieces':[{'shape':[4,3],'source':[0,[3,1]],'dest':[0,[-3,1]],'"
	                     "locations':[0]}]}"),
	        ZCC_ELAYOUT, "parameter w", "piece 0", "step of -3");
	refused(doc("[4,3]", "'0':{'shard_shape':[16],'pieces':[{'shape':[4,3],'source':[0,[3,1]],'dest':[0,[3,0]],'"
	                     "locations':[0]}]}"),
	        ZCC_ELAYOUT, "parameter w", "piece 0", "step of 0");
	/* The last row leaves the shard; no number of 63 bits says where to. */
	refused(doc("[4,3]", "'0':{'shard_shape':[16],'pieces':[{'shape':[4,3],'source':[0,[3,1]],'dest':[2,[4,1]],'"
	                     "locations':[0]}]}"),
	        ZCC_EMAP, "piece 0", "15 elements from offset 2", "16");
	refused(doc("[4,3]", "'0':{'shard_shape':[16],'pieces':[{'shape':[4,3],'source':[0,[3,1]],'dest':[0,["
	                     "4611686018427387904,1]],'locations':[0]}]}"),
	        ZCC_EOVERFLOW, "piece 0", "4611686018427387904");
}

static void rows_of_a_flat_shard_claimed_twice_are_refused(void **state)
{
	(void)state;
	/* The second column of the one is the first of the other, in each of four rows. */
	refused(doc("[4,4]", "'0':{'shard_shape':[20],'pieces':["
	                     "{'shape':[4,2],'source':[0,[4,1]],'dest':[1,[5,1]],'locations':[0]},"
	                     "{'shape':[4,2],'source':[2,[4,1]],'dest':[2,[5,1]],'locations':[0]}]}"),
	        ZCC_EMAP, "rank 0", "pieces 0 and 1", "claim 4 element");
	/* A dense one in the last gap of the other. */
	refused(doc("[3,2]", "'0':{'shard_shape':[20],'pieces':["
	                     "{'shape':[2,2],'source':[0,[2,1]],'dest':[0,[6,1]],'locations':[0]},"
	                     "{'shape':[1,2],'source':[4,[2,1]],'dest':[5,[2,1]],'locations':[0]}]}"),
	        ZCC_EMAP, "rank 0", "pieces 0 and 1", "claim 1 element");
	/* More runs than anyone has. */
	refused(doc("[1048577,2]", "'0':{'shard_shape':[4194308],'pieces':["
	                           "{'shape':[1048577,1],'source':[0,[2,1]],'dest':[0,[4,1]],'locations':[0]},"
	                           "{'shape':[1048577,1],'source':[1,[2,1]],'dest':[1,[4,1]],'locations':[0]}]}"),
	        ZCC_ELAYOUT, "parameter w", "rank 0", "1048576 runs");
}

/* Rank 0 stores the whole, rank 1 the two halves: the same elements, so a good target; no good source. */
static void replicas_cut_at_different_boundaries_are_valid_but_give_no_blocks(void **state)
{
	(void)state;
	zcc_layout *layout = accepted(doc(
	        "[8]",
	        "'0':{'shard_shape':[8],'pieces':[{'shape':[8],'source':[0,[1]],'dest':[0,[1]],'locations':[0,1]}]},"
	        "'1':{'shard_shape':[8],'pieces':[{'shape':[4],'source':[4,[1]],'dest':[0,[1]],'locations':[0,1]},"
	        "{'shape':[4],'source':[0,[1]],'dest':[4,[1]],'locations':[0,1]}]}"));
	zcci_arena *arena = zcci_arena_create();
	zcci_block *blocks = NULL;
	int64_t n;
	assert_int_equal(zcc_layout_validate(layout, &error), ZCC_OK);
	assert_int_equal(zcci_layout_blocks(layout, 0, arena, &blocks, &n, &error), ZCC_ELAYOUT);
	assert_non_null(strstr(error.message, "different boundaries"));
	assert_null(blocks);
	zcci_arena_destroy(arena);
	zcc_layout_destroy(layout);
}

/* ---- refused: the map breaks a rule ---- */

static void a_hole_is_refused_with_the_numbers(void **state)
{
	(void)state;
	refused(doc("[8]",
	            "'0':{'shard_shape':[8],'pieces':[{'shape':[7],'source':[0,[1]],'dest':[0,[1]],'locations':[0]}]}"),
	        ZCC_EMAP, "parameter w", "7 of its 8");
	refused(doc("[8]", ""), ZCC_EMAP, "parameter w", "0 of its 8");
}

static void a_shard_address_claimed_twice_is_refused(void **state)
{
	(void)state;
	/* The counts add up: 8 elements for 8 places. */
	refused(doc("[8]",
	            "'0':{'shard_shape':[8],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':[0]},"
	            "{'shape':[4],'source':[4,[1]],'dest':[3,[1]],'locations':[0]}]}"),
	        ZCC_EMAP, "parameter w", "rank 0", "pieces 0 and 1", "claim 1 element");
	refused(doc("[2,4]", "'5':{'shard_shape':[2,4],'pieces':["
	                     "{'shape':[2,2],'source':[0,[4,1]],'dest':[0,[4,1]],'locations':[5]},"
	                     "{'shape':[2,2],'source':[2,[4,1]],'dest':[1,[4,1]],'locations':[5]}]}"),
	        ZCC_EMAP, "parameter w", "rank 5", "pieces 0 and 1", "claim 2 element");
}

static void the_same_box_twice_on_one_rank_is_refused(void **state)
{
	(void)state;
	refused(doc("[4]",
	            "'0':{'shard_shape':[8],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':[0]},"
	            "{'shape':[4],'source':[0,[1]],'dest':[4,[1]],'locations':[0]}]}"),
	        ZCC_EMAP, "parameter w", "rank 0", "pieces 0", "and 1");
	refused(doc("[4]",
	            "'0':{'shard_shape':[8],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':[0]},"
	            "{'shape':[2],'source':[1,[1]],'dest':[4,[1]],'locations':[0]}]}"),
	        ZCC_EMAP, "parameter w", "rank 0", "pieces 0", "and 1");
}

static void holders_must_be_the_ranks_that_store_it(void **state)
{
	(void)state;
	/* Replicated, but each names only itself. */
	refused(doc("[4]",
	            "'0':{'shard_shape':[4],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':[0]}]},"
	            "'1':{'shard_shape':[4],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':[1]}]}"),
	        ZCC_EMAP, "parameter w", "rank 0", "rank 1", "different locations");
	/* A rank that stores half of it, and one that stores nothing, and one that is not there. */
	refused(doc("[4]", "'0':{'shard_shape':[4],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':["
	                   "0,1]}]},"
	                   "'1':{'shard_shape':[2],'pieces':[{'shape':[2],'source':[0,[1]],'dest':[0,[1]],'locations':["
	                   "0,1]}]}"),
	        ZCC_EMAP, "parameter w", "rank 0", "piece 0", "rank 1", "2 of its 4");
	refused(doc("[4]", "'0':{'shard_shape':[4],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':["
	                   "0,7]}]}"),
	        ZCC_EMAP, "parameter w", "rank 0", "piece 0", "rank 7", "0 of its 4");
	refused(doc("[4]",
	            "'0':{'shard_shape':[4],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':[7]}]}"),
	        ZCC_EMAP, "parameter w", "rank 0", "piece 0", "rank 0 itself");
	refused(doc("[4]", "'0':{'shard_shape':[4],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':["
	                   "0,0]}]}"),
	        ZCC_EMAP, "parameter w", "rank 0", "piece 0", "twice");
}

static void replicas_must_have_one_scale(void **state)
{
	(void)state;
	refused(doc("[4]", "'0':{'shard_shape':[4],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':["
	                   "0,1],'scale':0.5}]},"
	                   "'1':{'shard_shape':[4],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':["
	                   "0,1]}]}"),
	        ZCC_EMAP, "parameter w", "rank 0", "rank 1", "0.5");
	refused(doc("[4]", "'0':{'shard_shape':[4],'pieces':[{'shape':[4],'source':[0,[1]],'dest':[0,[1]],'locations':["
	                   "0],'scale':0}]}"),
	        ZCC_EMAP, "parameter w", "rank 0", "piece 0", "scale");
}

static void what_leaves_the_parameter_or_the_shard_is_refused(void **state)
{
	(void)state;
#define ONE(shape, source, dest)                                                                                       \
	"'0':{'shard_shape':[4,4],'pieces':[{'shape':" shape ",'source':" source ",'dest':" dest ",'locations':[0]}]}"
	refused(doc("[4,4]", ONE("[4,5]", "[0,[4,1]]", "[0,[4,1]]")), ZCC_EMAP, "rank 0", "piece 0", "source", "[4, 5]",
	        "[4, 4]");
	refused(doc("[4,4]", ONE("[4,2]", "[3,[4,1]]", "[0,[4,1]]")), ZCC_EMAP, "rank 0", "piece 0", "source",
	        "offset 3");
	refused(doc("[4,4]", ONE("[4,2]", "[0,[4,1]]", "[3,[4,1]]")), ZCC_EMAP, "rank 0", "piece 0", "dest",
	        "offset 3");
	refused(doc("[4,4]", ONE("[1,1]", "[16,[4,1]]", "[0,[4,1]]")), ZCC_EMAP, "rank 0", "piece 0", "source",
	        "offset 16");
	refused(doc("[4,4]", ONE("[4,4]", "[-1,[4,1]]", "[0,[4,1]]")), ZCC_EMAP, "rank 0", "piece 0", "source", "-1");
	refused(doc("[4,4]", ONE("[-4,4]", "[0,[4,1]]", "[0,[4,1]]")), ZCC_EMAP, "rank 0", "piece 0", "-4");
	refused(doc("[4,4]", ONE("[9223372036854775807,9223372036854775807]", "[1,[4,1]]", "[0,[4,1]]")), ZCC_EMAP,
	        "piece 0");
	refused(doc("[4,4]", ONE("[4,4]", "[9223372036854775807,[4,1]]", "[0,[4,1]]")), ZCC_EMAP, "piece 0",
	        "9223372036854775807");
	refused(doc("[4,4]",
	            "'0':{'shard_shape':[16],'pieces':[{'shape':[9223372036854775807],'source':[1,[1]],'dest':[0,[1]],"
	            "'locations':[0]}]}"),
	        ZCC_EMAP, "piece 0", "source", "9223372036854775807 elements");
	refused(doc("[4,4]", "'0':{'shard_shape':[15],'pieces':[{'shape':[16],'source':[0,[1]],'dest':[0,[1]],'"
	                     "locations':[0]}]}"),
	        ZCC_EMAP, "piece 0", "dest", "16", "15");
	refused(doc("[4,4]", ONE("[4,4]", "[0,[4]]", "[0,[4,1]]")), ZCC_EMAP, "piece 0", "source",
	        "1 strides for 2 axes");
	refused(doc("[4,4]", ONE("[4,4]", "[0,[4,1]]", "[0,[4,1,1]]")), ZCC_EMAP, "piece 0", "dest",
	        "3 strides for 2 axes");
}

/* ---- refused: geometry that is not supported ---- */

static void other_strides_than_row_major_are_not_supported(void **state)
{
	(void)state;
	refused(doc("[4,4]", ONE("[4,4]", "[0,[1,4]]", "[0,[4,1]]")), ZCC_ELAYOUT, "rank 0", "piece 0", "source",
	        "[1, 4]");
	refused(doc("[4,4]", ONE("[4,4]", "[0,[4,1]]", "[0,[1,4]]")), ZCC_ELAYOUT, "rank 0", "piece 0", "dest",
	        "[1, 4]");
	refused(doc("[4,4]", ONE("[4,4]", "[0,[0,1]]", "[0,[4,1]]")), ZCC_ELAYOUT, "rank 0", "piece 0", "source");
	refused(doc("[4,4]", "'0':{'shard_shape':[16],'pieces':[{'shape':[8],'source':[0,[2]],'dest':[0,[1]],'"
	                     "locations':[0]}]}"),
	        ZCC_ELAYOUT, "piece 0", "source", "[2]");
	refused(doc("[4,4]", "'0':{'shard_shape':[16],'pieces':[{'shape':[8],'source':[0,[1]],'dest':[0,[2]],'"
	                     "locations':[0]}]}"),
	        ZCC_ELAYOUT, "piece 0", "dest", "[2]");
}

static void other_numbers_of_axes_are_not_supported(void **state)
{
	(void)state;
	refused(doc("[4,4]", ONE("[16]", "[0,[1]]", "[0,[1]]")), ZCC_ELAYOUT, "piece 0", "1 axes", "parameter of 2");
	refused(doc("[4,4]", ONE("[2,2,4]", "[0,[8,4,1]]", "[0,[8,4,1]]")), ZCC_ELAYOUT, "piece 0", "3 axes",
	        "parameter of 2");
	refused(doc("[4,4]", "'0':{'shard_shape':[4,2,2],'pieces':[{'shape':[4,4],'source':[0,[4,1]],'dest':[0,[4,1]],"
	                     "'locations':[0]}]}"),
	        ZCC_ELAYOUT, "piece 0", "2 axes", "shard of 3");
	refused(doc("[1,1,1,1,1,1,1,1,1]", ""), ZCC_ELAYOUT, "parameter w", "9", "8");
}

/* ---- refused: no map document ---- */

static void what_is_no_map_document_is_refused(void **state)
{
	(void)state;
	refused("[]", ZCC_EFORMAT, "an array");
	refused("{}", ZCC_EFORMAT, "version");
	refused("{\"version\":2,\"params\":{}}", ZCC_EFORMAT, "2");
	refused("{\"version\":1.0,\"params\":{}}", ZCC_EFORMAT, "version");
	refused("{\"version\":1}", ZCC_EFORMAT, "params");
	refused("{\"version\":1,\"params\":[]}", ZCC_EFORMAT, "params", "an array");
	refused("{\"affine_map\":3}", ZCC_EFORMAT, "affine_map");
	refused("{\"version\":1,\"params\":{\"\":{}}}", ZCC_EFORMAT, "name");
	refused("{\"version\":1,\"params\":{\"^$\":{}}}", ZCC_EFORMAT, "name");
	refused(doc("[1.5]", ""), ZCC_EFORMAT, "parameter w", "logical_shape");
	refused(doc("[9223372036854775808]", ""), ZCC_EFORMAT, "parameter w", "logical_shape");
	refused(doc("[9223372036854775807,2]", ""), ZCC_EOVERFLOW, "parameter w");
	refused(doc("[-1]", ""), ZCC_EMAP, "parameter w", "-1");
	refused(doc("7", ""), ZCC_EFORMAT, "parameter w", "logical_shape", "a number");
	refused(doc("[1]", "'x':{}"), ZCC_EFORMAT, "parameter w", "\"x\" is no rank");
	refused(doc("[1]", "'01':{}"), ZCC_EFORMAT, "parameter w", "\"01\" is no rank");
	refused(doc("[1]", "'':{}"), ZCC_EFORMAT, "parameter w", "is no rank");
	refused(doc("[1]", "'-1':{}"), ZCC_EFORMAT, "parameter w", "\"-1\" is no rank");
	refused(doc("[1]", "'2147483648':{}"), ZCC_EFORMAT, "parameter w", "\"2147483648\" is no rank");
	refused(doc("[1]", "'0':{'shard_shape':[1]}"), ZCC_EFORMAT, "parameter w", "rank 0", "pieces");
	refused(doc("[1]", "'0':[]"), ZCC_EFORMAT, "parameter w", "rank 0", "an array");
	refused(doc("[1]", "'0':{'shard_shape':[4294967296,4294967296],'pieces':[]}"), ZCC_EOVERFLOW, "rank 0",
	        "4294967296");
#define PIECE(text) "'0':{'shard_shape':[1],'pieces':[" text "]}"
	refused(doc("[1]", PIECE("3")), ZCC_EFORMAT, "rank 0", "piece 0");
	refused(doc("[1]", PIECE("{'shape':[1],'source':[0],'dest':[0,[1]],'locations':[0]}")), ZCC_EFORMAT, "piece 0",
	        "source");
	refused(doc("[1]", PIECE("{'shape':[1],'source':[0,1],'dest':[0,[1]],'locations':[0]}")), ZCC_EFORMAT,
	        "piece 0", "source");
	refused(doc("[1]", PIECE("{'shape':[1],'source':[0,[1]],'dest':[0,[1]]}")), ZCC_EFORMAT, "piece 0",
	        "locations");
	refused(doc("[1]", PIECE("{'shape':[1],'source':[0,[1]],'dest':[0,[1]],'locations':['0']}")), ZCC_EFORMAT,
	        "piece 0");
	refused(doc("[1]", PIECE("{'shape':[1],'source':[0,[1]],'dest':[0,[1]],'locations':[-1]}")), ZCC_EMAP,
	        "piece 0", "-1");
	refused(doc("[1]", PIECE("{'shape':[1],'source':[0,[1]],'dest':[0,[1]],'locations':[0],'scale':'x'}")),
	        ZCC_EFORMAT, "piece 0", "scale");
	refused("{\"version\":1,\"params\":{\"w\":{\"logical_shape\":[0],\"dtype\":\"F7\",\"ranks\":{}}}}", ZCC_EFORMAT,
	        "F7");
}

static void a_parameter_under_two_spellings_is_refused(void **state)
{
	(void)state;
	refused("{\"version\":1,\"params\":{\"a.b\":{\"logical_shape\":[0],\"dtype\":\"F32\",\"ranks\":{}},"
	        "\"^a\\\\.b$\":{\"logical_shape\":[0],\"dtype\":\"F32\",\"ranks\":{}}}}",
	        ZCC_EFORMAT, "a.b", "twice");
}

/* ---- written ---- */

static void the_document_is_written_as_the_design_shows(void **state)
{
	(void)state;
	zcc_layout *layout;
	int32_t mesh, param;
	const int64_t sizes[] = {2, 2}, shape[] = {2, 3};
	assert_int_equal(zcc_layout_create(&layout, NULL), ZCC_OK);
	assert_int_equal(zcc_layout_add_mesh(layout, 0, 2, "dp,tp", sizes, &mesh, NULL), ZCC_OK);
	zcc_part part = {.size_elems = 2, .units = 2, .cut = ZCC_CUT_EVEN};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .axis = 1, .n_parts = 1, .parts = &part};
	zcc_param_options o;
	zcc_param_options_init(&o);
	o.name = "a.b";
	o.dtype = ZCC_BF16;
	o.ndim = 2;
	o.shape_elems = shape;
	o.placements = &p;
	o.n_placements = 1;
	assert_int_equal(zcc_layout_add_param(layout, &o, &param, NULL), ZCC_OK);
	o.name = "^s$";
	o.ndim = o.n_placements = 0;
	o.scale = 0.25;
	assert_int_equal(zcc_layout_add_param(layout, &o, &param, NULL), ZCC_OK);
	char *text = written(layout);
#define ROW(rank, row, a, b)                                                                                           \
	"\"" #rank "\":{\"shard_shape\":[1,3],\"pieces\":[{\"shape\":[1,3],\"source\":[" #row ",[3,1]],"               \
	"\"dest\":[0,[3,1]],\"locations\":[" #a "," #b "]}]}"
#define SCALAR(rank)                                                                                                   \
	"\"" #rank "\":{\"shard_shape\":[],\"pieces\":[{\"shape\":[],\"source\":[0,[]],\"dest\":[0,[]],"               \
	"\"locations\":[0,1,2,3],\"scale\":0.25}]}"
	assert_string_equal(
	        text,
	        "{\"version\":1,\"params\":{\"a.b\":{\"logical_shape\":[2,3],\"dtype\":\"BF16\",\"ranks\":"
	        "{" ROW(0, 0, 0, 2) "," ROW(1, 3, 1, 3) "," ROW(2, 0, 0, 2) "," ROW(
	                3, 3, 1, 3) "}},"
	                            "\"^\\\\^s\\\\$$\":{\"logical_shape\":[],\"dtype\":\"BF16\",\"ranks\":{" SCALAR(
	                                    0) "," SCALAR(1) "," SCALAR(2) "," SCALAR(3) "}}}}");
	zcc_layout *again = accepted(text);
	assert_int_equal(zcc_layout_find(again, "^s$"), 1);
	char *twice = written(again);
	assert_string_equal(twice, text);
	free(twice);
	free(text);
	zcc_layout_destroy(again);
	zcc_layout_destroy(layout);
}

/* ---- memory ---- */

static void memory_may_run_out_at_any_allocation(void **state)
{
	(void)state;
	const char *text = doc(
	        "[4,5]",
	        "'0':{'shard_shape':[8],'pieces':[{'shape':[7],'source':[0,[1]],'dest':[1,[1]],'locations':[0]}]},"
	        "'1':{'shard_shape':[13],'pieces':[{'shape':[13],'source':[7,[1]],'dest':[0,[1]],'locations':[1,2]}]},"
	        "'2':{'shard_shape':[13],'pieces':[{'shape':[10],'source':[7,[1]],'dest':[0,[1]],'locations':[1,2]},"
	        "{'shape':[3],'source':[17,[1]],'dest':[10,[1]],'locations':[1,2]}]}");
	for (int64_t n = 1;; n++) {
		zcc_layout *layout = NULL;
		zcc_json_writer *writer = NULL;
		const char *out;
		int64_t bytes;
		zcci_fail_alloc(n);
		zcc_status status = parse(text, &layout);
		if (status == ZCC_OK)
			status = zcc_json_writer_create(0, &writer, &error);
		if (status == ZCC_OK)
			status = zcc_layout_write(layout, writer, &error);
		if (status == ZCC_OK)
			status = zcc_json_writer_text(writer, &out, &bytes, &error);
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		zcc_json_writer_destroy(writer);
		zcc_layout_destroy(layout);
		if (!hit) {
			assert_int_equal(status, ZCC_OK);
			assert_true(n > 20);
			return;
		}
		assert_int_equal(status, ZCC_ENOMEM);
		assert_int_equal(error.status, ZCC_ENOMEM);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(ranks_may_be_any_and_pieces_in_any_order),
	        cmocka_unit_test(keys_may_be_patterns_and_the_map_wrapped),
	        cmocka_unit_test(a_flat_run_is_nested_into_the_parameter),
	        cmocka_unit_test(padding_lies_anywhere_between_pieces),
	        cmocka_unit_test(empty_things_are_fine),
	        cmocka_unit_test(a_scalar_has_no_axes),
	        cmocka_unit_test(strides_along_axes_of_one_do_not_matter),
	        cmocka_unit_test(a_dense_piece_may_sit_in_a_flat_shard),
	        cmocka_unit_test(a_piece_may_lie_in_a_flat_shard_row_by_row),
	        cmocka_unit_test(rows_of_a_flat_shard_claimed_twice_are_refused),
	        cmocka_unit_test(replicas_cut_at_different_boundaries_are_valid_but_give_no_blocks),
	        cmocka_unit_test(a_hole_is_refused_with_the_numbers),
	        cmocka_unit_test(a_shard_address_claimed_twice_is_refused),
	        cmocka_unit_test(the_same_box_twice_on_one_rank_is_refused),
	        cmocka_unit_test(holders_must_be_the_ranks_that_store_it),
	        cmocka_unit_test(replicas_must_have_one_scale),
	        cmocka_unit_test(what_leaves_the_parameter_or_the_shard_is_refused),
	        cmocka_unit_test(other_strides_than_row_major_are_not_supported),
	        cmocka_unit_test(other_numbers_of_axes_are_not_supported),
	        cmocka_unit_test(what_is_no_map_document_is_refused),
	        cmocka_unit_test(a_parameter_under_two_spellings_is_refused),
	        cmocka_unit_test(the_document_is_written_as_the_design_shows),
	        cmocka_unit_test(memory_may_run_out_at_any_allocation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
