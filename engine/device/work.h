/* One asynchronous operation as data: what the host device queues and the late device puts off. */
#ifndef ZCCI_WORK_H
#define ZCCI_WORK_H

#include "device/device.h"

enum { ZCCI_WORK_COPY = 1, ZCCI_WORK_COPY_2D, ZCCI_WORK_CAST, ZCCI_WORK_LERP, ZCCI_WORK_STRIDED };

typedef struct zcci_work {
	int32_t kind;
	int32_t target_dtype, source_dtype; /* of a cast; a lerp has source_dtype */
	int32_t elem_bytes, ndim;           /* of a strided copy */
	void *target;
	const void *source;
	int64_t count; /* elements, or bytes of a copy (of one row of a 2-D copy) */
	int64_t rows, target_pitch_bytes, source_pitch_bytes;
	double decay;
	int64_t shape[ZCC_MAX_NDIM], target_strides[ZCC_MAX_NDIM], source_strides[ZCC_MAX_NDIM];
} zcci_work;

/* What the table's slots of these names are asked to do. */
zcci_work zcci_work_of_copy(void *target, const void *source, int64_t bytes);
zcci_work zcci_work_of_copy_2d(void *target, int64_t target_pitch_bytes, const void *source, int64_t source_pitch_bytes,
                               int64_t bytes, int64_t rows);
zcci_work zcci_work_of_cast(void *target, int32_t target_dtype, const void *source, int32_t source_dtype,
                            int64_t elems);
zcci_work zcci_work_of_lerp(float *ema, const void *param, int32_t param_dtype, double decay, int64_t elems);
zcci_work zcci_work_of_strided(void *target, const int64_t *target_strides, const void *source,
                               const int64_t *source_strides, int32_t ndim, const int64_t *shape, int32_t elem_bytes);

/* Bytes from target and from source to the end of what is touched there, gaps between rows and strides included. The
 * sizes of `work` do not overflow. */
int64_t zcci_work_target_bytes(const zcci_work *work);
int64_t zcci_work_source_bytes(const zcci_work *work);
/* Does it here and now, on memory that the calling thread can reach. */
void zcci_work_run(const zcci_work *work);
/* Hands it to a stream of a device. */
zcc_status zcci_work_submit(const zcci_work *work, const zcci_device_ops *ops, void *device, void *stream,
                            zcc_error *error);

#endif
