/* Copy-back: after an optimizer step on the host, the f32 masters become low-precision parameters on a device. Through
 * two pinned buffers of a fixed size: while parts of them are copied to the device, the CPU casts into others. And the
 * other direction, for gradients.
 *
 * A piece is *staged* where pinning is on, its source is host memory that is not pinned and its target is device
 * memory. Any other piece is copied *directly*: by the CPU where both lie on the host, by the device where it can read
 * the source, else cast by the CPU into ordinary memory and copied from there. The bits are the same.
 *
 * All calls block until every byte has arrived. A handle is used by one thread at a time; a second one is refused
 * (ZCC_EBUSY). Before the call the device must be done with the memory named in it: waited for, as copies run on a
 * stream of their own. */
#ifndef ZCC_COPYBACK_H
#define ZCC_COPYBACK_H

#include "adamw.h"
#include "device.h"
#include "pool.h"

typedef struct zcc_copyback zcc_copyback;

typedef struct zcc_copyback_options {
	uint32_t struct_bytes; /* set by zcc_copyback_options_init */
	int32_t dtype;         /* of the device's side: ZCC_BF16 (default), ZCC_F16 or ZCC_F32 */
	int32_t pinning;       /* 1 (default), or 0 = everything is copied directly */
	uint32_t pool_flags;   /* ZCC_POOL_OR_UNPINNED: rather staging buffers that are not pinned than an error */
	int64_t buffer_elems;  /* of each of the two buffers; 2^26 by default */
	zcc_pool *pool; /* of the same device: where the buffers come from; NULL (default) = its own, without a cap */
} zcc_copyback_options;

/* One run of elements. Pointers may be NULL where elems is 0. Source and target share no memory; nor does the target
 * with the source of another piece of the call, which is not checked. */
typedef struct zcc_copyback_piece {
	void *target; /* both aligned to their elements; the caller keeps them */
	const void *source;
	int64_t elems; /* >= 0 */
} zcc_copyback_piece;

/* Sums since the handle was made; pieces without elements are not counted. */
typedef struct zcc_copyback_stats {
	int64_t staged_pieces;
	int64_t direct_pieces;
	int64_t staged_elems;
	int64_t direct_elems;
	int64_t copies;         /* through parts of the staging buffers */
	int64_t buffer_bytes;   /* the two buffers, 0 before the first use and after a release */
	int64_t unpinned_bytes; /* of them: not pinned, for the cap or the system's limit */
} zcc_copyback_stats;

/* Fills in struct_bytes and the defaults; call it before setting any member. */
ZCC_API void zcc_copyback_options_init(zcc_copyback_options *options);
/* Keeps the device open and holds a reference to the pool. Pins nothing yet. options may be NULL. ZCC_EINVAL,
 * ZCC_ENOMEM. */
ZCC_API zcc_status zcc_copyback_create(zcc_device *device, const zcc_copyback_options *options, zcc_copyback **copyback,
                                       zcc_error *error);
/* Drops the caller's reference; the buffers go back to the pool, a pool of its own back to the system. NULL is allowed.
 */
ZCC_API void zcc_copyback_destroy(zcc_copyback *copyback);
/* Gives the two buffers back now; the next use makes them again. ZCC_EBUSY while a call runs. */
ZCC_API zcc_status zcc_copyback_release(zcc_copyback *copyback, zcc_error *error);
/* The numbers so far. */
ZCC_API void zcc_copyback_get_stats(zcc_copyback *copyback, zcc_copyback_stats *stats);

/* target[i] of the handle's dtype = source[i] (F32) rounded to nearest even, in order of the pieces. Sources lie on the
 * host or, with the target, on the device. Arguments are checked and buffers taken before anything is written
 * (ZCC_EINVAL and ZCC_ESTALE name the piece; ZCC_ENOMEM; ZCC_EOVERFLOW). After ZCC_EDEVICE and ZCC_EINTR targets hold
 * old and new elements; no copy is in flight after any fault. */
ZCC_API zcc_status zcc_copyback_run(zcc_copyback *copyback, const zcc_copyback_piece *pieces, int64_t n_pieces,
                                    zcc_error *error);

/* The other direction, for gradients: source[i] of the handle's dtype becomes F32 on the host, stored or (accumulate !=
 * 0) added to target[i] in f32. Staged where pinning is on and the source is device memory, but for pinned targets that
 * are overwritten: the device writes those itself. Faults as above; where the message of ZCC_EDEVICE or ZCC_EINTR says
 * how many elements had been added, the sums are to be discarded. */
ZCC_API zcc_status zcc_copyback_gradients(zcc_copyback *copyback, const zcc_copyback_piece *pieces, int64_t n_pieces,
                                          int32_t accumulate, zcc_error *error);

/* zcc_adamw_step that writes the new masters straight into the staging buffers, so that masters, moments, gradients and
 * results are each touched once: targets[i] gets the results of buffer i of the handle, in the copy-back's dtype;
 * n_targets is zcc_adamw_count. The buffers' own `out` must be NULL, and targets share memory with nothing. Staged
 * where pinning is on and the target is device memory. Faults as of both; a fault that comes after the first write
 * (zcc_adamw_steps has grown) leaves every buffer stepped and only targets incomplete: zcc_copyback_run from the
 * masters completes them. */
ZCC_API zcc_status zcc_copyback_adamw(zcc_copyback *copyback, zcc_adamw *adamw, void *const *targets, int32_t n_targets,
                                      double lr, double grad_scale, zcc_error *error);

/* Partial offload: of n_groups sub-groups, the first that lives on the host where `ratio` of them shall; those before
 * it live on the device. It is floor((1 - ratio) * n_groups), as DeepSpeed divides them for offload_optimizer.ratio. -1
 * where ratio is not within [0, 1] or n_groups is negative. */
ZCC_API int64_t zcc_copyback_first_host_group(int64_t n_groups, double ratio);

#endif
