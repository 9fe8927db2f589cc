/* What a destination holds until its work has run. */
#ifndef ZCCI_LATE_POISON_H
#define ZCCI_LATE_POISON_H

#include "device/late_queue.h"

/* Makes device->poison, and undoes it. */
zcc_status zcci_late_poison_create(late_device *device, zcc_error *error);
void zcci_late_poison_destroy(late_device *device);
/* Poison in `bytes` of dense memory of that place. */
zcc_status zcci_late_poison_bytes(late_device *device, void *data, int32_t place, int64_t bytes, zcc_error *error);
/* Poison in what the work will write, gaps untouched; nothing where the work reads its own target. */
zcc_status zcci_late_poison_target(late_device *device, const zcci_work *work, int32_t place, zcc_error *error);

#endif
