/* What the reader and the writer of safetensors files share. Format: https://github.com/huggingface/safetensors,
 * "Format". */
#ifndef ZCCI_SAFETENSORS_H
#define ZCCI_SAFETENSORS_H

#include "zcc/store.h"

/* The reference implementation's limit, so that nobody is made to read gigabytes of header. */
#define ZCCI_HEADER_MAX_BYTES ((int64_t)100000000)
/* Before the header: its length, little endian. */
enum { ZCCI_HEADER_LENGTH_BYTES = 8 };
#define ZCCI_METADATA_KEY "__metadata__"

/* Elements and bytes of a tensor; ZCC_EOVERFLOW where extents (zeros left out, so that strides fit too) do not multiply
 * out to 63 bits. No message: the caller knows the tensor. */
zcc_status zcci_tensor_size(int32_t dtype, int32_t ndim, const int64_t *shape_elems, int64_t *elems, int64_t *bytes);

#endif
