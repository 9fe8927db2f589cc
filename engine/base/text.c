#include "base/text.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

int32_t zcci_utf8_length(const char *text, int64_t bytes)
{
	const unsigned char *s = (const unsigned char *)text;
	if (bytes < 1)
		return 0;
	if (s[0] < 0x80)
		return 1;
	/* The second byte's bounds exclude overlong forms (E0, F0), surrogates (ED) and all over U+10FFFF (F4). */
	unsigned low = 0x80, high = 0xbf;
	int32_t length;
	if (s[0] >= 0xc2 && s[0] <= 0xdf) {
		length = 2;
	} else if (s[0] >= 0xe0 && s[0] <= 0xef) {
		length = 3;
		low = s[0] == 0xe0 ? 0xa0 : 0x80;
		high = s[0] == 0xed ? 0x9f : 0xbf;
	} else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
		length = 4;
		low = s[0] == 0xf0 ? 0x90 : 0x80;
		high = s[0] == 0xf4 ? 0x8f : 0xbf;
	} else {
		return 0;
	}
	if (bytes < length || s[1] < low || s[1] > high)
		return 0;
	for (int32_t i = 2; i < length; i++)
		if (s[i] < 0x80 || s[i] > 0xbf)
			return 0;
	return length;
}

int64_t zcci_utf8_fault(const char *text, int64_t bytes)
{
	for (int64_t i = 0; i < bytes;) {
		int32_t length = text[i] != '\0' ? zcci_utf8_length(text + i, bytes - i) : 0;
		if (length == 0)
			return i;
		i += length;
	}
	return -1;
}

static pthread_once_t locale_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make_locale(void)
{
	c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double zcci_number_read(const char *text)
{
	pthread_once(&locale_once, make_locale);
	return strtod_l(text, NULL, c_locale);
}

int32_t zcci_number_print(double value, char text[32])
{
	pthread_once(&locale_once, make_locale);
	locale_t old = uselocale(c_locale);
	/* Every decimal of 15 digits survives the way through a normal double, so %.15g, which drops trailing zeros,
	 * finds any text that short; denormals carry fewer digits. */
	int32_t length = 0;
	for (int precision = fabs(value) < DBL_MIN ? 1 : 15; precision <= 17; precision++) {
		length = snprintf(text, 32, "%.*g", precision, value);
		double back = strtod(text, NULL);
		if (memcmp(&back, &value, sizeof value) == 0)
			break;
	}
	uselocale(old);
	/* Rounded digits of a large double must not read back as an exact integer. */
	if (fabs(value) > 0x1p53 && strchr(text, 'e') == NULL)
		length += snprintf(text + length, 32 - (size_t)length, ".0");
	return length;
}

char *zcci_format(const char *format, ...)
{
	va_list args, again;
	va_start(args, format);
	va_copy(again, args);
	int length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	char *text = length >= 0 ? zcci_malloc((int64_t)length + 1) : NULL;
	if (text != NULL)
		vsnprintf(text, (size_t)length + 1, format, again);
	va_end(again);
	return text;
}
