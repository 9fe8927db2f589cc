#include "transfer/filecopy.h"

#include "base/memory.h"
#include "base/status.h"
#include "store/ranged.h"

enum {
	PART_MAX_BYTES = 1 << 20,
	/* A run of this length is read or written where it is; shorter ones are gathered first. */
	DIRECT_BYTES = 4096,
	/* One call at most, so that messages are looked after in between. */
	STEP_BYTES = 8 << 20
};

zcc_status zcci_filecopy_init(zcci_filecopy *copy, int64_t budget_bytes, int64_t file_bytes, zcc_error *error)
{
	*copy = (zcci_filecopy){0};
	if (file_bytes == 0)
		return ZCC_OK;
	copy->part_bytes = (budget_bytes / 3 < PART_MAX_BYTES ? budget_bytes / 3 : PART_MAX_BYTES) & ~(int64_t)15;
	copy->memory = zcci_malloc(zcci_filecopy_staging(copy));
	if (copy->memory == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "transfer run", "no memory for %lld bytes of file staging",
		                 (long long)zcci_filecopy_staging(copy));
	return ZCC_OK;
}

void zcci_filecopy_fini(zcci_filecopy *copy)
{
	zcci_free(copy->memory);
	copy->memory = NULL;
}

int64_t zcci_filecopy_staging(const zcci_filecopy *copy)
{
	return 3 * copy->part_bytes;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static zcc_status read_file(zcci_filecopy *copy, zcc_file *file, int64_t at_bytes, void *data, int64_t bytes,
                            zcc_error *error)
{
	copy->read_bytes += bytes;
	return zcc_file_read(file, at_bytes, data, bytes, error);
}

static zcc_status write_file(zcci_filecopy *copy, zcc_file *file, int64_t at_bytes, const void *data, int64_t bytes,
                             zcc_error *error)
{
	copy->written_bytes += bytes;
	return zcc_file_write(file, at_bytes, data, bytes, error);
}

/* Source elements from the file to dense bytes. */
static zcc_status gather(zcci_filecopy *copy, const zcci_route *route, int64_t first, int64_t count, char *dense,
                         zcc_error *error)
{
	zcci_ranged ranged = {.scratch = copy->memory + 2 * copy->part_bytes, .scratch_bytes = copy->part_bytes};
	zcc_status status = zcci_ranged_read(&ranged, route->from.file, route->from.at_bytes, &route->source, first,
	                                     count, route->source_elem_bytes, dense, error);
	copy->read_bytes += ranged.read_bytes;
	return status;
}

/* Dense target elements to the file, run by run: what lies between them may be another process's to write. */
static zcc_status scatter(zcci_filecopy *copy, const zcci_route *route, int64_t first, int64_t count, const char *dense,
                          zcc_error *error)
{
	int64_t elem_bytes = route->target_elem_bytes;
	while (count > 0) {
		int64_t run = least(zcci_view_run(&route->target, first), count);
		int64_t at_bytes = route->to.at_bytes + zcci_view_offset(&route->target, first) * elem_bytes;
		zcc_status status = write_file(copy, route->to.file, at_bytes, dense, run * elem_bytes, error);
		if (status != ZCC_OK)
			return status;
		dense += run * elem_bytes;
		first += run;
		count -= run;
	}
	return ZCC_OK;
}

/* A run long enough to go straight between file and memory: its elements, else 0. */
static int64_t direct_run(const zcci_route *route, int64_t first)
{
	if (route->converts || (route->from.file != NULL && route->to.file != NULL))
		return 0;
	int64_t run = least(zcci_view_run(&route->source, first), zcci_view_run(&route->target, first));
	int64_t elem_bytes = route->source_elem_bytes;
	return run * elem_bytes >= DIRECT_BYTES ? least(run, STEP_BYTES / elem_bytes) : 0;
}

static zcc_status move_direct(zcci_filecopy *copy, const zcci_route *route, int64_t first, int64_t count,
                              zcc_error *error)
{
	int64_t bytes = count * route->source_elem_bytes;
	int64_t source_at = zcci_view_offset(&route->source, first) * route->source_elem_bytes;
	int64_t target_at = zcci_view_offset(&route->target, first) * route->target_elem_bytes;
	if (route->from.file != NULL)
		return read_file(copy, route->from.file, route->from.at_bytes + source_at, route->to.data + target_at,
		                 bytes, error);
	return write_file(copy, route->to.file, route->to.at_bytes + target_at, route->from.data + source_at, bytes,
	                  error);
}

zcc_status zcci_filecopy_step(zcci_filecopy *copy, const zcci_route *route, int64_t first, int64_t *count,
                              zcc_error *error)
{
	char *dense = copy->memory;
	char *converted = copy->memory + copy->part_bytes;
	int64_t n = direct_run(route, first);
	if (n > 0) {
		*count = n;
		return move_direct(copy, route, first, n, error);
	}
	int64_t widest = route->source_elem_bytes;
	if (widest < route->target_elem_bytes)
		widest = route->target_elem_bytes;
	n = least(route->segment->elems - first, copy->part_bytes / widest);
	*count = n;
	zcc_status status = ZCC_OK;
	if (route->from.file != NULL)
		status = gather(copy, route, first, n, dense, error);
	else
		zcci_route_pack(route, first, n, dense);
	if (status != ZCC_OK)
		return status;
	if (route->to.file == NULL) {
		zcci_route_unpack(route, first, n, dense);
		return ZCC_OK;
	}
	if (!route->converts)
		converted = dense;
	else
		zcci_convert(converted, route->target_dtype, dense, route->source_dtype, route->segment->factor, n);
	return scatter(copy, route, first, n, converted, error);
}
