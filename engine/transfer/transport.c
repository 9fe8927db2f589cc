#include "transfer/transport.h"

#include <string.h>

#include "base/library.h"
#include "base/status.h"

static const char operation[] = "transport plug-in";

static zcc_status check(const zcci_transport_ops *ops, const char *file, zcc_error *error)
{
	if (ops == NULL || ops->version != ZCCI_TRANSPORT_VERSION)
		return zcci_fail(error, ZCC_EDEVICE, 0, operation, "%s is of transport version %u, this library of %d",
		                 file, ops != NULL ? ops->version : 0, ZCCI_TRANSPORT_VERSION);
	if (ops->struct_bytes != sizeof *ops)
		return zcci_fail(error, ZCC_EDEVICE, 0, operation, "%s has a table of %u bytes, this library of %zu",
		                 file, ops->struct_bytes, sizeof *ops);
	if (ops->open == NULL || ops->ready == NULL || ops->exchange == NULL || ops->abort == NULL ||
	    ops->close == NULL)
		return zcci_fail(error, ZCC_EDEVICE, 0, operation, "%s lacks a function in its table", file);
	return ZCC_OK;
}

static zcc_status load_nccl(const zcci_transport_ops **ops, zcc_error *error)
{
	static const zcci_transport_ops *loaded;
	char file[ZCCI_LIBRARY_PATH_BYTES];
	void *library;
	void *symbol;
	zcci_transport_plugin entry;
	if (loaded == NULL) {
		zcc_status status = zcci_library_open("zcc_nccl", ZCCI_TRANSPORT_PLUGIN_SYMBOL, operation, &library,
		                                      &symbol, file, error);
		if (status != ZCC_OK)
			return status;
		memcpy(&entry, &symbol, sizeof entry);
		const zcci_transport_ops *table = entry(ZCCI_TRANSPORT_VERSION);
		status = check(table, file, error);
		if (status != ZCC_OK)
			return status;
		loaded = table;
	}
	*ops = loaded;
	return ZCC_OK;
}

zcc_status zcci_transport_find(const char *name, const zcci_transport_ops **ops, zcc_error *error)
{
	if (strcmp(name, "nccl") == 0)
		return load_nccl(ops, error);
	if (strcmp(name, zcci_staged_ops.name) != 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "\"%.40s\" is no way between devices (they are mpi, nccl)", name);
	*ops = &zcci_staged_ops;
	return ZCC_OK;
}
