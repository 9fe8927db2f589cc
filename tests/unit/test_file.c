/* Files: all bytes or a fault that names path and numbers; space known at creation; signals heeded; references counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <xxhash.h>

#include "base/memory.h"
#include "scratch.h"
#include "store/file.h"

/* The engine's own calls land here: a limit shortens every transfer, interrupts come before each, a code refuses it. */
static size_t io_limit;
static int io_interrupts, io_refuses, io_calls;
static int sync_refuses;

static ssize_t shorten(long number, int fd, void *data, size_t bytes, off_t offset)
{
	io_calls++;
	if (io_refuses != 0) {
		errno = io_refuses;
		return -1;
	}
	if (io_interrupts > 0 && io_calls % 2 == 1) {
		io_interrupts--;
		errno = EINTR;
		return -1;
	}
	return syscall(number, fd, data, io_limit > 0 && bytes > io_limit ? io_limit : bytes, offset);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
	return shorten(SYS_pread64, fd, data, bytes, offset);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
	return shorten(SYS_pwrite64, fd, (void *)data, bytes, offset);
}

int fdatasync(int fd)
{
	errno = sync_refuses;
	return sync_refuses != 0 ? -1 : (int)syscall(SYS_fdatasync, fd);
}

/* A disk without room that reserving would tell, as a quota does. */
static int reserve_calls, reserve_refuses;

int posix_fallocate(int fd, off_t offset, off_t bytes)
{
	reserve_calls++;
	if (reserve_refuses != 0)
		return reserve_refuses;
	return syscall(SYS_fallocate, fd, 0, offset, bytes) == 0 ? 0 : errno;
}

static int reset(void **state)
{
	(void)state;
	io_limit = 0;
	io_interrupts = io_refuses = io_calls = sync_refuses = reserve_calls = reserve_refuses = 0;
	return 0;
}

static zcc_file *create(const char *path, int64_t bytes)
{
	zcc_file *file = NULL;
	zcc_error error = {0};
	if (zcc_file_create(path, bytes, &file, &error) != ZCC_OK)
		fail_msg("%s", error.message);
	return file;
}

static void a_new_file_is_zero_and_as_long_as_asked(void **state)
{
	(void)state;
	for (int64_t bytes = 0; bytes < 20000; bytes = bytes * 3 + 1) {
		char *path = at("new");
		zcc_file *file = create(path, bytes);
		assert_int_equal(zcc_file_bytes(file), bytes);
		assert_string_equal(zcc_file_path(file), path);
		zcc_file_close(file);
		size_t found;
		char *data = get_file(path, &found);
		assert_int_equal(found, bytes);
		for (size_t i = 0; i < found; i++)
			assert_int_equal(data[i], 0);
		free(data);
		unlink(path);
	}
}

static void creating_over_a_file_is_refused_and_leaves_it(void **state)
{
	(void)state;
	char *path = at("taken");
	put_file(path, "old", 3);
	zcc_file *file = NULL;
	zcc_error error = {0};
	assert_int_equal(zcc_file_create(path, 10, &file, &error), ZCC_EEXIST);
	assert_says(&error, path);
	assert_null(file);
	size_t bytes;
	char *data = get_file(path, &bytes);
	assert_string_equal(data, "old");
	free(data);
	assert_int_equal(zcc_file_create(at("nowhere/file"), 10, &file, &error), ZCC_EIO);
	assert_int_equal(error.code, ENOENT);
	assert_int_equal(zcc_file_create(at("negative"), -1, &file, &error), ZCC_EINVAL);
	assert_false(exists(at("negative")));
}

static void what_is_no_regular_file_is_refused(void **state)
{
	(void)state;
	zcc_file *file = NULL;
	zcc_error error = {0};
	char *fifo = at("fifo");
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(zcc_file_open(scratch, &file, &error), ZCC_EFORMAT);
	assert_says(&error, "a folder, not a regular file");
	assert_int_equal(zcc_file_open_write(scratch, &file, &error), ZCC_EFORMAT);
	assert_int_equal(zcc_file_open(fifo, &file, &error), ZCC_EFORMAT);
	assert_says(&error, fifo);
	assert_int_equal(zcc_file_open("/dev/null", &file, &error), ZCC_EFORMAT);
	assert_int_equal(zcc_file_open(at("missing"), &file, &error), ZCC_EIO);
	assert_int_equal(error.code, ENOENT);
	assert_says(&error, "missing");
	assert_null(file);
}

static void short_and_interrupted_calls_still_move_every_byte(void **state)
{
	(void)state;
	enum { BYTES = 5000 };
	unsigned char want[BYTES], got[BYTES];
	zcc_memory_fill_random(want, BYTES, 1);
	zcc_file *file = create(at("short"), BYTES + 100);
	io_limit = 7;
	io_interrupts = 100;
	assert_int_equal(zcc_file_write(file, 50, want, BYTES, NULL), ZCC_OK);
	assert_int_equal(io_interrupts, 0);
	io_interrupts = 100;
	io_calls = 0;
	assert_int_equal(zcc_file_read(file, 50, got, BYTES, NULL), ZCC_OK);
	assert_int_equal(io_calls, 100 + (BYTES + 6) / 7);
	assert_memory_equal(got, want, BYTES);
	zcc_file_close(file);
	size_t bytes;
	unsigned char *data = (unsigned char *)get_file(at("short"), &bytes);
	assert_memory_equal(data + 50, want, BYTES);
	for (int i = 0; i < 50; i++)
		assert_int_equal(data[i] | data[BYTES + 50 + i], 0);
	free(data);
}

static void ranges_outside_of_the_file_are_refused_with_the_numbers(void **state)
{
	(void)state;
	char data[16] = {0};
	zcc_error error = {0};
	char *path = at("range");
	zcc_file *file = create(path, 10);
	static const int64_t ranges[][2] = {
	        {0, 11}, {10, 1}, {11, 0}, {5, 6}, {INT64_MAX, 1}, {1, INT64_MAX}, {INT64_MAX, INT64_MAX}};
	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
		assert_int_equal(zcc_file_read(file, ranges[i][0], data, ranges[i][1], &error), ZCC_EIO);
		assert_says(&error, path);
		assert_says(&error, "the file has 10");
		assert_int_equal(zcc_file_write(file, ranges[i][0], data, ranges[i][1], &error), ZCC_EIO);
	}
	assert_int_equal(zcc_file_read(file, -1, data, 1, &error), ZCC_EINVAL);
	assert_int_equal(zcc_file_read(file, 1, data, -1, &error), ZCC_EINVAL);
	assert_int_equal(zcc_file_read(file, 10, data, 0, &error), ZCC_OK);
	assert_int_equal(zcc_file_read(file, 0, data, 10, &error), ZCC_OK);
	assert_int_equal(io_calls, 1);
	zcc_file_close(file);
}

/* F1: a file that shrinks after it was opened gives a fault, not zeros. */
static void a_file_that_shrinks_is_noticed(void **state)
{
	(void)state;
	char data[100];
	zcc_error error = {0};
	char *path = at("shrinks");
	zcc_file_close(create(path, 100));
	zcc_file *file = NULL;
	assert_int_equal(zcc_file_open(path, &file, NULL), ZCC_OK);
	assert_int_equal(truncate(path, 99), 0);
	assert_int_equal(zcc_file_read(file, 0, data, 100, &error), ZCC_EIO);
	assert_says(&error, "ends at byte 99");
	zcc_file_close(file);
}

static void faults_of_the_system_come_with_their_code(void **state)
{
	(void)state;
	char data[8] = {0}, hex[17];
	zcc_error error = {0};
	char *path = at("faults");
	zcc_file *file = create(path, 8);
	io_refuses = EIO;
	assert_int_equal(zcc_file_read(file, 0, data, 8, &error), ZCC_EIO);
	assert_int_equal(error.code, EIO);
	assert_int_equal(zcc_file_hash(file, hex, &error), ZCC_EIO);
	io_refuses = ENOSPC;
	assert_int_equal(zcc_file_write(file, 0, data, 8, &error), ZCC_EIO);
	assert_int_equal(error.code, ENOSPC);
	assert_says(&error, path);
	sync_refuses = EIO;
	assert_int_equal(zcc_file_sync(file, &error), ZCC_EIO);
	assert_says(&error, path);
	sync_refuses = 0;
	assert_int_equal(zcc_file_sync(file, &error), ZCC_OK);
	zcc_file_close(file);
}

static void a_file_opened_for_reading_is_not_written(void **state)
{
	(void)state;
	zcc_error error = {0};
	zcc_file *file = NULL;
	put_file(at("readonly"), "abc", 3);
	assert_int_equal(zcc_file_open(at("readonly"), &file, NULL), ZCC_OK);
	assert_int_equal(zcc_file_write(file, 0, "x", 1, &error), ZCC_EINVAL);
	assert_says(&error, "reading only");
	zcc_file_close(file);
	assert_int_equal(zcc_file_open_write(at("readonly"), &file, NULL), ZCC_OK);
	assert_int_equal(zcc_file_write(file, 1, "x", 1, &error), ZCC_OK);
	zcc_file_close(file);
	size_t bytes;
	char *data = get_file(at("readonly"), &bytes);
	assert_string_equal(data, "axc");
	free(data);
}

static void a_file_stays_open_while_somebody_holds_it(void **state)
{
	(void)state;
	char data[4];
	put_file(at("held"), "held", 4);
	zcc_file *file = NULL;
	assert_int_equal(zcc_file_open(at("held"), &file, NULL), ZCC_OK);
	assert_ptr_equal(zcci_file_retain(file), file);
	zcc_file_close(file);
	assert_int_equal(zcc_file_read(file, 0, data, 4, NULL), ZCC_OK);
	assert_memory_equal(data, "held", 4);
	zcc_file_close(file);
	zcc_file_close(NULL);
}

/* The one-shot hash of the whole, for sizes around the piece of 4 MiB. */
static void the_hash_is_xxh3_of_all_bytes(void **state)
{
	(void)state;
	static const int64_t sizes[] = {0, 1, 100, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9 << 20};
	char *data = malloc(9 << 20), hex[17], want[17];
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		zcc_memory_fill_random(data, sizes[i], (int64_t)i);
		put_file(at("hash"), data, (size_t)sizes[i]);
		zcc_file *file = NULL;
		assert_int_equal(zcc_file_open(at("hash"), &file, NULL), ZCC_OK);
		assert_int_equal(zcc_file_hash(file, hex, NULL), ZCC_OK);
		snprintf(want, sizeof want, "%016llx", (unsigned long long)XXH3_64bits(data, (size_t)sizes[i]));
		assert_string_equal(hex, want);
		zcc_file_close(file);
	}
	free(data);
}

/* I1: offsets beyond 2^32 in a sparse file. */
static void offsets_beyond_four_gibibytes_arrive(void **state)
{
	(void)state;
	char *path = at("sparse"), data[4];
	put_file(path, "", 0);
	int64_t end = ((int64_t)6 << 30) + 4;
	assert_int_equal(truncate(path, end), 0);
	zcc_file *file = NULL;
	assert_int_equal(zcc_file_open_write(path, &file, NULL), ZCC_OK);
	assert_int_equal(zcc_file_bytes(file), end);
	assert_int_equal(zcc_file_write(file, end - 4, "last", 4, NULL), ZCC_OK);
	assert_int_equal(zcc_file_read(file, end - 4, data, 4, NULL), ZCC_OK);
	assert_memory_equal(data, "last", 4);
	assert_int_equal(zcc_file_read(file, end - 4 - ((int64_t)4 << 30), data, 4, NULL), ZCC_OK);
	assert_memory_equal(data, "\0\0\0\0", 4);
	zcc_file_close(file);
	unlink(path);
}

/* Runs in a child of its own; its exit status is what `body` returns. */
static int in_child(int (*body)(void))
{
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(body());
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int io_after_a_signal(void)
{
	char data[8], hex[17];
	zcc_error error = {0};
	zcc_file *file = create(at("signal"), 8), *other = NULL;
	zcc_interrupt_watch();
	raise(SIGTERM);
	if (zcc_file_read(file, 0, data, 8, &error) != ZCC_EINTR || error.code != SIGTERM)
		return 1;
	if (zcc_file_write(file, 0, data, 8, &error) != ZCC_EINTR)
		return 2;
	if (zcc_file_hash(file, hex, &error) != ZCC_EINTR)
		return 3;
	if (zcc_file_create(at("signal2"), 8, &other, &error) != ZCC_EINTR || exists(at("signal2")))
		return 4;
	return 0;
}

static void a_signal_stops_reading_and_writing(void **state)
{
	(void)state;
	assert_int_equal(in_child(io_after_a_signal), 0);
}

static int open_without_permission(void)
{
	zcc_error error = {0};
	zcc_file *file = NULL;
	if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
		return 1;
	if (zcc_file_open(at("secret"), &file, &error) != ZCC_EIO || error.code != EACCES)
		return 2;
	return strstr(error.message, "secret") != NULL && strstr(error.message, "reading") != NULL ? 0 : 3;
}

static void no_permission_is_an_error_that_names_the_file(void **state)
{
	(void)state;
	put_file(at("secret"), "x", 1);
	assert_int_equal(chmod(at("secret"), 0), 0);
	assert_int_equal(chmod(scratch, 0755), 0);
	assert_int_equal(in_child(open_without_permission), 0);
}

/* A full disk is known when the file is made, and nothing of it stays. */
static void a_full_disk_is_known_at_creation(void **state)
{
	(void)state;
	char *disk = at("disk");
	assert_int_equal(mkdir(disk, 0700), 0);
	if (mount("zcc", disk, "tmpfs", 0, "size=256k") != 0) {
		print_message("no small disk to fill: mount: %s\n", strerror(errno));
		skip();
	}
	zcc_error error = {0};
	zcc_file *file = NULL;
	zcc_status status = zcc_file_create(at("disk/big"), 1 << 20, &file, &error);
	int left = exists(at("disk/big"));
	zcc_status small = zcc_file_create(at("disk/small"), 128 << 10, &file, NULL);
	zcc_file_close(file);
	umount(disk);
	assert_int_equal(status, ZCC_EIO);
	assert_int_equal(error.code, ENOSPC);
	assert_says(&error, "1048576");
	assert_false(left);
	assert_int_equal(small, ZCC_OK);
}

static void what_no_disk_has_room_for_is_not_even_begun(void **state)
{
	(void)state;
	zcc_error error = {0};
	zcc_file *file = NULL;
	assert_int_equal(zcc_file_create(at("vast"), INT64_C(1) << 62, &file, &error), ZCC_EIO);
	assert_int_equal(error.code, ENOSPC);
	assert_says(&error, "4611686018427387904 bytes");
	assert_int_equal(reserve_calls, 0);
	assert_false(exists(at("vast")));
	reserve_refuses = EDQUOT;
	assert_int_equal(zcc_file_create(at("vast"), 100, &file, &error), ZCC_EIO);
	assert_int_equal(error.code, EDQUOT);
	assert_int_equal(reserve_calls, 1);
	assert_false(exists(at("vast")));
	assert_null(file);
}

static void a_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	put_file(at("nomem"), "abc", 3);
	for (int64_t n = 1;; n++) {
		zcc_file *file = NULL;
		char hex[17];
		zcci_fail_alloc(n);
		zcc_status status = zcc_file_open(at("nomem"), &file, NULL);
		if (status == ZCC_OK)
			status = zcc_file_hash(file, hex, NULL);
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		zcc_file_close(file);
		assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
		if (!hit)
			break;
	}
	zcc_file *file = NULL;
	zcci_fail_alloc(1);
	assert_int_equal(zcc_file_create(at("nomem2"), 3, &file, NULL), ZCC_ENOMEM);
	zcci_fail_alloc(0);
	assert_false(exists(at("nomem2")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup(a_new_file_is_zero_and_as_long_as_asked, reset),
	        cmocka_unit_test_setup(creating_over_a_file_is_refused_and_leaves_it, reset),
	        cmocka_unit_test_setup(what_is_no_regular_file_is_refused, reset),
	        cmocka_unit_test_setup(short_and_interrupted_calls_still_move_every_byte, reset),
	        cmocka_unit_test_setup(ranges_outside_of_the_file_are_refused_with_the_numbers, reset),
	        cmocka_unit_test_setup(a_file_that_shrinks_is_noticed, reset),
	        cmocka_unit_test_setup(faults_of_the_system_come_with_their_code, reset),
	        cmocka_unit_test_setup(a_file_opened_for_reading_is_not_written, reset),
	        cmocka_unit_test_setup(a_file_stays_open_while_somebody_holds_it, reset),
	        cmocka_unit_test_setup(the_hash_is_xxh3_of_all_bytes, reset),
	        cmocka_unit_test_setup(offsets_beyond_four_gibibytes_arrive, reset),
	        cmocka_unit_test_setup(a_signal_stops_reading_and_writing, reset),
	        cmocka_unit_test_setup(no_permission_is_an_error_that_names_the_file, reset),
	        cmocka_unit_test_setup(a_full_disk_is_known_at_creation, reset),
	        cmocka_unit_test_setup(what_no_disk_has_room_for_is_not_even_begun, reset),
	        cmocka_unit_test_setup(a_failed_allocation_is_reported_and_leaks_nothing, reset),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
