/* Reading JSON: exact numbers, and no text that RFC 8259 does not allow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/memory.h"
#include "zcc/json.h"

static zcc_json *parse(const char *text)
{
	zcc_json *document = NULL;
	zcc_error error = {0};
	if (zcc_json_parse(text, (int64_t)strlen(text), "test", &document, &error) != ZCC_OK)
		fail_msg("%s refused: %s", text, error.message);
	return document;
}

static const zcc_json_node *nodes(const zcc_json *document)
{
	int64_t n;
	return zcc_json_nodes(document, &n);
}

/* Refused with a message that holds `reason`, from a buffer of exactly that size so that a sanitizer sees any step past
 * the end. */
static void refuse_bytes(const char *text, size_t bytes, const char *reason)
{
	char *exact = malloc(bytes > 0 ? bytes : 1);
	memcpy(exact, text, bytes);
	zcc_json *document = (zcc_json *)1;
	zcc_error error = {0};
	zcc_status status = zcc_json_parse(exact, (int64_t)bytes, "some/file", &document, &error);
	free(exact);
	assert_int_equal(status, ZCC_EFORMAT);
	assert_ptr_equal(document, (zcc_json *)1);
	assert_non_null(strstr(error.message, "some/file"));
	if (strstr(error.message, reason) == NULL)
		fail_msg("%s is not in: %s", reason, error.message);
}

static void refuse(const char *text, const char *reason)
{
	refuse_bytes(text, strlen(text), reason);
}

static void integers_are_exact_through_all_63_bits(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int64_t value;
	} cases[] = {
	        {"0", 0},
	        {"-1", -1},
	        {"9007199254740993", 9007199254740993},
	        {"9223372036854775807", INT64_MAX},
	        {"-9223372036854775808", INT64_MIN},
	        {"6442450944", 6442450944},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		zcc_json *document = parse(cases[i].text);
		assert_int_equal(nodes(document)->kind, ZCC_JSON_NUMBER);
		assert_int_equal(nodes(document)->is_integer, 1);
		assert_true(nodes(document)->integer == cases[i].value);
		assert_true(nodes(document)->number == (double)cases[i].value);
		zcc_json_destroy(document);
	}
}

static void other_numbers_are_doubles_only(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		double value;
	} cases[] = {
	        {"9223372036854775808", 0x1p63},
	        {"-9223372036854775809", -0x1p63},
	        {"18446744073709551615", 0x1p64},
	        {"1.0", 1},
	        {"1e2", 100},
	        {"1E+2", 100},
	        {"25e-1", 2.5},
	        {"-0", -0.0},
	        {"-0.0", -0.0},
	        {"5e-324", 0x1p-1074},
	        {"1e-400", 0},
	        {"1.7976931348623157e308", 0x1.fffffffffffffp1023},
	        {"0.1000000000000000055511151231257827021181583404541015625", 0.1},
	        {"1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
	         1e99},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		zcc_json *document = parse(cases[i].text);
		assert_int_equal(nodes(document)->is_integer, 0);
		assert_memory_equal(&nodes(document)->number, &cases[i].value, sizeof(double));
		zcc_json_destroy(document);
	}
}

static void the_tree_is_in_document_order(void **state)
{
	(void)state;
	zcc_json *document = parse(" {\"a\" : [1, {\"b\":null, \"B\":true}, [], \"x\"], \"\":false, \"c\":{} } \n");
	int64_t n;
	const zcc_json_node *node = zcc_json_nodes(document, &n);
	assert_int_equal(n, 10);
	static const int32_t kinds[] = {6, 5, 3, 6, 0, 2, 5, 4, 1, 6};
	static const int32_t parents[] = {-1, 0, 1, 1, 3, 3, 1, 1, 0, 0};
	static const int32_t nexts[] = {-1, 8, 3, 6, 5, -1, 7, -1, 9, -1};
	static const int32_t firsts[] = {1, 2, -1, 4, -1, -1, -1, -1, -1, -1};
	static const int32_t counts[] = {3, 4, 0, 2, 0, 0, 0, 0, 0, 0};
	for (int i = 0; i < 10; i++) {
		assert_int_equal(node[i].kind, kinds[i]);
		assert_int_equal(node[i].parent, parents[i]);
		assert_int_equal(node[i].next, nexts[i]);
		assert_int_equal(node[i].first_child, firsts[i]);
		assert_int_equal(node[i].n_children, counts[i]);
	}
	assert_null(node[0].key);
	assert_string_equal(node[5].key, "B");
	assert_string_equal(node[8].key, "");
	assert_int_equal(node[8].key_bytes, 0);
	assert_string_equal(node[7].string, "x");
	assert_int_equal(zcc_json_member(document, 0, "c"), 9);
	assert_int_equal(zcc_json_member(document, 0, ""), 8);
	assert_int_equal(zcc_json_member(document, 0, "b"), -1);
	assert_int_equal(zcc_json_member(document, 3, "b"), 4);
	assert_int_equal(zcc_json_member(document, 3, "B"), 5);
	assert_int_equal(zcc_json_member(document, 1, "b"), -1);
	assert_int_equal(zcc_json_member(document, -1, "b"), -1);
	assert_int_equal(zcc_json_member(document, 10, "b"), -1);
	zcc_json_destroy(document);
}

static void escapes_become_utf8(void **state)
{
	(void)state;
	zcc_json *document = parse("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\\ud83d\\uDE00é€\xf0\x9f\x98\x80\x7f\"");
	const char *want = "\"\\/\b\f\n\r\té€\xf0\x9f\x98\x80é€\xf0\x9f\x98\x80\x7f";
	assert_string_equal(nodes(document)->string, want);
	assert_int_equal(nodes(document)->string_bytes, strlen(want));
	zcc_json_destroy(document);
}

static void bad_syntax_is_refused_with_its_place(void **state)
{
	(void)state;
	static const struct {
		const char *text, *reason;
	} cases[] = {
	        {"", "byte 0: the text ends where a value is expected"},
	        {"  ", "byte 2: "},
	        {"[1,2", "byte 4: the text ends"},
	        {"[1,]", "byte 3: ']'"},
	        {"[,1]", "byte 1: ','"},
	        {"[1 2]", "byte 3: '2'"},
	        {"[1-2]", "byte 2: '-'"},
	        {"{\"a\":1,}", "byte 7: '}'"},
	        {"{\"a\" 1}", "byte 5: '1' where ':'"},
	        {"{a:1}", "a key in quotes"},
	        {"{1:1}", "a key in quotes"},
	        {"{\"a\":}", "byte 5: '}'"},
	        {"{]", "byte 1: ']'"},
	        {"[}", "byte 1: '}'"},
	        {"[1}", "byte 2: '}' where ',' or ']'"},
	        {"{\"a\":1]", "byte 6: ']' where ',' or '}'"},
	        {"]", "byte 0: ']'"},
	        {"1 1", "byte 2: '1' where the end of the text"},
	        {"{}x", "byte 2: 'x' where the end"},
	        {"tru", "a value"},
	        {"truex", "byte 4: 'x'"},
	        {"nul", "a value"},
	        {"True", "a value"},
	        {"NaN", "a value"},
	        {"Infinity", "a value"},
	        {"'a'", "a value"},
	        {"\"a", "byte 0: a string without an end"},
	        {"\"a\\\"", "without an end"},
	        {"\"\\", "begins no escape"},
	        {"\"\\x41\"", "begins no escape"},
	        {"\"\\u12g4\"", "four hex digits"},
	        {"\"\\u12", "four hex digits"},
	        {"\"\\u0000\"", "\\u0000"},
	        {"\"\\ud800\"", "surrogate"},
	        {"\"\\ud800\\u0041\"", "surrogate"},
	        {"\"\\ud800x\"", "surrogate"},
	        {"\"\\udc00\"", "surrogate"},
	        {"\"\\ud800\\ud800\"", "surrogate"},
	        {"\"\\udc00\\udc00\"", "surrogate"},
	        {"\"a\nb\"", "control character 0x0a"},
	        {"[\x01]", "byte 0x01"},
	        {"[1,\x0b 2]", "byte 0x0b"},
	        {"\xef\xbb\xbf{}", "byte 0xef"},
	        {"/* a */1", "byte 0: '/'"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		refuse(cases[i].text, cases[i].reason);
	refuse_bytes("1\0", 2, "byte 1: byte 0x00");
	refuse_bytes("[\0]", 3, "byte 1: byte 0x00");
	refuse_bytes("\"a\0b\"", 5, "control character 0x00");
}

static void odd_numbers_are_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {"01", "-01", "-",    "+1",    ".5",       "1.",    "1.e5",
	                                    "1e", "1e+", "0x10", "1_000", "--1",      "1.5.5", "1e5e5",
	                                    "-a", "00",  "0b1",  "1f",    "-Infinity"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		refuse(texts[i], "byte ");
	refuse("[1, 1e309]", "byte 4: the number 1e309 is too large");
	refuse("-1e999999999999", "too large");
}

static void invalid_utf8_is_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {"\"\x80\"",
	                                    "\"\xc0\x80\"",
	                                    "\"\xc1\xbf\"",
	                                    "\"\xe0\x9f\xbf\"",
	                                    "\"\xed\xa0\x80\"",
	                                    "\"\xed\xbf\xbf\"",
	                                    "\"\xf0\x8f\xbf\xbf\"",
	                                    "\"\xf4\x90\x80\x80\"",
	                                    "\"\xf5\x80\x80\x80\"",
	                                    "\"\xe2\x82\"",
	                                    "\"\xe2\x82",
	                                    "\"\xf0\x9f\x98\"",
	                                    "\"\xc3\"",
	                                    "\"\xff\"",
	                                    "{\"\xff\":1}"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		refuse(texts[i], "invalid UTF-8");
	zcc_json_destroy(parse("\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xc2\x80\xe0\xa0\x80\xf0\x90\x80\x80\""));
}

static void a_key_that_is_there_twice_is_refused(void **state)
{
	(void)state;
	refuse("{\"weight\":1,\"b\":2,\"weight\":1}", "\"weight\" is there twice");
	refuse("[{\"a\":{\"x\":1,\"\\u0078\":2}}]", "\"x\" is there twice");
	refuse("{\"\":1,\"\":2}", "there twice");
	zcc_json_destroy(parse("[{\"a\":{\"a\":1,\"A\":2}},{\"a\":1}]"));
}

static char *nested(int depth, const char *open, const char *close, const char *core)
{
	size_t step = strlen(open) + strlen(close);
	char *text = calloc((size_t)depth * step + strlen(core) + 1, 1);
	for (int i = 0; i < depth; i++)
		strcat(text, open);
	strcat(text, core);
	for (int i = 0; i < depth; i++)
		strcat(text, close);
	return text;
}

static void five_hundred_levels_and_no_more(void **state)
{
	(void)state;
	char *text = nested(500, "[", "]", "");
	zcc_json_destroy(parse(text));
	free(text);
	text = nested(500, "{\"a\":", "}", "1");
	zcc_json_destroy(parse(text));
	free(text);
	text = nested(501, "[", "]", "");
	refuse(text, "byte 500: nested deeper than 500");
	free(text);
	text = nested(501, "{\"a\":", "}", "1");
	refuse(text, "nested deeper than 500");
	free(text);
	text = malloc(1 << 20);
	memset(text, '[', 1 << 20);
	refuse_bytes(text, 1 << 20, "nested deeper than 500");
	free(text);
}

/* A text cut at every byte is refused and never read past its end. */
static void every_truncation_is_refused(void **state)
{
	(void)state;
	const char *text = "{\"a\":[1,-2.5e-3,true,false,null],\"\\ud83d\\ude00é\":{\"b\":\"c\\n\"}}";
	for (size_t bytes = 0; bytes < strlen(text); bytes++)
		refuse_bytes(text, bytes, "byte ");
	zcc_json_destroy(parse(text));
}

/* Processor time to parse, and for an object to find every member; other programs on the machine do not count. */
static double seconds_of(int64_t count, bool object)
{
	char *text = malloc((size_t)count * 24 + 2);
	char *at = text;
	*at++ = object ? '{' : '[';
	for (int64_t i = 0; i < count; i++)
		at += object ? sprintf(at, "%s\"key%lld\":%lld", i > 0 ? "," : "", (long long)i, (long long)i)
		             : sprintf(at, "%s%lld", i > 0 ? "," : "", (long long)i * 3);
	*at++ = object ? '}' : ']';
	zcc_json *document = NULL;
	clock_t start = clock();
	assert_int_equal(zcc_json_parse(text, at - text, "test", &document, NULL), ZCC_OK);
	char key[24];
	for (int64_t i = 0; object && i < count; i++) {
		snprintf(key, sizeof key, "key%lld", (long long)i);
		assert_int_equal(zcc_json_member(document, 0, key), i + 1);
	}
	double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
	assert_int_equal(nodes(document)->n_children, count);
	assert_true(nodes(document)[count].integer == (object ? count - 1 : (count - 1) * 3));
	zcc_json_destroy(document);
	free(text);
	return seconds;
}

/* Twice the work takes twice the time; quadratic work would take four times as long, in every one of the tries. */
static void assert_linear(int64_t count, bool object)
{
	for (int try = 0; try < 6; try++) {
		double half = seconds_of(count / 2, object), whole = seconds_of(count, object);
		print_message("%lld: %.0f ms, half of it: %.0f ms\n", (long long)count, whole * 1e3, half * 1e3);
		if (whole < 3.2 * half)
			return;
	}
	fail();
}

/* G6. */
static void a_million_numbers_take_twice_the_time_of_half_a_million(void **state)
{
	(void)state;
	assert_linear(1000000, false);
}

static void members_are_found_without_walking_the_object(void **state)
{
	(void)state;
	assert_linear(200000, true);
}

static void a_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	const char *text = "{\"a\":[1,2,3],\"b\":\"c\"}";
	for (int64_t n = 1;; n++) {
		zcc_json *document = NULL;
		zcc_error error = {0};
		zcci_fail_alloc(n);
		zcc_status status = zcc_json_parse(text, (int64_t)strlen(text), "test", &document, &error);
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		if (!hit) {
			assert_int_equal(status, ZCC_OK);
			assert_true(n > 4);
			zcc_json_destroy(document);
			return;
		}
		assert_int_equal(status, ZCC_ENOMEM);
		assert_int_equal(error.status, ZCC_ENOMEM);
		assert_null(document);
	}
}

static void sizes_that_no_text_has_are_refused(void **state)
{
	(void)state;
	zcc_json *document = NULL;
	assert_int_equal(zcc_json_parse("1", -1, "test", &document, NULL), ZCC_EINVAL);
	assert_int_equal(zcc_json_parse("1", INT64_MAX, "test", &document, NULL), ZCC_EFORMAT);
	zcc_json_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(integers_are_exact_through_all_63_bits),
	        cmocka_unit_test(other_numbers_are_doubles_only),
	        cmocka_unit_test(the_tree_is_in_document_order),
	        cmocka_unit_test(escapes_become_utf8),
	        cmocka_unit_test(bad_syntax_is_refused_with_its_place),
	        cmocka_unit_test(odd_numbers_are_refused),
	        cmocka_unit_test(invalid_utf8_is_refused),
	        cmocka_unit_test(a_key_that_is_there_twice_is_refused),
	        cmocka_unit_test(five_hundred_levels_and_no_more),
	        cmocka_unit_test(every_truncation_is_refused),
	        cmocka_unit_test(a_million_numbers_take_twice_the_time_of_half_a_million),
	        cmocka_unit_test(members_are_found_without_walking_the_object),
	        cmocka_unit_test(a_failed_allocation_is_reported_and_leaks_nothing),
	        cmocka_unit_test(sizes_that_no_text_has_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
