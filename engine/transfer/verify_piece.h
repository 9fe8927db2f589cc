/* Stored pieces of a parameter compared with each other, and the padding between them. */
#ifndef ZCCI_VERIFY_PIECE_H
#define ZCCI_VERIFY_PIECE_H

#include "store/ranged.h"
#include "zcc/affine.h"

/* What a comparison is done with: bounded memory, whatever is compared. */
typedef struct zcci_checker {
	char *memory;
	zcci_ranged ranged;
	int64_t compared_bytes;
} zcci_checker;

/* ZCC_ENOMEM. */
zcc_status zcci_checker_init(zcci_checker *checker, zcc_error *error);
void zcci_checker_fini(zcci_checker *checker);

/* The shard of one parameter on one rank, dense in a file. */
typedef struct zcci_stored {
	const char *param;
	const char *side; /* "source" or "target" */
	int32_t rank;
	int32_t dtype;
	zcc_file *file;
	int64_t at_bytes;
} zcci_stored;

/* A block of a parameter. */
typedef struct zcci_box {
	int32_t ndim;
	int64_t origin_elems[ZCC_MAX_NDIM];
	int64_t shape_elems[ZCC_MAX_NDIM];
} zcci_box;

/* Cuts `box` down to what lies within another one too; returns the elements left. */
int64_t zcci_box_meet(zcci_box *box, const int64_t *origin_elems, const int64_t *shape_elems);

/* Every element of `box`, which lies in both pieces, is in `mine` what `reference` makes it: bit for bit, after
 * conversion where dtype or scale differ. ZCC_EVERIFY names the first element that is not. ZCC_EIO, ZCC_EINTR. */
zcc_status zcci_piece_compare(zcci_checker *checker, const zcci_box *box, const zcci_stored *mine,
                              const zcc_piece *my_piece, const zcci_stored *reference, const zcc_piece *reference_piece,
                              zcc_error *error);

/* Elements of a shard that lie in none of its pieces are zero bytes. ZCC_EVERIFY names the first that is not. ZCC_EIO,
 * ZCC_EINTR. */
zcc_status zcci_padding_check(zcci_checker *checker, const zcci_stored *shard, const zcc_shard_info *info,
                              const zcc_piece *pieces, int64_t n_pieces, zcc_error *error);

#endif
