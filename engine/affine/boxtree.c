#include "affine/boxtree.h"

enum { LEAF_BOXES = 8, MOST_COMPARISONS = 2000000000 };

/* Children of node i are i + 1 and second. */
typedef struct node {
	int64_t low[ZCC_MAX_NDIM];
	int64_t high[ZCC_MAX_NDIM]; /* one past */
	int64_t first;              /* into order */
	int64_t n;
	int64_t second; /* 0: a leaf */
} node;

struct zcci_boxtree {
	int32_t ndim;
	const zcci_box *boxes;
	int64_t *order;
	node *nodes;
	int64_t n_nodes;
	int64_t comparisons_left;
};

static void bound(const zcci_boxtree *tree, node *at)
{
	for (int32_t d = 0; d < tree->ndim; d++) {
		at->low[d] = INT64_MAX;
		at->high[d] = INT64_MIN;
		for (int64_t i = at->first; i < at->first + at->n; i++) {
			const zcci_box *box = &tree->boxes[tree->order[i]];
			int64_t low = box->origin[d], high = low + box->shape[d];
			at->low[d] = low < at->low[d] ? low : at->low[d];
			at->high[d] = high > at->high[d] ? high : at->high[d];
		}
	}
}

static int64_t middle_of(const zcci_boxtree *tree, int64_t i, int32_t axis)
{
	const zcci_box *box = &tree->boxes[tree->order[i]];
	return box->origin[axis] + box->shape[axis] / 2;
}

/* The axis along which the boxes' middles lie furthest apart. */
static int32_t widest(const zcci_boxtree *tree, const node *at)
{
	int32_t best = 0;
	int64_t best_spread = -1;
	for (int32_t d = 0; d < tree->ndim; d++) {
		int64_t low = INT64_MAX, high = INT64_MIN;
		for (int64_t i = at->first; i < at->first + at->n; i++) {
			int64_t middle = middle_of(tree, i, d);
			low = middle < low ? middle : low;
			high = middle > high ? middle : high;
		}
		if (high - low > best_spread) {
			best_spread = high - low;
			best = d;
		}
	}
	return best;
}

/* Puts the lower half of order[first … last] before the upper one (Hoare's quickselect; the pivots come from a fixed
 * sequence, so that no order of boxes is known to be slow). */
static void halve(zcci_boxtree *tree, int64_t first, int64_t last, int32_t axis)
{
	int64_t target = first + (last - first) / 2;
	uint64_t random = 0x9e3779b97f4a7c15u;
	while (first < last) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		int64_t pivot = middle_of(tree, first + (int64_t)((random >> 33) % (uint64_t)(last - first + 1)), axis);
		int64_t i = first, k = last;
		while (i <= k) {
			while (middle_of(tree, i, axis) < pivot)
				i++;
			while (middle_of(tree, k, axis) > pivot)
				k--;
			if (i <= k) {
				int64_t swap = tree->order[i];
				tree->order[i++] = tree->order[k];
				tree->order[k--] = swap;
			}
		}
		if (target <= k)
			last = k;
		else if (target >= i)
			first = i;
		else
			return;
	}
}

/* Halving bounds the depth to 64. */
static void build(zcci_boxtree *tree, int64_t first, int64_t n)
{
	node *at = &tree->nodes[tree->n_nodes++];
	at->first = first;
	at->n = n;
	bound(tree, at);
	if (n <= LEAF_BOXES || tree->ndim == 0)
		return;
	halve(tree, first, first + n - 1, widest(tree, at));
	int64_t lower = (n - 1) / 2 + 1;
	build(tree, first, lower);
	at->second = tree->n_nodes;
	build(tree, first + lower, n - lower);
}

zcci_boxtree *zcci_boxtree_create(int32_t ndim, const zcci_box *boxes, int64_t n)
{
	zcci_boxtree *tree = zcci_calloc(1, sizeof *tree);
	if (tree == NULL)
		return NULL;
	tree->ndim = ndim;
	tree->boxes = boxes;
	tree->comparisons_left = MOST_COMPARISONS;
	/* A leaf has more than LEAF_BOXES / 2 boxes unless it is the root. */
	tree->order = zcci_calloc(n, sizeof *tree->order);
	tree->nodes = zcci_calloc(n / (LEAF_BOXES / 2) * 2 + 1, sizeof *tree->nodes);
	if (tree->order == NULL || tree->nodes == NULL) {
		zcci_boxtree_destroy(tree);
		return NULL;
	}
	for (int64_t i = 0; i < n; i++)
		tree->order[i] = i;
	build(tree, 0, n);
	return tree;
}

void zcci_boxtree_destroy(zcci_boxtree *tree)
{
	if (tree == NULL)
		return;
	zcci_free(tree->order);
	zcci_free(tree->nodes);
	zcci_free(tree);
}

int64_t zcci_box_common(int32_t ndim, const zcci_box *a, const zcci_box *b)
{
	int64_t elems = 1;
	for (int32_t d = 0; d < ndim; d++) {
		int64_t low = a->origin[d] > b->origin[d] ? a->origin[d] : b->origin[d];
		int64_t a_high = a->origin[d] + a->shape[d], b_high = b->origin[d] + b->shape[d];
		int64_t high = a_high < b_high ? a_high : b_high;
		if (low >= high)
			return 0;
		elems *= high - low;
	}
	return elems;
}

static bool touches(int32_t ndim, const node *at, const zcci_box *box)
{
	for (int32_t d = 0; d < ndim; d++)
		if (at->high[d] <= box->origin[d] || box->origin[d] + box->shape[d] <= at->low[d])
			return false;
	return true;
}

zcc_status zcci_boxtree_overlaps(zcci_boxtree *tree, int64_t i, zcc_status (*each)(void *context, int64_t k),
                                 void *context)
{
	const zcci_box *box = &tree->boxes[i];
	int64_t waiting[128];
	int32_t n_waiting = 0;
	waiting[n_waiting++] = 0;
	while (n_waiting > 0) {
		const node *at = &tree->nodes[waiting[--n_waiting]];
		tree->comparisons_left -= 1 + (at->second == 0 ? at->n : 0);
		if (tree->comparisons_left < 0)
			return ZCC_ELAYOUT;
		if (!touches(tree->ndim, at, box))
			continue;
		if (at->second != 0) {
			waiting[n_waiting++] = at->second;
			waiting[n_waiting++] = at - tree->nodes + 1;
			continue;
		}
		for (int64_t m = at->first; m < at->first + at->n; m++) {
			int64_t k = tree->order[m];
			if (k == i || zcci_box_common(tree->ndim, box, &tree->boxes[k]) == 0)
				continue;
			zcc_status status = each(context, k);
			if (status != ZCC_OK)
				return status;
		}
	}
	return ZCC_OK;
}
