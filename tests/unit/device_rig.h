/* Devices that every test of device memory runs on, and the few steps that they share. */
#ifndef TEST_DEVICE_RIG_H
#define TEST_DEVICE_RIG_H

#include <string.h>

#include "zcc/device.h"

static const char *const names[] = {"host", "late:host,lazy", "late:host,eager", "late:host,shuffle=3"};
enum { N_NAMES = sizeof names / sizeof *names };

#define must(call)                                                                                                     \
	do {                                                                                                           \
		zcc_error must_error = {0};                                                                            \
		zcc_error *error = &must_error;                                                                        \
		(void)error;                                                                                           \
		if ((call) != ZCC_OK)                                                                                  \
			fail_msg("%s: %s", #call, must_error.message);                                                 \
	} while (0)

#define refused(status, part, call)                                                                                    \
	do {                                                                                                           \
		zcc_error refused_error = {0};                                                                         \
		zcc_error *error = &refused_error;                                                                     \
		assert_int_equal(call, status);                                                                        \
		if (strstr(refused_error.message, part) == NULL)                                                       \
			fail_msg("\"%s\" is not in: %s", part, refused_error.message);                                 \
	} while (0)

static inline int32_t place_of(zcc_device *device, const void *data)
{
	int32_t place = 0;
	must(zcc_device_place(device, data, &place, error));
	return place;
}

/* Copies to or from the device and waits. */
static inline void move(zcc_device *device, void *target, const void *source, int64_t bytes)
{
	zcc_stream *stream;
	must(zcc_stream_create(device, &stream, error));
	must(zcc_copy_async(stream, target, source, bytes, error));
	must(zcc_stream_wait(stream, error));
	zcc_stream_destroy(stream);
}

#endif
