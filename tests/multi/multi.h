/* Checks for programs of several processes: what fails in one process ends all of them at once. */
#ifndef ZCC_TESTS_MULTI_H
#define ZCC_TESTS_MULTI_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zcc.h"

#define CHECK(condition, ...)                                                                                          \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			int rank_;                                                                                     \
			MPI_Comm_rank(MPI_COMM_WORLD, &rank_);                                                         \
			fprintf(stderr, "%s:%d: process %d: %s is false: ", __FILE__, __LINE__, rank_, #condition);    \
			fprintf(stderr, __VA_ARGS__);                                                                  \
			fprintf(stderr, "\n");                                                                         \
			MPI_Abort(MPI_COMM_WORLD, 1);                                                                  \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

/* A call that must succeed; `error` is the zcc_error it was given. */
#define MUST(call)                                                                                                     \
	do {                                                                                                           \
		zcc_status status_ = (call);                                                                           \
		CHECK(status_ == ZCC_OK, "%s: %s", zcc_status_name(status_), error.message);                           \
	} while (0)

/* From ZCC_SEED, or `usual`; printed by process 0. */
static inline long long multi_seed(long long usual)
{
	const char *text = getenv("ZCC_SEED");
	long long seed = text != NULL ? atoll(text) : usual;
	int rank;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0)
		printf("ZCC_SEED=%lld\n", seed);
	return seed;
}

#endif
