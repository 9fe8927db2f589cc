/* A step of AdamW in parts, for those who place the results themselves. */
#ifndef ZCCI_ADAMW_STEP_H
#define ZCCI_ADAMW_STEP_H

#include "zcc/adamw.h"

/* Learning rate and scale of zcc_adamw_step, and that no memory that is written is any other of the step; with
 * `targets`, one a buffer of target_bytes an element, these are written too. ZCC_EINVAL, ZCC_ENOMEM. */
zcc_status zcci_adamw_check(zcc_adamw *adamw, double lr, double grad_scale, void *const *targets, int64_t target_bytes,
                            zcc_error *error);
/* The handle's next step for elements [begin, end) of a buffer; out is the place of the first result, or NULL. Any
 * thread, each element once; the step is done when zcci_adamw_stepped says so. */
void zcci_adamw_apply(const zcc_adamw *adamw, double lr, double grad_scale, int32_t index, int64_t begin, int64_t end,
                      void *out, int32_t out_dtype);
void zcci_adamw_stepped(zcc_adamw *adamw);

#endif
