#include "staging/adamw.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

#include "base/names.h"
#include "base/status.h"
#include "device/handles.h"
#include "kernels/adamw.h"
#include "staging/apart.h"
#include "staging/runs.h"

struct zcc_adamw {
	zcc_device *device; /* may be NULL */
	double beta1, beta2, eps, weight_decay;
	int32_t n_buffers, room;
	zcc_adamw_buffer *buffers;
	zcci_names names; /* numbers as in buffers */
	zcci_runs runs;   /* the same */
	bool apart;       /* no two buffers overlap, as far as has been looked */
	int64_t steps;
};

void zcc_adamw_options_init(zcc_adamw_options *options)
{
	*options = (zcc_adamw_options){
	        .struct_bytes = sizeof *options, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};
}

void zcc_adamw_buffer_init(zcc_adamw_buffer *buffer)
{
	*buffer = (zcc_adamw_buffer){
	        .struct_bytes = sizeof *buffer, .grad_dtype = ZCC_F32, .out_dtype = ZCC_BF16, .weight_decay = -1};
}

static zcc_status check_options(const zcc_adamw_options *o, zcc_error *error)
{
	const char *operation = "AdamW create";
	if (o == NULL || o->struct_bytes != sizeof *o)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "options of %u bytes, this library's have %zu",
		                 o != NULL ? o->struct_bytes : 0, sizeof *o);
	if (!(o->beta1 >= 0 && o->beta1 < 1) || !(o->beta2 >= 0 && o->beta2 < 1))
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "betas of %g and %g; from 0 to below 1 is allowed",
		                 o->beta1, o->beta2);
	if (!(o->eps >= 0 && isfinite(o->eps)) || !(o->weight_decay >= 0 && isfinite(o->weight_decay)))
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "eps of %g, weight decay of %g; 0 or more is allowed",
		                 o->eps, o->weight_decay);
	if (o->reserved != 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "a reserved field is not 0");
	return ZCC_OK;
}

zcc_status zcc_adamw_create(const zcc_adamw_options *options, zcc_adamw **adamw, zcc_error *error)
{
	zcc_status status = check_options(options, error);
	if (status != ZCC_OK)
		return status;
	zcc_adamw *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "AdamW create", "no memory for an optimizer");
	if (options->device != NULL)
		made->device = zcci_device_retain(options->device);
	made->beta1 = options->beta1;
	made->beta2 = options->beta2;
	made->eps = options->eps;
	made->weight_decay = options->weight_decay;
	*adamw = made;
	return ZCC_OK;
}

void zcc_adamw_destroy(zcc_adamw *adamw)
{
	if (adamw == NULL)
		return;
	zcc_device_close(adamw->device);
	zcci_runs_clear(&adamw->runs);
	zcci_names_clear(&adamw->names);
	zcci_free(adamw->buffers);
	zcci_free(adamw);
}

/* ---- buffers ---- */

/* The addresses of a buffer in the order of the struct, and how they are called. */
enum { GRADIENT = 3, N_PARTS = 5 };
static const char *const part_names[N_PARTS] = {"master", "first moment", "second moment", "gradient", "result"};

typedef struct part {
	const char *data;
	int64_t bytes, elem_bytes;
} part;

static void parts_of(const zcc_adamw_buffer *b, part parts[N_PARTS])
{
	const void *data[N_PARTS] = {b->master, b->exp_avg, b->exp_avg_sq, b->grad, b->out};
	const int32_t dtypes[N_PARTS] = {ZCC_F32, ZCC_F32, ZCC_F32, b->grad_dtype, b->out_dtype};
	for (int i = 0; i < N_PARTS; i++) {
		int64_t width = zcc_dtype_bytes(dtypes[i]);
		parts[i] = (part){data[i], b->elems * width, width};
	}
}

static bool is_summable(int32_t dtype)
{
	return dtype == ZCC_F32 || dtype == ZCC_BF16 || dtype == ZCC_F16;
}

static zcc_status check_fields(const zcc_adamw *adamw, const zcc_adamw_buffer *b, zcc_error *error)
{
	const char *operation = "AdamW add";
	if (b == NULL || b->struct_bytes != sizeof *b)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "a buffer of %u bytes, this library's have %zu",
		                 b != NULL ? b->struct_bytes : 0, sizeof *b);
	if (b->name == NULL || b->name[0] == '\0')
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "buffer %d has no name", adamw->n_buffers);
	if (zcci_names_find(&adamw->names, b->name) >= 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "the name '%s' is taken", b->name);
	if (!is_summable(b->grad_dtype) || !is_summable(b->out_dtype)) {
		const char *grad = zcc_dtype_name(b->grad_dtype), *out = zcc_dtype_name(b->out_dtype);
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "'%s': a gradient of %s, a result of %s; F32, BF16 and F16 are allowed", b->name,
		                 grad != NULL ? grad : "no dtype", out != NULL ? out : "no dtype");
	}
	int64_t bytes;
	if (b->elems < 0 || zcci_mul_overflows(b->elems, 4, &bytes))
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "'%s': %" PRId64 " elements", b->name, b->elems);
	if (b->weight_decay != -1 && !(b->weight_decay >= 0 && isfinite(b->weight_decay)))
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "'%s': a weight decay of %g; 0 or more is allowed, and -1 for that of the options",
		                 b->name, b->weight_decay);
	if (b->reserved != 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "'%s': a reserved field is not 0", b->name);
	return ZCC_OK;
}

static zcc_status check_host(const zcc_adamw *adamw, const char *name, const char *which, const part *p,
                             zcc_error *error)
{
	for (int end = 0; end < 2 && adamw->device != NULL; end++) {
		int32_t place = 0;
		zcc_status status =
		        zcc_device_place(adamw->device, p->data + (end == 0 ? 0 : p->bytes - 1), &place, error);
		if (status != ZCC_OK)
			return zcci_context(error, status, "the %s of '%s'", which, name);
		if (place == ZCC_AT_DEVICE)
			return zcci_fail(
			        error, ZCC_EINVAL, 0, "AdamW",
			        "the %s of '%s' is in memory of the device %s; this optimizer runs on the host", which,
			        name, zcc_device_name(adamw->device));
	}
	return ZCC_OK;
}

static zcc_status check_parts(const zcc_adamw *adamw, const zcc_adamw_buffer *b, zcc_error *error)
{
	part parts[N_PARTS];
	parts_of(b, parts);
	for (int i = 0; i < N_PARTS && b->elems > 0; i++) {
		const part *p = &parts[i];
		if (p->data == NULL && i == N_PARTS - 1)
			continue;
		if (p->data == NULL || (uintptr_t)p->data % (uintptr_t)p->elem_bytes != 0)
			return zcci_fail(error, ZCC_EINVAL, 0, "AdamW add", "the %s of '%s' is %s", part_names[i],
			                 b->name, p->data == NULL ? "NULL" : "not aligned to its elements");
		zcc_status status = check_host(adamw, b->name, part_names[i], p, error);
		if (status != ZCC_OK)
			return status;
	}
	return ZCC_OK;
}

/* Puts all parts of a buffer after the `n` ranges; how many there are then. */
static int64_t note_ranges(const zcc_adamw_buffer *b, zcci_range *ranges, int64_t n)
{
	part parts[N_PARTS];
	parts_of(b, parts);
	for (int i = 0; i < N_PARTS; i++)
		if (parts[i].data != NULL)
			ranges[n++] =
			        (zcci_range){parts[i].data, parts[i].bytes, part_names[i], b->name, i != GRADIENT};
	return n;
}

/* Of one buffer, when it is added. */
static zcc_status check_own_apart(const zcc_adamw_buffer *b, zcc_error *error)
{
	zcci_range ranges[N_PARTS];
	return zcci_check_apart(ranges, note_ranges(b, ranges, 0), "AdamW add", error);
}

/* Of all buffers, when they are known, and of targets that come with the call. */
static zcc_status check_apart(zcc_adamw *adamw, void *const *targets, int64_t target_bytes, zcc_error *error)
{
	if (adamw->apart && targets == NULL)
		return ZCC_OK;
	int64_t n = 0;
	zcci_range *ranges = zcci_calloc((N_PARTS + 1) * (int64_t)adamw->n_buffers, sizeof *ranges);
	if (ranges == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "AdamW step", "no memory to compare %d buffers",
		                 adamw->n_buffers);
	for (int32_t i = 0; i < adamw->n_buffers; i++) {
		const zcc_adamw_buffer *b = &adamw->buffers[i];
		n = note_ranges(b, ranges, n);
		if (targets != NULL)
			ranges[n++] = (zcci_range){targets[i], b->elems * target_bytes, "target", b->name, true};
	}
	zcc_status status = zcci_check_apart(ranges, n, "AdamW step", error);
	zcci_free(ranges);
	adamw->apart = status == ZCC_OK;
	return status;
}

static zcc_status append(zcc_adamw *adamw, const zcc_adamw_buffer *b, zcc_error *error)
{
	if (adamw->n_buffers == adamw->room) {
		int32_t room = adamw->room > 0 ? 2 * adamw->room : 16;
		zcc_adamw_buffer *grown = room > 0 ? zcci_realloc(adamw->buffers, room, sizeof *grown) : NULL;
		if (grown == NULL)
			goto no_memory;
		adamw->buffers = grown;
		adamw->room = room;
	}
	if (zcci_runs_add(&adamw->runs, b->elems) != ZCC_OK)
		goto no_memory;
	if (zcci_names_add(&adamw->names, b->name) != ZCC_OK) {
		adamw->runs.n_runs--;
		goto no_memory;
	}
	adamw->buffers[adamw->n_buffers] = *b;
	adamw->buffers[adamw->n_buffers].name = adamw->names.names[adamw->n_buffers];
	adamw->n_buffers++;
	adamw->apart = false;
	return ZCC_OK;

no_memory:
	return zcci_fail(error, ZCC_ENOMEM, 0, "AdamW add", "no memory for '%s', buffer %d", b->name, adamw->n_buffers);
}

zcc_status zcc_adamw_add(zcc_adamw *adamw, const zcc_adamw_buffer *buffer, int32_t *index, zcc_error *error)
{
	zcc_status status = check_fields(adamw, buffer, error);
	if (status == ZCC_OK)
		status = check_parts(adamw, buffer, error);
	if (status == ZCC_OK)
		status = check_own_apart(buffer, error);
	if (status == ZCC_OK)
		status = append(adamw, buffer, error);
	if (status == ZCC_OK && index != NULL)
		*index = adamw->n_buffers - 1;
	return status;
}

int32_t zcc_adamw_count(const zcc_adamw *adamw)
{
	return adamw->n_buffers;
}

zcc_status zcc_adamw_buffer_get(const zcc_adamw *adamw, int32_t index, zcc_adamw_buffer *buffer, zcc_error *error)
{
	if (index < 0 || index >= adamw->n_buffers)
		return zcci_fail(error, ZCC_EINVAL, 0, "AdamW buffer", "buffer %d; there are %d, counted from 0", index,
		                 adamw->n_buffers);
	*buffer = adamw->buffers[index];
	return ZCC_OK;
}

/* ---- steps ---- */

typedef struct step {
	const zcc_adamw *adamw;
	double lr, grad_scale;
} step;

void zcci_adamw_apply(const zcc_adamw *a, double lr, double grad_scale, int32_t index, int64_t begin, int64_t end,
                      void *out, int32_t out_dtype)
{
	const zcc_adamw_buffer *b = &a->buffers[index];
	zcci_adamw_step numbers;
	zcci_adamw_prepare(&numbers, lr, a->beta1, a->beta2, a->eps,
	                   b->weight_decay >= 0 ? b->weight_decay : a->weight_decay, grad_scale, a->steps + 1);
	zcci_adamw(&numbers, (float *)b->master + begin, (float *)b->exp_avg + begin, (float *)b->exp_avg_sq + begin,
	           (const char *)b->grad + begin * zcc_dtype_bytes(b->grad_dtype), b->grad_dtype, out, out_dtype,
	           end - begin);
}

void zcci_adamw_stepped(zcc_adamw *adamw)
{
	adamw->steps++;
}

static void step_run(void *context, int32_t run, int64_t begin, int64_t end)
{
	const step *s = context;
	const zcc_adamw_buffer *b = &s->adamw->buffers[run];
	char *out = b->out != NULL ? (char *)b->out + begin * zcc_dtype_bytes(b->out_dtype) : NULL;
	zcci_adamw_apply(s->adamw, s->lr, s->grad_scale, run, begin, end, out, b->out_dtype);
}

static zcc_status check_rates(double lr, double grad_scale, zcc_error *error)
{
	if (!(lr >= 0 && isfinite(lr)) || !isfinite(grad_scale))
		return zcci_fail(
		        error, ZCC_EINVAL, 0, "AdamW step",
		        "a learning rate of %g, gradients scaled by %g; both must be finite, the rate 0 or more", lr,
		        grad_scale);
	return ZCC_OK;
}

zcc_status zcci_adamw_check(zcc_adamw *adamw, double lr, double grad_scale, void *const *targets, int64_t target_bytes,
                            zcc_error *error)
{
	zcc_status status = check_rates(lr, grad_scale, error);
	return status == ZCC_OK ? check_apart(adamw, targets, target_bytes, error) : status;
}

zcc_status zcc_adamw_step(zcc_adamw *adamw, double lr, double grad_scale, zcc_error *error)
{
	zcc_status status = zcci_adamw_check(adamw, lr, grad_scale, NULL, 0, error);
	if (status != ZCC_OK)
		return status;
	step s = {adamw, lr, grad_scale};
	zcci_runs_each(&adamw->runs, step_run, &s);
	zcci_adamw_stepped(adamw);
	return ZCC_OK;
}

int64_t zcc_adamw_steps(const zcc_adamw *adamw)
{
	return adamw->steps;
}

zcc_status zcc_adamw_resume(zcc_adamw *adamw, int64_t steps, zcc_error *error)
{
	static const int64_t MOST_STEPS = INT64_MAX / 2; /* as many more can be counted after them */
	if (steps < 0 || steps > MOST_STEPS)
		return zcci_fail(error, ZCC_EINVAL, 0, "AdamW resume",
		                 "%" PRId64 " steps; 0 to %" PRId64 " are allowed", steps, MOST_STEPS);
	adamw->steps = steps;
	return ZCC_OK;
}
