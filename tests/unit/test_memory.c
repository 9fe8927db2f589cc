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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arena_memory_is_zeroed_and_does_not_overlap),
		cmocka_unit_test(a_reset_arena_hands_out_zeroed_memory_again),
		cmocka_unit_test(sizes_that_overflow_are_refused),
		cmocka_unit_test(the_nth_allocation_fails_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
