/* How a fault is reported inside the engine: once, where it is first seen. */
#ifndef ZCCI_STATUS_H
#define ZCCI_STATUS_H

#include "zcc/base.h"

/* Fills *error (may be NULL) and returns status. `code` is errno, an MPI class, a signal, or 0. */
#define zcci_fail(error, status, code, operation, ...)                                                                 \
	zcci_fail_at(error, status, code, operation, __FILE__, __LINE__, __VA_ARGS__)

zcc_status zcci_fail_at(zcc_error *error, zcc_status status, int32_t code, const char *operation, const char *file,
                        int32_t line, const char *format, ...) __attribute__((format(printf, 7, 8)));

/* Puts "text: " before the message of a fault that a callee reported, and returns its status. */
zcc_status zcci_context(zcc_error *error, zcc_status status, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

#endif
