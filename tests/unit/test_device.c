/* Memory of devices: where it is, who may touch it, who else may have it; and what the calls refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "device_rig.h"

/* The status of a child that runs body(argument) and exits with what it returns. */
static int in_child(int (*body)(void *), void *argument)
{
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(body(argument));
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

/* ---- places ---- */

static void every_byte_of_an_allocation_has_its_place_and_no_other(void **state)
{
	(void)state;
	for (int n = 0; n < N_NAMES; n++) {
		zcc_device *device;
		char *memory[20], *pinned[20];
		char *ordinary = malloc(10000);
		must(zcc_device_open(names[n], &device, error));
		for (int i = 0; i < 20; i++) {
			must(zcc_device_malloc(device, i * 777, (void **)&memory[i], error));
			must(zcc_pinned_malloc(device, i * 777, (void **)&pinned[i], error));
			assert_int_equal((uintptr_t)memory[i] % 256, 0);
			assert_int_equal((uintptr_t)pinned[i] % 256, 0);
			for (int k = 0; k < i * 777; k++)
				assert_int_equal(pinned[i][k], 0);
		}
		for (int i = 1; i < 20; i++)
			for (int64_t at = 0; at < i * 777; at += 97) {
				assert_int_equal(place_of(device, memory[i] + at), ZCC_AT_DEVICE);
				assert_int_equal(place_of(device, pinned[i] + at), ZCC_AT_PINNED);
			}
		assert_int_equal(place_of(device, ordinary + 5000), ZCC_AT_PAGEABLE);
		assert_int_equal(place_of(device, &device), ZCC_AT_PAGEABLE);
		assert_int_equal(place_of(device, NULL), ZCC_AT_PAGEABLE);
		for (int i = 0; i < 20; i++) {
			zcc_device_free(device, memory[i]);
			zcc_pinned_free(device, pinned[i]);
			int32_t place;
			refused(ZCC_ESTALE, "not allocated", zcc_device_place(device, memory[i], &place, error));
		}
		zcc_device_close(device);
		free(ordinary);
	}
}

static void pinned_memory_is_locked(void **state)
{
	(void)state;
	zcc_device *device;
	void *pinned;
	must(zcc_device_open("host", &device, error));
	must(zcc_pinned_malloc(device, 1 << 20, &pinned, error));
	/* The kernel's own word: the VmFlags of the mapping hold "lo" (proc(5), smaps). */
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512];
	int inside = 0, locked = 0;
	while (fgets(line, sizeof line, file) != NULL) {
		unsigned long start, end;
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = (uintptr_t)pinned >= start && (uintptr_t)pinned < end;
		else if (inside && strncmp(line, "VmFlags:", 8) == 0)
			locked = strstr(line, " lo") != NULL;
	}
	fclose(file);
	assert_true(locked);
	zcc_pinned_free(device, pinned);
	zcc_device_close(device);
}

/* ---- opaque memory ---- */

static int read_it(void *data)
{
	signal(SIGSEGV, SIG_DFL);
	return *(volatile char *)data;
}

static int write_it(void *data)
{
	signal(SIGSEGV, SIG_DFL);
	*(volatile char *)data = 1;
	return 0;
}

static void who_dereferences_device_memory_faults(void **state)
{
	(void)state;
	for (int n = 0; n < N_NAMES; n++) {
		zcc_device *device;
		char *memory;
		must(zcc_device_open(names[n], &device, error));
		must(zcc_device_malloc(device, 100000, (void **)&memory, error));
		for (int64_t at = 0; at < 100000; at += 33333) {
			int status = in_child(read_it, memory + at);
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
			status = in_child(write_it, memory + at);
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		}
		zcc_device_free(device, memory);
		zcc_device_close(device);
	}
}

/* Stretches of a small heap at random: what each allocation holds is its own. */
static void allocations_do_not_share_bytes(void **state)
{
	(void)state;
	enum { N = 60 };
	zcc_device *device;
	zcc_stream *stream;
	void *memory[N] = {NULL};
	int64_t bytes[N];
	unsigned char *image;
	must(zcc_device_open("host", &device, error));
	must(zcc_stream_create(device, &stream, error));
	must(zcc_pinned_malloc(device, 1 << 16, (void **)&image, error));
	unsigned seed = 1;
	for (int round = 0; round < 2000; round++) {
		int i = (int)((seed = seed * 1103515245 + 12345) >> 16) % N;
		if (memory[i] == NULL) {
			bytes[i] = 1 + (seed >> 8) % 65536;
			must(zcc_device_malloc(device, bytes[i], &memory[i], error));
			memset(image, i, (size_t)bytes[i]);
			must(zcc_copy_async(stream, memory[i], image, bytes[i], error));
			must(zcc_stream_wait(stream, error));
			continue;
		}
		must(zcc_copy_async(stream, image, memory[i], bytes[i], error));
		must(zcc_stream_wait(stream, error));
		for (int64_t k = 0; k < bytes[i]; k++)
			assert_int_equal(image[k], i);
		zcc_device_free(device, memory[i]);
		memory[i] = NULL;
	}
	for (int i = 0; i < N; i++)
		zcc_device_free(device, memory[i]);
	zcc_pinned_free(device, image);
	zcc_stream_destroy(stream);
	zcc_device_close(device);
}

/* Pages of this process's shared memory, from the kernel, which counts on each processor and adds up now and then. */
enum { SHARED_ERROR_KIB = 4096 };

static long shared_kib(void)
{
	char line[128];
	long kib = -1;
	FILE *file = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "RssShmem: %ld kB", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

static void freed_memory_goes_back_to_the_system(void **state)
{
	(void)state;
	zcc_device *device;
	void *memory;
	enum { BYTES = 32 << 20 };
	char *ordinary = calloc(1, BYTES);
	must(zcc_device_open("host", &device, error));
	long before = shared_kib();
	for (int i = 0; i < 8; i++) {
		must(zcc_device_malloc(device, BYTES, &memory, error));
		move(device, memory, ordinary, BYTES);
		assert_true(shared_kib() >= before + BYTES / 1024 - SHARED_ERROR_KIB);
		zcc_device_free(device, memory);
		assert_true(shared_kib() <= before + SHARED_ERROR_KIB);
	}
	zcc_device_close(device);
	free(ordinary);
}

/* As many allocations as the parent has made could make, all overwritten. */
static int fill_memory(void *argument)
{
	zcc_device *device = argument;
	char *ordinary = calloc(1, 65536);
	for (int i = 0; i < 100; i++) {
		void *memory;
		if (zcc_device_malloc(device, 65536, &memory, NULL) != ZCC_OK)
			return 1;
		move(device, memory, ordinary, 65536);
		zcc_device_free(device, memory);
	}
	return 0;
}

static void a_forked_child_takes_memory_of_its_own(void **state)
{
	(void)state;
	zcc_device *device;
	void *memory, *freed;
	char image[65536], back[65536];
	memset(image, 7, sizeof image);
	must(zcc_device_open("host", &device, error));
	must(zcc_device_malloc(device, 65536, &freed, error));
	must(zcc_device_malloc(device, 65536, &memory, error));
	zcc_device_free(device, freed);
	move(device, memory, image, sizeof image);
	void *next[50];
	pid_t child = fork();
	if (child == 0)
		_exit(fill_memory(device));
	/* What both would take next. */
	for (int i = 0; i < 50; i++) {
		must(zcc_device_malloc(device, 65536, &next[i], error));
		move(device, next[i], image, sizeof image);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	for (int i = 0; i < 50; i++) {
		move(device, back, next[i], sizeof back);
		assert_memory_equal(back, image, sizeof image);
		zcc_device_free(device, next[i]);
	}
	move(device, back, memory, sizeof back);
	assert_memory_equal(back, image, sizeof image);
	zcc_device_free(device, memory);
	zcc_device_close(device);
}

/* ---- forks under load ---- */

static atomic_bool ends;

/* Holds the locks most of the time. */
static void *open_and_allocate(void *name)
{
	while (!ends) {
		zcc_device *device;
		void *memory;
		must(zcc_device_open(name, &device, error));
		must(zcc_device_malloc(device, 100, &memory, error));
		zcc_device_free(device, memory);
		zcc_device_close(device);
	}
	return NULL;
}

static int use_device(void *name)
{
	alarm(20);
	zcc_device *device;
	void *memory;
	char out[100] = {5}, in[100] = {0};
	if (zcc_device_open(name, &device, NULL) != ZCC_OK || zcc_device_malloc(device, 100, &memory, NULL) != ZCC_OK)
		return 1;
	move(device, memory, out, sizeof out);
	move(device, in, memory, sizeof in);
	zcc_device_free(device, memory);
	zcc_device_close(device);
	return memcmp(in, out, sizeof in) == 0 ? 0 : 2;
}

static void a_child_works_whatever_the_threads_of_its_parent_were_doing(void **state)
{
	(void)state;
#ifdef __SANITIZE_THREAD__
	/* The sanitizer ends a child of several threads that starts one. */
	skip();
#endif
	for (int n = 0; n < 2; n++) {
		char *name = (char *)(uintptr_t)names[n];
		zcc_device *device;
		pthread_t thread;
		must(zcc_device_open(name, &device, error));
		ends = false;
		assert_int_equal(pthread_create(&thread, NULL, open_and_allocate, name), 0);
		for (int i = 0; i < 200; i++)
			assert_int_equal(in_child(use_device, name), 0);
		ends = true;
		pthread_join(thread, NULL);
		zcc_device_close(device);
	}
}

/* ---- memory that runs out ---- */

static int allocate_with_small_files(void *argument)
{
	const struct rlimit limit = {1 << 20, 1 << 20};
	zcc_device *device;
	void *memory;
	zcc_error error;
	(void)argument;
	/* In a process that has allocated before, memory that is there already would do. */
	if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || zcc_device_open("host", &device, NULL) != ZCC_OK ||
	    zcc_device_malloc(device, 5000, &memory, NULL) != ZCC_OK)
		return 1;
	zcc_device_free(device, memory);
	if (zcc_device_malloc(device, 5 << 20, &memory, &error) != ZCC_ENOMEM ||
	    strstr(error.message, "5242880 bytes asked for") == NULL)
		return 2;
	return 0;
}

/* A limit of the size of files (ulimit -f) ends the process that goes past it. */
static void a_limit_of_files_is_a_limit_of_memory_and_no_end_of_the_process(void **state)
{
	(void)state;
	assert_int_equal(in_child(allocate_with_small_files, NULL), 0);
}

static void more_device_memory_than_there_is_names_asked_and_free(void **state)
{
	(void)state;
	for (int n = 0; n < N_NAMES; n++) {
		zcc_device *device;
		void *memory;
		must(zcc_device_open(names[n], &device, error));
		refused(ZCC_ENOMEM, "4611686018427387904 bytes asked for, ",
		        zcc_device_malloc(device, (int64_t)1 << 62, &memory, error));
		refused(ZCC_EINVAL, "-1 bytes asked for", zcc_device_malloc(device, -1, &memory, error));
		refused(ZCC_EINVAL, "-5 bytes asked for", zcc_pinned_malloc(device, -5, &memory, error));
		zcc_device_close(device);
	}
}

/* C7. Run in a child: the limit does not hold for root. */
static int pin_beyond_the_limit(void *argument)
{
	(void)argument;
	const struct rlimit limit = {1 << 20, 1 << 20};
	zcc_device *device;
	void *small, *large = NULL;
	zcc_error error = {0};
	if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)))
		return 1;
	if (zcc_device_open("host", &device, &error) != ZCC_OK ||
	    zcc_pinned_malloc(device, 65536, &small, &error) != ZCC_OK)
		return 2;
	if (zcc_pinned_malloc(device, 8 << 20, &large, &error) != ZCC_ENOMEM || large != NULL)
		return 3;
	if (strstr(error.message, "8388608 bytes asked for, 65536 bytes pinned already") == NULL ||
	    strstr(error.message, "allows 1048576 bytes") == NULL) {
		fprintf(stderr, "%s\n", error.message);
		return 4;
	}
	/* And what was refused left nothing locked. */
	if (zcc_pinned_malloc(device, (1 << 20) - 65536, &large, &error) != ZCC_OK)
		return 5;
	return 0;
}

static void pinning_beyond_the_memlock_limit_names_asked_pinned_and_allowed(void **state)
{
	(void)state;
	assert_int_equal(in_child(pin_beyond_the_limit, NULL), 0);
}

/* Everything once; the first fault ends it. */
static zcc_status go_round(const char *name, zcc_error *error)
{
	zcc_device *device = NULL;
	zcc_stream *stream = NULL, *second = NULL;
	zcc_event *event = NULL;
	void *memory = NULL, *pinned = NULL, *import = NULL;
	int64_t bytes;
	uint8_t handle[ZCC_EXPORT_BYTES];
	char ordinary[64] = {0};
	zcc_status status;
#define then(call) status == ZCC_OK ? (call) : status
	status = zcc_device_open(name, &device, error);
	status = then(zcc_device_malloc(device, 64, &memory, error));
	status = then(zcc_pinned_malloc(device, 64, &pinned, error));
	status = then(zcc_device_export(device, memory, handle, error));
	status = then(zcc_device_import(device, handle, &import, &bytes, error));
	status = then(zcc_stream_create(device, &stream, error));
	status = then(zcc_stream_create(device, &second, error));
	status = then(zcc_event_create(device, &event, error));
	status = then(zcc_copy_async(stream, memory, ordinary, 64, error));
	status = then(zcc_cast_async(stream, pinned, ZCC_BF16, memory, ZCC_F32, 16, error));
	status = then(zcc_event_record(event, stream, error));
	status = then(zcc_stream_wait_event(second, event, error));
	status = then(zcc_lerp_async(second, memory, pinned, ZCC_F32, 0.5, 16, error));
	status = then(zcc_stream_wait(second, error));
#undef then
	zcc_stream_destroy(stream);
	zcc_stream_destroy(second);
	zcc_event_destroy(event);
	if (device != NULL) {
		zcc_device_free(device, import);
		zcc_device_free(device, memory);
		zcc_pinned_free(device, pinned);
	}
	zcc_device_close(device);
	return status;
}

static void the_nth_allocation_that_fails_is_a_fault_and_leaves_nothing_behind(void **state)
{
	(void)state;
	for (int k = 0; k < N_NAMES; k++) {
		int n = 1;
		for (;; n++) {
			zcc_error error = {0};
			zcci_fail_alloc(n);
			zcc_status status = go_round(names[k], &error);
			bool hit = zcci_fail_alloc_hit();
			zcci_fail_alloc(0);
			if (!hit) {
				assert_int_equal(status, ZCC_OK);
				break;
			}
			if (status != ZCC_ENOMEM)
				fail_msg("%s, allocation %d: %s", names[k], n, error.message);
			assert_true(error.message[0] != '\0');
		}
		assert_true(n > 10);
	}
}

/* ---- arguments ---- */

typedef struct bench {
	zcc_device *device, *other;
	zcc_stream *stream;
	zcc_event *event;
	char *memory, *pinned, *ordinary;
} bench;

enum { BYTES = 4096 };

static void bench_open(bench *b, const char *name)
{
	must(zcc_device_open(name, &b->device, error));
	must(zcc_device_open(strcmp(name, "host") == 0 ? "late:host,lazy" : "host", &b->other, error));
	must(zcc_stream_create(b->device, &b->stream, error));
	must(zcc_event_create(b->other, &b->event, error));
	must(zcc_device_malloc(b->device, BYTES, (void **)&b->memory, error));
	must(zcc_pinned_malloc(b->device, BYTES, (void **)&b->pinned, error));
	b->ordinary = calloc(1, BYTES);
}

static void bench_close(bench *b)
{
	zcc_stream_destroy(b->stream);
	zcc_event_destroy(b->event);
	zcc_device_free(b->device, b->memory);
	zcc_pinned_free(b->device, b->pinned);
	zcc_device_close(b->device);
	zcc_device_close(b->other);
	free(b->ordinary);
}

static void work_that_reaches_past_an_allocation_is_refused(void **state)
{
	(void)state;
	for (int n = 0; n < N_NAMES; n++) {
		bench b;
		bench_open(&b, names[n]);
		const int64_t shape[] = {8, 8}, dense[] = {8, 1}, far[] = {128, 16};
		refused(ZCC_EINVAL, "target: 4096 bytes at 1 of an allocation of 4096 bytes",
		        zcc_copy_async(b.stream, b.memory + 1, b.pinned, BYTES, error));
		refused(ZCC_EINVAL, "source: 4096 bytes at 1 of an allocation",
		        zcc_copy_async(b.stream, b.memory, b.pinned + 1, BYTES, error));
		refused(ZCC_EINVAL, "target: 4100 bytes at 0",
		        zcc_copy_2d_async(b.stream, b.memory, 1000, b.pinned, 100, 100, 5, error));
		refused(ZCC_EINVAL, "source: 4100 bytes at 0",
		        zcc_cast_async(b.stream, b.memory, ZCC_BF16, b.pinned, ZCC_F32, 1025, error));
		refused(ZCC_EINVAL, "target: 8192 bytes at 0",
		        zcc_lerp_async(b.stream, (float *)(void *)b.memory, b.pinned, ZCC_BF16, 0.5, 2048, error));
		refused(ZCC_EINVAL, "source: 4036 bytes at 64",
		        zcc_strided_async(b.stream, b.memory, dense, b.pinned + 64, far, 2, shape, 4, error));
		must(zcc_strided_async(b.stream, b.memory, dense, b.pinned + 60, far, 2, shape, 4, error));
		must(zcc_stream_wait(b.stream, error));
		bench_close(&b);
	}
}

static void kernels_refuse_pageable_memory_and_name_it(void **state)
{
	(void)state;
	for (int n = 0; n < N_NAMES; n++) {
		bench b;
		bench_open(&b, names[n]);
		const int64_t shape[] = {8}, dense[] = {1};
		refused(ZCC_EINVAL, "the source is in pageable memory",
		        zcc_cast_async(b.stream, b.memory, ZCC_BF16, b.ordinary, ZCC_F32, 8, error));
		refused(ZCC_EINVAL, "the target is in pageable memory",
		        zcc_lerp_async(b.stream, (float *)(void *)b.ordinary, b.memory, ZCC_F32, 0.5, 8, error));
		refused(ZCC_EINVAL, "the target is in pageable memory",
		        zcc_strided_async(b.stream, b.ordinary, dense, b.memory, dense, 1, shape, 1, error));
		must(zcc_cast_async(b.stream, b.pinned, ZCC_BF16, b.memory, ZCC_F32, 8, error));
		must(zcc_stream_wait(b.stream, error));
		bench_close(&b);
	}
}

static void arguments_that_make_no_sense_are_refused_with_their_numbers(void **state)
{
	(void)state;
	bench b;
	bench_open(&b, "host");
	zcc_stream *s = b.stream;
	float *ema = (float *)(void *)b.memory;
	const int64_t one[] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, minus[] = {-1, 1}, zero[] = {0, 1}, two[] = {2, 2},
	              huge[] = {INT64_MAX, 3};
	refused(ZCC_EINVAL, "-1 bytes", zcc_copy_async(s, b.memory, b.pinned, -1, error));
	refused(ZCC_EINVAL, "the source is NULL", zcc_copy_async(s, b.memory, NULL, 8, error));
	refused(ZCC_EINVAL, "the target is NULL", zcc_copy_async(s, NULL, b.memory, 8, error));
	refused(ZCC_EINVAL, "overlap", zcc_copy_async(s, b.memory + 8, b.memory, 16, error));
	must(zcc_copy_async(s, b.memory + 16, b.memory, 16, error));
	refused(ZCC_EINVAL, "target rows of 16 bytes, 15 bytes apart",
	        zcc_copy_2d_async(s, b.memory, 15, b.pinned, 16, 16, 2, error));
	refused(ZCC_EINVAL, "source rows of 16 bytes, 0 bytes apart",
	        zcc_copy_2d_async(s, b.memory, 16, b.pinned, 0, 16, 2, error));
	refused(ZCC_EOVERFLOW, "reach past", zcc_copy_2d_async(s, b.memory, INT64_MAX / 2, b.pinned, 16, 16, 5, error));
	refused(ZCC_EINVAL, "-2 rows", zcc_copy_2d_async(s, b.memory, 16, b.pinned, 16, 16, -2, error));
	refused(ZCC_EINVAL, "F64 to BF16", zcc_cast_async(s, b.memory, ZCC_BF16, b.pinned, ZCC_F64, 1, error));
	refused(ZCC_EINVAL, "F32 to no dtype", zcc_cast_async(s, b.memory, 99, b.pinned, ZCC_F32, 1, error));
	refused(ZCC_EOVERFLOW, "elements",
	        zcc_cast_async(s, b.memory, ZCC_BF16, b.pinned, ZCC_F32, INT64_MAX / 2, error));
	refused(ZCC_EINVAL, "not a multiple of its 4 bytes",
	        zcc_cast_async(s, b.memory, ZCC_BF16, b.pinned + 2, ZCC_F32, 1, error));
	refused(ZCC_EINVAL, "F16", zcc_lerp_async(s, ema, b.pinned, ZCC_F16, 0.5, 1, error));
	refused(ZCC_EINVAL, "decay 1.01", zcc_lerp_async(s, ema, b.pinned, ZCC_F32, 1.01, 1, error));
	refused(ZCC_EINVAL, "decay", zcc_lerp_async(s, ema, b.pinned, ZCC_F32, (double)__builtin_nan(""), 1, error));
	refused(ZCC_EINVAL, "0 axes", zcc_strided_async(s, b.memory, one, b.pinned, one, 0, one, 4, error));
	refused(ZCC_EINVAL, "9 axes", zcc_strided_async(s, b.memory, one, b.pinned, one, 9, one, 4, error));
	refused(ZCC_EINVAL, "3 bytes", zcc_strided_async(s, b.memory, one, b.pinned, one, 1, one, 3, error));
	refused(ZCC_EINVAL, "extent -1 on axis 0",
	        zcc_strided_async(s, b.memory, one, b.pinned, one, 2, minus, 4, error));
	refused(ZCC_EINVAL, "source stride -1", zcc_strided_async(s, b.memory, one, b.pinned, minus, 2, two, 4, error));
	refused(ZCC_EINVAL, "writes elements twice",
	        zcc_strided_async(s, b.memory, zero, b.pinned, one, 2, two, 4, error));
	refused(ZCC_EOVERFLOW, "elements", zcc_strided_async(s, b.memory, one, b.pinned, one, 2, huge, 4, error));
	refused(ZCC_EOVERFLOW, "strides reach", zcc_strided_async(s, b.memory, huge, b.pinned, one, 2, two, 4, error));
	refused(ZCC_EINVAL, "the event is of device late:host,lazy, the stream of host",
	        zcc_event_record(b.event, s, error));
	refused(ZCC_EINVAL, "the event is of device late:host,lazy, the stream of host",
	        zcc_stream_wait_event(s, b.event, error));
	refused(ZCC_EINVAL, "-3", zcc_device_list(-3, (char[32]){0}, (char[256]){0}, &(int32_t){0}, error));
	/* Nothing to do is nothing to check the places of. */
	must(zcc_copy_async(s, NULL, NULL, 0, error));
	must(zcc_copy_2d_async(s, NULL, 0, NULL, 0, 16, 0, error));
	must(zcc_cast_async(s, NULL, ZCC_F16, NULL, ZCC_F32, 0, error));
	must(zcc_strided_async(s, NULL, one, NULL, one, 2, zero, 4, error));
	must(zcc_stream_wait(s, error));
	bench_close(&b);
}

static void a_stray_free_changes_nothing(void **state)
{
	(void)state;
	for (int n = 0; n < N_NAMES; n++) {
		bench b;
		bench_open(&b, names[n]);
		zcc_device_free(b.device, b.memory + 1);
		zcc_device_free(b.device, b.pinned);
		zcc_device_free(b.device, b.ordinary);
		zcc_device_free(b.other, b.memory);
		zcc_pinned_free(b.device, b.memory);
		zcc_pinned_free(b.other, b.pinned);
		zcc_device_free(b.device, NULL);
		zcc_pinned_free(b.device, NULL);
		assert_int_equal(place_of(b.device, b.memory), ZCC_AT_DEVICE);
		assert_int_equal(place_of(b.device, b.pinned), ZCC_AT_PINNED);
		bench_close(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_byte_of_an_allocation_has_its_place_and_no_other),
	        cmocka_unit_test(pinned_memory_is_locked),
	        cmocka_unit_test(who_dereferences_device_memory_faults),
	        cmocka_unit_test(allocations_do_not_share_bytes),
	        cmocka_unit_test(freed_memory_goes_back_to_the_system),
	        cmocka_unit_test(a_forked_child_takes_memory_of_its_own),
	        cmocka_unit_test(a_child_works_whatever_the_threads_of_its_parent_were_doing),
	        cmocka_unit_test(a_limit_of_files_is_a_limit_of_memory_and_no_end_of_the_process),
	        cmocka_unit_test(more_device_memory_than_there_is_names_asked_and_free),
	        cmocka_unit_test(pinning_beyond_the_memlock_limit_names_asked_pinned_and_allowed),
	        cmocka_unit_test(the_nth_allocation_that_fails_is_a_fault_and_leaves_nothing_behind),
	        cmocka_unit_test(work_that_reaches_past_an_allocation_is_refused),
	        cmocka_unit_test(kernels_refuse_pageable_memory_and_name_it),
	        cmocka_unit_test(arguments_that_make_no_sense_are_refused_with_their_numbers),
	        cmocka_unit_test(a_stray_free_changes_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
