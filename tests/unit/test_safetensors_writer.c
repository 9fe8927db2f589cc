/* Writing safetensors: the exact bytes, aligned tensors, and nothing that the format cannot say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "scratch.h"
#include "zcc/store.h"

static zcc_safetensors *open_file(const char *path)
{
	zcc_safetensors *t = NULL;
	zcc_error error = {0};
	if (zcc_safetensors_open(path, &t, &error) != ZCC_OK)
		fail_msg("%s", error.message);
	return t;
}

static zcc_safetensors_writer *new_writer(void)
{
	zcc_safetensors_writer *w = NULL;
	assert_int_equal(zcc_safetensors_writer_create(&w, NULL), ZCC_OK);
	return w;
}

static void add(zcc_safetensors_writer *w, const char *name, int32_t dtype, int32_t ndim, const int64_t *shape)
{
	zcc_error error = {0};
	if (zcc_safetensors_writer_add(w, name, dtype, ndim, shape, &error) != ZCC_OK)
		fail_msg("%s", error.message);
}

static void write_sample(zcc_safetensors_writer *w)
{
	static const int64_t shape[] = {3, 1, 0};
	add(w, "a", ZCC_U8, 1, shape);
	add(w, "b\n", ZCC_F32, 2, shape);
	add(w, "c", ZCC_I64, 0, shape);
	add(w, "d", ZCC_BF16, 3, shape);
	add(w, "e", ZCC_F32, 0, shape);
	assert_int_equal(zcc_safetensors_writer_metadata(w, "format", "pt", NULL), ZCC_OK);
}

/* The exact bytes: metadata, then larger elements first, padded to 8 with spaces. */
static void the_file_is_byte_for_byte_what_the_format_says(void **state)
{
	(void)state;
	static const char want[] =
	        "{\"__metadata__\":{\"format\":\"pt\"},\"c\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
	        "\"b\\n\":{\"dtype\":\"F32\",\"shape\":[3,1],\"data_offsets\":[8,20]},"
	        "\"e\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[20,24]},"
	        "\"d\":{\"dtype\":\"BF16\",\"shape\":[3,1,0],\"data_offsets\":[24,24]},"
	        "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[24,27]}}";
	size_t padded = (sizeof want - 1 + 7) / 8 * 8, bytes;
	zcc_safetensors_writer *w = new_writer();
	write_sample(w);
	int64_t promised;
	assert_int_equal(zcc_safetensors_writer_bytes(w, &promised, NULL), ZCC_OK);
	assert_int_equal(promised, 8 + padded + 27);
	char *path = at("ours");
	assert_int_equal(zcc_safetensors_writer_finish(w, path, NULL), ZCC_OK);
	zcc_error error = {0};
	assert_int_equal(zcc_safetensors_writer_finish(w, path, &error), ZCC_EEXIST);
	assert_says(&error, path);
	zcc_safetensors_writer_destroy(w);
	unsigned char *data = (unsigned char *)get_file(path, &bytes);
	assert_int_equal(bytes, promised);
	assert_int_equal(data[0] | data[1] << 8, padded);
	for (int i = 2; i < 8; i++)
		assert_int_equal(data[i], 0);
	assert_memory_equal(data + 8, want, sizeof want - 1);
	for (size_t i = 8 + sizeof want - 1; i < 8 + padded; i++)
		assert_int_equal(data[i], ' ');
	for (size_t i = 8 + padded; i < bytes; i++)
		assert_int_equal(data[i], 0);
	free(data);
}

static void every_tensor_is_aligned_and_read_back(void **state)
{
	(void)state;
	zcc_safetensors_writer *w = new_writer();
	char name[32];
	for (int i = 0; i < 2000; i++) {
		int64_t shape[] = {i % 5, i % 7, 3};
		snprintf(name, sizeof name, "tensor.%d", i);
		add(w, name, 1 + i % ZCC_C64, i % 4, shape);
	}
	char *path = at("many");
	assert_int_equal(zcc_safetensors_writer_finish(w, path, NULL), ZCC_OK);
	zcc_safetensors_writer_destroy(w);
	zcc_safetensors *t = open_file(path);
	assert_int_equal(zcc_safetensors_count(t), 2000);
	for (int i = 0; i < 2000; i++) {
		int64_t shape[] = {i % 5, i % 7, 3};
		zcc_tensor_info info;
		snprintf(name, sizeof name, "tensor.%d", i);
		assert_int_equal(zcc_safetensors_tensor(t, zcc_safetensors_find(t, name), &info, NULL), ZCC_OK);
		assert_string_equal(info.name, name);
		assert_int_equal(info.dtype, 1 + i % ZCC_C64);
		assert_int_equal(info.ndim, i % 4);
		assert_memory_equal(info.shape_elems, shape, (size_t)info.ndim * sizeof *shape);
		assert_int_equal(info.offset_bytes % zcc_dtype_bytes(info.dtype), 0);
	}
	zcc_safetensors_close(t);
}

static void nothing_at_all_is_a_file_of_sixteen_bytes(void **state)
{
	(void)state;
	zcc_safetensors_writer *w = new_writer();
	assert_int_equal(zcc_safetensors_writer_finish(w, at("none"), NULL), ZCC_OK);
	zcc_safetensors_writer_destroy(w);
	size_t bytes;
	char *data = get_file(at("none"), &bytes);
	assert_int_equal(bytes, 16);
	assert_memory_equal(data, "\x08\0\0\0\0\0\0\0{}      ", 16);
	free(data);
	zcc_safetensors_close(open_file(at("none")));
}

static void what_the_format_cannot_say_is_not_taken(void **state)
{
	(void)state;
	zcc_safetensors_writer *w = new_writer();
	zcc_error error = {0};
	const int64_t shape[9] = {1, 2, -3, 1, 1, 1, 1, 1, 1}, huge[] = {INT64_C(1) << 32, INT64_C(1) << 31},
	              large[] = {INT64_C(1) << 62};
	add(w, "w", ZCC_F32, 2, shape);
	assert_int_equal(zcc_safetensors_writer_add(w, "w", ZCC_F32, 2, shape, &error), ZCC_EINVAL);
	assert_says(&error, "\"w\" is there already");
	assert_int_equal(zcc_safetensors_writer_add(w, "__metadata__", ZCC_F32, 2, shape, &error), ZCC_EINVAL);
	assert_int_equal(zcc_safetensors_writer_add(w, "\xff", ZCC_F32, 2, shape, &error), ZCC_EINVAL);
	assert_int_equal(zcc_safetensors_writer_add(w, "x", 0, 2, shape, &error), ZCC_EINVAL);
	assert_int_equal(zcc_safetensors_writer_add(w, "x", ZCC_C64 + 1, 2, shape, &error), ZCC_EINVAL);
	assert_int_equal(zcc_safetensors_writer_add(w, "x", ZCC_F32, 3, shape, &error), ZCC_EINVAL);
	assert_says(&error, "axis 2 has an extent of -3");
	assert_int_equal(zcc_safetensors_writer_add(w, "x", ZCC_F32, 9, shape, &error), ZCC_EINVAL);
	assert_int_equal(zcc_safetensors_writer_add(w, "x", ZCC_F32, -1, shape, &error), ZCC_EINVAL);
	assert_int_equal(zcc_safetensors_writer_add(w, "x", ZCC_F32, 2, huge, &error), ZCC_EOVERFLOW);
	add(w, "x", ZCC_U8, 1, large);
	assert_int_equal(zcc_safetensors_writer_add(w, "y", ZCC_U8, 1, large, &error), ZCC_EOVERFLOW);
	assert_says(&error, "\"y\"");
	assert_int_equal(zcc_safetensors_writer_metadata(w, "k", "v", &error), ZCC_OK);
	assert_int_equal(zcc_safetensors_writer_metadata(w, "k", "w", &error), ZCC_EINVAL);
	assert_int_equal(zcc_safetensors_writer_metadata(w, "l", "\xc3", &error), ZCC_EINVAL);
	/* More than any disk has: refused at creation, and nothing stays. */
	assert_int_equal(zcc_safetensors_writer_finish(w, at("huge"), &error), ZCC_EIO);
	assert_false(exists(at("huge")));
	zcc_safetensors_writer_destroy(w);
	zcc_safetensors_writer_destroy(NULL);
}

/* F8. */
static void a_header_over_the_limit_is_not_written(void **state)
{
	(void)state;
	enum { VALUE = 50000000 };
	char *value = malloc(VALUE + 1);
	memset(value, 'v', VALUE);
	value[VALUE] = '\0';
	zcc_safetensors_writer *w = new_writer();
	zcc_error error = {0};
	assert_int_equal(zcc_safetensors_writer_metadata(w, "a", value, NULL), ZCC_OK);
	value[VALUE - 100] = '\0';
	assert_int_equal(zcc_safetensors_writer_metadata(w, "b", value, NULL), ZCC_OK);
	free(value);
	int64_t bytes;
	assert_int_equal(zcc_safetensors_writer_bytes(w, &bytes, NULL), ZCC_OK);
	assert_int_equal(zcc_safetensors_writer_finish(w, at("limit"), NULL), ZCC_OK);
	zcc_safetensors_close(open_file(at("limit")));
	add(w, "one-name-more-that-goes-beyond-it-----------------------------", ZCC_U8, 0, NULL);
	assert_int_equal(zcc_safetensors_writer_bytes(w, &bytes, &error), ZCC_EFORMAT);
	assert_int_equal(zcc_safetensors_writer_finish(w, at("beyond"), &error), ZCC_EFORMAT);
	assert_says(&error, "at most 100000000");
	assert_says(&error, "beyond");
	assert_false(exists(at("beyond")));
	zcc_safetensors_writer_destroy(w);
}

static zcc_status write_and_read(const char *path)
{
	unlink(path);
	zcc_safetensors_writer *w = NULL;
	zcc_safetensors *t = NULL;
	const int64_t shape[] = {2};
	char name[16];
	zcc_status status = zcc_safetensors_writer_create(&w, NULL);
	if (status == ZCC_OK)
		status = zcc_safetensors_writer_metadata(w, "k", "v", NULL);
	for (int i = 0; i < 40 && status == ZCC_OK; i++) {
		snprintf(name, sizeof name, "t%d", i);
		status = zcc_safetensors_writer_add(w, name, ZCC_F32, 1, shape, NULL);
	}
	int64_t bytes;
	if (status == ZCC_OK)
		status = zcc_safetensors_writer_bytes(w, &bytes, NULL);
	if (status == ZCC_OK)
		status = zcc_safetensors_writer_finish(w, path, NULL);
	zcc_safetensors_writer_destroy(w);
	if (status == ZCC_OK)
		status = zcc_safetensors_open(path, &t, NULL);
	if (status == ZCC_OK)
		assert_int_equal(zcc_safetensors_count(t), 40);
	zcc_safetensors_close(t);
	return status;
}

static void a_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	for (int64_t n = 1;; n++) {
		zcci_fail_alloc(n);
		zcc_status status = write_and_read(at("nomem"));
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
		if (!hit) {
			assert_true(n > 15);
			return;
		}
	}
}

/* After a failed add the writer goes on as if it had not been called. */
static void a_writer_survives_a_failed_add(void **state)
{
	(void)state;
	zcc_safetensors_writer *w = new_writer();
	for (int64_t n = 1; n < 6; n++) {
		zcci_fail_alloc(n);
		zcc_status status = zcc_safetensors_writer_add(w, "w", ZCC_U8, 0, NULL, NULL);
		zcci_fail_alloc(0);
		if (status == ZCC_OK)
			break;
		assert_int_equal(status, ZCC_ENOMEM);
	}
	assert_int_equal(zcc_safetensors_writer_finish(w, at("survivor"), NULL), ZCC_OK);
	zcc_safetensors_writer_destroy(w);
	zcc_safetensors *t = open_file(at("survivor"));
	assert_int_equal(zcc_safetensors_count(t), 1);
	zcc_safetensors_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_file_is_byte_for_byte_what_the_format_says),
	        cmocka_unit_test(every_tensor_is_aligned_and_read_back),
	        cmocka_unit_test(nothing_at_all_is_a_file_of_sixteen_bytes),
	        cmocka_unit_test(what_the_format_cannot_say_is_not_taken),
	        cmocka_unit_test(a_header_over_the_limit_is_not_written),
	        cmocka_unit_test(a_failed_allocation_is_reported_and_leaks_nothing),
	        cmocka_unit_test(a_writer_survives_a_failed_add),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
