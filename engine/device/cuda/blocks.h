/* What the plug-in has allocated, by address. Any thread. */
#ifndef ZCCI_CUDA_BLOCKS_H
#define ZCCI_CUDA_BLOCKS_H

#include <stdbool.h>

#include "zcc/base.h"

typedef struct zcci_cuda_block {
	char *data;
	int64_t bytes;     /* as asked for */
	void *base;        /* of an import: what CUDA mapped; else data */
	int32_t index;     /* of the device */
	const void *owner; /* the opened device that made it: the same GPU may be open twice, as late:cuda:0 too */
	int32_t place;     /* ZCC_AT_ */
	bool imported;
} zcci_cuda_block;

/* ZCC_ENOMEM, without a message. */
zcc_status zcci_cuda_blocks_add(const zcci_cuda_block *block);
/* Takes out the owner's block that begins at data in that place; false where there is none. */
bool zcci_cuda_blocks_take(const void *data, const void *owner, int32_t place, zcci_cuda_block *block);
/* The block in which data lies; false where there is none. */
bool zcci_cuda_blocks_find(const void *data, zcci_cuda_block *block);

#endif
