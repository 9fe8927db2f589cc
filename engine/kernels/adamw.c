#include "kernels/adamw.h"

#include <math.h>
#include <stddef.h>

#include "kernels/cpu.h"
#include "kernels/value.h"

void zcci_adamw_prepare(zcci_adamw_step *numbers, double lr, double beta1, double beta2, double eps, double weight_decay,
                        double grad_scale, int64_t step)
{
	*numbers = (zcci_adamw_step){
		.grad_scale = (float)grad_scale,
		.beta1_rest = (float)(1 - beta1),
		.beta2 = (float)beta2,
		.beta2_rest = (float)(1 - beta2),
		.keep = (float)(1 - lr * weight_decay),
		.step_size = (float)(lr / (1 - pow(beta1, (double)step))),
		.root = (float)sqrt(1 - pow(beta2, (double)step)),
		.eps = (float)eps,
	};
}

/* Where everything lies; any alignment. */
typedef struct operands {
	char *master, *m, *v;
	const void *grad;
	void *out;
	int32_t grad_dtype, out_dtype;
} operands;

static void step_plain(const zcci_adamw_step *n, const operands *o, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i++) {
		float g = zcci_load_float(o->grad, o->grad_dtype, i) * n->grad_scale;
		float p = zcci_load_float(o->master, ZCC_F32, i) * n->keep;
		float m = zcci_load_float(o->m, ZCC_F32, i);
		float v = zcci_load_float(o->v, ZCC_F32, i);
		m = zcci_one_nan(fmaf(n->beta1_rest, g - m, m));
		v = zcci_one_nan(fmaf(n->beta2_rest * g, g, n->beta2 * v));
		p = zcci_one_nan(p - n->step_size * m / (sqrtf(v) / n->root + n->eps));
		zcci_store_float(o->m, ZCC_F32, i, m);
		zcci_store_float(o->v, ZCC_F32, i, v);
		zcci_store_float(o->master, ZCC_F32, i, p);
		if (o->out != NULL)
			zcci_store_float(o->out, o->out_dtype, i, p);
	}
}

void zcci_adamw(const zcci_adamw_step *numbers, float *master, float *m, float *v, const void *grad, int32_t grad_dtype, void *out,
                int32_t out_dtype, int64_t elems)
{
	operands o = {(char *)master, (char *)m, (char *)v, grad, out, grad_dtype, out_dtype};
	uint32_t mode = zcci_float_enter();
	step_plain(numbers, &o, 0, elems);
	zcci_float_leave(mode);
}
