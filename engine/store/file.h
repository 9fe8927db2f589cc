/* What transfers need of a file beyond zcc/store.h. */
#ifndef ZCCI_FILE_H
#define ZCCI_FILE_H

#include "zcc/store.h"

/* A reference more. Drop it with zcc_file_close. Any thread. */
zcc_file *zcci_file_retain(zcc_file *file);

#endif
