#include "zcc/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "store/tree.h"

/* What removing a folder of files takes, and a process that has none left to open must still clean up. */
enum { N_SPARE = 2 };

struct zcc_folder {
	int parent;         /* the folder in which both names lie */
	int spare[N_SPARE]; /* descriptors kept for discarding */
	bool replace;
	bool published;
	bool temp_ours; /* what lies at the temporary name is ours to remove */
	char *path;     /* the target, links resolved */
	char *temp_path;
};

static zcc_status os_fault(zcc_error *error, int code, const char *operation, const char *path, const char *doing)
{
	return zcci_fail(error, ZCC_EIO, code, operation, "%s: cannot %s: %s", path, doing, strerror(code));
}

static zcc_status no_memory(zcc_error *error, const char *path)
{
	return zcci_fail(error, ZCC_ENOMEM, 0, "folder", "%s: no memory for its path", path);
}

/* The last component of a path without slashes at its end. */
static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash != NULL ? slash + 1 : path;
}

/* ---- begin ---- */

/* The path without slashes at its end and, where it is a link, the path behind it. */
static zcc_status resolve(const char *given, char **path, zcc_error *error)
{
	size_t length = strlen(given);
	while (length > 0 && given[length - 1] == '/')
		length--;
	char *plain = zcci_format("%.*s", (int)length, given);
	if (plain == NULL)
		return no_memory(error, given);
	const char *name = name_of(plain);
	struct stat info;
	char real[PATH_MAX];
	zcc_status status = ZCC_OK;
	if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		status = zcci_fail(error, ZCC_EINVAL, 0, "folder begin", "\"%s\" does not end in the name of a folder",
		                   given);
	} else if (lstat(plain, &info) == 0 && S_ISLNK(info.st_mode)) {
		if (realpath(plain, real) == NULL)
			status = errno == ENOENT ? zcci_fail(error, ZCC_EEXIST, errno, "folder begin",
			                                     "%s: a link to nothing", plain)
			                         : os_fault(error, errno, "folder begin", plain, "follow it");
		zcci_free(plain);
		if (status != ZCC_OK)
			return status;
		plain = zcci_strdup(real);
		if (plain == NULL)
			return no_memory(error, given);
	}
	if (status != ZCC_OK) {
		zcci_free(plain);
		return status;
	}
	*path = plain;
	return ZCC_OK;
}

/* The parent's path as open takes it, cut off in place: `path` begins with it. */
static const char *cut_parent(char *path)
{
	char *slash = strrchr(path, '/');
	if (slash == NULL)
		return ".";
	while (slash > path && slash[-1] == '/')
		slash--;
	*slash = '\0';
	return *path != '\0' ? path : "/";
}

/* Opens a folder, made first where it is missing, its parents too. Each new name is synced: what is published below
 * must not hang from a name that a crash forgets. */
static zcc_status open_folder(const char *path, int *fd, zcc_error *error)
{
	*fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*fd >= 0)
		return ZCC_OK;
	if (errno != ENOENT)
		return os_fault(error, errno, "folder begin", path, "open it");
	char *copy = zcci_strdup(path);
	if (copy == NULL)
		return no_memory(error, path);
	int above;
	zcc_status status = open_folder(cut_parent(copy), &above, error);
	zcci_free(copy);
	if (status != ZCC_OK)
		return status;
	if (mkdirat(above, name_of(path), 0777) != 0 && errno != EEXIST)
		status = os_fault(error, errno, "folder begin", path, "make it");
	if (status == ZCC_OK)
		status = zcci_sync(above, path, error);
	if (status == ZCC_OK) {
		*fd = openat(above, name_of(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (*fd < 0)
			status = os_fault(error, errno, "folder begin", path, "open it");
	}
	close(above);
	return status;
}

static zcc_status taken(const zcc_folder *folder, const char *what, zcc_error *error)
{
	return zcci_fail(error, ZCC_EEXIST, 0, "folder", "%s: there is %s already", folder->path, what);
}

static zcc_status count_entries(const zcc_folder *folder, int32_t *n, zcc_error *error)
{
	int fd = openat(folder->parent, name_of(folder->path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return os_fault(error, errno, "folder", folder->path, "look into it");
	char *names;
	zcc_status status = zcci_folder_list(fd, folder->path, &names, n, error);
	close(fd);
	if (status == ZCC_OK)
		zcc_path_list_free(names);
	return status;
}

/* Whether the target may be written; *there: it is a folder. */
static zcc_status check_target(const zcc_folder *folder, bool *there, zcc_error *error)
{
	struct stat info, parent;
	*there = false;
	if (fstatat(folder->parent, name_of(folder->path), &info, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? ZCC_OK : os_fault(error, errno, "folder", folder->path, "look at it");
	if (!S_ISDIR(info.st_mode))
		return taken(folder,
		             S_ISREG(info.st_mode) ? "a file of that name" : "something of that name that is no folder",
		             error);
	if (fstat(folder->parent, &parent) == 0 && parent.st_dev != info.st_dev)
		return zcci_fail(error, ZCC_EINVAL, 0, "folder",
		                 "%s: the root of a mounted file system, which cannot be renamed; name a "
		                 "folder in it",
		                 folder->path);
	*there = true;
	int32_t n = 0;
	zcc_status status = folder->replace ? ZCC_OK : count_entries(folder, &n, error);
	if (status == ZCC_OK && n > 0)
		return zcci_fail(error, ZCC_EEXIST, 0, "folder", "%s: there is a folder with %d entries already",
		                 folder->path, n);
	return status;
}

/* The target's path with ".KIND.<nonce>" after it. */
static zcc_status make_name(const zcc_folder *folder, const char *kind, char **path, zcc_error *error)
{
	uint64_t nonce;
	while (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
		if (errno != EINTR)
			return os_fault(error, errno, "folder", folder->path, "find a random name");
	*path = zcci_format("%s.%s.%016llx", folder->path, kind, (unsigned long long)nonce);
	return *path != NULL ? ZCC_OK : no_memory(error, folder->path);
}

static zcc_status make_temp(zcc_folder *folder, zcc_error *error)
{
	zcc_status status = make_name(folder, "tmp", &folder->temp_path, error);
	if (status != ZCC_OK)
		return status;
	if (mkdirat(folder->parent, name_of(folder->temp_path), 0777) != 0)
		return os_fault(error, errno, "folder begin", folder->temp_path, "make it");
	folder->temp_ours = true;
	return ZCC_OK;
}

zcc_status zcc_folder_begin(const char *path, int32_t replace, zcc_folder **folder, zcc_error *error)
{
	zcc_folder *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return no_memory(error, path);
	made->parent = -1;
	for (int i = 0; i < N_SPARE; i++)
		made->spare[i] = -1;
	made->replace = replace != 0;
	zcc_status status = resolve(path, &made->path, error);
	char *copy = NULL;
	if (status == ZCC_OK) {
		copy = zcci_strdup(made->path);
		status = copy != NULL ? open_folder(cut_parent(copy), &made->parent, error) : no_memory(error, path);
	}
	zcci_free(copy);
	bool there;
	if (status == ZCC_OK)
		status = check_target(made, &there, error);
	for (int i = 0; i < N_SPARE && status == ZCC_OK; i++) {
		made->spare[i] = fcntl(made->parent, F_DUPFD_CLOEXEC, 0);
		if (made->spare[i] < 0)
			status = os_fault(error, errno, "folder begin", path, "keep a descriptor for it");
	}
	if (status == ZCC_OK)
		status = make_temp(made, error);
	if (status != ZCC_OK) {
		zcc_folder_close(made);
		return status;
	}
	*folder = made;
	return ZCC_OK;
}

const char *zcc_folder_path(const zcc_folder *folder)
{
	return folder->temp_path;
}

/* ---- publish ---- */

static bool rename_to(const zcc_folder *folder, const char *from, const char *to, unsigned flags)
{
	return renameat2(folder->parent, name_of(from), folder->parent, name_of(to), flags) == 0;
}

static zcc_status rename_fault(const zcc_folder *folder, int code, zcc_error *error)
{
	if (code == ENOTEMPTY || code == EEXIST || code == ENOTDIR)
		return taken(folder, "something else", error);
	return zcci_fail(error, ZCC_EIO, code, "folder publish", "%s: cannot rename %s to it: %s", folder->path,
	                 folder->temp_path, strerror(code));
}

/* For file systems that cannot exchange two names. */
static zcc_status replace_in_two_steps(zcc_folder *folder, zcc_error *error)
{
	char *aside;
	zcc_status status = make_name(folder, "old", &aside, error);
	if (status != ZCC_OK)
		return status;
	if (!rename_to(folder, folder->path, aside, 0)) {
		status = rename_fault(folder, errno, error);
	} else if (!rename_to(folder, folder->temp_path, folder->path, 0)) {
		status = rename_fault(folder, errno, error);
		if (!rename_to(folder, aside, folder->path, 0))
			status = zcci_context(error, status, "what was there is now at %s", aside);
	} else {
		/* The old content is what discard and removal are about from now on. */
		char *temp_path = folder->temp_path;
		folder->temp_path = aside;
		aside = temp_path;
	}
	zcci_free(aside);
	return status;
}

/* Puts the new folder in its place; *replaced: the old content lies at the temporary name now. */
static zcc_status put_in_place(zcc_folder *folder, bool *replaced, zcc_error *error)
{
	bool there;
	zcc_status status = check_target(folder, &there, error);
	if (status != ZCC_OK)
		return status;
	*replaced = folder->replace && there;
	if (*replaced) {
		if (rename_to(folder, folder->temp_path, folder->path, RENAME_EXCHANGE))
			return ZCC_OK;
		if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
			return rename_fault(folder, errno, error);
		return replace_in_two_steps(folder, error);
	}
	/* Plain rename puts a folder over an empty one, and over no other. */
	return rename_to(folder, folder->temp_path, folder->path, 0) ? ZCC_OK : rename_fault(folder, errno, error);
}

zcc_status zcc_folder_publish(zcc_folder *folder, zcc_error *error)
{
	if (folder->published || !folder->temp_ours)
		return zcci_fail(error, ZCC_EINVAL, 0, "folder publish", "%s: %s already", folder->path,
		                 folder->published ? "published" : "discarded");
	bool replaced;
	zcc_status status = zcci_tree_sync(folder->parent, name_of(folder->temp_path), folder->temp_path, error);
	if (status == ZCC_OK)
		status = put_in_place(folder, &replaced, error);
	if (status != ZCC_OK)
		return status;
	folder->published = true;
	folder->temp_ours = false;
	status = zcci_sync(folder->parent, folder->path, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "the new content is in place but may not survive a crash%s%s",
		                    replaced ? "; the old content is at " : "", replaced ? folder->temp_path : "");
	if (!replaced)
		return ZCC_OK;
	folder->temp_ours = true;
	status = zcci_tree_remove(folder->parent, name_of(folder->temp_path), folder->temp_path, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "the new content is in place, but the old cannot be removed");
	folder->temp_ours = false;
	return ZCC_OK;
}

static void give_up_spare(zcc_folder *folder)
{
	for (int i = 0; i < N_SPARE; i++) {
		if (folder->spare[i] >= 0)
			close(folder->spare[i]);
		folder->spare[i] = -1;
	}
}

zcc_status zcc_folder_discard(zcc_folder *folder, zcc_error *error)
{
	if (!folder->temp_ours)
		return ZCC_OK;
	give_up_spare(folder);
	zcc_status status = zcci_tree_remove(folder->parent, name_of(folder->temp_path), folder->temp_path, error);
	if (status == ZCC_OK)
		folder->temp_ours = false;
	return status;
}

void zcc_folder_close(zcc_folder *folder)
{
	if (folder == NULL)
		return;
	give_up_spare(folder);
	if (folder->parent >= 0)
		close(folder->parent);
	zcci_free(folder->path);
	zcci_free(folder->temp_path);
	zcci_free(folder);
}
