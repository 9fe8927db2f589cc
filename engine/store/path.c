#include "zcc/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "store/tree.h"

zcc_status zcc_path_kind(const char *path, int32_t *kind, zcc_error *error)
{
	struct stat info;
	if (stat(path, &info) == 0) {
		*kind = S_ISREG(info.st_mode) ? 1 : S_ISDIR(info.st_mode) ? 2 : 3;
		return ZCC_OK;
	}
	int code = errno;
	if (code != ENOENT && code != ENOTDIR)
		return zcci_fail(error, ZCC_EIO, code, "path kind", "%s: cannot look at it: %s", path, strerror(code));
	*kind = lstat(path, &info) == 0 ? 3 : 0;
	return ZCC_OK;
}

static zcc_status resolve(const char *path, char **real, zcc_error *error)
{
	*real = realpath(path, NULL);
	if (*real != NULL || errno == ENOENT || errno == ENOTDIR)
		return ZCC_OK;
	if (errno == ENOMEM)
		return zcci_fail(error, ZCC_ENOMEM, 0, "path below", "%s: no memory for its path", path);
	return zcci_fail(error, ZCC_EIO, errno, "path below", "%s: cannot follow it: %s", path, strerror(errno));
}

zcc_status zcc_path_below(const char *path, const char *folder, int32_t *below, zcc_error *error)
{
	char *inner = NULL;
	char *outer = NULL;
	zcc_status status = resolve(path, &inner, error);
	if (status == ZCC_OK)
		status = resolve(folder, &outer, error);
	if (status == ZCC_OK) {
		/* "/" alone ends in a slash, and everything else is below it. */
		size_t length = outer != NULL ? strlen(outer) : 0;
		length -= length == 1;
		*below = inner != NULL && outer != NULL && strncmp(inner, outer, length) == 0 && inner[length] == '/' &&
		         inner[length + 1] != '\0';
	}
	free(inner);
	free(outer);
	return status;
}

zcc_status zcc_path_list(const char *path, char **names, int32_t *n_names, zcc_error *error)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return zcci_fail(error, ZCC_EIO, errno, "path list", "%s: cannot list it: %s", path, strerror(errno));
	zcc_status status = zcci_folder_list(fd, path, names, n_names, error);
	close(fd);
	return status;
}

void zcc_path_list_free(char *names)
{
	zcci_free(names);
}
