/* AdamW on the host, fused with the cast of the new master into a low-precision buffer, over the thread pool. As
 * torch.optim.AdamW defines it (https://pytorch.org/docs/stable/generated/torch.optim.AdamW.html, without amsgrad and
 * maximize), in f32:
 *
 *     g = grad * grad_scale
 *     master = master * (1 - lr * weight_decay)
 *     exp_avg = exp_avg + (1 - beta1) * (g - exp_avg)
 *     exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
 *     master = master - lr / (1 - beta1^step) * exp_avg / (sqrt(exp_avg_sq) / sqrt(1 - beta2^step) + eps)
 *
 * The result has the same bits on every processor and with any number of threads. A handle is used by one thread at a
 * time. */
#ifndef ZCC_ADAMW_H
#define ZCC_ADAMW_H

#include "device.h"

typedef struct zcc_adamw zcc_adamw;

typedef struct zcc_adamw_options {
	uint32_t struct_bytes; /* set by zcc_adamw_options_init */
	uint32_t reserved;     /* 0 */
	zcc_device *
	        device; /* may be NULL; where it is given, a buffer in its memory is refused. AdamW holds a reference */
	double beta1;   /* 0.9; 0 <= beta < 1 */
	double beta2;   /* 0.999 */
	double eps;     /* 1e-8; >= 0 */
	double weight_decay; /* 0.01; >= 0 */
} zcc_adamw_options;

/* The state of one parameter, or of a shard of it, in host memory. The caller keeps it alive as long as the handle. */
typedef struct zcc_adamw_buffer {
	uint32_t struct_bytes; /* set by zcc_adamw_buffer_init */
	int32_t grad_dtype;    /* ZCC_F32, ZCC_BF16, ZCC_F16 */
	const char *name;      /* copied; no two alike */
	void *master;          /* F32, as the moments; all may be NULL where elems is 0 */
	void *exp_avg;
	void *exp_avg_sq;
	const void *grad;
	void *out;           /* gets the new master, rounded to nearest even; NULL = not wanted */
	int32_t out_dtype;   /* ZCC_BF16, ZCC_F16, ZCC_F32 */
	int32_t reserved;    /* 0 */
	int64_t elems;       /* >= 0 */
	double weight_decay; /* -1 = that of the options */
} zcc_adamw_buffer;

/* Fills in struct_bytes and the defaults; call it before setting any member. */
ZCC_API void zcc_adamw_options_init(zcc_adamw_options *options);
/* ZCC_EINVAL, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_adamw_create(const zcc_adamw_options *options, zcc_adamw **adamw, zcc_error *error);
/* Touches no buffer. NULL is allowed. */
ZCC_API void zcc_adamw_destroy(zcc_adamw *adamw);
/* The same for a buffer: F32 gradients, BF16 results, weight_decay -1. */
ZCC_API void zcc_adamw_buffer_init(zcc_adamw_buffer *buffer);
/* *index counts from 0. ZCC_EINVAL names the buffer, what was found and what is allowed; ZCC_ENOMEM. */
ZCC_API zcc_status zcc_adamw_add(zcc_adamw *adamw, const zcc_adamw_buffer *buffer, int32_t *index, zcc_error *error);
/* Buffers added so far. */
ZCC_API int32_t zcc_adamw_count(const zcc_adamw *adamw);
/* As it was added. `name` is owned by the handle. ZCC_EINVAL for an index that is none. */
ZCC_API zcc_status zcc_adamw_buffer_get(const zcc_adamw *adamw, int32_t index, zcc_adamw_buffer *buffer,
                                        zcc_error *error);
/* One step over all buffers with that learning rate (>= 0); gradients are multiplied by grad_scale (finite) first.
 * Blocks until done. Nothing has been written where it fails. ZCC_EINVAL, which names two buffers that overlap (only
 * gradients may share memory); ZCC_ENOMEM. */
ZCC_API zcc_status zcc_adamw_step(zcc_adamw *adamw, double lr, double grad_scale, zcc_error *error);
/* Steps done. */
ZCC_API int64_t zcc_adamw_steps(const zcc_adamw *adamw);
/* Takes up a saved count, 0 to 2^62 - 1. ZCC_EINVAL. */
ZCC_API zcc_status zcc_adamw_resume(zcc_adamw *adamw, int64_t steps, zcc_error *error);

#endif
