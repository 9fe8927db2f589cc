/* How many segments a change of layout takes, and that each moves what it should. Numbers of regions and segments
 * follow from the geometry alone and were counted by hand. */
#include "plan_model.h"

#define EVEN(size, units)                                                                                              \
	{                                                                                                              \
		size, units, 0, ZCC_CUT_EVEN, 0                                                                        \
	}
#define PADDED(size, padded)                                                                                           \
	{                                                                                                              \
		size, size, padded, ZCC_CUT_EVEN, 0                                                                    \
	}
#define REPLICATED(size)                                                                                               \
	{                                                                                                              \
		size, size, 0, ZCC_CUT_REPLICATE, 0                                                                    \
	}
#define GROUPED(size, units)                                                                                           \
	{                                                                                                              \
		size, units, 0, ZCC_CUT_GROUPED, 0                                                                     \
	}

static void given_extents_meet_at_every_border(void **state)
{
	(void)state;
	model s, t;
	set_mesh(&s, 0, DIMS(3));
	set_mesh(&t, 0, DIMS(5));
	shard_extents(add_param(&s, DIMS(48, 3)), 0, 0, DIMS(17, 16, 15));
	shard_extents(add_param(&t, DIMS(48, 3)), 0, 0, DIMS(10, 10, 10, 10, 8));
	assert_int_equal(check_pair(&t, &s, choose_lowest), 7);
}

static void empty_shards_take_part_without_segments(void **state)
{
	(void)state;
	model s, t;
	set_mesh(&s, 0, DIMS(3));
	set_mesh(&t, 0, DIMS(2));
	shard_extents(add_param(&s, DIMS(6, 7)), 0, 1, DIMS(3, 0, 4));
	shard_extents(add_param(&t, DIMS(6, 7)), 0, 1, DIMS(0, 7));
	assert_int_equal(check_pair(&t, &s, choose_lowest), 2);
}

static void a_parameter_without_elements_needs_nothing(void **state)
{
	(void)state;
	model s, t;
	set_mesh(&s, 0, DIMS(2));
	set_mesh(&t, 0, DIMS(4));
	shard_even(add_param(&s, DIMS(0, 8)), 0, 1);
	shard_even(add_param(&t, DIMS(0, 8)), 0, 1);
	assert_int_equal(check_pair(&t, &s, choose_lowest), 0);
}

static void a_parameter_without_axes_is_one_element(void **state)
{
	(void)state;
	model s, t;
	set_mesh(&s, 0, DIMS(2));
	set_mesh(&t, 0, DIMS(3));
	const int64_t none[1] = {0};
	add_param(&s, 0, none);
	add_param(&t, 0, none);
	assert_int_equal(check_pair(&t, &s, choose_lowest), 3);
}

static void grouped_heads(model *m, int64_t tp, int64_t heads, int64_t head_rows)
{
	set_mesh(m, 0, DIMS(tp));
	shard_parts(add_param(m, DIMS(heads * head_rows, 3)), 0, 0, PARTS(GROUPED(heads * head_rows, heads)));
}

static void every_replica_of_a_head_is_written(void **state)
{
	(void)state;
	model tp1, tp2, tp4, tp8;
	grouped_heads(&tp2, 2, 4, 2);
	grouped_heads(&tp8, 8, 4, 2);
	assert_int_equal(check_pair(&tp8, &tp2, choose_lowest), 8);
	assert_int_equal(check_pair(&tp2, &tp8, choose_lowest), 4);
	/* Two heads over more ranks than heads, and back. */
	grouped_heads(&tp1, 1, 2, 4);
	grouped_heads(&tp4, 4, 2, 4);
	grouped_heads(&tp8, 8, 2, 4);
	assert_int_equal(check_pair(&tp1, &tp4, choose_lowest), 2);
	assert_int_equal(check_pair(&tp8, &tp4, choose_lowest), 8);
	assert_int_equal(check_pair(&tp4, &tp1, choose_lowest), 4);
}

static void bigcode(model *m, int64_t tp)
{
	set_mesh(m, 0, DIMS(tp));
	shard_parts(add_param(m, DIMS(48, 2)), 0, 0, PARTS(EVEN(32, 32), REPLICATED(16)));
}

/* Half of each target's queries and its replicated rows follow each other in the source shard that target / 2 names. */
static void choose_half(zcc_plan *plan)
{
	int64_t n;
	const zcc_region *regions = zcc_plan_regions(plan, &n);
	int64_t load[2] = {0};
	for (int64_t i = 0; i < n; i++) {
		int32_t k = regions[i].n_holders == 1 ? 0 : regions[i].target_rank / 2;
		load[regions[i].holders[k]] += regions[i].bytes / 4 / 2;
		assert_int_equal(zcc_plan_choose(plan, i, k, NULL), ZCC_OK);
	}
	assert_int_equal(load[0], 48);
	assert_int_equal(load[1], 48);
}

static void what_is_adjacent_in_both_shards_merges(void **state)
{
	(void)state;
	model tp2, tp4;
	bigcode(&tp2, 2);
	bigcode(&tp4, 4);
	assert_int_equal(check_pair(&tp4, &tp2, choose_lowest), 7);
	assert_int_equal(check_pair(&tp2, &tp4, choose_lowest), 6);
	assert_int_equal(check_pair(&tp4, &tp2, choose_half), 6);
}

static void fused(model *m, int64_t tp, int32_t ndim, const int64_t *shape, int32_t n_parts, const zcc_part *parts)
{
	set_mesh(m, 0, DIMS(tp));
	shard_parts(add_param(m, ndim, shape), 0, 0, n_parts, parts);
}

static void equally_spaced_blocks_are_not_stacked(void **state)
{
	(void)state;
	model s, t;
	fused(&s, 2, DIMS(16, 4), PARTS(EVEN(8, 8), EVEN(8, 8)));
	fused(&t, 4, DIMS(16, 4), PARTS(EVEN(8, 8), EVEN(8, 8)));
	assert_int_equal(check_pair(&t, &s, choose_lowest), 8);

	fused(&s, 2, DIMS(24, 5), PARTS(EVEN(16, 4), EVEN(4, 2), EVEN(4, 2)));
	fused(&t, 1, DIMS(24, 5), PARTS(EVEN(16, 4), EVEN(4, 2), EVEN(4, 2)));
	assert_int_equal(check_pair(&t, &s, choose_lowest), 6);
	fused(&s, 2, DIMS(24), PARTS(EVEN(16, 4), EVEN(4, 2), EVEN(4, 2)));
	fused(&t, 1, DIMS(24), PARTS(EVEN(16, 4), EVEN(4, 2), EVEN(4, 2)));
	assert_int_equal(check_pair(&t, &s, choose_lowest), 6);

	/* Three parts of four blocks each. */
	fused(&s, 2, DIMS(24, 2), PARTS(EVEN(8, 4), EVEN(8, 4), EVEN(8, 4)));
	fused(&t, 4, DIMS(24, 2), PARTS(EVEN(8, 4), EVEN(8, 4), EVEN(8, 4)));
	assert_int_equal(check_pair(&t, &s, choose_lowest), 12);
}

static void column_groups_that_are_apart_take_one_segment_each(void **state)
{
	(void)state;
	model s, t;
	set_mesh(&s, 0, DIMS(2));
	shard_parts(add_param(&s, DIMS(8, 32)), 0, 1, PARTS(EVEN(16, 2), EVEN(16, 2)));
	/* The outer mesh axis takes the inner halves: ranks hold the groups 0, 2, 1, 3. */
	set_mesh(&t, 0, DIMS(2, 2));
	model_param *p = add_param(&t, DIMS(8, 32));
	shard_even(p, 1, 1);
	shard_parts(p, 0, 1, PARTS(EVEN(16, 16)));
	assert_int_equal(check_pair(&t, &s, choose_lowest), 4);
}

static void vocabulary(model *m, int64_t tp, int64_t rows, int64_t padded)
{
	set_mesh(m, 0, DIMS(tp));
	shard_parts(add_param(m, DIMS(rows, 3)), 0, 0, PARTS(PADDED(rows, padded)));
}

static void padding_is_neither_read_nor_written(void **state)
{
	(void)state;
	model tp4, tp2, tp3, tp1;
	vocabulary(&tp4, 4, 13, 16);
	vocabulary(&tp2, 2, 13, 14);
	vocabulary(&tp3, 3, 13, 15);
	vocabulary(&tp1, 1, 13, 13);
	assert_int_equal(check_pair(&tp2, &tp4, choose_lowest), 5);
	assert_int_equal(check_pair(&tp3, &tp4, choose_lowest), 6);
	assert_int_equal(check_pair(&tp1, &tp3, choose_lowest), 3);
}

static void flat_runs_join_where_both_sides_are_dense(void **state)
{
	(void)state;
	model s, t;
	set_mesh(&s, 0, DIMS(2, 3));
	model_param *p = add_param(&s, DIMS(8, 7));
	shard_even(p, 0, 0);
	cut_flat(p, 0, 0, DIMS(1));
	set_mesh(&t, 0, DIMS(4));
	shard_even(add_param(&t, DIMS(8, 7)), 0, 0);
	/* Each half of 28 elements is stored as 10, 10, 8 and wanted as 14, 14: two runs a target rank. */
	assert_int_equal(check_pair(&t, &s, choose_lowest), 8);

	set_mesh(&s, 0, DIMS(5));
	cut_flat(add_param(&s, DIMS(4, 3, 5)), 0, 0, DIMS(0));
	set_mesh(&t, 0, DIMS(2));
	shard_even(add_param(&t, DIMS(4, 3, 5)), 0, 0);
	/* Borders at 12, 24, 36, 48 against 30. */
	assert_int_equal(check_pair(&t, &s, choose_lowest), 6);
}

static void flat_cuts_of_column_shards_stay_few(void **state)
{
	(void)state;
	model s, t;
	set_mesh(&s, 0, DIMS(2, 3));
	model_param *p = add_param(&s, DIMS(5, 8));
	shard_even(p, 0, 1);
	cut_flat(p, 0, 0, DIMS(1));
	set_mesh(&t, 0, DIMS(4, 2));
	p = add_param(&t, DIMS(5, 8));
	shard_even(p, 0, 1);
	cut_flat(p, 0, 0, DIMS(1));
	zcc_layout *source = build_layout(&s), *target = build_layout(&t);
	int64_t n;
	assert_int_equal(zcc_layout_count_pieces(source, &n, NULL), ZCC_OK);
	assert_int_equal(n, 14);
	assert_int_equal(zcc_layout_count_pieces(target, &n, NULL), ZCC_OK);
	assert_int_equal(n, 16);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
	assert_true(check_pair(&t, &s, choose_lowest) <= 26);
}

static void experts(model *m, int64_t ranks, int32_t dim)
{
	set_mesh(m, 0, DIMS(ranks));
	shard_even(add_param(m, DIMS(8, 4, 6)), 0, dim);
}

static void experts_move_as_blocks(void **state)
{
	(void)state;
	model ep2, ep4, tp3;
	experts(&ep2, 2, 0);
	experts(&ep4, 4, 0);
	experts(&tp3, 3, 2);
	assert_int_equal(check_pair(&ep4, &ep2, choose_lowest), 4);
	assert_int_equal(check_pair(&tp3, &ep4, choose_lowest), 12);
}

static void rows_to_columns_are_strided_blocks(void **state)
{
	(void)state;
	model s, t;
	set_mesh(&s, 0, DIMS(2));
	shard_even(add_param(&s, DIMS(8, 8)), 0, 0);
	set_mesh(&t, 0, DIMS(4));
	shard_even(add_param(&t, DIMS(8, 8)), 0, 1);
	assert_int_equal(check_pair(&t, &s, choose_lowest), 8);

	zcc_layout *source = build_layout(&s), *target = build_layout(&t);
	zcc_plan *plan = make_plan(target, source, choose_lowest);
	int64_t n;
	const zcc_segment *segments = zcc_plan_segments(plan, &n);
	for (int64_t i = 0; i < n; i++) {
		const zcc_segment *g = &segments[i];
		assert_int_equal(g->target_rank, i / 2);
		assert_int_equal(g->source_rank, i % 2);
		assert_int_equal(g->ndim, 2);
		assert_int_equal(g->shape_elems[0], 4);
		assert_int_equal(g->shape_elems[1], 2);
		assert_int_equal(g->source_strides_elems[0], 8);
		assert_int_equal(g->source_strides_elems[1], 1);
		assert_int_equal(g->target_strides_elems[0], 2);
		assert_int_equal(g->target_strides_elems[1], 1);
		assert_int_equal(g->source_offset_elems, 2 * (i / 2));
		assert_int_equal(g->target_offset_elems, 8 * (i % 2));
		assert_int_equal(g->origin_elems[0], 4 * (i % 2));
		assert_int_equal(g->origin_elems[1], 2 * (i / 2));
	}
	zcc_plan_destroy(plan);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
}

static void replicated_norm_beside_cut_matrices(model *m, int64_t tp)
{
	set_mesh(m, 0, DIMS(tp));
	add_param(m, DIMS(7));
	shard_even(add_param(m, DIMS(12, 5)), 0, 0);
	shard_even(add_param(m, DIMS(5, 24)), 0, 1);
}

static void replicated_rows_and_columns_side_by_side(void **state)
{
	(void)state;
	model tp1, tp2, tp3, tp4;
	replicated_norm_beside_cut_matrices(&tp1, 1);
	replicated_norm_beside_cut_matrices(&tp2, 2);
	replicated_norm_beside_cut_matrices(&tp3, 3);
	replicated_norm_beside_cut_matrices(&tp4, 4);
	assert_int_equal(check_pair(&tp1, &tp2, choose_lowest), 1 + 2 + 2);
	assert_int_equal(check_pair(&tp2, &tp1, choose_lowest), 2 + 2 + 2);
	assert_int_equal(check_pair(&tp3, &tp4, choose_lowest), 3 + 6 + 6);
}

static void the_size_of_a_parameter_does_not_matter(void **state)
{
	(void)state;
	const int64_t rows[] = {10, 1000000000};
	int64_t n_segments[2], n_regions[2];
	for (int32_t i = 0; i < 2; i++) {
		model s, t;
		set_mesh(&s, 0, DIMS(2, 5));
		model_param *p = add_param(&s, DIMS(rows[i], 10));
		shard_even(p, 0, 0);
		shard_even(p, 1, 1);
		set_mesh(&t, 0, DIMS(5, 2));
		p = add_param(&t, DIMS(rows[i], 10));
		shard_even(p, 0, 0);
		cut_flat(p, 0, 0, DIMS(1));
		zcc_layout *source = build_layout(&s), *target = build_layout(&t);
		zcc_plan *plan = make_plan(target, source, choose_lowest);
		zcc_plan_regions(plan, &n_regions[i]);
		zcc_plan_segments(plan, &n_segments[i]);
		zcc_plan_destroy(plan);
		zcc_layout_destroy(source);
		zcc_layout_destroy(target);
	}
	assert_int_equal(n_regions[0], n_regions[1]);
	assert_int_equal(n_segments[0], n_segments[1]);
}

static void identity_copies_every_shard_to_itself(void **state)
{
	(void)state;
	model m;
	set_mesh(&m, 3, DIMS(2, 4));
	model_param *p = add_param(&m, DIMS(8, 9));
	shard_even(p, 0, 0);
	cut_flat(p, 0, 2, DIMS(1));
	shard_parts(add_param(&m, DIMS(14, 3)), 1, 0, PARTS(PADDED(14, 16)));
	zcc_layout *layout = build_layout(&m);
	zcc_plan *plan = make_plan(layout, layout, choose_balanced);
	int64_t n;
	const zcc_segment *segments = zcc_plan_segments(plan, &n);
	assert_int_equal(n, 16);
	for (int64_t i = 0; i < n; i++) {
		assert_int_equal(segments[i].source_rank, segments[i].target_rank);
		assert_int_equal(segments[i].source_offset_elems, segments[i].target_offset_elems);
	}
	zcc_plan_stats stats;
	assert_int_equal(zcc_plan_stats_get(plan, &stats, NULL), ZCC_OK);
	assert_int_equal(stats.sent_bytes, 0);
	assert_int_equal(stats.local_bytes, 4 * (8 * 9 + 2 * 14 * 3));
	assert_int_equal(stats.elems, 8 * 9 + 2 * 14 * 3);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(layout);
	check_pair(&m, &m, choose_balanced);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(given_extents_meet_at_every_border),
	        cmocka_unit_test(empty_shards_take_part_without_segments),
	        cmocka_unit_test(a_parameter_without_elements_needs_nothing),
	        cmocka_unit_test(a_parameter_without_axes_is_one_element),
	        cmocka_unit_test(every_replica_of_a_head_is_written),
	        cmocka_unit_test(what_is_adjacent_in_both_shards_merges),
	        cmocka_unit_test(equally_spaced_blocks_are_not_stacked),
	        cmocka_unit_test(column_groups_that_are_apart_take_one_segment_each),
	        cmocka_unit_test(padding_is_neither_read_nor_written),
	        cmocka_unit_test(flat_runs_join_where_both_sides_are_dense),
	        cmocka_unit_test(flat_cuts_of_column_shards_stay_few),
	        cmocka_unit_test(experts_move_as_blocks),
	        cmocka_unit_test(rows_to_columns_are_strided_blocks),
	        cmocka_unit_test(replicated_rows_and_columns_side_by_side),
	        cmocka_unit_test(the_size_of_a_parameter_does_not_matter),
	        cmocka_unit_test(identity_copies_every_shard_to_itself),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
