/* The optimizer step fused with copy-back, against the same step in separate passes: zcc_adamw_step, then the rounded
 * masters. */
#include "copyback_rig.h"

#include "base/memory.h"

enum { N_BUFFERS = 4, S = BUFFER_ELEMS };
static const int64_t lengths[N_BUFFERS] = {2 * S + 1, 0, 1, 3 * S};
static const char *const names[N_BUFFERS] = {"first", "empty", "scalar", "last"};

/* One optimizer with its memory. */
typedef struct optimizer {
	zcc_adamw *adamw;
	float *master[N_BUFFERS], *exp_avg[N_BUFFERS], *exp_avg_sq[N_BUFFERS], *grad[N_BUFFERS];
} optimizer;

static float *numbers(int64_t elems, unsigned seed, float scale)
{
	float *made = malloc((size_t)elems * 4 + 4);
	for (int64_t i = 0; i < elems; i++)
		made[i] = scale * ((float)(rand_r(&seed) % 20001) - 10000) / 10000;
	return made;
}

static optimizer optimizer_of(unsigned seed)
{
	optimizer o = {0};
	zcc_adamw_options options;
	zcc_error error = {0};
	zcc_adamw_options_init(&options);
	assert_ok(zcc_adamw_create(&options, &o.adamw, &error), &error);
	for (int i = 0; i < N_BUFFERS; i++) {
		o.master[i] = numbers(lengths[i], seed + (unsigned)i, 1);
		o.grad[i] = numbers(lengths[i], seed + 10 + (unsigned)i, 0.01f);
		o.exp_avg[i] = calloc((size_t)lengths[i] + 1, 4);
		o.exp_avg_sq[i] = calloc((size_t)lengths[i] + 1, 4);
		zcc_adamw_buffer buffer;
		zcc_adamw_buffer_init(&buffer);
		buffer.name = names[i];
		buffer.master = o.master[i];
		buffer.exp_avg = o.exp_avg[i];
		buffer.exp_avg_sq = o.exp_avg_sq[i];
		buffer.grad = o.grad[i];
		buffer.elems = lengths[i];
		buffer.weight_decay = i == 3 ? 0.1 : -1;
		assert_ok(zcc_adamw_add(o.adamw, &buffer, NULL, &error), &error);
	}
	return o;
}

static void drop(optimizer *o)
{
	zcc_adamw_destroy(o->adamw);
	for (int i = 0; i < N_BUFFERS; i++) {
		free(o->master[i]);
		free(o->exp_avg[i]);
		free(o->exp_avg_sq[i]);
		free(o->grad[i]);
	}
}

static void assert_same_state(const optimizer *got, const optimizer *want, const char *what)
{
	assert_int_equal(zcc_adamw_steps(got->adamw), zcc_adamw_steps(want->adamw));
	for (int i = 0; i < N_BUFFERS; i++) {
		assert_same(got->master[i], want->master[i], lengths[i] * 4, what);
		assert_same(got->exp_avg[i], want->exp_avg[i], lengths[i] * 4, what);
		assert_same(got->exp_avg_sq[i], want->exp_avg_sq[i], lengths[i] * 4, what);
	}
}

static void new_targets(zcc_device *device, int32_t dtype, void *targets[N_BUFFERS])
{
	for (int i = 0; i < N_BUFFERS; i++)
		targets[i] = poisoned(device, lengths[i] * zcc_dtype_bytes(dtype));
}

static void free_targets(zcc_device *device, void *targets[N_BUFFERS])
{
	for (int i = 0; i < N_BUFFERS; i++)
		zcc_device_free(device, targets[i]);
}

static void masters_moments_and_targets_are_those_of_separate_passes(void **state)
{
	(void)state;
	static const int32_t dtypes[] = {ZCC_BF16, ZCC_F16, ZCC_F32};
	FOR_EACH_DEVICE(device)
	{
		for (int row = 0; row < 6; row++) {
			int32_t dtype = dtypes[row / 2];
			int pinning = row % 2;
			char what[128];
			snprintf(what, sizeof what, "%s %s pinning %d", device_name(device_number),
			         zcc_dtype_name(dtype), pinning);
			optimizer fused = optimizer_of((unsigned)seed_of_run()),
			          separate = optimizer_of((unsigned)seed_of_run());
			zcc_copyback *copyback = copyback_of(device, dtype, S, pinning);
			void *targets[N_BUFFERS];
			new_targets(device, dtype, targets);
			for (int step = 1; step <= 3; step++) {
				zcc_error error = {0};
				assert_ok(zcc_copyback_adamw(copyback, fused.adamw, targets, N_BUFFERS, 1e-3 / step,
				                             0.5, &error),
				          &error);
				assert_ok(zcc_adamw_step(separate.adamw, 1e-3 / step, 0.5, &error), &error);
				assert_same_state(&fused, &separate, what);
				for (int i = 0; i < N_BUFFERS; i++)
					assert_rounded(device, targets[i], dtype, separate.master[i], lengths[i], what);
			}
			assert_int_equal(stats_of(copyback).staged_pieces, pinning ? 9 : 0);
			assert_int_equal(stats_of(copyback).direct_pieces, pinning ? 0 : 9);
			assert_int_equal(stats_of(copyback).buffer_bytes, pinning ? 2 * S * zcc_dtype_bytes(dtype) : 0);
			free_targets(device, targets);
			zcc_copyback_destroy(copyback);
			drop(&fused);
			drop(&separate);
		}
	}
}

static void targets_on_the_host_are_written_by_the_step_itself(void **state)
{
	(void)state;
	zcc_device *device = open_device("host");
	optimizer fused = optimizer_of((unsigned)seed_of_run());
	zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
	void *targets[N_BUFFERS];
	for (int i = 0; i < N_BUFFERS; i++)
		targets[i] = malloc((size_t)lengths[i] * 2 + 2);
	zcc_error error = {0};
	assert_ok(zcc_copyback_adamw(copyback, fused.adamw, targets, N_BUFFERS, 1e-3, 1, &error), &error);
	for (int i = 0; i < N_BUFFERS; i++) {
		assert_rounded(device, targets[i], ZCC_BF16, fused.master[i], lengths[i], "host");
		free(targets[i]);
	}
	assert_int_equal(stats_of(copyback).direct_pieces, 3);
	assert_int_equal(stats_of(copyback).buffer_bytes, 0);
	zcc_copyback_destroy(copyback);
	drop(&fused);
	zcc_device_close(device);
}

/* Each allocation of the call fails in turn: either nothing has happened, or the step is done for every buffer and a
 * plain copy-back repairs the targets. */
static void a_fault_leaves_all_buffers_before_the_step_or_all_after_it(void **state)
{
	(void)state;
	FOR_EACH_DEVICE(device)
	{
		int before = 0, after = 0;
		bool hit = true;
		for (int64_t n = 1; hit; n++) {
			optimizer fused = optimizer_of(5), old = optimizer_of(5), stepped = optimizer_of(5);
			zcc_error error = {0};
			assert_ok(zcc_adamw_step(stepped.adamw, 1e-3, 1, &error), &error);
			zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
			void *targets[N_BUFFERS];
			new_targets(device, ZCC_BF16, targets);
			zcci_fail_alloc(n);
			zcc_status status =
			        zcc_copyback_adamw(copyback, fused.adamw, targets, N_BUFFERS, 1e-3, 1, &error);
			hit = zcci_fail_alloc_hit();
			zcci_fail_alloc(0);
			assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
			if (zcc_adamw_steps(fused.adamw) == 0) {
				before++;
				assert_same_state(&fused, &old, device_name(device_number));
				for (int i = 0; i < N_BUFFERS; i++)
					assert_poisoned(device, targets[i], lengths[i] * 2, device_name(device_number));
			} else {
				after += hit;
				assert_same_state(&fused, &stepped, device_name(device_number));
				if (hit)
					assert_says(&error, "the step is done, targets are incomplete");
				zcc_copyback_piece pieces[N_BUFFERS];
				for (int i = 0; i < N_BUFFERS; i++)
					pieces[i] = (zcc_copyback_piece){targets[i], fused.master[i], lengths[i]};
				if (hit)
					assert_ok(zcc_copyback_run(copyback, pieces, N_BUFFERS, &error), &error);
				for (int i = 0; i < N_BUFFERS; i++)
					assert_rounded(device, targets[i], ZCC_BF16, fused.master[i], lengths[i],
					               device_name(device_number));
			}
			free_targets(device, targets);
			zcc_copyback_destroy(copyback);
			drop(&fused);
			drop(&old);
			drop(&stepped);
		}
		assert_true(before > 0);
		/* A plug-in takes no memory of ours while work is submitted. */
		assert_true(after > 0 || strncmp(device_name(device_number), "cuda", 4) == 0);
	}
}

static void what_does_not_fit_is_refused_before_the_step(void **state)
{
	(void)state;
	zcc_device *device = open_device("host");
	optimizer o = optimizer_of(7);
	zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
	void *targets[N_BUFFERS];
	new_targets(device, ZCC_BF16, targets);
	zcc_error error = {0};
	assert_int_equal(zcc_copyback_adamw(copyback, o.adamw, targets, N_BUFFERS - 1, 1e-3, 1, &error), ZCC_EINVAL);
	assert_says(&error, "3 targets for 4 buffers");
	assert_int_equal(zcc_copyback_adamw(copyback, o.adamw, targets, N_BUFFERS, -1, 1, &error), ZCC_EINVAL);
	assert_int_equal(zcc_copyback_adamw(copyback, o.adamw, targets, N_BUFFERS, 1e-3, INFINITY, &error), ZCC_EINVAL);
	void *kept = targets[3];
	targets[3] = NULL;
	assert_int_equal(zcc_copyback_adamw(copyback, o.adamw, targets, N_BUFFERS, 1e-3, 1, &error), ZCC_EINVAL);
	assert_says(&error, "the target of 3000 elements is NULL");
	/* Two targets in one place, and one where a moment is. */
	targets[3] = kept;
	void *first = targets[0];
	targets[0] = (char *)targets[3] + 2;
	assert_int_equal(zcc_copyback_adamw(copyback, o.adamw, targets, N_BUFFERS, 1e-3, 1, &error), ZCC_EINVAL);
	assert_says(&error, "the target of 'last' and the target of 'first' overlap");
	targets[0] = first;
	targets[3] = o.exp_avg[3];
	assert_int_equal(zcc_copyback_adamw(copyback, o.adamw, targets, N_BUFFERS, 1e-3, 1, &error), ZCC_EINVAL);
	assert_says(&error, "'last'");
	assert_says(&error, "overlap");
	targets[3] = kept;
	zcc_adamw_buffer buffer;
	zcc_adamw_buffer_init(&buffer);
	uint16_t out[4];
	float host[16] = {0};
	buffer.name = "with its own result";
	buffer.master = host;
	buffer.exp_avg = host + 4;
	buffer.exp_avg_sq = host + 8;
	buffer.grad = host + 12;
	buffer.out = out;
	buffer.elems = 4;
	assert_ok(zcc_adamw_add(o.adamw, &buffer, NULL, &error), &error);
	void *five[N_BUFFERS + 1] = {targets[0], targets[1], targets[2], targets[3], host};
	assert_int_equal(zcc_copyback_adamw(copyback, o.adamw, five, N_BUFFERS + 1, 1e-3, 1, &error), ZCC_EINVAL);
	assert_says(&error, "'with its own result'");
	assert_int_equal(zcc_adamw_steps(o.adamw), 0);
	assert_poisoned(device, targets[0], lengths[0] * 2, "host");
	/* An optimizer that knows no device takes any address; the copy-back does not. */
	zcc_adamw *blind = NULL;
	zcc_adamw_options options;
	zcc_adamw_options_init(&options);
	assert_ok(zcc_adamw_create(&options, &blind, &error), &error);
	buffer.out = NULL;
	buffer.exp_avg = targets[3];
	assert_ok(zcc_adamw_add(blind, &buffer, NULL, &error), &error);
	assert_int_equal(zcc_copyback_adamw(copyback, blind, targets, 1, 1e-3, 1, &error), ZCC_EINVAL);
	assert_says(&error, "the first moment is device memory");
	zcc_adamw_destroy(blind);
	/* Two parameters whose moments are the same memory. */
	zcc_adamw *twice = NULL;
	assert_ok(zcc_adamw_create(&options, &twice, &error), &error);
	for (int i = 0; i < 2; i++) {
		buffer.name = names[2 * i];
		buffer.master = host + 4 * i;
		buffer.exp_avg = host + 8;
		buffer.exp_avg_sq = host + 12 + 2 * i;
		buffer.elems = 2;
		buffer.grad = out;
		buffer.grad_dtype = ZCC_BF16;
		assert_ok(zcc_adamw_add(twice, &buffer, NULL, &error), &error);
	}
	void *two[] = {targets[0], targets[3]};
	assert_int_equal(zcc_copyback_adamw(copyback, twice, two, 2, 1e-3, 1, &error), ZCC_EINVAL);
	assert_says(&error, "the first moment of 'first' and the first moment of 'scalar' overlap");
	zcc_adamw_destroy(twice);
	free_targets(device, targets);
	zcc_copyback_destroy(copyback);
	drop(&o);
	zcc_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(masters_moments_and_targets_are_those_of_separate_passes),
	        cmocka_unit_test(targets_on_the_host_are_written_by_the_step_itself),
	        cmocka_unit_test(a_fault_leaves_all_buffers_before_the_step_or_all_after_it),
	        cmocka_unit_test(what_does_not_fit_is_refused_before_the_step),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
