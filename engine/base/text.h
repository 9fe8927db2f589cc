/* Numbers and UTF-8 as text, whatever locale the host program has set. Any thread. */
#ifndef ZCCI_TEXT_H
#define ZCCI_TEXT_H

#include "zcc/base.h"

/* Bytes of the well-formed UTF-8 sequence at `text`, 1 to 4; 0 where there is none within `bytes` (RFC 3629: no
 * overlong form, no surrogate, nothing over U+10FFFF). */
int32_t zcci_utf8_length(const char *text, int64_t bytes);
/* Offset of the first byte that is not well-formed UTF-8 or is a NUL; -1 where all is well. */
int64_t zcci_utf8_fault(const char *text, int64_t bytes);

/* The nearest double of a decimal literal, which ends where it ends; infinite where it is too large. */
double zcci_number_read(const char *text);
/* The decimal text with the fewest digits that reads back to the same bits of a finite value; returns its length. */
int32_t zcci_number_print(double value, char text[32]);

/* A new string by printf's rules; NULL when memory is out. Free with zcci_free. */
char *zcci_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
