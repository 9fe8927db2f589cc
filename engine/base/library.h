/* Libraries that are opened at run time. */
#ifndef ZCCI_LIBRARY_H
#define ZCCI_LIBRARY_H

#include "zcc/base.h"

enum { ZCCI_LIBRARY_PATH_BYTES = 4096 };

/* Opens libNAME.so, which is looked for beside libzcc.so (or the program that holds the engine), then where the loader
 * looks, and finds a symbol in it. file: what was opened, for messages. The caller owns the handle (dlclose).
 * ZCC_EDEVICE says what is wrong. */
zcc_status zcci_library_open(const char *name, const char *symbol, const char *operation, void **library, void **found,
                             char file[ZCCI_LIBRARY_PATH_BYTES], zcc_error *error);

#endif
