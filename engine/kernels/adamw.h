/* One step of AdamW, fused with the cast of the new master: master, both moments, gradient and result are each touched
 * once. */
#ifndef ZCCI_ADAMW_H
#define ZCCI_ADAMW_H

#include "zcc/base.h"

/* The numbers of one step, each computed in double and rounded to f32 once. */
typedef struct zcci_adamw_step {
	float grad_scale;
	float beta1_rest; /* 1 - beta1 */
	float beta2;
	float beta2_rest; /* 1 - beta2 */
	float keep;       /* 1 - lr * weight_decay */
	float step_size;  /* lr / (1 - beta1^step) */
	float root;       /* sqrt(1 - beta2^step) */
	float eps;
} zcci_adamw_step;

/* step counts from 1. */
void zcci_adamw_prepare(zcci_adamw_step *numbers, double lr, double beta1, double beta2, double eps,
                        double weight_decay, double grad_scale, int64_t step);

/* As torch.optim.AdamW (decoupled decay, bias correction), every operation in f32 and rounded by itself but the two
 * fma:
 *
 *     g = grad * grad_scale
 *     p = master * keep
 *     m = fma(beta1_rest, g - m, m)
 *     v = fma(beta2_rest * g, g, beta2 * v)
 *     master = p - step_size * m / (sqrt(v) / root + eps)
 *
 * and out = master rounded to nearest even as zcci_convert does it. grad_dtype: F32, BF16, F16. out may be NULL;
 * out_dtype: F32, BF16, F16. A number written that is a NaN is 7FC00000 (7FC0, 7E00). Any alignment; no overlap. Any
 * thread. */
void zcci_adamw(const zcci_adamw_step *numbers, float *master, float *m, float *v, const void *grad, int32_t grad_dtype,
                void *out, int32_t out_dtype, int64_t elems);

#endif
