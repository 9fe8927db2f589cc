/* Plans between layouts that were read from map documents: pieces in places that no placement could put them. */
#include "plan_model.h"

/* One piece of a one-axis parameter: n elements from `source` on, at `dest` in the shard of `rank`. */
typedef struct run {
	int32_t rank;
	int64_t source, n, dest;
	double scale;
} run;

/* A map of "w" with shape [n]; pieces on several ranks at the same place are each other's replicas. */
static zcc_layout *read_runs(int64_t n, const char *dtype, int64_t shard, const run *runs, int32_t n_runs)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);
	fprintf(out, "{\"version\":1,\"params\":{\"w\":{\"logical_shape\":[%lld],\"dtype\":\"%s\",\"ranks\":{",
	        (long long)n, dtype);
	for (int32_t i = 0; i < n_runs; i++) {
		bool first = i == 0 || runs[i].rank != runs[i - 1].rank;
		if (first)
			fprintf(out, "%s\"%d\":{\"shard_shape\":[%lld],\"pieces\":[", i > 0 ? "]}," : "",
			        (int)runs[i].rank, (long long)shard);
		fprintf(out, "%s{\"shape\":[%lld],\"source\":[%lld,[1]],\"dest\":[%lld,[1]]", first ? "" : ",",
		        (long long)runs[i].n, (long long)runs[i].source, (long long)runs[i].dest);
		if (runs[i].scale != 0)
			fprintf(out, ",\"scale\":%g", runs[i].scale);
		fprintf(out, ",\"locations\":[");
		for (int32_t k = 0, some = 0; k < n_runs; k++)
			if (runs[k].source == runs[i].source && runs[k].n == runs[i].n)
				fprintf(out, "%s%d", some++ > 0 ? "," : "", (int)runs[k].rank);
		fprintf(out, "]}");
	}
	fprintf(out, "]}}}}}");
	fclose(out);
	zcc_layout *layout = NULL;
	zcc_error error = {0};
	if (zcc_layout_parse(text, (int64_t)bytes, "map", &layout, &error) != ZCC_OK)
		fail_msg("%s", error.message);
	free(text);
	return layout;
}

#define RUNS(...) (const run[]){__VA_ARGS__}, (int32_t)(sizeof((const run[]){__VA_ARGS__}) / sizeof(run))

static int64_t count_segments(zcc_layout *target, zcc_layout *source)
{
	zcc_plan *plan = make_plan(target, source, choose_lowest);
	int64_t n;
	zcc_plan_segments(plan, &n);
	zcc_plan_destroy(plan);
	return n;
}

/* Four blocks of query, value, key, two rows each; a rank keeps its blocks' queries together, then its values, then its
 * keys. */
static zcc_layout *codegen(int32_t tp)
{
	run runs[12];
	int32_t n = 0, blocks = 4 / tp;
	for (int32_t rank = 0; rank < tp; rank++)
		for (int32_t part = 0; part < 3; part++)
			for (int32_t i = 0; i < blocks; i++, n++)
				runs[n] = (run){rank, ((rank * blocks + i) * 3 + part) * 2, 2, (part * blocks + i) * 2,
				                0};
	return read_runs(24, "F32", 24 / tp, runs, n);
}

static void interleaved_parts_take_one_segment_each(void **state)
{
	(void)state;
	zcc_layout *tp2 = codegen(2), *tp4 = codegen(4), *tp1 = codegen(1);
	assert_int_equal(count_segments(tp4, tp2), 12);
	assert_int_equal(count_segments(tp2, tp4), 12);
	/* Two blocks of one part follow each other on both sides. */
	assert_int_equal(count_segments(tp1, tp2), 6);
	zcc_layout_destroy(tp1);
	zcc_layout_destroy(tp2);
	zcc_layout_destroy(tp4);
}

static void the_order_of_pieces_does_not_matter(void **state)
{
	(void)state;
	/* The upper half lies first in the shard: dest order is not the order of origins. */
	zcc_layout *source =
	        read_runs(12, "F32", 6, RUNS({3, 3, 3, 0, 0}, {3, 0, 3, 3, 0}, {9, 9, 3, 0, 0}, {9, 6, 3, 3, 0}));
	zcc_layout *again =
	        read_runs(12, "F32", 6, RUNS({9, 6, 3, 3, 0}, {9, 9, 3, 0, 0}, {3, 0, 3, 3, 0}, {3, 3, 3, 0, 0}));
	zcc_layout *target = read_runs(12, "F32", 12, RUNS({0, 0, 12, 0, 0}));
	zcc_plan *plan = make_plan(target, source, choose_lowest), *other = make_plan(target, again, choose_lowest);
	int64_t n, digest, other_digest;
	const zcc_segment *segments = zcc_plan_segments(plan, &n);
	assert_int_equal(n, 4);
	const int64_t ranks[] = {3, 3, 9, 9}, from[] = {3, 0, 3, 0}, to[] = {0, 3, 6, 9};
	for (int32_t i = 0; i < 4; i++) {
		assert_int_equal(segments[i].source_rank, ranks[i]);
		assert_int_equal(segments[i].source_offset_elems, from[i]);
		assert_int_equal(segments[i].target_offset_elems, to[i]);
		assert_int_equal(segments[i].origin_elems[0], to[i]);
	}
	assert_int_equal(zcc_plan_digest(plan, &digest, NULL), ZCC_OK);
	assert_int_equal(zcc_plan_digest(other, &other_digest, NULL), ZCC_OK);
	assert_int_equal(digest, other_digest);
	zcc_plan_destroy(plan);
	zcc_plan_destroy(other);
	zcc_layout_destroy(source);
	zcc_layout_destroy(again);
	zcc_layout_destroy(target);
}

static void replicas_cut_differently_are_fine_in_a_target_only(void **state)
{
	(void)state;
	zcc_layout *whole = read_runs(6, "F32", 6, RUNS({0, 0, 6, 0, 0}));
	const char *text = "{\"version\":1,\"params\":{\"w\":{\"logical_shape\":[6],\"dtype\":\"F32\",\"ranks\":{"
	                   "\"0\":{\"shard_shape\":[6],\"pieces\":[{\"shape\":[6],\"source\":[0,[1]],\"dest\":[0,[1]],"
	                   "\"locations\":[0,1]}]},"
	                   "\"1\":{\"shard_shape\":[6],\"pieces\":[{\"shape\":[2],\"source\":[0,[1]],\"dest\":[0,[1]],"
	                   "\"locations\":[0,1]},"
	                   "{\"shape\":[4],\"source\":[2,[1]],\"dest\":[2,[1]],\"locations\":[0,1]}]}}}}}";
	zcc_layout *cut = NULL;
	zcc_error error = {0};
	assert_int_equal(zcc_layout_parse(text, (int64_t)strlen(text), "map", &cut, &error), ZCC_OK);
	/* What was cut joins again: one copy for each rank. */
	assert_int_equal(count_segments(cut, whole), 2);
	zcc_plan *plan = NULL;
	assert_int_equal(zcc_plan_create(whole, cut, &plan, &error), ZCC_ELAYOUT);
	assert_non_null(strstr(error.message, "parameter w"));
	assert_null(plan);
	zcc_layout_destroy(cut);
	zcc_layout_destroy(whole);
}

static void parts_of_different_scale_are_different_copies(void **state)
{
	(void)state;
	zcc_layout *source = read_runs(8, "F32", 8, RUNS({0, 0, 4, 0, 0}, {0, 4, 4, 4, 0.5}));
	zcc_layout *target = read_runs(8, "BF16", 8, RUNS({0, 0, 8, 0, 2}));
	zcc_plan *plan = make_plan(target, source, choose_lowest);
	int64_t n;
	const zcc_segment *segments = zcc_plan_segments(plan, &n);
	assert_int_equal(n, 2);
	assert_true(segments[0].factor == 2);
	assert_true(segments[1].factor == 4);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
}

static void a_factor_must_be_a_finite_number(void **state)
{
	(void)state;
	zcc_layout *source = read_runs(8, "F32", 8, RUNS({0, 0, 8, 0, 1e300}));
	zcc_layout *target = read_runs(8, "F32", 8, RUNS({0, 0, 8, 0, 1e-300}));
	zcc_plan *plan = NULL;
	zcc_error error = {0};
	/* The factor is beyond what a double holds, either way. */
	assert_int_equal(zcc_plan_create(target, source, &plan, &error), ZCC_EMAP);
	assert_non_null(strstr(error.message, "parameter w, target rank 0"));
	assert_int_equal(zcc_plan_create(source, target, &plan, &error), ZCC_EMAP);
	assert_null(plan);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
}

/* 12 columns in shares of 3 become shards of 4 with a column of padding each. */
static void every_target_rank_may_have_padding(void **state)
{
	(void)state;
	zcc_layout *full = read_runs(12, "F32", 12, RUNS({0, 0, 12, 0, 0}));
	zcc_layout *padded =
	        read_runs(12, "F32", 4, RUNS({0, 0, 3, 0, 0}, {1, 3, 3, 0, 0}, {2, 6, 3, 0, 0}, {3, 9, 3, 0, 0}));
	zcc_plan *plan = make_plan(padded, full, choose_lowest);
	int64_t n;
	const zcc_segment *segments = zcc_plan_segments(plan, &n);
	assert_int_equal(n, 4);
	for (int64_t r = 0; r < 4; r++) {
		assert_int_equal(segments[r].target_rank, r);
		assert_int_equal(segments[r].source_offset_elems, 3 * r);
		assert_int_equal(segments[r].target_offset_elems, 0);
		assert_int_equal(segments[r].elems, 3);
	}
	zcc_plan_destroy(plan);
	zcc_layout_destroy(full);
	zcc_layout_destroy(padded);
}

/* The same copies of other elements are another plan. */
static void the_digest_knows_which_elements_move(void **state)
{
	(void)state;
	int64_t digests[2];
	for (int32_t i = 0; i < 2; i++) {
		const int64_t low = i == 0 ? 0 : 4, high = 4 - low;
		zcc_layout *source = read_runs(8, "F32", 8, RUNS({0, low, 4, 0, 0}, {0, high, 4, 4, 0}));
		zcc_layout *target = read_runs(8, "F32", 4, RUNS({0, low, 4, 0, 0}, {1, high, 4, 0, 0}));
		zcc_plan *plan = make_plan(target, source, choose_lowest);
		assert_int_equal(zcc_plan_digest(plan, &digests[i], NULL), ZCC_OK);
		zcc_plan_destroy(plan);
		zcc_layout_destroy(source);
		zcc_layout_destroy(target);
	}
	assert_int_not_equal(digests[0], digests[1]);
}

/* Thousands of blocks on either side: a search through all of them for each would take minutes. */
static void many_blocks_are_found_quickly(void **state)
{
	(void)state;
	enum { RANKS = 20000 };
	zcc_layout *layouts[2];
	for (int32_t side = 0; side < 2; side++) {
		char *text = NULL;
		size_t bytes;
		FILE *out = open_memstream(&text, &bytes);
		fprintf(out, "{\"version\":1,\"params\":{\"w\":{\"logical_shape\":[%d],\"dtype\":\"F32\",\"ranks\":{",
		        RANKS * 3);
		for (int32_t i = 0; i < RANKS; i++) {
			/* The target's borders are moved by one. */
			int32_t begin = 3 * i - (side == 1 && i > 0), end = 3 * i + 3 - (side == 1 && i < RANKS - 1);
			fprintf(out,
			        "%s\"%d\":{\"shard_shape\":[%d],\"pieces\":[{\"shape\":[%d],\"source\":[%d,[1]],"
			        "\"dest\":[0,[1]],"
			        "\"locations\":[%d]}]}",
			        i > 0 ? "," : "", (int)i, (int)(end - begin), (int)(end - begin), (int)begin, (int)i);
		}
		fprintf(out, "}}}}");
		fclose(out);
		zcc_error error = {0};
		layouts[side] = NULL;
		if (zcc_layout_parse(text, (int64_t)bytes, "map", &layouts[side], &error) != ZCC_OK)
			fail_msg("%s", error.message);
		free(text);
	}
	int64_t start = zcc_clock_ns();
	assert_int_equal(count_segments(layouts[1], layouts[0]), 2 * RANKS - 1);
	print_message("%d ranks to %d: %.1f ms\n", (int)RANKS, (int)RANKS, (double)(zcc_clock_ns() - start) / 1e6);
	zcc_layout_destroy(layouts[0]);
	zcc_layout_destroy(layouts[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(interleaved_parts_take_one_segment_each),
	        cmocka_unit_test(the_order_of_pieces_does_not_matter),
	        cmocka_unit_test(replicas_cut_differently_are_fine_in_a_target_only),
	        cmocka_unit_test(parts_of_different_scale_are_different_copies),
	        cmocka_unit_test(a_factor_must_be_a_finite_number),
	        cmocka_unit_test(every_target_rank_may_have_padding),
	        cmocka_unit_test(the_digest_knows_which_elements_move),
	        cmocka_unit_test(many_blocks_are_found_quickly),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
