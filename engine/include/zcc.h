/* The whole public API of libzcc. Preprocessed with -DZCC_CDEF it is also the text that Lua's FFI reads. */
#ifndef ZCC_H
#define ZCC_H

#include "zcc/base.h"
#include "zcc/json.h"
#include "zcc/threads.h"
#include "zcc/device.h"
#include "zcc/ema.h"
#include "zcc/adamw.h"
#include "zcc/pool.h"
#include "zcc/offload.h"
#include "zcc/copyback.h"
#include "zcc/affine.h"
#include "zcc/store.h"
#include "zcc/transfer.h"

#endif
