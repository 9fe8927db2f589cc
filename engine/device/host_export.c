#include "device/host_export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/status.h"

/* What a handle holds, at its start; zeros follow. */
typedef struct handle_fields {
	char magic[8];
	uint64_t hash; /* of what follows */
	int64_t process;
	uint64_t process_start; /* a number used again by another process has another start */
	int64_t fd;
	uint64_t inode;
	int64_t offset, bytes;
} handle_fields;

_Static_assert(sizeof(handle_fields) <= ZCC_EXPORT_BYTES, "a handle has room for its fields");

static const char magic[8] = "zcchost";

static uint64_t hash_of(const handle_fields *fields)
{
	const size_t start = offsetof(handle_fields, process);
	return XXH3_64bits((const char *)fields + start, sizeof *fields - start);
}

/* Clock ticks from the machine's start to the process's; 0 where there is no such process (proc(5), stat, field 22). */
static uint64_t start_of(int64_t process)
{
	char path[64], text[1024];
	snprintf(path, sizeof path, "/proc/%lld/stat", (long long)process);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return 0;
	size_t n = fread(text, 1, sizeof text - 1, file);
	fclose(file);
	text[n] = '\0';
	/* The name in parentheses may itself hold spaces and parentheses. */
	char *at = strrchr(text, ')');
	for (int field = 2; at != NULL && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at != NULL ? strtoull(at, NULL, 10) : 0;
}

zcc_status zcci_host_export_write(int fd, int64_t offset, int64_t bytes, uint8_t handle[ZCC_EXPORT_BYTES],
                                  zcc_error *error)
{
	struct stat info;
	if (fstat(fd, &info) != 0)
		return zcci_fail(error, ZCC_EDEVICE, errno, "device export", "the memory's file cannot be read: %s",
		                 strerror(errno));
	handle_fields fields = {
	        .process = getpid(),
	        .process_start = start_of(getpid()),
	        .fd = fd,
	        .inode = info.st_ino,
	        .offset = offset,
	        .bytes = bytes,
	};
	memcpy(fields.magic, magic, sizeof magic);
	fields.hash = hash_of(&fields);
	memset(handle, 0, ZCC_EXPORT_BYTES);
	memcpy(handle, &fields, sizeof fields);
	return ZCC_OK;
}

/* Opened only after the name has told what it is: opening anything else could block or have effects. */
static int open_memory(const handle_fields *fields)
{
	char path[64], name[64];
	snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)fields->process, (long long)fields->fd);
	ssize_t length = readlink(path, name, sizeof name - 1);
	if (length < 0)
		return -1;
	name[length] = '\0';
	if (strcmp(name, "/memfd:zcc-device (deleted)") != 0) {
		errno = ENOENT;
		return -1;
	}
	return open(path, O_RDWR | O_CLOEXEC);
}

zcc_status zcci_host_export_open(const uint8_t handle[ZCC_EXPORT_BYTES], int *fd, int64_t *offset, int64_t *bytes,
                                 zcc_error *error)
{
	static const char operation[] = "device import";
	handle_fields fields;
	memcpy(&fields, handle, sizeof fields);
	if (memcmp(fields.magic, magic, sizeof magic) != 0 || fields.hash != hash_of(&fields))
		return zcci_fail(error, ZCC_EFORMAT, 0, operation,
		                 "the handle is not one that the host device exported");
	int64_t end;
	if (fields.process <= 0 || fields.offset < 0 || fields.bytes < 0 ||
	    __builtin_add_overflow(fields.offset, fields.bytes, &end))
		return zcci_fail(error, ZCC_EFORMAT, 0, operation,
		                 "the handle names process %lld, offset %lld, %lld bytes", (long long)fields.process,
		                 (long long)fields.offset, (long long)fields.bytes);
	if (start_of(fields.process) != fields.process_start)
		return zcci_fail(error, ZCC_ESTALE, 0, operation,
		                 "process %lld, which exported the %lld bytes, has ended", (long long)fields.process,
		                 (long long)fields.bytes);
	int file = open_memory(&fields);
	/* A process that has ended keeps its number, and no files, until its parent asks for its status. */
	if (file < 0)
		return zcci_fail(error, errno == ENOENT || errno == ESRCH ? ZCC_ESTALE : ZCC_EDEVICE, errno, operation,
		                 "the memory of process %lld cannot be opened: %s", (long long)fields.process,
		                 strerror(errno));
	struct stat info;
	if (fstat(file, &info) != 0 || info.st_ino != fields.inode || info.st_size < end) {
		close(file);
		return zcci_fail(error, ZCC_ESTALE, 0, operation, "process %lld has closed the memory that it exported",
		                 (long long)fields.process);
	}
	*fd = file;
	*offset = fields.offset;
	*bytes = fields.bytes;
	return ZCC_OK;
}
