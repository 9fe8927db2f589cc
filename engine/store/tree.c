#include "store/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

static zcc_status refused(zcc_error *error, const char *path, const char *doing)
{
	int code = errno;
	return zcci_fail(error, ZCC_EIO, code, "folder", "%s: cannot %s: %s", path, doing, strerror(code));
}

/* Names of a listing, one after the other as they come. */
typedef struct listing {
	char *text;
	int64_t bytes;
	int64_t room;
	int32_t n;
} listing;

static zcc_status append(listing *l, const char *name)
{
	int64_t bytes = (int64_t)strlen(name) + 1;
	if (l->n == INT32_MAX)
		return ZCC_ENOMEM;
	if (l->bytes + bytes > l->room) {
		int64_t room = (l->room + bytes) * 2;
		char *text = zcci_realloc(l->text, room, 1);
		if (text == NULL)
			return ZCC_ENOMEM;
		l->text = text;
		l->room = room;
	}
	memcpy(l->text + l->bytes, name, (size_t)bytes);
	l->bytes += bytes;
	l->n++;
	return ZCC_OK;
}

static int by_bytes(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* The same names, sorted, in memory of their own. */
static char *sorted(const listing *l)
{
	const char **order = zcci_malloc((int64_t)l->n * (int64_t)sizeof *order);
	char *text = zcci_malloc(l->bytes);
	if (order != NULL && text != NULL) {
		const char *at = l->text;
		for (int32_t i = 0; i < l->n; i++, at += strlen(at) + 1)
			order[i] = at;
		qsort(order, (size_t)l->n, sizeof *order, by_bytes);
		char *out = text;
		for (int32_t i = 0; i < l->n; i++)
			out = stpcpy(out, order[i]) + 1;
	} else {
		zcci_free(text);
		text = NULL;
	}
	zcci_free(order);
	return text;
}

static zcc_status read_names(DIR *dir, const char *path, listing *l, zcc_error *error)
{
	for (;;) {
		errno = 0;
		const struct dirent *entry = readdir(dir);
		if (entry == NULL)
			return errno != 0 ? refused(error, path, "list it") : ZCC_OK;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (append(l, entry->d_name) != ZCC_OK)
			return zcci_fail(error, ZCC_ENOMEM, 0, "folder",
			                 "%s: no memory for a list of more than %d names", path, l->n);
	}
}

zcc_status zcci_folder_list(int fd, const char *path, char **names, int32_t *n_names, zcc_error *error)
{
	/* A descriptor of its own: closedir closes it, and the place in the folder is not shared. */
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = own >= 0 ? fdopendir(own) : NULL;
	if (dir == NULL) {
		zcc_status status = refused(error, path, "list it");
		if (own >= 0)
			close(own);
		return status;
	}
	listing l = {0};
	zcc_status status = read_names(dir, path, &l, error);
	closedir(dir);
	if (status == ZCC_OK) {
		char *text = sorted(&l);
		if (text != NULL) {
			*names = text;
			*n_names = l.n;
		} else {
			status = zcci_fail(error, ZCC_ENOMEM, 0, "folder", "%s: no memory for a list of %d names", path,
			                   l.n);
		}
	}
	zcci_free(l.text);
	return status;
}

zcc_status zcci_sync(int fd, const char *path, zcc_error *error)
{
	while (fsync(fd) != 0)
		if (errno != EINTR)
			return refused(error, path, "sync it");
	return ZCC_OK;
}

/* What one entry of a folder is: its mode, 0 where it is gone. */
static zcc_status look(int parent, const char *name, const char *path, mode_t *mode, zcc_error *error)
{
	struct stat info;
	*mode = 0;
	if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
		*mode = info.st_mode;
	else if (errno != ENOENT)
		return refused(error, path, "look at it");
	return ZCC_OK;
}

/* What to do with every entry of a folder. */
typedef zcc_status visit(int parent, const char *name, const char *path, zcc_error *error);

static zcc_status visit_all(int fd, const char *path, visit *each, zcc_error *error)
{
	char *names;
	int32_t n;
	zcc_status status = zcci_folder_list(fd, path, &names, &n, error);
	if (status != ZCC_OK)
		return status;
	const char *name = names;
	for (int32_t i = 0; i < n && status == ZCC_OK; i++, name += strlen(name) + 1) {
		char *below = zcci_format("%s/%s", path, name);
		if (below == NULL)
			status = zcci_fail(error, ZCC_ENOMEM, 0, "folder", "%s/%s: no memory for its path", path, name);
		else
			status = each(fd, name, below, error);
		zcci_free(below);
	}
	zcc_path_list_free(names);
	return status;
}

zcc_status zcci_tree_sync(int parent, const char *name, const char *path, zcc_error *error)
{
	mode_t mode;
	zcc_status status = look(parent, name, path, &mode, error);
	if (status != ZCC_OK || (!S_ISREG(mode) && !S_ISDIR(mode)))
		return status;
	if (zcc_interrupted())
		return zcci_fail(error, ZCC_EINTR, zcc_interrupted(), "folder", "%s: given up on signal %d", path,
		                 zcc_interrupted());
	int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return refused(error, path, "open it to sync it");
	if (S_ISDIR(mode))
		status = visit_all(fd, path, zcci_tree_sync, error);
	if (status == ZCC_OK)
		status = zcci_sync(fd, path, error);
	close(fd);
	return status;
}

static zcc_status empty_folder(int parent, const char *name, const char *path, zcc_error *error)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return refused(error, path, "open it to remove what is in it");
	zcc_status status = visit_all(fd, path, zcci_tree_remove, error);
	close(fd);
	return status;
}

zcc_status zcci_tree_remove(int parent, const char *name, const char *path, zcc_error *error)
{
	mode_t mode;
	zcc_status status = look(parent, name, path, &mode, error);
	if (status != ZCC_OK || mode == 0)
		return status;
	if (S_ISDIR(mode))
		status = empty_folder(parent, name, path, error);
	if (status != ZCC_OK)
		return status;
	if (unlinkat(parent, name, S_ISDIR(mode) ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT)
		return refused(error, path, "remove it");
	return ZCC_OK;
}
