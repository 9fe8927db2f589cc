/* Waits that a test can leave out, to prove that each matters.
 *
 *     status = ZCCI_WAIT(copyback_reuse, zcc_event_wait(event, error));
 *
 * is the call alone, but in a source compiled with -DZCCI_OMIT_copyback_reuse=1 it is ZCC_OK and the call is not made
 * (its arguments are not evaluated). zcc_add_omit_test in tests/CMakeLists.txt builds a program for each wait with just
 * that one left out; it has to see wrong bytes. */
#ifndef ZCCI_OMIT_H
#define ZCCI_OMIT_H

#include "zcc/base.h"

/* 1 where ZCCI_OMIT_<name> is defined as 1, else 0, as a constant expression. */
#define ZCCI_OMITTED(name) ZCCI_OMITTED_VALUE(ZCCI_OMIT_##name)
#define ZCCI_OMITTED_VALUE(value) ZCCI_OMITTED_PASTE(value)
#define ZCCI_OMITTED_PASTE(value) ZCCI_OMITTED_PICK(ZCCI_OMITTED_AT_##value)
#define ZCCI_OMITTED_PICK(comma_or_not) ZCCI_OMITTED_SECOND(comma_or_not 1, 0, 0)
#define ZCCI_OMITTED_AT_1 ~,
#define ZCCI_OMITTED_SECOND(first, second, ...) second

#define ZCCI_WAIT(name, call) (ZCCI_OMITTED(name) ? ZCC_OK : (call))

#endif
