#include "store/safetensors.h"

#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/names.h"
#include "base/status.h"
#include "base/text.h"
#include "zcc/json.h"

enum { MAX_ELEM_BYTES = 8 };
static const char operation[] = "safetensors write";

typedef struct entry {
	int32_t dtype;
	int32_t ndim;
	int64_t shape_elems[ZCC_MAX_NDIM];
	int64_t bytes;
} entry;

struct zcc_safetensors_writer {
	zcci_names names; /* of the entries, by number */
	entry *entries;
	int32_t room;
	int32_t pairs_room;
	zcci_names keys; /* of the metadata, by number */
	char **values;
	int64_t data_bytes;
};

zcc_status zcc_safetensors_writer_create(zcc_safetensors_writer **writer, zcc_error *error)
{
	zcc_safetensors_writer *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, operation, "no memory for a writer");
	*writer = made;
	return ZCC_OK;
}

void zcc_safetensors_writer_destroy(zcc_safetensors_writer *writer)
{
	if (writer == NULL)
		return;
	for (int32_t i = 0; i < writer->keys.n_names; i++)
		zcci_free(writer->values[i]);
	zcci_free(writer->values);
	zcci_free(writer->entries);
	zcci_names_clear(&writer->names);
	zcci_names_clear(&writer->keys);
	zcci_free(writer);
}

/* Doubles a list that is full. */
static zcc_status make_room(void **list, int32_t *room, int32_t used, int64_t item_bytes)
{
	if (used < *room)
		return ZCC_OK;
	int32_t more = *room > 0 ? *room * 2 : 32;
	void *grown = *room > INT32_MAX / 2 ? NULL : zcci_realloc(*list, more, item_bytes);
	if (grown == NULL)
		return ZCC_ENOMEM;
	*list = grown;
	*room = more;
	return ZCC_OK;
}

static zcc_status check_entry(const zcc_safetensors_writer *writer, const char *name, const entry *e, zcc_error *error)
{
	if (zcci_utf8_fault(name, (int64_t)strlen(name)) >= 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "tensor \"%.200s\": its name is not UTF-8", name);
	if (strcmp(name, ZCCI_METADATA_KEY) == 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "no tensor may be named " ZCCI_METADATA_KEY);
	if (zcci_names_find(&writer->names, name) >= 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "tensor \"%.200s\" is there already", name);
	if (zcc_dtype_bytes(e->dtype) == 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "tensor \"%.200s\": no dtype has the number %d", name,
		                 e->dtype);
	for (int32_t i = 0; i < e->ndim; i++)
		if (e->shape_elems[i] < 0)
			return zcci_fail(error, ZCC_EINVAL, 0, operation,
			                 "tensor \"%.200s\": axis %d has an extent of %lld", name, i,
			                 (long long)e->shape_elems[i]);
	return ZCC_OK;
}

zcc_status zcc_safetensors_writer_add(zcc_safetensors_writer *writer, const char *name, int32_t dtype, int32_t ndim,
                                      const int64_t *shape_elems, zcc_error *error)
{
	if (ndim < 0 || ndim > ZCC_MAX_NDIM)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "tensor \"%.200s\": %d axes; 0 to %d are allowed",
		                 name, ndim, ZCC_MAX_NDIM);
	entry e = {.dtype = dtype, .ndim = ndim};
	for (int32_t i = 0; i < ndim; i++)
		e.shape_elems[i] = shape_elems[i];
	zcc_status status = check_entry(writer, name, &e, error);
	if (status != ZCC_OK)
		return status;
	int64_t elems, data_bytes;
	if (zcci_tensor_size(dtype, ndim, e.shape_elems, &elems, &e.bytes) != ZCC_OK ||
	    zcci_add_overflows(writer->data_bytes, e.bytes, &data_bytes))
		return zcci_fail(error, ZCC_EOVERFLOW, 0, operation,
		                 "tensor \"%.200s\": its bytes, or the file's with them, do not fit "
		                 "63 bits",
		                 name);
	if (make_room((void **)&writer->entries, &writer->room, writer->names.n_names, sizeof e) != ZCC_OK ||
	    zcci_names_add(&writer->names, name) != ZCC_OK)
		return zcci_fail(error, ZCC_ENOMEM, 0, operation, "tensor \"%.200s\": no memory for its entry", name);
	writer->entries[writer->names.n_names - 1] = e;
	writer->data_bytes = data_bytes;
	return ZCC_OK;
}

zcc_status zcc_safetensors_writer_metadata(zcc_safetensors_writer *writer, const char *key, const char *value,
                                           zcc_error *error)
{
	if (zcci_utf8_fault(key, (int64_t)strlen(key)) >= 0 || zcci_utf8_fault(value, (int64_t)strlen(value)) >= 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "metadata \"%.200s\": key or value is not UTF-8",
		                 key);
	if (zcci_names_find(&writer->keys, key) >= 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "metadata \"%.200s\" is there already", key);
	int32_t number = writer->keys.n_names;
	char *copy = zcci_strdup(value);
	if (copy == NULL || make_room((void **)&writer->values, &writer->pairs_room, number, sizeof copy) != ZCC_OK ||
	    zcci_names_add(&writer->keys, key) != ZCC_OK) {
		zcci_free(copy);
		return zcci_fail(error, ZCC_ENOMEM, 0, operation, "metadata \"%.200s\": no memory for it", key);
	}
	writer->values[number] = copy;
	return ZCC_OK;
}

static void write_entry(zcc_json_writer *json, const char *name, const entry *e, int64_t begin)
{
	const char *dtype = zcc_dtype_name(e->dtype);
	zcc_json_write_key(json, name);
	zcc_json_write_begin_object(json);
	zcc_json_write_key(json, "dtype");
	zcc_json_write_string(json, dtype, (int64_t)strlen(dtype));
	zcc_json_write_key(json, "shape");
	zcc_json_write_begin_array(json);
	for (int32_t i = 0; i < e->ndim; i++)
		zcc_json_write_integer(json, e->shape_elems[i]);
	zcc_json_write_end_array(json);
	zcc_json_write_key(json, "data_offsets");
	zcc_json_write_begin_array(json);
	zcc_json_write_integer(json, begin);
	zcc_json_write_integer(json, begin + e->bytes);
	zcc_json_write_end_array(json);
	zcc_json_write_end_object(json);
}

static void write_metadata(const zcc_safetensors_writer *writer, zcc_json_writer *json)
{
	if (writer->keys.n_names == 0)
		return;
	zcc_json_write_key(json, ZCCI_METADATA_KEY);
	zcc_json_write_begin_object(json);
	for (int32_t i = 0; i < writer->keys.n_names; i++) {
		zcc_json_write_key(json, writer->keys.names[i]);
		zcc_json_write_string(json, writer->values[i], (int64_t)strlen(writer->values[i]));
	}
	zcc_json_write_end_object(json);
}

/* Large elements come first, so that with a header of a multiple of 8 bytes every tensor is aligned to its element: the
 * format allows no gaps, and readers that map the file want that. */
static void write_header(const zcc_safetensors_writer *writer, zcc_json_writer *json)
{
	int64_t begin = 0;
	zcc_json_write_begin_object(json);
	write_metadata(writer, json);
	for (int32_t elem_bytes = MAX_ELEM_BYTES; elem_bytes > 0; elem_bytes /= 2)
		for (int32_t i = 0; i < writer->names.n_names; i++) {
			const entry *e = &writer->entries[i];
			if (zcc_dtype_bytes(e->dtype) != elem_bytes)
				continue;
			write_entry(json, writer->names.names[i], e, begin);
			begin += e->bytes;
		}
	zcc_json_write_end_object(json);
}

/* The header's text, owned by *json, and the sizes it leads to. */
static zcc_status make_header(const zcc_safetensors_writer *writer, zcc_json_writer **json, const char **text,
                              int64_t *text_bytes, int64_t *padded_bytes, int64_t *file_bytes, zcc_error *error)
{
	zcc_json_writer *made;
	zcc_status status = zcc_json_writer_create(0, &made, error);
	if (status != ZCC_OK)
		return status;
	write_header(writer, made);
	status = zcc_json_writer_text(made, text, text_bytes, error);
	if (status == ZCC_OK) {
		*padded_bytes = (*text_bytes + 7) & ~(int64_t)7;
		if (*padded_bytes > ZCCI_HEADER_MAX_BYTES)
			status = zcci_fail(error, ZCC_EFORMAT, 0, operation,
			                   "a header of %lld bytes for %d tensors; at most %lld are allowed",
			                   (long long)*padded_bytes, writer->names.n_names,
			                   (long long)ZCCI_HEADER_MAX_BYTES);
		else if (zcci_add_overflows(ZCCI_HEADER_LENGTH_BYTES + *padded_bytes, writer->data_bytes, file_bytes))
			status = zcci_fail(error, ZCC_EOVERFLOW, 0, operation,
			                   "%lld bytes of data and a header do not fit 63 bits",
			                   (long long)writer->data_bytes);
	}
	if (status != ZCC_OK) {
		zcc_json_writer_destroy(made);
		return status;
	}
	*json = made;
	return ZCC_OK;
}

zcc_status zcc_safetensors_writer_bytes(zcc_safetensors_writer *writer, int64_t *bytes, zcc_error *error)
{
	zcc_json_writer *json;
	const char *text;
	int64_t text_bytes, padded_bytes;
	zcc_status status = make_header(writer, &json, &text, &text_bytes, &padded_bytes, bytes, error);
	if (status == ZCC_OK)
		zcc_json_writer_destroy(json);
	return status;
}

static zcc_status put_header(zcc_file *file, const char *text, int64_t text_bytes, int64_t padded_bytes,
                             zcc_error *error)
{
	unsigned char prefix[ZCCI_HEADER_LENGTH_BYTES];
	for (int i = 0; i < ZCCI_HEADER_LENGTH_BYTES; i++)
		prefix[i] = (unsigned char)(padded_bytes >> 8 * i);
	zcc_status status = zcc_file_write(file, 0, prefix, sizeof prefix, error);
	if (status == ZCC_OK)
		status = zcc_file_write(file, sizeof prefix, text, text_bytes, error);
	if (status == ZCC_OK)
		status = zcc_file_write(file, (int64_t)sizeof prefix + text_bytes, "       ", padded_bytes - text_bytes,
		                        error);
	return status;
}

zcc_status zcc_safetensors_writer_finish(zcc_safetensors_writer *writer, const char *path, zcc_error *error)
{
	zcc_json_writer *json;
	const char *text;
	int64_t text_bytes, padded_bytes, file_bytes;
	zcc_status status = make_header(writer, &json, &text, &text_bytes, &padded_bytes, &file_bytes, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "%s", path);
	zcc_file *file;
	status = zcc_file_create(path, file_bytes, &file, error);
	if (status == ZCC_OK) {
		status = put_header(file, text, text_bytes, padded_bytes, error);
		if (status != ZCC_OK)
			unlink(path);
		zcc_file_close(file);
	}
	zcc_json_writer_destroy(json);
	return status;
}
