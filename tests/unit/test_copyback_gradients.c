/* Copy-back in the other direction: gradients from the device into f32 on the host. */
#include "copyback_rig.h"

#include "staging/copyback.h"
#include "zcc/threads.h"

static const int32_t dtypes[] = {ZCC_BF16, ZCC_F16, ZCC_F32};
enum { N_DTYPES = 3, S = BUFFER_ELEMS };

/* Gradients of a dtype: rounded random numbers of moderate size, and denormals; no NaN, whose sums need not keep their
 * bits. */
static void *gradients(int32_t dtype, int64_t elems, unsigned seed)
{
	float *wide = malloc((size_t)elems * 4 + 4);
	void *made = malloc((size_t)elems * 4 + 4);
	for (int64_t i = 0; i < elems; i++)
		wide[i] = ldexpf((float)(rand_r(&seed) % 20001 - 10000), rand_r(&seed) % 24 - 40);
	round_to(made, dtype, wide, elems);
	free(wide);
	return made;
}

static float widened(int32_t dtype, const void *source, int64_t i)
{
	uint16_t half;
	float wide;
	if (dtype == ZCC_F32) {
		memcpy(&wide, (const char *)source + i * 4, 4);
		return wide;
	}
	memcpy(&half, (const char *)source + i * 2, 2);
	double value = dtype == ZCC_BF16 ? value_of(half & 0x7FFF, 8, 7) : value_of(half & 0x7FFF, 5, 10);
	return (float)(half & 0x8000 ? -value : value);
}

static void assert_sums(const float *got, const float *before, int32_t dtype, const void *source, int64_t elems,
                        const char *what)
{
	for (int64_t i = 0; i < elems; i++) {
		float added = widened(dtype, source, i), want = before != NULL ? before[i] + added : added;
		if (bits_of(got[i]) != bits_of(want))
			fail_msg("%s: element %lld of %lld is %08x, not %08x", what, (long long)i, (long long)elems,
			         bits_of(got[i]), bits_of(want));
	}
}

static void every_length_is_stored_or_added_through_the_same_two_buffers(void **state)
{
	(void)state;
	const int64_t lengths[] = {0, 1, S - 1, S, S + 1, 2 * S, 2 * S + 1, 5 * S + 3};
	FOR_EACH_DEVICE(device)
	{
		for (int d = 0; d < N_DTYPES; d++) {
			int64_t bytes = zcc_dtype_bytes(dtypes[d]), copies = 0;
			zcc_copyback *copyback = copyback_of(device, dtypes[d], S, 1);
			for (size_t row = 0; row < 2 * sizeof lengths / sizeof *lengths; row++) {
				int64_t n = lengths[row / 2];
				int accumulate = row % 2;
				char what[128];
				snprintf(what, sizeof what, "%s %s accumulate %d", device_name(device_number),
				         zcc_dtype_name(dtypes[d]), accumulate);
				void *source = gradients(dtypes[d], n, (unsigned)seed_of_run()),
				     *on_device = device_memory(device, n * bytes);
				copy_now(device, on_device, source, n * bytes);
				float *before = gradients(ZCC_F32, n + 1, (unsigned)seed_of_run() + 1),
				      *target = malloc((size_t)n * 4 + 4);
				memcpy(target, before, (size_t)n * 4 + 4);
				zcc_copyback_piece piece = {.target = target, .source = on_device, .elems = n};
				zcc_error error = {0};
				assert_ok(zcc_copyback_gradients(copyback, &piece, 1, accumulate, &error), &error);
				assert_sums(target, accumulate ? before : NULL, dtypes[d], source, n, what);
				assert_int_equal(bits_of(target[n]), bits_of(before[n]));
				copies += (n + S - 1) / S;
				assert_int_equal(stats_of(copyback).copies, copies);
				assert_int_equal(stats_of(copyback).buffer_bytes, copies > 0 ? 2 * S * bytes : 0);
				free(source);
				free(before);
				free(target);
				zcc_device_free(device, on_device);
			}
			zcc_copyback_destroy(copyback);
		}
	}
}

/* More slots than are on their way at once, and pieces that share slots; targets may be the same twice. */
static void many_slots_are_on_their_way_at_once(void **state)
{
	(void)state;
	enum { SLOT = 1 << 18, BUFFER = 6 * SLOT, FIRST = 11 * SLOT + 5, ALL = FIRST + 3 };
	zcc_error error = {0};
	assert_ok(zcc_threads_set(1, &error), &error);
	uint16_t *source = gradients(ZCC_BF16, ALL, (unsigned)seed_of_run());
	float *before = gradients(ZCC_F32, ALL, (unsigned)seed_of_run() + 1), *target = malloc(ALL * 4);
	FOR_EACH_DEVICE(device)
	{
		uint16_t *on_device = device_memory(device, ALL * 2);
		copy_now(device, on_device, source, ALL * 2);
		for (int accumulate = 0; accumulate <= 1; accumulate++) {
			memcpy(target, before, ALL * 4);
			zcc_copyback *copyback = copyback_of(device, ZCC_BF16, BUFFER, 1);
			const zcc_copyback_piece pieces[] = {{target, on_device, FIRST},
			                                     {target + FIRST, on_device + FIRST, 3}};
			assert_ok(zcc_copyback_gradients(copyback, pieces, 2, accumulate, &error), &error);
			assert_int_equal(copyback->n_slots, 12);
			assert_int_equal(stats_of(copyback).copies, 13);
			assert_sums(target, accumulate ? before : NULL, ZCC_BF16, source, ALL,
			            device_name(device_number));
			zcc_copyback_destroy(copyback);
		}
		zcc_device_free(device, on_device);
	}
	free(source);
	free(before);
	free(target);
}

/* pinning x source x target x accumulate x dtype, with the same sums everywhere. */
static void the_path_depends_on_pinning_places_and_whether_the_device_may_write_the_target(void **state)
{
	(void)state;
	enum { N = 2 * S + 1 };
	FOR_EACH_DEVICE(device)
	{
		for (int row = 0; row < 2 * 2 * 2 * 2 * N_DTYPES; row++) {
			int pinning = row % 2, accumulate = row / 2 % 2, from_device = row / 4 % 2,
			    to_pinned = row / 8 % 2;
			int32_t dtype = dtypes[row / 16];
			int64_t bytes = N * zcc_dtype_bytes(dtype);
			char what[160];
			snprintf(what, sizeof what, "%s pinning %d accumulate %d from device %d to pinned %d %s",
			         device_name(device_number), pinning, accumulate, from_device, to_pinned,
			         zcc_dtype_name(dtype));
			void *source = gradients(dtype, N, (unsigned)seed_of_run()),
			     *on_device = device_memory(device, bytes), *pinned = NULL;
			copy_now(device, on_device, source, bytes);
			assert_int_equal(zcc_pinned_malloc(device, N * 4, &pinned, NULL), ZCC_OK);
			float *before = gradients(ZCC_F32, N, (unsigned)seed_of_run() + 1), *plain = malloc(N * 4);
			float *target = to_pinned ? pinned : plain;
			memcpy(target, before, N * 4);
			zcc_copyback *copyback = copyback_of(device, dtype, S, pinning);
			zcc_copyback_piece piece = {
			        .target = target, .source = from_device ? on_device : source, .elems = N};
			zcc_error error = {0};
			assert_ok(zcc_copyback_gradients(copyback, &piece, 1, accumulate, &error), &error);
			assert_sums(target, accumulate ? before : NULL, dtype, source, N, what);
			bool staged = pinning && from_device && (accumulate || !to_pinned);
			assert_int_equal(stats_of(copyback).staged_pieces, staged);
			assert_int_equal(stats_of(copyback).direct_pieces, !staged);
			assert_int_equal(stats_of(copyback).copies, staged ? 3 : 0);
			zcc_copyback_destroy(copyback);
			free(plain);
			free(before);
			zcc_pinned_free(device, pinned);
			zcc_device_free(device, on_device);
			free(source);
		}
	}
}

/* Also where a piece by another path lies between them. */
static void pieces_with_the_same_target_are_added_in_order(void **state)
{
	(void)state;
	enum { N = 2 * S + 7 };
	FOR_EACH_DEVICE(device)
	{
		float *sources[4], *on_device[4], target[N], want[N];
		zcc_copyback_piece pieces[4];
		memset(target, 0, sizeof target);
		memset(want, 0, sizeof want);
		for (int k = 0; k < 4; k++) {
			sources[k] = gradients(ZCC_F32, N, (unsigned)seed_of_run() + (unsigned)k);
			on_device[k] = device_memory(device, N * 4);
			copy_now(device, on_device[k], sources[k], N * 4);
			for (int i = 0; i < N; i++)
				want[i] += sources[k][i];
			pieces[k] = (zcc_copyback_piece){
			        .target = target, .source = k == 2 ? sources[k] : on_device[k], .elems = N};
		}
		zcc_copyback *copyback = copyback_of(device, ZCC_F32, S, 1);
		zcc_error error = {0};
		assert_ok(zcc_copyback_gradients(copyback, pieces, 4, 1, &error), &error);
		assert_same(target, want, sizeof want, device_name(device_number));
		assert_int_equal(stats_of(copyback).staged_pieces, 3);
		assert_int_equal(stats_of(copyback).direct_pieces, 1);
		zcc_copyback_destroy(copyback);
		for (int k = 0; k < 4; k++) {
			free(sources[k]);
			zcc_device_free(device, on_device[k]);
		}
	}
}

static void one_handle_goes_both_ways(void **state)
{
	(void)state;
	enum { N = 3 * S + 1 };
	float *source = gradients(ZCC_F32, N, (unsigned)seed_of_run());
	FOR_EACH_DEVICE(device)
	{
		zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
		for (int round = 0; round < 3; round++) {
			void *on_device = poisoned(device, N * 2);
			float back[N];
			const zcc_copyback_piece to = {on_device, source, N}, from = {back, on_device, N};
			zcc_error error = {0};
			assert_ok(zcc_copyback_run(copyback, &to, 1, &error), &error);
			assert_ok(zcc_copyback_gradients(copyback, &from, 1, 0, &error), &error);
			uint16_t rounded[N];
			round_to(rounded, ZCC_BF16, source, N);
			assert_sums(back, NULL, ZCC_BF16, rounded, N, device_name(device_number));
			zcc_device_free(device, on_device);
		}
		zcc_copyback_destroy(copyback);
	}
	free(source);
}

static void gradients_are_not_gathered_on_the_device(void **state)
{
	(void)state;
	zcc_device *device = open_device("host");
	zcc_copyback *copyback = copyback_of(device, ZCC_BF16, S, 1);
	void *a = device_memory(device, 64), *b = device_memory(device, 64);
	zcc_copyback_piece piece = {.target = a, .source = b, .elems = 16};
	zcc_error error = {0};
	assert_int_equal(zcc_copyback_gradients(copyback, &piece, 1, 0, &error), ZCC_EINVAL);
	assert_says(&error, "piece 0: the target is device memory");
	zcc_device_free(device, a);
	zcc_device_free(device, b);
	zcc_copyback_destroy(copyback);
	zcc_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_length_is_stored_or_added_through_the_same_two_buffers),
	        cmocka_unit_test(many_slots_are_on_their_way_at_once),
	        cmocka_unit_test(the_path_depends_on_pinning_places_and_whether_the_device_may_write_the_target),
	        cmocka_unit_test(pieces_with_the_same_target_are_added_in_order),
	        cmocka_unit_test(one_handle_goes_both_ways),
	        cmocka_unit_test(gradients_are_not_gathered_on_the_device),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
