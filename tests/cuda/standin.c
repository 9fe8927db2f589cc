#include "standin_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread int current_device;
static __thread cudaError_t last_error;
static cudaError_t broken; /* what every call answers after work has failed */

void standin_lock(void)
{
	pthread_mutex_lock(&mutex);
}

void standin_unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

void standin_abort(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "stand-in for CUDA: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	abort();
}

/* ---- counting and failing ---- */

enum { MAX_NAMES = 64 };
static struct {
	char name[40];
	int64_t count;
	int64_t fail_at; /* the count at which it fails, 0 = never */
	int32_t code;
} counters[MAX_NAMES];

static int find_counter(const char *what)
{
	for (int i = 0; i < MAX_NAMES; i++) {
		if (strcmp(counters[i].name, what) == 0)
			return i;
		if (counters[i].name[0] == '\0') {
			snprintf(counters[i].name, sizeof counters[i].name, "%s", what);
			return i;
		}
	}
	standin_abort("more than %d names", MAX_NAMES);
}

static void arm(const char *what, int64_t n, int32_t code)
{
	int i = find_counter(what);
	counters[i].fail_at = n > 0 ? counters[i].count + n : 0;
	counters[i].code = code;
}

static void read_environment(void)
{
	static bool read;
	char name[40];
	long long n;
	int code;
	const char *text = getenv("STANDIN_FAIL");
	if (!read && text != NULL && sscanf(text, "%39[^,],%lld,%d", name, &n, &code) == 3)
		arm(name, n, code);
	read = true;
}

static bool due(const char *what, cudaError_t *code)
{
	read_environment();
	int i = find_counter(what);
	*code = (cudaError_t)counters[i].code;
	return ++counters[i].count == counters[i].fail_at;
}

void standin_note(const char *what)
{
	cudaError_t code;
	if (due(what, &code))
		broken = code;
}

cudaError_t standin_answer(cudaError_t code)
{
	if (code != cudaSuccess && code != cudaErrorNotReady)
		last_error = code;
	return code;
}

cudaError_t standin_enter(const char *call)
{
	cudaError_t code;
	if (due(call, &code))
		return standin_answer(code);
	return standin_answer(broken);
}

int64_t standin_count(const char *what)
{
	standin_lock();
	int64_t count = counters[find_counter(what)].count;
	standin_unlock();
	return count;
}

void standin_fail(const char *what, int64_t n, int32_t code)
{
	standin_lock();
	arm(what, n, code);
	if (n == 0)
		broken = cudaSuccess;
	standin_unlock();
}

/* ---- errors ---- */

cudaError_t CUDARTAPI cudaGetLastError(void)
{
	cudaError_t code = last_error;
	last_error = cudaSuccess;
	return code;
}

const char *CUDARTAPI cudaGetErrorName(cudaError_t code)
{
	switch (code) {
	case cudaErrorInvalidValue:
		return "cudaErrorInvalidValue";
	case cudaErrorMemoryAllocation:
		return "cudaErrorMemoryAllocation";
	case cudaErrorNoDevice:
		return "cudaErrorNoDevice";
	case cudaErrorInsufficientDriver:
		return "cudaErrorInsufficientDriver";
	case cudaErrorLaunchFailure:
		return "cudaErrorLaunchFailure";
	case cudaErrorInvalidConfiguration:
		return "cudaErrorInvalidConfiguration";
	case cudaErrorInvalidDevice:
		return "cudaErrorInvalidDevice";
	default:
		return "cudaErrorUnknown";
	}
}

const char *CUDARTAPI cudaGetErrorString(cudaError_t code)
{
	switch (code) {
	case cudaErrorInvalidValue:
		return "invalid argument";
	case cudaErrorMemoryAllocation:
		return "out of memory";
	case cudaErrorNoDevice:
		return "no CUDA-capable device is detected";
	case cudaErrorInsufficientDriver:
		return "CUDA driver version is insufficient for CUDA runtime version";
	case cudaErrorLaunchFailure:
		return "unspecified launch failure";
	case cudaErrorInvalidConfiguration:
		return "invalid configuration argument";
	case cudaErrorInvalidDevice:
		return "invalid device ordinal";
	default:
		return "unknown error";
	}
}

/* ---- devices ---- */

enum { N_DEVICES = 2 };

int standin_current(void)
{
	return current_device;
}

void standin_set_device(int32_t device)
{
	current_device = device;
}

int32_t standin_device(void)
{
	return current_device;
}

void standin_fail_alloc(int64_t n)
{
	zcci_fail_alloc(n);
}

int32_t standin_fail_alloc_hit(void)
{
	return zcci_fail_alloc_hit();
}

cudaError_t CUDARTAPI cudaDriverGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGetDeviceCount(int *count)
{
	standin_lock();
	cudaError_t code = standin_enter("cudaGetDeviceCount");
	standin_unlock();
	*count = code == cudaSuccess ? N_DEVICES : 0;
	return code;
}

cudaError_t CUDARTAPI cudaGetDevice(int *device)
{
	*device = current_device;
	return cudaSuccess;
}

cudaError_t CUDARTAPI cudaSetDevice(int device)
{
	standin_lock();
	cudaError_t code = standin_enter("cudaSetDevice");
	standin_unlock();
	if (code == cudaSuccess && (device < 0 || device >= N_DEVICES))
		return standin_answer(cudaErrorInvalidDevice);
	if (code == cudaSuccess)
		current_device = device;
	return code;
}

cudaError_t CUDARTAPI cudaGetDeviceProperties(struct cudaDeviceProp *about, int device)
{
	memset(about, 0, sizeof *about);
	if (device < 0 || device >= N_DEVICES)
		return standin_answer(cudaErrorInvalidDevice);
	snprintf(about->name, sizeof about->name, "stand-in %d", device);
	memset(about->uuid.bytes, 0x10 + device, sizeof about->uuid.bytes);
	about->totalGlobalMem = (size_t)1 << 30;
	about->major = 9;
	about->multiProcessorCount = 3;
	about->memPitch = 0x7fffffff;
	return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void)
{
	standin_lock();
	cudaError_t code = standin_enter("cudaDeviceSynchronize");
	standin_drain();
	standin_unlock();
	return code;
}
