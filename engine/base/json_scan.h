/* The syntax of a JSON text, checked in one pass before cJSON builds its tree. cJSON alone lets through control
 * characters, invalid UTF-8 and odd numbers, reads numbers through a buffer of 63 characters and knows no integers. */
#ifndef ZCCI_JSON_SCAN_H
#define ZCCI_JSON_SCAN_H

#include "zcc/base.h"

enum { ZCCI_JSON_MAX_DEPTH = 500 };

typedef struct zcci_json_number {
	double number;
	int64_t integer;
	int32_t is_integer;
	int32_t reserved;
} zcci_json_number;

/* What a scan found. */
typedef struct zcci_json_scan {
	int64_t n_values;
	int64_t n_keys;
	int64_t n_numbers;
	int64_t numbers_room;
	zcci_json_number *numbers; /* in document order; freed by the caller, after a fault too */
} zcci_json_scan;

/* Checks text[0 … bytes), which is followed by a NUL, against RFC 8259, and overwrites every number in it with a 0 and
 * spaces: the values are in scan->numbers. Refusals as in zcc/json.h. scan starts zeroed. */
zcc_status zcci_json_scan_text(char *text, int64_t bytes, const char *what, zcci_json_scan *scan, zcc_error *error);

#endif
