#include "device/cuda/range.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

/* The runtime has no such call, the driver has: cuMemGetAddressRange of its version 3.2 interface. It is asked for by
 * name, so that the plug-in needs no library of the driver to be opened. */
typedef int address_range(unsigned long long *base, size_t *bytes, unsigned long long data);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static address_range *ask;

static void look_up(void)
{
	void *found = NULL;
	enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
	cudaError_t code =
	        cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, 3020, cudaEnableDefault, &result);
#else
	cudaError_t code = cudaGetDriverEntryPoint("cuMemGetAddressRange", &found, cudaEnableDefault, &result);
#endif
	if (code == cudaSuccess && result == cudaDriverEntryPointSuccess)
		ask = (address_range *)found;
	else
		cudaGetLastError();
}

bool zcci_cuda_range(const void *data, void **base, int64_t *bytes)
{
	unsigned long long from = 0;
	size_t length = 0;
	pthread_once(&once, look_up);
	if (ask == NULL || ask(&from, &length, (unsigned long long)(uintptr_t)data) != 0)
		return false;
	*base = (void *)(uintptr_t)from;
	*bytes = (int64_t)length;
	return true;
}
