/* Reading safetensors: the files of others are read, malformed ones refused with path, tensor and numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "scratch.h"
#include "zcc/store.h"

/* Length prefix, header and `data_bytes` bytes counting up. */
static char *make_file(const char *name, const char *header, size_t data_bytes)
{
	size_t length = strlen(header);
	char *bytes = malloc(8 + length + data_bytes), *path = at(name);
	for (int i = 0; i < 8; i++)
		bytes[i] = (char)(length >> 8 * i);
	memcpy(bytes + 8, header, length);
	for (size_t i = 0; i < data_bytes; i++)
		bytes[8 + length + i] = (char)i;
	put_file(path, bytes, 8 + length + data_bytes);
	free(bytes);
	return path;
}

static zcc_safetensors *open_file(const char *path)
{
	zcc_safetensors *t = NULL;
	zcc_error error = {0};
	if (zcc_safetensors_open(path, &t, &error) != ZCC_OK)
		fail_msg("%s", error.message);
	return t;
}

static void refuse_path(const char *path, const char *reason)
{
	zcc_safetensors *t = (zcc_safetensors *)1;
	zcc_error error = {0};
	zcc_status status = zcc_safetensors_open(path, &t, &error);
	if (status != ZCC_EFORMAT)
		fail_msg("%s: status %s, not refused for: %s", path, zcc_status_name(status), reason);
	assert_ptr_equal(t, (zcc_safetensors *)1);
	assert_says(&error, path);
	assert_says(&error, reason);
}

static void refuse(const char *header, size_t data_bytes, const char *reason)
{
	refuse_path(make_file("bad", header, data_bytes), reason);
}

/* Entries not in the order of their bytes, metadata in between, spaces before and after; 15 bytes of data. */
static const char other_header[] = "{ "
                                   "\"b\":{\"data_offsets\":[6,14],\"dtype\":\"F32\",\"shape\":[2,1]},\"__metadata__"
                                   "\":{\"format\":\"pt\",\"\":\"x\"},\n"
                                   "\"\\u00e9\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},"
                                   "\"s\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[14,15]}}   ";

static void a_file_of_another_writer_is_read(void **state)
{
	(void)state;
	zcc_safetensors *t = open_file(make_file("other", other_header, 15));
	assert_int_equal(zcc_safetensors_count(t), 3);
	static const struct {
		const char *name;
		int32_t dtype, ndim;
		int64_t shape[2], elems, offset, bytes;
	} want[] = {{"é", ZCC_BF16, 1, {3}, 3, 0, 6},
	            {"b", ZCC_F32, 2, {2, 1}, 2, 6, 8},
	            {"s", ZCC_BOOL, 0, {0}, 1, 14, 1}};
	int64_t data_start = zcc_file_bytes(zcc_safetensors_file(t)) - 15;
	for (int32_t i = 0; i < 3; i++) {
		zcc_tensor_info info;
		unsigned char first;
		assert_int_equal(zcc_safetensors_tensor(t, i, &info, NULL), ZCC_OK);
		assert_string_equal(info.name, want[i].name);
		assert_int_equal(info.dtype, want[i].dtype);
		assert_int_equal(info.ndim, want[i].ndim);
		for (int32_t k = 0; k < info.ndim; k++)
			assert_int_equal(info.shape_elems[k], want[i].shape[k]);
		assert_int_equal(info.elems, want[i].elems);
		assert_int_equal(info.offset_bytes, data_start + want[i].offset);
		assert_int_equal(info.bytes, want[i].bytes);
		assert_int_equal(zcc_file_read(zcc_safetensors_file(t), info.offset_bytes, &first, 1, NULL), ZCC_OK);
		assert_int_equal(first, want[i].offset);
		assert_int_equal(zcc_safetensors_find(t, want[i].name), i);
	}
	zcc_tensor_info info;
	zcc_error error = {0};
	assert_int_equal(zcc_safetensors_tensor(t, 3, &info, &error), ZCC_EINVAL);
	assert_int_equal(zcc_safetensors_tensor(t, -1, &info, &error), ZCC_EINVAL);
	assert_int_equal(zcc_safetensors_find(t, "c"), -1);
	assert_int_equal(zcc_safetensors_find(t, "__metadata__"), -1);
	const char *key, *value;
	zcc_safetensors_metadata(t, 0, &key, &value);
	assert_string_equal(key, "format");
	assert_string_equal(value, "pt");
	zcc_safetensors_metadata(t, 1, &key, &value);
	assert_string_equal(key, "");
	zcc_safetensors_metadata(t, 2, &key, &value);
	assert_null(key);
	zcc_safetensors_metadata(t, -1, &key, &value);
	assert_null(key);
	zcc_safetensors_close(t);
}

/* F6. */
static void empty_scalar_and_nothing_at_all_are_read(void **state)
{
	(void)state;
	zcc_safetensors *t = open_file(make_file("nothing", "{}      ", 0));
	assert_int_equal(zcc_file_bytes(zcc_safetensors_file(t)), 16);
	assert_int_equal(zcc_safetensors_count(t), 0);
	assert_int_equal(zcc_safetensors_find(t, ""), -1);
	zcc_safetensors_close(t);
	t = open_file(make_file("meta", "{\"__metadata__\":{}}", 0));
	assert_int_equal(zcc_safetensors_count(t), 0);
	zcc_safetensors_close(t);
	t = open_file(make_file("empty",
	                        "{\"b\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
	                        "\"z\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[8,8]},"
	                        "\"y\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
	                        "\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
	                        8));
	static const char *const order[] = {"y", "x", "b", "z"};
	for (int32_t i = 0; i < 4; i++)
		assert_int_equal(zcc_safetensors_find(t, order[i]), i);
	zcc_safetensors_close(t);
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,0]}}", 0,
	       "tensor \"a\": shape and dtype F32 make 4 bytes");
}

static void header_lengths_that_cannot_be_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *bytes;
		size_t count;
		const char *reason;
	} cases[] = {
	        {"", 0, "0 bytes, too few"},
	        {"\x02\0\0\0\0\0\0", 7, "7 bytes, too few"},
	        {"\0\0\0\0\0\0\0\0", 8, "does not begin with '{'"},
	        {"\x03\0\0\0\0\0\0\0{}", 10, "a header of 3 bytes, but only 2 follow"},
	        {"\0\xe1\xf5\x05\0\0\0\0{}", 10, "a header of 100000000 bytes, but only 2 follow"},
	        {"\x01\xe1\xf5\x05\0\0\0\0{}", 10, "not safetensors: a header of 100000001 bytes; at most 100000000"},
	        {"\0\0\0\0\0\0\0\x80{}", 10, "a header of 9223372036854775808 bytes; at most"},
	        {"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "a header of 18446744073709551615 bytes; at most"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char *path = at("length");
		put_file(path, cases[i].bytes, cases[i].count);
		refuse_path(path, cases[i].reason);
	}
}

static void headers_that_are_no_such_document_are_refused(void **state)
{
	(void)state;
	refuse(" {}", 0, "does not begin with '{'");
	refuse("[]", 0, "does not begin with '{'");
	refuse("{", 0, "byte 1: the text ends");
	refuse("{}x", 0, "byte 2: 'x'");
	refuse("{\"a\xff\":{}}", 0, "invalid UTF-8");
	refuse("{\"\xc0\xaf\":{}}", 0, "invalid UTF-8");
	refuse("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
	       "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
	       2, "\"w\" is there twice");
	refuse("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
	       "\"shape\" is there twice");
	refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "\"__metadata__\" is there twice");
	refuse("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
	refuse("{\"__metadata__\":null}", 0, "__metadata__ is not an object");
	refuse("{\"__metadata__\":{\"step\":1}}", 0, "the value of \"step\" is not a string");
}

/* One tensor "w" whose entry is given, over 4 data bytes. */
static void refuse_entry(const char *entry, const char *reason)
{
	char header[512], want[256];
	snprintf(header, sizeof header, "{\"w\":%s}", entry);
	snprintf(want, sizeof want, "tensor \"w\": %s", reason);
	refuse(header, 4, want);
}

static void entries_that_are_malformed_are_refused_by_name(void **state)
{
	(void)state;
	refuse_entry("1", "its entry is not an object");
	refuse_entry("[]", "its entry is not an object");
	refuse_entry("{\"shape\":[4],\"data_offsets\":[0,4]}", "it has no dtype");
	refuse_entry("{\"dtype\":\"U8\",\"data_offsets\":[0,4]}", "it has no shape");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4]}", "it has no data_offsets");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"extra\":0}", "unknown key \"extra\"");
	refuse_entry("{\"dtype\":1,\"shape\":[4],\"data_offsets\":[0,4]}", "its dtype is not a string");
	refuse_entry("{\"dtype\":\"F7\",\"shape\":[4],\"data_offsets\":[0,4]}", "unknown dtype \"F7\"");
	refuse_entry("{\"dtype\":\"u8\",\"shape\":[4],\"data_offsets\":[0,4]}", "unknown dtype \"u8\"");
	refuse_entry("{\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[0,4]}", "unknown dtype \"F4\"");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":4,\"data_offsets\":[0,4]}", "its shape is not an array");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[\"4\"],\"data_offsets\":[0,4]}",
	             "extent 0 of its shape is not a number");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[1,[4]],\"data_offsets\":[0,4]}",
	             "extent 1 of its shape is not a number");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4.0],\"data_offsets\":[0,4]}",
	             "extent 0 of its shape is 4, not an integer");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[-1,-4],\"data_offsets\":[0,4]}", "extent 0 of its shape is -1");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[18446744073709551615],\"data_offsets\":[0,4]}",
	             "extent 0 of its shape is 1.8");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[0,4]}",
	             "9 axes; zcc takes at most 8");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":{\"0\":0,\"1\":4}}",
	             "data_offsets is not an array");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[]}",
	             "data_offsets is not an array of 2 but one of 0");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4]}",
	             "data_offsets is not an array of 2 but one of 1");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,4]}",
	             "data_offsets is not an array of 2 but one of 3");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[\"0\",\"4\"]}",
	             "data_offsets are not two numbers");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[[0],[4]]}", "data_offsets are not two numbers");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4.5]}",
	             "data_offsets [0, 4.5] are not integers");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}", "data_offsets [4, 0] are reversed");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[-4,0]}", "data_offsets [-4, 0] are negative");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[-9223372036854775808,9223372036854775807]}",
	             "data_offsets [-92");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]}",
	             "data_offsets [0, 5] reach past the end of the data, which "
	             "has 4 bytes");
	/* F5: bounds first. */
	refuse_entry("{\"dtype\":\"F7\",\"shape\":[1],\"data_offsets\":[0,18446744073709551615]}",
	             "data_offsets [0, 1.8446744073709552e+19]");
}

/* F2. */
static void a_shape_that_is_not_its_bytes_is_refused(void **state)
{
	(void)state;
	refuse_entry("{\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]}",
	             "shape and dtype F32 make 4000000 bytes, but data_offsets [0, 4] hold 4");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,4]}", "shape and dtype U8 make 3 bytes");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,4]}", "shape and dtype U8 make 0 bytes");
	refuse_entry("{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,4]}", "shape and dtype F32 make 16 bytes");
	/* 2^32 * 2^32 is 0 in 64 bits, 2^62 * 8 is too. */
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}",
	             "the product of its shape");
	refuse_entry("{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}",
	             "the product of its shape");
	refuse_entry("{\"dtype\":\"U8\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}",
	             "the product of its shape");
}

static void refuse_pair(int64_t a, int64_t b, int64_t c, int64_t d, size_t data_bytes, const char *reason)
{
	char header[512];
	snprintf(header, sizeof header,
	         "{\"x\":{\"dtype\":\"U8\",\"shape\":[%lld],\"data_offsets\":[%lld,%lld]},"
	         "\"y\":{\"dtype\":\"U8\",\"shape\":[%lld],\"data_offsets\":[%lld,%lld]}}",
	         (long long)(b - a), (long long)a, (long long)b, (long long)(d - c), (long long)c, (long long)d);
	refuse(header, data_bytes, reason);
}

/* F3. */
static void ranges_that_do_not_tile_the_data_are_refused(void **state)
{
	(void)state;
	refuse_pair(0, 8, 0, 8, 8,
	            "tensor \"y\" begins at byte 0 of the data, not at 8 where tensor x ends: they overlap");
	refuse_pair(0, 8, 4, 12, 12,
	            "tensor \"y\" begins at byte 4 of the data, not at 8 where tensor x ends: they overlap");
	refuse_pair(4, 12, 0, 8, 12,
	            "tensor \"x\" begins at byte 4 of the data, not at 8 where tensor y ends: they overlap");
	refuse_pair(0, 8, 2, 4, 8, "tensor \"y\" begins at byte 2");
	refuse_pair(0, 4, 8, 12, 12, "tensor \"y\" begins at byte 8 of the data, not at 4 where tensor x ends: a hole");
	refuse_pair(4, 8, 8, 12, 12,
	            "tensor \"x\" begins at byte 4 of the data, not at 0 where the header ends: a hole");
	refuse_pair(0, 8, 4, 4, 8, "tensor \"y\" begins at byte 4");
	refuse_pair(0, 4, 4, 8, 9, "9 bytes of data, of which the last 1 belong to no tensor");
	refuse_pair(0, 4, 4, 8, 7,
	            "tensor \"y\": data_offsets [4, 8] reach past the end of the data, which has 7 bytes");
	refuse("{}", 1, "1 bytes of data, of which the last 1 belong to no tensor");
}

static void what_cannot_be_opened_is_an_error_of_the_system(void **state)
{
	(void)state;
	zcc_safetensors *t = NULL;
	zcc_error error = {0};
	assert_int_equal(zcc_safetensors_open(at("absent"), &t, &error), ZCC_EIO);
	assert_says(&error, "absent");
	refuse_path(scratch, "a folder");
	assert_null(t);
	zcc_safetensors_close(NULL);
}

/* Reads what a handle offers: a sanitizer sees a number that was believed wrongly. */
static void read_all(zcc_safetensors *t)
{
	int64_t end = zcc_file_bytes(zcc_safetensors_file(t));
	for (int32_t i = 0; i < zcc_safetensors_count(t); i++) {
		zcc_tensor_info info;
		assert_int_equal(zcc_safetensors_tensor(t, i, &info, NULL), ZCC_OK);
		assert_true(info.offset_bytes >= 10 && info.bytes >= 0 && info.bytes <= end - info.offset_bytes);
		char *data = malloc((size_t)info.bytes + 1);
		assert_int_equal(zcc_file_read(zcc_safetensors_file(t), info.offset_bytes, data, info.bytes, NULL),
		                 ZCC_OK);
		free(data);
		assert_int_equal(zcc_safetensors_find(t, info.name), i);
	}
	const char *key, *value;
	for (int32_t i = 0; zcc_safetensors_metadata(t, i, &key, &value), key != NULL; i++)
		assert_non_null(value);
	zcc_safetensors_close(t);
}

/* Changes, removes, doubles or swaps bytes, mostly in the header; digits often, since numbers are what hurts. */
static size_t mutate(unsigned char *bytes, size_t count, size_t header, uint64_t *random)
{
	static const char spice[] = "0123456789-+.eE\"{}[],:\\u \xff";
	int changes = 1 + (int)(random[0] % 4);
	for (int i = 0; i < changes && count > 0; i++) {
		uint64_t r = random[1 + i];
		size_t where = r % 16 == 0 ? (r >> 8) % 8 : (r >> 8) % (header + 8 < count ? header + 8 : count);
		if (where >= count)
			continue;
		switch (r >> 4 & 7) {
		case 0: /* a bit */
			bytes[where] ^= (unsigned char)(1u << (r >> 40 & 7));
			break;
		case 1: /* cut short */
			count = r % 3 == 0 ? where : count - (r >> 40) % (count < 64 ? count : 64);
			break;
		case 2: /* a byte less */
			memmove(bytes + where, bytes + where + 1, count - where - 1);
			count--;
			break;
		case 3: /* a piece again, over what is there */
			memmove(bytes + where, bytes + (r >> 40) % count,
			        count - (where > (r >> 40) % count ? where : (r >> 40) % count));
			break;
		default:
			bytes[where] = (unsigned char)spice[(r >> 40) % (sizeof spice - 1)];
		}
	}
	return count;
}

static void mutated_files_are_refused_or_read_within_their_bounds(void **state)
{
	(void)state;
	const char *given = getenv("ZCC_SEED"), *rounds = getenv("ZCC_ROUNDS");
	int64_t seed = given != NULL ? strtoll(given, NULL, 0) : 20240607;
	int n = rounds != NULL ? atoi(rounds) : 6000, opened = 0;
	print_message("ZCC_SEED=%lld\n", (long long)seed);
	char *path = make_file("seed", other_header, 15), *victim = at("victim");
	size_t bytes;
	char *valid = get_file(path, &bytes);
	unsigned char *mutant = malloc(bytes);
	for (int i = 0; i < n; i++) {
		uint64_t random[8];
		zcc_memory_fill_random(random, sizeof random, seed + i);
		memcpy(mutant, valid, bytes);
		size_t count = mutate(mutant, bytes, bytes - 23, random);
		/* Half of them with a length that fits again, so that what comes after it is reached. */
		if (random[7] % 2 == 0 && count >= 23) {
			size_t header = count - 23;
			memset(mutant, 0, 8);
			mutant[0] = (unsigned char)header;
			mutant[1] = (unsigned char)(header >> 8);
		}
		put_file(victim, mutant, count);
		zcc_safetensors *t = NULL;
		zcc_error error = {0};
		zcc_status status = zcc_safetensors_open(victim, &t, &error);
		if (status == ZCC_OK) {
			opened++;
			read_all(t);
		} else if (status != ZCC_EFORMAT || strstr(error.message, victim) == NULL) {
			fail_msg("ZCC_SEED=%lld: %s: %s", (long long)(seed + i), zcc_status_name(status),
			         error.message);
		}
	}
	print_message("%d of %d mutants could be read\n", opened, n);
	assert_true(opened > 0 && opened < n);
	free(mutant);
	free(valid);
}

/* F1: cut by a byte, a page, half. */
static void a_file_cut_short_is_refused(void **state)
{
	(void)state;
	make_file("whole", "{\"w\":{\"dtype\":\"F32\",\"shape\":[5000],\"data_offsets\":[0,20000]}}", 20000);
	struct stat info;
	assert_int_equal(stat(at("whole"), &info), 0);
	const off_t sizes[] = {info.st_size - 1, info.st_size - 4096, info.st_size / 2, 20, 9, 8, 7, 0};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		assert_int_equal(truncate(at("whole"), sizes[i]), 0);
		char *path = at("whole");
		refuse_path(path, i < 3 ? "tensor \"w\": data_offsets [0, 20000] reach past the end" : "");
	}
}

static void a_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	char *path = make_file("nomem", other_header, 15);
	for (int64_t n = 1;; n++) {
		zcc_safetensors *t = NULL;
		zcc_error error = {0};
		zcci_fail_alloc(n);
		zcc_status status = zcc_safetensors_open(path, &t, &error);
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		zcc_safetensors_close(t);
		assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
		assert_int_equal(error.status, status);
		if (!hit) {
			assert_true(n > 5);
			return;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_file_of_another_writer_is_read),
	        cmocka_unit_test(empty_scalar_and_nothing_at_all_are_read),
	        cmocka_unit_test(header_lengths_that_cannot_be_are_refused),
	        cmocka_unit_test(headers_that_are_no_such_document_are_refused),
	        cmocka_unit_test(entries_that_are_malformed_are_refused_by_name),
	        cmocka_unit_test(a_shape_that_is_not_its_bytes_is_refused),
	        cmocka_unit_test(ranges_that_do_not_tile_the_data_are_refused),
	        cmocka_unit_test(what_cannot_be_opened_is_an_error_of_the_system),
	        cmocka_unit_test(mutated_files_are_refused_or_read_within_their_bounds),
	        cmocka_unit_test(a_file_cut_short_is_refused),
	        cmocka_unit_test(a_failed_allocation_is_reported_and_leaks_nothing),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
