/* What the files of the stand-in share. All of it under one lock. */
#ifndef ZCC_TESTS_CUDA_STANDIN_IMPL_H
#define ZCC_TESTS_CUDA_STANDIN_IMPL_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "standin.h"

void standin_lock(void);
void standin_unlock(void);

/* Counts a call; the code that it has to answer with at once, cudaSuccess to go on. */
cudaError_t standin_enter(const char *call);
void standin_note(const char *what);
/* Remembers a code for cudaGetLastError. */
cudaError_t standin_answer(cudaError_t code);
/* Ends the program: it did what no program may. */
void standin_abort(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

int standin_current(void);

/* An allocation. */
typedef struct standin_memory {
	struct standin_memory *next;
	char *handed; /* device memory: without access rights */
	char *real;
	int64_t bytes;
	int64_t mapped_bytes;
	int device;
	bool pinned;
	bool imported;
	int opened; /* how often an import has been opened */
	int fd;
	int64_t exporter;
	int64_t number; /* of the exporter's allocation */
} standin_memory;

/* The allocation in which an address lies, NULL: pageable. */
standin_memory *standin_find(const void *data);
/* Where the bytes really are. Ends the program where they leave their allocation. */
void *standin_reach(const void *data, int64_t bytes, const char *what);

/* Runs all that was submitted to any stream. */
void standin_drain(void);

/* A kernel's reference: argument as the kernel's, addresses still those of the device. */
typedef void standin_reference(const void *argument);
/* Its name and the size of its argument; NULL for a function that is none. */
const char *standin_kernel(const void *function, int32_t *argument_bytes, standin_reference **reference);

#endif
