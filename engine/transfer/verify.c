#include "transfer/verify.h"

#include <inttypes.h>

#include "affine/layout.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernels/strided.h"
#include "store/file.h"

int32_t zcci_verify_place(const zcci_verify_half *half, int32_t rank)
{
	int32_t low = 0, high = half->n_ranks;
	while (low < high) {
		int32_t middle = low + (high - low) / 2;
		if (half->ranks[middle] < rank)
			low = middle + 1;
		else
			high = middle;
	}
	return low < half->n_ranks && half->ranks[low] == rank ? low : -1;
}

/* ---- making ---- */

static zcc_status open_half(zcci_verify_half *h, zcc_layout *layout, const char *name, zcc_error *error)
{
	h->layout = zcci_layout_retain(layout);
	h->name = name;
	h->ranks = zcc_layout_ranks(layout, &h->n_ranks);
	h->n_params = zcc_layout_params(layout);
	h->bindings = zcci_calloc((int64_t)h->n_params * h->n_ranks, sizeof *h->bindings);
	if (h->bindings == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "verify create",
		                 "no memory for the places of %" PRId32 " parameters on %" PRId32 " ranks", h->n_params,
		                 h->n_ranks);
	for (int32_t p = 0; p < h->n_params; p++)
		for (int32_t i = 0; i < h->n_ranks; i++) {
			zcc_shard_info info;
			zcc_status status = zcc_layout_shard(layout, p, h->ranks[i], &info, error);
			if (status != ZCC_OK)
				return status;
			zcci_verify_binding(h, p, i)->elems = info.present ? info.elems : -1;
		}
	return ZCC_OK;
}

static zcc_status refuse_missing(const zcc_layout *there, const zcc_layout *here, const char *here_name,
                                 zcc_error *error)
{
	for (int32_t p = 0; p < zcc_layout_params(there); p++) {
		zcc_param_info info;
		zcc_status status = zcc_layout_param(there, p, &info, error);
		if (status != ZCC_OK)
			return status;
		if (zcc_layout_find(here, info.name) < 0)
			return zcci_fail(error, ZCC_EMAP, 0, "verify create", "parameter %s is not in the %s layout",
			                 info.name, here_name);
	}
	return ZCC_OK;
}

/* Finds the source parameter of every target parameter. */
static zcc_status pair(zcc_verify *verify, zcc_error *error)
{
	const zcci_verify_half *source = &verify->halves[ZCC_SOURCE], *target = &verify->halves[ZCC_TARGET];
	zcc_status status = refuse_missing(source->layout, target->layout, target->name, error);
	if (status == ZCC_OK)
		status = refuse_missing(target->layout, source->layout, source->name, error);
	if (status != ZCC_OK)
		return status;
	verify->source_params = zcci_calloc(target->n_params, sizeof *verify->source_params);
	if (verify->source_params == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "verify create", "no memory for %" PRId32 " parameters",
		                 target->n_params);
	for (int32_t p = 0; p < target->n_params; p++) {
		zcc_param_info mine, other;
		status = zcc_layout_param(target->layout, p, &mine, error);
		if (status != ZCC_OK)
			return status;
		verify->source_params[p] = zcc_layout_find(source->layout, mine.name);
		status = zcc_layout_param(source->layout, verify->source_params[p], &other, error);
		if (status != ZCC_OK)
			return status;
		if (mine.ndim != other.ndim)
			return zcci_fail(error, ZCC_EMAP, 0, "verify create",
			                 "parameter %s has %" PRId32 " axes in the target layout, %" PRId32
			                 " in the source layout",
			                 mine.name, mine.ndim, other.ndim);
		for (int32_t d = 0; d < mine.ndim; d++)
			if (mine.shape_elems[d] != other.shape_elems[d])
				return zcci_fail(error, ZCC_EMAP, 0, "verify create",
				                 "parameter %s, axis %" PRId32 ": %" PRId64
				                 " in the target layout, %" PRId64 " in the source layout",
				                 mine.name, d, mine.shape_elems[d], other.shape_elems[d]);
		if (!zcci_convert_supported(mine.dtype, other.dtype, 1))
			return zcci_fail(error, ZCC_ELAYOUT, 0, "verify create",
			                 "parameter %s: no conversion from %s to %s", mine.name,
			                 zcc_dtype_name(other.dtype), zcc_dtype_name(mine.dtype));
	}
	return ZCC_OK;
}

zcc_status zcc_verify_create(zcc_layout *target, zcc_layout *source, zcc_verify **verify, zcc_error *error)
{
	zcc_status status = zcc_layout_validate(target, error);
	if (status == ZCC_OK)
		status = zcc_layout_validate(source, error);
	if (status != ZCC_OK)
		return status;
	zcc_verify *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "verify create", "no memory for a verification");
	status = open_half(&made->halves[ZCC_TARGET], target, "target", error);
	if (status == ZCC_OK)
		status = open_half(&made->halves[ZCC_SOURCE], source, "source", error);
	if (status == ZCC_OK)
		status = pair(made, error);
	if (status != ZCC_OK) {
		zcc_verify_destroy(made);
		return status;
	}
	*verify = made;
	return ZCC_OK;
}

void zcc_verify_destroy(zcc_verify *verify)
{
	if (verify == NULL)
		return;
	zcci_verify_end(verify);
	for (int32_t side = 0; side < 2; side++) {
		zcci_verify_half *h = &verify->halves[side];
		for (int64_t i = 0; h->bindings != NULL && i < (int64_t)h->n_params * h->n_ranks; i++)
			zcc_file_close(h->bindings[i].file);
		zcci_free(h->bindings);
		zcc_layout_destroy(h->layout);
	}
	zcci_free(verify->source_params);
	zcci_free(verify);
}

zcc_status zcc_verify_bind_file(zcc_verify *verify, int32_t side, int32_t rank, int32_t param, zcc_file *file,
                                int64_t offset_bytes, int64_t bytes, zcc_error *error)
{
	static const char operation[] = "verify bind file";
	if (side != ZCC_SOURCE && side != ZCC_TARGET)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "side %" PRId32 " is neither source nor target",
		                 side);
	zcci_verify_half *h = &verify->halves[side];
	zcc_param_info info;
	zcc_status status = zcc_layout_param(h->layout, param, &info, error);
	if (status != ZCC_OK)
		return status;
	int32_t place = zcci_verify_place(h, rank);
	zcci_binding *b = place >= 0 ? zcci_verify_binding(h, param, place) : NULL;
	if (b == NULL || b->elems < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "parameter %s: %s rank %" PRId32 " stores nothing of it", info.name, h->name, rank);
	int64_t needed = b->elems * zcc_dtype_bytes(info.dtype);
	if (bytes < needed || offset_bytes < 0 || offset_bytes > zcc_file_bytes(file) ||
	    bytes > zcc_file_bytes(file) - offset_bytes)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "parameter %s, %s rank %" PRId32 ": %" PRId64 " bytes at offset %" PRId64
		                 " of %s; the shard has %" PRId64 ", the file %" PRId64,
		                 info.name, h->name, rank, bytes, offset_bytes, zcc_file_path(file), needed,
		                 zcc_file_bytes(file));
	zcc_file_close(b->file);
	b->file = zcci_file_retain(file);
	b->at_bytes = offset_bytes;
	return ZCC_OK;
}
