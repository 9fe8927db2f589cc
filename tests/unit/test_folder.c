/* Folders: complete at their name or not there; the order of system calls; nothing outside is touched. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/memory.h"
#include "scratch.h"
#include "zcc/store.h"

/* ---- the engine's system calls, noted in order ---- */

static char calls[64][256];
static int n_calls;
static int sync_fault_at;    /* the n-th fsync fails with EIO */
static int rename_fault_at;  /* the n-th rename fails with EIO */
static int exchange_missing; /* the file system cannot exchange names */
static int kill_at;          /* the process dies before the n-th noted call */
static int n_syncs, n_renames;

static void note(const char *what, int fd, const char *name)
{
	if (n_calls + 1 == kill_at)
		_exit(77);
	char link[64], target[200] = "";
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, target, sizeof target - 1);
	target[length > 0 ? length : 0] = '\0';
	const char *below = target + (strncmp(target, scratch, strlen(scratch)) == 0 ? strlen(scratch) : 0);
	if (n_calls < 64)
		snprintf(calls[n_calls], sizeof calls[0], "%s %s%s%s", what, below, *name != '\0' ? "/" : "", name);
	n_calls++;
}

int fsync(int fd)
{
	note("sync", fd, "");
	if (++n_syncs == sync_fault_at) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fsync, fd);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	note((flags & RENAME_EXCHANGE) != 0 ? "exchange" : "rename", to_fd, to);
	n_renames++;
	errno = EIO;
	if (n_renames == rename_fault_at)
		return -1;
	errno = EINVAL;
	if ((flags & RENAME_EXCHANGE) != 0 && exchange_missing)
		return -1;
	return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int unlinkat(int fd, const char *name, int flags)
{
	note("remove", fd, name);
	return (int)syscall(SYS_unlinkat, fd, name, flags);
}

static void forget(void)
{
	n_calls = n_syncs = n_renames = 0;
	sync_fault_at = rename_fault_at = exchange_missing = kill_at = 0;
}

static void assert_call(int index, const char *want)
{
	assert_true(index < n_calls);
	/* The nonce is left out of the comparison: it stands for '#'. */
	const char *c = calls[index];
	const char *hash = strchr(want, '#');
	size_t head = hash != NULL ? (size_t)(hash - want) : strlen(want);
	bool equal = strncmp(c, want, head) == 0;
	if (hash != NULL && equal)
		equal = strlen(c) >= head + 16 && strcmp(c + head + 16, hash + 1) == 0;
	else if (equal)
		equal = c[head] == '\0';
	if (!equal)
		fail_msg("call %d is \"%s\", not \"%s\"", index, c, want);
}

/* ---- a fresh base folder for each test ---- */

static char base[4096];
static int base_number;

static int fresh(void **state)
{
	(void)state;
	strcpy(base, at("%d", ++base_number));
	forget();
	return mkdir(base, 0755);
}

static char *in_base(const char *name)
{
	return at("%d/%s", base_number, name);
}

/* How many names there are in the base folder. */
static int32_t count(const char *path)
{
	char *names;
	int32_t n;
	zcc_error error = {0};
	if (zcc_path_list(path, &names, &n, &error) != ZCC_OK)
		fail_msg("%s", error.message);
	zcc_path_list_free(names);
	return n;
}

static zcc_folder *begin(const char *path, int32_t replace)
{
	zcc_folder *folder = NULL;
	zcc_error error = {0};
	if (zcc_folder_begin(path, replace, &folder, &error) != ZCC_OK)
		fail_msg("%s", error.message);
	return folder;
}

static void put_in(zcc_folder *folder, const char *name, const char *text)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", zcc_folder_path(folder), name);
	put_file(path, text, strlen(text));
}

static void publish(zcc_folder *folder)
{
	zcc_error error = {0};
	if (zcc_folder_publish(folder, &error) != ZCC_OK)
		fail_msg("%s", error.message);
}

static void refuse_begin(const char *path, int32_t replace, zcc_status want, const char *reason)
{
	zcc_folder *folder = NULL;
	zcc_error error = {0};
	int32_t before = count(base);
	assert_int_equal(zcc_folder_begin(path, replace, &folder, &error), want);
	assert_says(&error, reason);
	assert_null(folder);
	assert_int_equal(count(base), before);
}

static void assert_text(const char *path, const char *want)
{
	size_t bytes;
	char *text = get_file(path, &bytes);
	assert_string_equal(text, want);
	free(text);
}

/* ---- begin and publish ---- */

static void nothing_is_at_the_name_before_publication_and_everything_after(void **state)
{
	(void)state;
	char *path = in_base("out");
	zcc_folder *folder = begin(path, 0);
	assert_false(exists(path));
	assert_int_equal(strncmp(zcc_folder_path(folder), path, strlen(path)), 0);
	assert_int_equal(strncmp(zcc_folder_path(folder) + strlen(path), ".tmp.", 5), 0);
	put_in(folder, "a", "1");
	assert_false(exists(path));
	publish(folder);
	assert_text(in_base("out/a"), "1");
	assert_int_equal(count(base), 1);
	zcc_error error = {0};
	assert_int_equal(zcc_folder_publish(folder, &error), ZCC_EINVAL);
	assert_int_equal(zcc_folder_discard(folder, &error), ZCC_OK);
	assert_text(in_base("out/a"), "1");
	zcc_folder_close(folder);
	zcc_folder_close(NULL);
}

static void two_writers_of_one_name_do_not_meet(void **state)
{
	(void)state;
	zcc_folder *one = begin(in_base("out"), 0), *two = begin(in_base("out"), 0);
	assert_string_not_equal(zcc_folder_path(one), zcc_folder_path(two));
	put_in(one, "a", "one");
	put_in(two, "a", "two");
	publish(two);
	zcc_error error = {0};
	assert_int_equal(zcc_folder_publish(one, &error), ZCC_EEXIST);
	assert_says(&error, in_base("out"));
	assert_text(in_base("out/a"), "two");
	assert_int_equal(zcc_folder_discard(one, NULL), ZCC_OK);
	assert_int_equal(zcc_folder_publish(one, &error), ZCC_EINVAL);
	assert_int_equal(count(base), 1);
	zcc_folder_close(one);
	zcc_folder_close(two);
}

static void a_taken_name_is_refused(void **state)
{
	(void)state;
	mkdir(in_base("full"), 0755);
	put_file(in_base("full/x"), "x", 1);
	put_file(in_base("file"), "x", 1);
	assert_int_equal(symlink("nowhere", in_base("dangling")), 0);
	assert_int_equal(symlink("full", in_base("link")), 0);
	assert_int_equal(symlink("file", in_base("filelink")), 0);
	assert_int_equal(mkfifo(in_base("fifo"), 0600), 0);
	refuse_begin(in_base("full"), 0, ZCC_EEXIST, "a folder with 1 entries already");
	refuse_begin(in_base("full/"), 0, ZCC_EEXIST, "a folder with 1 entries already");
	refuse_begin(in_base("link"), 0, ZCC_EEXIST, "a folder with 1 entries already");
	refuse_begin(in_base("file"), 0, ZCC_EEXIST, "a file of that name already");
	refuse_begin(in_base("file"), 1, ZCC_EEXIST, "a file of that name already");
	refuse_begin(in_base("filelink"), 1, ZCC_EEXIST, "a file of that name already");
	refuse_begin(in_base("fifo"), 1, ZCC_EEXIST, "something of that name");
	refuse_begin(in_base("dangling"), 1, ZCC_EEXIST, "a link to nothing");
	refuse_begin(in_base("file/below"), 0, ZCC_EIO, "Not a directory");
	refuse_begin("", 0, ZCC_EINVAL, "does not end in the name");
	refuse_begin("/", 1, ZCC_EINVAL, "does not end in the name");
	refuse_begin(".", 1, ZCC_EINVAL, "does not end in the name");
	refuse_begin(in_base(".."), 1, ZCC_EINVAL, "does not end in the name");
	refuse_begin("/proc", 1, ZCC_EINVAL, "root of a mounted file system");
	assert_text(in_base("full/x"), "x");
}

static void an_empty_folder_gives_way(void **state)
{
	(void)state;
	mkdir(in_base("out"), 0755);
	zcc_folder *folder = begin(in_base("out"), 0);
	put_in(folder, "a", "1");
	publish(folder);
	zcc_folder_close(folder);
	assert_text(in_base("out/a"), "1");
	assert_int_equal(count(base), 1);
	/* One that fills up in the meantime does not. */
	mkdir(in_base("late"), 0755);
	folder = begin(in_base("late"), 0);
	put_file(in_base("late/theirs"), "x", 1);
	zcc_error error = {0};
	assert_int_equal(zcc_folder_publish(folder, &error), ZCC_EEXIST);
	assert_int_equal(zcc_folder_discard(folder, NULL), ZCC_OK);
	zcc_folder_close(folder);
	assert_text(in_base("late/theirs"), "x");
	assert_int_equal(count(base), 2);
}

static void slashes_relative_paths_missing_parents_and_links_work(void **state)
{
	(void)state;
	char old[4096];
	assert_non_null(getcwd(old, sizeof old));
	assert_int_equal(chdir(base), 0);
	mkdir("real", 0755);
	assert_int_equal(symlink("real", "link"), 0);
	static const char *const paths[] = {"plain", "slash//", "./dot", "a/b/c", "a//b///d/", "link", "x/../y"};
	static const char *const files[] = {"plain/f", "slash/f", "dot/f", "a/b/c/f", "a/b/d/f", "real/f", "y/f"};
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		zcc_folder *folder = begin(paths[i], 0);
		put_in(folder, "f", paths[i]);
		publish(folder);
		zcc_folder_close(folder);
		assert_text(files[i], paths[i]);
	}
	struct stat info;
	assert_int_equal(lstat("link", &info), 0);
	assert_true(S_ISLNK(info.st_mode));
	/* Another working folder at publication does not lead it astray. */
	zcc_folder *folder = begin("moved", 0);
	put_in(folder, "f", "moved");
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(zcc_folder_publish(folder, NULL), ZCC_OK);
	zcc_folder_close(folder);
	assert_text(in_base("moved/f"), "moved");
	assert_int_equal(chdir(old), 0);
}

/* ---- order, faults ---- */

/* E11: every file, its folder, the rename, the parent; nothing is removed. */
static void files_are_synced_before_the_rename_and_the_parent_after(void **state)
{
	(void)state;
	char want[64];
	zcc_folder *folder = begin(in_base("out"), 0);
	put_in(folder, "b", "1");
	put_in(folder, "a", "1");
	char path[4096];
	snprintf(path, sizeof path, "%s/sub", zcc_folder_path(folder));
	mkdir(path, 0755);
	put_in(folder, "sub/c", "1");
	forget();
	publish(folder);
	static const char *const order[] = {"sync /%d/out.tmp.#/a",
	                                    "sync /%d/out.tmp.#/b",
	                                    "sync /%d/out.tmp.#/sub/c",
	                                    "sync /%d/out.tmp.#/sub",
	                                    "sync /%d/out.tmp.#",
	                                    "rename /%d/out",
	                                    "sync /%d"};
	for (int i = 0; i < 7; i++) {
		snprintf(want, sizeof want, order[i], base_number);
		assert_call(i, want);
	}
	assert_int_equal(n_calls, 7);
	zcc_folder_close(folder);
}

/* The old content goes only after the new name is on disk. */
static void what_is_replaced_is_removed_last(void **state)
{
	(void)state;
	char want[64];
	mkdir(in_base("out"), 0755);
	put_file(in_base("out/old"), "x", 1);
	zcc_folder *folder = begin(in_base("out"), 1);
	put_in(folder, "new", "1");
	forget();
	publish(folder);
	zcc_folder_close(folder);
	static const char *const order[] = {"sync /%d/out.tmp.#/new",   "sync /%d/out.tmp.#",
	                                    "exchange /%d/out",         "sync /%d",
	                                    "remove /%d/out.tmp.#/old", "remove /%d/out.tmp.#"};
	for (int i = 0; i < 6; i++) {
		snprintf(want, sizeof want, order[i], base_number);
		assert_call(i, want);
	}
	assert_int_equal(n_calls, 6);
	assert_int_equal(count(base), 1);
	assert_text(in_base("out/new"), "1");
	assert_false(exists(in_base("out/old")));
}

static void a_failing_sync_fails_the_publication(void **state)
{
	(void)state;
	for (int n = 1; n <= 3; n++) {
		zcc_folder *folder = begin(in_base("out"), 0);
		put_in(folder, "a", "1");
		forget();
		sync_fault_at = n;
		zcc_error error = {0};
		assert_int_equal(zcc_folder_publish(folder, &error), ZCC_EIO);
		assert_int_equal(error.code, EIO);
		/* The third is the parent's, after the rename. */
		assert_int_equal(exists(in_base("out")), n == 3);
		if (n == 3)
			assert_says(&error, "the new content is in place but may not survive a crash");
		forget();
		assert_int_equal(zcc_folder_discard(folder, NULL), ZCC_OK);
		assert_int_equal(count(base), n == 3);
		zcc_folder_close(folder);
	}
	/* Replacing: the old content is not thrown away while the new may still be lost. */
	zcc_folder *folder = begin(in_base("out"), 1);
	put_in(folder, "a", "2");
	forget();
	sync_fault_at = 3;
	zcc_error error = {0};
	assert_int_equal(zcc_folder_publish(folder, &error), ZCC_EIO);
	assert_says(&error, zcc_folder_path(folder));
	assert_int_equal(zcc_folder_discard(folder, NULL), ZCC_OK);
	assert_text(in_base("out/a"), "2");
	assert_int_equal(count(base), 2);
	zcc_folder_close(folder);
}

static void a_failing_rename_leaves_the_old_content(void **state)
{
	(void)state;
	mkdir(in_base("out"), 0755);
	put_file(in_base("out/a"), "old", 3);
	for (int missing = 0; missing <= 1; missing++)
		for (int n = 1 + missing; n <= 1 + 2 * missing; n++) {
			zcc_folder *folder = begin(in_base("out"), 1);
			put_in(folder, "a", "new");
			forget();
			exchange_missing = missing;
			rename_fault_at = n;
			zcc_error error = {0};
			assert_int_equal(zcc_folder_publish(folder, &error), ZCC_EIO);
			assert_text(in_base("out/a"), "old");
			assert_int_equal(zcc_folder_discard(folder, NULL), ZCC_OK);
			assert_int_equal(count(base), 1);
			zcc_folder_close(folder);
		}
}

static void a_file_system_that_cannot_exchange_names_replaces_in_two_steps(void **state)
{
	(void)state;
	mkdir(in_base("out"), 0755);
	put_file(in_base("out/a"), "old", 3);
	zcc_folder *folder = begin(in_base("out"), 1);
	put_in(folder, "a", "new");
	forget();
	exchange_missing = 1;
	publish(folder);
	zcc_folder_close(folder);
	assert_text(in_base("out/a"), "new");
	assert_int_equal(count(base), 1);
	char want[64];
	snprintf(want, sizeof want, "rename /%d/out.old.#", base_number);
	assert_call(3, want);
}

/* A17 in small: dead before any of its system calls, the name holds the old content or the new, whole. */
static void a_death_at_any_call_leaves_old_or_new(void **state)
{
	(void)state;
	mkdir(in_base("out"), 0755);
	put_file(in_base("out/a"), "old", 3);
	put_file(in_base("out/b"), "old", 3);
	for (int n = 1;; n++) {
		fflush(NULL);
		pid_t child = fork();
		if (child == 0) {
			zcc_folder *folder = begin(in_base("out"), 1);
			put_in(folder, "a", "new");
			put_in(folder, "b", "new");
			forget();
			kill_at = n;
			_exit(zcc_folder_publish(folder, NULL) == ZCC_OK ? 0 : 1);
		}
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		size_t bytes;
		char *a = get_file(in_base("out/a"), &bytes), *b = get_file(in_base("out/b"), &bytes);
		assert_string_equal(a, b);
		assert_true(strcmp(a, "old") == 0 || strcmp(a, "new") == 0);
		/* Calls: two files, the folder, the exchange, the parent, three removals. */
		assert_string_equal(a, n <= 4 ? "old" : "new");
		free(a);
		free(b);
		assert_true(WIFEXITED(status));
		if (WEXITSTATUS(status) != 77) {
			assert_int_equal(WEXITSTATUS(status), 0);
			assert_int_equal(n, 9);
			return;
		}
		put_file(in_base("out/a"), "old", 3);
		put_file(in_base("out/b"), "old", 3);
	}
}

static void links_are_removed_never_followed(void **state)
{
	(void)state;
	mkdir(in_base("precious"), 0755);
	put_file(in_base("precious/data"), "x", 1);
	char target[4200];
	for (int replace = 0; replace <= 1; replace++) {
		zcc_folder *folder = begin(in_base("out"), replace);
		snprintf(target, sizeof target, "%s/link", zcc_folder_path(folder));
		assert_int_equal(symlink(in_base("precious"), target), 0);
		snprintf(target, sizeof target, "%s/loop", zcc_folder_path(folder));
		assert_int_equal(symlink(".", target), 0);
		if (replace == 0) {
			publish(folder);
		} else {
			assert_int_equal(zcc_folder_discard(folder, NULL), ZCC_OK);
		}
		zcc_folder_close(folder);
	}
	/* The published one, links and all, replaced by another. */
	zcc_folder *folder = begin(in_base("out"), 1);
	publish(folder);
	zcc_folder_close(folder);
	assert_text(in_base("precious/data"), "x");
	assert_int_equal(count(base), 2);
	assert_int_equal(count(in_base("out")), 0);
}

static void discarding_removes_a_deep_tree_and_nothing_else(void **state)
{
	(void)state;
	zcc_folder *folder = begin(in_base("out"), 0);
	put_file(in_base("out.tmp.0123456789abcdef"), "not ours", 8);
	char path[4096];
	snprintf(path, sizeof path, "%s", zcc_folder_path(folder));
	for (int i = 0; i < 100; i++) {
		strcat(path, "/d");
		assert_int_equal(mkdir(path, 0755), 0);
		char file[4200];
		snprintf(file, sizeof file, "%s/f", path);
		put_file(file, "x", 1);
	}
	assert_int_equal(zcc_folder_discard(folder, NULL), ZCC_OK);
	assert_int_equal(zcc_folder_discard(folder, NULL), ZCC_OK);
	assert_int_equal(count(base), 1);
	assert_text(in_base("out.tmp.0123456789abcdef"), "not ours");
	zcc_folder_close(folder);
	/* Removed by somebody else: no fault. */
	folder = begin(in_base("out"), 0);
	assert_int_equal(rmdir(zcc_folder_path(folder)), 0);
	assert_int_equal(zcc_folder_discard(folder, NULL), ZCC_OK);
	zcc_folder_close(folder);
}

static void a_signal_stops_the_publication_but_not_the_clean_up(void **state)
{
	(void)state;
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		zcc_folder *folder = begin(in_base("out"), 0);
		put_in(folder, "a", "1");
		zcc_interrupt_watch();
		raise(SIGINT);
		zcc_error error = {0};
		if (zcc_folder_publish(folder, &error) != ZCC_EINTR || error.code != SIGINT)
			_exit(1);
		_exit(zcc_folder_discard(folder, &error) == ZCC_OK ? 0 : 2);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(count(base), 0);
}

static void a_failed_allocation_is_reported_and_leaves_nothing(void **state)
{
	(void)state;
	mkdir(in_base("real"), 0755);
	assert_int_equal(symlink("real", in_base("link")), 0);
	for (int64_t n = 1;; n++) {
		zcc_folder *folder = NULL;
		zcci_fail_alloc(n);
		zcc_status status = zcc_folder_begin(in_base("link"), 1, &folder, NULL);
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
		assert_int_equal(count(base), hit ? 2 : 3);
		if (status == ZCC_OK)
			assert_int_equal(zcc_folder_discard(folder, NULL), ZCC_OK);
		zcc_folder_close(folder);
		if (!hit)
			break;
	}
	for (int64_t n = 1;; n++) {
		zcc_folder *folder = begin(in_base("out"), 1);
		put_in(folder, "a", "1");
		zcci_fail_alloc(n);
		zcc_status status = zcc_folder_publish(folder, NULL);
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
		assert_int_equal(zcc_folder_discard(folder, NULL), ZCC_OK);
		zcc_folder_close(folder);
		if (!hit)
			break;
		assert_int_equal(count(base), 2);
	}
}

static void clean_up_needs_no_descriptor_that_others_have_taken(void **state)
{
	(void)state;
	zcc_folder *folder = begin(in_base("out"), 0);
	put_in(folder, "a", "1");
	struct rlimit limit, low;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	int taken[64], n = 0;
	while (n < 64 && (taken[n] = open("/dev/null", O_RDONLY)) >= 0)
		n++;
	zcc_error error = {0};
	zcc_status status = zcc_folder_discard(folder, &error);
	while (n > 0)
		close(taken[--n]);
	setrlimit(RLIMIT_NOFILE, &limit);
	assert_string_equal(error.message, "");
	assert_int_equal(status, ZCC_OK);
	zcc_folder_close(folder);
	assert_int_equal(count(base), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(nothing_is_at_the_name_before_publication_and_everything_after, fresh),
	        cmocka_unit_test_setup(two_writers_of_one_name_do_not_meet, fresh),
	        cmocka_unit_test_setup(a_taken_name_is_refused, fresh),
	        cmocka_unit_test_setup(an_empty_folder_gives_way, fresh),
	        cmocka_unit_test_setup(slashes_relative_paths_missing_parents_and_links_work, fresh),
	        cmocka_unit_test_setup(files_are_synced_before_the_rename_and_the_parent_after, fresh),
	        cmocka_unit_test_setup(what_is_replaced_is_removed_last, fresh),
	        cmocka_unit_test_setup(a_failing_sync_fails_the_publication, fresh),
	        cmocka_unit_test_setup(a_failing_rename_leaves_the_old_content, fresh),
	        cmocka_unit_test_setup(a_file_system_that_cannot_exchange_names_replaces_in_two_steps, fresh),
	        cmocka_unit_test_setup(a_death_at_any_call_leaves_old_or_new, fresh),
	        cmocka_unit_test_setup(links_are_removed_never_followed, fresh),
	        cmocka_unit_test_setup(discarding_removes_a_deep_tree_and_nothing_else, fresh),
	        cmocka_unit_test_setup(a_signal_stops_the_publication_but_not_the_clean_up, fresh),
	        cmocka_unit_test_setup(clean_up_needs_no_descriptor_that_others_have_taken, fresh),
	        cmocka_unit_test_setup(a_failed_allocation_is_reported_and_leaves_nothing, fresh),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
