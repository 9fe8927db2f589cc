/* What lies at a path, and the names in a folder. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "scratch.h"
#include "zcc/store.h"

static void kinds_are_told_apart(void **state)
{
	(void)state;
	put_file(at("file"), "x", 1);
	mkdir(at("folder"), 0755);
	assert_int_equal(mkfifo(at("fifo"), 0600), 0);
	assert_int_equal(symlink("file", at("filelink")), 0);
	assert_int_equal(symlink("folder", at("folderlink")), 0);
	assert_int_equal(symlink("nowhere", at("dangling")), 0);
	assert_int_equal(symlink("loop", at("loop")), 0);
	static const struct {
		const char *name;
		int32_t kind;
	} cases[] = {{"file", 1},       {"folder", 2},   {"folder/", 2}, {"fifo", 3},  {"filelink", 1},
	             {"folderlink", 2}, {"dangling", 3}, {"absent", 0},  {"file/x", 0}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int32_t kind = -1;
		assert_int_equal(zcc_path_kind(at("%s", cases[i].name), &kind, NULL), ZCC_OK);
		assert_int_equal(kind, cases[i].kind);
	}
	int32_t kind = -1;
	zcc_error error = {0};
	assert_int_equal(zcc_path_kind(at("loop"), &kind, &error), ZCC_EIO);
	assert_int_equal(kind, -1);
	assert_int_equal(error.code, ELOOP);
}

static void what_lies_below_a_folder_is_told(void **state)
{
	(void)state;
	mkdir(at("out"), 0755);
	mkdir(at("out/in"), 0755);
	mkdir(at("outer"), 0755);
	put_file(at("out/file"), "x", 1);
	assert_int_equal(symlink("out/in", at("link")), 0);
	static const struct {
		const char *path, *folder;
		int32_t below;
	} cases[] = {
	        {"out/in", "out", 1}, {"out/file", "out", 1},     {"link", "out", 1},           {"out/in/", "out/", 1},
	        {"out", "out", 0},    {"out", "out/in", 0},       {"outer", "out", 0},          {"absent", "out", 0},
	        {"out", "absent", 0}, {"out/../outer", "out", 0}, {"outer/../out/in", "out", 1}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char *path = strdup(at("%s", cases[i].path));
		int32_t below = -1;
		assert_int_equal(zcc_path_below(path, at("%s", cases[i].folder), &below, NULL), ZCC_OK);
		assert_int_equal(below, cases[i].below);
		free(path);
	}
	int32_t below = -1;
	assert_int_equal(zcc_path_below(at("out"), "/", &below, NULL), ZCC_OK);
	assert_int_equal(below, 1);
	assert_int_equal(zcc_path_below("/", "/", &below, NULL), ZCC_OK);
	assert_int_equal(below, 0);
}

static void names_are_listed_sorted_by_bytes(void **state)
{
	(void)state;
	static const char *const want[] = {".hidden", "B", "a", "a-b", "a.b", "ab", "é"};
	static const char *const made[] = {"ab", "é", "a.b", "B", ".hidden", "a-b", "a"};
	char *folder = at("names");
	assert_int_equal(mkdir(folder, 0755), 0);
	for (size_t i = 0; i < 7; i++)
		put_file(at("names/%s", made[i]), "", 0);
	char *names = NULL;
	int32_t n = 0;
	assert_int_equal(zcc_path_list(folder, &names, &n, NULL), ZCC_OK);
	assert_int_equal(n, 7);
	const char *name = names;
	for (int i = 0; i < 7; i++, name += strlen(name) + 1)
		assert_string_equal(name, want[i]);
	zcc_path_list_free(names);
	zcc_error error = {0};
	names = NULL;
	assert_int_equal(zcc_path_list(at("absent"), &names, &n, &error), ZCC_EIO);
	assert_int_equal(zcc_path_list(at("names/a"), &names, &n, &error), ZCC_EIO);
	assert_says(&error, at("names/a"));
	assert_null(names);
	for (int64_t k = 1;; k++) {
		zcci_fail_alloc(k);
		zcc_status status = zcc_path_list(folder, &names, &n, NULL);
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
		if (!hit)
			break;
	}
	zcc_path_list_free(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(kinds_are_told_apart),
	        cmocka_unit_test(what_lies_below_a_folder_is_told),
	        cmocka_unit_test(names_are_listed_sorted_by_bytes),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
