/* Which of the kernels' paths runs: the best this processor has, unless a test forces another. All paths give the same
 * bits. */
#ifndef ZCCI_CPU_H
#define ZCCI_CPU_H

#include <stdbool.h>

#include "zcc/base.h"

enum {
	ZCCI_CPU_PLAIN = 0, /* C as written, on every machine: the reference */
	ZCCI_CPU_AVX2 = 1,  /* AVX2 with FMA and F16C */
	ZCCI_CPU_PATHS
};

/* Any thread. */
int32_t zcci_cpu_path(void);
/* "plain", "avx2". Static. */
const char *zcci_cpu_path_name(int32_t path);
/* Tests and benches only: all kernels take this path from now on; false, and no change, where this machine cannot. */
bool zcci_cpu_force(int32_t path);
/* The path that this machine would pick by itself. */
int32_t zcci_cpu_best(void);

/* Kernels compute with round to nearest even and with denormals, whatever the calling thread is set to (libraries built
 * for speed set it to flush denormals): enter returns what leave puts back. */
uint32_t zcci_float_enter(void);
void zcci_float_leave(uint32_t mode);

#endif
