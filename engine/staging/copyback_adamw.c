/* The optimizer step that writes its results into the staging buffers. */
#include "staging/copyback.h"

#include "base/status.h"
#include "base/threads.h"
#include "staging/adamw.h"

enum { CHUNK_ELEMS = 1 << 15 };

static const char operation[] = "copy-back of AdamW";

/* One call, and the run of elements that the threads are on. */
typedef struct fused {
	const zcc_adamw *adamw;
	double lr, grad_scale;
	int32_t dtype;
	int64_t elem_bytes;
	int32_t index;
	int64_t done; /* elements of buffer `index` that are stepped */
	int64_t offset;
	char *out; /* of element `offset`; NULL: the results are not wanted */
} fused;

static void step_chunk(void *context, int64_t begin, int64_t end)
{
	const fused *f = context;
	char *out = f->out != NULL ? f->out + begin * f->elem_bytes : NULL;
	zcci_adamw_apply(f->adamw, f->lr, f->grad_scale, f->index, f->offset + begin, f->offset + end, out, f->dtype);
}

static void step_run(void *context, void *target, int64_t offset, int64_t elems)
{
	fused *f = context;
	f->out = target;
	f->offset = offset;
	zcci_parallel(elems, CHUNK_ELEMS, step_chunk, f);
	f->done = offset + elems;
}

/* ---- checks ---- */

typedef struct paths {
	bool staged, scratch;
} paths;

static zcc_status check_host(zcc_copyback *copyback, int32_t index, const char *what, const void *data, int64_t elems,
                             int64_t bytes, zcc_error *error)
{
	int32_t place;
	zcc_status status = zcci_copyback_place(copyback, operation, index, what, data, elems, bytes, &place, error);
	if (status == ZCC_OK && place == ZCC_AT_DEVICE)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "piece %d: the %s is device memory; the step runs on the host", index, what);
	return status;
}

static zcc_status check_buffer(zcc_copyback *copyback, const zcc_adamw_buffer *b, int32_t index, void *target,
                               paths *used, zcc_error *error)
{
	int32_t place = 0;
	int64_t grad_bytes = zcc_dtype_bytes(b->grad_dtype);
	if (b->out != NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "buffer '%s' has a place for results of its own; its target takes them here", b->name);
	zcc_status status = check_host(copyback, index, "master", b->master, b->elems, 4, error);
	if (status == ZCC_OK)
		status = check_host(copyback, index, "first moment", b->exp_avg, b->elems, 4, error);
	if (status == ZCC_OK)
		status = check_host(copyback, index, "second moment", b->exp_avg_sq, b->elems, 4, error);
	if (status == ZCC_OK)
		status = check_host(copyback, index, "gradient", b->grad, b->elems, grad_bytes, error);
	if (status == ZCC_OK)
		status = zcci_copyback_place(copyback, operation, index, "target", target, b->elems,
		                             copyback->elem_bytes, &place, error);
	if (place == ZCC_AT_DEVICE)
		*(copyback->pinning ? &used->staged : &used->scratch) = true;
	return status;
}

static zcc_status check(zcc_copyback *copyback, const zcc_adamw *adamw, void *const *targets, int32_t n_targets,
                        paths *used, zcc_error *error)
{
	if (n_targets != zcc_adamw_count(adamw))
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "%d targets for %d buffers", n_targets,
		                 zcc_adamw_count(adamw));
	zcc_status status = ZCC_OK;
	for (int32_t i = 0; i < n_targets && status == ZCC_OK; i++) {
		zcc_adamw_buffer b;
		status = zcc_adamw_buffer_get(adamw, i, &b, error);
		if (status == ZCC_OK)
			status = check_buffer(copyback, &b, i, targets[i], used, error);
	}
	return status;
}

/* ---- the step ---- */

static zcc_status step_buffer(zcc_copyback *copyback, fused *f, void *target, int64_t elems, zcc_error *error)
{
	int32_t place;
	zcc_status status = zcci_copyback_place(copyback, operation, f->index, "target", target, elems,
	                                        copyback->elem_bytes, &place, error);
	if (status != ZCC_OK || elems == 0)
		return status;
	if (place == ZCC_AT_DEVICE)
		return zcci_copyback_send(copyback, copyback->pinning, target, elems, step_run, f, error);
	step_run(f, target, 0, elems);
	zcci_copyback_count(copyback, false, elems, 0);
	return ZCC_OK;
}

/* All buffers, whatever happens to the copies: half a step could neither be repeated nor taken back. */
static zcc_status step_all(zcc_copyback *copyback, fused *f, void *const *targets, int32_t n_targets, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	for (int32_t i = 0; i < n_targets; i++) {
		zcc_adamw_buffer b;
		zcc_adamw_buffer_get(f->adamw, i, &b, NULL);
		f->index = i;
		f->done = 0;
		if (status == ZCC_OK)
			status = step_buffer(copyback, f, targets[i], b.elems, error);
		if (f->done < b.elems)
			step_run(f, NULL, f->done, b.elems - f->done);
	}
	return status;
}

zcc_status zcc_copyback_adamw(zcc_copyback *copyback, zcc_adamw *adamw, void *const *targets, int32_t n_targets,
                              double lr, double grad_scale, zcc_error *error)
{
	zcc_status status = zcci_copyback_enter(copyback, operation, error);
	if (status != ZCC_OK)
		return status;
	paths used = {false, false};
	status = check(copyback, adamw, targets, n_targets, &used, error);
	if (status == ZCC_OK)
		status = zcci_adamw_check(adamw, lr, grad_scale, targets, copyback->elem_bytes, error);
	if (status == ZCC_OK)
		status = zcci_copyback_prepare(copyback, used.staged, used.scratch, error);
	if (status == ZCC_OK) {
		fused f = {.adamw = adamw,
		           .lr = lr,
		           .grad_scale = grad_scale,
		           .dtype = copyback->dtype,
		           .elem_bytes = copyback->elem_bytes};
		status = step_all(copyback, &f, targets, n_targets, error);
		zcci_adamw_stepped(adamw);
		if (status == ZCC_OK)
			status = zcci_copyback_finish(copyback, error);
		if (status != ZCC_OK)
			zcci_context(error, status, "the step is done, targets are incomplete");
	}
	zcci_copyback_leave(copyback, status);
	return status;
}
