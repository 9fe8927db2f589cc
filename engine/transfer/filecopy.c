#include "transfer/filecopy.h"

#include "base/memory.h"
#include "base/status.h"

enum {
	PART_MAX_BYTES = 1 << 20,
	/* A run of this length is read or written where it is; shorter ones are gathered first. */
	DIRECT_BYTES = 4096,
	/* One call at most, so that messages are looked after in between. */
	STEP_BYTES = 8 << 20,
	/* Runs whose beginnings lie no farther apart are read with what lies between them: a call costs as much as reading this. */
	SIEVE_STEP_BYTES = 8192
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

static zcc_status read_file(zcci_filecopy *copy, zcc_file *file, int64_t at_bytes, void *data, int64_t bytes, zcc_error *error)
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

/* How many whole runs from element `first` on, which begins one, lie on one line and near enough to be read in one call. */
static int64_t sieve_runs(const zcci_view *view, int64_t first, int64_t count, int64_t elem_bytes, int64_t room_bytes)
{
	int32_t last = view->ndim - 1;
	bool gaps = last >= 0 && view->strides[last] != 1;
	int32_t axis = gaps ? last : last - 1;
	int64_t run = gaps ? 1 : zcci_view_run(view, first);
	if (axis < 0 || count < 2 * run || (!gaps && run != view->shape[last]))
		return 1;
	int64_t step_bytes = view->strides[axis] * elem_bytes;
	if (step_bytes < run * elem_bytes || step_bytes > SIEVE_STEP_BYTES || room_bytes < run * elem_bytes)
		return 1;
	int64_t line = view->shape[axis] - first / run % view->shape[axis];
	int64_t fit = (room_bytes - run * elem_bytes) / step_bytes + 1;
	return least(least(line, count / run), fit);
}

/* Source elements from the file to dense bytes. */
static zcc_status gather(zcci_filecopy *copy, const zcci_route *route, int64_t first, int64_t count, char *dense,
                         zcc_error *error)
{
	char *sieve = copy->memory + 2 * copy->part_bytes;
	const zcci_view *view = &route->source;
	int64_t elem_bytes = route->source_elem_bytes;
	while (count > 0) {
		int64_t at_bytes = route->from.at_bytes + zcci_view_offset(view, first) * elem_bytes;
		int64_t run = least(zcci_view_run(view, first), count);
		int64_t runs = sieve_runs(view, first, count, elem_bytes, copy->part_bytes);
		int64_t n = run * runs;
		if (runs == 1) {
			zcc_status status = read_file(copy, route->from.file, at_bytes, dense, run * elem_bytes, error);
			if (status != ZCC_OK)
				return status;
		} else {
			int64_t step = zcci_view_offset(view, first + run) - zcci_view_offset(view, first);
			zcci_view rows = {.ndim = 2, .shape = {runs, run}, .strides = {step, 1}};
			zcc_status status =
				read_file(copy, route->from.file, at_bytes, sieve, ((runs - 1) * step + run) * elem_bytes, error);
			if (status != ZCC_OK)
				return status;
			zcci_pack(dense, sieve, &rows, 0, n, (int32_t)elem_bytes);
		}
		dense += n * elem_bytes;
		first += n;
		count -= n;
	}
	return ZCC_OK;
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

static zcc_status move_direct(zcci_filecopy *copy, const zcci_route *route, int64_t first, int64_t count, zcc_error *error)
{
	int64_t bytes = count * route->source_elem_bytes;
	int64_t source_at = zcci_view_offset(&route->source, first) * route->source_elem_bytes;
	int64_t target_at = zcci_view_offset(&route->target, first) * route->target_elem_bytes;
	if (route->from.file != NULL)
		return read_file(copy, route->from.file, route->from.at_bytes + source_at, route->to.data + target_at, bytes, error);
	return write_file(copy, route->to.file, route->to.at_bytes + target_at, route->from.data + source_at, bytes, error);
}

zcc_status zcci_filecopy_step(zcci_filecopy *copy, const zcci_route *route, int64_t first, int64_t *count, zcc_error *error)
{
	char *dense = copy->memory;
	char *converted = copy->memory + copy->part_bytes;
	int64_t n = direct_run(route, first);
	if (n > 0) {
		*count = n;
		return move_direct(copy, route, first, n, error);
	}
	int64_t widest = route->source_elem_bytes > route->target_elem_bytes ? route->source_elem_bytes : route->target_elem_bytes;
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
