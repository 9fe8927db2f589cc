#include "device/cuda/blocks.h"

#include <pthread.h>
#include <string.h>

#include "base/memory.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static zcci_cuda_block *blocks; /* by data, ascending */
static int64_t n_blocks;
static int64_t room;

/* The number of blocks that begin at or before data. */
static int64_t count_up_to(const void *data)
{
	int64_t low = 0;
	int64_t high = n_blocks;
	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		if ((uintptr_t)blocks[middle].data <= (uintptr_t)data)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

zcc_status zcci_cuda_blocks_add(const zcci_cuda_block *block)
{
	pthread_mutex_lock(&lock);
	if (n_blocks == room) {
		int64_t more = room == 0 ? 64 : 2 * room;
		zcci_cuda_block *moved = zcci_realloc(blocks, more, sizeof *moved);
		if (moved == NULL) {
			pthread_mutex_unlock(&lock);
			return ZCC_ENOMEM;
		}
		blocks = moved;
		room = more;
	}
	int64_t at = count_up_to(block->data);
	memmove(blocks + at + 1, blocks + at, (size_t)(n_blocks - at) * sizeof *blocks);
	blocks[at] = *block;
	n_blocks++;
	pthread_mutex_unlock(&lock);
	return ZCC_OK;
}

bool zcci_cuda_blocks_take(const void *data, const void *owner, int32_t place, zcci_cuda_block *block)
{
	bool found = false;
	pthread_mutex_lock(&lock);
	for (int64_t i = count_up_to(data) - 1; !found && i >= 0 && blocks[i].data == data; i--) {
		found = blocks[i].owner == owner && blocks[i].place == place;
		if (!found)
			continue;
		*block = blocks[i];
		n_blocks--;
		memmove(blocks + i, blocks + i + 1, (size_t)(n_blocks - i) * sizeof *blocks);
	}
	if (n_blocks == 0) {
		zcci_free(blocks);
		blocks = NULL;
		room = 0;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

bool zcci_cuda_blocks_find(const void *data, zcci_cuda_block *block)
{
	pthread_mutex_lock(&lock);
	int64_t at = count_up_to(data) - 1;
	/* A block of no bytes holds its first address all the same. */
	bool found = at >= 0 && ((const char *)data - blocks[at].data < blocks[at].bytes || data == blocks[at].data);
	if (found)
		*block = blocks[at];
	pthread_mutex_unlock(&lock);
	return found;
}
