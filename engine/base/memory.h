/* Allocation: every allocation of the engine goes through here, so that tests can make the n-th one fail. */
#ifndef ZCCI_MEMORY_H
#define ZCCI_MEMORY_H

#include <stdbool.h>

#include "zcc/base.h"

/* a * b, a + b for non-negative sizes; true on overflow of int64. */
static inline bool zcci_mul_overflows(int64_t a, int64_t b, int64_t *out)
{
	return __builtin_mul_overflow(a, b, out);
}
static inline bool zcci_add_overflows(int64_t a, int64_t b, int64_t *out)
{
	return __builtin_add_overflow(a, b, out);
}

/* malloc and friends; NULL when memory is out, the product overflows or a test says so. Free with zcci_free. */
void *zcci_malloc(int64_t bytes);
void *zcci_calloc(int64_t count, int64_t bytes);
void *zcci_realloc(void *old, int64_t count, int64_t bytes);
char *zcci_strdup(const char *text);
void zcci_free(void *memory);

/* Tests only: the n-th allocation of this thread from now on fails, once (n >= 1); 0 turns it off. zcci_fail_alloc_hit
 * tells whether it did. */
void zcci_fail_alloc(int64_t n);
bool zcci_fail_alloc_hit(void);

/* Memory that lives and dies together: freed as a whole. Zeroed, aligned to 16 bytes. One thread. */
typedef struct zcci_arena zcci_arena;
zcci_arena *zcci_arena_create(void);
void zcci_arena_destroy(zcci_arena *arena);
/* Everything allocated so far is gone; the largest block stays for what comes next. */
void zcci_arena_reset(zcci_arena *arena);
/* NULL when memory is out or the product overflows. */
void *zcci_arena_alloc(zcci_arena *arena, int64_t count, int64_t bytes);
char *zcci_arena_strdup(zcci_arena *arena, const char *text);

#endif
