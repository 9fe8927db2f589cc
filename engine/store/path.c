#include "zcc/store.h"

#include <errno.h>
#include <fcntl.h>
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
