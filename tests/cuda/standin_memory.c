#include "standin_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What fresh and freed memory holds, so that nothing relies on zeros. */
enum { JUNK = 0xcd };

static standin_memory *all;
static int64_t limit_bytes = (int64_t)1 << 30;
static int64_t used_bytes;
static int64_t last_number;

standin_memory *standin_find(const void *data)
{
	const char *at = data;
	for (standin_memory *m = all; m != NULL; m = m->next)
		if (at >= m->handed && at < m->handed + m->mapped_bytes)
			return m;
	return NULL;
}

void *standin_reach(const void *data, int64_t bytes, const char *what)
{
	standin_memory *m = standin_find(data);
	if (m == NULL)
		return (void *)(uintptr_t)data;
	int64_t offset = (const char *)data - m->handed;
	if (bytes < 0 || offset + bytes > m->bytes)
		standin_abort("%s: %lld bytes at %lld of an allocation of %lld", what, (long long)bytes,
		              (long long)offset, (long long)m->bytes);
	return m->real + offset;
}

static int64_t whole_pages(int64_t bytes)
{
	return (bytes + 4095) / 4096 * 4096;
}

/* Both views of the file: the one handed out and the one that work uses. */
static bool map_views(standin_memory *m)
{
	m->real = mmap(NULL, (size_t)m->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	m->handed = m->real;
	if (m->real != MAP_FAILED && !m->pinned)
		m->handed = mmap(NULL, (size_t)m->mapped_bytes, PROT_NONE, MAP_SHARED, m->fd, 0);
	return m->real != MAP_FAILED && m->handed != MAP_FAILED;
}

static standin_memory *create(int64_t bytes, bool pinned)
{
	standin_memory *m = calloc(1, sizeof *m);
	m->bytes = bytes;
	m->mapped_bytes = whole_pages(bytes);
	m->pinned = pinned;
	m->device = standin_current();
	m->fd = memfd_create("standin", MFD_CLOEXEC);
	m->number = ++last_number;
	if (m->fd < 0 || ftruncate(m->fd, m->mapped_bytes) != 0 || !map_views(m))
		standin_abort("no memory of %lld bytes", (long long)bytes);
	memset(m->real, JUNK, (size_t)m->bytes);
	m->next = all;
	all = m;
	if (!pinned)
		used_bytes += bytes;
	return m;
}

static void destroy(standin_memory *m)
{
	standin_memory **link = &all;
	while (*link != m)
		link = &(*link)->next;
	*link = m->next;
	if (!m->imported)
		memset(m->real, JUNK, (size_t)m->bytes);
	if (!m->pinned && !m->imported)
		used_bytes -= m->bytes;
	munmap(m->real, (size_t)m->mapped_bytes);
	/* Addresses of device memory are never given to anybody else. */
	if (m->handed != m->real)
		mmap(m->handed, (size_t)m->mapped_bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	close(m->fd);
	free(m);
}

int64_t standin_in_use(void)
{
	standin_lock();
	int64_t bytes = used_bytes;
	standin_unlock();
	return bytes;
}

void standin_set_memory(int64_t bytes)
{
	standin_lock();
	limit_bytes = bytes;
	standin_unlock();
}

static cudaError_t allocate(const char *call, void **data, size_t bytes, bool pinned)
{
	standin_lock();
	cudaError_t code = standin_enter(call);
	if (code == cudaSuccess && !pinned && (int64_t)bytes > limit_bytes - used_bytes)
		code = standin_answer(cudaErrorMemoryAllocation);
	if (code == cudaSuccess)
		*data = bytes > 0 ? create((int64_t)bytes, pinned)->handed : NULL;
	standin_unlock();
	return code;
}

static cudaError_t release(const char *call, void *data, bool pinned)
{
	standin_lock();
	cudaError_t code = standin_enter(call);
	standin_memory *m = data != NULL ? standin_find(data) : NULL;
	if (data != NULL && (m == NULL || m->handed != data || m->pinned != pinned || m->imported))
		standin_abort("%s of %p, which it did not give", call, data);
	if (m != NULL)
		destroy(m);
	standin_unlock();
	return code;
}

cudaError_t CUDARTAPI cudaMalloc(void **data, size_t bytes)
{
	return allocate("cudaMalloc", data, bytes, false);
}

cudaError_t CUDARTAPI cudaFree(void *data)
{
	return release("cudaFree", data, false);
}

cudaError_t CUDARTAPI cudaHostAlloc(void **data, size_t bytes, unsigned int flags)
{
	(void)flags;
	return allocate("cudaHostAlloc", data, bytes, true);
}

cudaError_t CUDARTAPI cudaFreeHost(void *data)
{
	return release("cudaFreeHost", data, true);
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	standin_lock();
	*free_bytes = (size_t)(limit_bytes - used_bytes);
	*total_bytes = (size_t)limit_bytes;
	standin_unlock();
	return cudaSuccess;
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(struct cudaPointerAttributes *about, const void *data)
{
	standin_lock();
	cudaError_t code = standin_enter("cudaPointerGetAttributes");
	standin_memory *m = standin_find(data);
	memset(about, 0, sizeof *about);
	about->type = m == NULL ? cudaMemoryTypeUnregistered : m->pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
	about->device = m != NULL ? m->device : 0;
	standin_unlock();
	return code;
}

/* ---- the driver's one call ---- */

static int address_range(unsigned long long *base, size_t *bytes, unsigned long long data)
{
	standin_lock();
	standin_memory *m = standin_find((void *)(uintptr_t)data);
	if (m != NULL) {
		*base = (unsigned long long)(uintptr_t)m->handed;
		*bytes = (size_t)m->bytes;
	}
	standin_unlock();
	return m != NULL ? 0 : 1;
}

static cudaError_t entry_point(const char *symbol, void **function, enum cudaDriverEntryPointQueryResult *result)
{
	bool known = strcmp(symbol, "cuMemGetAddressRange") == 0;
	*function = known ? (void *)address_range : NULL;
	*result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
	return cudaSuccess;
}

#if CUDART_VERSION >= 12050
cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
                                                       unsigned long long flags,
                                                       enum cudaDriverEntryPointQueryResult *result)
{
	(void)version, (void)flags;
	return entry_point(symbol, function, result);
}
#else
cudaError_t CUDARTAPI cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                              enum cudaDriverEntryPointQueryResult *result)
{
	(void)flags;
	return entry_point(symbol, function, result);
}
#endif

/* ---- other processes: through the file that /proc shows ---- */

typedef struct handle {
	int64_t pid;
	int64_t fd;
	int64_t number;
	int64_t bytes;
	int64_t device;
} handle;

cudaError_t CUDARTAPI cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *data)
{
	standin_lock();
	cudaError_t code = standin_enter("cudaIpcGetMemHandle");
	standin_memory *m = standin_find(data);
	if (code == cudaSuccess && (m == NULL || m->pinned || m->imported))
		code = standin_answer(cudaErrorInvalidValue);
	if (code == cudaSuccess) {
		handle h = {getpid(), m->fd, m->number, m->bytes, m->device};
		memset(out, 0, sizeof *out);
		memcpy(out, &h, sizeof h);
	}
	standin_unlock();
	return code;
}

/* Opened before: the same address, once more. */
static standin_memory *opened_before(const handle *h)
{
	for (standin_memory *m = all; m != NULL; m = m->next)
		if (m->imported && m->exporter == h->pid && m->number == h->number)
			return m;
	return NULL;
}

static standin_memory *open_handle(const handle *h)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)h->pid, (long long)h->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || h->pid == getpid()) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	standin_memory *m = calloc(1, sizeof *m);
	*m = (standin_memory){.bytes = h->bytes,
	                      .mapped_bytes = whole_pages(h->bytes),
	                      .device = (int)h->device,
	                      .imported = true,
	                      .fd = fd,
	                      .exporter = h->pid,
	                      .number = h->number,
	                      .next = all};
	if (!map_views(m))
		standin_abort("no import of %lld bytes", (long long)h->bytes);
	all = m;
	return m;
}

cudaError_t CUDARTAPI cudaIpcOpenMemHandle(void **data, cudaIpcMemHandle_t in, unsigned int flags)
{
	handle h;
	(void)flags;
	memcpy(&h, &in, sizeof h);
	standin_lock();
	cudaError_t code = standin_enter("cudaIpcOpenMemHandle");
	if (code == cudaSuccess) {
		standin_memory *m = opened_before(&h);
		if (m == NULL)
			m = open_handle(&h);
		if (m == NULL) {
			code = standin_answer(cudaErrorInvalidValue);
		} else {
			m->opened++;
			*data = m->handed;
		}
	}
	standin_unlock();
	return code;
}

cudaError_t CUDARTAPI cudaIpcCloseMemHandle(void *data)
{
	standin_lock();
	cudaError_t code = standin_enter("cudaIpcCloseMemHandle");
	standin_memory *m = standin_find(data);
	if (m == NULL || !m->imported || m->handed != data)
		standin_abort("cudaIpcCloseMemHandle of %p, which was not imported", data);
	if (--m->opened == 0)
		destroy(m);
	standin_unlock();
	return code;
}
