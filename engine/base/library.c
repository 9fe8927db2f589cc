#include "base/library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"

/* FOLDER/NAME for the folder of this very library, or of the program that holds it. */
static bool beside(const char *name, char path[ZCCI_LIBRARY_PATH_BYTES])
{
	static const char here;
	Dl_info self;
	if (dladdr(&here, &self) == 0 || self.dli_fname == NULL)
		return false;
	const char *slash = strrchr(self.dli_fname, '/');
	int n = snprintf(path, ZCCI_LIBRARY_PATH_BYTES, "%.*s/%s", slash != NULL ? (int)(slash - self.dli_fname) : 1,
	                 slash != NULL ? self.dli_fname : ".", name);
	return n > 0 && n < ZCCI_LIBRARY_PATH_BYTES && access(path, F_OK) == 0;
}

zcc_status zcci_library_open(const char *name, const char *symbol, const char *operation, void **library, void **found,
                             char file[ZCCI_LIBRARY_PATH_BYTES], zcc_error *error)
{
	char base[64];
	snprintf(base, sizeof base, "lib%s.so", name);
	bool is_beside = beside(base, file);
	if (!is_beside)
		strcpy(file, base);
	void *opened = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (opened == NULL) {
		const char *why = dlerror();
		size_t length = strlen(base);
		if (!is_beside && strncmp(why, base, length) == 0 && strncmp(why + length, ": cannot open", 13) == 0)
			return zcci_fail(error, ZCC_EDEVICE, 0, operation,
			                 "%s is neither beside libzcc.so nor where the loader looks", base);
		return zcci_fail(error, ZCC_EDEVICE, 0, operation, "%s does not load: %s", file, why);
	}
	void *address = dlsym(opened, symbol);
	if (address == NULL) {
		dlclose(opened);
		return zcci_fail(error, ZCC_EDEVICE, 0, operation, "%s has no %s", file, symbol);
	}
	*library = opened;
	*found = address;
	return ZCC_OK;
}
