/* Plug-ins as they should not be, and one as it should; FAKE says which. */
#include "device/device.h"

enum { GOOD, OTHER_VERSION, OTHER_SIZE, MISSING_SLOT, NO_TABLE, NO_DRIVER = 6, NO_DEVICE };
/* For the preprocessor, too. */
#define NO_SYMBOL 5

const zcci_device_ops *zcc_device_plugin(uint32_t core_version);

#if FAKE != NO_SYMBOL
static zcc_status count(int32_t *n, zcc_error *error)
{
	if (FAKE == NO_DRIVER) {
		*error = (zcc_error){.status = ZCC_EDEVICE, .message = "the driver is too old"};
		return ZCC_EDEVICE;
	}
	*n = FAKE == NO_DEVICE ? 0 : 2;
	return ZCC_OK;
}

static zcc_status describe(int32_t index, char about[256], zcc_error *error)
{
	(void)error;
	for (int i = 0; i < 8; i++)
		about[i] = "number 0"[i];
	about[7] = (char)('0' + index);
	about[8] = '\0';
	return ZCC_OK;
}

/* Called by nobody here. */
static void slot(void)
{
}

const zcci_device_ops *zcc_device_plugin(uint32_t core_version)
{
	(void)core_version;
	static zcci_device_ops table;
	void (**slots)(void) = (void (**)(void))(void *)&table.count;
	for (void (**end)(void) = (void (**)(void))(void *)(&table + 1); slots < end; slots++)
		*slots = slot;
	table.version = FAKE == OTHER_VERSION ? 77 : ZCCI_DEVICE_VERSION;
	table.struct_bytes = FAKE == OTHER_SIZE ? 24 : sizeof table;
	table.name = "fake";
	table.count = count;
	table.describe = describe;
	table.export = NULL;
	table.import = NULL;
	if (FAKE == MISSING_SLOT)
		table.stream_wait_event = NULL;
	return FAKE == NO_TABLE ? NULL : &table;
}
#endif
