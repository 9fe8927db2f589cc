#include "base/names.h"

#include <string.h>
#include <xxhash.h>

/* The slot that holds the name or where it would go. */
static int32_t *seek(const zcci_names *names, const char *name)
{
	uint64_t mask = (uint64_t)names->n_slots - 1;
	uint64_t i = XXH3_64bits(name, strlen(name)) & mask;
	while (names->slots[i] != 0 && strcmp(names->names[names->slots[i] - 1], name) != 0)
		i = (i + 1) & mask;
	return &names->slots[i];
}

int32_t zcci_names_find(const zcci_names *names, const char *name)
{
	return names->n_slots > 0 ? *seek(names, name) - 1 : -1;
}

static zcc_status grow(zcci_names *names)
{
	if (names->room > INT32_MAX / 8)
		return ZCC_ENOMEM;
	int32_t room = names->room > 0 ? names->room * 2 : 32;
	const char **list = zcci_realloc(names->names, room, sizeof *list);
	if (list == NULL)
		return ZCC_ENOMEM;
	names->names = list;
	int32_t *slots = zcci_calloc((int64_t)room * 2, sizeof *slots);
	if (slots == NULL)
		return ZCC_ENOMEM;
	zcci_free(names->slots);
	names->slots = slots;
	names->n_slots = room * 2;
	names->room = room;
	for (int32_t i = 0; i < names->n_names; i++)
		*seek(names, names->names[i]) = i + 1;
	return ZCC_OK;
}

zcc_status zcci_names_add(zcci_names *names, const char *name)
{
	if (names->arena == NULL)
		names->arena = zcci_arena_create();
	if (names->arena == NULL || (names->n_names == names->room && grow(names) != ZCC_OK))
		return ZCC_ENOMEM;
	char *copy = zcci_arena_strdup(names->arena, name);
	if (copy == NULL)
		return ZCC_ENOMEM;
	*seek(names, name) = names->n_names + 1;
	names->names[names->n_names++] = copy;
	return ZCC_OK;
}

void zcci_names_clear(zcci_names *names)
{
	zcci_arena_destroy(names->arena);
	zcci_free(names->slots);
	zcci_free(names->names);
	*names = (zcci_names){0};
}
