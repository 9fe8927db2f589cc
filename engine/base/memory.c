#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/status.h"

static _Thread_local int64_t fail_countdown;
static _Thread_local bool fail_hit;

void zcci_fail_alloc(int64_t n)
{
	fail_countdown = n;
	fail_hit = false;
}

bool zcci_fail_alloc_hit(void)
{
	return fail_hit;
}

static bool refused(void)
{
	if (fail_countdown == 0 || --fail_countdown > 0)
		return false;
	fail_hit = true;
	return true;
}

void *zcci_malloc(int64_t bytes)
{
	if (bytes < 0 || refused())
		return NULL;
	return malloc(bytes > 0 ? (size_t)bytes : 1);
}

void *zcci_calloc(int64_t count, int64_t bytes)
{
	int64_t total;
	if (count < 0 || bytes < 0 || zcci_mul_overflows(count, bytes, &total) || refused())
		return NULL;
	return calloc(1, total > 0 ? (size_t)total : 1);
}

void *zcci_realloc(void *old, int64_t count, int64_t bytes)
{
	int64_t total;
	if (count < 0 || bytes < 0 || zcci_mul_overflows(count, bytes, &total) || refused())
		return NULL;
	return realloc(old, total > 0 ? (size_t)total : 1);
}

char *zcci_strdup(const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = zcci_malloc((int64_t)bytes);
	if (copy != NULL)
		memcpy(copy, text, bytes);
	return copy;
}

void zcci_free(void *memory)
{
	free(memory);
}

/* Blocks double up to 1 MiB; a request larger than that gets a block of its own. */
enum { FIRST_BLOCK = 4096, LAST_BLOCK = 1 << 20, ALIGN = 16 };

typedef struct block {
	struct block *next;
	int64_t used;
	int64_t bytes;
	_Alignas(ALIGN) char data[];
} block;

struct zcci_arena {
	block *head;
	int64_t next_bytes;
};

zcci_arena *zcci_arena_create(void)
{
	zcci_arena *arena = zcci_calloc(1, sizeof *arena);
	if (arena != NULL)
		arena->next_bytes = FIRST_BLOCK;
	return arena;
}

void zcci_arena_destroy(zcci_arena *arena)
{
	if (arena == NULL)
		return;
	for (block *b = arena->head; b != NULL;) {
		block *next = b->next;
		zcci_free(b);
		b = next;
	}
	zcci_free(arena);
}

void zcci_arena_reset(zcci_arena *arena)
{
	block *largest = arena->head;
	for (block *b = arena->head; b != NULL; b = b->next)
		if (b->bytes > largest->bytes)
			largest = b;
	for (block *b = arena->head; b != NULL;) {
		block *next = b->next;
		if (b != largest)
			zcci_free(b);
		b = next;
	}
	arena->head = largest;
	if (largest != NULL) {
		memset(largest->data, 0, (size_t)largest->used);
		largest->used = 0;
		largest->next = NULL;
	}
}

void *zcci_arena_alloc(zcci_arena *arena, int64_t count, int64_t bytes)
{
	int64_t total;
	if (count < 0 || bytes < 0 || zcci_mul_overflows(count, bytes, &total) ||
	    zcci_add_overflows(total, ALIGN - 1, &total))
		return NULL;
	total &= ~(int64_t)(ALIGN - 1);
	block *b = arena->head;
	if (b == NULL || b->bytes - b->used < total) {
		int64_t size = total > arena->next_bytes ? total : arena->next_bytes;
		int64_t whole;
		if (zcci_add_overflows(size, (int64_t)sizeof *b, &whole))
			return NULL;
		b = zcci_calloc(1, whole);
		if (b == NULL)
			return NULL;
		b->next = arena->head;
		b->bytes = size;
		arena->head = b;
		if (arena->next_bytes < LAST_BLOCK)
			arena->next_bytes *= 2;
	}
	void *memory = b->data + b->used;
	b->used += total;
	return memory;
}

char *zcci_arena_strdup(zcci_arena *arena, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = zcci_arena_alloc(arena, (int64_t)bytes, 1);
	if (copy != NULL)
		memcpy(copy, text, bytes);
	return copy;
}

enum { HUGE_PAGES_FROM = 16 << 20 };

zcc_status zcc_memory_create(int64_t bytes, void **data, zcc_error *error)
{
	if (bytes < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "memory create", "%lld bytes asked for", (long long)bytes);
	void *memory = MAP_FAILED;
	errno = ENOMEM;
	if (!refused())
		memory = mmap(NULL, bytes > 0 ? (size_t)bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		              -1, 0);
	if (memory == MAP_FAILED)
		return zcci_fail(error, ZCC_ENOMEM, errno, "memory create", "no memory for %lld bytes: %s",
		                 (long long)bytes, strerror(errno));
	/* Fewer, larger pages where the system has them: strided copies and copies between processes gain a quarter. */
	if (bytes >= HUGE_PAGES_FROM)
		madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
	*data = memory;
	return ZCC_OK;
}

void zcc_memory_destroy(void *data, int64_t bytes)
{
	if (data != NULL)
		munmap(data, bytes > 0 ? (size_t)bytes : 1);
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t splitmix(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void zcc_memory_fill_random(void *data, int64_t bytes, int64_t seed)
{
	uint64_t state = (uint64_t)seed;
	char *out = data;
	int64_t i = 0;
	for (; i + 8 <= bytes; i += 8) {
		uint64_t word = splitmix(&state);
		memcpy(out + i, &word, 8);
	}
	if (i < bytes) {
		uint64_t word = splitmix(&state);
		memcpy(out + i, &word, (size_t)(bytes - i));
	}
}
