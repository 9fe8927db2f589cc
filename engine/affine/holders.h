/* Lists of ranks, each stored once and for as long as the layout lives. Private to engine/affine. */
#ifndef ZCCI_HOLDERS_H
#define ZCCI_HOLDERS_H

#include "affine/map.h"

/* NULL: no memory. */
zcci_holders *zcci_holders_create(void);
void zcci_holders_destroy(zcci_holders *table);

/* The list kept under a key of key_bytes bytes. Where there is none yet, room for n ranks is made and `fill` called on
 * it with the key. NULL: no memory. Any thread. */
const int32_t *zcci_holders_get(zcci_holders *table, const void *key, int64_t key_bytes, int32_t n,
                                void (*fill)(const void *key, int32_t *ranks));

#endif
