/* Random layouts, shards filled and judged element by element from the maps alone, and the transfer between them. */
#ifndef ZCC_TESTS_SHARDS_H
#define ZCC_TESTS_SHARDS_H

#include <stdbool.h>

#include "multi.h"

/* splitmix64; the same on every process for the same seed. */
typedef struct dice {
	uint64_t state;
} dice;
uint64_t dice_roll(dice *d);
/* 0 … n − 1 */
int64_t dice_below(dice *d, int64_t n);

enum { MAX_PARAMS = 64 };

typedef struct param {
	char name[32];
	int32_t ndim;
	int64_t shape[4];
	int32_t source_dtype;
	int32_t target_dtype;
	double source_scale;
	double target_scale;
} param;

/* A layout of these parameters on a random mesh of at most max_ranks ranks: cuts, replicas, flat cuts. */
zcc_layout *random_layout(dice *d, const param *params, int32_t n_params, int32_t side, int32_t max_ranks);
/* One axis of n_ranks: what axis 0 of every parameter is cut over, or where `flat`, the flattened parameter. */
zcc_layout *simple_layout(const param *params, int32_t n_params, int32_t side, int32_t n_ranks, int32_t dim,
                          int32_t flat);
/* A built plan; holders are chosen by dice. Both layouts may be destroyed. */
zcc_plan *random_plan(dice *d, zcc_layout *target, zcc_layout *source);

/* A plan with endpoints and everything bound. */
typedef struct job {
	zcc_comm *comm;
	const param *params;
	int32_t n_params;
	uint64_t seed;
	zcc_layout *layouts[2];
	int32_t n_ranks[2];
	const int32_t *ranks[2];
	int32_t *process[2];      /* endpoint of each rank */
	struct shard **shards[2]; /* by rank, then parameter */
	zcc_file **files[2];      /* by rank */
	char folder[64];          /* where file endpoints live, "" without */
	zcc_transfer *transfer;
} job;

/* From here on jobs bind memory of this device, and the bytes go by this transport. NULL, NULL: ordinary memory again.
 */
void jobs_use_device(zcc_device *device, const char *transport);

/* Fills sources, clears targets, places and binds (each process in another order). process[] of file ranks:
 * ZCC_ENDPOINT_FILE. */
void job_open(job *j, zcc_comm *comm, const param *params, int32_t n_params, uint64_t seed, zcc_plan *plan,
              zcc_layout *target, zcc_layout *source, int32_t *const process[2], const zcc_transfer_options *options);
/* Every byte of every target is as it was before. */
void job_clear_targets(job *j);
/* Compares every byte of every target, padding and surroundings too. Collective. */
void job_check(job *j);
void job_close(job *j);

/* zcc_transfer_run in slices of so many ns: bytes done never fall, never pass the total, and reach it where all goes
 * well. */
zcc_status run_in_slices(zcc_transfer *transfer, int64_t slice_ns, zcc_transfer_result *result, zcc_error *error);

/* Endpoints dealt out by dice: process of each of n ranks, files with this chance in 100. Freed by the caller. */
int32_t *random_endpoints(dice *d, int32_t n_ranks, int32_t size, int32_t file_chance);

#endif
