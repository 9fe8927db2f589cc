/* Whether copy-back's bytes come out right on late:host, which reads every source as late as the rules of streams and
 * events allow. Built with one of the waits left out, some must be wrong. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zcc/copyback.h"

enum { S = 64, N = 5 * S + 3 };

static void need(zcc_status status, const zcc_error *error)
{
	if (status == ZCC_OK)
		return;
	fprintf(stderr, "%s: %s\n", error->operation, error->message);
	exit(2);
}

static void copy_now(zcc_device *device, void *target, const void *source, int64_t bytes)
{
	zcc_stream *stream = NULL;
	zcc_error error = {0};
	need(zcc_stream_create(device, &stream, &error), &error);
	need(zcc_copy_async(stream, target, source, bytes, &error), &error);
	need(zcc_stream_wait(stream, &error), &error);
	zcc_stream_destroy(stream);
}

/* Element i of every source: exact in each dtype. */
static float value(int i)
{
	return (float)(i % 200 - 100);
}

static zcc_copyback *create(zcc_device *device, int32_t dtype, bool pinning)
{
	zcc_copyback_options options;
	zcc_copyback_options_init(&options);
	options.dtype = dtype;
	options.buffer_elems = S;
	options.pinning = pinning;
	zcc_copyback *copyback = NULL;
	zcc_error error = {0};
	need(zcc_copyback_create(device, &options, &copyback, &error), &error);
	return copyback;
}

/* To the device: how many elements are wrong there as soon as the call has returned. */
static int wrong_there(zcc_device *device, bool pinning)
{
	float source[N];
	for (int i = 0; i < N; i++)
		source[i] = value(i);
	uint16_t got[N];
	void *target = NULL;
	zcc_error error = {0};
	need(zcc_device_malloc(device, sizeof got, &target, &error), &error);
	zcc_copyback *copyback = create(device, ZCC_BF16, pinning);
	zcc_copyback_piece piece = {.target = target, .source = source, .elems = N};
	need(zcc_copyback_run(copyback, &piece, 1, &error), &error);
	copy_now(device, got, target, sizeof got);
	int wrong = 0;
	for (int i = 0; i < N; i++) {
		uint32_t bits;
		memcpy(&bits, &source[i], sizeof bits);
		wrong += got[i] != bits >> 16;
	}
	zcc_copyback_destroy(copyback);
	zcc_device_free(device, target);
	return wrong;
}

/* To the host, stored or added to 1. */
static int wrong_here(zcc_device *device, bool pinning, bool accumulate)
{
	uint16_t source[N];
	float got[N];
	for (int i = 0; i < N; i++) {
		float exact = value(i);
		uint32_t bits;
		memcpy(&bits, &exact, sizeof bits);
		source[i] = (uint16_t)(bits >> 16);
		got[i] = 1;
	}
	void *on_device = NULL;
	zcc_error error = {0};
	need(zcc_device_malloc(device, sizeof source, &on_device, &error), &error);
	copy_now(device, on_device, source, sizeof source);
	zcc_copyback *copyback = create(device, ZCC_BF16, pinning);
	zcc_copyback_piece piece = {.target = got, .source = on_device, .elems = N};
	need(zcc_copyback_gradients(copyback, &piece, 1, accumulate, &error), &error);
	int wrong = 0;
	for (int i = 0; i < N; i++)
		wrong += got[i] != value(i) + (accumulate ? 1 : 0);
	zcc_copyback_destroy(copyback);
	zcc_device_free(device, on_device);
	return wrong;
}

int main(void)
{
	static const char omitted[] = ZCC_OMITTED;
	zcc_device *device = NULL;
	zcc_error error = {0};
	need(zcc_device_open("late:host,lazy", &device, &error), &error);
	int wrong = 0;
	for (int pinning = 0; pinning < 2; pinning++) {
		int there = wrong_there(device, pinning), stored = wrong_here(device, pinning, false),
		    added = wrong_here(device, pinning, true);
		printf("pinning %d: %d of %d elements wrong to the device, %d stored and %d added to the host\n",
		       pinning, there, N, stored, added);
		wrong += there + stored + added;
	}
	zcc_device_close(device);
	if (omitted[0] == '\0')
		return wrong == 0 ? 0 : 1;
	printf("without %s\n", omitted);
	return wrong > 0 ? 0 : 1;
}
