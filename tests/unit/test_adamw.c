/* The optimizer over many buffers: what the kernel says of each (test_adamw_kernel.c holds that against double
 * precision), with any number of threads, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "base/memory.h"
#include "devices.h"
#include "paths.h"
#include "zcc/adamw.h"
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

static const int64_t sizes[] = {5, 0, 131072, 1, 131073, 200001};
enum { N = sizeof sizes / sizeof *sizes, ARRAYS = 5 };
static const int32_t grad_dtypes[N] = {ZCC_F32, ZCC_F32, ZCC_BF16, ZCC_F16, ZCC_BF16, ZCC_F32};
static const int32_t out_dtypes[N] = {ZCC_BF16, ZCC_BF16, ZCC_BF16, ZCC_F32, ZCC_F16, ZCC_BF16};

/* master, moments, gradient, result of each buffer. */
typedef struct set {
	void *array[N][ARRAYS];
	zcc_adamw *adamw;
} set;

static size_t bytes_of(int i, int k)
{
	const int32_t dtypes[ARRAYS] = {ZCC_F32, ZCC_F32, ZCC_F32, grad_dtypes[i], out_dtypes[i]};
	return (size_t)(sizes[i] * zcc_dtype_bytes(dtypes[k]));
}

static void new_gradients(set *s)
{
	for (int i = 0; i < N; i++)
		for (int64_t k = 0; k < sizes[i]; k++) {
			uint32_t bits = ((uint32_t)random_bits() & 0x83ffffff) | 0x38000000;
			if (grad_dtypes[i] == ZCC_F32)
				((uint32_t *)s->array[i][3])[k] = bits;
			else
				((uint16_t *)s->array[i][3])[k] = (uint16_t)(bits >> 16);
		}
}

static set make(double weight_decay)
{
	set s;
	zcc_adamw_options options;
	zcc_adamw_options_init(&options);
	options.weight_decay = weight_decay;
	MUST(zcc_adamw_create(&options, &s.adamw, &error));
	for (int i = 0; i < N; i++) {
		char name[16];
		zcc_adamw_buffer b;
		zcc_adamw_buffer_init(&b);
		for (int k = 0; k < ARRAYS; k++)
			s.array[i][k] = calloc(bytes_of(i, k) + 4, 1);
		for (int64_t k = 0; k < sizes[i]; k++)
			((uint32_t *)s.array[i][0])[k] = ((uint32_t)random_bits() & 0x83ffffff) | 0x3c000000;
		snprintf(name, sizeof name, "w%d", i);
		b.name = name;
		b.master = s.array[i][0];
		b.exp_avg = s.array[i][1];
		b.exp_avg_sq = s.array[i][2];
		b.grad = s.array[i][3];
		b.grad_dtype = grad_dtypes[i];
		b.out = i == 3 ? NULL : s.array[i][4];
		b.out_dtype = out_dtypes[i];
		b.elems = sizes[i];
		b.weight_decay = i == 4 ? 0 : -1;
		int32_t index;
		MUST(zcc_adamw_add(s.adamw, &b, &index, &error));
		assert_int_equal(index, i);
	}
	return s;
}

static void drop(set *s)
{
	zcc_adamw_destroy(s->adamw);
	for (int i = 0; i < N; i++)
		for (int k = 0; k < ARRAYS; k++)
			free(s->array[i][k]);
}

static void step(set *s, double lr)
{
	new_gradients(s);
	MUST(zcc_adamw_step(s->adamw, lr, 0.5, &error));
}

static void assert_alike(const set *a, const set *b)
{
	for (int i = 0; i < N; i++)
		for (int k = 0; k < ARRAYS; k++)
			if (memcmp(a->array[i][k], b->array[i][k], bytes_of(i, k)) != 0)
				fail_msg("array %d of buffer %d differs", k, i);
}

static void the_number_of_threads_changes_no_bit(void **state)
{
	(void)state;
	int32_t threads = zcc_threads_get();
	uint64_t seed = random_state;
	MUST(zcc_threads_set(1, &error));
	set one = make(0.1);
	for (int i = 0; i < 5; i++)
		step(&one, 0.01);
	const int32_t counts[] = {2, 5};
	for (int c = 0; c < 2; c++) {
		MUST(zcc_threads_set(counts[c], &error));
		random_state = seed;
		set many = make(0.1);
		for (int i = 0; i < 5; i++)
			step(&many, 0.01);
		assert_alike(&one, &many);
		drop(&many);
	}
	MUST(zcc_threads_set(threads, &error));
	drop(&one);
}

/* In double precision, loosely: that each buffer got its own weight decay, the learning rate of the call and the step's
 * number. */
static void every_buffer_gets_its_own_decay_and_the_learning_rate_of_the_call(void **state)
{
	(void)state;
	set s = make(0.1);
	const double lrs[] = {0.01, 0, 0.03};
	double p[N] = {0}, m[N] = {0}, v[N] = {0};
	for (int i = 0; i < N; i++)
		p[i] = sizes[i] > 0 ? (double)((float *)s.array[i][0])[sizes[i] - 1] : 0;
	for (int t = 1; t <= 3; t++) {
		step(&s, lrs[t - 1]);
		assert_int_equal(zcc_adamw_steps(s.adamw), t);
		for (int i = 0; i < N; i++) {
			int64_t last = sizes[i] - 1;
			if (last < 0)
				continue;
			float *grads = s.array[i][3];
			uint16_t *halves = s.array[i][3];
			double g = grad_dtypes[i] == ZCC_F32 ? (double)grads[last]
			           : grad_dtypes[i] == ZCC_BF16
			                   ? (double)f32_of((uint32_t)halves[last] << 16)
			                   : ldexp(1024 + halves[last] % 1024, (halves[last] >> 10 & 31) - 25) *
			                             (halves[last] >> 15 ? -1 : 1);
			g *= 0.5;
			p[i] -= lrs[t - 1] * (i == 4 ? 0 : 0.1) * p[i];
			m[i] = 0.9 * m[i] + 0.1 * g;
			v[i] = 0.999 * v[i] + 0.001 * g * g;
			p[i] -= lrs[t - 1] * (m[i] / (1 - pow(0.9, t))) / (sqrt(v[i] / (1 - pow(0.999, t))) + 1e-8);
			float got = ((float *)s.array[i][0])[last];
			assert_true(fabs(got - p[i]) < 1e-5);
			if (out_dtypes[i] == ZCC_BF16)
				assert_true(fabs(f32_of((uint32_t)((uint16_t *)s.array[i][4])[last] << 16) - got) <=
				            fabs(got) / 256);
		}
	}
	/* No result was wanted for this one. */
	for (size_t k = 0; k < bytes_of(3, 4); k++)
		assert_int_equal(((char *)s.array[3][4])[k], 0);
	drop(&s);
}

static void ten_steps_equal_five_and_five_after_resuming(void **state)
{
	(void)state;
	uint64_t seed = random_state;
	set whole = make(0.1);
	for (int i = 0; i < 10; i++)
		step(&whole, 0.01);
	random_state = seed;
	set first = make(0.1);
	for (int i = 0; i < 5; i++)
		step(&first, 0.01);
	uint64_t middle = random_state;
	set second = make(0.1);
	for (int i = 0; i < N; i++)
		for (int k = 0; k < ARRAYS; k++)
			memcpy(second.array[i][k], first.array[i][k], bytes_of(i, k));
	MUST(zcc_adamw_resume(second.adamw, zcc_adamw_steps(first.adamw), &error));
	random_state = middle;
	for (int i = 0; i < 5; i++)
		step(&second, 0.01);
	assert_alike(&whole, &second);
	assert_int_equal(zcc_adamw_steps(second.adamw), 10);
	drop(&whole);
	drop(&first);
	drop(&second);
}

static void nonsense_is_refused_with_the_numbers_and_changes_nothing(void **state)
{
	(void)state;
	zcc_adamw *adamw = NULL;
	zcc_adamw_options options;
	const double bad[] = {-0.1, 1, NAN, INFINITY};
	for (int i = 0; i < 4; i++) {
		zcc_adamw_options_init(&options);
		options.beta1 = bad[i];
		assert_int_equal(zcc_adamw_create(&options, &adamw, &error), ZCC_EINVAL);
		zcc_adamw_options_init(&options);
		options.beta2 = bad[i];
		assert_int_equal(zcc_adamw_create(&options, &adamw, &error), ZCC_EINVAL);
		zcc_adamw_options_init(&options);
		*(i % 2 == 0 ? &options.eps : &options.weight_decay) = i == 1 ? -1 : bad[i];
		assert_int_equal(zcc_adamw_create(&options, &adamw, &error), ZCC_EINVAL);
	}
	options.struct_bytes--;
	assert_int_equal(zcc_adamw_create(&options, &adamw, &error), ZCC_EINVAL);
	assert_null(adamw);
	zcc_adamw_options_init(&options);
	MUST(zcc_adamw_create(&options, &adamw, &error));
	float p[8] = {1}, m[8] = {0}, v[8] = {0}, g[8] = {1};
	zcc_adamw_buffer b, usual;
	zcc_adamw_buffer_init(&usual);
	usual.name = "w";
	usual.master = p;
	usual.exp_avg = m;
	usual.exp_avg_sq = v;
	usual.grad = g;
	usual.elems = 8;
	b = usual;
	b.grad_dtype = ZCC_F64;
	assert_int_equal(zcc_adamw_add(adamw, &b, NULL, &error), ZCC_EINVAL);
	assert_says("'w': a gradient of F64, a result of BF16");
	b = usual;
	b.out_dtype = 99;
	assert_int_equal(zcc_adamw_add(adamw, &b, NULL, &error), ZCC_EINVAL);
	b = usual;
	b.elems = -3;
	assert_int_equal(zcc_adamw_add(adamw, &b, NULL, &error), ZCC_EINVAL);
	b = usual;
	b.exp_avg_sq = NULL;
	assert_int_equal(zcc_adamw_add(adamw, &b, NULL, &error), ZCC_EINVAL);
	assert_says("the second moment of 'w' is NULL");
	b = usual;
	b.out = (char *)p + 8;
	assert_int_equal(zcc_adamw_add(adamw, &b, NULL, &error), ZCC_EINVAL);
	assert_says("the master of 'w' and the result of 'w' overlap");
	b = usual;
	b.weight_decay = -2;
	assert_int_equal(zcc_adamw_add(adamw, &b, NULL, &error), ZCC_EINVAL);
	b = usual;
	b.grad = (char *)g + 1;
	assert_int_equal(zcc_adamw_add(adamw, &b, NULL, &error), ZCC_EINVAL);
	b = usual;
	b.name = NULL;
	assert_int_equal(zcc_adamw_add(adamw, &b, NULL, &error), ZCC_EINVAL);
	MUST(zcc_adamw_add(adamw, &usual, NULL, &error));
	assert_int_equal(zcc_adamw_add(adamw, &usual, NULL, &error), ZCC_EINVAL);
	assert_says("'w' is taken");
	assert_int_equal(zcc_adamw_step(adamw, -1, 1, &error), ZCC_EINVAL);
	assert_int_equal(zcc_adamw_step(adamw, NAN, 1, &error), ZCC_EINVAL);
	assert_int_equal(zcc_adamw_step(adamw, 0.1, INFINITY, &error), ZCC_EINVAL);
	assert_true(p[0] == 1);
	assert_int_equal(zcc_adamw_steps(adamw), 0);
	assert_int_equal(zcc_adamw_resume(adamw, -1, &error), ZCC_EINVAL);
	assert_int_equal(zcc_adamw_resume(adamw, INT64_MAX, &error), ZCC_EINVAL);
	assert_says("9223372036854775807 steps");
	MUST(zcc_adamw_resume(adamw, INT64_MAX / 2, &error));
	MUST(zcc_adamw_step(adamw, 0, 1, &error));
	assert_true(zcc_adamw_steps(adamw) == INT64_MAX / 2 + 1);
	assert_int_equal(zcc_adamw_buffer_get(adamw, 1, &b, &error), ZCC_EINVAL);
	MUST(zcc_adamw_buffer_get(adamw, 0, &b, &error));
	assert_ptr_equal(b.exp_avg, m);
	assert_string_equal(b.name, "w");
	zcc_adamw_destroy(adamw);
}

/* Two parameters that share what a step writes would depend on the order of the threads. */
static void memory_of_two_buffers_is_refused_when_it_is_stepped_and_gradients_may_share(void **state)
{
	(void)state;
	float memory[6][40];
	const struct {
		float *master, *exp_avg, *exp_avg_sq, *grad;
		void *out;
		const char *says; /* NULL: fine */
	} cases[] = {
	        {memory[0] + 20, memory[1] + 20, memory[2] + 20, memory[3] + 20, NULL, NULL},
	        {memory[0] + 20, memory[1] + 20, memory[2] + 20, memory[3], NULL, NULL},
	        {memory[0] + 20, memory[1] + 20, memory[2] + 20, memory[3] + 5, NULL, NULL},
	        {memory[0] + 19, memory[1] + 20, memory[2] + 20, memory[3], NULL,
	         "the master of 'a' and the master of 'b'"},
	        {memory[0] + 20, memory[1], memory[2] + 20, memory[3], NULL, "first moment of"},
	        {memory[0] + 20, memory[1] + 20, memory[2] + 10, memory[3], NULL, "the second moment of 'a'"},
	        {memory[0] + 20, memory[1] + 20, memory[2] + 20, memory[0], NULL, "the gradient of 'b'"},
	        {memory[3] + 10, memory[1] + 20, memory[2] + 20, memory[0] + 20, NULL, "the master of 'b'"},
	        {memory[0] + 20, memory[1] + 20, memory[2] + 20, memory[3], memory[4] + 9, "the result of 'b'"},
	        {memory[0] + 20, memory[1] + 20, memory[2] + 20, memory[3], memory[4] + 10, NULL},
	};
	for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
		zcc_adamw_options options;
		zcc_adamw_options_init(&options);
		zcc_adamw *adamw;
		MUST(zcc_adamw_create(&options, &adamw, &error));
		memset(memory, 0, sizeof memory);
		zcc_adamw_buffer b;
		zcc_adamw_buffer_init(&b);
		b.name = "a";
		b.elems = 20;
		b.master = memory[0];
		b.exp_avg = memory[1];
		b.exp_avg_sq = memory[2];
		b.grad = memory[3];
		b.out = memory[4]; /* BF16 */
		MUST(zcc_adamw_add(adamw, &b, NULL, &error));
		MUST(zcc_adamw_step(adamw, 0.1, 1, &error));
		b.name = "b";
		b.master = cases[k].master;
		b.exp_avg = cases[k].exp_avg;
		b.exp_avg_sq = cases[k].exp_avg_sq;
		b.grad = cases[k].grad;
		b.out = cases[k].out;
		MUST(zcc_adamw_add(adamw, &b, NULL, &error));
		memory[3][0] = 1;
		zcc_status status = zcc_adamw_step(adamw, 0.1, 1, &error);
		assert_int_equal(status, cases[k].says == NULL ? ZCC_OK : ZCC_EINVAL);
		if (cases[k].says != NULL) {
			assert_says(cases[k].says);
			assert_says("overlap");
			assert_true(memory[0][0] == 0);
		}
		assert_int_equal(zcc_adamw_steps(adamw), cases[k].says == NULL ? 2 : 1);
		zcc_adamw_destroy(adamw);
	}
}

static void device_memory_is_refused_by_name(void **state)
{
	(void)state;
	for (int d = 0; d < 2; d++) {
		zcc_device *device = open_device(d);
		zcc_adamw *adamw;
		zcc_adamw_options options;
		zcc_adamw_options_init(&options);
		options.device = device;
		MUST(zcc_adamw_create(&options, &adamw, &error));
		float p[8], m[8], v[8], g[8];
		void *on_device, *pinned;
		MUST(zcc_device_malloc(device, 16, &on_device, &error));
		MUST(zcc_pinned_malloc(device, 16, &pinned, &error));
		zcc_adamw_buffer b;
		zcc_adamw_buffer_init(&b);
		b.name = "lm_head";
		b.master = p;
		b.exp_avg = m;
		b.exp_avg_sq = v;
		b.grad = g;
		b.out = on_device;
		b.elems = 8;
		assert_int_equal(zcc_adamw_add(adamw, &b, NULL, &error), ZCC_EINVAL);
		assert_says("the result of 'lm_head' is in memory of the device");
		b.out = pinned;
		MUST(zcc_adamw_add(adamw, &b, NULL, &error));
		zcc_adamw_destroy(adamw);
		zcc_device_free(device, on_device);
		zcc_pinned_free(device, pinned);
		zcc_device_close(device);
	}
}

/* Where an allocation fails, the same call succeeds the next time, and all that was added is there. */
static void every_failed_allocation_is_reported_and_leaves_all_as_it_was(void **state)
{
	(void)state;
	enum { ALL = 40 };
	bool done = false;
	for (int64_t n = 1; !done; n++) {
		float memory[4][ALL] = {{0}};
		zcc_adamw *adamw = NULL;
		zcc_adamw_options options;
		zcc_adamw_options_init(&options);
		options.weight_decay = 0;
		zcci_fail_alloc(n);
		int failed = 0;
		if (zcc_adamw_create(&options, &adamw, &error) != ZCC_OK) {
			failed++;
			MUST(zcc_adamw_create(&options, &adamw, &error));
		}
		for (int i = 0; i < ALL; i++) {
			char name[16];
			zcc_adamw_buffer b;
			zcc_adamw_buffer_init(&b);
			snprintf(name, sizeof name, "w%d", i);
			b.name = name;
			b.master = &memory[0][i];
			b.exp_avg = &memory[1][i];
			b.exp_avg_sq = &memory[2][i];
			b.grad = &memory[3][i];
			b.elems = 1;
			memory[3][i] = i % 2 == 0 ? 1 : -1;
			if (zcc_adamw_add(adamw, &b, NULL, &error) != ZCC_OK) {
				assert_int_equal(error.status, ZCC_ENOMEM);
				failed++;
				MUST(zcc_adamw_add(adamw, &b, NULL, &error));
			}
		}
		done = !zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		assert_int_equal(failed, done ? 0 : 1);
		MUST(zcc_adamw_step(adamw, 0.5, 1, &error));
		for (int i = 0; i < ALL; i++)
			assert_true(fabsf(memory[0][i] + 0.5f * memory[3][i]) < 1e-6f);
		zcc_adamw_destroy(adamw);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_number_of_threads_changes_no_bit),
	        cmocka_unit_test(every_buffer_gets_its_own_decay_and_the_learning_rate_of_the_call),
	        cmocka_unit_test(ten_steps_equal_five_and_five_after_resuming),
	        cmocka_unit_test(nonsense_is_refused_with_the_numbers_and_changes_nothing),
	        cmocka_unit_test(memory_of_two_buffers_is_refused_when_it_is_stepped_and_gradients_may_share),
	        cmocka_unit_test(device_memory_is_refused_by_name),
	        cmocka_unit_test(every_failed_allocation_is_reported_and_leaves_all_as_it_was),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
