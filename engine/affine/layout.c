#include "affine/layout.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "affine/holders.h"
#include "affine/map.h"
#include "base/names.h"
#include "base/status.h"

/* Ranks of one mesh. More would be a typing error, and the list of ranks is stored. */
enum { MAX_RANKS = 1 << 24 };

struct zcc_layout {
	_Atomic int32_t references;
	zcci_arena *arena; /* meshes and maps */
	zcci_holders *holders;
	zcci_mesh **meshes;
	int32_t n_meshes;
	int32_t meshes_capacity;
	zcci_map **maps;
	int32_t n_maps;
	int32_t maps_capacity;
	zcci_names names; /* of the maps, by index */
	int32_t *ranks;
	int32_t n_ranks;
};

static zcc_status no_memory(zcc_error *error, const char *operation, const char *what)
{
	return zcci_fail(error, ZCC_ENOMEM, 0, operation, "no memory for %s", what);
}

/* ---- building ---- */

zcc_status zcc_layout_create(zcc_layout **layout, zcc_error *error)
{
	zcc_layout *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return no_memory(error, "layout create", "a layout");
	atomic_init(&made->references, 1);
	made->arena = zcci_arena_create();
	made->holders = zcci_holders_create();
	if (made->arena == NULL || made->holders == NULL) {
		zcc_layout_destroy(made);
		return no_memory(error, "layout create", "a layout");
	}
	*layout = made;
	return ZCC_OK;
}

void zcc_layout_destroy(zcc_layout *layout)
{
	if (layout == NULL || atomic_fetch_sub(&layout->references, 1) > 1)
		return;
	zcci_arena_destroy(layout->arena);
	zcci_holders_destroy(layout->holders);
	zcci_free(layout->meshes);
	zcci_free(layout->maps);
	zcci_names_clear(&layout->names);
	zcci_free(layout->ranks);
	zcci_free(layout);
}

zcc_layout *zcci_layout_retain(zcc_layout *layout)
{
	atomic_fetch_add(&layout->references, 1);
	return layout;
}

zcci_arena *zcci_layout_arena(zcc_layout *layout)
{
	return layout->arena;
}

/* Room for one pointer more. */
static bool reserve(void *list, int32_t n, int32_t *capacity)
{
	if (n < *capacity)
		return true;
	void **old;
	memcpy(&old, list, sizeof old);
	int32_t more = *capacity > 0 ? *capacity * 2 : 16;
	void **grown = zcci_realloc(old, more, sizeof *grown);
	if (grown == NULL)
		return false;
	memcpy(list, &grown, sizeof grown);
	*capacity = more;
	return true;
}

static zcc_status check_mesh(int32_t base_rank, int32_t n_axes, const char *names, const int64_t *sizes,
                             int64_t *n_ranks, zcc_error *error)
{
	if (n_axes < 1 || n_axes > ZCCI_MAX_AXES)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add mesh", "a mesh of %d axes, 1 to %d allowed", n_axes,
		                 ZCCI_MAX_AXES);
	if (names == NULL || sizes == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add mesh", "a mesh without names or sizes");
	if (base_rank < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add mesh", "base rank %d is negative", base_rank);
	int32_t n_names = 1;
	for (const char *c = names; *c != '\0'; c++)
		n_names += *c == ',';
	if (n_names != n_axes)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add mesh", "%d axis names in \"%s\" for %d axes",
		                 n_names, names, n_axes);
	int64_t product = 1;
	for (int32_t a = 0; a < n_axes; a++) {
		if (sizes[a] < 1)
			return zcci_fail(error, ZCC_EINVAL, 0, "layout add mesh",
			                 "axis %d of mesh \"%s\" has size %lld, at least 1 needed", a, names,
			                 (long long)sizes[a]);
		if (zcci_mul_overflows(product, sizes[a], &product))
			return zcci_fail(error, ZCC_EOVERFLOW, 0, "layout add mesh",
			                 "the sizes of mesh \"%s\" multiply to over 2^63", names);
	}
	if (product > MAX_RANKS || base_rank > INT32_MAX - product)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add mesh",
		                 "mesh \"%s\" has %lld ranks from rank %d on; at most %d ranks up to rank %d allowed",
		                 names, (long long)product, base_rank, MAX_RANKS, INT32_MAX);
	*n_ranks = product;
	return ZCC_OK;
}

static zcci_mesh *make_mesh(zcc_layout *layout, int32_t base_rank, int32_t n_axes, const char *names,
                            const int64_t *sizes)
{
	zcci_mesh *mesh = zcci_arena_alloc(layout->arena, 1, sizeof *mesh);
	char *text = zcci_arena_strdup(layout->arena, names);
	if (mesh == NULL || text == NULL)
		return NULL;
	mesh->base_rank = base_rank;
	mesh->n_axes = n_axes;
	int32_t step = 1;
	for (int32_t a = n_axes - 1; a >= 0; a--) {
		mesh->sizes[a] = (int32_t)sizes[a];
		mesh->steps[a] = step;
		step *= (int32_t)sizes[a];
	}
	mesh->n_ranks = step;
	char *next = NULL;
	for (int32_t a = 0; a < n_axes; a++) {
		mesh->names[a] = text;
		next = text + strcspn(text, ",");
		if (*next == ',')
			*next++ = '\0';
		text = next;
	}
	return mesh;
}

/* Merges `more` into the layout's ranks. */
static zcc_status merge_ranks(zcc_layout *layout, const int32_t *more, int32_t n_more, zcc_error *error)
{
	int32_t *merged = zcci_calloc((int64_t)layout->n_ranks + n_more, sizeof *merged);
	if (merged == NULL)
		return no_memory(error, "layout add mesh", "the list of ranks");
	int32_t n = 0;
	for (int32_t i = 0, k = 0; i < layout->n_ranks || k < n_more;) {
		if (k == n_more || (i < layout->n_ranks && layout->ranks[i] <= more[k])) {
			k += k < n_more && layout->ranks[i] == more[k];
			merged[n++] = layout->ranks[i++];
		} else {
			merged[n++] = more[k++];
		}
	}
	zcci_free(layout->ranks);
	layout->ranks = merged;
	layout->n_ranks = n;
	return ZCC_OK;
}

static int32_t find_rank(const zcc_layout *layout, int32_t rank)
{
	int32_t low = 0, high = layout->n_ranks;
	while (low < high) {
		int32_t middle = low + (high - low) / 2;
		if (layout->ranks[middle] < rank)
			low = middle + 1;
		else
			high = middle;
	}
	return low < layout->n_ranks && layout->ranks[low] == rank ? low : -1;
}

zcc_status zcci_layout_add_ranks(zcc_layout *layout, const int32_t *ranks, int32_t n_ranks, zcc_error *error)
{
	for (int32_t i = 0; i < n_ranks; i++)
		if (find_rank(layout, ranks[i]) < 0)
			return merge_ranks(layout, ranks, n_ranks, error);
	return ZCC_OK;
}

static zcc_status add_mesh_ranks(zcc_layout *layout, int32_t base_rank, int32_t n_ranks, zcc_error *error)
{
	int32_t *ranks = zcci_calloc(n_ranks, sizeof *ranks);
	if (ranks == NULL)
		return no_memory(error, "layout add mesh", "the list of ranks");
	for (int32_t i = 0; i < n_ranks; i++)
		ranks[i] = base_rank + i;
	zcc_status status = zcci_layout_add_ranks(layout, ranks, n_ranks, error);
	zcci_free(ranks);
	return status;
}

zcc_status zcc_layout_add_mesh(zcc_layout *layout, int32_t base_rank, int32_t n_axes, const char *names,
                               const int64_t *sizes, int32_t *mesh, zcc_error *error)
{
	int64_t n_ranks = 0;
	zcc_status status = check_mesh(base_rank, n_axes, names, sizes, &n_ranks, error);
	if (status != ZCC_OK)
		return status;
	zcci_mesh *made = make_mesh(layout, base_rank, n_axes, names, sizes);
	if (made == NULL || !reserve(&layout->meshes, layout->n_meshes, &layout->meshes_capacity))
		return no_memory(error, "layout add mesh", "a mesh");
	status = add_mesh_ranks(layout, base_rank, (int32_t)n_ranks, error);
	if (status != ZCC_OK)
		return status;
	layout->meshes[layout->n_meshes] = made;
	*mesh = layout->n_meshes++;
	return ZCC_OK;
}

const zcci_mesh *zcci_layout_mesh(const zcc_layout *layout, int32_t mesh)
{
	return mesh >= 0 && mesh < layout->n_meshes ? layout->meshes[mesh] : NULL;
}

/* ---- parameters ---- */

int32_t zcc_layout_find(const zcc_layout *layout, const char *name)
{
	return zcci_names_find(&layout->names, name);
}

zcc_status zcci_layout_append(zcc_layout *layout, zcci_map *map, int32_t *param, zcc_error *error)
{
	if (!reserve(&layout->maps, layout->n_maps, &layout->maps_capacity) ||
	    zcci_names_add(&layout->names, map->info.name) != ZCC_OK)
		return no_memory(error, "layout add param", "the list of parameters");
	map->info.name = layout->names.names[layout->n_maps];
	layout->maps[layout->n_maps] = map;
	*param = layout->n_maps++;
	return ZCC_OK;
}

zcc_status zcci_map_init(zcc_layout *layout, zcci_map *map, const char *name, int32_t dtype, int32_t ndim,
                         const int64_t *shape_elems, zcc_error *error)
{
	if (name == NULL || *name == '\0')
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param", "a parameter without a name");
	if (zcc_layout_find(layout, name) >= 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param", "parameter %s is there already", name);
	if (zcc_dtype_bytes(dtype) == 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param", "parameter %s: %d is no dtype", name, dtype);
	if (ndim < 0 || ndim > ZCC_MAX_NDIM)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param", "parameter %s has %d axes, 0 to %d allowed",
		                 name, ndim, ZCC_MAX_NDIM);
	for (int32_t d = 0; d < ndim; d++) {
		if (shape_elems[d] < 0)
			return zcci_fail(error, ZCC_EINVAL, 0, "layout add param",
			                 "parameter %s: extent %lld of axis %d is negative", name,
			                 (long long)shape_elems[d], d);
		map->info.shape_elems[d] = shape_elems[d];
	}
	int64_t bytes;
	if (zcci_row_major(ndim, shape_elems, map->strides_elems, &map->info.elems) ||
	    zcci_mul_overflows(map->info.elems, zcc_dtype_bytes(dtype), &bytes)) {
		char text[256];
		return zcci_fail(error, ZCC_EOVERFLOW, 0, "layout add param",
		                 "parameter %s: shape %s is over 2^63 bytes", name,
		                 zcci_list_text(text, sizeof text, shape_elems, ndim));
	}
	map->info.name = name;
	map->info.dtype = dtype;
	map->info.ndim = ndim;
	map->holders = layout->holders;
	return ZCC_OK;
}

void zcc_param_options_init(zcc_param_options *options)
{
	*options = (zcc_param_options){.struct_bytes = sizeof *options, .scale = 1};
}

zcc_status zcc_layout_add_param(zcc_layout *layout, const zcc_param_options *options, int32_t *param, zcc_error *error)
{
	zcci_map *map = NULL;
	zcc_status status = zcci_structured_create(layout, options, &map, error);
	return status == ZCC_OK ? zcci_layout_append(layout, map, param, error) : status;
}

zcc_status zcc_layout_validate(const zcc_layout *layout, zcc_error *error)
{
	for (int32_t i = 0; i < layout->n_maps; i++) {
		zcc_status status = layout->maps[i]->ops->validate(layout->maps[i], error);
		if (status != ZCC_OK)
			return status;
	}
	return ZCC_OK;
}

/* ---- reading ---- */

int32_t zcc_layout_params(const zcc_layout *layout)
{
	return layout->n_maps;
}

const int32_t *zcc_layout_ranks(const zcc_layout *layout, int32_t *n_ranks)
{
	*n_ranks = layout->n_ranks;
	return layout->ranks;
}

static zcc_status check_param(const zcc_layout *layout, int32_t param, const char *operation, zcc_error *error)
{
	if (param >= 0 && param < layout->n_maps)
		return ZCC_OK;
	return zcci_fail(error, ZCC_EINVAL, 0, operation, "parameter %d asked for, the layout has %d", param,
	                 layout->n_maps);
}

static zcc_status check_rank(const zcc_layout *layout, int32_t param, int32_t rank, const char *operation,
                             zcc_error *error)
{
	zcc_status status = check_param(layout, param, operation, error);
	if (status != ZCC_OK || find_rank(layout, rank) >= 0)
		return status;
	return zcci_fail(
	        error, ZCC_EINVAL, 0, operation, "parameter %s: rank %d is none of the layout's %d ranks (%d to %d)",
	        layout->maps[param]->info.name, rank, layout->n_ranks, layout->n_ranks > 0 ? layout->ranks[0] : 0,
	        layout->n_ranks > 0 ? layout->ranks[layout->n_ranks - 1] : -1);
}

zcc_status zcc_layout_param(const zcc_layout *layout, int32_t param, zcc_param_info *info, zcc_error *error)
{
	zcc_status status = check_param(layout, param, "layout param", error);
	if (status == ZCC_OK)
		*info = layout->maps[param]->info;
	return status;
}

zcc_status zcc_layout_shard(const zcc_layout *layout, int32_t param, int32_t rank, zcc_shard_info *info,
                            zcc_error *error)
{
	zcc_status status = check_rank(layout, param, rank, "layout shard", error);
	if (status != ZCC_OK)
		return status;
	const zcci_map *map = layout->maps[param];
	return map->ops->shard(map, rank, info, error);
}

zcc_status zcc_layout_pieces(const zcc_layout *layout, int32_t param, int32_t rank, zcc_piece *pieces, int64_t capacity,
                             int64_t *n_pieces, zcc_error *error)
{
	zcc_status status = check_rank(layout, param, rank, "layout pieces", error);
	if (status != ZCC_OK)
		return status;
	const zcci_map *map = layout->maps[param];
	return map->ops->pieces(map, rank, pieces, capacity, n_pieces, error);
}

zcc_status zcci_layout_shard_pieces(const zcc_layout *layout, int32_t param, int32_t rank, zcci_arena *arena,
                                    zcc_piece **pieces, int64_t *n_pieces, zcc_error *error)
{
	/* Nearly every shard has a few pieces; those are asked for once. */
	zcc_piece few[8];
	int64_t n = 0;
	zcc_status status = zcc_layout_pieces(layout, param, rank, few, 8, &n, error);
	if (status != ZCC_OK)
		return status;
	zcc_piece *all = zcci_arena_alloc(arena, n, sizeof *all);
	if (all == NULL)
		return no_memory(error, "layout pieces", "the pieces of a shard");
	if (n <= 8)
		memcpy(all, few, (size_t)n * sizeof *all);
	else
		status = zcc_layout_pieces(layout, param, rank, all, n, &n, error);
	if (status == ZCC_OK) {
		*pieces = all;
		*n_pieces = n;
	}
	return status;
}

zcc_status zcc_layout_count_pieces(const zcc_layout *layout, int64_t *n_pieces, zcc_error *error)
{
	int64_t total = 0;
	for (int32_t i = 0; i < layout->n_maps; i++) {
		int64_t n = 0;
		zcc_status status = layout->maps[i]->ops->count(layout->maps[i], &n, error);
		if (status != ZCC_OK)
			return status;
		if (zcci_add_overflows(total, n, &total))
			return zcci_fail(error, ZCC_EOVERFLOW, 0, "layout count pieces", "over 2^63 pieces");
	}
	*n_pieces = total;
	return ZCC_OK;
}

static int compare_blocks(const void *left, const void *right)
{
	const zcci_block *a = left, *b = right;
	for (int32_t d = 0; d < ZCC_MAX_NDIM; d++)
		if (a->origin_elems[d] != b->origin_elems[d])
			return a->origin_elems[d] < b->origin_elems[d] ? -1 : 1;
	return 0;
}

zcc_status zcci_layout_blocks(const zcc_layout *layout, int32_t param, zcci_arena *arena, zcci_block **blocks,
                              int64_t *n_blocks, zcc_error *error)
{
	zcc_status status = check_param(layout, param, "layout blocks", error);
	if (status != ZCC_OK)
		return status;
	const zcci_map *map = layout->maps[param];
	zcci_block *found = NULL;
	int64_t n = 0;
	status = map->ops->blocks(map, arena, &found, &n, error);
	if (status != ZCC_OK)
		return status;
	if (n > 1)
		qsort(found, (size_t)n, sizeof *found, compare_blocks);
	*blocks = found;
	*n_blocks = n;
	return ZCC_OK;
}

/* ---- geometry ---- */

bool zcci_row_major(int32_t ndim, const int64_t *shape, int64_t *strides, int64_t *elems)
{
	int64_t product = 1;
	bool empty = false;
	for (int32_t d = ndim - 1; d >= 0; d--) {
		strides[d] = product;
		empty = empty || shape[d] == 0;
		if (zcci_mul_overflows(product, shape[d] > 0 ? shape[d] : 1, &product))
			return true;
	}
	*elems = empty ? 0 : product;
	return false;
}

const char *zcci_list_text(char *text, int64_t text_bytes, const int64_t *list, int32_t n)
{
	int64_t at = snprintf(text, (size_t)text_bytes, "[");
	for (int32_t i = 0; i < n && at < text_bytes; i++)
		at += snprintf(text + at, (size_t)(text_bytes - at), i > 0 ? ", %lld" : "%lld", (long long)list[i]);
	if (at < text_bytes)
		snprintf(text + at, (size_t)(text_bytes - at), "]");
	return text;
}
