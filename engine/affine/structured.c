#include "affine/structured.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

static zcc_status no_memory(const zcci_structured *map, zcc_error *error)
{
	return zcci_fail(error, ZCC_ENOMEM, 0, "layout map", "parameter %s: no memory for its map",
	                 map->base.info.name);
}

static zcc_status copy_numbers(zcci_structured *map, zcci_arena *arena, const zcc_placement *placement, zcci_cut *cut,
                               zcc_error *error)
{
	if (placement->n_parts > 0) {
		zcc_part *parts = zcci_arena_alloc(arena, placement->n_parts, sizeof *parts);
		if (parts == NULL)
			return no_memory(map, error);
		memcpy(parts, placement->parts, (size_t)placement->n_parts * sizeof *parts);
		cut->n_parts = placement->n_parts;
		cut->parts = parts;
		return ZCC_OK;
	}
	int64_t *starts = zcci_arena_alloc(arena, (int64_t)placement->n_extents + 1, sizeof *starts);
	if (starts == NULL)
		return no_memory(map, error);
	for (int32_t c = 0; c < placement->n_extents; c++)
		if (placement->extents[c] < 0 || zcci_add_overflows(starts[c], placement->extents[c], &starts[c + 1]))
			starts[c + 1] = -1; /* refused by zcci_cut_check */
	cut->starts = starts;
	return ZCC_OK;
}

/* The extent along cut->dim that the earlier cuts leave, which a further one needs to be the same everywhere. */
static zcc_status extent_to_cut(const zcci_structured *map, const zcci_cut *cut, int64_t *extent, zcc_error *error)
{
	*extent = map->base.info.shape_elems[cut->dim];
	for (const zcci_cut *before = map->cuts; before < cut; before++) {
		if (before->dim != cut->dim)
			continue;
		*extent = zcci_cut_extent(before, 0);
		int32_t c;
		if (!zcci_cut_is_even(before, &c))
			return zcci_fail(
			        error, ZCC_ELAYOUT, 0, "layout add param",
			        "parameter %s, axis %d: mesh axis %s cannot cut it again, for mesh axis %s leaves "
			        "%lld elements to coordinate 0 and %lld to coordinate %d",
			        map->base.info.name, cut->dim, map->mesh->names[cut->axis],
			        map->mesh->names[before->axis], (long long)*extent,
			        (long long)zcci_cut_extent(before, c), c);
	}
	return ZCC_OK;
}

static zcc_status add_cut(zcci_structured *map, zcci_arena *arena, const zcc_placement *placement, zcc_error *error)
{
	const char *name = map->base.info.name, *axis_name = map->mesh->names[placement->axis];
	if (placement->dim < 0 || placement->dim >= map->base.info.ndim)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param",
		                 "parameter %s: mesh axis %s cuts axis %d, there are %d", name, axis_name,
		                 placement->dim, map->base.info.ndim);
	int32_t n_coords = map->mesh->sizes[placement->axis];
	bool given = placement->n_parts == 0;
	if (placement->n_parts < 0 || (given ? placement->extents == NULL : placement->parts == NULL) ||
	    (given ? placement->n_extents != n_coords : placement->n_extents != 0))
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param",
		                 "parameter %s: mesh axis %s of size %d needs parts or one extent for each coordinate, "
		                 "not %d parts and "
		                 "%d extents",
		                 name, axis_name, n_coords, placement->n_parts, placement->n_extents);
	zcci_cut *cut = &map->cuts[map->n_cuts];
	*cut = (zcci_cut){.axis = placement->axis, .dim = placement->dim, .n_coords = n_coords};
	int64_t extent;
	zcc_status status = copy_numbers(map, arena, placement, cut, error);
	if (status == ZCC_OK)
		status = extent_to_cut(map, cut, &extent, error);
	if (status == ZCC_OK)
		status = zcci_cut_check(cut, extent, name, axis_name, error);
	if (status != ZCC_OK)
		return status;
	map->n_cuts++;
	map->dim_of[cut->axis] = cut->dim;
	map->room[cut->dim] += given ? 1 : cut->n_parts;
	return ZCC_OK;
}

/* A mesh axis may be named once. */
static zcc_status check_axis(const zcci_structured *map, int32_t axis, const char *what, zcc_error *error)
{
	if (axis < 0 || axis >= map->mesh->n_axes)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param",
		                 "parameter %s: %s names mesh axis %d, the mesh has %d", map->base.info.name, what,
		                 axis, map->mesh->n_axes);
	bool taken = map->dim_of[axis] >= 0 || map->owner[axis] >= 0;
	for (int32_t i = 0; i < map->n_flat; i++)
		taken = taken || map->flat[i] == axis;
	if (taken)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param",
		                 "parameter %s: %s names mesh axis %s, which is taken", map->base.info.name, what,
		                 map->mesh->names[axis]);
	return ZCC_OK;
}

static zcc_status add_placements(zcci_structured *map, zcci_arena *arena, const zcc_param_options *options,
                                 zcc_error *error)
{
	map->cuts = zcci_arena_alloc(arena, options->n_placements, sizeof *map->cuts);
	if (map->cuts == NULL)
		return no_memory(map, error);
	for (int32_t i = 0; i < options->n_placements; i++) {
		const zcc_placement *placement = &options->placements[i];
		zcc_status status = check_axis(map, placement->axis, "a placement", error);
		if (status != ZCC_OK)
			return status;
		if (placement->kind == ZCC_PLACE_SHARD) {
			status = add_cut(map, arena, placement, error);
			if (status != ZCC_OK)
				return status;
		} else if (placement->kind == ZCC_PLACE_OWNER) {
			if (placement->owner < 0 || placement->owner >= map->mesh->sizes[placement->axis])
				return zcci_fail(error, ZCC_EINVAL, 0, "layout add param",
				                 "parameter %s: owner %d on mesh axis %s of size %d",
				                 map->base.info.name, placement->owner,
				                 map->mesh->names[placement->axis], map->mesh->sizes[placement->axis]);
			map->owner[placement->axis] = placement->owner;
		} else {
			return zcci_fail(error, ZCC_EINVAL, 0, "layout add param",
			                 "parameter %s: %d is no kind of placement", map->base.info.name,
			                 placement->kind);
		}
	}
	return ZCC_OK;
}

/* A flat cut divides the shard wherever it divides: replicas inside it stay replicas only where they lie in equal
 * places, so a part that several coordinates store must not follow from a cut that leaves coordinates different
 * extents. */
static zcc_status check_flat_replicas(const zcci_structured *map, zcc_error *error)
{
	for (int32_t i = 0; i < map->n_cuts; i++) {
		const zcci_cut *cut = &map->cuts[i];
		if (!zcci_cut_replicates(cut))
			continue;
		int32_t c;
		if (!zcci_cut_is_even(cut, &c))
			return zcci_fail(
			        error, ZCC_ELAYOUT, 0, "layout add param",
			        "parameter %s, axis %d: the flat cut would divide the replicas that mesh axis %s "
			        "makes at different places, for shards have %lld elements at coordinate 0 and "
			        "%lld at coordinate %d",
			        map->base.info.name, cut->dim, map->mesh->names[cut->axis],
			        (long long)zcci_cut_extent(cut, 0), (long long)zcci_cut_extent(cut, c), c);
	}
	return ZCC_OK;
}

static zcc_status add_flat(zcci_structured *map, const zcc_param_options *options, zcc_error *error)
{
	int64_t coords = 1;
	for (int32_t i = 0; i < options->n_cut_axes; i++) {
		zcc_status status = check_axis(map, options->cut_axes[i], "the flat cut", error);
		if (status != ZCC_OK)
			return status;
		map->flat[map->n_flat++] = options->cut_axes[i];
		coords *= map->mesh->sizes[options->cut_axes[i]];
	}
	int64_t group = options->cut_group == 0 ? coords : options->cut_group;
	if (group < 0 || options->cut_align_elems < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param",
		                 "parameter %s: flat cut over a group of %lld, aligned to %lld elements",
		                 map->base.info.name, (long long)group, (long long)options->cut_align_elems);
	if (coords % group != 0)
		return zcci_fail(error, ZCC_ELAYOUT, 0, "layout add param",
		                 "parameter %s: flat cut over groups of %lld of %lld ranks, which it does not divide",
		                 map->base.info.name, (long long)group, (long long)coords);
	map->flat_coords = (int32_t)coords;
	map->group = (int32_t)group;
	map->align = options->cut_align_elems > 1 ? options->cut_align_elems : 1;
	return map->n_flat > 0 ? check_flat_replicas(map, error) : ZCC_OK;
}

/* The largest shard, padding included, fits 63 bits in bytes. */
static zcc_status check_size(const zcci_structured *map, zcc_error *error)
{
	const zcc_param_info *info = &map->base.info;
	int64_t shape[ZCC_MAX_NDIM], strides[ZCC_MAX_NDIM], elems, unit = 1, bytes;
	memcpy(shape, info->shape_elems, sizeof shape);
	for (int32_t i = 0; i < map->n_cuts; i++)
		shape[map->cuts[i].dim] = zcci_cut_most(&map->cuts[i]);
	if (zcci_row_major(info->ndim, shape, strides, &elems) ||
	    (map->n_flat > 0 &&
	     (zcci_mul_overflows(map->align, map->group, &unit) || zcci_add_overflows(elems, unit, &elems))) ||
	    zcci_mul_overflows(elems, zcc_dtype_bytes(info->dtype), &bytes)) {
		char text[256];
		return zcci_fail(
		        error, ZCC_EOVERFLOW, 0, "layout add param",
		        "parameter %s: a shard of shape %s, padded to a multiple of %lld times %d, is over 2^63 bytes",
		        info->name, zcci_list_text(text, sizeof text, shape, info->ndim), (long long)map->align,
		        map->group);
	}
	return ZCC_OK;
}

static zcc_status check_options(const zcc_param_options *options, zcc_error *error)
{
	if (options == NULL || options->struct_bytes != sizeof *options)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param", "options of %lld bytes, %lld expected",
		                 options != NULL ? (long long)options->struct_bytes : 0, (long long)sizeof *options);
	if ((options->ndim > 0 && options->shape_elems == NULL) || options->n_placements < 0 ||
	    (options->n_placements > 0 && options->placements == NULL) || options->n_cut_axes < 0 ||
	    (options->n_cut_axes > 0 && options->cut_axes == NULL))
		return zcci_fail(
		        error, ZCC_EINVAL, 0, "layout add param",
		        "parameter %s: shape, placements and cut axes must be given for the counts %d, %d and %d",
		        options->name != NULL ? options->name : "(none)", options->ndim, options->n_placements,
		        options->n_cut_axes);
	return ZCC_OK;
}

zcc_status zcci_structured_create(zcc_layout *layout, const zcc_param_options *options, zcci_map **result,
                                  zcc_error *error)
{
	zcc_status status = check_options(options, error);
	if (status != ZCC_OK)
		return status;
	zcci_arena *arena = zcci_layout_arena(layout);
	zcci_structured *map = zcci_arena_alloc(arena, 1, sizeof *map);
	if (map == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "layout add param", "no memory for a map");
	status = zcci_map_init(layout, &map->base, options->name, options->dtype, options->ndim, options->shape_elems,
	                       error);
	if (status != ZCC_OK)
		return status;
	map->base.ops = &zcci_structured_ops;
	map->mesh = zcci_layout_mesh(layout, options->mesh);
	if (map->mesh == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param", "parameter %s: there is no mesh %d",
		                 map->base.info.name, options->mesh);
	if (!isfinite(options->scale) || options->scale == 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "layout add param", "parameter %s: a scale of %g",
		                 map->base.info.name, options->scale);
	map->scale = options->scale;
	for (int32_t a = 0; a < ZCCI_MAX_AXES; a++)
		map->dim_of[a] = map->owner[a] = -1;
	for (int32_t d = 0; d < map->base.info.ndim; d++)
		map->room[d] = 1;
	status = add_placements(map, arena, options, error);
	if (status == ZCC_OK)
		status = add_flat(map, options, error);
	if (status == ZCC_OK)
		status = check_size(map, error);
	if (status != ZCC_OK)
		return status;
	for (int32_t d = 0; d < map->base.info.ndim; d++)
		map->all_room += 2 * (int64_t)map->room[d];
	*result = &map->base;
	return ZCC_OK;
}
