#include "device/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/library.h"
#include "base/status.h"

static const char operation[] = "device plug-in";

/* One line here is all that a further plug-in needs. */
static const char *const kinds[] = {"cuda"};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static struct {
	bool tried;
	const zcci_device_ops *ops;
	zcc_error fault;
} plugins[N_KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const char *zcci_plugin_kind(int32_t index)
{
	return index < N_KINDS ? kinds[index] : NULL;
}

#define SLOT(name)                                                                                                     \
	{                                                                                                              \
		offsetof(zcci_device_ops, name), #name                                                                 \
	}
static const struct {
	size_t offset;
	const char *name;
} slots[] = {
        SLOT(count),          SLOT(describe),
        SLOT(open),           SLOT(close),
        SLOT(malloc),         SLOT(free),
        SLOT(pinned_malloc),  SLOT(pinned_free),
        SLOT(place),          SLOT(stream_create),
        SLOT(stream_destroy), SLOT(stream_wait),
        SLOT(stream_test),    SLOT(stream_wait_event),
        SLOT(event_create),   SLOT(event_destroy),
        SLOT(event_record),   SLOT(event_wait),
        SLOT(event_test),     SLOT(copy),
        SLOT(copy_2d),        SLOT(cast),
        SLOT(lerp),           SLOT(strided),
};

zcc_status zcci_plugin_check(const zcci_device_ops *ops, const char *file, zcc_error *error)
{
	if (ops == NULL)
		return zcci_fail(error, ZCC_EDEVICE, 0, operation, "%s has no table for a library of device version %d",
		                 file, ZCCI_DEVICE_VERSION);
	if (ops->version != ZCCI_DEVICE_VERSION)
		return zcci_fail(error, ZCC_EDEVICE, 0, operation, "%s is of device version %u, this library of %d",
		                 file, ops->version, ZCCI_DEVICE_VERSION);
	if (ops->struct_bytes != sizeof *ops)
		return zcci_fail(error, ZCC_EDEVICE, 0, operation, "%s has a table of %u bytes, this library of %zu",
		                 file, ops->struct_bytes, sizeof *ops);
	for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
		void (*slot)(void);
		memcpy(&slot, (const char *)ops + slots[i].offset, sizeof slot);
		if (slot == NULL)
			return zcci_fail(error, ZCC_EDEVICE, 0, operation, "%s has no %s in its table", file,
			                 slots[i].name);
	}
	return ZCC_OK;
}

static zcc_status load(const char *kind, const zcci_device_ops **ops, zcc_error *error)
{
	char name[32], file[ZCCI_LIBRARY_PATH_BYTES];
	void *library, *symbol;
	zcci_device_plugin entry;
	snprintf(name, sizeof name, "zcc_%s", kind);
	zcc_status status =
	        zcci_library_open(name, ZCCI_DEVICE_PLUGIN_SYMBOL, operation, &library, &symbol, file, error);
	if (status != ZCC_OK)
		return status;
	memcpy(&entry, &symbol, sizeof entry);
	const zcci_device_ops *table = entry(ZCCI_DEVICE_VERSION);
	status = zcci_plugin_check(table, file, error);
	if (status != ZCC_OK)
		dlclose(library);
	else
		*ops = table;
	return status;
}

zcc_status zcci_plugin_load(const char *kind, const zcci_device_ops **ops, zcc_error *error)
{
	int32_t i = 0;
	while (i < N_KINDS && strcmp(kinds[i], kind) != 0)
		i++;
	if (i == N_KINDS)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "no plug-in brings \"%s\" devices", kind);
	pthread_mutex_lock(&lock);
	if (!plugins[i].tried) {
		load(kind, &plugins[i].ops, &plugins[i].fault);
		plugins[i].tried = true;
	}
	pthread_mutex_unlock(&lock);
	if (plugins[i].ops == NULL) {
		if (error != NULL)
			*error = plugins[i].fault;
		return plugins[i].fault.status;
	}
	*ops = plugins[i].ops;
	return ZCC_OK;
}
