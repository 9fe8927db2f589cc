/* Segments that end in files. Only the bytes that belong to the segment are written; reads may span short gaps
 * between runs. */
#ifndef ZCCI_FILECOPY_H
#define ZCCI_FILECOPY_H

#include "transfer/route.h"

/* The staging of file transfers: three buffers of a third of the budget. */
typedef struct zcci_filecopy {
	char *memory;
	int64_t part_bytes;
	int64_t read_bytes; /* asked of the disk so far */
	int64_t written_bytes;
} zcci_filecopy;

/* ZCC_ENOMEM. Nothing is allocated when there are no file bytes to move. */
zcc_status zcci_filecopy_init(zcci_filecopy *copy, int64_t budget_bytes, int64_t file_bytes, zcc_error *error);
void zcci_filecopy_fini(zcci_filecopy *copy);
/* What is allocated. */
int64_t zcci_filecopy_staging(const zcci_filecopy *copy);
/* Moves some elements from `first` on, at least one, of a segment with at least one end in a file; *count is how
 * many. */
zcc_status zcci_filecopy_step(zcci_filecopy *copy, const zcci_route *route, int64_t first, int64_t *count,
                              zcc_error *error);

#endif
