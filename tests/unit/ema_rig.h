/* Many buffers of many sizes, their averages and what these must be, for tests of the EMA on the host and on devices.
 */
#ifndef TEST_EMA_RIG_H
#define TEST_EMA_RIG_H

#include <math.h>

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

static inline int setup(void **state)
{
	(void)state;
	seed_random();
	return 0;
}

static inline void assert_says(const char *part)
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

static inline int32_t dtype_of(int i)
{
	return i % 3 == 2 ? ZCC_BF16 : ZCC_F32;
}

static inline int64_t param_bytes(int i)
{
	return sizes[i] * zcc_dtype_bytes(dtype_of(i));
}

static inline float param_value(const set *s, int i, int64_t k)
{
	if (dtype_of(i) == ZCC_F32)
		return ((float *)s->param[i])[k];
	return f32_of((uint32_t)((uint16_t *)s->param[i])[k] << 16);
}

/* Numbers near 1 of either sign; odd ones are for the kernel's own test. */
static inline void new_params(set *s)
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

static inline void upload(set *s)
{
	for (int i = 0; i < N && s->stream != NULL; i++)
		MUST(zcc_copy_async(s->stream, s->param_memory[i], s->param[i], param_bytes(i), &error));
}

static inline void add_all(set *s, zcc_ema *ema)
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

static inline zcc_ema *new_ema(const set *s, int32_t interval)
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
static inline set make(int which, int32_t interval)
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

static inline void drop(set *s)
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

static inline void average_wanted(set *s)
{
	for (int i = 0; i < N; i++) {
		float w = (float)(1 - decays[i % N_GROUPS]);
		for (int64_t k = 0; k < sizes[i]; k++)
			s->wanted[i][k] = fmaf(w, param_value(s, i, k) - s->wanted[i][k], s->wanted[i][k]);
	}
}

static inline void check(set *s)
{
	for (int i = 0; i < N; i++) {
		MUST(zcc_ema_read(s->ema, i, s->average[i], 4 * sizes[i], s->stream, &error));
		if (memcmp(s->average[i], s->wanted[i], 4 * (size_t)sizes[i]) != 0)
			fail_msg("buffer %d of %lld elements differs on %s", i, (long long)sizes[i],
			         zcc_device_name(s->device));
	}
}

/* One step of training and one call. */
static inline bool step(set *s)
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

#endif
