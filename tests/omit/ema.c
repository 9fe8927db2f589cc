/* Whether the EMA's bytes come out right on late:host, which reads every source as late as the rules of streams and
 * events allow. Built with one of the waits left out, some must be wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zcc/ema.h"

enum { N = 100 };

static zcc_error error;
static zcc_device *device;
static zcc_stream *stream;

static void need(zcc_status status)
{
	if (status == ZCC_OK)
		return;
	fprintf(stderr, "%s: %s\n", error.operation, error.message);
	exit(2);
}

static zcc_ema *average_of(void *average, const void *param)
{
	zcc_ema *ema;
	zcc_ema_options options;
	zcc_ema_options_init(&options);
	options.device = device;
	need(zcc_ema_create(&options, &ema, &error));
	zcc_ema_buffer b;
	zcc_ema_buffer_init(&b);
	need(zcc_ema_group(ema, 0.75, &b.group, &error));
	b.name = "w";
	b.ema = average;
	b.param = param;
	b.elems = N;
	need(zcc_ema_add(ema, &b, NULL, &error));
	return ema;
}

static int count_wrong(const float *values, float wanted)
{
	int wrong = 0;
	for (int i = 0; i < N; i++)
		wrong += values[i] != wanted;
	return wrong;
}

static void fill(float *values, float value)
{
	for (int i = 0; i < N; i++)
		values[i] = value;
}

/* An average on the host, of parameters that a copy brings to pinned memory. */
static int wrong_on_host(void)
{
	float average[N] = {0};
	void *on_device, *landing, *ones;
	need(zcc_device_malloc(device, sizeof average, &on_device, &error));
	need(zcc_pinned_malloc(device, sizeof average, &landing, &error));
	need(zcc_pinned_malloc(device, sizeof average, &ones, &error));
	fill(ones, 1);
	need(zcc_copy_async(stream, on_device, ones, sizeof average, &error));
	need(zcc_copy_async(stream, landing, on_device, sizeof average, &error));
	zcc_ema *ema = average_of(average, landing);
	need(zcc_ema_update(ema, stream, NULL, &error));
	int wrong = count_wrong(average, 0.25f);
	need(zcc_stream_wait(stream, &error));
	zcc_ema_destroy(ema);
	zcc_device_free(device, on_device);
	zcc_pinned_free(device, landing);
	zcc_pinned_free(device, ones);
	return wrong;
}

/* An average on the device, from and to pinned memory that the caller uses again at once. */
static int wrong_on_device(void)
{
	void *average, *param, *pinned;
	need(zcc_device_malloc(device, 4 * N, &average, &error));
	need(zcc_device_malloc(device, 4 * N, &param, &error));
	need(zcc_pinned_malloc(device, 4 * N, &pinned, &error));
	fill(pinned, 4);
	need(zcc_copy_async(stream, param, pinned, 4 * N, &error));
	need(zcc_stream_wait(stream, &error));
	zcc_ema *ema = average_of(average, param);
	fill(pinned, 8);
	need(zcc_ema_write(ema, 0, pinned, 4 * N, stream, &error));
	fill(pinned, -1);
	need(zcc_ema_update(ema, stream, NULL, &error));
	need(zcc_ema_read(ema, 0, pinned, 4 * N, stream, &error));
	int wrong = count_wrong(pinned, 7);
	need(zcc_stream_wait(stream, &error));
	zcc_ema_destroy(ema);
	zcc_device_free(device, average);
	zcc_device_free(device, param);
	zcc_pinned_free(device, pinned);
	return wrong;
}

int main(void)
{
	static const char omitted[] = ZCC_OMITTED;
	need(zcc_device_open("late:host,lazy", &device, &error));
	need(zcc_stream_create(device, &stream, &error));
	int host = wrong_on_host(), on_device = wrong_on_device();
	printf("%d of %d averages wrong on the host, %d on the device\n", host, N, on_device);
	zcc_stream_destroy(stream);
	zcc_device_close(device);
	if (omitted[0] == '\0')
		return host + on_device == 0 ? 0 : 1;
	printf("without %s\n", omitted);
	return host + on_device > 0 ? 0 : 1;
}
