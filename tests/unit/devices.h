/* The devices that every test of asynchronous code runs on, one after the other. */
#ifndef TEST_DEVICES_H
#define TEST_DEVICES_H

#include <stdio.h>
#include <stdlib.h>

#include "zcc/device.h"

/* One more where $ZCC_TEST_DEVICE names it. */
#define N_DEVICES (getenv("ZCC_TEST_DEVICE") != NULL ? 5 : 4)

/* "host" and the late one in all three ways; shuffle's seed is $ZCC_SEED, else the usual one. */
static inline const char *device_name(int i)
{
	static char shuffle[64];
	static const char *const fixed[] = {"host", "late:host,lazy", "late:host,eager"};
	if (i < 3)
		return fixed[i];
	if (i == 4)
		return getenv("ZCC_TEST_DEVICE");
	const char *seed = getenv("ZCC_SEED");
	snprintf(shuffle, sizeof shuffle, "late:host,shuffle=%s", seed != NULL ? seed : "20240917");
	return shuffle;
}

static inline zcc_device *open_device(int i)
{
	zcc_device *device;
	zcc_error error;
	if (zcc_device_open(device_name(i), &device, &error) != ZCC_OK) {
		fprintf(stderr, "%s: %s\n", device_name(i), error.message);
		abort();
	}
	return device;
}

#endif
