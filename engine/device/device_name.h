/* What a device's name says. */
#ifndef ZCCI_DEVICE_NAME_H
#define ZCCI_DEVICE_NAME_H

#include <stdbool.h>

#include "zcc/device.h"

enum { ZCCI_DEVICE_NAME_BYTES = 96 };

typedef struct zcci_device_name {
	char kind[16]; /* "host", "cuda" */
	int32_t index;
	int32_t late;                      /* ZCCI_LATE_, 0: as it is */
	uint64_t seed;                     /* of ZCCI_LATE_SHUFFLE */
	bool seed_drawn;                   /* nobody gave one */
	char text[ZCCI_DEVICE_NAME_BYTES]; /* all of it, seed included: opened again it is the same device */
} zcci_device_name;

/* NULL or "" is $ZCC_DEVICE, else "host"; what a late device's name leaves open is $ZCC_LATE, a shuffle without a seed
 * $ZCC_SEED, else the clock. ZCC_EINVAL. Whether a kind exists is not looked at. */
zcc_status zcci_device_name_parse(const char *text, zcci_device_name *name, zcc_error *error);

#endif
