#include "affine/holders.h"

#include <pthread.h>
#include <string.h>
#include <xxhash.h>

typedef struct entry {
	uint64_t hash;
	int64_t key_bytes;
	const void *key; /* NULL: the slot is free */
	int32_t *ranks;
} entry;

/* Open addressing, a power of two of slots, at most half of them taken. */
struct zcci_holders {
	pthread_mutex_t lock;
	zcci_arena *arena;
	entry *slots;
	int64_t n_slots;
	int64_t n_entries;
};

enum { FIRST_SLOTS = 64 };

zcci_holders *zcci_holders_create(void)
{
	zcci_holders *table = zcci_calloc(1, sizeof *table);
	if (table == NULL)
		return NULL;
	pthread_mutex_init(&table->lock, NULL);
	table->n_slots = FIRST_SLOTS;
	table->arena = zcci_arena_create();
	table->slots = zcci_calloc(FIRST_SLOTS, sizeof *table->slots);
	if (table->arena == NULL || table->slots == NULL) {
		zcci_holders_destroy(table);
		return NULL;
	}
	return table;
}

void zcci_holders_destroy(zcci_holders *table)
{
	if (table == NULL)
		return;
	zcci_arena_destroy(table->arena);
	zcci_free(table->slots);
	pthread_mutex_destroy(&table->lock);
	zcci_free(table);
}

/* The slot of the key, or the free one where it would go. */
static entry *seek(entry *slots, int64_t n_slots, uint64_t hash, const void *key, int64_t key_bytes)
{
	int64_t i = (int64_t)(hash & (uint64_t)(n_slots - 1));
	while (slots[i].key != NULL) {
		if (slots[i].hash == hash && slots[i].key_bytes == key_bytes &&
		    memcmp(slots[i].key, key, (size_t)key_bytes) == 0)
			break;
		i = (i + 1) & (n_slots - 1);
	}
	return &slots[i];
}

static bool grow(zcci_holders *table)
{
	int64_t n_slots = table->n_slots * 2;
	entry *slots = zcci_calloc(n_slots, sizeof *slots);
	if (slots == NULL)
		return false;
	for (int64_t i = 0; i < table->n_slots; i++) {
		const entry *e = &table->slots[i];
		if (e->key != NULL)
			*seek(slots, n_slots, e->hash, e->key, e->key_bytes) = *e;
	}
	zcci_free(table->slots);
	table->slots = slots;
	table->n_slots = n_slots;
	return true;
}

static const int32_t *add(zcci_holders *table, uint64_t hash, const void *key, int64_t key_bytes, int32_t n,
                          void (*fill)(const void *key, int32_t *ranks))
{
	if (2 * (table->n_entries + 1) > table->n_slots && !grow(table))
		return NULL;
	void *copy = zcci_arena_alloc(table->arena, key_bytes, 1);
	int32_t *ranks = zcci_arena_alloc(table->arena, n, sizeof *ranks);
	if (copy == NULL || ranks == NULL)
		return NULL;
	memcpy(copy, key, (size_t)key_bytes);
	fill(key, ranks);
	*seek(table->slots, table->n_slots, hash, key, key_bytes) = (entry){hash, key_bytes, copy, ranks};
	table->n_entries++;
	return ranks;
}

const int32_t *zcci_holders_get(zcci_holders *table, const void *key, int64_t key_bytes, int32_t n,
                                void (*fill)(const void *key, int32_t *ranks))
{
	uint64_t hash = XXH3_64bits(key, (size_t)key_bytes);
	pthread_mutex_lock(&table->lock);
	entry *found = seek(table->slots, table->n_slots, hash, key, key_bytes);
	const int32_t *ranks = found->key != NULL ? found->ranks : add(table, hash, key, key_bytes, n, fill);
	pthread_mutex_unlock(&table->lock);
	return ranks;
}
