#include "zcc/base.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if !defined(ZCC_VERSION) || !defined(ZCC_BUILD_TYPE)
#error "the build gives ZCC_VERSION and ZCC_BUILD_TYPE"
#endif

const char *zcc_version(void)
{
	return ZCC_VERSION;
}

const char *zcc_build_type(void)
{
	return ZCC_BUILD_TYPE;
}

int64_t zcc_clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Written by the handler, read by any thread; lock-free wherever the engine is built. */
static atomic_int signal_seen;

static void note_signal(int number)
{
	signal_seen = number;
}

void zcc_interrupt_watch(void)
{
	struct sigaction action = {.sa_handler = note_signal};
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

int32_t zcc_interrupted(void)
{
	return signal_seen;
}

int64_t zcc_stop_ns(void)
{
	const char *told = getenv("OMPI_MCA_odls_base_sigkill_timeout");
	long seconds = told != NULL ? strtol(told, NULL, 10) : 0;
	return (seconds < 1 ? 1 : seconds > 3600 ? 3600 : seconds) * (int64_t)1000000000;
}

/* Indexed by dtype; the order of the enum in zcc/base.h. */
static const struct {
	const char *name;
	int32_t bytes;
} dtypes[] = {
        {NULL, 0},      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
        {"F8_E8M0", 1}, {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
        {"U32", 4},     {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8},
};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

int32_t zcc_dtype_bytes(int32_t dtype)
{
	return dtype > 0 && dtype < N_DTYPES ? dtypes[dtype].bytes : 0;
}

const char *zcc_dtype_name(int32_t dtype)
{
	return dtype > 0 && dtype < N_DTYPES ? dtypes[dtype].name : NULL;
}

int32_t zcc_dtype_parse(const char *name)
{
	for (int32_t i = 1; i < N_DTYPES; i++)
		if (strcmp(dtypes[i].name, name) == 0)
			return i;
	return 0;
}
