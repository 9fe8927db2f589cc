/* Devices that come from a library of their own, opened when one is asked for. */
#ifndef ZCCI_PLUGIN_H
#define ZCCI_PLUGIN_H

#include "device/device.h"

/* The table of the plug-in libzcc_KIND.so, which is looked for beside libzcc.so, then where the loader looks. The first
 * answer stands for the rest of the program. ZCC_EDEVICE says why there is none. Any thread. */
zcc_status zcci_plugin_load(const char *kind, const zcci_device_ops **ops, zcc_error *error);

/* Kinds that a plug-in may bring; NULL past the last. */
const char *zcci_plugin_kind(int32_t index);

/* Why a table is not to be used: another version, a slot that is not there. */
zcc_status zcci_plugin_check(const zcci_device_ops *ops, const char *file, zcc_error *error);

#endif
