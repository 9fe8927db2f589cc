/* Validation of explicit maps against an oracle that looks at every element, hostile documents, and large ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "affine/boxtree.h"
#include "affine/layout.h"
#include "layouts.h"

/* ---- a map that a test can spoil ---- */

enum { RANKS = 4, MOST = 24 };

typedef struct block {
	int32_t rank;
	int64_t origin[3], shape[3];
	int64_t dest; /* in a flat shard, dense */
	uint32_t locations;
	bool half; /* scale 0.5 */
} block;

typedef struct map {
	int32_t ndim;
	int64_t shape[3];
	int64_t shard[RANKS];
	int32_t n;
	block blocks[MOST];
} map;

static int64_t volume(const map *m, const int64_t *shape)
{
	int64_t v = 1;
	for (int32_t d = 0; d < m->ndim; d++)
		v *= shape[d];
	return v;
}

/* Cuts a box at a random place along a random axis, down to a few boxes, all for the same ranks. */
static void split(map *m, block whole, int32_t depth, int64_t *fill)
{
	int32_t axis = pick(0, m->ndim - 1);
	if (depth > 0 && whole.shape[axis] > 1) {
		block lower = whole, upper = whole;
		lower.shape[axis] = pick(1, (int32_t)whole.shape[axis] - 1);
		upper.origin[axis] += lower.shape[axis];
		upper.shape[axis] -= lower.shape[axis];
		split(m, lower, depth - 1, fill);
		split(m, upper, depth - 1, fill);
		return;
	}
	if (m->n == MOST)
		abort();
	whole.dest = fill[whole.rank];
	fill[whole.rank] += volume(m, whole.shape) + pick(0, 1);
	m->blocks[m->n++] = whole;
}

/* Valid: the parameter in two or three slabs, each held by some ranks, which may cut it differently. */
static void make_map(map *m)
{
	int64_t fill[RANKS] = {0};
	memset(m, 0, sizeof *m);
	m->ndim = pick(1, 3);
	for (int32_t d = 0; d < m->ndim; d++)
		m->shape[d] = pick(1, 4);
	int64_t at = 0;
	while (at < m->shape[0]) {
		block slab = {
		        .origin = {at}, .locations = (uint32_t)pick(1, (1 << RANKS) - 1), .half = pick(0, 3) == 0};
		memcpy(slab.shape, m->shape, sizeof slab.shape);
		slab.shape[0] = pick(1, (int32_t)(m->shape[0] - at));
		at += slab.shape[0];
		uint64_t same = random_state;
		for (slab.rank = 0; slab.rank < RANKS; slab.rank++) {
			if (!(slab.locations >> slab.rank & 1))
				continue;
			if (m->n > MOST / 2) {
				split(m, slab, 0, fill);
				continue;
			}
			if (pick(0, 3) > 0)
				random_state = same; /* cut as the others are */
			split(m, slab, 1, fill);
		}
		random_state ^= same << 7;
	}
	memcpy(m->shard, fill, sizeof fill);
}

static void spoil(map *m)
{
	block *b = &m->blocks[pick(0, m->n - 1)];
	int32_t axis = pick(0, m->ndim - 1);
	switch (pick(0, 8)) {
	case 0:
		b->locations ^= 1u << pick(0, RANKS - 1);
		break;
	case 1:
		b->half = !b->half;
		break;
	case 2:
		b->origin[axis] += pick(-1, 1);
		break;
	case 3:
		b->shape[axis] += pick(-1, 1);
		break;
	case 4:
		b->dest += pick(-2, 2);
		break;
	case 5:
		m->shard[b->rank] += pick(-2, 2);
		break;
	case 6:
		*b = m->blocks[--m->n];
		break;
	case 7:
		if (m->n < MOST)
			m->blocks[m->n++] = *b;
		break;
	default:
		b->rank = pick(0, RANKS - 1);
	}
}

/* Every rule of DESIGN's affine layer, element by element. */
static bool is_valid(const map *m)
{
	int64_t elems = volume(m, m->shape);
	static uint32_t stored[64], listed[64];
	static int32_t halves[64];
	static bool taken[RANKS][1024];
	memset(stored, 0, sizeof stored);
	memset(taken, 0, sizeof taken);
	for (int64_t e = 0; e < elems; e++)
		listed[e] = 0, halves[e] = -1;
	for (int32_t r = 0; r < RANKS; r++)
		if (m->shard[r] < 0)
			return false;
	for (int32_t i = 0; i < m->n; i++) {
		const block *b = &m->blocks[i];
		for (int32_t d = 0; d < m->ndim; d++)
			if (b->shape[d] < 0)
				return false;
		int64_t size = volume(m, b->shape);
		if (!(b->locations >> b->rank & 1))
			return false;
		for (int64_t k = 0; k < size; k++) {
			int64_t number = 0, stride = 1, rest = k, to = b->dest + k;
			for (int32_t d = m->ndim - 1; d >= 0; d--) {
				int64_t i = b->origin[d] + rest % b->shape[d];
				if (i < 0 || i >= m->shape[d])
					return false;
				number += i * stride;
				stride *= m->shape[d];
				rest /= b->shape[d];
			}
			if (to < 0 || to >= m->shard[b->rank] || taken[b->rank][to] || (stored[number] >> b->rank & 1))
				return false;
			taken[b->rank][to] = true;
			stored[number] |= 1u << b->rank;
			if (listed[number] != 0 && (listed[number] != b->locations || halves[number] != b->half))
				return false;
			listed[number] = b->locations;
			halves[number] = b->half;
		}
	}
	for (int64_t e = 0; e < elems; e++)
		if (stored[e] == 0 || stored[e] != listed[e])
			return false;
	return true;
}

/* ---- as a document ---- */

typedef struct text {
	char *at;
	size_t n, room;
} text;

static void print(text *t, const char *format, ...)
{
	va_list args;
	if (t->room - t->n < 512) {
		t->room = t->room * 2 + 4096;
		t->at = realloc(t->at, t->room);
	}
	va_start(args, format);
	t->n += (size_t)vsnprintf(t->at + t->n, t->room - t->n, format, args);
	va_end(args);
}

static void print_list(text *t, const int64_t *list, int32_t n)
{
	print(t, "[");
	for (int32_t i = 0; i < n; i++)
		print(t, "%s%lld", i > 0 ? "," : "", (long long)list[i]);
	print(t, "]");
}

static void print_strides(text *t, int32_t n, const int64_t *shape)
{
	int64_t strides[8], stride = 1;
	for (int32_t d = n - 1; d >= 0; d--) {
		strides[d] = stride;
		stride *= shape[d];
	}
	print_list(t, strides, n);
}

static void print_block(text *t, const map *m, const block *b, bool first)
{
	int64_t source = 0;
	for (int32_t d = 0; d < m->ndim; d++)
		source = source * m->shape[d] + b->origin[d];
	print(t, "%s{\"shape\":", first ? "" : ",");
	print_list(t, b->shape, m->ndim);
	print(t, ",\"source\":[%lld,", (long long)source);
	print_strides(t, m->ndim, m->shape);
	print(t, "],\"dest\":[%lld,", (long long)b->dest);
	print_strides(t, m->ndim, b->shape);
	print(t, "],\"locations\":[");
	for (int32_t r = 0, n = 0; r < RANKS; r++)
		if (b->locations >> r & 1)
			print(t, "%s%d", n++ > 0 ? "," : "", r);
	print(t, "]%s}", b->half ? ",\"scale\":0.5" : "");
}

static void print_map(text *t, const map *m)
{
	print(t, "{\"version\":1,\"params\":{\"w\":{\"logical_shape\":");
	print_list(t, m->shape, m->ndim);
	print(t, ",\"dtype\":\"BF16\",\"ranks\":{");
	for (int32_t r = 0; r < RANKS; r++) {
		print(t, "%s\"%d\":{\"shard_shape\":[%lld],\"pieces\":[", r > 0 ? "," : "", r, (long long)m->shard[r]);
		bool first = true;
		for (int32_t i = 0; i < m->n; i++) {
			if (m->blocks[i].rank != r)
				continue;
			print_block(t, m, &m->blocks[i], first);
			first = false;
		}
		print(t, "]}");
	}
	print(t, "}}}}");
}

/* ---- the rules ---- */

/* A block that leaves the parameter sideways has the offset of another block, and an empty one has no place at all: the
 * document cannot say what the oracle judges. */
static bool can_be_said(const map *m)
{
	for (int32_t i = 0; i < m->n; i++)
		for (int32_t d = 0; d < m->ndim; d++)
			if (m->blocks[i].origin[d] < 0 || m->blocks[i].origin[d] >= m->shape[d] ||
			    m->blocks[i].shape[d] == 0)
				return false;
	return true;
}

static void what_is_accepted_is_what_holds_for_every_element(void **state)
{
	(void)state;
	seed_random(42);
	int32_t valid = 0, invalid = 0;
	for (int32_t i = 0; i < 20000; i++) {
		map m;
		text t = {0};
		make_map(&m);
		for (int32_t k = pick(0, 2); k > 0 && m.n > 0; k--)
			spoil(&m);
		if (!can_be_said(&m))
			continue;
		print_map(&t, &m);
		zcc_layout *layout = NULL;
		zcc_error error = {0};
		zcc_status status = zcc_layout_parse(t.at, (int64_t)t.n, "doc", &layout, &error);
		bool want = is_valid(&m);
		if ((status == ZCC_OK) != want || (status != ZCC_OK && status != ZCC_EMAP))
			fail_msg("case %d: %s, %s %s\n%s", i, want ? "valid" : "invalid", zcc_status_name(status),
			         error.message, t.at);
		valid += want;
		invalid += !want;
		zcc_layout_destroy(layout);
		free(t.at);
	}
	assert_true(valid > 4000 && invalid > 4000);
}

/* Bytes changed, removed, doubled: any answer is right but a crash; what is accepted can be read. */
static void a_spoiled_document_never_breaks_the_reader(void **state)
{
	(void)state;
	seed_random(43);
	static const char alphabet[] = "0123456789,,[]{}\":-.eE \\^$n9";
	for (int32_t i = 0; i < 6000; i++) {
		map m;
		text t = {0};
		make_map(&m);
		print_map(&t, &m);
		for (int32_t k = pick(1, 4); k > 0; k--) {
			size_t at = (size_t)pick(0, (int32_t)t.n - 1), n = (size_t)pick(1, 9);
			n = n < t.n - at ? n : t.n - at;
			if (pick(0, 2) == 0)
				memmove(t.at + at, t.at + at + n, t.n - at - n), t.n -= n;
			else if (pick(0, 5) == 0)
				memmove(t.at + at, t.at + (size_t)pick(0, (int32_t)(t.n - n)), n);
			else
				t.at[at] = alphabet[pick(0, sizeof alphabet - 2)];
			if (t.n == 0)
				break;
		}
		zcc_layout *layout = NULL;
		zcc_error error = {0};
		char *exact = malloc(t.n + 1); /* no byte to spare behind the text */
		memcpy(exact, t.at, t.n);
		char *tight = realloc(exact, t.n > 0 ? t.n : 1);
		zcc_status status = zcc_layout_parse(tight, (int64_t)t.n, "doc", &layout, &error);
		assert_true((status == ZCC_OK) == (layout != NULL));
		if (layout != NULL) {
			int64_t n;
			zcci_block *blocks;
			zcci_arena *arena = zcci_arena_create();
			assert_int_equal(zcc_layout_count_pieces(layout, &n, NULL), ZCC_OK);
			for (int32_t p = 0; p < zcc_layout_params(layout); p++)
				zcci_layout_blocks(layout, p, arena, &blocks, &n, NULL);
			zcci_arena_destroy(arena);
		}
		zcc_layout_destroy(layout);
		free(tight);
		free(t.at);
	}
}

/* ---- large ones ---- */

/* 1 × 1 blocks of a square, each on two of its ranks. */
static void a_hundred_thousand_pieces_are_checked_in_seconds(void **state)
{
	(void)state;
	enum { SIDE = 224 };
	text t = {0};
	print(&t, "{\"version\":1,\"params\":{\"w\":{\"logical_shape\":[%d,%d],\"dtype\":\"BF16\",\"ranks\":{", SIDE,
	      SIDE);
	for (int r = 0; r < 2; r++) {
		print(&t, "%s\"%d\":{\"shard_shape\":[%d,%d],\"pieces\":[", r > 0 ? "," : "", r, SIDE, SIDE);
		for (int i = 0; i < SIDE * SIDE; i++) {
			int to = r == 0 ? i : SIDE * SIDE - 1 - i;
			print(&t, "%s{\"shape\":[1,1],\"source\":[%d,[%d,1]],\"dest\":[%d,[%d,1]],\"locations\":[0,1]}",
			      i > 0 ? "," : "", i, SIDE, to, SIDE);
		}
		print(&t, "]}");
	}
	print(&t, "}}}}");
	zcc_layout *layout = NULL;
	zcc_error error;
	double before = cpu_seconds();
	assert_int_equal(zcc_layout_parse(t.at, (int64_t)t.n, "doc", &layout, &error), ZCC_OK);
	double seconds = cpu_seconds() - before;
	print_message("%d pieces: %.3f s\n", 2 * SIDE * SIDE, seconds);
	assert_true(seconds < 60);
	zcc_layout_destroy(layout);
	free(t.at);
}

/* Rank 0 stores rows, rank 1 columns: every row meets every column. */
static void replicas_that_all_cross_end_in_bounded_time(void **state)
{
	(void)state;
	enum { SIDE = 1500 };
	text t = {0};
	print(&t, "{\"version\":1,\"params\":{\"w\":{\"logical_shape\":[%d,%d],\"dtype\":\"BF16\",\"ranks\":{", SIDE,
	      SIDE);
	for (int r = 0; r < 2; r++) {
		print(&t, "%s\"%d\":{\"shard_shape\":[%d,%d],\"pieces\":[", r > 0 ? "," : "", r, SIDE, SIDE);
		for (int i = 0; i < SIDE; i++) {
			int at = r == 0 ? i * SIDE : i;
			print(&t,
			      "%s{\"shape\":[%d,%d],\"source\":[%d,[%d,1]],\"dest\":[%d,[%d,1]],\"locations\":[0,1]}",
			      i > 0 ? "," : "", r == 0 ? 1 : SIDE, r == 0 ? SIDE : 1, at, SIDE, at, SIDE);
		}
		print(&t, "]}");
	}
	print(&t, "}}}}");
	zcc_layout *layout = NULL;
	double before = cpu_seconds();
	assert_int_equal(zcc_layout_parse(t.at, (int64_t)t.n, "doc", &layout, NULL), ZCC_OK);
	assert_true(cpu_seconds() - before < 60);
	zcc_layout_destroy(layout);
	free(t.at);
}

/* ---- the tree of boxes ---- */

static zcc_status note(void *context, int64_t k)
{
	bool *seen = context;
	assert_false(seen[k]);
	seen[k] = true;
	return ZCC_OK;
}

static void the_box_tree_finds_what_comparing_all_pairs_finds(void **state)
{
	(void)state;
	seed_random(44);
	for (int32_t i = 0; i < 400; i++) {
		zcci_box boxes[300] = {0};
		int32_t ndim = pick(0, 4), n = pick(0, 299), spread = pick(0, 1) ? 6 : 40;
		for (int32_t b = 0; b < n; b++) {
			for (int32_t d = 0; d < ndim; d++) {
				boxes[b].origin[d] = pick(0, spread);
				boxes[b].shape[d] = pick(1, 5);
			}
		}
		zcci_boxtree *tree = zcci_boxtree_create(ndim, boxes, n);
		assert_non_null(tree);
		for (int32_t b = 0; b < n; b++) {
			bool seen[300] = {false};
			assert_int_equal(zcci_boxtree_overlaps(tree, b, note, seen), ZCC_OK);
			for (int32_t k = 0; k < n; k++) {
				bool meet = k != b;
				for (int32_t d = 0; d < ndim; d++)
					meet = meet && boxes[b].origin[d] < boxes[k].origin[d] + boxes[k].shape[d] &&
					       boxes[k].origin[d] < boxes[b].origin[d] + boxes[b].shape[d];
				assert_int_equal(seen[k], meet);
			}
		}
		zcci_boxtree_destroy(tree);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_box_tree_finds_what_comparing_all_pairs_finds),
	        cmocka_unit_test(what_is_accepted_is_what_holds_for_every_element),
	        cmocka_unit_test(a_spoiled_document_never_breaks_the_reader),
	        cmocka_unit_test(a_hundred_thousand_pieces_are_checked_in_seconds),
	        cmocka_unit_test(replicas_that_all_cross_end_in_bounded_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
