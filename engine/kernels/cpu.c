#include "kernels/cpu.h"

#include <stdatomic.h>
#include <stddef.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

static _Atomic int32_t forced = -1;

int32_t zcci_cpu_best(void)
{
#ifdef __x86_64__
	/* Tells also whether the system saves the wide registers. */
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
		return ZCCI_CPU_AVX2;
#endif
	return ZCCI_CPU_PLAIN;
}

int32_t zcci_cpu_path(void)
{
	int32_t path = atomic_load_explicit(&forced, memory_order_relaxed);
	return path >= 0 ? path : zcci_cpu_best();
}

const char *zcci_cpu_path_name(int32_t path)
{
	static const char *const names[] = {"plain", "avx2"};
	return path >= 0 && path < ZCCI_CPU_PATHS ? names[path] : NULL;
}

bool zcci_cpu_force(int32_t path)
{
	if (path != ZCCI_CPU_PLAIN && path != zcci_cpu_best())
		return false;
	atomic_store_explicit(&forced, path, memory_order_relaxed);
	return true;
}

#ifdef __x86_64__

/* Round to nearest, all faults masked, neither denormal mode. The sticky flags are nobody's business. */
enum { MXCSR_USUAL = 0x1f80, MXCSR_FLAGS = 0x3f };

uint32_t zcci_float_enter(void)
{
	uint32_t mode = _mm_getcsr();
	if ((mode & ~(uint32_t)MXCSR_FLAGS) != MXCSR_USUAL)
		_mm_setcsr(MXCSR_USUAL);
	return mode;
}

void zcci_float_leave(uint32_t mode)
{
	if ((mode & ~(uint32_t)MXCSR_FLAGS) != MXCSR_USUAL)
		_mm_setcsr(mode);
}

#else

uint32_t zcci_float_enter(void)
{
	return 0;
}

void zcci_float_leave(uint32_t mode)
{
	(void)mode;
}

#endif
