/* Memory of cuda:0 in another process. */
#include "cuda.h"

#include <sys/wait.h>

static void exchange(int socket, void *bytes, size_t n, bool sends)
{
	char *at = bytes;
	while (n > 0) {
		ssize_t moved = sends ? write(socket, at, n) : read(socket, at, n);
		assert_true(moved > 0);
		at += moved;
		n -= (size_t)moved;
	}
}

/* In a process that has not touched CUDA before: imports twice, reads one buffer and fills the other. */
static int importer(int in, int out)
{
	uint8_t handles[2][ZCC_EXPORT_BYTES];
	void *data[2];
	int64_t bytes[2];
	uint8_t seen[500];
	exchange(in, handles, sizeof handles, false);
	MUST(zcc_device_open("cuda:0", &device, &error));
	MUST(zcc_stream_create(device, &stream, &error));
	for (int32_t i = 0; i < 2; i++)
		MUST(zcc_device_import(device, handles[i], &data[i], &bytes[i], &error));
	assert_int_equal(bytes[0], 500);
	assert_int_equal(bytes[1], 300);
	read_device(seen, data[0], 500);
	for (int32_t i = 0; i < 500; i++)
		assert_int_equal(seen[i], i % 251);
	memset(seen, 77, sizeof seen);
	MUST(zcc_copy_async(stream, data[1], seen, 300, &error));
	MUST(zcc_stream_wait(stream, &error));
	assert_int_equal(zcc_copy_async(stream, data[1], seen, 301, &error), ZCC_EINVAL);
	assert_int_equal(zcc_device_export(device, data[0], handles[0], &error), ZCC_EINVAL);
	zcc_device_free(device, data[0]);
	zcc_device_free(device, data[1]);
	exchange(out, seen, 1, true);
	zcc_stream_destroy(stream);
	zcc_device_close(device);
	return 0;
}

static int to_child[2];
static int from_child[2];
static pid_t child;

static void a_buffer_and_a_part_of_one_reach_another_process(void **state)
{
	(void)state;
	uint8_t bytes[800];
	for (int32_t i = 0; i < 800; i++)
		bytes[i] = (uint8_t)(i < 500 ? i % 251 : 0);
	char *first = on_device(bytes, 500);
	char *second = on_device(bytes, 700);
	uint8_t handles[2][ZCC_EXPORT_BYTES];
	MUST(zcc_device_export(device, first, handles[0], &error));
	MUST(zcc_device_export(device, second + 400, handles[1], &error));
	exchange(to_child[1], handles, sizeof handles, true);
	exchange(from_child[0], bytes, 1, false);
	int how = 1;
	assert_int_equal(waitpid(child, &how, 0), child);
	assert_int_equal(how, 0);
	read_device(bytes, second, 700);
	for (int32_t i = 0; i < 700; i++)
		assert_int_equal(bytes[i], i < 400 ? i % 251 : 77);
	zcc_device_free(device, first);
	zcc_device_free(device, second);
}

static void handles_that_are_none_are_refused(void **state)
{
	(void)state;
	uint8_t handle[ZCC_EXPORT_BYTES] = {0};
	uint8_t changed[ZCC_EXPORT_BYTES];
	void *data = &data;
	int64_t bytes = -1;
	assert_int_equal(zcc_device_import(device, handle, &data, &bytes, &error), ZCC_EFORMAT);
	assert_says("not made by a CUDA device");
	void *own = on_device(NULL, 100);
	MUST(zcc_device_export(device, own, handle, &error));
	assert_int_equal(zcc_device_import(device, handle, &data, &bytes, &error), ZCC_EINVAL);
	assert_says("made by this process");
	/* Any byte of it changed: refused, never mapped somewhere. */
	for (int32_t i = 0; i < ZCC_EXPORT_BYTES; i++) {
		memcpy(changed, handle, sizeof changed);
		changed[i] ^= 0x80;
		assert_true(zcc_device_import(device, changed, &data, &bytes, &error) != ZCC_OK);
	}
	assert_ptr_equal(data, &data);
	assert_int_equal(bytes, -1);
	char pageable[16];
	assert_true(zcc_device_export(device, pageable, handle, &error) != ZCC_OK);
	zcc_device_free(device, own);
}

int main(void)
{
	/* Forked before CUDA is touched, which does not live through a fork. */
	if (pipe(to_child) != 0 || pipe(from_child) != 0)
		return 1;
	child = fork();
	if (child == 0) {
		close(to_child[1]);
		close(from_child[0]);
		_exit(importer(to_child[0], from_child[1]));
	}
	close(to_child[0]);
	close(from_child[1]);
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_buffer_and_a_part_of_one_reach_another_process),
	        cmocka_unit_test(handles_that_are_none_are_refused),
	};
	return cmocka_run_group_tests_name("cuda export", tests, open_all, close_all);
}
