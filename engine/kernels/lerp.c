#include "kernels/lerp.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/value.h"

static void lerp_plain(char *ema, const void *param, int32_t param_dtype, float weight, int64_t elems)
{
	for (int64_t i = 0; i < elems; i++) {
		float old = zcci_load_float(ema, ZCC_F32, i);
		float difference = zcci_load_float(param, param_dtype, i) - old;
		zcci_store_float(ema, ZCC_F32, i, zcci_one_nan(fmaf(weight, difference, old)));
	}
}

void zcci_lerp(float *ema, const void *param, int32_t param_dtype, double decay, int64_t elems)
{
	uint32_t mode = zcci_float_enter();
	lerp_plain((char *)ema, param, param_dtype, (float)(1 - decay), elems);
	zcci_float_leave(mode);
}
