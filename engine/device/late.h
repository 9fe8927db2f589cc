/* A device that puts off what another one is asked to do, in any way that the rules of streams and events allow, so
 * that code which forgot a wait computes wrong bytes. */
#ifndef ZCCI_LATE_H
#define ZCCI_LATE_H

#include "device/device.h"

enum {
	ZCCI_LATE_LAZY = 1, /* nothing runs before something waits for it, and then only what it needs */
	ZCCI_LATE_EAGER,    /* inside the call */
	ZCCI_LATE_SHUFFLE   /* any legal order, at random moments */
};

/* What a destination holds between submission and the copy, and fresh device memory. */
enum { ZCCI_LATE_POISON = 0xDB };

/* Its open is NULL: zcci_late_open stands for it. */
extern const zcci_device_ops zcci_late_ops;

/* Takes over the opened inner device, also where it fails. */
zcc_status zcci_late_open(const zcci_device_ops *inner_ops, void *inner, int32_t mode, uint64_t seed, void **device,
                          zcc_error *error);

#endif
