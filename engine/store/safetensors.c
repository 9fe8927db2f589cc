#include "store/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "zcc/json.h"

typedef struct tensor {
	zcc_tensor_info info;
	int32_t node; /* in the header */
} tensor;

struct zcc_safetensors {
	zcc_file *file;
	zcc_json *header;
	const zcc_json_node *nodes;
	int64_t n_nodes;
	int64_t data_start;
	int64_t data_bytes;
	int32_t metadata; /* node, or -1 */
	int32_t n_tensors;
	tensor *tensors;   /* in the order of their bytes */
	int32_t *index_of; /* of a tensor by its node; -1 elsewhere */
};

/* Every refusal names the file. */
#define refuse(t, format, ...)                                                                                         \
	zcci_fail(error, ZCC_EFORMAT, 0, "safetensors open", "%s: " format, zcc_file_path((t)->file), ##__VA_ARGS__)
/* And the tensor; a name may be longer than a message. */
#define refuse_tensor(t, node, format, ...) refuse(t, "tensor \"%.200s\": " format, (t)->nodes[node].key, ##__VA_ARGS__)
#define no_memory(t)                                                                                                   \
	zcci_fail(error, ZCC_ENOMEM, 0, "safetensors open", "%s: no memory for its header", zcc_file_path((t)->file))

zcc_status zcci_tensor_size(int32_t dtype, int32_t ndim, const int64_t *shape_elems, int64_t *elems, int64_t *bytes)
{
	int64_t product = 1, size;
	bool empty = false;
	for (int32_t i = 0; i < ndim; i++) {
		if (shape_elems[i] == 0)
			empty = true;
		else if (zcci_mul_overflows(product, shape_elems[i], &product))
			return ZCC_EOVERFLOW;
	}
	if (zcci_mul_overflows(product, zcc_dtype_bytes(dtype), &size))
		return ZCC_EOVERFLOW;
	*elems = empty ? 0 : product;
	*bytes = empty ? 0 : size;
	return ZCC_OK;
}

static zcc_status parse_header(zcc_safetensors *t, char *text, int64_t bytes, zcc_error *error)
{
	zcc_status status = zcc_file_read(t->file, ZCCI_HEADER_LENGTH_BYTES, text, bytes, error);
	if (status != ZCC_OK)
		return status;
	if (bytes == 0 || text[0] != '{')
		return refuse(t, "the header of %lld bytes does not begin with '{'", (long long)bytes);
	status = zcc_json_parse(text, bytes, zcc_file_path(t->file), &t->header, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "safetensors header");
	t->nodes = zcc_json_nodes(t->header, &t->n_nodes);
	return ZCC_OK;
}

static zcc_status read_header(zcc_safetensors *t, zcc_error *error)
{
	int64_t file_bytes = zcc_file_bytes(t->file);
	unsigned char prefix[ZCCI_HEADER_LENGTH_BYTES];
	if (file_bytes < ZCCI_HEADER_LENGTH_BYTES)
		return refuse(t, "%lld bytes, too few for the %d of the header length", (long long)file_bytes,
		              ZCCI_HEADER_LENGTH_BYTES);
	zcc_status status = zcc_file_read(t->file, 0, prefix, sizeof prefix, error);
	if (status != ZCC_OK)
		return status;
	uint64_t bytes = 0;
	for (int i = ZCCI_HEADER_LENGTH_BYTES - 1; i >= 0; i--)
		bytes = bytes << 8 | prefix[i];
	if (bytes > (uint64_t)ZCCI_HEADER_MAX_BYTES)
		return refuse(t, "not safetensors: a header of %llu bytes; at most %lld are allowed",
		              (unsigned long long)bytes, (long long)ZCCI_HEADER_MAX_BYTES);
	t->data_start = ZCCI_HEADER_LENGTH_BYTES + (int64_t)bytes;
	t->data_bytes = file_bytes - t->data_start;
	if (t->data_bytes < 0)
		return refuse(t, "a header of %llu bytes, but only %lld follow its length", (unsigned long long)bytes,
		              (long long)(file_bytes - ZCCI_HEADER_LENGTH_BYTES));
	char *text = zcci_malloc((int64_t)bytes);
	if (text == NULL)
		return no_memory(t);
	status = parse_header(t, text, (int64_t)bytes, error);
	zcci_free(text);
	return status;
}

static zcc_status check_keys(const zcc_safetensors *t, int32_t node, zcc_error *error)
{
	if (t->nodes[node].kind != ZCC_JSON_OBJECT)
		return refuse_tensor(t, node, "its entry is not an object");
	for (int32_t child = t->nodes[node].first_child; child >= 0; child = t->nodes[child].next) {
		const char *key = t->nodes[child].key;
		if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 && strcmp(key, "data_offsets") != 0)
			return refuse_tensor(t, node, "unknown key \"%.100s\"", key);
	}
	return ZCC_OK;
}

/* Bounds come first: whatever else is wrong with an entry, no number out of the file is believed before. */
static zcc_status read_offsets(const zcc_safetensors *t, int32_t node, zcc_tensor_info *info, zcc_error *error)
{
	int32_t list = zcc_json_member(t->header, node, "data_offsets");
	if (list < 0)
		return refuse_tensor(t, node, "it has no data_offsets");
	if (t->nodes[list].kind != ZCC_JSON_ARRAY || t->nodes[list].n_children != 2)
		return refuse_tensor(t, node, "data_offsets is not an array of 2 but %s of %d",
		                     t->nodes[list].kind == ZCC_JSON_ARRAY ? "one" : "something else",
		                     t->nodes[list].n_children);
	/* Children that are no containers follow their parent directly. */
	const zcc_json_node *begin = &t->nodes[t->nodes[list].first_child], *end = &t->nodes[begin->next];
	if (begin->kind != ZCC_JSON_NUMBER || end->kind != ZCC_JSON_NUMBER)
		return refuse_tensor(t, node, "data_offsets are not two numbers");
	if (!begin->is_integer || !end->is_integer)
		return refuse_tensor(t, node, "data_offsets [%.17g, %.17g] are not integers of 63 bits", begin->number,
		                     end->number);
	long long from = begin->integer, to = end->integer;
	if (from < 0 || to < from)
		return refuse_tensor(t, node, "data_offsets [%lld, %lld] are %s", from, to,
		                     to < from ? "reversed" : "negative");
	if (to > t->data_bytes)
		return refuse_tensor(t, node,
		                     "data_offsets [%lld, %lld] reach past the end of the data, which has %lld bytes",
		                     from, to, (long long)t->data_bytes);
	info->offset_bytes = from;
	info->bytes = to - from;
	return ZCC_OK;
}

static zcc_status read_dtype(const zcc_safetensors *t, int32_t node, zcc_tensor_info *info, zcc_error *error)
{
	int32_t dtype = zcc_json_member(t->header, node, "dtype");
	if (dtype < 0 || t->nodes[dtype].kind != ZCC_JSON_STRING)
		return refuse_tensor(t, node, "%s", dtype < 0 ? "it has no dtype" : "its dtype is not a string");
	info->dtype = zcc_dtype_parse(t->nodes[dtype].string);
	if (info->dtype == 0)
		return refuse_tensor(t, node, "unknown dtype \"%.100s\"", t->nodes[dtype].string);
	return ZCC_OK;
}

static zcc_status read_shape(const zcc_safetensors *t, int32_t node, zcc_tensor_info *info, zcc_error *error)
{
	int32_t shape = zcc_json_member(t->header, node, "shape");
	if (shape < 0 || t->nodes[shape].kind != ZCC_JSON_ARRAY)
		return refuse_tensor(t, node, "%s", shape < 0 ? "it has no shape" : "its shape is not an array");
	if (t->nodes[shape].n_children > ZCC_MAX_NDIM)
		return refuse_tensor(t, node, "%d axes; zcc takes at most %d", t->nodes[shape].n_children,
		                     ZCC_MAX_NDIM);
	for (int32_t child = t->nodes[shape].first_child; child >= 0; child = t->nodes[child].next) {
		const zcc_json_node *extent = &t->nodes[child];
		if (extent->kind != ZCC_JSON_NUMBER)
			return refuse_tensor(t, node, "extent %d of its shape is not a number", info->ndim);
		if (!extent->is_integer || extent->integer < 0)
			return refuse_tensor(t, node,
			                     "extent %d of its shape is %.17g, not an integer of 0 to 2^63 - 1",
			                     info->ndim, extent->number);
		info->shape_elems[info->ndim++] = extent->integer;
	}
	return ZCC_OK;
}

static zcc_status read_tensor(const zcc_safetensors *t, int32_t node, zcc_tensor_info *info, zcc_error *error)
{
	info->name = t->nodes[node].key;
	zcc_status status = check_keys(t, node, error);
	if (status == ZCC_OK)
		status = read_offsets(t, node, info, error);
	if (status == ZCC_OK)
		status = read_dtype(t, node, info, error);
	if (status == ZCC_OK)
		status = read_shape(t, node, info, error);
	if (status != ZCC_OK)
		return status;
	int64_t bytes;
	if (zcci_tensor_size(info->dtype, info->ndim, info->shape_elems, &info->elems, &bytes) != ZCC_OK)
		return refuse_tensor(t, node, "the product of its shape and element size does not fit 63 bits");
	if (bytes != info->bytes)
		return refuse_tensor(t, node,
		                     "shape and dtype %s make %lld bytes, but data_offsets [%lld, %lld] hold %lld",
		                     zcc_dtype_name(info->dtype), (long long)bytes, (long long)info->offset_bytes,
		                     (long long)(info->offset_bytes + info->bytes), (long long)info->bytes);
	return ZCC_OK;
}

static zcc_status read_metadata(zcc_safetensors *t, int32_t node, zcc_error *error)
{
	if (t->nodes[node].kind != ZCC_JSON_OBJECT)
		return refuse(t, "__metadata__ is not an object");
	for (int32_t child = t->nodes[node].first_child; child >= 0; child = t->nodes[child].next)
		if (t->nodes[child].kind != ZCC_JSON_STRING)
			return refuse(t, "__metadata__: the value of \"%.200s\" is not a string", t->nodes[child].key);
	t->metadata = node;
	return ZCC_OK;
}

static int by_place(const void *left, const void *right)
{
	const tensor *a = left, *b = right;
	if (a->info.offset_bytes != b->info.offset_bytes)
		return a->info.offset_bytes < b->info.offset_bytes ? -1 : 1;
	/* A tensor without bytes lies before the one that begins at the same place. */
	if (a->info.bytes != b->info.bytes)
		return a->info.bytes < b->info.bytes ? -1 : 1;
	return a->node < b->node ? -1 : 1;
}

/* Tensors, sorted, have to follow each other from the first byte of the data to its last. */
static zcc_status check_tiling(const zcc_safetensors *t, zcc_error *error)
{
	int64_t end = 0;
	for (int32_t i = 0; i < t->n_tensors; i++) {
		const zcc_tensor_info *info = &t->tensors[i].info;
		if (info->offset_bytes != end)
			return refuse(t,
			              "tensor \"%.200s\" begins at byte %lld of the data, not at %lld where %s%.200s "
			              "ends: %s",
			              info->name, (long long)info->offset_bytes, (long long)end,
			              i > 0 ? "tensor " : "the header", i > 0 ? t->tensors[i - 1].info.name : "",
			              info->offset_bytes < end ? "they overlap" : "a hole");
		end = info->offset_bytes + info->bytes;
	}
	if (end != t->data_bytes)
		return refuse(t, "%lld bytes of data, of which the last %lld belong to no tensor",
		              (long long)t->data_bytes, (long long)(t->data_bytes - end));
	return ZCC_OK;
}

static zcc_status read_entries(zcc_safetensors *t, zcc_error *error)
{
	t->tensors = zcci_calloc(t->nodes[0].n_children, sizeof *t->tensors);
	t->index_of = zcci_malloc(t->n_nodes * (int64_t)sizeof *t->index_of);
	if (t->tensors == NULL || t->index_of == NULL)
		return no_memory(t);
	memset(t->index_of, 0xff, (size_t)t->n_nodes * sizeof *t->index_of);
	for (int32_t node = t->nodes[0].first_child; node >= 0; node = t->nodes[node].next) {
		zcc_status status;
		if (strcmp(t->nodes[node].key, ZCCI_METADATA_KEY) == 0) {
			status = read_metadata(t, node, error);
		} else {
			tensor *next = &t->tensors[t->n_tensors++];
			next->node = node;
			status = read_tensor(t, node, &next->info, error);
		}
		if (status != ZCC_OK)
			return status;
	}
	qsort(t->tensors, (size_t)t->n_tensors, sizeof *t->tensors, by_place);
	zcc_status status = check_tiling(t, error);
	for (int32_t i = 0; i < t->n_tensors; i++) {
		t->tensors[i].info.offset_bytes += t->data_start;
		t->index_of[t->tensors[i].node] = i;
	}
	return status;
}

zcc_status zcc_safetensors_open(const char *path, zcc_safetensors **tensors, zcc_error *error)
{
	zcc_safetensors *t = zcci_calloc(1, sizeof *t);
	if (t == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "safetensors open", "%s: no memory for its handle", path);
	t->metadata = -1;
	zcc_status status = zcc_file_open(path, &t->file, error);
	if (status == ZCC_OK)
		status = read_header(t, error);
	if (status == ZCC_OK)
		status = read_entries(t, error);
	if (status != ZCC_OK) {
		zcc_safetensors_close(t);
		return status;
	}
	*tensors = t;
	return ZCC_OK;
}

void zcc_safetensors_close(zcc_safetensors *tensors)
{
	if (tensors == NULL)
		return;
	zcc_file_close(tensors->file);
	zcc_json_destroy(tensors->header);
	zcci_free(tensors->tensors);
	zcci_free(tensors->index_of);
	zcci_free(tensors);
}

int32_t zcc_safetensors_count(const zcc_safetensors *tensors)
{
	return tensors->n_tensors;
}

zcc_status zcc_safetensors_tensor(const zcc_safetensors *tensors, int32_t index, zcc_tensor_info *info,
                                  zcc_error *error)
{
	if (index < 0 || index >= tensors->n_tensors)
		return zcci_fail(error, ZCC_EINVAL, 0, "safetensors tensor", "%s: tensor %d asked for, there are %d",
		                 zcc_file_path(tensors->file), index, tensors->n_tensors);
	*info = tensors->tensors[index].info;
	return ZCC_OK;
}

int32_t zcc_safetensors_find(const zcc_safetensors *tensors, const char *name)
{
	int32_t node = zcc_json_member(tensors->header, 0, name);
	return node < 0 ? -1 : tensors->index_of[node];
}

zcc_file *zcc_safetensors_file(const zcc_safetensors *tensors)
{
	return tensors->file;
}

void zcc_safetensors_metadata(const zcc_safetensors *tensors, int32_t index, const char **key, const char **value)
{
	bool there = tensors->metadata >= 0 && index >= 0 && index < tensors->nodes[tensors->metadata].n_children;
	/* Strings have no children: the pairs are neighbours in document order. */
	const zcc_json_node *pair =
	        there ? &tensors->nodes[tensors->nodes[tensors->metadata].first_child + index] : NULL;
	*key = there ? pair->key : NULL;
	*value = there ? pair->string : NULL;
}
