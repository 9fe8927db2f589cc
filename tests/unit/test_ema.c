/* The EMA over many buffers, on the host and on devices. The expected averages come from a loop of the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "base/memory.h"
#include "devices.h"
#include "paths.h"
#include "zcc/ema.h"
#include "zcc/threads.h"

static zcc_error error;

#define MUST(call)                                                                                                     \
	do {                                                                                                           \
		if ((call) != ZCC_OK)                                                                                  \
			fail_msg("%s: %s", #call, error.message);                                                      \
	} while (0)

static int setup(void **state)
{
	(void)state;
	seed_random();
	return 0;
}

static void assert_says(const char *part)
{
	if (strstr(error.message, part) == NULL)
		fail_msg("\"%s\" is not in: %s", part, error.message);
}

/* ---- a set of buffers ---- */

/* Around the size of a chunk (131072), and nothing at all. */
static const int64_t sizes[] = {5, 0, 131072, 1, 131073, 777};
enum { N = sizeof sizes / sizeof *sizes, N_GROUPS = 2 };
static const double decays[N_GROUPS] = {0.999, 0.5};

/* Host copies of the buffers, and those that the EMA works on: the same on the host, else the device's. */
typedef struct set {
	zcc_device *device;
	zcc_stream *stream; /* NULL: the EMA works on the host */
	zcc_ema *ema;
	float *wanted[N], *average[N];
	void *param[N];
	void *ema_memory[N], *param_memory[N];
} set;

static int32_t dtype_of(int i)
{
	return i % 3 == 2 ? ZCC_BF16 : ZCC_F32;
}

static int64_t param_bytes(int i)
{
	return sizes[i] * zcc_dtype_bytes(dtype_of(i));
}

static float param_value(const set *s, int i, int64_t k)
{
	if (dtype_of(i) == ZCC_F32)
		return ((float *)s->param[i])[k];
	return f32_of((uint32_t)((uint16_t *)s->param[i])[k] << 16);
}

/* Numbers near 1 of either sign; odd ones are for the kernel's own test. */
static void new_params(set *s)
{
	for (int i = 0; i < N; i++)
		for (int64_t k = 0; k < sizes[i]; k++) {
			uint32_t bits = ((uint32_t)random_bits() & 0x83ffffff) | 0x3c000000;
			if (dtype_of(i) == ZCC_F32)
				((uint32_t *)s->param[i])[k] = bits;
			else
				((uint16_t *)s->param[i])[k] = (uint16_t)(bits >> 16);
		}
}

static void upload(set *s)
{
	for (int i = 0; i < N && s->stream != NULL; i++)
		MUST(zcc_copy_async(s->stream, s->param_memory[i], s->param[i], param_bytes(i), &error));
}

static void add_all(set *s, zcc_ema *ema)
{
	int32_t groups[N_GROUPS];
	for (int g = 0; g < N_GROUPS; g++)
		MUST(zcc_ema_group(ema, decays[g], &groups[g], &error));
	for (int i = 0; i < N; i++) {
		char name[32];
		int32_t index;
		snprintf(name, sizeof name, "param.%d", i);
		zcc_ema_buffer b;
		zcc_ema_buffer_init(&b);
		b.name = name;
		b.group = groups[i % N_GROUPS];
		b.ema = s->ema_memory[i];
		b.param = s->param_memory[i];
		b.param_dtype = dtype_of(i);
		b.elems = sizes[i];
		b.ema_place = b.param_place = s->stream != NULL ? ZCC_AT_DEVICE : ZCC_AT_PAGEABLE;
		MUST(zcc_ema_add(ema, &b, &index, &error));
		assert_int_equal(index, i);
	}
}

static zcc_ema *new_ema(const set *s, int32_t interval)
{
	zcc_ema *ema;
	zcc_ema_options options;
	zcc_ema_options_init(&options);
	options.interval = interval;
	options.device = s->device;
	MUST(zcc_ema_create(&options, &ema, &error));
	return ema;
}

/* which: number of the device, -1 = the host's own memory. */
static set make(int which, int32_t interval)
{
	set s = {.device = open_device(which < 0 ? 0 : which)};
	if (which >= 0)
		MUST(zcc_stream_create(s.device, &s.stream, &error));
	for (int i = 0; i < N; i++) {
		s.wanted[i] = calloc((size_t)sizes[i] + 1, 4);
		s.average[i] = calloc((size_t)sizes[i] + 1, 4);
		s.param[i] = calloc((size_t)sizes[i] + 1, 4);
		s.ema_memory[i] = s.average[i];
		s.param_memory[i] = s.param[i];
		if (which >= 0) {
			MUST(zcc_device_malloc(s.device, 4 * sizes[i], &s.ema_memory[i], &error));
			MUST(zcc_device_malloc(s.device, param_bytes(i), &s.param_memory[i], &error));
		}
	}
	new_params(&s);
	upload(&s);
	s.ema = new_ema(&s, interval);
	add_all(&s, s.ema);
	MUST(zcc_ema_start(s.ema, s.stream, &error));
	for (int i = 0; i < N; i++)
		for (int64_t k = 0; k < sizes[i]; k++)
			s.wanted[i][k] = param_value(&s, i, k);
	return s;
}

static void drop(set *s)
{
	zcc_ema_destroy(s->ema);
	for (int i = 0; i < N; i++) {
		if (s->stream != NULL) {
			zcc_device_free(s->device, s->ema_memory[i]);
			zcc_device_free(s->device, s->param_memory[i]);
		}
		free(s->wanted[i]);
		free(s->average[i]);
		free(s->param[i]);
	}
	zcc_stream_destroy(s->stream);
	zcc_device_close(s->device);
}

static void average_wanted(set *s)
{
	for (int i = 0; i < N; i++) {
		float w = (float)(1 - decays[i % N_GROUPS]);
		for (int64_t k = 0; k < sizes[i]; k++)
			s->wanted[i][k] = fmaf(w, param_value(s, i, k) - s->wanted[i][k], s->wanted[i][k]);
	}
}

static void check(set *s)
{
	for (int i = 0; i < N; i++) {
		MUST(zcc_ema_read(s->ema, i, s->average[i], 4 * sizes[i], s->stream, &error));
		if (memcmp(s->average[i], s->wanted[i], 4 * (size_t)sizes[i]) != 0)
			fail_msg("buffer %d of %lld elements differs on %s", i, (long long)sizes[i],
			         zcc_device_name(s->device));
	}
}

/* One step of training and one call. */
static bool step(set *s)
{
	int32_t updated = -1;
	if (s->stream != NULL)
		MUST(zcc_stream_wait(s->stream, &error)); /* before the host copies change, which the uploads read */
	new_params(s);
	upload(s);
	MUST(zcc_ema_update(s->ema, s->stream, &updated, &error));
	if (updated)
		average_wanted(s);
	return updated != 0;
}

/* ---- averages ---- */

static void many_buffers_average_as_the_definition_says_with_any_number_of_threads(void **state)
{
	(void)state;
	int32_t threads = zcc_threads_get();
	const int32_t counts[] = {1, 2, 5};
	for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
		MUST(zcc_threads_set(counts[k], &error));
		set s = make(-1, 1);
		check(&s);
		for (int i = 0; i < 4; i++)
			assert_true(step(&s));
		check(&s);
		assert_int_equal(zcc_ema_updates(s.ema), 4);
		drop(&s);
	}
	MUST(zcc_threads_set(threads, &error));
}

static void buffers_of_a_device_are_averaged_on_its_stream(void **state)
{
	(void)state;
	for (int d = 0; d < N_DEVICES; d++) {
		set s = make(d, 1);
		check(&s);
		for (int i = 0; i < 3; i++)
			assert_true(step(&s));
		check(&s);
		drop(&s);
	}
}

static void only_every_interval_th_call_updates(void **state)
{
	(void)state;
	for (int d = -1; d < N_DEVICES; d += 2) {
		set s = make(d, 3);
		for (int call = 1; call <= 8; call++) {
			assert_int_equal(step(&s), call % 3 == 0);
			assert_int_equal(zcc_ema_calls(s.ema), call);
			assert_int_equal(zcc_ema_updates(s.ema), call / 3);
		}
		check(&s);
		drop(&s);
	}
}

/* Another set takes up the saved bytes and counters. */
static void ten_steps_equal_five_and_five_after_resuming(void **state)
{
	(void)state;
	for (int d = -1; d < N_DEVICES; d++) {
		uint64_t seed = random_state;
		set whole = make(d, 2);
		for (int i = 0; i < 10; i++)
			step(&whole);
		random_state = seed;
		set first = make(d, 2);
		for (int i = 0; i < 5; i++)
			step(&first);
		for (int i = 0; i < N; i++)
			MUST(zcc_ema_read(first.ema, i, first.average[i], 4 * sizes[i], first.stream, &error));
		uint64_t middle = random_state;
		set second = make(d, 2);
		for (int i = 0; i < N; i++) {
			MUST(zcc_ema_write(second.ema, i, first.average[i], 4 * sizes[i], second.stream, &error));
			/* Written already: what the caller does with its copy is its own affair. */
			memset(first.average[i], 0xa5, 4 * (size_t)sizes[i]);
			memcpy(second.wanted[i], first.wanted[i], 4 * (size_t)sizes[i]);
		}
		MUST(zcc_ema_resume(second.ema, zcc_ema_calls(first.ema), zcc_ema_updates(first.ema), &error));
		random_state = middle;
		for (int i = 0; i < 5; i++)
			step(&second);
		check(&second);
		check(&whole);
		assert_int_equal(zcc_ema_calls(second.ema), zcc_ema_calls(whole.ema));
		assert_int_equal(zcc_ema_updates(second.ema), 5);
		for (int i = 0; i < N; i++)
			assert_memory_equal(whole.average[i], second.average[i], 4 * (size_t)sizes[i]);
		drop(&whole);
		drop(&first);
		drop(&second);
	}
}

static void thousands_of_updates_leave_every_buffer_where_it_was(void **state)
{
	(void)state;
	for (int d = 0; d < 2; d++) {
		zcc_device *device = open_device(d);
		zcc_stream *stream;
		MUST(zcc_stream_create(device, &stream, &error));
		void *average, *param;
		float ones[64], back[64];
		for (int i = 0; i < 64; i++)
			ones[i] = 1;
		MUST(zcc_device_malloc(device, sizeof ones, &average, &error));
		MUST(zcc_device_malloc(device, sizeof ones, &param, &error));
		set s = {.device = device};
		zcc_ema *ema = new_ema(&s, 1);
		zcc_ema_buffer b, after;
		zcc_ema_buffer_init(&b);
		MUST(zcc_ema_group(ema, 0.999, &b.group, &error));
		b.name = "w";
		b.ema = average;
		b.param = param;
		b.elems = 64;
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		memset(back, 0, sizeof back);
		MUST(zcc_ema_write(ema, 0, back, sizeof back, stream, &error));
		MUST(zcc_copy_async(stream, param, ones, sizeof ones, &error));
		float wanted = 0;
		for (int i = 0; i < 3000; i++) {
			MUST(zcc_ema_update(ema, stream, NULL, &error));
			wanted = fmaf((float)(1 - 0.999), 1 - wanted, wanted);
		}
		MUST(zcc_ema_read(ema, 0, back, sizeof back, stream, &error));
		for (int i = 0; i < 64; i++)
			assert_int_equal(bits_of(back[i]), bits_of(wanted));
		/* It moved: what stays near 1 - 0.999^3000 could not in fewer bits. */
		assert_true(fabs(wanted - (1 - pow(0.999, 3000))) < 1e-4);
		MUST(zcc_ema_buffer_get(ema, 0, &after, &error));
		assert_ptr_equal(after.ema, average);
		assert_ptr_equal(after.param, param);
		assert_int_equal(after.elems, 64);
		int32_t place;
		MUST(zcc_device_place(device, average, &place, &error));
		assert_int_equal(place, ZCC_AT_DEVICE);
		assert_int_equal(after.ema_place, ZCC_AT_DEVICE);
		zcc_ema_destroy(ema);
		zcc_device_free(device, average);
		zcc_device_free(device, param);
		zcc_stream_destroy(stream);
		zcc_device_close(device);
	}
}

/* Parameters that a copy of the device brings to pinned memory are waited for. */
static void parameters_on_their_way_to_the_host_are_waited_for(void **state)
{
	(void)state;
	for (int d = 0; d < N_DEVICES; d++) {
		zcc_device *device = open_device(d);
		zcc_stream *stream;
		void *on_device, *pinned;
		float average[32] = {0}, ones[32];
		for (int i = 0; i < 32; i++)
			ones[i] = 1;
		MUST(zcc_stream_create(device, &stream, &error));
		MUST(zcc_device_malloc(device, sizeof ones, &on_device, &error));
		MUST(zcc_pinned_malloc(device, sizeof ones, &pinned, &error));
		MUST(zcc_copy_async(stream, on_device, ones, sizeof ones, &error));
		MUST(zcc_stream_wait(stream, &error));
		set s = {.device = device};
		zcc_ema *ema = new_ema(&s, 1);
		zcc_ema_buffer b;
		zcc_ema_buffer_init(&b);
		MUST(zcc_ema_group(ema, 0.75, &b.group, &error));
		b.name = "w";
		b.ema = average;
		b.param = pinned;
		b.elems = 32;
		b.ema_place = ZCC_AT_PAGEABLE;
		b.param_place = ZCC_AT_PINNED;
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		MUST(zcc_copy_async(stream, pinned, on_device, sizeof ones, &error));
		MUST(zcc_ema_update(ema, stream, NULL, &error));
		for (int i = 0; i < 32; i++)
			assert_true(average[i] == 0.25f);
		zcc_ema_destroy(ema);
		zcc_device_free(device, on_device);
		zcc_pinned_free(device, pinned);
		zcc_stream_destroy(stream);
		zcc_device_close(device);
	}
}

/* ---- what is refused ---- */

static zcc_ema_buffer buffer_of(zcc_ema *ema, const char *name, void *average, const void *param, int64_t elems)
{
	zcc_ema_buffer b;
	zcc_ema_buffer_init(&b);
	if (zcc_ema_group(ema, 0.9, &b.group, &error) != ZCC_OK)
		abort();
	b.name = name;
	b.ema = average;
	b.param = param;
	b.elems = elems;
	return b;
}

static void an_average_in_fewer_bits_is_refused_with_the_reason(void **state)
{
	(void)state;
	set s = {.device = open_device(0)};
	zcc_ema *ema = new_ema(&s, 1);
	uint16_t average[8] = {0};
	float param[8] = {0};
	const int32_t halves[] = {ZCC_BF16, ZCC_F16};
	for (int i = 0; i < 2; i++) {
		zcc_ema_buffer b = buffer_of(ema, "layers.0.w", average, param, 8);
		b.ema_dtype = halves[i];
		assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
		assert_says("layers.0.w");
		assert_says(zcc_dtype_name(halves[i]));
		assert_says("F32");
		assert_says("never move");
	}
	assert_int_equal(zcc_ema_count(ema), 0);
	zcc_ema_destroy(ema);
	zcc_device_close(s.device);
}

static void a_buffer_in_another_place_than_declared_is_refused_by_name_and_both_places(void **state)
{
	(void)state;
	set s = {.device = open_device(1)};
	zcc_ema *ema = new_ema(&s, 1);
	float average[8] = {0}, param[8] = {0}, other[8] = {0};
	void *on_device, *more, *pinned;
	MUST(zcc_device_malloc(s.device, 32, &on_device, &error));
	MUST(zcc_device_malloc(s.device, 32, &more, &error));
	MUST(zcc_pinned_malloc(s.device, 32, &pinned, &error));
	zcc_ema_buffer b = buffer_of(ema, "w", average, param, 8);
	b.ema_place = ZCC_AT_DEVICE;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("EMA buffer of 'w'");
	assert_says("declared to be in device memory and is in pageable memory");
	b = buffer_of(ema, "w", average, pinned, 8);
	b.param_place = ZCC_AT_PAGEABLE;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("parameter buffer of 'w'");
	assert_says("declared to be in pageable memory and is in pinned memory");
	b = buffer_of(ema, "w", average, on_device, 8);
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("the EMA buffer is in pageable memory, its parameter in device memory");
	b = buffer_of(ema, "w", average, param, 8);
	MUST(zcc_ema_add(ema, &b, NULL, &error));
	b = buffer_of(ema, "v", on_device, more, 8);
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("'v' is in device memory, 'w' in pageable memory");
	assert_int_equal(zcc_ema_count(ema), 1);
	b = buffer_of(ema, "v", other, pinned, 8);
	MUST(zcc_ema_add(ema, &b, NULL, &error));
	zcc_ema_destroy(ema);
	zcc_device_free(s.device, on_device);
	zcc_device_free(s.device, more);
	zcc_pinned_free(s.device, pinned);
	zcc_device_close(s.device);
}

static void a_buffer_that_left_its_place_stops_the_update_before_anything_is_written(void **state)
{
	(void)state;
	for (int d = 0; d < N_DEVICES; d++) {
		set s = {.device = open_device(d)};
		zcc_ema *ema = new_ema(&s, 1);
		float average[8] = {0}, param[8] = {1, 1, 1, 1, 1, 1, 1, 1}, other[8] = {0};
		void *pinned;
		MUST(zcc_pinned_malloc(s.device, 32, &pinned, &error));
		zcc_ema_buffer b = buffer_of(ema, "first", average, param, 8);
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		b = buffer_of(ema, "second", other, pinned, 8);
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		zcc_pinned_free(s.device, pinned);
		assert_int_not_equal(zcc_ema_update(ema, NULL, NULL, &error), ZCC_OK);
		assert_says("'second'");
		assert_int_equal(zcc_ema_calls(ema), 0);
		for (int i = 0; i < 8; i++)
			assert_true(average[i] == 0);
		zcc_ema_destroy(ema);
		zcc_device_close(s.device);
	}
}

static void freed_device_memory_is_an_error_that_names_the_buffer(void **state)
{
	(void)state;
	for (int d = 0; d < N_DEVICES; d++) {
		set s = make(d, 1);
		MUST(zcc_stream_wait(s.stream, &error));
		zcc_device_free(s.device, s.param_memory[5]);
		assert_int_not_equal(zcc_ema_update(s.ema, s.stream, NULL, &error), ZCC_OK);
		assert_says("parameter buffer of 'param.5'");
		assert_int_equal(zcc_ema_calls(s.ema), 0);
		check(&s);
		s.param_memory[5] = NULL;
		drop(&s);
	}
}

static void device_buffers_need_a_stream(void **state)
{
	(void)state;
	set s = make(0, 1);
	assert_int_equal(zcc_ema_update(s.ema, NULL, NULL, &error), ZCC_EINVAL);
	assert_says("no stream");
	assert_int_equal(zcc_ema_read(s.ema, 0, s.average[0], 20, NULL, &error), ZCC_EINVAL);
	assert_int_equal(zcc_ema_read(s.ema, 0, s.average[0], 16, s.stream, &error), ZCC_EINVAL);
	assert_says("16 bytes for 'param.0', which has 20");
	assert_int_equal(zcc_ema_read(s.ema, N, s.average[0], 16, s.stream, &error), ZCC_EINVAL);
	drop(&s);
}

static void overlapping_buffers_are_refused_and_tied_parameters_are_not(void **state)
{
	(void)state;
	float memory[100] = {0}, param[50];
	for (int i = 0; i < 50; i++)
		param[i] = 4;
	const struct {
		float *average;
		const float *param;
		bool fine;
	} cases[] = {{memory + 10, param, true},       {memory + 9, param, false},
	             {memory, param, false},           {param + 15, param + 10, false},
	             {memory + 20, memory + 9, false}, {memory + 20, memory + 30, true},
	             {memory + 20, memory + 29, false}};
	for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
		set s = {.device = open_device(0)};
		zcc_ema *ema = new_ema(&s, 1);
		memset(memory, 0, sizeof memory);
		zcc_ema_buffer b = buffer_of(ema, "a", memory, param, 10);
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		MUST(zcc_ema_update(ema, NULL, NULL, &error));
		b = buffer_of(ema, "b", cases[k].average, cases[k].param, 10);
		MUST(zcc_ema_add(ema, &b, NULL, &error));
		zcc_status status = zcc_ema_update(ema, NULL, NULL, &error);
		assert_int_equal(status, cases[k].fine ? ZCC_OK : ZCC_EINVAL);
		if (!cases[k].fine) {
			assert_says("overlap");
			assert_says("'b'");
			assert_int_equal(zcc_ema_updates(ema), 1);
		}
		zcc_ema_destroy(ema);
		zcc_device_close(s.device);
	}
}

static void nonsense_is_refused_with_the_numbers(void **state)
{
	(void)state;
	set s = {.device = open_device(0)};
	zcc_ema *ema = new_ema(&s, 1), *other = NULL;
	zcc_ema_options options;
	zcc_ema_options_init(&options);
	assert_int_equal(zcc_ema_create(&options, &other, &error), ZCC_EINVAL);
	options.device = s.device;
	options.interval = 0;
	assert_int_equal(zcc_ema_create(&options, &other, &error), ZCC_EINVAL);
	assert_says("interval of 0");
	options.struct_bytes = 8;
	assert_int_equal(zcc_ema_create(&options, &other, &error), ZCC_EINVAL);
	assert_null(other);
	int32_t group = 77;
	const double bad[] = {1, -0.1, NAN, INFINITY, 1.5};
	for (int i = 0; i < 5; i++)
		assert_int_equal(zcc_ema_group(ema, bad[i], &group, &error), ZCC_EINVAL);
	assert_int_equal(group, 77);
	float average[8] = {0}, param[8] = {0};
	zcc_ema_buffer b = buffer_of(ema, "w", average, param, 8);
	MUST(zcc_ema_add(ema, &b, NULL, &error));
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("'w' is taken");
	b.name = "";
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	b.name = "v";
	b.elems = -1;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	b.elems = INT64_MAX / 2;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	b.elems = 8;
	b.group = 99;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("group 99");
	b.group = 0;
	b.param_dtype = ZCC_F16;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("parameter of dtype F16");
	b.param_dtype = ZCC_F32;
	b.param = NULL;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_says("NULL");
	b.param = (char *)param + 1;
	assert_int_equal(zcc_ema_add(ema, &b, NULL, &error), ZCC_EINVAL);
	assert_int_equal(zcc_ema_resume(ema, 3, 4, &error), ZCC_EINVAL);
	assert_int_equal(zcc_ema_resume(ema, 3, -1, &error), ZCC_EINVAL);
	assert_int_equal(zcc_ema_count(ema), 1);
	zcc_ema_destroy(ema);
	zcc_device_close(s.device);
}

/* ---- memory that runs out ---- */

/* Where an allocation fails, the same call succeeds the next time, and all that was added is there. */
static void every_failed_allocation_is_reported_and_leaves_all_as_it_was(void **state)
{
	(void)state;
	zcc_device *device = open_device(0);
	enum { ALL = 40 };
	bool done = false;
	for (int64_t n = 1; !done; n++) {
		float average[ALL] = {0}, param[ALL];
		zcc_ema *ema = NULL;
		zcc_ema_options options;
		zcc_ema_options_init(&options);
		options.device = device;
		zcci_fail_alloc(n);
		int failed = 0;
		failed += zcc_ema_create(&options, &ema, &error) == ZCC_ENOMEM;
		if (failed > 0)
			MUST(zcc_ema_create(&options, &ema, &error));
		zcc_ema_buffer b;
		zcc_ema_buffer_init(&b);
		for (int g = 0; g < 5; g++)
			if (zcc_ema_group(ema, 0.5, &b.group, &error) != ZCC_OK) {
				failed++;
				MUST(zcc_ema_group(ema, 0.5, &b.group, &error));
			}
		for (int i = 0; i < ALL; i++) {
			char name[16];
			snprintf(name, sizeof name, "w%d", i);
			param[i] = (float)i;
			b.name = name;
			b.ema = &average[i];
			b.param = &param[i];
			b.elems = 1;
			if (zcc_ema_add(ema, &b, NULL, &error) != ZCC_OK) {
				failed++;
				MUST(zcc_ema_add(ema, &b, NULL, &error));
			}
		}
		if (zcc_ema_update(ema, NULL, NULL, &error) != ZCC_OK) {
			failed++;
			MUST(zcc_ema_update(ema, NULL, NULL, &error));
		}
		done = !zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		assert_int_equal(failed, done ? 0 : 1);
		assert_int_equal(zcc_ema_count(ema), ALL);
		for (int i = 0; i < ALL; i++)
			assert_true(average[i] == 0.5f * (float)i);
		zcc_ema_destroy(ema);
	}
	zcc_device_close(device);
}

/* Work that a device refuses in the middle leaves some buffers ahead of others: said, and refused until it is put
 * right. */
static void a_torn_ema_refuses_updates_until_it_is_resumed(void **state)
{
	(void)state;
	for (int d = 0; d < N_DEVICES; d++) {
		/* A plug-in takes no memory of ours while work is submitted. */
		if (strncmp(device_name(d), "cuda", 4) == 0)
			continue;
		set s = make(d, 1);
		check(&s);
		bool torn = false;
		for (int64_t n = 1; !torn; n++) {
			zcci_fail_alloc(n);
			zcc_status status = zcc_ema_update(s.ema, s.stream, NULL, &error);
			bool hit = zcci_fail_alloc_hit();
			zcci_fail_alloc(0);
			if (!hit)
				break;
			if (status == ZCC_OK)
				continue; /* it hit the device later on, which reports it when it is waited for */
			assert_int_equal(status, ZCC_ENOMEM);
			status = zcc_ema_update(s.ema, s.stream, NULL, &error);
			torn = status != ZCC_OK;
			if (torn) {
				assert_int_equal(status, ZCC_EDEVICE);
				assert_says("torn");
			}
		}
		assert_true(torn);
		assert_int_equal(zcc_ema_read(s.ema, 0, s.average[0], 20, s.stream, &error), ZCC_EDEVICE);
		zcc_stream_wait(s.stream, NULL);
		for (int i = 0; i < N; i++)
			MUST(zcc_ema_write(s.ema, i, s.wanted[i], 4 * sizes[i], s.stream, &error));
		MUST(zcc_ema_resume(s.ema, 7, 7, &error));
		step(&s);
		check(&s);
		assert_int_equal(zcc_ema_calls(s.ema), 8);
		drop(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(many_buffers_average_as_the_definition_says_with_any_number_of_threads),
	        cmocka_unit_test(buffers_of_a_device_are_averaged_on_its_stream),
	        cmocka_unit_test(only_every_interval_th_call_updates),
	        cmocka_unit_test(ten_steps_equal_five_and_five_after_resuming),
	        cmocka_unit_test(thousands_of_updates_leave_every_buffer_where_it_was),
	        cmocka_unit_test(parameters_on_their_way_to_the_host_are_waited_for),
	        cmocka_unit_test(an_average_in_fewer_bits_is_refused_with_the_reason),
	        cmocka_unit_test(a_buffer_in_another_place_than_declared_is_refused_by_name_and_both_places),
	        cmocka_unit_test(a_buffer_that_left_its_place_stops_the_update_before_anything_is_written),
	        cmocka_unit_test(freed_device_memory_is_an_error_that_names_the_buffer),
	        cmocka_unit_test(device_buffers_need_a_stream),
	        cmocka_unit_test(overlapping_buffers_are_refused_and_tied_parameters_are_not),
	        cmocka_unit_test(nonsense_is_refused_with_the_numbers),
	        cmocka_unit_test(every_failed_allocation_is_reported_and_leaves_all_as_it_was),
	        cmocka_unit_test(a_torn_ema_refuses_updates_until_it_is_resumed),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
