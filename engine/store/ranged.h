/* Strided ranges of a file, read densely. */
#ifndef ZCCI_RANGED_H
#define ZCCI_RANGED_H

#include "kernels/strided.h"
#include "zcc/store.h"

/* What a read is done with. */
typedef struct zcci_ranged {
	void *scratch; /* the caller's; may be NULL with scratch_bytes = 0, every run is then read by itself */
	int64_t scratch_bytes;
	int64_t read_bytes; /* asked of the file so far, short gaps between runs included */
} zcci_ranged;

/* Elements [first, first + count) of a view whose element 0 lies at at_bytes of the file, into `dense`. Long runs go
 * straight to their place, short ones are read together with the gaps between them where that is cheaper than a call
 * each. As zcc_file_read. */
zcc_status zcci_ranged_read(zcci_ranged *ranged, zcc_file *file, int64_t at_bytes, const zcci_view *view, int64_t first,
                            int64_t count, int32_t elem_bytes, void *dense, zcc_error *error);

#endif
