/* What a plan accepts, refuses, says and promises; geometry is in test_plan_geometry. */
#include "plan_model.h"

#include "affine/plan.h"

/* Rows over 2 ranks to rows over 3. */
typedef struct pair {
	model s, t;
} pair;

static void make_pair(pair *p)
{
	set_mesh(&p->s, 0, DIMS(2));
	set_mesh(&p->t, 0, DIMS(3));
	shard_even(add_param(&p->s, DIMS(6, 2)), 0, 0);
	shard_even(add_param(&p->t, DIMS(6, 2)), 0, 0);
	add_param(&p->s, DIMS(5));
	add_param(&p->t, DIMS(5));
}

/* Planning must fail, leave *plan alone and say each of the words. */
static void expect_refusal(const pair *p, zcc_status wanted, const char *const *words)
{
	zcc_layout *source = build_layout(&p->s), *target = build_layout(&p->t);
	zcc_plan *untouched = (zcc_plan *)p, *plan = untouched;
	zcc_error error = {0};
	zcc_status status = zcc_plan_create(target, source, &plan, &error);
	assert_int_equal(status, wanted);
	assert_int_equal(error.status, wanted);
	assert_ptr_equal(plan, untouched);
	for (; *words != NULL; words++)
		if (strstr(error.message, *words) == NULL)
			fail_msg("\"%s\" is not in \"%s\"", *words, error.message);
	assert_int_equal(zcc_plan_create(target, source, &plan, NULL), wanted);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
}

#define WORDS(...)                                                                                                     \
	(const char *const[])                                                                                          \
	{                                                                                                              \
		__VA_ARGS__, NULL                                                                                      \
	}

static zcc_plan *plan_of(const pair *p, policy *choose)
{
	zcc_layout *source = build_layout(&p->s), *target = build_layout(&p->t);
	zcc_plan *plan = make_plan(target, source, choose);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
	return plan;
}

static void a_parameter_of_one_layout_only_is_named(void **state)
{
	(void)state;
	pair p;
	make_pair(&p);
	snprintf(p.s.params[1].name, sizeof p.s.params[1].name, "odd.one");
	expect_refusal(&p, ZCC_EMAP, WORDS("target only: 1, p1", "source only: 1, odd.one"));
	make_pair(&p);
	add_param(&p.t, DIMS(2));
	expect_refusal(&p, ZCC_EMAP, WORDS("target only: 1, p2", "source only: 0"));
}

static void shapes_that_differ_are_both_shown(void **state)
{
	(void)state;
	pair p;
	make_pair(&p);
	p.s.params[1].shape[0] = 4;
	expect_refusal(&p, ZCC_EMAP, WORDS("p1", "[5] in the target", "[4] in the source"));
	make_pair(&p);
	p.s.params[1].options.ndim = 2;
	p.s.params[1].shape[1] = 1;
	expect_refusal(&p, ZCC_EMAP, WORDS("p1", "[5] in the target", "[5, 1] in the source"));
}

static void dtypes_convert_between_the_floating_ones_only(void **state)
{
	(void)state;
	const int32_t floating[] = {ZCC_F16, ZCC_BF16, ZCC_F32, ZCC_F64};
	pair p;
	for (int32_t i = 0; i < 16; i++) {
		make_pair(&p);
		p.t.params[0].options.dtype = floating[i / 4];
		p.s.params[0].options.dtype = floating[i % 4];
		zcc_plan *plan = plan_of(&p, choose_lowest);
		zcc_plan_stats stats;
		assert_int_equal(zcc_plan_stats_get(plan, &stats, NULL), ZCC_OK);
		/* Counted in the source's dtype: 12 elements once, 5 of I32 three times. */
		assert_int_equal(stats.sent_bytes + stats.local_bytes, 12 * zcc_dtype_bytes(floating[i % 4]) + 60);
		zcc_plan_destroy(plan);
	}
	make_pair(&p);
	p.t.params[0].options.dtype = ZCC_BF16;
	expect_refusal(&p, ZCC_ELAYOUT, WORDS("p0", "I32 in the source", "BF16 in the target"));
	make_pair(&p);
	p.s.params[1].options.dtype = ZCC_F8_E4M3;
	p.t.params[1].options.dtype = ZCC_F16;
	expect_refusal(&p, ZCC_ELAYOUT, WORDS("p1", "F8_E4M3 in the source", "F16 in the target"));
}

static void the_factor_is_target_scale_over_source_scale(void **state)
{
	(void)state;
	pair p;
	make_pair(&p);
	for (int32_t i = 0; i < 2; i++) {
		p.s.params[i].options.dtype = ZCC_F32;
		p.t.params[i].options.dtype = ZCC_F32;
	}
	p.s.params[1].options.scale = 0.5;
	p.t.params[1].options.scale = 0.125;
	zcc_plan *plan = plan_of(&p, choose_lowest);
	int64_t n;
	const zcc_segment *segments = zcc_plan_segments(plan, &n);
	assert_true(n > 0);
	for (int64_t i = 0; i < n; i++)
		assert_true(segments[i].factor == (segments[i].param == 1 ? 0.25 : 1));
	zcc_plan_destroy(plan);
}

static void a_scale_needs_a_floating_dtype(void **state)
{
	(void)state;
	pair p;
	make_pair(&p);
	/* Equal scales cancel out. */
	p.s.params[1].options.dtype = p.t.params[1].options.dtype = ZCC_F32;
	p.s.params[1].options.scale = p.t.params[1].options.scale = 0.5;
	zcc_plan_destroy(plan_of(&p, choose_lowest));
	p.s.params[1].options.dtype = p.t.params[1].options.dtype = ZCC_F8_E5M2;
	p.t.params[1].options.scale = 1;
	zcc_layout *layout = try_layout(&p.s);
	if (layout == NULL)
		return; /* the layout itself refuses it */
	zcc_layout_destroy(layout);
	expect_refusal(&p, ZCC_ELAYOUT, WORDS("p1", "target rank 0", "scale of 2", "F8_E5M2"));
}

static void every_holder_of_a_region_is_listed(void **state)
{
	(void)state;
	model s, t;
	set_mesh(&s, 3, DIMS(3, 2));
	set_mesh(&t, 9, DIMS(1));
	shard_even(add_param(&s, DIMS(4)), 1, 0);
	add_param(&t, DIMS(4));
	zcc_layout *source = build_layout(&s), *target = build_layout(&t);
	zcc_plan *plan = NULL;
	assert_int_equal(zcc_plan_create(target, source, &plan, NULL), ZCC_OK);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
	int64_t n;
	const zcc_region *regions = zcc_plan_regions(plan, &n);
	assert_int_equal(n, 2);
	for (int32_t i = 0; i < n; i++) {
		assert_int_equal(regions[i].param, 0);
		assert_int_equal(regions[i].target_rank, 9);
		assert_int_equal(regions[i].chosen, -1);
		assert_int_equal(regions[i].elems, 2);
		assert_int_equal(regions[i].bytes, 8);
		assert_int_equal(regions[i].origin_elems[0], 2 * i);
		assert_int_equal(regions[i].n_holders, 3);
		for (int32_t k = 0; k < 3; k++)
			assert_int_equal(regions[i].holders[k], 3 + 2 * k + i);
	}
	zcc_plan_destroy(plan);
}

static void what_is_no_holder_cannot_be_chosen(void **state)
{
	(void)state;
	pair p;
	make_pair(&p);
	zcc_layout *source = build_layout(&p.s), *target = build_layout(&p.t);
	zcc_plan *plan = NULL;
	zcc_error error = {0};
	int64_t n;
	assert_int_equal(zcc_plan_create(target, source, &plan, NULL), ZCC_OK);
	const zcc_region *regions = zcc_plan_regions(plan, &n);
	assert_int_equal(n, 4 + 3);
	/* The last region is the replicated p1 on rank 2: ranks 0 and 1 hold it. */
	const int32_t wrong[] = {2, -1, INT32_MAX, INT32_MIN};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_int_equal(zcc_plan_choose(plan, n - 1, wrong[i], &error), ZCC_EPOLICY);
		assert_int_equal(regions[n - 1].chosen, -1);
	}
	assert_int_equal(zcc_plan_choose(plan, n - 1, 2, &error), ZCC_EPOLICY);
	assert_non_null(strstr(error.message, "parameter p1, target rank 2, region 6: holder 2 was chosen, 0 to 1"));
	const int64_t nowhere[] = {n, -1, INT64_MAX, INT64_MIN};
	for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++)
		assert_int_equal(zcc_plan_choose(plan, nowhere[i], 0, &error), ZCC_EINVAL);
	assert_int_equal(zcc_plan_choose(plan, n - 1, 1, &error), ZCC_OK);
	assert_int_equal(regions[n - 1].chosen, 1);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
}

static void segments_are_built_once_from_a_full_choice(void **state)
{
	(void)state;
	pair p;
	make_pair(&p);
	zcc_layout *source = build_layout(&p.s), *target = build_layout(&p.t);
	zcc_plan *plan = NULL;
	zcc_error error = {0};
	int64_t n, digest;
	zcc_plan_stats stats;
	assert_int_equal(zcc_plan_create(target, source, &plan, NULL), ZCC_OK);
	zcc_plan_regions(plan, &n);
	for (int64_t i = 0; i < n - 1; i++)
		assert_int_equal(zcc_plan_choose(plan, i, 0, NULL), ZCC_OK);
	assert_int_equal(zcc_plan_build(plan, &error), ZCC_EPOLICY);
	assert_non_null(strstr(error.message, "parameter p1, target rank 2, region 6"));
	assert_int_equal(zcc_plan_digest(plan, &digest, &error), ZCC_EINVAL);
	assert_int_equal(zcc_plan_write(plan, NULL, &error), ZCC_EINVAL);
	assert_null(zcc_plan_segments(plan, &n));
	assert_int_equal(n, 0);
	assert_int_equal(zcc_plan_stats_get(plan, &stats, NULL), ZCC_OK);
	assert_int_equal(stats.regions, 7);
	assert_int_equal(stats.segments, 0);
	assert_int_equal(zcc_plan_choose(plan, 6, 0, NULL), ZCC_OK);
	assert_int_equal(zcc_plan_build(plan, &error), ZCC_OK);
	assert_int_equal(zcc_plan_build(plan, &error), ZCC_EINVAL);
	assert_int_equal(zcc_plan_choose(plan, 6, 0, &error), ZCC_EINVAL);
	zcc_plan_segments(plan, &n);
	assert_int_equal(n, 7);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
	zcc_plan_destroy(NULL);
}

static void local_is_the_same_rank_number(void **state)
{
	(void)state;
	pair p;
	make_pair(&p);
	zcc_plan *plan = plan_of(&p, choose_balanced);
	zcc_plan_stats stats;
	assert_int_equal(zcc_plan_stats_get(plan, &stats, NULL), ZCC_OK);
	/* p0 in rows of 8 bytes: rows 0, 1 stay on rank 0, row 3 on rank 1, the rest moves; p1: only rank 2 lacks it.
	 */
	assert_int_equal(stats.local_bytes, 3 * 8 + 2 * 20);
	assert_int_equal(stats.sent_bytes, 3 * 8 + 20);
	assert_int_equal(stats.elems, 12 + 15);
	zcc_plan_destroy(plan);
	/* Other numbers, nothing local. */
	p.t.base = 2;
	plan = plan_of(&p, choose_balanced);
	assert_int_equal(zcc_plan_stats_get(plan, &stats, NULL), ZCC_OK);
	assert_int_equal(stats.local_bytes, 0);
	zcc_plan_destroy(plan);
}

static int64_t digest_of(const pair *p, policy *choose)
{
	zcc_plan *plan = plan_of(p, choose);
	int64_t digest = 0;
	assert_int_equal(zcc_plan_digest(plan, &digest, NULL), ZCC_OK);
	zcc_plan_destroy(plan);
	return digest;
}

static void choose_highest(zcc_plan *plan)
{
	int64_t n;
	const zcc_region *regions = zcc_plan_regions(plan, &n);
	for (int64_t i = 0; i < n; i++)
		assert_int_equal(zcc_plan_choose(plan, i, regions[i].n_holders - 1, NULL), ZCC_OK);
}

static void equal_plans_have_equal_digests(void **state)
{
	(void)state;
	pair p, other;
	make_pair(&p);
	int64_t digest = digest_of(&p, choose_lowest);
	assert_int_equal(digest_of(&p, choose_lowest), digest);
	/* The source's own order of parameters is no part of the plan. */
	set_mesh(&other.s, 0, DIMS(2));
	add_param(&other.s, DIMS(5));
	shard_even(add_param(&other.s, DIMS(6, 2)), 0, 0);
	snprintf(other.s.params[0].name, sizeof other.s.params[0].name, "p1");
	snprintf(other.s.params[1].name, sizeof other.s.params[1].name, "p0");
	other.t = p.t;
	for (int32_t i = 0; i < 2; i++) {
		other.t.params[i].options.name = other.t.params[i].name;
		other.t.params[i].options.shape_elems = other.t.params[i].shape;
		other.t.params[i].options.placements = other.t.params[i].placements;
	}
	assert_int_equal(digest_of(&other, choose_lowest), digest);
}

/* The same parameters, all on the first of some ranks. */
static void own_by_first(model *m, int64_t ranks)
{
	set_mesh(m, 0, DIMS(ranks));
	place_owner(add_param(m, DIMS(6, 2)), 0, 0);
	place_owner(add_param(m, DIMS(5)), 0, 0);
}

static void plans_that_differ_have_other_digests(void **state)
{
	(void)state;
	int64_t digests[32];
	int32_t n = 0;
	pair p;
	make_pair(&p);
	digests[n++] = digest_of(&p, choose_lowest);
	digests[n++] = digest_of(&p, choose_highest);
	p.t.base = 1;
	digests[n++] = digest_of(&p, choose_lowest);
	make_pair(&p);
	p.s.base = 1;
	digests[n++] = digest_of(&p, choose_lowest);
	make_pair(&p);
	p.s.params[0].options.dtype = p.t.params[0].options.dtype = ZCC_U32;
	digests[n++] = digest_of(&p, choose_lowest);
	p.s.params[0].options.dtype = ZCC_F32;
	p.t.params[0].options.dtype = ZCC_BF16;
	digests[n++] = digest_of(&p, choose_lowest);
	p.t.params[0].options.dtype = ZCC_F32;
	digests[n++] = digest_of(&p, choose_lowest);
	p.t.params[0].options.scale = 2;
	digests[n++] = digest_of(&p, choose_lowest);
	make_pair(&p);
	strcpy(p.s.params[0].name, "q0");
	strcpy(p.t.params[0].name, "q0");
	digests[n++] = digest_of(&p, choose_lowest);
	make_pair(&p);
	p.s.params[1].shape[0] = p.t.params[1].shape[0] = 6;
	digests[n++] = digest_of(&p, choose_lowest);
	make_pair(&p);
	p.t.params[0].options.dtype = ZCC_BF16;
	p.s.params[0].options.dtype = ZCC_F16;
	digests[n++] = digest_of(&p, choose_lowest);
	/* Empty parameters, which no segment shows. */
	for (int64_t columns = 3; columns < 5; columns++) {
		make_pair(&p);
		add_param(&p.s, DIMS(0, columns));
		add_param(&p.t, DIMS(0, columns));
		digests[n++] = digest_of(&p, choose_lowest);
	}
	/* Ranks that store nothing. */
	for (int64_t ranks = 4; ranks < 6; ranks++) {
		make_pair(&p);
		own_by_first(&p.t, ranks);
		digests[n++] = digest_of(&p, choose_lowest);
		make_pair(&p);
		own_by_first(&p.s, ranks);
		digests[n++] = digest_of(&p, choose_lowest);
	}
	assert_true(n <= (int32_t)(sizeof digests / sizeof *digests));
	for (int32_t i = 0; i < n; i++)
		for (int32_t k = 0; k < i; k++)
			if (digests[i] == digests[k])
				fail_msg("plans %d and %d have one digest", (int)k, (int)i);
}

static void the_document_says_every_segment(void **state)
{
	(void)state;
	model s, t;
	set_mesh(&s, 0, DIMS(2));
	shard_even(add_param(&s, DIMS(2, 4)), 0, 0);
	set_mesh(&t, 5, DIMS(2));
	shard_even(add_param(&t, DIMS(2, 4)), 0, 1);
	s.params[0].options.dtype = ZCC_F32;
	t.params[0].options.dtype = ZCC_BF16;
	t.params[0].options.scale = 0.5;
	add_param(&s, DIMS(0));
	add_param(&t, DIMS(0));
	zcc_layout *source = build_layout(&s), *target = build_layout(&t);
	zcc_plan *plan = make_plan(target, source, choose_lowest);
	zcc_json_writer *writer = NULL;
	const char *text;
	int64_t bytes;
	assert_int_equal(zcc_json_writer_create(0, &writer, NULL), ZCC_OK);
	assert_int_equal(zcc_plan_write(plan, writer, NULL), ZCC_OK);
	assert_int_equal(zcc_json_writer_text(writer, &text, &bytes, NULL), ZCC_OK);
	const char *wanted = "{\"version\":1,\"params\":[{\"name\":\"p0\",\"logical_shape\":[2,4],\"dtype\":\"F32\","
	                     "\"target_dtype\":\"BF16\",\"segments\":["
	                     "{\"shape\":[1,2],\"source\":[0,0,[4,1]],\"target\":[5,0,[2,1]],\"logical_origin\":[0,0],"
	                     "\"factor\":0.5},"
	                     "{\"shape\":[1,2],\"source\":[1,0,[4,1]],\"target\":[5,2,[2,1]],\"logical_origin\":[1,0],"
	                     "\"factor\":0.5},"
	                     "{\"shape\":[1,2],\"source\":[0,2,[4,1]],\"target\":[6,0,[2,1]],\"logical_origin\":[0,2],"
	                     "\"factor\":0.5},"
	                     "{\"shape\":[1,2],\"source\":[1,2,[4,1]],\"target\":[6,2,[2,1]],\"logical_origin\":[1,2],"
	                     "\"factor\":0.5}"
	                     "]},{\"name\":\"p1\",\"logical_shape\":[0],\"dtype\":\"I32\",\"segments\":[]}]}";
	char *compact = calloc(1, (size_t)bytes + 1);
	for (int64_t i = 0, used = 0; i < bytes; i++)
		if (text[i] != ' ' && text[i] != '\n')
			compact[used++] = text[i];
	assert_string_equal(compact, wanted);
	free(compact);
	zcc_json_writer_destroy(writer);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
}

static void a_plan_keeps_its_layouts_alive(void **state)
{
	(void)state;
	pair p;
	make_pair(&p);
	zcc_layout *source = build_layout(&p.s), *target = build_layout(&p.t);
	zcc_plan *plan = NULL;
	assert_int_equal(zcc_plan_create(target, source, &plan, NULL), ZCC_OK);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
	assert_ptr_equal(zcci_plan_layout(plan, ZCC_SOURCE), source);
	assert_ptr_equal(zcci_plan_layout(plan, ZCC_TARGET), target);
	choose_lowest(plan);
	zcc_plan *again = zcci_plan_retain(plan);
	zcc_plan_destroy(plan);
	assert_int_equal(zcc_plan_build(again, NULL), ZCC_OK);
	assert_int_equal(zcci_plan_source_param(again, 1), 1);
	zcc_plan_destroy(again);
}

/* Many regions and merges, so that every list grows. */
static void any_allocation_may_fail(void **state)
{
	(void)state;
	model s, t;
	set_mesh(&s, 0, DIMS(2, 3));
	set_mesh(&t, 0, DIMS(4));
	for (int32_t i = 0; i < 2; i++) {
		model_param *p = add_param(&s, DIMS(20, 36));
		shard_even(p, 0, 1);
		cut_flat(p, 0, 7, DIMS(1));
		shard_parts(add_param(&t, DIMS(20, 36)), 0, 1,
		            PARTS({12, 12, 0, ZCC_CUT_EVEN, 0}, {24, 24, 0, ZCC_CUT_EVEN, 0}));
	}
	zcc_layout *source = build_layout(&s), *target = build_layout(&t);
	zcc_plan *plan = make_plan(target, source, choose_lowest);
	int64_t wanted, digest, failures = 0;
	assert_int_equal(zcc_plan_digest(plan, &wanted, NULL), ZCC_OK);
	zcc_plan_destroy(plan);
	for (int64_t n = 1;; n++, failures++) {
		zcc_error error = {0};
		plan = NULL;
		zcci_fail_alloc(n);
		zcc_status status = zcc_plan_create(target, source, &plan, &error);
		if (status == ZCC_OK) {
			choose_lowest(plan);
			status = zcc_plan_build(plan, &error);
			/* What failed for want of memory may be tried again. */
			if (status == ZCC_ENOMEM)
				assert_int_equal(zcc_plan_build(plan, NULL), ZCC_OK);
			assert_int_equal(zcc_plan_digest(plan, &digest, NULL), ZCC_OK);
			assert_int_equal(digest, wanted);
		}
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		zcc_plan_destroy(plan);
		if (!hit)
			break;
		/* Giving back what is not needed may fail without harm; everything else must be reported. */
		assert_true(status == ZCC_ENOMEM || status == ZCC_OK);
		if (status == ZCC_ENOMEM)
			assert_int_equal(error.status, ZCC_ENOMEM);
		else
			assert_non_null(plan);
	}
	assert_true(failures > 10);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_parameter_of_one_layout_only_is_named),
	        cmocka_unit_test(shapes_that_differ_are_both_shown),
	        cmocka_unit_test(dtypes_convert_between_the_floating_ones_only),
	        cmocka_unit_test(the_factor_is_target_scale_over_source_scale),
	        cmocka_unit_test(a_scale_needs_a_floating_dtype),
	        cmocka_unit_test(every_holder_of_a_region_is_listed),
	        cmocka_unit_test(what_is_no_holder_cannot_be_chosen),
	        cmocka_unit_test(segments_are_built_once_from_a_full_choice),
	        cmocka_unit_test(local_is_the_same_rank_number),
	        cmocka_unit_test(equal_plans_have_equal_digests),
	        cmocka_unit_test(plans_that_differ_have_other_digests),
	        cmocka_unit_test(the_document_says_every_segment),
	        cmocka_unit_test(a_plan_keeps_its_layouts_alive),
	        cmocka_unit_test(any_allocation_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
