/* Structured layouts against a simulation that deals out every element by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "affine/layout.h"
#include "layouts.h"

/* ---- comparing a layout with the simulation ---- */

enum { MOST_RANKS = 64, MOST_PIECES = 512 };

static bool same_box(const zcc_piece *piece, const zcci_block *block)
{
	return memcmp(piece->origin_elems, block->origin_elems, (size_t)piece->ndim * 8) == 0 &&
	       memcmp(piece->shape_elems, block->shape_elems, (size_t)piece->ndim * 8) == 0;
}

static uint64_t mask_of(const int32_t *ranks, int32_t n, int32_t base)
{
	uint64_t mask = 0;
	for (int32_t i = 0; i < n; i++) {
		assert_true(i == 0 || ranks[i] > ranks[i - 1]);
		mask |= UINT64_C(1) << (ranks[i] - base);
	}
	return mask;
}

typedef struct laid_out {
	int32_t n_ranks, base;
	zcc_param_info info;
	int64_t n_pieces[MOST_RANKS];
	zcc_piece *pieces[MOST_RANKS];
	uint64_t *stored; /* ranks of every element */
} laid_out;

/* Every rank's shard equals the simulated one, padding too. */
static void compare_shards(const zcc_layout *layout, const zcc_param_options *o, int32_t n_axes, const int64_t *sizes,
                           laid_out *all)
{
	for (int32_t r = 0; r < all->n_ranks; r++) {
		tensor want = lay_out(o, n_axes, sizes, r);
		zcc_shard_info shard;
		assert_int_equal(zcc_layout_shard(layout, 0, all->base + r, &shard, NULL), ZCC_OK);
		assert_int_equal(shard.present, want.present);
		assert_int_equal(shard.ndim, want.ndim);
		assert_int_equal(shard.elems, want.elems);
		assert_memory_equal(shard.shape_elems, want.shape, sizeof want.shape);
		zcc_piece *pieces = malloc((size_t)(shard.n_pieces + 1) * sizeof *pieces);
		assert_int_equal(
		        zcc_layout_pieces(layout, 0, all->base + r, pieces, shard.n_pieces, &all->n_pieces[r], NULL),
		        ZCC_OK);
		assert_int_equal(all->n_pieces[r], shard.n_pieces);
		tensor have = want;
		have.at = malloc((size_t)(want.elems + 1) * sizeof *have.at);
		for (int64_t e = 0; e < want.elems; e++)
			have.at[e] = -1;
		for (int64_t i = 0; i < shard.n_pieces; i++) {
			assert_true(i == 0 || pieces[i].dest_offset_elems > pieces[i - 1].dest_offset_elems);
			assert_true(paint(&all->info, &pieces[i], &have, all->stored, r));
		}
		for (int64_t e = 0; e < want.elems; e++)
			assert_int_equal(have.at[e], want.at[e]);
		free(have.at);
		free(want.at);
		all->pieces[r] = pieces;
	}
}

static void compare_holders(const laid_out *all, const int64_t *shape, const int64_t *origin, uint64_t mask)
{
	int64_t size = 1;
	for (int32_t d = 0; d < all->info.ndim; d++)
		size *= shape[d];
	for (int64_t e = 0; e < size; e++) {
		int64_t rest = e, number = 0, stride = 1;
		for (int32_t d = all->info.ndim - 1; d >= 0; d--) {
			number += (origin[d] + rest % shape[d]) * stride;
			rest /= shape[d];
			stride *= all->info.shape_elems[d];
		}
		assert_int_equal(all->stored[number], mask);
	}
}

/* Blocks are the distinct pieces: disjoint, complete, and each holder has that very box. */
static void compare_blocks(const zcc_layout *layout, const laid_out *all)
{
	zcci_arena *arena = zcci_arena_create();
	zcci_block *blocks;
	int64_t n_blocks, volume = 0, holders = 0, pieces = 0, counted;
	assert_int_equal(zcci_layout_blocks(layout, 0, arena, &blocks, &n_blocks, NULL), ZCC_OK);
	for (int64_t b = 0; b < n_blocks; b++) {
		uint64_t mask = mask_of(blocks[b].holders, blocks[b].n_holders, all->base);
		compare_holders(all, blocks[b].shape_elems, blocks[b].origin_elems, mask);
		int64_t size = 1;
		for (int32_t d = 0; d < all->info.ndim; d++)
			size *= blocks[b].shape_elems[d];
		volume += size;
		holders += blocks[b].n_holders;
		if (b > 0)
			assert_true(memcmp(blocks[b].origin_elems, blocks[b - 1].origin_elems,
			                   sizeof blocks[b].origin_elems) != 0);
	}
	assert_int_equal(volume, all->info.elems);
	for (int32_t r = 0; r < all->n_ranks; r++) {
		pieces += all->n_pieces[r];
		for (int64_t i = 0; i < all->n_pieces[r]; i++) {
			const zcc_piece *piece = &all->pieces[r][i];
			compare_holders(all, piece->shape_elems, piece->origin_elems,
			                mask_of(piece->holders, piece->n_holders, all->base));
			int64_t b = 0;
			while (b < n_blocks && !same_box(piece, &blocks[b]))
				b++;
			assert_true(b < n_blocks);
			assert_int_equal(piece->n_holders, blocks[b].n_holders);
			assert_memory_equal(piece->holders, blocks[b].holders, (size_t)piece->n_holders * 4);
		}
	}
	assert_int_equal(holders, pieces);
	assert_int_equal(zcc_layout_count_pieces(layout, &counted, NULL), ZCC_OK);
	assert_int_equal(counted, pieces);
	zcci_arena_destroy(arena);
}

/* ---- the document ---- */

static bool same_piece(const zcc_piece *a, const zcc_piece *b)
{
	for (int32_t d = 0; d < a->ndim; d++)
		if (a->shape_elems[d] > 1 && a->dest_strides_elems[d] != b->dest_strides_elems[d])
			return false;
	return a->ndim == b->ndim && a->n_holders == b->n_holders && a->dest_offset_elems == b->dest_offset_elems &&
	       a->scale == b->scale && memcmp(a->shape_elems, b->shape_elems, sizeof a->shape_elems) == 0 &&
	       memcmp(a->origin_elems, b->origin_elems, sizeof a->origin_elems) == 0 &&
	       memcmp(a->holders, b->holders, (size_t)a->n_holders * 4) == 0;
}

/* Written and read again it is the same layout, validated by geometry. */
static void compare_document(const zcc_layout *layout, const laid_out *all)
{
	zcc_json_writer *writer;
	zcc_layout *again = NULL;
	const char *text;
	int64_t bytes, n;
	zcc_error error;
	assert_int_equal(zcc_json_writer_create(0, &writer, NULL), ZCC_OK);
	assert_int_equal(zcc_layout_write(layout, writer, NULL), ZCC_OK);
	assert_int_equal(zcc_json_writer_text(writer, &text, &bytes, NULL), ZCC_OK);
	if (zcc_layout_parse(text, bytes, "doc", &again, &error) != ZCC_OK) {
		fail_msg("%s\n%s", error.message, text);
	} else {
		for (int32_t r = 0; r < all->n_ranks; r++) {
			zcc_shard_info a, b;
			zcc_piece *pieces = malloc((size_t)(all->n_pieces[r] + 1) * sizeof *pieces);
			assert_int_equal(zcc_layout_shard(layout, 0, all->base + r, &a, NULL), ZCC_OK);
			if (a.present || zcc_layout_shard(again, 0, all->base + r, &b, NULL) == ZCC_OK) {
				assert_int_equal(zcc_layout_shard(again, 0, all->base + r, &b, NULL), ZCC_OK);
				assert_memory_equal(&a, &b, sizeof a);
				assert_int_equal(
				        zcc_layout_pieces(again, 0, all->base + r, pieces, all->n_pieces[r], &n, NULL),
				        ZCC_OK);
			}
			for (int64_t i = 0; i < all->n_pieces[r]; i++)
				assert_true(same_piece(&all->pieces[r][i], &pieces[i]));
			free(pieces);
		}
		compare_blocks(again, all);
	}
	zcc_layout_destroy(again);
	zcc_json_writer_destroy(writer);
}

/* Adds the parameter to a layout of one mesh; where it is taken, everything about it must be right. */
static zcc_status check(const zcc_param_options *o, int32_t n_axes, const int64_t *sizes, zcc_error *error)
{
	static const char *const names[] = {"", "a", "a,b", "a,b,c", "a,b,c,d"};
	zcc_layout *layout;
	int32_t mesh, param;
	laid_out all = {.base = 5};
	assert_int_equal(zcc_layout_create(&layout, NULL), ZCC_OK);
	assert_int_equal(zcc_layout_add_mesh(layout, all.base, n_axes, names[n_axes], sizes, &mesh, NULL), ZCC_OK);
	zcc_layout_ranks(layout, &all.n_ranks);
	zcc_status status = zcc_layout_add_param(layout, o, &param, error);
	if (status == ZCC_OK) {
		assert_int_equal(zcc_layout_param(layout, param, &all.info, NULL), ZCC_OK);
		all.stored = calloc((size_t)all.info.elems + 1, sizeof *all.stored);
		compare_shards(layout, o, n_axes, sizes, &all);
		compare_blocks(layout, &all);
		assert_int_equal(zcc_layout_validate(layout, NULL), ZCC_OK);
		compare_document(layout, &all);
		for (int32_t r = 0; r < all.n_ranks; r++)
			free(all.pieces[r]);
		free(all.stored);
	}
	zcc_layout_destroy(layout);
	return status;
}

/* ---- random layouts ---- */

typedef struct random_param {
	int32_t n_axes;
	int64_t sizes[4];
	int64_t shape[4];
	int64_t local[4]; /* what the cuts so far leave; −1: not the same everywhere */
	bool cut[4];
	zcc_placement placements[4];
	zcc_part parts[4][4];
	int64_t extents[4][4];
	int32_t flat[4];
	bool may_be_refused; /* replicas beside uneven cuts, cut flat */
	zcc_param_options o;
} random_param;

static void random_extents(random_param *p, zcc_placement *placement, int64_t *extents, int64_t n)
{
	int64_t total = 0;
	bool equal = true;
	for (int64_t c = 0; c < n; c++) {
		extents[c] = pick(0, 4);
		total += extents[c];
		equal = equal && extents[c] == extents[0];
	}
	placement->extents = extents;
	placement->n_extents = (int32_t)n;
	p->shape[placement->dim] = total;
	p->local[placement->dim] = equal ? extents[0] : -1;
}

/* One part that fits; *local is what each coordinate gets of it, −1 where that differs. */
static void random_part(zcc_part *part, int64_t n, int64_t *local)
{
	int64_t unit = pick(1, 3), units;
	part->cut = pick(ZCC_CUT_EVEN, ZCC_CUT_GROUPED);
	units = part->cut == ZCC_CUT_EVEN ? n * pick(0, 2) : pick(0, 5);
	if (part->cut == ZCC_CUT_GROUPED) {
		units = n * pick(1, 2);
		for (int64_t fewer = pick(1, 3); n % fewer == 0 && units > fewer; fewer = 5)
			units = fewer;
	}
	part->units = units;
	part->size_elems = unit * units;
	if (part->cut == ZCC_CUT_EVEN && units > 0 && pick(0, 2) == 0) {
		/* Fewer units than their padded number, down to none on the last coordinates. */
		part->padded_elems = part->size_elems;
		part->units = pick(1, (int32_t)units);
		part->size_elems = unit * part->units;
	}
	*local = part->cut == ZCC_CUT_REPLICATE              ? part->size_elems
	         : part->cut == ZCC_CUT_GROUPED && units < n ? unit
	         : part->cut == ZCC_CUT_UNEVEN && units % n != 0
	                 ? -1
	                 : (part->padded_elems > 0 ? part->padded_elems : part->size_elems) / n;
}

static void random_parts(random_param *p, zcc_placement *placement, zcc_part *parts, int64_t n)
{
	bool replicates = false, uneven = false;
	int64_t all = 0;
	placement->parts = parts;
	placement->n_parts = pick(1, 3);
	p->shape[placement->dim] = 0;
	for (int32_t i = 0; i < placement->n_parts; i++) {
		int64_t local;
		random_part(&parts[i], n, &local);
		replicates = replicates || parts[i].cut == ZCC_CUT_REPLICATE || parts[i].cut == ZCC_CUT_GROUPED;
		uneven = uneven || local < 0;
		all += local;
		p->shape[placement->dim] += parts[i].size_elems;
	}
	p->local[placement->dim] = uneven ? -1 : all;
	p->may_be_refused = p->may_be_refused || (replicates && uneven);
}

/* Cuts again what another axis left: two uneven parts of any rows. */
static void random_second_cut(random_param *p, zcc_placement *placement, zcc_part *parts)
{
	int64_t extent = p->local[placement->dim], first = pick(0, (int32_t)extent);
	placement->parts = parts;
	placement->n_parts = 2;
	parts[0] = (zcc_part){.size_elems = first, .units = first, .cut = ZCC_CUT_UNEVEN};
	parts[1] = (zcc_part){.size_elems = extent - first,
	                      .units = extent - first,
	                      .cut = pick(0, 3) == 0 ? ZCC_CUT_REPLICATE : ZCC_CUT_UNEVEN};
	p->may_be_refused = p->may_be_refused || parts[1].cut == ZCC_CUT_REPLICATE;
	p->local[placement->dim] = -1;
}

static void random_axis(random_param *p, int32_t axis)
{
	zcc_placement *placement = &p->placements[p->o.n_placements];
	int32_t role = pick(0, 5), dim = p->o.ndim > 0 ? pick(0, p->o.ndim - 1) : -1;
	*placement = (zcc_placement){.axis = axis, .dim = dim};
	if (role == 0) {
		placement->kind = ZCC_PLACE_OWNER;
		placement->owner = pick(0, (int32_t)p->sizes[axis] - 1);
		p->o.n_placements++;
	} else if (role <= 2) {
		p->flat[p->o.n_cut_axes++] = axis;
	} else if (role <= 4 && dim >= 0 && p->local[dim] >= 0) {
		placement->kind = ZCC_PLACE_SHARD;
		if (p->cut[dim])
			random_second_cut(p, placement, p->parts[axis]);
		else if (pick(0, 3) == 0)
			random_extents(p, placement, p->extents[axis], p->sizes[axis]);
		else
			random_parts(p, placement, p->parts[axis], p->sizes[axis]);
		p->cut[dim] = true;
		p->o.n_placements++;
	}
}

static void make_random(random_param *p)
{
	memset(p, 0, sizeof *p);
	zcc_param_options_init(&p->o);
	p->n_axes = pick(1, 4);
	for (int32_t a = 0, ranks = 1; a < p->n_axes; a++) {
		p->sizes[a] = pick(1, ranks > 8 ? 2 : 4);
		ranks *= (int32_t)p->sizes[a];
	}
	p->o.name = "p";
	p->o.dtype = ZCC_F32;
	p->o.ndim = pick(0, 4);
	for (int32_t d = 0; d < p->o.ndim; d++)
		p->shape[d] = p->local[d] = pick(0, 20) == 0 ? 0 : pick(1, 6);
	for (int32_t a = 0; a < p->n_axes; a++)
		random_axis(p, a);
	int64_t coords = 1;
	for (int32_t i = 0; i < p->o.n_cut_axes; i++)
		coords *= p->sizes[p->flat[i]];
	if (p->o.n_cut_axes == 2 && pick(0, 1) == 0) {
		int32_t swap = p->flat[0];
		p->flat[0] = p->flat[1];
		p->flat[1] = swap;
	}
	p->o.cut_group = pick(0, 4);
	if (p->o.cut_group > 0 && coords % p->o.cut_group != 0)
		p->o.cut_group = 0;
	p->o.cut_align_elems = pick(0, 3);
	p->o.shape_elems = p->shape;
	p->o.placements = p->placements;
	p->o.cut_axes = p->flat;
}

static void random_layouts_store_what_the_simulation_deals_out(void **state)
{
	(void)state;
	seed_random(20240611);
	int32_t refused = 0;
	enum { CASES = 4000 };
	for (int32_t i = 0; i < CASES; i++) {
		random_param p;
		zcc_error error;
		make_random(&p);
		int64_t elems = 1;
		for (int32_t d = 0; d < p.o.ndim; d++)
			elems *= p.shape[d];
		if (elems > 20000)
			continue;
		zcc_status status = check(&p.o, p.n_axes, p.sizes, &error);
		if (status != ZCC_OK) {
			if (!p.may_be_refused || p.o.n_cut_axes == 0)
				fail_msg("case %d: %s", i, error.message);
			assert_int_equal(status, ZCC_ELAYOUT);
			refused++;
		}
	}
	assert_true(refused < CASES / 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(random_layouts_store_what_the_simulation_deals_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
