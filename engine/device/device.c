#include "device/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "device/handles.h"
#include "device/host.h"
#include "device/host_memory.h"
#include "device/late.h"
#include "device/plugin.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static zcc_device *devices;

/* ---- forks ---- */

/* A child has none of the threads, which may hold a lock, and what is open here may need them: it opens devices anew.
 */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_lock(&zcci_host_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&zcci_host_lock);
	pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
	/* Threads of the parent may have been waiting for it. */
	pthread_cond_init(&zcci_host_progress, NULL);
	devices = NULL;
	after_fork();
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- opening ---- */

static zcc_status find_ops(const char *kind, const zcci_device_ops **ops, zcc_error *error)
{
	if (strcmp(kind, zcci_host_ops.name) == 0) {
		*ops = &zcci_host_ops;
		return ZCC_OK;
	}
	for (int32_t i = 0; zcci_plugin_kind(i) != NULL; i++)
		if (strcmp(kind, zcci_plugin_kind(i)) == 0)
			return zcci_plugin_load(kind, ops, error);
	return zcci_fail(error, ZCC_EINVAL, 0, "device open",
	                 "\"%s\" is no device (they are host, cuda:N, late:host, late:cuda:N)", kind);
}

static zcc_status open_named(const zcci_device_name *name, const zcci_device_ops **ops, void **impl, zcc_error *error)
{
	int32_t count = 0;
	zcc_status status = find_ops(name->kind, ops, error);
	if (status == ZCC_OK)
		status = (*ops)->count(&count, error);
	if (status != ZCC_OK)
		return status;
	if (name->index >= count)
		return zcci_fail(error, ZCC_EINVAL, 0, "device open", "%s:%d asked for, this machine has %d",
		                 name->kind, (int)name->index, (int)count);
	status = (*ops)->open(name->index, impl, error);
	if (status != ZCC_OK || name->late == 0)
		return status;
	status = zcci_late_open(*ops, *impl, name->late, name->seed, impl, error);
	*ops = &zcci_late_ops;
	return status;
}

/* Lock held. */
static zcc_status create(const zcci_device_name *name, zcc_device **device, zcc_error *error)
{
	zcc_device *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "device open", "no memory for device %s", name->text);
	zcc_status status = open_named(name, &made->ops, &made->impl, error);
	if (status != ZCC_OK) {
		zcci_free(made);
		return status;
	}
	strcpy(made->name, name->text);
	made->next = devices;
	devices = made;
	*device = made;
	if (name->seed_drawn)
		fprintf(stderr, "zcc: device %s\n", made->name);
	return ZCC_OK;
}

zcc_status zcc_device_open(const char *text, zcc_device **device, zcc_error *error)
{
	zcci_device_name name;
	zcc_status status = zcci_device_name_parse(text, &name, error);
	if (status != ZCC_OK)
		return status;
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&lock);
	zcc_device *found = devices;
	while (found != NULL && strcmp(found->name, name.text) != 0)
		found = found->next;
	if (found == NULL)
		status = create(&name, &found, error);
	if (status == ZCC_OK) {
		found->refs++;
		*device = found;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

zcc_device *zcci_device_retain(zcc_device *device)
{
	pthread_mutex_lock(&lock);
	device->refs++;
	pthread_mutex_unlock(&lock);
	return device;
}

static void release(zcc_device *device)
{
	pthread_mutex_lock(&lock);
	if (--device->refs == 0) {
		for (zcc_device **link = &devices; *link != NULL; link = &(*link)->next)
			if (*link == device) {
				*link = device->next;
				break;
			}
		/* Under the lock: who opens the same name meanwhile gets a new one after this one is gone. */
		device->ops->close(device->impl);
		zcci_free(device);
	}
	pthread_mutex_unlock(&lock);
}

void zcc_device_close(zcc_device *device)
{
	if (device != NULL)
		release(device);
}

const char *zcc_device_name(const zcc_device *device)
{
	return device->name;
}

/* ---- listing ---- */

static void say_row(char name[32], char about[256], const char *kind, int32_t index, const char *text)
{
	if (index < 0)
		snprintf(name, 32, "%s", kind);
	else
		snprintf(name, 32, "%s:%d", kind, (int)index);
	snprintf(about, 256, "%.255s", text);
}

/* Rows of a plug-in, at least one; tells how many there are, and the one asked for. */
static int32_t list_plugin(const char *kind, int32_t index, char name[32], char about[256])
{
	const zcci_device_ops *ops;
	zcc_error fault = {0};
	int32_t count = 0;
	char text[256] = "";
	zcc_status status = zcci_plugin_load(kind, &ops, &fault);
	if (status == ZCC_OK)
		status = ops->count(&count, &fault);
	if (status != ZCC_OK || count == 0) {
		if (index == 0)
			say_row(name, about, kind, -1, status != ZCC_OK ? fault.message : "this machine has none");
		return 1;
	}
	if (index >= 0 && index < count) {
		status = ops->describe(index, text, &fault);
		say_row(name, about, kind, index, status != ZCC_OK ? fault.message : text);
	}
	return count;
}

zcc_status zcc_device_list(int32_t index, char name[32], char about[256], int32_t *found, zcc_error *error)
{
	if (index < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "device list", "device number %d asked for", (int)index);
	*found = 1;
	if (index == 0) {
		char text[256] = "";
		zcc_error fault = {0};
		zcc_status status = zcci_host_ops.describe(0, text, &fault);
		say_row(name, about, "host", -1, status == ZCC_OK ? text : fault.message);
		return ZCC_OK;
	}
	if (index == 1) {
		say_row(name, about, "late:host", -1,
		        "for tests: the host, with all that is asynchronous put off; late:X does it to any device X");
		return ZCC_OK;
	}
	index -= 2;
	for (int32_t i = 0; zcci_plugin_kind(i) != NULL; i++) {
		int32_t rows = list_plugin(zcci_plugin_kind(i), index, name, about);
		if (index < rows)
			return ZCC_OK;
		index -= rows;
	}
	*found = 0;
	return ZCC_OK;
}

/* ---- memory ---- */

static zcc_status allocate(zcc_device *device, int64_t bytes, void **data, const char *operation,
                           zcc_status (*slot)(void *, int64_t, void **, zcc_error *), zcc_error *error)
{
	if (bytes < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "%lld bytes asked for", (long long)bytes);
	zcc_status status = slot(device->impl, bytes, data, error);
	if (status == ZCC_OK)
		zcci_device_retain(device);
	return status;
}

zcc_status zcc_device_malloc(zcc_device *device, int64_t bytes, void **data, zcc_error *error)
{
	return allocate(device, bytes, data, "device malloc", device->ops->malloc, error);
}

zcc_status zcc_pinned_malloc(zcc_device *device, int64_t bytes, void **data, zcc_error *error)
{
	return allocate(device, bytes, data, "pinned malloc", device->ops->pinned_malloc, error);
}

void zcc_device_free(zcc_device *device, void *data)
{
	if (data != NULL && device->ops->free(device->impl, data))
		release(device);
}

void zcc_pinned_free(zcc_device *device, void *data)
{
	if (data != NULL && device->ops->pinned_free(device->impl, data))
		release(device);
}

zcc_status zcc_device_place(zcc_device *device, const void *data, int32_t *place, zcc_error *error)
{
	return device->ops->place(device->impl, data, 0, place, error);
}

zcc_status zcc_device_export(zcc_device *device, void *data, uint8_t handle[ZCC_EXPORT_BYTES], zcc_error *error)
{
	if (device->ops->export == NULL)
		return zcci_fail(error, ZCC_EDEVICE, 0, "device export", "%s cannot export memory", device->name);
	return device->ops->export(device->impl, data, handle, error);
}

zcc_status zcc_device_import(zcc_device *device, const uint8_t handle[ZCC_EXPORT_BYTES], void **data, int64_t *bytes,
                             zcc_error *error)
{
	if (device->ops->import == NULL)
		return zcci_fail(error, ZCC_EDEVICE, 0, "device import", "%s cannot import memory", device->name);
	zcc_status status = device->ops->import(device->impl, handle, data, bytes, error);
	if (status == ZCC_OK)
		zcci_device_retain(device);
	return status;
}

/* ---- order ---- */

zcc_status zcc_stream_create(zcc_device *device, zcc_stream **stream, zcc_error *error)
{
	zcc_stream *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "stream create", "no memory for a stream of %s", device->name);
	zcc_status status = device->ops->stream_create(device->impl, &made->impl, error);
	if (status != ZCC_OK) {
		zcci_free(made);
		return status;
	}
	made->device = zcci_device_retain(device);
	*stream = made;
	return ZCC_OK;
}

void zcc_stream_destroy(zcc_stream *stream)
{
	if (stream == NULL)
		return;
	stream->device->ops->stream_destroy(stream->device->impl, stream->impl);
	release(stream->device);
	zcci_free(stream);
}

zcc_status zcc_stream_wait(zcc_stream *stream, zcc_error *error)
{
	return stream->device->ops->stream_wait(stream->device->impl, stream->impl, error);
}

zcc_status zcc_stream_test(zcc_stream *stream, int32_t *done, zcc_error *error)
{
	return stream->device->ops->stream_test(stream->device->impl, stream->impl, done, error);
}

static zcc_status check_pair(const zcc_stream *stream, const zcc_event *event, const char *operation, zcc_error *error)
{
	if (stream->device == event->device)
		return ZCC_OK;
	return zcci_fail(error, ZCC_EINVAL, 0, operation, "the event is of device %s, the stream of %s",
	                 event->device->name, stream->device->name);
}

zcc_status zcc_stream_wait_event(zcc_stream *stream, zcc_event *event, zcc_error *error)
{
	zcc_status status = check_pair(stream, event, "stream wait for event", error);
	if (status != ZCC_OK)
		return status;
	return stream->device->ops->stream_wait_event(stream->device->impl, stream->impl, event->impl, error);
}

zcc_status zcc_event_create(zcc_device *device, zcc_event **event, zcc_error *error)
{
	zcc_event *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "event create", "no memory for an event of %s", device->name);
	zcc_status status = device->ops->event_create(device->impl, &made->impl, error);
	if (status != ZCC_OK) {
		zcci_free(made);
		return status;
	}
	made->device = zcci_device_retain(device);
	*event = made;
	return ZCC_OK;
}

void zcc_event_destroy(zcc_event *event)
{
	if (event == NULL)
		return;
	event->device->ops->event_destroy(event->device->impl, event->impl);
	release(event->device);
	zcci_free(event);
}

zcc_status zcc_event_record(zcc_event *event, zcc_stream *stream, zcc_error *error)
{
	zcc_status status = check_pair(stream, event, "event record", error);
	if (status != ZCC_OK)
		return status;
	return stream->device->ops->event_record(stream->device->impl, event->impl, stream->impl, error);
}

zcc_status zcc_event_wait(zcc_event *event, zcc_error *error)
{
	return event->device->ops->event_wait(event->device->impl, event->impl, error);
}

zcc_status zcc_event_test(zcc_event *event, int32_t *done, zcc_error *error)
{
	return event->device->ops->event_test(event->device->impl, event->impl, done, error);
}
