/* Device memory that another process has too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_rig.h"

typedef struct exchange {
	const char *name;
	int to_parent[2], to_child[2];
	int64_t bytes;
} exchange;

static unsigned char pattern(int64_t i, int key)
{
	return (unsigned char)((i * 2654435761u >> 7) + (unsigned)key);
}

static void put_pattern(zcc_device *device, void *data, int64_t bytes, int key)
{
	unsigned char *image = malloc((size_t)bytes);
	for (int64_t i = 0; i < bytes; i++)
		image[i] = pattern(i, key);
	move(device, data, image, bytes);
	free(image);
}

static int has_pattern(zcc_device *device, void *data, int64_t bytes, int key)
{
	unsigned char *image = malloc((size_t)bytes);
	move(device, image, data, bytes);
	int64_t i = 0;
	while (i < bytes && image[i] == pattern(i, key))
		i++;
	free(image);
	return i == bytes;
}

/* The exporter: its bytes, then, when told, whether it sees the other's. */
static int export_some(void *argument)
{
	exchange *x = argument;
	zcc_device *device;
	void *other, *memory;
	uint8_t handle[ZCC_EXPORT_BYTES];
	char go;
	if (zcc_device_open(x->name, &device, NULL) != ZCC_OK ||
	    zcc_device_malloc(device, 5000, &other, NULL) != ZCC_OK ||
	    zcc_device_malloc(device, x->bytes, &memory, NULL) != ZCC_OK ||
	    zcc_device_export(device, memory, handle, NULL) != ZCC_OK)
		return 1;
	put_pattern(device, memory, x->bytes, 3);
	put_pattern(device, other, 5000, 4);
	if (write(x->to_parent[1], handle, sizeof handle) != sizeof handle || read(x->to_child[0], &go, 1) != 1)
		return 2;
	if (go == 'q')
		return 0;
	return has_pattern(device, memory, x->bytes, 5) && has_pattern(device, other, 5000, 4) ? 0 : 3;
}

static pid_t start_exporter(exchange *x, uint8_t handle[ZCC_EXPORT_BYTES])
{
	assert_int_equal(pipe(x->to_parent), 0);
	assert_int_equal(pipe(x->to_child), 0);
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		/* It ends when this process does. */
		close(x->to_parent[0]);
		close(x->to_child[1]);
		_exit(export_some(x));
	}
	close(x->to_parent[1]);
	close(x->to_child[0]);
	assert_int_equal(read(x->to_parent[0], handle, ZCC_EXPORT_BYTES), ZCC_EXPORT_BYTES);
	return child;
}

static int end_exporter(exchange *x, pid_t child, char word)
{
	int status;
	assert_int_equal(write(x->to_child[1], &word, 1), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	close(x->to_parent[0]);
	close(x->to_child[1]);
	return status;
}

/* Whoever gets the addresses next writes to memory of this process. They come round again after all others. */
static void write_where_it_was(zcc_device *device, const char *data, int64_t bytes)
{
	const int64_t large = (int64_t)1 << 30;
	bool covered = false;
	for (int i = 0; i < 200 && !covered; i++) {
		char *next;
		must(zcc_device_malloc(device, large, (void **)&next, error));
		covered = data >= next && data + bytes <= next + large;
		if (covered)
			put_pattern(device, next + (data - next), bytes, 6);
		zcc_device_free(device, next);
	}
	assert_true(covered);
}

static void another_process_sees_the_bytes_and_writes_them(void **state)
{
	(void)state;
	const int64_t sizes[] = {1, 4096, 100001, 3 << 20};
	for (int n = 0; n < N_NAMES; n++)
		for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
			exchange x = {.name = names[n], .bytes = sizes[k]};
			uint8_t handle[ZCC_EXPORT_BYTES];
			pid_t child = start_exporter(&x, handle);
			zcc_device *device;
			void *memory;
			int64_t bytes = 0;
			must(zcc_device_open(names[n], &device, error));
			must(zcc_device_import(device, handle, &memory, &bytes, error));
			assert_int_equal(bytes, x.bytes);
			assert_int_equal(place_of(device, (char *)memory + bytes - 1), ZCC_AT_DEVICE);
			assert_true(has_pattern(device, memory, bytes, 3));
			put_pattern(device, memory, bytes, 5);
			refused(ZCC_EINVAL, "imported itself", zcc_device_export(device, memory, handle, error));
			zcc_device_free(device, memory);
			if (n == 0)
				write_where_it_was(device, memory, bytes);
			assert_int_equal(end_exporter(&x, child, 'g'), 0);
			zcc_device_close(device);
		}
}

/* Takes all mappings that the system lets this process have. False where there are too many. */
static bool take_all_mappings(char *region, int64_t bytes, void **more, int32_t *n_more)
{
	for (int64_t at = 0; at < bytes; at += 8192)
		if (mprotect(region + at, 4096, PROT_READ) != 0) {
			while (*n_more < 16) {
				void *one = mmap(NULL, 4096, *n_more % 2 == 0 ? PROT_READ : PROT_WRITE,
				                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
				if (one == MAP_FAILED)
					return true;
				more[(*n_more)++] = one;
			}
			return false;
		}
	return false;
}

/* Every change of a mapping is refused then; what was imported still has to go. */
static void what_is_imported_goes_away_where_no_mapping_is_left(void **state)
{
	(void)state;
#ifdef __SANITIZE_THREAD__
	/* The sanitizer needs mappings itself. */
	skip();
#endif
	const int64_t bytes = (int64_t)1 << 31;
	exchange x = {.name = "host", .bytes = 70000};
	uint8_t handle[ZCC_EXPORT_BYTES];
	pid_t child = start_exporter(&x, handle);
	zcc_device *device;
	void *memory, *more[16];
	int32_t n_more = 0;
	int64_t size;
	must(zcc_device_open("host", &device, error));
	must(zcc_device_import(device, handle, &memory, &size, error));
	put_pattern(device, memory, size, 5);
	char *region = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(region != MAP_FAILED);
	bool none_left = take_all_mappings(region, bytes, more, &n_more);
	zcc_device_free(device, memory);
	munmap(region, (size_t)bytes);
	for (int32_t i = 0; i < n_more; i++)
		munmap(more[i], 4096);
	write_where_it_was(device, memory, size);
	assert_int_equal(end_exporter(&x, child, 'g'), 0);
	zcc_device_close(device);
	if (!none_left) {
		print_message("more mappings are allowed here than there is room for\n");
		skip();
	}
}

static void what_is_imported_outlives_the_exporter_but_nothing_is_imported_after_it(void **state)
{
	(void)state;
	exchange x = {.name = "host", .bytes = 70000};
	uint8_t handle[ZCC_EXPORT_BYTES];
	pid_t child = start_exporter(&x, handle);
	zcc_device *device;
	void *memory, *late = NULL;
	int64_t bytes;
	must(zcc_device_open("host", &device, error));
	must(zcc_device_import(device, handle, &memory, &bytes, error));
	assert_int_equal(end_exporter(&x, child, 'q'), 0);
	assert_true(has_pattern(device, memory, bytes, 3));
	char text[64];
	snprintf(text, sizeof text, "process %d, which exported the 70000 bytes, has ended", (int)child);
	refused(ZCC_ESTALE, text, zcc_device_import(device, handle, &late, &bytes, error));
	assert_null(late);
	zcc_device_free(device, memory);
	zcc_device_close(device);
}

/* Its parent has not asked for its status: the process is known, its memory is gone. */
static void an_exporter_that_ended_is_gone_before_its_parent_knows(void **state)
{
	(void)state;
	exchange x = {.name = "host", .bytes = 5000};
	uint8_t handle[ZCC_EXPORT_BYTES];
	pid_t child = start_exporter(&x, handle);
	siginfo_t info;
	assert_int_equal(write(x.to_child[1], "q", 1), 1);
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	zcc_device *device;
	void *memory = NULL;
	int64_t bytes;
	must(zcc_device_open("host", &device, error));
	refused(ZCC_ESTALE, "", zcc_device_import(device, handle, &memory, &bytes, error));
	assert_null(memory);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	close(x.to_parent[0]);
	close(x.to_child[1]);
	zcc_device_close(device);
}

static void a_handle_that_is_none_is_refused(void **state)
{
	(void)state;
	zcc_device *device;
	void *memory, *other = NULL;
	int64_t bytes;
	uint8_t handle[ZCC_EXPORT_BYTES], damaged[ZCC_EXPORT_BYTES] = {0};
	must(zcc_device_open("host", &device, error));
	must(zcc_device_malloc(device, 4096, &memory, error));
	must(zcc_device_export(device, memory, handle, error));
	refused(ZCC_EFORMAT, "not one that the host device exported",
	        zcc_device_import(device, damaged, &other, &bytes, error));
	/* Every bit of the fields counts. */
	for (int bit = 0; bit < 64 * 8; bit++) {
		memcpy(damaged, handle, sizeof damaged);
		damaged[bit / 8] ^= (uint8_t)(1 << bit % 8);
		refused(ZCC_EFORMAT, "", zcc_device_import(device, damaged, &other, &bytes, error));
	}
	refused(ZCC_EINVAL, "not the start of an allocation",
	        zcc_device_export(device, (char *)memory + 1, handle, error));
	refused(ZCC_EINVAL, "not the start of an allocation", zcc_device_export(device, &device, handle, error));
	/* One's own memory may be imported too: the same bytes at a second address. */
	must(zcc_device_import(device, handle, &other, &bytes, error));
	put_pattern(device, other, bytes, 9);
	assert_true(has_pattern(device, memory, bytes, 9));
	zcc_device_free(device, other);
	zcc_device_free(device, memory);
	zcc_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(another_process_sees_the_bytes_and_writes_them),
	        cmocka_unit_test(what_is_imported_goes_away_where_no_mapping_is_left),
	        cmocka_unit_test(what_is_imported_outlives_the_exporter_but_nothing_is_imported_after_it),
	        cmocka_unit_test(an_exporter_that_ended_is_gone_before_its_parent_knows),
	        cmocka_unit_test(a_handle_that_is_none_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
