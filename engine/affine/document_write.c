/* Writes a layout of any kind as a map document (README, "Documents"). */
#include "affine/map.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

static void write_list(zcc_json_writer *writer, const int64_t *list, int32_t n)
{
	zcc_json_write_begin_array(writer);
	for (int32_t i = 0; i < n; i++)
		zcc_json_write_integer(writer, list[i]);
	zcc_json_write_end_array(writer);
}

static void write_place(zcc_json_writer *writer, const char *key, int64_t offset, const int64_t *strides, int32_t ndim)
{
	zcc_json_write_key(writer, key);
	zcc_json_write_begin_array(writer);
	zcc_json_write_integer(writer, offset);
	write_list(writer, strides, ndim);
	zcc_json_write_end_array(writer);
}

static void write_piece(zcc_json_writer *writer, const zcc_piece *piece, const int64_t *source_strides)
{
	int64_t source = 0;
	for (int32_t d = 0; d < piece->ndim; d++)
		source += piece->origin_elems[d] * source_strides[d];
	zcc_json_write_begin_object(writer);
	zcc_json_write_key(writer, "shape");
	write_list(writer, piece->shape_elems, piece->ndim);
	write_place(writer, "source", source, source_strides, piece->ndim);
	write_place(writer, "dest", piece->dest_offset_elems, piece->dest_strides_elems, piece->ndim);
	zcc_json_write_key(writer, "locations");
	zcc_json_write_begin_array(writer);
	for (int32_t i = 0; i < piece->n_holders; i++)
		zcc_json_write_integer(writer, piece->holders[i]);
	zcc_json_write_end_array(writer);
	if (piece->scale != 1) {
		zcc_json_write_key(writer, "scale");
		zcc_json_write_number(writer, piece->scale);
	}
	zcc_json_write_end_object(writer);
}

static zcc_status write_shard(const zcc_layout *layout, int32_t param, int32_t rank, zcci_arena *arena,
                              zcc_json_writer *writer, zcc_error *error)
{
	zcc_shard_info shard;
	zcc_piece *pieces;
	int64_t n, strides[ZCC_MAX_NDIM], elems;
	zcc_param_info info;
	zcc_status status = zcc_layout_shard(layout, param, rank, &shard, error);
	if (status != ZCC_OK || !shard.present)
		return status;
	status = zcc_layout_param(layout, param, &info, error);
	if (status == ZCC_OK)
		status = zcci_layout_shard_pieces(layout, param, rank, arena, &pieces, &n, error);
	if (status != ZCC_OK)
		return status;
	zcci_row_major(info.ndim, info.shape_elems, strides, &elems);
	char key[16];
	snprintf(key, sizeof key, "%d", rank);
	zcc_json_write_key(writer, key);
	zcc_json_write_begin_object(writer);
	zcc_json_write_key(writer, "shard_shape");
	write_list(writer, shard.shape_elems, shard.ndim);
	zcc_json_write_key(writer, "pieces");
	zcc_json_write_begin_array(writer);
	for (int64_t i = 0; i < n; i++)
		write_piece(writer, &pieces[i], strides);
	zcc_json_write_end_array(writer);
	zcc_json_write_end_object(writer);
	return ZCC_OK;
}

/* The plain name; one that would read as an anchored pattern is written as the pattern that stands for it. */
static zcc_status write_name(const char *name, zcci_arena *arena, zcc_json_writer *writer, zcc_error *error)
{
	size_t n = strlen(name);
	if (n < 2 || name[0] != '^' || name[n - 1] != '$') {
		zcc_json_write_key(writer, name);
		return ZCC_OK;
	}
	char *pattern = zcci_arena_alloc(arena, 2 * (int64_t)n + 3, 1);
	if (pattern == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "layout write", "parameter %s: no memory for its name", name);
	char *out = pattern;
	*out++ = '^';
	for (const char *c = name; *c != '\0'; c++) {
		if (strchr("\\^$.|?*+()[]{}", *c) != NULL)
			*out++ = '\\';
		*out++ = *c;
	}
	*out = '$';
	zcc_json_write_key(writer, pattern);
	return ZCC_OK;
}

static zcc_status write_param(const zcc_layout *layout, int32_t param, zcci_arena *arena, zcc_json_writer *writer,
                              zcc_error *error)
{
	zcc_param_info info;
	zcc_status status = zcc_layout_param(layout, param, &info, error);
	if (status == ZCC_OK)
		status = write_name(info.name, arena, writer, error);
	if (status != ZCC_OK)
		return status;
	const char *dtype = zcc_dtype_name(info.dtype);
	zcc_json_write_begin_object(writer);
	zcc_json_write_key(writer, "logical_shape");
	write_list(writer, info.shape_elems, info.ndim);
	zcc_json_write_key(writer, "dtype");
	zcc_json_write_string(writer, dtype, (int64_t)strlen(dtype));
	zcc_json_write_key(writer, "ranks");
	zcc_json_write_begin_object(writer);
	int32_t n_ranks;
	const int32_t *ranks = zcc_layout_ranks(layout, &n_ranks);
	for (int32_t i = 0; i < n_ranks && status == ZCC_OK; i++) {
		zcci_arena_reset(arena);
		status = write_shard(layout, param, ranks[i], arena, writer, error);
	}
	zcc_json_write_end_object(writer);
	zcc_json_write_end_object(writer);
	return status;
}

zcc_status zcc_layout_write(const zcc_layout *layout, zcc_json_writer *writer, zcc_error *error)
{
	zcci_arena *arena = zcci_arena_create();
	if (arena == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "layout write", "no memory");
	zcc_json_write_begin_object(writer);
	zcc_json_write_key(writer, "version");
	zcc_json_write_integer(writer, 1);
	zcc_json_write_key(writer, "params");
	zcc_json_write_begin_object(writer);
	zcc_status status = ZCC_OK;
	for (int32_t i = 0; i < zcc_layout_params(layout) && status == ZCC_OK; i++)
		status = write_param(layout, i, arena, writer, error);
	zcc_json_write_end_object(writer);
	zcc_json_write_end_object(writer);
	zcci_arena_destroy(arena);
	return status;
}
