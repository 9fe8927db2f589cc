/* Random pairs of layouts, carried out on real memory and compared element by element with the model. ZCC_SEED=n
 * repeats a run, ZCC_CASES=n makes it longer. */
#include "plan_model.h"

static uint64_t random_state;

static int64_t pick(int64_t low, int64_t high)
{
	uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	z ^= z >> 31;
	return low + (int64_t)(z % (uint64_t)(high - low + 1));
}

static int64_t pick_divisor(int64_t n)
{
	int64_t found = 1;
	for (int64_t d = 2; d <= n; d++)
		if (n % d == 0 && pick(0, 1))
			found = d;
	return found;
}

/* Units for an extent; with a nonzero count of shares, a multiple of it. 0 where that cannot be. */
static int64_t pick_units(int64_t size, int64_t multiple)
{
	if (size == 0)
		return multiple;
	if (size % multiple != 0)
		return 0;
	return multiple * pick_divisor(size / multiple);
}

static bool pick_part(zcc_part *part, int64_t size, int64_t n)
{
	*part = (zcc_part){.size_elems = size};
	switch (pick(0, 3)) {
	case 0:
		part->cut = ZCC_CUT_EVEN;
		part->units = pick_units(size, n);
		return part->units > 0;
	case 1:
		part->cut = ZCC_CUT_UNEVEN;
		part->units = size > 0 ? pick_divisor(size) : 1;
		return true;
	case 2:
		part->cut = ZCC_CUT_REPLICATE;
		part->units = size > 0 ? pick_divisor(size) : 1;
		return true;
	default:
		part->cut = ZCC_CUT_GROUPED;
		part->units = pick_divisor(n);
		return size > 0 && size % part->units == 0;
	}
}

/* What one axis of the parameter measures locally: the same on every rank, or −1 where it differs. */
static int64_t local_extent(const zcc_placement *place, int64_t n)
{
	int64_t extent = 0;
	if (place->n_extents > 0)
		return -1;
	for (int32_t i = 0; i < place->n_parts; i++) {
		const zcc_part *part = &place->parts[i];
		if (part->cut == ZCC_CUT_UNEVEN || part->padded_elems > 0)
			return -1;
		extent += part->cut == ZCC_CUT_REPLICATE                    ? part->size_elems
		          : part->cut == ZCC_CUT_GROUPED && part->units < n ? part->size_elems / part->units
		                                                            : part->size_elems / n;
	}
	return extent;
}

static void shard_by_parts(model_param *p, int32_t axis, int32_t dim, int64_t size, int64_t n)
{
	zcc_part parts[MAX_PARTS];
	int32_t n_parts = (int32_t)pick(1, MAX_PARTS);
	int64_t left = size;
	for (int32_t i = 0; i < n_parts; i++) {
		int64_t share = i == n_parts - 1 ? left : pick(0, left);
		if (!pick_part(&parts[i], share, n))
			return;
		left -= share;
	}
	shard_parts(p, axis, dim, n_parts, parts);
}

static void shard_randomly(model_param *p, int32_t axis, int32_t dim, int64_t size, int64_t n)
{
	int64_t way = pick(0, 5);
	if (way == 0) {
		int64_t extents[8], left = size;
		for (int64_t i = 0; i < n; i++) {
			extents[i] = i == n - 1 ? left : pick(0, left);
			left -= extents[i];
		}
		shard_extents(p, axis, dim, (int32_t)n, extents);
	} else if (way == 1 && size > 0) {
		int64_t padded = (size + n - 1) / n * n + n * pick(0, 2);
		shard_parts(p, axis, dim, PARTS({size, size, padded, ZCC_CUT_EVEN, 0}));
	} else {
		shard_by_parts(p, axis, dim, size, n);
	}
}

static void place_randomly(const model *m, model_param *p)
{
	int64_t local[ZCC_MAX_NDIM], free_axes[4];
	int32_t n_free = 0;
	int64_t free_ranks = 1;
	memcpy(local, p->shape, sizeof local);
	for (int32_t axis = 0; axis < m->n_axes; axis++) {
		int64_t way = pick(0, 9);
		int32_t before = p->options.n_placements;
		int32_t dim = p->options.ndim > 0 ? (int32_t)pick(0, p->options.ndim - 1) : -1;
		if (way == 0) {
			place_owner(p, axis, (int32_t)pick(0, m->sizes[axis] - 1));
		} else if (way < 7 && dim >= 0 && local[dim] >= 0) {
			shard_randomly(p, axis, dim, local[dim], m->sizes[axis]);
			if (p->options.n_placements > before)
				local[dim] = local_extent(&p->placements[before], m->sizes[axis]);
		}
		if (p->options.n_placements == before) {
			free_axes[n_free++] = axis;
			free_ranks *= m->sizes[axis];
		}
	}
	if (n_free > 0 && pick(0, 2) > 0)
		cut_flat(p, pick(0, 1) ? 0 : pick_divisor(free_ranks), pick(0, 3), n_free, free_axes);
}

static void pick_mesh(model *m)
{
	int64_t sizes[3];
	int32_t n_axes = (int32_t)pick(1, 3);
	for (int32_t i = 0; i < n_axes; i++)
		sizes[i] = pick(1, n_axes < 3 ? 5 : 3);
	set_mesh(m, (int32_t)pick(0, 4), n_axes, sizes);
}

static void pick_pair(model *t, model *s)
{
	pick_mesh(t);
	pick_mesh(s);
	int32_t n_params = (int32_t)pick(1, 3);
	int64_t shapes[3][ZCC_MAX_NDIM];
	int32_t ndims[3];
	for (int32_t i = 0; i < n_params; i++) {
		static const int64_t longest[] = {0, 120, 24, 11, 7};
		ndims[i] = pick(0, 19) == 0 ? 0 : (int32_t)pick(1, 4);
		for (int32_t k = 0; k < ndims[i]; k++)
			shapes[i][k] = pick(0, 29) == 0 ? 0 : pick(1, longest[ndims[i]]);
		place_randomly(t, add_param(t, ndims[i], shapes[i]));
	}
	/* The source names them in another order. */
	for (int32_t i = n_params - 1; i >= 0; i--) {
		model_param *p = add_param(s, ndims[i], shapes[i]);
		snprintf(p->name, sizeof p->name, "p%d", (int)i);
		place_randomly(s, p);
	}
}

static void choose_randomly(zcc_plan *plan)
{
	int64_t n;
	const zcc_region *regions = zcc_plan_regions(plan, &n);
	for (int64_t i = 0; i < n; i++)
		assert_int_equal(zcc_plan_choose(plan, i, (int32_t)pick(0, regions[i].n_holders - 1), NULL), ZCC_OK);
}

static bool row_major(const zcc_segment *s, const int64_t *strides)
{
	int64_t step = 1;
	for (int32_t i = s->ndim - 1; i >= 0; step *= s->shape_elems[i], i--)
		if (s->shape_elems[i] > 1 && strides[i] != step)
			return false;
	return true;
}

static bool dense(const zcc_segment *s)
{
	return row_major(s, s->source_strides_elems) && row_major(s, s->target_strides_elems);
}

static bool could_join(const zcc_segment *a, const zcc_segment *b)
{
	if (a->param != b->param || a->source_rank != b->source_rank || a->target_rank != b->target_rank)
		return false;
	int64_t source_gap = b->source_offset_elems - a->source_offset_elems;
	int64_t target_gap = b->target_offset_elems - a->target_offset_elems;
	if (dense(a) && dense(b) && source_gap == a->elems && target_gap == a->elems)
		return true;
	if (a->ndim != b->ndim)
		return false;
	for (int32_t k = 0; k < a->ndim; k++) {
		bool same = source_gap == a->shape_elems[k] * a->source_strides_elems[k] &&
		            target_gap == a->shape_elems[k] * a->target_strides_elems[k];
		for (int32_t i = 0; i < a->ndim && same; i++)
			same = (i == k || a->shape_elems[i] == b->shape_elems[i]) &&
			       a->source_strides_elems[i] == b->source_strides_elems[i] &&
			       a->target_strides_elems[i] == b->target_strides_elems[i];
		if (same)
			return true;
	}
	return false;
}

static void check_merged(const zcc_segment *segments, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < n; k++)
			if (i != k && could_join(&segments[i], &segments[k]))
				fail_msg("segments %lld and %lld could be one", (long long)i, (long long)k);
}

static int64_t order(const zcc_segment *a, const zcc_segment *b)
{
	return a->param != b->param               ? a->param - b->param
	       : a->target_rank != b->target_rank ? a->target_rank - b->target_rank
	       : a->source_rank != b->source_rank ? a->source_rank - b->source_rank
	                                          : a->target_offset_elems - b->target_offset_elems;
}

/* Where the region's first element lies in the target shard. */
static int64_t region_address(const zcc_layout *target, const zcc_region *region)
{
	zcc_piece pieces[512];
	int64_t n;
	assert_int_equal(zcc_layout_pieces(target, region->param, region->target_rank, pieces, 512, &n, NULL), ZCC_OK);
	assert_in_range(n, 1, 512);
	for (int64_t i = 0; i < n; i++) {
		const zcc_piece *p = &pieces[i];
		int64_t address = p->dest_offset_elems;
		bool inside = true;
		for (int32_t k = 0; k < p->ndim; k++) {
			int64_t at = region->origin_elems[k] - p->origin_elems[k];
			inside = inside && at >= 0 && at + region->shape_elems[k] <= p->shape_elems[k];
			address += at * p->dest_strides_elems[k];
		}
		if (inside)
			return address;
	}
	fail_msg("a region lies in no piece of target rank %d", (int)region->target_rank);
	return -1;
}

static bool regions_ascend(const zcc_layout *target, const zcc_region *a, const zcc_region *b)
{
	if (a->param != b->param)
		return a->param < b->param;
	if (a->target_rank != b->target_rank)
		return a->target_rank < b->target_rank;
	return region_address(target, a) < region_address(target, b);
}

static void check_form(const model *t, const model *s)
{
	zcc_layout *target = build_layout(t), *source = build_layout(s);
	zcc_plan *plan = make_plan(target, source, choose_randomly);
	int64_t n, n_regions;
	const zcc_segment *segments = zcc_plan_segments(plan, &n);
	const zcc_region *regions = zcc_plan_regions(plan, &n_regions);
	assert_true(n <= n_regions);
	for (int64_t i = 1; i < n; i++)
		assert_true(order(&segments[i - 1], &segments[i]) < 0);
	for (int64_t i = 1; i < n_regions; i++)
		assert_true(regions_ascend(target, &regions[i - 1], &regions[i]));
	check_merged(segments, n);
	zcc_plan_destroy(plan);
	zcc_layout_destroy(target);
	zcc_layout_destroy(source);
}

static zcc_layout *through_document(const zcc_layout *layout)
{
	zcc_json_writer *writer = NULL;
	zcc_layout *read = NULL;
	zcc_error error = {0};
	const char *text;
	int64_t bytes;
	assert_int_equal(zcc_json_writer_create(0, &writer, NULL), ZCC_OK);
	assert_int_equal(zcc_layout_write(layout, writer, NULL), ZCC_OK);
	assert_int_equal(zcc_json_writer_text(writer, &text, &bytes, NULL), ZCC_OK);
	if (zcc_layout_parse(text, bytes, "document", &read, &error) != ZCC_OK)
		fail_msg("%s in %s", error.message, text);
	zcc_json_writer_destroy(writer);
	return read;
}

/* A layout that was written and read again is explicit: the other kind of map has to give a plan as good. A document
 * does not keep the strides of single rows, so that a few of them may stay apart. */
static void check_kinds(const model *t, const model *s)
{
	zcc_layout *target = build_layout(t), *source = build_layout(s);
	zcc_layout *read_target = through_document(target), *read_source = through_document(source);
	zcc_plan *plan = make_plan(target, source, choose_lowest);
	zcc_plan *read_plan = make_plan(read_target, read_source, choose_lowest);
	zcc_plan_stats stats, read_stats;
	assert_int_equal(zcc_plan_stats_get(plan, &stats, NULL), ZCC_OK);
	assert_int_equal(zcc_plan_stats_get(read_plan, &read_stats, NULL), ZCC_OK);
	assert_int_equal(read_stats.regions, stats.regions);
	assert_int_equal(read_stats.elems, stats.elems);
	assert_int_equal(read_stats.sent_bytes, stats.sent_bytes);
	assert_true(read_stats.segments <= stats.regions);
	int64_t n;
	const zcc_segment *segments = zcc_plan_segments(read_plan, &n);
	check_merged(segments, n);
	check_plan(read_plan, t, s);
	zcc_plan_destroy(plan);
	zcc_plan_destroy(read_plan);
	zcc_layout_destroy(target);
	zcc_layout_destroy(source);
	zcc_layout_destroy(read_target);
	zcc_layout_destroy(read_source);
}

/* Replicas that a flat cut would divide at different places are the one thing that a layout refuses here. */
static bool supported(const model *m)
{
	zcc_layout *layout = try_layout(m);
	zcc_layout_destroy(layout);
	return layout != NULL;
}

static void every_element_of_random_pairs_arrives(void **state)
{
	(void)state;
	const char *cases = getenv("ZCC_CASES");
	int64_t n = cases != NULL ? atoll(cases) : 600, segments = 0, refused = 0;
	for (int64_t i = 0; i < n; i++) {
		model t, s;
		pick_pair(&t, &s);
		if (!supported(&t) || !supported(&s)) {
			refused++;
			continue;
		}
		segments += check_pair(&t, &s, choose_randomly);
		check_form(&t, &s);
		check_kinds(&t, &s);
	}
	print_message("%lld cases, %lld of them refused, %lld segments\n", (long long)n, (long long)refused,
	              (long long)segments);
	assert_true(refused < n / 4);
	assert_true(segments > n);
}

int main(void)
{
	const char *seed = getenv("ZCC_SEED");
	random_state = seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t)zcc_clock_ns();
	print_message("ZCC_SEED=%llu\n", (unsigned long long)random_state);
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_element_of_random_pairs_arrives),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
