#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

zcc_status zcci_fail_at(zcc_error *error, zcc_status status, int32_t code, const char *operation, const char *file,
                        int32_t line, const char *format, ...)
{
	if (error == NULL)
		return status;
	const char *slash = strrchr(file, '/');
	error->status = status;
	error->code = code;
	error->process = -1;
	error->line = line;
	snprintf(error->file, sizeof error->file, "%s", slash ? slash + 1 : file);
	snprintf(error->operation, sizeof error->operation, "%s", operation);
	va_list args;
	va_start(args, format);
	vsnprintf(error->message, sizeof error->message, format, args);
	va_end(args);
	return status;
}

zcc_status zcci_context(zcc_error *error, zcc_status status, const char *format, ...)
{
	if (error == NULL)
		return status;
	char text[sizeof error->message];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (n >= 0 && (size_t)n < sizeof text)
		snprintf(text + n, sizeof text - (size_t)n, ": %.*s", (int)(sizeof text - (size_t)n - 3),
		         error->message);
	memcpy(error->message, text, sizeof text);
	return status;
}

const char *zcc_status_name(zcc_status status)
{
	static const char *const names[] = {
	        "ZCC_OK",      "ZCC_EINVAL",  "ZCC_ENOMEM",    "ZCC_EIO",     "ZCC_EFORMAT", "ZCC_EMAP",
	        "ZCC_ELAYOUT", "ZCC_EPOLICY", "ZCC_EAGREE",    "ZCC_EPEER",   "ZCC_EMPI",    "ZCC_EVERIFY",
	        "ZCC_EINTR",   "ZCC_EEXIST",  "ZCC_EOVERFLOW", "ZCC_EDEVICE", "ZCC_ESTALE",  "ZCC_EBUSY",
	};
	if (status > 0 || status <= -(int32_t)(sizeof names / sizeof *names))
		return "ZCC_E?";
	return names[-status];
}
