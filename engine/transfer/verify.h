/* A verification, as its parts see it: made and bound in verify.c, carried out in verify_run.c. */
#ifndef ZCCI_VERIFY_H
#define ZCCI_VERIFY_H

#include "zcc/transfer.h"

/* Where one rank's shard of one parameter lies. */
typedef struct zcci_binding {
	zcc_file *file; /* NULL until bound */
	int64_t at_bytes;
	int64_t elems; /* of the shard; −1 where the rank has none */
} zcci_binding;

typedef struct zcci_verify_half {
	zcc_layout *layout;
	const char *name;
	const int32_t *ranks; /* the layout's */
	int32_t n_ranks;
	int32_t n_params;
	zcci_binding *bindings; /* by parameter, then by place in ranks */
} zcci_verify_half;

typedef struct zcci_verify_job zcci_verify_job;

struct zcc_verify {
	zcci_verify_half halves[2]; /* by side */
	int32_t *source_params;     /* by target parameter */
	zcci_verify_job *job;       /* NULL: nothing has been begun */
};

static inline zcci_binding *zcci_verify_binding(const zcci_verify_half *half, int32_t param, int32_t place)
{
	return &half->bindings[(int64_t)param * half->n_ranks + place];
}

/* Place of a rank in the half's ranks, −1 where it is not there. */
int32_t zcci_verify_place(const zcci_verify_half *half, int32_t rank);

/* Ends what has been begun. */
void zcci_verify_end(zcc_verify *verify);

#endif
