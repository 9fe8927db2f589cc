/* The published figures for Qwen3-8B (DESIGN, "Numbers that must come out"): 399 parameters in bf16, dp=4,tp=2 to
 * dp=2,tp=4. */
#include "plan_model.h"

enum { LAYERS = 36, HIDDEN = 4096, INTERMEDIATE = 12288, HEADS = 32, KV_HEADS = 8, HEAD = 128, VOCABULARY = 151936 };

enum { DP = 0, TP = 1 };

typedef struct maker {
	zcc_layout *layout;
	int32_t mesh;
	int32_t zero;
} maker;

/* dim = −1: every rank of tp stores all of it. */
static void add(const maker *m, const char *name, int32_t ndim, const int64_t *shape, int32_t dim, int32_t cut,
                int64_t units)
{
	zcc_param_options options;
	zcc_param_options_init(&options);
	zcc_part part = {.size_elems = dim >= 0 ? shape[dim] : 0, .units = units, .cut = cut};
	zcc_placement placement = {.kind = ZCC_PLACE_SHARD, .axis = TP, .dim = dim, .n_parts = 1, .parts = &part};
	int32_t cut_axis = DP, index;
	options.name = name;
	options.dtype = ZCC_BF16;
	options.ndim = ndim;
	options.shape_elems = shape;
	options.mesh = m->mesh;
	options.placements = &placement;
	options.n_placements = dim >= 0;
	options.cut_axes = &cut_axis;
	options.n_cut_axes = m->zero == 3;
	zcc_error error = {0};
	if (zcc_layout_add_param(m->layout, &options, &index, &error) != ZCC_OK)
		fail_msg("%s", error.message);
}

static void add_layer(const maker *m, int32_t layer)
{
	const struct {
		const char *name;
		int32_t ndim, dim;
		int64_t shape[2];
		int32_t cut;
		int64_t units;
	} params[] = {
	        {"input_layernorm", 1, -1, {HIDDEN}, 0, 0},
	        {"self_attn.q_proj", 2, 0, {HEADS * HEAD, HIDDEN}, ZCC_CUT_EVEN, HEADS},
	        {"self_attn.k_proj", 2, 0, {KV_HEADS * HEAD, HIDDEN}, ZCC_CUT_GROUPED, KV_HEADS},
	        {"self_attn.v_proj", 2, 0, {KV_HEADS * HEAD, HIDDEN}, ZCC_CUT_GROUPED, KV_HEADS},
	        {"self_attn.o_proj", 2, 1, {HIDDEN, HEADS * HEAD}, ZCC_CUT_EVEN, HEADS},
	        {"self_attn.q_norm", 1, -1, {HEAD}, 0, 0},
	        {"self_attn.k_norm", 1, -1, {HEAD}, 0, 0},
	        {"post_attention_layernorm", 1, -1, {HIDDEN}, 0, 0},
	        {"mlp.gate_proj", 2, 0, {INTERMEDIATE, HIDDEN}, ZCC_CUT_EVEN, INTERMEDIATE},
	        {"mlp.up_proj", 2, 0, {INTERMEDIATE, HIDDEN}, ZCC_CUT_EVEN, INTERMEDIATE},
	        {"mlp.down_proj", 2, 1, {HIDDEN, INTERMEDIATE}, ZCC_CUT_EVEN, INTERMEDIATE},
	};
	for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
		char name[96];
		snprintf(name, sizeof name, "model.layers.%d.%s.weight", (int)layer, params[i].name);
		add(m, name, params[i].ndim, params[i].shape, params[i].dim, params[i].cut, params[i].units);
	}
}

static zcc_layout *qwen3_8b(int64_t dp, int64_t tp, int32_t zero)
{
	const int64_t wide[] = {VOCABULARY, HIDDEN}, narrow[] = {HIDDEN}, sizes[] = {dp, tp};
	maker m = {.zero = zero};
	assert_int_equal(zcc_layout_create(&m.layout, NULL), ZCC_OK);
	assert_int_equal(zcc_layout_add_mesh(m.layout, 0, 2, "dp,tp", sizes, &m.mesh, NULL), ZCC_OK);
	add(&m, "model.embed_tokens.weight", 2, wide, -1, 0, 0);
	for (int32_t layer = 0; layer < LAYERS; layer++)
		add_layer(&m, layer);
	add(&m, "model.norm.weight", 1, narrow, -1, 0, 0);
	add(&m, "lm_head.weight", 2, wide, 0, ZCC_CUT_EVEN, VOCABULARY);
	assert_int_equal(zcc_layout_params(m.layout), 399);
	return m.layout;
}

static void check_numbers(int32_t zero, policy *choose, int64_t sent, int64_t local)
{
	zcc_layout *source = qwen3_8b(4, 2, zero), *target = qwen3_8b(2, 4, 0);
	int64_t pieces, elems = 0;
	assert_int_equal(zcc_layout_count_pieces(source, &pieces, NULL), ZCC_OK);
	assert_int_equal(pieces, 3192);
	assert_int_equal(zcc_layout_count_pieces(target, &pieces, NULL), ZCC_OK);
	assert_int_equal(pieces, 3192);

	int64_t start = zcc_clock_ns();
	zcc_plan *plan = make_plan(target, source, choose);
	int64_t took = zcc_clock_ns() - start;
	zcc_plan_stats stats;
	assert_int_equal(zcc_plan_stats_get(plan, &stats, NULL), ZCC_OK);
	assert_int_equal(stats.sent_bytes, sent);
	assert_int_equal(stats.local_bytes, local);
	assert_int_equal(stats.elems * 2, sent + local);

	int64_t n;
	const zcc_segment *segments = zcc_plan_segments(plan, &n);
	assert_int_equal(stats.segments, n);
	for (int64_t i = 0; i < n; i++)
		elems += segments[i].elems;
	assert_int_equal(elems, stats.elems);
	print_message("zero=%d: %lld regions, %lld segments, %.1f ms\n", (int)zero, (long long)stats.regions,
	              (long long)stats.segments, (double)took / 1e6);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
}

static void published_bytes_come_out_exactly(void **state)
{
	(void)state;
	check_numbers(2, choose_lowest, 35205273600, 5029324800);
	check_numbers(2, choose_balanced, 15136194560, 25098403840);
	check_numbers(3, choose_balanced, 33959997440, 6274600960);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(published_bytes_come_out_exactly),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
