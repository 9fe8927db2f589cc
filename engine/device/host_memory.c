#include "device/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "device/host_export.h"
#include "device/host_slab.h"

pthread_mutex_t zcci_host_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t zcci_host_progress = PTHREAD_COND_INITIALIZER;

/* All blocks of the process, by address. */
static zcci_host_block **blocks;
static int64_t n_blocks, room_blocks;
static int64_t locked_bytes;

/* Index of the first block that begins after `data`. */
static int64_t after(const void *data)
{
	int64_t low = 0, high = n_blocks;
	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		if (blocks[middle]->data <= (const char *)data)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The block that holds that byte; an empty one holds its first. */
static zcci_host_block *find(const void *data)
{
	int64_t i = after(data);
	if (i == 0)
		return NULL;
	zcci_host_block *block = blocks[i - 1];
	return (const char *)data - block->data < block->bytes || data == block->data ? block : NULL;
}

static zcc_status enter(zcci_host_block *block)
{
	if (n_blocks == room_blocks) {
		int64_t room = room_blocks > 0 ? room_blocks * 2 : 64;
		zcci_host_block **grown = zcci_realloc(blocks, room, sizeof *grown);
		if (grown == NULL)
			return ZCC_ENOMEM;
		blocks = grown;
		room_blocks = room;
	}
	int64_t at = after(block->data);
	memmove(blocks + at + 1, blocks + at, (size_t)(n_blocks - at) * sizeof *blocks);
	blocks[at] = block;
	n_blocks++;
	return ZCC_OK;
}

static void leave(const zcci_host_block *block)
{
	int64_t at = after(block->data) - 1;
	n_blocks--;
	memmove(blocks + at, blocks + at + 1, (size_t)(n_blocks - at) * sizeof *blocks);
	if (n_blocks == 0) {
		zcci_free(blocks);
		blocks = NULL;
		room_blocks = 0;
	}
}

zcc_status zcci_host_reach(const void *data, int64_t bytes, zcci_host_block **block, zcc_error *error)
{
	zcci_host_block *found = find(data);
	if (found == NULL || found->going) {
		if (zcci_slab_of(data) != NULL)
			return zcci_fail(error, ZCC_ESTALE, 0, "device memory",
			                 "%p is device memory that is not allocated", data);
		*block = NULL;
		return ZCC_OK;
	}
	int64_t offset = (const char *)data - found->data;
	if (bytes > found->bytes - offset)
		return zcci_fail(error, ZCC_EINVAL, 0, "device memory",
		                 "%lld bytes at %lld of an allocation of %lld bytes", (long long)bytes,
		                 (long long)offset, (long long)found->bytes);
	*block = found;
	return ZCC_OK;
}

zcc_status zcci_host_place(void *device, const void *data, int64_t bytes, int32_t *place, zcc_error *error)
{
	(void)device;
	zcci_host_block *block = NULL;
	pthread_mutex_lock(&zcci_host_lock);
	zcc_status status = zcci_host_reach(data, bytes, &block, error);
	if (status == ZCC_OK)
		*place = block == NULL ? ZCC_AT_PAGEABLE : block->slab == NULL ? ZCC_AT_PINNED : ZCC_AT_DEVICE;
	pthread_mutex_unlock(&zcci_host_lock);
	return status;
}

/* ---- device memory ---- */

/* MemAvailable of this machine; INT64_MAX where it is not told. */
static int64_t available_bytes(void)
{
	long long kib = 0;
	char line[128];
	FILE *file = fopen("/proc/meminfo", "re");
	while (file != NULL && fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "MemAvailable: %lld kB", &kib) == 1)
			break;
	if (file != NULL)
		fclose(file);
	return kib > 0 ? kib * 1024 : INT64_MAX;
}

/* A block of that size with a range of its own. */
static zcc_status create(const void *owner, int64_t bytes, zcci_host_block **made, zcc_error *error)
{
	zcci_host_block *block = zcci_calloc(1, sizeof *block);
	if (block == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "device malloc", "no memory to note an allocation of %lld bytes",
		                 (long long)bytes);
	block->bytes = bytes;
	block->owner = owner;
	pthread_mutex_lock(&zcci_host_lock);
	zcc_status status = zcci_slab_take(bytes, &block->slab, &block->data, &block->real, error);
	if (status == ZCC_OK && (status = enter(block)) != ZCC_OK) {
		zcci_slab_give(block->slab, block->data);
		zcci_fail(error, status, 0, "device malloc", "no memory to note an allocation of %lld bytes",
		          (long long)bytes);
	}
	pthread_mutex_unlock(&zcci_host_lock);
	if (status != ZCC_OK) {
		zcci_free(block);
		return status;
	}
	*made = block;
	return ZCC_OK;
}

zcc_status zcci_host_malloc(void *device, int64_t bytes, void **data, zcc_error *error)
{
	int64_t available = available_bytes();
	if (bytes > available)
		return zcci_fail(error, ZCC_ENOMEM, ENOMEM, "device malloc", "%lld bytes asked for, %lld free",
		                 (long long)bytes, (long long)available);
	zcci_host_block *block = NULL;
	zcc_status status = create(device, bytes, &block, error);
	if (status == ZCC_OK)
		*data = block->data;
	return status;
}

/* Takes the block that begins at `data` out of use once nothing in flight uses it; lock held. */
static zcci_host_block *retire(const void *device, const void *data, bool pinned)
{
	zcci_host_block *block = find(data);
	if (block == NULL || block->data != data || block->owner != device || (block->slab == NULL) != pinned ||
	    block->going)
		return NULL;
	block->going = true;
	while (block->busy > 0)
		pthread_cond_wait(&zcci_host_progress, &zcci_host_lock);
	return block;
}

bool zcci_host_free(void *device, void *data)
{
	pthread_mutex_lock(&zcci_host_lock);
	zcci_host_block *block = retire(device, data, false);
	pthread_mutex_unlock(&zcci_host_lock);
	if (block == NULL)
		return false;
	bool usable = true;
	if (block->imported)
		usable = zcci_slab_restore(block->slab, block->real, block->bytes);
	else
		zcci_slab_empty(block->slab, block->real, block->bytes);
	pthread_mutex_lock(&zcci_host_lock);
	leave(block);
	if (usable)
		zcci_slab_give(block->slab, block->data);
	pthread_mutex_unlock(&zcci_host_lock);
	zcci_free(block);
	return true;
}

/* ---- pinned memory ---- */

static zcc_status no_lock(int code, int64_t bytes, zcc_error *error)
{
	struct rlimit limit;
	char allowed[48] = "without limit";
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		snprintf(allowed, sizeof allowed, "%llu bytes", (unsigned long long)limit.rlim_cur);
	pthread_mutex_lock(&zcci_host_lock);
	int64_t locked = locked_bytes;
	pthread_mutex_unlock(&zcci_host_lock);
	return zcci_fail(error, ZCC_ENOMEM, code, "pinned malloc",
	                 "%lld bytes asked for, %lld bytes pinned already, RLIMIT_MEMLOCK (ulimit -l) allows %s: %s",
	                 (long long)bytes, (long long)locked, allowed, strerror(code));
}

zcc_status zcci_host_pinned_malloc(void *device, int64_t bytes, void **data, zcc_error *error)
{
	zcci_host_block *block = zcci_calloc(1, sizeof *block);
	if (block == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "pinned malloc", "no memory to note an allocation of %lld bytes",
		                 (long long)bytes);
	void *memory;
	zcc_status status = zcc_memory_create(bytes, &memory, error);
	if (status != ZCC_OK)
		goto free_block;
	/* Not mlock: the sanitizers replace that one by nothing. */
	if (bytes > 0 && mlock2(memory, (size_t)bytes, 0) != 0) {
		status = no_lock(errno, bytes, error);
		goto free_memory;
	}
	*block = (zcci_host_block){.data = memory, .real = memory, .bytes = bytes, .owner = device};
	pthread_mutex_lock(&zcci_host_lock);
	status = enter(block);
	if (status == ZCC_OK)
		locked_bytes += bytes;
	pthread_mutex_unlock(&zcci_host_lock);
	if (status != ZCC_OK) {
		zcci_fail(error, status, 0, "pinned malloc", "no memory to note an allocation of %lld bytes",
		          (long long)bytes);
		goto free_memory;
	}
	*data = memory;
	return ZCC_OK;

free_memory:
	zcc_memory_destroy(memory, bytes);
free_block:
	zcci_free(block);
	return status;
}

bool zcci_host_pinned_free(void *device, void *data)
{
	pthread_mutex_lock(&zcci_host_lock);
	zcci_host_block *block = retire(device, data, true);
	if (block != NULL) {
		leave(block);
		locked_bytes -= block->bytes;
	}
	pthread_mutex_unlock(&zcci_host_lock);
	if (block == NULL)
		return false;
	/* Unmapping unlocks. */
	zcc_memory_destroy(block->data, block->bytes);
	zcci_free(block);
	return true;
}

/* ---- another process's ---- */

zcc_status zcci_host_export(void *device, void *data, uint8_t handle[ZCC_EXPORT_BYTES], zcc_error *error)
{
	zcc_status status = ZCC_OK;
	pthread_mutex_lock(&zcci_host_lock);
	zcci_host_block *block = find(data);
	if (block == NULL || block->data != data || block->owner != device || block->slab == NULL || block->going)
		status = zcci_fail(error, ZCC_EINVAL, 0, "device export",
		                   "%p is not the start of an allocation of this device", data);
	else if (block->imported)
		status = zcci_fail(error, ZCC_EINVAL, 0, "device export",
		                   "%p is imported itself; only the process that allocated it exports it", data);
	else
		status = zcci_host_export_write(block->slab->fd, block->data - block->slab->window, block->bytes,
		                                handle, error);
	pthread_mutex_unlock(&zcci_host_lock);
	return status;
}

zcc_status zcci_host_import(void *device, const uint8_t handle[ZCC_EXPORT_BYTES], void **data, int64_t *bytes,
                            zcc_error *error)
{
	int fd;
	int64_t offset, length;
	zcc_status status = zcci_host_export_open(handle, &fd, &offset, &length, error);
	if (status != ZCC_OK)
		return status;
	zcci_host_block *block = NULL;
	status = create(device, length, &block, error);
	if (status == ZCC_OK) {
		block->imported = true;
		status = zcci_slab_replace(block->real, length, fd, offset, error);
		if (status != ZCC_OK)
			zcci_host_free(device, block->data);
	}
	if (status == ZCC_OK) {
		*data = block->data;
		*bytes = length;
	}
	close(fd);
	return status;
}
