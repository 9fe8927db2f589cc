/* Layouts of known geometry with the numbers worked out by hand, refusals, and memory running out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "affine/layout.h"
#include "layouts.h"

static zcc_layout *layout;
static zcc_error error;
static int32_t mesh;

/* A layout of one mesh with axes a, b, c, … */
static void begin(int32_t n_axes, const int64_t *sizes)
{
	static const char *const names[] = {"", "a", "a,b", "a,b,c"};
	assert_int_equal(zcc_layout_create(&layout, &error), ZCC_OK);
	assert_int_equal(zcc_layout_add_mesh(layout, 0, n_axes, names[n_axes], sizes, &mesh, &error), ZCC_OK);
}

static int end(void **state)
{
	(void)state;
	zcc_layout_destroy(layout);
	layout = NULL;
	return 0;
}

static zcc_param_options options_of(int32_t ndim, const int64_t *shape)
{
	zcc_param_options o;
	zcc_param_options_init(&o);
	o.name = "w";
	o.dtype = ZCC_BF16;
	o.ndim = ndim;
	o.shape_elems = shape;
	o.mesh = mesh;
	return o;
}

static void add(const zcc_param_options *o)
{
	int32_t param;
	if (zcc_layout_add_param(layout, o, &param, &error) != ZCC_OK)
		fail_msg("%s", error.message);
	assert_int_equal(param, 0);
}

/* The refusal must have the status and name all of the words. */
static void expect_refused(const zcc_param_options *o, zcc_status status, const char *const *words)
{
	int32_t param = 77;
	memset(&error, 0, sizeof error);
	assert_int_equal(zcc_layout_add_param(layout, o, &param, &error), status);
	assert_int_equal(param, 77);
	assert_int_equal(error.status, status);
	for (; *words != NULL; words++)
		if (strstr(error.message, *words) == NULL)
			fail_msg("\"%s\" does not name %s", error.message, *words);
	assert_int_equal(zcc_layout_params(layout), 0);
}
#define refused(o, status, ...) expect_refused(o, status, (const char *const[]){__VA_ARGS__, NULL})

static void expect_piece(int32_t rank, int64_t index, const int64_t *shape, const int64_t *origin, int64_t dest,
                         const int32_t *holders, int32_t n_holders)
{
	zcc_piece pieces[32];
	int64_t n;
	assert_int_equal(zcc_layout_pieces(layout, 0, rank, pieces, 32, &n, &error), ZCC_OK);
	assert_true(index < n);
	const zcc_piece *piece = &pieces[index];
	assert_memory_equal(piece->shape_elems, shape, (size_t)piece->ndim * sizeof *shape);
	assert_memory_equal(piece->origin_elems, origin, (size_t)piece->ndim * sizeof *origin);
	assert_int_equal(piece->dest_offset_elems, dest);
	assert_int_equal(piece->n_holders, n_holders);
	assert_memory_equal(piece->holders, holders, (size_t)n_holders * sizeof *holders);
}
#define LIST(...)                                                                                                      \
	(const int64_t[])                                                                                              \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}
#define RANKS(...) (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static zcc_shard_info shard_of(int32_t rank)
{
	zcc_shard_info info;
	assert_int_equal(zcc_layout_shard(layout, 0, rank, &info, &error), ZCC_OK);
	return info;
}

/* ---- geometry ---- */

static void given_extents_may_be_zero(void **state)
{
	(void)state;
	begin(1, LIST(3));
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .dim = 1, .n_extents = 3, .extents = LIST(3, 0, 4)};
	zcc_param_options o = options_of(2, LIST(6, 7));
	o.placements = &p;
	o.n_placements = 1;
	add(&o);
	expect_piece(0, 0, LIST(6, 3), LIST(0, 0), 0, RANKS(0));
	expect_piece(2, 0, LIST(6, 4), LIST(0, 3), 0, RANKS(2));
	zcc_shard_info empty = shard_of(1);
	assert_int_equal(empty.present, 1);
	assert_int_equal(empty.n_pieces, 0);
	assert_int_equal(empty.shape_elems[0], 6);
	assert_int_equal(empty.shape_elems[1], 0);
}

/* Vocabulary 13 padded to 16 over 4: the last rank has one row of data and three of padding. */
static void vocabulary_padding_is_in_the_shard_but_in_no_piece(void **state)
{
	(void)state;
	begin(1, LIST(4));
	zcc_part part = {.size_elems = 13, .units = 13, .padded_elems = 16, .cut = ZCC_CUT_EVEN};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .n_parts = 1, .parts = &part};
	zcc_param_options o = options_of(2, LIST(13, 2));
	o.placements = &p;
	o.n_placements = 1;
	add(&o);
	expect_piece(2, 0, LIST(4, 2), LIST(8, 0), 0, RANKS(2));
	expect_piece(3, 0, LIST(1, 2), LIST(12, 0), 0, RANKS(3));
	assert_int_equal(shard_of(3).elems, 8);
}

static void a_rank_wholly_in_padding_has_a_shard_but_no_piece(void **state)
{
	(void)state;
	begin(1, LIST(4));
	zcc_part part = {.size_elems = 5, .units = 5, .padded_elems = 8, .cut = ZCC_CUT_EVEN};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .n_parts = 1, .parts = &part};
	zcc_param_options o = options_of(1, LIST(5));
	o.placements = &p;
	o.n_placements = 1;
	add(&o);
	zcc_shard_info info = shard_of(3);
	assert_int_equal(info.present, 1);
	assert_int_equal(info.elems, 2);
	assert_int_equal(info.n_pieces, 0);
}

/* 57 elements over 4 ranks, a multiple of 8: parts of 16, the last with 9 and 7 of padding. */
static void a_flat_group_is_padded_to_its_alignment(void **state)
{
	(void)state;
	begin(1, LIST(4));
	zcc_param_options o = options_of(1, LIST(57));
	o.n_cut_axes = 1;
	o.cut_axes = &(int32_t){0};
	o.cut_align_elems = 2;
	add(&o);
	for (int32_t r = 0; r < 4; r++) {
		assert_int_equal(shard_of(r).elems, 16);
		expect_piece(r, 0, LIST(r < 3 ? 16 : 9), LIST(16 * r), 0, RANKS(r));
	}
}

static void two_heads_over_eight_ranks_are_stored_by_four_neighbours_each(void **state)
{
	(void)state;
	begin(1, LIST(8));
	zcc_part part = {.size_elems = 8, .units = 2, .cut = ZCC_CUT_GROUPED};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .n_parts = 1, .parts = &part};
	zcc_param_options o = options_of(2, LIST(8, 3));
	o.placements = &p;
	o.n_placements = 1;
	add(&o);
	for (int32_t r = 0; r < 4; r++)
		expect_piece(r, 0, LIST(4, 3), LIST(0, 0), 0, RANKS(0, 1, 2, 3));
	for (int32_t r = 4; r < 8; r++)
		expect_piece(r, 0, LIST(4, 3), LIST(4, 0), 0, RANKS(4, 5, 6, 7));
	int64_t n;
	zcci_block *blocks;
	zcci_arena *arena = zcci_arena_create();
	assert_int_equal(zcci_layout_blocks(layout, 0, arena, &blocks, &n, &error), ZCC_OK);
	assert_int_equal(n, 2);
	zcci_arena_destroy(arena);
}

/* bigcode: 32 rows of queries cut, 16 of keys and values on every rank. */
static void replicated_rows_beside_cut_ones_name_all_ranks(void **state)
{
	(void)state;
	begin(1, LIST(2));
	zcc_part parts[] = {{.size_elems = 32, .units = 4, .cut = ZCC_CUT_EVEN},
	                    {.size_elems = 16, .units = 1, .cut = ZCC_CUT_REPLICATE}};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .n_parts = 2, .parts = parts};
	zcc_param_options o = options_of(2, LIST(48, 2));
	o.placements = &p;
	o.n_placements = 1;
	add(&o);
	expect_piece(0, 0, LIST(16, 2), LIST(0, 0), 0, RANKS(0));
	expect_piece(0, 1, LIST(16, 2), LIST(32, 0), 32, RANKS(0, 1));
	/* Rows 16 to 47 lie in one piece, but not with the same holders. */
	expect_piece(1, 0, LIST(16, 2), LIST(16, 0), 0, RANKS(1));
	expect_piece(1, 1, LIST(16, 2), LIST(32, 0), 32, RANKS(0, 1));
}

static void an_uncut_fused_axis_is_one_piece(void **state)
{
	(void)state;
	begin(1, LIST(1));
	zcc_part parts[] = {{.size_elems = 16, .units = 4, .cut = ZCC_CUT_EVEN},
	                    {.size_elems = 4, .units = 1, .cut = ZCC_CUT_REPLICATE},
	                    {.size_elems = 4, .units = 1, .cut = ZCC_CUT_GROUPED}};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .n_parts = 3, .parts = parts};
	zcc_param_options o = options_of(1, LIST(24));
	o.placements = &p;
	o.n_placements = 1;
	add(&o);
	assert_int_equal(shard_of(0).n_pieces, 1);
}

/* (8, 7) over tp 2, then flat over 3: 28 elements in parts of 10, 10, 8; 4 rows of 7 cut inside rows. */
static void a_flat_cut_inside_rows_gives_heads_and_tails(void **state)
{
	(void)state;
	begin(2, LIST(3, 2));
	zcc_part part = {.size_elems = 8, .units = 8, .cut = ZCC_CUT_EVEN};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .axis = 1, .n_parts = 1, .parts = &part};
	zcc_param_options o = options_of(2, LIST(8, 7));
	o.placements = &p;
	o.n_placements = 1;
	o.n_cut_axes = 1;
	o.cut_axes = &(int32_t){0};
	add(&o);
	for (int32_t r = 0; r < 6; r++)
		assert_int_equal(shard_of(r).elems, 10);
	/* Rank 3: dp 1, tp 1: elements 10 to 19 of rows 4 to 7. */
	expect_piece(3, 0, LIST(1, 4), LIST(5, 3), 0, RANKS(3));
	expect_piece(3, 1, LIST(1, 6), LIST(6, 0), 4, RANKS(3));
	expect_piece(4, 0, LIST(1, 1), LIST(2, 6), 0, RANKS(4));
	expect_piece(4, 1, LIST(1, 7), LIST(3, 0), 1, RANKS(4));
}

/* hpZ: cut over 2 neighbours, replicated over the 2 pairs. */
static void a_sub_group_cut_is_replicated_over_the_groups(void **state)
{
	(void)state;
	begin(1, LIST(4));
	zcc_param_options o = options_of(1, LIST(10));
	o.n_cut_axes = 1;
	o.cut_axes = &(int32_t){0};
	o.cut_group = 2;
	add(&o);
	expect_piece(0, 0, LIST(5), LIST(0), 0, RANKS(0, 2));
	expect_piece(3, 0, LIST(5), LIST(5), 0, RANKS(1, 3));
}

static void only_the_owner_stores_an_owned_parameter(void **state)
{
	(void)state;
	begin(2, LIST(2, 2));
	zcc_placement p = {.kind = ZCC_PLACE_OWNER, .axis = 0, .owner = 1};
	zcc_param_options o = options_of(1, LIST(6));
	o.placements = &p;
	o.n_placements = 1;
	add(&o);
	assert_int_equal(shard_of(1).present, 0);
	assert_int_equal(shard_of(1).elems, 0);
	expect_piece(2, 0, LIST(6), LIST(0), 0, RANKS(2, 3));
}

static void a_second_mesh_of_the_same_ranks_has_its_own_coordinates(void **state)
{
	(void)state;
	begin(2, LIST(2, 2));
	int32_t experts, n;
	assert_int_equal(zcc_layout_add_mesh(layout, 0, 2, "edp,ep", LIST(1, 4), &experts, &error), ZCC_OK);
	zcc_layout_ranks(layout, &n);
	assert_int_equal(n, 4);
	zcc_placement p = {.kind = ZCC_PLACE_OWNER, .axis = 1, .owner = 3};
	zcc_param_options o = options_of(1, LIST(6));
	o.mesh = experts;
	o.placements = &p;
	o.n_placements = 1;
	add(&o);
	expect_piece(3, 0, LIST(6), LIST(0), 0, RANKS(3));
}

static void ranks_of_meshes_with_gaps_are_merged(void **state)
{
	(void)state;
	begin(1, LIST(2));
	int32_t other, n;
	assert_int_equal(zcc_layout_add_mesh(layout, 5, 1, "x", LIST(2), &other, &error), ZCC_OK);
	assert_int_equal(zcc_layout_add_mesh(layout, 1, 1, "x", LIST(5), &other, &error), ZCC_OK);
	const int32_t *ranks = zcc_layout_ranks(layout, &n);
	assert_int_equal(n, 7);
	for (int32_t i = 0; i < n; i++)
		assert_int_equal(ranks[i], i);
}

static void a_scalar_is_one_element_everywhere_and_cut_flat_on_one_rank(void **state)
{
	(void)state;
	begin(1, LIST(3));
	zcc_param_options o = options_of(0, NULL);
	add(&o);
	expect_piece(2, 0, NULL, NULL, 0, RANKS(0, 1, 2));
	int32_t param;
	o.name = "flat";
	o.n_cut_axes = 1;
	o.cut_axes = &(int32_t){0};
	assert_int_equal(zcc_layout_add_param(layout, &o, &param, &error), ZCC_OK);
	zcc_shard_info info;
	for (int32_t r = 0; r < 3; r++) {
		assert_int_equal(zcc_layout_shard(layout, param, r, &info, &error), ZCC_OK);
		assert_int_equal(info.elems, 1);
		assert_int_equal(info.n_pieces, r == 0);
	}
}

static void a_parameter_without_elements_has_no_pieces(void **state)
{
	(void)state;
	begin(1, LIST(2));
	zcc_param_options o = options_of(2, LIST(0, 8));
	o.n_cut_axes = 1;
	o.cut_axes = &(int32_t){0};
	add(&o);
	assert_int_equal(shard_of(0).present, 1);
	assert_int_equal(shard_of(0).n_pieces, 0);
	int64_t n;
	assert_int_equal(zcc_layout_count_pieces(layout, &n, &error), ZCC_OK);
	assert_int_equal(n, 0);
}

static void a_billion_rows_over_many_replicas_cost_what_ten_cost(void **state)
{
	(void)state;
	begin(2, LIST(100000, 4));
	zcc_part part = {.size_elems = 1000000000, .units = 1000000000, .cut = ZCC_CUT_EVEN};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .axis = 1, .n_parts = 1, .parts = &part};
	zcc_param_options o = options_of(2, LIST(1000000000, 8));
	o.placements = &p;
	o.n_placements = 1;
	double before = cpu_seconds();
	int64_t n;
	add(&o);
	for (int32_t i = 1; i < 1000; i++) {
		char name[16];
		int32_t param;
		snprintf(name, sizeof name, "w%d", i);
		o.name = name;
		assert_int_equal(zcc_layout_add_param(layout, &o, &param, &error), ZCC_OK);
	}
	assert_int_equal(zcc_layout_count_pieces(layout, &n, &error), ZCC_OK);
	assert_int_equal(n, INT64_C(400000) * 1000);
	/* Visiting every rank of every parameter would take minutes. */
	assert_true(cpu_seconds() - before < 30);
}

/* ---- refusals ---- */

static void what_does_not_divide_is_refused_with_the_numbers(void **state)
{
	(void)state;
	begin(2, LIST(3, 4));
	zcc_part part = {.size_elems = 10, .units = 10, .cut = ZCC_CUT_EVEN};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .axis = 1, .n_parts = 1, .parts = &part};
	zcc_param_options o = options_of(1, LIST(10));
	o.placements = &p;
	o.n_placements = 1;
	refused(&o, ZCC_ELAYOUT, "parameter w", "axis b", "10 units", "4");
	part = (zcc_part){.size_elems = 10, .units = 5, .cut = ZCC_CUT_GROUPED};
	refused(&o, ZCC_ELAYOUT, "parameter w", "axis b", "5 units", "4");
	part = (zcc_part){.size_elems = 10, .units = 10, .padded_elems = 14, .cut = ZCC_CUT_EVEN};
	refused(&o, ZCC_ELAYOUT, "parameter w", "axis b", "14", "4");
	o.n_placements = 0;
	o.n_cut_axes = 1;
	o.cut_axes = &(int32_t){0};
	o.cut_group = 2;
	refused(&o, ZCC_ELAYOUT, "parameter w", "2", "3");
}

static void parts_that_do_not_fit_are_refused_with_the_numbers(void **state)
{
	(void)state;
	begin(1, LIST(2));
	zcc_part parts[] = {{.size_elems = 6, .units = 6, .cut = ZCC_CUT_EVEN},
	                    {.size_elems = 2, .units = 2, .cut = ZCC_CUT_EVEN}};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .n_parts = 2, .parts = parts};
	zcc_param_options o = options_of(1, LIST(10));
	o.placements = &p;
	o.n_placements = 1;
	refused(&o, ZCC_EINVAL, "parameter w", "axis a", "8", "10");
	parts[1].size_elems = 4;
	parts[1].units = 3;
	refused(&o, ZCC_EINVAL, "parameter w", "3 units", "4 elements");
	parts[1].units = 4;
	parts[1].padded_elems = 2;
	refused(&o, ZCC_EINVAL, "parameter w", "padding 4", "to 2");
	parts[1].padded_elems = 0;
	parts[1].cut = 9;
	refused(&o, ZCC_EINVAL, "parameter w", "9 is no kind");
	parts[1] = (zcc_part){.size_elems = INT64_MAX, .units = 1, .cut = ZCC_CUT_REPLICATE};
	refused(&o, ZCC_EOVERFLOW, "parameter w", "2^63");
	p = (zcc_placement){.kind = ZCC_PLACE_SHARD, .n_extents = 2, .extents = LIST(4, 4)};
	refused(&o, ZCC_EINVAL, "parameter w", "8", "10");
	p.extents = LIST(-4, 14);
	refused(&o, ZCC_EINVAL, "parameter w", "coordinate 0");
	p.extents = LIST(INT64_MAX, INT64_MAX);
	refused(&o, ZCC_EINVAL, "parameter w", "coordinate 1");
	p.n_extents = 1;
	refused(&o, ZCC_EINVAL, "parameter w", "1 extents");
}

static void axes_that_are_not_there_or_taken_are_refused(void **state)
{
	(void)state;
	begin(1, LIST(2));
	zcc_part part = {.size_elems = 10, .units = 10, .cut = ZCC_CUT_EVEN};
	zcc_placement p[] = {{.kind = ZCC_PLACE_SHARD, .axis = 1, .n_parts = 1, .parts = &part},
	                     {.kind = ZCC_PLACE_OWNER}};
	zcc_param_options o = options_of(1, LIST(10));
	o.placements = p;
	o.n_placements = 1;
	refused(&o, ZCC_EINVAL, "parameter w", "mesh axis 1", "has 1");
	p[0].axis = 0;
	p[0].dim = 1;
	refused(&o, ZCC_EINVAL, "parameter w", "axis 1", "there are 1");
	p[0].dim = 0;
	o.n_placements = 2;
	refused(&o, ZCC_EINVAL, "parameter w", "mesh axis a", "taken");
	o.n_placements = 1;
	o.n_cut_axes = 1;
	o.cut_axes = &(int32_t){0};
	refused(&o, ZCC_EINVAL, "parameter w", "flat cut", "taken");
	o.n_placements = 0;
	o.n_cut_axes = 2;
	o.cut_axes = (const int32_t[]){0, 0};
	refused(&o, ZCC_EINVAL, "parameter w", "flat cut", "taken");
	o.n_placements = 1;
	o.n_cut_axes = 0;
	p[0] = (zcc_placement){.kind = ZCC_PLACE_OWNER, .owner = 2};
	refused(&o, ZCC_EINVAL, "parameter w", "owner 2", "size 2");
	p[0] = (zcc_placement){.kind = 3};
	refused(&o, ZCC_EINVAL, "parameter w", "3 is no kind");
}

static void sizes_over_63_bits_are_refused(void **state)
{
	(void)state;
	begin(1, LIST(2));
	zcc_param_options o = options_of(3, LIST(INT64_C(1) << 31, INT64_C(1) << 31, 2));
	refused(&o, ZCC_EOVERFLOW, "parameter w", "[2147483648, 2147483648, 2]");
	o = options_of(3, LIST(0, INT64_MAX, INT64_MAX));
	refused(&o, ZCC_EOVERFLOW, "parameter w");
	o = options_of(1, LIST(1000));
	o.n_cut_axes = 1;
	o.cut_axes = &(int32_t){0};
	o.cut_align_elems = INT64_MAX / 2;
	refused(&o, ZCC_EOVERFLOW, "parameter w", "multiple of 4611686018427387903 times 2");
	zcc_part part = {.size_elems = 3, .units = 3, .padded_elems = INT64_MAX - 1, .cut = ZCC_CUT_EVEN};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .n_parts = 1, .parts = &part};
	o = options_of(2, LIST(3, 8));
	o.placements = &p;
	o.n_placements = 1;
	refused(&o, ZCC_EOVERFLOW, "parameter w");
}

static void options_without_sense_are_refused(void **state)
{
	(void)state;
	begin(1, LIST(2));
	zcc_param_options o = options_of(1, LIST(4));
	o.struct_bytes = 8;
	refused(&o, ZCC_EINVAL, "8 bytes");
	o = options_of(9, LIST(1, 1, 1, 1, 1, 1, 1, 1, 1));
	refused(&o, ZCC_EINVAL, "parameter w", "9 axes", "8");
	o = options_of(1, LIST(-4));
	refused(&o, ZCC_EINVAL, "parameter w", "-4");
	o = options_of(1, NULL);
	refused(&o, ZCC_EINVAL, "parameter w");
	o = options_of(1, LIST(4));
	o.dtype = 0;
	refused(&o, ZCC_EINVAL, "parameter w", "dtype");
	o.dtype = ZCC_F32;
	o.mesh = 1;
	refused(&o, ZCC_EINVAL, "parameter w", "mesh 1");
	o.mesh = 0;
	o.scale = 0;
	refused(&o, ZCC_EINVAL, "parameter w", "scale");
	o.scale = 1;
	o.name = "";
	refused(&o, ZCC_EINVAL, "without a name");
}

static void a_name_is_taken_once(void **state)
{
	(void)state;
	begin(1, LIST(2));
	int32_t param;
	for (int32_t i = 0; i < 300; i++) {
		char name[16];
		snprintf(name, sizeof name, "p%d", i);
		zcc_param_options o = options_of(0, NULL);
		o.name = name;
		assert_int_equal(zcc_layout_add_param(layout, &o, &param, &error), ZCC_OK);
		assert_int_equal(param, i);
		assert_int_equal(zcc_layout_add_param(layout, &o, &param, &error), ZCC_EINVAL);
		assert_non_null(strstr(error.message, name));
	}
	assert_int_equal(zcc_layout_find(layout, "p271"), 271);
	assert_int_equal(zcc_layout_find(layout, "p300"), -1);
}

static void meshes_without_sense_are_refused(void **state)
{
	(void)state;
	begin(1, LIST(2));
	int32_t id = 77;
	assert_int_equal(zcc_layout_add_mesh(layout, 0, 0, "", NULL, &id, &error), ZCC_EINVAL);
	assert_int_equal(
	        zcc_layout_add_mesh(layout, 0, 9, "a,b,c,d,e,f,g,h,i", LIST(1, 1, 1, 1, 1, 1, 1, 1, 1), &id, &error),
	        ZCC_EINVAL);
	assert_int_equal(zcc_layout_add_mesh(layout, 0, 2, "a", LIST(1, 1), &id, &error), ZCC_EINVAL);
	assert_int_equal(zcc_layout_add_mesh(layout, 0, 1, "a", LIST(0), &id, &error), ZCC_EINVAL);
	assert_int_equal(zcc_layout_add_mesh(layout, -1, 1, "a", LIST(1), &id, &error), ZCC_EINVAL);
	assert_int_equal(zcc_layout_add_mesh(layout, INT32_MAX, 1, "a", LIST(1), &id, &error), ZCC_EINVAL);
	assert_int_equal(zcc_layout_add_mesh(layout, 0, 2, "a,b", LIST(INT64_MAX, 2), &id, &error), ZCC_EOVERFLOW);
	assert_int_equal(zcc_layout_add_mesh(layout, 0, 2, "a,b", LIST(1 << 16, 1 << 16), &id, &error), ZCC_EINVAL);
	assert_int_equal(id, 77);
}

/* Replicated rows beside a part that does not divide: under a flat cut the replicas would be divided at different
 * places. */
static void a_flat_cut_of_uneven_replicas_is_refused(void **state)
{
	(void)state;
	begin(2, LIST(2, 2));
	zcc_part parts[] = {{.size_elems = 5, .units = 5, .cut = ZCC_CUT_UNEVEN},
	                    {.size_elems = 4, .units = 1, .cut = ZCC_CUT_REPLICATE}};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .axis = 1, .n_parts = 2, .parts = parts};
	zcc_param_options o = options_of(1, LIST(9));
	o.placements = &p;
	o.n_placements = 1;
	o.n_cut_axes = 1;
	o.cut_axes = &(int32_t){0};
	refused(&o, ZCC_ELAYOUT, "parameter w", "axis b", "7 elements", "6 at");
	o.n_cut_axes = 0;
	add(&o);
}

static void ranks_and_parameters_that_are_not_there_are_refused(void **state)
{
	(void)state;
	begin(1, LIST(2));
	zcc_param_options o = options_of(1, LIST(4));
	add(&o);
	zcc_shard_info info;
	zcc_param_info param;
	int64_t n = 77;
	assert_int_equal(zcc_layout_shard(layout, 0, 2, &info, &error), ZCC_EINVAL);
	assert_non_null(strstr(error.message, "rank 2"));
	assert_int_equal(zcc_layout_pieces(layout, 1, 0, NULL, 0, &n, &error), ZCC_EINVAL);
	assert_int_equal(zcc_layout_param(layout, -1, &param, &error), ZCC_EINVAL);
	assert_int_equal(n, 77);
}

/* ---- memory ---- */

static zcc_status build_and_read(zcci_arena *arena)
{
	zcc_layout *made = NULL;
	int32_t m, param;
	zcc_part parts[] = {{.size_elems = 12, .units = 12, .cut = ZCC_CUT_EVEN},
	                    {.size_elems = 4, .units = 2, .cut = ZCC_CUT_GROUPED}};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .axis = 1, .dim = 1, .n_parts = 2, .parts = parts};
	zcc_status status = zcc_layout_create(&made, &error);
	if (status == ZCC_OK)
		status = zcc_layout_add_mesh(made, 0, 2, "dp,tp", LIST(3, 4), &m, &error);
	for (int32_t i = 0; i < 40 && status == ZCC_OK; i++) {
		char name[16];
		snprintf(name, sizeof name, "p%d", i);
		zcc_param_options o = options_of(2, LIST(5, 16));
		o.name = name;
		o.mesh = m;
		o.placements = &p;
		o.n_placements = 1;
		o.n_cut_axes = 1;
		o.cut_axes = &(int32_t){0};
		status = zcc_layout_add_param(made, &o, &param, &error);
	}
	for (int32_t r = 0; r < 12 && status == ZCC_OK; r++) {
		zcc_piece *pieces;
		int64_t n;
		status = zcci_layout_shard_pieces(made, 7, r, arena, &pieces, &n, &error);
	}
	zcci_block *blocks;
	int64_t n;
	if (status == ZCC_OK)
		status = zcci_layout_blocks(made, 3, arena, &blocks, &n, &error);
	zcc_layout_destroy(made);
	return status;
}

static void memory_may_run_out_at_any_allocation(void **state)
{
	(void)state;
	for (int64_t n = 1;; n++) {
		zcci_arena *arena = zcci_arena_create();
		memset(&error, 0, sizeof error);
		zcci_fail_alloc(n);
		zcc_status status = build_and_read(arena);
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		zcci_arena_destroy(arena);
		if (!hit) {
			assert_int_equal(status, ZCC_OK);
			assert_true(n > 10);
			return;
		}
		assert_int_equal(status, ZCC_ENOMEM);
		assert_int_equal(error.status, ZCC_ENOMEM);
	}
}

typedef struct reading {
	int32_t n[12];
	const int32_t *holders[12];
} reading;

static void *read_all(void *context)
{
	reading *r = context;
	for (int32_t times = 0; times < 200; times++) {
		for (int32_t rank = 0; rank < 12; rank++) {
			zcc_piece piece;
			int64_t n;
			if (zcc_layout_pieces(layout, 0, rank, &piece, 1, &n, NULL) != ZCC_OK)
				return NULL;
			r->n[rank] = piece.n_holders;
			r->holders[rank] = piece.holders;
		}
	}
	return NULL;
}

/* All get the very same lists, also when they ask for them first at the same time. */
static void several_threads_may_read_a_layout(void **state)
{
	(void)state;
	begin(2, LIST(3, 4));
	zcc_part part = {.size_elems = 8, .units = 2, .cut = ZCC_CUT_GROUPED};
	zcc_placement p = {.kind = ZCC_PLACE_SHARD, .axis = 1, .n_parts = 1, .parts = &part};
	zcc_param_options o = options_of(1, LIST(8));
	o.placements = &p;
	o.n_placements = 1;
	add(&o);
	pthread_t threads[4];
	reading readings[4] = {0};
	for (int32_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_all, &readings[i]), 0);
	for (int32_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int32_t rank = 0; rank < 12; rank++)
		assert_int_equal(readings[0].n[rank], 6);
	for (int32_t i = 1; i < 4; i++)
		assert_memory_equal(&readings[i], &readings[0], sizeof readings[0]);
}

static void a_retained_layout_outlives_its_maker(void **state)
{
	(void)state;
	begin(1, LIST(2));
	zcc_param_options o = options_of(1, LIST(4));
	add(&o);
	zcc_layout *kept = zcci_layout_retain(layout);
	zcc_layout_destroy(layout);
	layout = kept;
	expect_piece(1, 0, LIST(4), LIST(0), 0, RANKS(0, 1));
}

#define rule(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        rule(given_extents_may_be_zero),
	        rule(vocabulary_padding_is_in_the_shard_but_in_no_piece),
	        rule(a_rank_wholly_in_padding_has_a_shard_but_no_piece),
	        rule(a_flat_group_is_padded_to_its_alignment),
	        rule(two_heads_over_eight_ranks_are_stored_by_four_neighbours_each),
	        rule(replicated_rows_beside_cut_ones_name_all_ranks),
	        rule(an_uncut_fused_axis_is_one_piece),
	        rule(a_flat_cut_inside_rows_gives_heads_and_tails),
	        rule(a_sub_group_cut_is_replicated_over_the_groups),
	        rule(only_the_owner_stores_an_owned_parameter),
	        rule(a_second_mesh_of_the_same_ranks_has_its_own_coordinates),
	        rule(ranks_of_meshes_with_gaps_are_merged),
	        rule(a_scalar_is_one_element_everywhere_and_cut_flat_on_one_rank),
	        rule(a_parameter_without_elements_has_no_pieces),
	        rule(a_billion_rows_over_many_replicas_cost_what_ten_cost),
	        rule(what_does_not_divide_is_refused_with_the_numbers),
	        rule(parts_that_do_not_fit_are_refused_with_the_numbers),
	        rule(axes_that_are_not_there_or_taken_are_refused),
	        rule(sizes_over_63_bits_are_refused),
	        rule(options_without_sense_are_refused),
	        rule(a_name_is_taken_once),
	        rule(meshes_without_sense_are_refused),
	        rule(a_flat_cut_of_uneven_replicas_is_refused),
	        rule(ranks_and_parameters_that_are_not_there_are_refused),
	        rule(memory_may_run_out_at_any_allocation),
	        rule(several_threads_may_read_a_layout),
	        rule(a_retained_layout_outlives_its_maker),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
