/* Writing JSON: what is written is read back as it was, and misuse is reported once, at the end. */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "zcc/json.h"

static zcc_json_writer *create(int32_t indent)
{
	zcc_json_writer *writer = NULL;
	assert_int_equal(zcc_json_writer_create(indent, &writer, NULL), ZCC_OK);
	return writer;
}

static void write_sample(zcc_json_writer *w)
{
	zcc_json_write_begin_object(w);
	zcc_json_write_key(w, "a\"b");
	zcc_json_write_begin_array(w);
	zcc_json_write_integer(w, INT64_MIN);
	zcc_json_write_number(w, 0.5);
	zcc_json_write_bool(w, 1);
	zcc_json_write_bool(w, 0);
	zcc_json_write_null(w);
	zcc_json_write_begin_array(w);
	zcc_json_write_end_array(w);
	zcc_json_write_begin_object(w);
	zcc_json_write_end_object(w);
	zcc_json_write_end_array(w);
	zcc_json_write_key(w, "s");
	zcc_json_write_string(w,
	                      "\x01\t\n\"\\\x7f"
	                      "é/",
	                      9);
	zcc_json_write_end_object(w);
}

static void one_line_without_spaces(void **state)
{
	(void)state;
	zcc_json_writer *w = create(0);
	write_sample(w);
	const char *text;
	int64_t bytes;
	assert_int_equal(zcc_json_writer_text(w, &text, &bytes, NULL), ZCC_OK);
	assert_string_equal(text, "{\"a\\\"b\":[-9223372036854775808,0.5,true,false,null,[],{}],"
	                          "\"s\":\"\\u0001\\t\\n\\\"\\\\\x7f"
	                          "é/\"}");
	assert_int_equal(bytes, strlen(text));
	zcc_json_writer_destroy(w);
}

static void indented_lines(void **state)
{
	(void)state;
	zcc_json_writer *w = create(2);
	write_sample(w);
	const char *text;
	int64_t bytes;
	assert_int_equal(zcc_json_writer_text(w, &text, &bytes, NULL), ZCC_OK);
	assert_string_equal(
	        text,
	        "{\n  \"a\\\"b\": [\n    -9223372036854775808,\n    0.5,\n    true,\n    false,\n    null,\n    [],\n"
	        "    {}\n  ],\n  \"s\": \"\\u0001\\t\\n\\\"\\\\\x7f"
	        "é/\"\n}");
	zcc_json_writer_destroy(w);
}

/* The bits of every double, written and read by us and read by strtod. */
static void round_trip(const double *values, int64_t count)
{
	zcc_json_writer *w = create(0);
	zcc_json_write_begin_array(w);
	for (int64_t i = 0; i < count; i++)
		zcc_json_write_number(w, values[i]);
	zcc_json_write_end_array(w);
	const char *text;
	int64_t bytes, n;
	assert_int_equal(zcc_json_writer_text(w, &text, &bytes, NULL), ZCC_OK);
	zcc_json *document = NULL;
	assert_int_equal(zcc_json_parse(text, bytes, "test", &document, NULL), ZCC_OK);
	const zcc_json_node *nodes = zcc_json_nodes(document, &n);
	assert_int_equal(n, count + 1);
	for (int64_t i = 0; i < count; i++)
		if (memcmp(&nodes[i + 1].number, &values[i], sizeof *values) != 0)
			fail_msg("%a became %a", values[i], nodes[i + 1].number);
	zcc_json_destroy(document);
	zcc_json_writer_destroy(w);
}

static uint64_t seed_of_this_run(void)
{
	const char *given = getenv("ZCC_SEED");
	uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)zcc_clock_ns();
	print_message("ZCC_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

static void a_million_random_doubles_are_bit_equal(void **state)
{
	(void)state;
	enum { COUNT = 1000000 };
	double *values = malloc(COUNT * sizeof *values);
	zcc_memory_fill_random(values, COUNT * (int64_t)sizeof *values, (int64_t)seed_of_this_run());
	for (int64_t i = 0; i < COUNT; i++)
		if (!isfinite(values[i]))
			values[i] = ldexp((double)i, -(int)(i % 1100));
	const double special[] = {0.0,
	                          -0.0,
	                          DBL_MAX,
	                          -DBL_MAX,
	                          DBL_MIN,
	                          DBL_TRUE_MIN,
	                          -DBL_TRUE_MIN,
	                          DBL_EPSILON,
	                          nextafter(DBL_MIN, 0),
	                          0.1,
	                          1.0 / 3,
	                          1e22,
	                          1e23,
	                          9007199254740993.0,
	                          0x1p63,
	                          -0x1p63};
	memcpy(values, special, sizeof special);
	round_trip(values, COUNT);
	free(values);
}

static void numbers_take_the_fewest_digits(void **state)
{
	(void)state;
	static const struct {
		double value;
		const char *text;
	} cases[] = {{0.1, "0.1"},
	             {5, "5"},
	             {-0.0, "-0"},
	             {DBL_TRUE_MIN, "5e-324"},
	             {0.30000000000000004, "0.30000000000000004"},
	             {1e23, "1e+23"},
	             {1.0 / 3, "0.3333333333333333"},
	             {DBL_MAX, "1.7976931348623157e+308"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		zcc_json_writer *w = create(0);
		zcc_json_write_number(w, cases[i].value);
		const char *text;
		int64_t bytes;
		assert_int_equal(zcc_json_writer_text(w, &text, &bytes, NULL), ZCC_OK);
		assert_string_equal(text, cases[i].text);
		zcc_json_writer_destroy(w);
	}
}

/* A locale with a decimal comma must not reach the documents, in either direction. */
static void the_locale_of_the_program_does_not_matter(void **state)
{
	(void)state;
	static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE",
	                                    "fr_FR.UTF-8", "fr_FR.utf8", "ru_RU.utf8"};
	/* Most small systems have no such locale ready; make one where its source is there. */
	char folder[] = "/tmp/zcc-locale-XXXXXX", command[256];
	assert_non_null(mkdtemp(folder));
	snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
	if (system(command) == 0)
		setenv("LOCPATH", folder, 1);
	const char *set = NULL;
	for (size_t i = 0; set == NULL && i < sizeof names / sizeof *names; i++)
		set = setlocale(LC_ALL, names[i]);
	snprintf(command, sizeof command, "rm -rf %s", folder);
	assert_int_equal(system(command), 0);
	unsetenv("LOCPATH");
	if (set == NULL) {
		print_message("no locale with a decimal comma is installed\n");
		skip();
	}
	char comma[8];
	snprintf(comma, sizeof comma, "%.1f", 0.5);
	assert_string_equal(comma, "0,5");
	const double values[] = {0.5, -1.25e-7, 1e300, 123456.789};
	round_trip(values, 4);
	numbers_take_the_fewest_digits(NULL);
	snprintf(comma, sizeof comma, "%.1f", 0.5);
	assert_string_equal(comma, "0,5");
	setlocale(LC_ALL, "C");
}

/* Runs the calls named by letters: {}[] open and close, k key, s string, i integer, n number, N nan, z null, b bool. */
static zcc_status run(const char *calls, zcc_error *error)
{
	zcc_json_writer *w = create(0);
	for (const char *c = calls; *c != '\0'; c++) {
		switch (*c) {
		case '{':
			zcc_json_write_begin_object(w);
			break;
		case '}':
			zcc_json_write_end_object(w);
			break;
		case '[':
			zcc_json_write_begin_array(w);
			break;
		case ']':
			zcc_json_write_end_array(w);
			break;
		case 'k':
			zcc_json_write_key(w, "k");
			break;
		case 'K':
			zcc_json_write_key(w, "\xff");
			break;
		case 's':
			zcc_json_write_string(w, "s", 1);
			break;
		case 'U':
			zcc_json_write_string(w, "a\xc3", 2);
			break;
		case '0':
			zcc_json_write_string(w, "a\0b", 3);
			break;
		case '-':
			zcc_json_write_string(w, "a", -1);
			break;
		case 'i':
			zcc_json_write_integer(w, 1);
			break;
		case 'n':
			zcc_json_write_number(w, 1);
			break;
		case 'N':
			zcc_json_write_number(w, NAN);
			break;
		case 'I':
			zcc_json_write_number(w, -INFINITY);
			break;
		case 'z':
			zcc_json_write_null(w);
			break;
		case 'b':
			zcc_json_write_bool(w, 1);
			break;
		}
	}
	const char *text = NULL;
	int64_t bytes = 0;
	memset(error, 0, sizeof *error);
	zcc_status status = zcc_json_writer_text(w, &text, &bytes, error);
	if (status == ZCC_OK) {
		zcc_json *document = NULL;
		assert_int_equal(zcc_json_parse(text, bytes, "test", &document, NULL), ZCC_OK);
		zcc_json_destroy(document);
	} else {
		assert_null(text);
	}
	zcc_json_writer_destroy(w);
	return status;
}

static void calls_out_of_order_are_reported_at_the_end(void **state)
{
	(void)state;
	static const struct {
		const char *calls, *reason;
	} cases[] = {
	        {"", "not finished"},
	        {"{", "not finished"},
	        {"[[]", "1 arrays or objects are open"},
	        {"{i}", "without a key"},
	        {"{kk", "after a key"},
	        {"{k}", "after a key"},
	        {"k", "outside of an object"},
	        {"[k]", "outside of an object"},
	        {"}", "none is open"},
	        {"{]", "none is open"},
	        {"[}", "none is open"},
	        {"ii", "after the end"},
	        {"[]{", "after the end"},
	        {"[N]", "the number nan"},
	        {"[I]", "the number -inf"},
	        {"[U]", "not UTF-8"},
	        {"[0]", "a NUL"},
	        {"[-]", "-1 bytes"},
	        {"{Ki}", "not UTF-8"},
	        {"ik", "outside of an object"},
	        {"{iNkk", "without a key"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		zcc_error error;
		assert_int_equal(run(cases[i].calls, &error), ZCC_EINVAL);
		if (strstr(error.message, cases[i].reason) == NULL)
			fail_msg("%s: %s is not in: %s", cases[i].calls, cases[i].reason, error.message);
	}
	zcc_error error;
	assert_int_equal(run("{k[sinbz[{kn}]{}]}", &error), ZCC_OK);
	assert_int_equal(run("s", &error), ZCC_OK);
}

static void what_is_too_deep_to_read_is_not_written(void **state)
{
	(void)state;
	char calls[1003];
	zcc_error error;
	memset(calls, '[', 500);
	memset(calls + 500, ']', 500);
	calls[1000] = '\0';
	assert_int_equal(run(calls, &error), ZCC_OK);
	memset(calls, '[', 501);
	memset(calls + 501, ']', 501);
	calls[1002] = '\0';
	assert_int_equal(run(calls, &error), ZCC_EINVAL);
	assert_non_null(strstr(error.message, "deeper than 500"));
}

static void a_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	for (int64_t n = 1;; n++) {
		zcc_json_writer *w = NULL;
		zcc_error error = {0};
		zcci_fail_alloc(n);
		zcc_status status = zcc_json_writer_create(0, &w, &error);
		if (status == ZCC_OK) {
			zcc_json_write_begin_array(w);
			for (int i = 0; i < 1000; i++)
				zcc_json_write_integer(w, i);
			zcc_json_write_end_array(w);
			const char *text;
			int64_t bytes;
			status = zcc_json_writer_text(w, &text, &bytes, &error);
		}
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		zcc_json_writer_destroy(w);
		assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
		assert_int_equal(error.status, status);
		if (!hit) {
			assert_true(n > 3);
			return;
		}
	}
}

static void odd_indentations_are_refused(void **state)
{
	(void)state;
	zcc_json_writer *w = NULL;
	assert_int_equal(zcc_json_writer_create(-1, &w, NULL), ZCC_EINVAL);
	assert_int_equal(zcc_json_writer_create(17, &w, NULL), ZCC_EINVAL);
	assert_null(w);
	zcc_json_writer_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(one_line_without_spaces),
	        cmocka_unit_test(indented_lines),
	        cmocka_unit_test(a_million_random_doubles_are_bit_equal),
	        cmocka_unit_test(numbers_take_the_fewest_digits),
	        cmocka_unit_test(the_locale_of_the_program_does_not_matter),
	        cmocka_unit_test(calls_out_of_order_are_reported_at_the_end),
	        cmocka_unit_test(what_is_too_deep_to_read_is_not_written),
	        cmocka_unit_test(a_failed_allocation_is_reported_and_leaks_nothing),
	        cmocka_unit_test(odd_indentations_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
