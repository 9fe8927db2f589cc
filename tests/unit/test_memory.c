/* Allocation, the arena, and the fault hook that every out-of-memory test rests on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"

static void arena_memory_is_zeroed_and_does_not_overlap(void **state)
{
	(void)state;
	zcci_arena *arena = zcci_arena_create();
	unsigned char *blocks[200];
	for (int i = 0; i < 200; i++) {
		blocks[i] = zcci_arena_alloc(arena, i * 37, 1);
		assert_non_null(blocks[i]);
		assert_int_equal((uintptr_t)blocks[i] % 16, 0);
		for (int k = 0; k < i * 37; k++) {
			assert_int_equal(blocks[i][k], 0);
			blocks[i][k] = (unsigned char)i;
		}
	}
	for (int i = 0; i < 200; i++)
		for (int k = 0; k < i * 37; k++)
			assert_int_equal(blocks[i][k], i);
	zcci_arena_destroy(arena);
}

static void a_reset_arena_hands_out_zeroed_memory_again(void **state)
{
	(void)state;
	zcci_arena *arena = zcci_arena_create();
	zcci_arena_reset(arena);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 50; i++) {
			unsigned char *memory = zcci_arena_alloc(arena, 1000 + i, 1);
			assert_non_null(memory);
			for (int k = 0; k < 1000 + i; k++) {
				assert_int_equal(memory[k], 0);
				memory[k] = 0xAA;
			}
		}
		zcci_arena_reset(arena);
	}
	/* What is left holds the next round without a new block. */
	zcci_fail_alloc(1);
	assert_non_null(zcci_arena_alloc(arena, 1000, 1));
	assert_false(zcci_fail_alloc_hit());
	zcci_fail_alloc(0);
	zcci_arena_destroy(arena);
}

static void sizes_that_overflow_are_refused(void **state)
{
	(void)state;
	zcci_arena *arena = zcci_arena_create();
	assert_null(zcci_arena_alloc(arena, INT64_MAX / 2, 3));
	assert_null(zcci_arena_alloc(arena, INT64_MAX - 3, 1));
	assert_null(zcci_arena_alloc(arena, -1, 1));
	assert_null(zcci_calloc(INT64_MAX / 4, 5));
	assert_null(zcci_malloc(-1));
	zcci_arena_destroy(arena);
}

static void the_nth_allocation_fails_once(void **state)
{
	(void)state;
	zcci_fail_alloc(2);
	void *first = zcci_malloc(8);
	assert_non_null(first);
	assert_false(zcci_fail_alloc_hit());
	assert_null(zcci_malloc(8));
	assert_true(zcci_fail_alloc_hit());
	void *third = zcci_malloc(8);
	assert_non_null(third);
	zcci_fail_alloc(0);
	zcci_free(first);
	zcci_free(third);
}

static void random_bytes_are_the_published_sequence_cut_at_the_end(void **state)
{
	(void)state;
	/* splitmix64 of seed 1234567, as Rosetta Code lists it. */
	const uint64_t words[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
	                          4593380528125082431u, 16408922859458223821u};
	unsigned char want[sizeof words];
	for (size_t i = 0; i < sizeof want; i++)
		want[i] = (unsigned char)(words[i / 8] >> 8 * (i % 8));
	for (size_t n = 0; n <= sizeof want; n++)
		for (size_t shift = 0; shift < 8; shift++) {
			unsigned char got[sizeof want + 16];
			for (size_t i = 0; i < sizeof got; i++)
				got[i] = 0x5a;
			zcc_memory_fill_random(got + shift, (int64_t)n, 1234567);
			for (size_t i = 0; i < sizeof got; i++)
				assert_int_equal(got[i], i >= shift && i < shift + n ? want[i - shift] : 0x5a);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(arena_memory_is_zeroed_and_does_not_overlap),
	        cmocka_unit_test(a_reset_arena_hands_out_zeroed_memory_again),
	        cmocka_unit_test(sizes_that_overflow_are_refused),
	        cmocka_unit_test(the_nth_allocation_fails_once),
	        cmocka_unit_test(random_bytes_are_the_published_sequence_cut_at_the_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
