#include "store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/status.h"

/* Bytes of one system call, after which a signal is heeded: some milliseconds on a slow disk, and far under the
 * 2,147,479,552 at which Linux cuts a call short. */
enum { IO_PIECE_BYTES = 16 << 20 };
/* Space is reserved in pieces too: where a file system cannot reserve, the C library writes every block. */
#define RESERVE_PIECE_BYTES ((int64_t)1 << 30)
enum { HASH_PIECE_BYTES = 4 << 20 };

struct zcc_file {
	atomic_int references;
	int fd;
	bool writable;
	int64_t bytes;
	char path[];
};

static zcc_status os_fault(zcc_error *error, int code, const char *operation, const char *path, const char *doing)
{
	return zcci_fail(error, ZCC_EIO, code, operation, "%s: cannot %s: %s", path, doing, strerror(code));
}

static zcc_status interrupted(zcc_error *error, const char *operation, const char *path)
{
	int32_t number = zcc_interrupted();
	return zcci_fail(error, ZCC_EINTR, number, operation, "%s: given up on signal %d", path, number);
}

static zcc_status allocate(const char *path, const char *operation, zcc_file **file, zcc_error *error)
{
	size_t length = strlen(path) + 1;
	zcc_file *made = zcci_calloc(1, (int64_t)(sizeof *made + length));
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, operation, "%s: no memory for a file handle", path);
	atomic_init(&made->references, 1);
	made->fd = -1;
	memcpy(made->path, path, length);
	*file = made;
	return ZCC_OK;
}

static zcc_status open_existing(const char *path, bool writable, zcc_file **file, zcc_error *error)
{
	static const char operation[] = "file open";
	zcc_file *made = NULL;
	zcc_status status = allocate(path, operation, &made, error);
	if (status != ZCC_OK)
		return status;
	made->writable = writable;
	struct stat info;
	/* Without O_NONBLOCK a FIFO would hold us until somebody opens its other end. */
	made->fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (made->fd < 0 && errno != EISDIR)
		status = os_fault(error, errno, operation, path,
		                  writable ? "open it for writing" : "open it for reading");
	else if (made->fd >= 0 && fstat(made->fd, &info) != 0)
		status = os_fault(error, errno, operation, path, "tell its size");
	else if (made->fd < 0 || !S_ISREG(info.st_mode))
		status = zcci_fail(error, ZCC_EFORMAT, 0, operation, "%s: %s, not a regular file", path,
		                   made->fd < 0 || S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket");
	if (status != ZCC_OK) {
		zcc_file_close(made);
		return status;
	}
	made->bytes = info.st_size;
	*file = made;
	return ZCC_OK;
}

zcc_status zcc_file_open(const char *path, zcc_file **file, zcc_error *error)
{
	return open_existing(path, false, file, error);
}

zcc_status zcc_file_open_write(const char *path, zcc_file **file, zcc_error *error)
{
	return open_existing(path, true, file, error);
}

static zcc_status reserve_space(const zcc_file *file, int64_t bytes, zcc_error *error)
{
	static const char operation[] = "file create";
	struct statvfs disk;
	/* Asked first, since reserving what cannot fit would fill the disk for a moment and fail others that write to
	 * it. */
	if (fstatvfs(file->fd, &disk) == 0 && disk.f_blocks > 0 && disk.f_frsize > 0 &&
	    (uint64_t)bytes / disk.f_frsize > disk.f_bfree)
		return zcci_fail(error, ZCC_EIO, ENOSPC, operation,
		                 "%s: no space left on the disk: %lld bytes asked for, %llu blocks of %llu free",
		                 file->path, (long long)bytes, (unsigned long long)disk.f_bfree,
		                 (unsigned long long)disk.f_frsize);
	for (int64_t at = 0; at < bytes;) {
		if (zcc_interrupted())
			return interrupted(error, operation, file->path);
		int64_t piece = bytes - at < RESERVE_PIECE_BYTES ? bytes - at : RESERVE_PIECE_BYTES;
		int code = posix_fallocate(file->fd, at, piece);
		if (code == EINTR)
			continue;
		if (code != 0)
			return zcci_fail(error, ZCC_EIO, code, operation, "%s: cannot reserve %lld bytes: %s",
			                 file->path, (long long)bytes, strerror(code));
		at += piece;
	}
	return ZCC_OK;
}

zcc_status zcc_file_create(const char *path, int64_t bytes, zcc_file **file, zcc_error *error)
{
	static const char operation[] = "file create";
	if (bytes < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "%s: %lld bytes asked for", path, (long long)bytes);
	zcc_file *made = NULL;
	zcc_status status = allocate(path, operation, &made, error);
	if (status != ZCC_OK)
		return status;
	made->writable = true;
	made->bytes = bytes;
	made->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
	if (made->fd < 0) {
		int code = errno;
		zcc_file_close(made);
		if (code == EEXIST)
			return zcci_fail(error, ZCC_EEXIST, code, operation, "%s: there is a file of that name already",
			                 path);
		return os_fault(error, code, operation, path, "create it");
	}
	status = reserve_space(made, bytes, error);
	if (status != ZCC_OK) {
		unlink(path);
		zcc_file_close(made);
		return status;
	}
	*file = made;
	return ZCC_OK;
}

zcc_file *zcci_file_retain(zcc_file *file)
{
	atomic_fetch_add_explicit(&file->references, 1, memory_order_relaxed);
	return file;
}

void zcc_file_close(zcc_file *file)
{
	if (file == NULL || atomic_fetch_sub_explicit(&file->references, 1, memory_order_acq_rel) > 1)
		return;
	if (file->fd >= 0)
		close(file->fd);
	zcci_free(file);
}

int64_t zcc_file_bytes(const zcc_file *file)
{
	return file->bytes;
}

const char *zcc_file_path(const zcc_file *file)
{
	return file->path;
}

static zcc_status check_range(const zcc_file *file, int64_t offset, int64_t bytes, const char *operation,
                              zcc_error *error)
{
	if (offset < 0 || bytes < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "%s: %lld bytes at offset %lld asked for", file->path,
		                 (long long)bytes, (long long)offset);
	if (offset > file->bytes || bytes > file->bytes - offset)
		return zcci_fail(error, ZCC_EIO, 0, operation,
		                 "%s: %lld bytes at offset %lld asked for, the file has %lld", file->path,
		                 (long long)bytes, (long long)offset, (long long)file->bytes);
	return ZCC_OK;
}

/* Reads or writes all of it: `write` says which, `data` is only read then. */
static zcc_status move_bytes(zcc_file *file, bool write, int64_t offset, char *data, int64_t bytes, zcc_error *error)
{
	const char *operation = write ? "file write" : "file read";
	zcc_status status = check_range(file, offset, bytes, operation, error);
	if (status != ZCC_OK)
		return status;
	for (int64_t done = 0; done < bytes;) {
		if (zcc_interrupted())
			return interrupted(error, operation, file->path);
		size_t piece = (size_t)(bytes - done < IO_PIECE_BYTES ? bytes - done : IO_PIECE_BYTES);
		ssize_t moved = write ? pwrite(file->fd, data + done, piece, offset + done)
		                      : pread(file->fd, data + done, piece, offset + done);
		if (moved < 0 && errno == EINTR)
			continue;
		if (moved < 0)
			return zcci_fail(error, ZCC_EIO, errno, operation,
			                 "%s: cannot %s %lld bytes at offset %lld: %s", file->path,
			                 write ? "write" : "read", (long long)(bytes - done),
			                 (long long)(offset + done), strerror(errno));
		if (moved == 0)
			return zcci_fail(error, ZCC_EIO, 0, operation,
			                 "%s: ends at byte %lld; it had %lld when it was opened", file->path,
			                 (long long)(offset + done), (long long)file->bytes);
		done += moved;
	}
	return ZCC_OK;
}

zcc_status zcc_file_read(zcc_file *file, int64_t offset_bytes, void *data, int64_t bytes, zcc_error *error)
{
	return move_bytes(file, false, offset_bytes, data, bytes, error);
}

zcc_status zcc_file_write(zcc_file *file, int64_t offset_bytes, const void *data, int64_t bytes, zcc_error *error)
{
	if (!file->writable)
		return zcci_fail(error, ZCC_EINVAL, 0, "file write", "%s: opened for reading only", file->path);
	return move_bytes(file, true, offset_bytes, (char *)data, bytes, error);
}

zcc_status zcc_file_sync(zcc_file *file, zcc_error *error)
{
	while (fdatasync(file->fd) != 0)
		if (errno != EINTR)
			return os_fault(error, errno, "file sync", file->path, "sync it");
	return ZCC_OK;
}

static zcc_status hash_pieces(zcc_file *file, XXH3_state_t *state, void *buffer, zcc_error *error)
{
	for (int64_t at = 0; at < file->bytes;) {
		int64_t piece = file->bytes - at < HASH_PIECE_BYTES ? file->bytes - at : HASH_PIECE_BYTES;
		zcc_status status = zcc_file_read(file, at, buffer, piece, error);
		if (status != ZCC_OK)
			return status;
		XXH3_64bits_update(state, buffer, (size_t)piece);
		at += piece;
	}
	return ZCC_OK;
}

zcc_status zcc_file_hash(zcc_file *file, char hex[17], zcc_error *error)
{
	XXH3_state_t *state = XXH3_createState();
	void *buffer = zcci_malloc(file->bytes < HASH_PIECE_BYTES ? file->bytes : HASH_PIECE_BYTES);
	zcc_status status;
	if (state == NULL || buffer == NULL) {
		status = zcci_fail(error, ZCC_ENOMEM, 0, "file hash", "%s: no memory to hash %lld bytes", file->path,
		                   (long long)file->bytes);
	} else {
		XXH3_64bits_reset(state);
		status = hash_pieces(file, state, buffer, error);
	}
	if (status == ZCC_OK) {
		uint64_t hash = XXH3_64bits_digest(state);
		for (int i = 0; i < 16; i++)
			hex[i] = "0123456789abcdef"[hash >> (60 - 4 * i) & 15];
		hex[16] = '\0';
	}
	zcci_free(buffer);
	XXH3_freeState(state);
	return status;
}
