#include "base/json_scan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

typedef struct scanner {
	char *text;
	int64_t bytes;
	int64_t at;
	const char *what;
	zcci_json_scan *scan;
	zcc_error *error;
	int32_t depth;
	char open[ZCCI_JSON_MAX_DEPTH]; /* '{' or '[' of every enclosing value */
} scanner;

#define fault(s, at, ...) fault_at(s, at, __LINE__, __VA_ARGS__)

static zcc_status __attribute__((format(printf, 4, 5)))
fault_at(const scanner *s, int64_t at, int32_t line, const char *format, ...)
{
	char reason[256];
	va_list args;
	va_start(args, format);
	vsnprintf(reason, sizeof reason, format, args);
	va_end(args);
	return zcci_fail_at(s->error, ZCC_EFORMAT, 0, "json parse", __FILE__, line, "%s: byte %lld: %s", s->what,
	                    (long long)at, reason);
}

static zcc_status unexpected(const scanner *s, const char *wanted)
{
	if (s->at >= s->bytes)
		return fault(s, s->at, "the text ends where %s is expected", wanted);
	unsigned char c = (unsigned char)s->text[s->at];
	if (c > 0x20 && c < 0x7f)
		return fault(s, s->at, "'%c' where %s is expected", c, wanted);
	return fault(s, s->at, "byte 0x%02x where %s is expected", c, wanted);
}

static void skip_space(scanner *s)
{
	while (s->at < s->bytes && strchr(" \t\n\r", s->text[s->at]) != NULL && s->text[s->at] != '\0')
		s->at++;
}

static bool digit(const scanner *s, int64_t at)
{
	return at < s->bytes && s->text[at] >= '0' && s->text[at] <= '9';
}

/* The four hex digits after "\u", or -1. */
static int32_t hex4(const scanner *s, int64_t at)
{
	int32_t value = 0;
	for (int64_t i = at; i < at + 4; i++) {
		char c = i < s->bytes ? s->text[i] : '\0';
		int32_t digit = c >= '0' && c <= '9'                 ? c - '0'
		                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
		                                                     : -1;
		if (digit < 0)
			return -1;
		value = value * 16 + digit;
	}
	return value;
}

/* At a backslash. */
static zcc_status scan_escape(scanner *s)
{
	char c = s->at + 1 < s->bytes ? s->text[s->at + 1] : '\0';
	if (c != '\0' && strchr("\"\\/bfnrt", c) != NULL) {
		s->at += 2;
		return ZCC_OK;
	}
	if (c != 'u')
		return fault(s, s->at, "a backslash that begins no escape");
	int32_t unit = hex4(s, s->at + 2);
	if (unit < 0)
		return fault(s, s->at, "\\u without four hex digits");
	if (unit == 0)
		return fault(s, s->at, "\\u0000 is not supported");
	if (unit < 0xd800 || unit > 0xdfff) {
		s->at += 6;
		return ZCC_OK;
	}
	bool low_follows = s->at + 7 < s->bytes && s->text[s->at + 6] == '\\' && s->text[s->at + 7] == 'u';
	int32_t low = low_follows ? hex4(s, s->at + 8) : -1;
	if (unit > 0xdbff || low < 0xdc00 || low > 0xdfff)
		return fault(s, s->at, "\\u%04x is a surrogate without its other half", (unsigned)unit);
	s->at += 12;
	return ZCC_OK;
}

/* At the opening quote. */
static zcc_status scan_string(scanner *s)
{
	int64_t start = s->at++;
	while (s->at < s->bytes) {
		unsigned char c = (unsigned char)s->text[s->at];
		if (c == '"') {
			s->at++;
			return ZCC_OK;
		}
		if (c == '\\') {
			zcc_status status = scan_escape(s);
			if (status != ZCC_OK)
				return status;
			continue;
		}
		if (c < 0x20)
			return fault(s, s->at, "control character 0x%02x in a string", c);
		int32_t length = zcci_utf8_length(s->text + s->at, s->bytes - s->at);
		if (length == 0)
			return fault(s, s->at, "invalid UTF-8 (0x%02x) in a string", c);
		s->at += length;
	}
	return fault(s, start, "a string without an end");
}

/* false where the digits do not fit int64. */
static bool read_integer(const char *text, int64_t length, int64_t *value)
{
	bool negative = text[0] == '-';
	int64_t sum = 0;
	for (int64_t i = negative; i < length; i++) {
		int64_t d = text[i] - '0';
		if (zcci_mul_overflows(sum, 10, &sum) || zcci_add_overflows(sum, negative ? -d : d, &sum))
			return false;
	}
	*value = sum;
	return true;
}

static zcc_status keep_number(scanner *s, int64_t start, bool whole)
{
	zcci_json_scan *scan = s->scan;
	if (scan->n_numbers == scan->numbers_room) {
		int64_t room = scan->numbers_room > 0 ? scan->numbers_room * 2 : 64;
		zcci_json_number *numbers = zcci_realloc(scan->numbers, room, sizeof *numbers);
		if (numbers == NULL)
			return zcci_fail(s->error, ZCC_ENOMEM, 0, "json parse", "%s: no memory for %lld numbers",
			                 s->what, (long long)room);
		scan->numbers = numbers;
		scan->numbers_room = room;
	}
	const char *literal = s->text + start;
	int64_t length = s->at - start;
	zcci_json_number *number = &scan->numbers[scan->n_numbers];
	*number = (zcci_json_number){.number = zcci_number_read(literal)};
	if (!isfinite(number->number))
		return fault(s, start, "the number %.*s%s is too large for a double", length > 40 ? 40 : (int)length,
		             literal, length > 40 ? "…" : "");
	/* -0 is a double only: as an integer it would lose its sign. */
	if (whole && !(literal[0] == '-' && literal[1] == '0'))
		number->is_integer = read_integer(literal, length, &number->integer);
	scan->n_numbers++;
	s->text[start] = '0';
	memset(s->text + start + 1, ' ', (size_t)(length - 1));
	return ZCC_OK;
}

static zcc_status scan_number(scanner *s)
{
	int64_t start = s->at;
	bool whole = true;
	if (s->text[s->at] == '-')
		s->at++;
	if (!digit(s, s->at))
		return unexpected(s, "a digit");
	bool zero = s->text[s->at++] == '0';
	if (zero && digit(s, s->at))
		return fault(s, start, "a number with a leading zero");
	while (digit(s, s->at))
		s->at++;
	if (s->at < s->bytes && s->text[s->at] == '.') {
		whole = false;
		s->at++;
		if (!digit(s, s->at))
			return unexpected(s, "a digit after the point");
		while (digit(s, s->at))
			s->at++;
	}
	if (s->at < s->bytes && (s->text[s->at] | 32) == 'e') {
		whole = false;
		s->at++;
		if (s->at < s->bytes && (s->text[s->at] == '+' || s->text[s->at] == '-'))
			s->at++;
		if (!digit(s, s->at))
			return unexpected(s, "a digit of the exponent");
		while (digit(s, s->at))
			s->at++;
	}
	return keep_number(s, start, whole);
}

static zcc_status scan_word(scanner *s, const char *word)
{
	int64_t length = (int64_t)strlen(word);
	if (s->bytes - s->at < length || memcmp(s->text + s->at, word, (size_t)length) != 0)
		return unexpected(s, "a value");
	s->at += length;
	return ZCC_OK;
}

/* At a key of an object: the key and its colon. */
static zcc_status scan_key(scanner *s)
{
	if (s->at >= s->bytes || s->text[s->at] != '"')
		return unexpected(s, "a key in quotes");
	zcc_status status = scan_string(s);
	if (status != ZCC_OK)
		return status;
	s->scan->n_keys++;
	skip_space(s);
	if (s->at >= s->bytes || s->text[s->at] != ':')
		return unexpected(s, "':'");
	s->at++;
	skip_space(s);
	return ZCC_OK;
}

/* A scalar whole, or the opening of an array or object (*opened). */
static zcc_status scan_value(scanner *s, bool *opened)
{
	*opened = false;
	s->scan->n_values++;
	char c = s->at < s->bytes ? s->text[s->at] : '\0';
	switch (c) {
	case '"':
		return scan_string(s);
	case 't':
		return scan_word(s, "true");
	case 'f':
		return scan_word(s, "false");
	case 'n':
		return scan_word(s, "null");
	case '{':
	case '[':
		if (s->depth == ZCCI_JSON_MAX_DEPTH)
			return fault(s, s->at, "nested deeper than %d", ZCCI_JSON_MAX_DEPTH);
		s->open[s->depth++] = c;
		s->at++;
		*opened = true;
		return ZCC_OK;
	}
	if (c == '-' || digit(s, s->at))
		return scan_number(s);
	return unexpected(s, "a value");
}

static char closing(const scanner *s)
{
	return s->open[s->depth - 1] == '{' ? '}' : ']';
}

/* After a complete value: closes what ends here, or steps over the comma to the next value of the innermost that stays
 * open. */
static zcc_status scan_after(scanner *s)
{
	for (;;) {
		skip_space(s);
		if (s->depth == 0)
			return s->at < s->bytes ? unexpected(s, "the end of the text") : ZCC_OK;
		char c = s->at < s->bytes ? s->text[s->at] : '\0';
		if (c == closing(s)) {
			s->depth--;
			s->at++;
			continue;
		}
		if (c != ',')
			return unexpected(s, closing(s) == '}' ? "',' or '}'" : "',' or ']'");
		s->at++;
		skip_space(s);
		return closing(s) == '}' ? scan_key(s) : ZCC_OK;
	}
}

zcc_status zcci_json_scan_text(char *text, int64_t bytes, const char *what, zcci_json_scan *scan, zcc_error *error)
{
	scanner s = {.text = text, .bytes = bytes, .what = what, .scan = scan, .error = error};
	skip_space(&s);
	do {
		bool opened;
		zcc_status status = scan_value(&s, &opened);
		if (status != ZCC_OK)
			return status;
		skip_space(&s);
		bool empty = opened && s.at < s.bytes && s.text[s.at] == closing(&s);
		if (opened && !empty)
			status = closing(&s) == '}' ? scan_key(&s) : ZCC_OK;
		else
			status = scan_after(&s);
		if (status != ZCC_OK)
			return status;
	} while (s.depth > 0);
	return ZCC_OK;
}
