/* Reads a map document (README, "Documents") into an explicit layout. */
#include "affine/explicit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "affine/nest.h"
#include "base/status.h"

typedef struct reader {
	const zcc_json *document;
	const zcc_json_node *nodes;
	zcc_layout *layout;
	zcci_explicit *map; /* the parameter read */
	zcci_explicit_shard *shard;
	int64_t number;              /* of the piece in its list */
	zcci_explicit_piece *pieces; /* of the shard */
	int64_t n_pieces;
	int64_t capacity;
	int32_t *ranks; /* room for a list of ranks and its length before it */
	int64_t ranks_capacity;
	zcc_error *error;
} reader;

/* Numbers of one member, at most one per axis. */
typedef struct numbers {
	int32_t n;
	int64_t at[ZCC_MAX_NDIM];
} numbers;

#define OPERATION "layout parse"
#define refuse(r, status, ...) zcci_fail((r)->error, status, 0, OPERATION, __VA_ARGS__)

static zcc_status no_memory(const reader *r)
{
	return refuse(r, ZCC_ENOMEM, "no memory for the map");
}

/* ---- members ---- */

static zcc_status find_member(const reader *r, int32_t node, const char *key, int32_t kind, int32_t *member)
{
	static const char *const kinds[] = {"null", "false", "true", "a number", "a string", "an array", "an object"};
	if (r->nodes[node].kind != ZCC_JSON_OBJECT)
		return refuse(r, ZCC_EFORMAT, "an object with \"%s\" is expected, %s found", key,
		              kinds[r->nodes[node].kind]);
	*member = zcc_json_member(r->document, node, key);
	if (*member < 0)
		return refuse(r, ZCC_EFORMAT, "\"%s\" is missing", key);
	if (r->nodes[*member].kind != kind)
		return refuse(r, ZCC_EFORMAT, "\"%s\" is %s, expected %s", key, kinds[r->nodes[*member].kind],
		              kinds[kind]);
	return ZCC_OK;
}

static zcc_status read_integer(const reader *r, int32_t node, const char *what, int64_t *value)
{
	if (r->nodes[node].kind != ZCC_JSON_NUMBER || !r->nodes[node].is_integer)
		return refuse(r, ZCC_EFORMAT, "%s is no integer of 63 bits", what);
	*value = r->nodes[node].integer;
	return ZCC_OK;
}

static zcc_status read_numbers(const reader *r, int32_t list, const char *what, numbers *out)
{
	if (r->nodes[list].kind != ZCC_JSON_ARRAY)
		return refuse(r, ZCC_EFORMAT, "%s is no array", what);
	if (r->nodes[list].n_children > ZCC_MAX_NDIM)
		return refuse(r, ZCC_ELAYOUT, "%s has %d entries, at most %d axes are supported", what,
		              r->nodes[list].n_children, ZCC_MAX_NDIM);
	out->n = 0;
	for (int32_t i = r->nodes[list].first_child; i >= 0; i = r->nodes[i].next) {
		zcc_status status = read_integer(r, i, what, &out->at[out->n++]);
		if (status != ZCC_OK)
			return status;
	}
	return ZCC_OK;
}

static zcc_status read_shape(const reader *r, int32_t node, const char *key, numbers *shape)
{
	int32_t list = -1;
	zcc_status status = find_member(r, node, key, ZCC_JSON_ARRAY, &list);
	if (status == ZCC_OK)
		status = read_numbers(r, list, key, shape);
	for (int32_t d = 0; status == ZCC_OK && d < shape->n; d++)
		if (shape->at[d] < 0)
			return refuse(r, ZCC_EMAP, "extent %lld of axis %d of %s is negative", (long long)shape->at[d],
			              d, key);
	return status;
}

/* [offset, [strides]], a stride for each of ndim axes. */
static zcc_status read_place(const reader *r, int32_t node, const char *key, int32_t ndim, int64_t *offset,
                             numbers *strides)
{
	int32_t list = -1;
	zcc_status status = find_member(r, node, key, ZCC_JSON_ARRAY, &list);
	if (status != ZCC_OK)
		return status;
	if (r->nodes[list].n_children != 2)
		return refuse(r, ZCC_EFORMAT, "\"%s\" has %d entries, expected [offset, [strides]]", key,
		              r->nodes[list].n_children);
	int32_t first = r->nodes[list].first_child;
	status = read_integer(r, first, key, offset);
	if (status == ZCC_OK)
		status = read_numbers(r, r->nodes[first].next, key, strides);
	if (status == ZCC_OK && strides->n != ndim)
		return refuse(r, ZCC_EMAP, "\"%s\" has %d strides for %d axes", key, strides->n, ndim);
	if (status == ZCC_OK && *offset < 0)
		return refuse(r, ZCC_EMAP, "offset %lld of \"%s\" is negative", (long long)*offset, key);
	return status;
}

/* ---- one piece ---- */

/* Strides matter only along axes with more than one element. */
static bool strides_are(const numbers *strides, const numbers *shape, const int64_t *wanted)
{
	for (int32_t d = 0; d < shape->n; d++)
		if (shape->at[d] > 1 && strides->at[d] != wanted[d])
			return false;
	return true;
}

static zcc_status refuse_strides(const reader *r, const char *key, const numbers *strides, const int64_t *wanted,
                                 const char *of)
{
	char texts[2][160];
	return refuse(r, ZCC_ELAYOUT, "strides %s of \"%s\" are not the row-major ones of the %s, %s",
	              zcci_list_text(texts[0], sizeof texts[0], strides->at, strides->n), key, of,
	              zcci_list_text(texts[1], sizeof texts[1], wanted, strides->n));
}

/* The index of the first element, where the block at that offset lies inside an array of that shape. */
static zcc_status find_origin(const reader *r, const char *key, int64_t offset, const numbers *block,
                              const int64_t *shape, const int64_t *strides, int64_t elems, int64_t *origin)
{
	char texts[2][160];
	int64_t rest = offset;
	for (int32_t d = 0; d < block->n; d++) {
		origin[d] = rest / strides[d];
		rest %= strides[d];
	}
	bool inside = offset < elems;
	for (int32_t d = 0; inside && d < block->n; d++)
		inside = block->at[d] <= shape[d] - origin[d];
	if (!inside)
		return refuse(r, ZCC_EMAP, "\"%s\": a block of %s at offset %lld leaves the shape %s", key,
		              zcci_list_text(texts[0], sizeof texts[0], block->at, block->n), (long long)offset,
		              zcci_list_text(texts[1], sizeof texts[1], shape, block->n));
	return ZCC_OK;
}

static zcc_status check_run(const reader *r, const char *key, int64_t offset, int64_t run, int64_t elems)
{
	if (offset > elems || run > elems - offset)
		return refuse(r, ZCC_EMAP, "\"%s\": %lld elements from offset %lld on reach past the %lld there are",
		              key, (long long)run, (long long)offset, (long long)elems);
	return ZCC_OK;
}

static zcc_status push_piece(reader *r, const zcc_piece *piece)
{
	if (r->n_pieces == r->capacity) {
		int64_t capacity = r->capacity > 0 ? 2 * r->capacity : 64;
		zcci_explicit_piece *grown = zcci_realloc(r->pieces, capacity, sizeof *grown);
		if (grown == NULL)
			return no_memory(r);
		r->pieces = grown;
		r->capacity = capacity;
	}
	r->pieces[r->n_pieces++] = (zcci_explicit_piece){*piece, r->number};
	return ZCC_OK;
}

/* A run of the flattened parameter in a flat shard: as boxes. */
static zcc_status add_run(reader *r, zcc_piece *piece, int64_t begin, int64_t run, int64_t dest)
{
	const zcc_param_info *info = &r->map->base.info;
	zcc_status status = check_run(r, "source", begin, run, info->elems);
	if (status == ZCC_OK)
		status = check_run(r, "dest", dest, run, r->shard->elems);
	if (status != ZCC_OK)
		return status;
	zcci_box boxes[ZCCI_NEST_MAX];
	int32_t n = zcci_nest(info->ndim, info->shape_elems, begin, begin + run, boxes);
	memcpy(piece->dest_strides_elems, r->map->base.strides_elems, sizeof piece->dest_strides_elems);
	for (int32_t i = 0; i < n && status == ZCC_OK; i++) {
		int64_t first = 0;
		for (int32_t d = 0; d < info->ndim; d++) {
			piece->origin_elems[d] = boxes[i].origin[d];
			piece->shape_elems[d] = boxes[i].shape[d];
			first += boxes[i].origin[d] * piece->dest_strides_elems[d];
		}
		piece->dest_offset_elems = dest + first - begin;
		status = push_piece(r, piece);
	}
	return status;
}

/* A block in a flat shard lies there as in an array that was flattened row by row: along each axis a step leads past
 * all that the axes inside of it span. Strides along axes of one element become those of such an array. */
static zcc_status check_flattened(const reader *r, const numbers *shape, int64_t dest, const numbers *given,
                                  int64_t *strides)
{
	int64_t span = 1, reach;
	for (int32_t d = shape->n - 1; d >= 0; d--) {
		strides[d] = shape->at[d] > 1 ? given->at[d] : span;
		if (strides[d] < span) {
			char texts[2][160];
			return refuse(r, ZCC_ELAYOUT,
			              "strides %s of \"dest\" are not those of a block of %s in a flattened array: "
			              "along axis %d a step of %lld does not lead past the %lld elements before it",
			              zcci_list_text(texts[0], sizeof texts[0], given->at, given->n),
			              zcci_list_text(texts[1], sizeof texts[1], shape->at, shape->n), d,
			              (long long)strides[d], (long long)span);
		}
		if (zcci_mul_overflows(shape->at[d] - 1, strides[d], &reach) || zcci_add_overflows(span, reach, &span))
			return refuse(r, ZCC_EOVERFLOW, "\"dest\": a step of %lld along axis %d of %lld",
			              (long long)strides[d], d, (long long)shape->at[d]);
	}
	return check_run(r, "dest", dest, span, r->shard->elems);
}

/* A block with the parameter's axes, in a shard with the same axes or in a flat one. */
static zcc_status add_block(reader *r, zcc_piece *piece, const numbers *shape, int64_t source, int64_t dest,
                            const numbers *dest_strides)
{
	const zcc_param_info *info = &r->map->base.info;
	const zcci_explicit_shard *shard = r->shard;
	int64_t in_shard[ZCC_MAX_NDIM];
	zcc_status status = find_origin(r, "source", source, shape, info->shape_elems, r->map->base.strides_elems,
	                                info->elems, piece->origin_elems);
	if (status != ZCC_OK)
		return status;
	if (shard->ndim != shape->n) {
		status = check_flattened(r, shape, dest, dest_strides, piece->dest_strides_elems);
	} else {
		if (!strides_are(dest_strides, shape, shard->strides_elems))
			return refuse_strides(r, "dest", dest_strides, shard->strides_elems, "shard");
		memcpy(piece->dest_strides_elems, shard->strides_elems, (size_t)shape->n * sizeof *shape->at);
		status = find_origin(r, "dest", dest, shape, shard->shape_elems, shard->strides_elems, shard->elems,
		                     in_shard);
	}
	if (status != ZCC_OK)
		return status;
	memcpy(piece->shape_elems, shape->at, (size_t)shape->n * sizeof *shape->at);
	piece->dest_offset_elems = dest;
	return push_piece(r, piece);
}

static int compare_ranks(const void *left, const void *right)
{
	int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
	return (a > b) - (a < b);
}

static zcc_status reserve_ranks(reader *r, int64_t n)
{
	if (n + 1 <= r->ranks_capacity)
		return ZCC_OK;
	int32_t *grown = zcci_realloc(r->ranks, n + 1, sizeof *grown);
	if (grown == NULL)
		return no_memory(r);
	r->ranks = grown;
	r->ranks_capacity = n + 1;
	return ZCC_OK;
}

static zcc_status read_locations(reader *r, int32_t node, zcc_piece *piece)
{
	int32_t list;
	zcc_status status = find_member(r, node, "locations", ZCC_JSON_ARRAY, &list);
	if (status == ZCC_OK)
		status = reserve_ranks(r, r->nodes[list].n_children);
	if (status != ZCC_OK)
		return status;
	int32_t *ranks = r->ranks + 1, n = 0;
	bool own = false;
	for (int32_t i = r->nodes[list].first_child; i >= 0; i = r->nodes[i].next) {
		int64_t rank = -1;
		status = read_integer(r, i, "a location", &rank);
		if (status != ZCC_OK)
			return status;
		if (rank < 0 || rank > INT32_MAX)
			return refuse(r, ZCC_EMAP, "location %lld is no rank", (long long)rank);
		own = own || rank == r->shard->rank;
		ranks[n++] = (int32_t)rank;
	}
	if (!own)
		return refuse(r, ZCC_EMAP, "the %d locations do not list rank %d itself", n, r->shard->rank);
	qsort(ranks, (size_t)n, sizeof *ranks, compare_ranks);
	for (int32_t i = 1; i < n; i++)
		if (ranks[i] == ranks[i - 1])
			return refuse(r, ZCC_EMAP, "the locations list rank %d twice", ranks[i]);
	piece->n_holders = n;
	piece->holders = zcci_explicit_holders(r->map, ranks, n);
	return piece->holders != NULL ? ZCC_OK : no_memory(r);
}

static zcc_status read_scale(const reader *r, int32_t node, zcc_piece *piece)
{
	piece->scale = 1;
	if (zcc_json_member(r->document, node, "scale") < 0)
		return ZCC_OK;
	int32_t member;
	zcc_status status = find_member(r, node, "scale", ZCC_JSON_NUMBER, &member);
	if (status != ZCC_OK)
		return status;
	piece->scale = r->nodes[member].number;
	if (!isfinite(piece->scale) || piece->scale == 0)
		return refuse(r, ZCC_EMAP, "scale is %g", piece->scale);
	return ZCC_OK;
}

/* Where nothing is stored only the offsets can be wrong; they may be one past the end. */
static zcc_status check_empty(const reader *r, int64_t source, int64_t dest)
{
	zcc_status status = check_run(r, "source", source, 0, r->map->base.info.elems);
	return status == ZCC_OK ? check_run(r, "dest", dest, 0, r->shard->elems) : status;
}

static zcc_status read_piece(reader *r, int32_t node)
{
	const zcc_param_info *info = &r->map->base.info;
	zcc_piece piece = {.ndim = info->ndim};
	numbers shape, source_strides, dest_strides;
	int64_t source, dest;
	zcc_status status = read_shape(r, node, "shape", &shape);
	if (status == ZCC_OK)
		status = read_place(r, node, "source", shape.n, &source, &source_strides);
	if (status == ZCC_OK)
		status = read_place(r, node, "dest", shape.n, &dest, &dest_strides);
	if (status == ZCC_OK)
		status = read_locations(r, node, &piece);
	if (status == ZCC_OK)
		status = read_scale(r, node, &piece);
	if (status != ZCC_OK)
		return status;
	bool whole = shape.n == info->ndim, run = !whole && shape.n == 1;
	if ((!whole && !run) || (r->shard->ndim != shape.n && (run || r->shard->ndim != 1)))
		return refuse(r, ZCC_ELAYOUT,
		              "a piece of %d axes between a parameter of %d and a shard of %d axes is not supported",
		              shape.n, info->ndim, r->shard->ndim);
	static const int64_t one[1] = {1};
	const int64_t *wanted = run ? one : r->map->base.strides_elems;
	for (int32_t d = 0; d < shape.n; d++)
		if (shape.at[d] == 0)
			return check_empty(r, source, dest);
	if (!strides_are(&source_strides, &shape, wanted))
		return refuse_strides(r, "source", &source_strides, wanted, "parameter");
	if (!run)
		return add_block(r, &piece, &shape, source, dest, &dest_strides);
	if (!strides_are(&dest_strides, &shape, one))
		return refuse_strides(r, "dest", &dest_strides, one, "flat shard");
	return add_run(r, &piece, source, shape.at[0], dest);
}

/* ---- shards and parameters ---- */

static zcc_status keep_pieces(reader *r)
{
	r->shard->pieces = zcci_arena_alloc(zcci_layout_arena(r->layout), r->n_pieces, sizeof *r->pieces);
	if (r->shard->pieces == NULL)
		return no_memory(r);
	if (r->n_pieces > 0)
		memcpy(r->shard->pieces, r->pieces, (size_t)r->n_pieces * sizeof *r->pieces);
	r->shard->n_pieces = r->n_pieces;
	return ZCC_OK;
}

static zcc_status read_shard(reader *r, int32_t node)
{
	numbers shape;
	int32_t list;
	zcc_status status = read_shape(r, node, "shard_shape", &shape);
	if (status == ZCC_OK)
		status = find_member(r, node, "pieces", ZCC_JSON_ARRAY, &list);
	if (status != ZCC_OK)
		return status;
	zcci_explicit_shard *shard = r->shard;
	int64_t bytes;
	shard->ndim = shape.n;
	memcpy(shard->shape_elems, shape.at, (size_t)shape.n * sizeof *shape.at);
	if (zcci_row_major(shape.n, shape.at, shard->strides_elems, &shard->elems) ||
	    zcci_mul_overflows(shard->elems, zcc_dtype_bytes(r->map->base.info.dtype), &bytes)) {
		char text[160];
		return refuse(r, ZCC_EOVERFLOW, "shard shape %s is over 2^63 bytes",
		              zcci_list_text(text, sizeof text, shape.at, shape.n));
	}
	r->n_pieces = r->number = 0;
	for (int32_t i = r->nodes[list].first_child; i >= 0; i = r->nodes[i].next, r->number++) {
		status = read_piece(r, i);
		if (status != ZCC_OK)
			return zcci_context(r->error, status, "piece %lld", (long long)r->number);
	}
	return keep_pieces(r);
}

/* "0" or digits without a leading 0, up to 2^31 − 1; −1 for anything else. */
static int32_t parse_rank(const char *text)
{
	int64_t rank = 0;
	size_t n = strlen(text);
	if (n == 0 || n > 10 || (text[0] == '0' && n > 1) || strspn(text, "0123456789") != n)
		return -1;
	for (size_t i = 0; i < n; i++)
		rank = rank * 10 + text[i] - '0';
	return rank <= INT32_MAX ? (int32_t)rank : -1;
}

typedef struct shard_node {
	int32_t rank;
	int32_t node;
} shard_node;

/* By the rank, the first member. */
static int compare_nodes(const void *left, const void *right)
{
	return compare_ranks(left, right);
}

static zcc_status read_shards(reader *r, const shard_node *list, int32_t n)
{
	zcc_status status = reserve_ranks(r, n);
	if (status != ZCC_OK)
		return status;
	for (int32_t i = 0; i < n; i++)
		r->ranks[i] = list[i].rank;
	status = zcci_layout_add_ranks(r->layout, r->ranks, n, r->error);
	r->map->shards = zcci_arena_alloc(zcci_layout_arena(r->layout), n, sizeof *r->map->shards);
	if (status != ZCC_OK || r->map->shards == NULL)
		return status != ZCC_OK ? status : no_memory(r);
	r->map->n_shards = n;
	for (int32_t i = 0; i < n; i++) {
		r->shard = &r->map->shards[i];
		r->shard->rank = list[i].rank;
		status = read_shard(r, list[i].node);
		if (status != ZCC_OK)
			return zcci_context(r->error, status, "rank %d", list[i].rank);
	}
	return ZCC_OK;
}

static zcc_status read_ranks(reader *r, int32_t node)
{
	int32_t ranks;
	zcc_status status = find_member(r, node, "ranks", ZCC_JSON_OBJECT, &ranks);
	if (status != ZCC_OK)
		return status;
	int32_t n = 0;
	shard_node *list = zcci_calloc(r->nodes[ranks].n_children, sizeof *list);
	if (list == NULL)
		return no_memory(r);
	for (int32_t i = r->nodes[ranks].first_child; i >= 0 && status == ZCC_OK; i = r->nodes[i].next) {
		list[n] = (shard_node){parse_rank(r->nodes[i].key), i};
		if (list[n++].rank < 0)
			status = refuse(r, ZCC_EFORMAT, "\"%s\" is no rank", r->nodes[i].key);
	}
	if (status == ZCC_OK) {
		qsort(list, (size_t)n, sizeof *list, compare_nodes);
		status = read_shards(r, list, n);
	}
	zcci_free(list);
	return status;
}

/* The plain name of a key that may be an anchored, escaped pattern. */
static const char *read_name(const reader *r, const char *key, int64_t key_bytes)
{
	if (key_bytes < 2 || key[0] != '^' || key[key_bytes - 1] != '$')
		return key;
	char *name = zcci_arena_alloc(zcci_layout_arena(r->layout), key_bytes, 1);
	for (int64_t i = 1, n = 0; name != NULL && i < key_bytes - 1; i++) {
		if (key[i] == '\\' && i + 1 < key_bytes - 1)
			i++;
		name[n++] = key[i];
	}
	return name;
}

static zcc_status read_param(reader *r, int32_t node, const char *name)
{
	numbers shape;
	int32_t dtype;
	zcc_status status = read_shape(r, node, "logical_shape", &shape);
	if (status == ZCC_OK)
		status = find_member(r, node, "dtype", ZCC_JSON_STRING, &dtype);
	if (status != ZCC_OK)
		return status;
	int32_t number = zcc_dtype_parse(r->nodes[dtype].string);
	if (number == 0)
		return refuse(r, ZCC_EFORMAT, "\"%s\" is no dtype", r->nodes[dtype].string);
	r->map = zcci_arena_alloc(zcci_layout_arena(r->layout), 1, sizeof *r->map);
	if (r->map == NULL)
		return no_memory(r);
	r->map->base.ops = &zcci_explicit_ops;
	status = zcci_map_init(r->layout, &r->map->base, name, number, shape.n, shape.at, r->error);
	return status == ZCC_OK ? read_ranks(r, node) : status;
}

static zcc_status keep_param(const reader *r)
{
	int32_t param;
	zcc_status status = zcci_explicit_finish(r->map, r->error);
	return status == ZCC_OK ? zcci_layout_append(r->layout, &r->map->base, &param, r->error) : status;
}

static zcc_status read_document(reader *r)
{
	int32_t root = 0, version, params;
	if (zcc_json_member(r->document, 0, "affine_map") >= 0) {
		zcc_status status = find_member(r, 0, "affine_map", ZCC_JSON_OBJECT, &root);
		if (status != ZCC_OK)
			return status;
	}
	zcc_status status = find_member(r, root, "version", ZCC_JSON_NUMBER, &version);
	if (status == ZCC_OK && !(r->nodes[version].is_integer && r->nodes[version].integer == 1))
		return refuse(r, ZCC_EFORMAT, "version %g of the map, only 1 is known", r->nodes[version].number);
	if (status == ZCC_OK)
		status = find_member(r, root, "params", ZCC_JSON_OBJECT, &params);
	if (status != ZCC_OK)
		return status;
	for (int32_t i = r->nodes[params].first_child; i >= 0; i = r->nodes[i].next) {
		const char *name = read_name(r, r->nodes[i].key, r->nodes[i].key_bytes);
		if (name == NULL)
			return no_memory(r);
		if (*name == '\0' || zcc_layout_find(r->layout, name) >= 0)
			return refuse(r, ZCC_EFORMAT, "parameter \"%s\" %s", name,
			              *name == '\0' ? "has no name" : "is there twice");
		status = read_param(r, i, name);
		if (status != ZCC_OK)
			return zcci_context(r->error, status, "parameter %s", name);
		status = keep_param(r);
		if (status != ZCC_OK)
			return status;
	}
	return ZCC_OK;
}

zcc_status zcc_layout_parse(const char *text, int64_t text_bytes, const char *what, zcc_layout **layout,
                            zcc_error *error)
{
	zcc_json *document = NULL;
	int64_t n_nodes;
	zcc_status status = zcc_json_parse(text, text_bytes, what, &document, error);
	if (status != ZCC_OK)
		return status;
	reader r = {.document = document, .nodes = zcc_json_nodes(document, &n_nodes), .error = error};
	status = zcc_layout_create(&r.layout, error);
	if (status == ZCC_OK) {
		status = read_document(&r);
		if (status == ZCC_OK) {
			*layout = r.layout;
		} else {
			zcc_layout_destroy(r.layout);
			zcci_context(error, status, "%s", what);
		}
	}
	zcci_free(r.pieces);
	zcci_free(r.ranks);
	zcc_json_destroy(document);
	return status;
}
