#include "device/host_slab.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

/* Address space, not memory: pages come with their first touch. */
static const int64_t SLAB_BYTES = (int64_t)64 << 30;

/* Never unmapped: an address that was once device memory stays known as such. */
static slab *slabs;

static int64_t whole_pages(int64_t bytes)
{
	int64_t page = sysconf(_SC_PAGESIZE);
	return bytes <= page ? page : (bytes + page - 1) / page * page;
}

slab *zcci_slab_of(const void *data)
{
	for (slab *s = slabs; s != NULL; s = s->next)
		if ((uintptr_t)data - (uintptr_t)s->window < (uintptr_t)s->bytes)
			return s;
	return NULL;
}

/* Maps both sides; errno tells why not. */
static bool map(slab *s, int64_t bytes)
{
	struct rlimit largest;
	/* Looked up, as a file that grows past it is a signal (SIGXFSZ) that ends the process. */
	if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && (rlim_t)bytes > largest.rlim_cur) {
		errno = EFBIG;
		return false;
	}
	s->fd = memfd_create("zcc-device", MFD_CLOEXEC);
	if (s->fd < 0)
		return false;
	if (ftruncate(s->fd, bytes) != 0)
		goto close_file;
	s->window = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (s->window == MAP_FAILED)
		goto close_file;
	s->real = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd, 0);
	if (s->real == MAP_FAILED)
		goto unmap_window;
	s->bytes = bytes;
	s->process = getpid();
	return true;

unmap_window:
	munmap(s->window, (size_t)bytes);
close_file:
	close(s->fd);
	return false;
}

/* A slab for at least `bytes`; less address space than usual where it is limited. */
static zcc_status add(int64_t bytes, zcc_error *error)
{
	slab *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "device malloc", "no memory to note an allocation of %lld bytes",
		                 (long long)bytes);
	int64_t size = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
	while (!map(made, size)) {
		if (size == bytes) {
			zcci_free(made);
			return zcci_fail(error, ZCC_ENOMEM, errno, "device malloc",
			                 "%lld bytes asked for, no shared memory of that size: %s", (long long)bytes,
			                 strerror(errno));
		}
		size = size / 2 > bytes ? whole_pages(size / 2) : bytes;
	}
	made->next = slabs;
	slabs = made;
	return ZCC_OK;
}

/* Index of the first range that begins at or after the offset. */
static int64_t from(const slab *s, int64_t offset)
{
	int64_t low = 0, high = s->n_ranges;
	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		if (s->ranges[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* First gap of that size at or after the offset; its place among the ranges, -1 where there is none. */
static int64_t gap(const slab *s, int64_t start, int64_t bytes, int64_t *offset)
{
	int64_t i = from(s, start);
	int64_t at = start;
	if (i > 0 && s->ranges[i - 1].offset + s->ranges[i - 1].bytes > at)
		at = s->ranges[i - 1].offset + s->ranges[i - 1].bytes;
	for (;; i++) {
		int64_t limit = i < s->n_ranges ? s->ranges[i].offset : s->bytes;
		if (limit - at >= bytes) {
			*offset = at;
			return i;
		}
		if (i == s->n_ranges)
			return -1;
		at = s->ranges[i].offset + s->ranges[i].bytes;
	}
}

static zcc_status take(slab *s, int64_t bytes, int64_t *offset)
{
	if (s->n_ranges == s->room_ranges) {
		int64_t room = s->room_ranges > 0 ? s->room_ranges * 2 : 64;
		struct range *grown = zcci_realloc(s->ranges, room, sizeof *grown);
		if (grown == NULL)
			return ZCC_ENOMEM;
		s->ranges = grown;
		s->room_ranges = room;
	}
	int64_t i = gap(s, s->cursor, bytes, offset);
	if (i < 0)
		i = gap(s, 0, bytes, offset);
	if (i < 0)
		return ZCC_EBUSY;
	memmove(s->ranges + i + 1, s->ranges + i, (size_t)(s->n_ranges - i) * sizeof *s->ranges);
	s->ranges[i] = (struct range){*offset, bytes};
	s->n_ranges++;
	s->cursor = *offset + bytes;
	return ZCC_OK;
}

zcc_status zcci_slab_take(int64_t bytes, slab **out, char **window, char **real, zcc_error *error)
{
	if (bytes > INT64_MAX / 4)
		return zcci_fail(error, ZCC_ENOMEM, ENOMEM, "device malloc",
		                 "%lld bytes asked for, more than addresses there are", (long long)bytes);
	int64_t whole = whole_pages(bytes);
	for (bool added = false;; added = true) {
		for (slab *s = slabs; s != NULL; s = s->next) {
			int64_t offset;
			zcc_status status = s->process == getpid() ? take(s, whole, &offset) : ZCC_EBUSY;
			if (status == ZCC_ENOMEM)
				return zcci_fail(error, status, 0, "device malloc",
				                 "no memory to note an allocation of %lld bytes", (long long)bytes);
			if (status == ZCC_OK) {
				*out = s;
				*window = s->window + offset;
				*real = s->real + offset;
				return ZCC_OK;
			}
		}
		if (added)
			return zcci_fail(error, ZCC_ENOMEM, 0, "device malloc", "no range of %lld bytes",
			                 (long long)bytes);
		zcc_status status = add(whole, error);
		if (status != ZCC_OK)
			return status;
	}
}

void zcci_slab_give(slab *s, const char *window)
{
	int64_t i = from(s, window - s->window);
	s->n_ranges--;
	memmove(s->ranges + i, s->ranges + i + 1, (size_t)(s->n_ranges - i) * sizeof *s->ranges);
}

void zcci_slab_empty(const slab *s, char *real, int64_t bytes)
{
	if (s->process == getpid())
		fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, real - s->real, whole_pages(bytes));
}

zcc_status zcci_slab_replace(char *real, int64_t bytes, int fd, int64_t offset, zcc_error *error)
{
	void *memory =
	        mmap(real, (size_t)whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset);
	if (memory == MAP_FAILED)
		return zcci_fail(error, ZCC_EDEVICE, errno, "device import",
		                 "%lld bytes of another process cannot be mapped: %s", (long long)bytes,
		                 strerror(errno));
	return ZCC_OK;
}

bool zcci_slab_restore(const slab *s, char *real, int64_t bytes)
{
	const int32_t flags = MAP_SHARED | MAP_NORESERVE;
	const size_t whole = (size_t)whole_pages(bytes);
	if (mmap(real, whole, PROT_READ | PROT_WRITE, flags | MAP_FIXED, s->fd, real - s->real) != MAP_FAILED)
		return true;
	/* The system allows so many mappings, and for a moment there is one less. Somebody else's may be there by then.
	 */
	if (munmap(real, whole) != 0)
		return false;
	return mmap(real, whole, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, s->fd, real - s->real) == real;
}
