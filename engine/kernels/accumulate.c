#include "kernels/accumulate.h"

#include "kernels/cpu.h"
#include "kernels/value.h"

static void accumulate_plain(char *target, const void *source, int32_t source_dtype, int64_t elems)
{
	for (int64_t i = 0; i < elems; i++) {
		float sum = zcci_load_float(target, ZCC_F32, i) + zcci_load_float(source, source_dtype, i);
		zcci_store_float(target, ZCC_F32, i, zcci_one_nan(sum));
	}
}

void zcci_accumulate(float *target, const void *source, int32_t source_dtype, int64_t elems)
{
	uint32_t mode = zcci_float_enter();
	accumulate_plain((char *)target, source, source_dtype, elems);
	zcci_float_leave(mode);
}
