/* How faults are filled in, put into context and cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

static void a_fault_carries_status_code_place_and_message(void **state)
{
	(void)state;
	zcc_error error;
	memset(&error, 0x5a, sizeof error);
	int32_t line = __LINE__ + 1;
	zcc_status status = zcci_fail(&error, ZCC_EIO, 28, "file write", "%s: %d of %d bytes", "a.bin", 3, 7);
	assert_int_equal(status, ZCC_EIO);
	assert_int_equal(error.status, ZCC_EIO);
	assert_int_equal(error.code, 28);
	assert_int_equal(error.process, -1);
	assert_int_equal(error.line, line);
	assert_string_equal(error.file, "test_status.c");
	assert_string_equal(error.operation, "file write");
	assert_string_equal(error.message, "a.bin: 3 of 7 bytes");
}

static void a_fault_nobody_asks_about_is_only_its_status(void **state)
{
	(void)state;
	assert_int_equal(zcci_fail(NULL, ZCC_EMAP, 0, "test", "%d", 1), ZCC_EMAP);
	assert_int_equal(zcci_context(NULL, ZCC_EMAP, "%d", 1), ZCC_EMAP);
}

static void long_texts_are_cut_and_end_in_nul(void **state)
{
	(void)state;
	char text[3000];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	struct {
		zcc_error error;
		char guard[16];
	} place;
	memset(&place, 0x5a, sizeof place);
	zcci_fail_at(&place.error, ZCC_EINVAL, 0, text, text, 1, "%s", text);
	assert_int_equal(strlen(place.error.message), sizeof place.error.message - 1);
	assert_int_equal(strlen(place.error.operation), sizeof place.error.operation - 1);
	assert_int_equal(strlen(place.error.file), sizeof place.error.file - 1);
	for (size_t i = 0; i < sizeof place.guard; i++)
		assert_int_equal(place.guard[i], 0x5a);
}

static void context_goes_before_the_message_and_leaves_the_rest(void **state)
{
	(void)state;
	zcc_error error;
	zcci_fail(&error, ZCC_EFORMAT, 5, "open", "the header ends at byte %d", 9);
	zcc_error before = error;
	assert_int_equal(zcci_context(&error, ZCC_EFORMAT, "%s, rank %d", "a.safetensors", 3), ZCC_EFORMAT);
	assert_string_equal(error.message, "a.safetensors, rank 3: the header ends at byte 9");
	assert_int_equal(zcci_context(&error, ZCC_EFORMAT, "load"), ZCC_EFORMAT);
	assert_string_equal(error.message, "load: a.safetensors, rank 3: the header ends at byte 9");
	memcpy(error.message, before.message, sizeof error.message);
	assert_memory_equal(&error, &before, offsetof(zcc_error, message));
}

static void context_of_any_length_before_any_message_stays_within(void **state)
{
	(void)state;
	const int lengths[] = {0, 1, 500, 1019, 1020, 1021, 1022, 1023, 1024, 1025, 2900};
	const int n = sizeof lengths / sizeof *lengths;
	for (int i = 0; i < n; i++)
		for (int k = 0; k < n; k++) {
			char context[3000] = "", message[3000] = "", want[6100];
			memset(context, 'c', (size_t)lengths[i]);
			memset(message, 'm', (size_t)lengths[k]);
			struct {
				zcc_error error;
				char guard[16];
			} place;
			memset(&place, 0x5a, sizeof place);
			zcci_fail(&place.error, ZCC_EINVAL, 0, "test", "%s", message);
			message[sizeof place.error.message - 1] = '\0';
			zcci_context(&place.error, ZCC_EINVAL, "%s", context);
			snprintf(want, sizeof want, "%s: %s", context, message);
			want[sizeof place.error.message - 1] = '\0';
			assert_string_equal(place.error.message, want);
			for (size_t g = 0; g < sizeof place.guard; g++)
				assert_int_equal(place.guard[g], 0x5a);
		}
}

static void every_status_has_its_name(void **state)
{
	(void)state;
	const struct {
		zcc_status status;
		const char *name;
	} all[] = {
	        {ZCC_OK, "ZCC_OK"},           {ZCC_EINVAL, "ZCC_EINVAL"},   {ZCC_ENOMEM, "ZCC_ENOMEM"},
	        {ZCC_EIO, "ZCC_EIO"},         {ZCC_EFORMAT, "ZCC_EFORMAT"}, {ZCC_EMAP, "ZCC_EMAP"},
	        {ZCC_ELAYOUT, "ZCC_ELAYOUT"}, {ZCC_EPOLICY, "ZCC_EPOLICY"}, {ZCC_EAGREE, "ZCC_EAGREE"},
	        {ZCC_EPEER, "ZCC_EPEER"},     {ZCC_EMPI, "ZCC_EMPI"},       {ZCC_EVERIFY, "ZCC_EVERIFY"},
	        {ZCC_EINTR, "ZCC_EINTR"},     {ZCC_EEXIST, "ZCC_EEXIST"},   {ZCC_EOVERFLOW, "ZCC_EOVERFLOW"},
	        {ZCC_EDEVICE, "ZCC_EDEVICE"}, {ZCC_ESTALE, "ZCC_ESTALE"},   {ZCC_EBUSY, "ZCC_EBUSY"},
	};
	const int n = sizeof all / sizeof *all;
	for (int i = 0; i < n; i++)
		assert_string_equal(zcc_status_name(all[i].status), all[i].name);
	assert_string_equal(zcc_status_name(1), "ZCC_E?");
	assert_string_equal(zcc_status_name(-n), "ZCC_E?");
	assert_string_equal(zcc_status_name(INT32_MIN), "ZCC_E?");
	assert_string_equal(zcc_status_name(INT32_MAX), "ZCC_E?");
}

static void a_launcher_kills_after_a_second_or_what_it_was_told(void **state)
{
	(void)state;
	static const char name[] = "OMPI_MCA_odls_base_sigkill_timeout";
	const int64_t second = 1000000000;
	unsetenv(name);
	assert_int_equal(zcc_stop_ns(), second);
	setenv(name, "20", 1);
	assert_int_equal(zcc_stop_ns(), 20 * second);
	const char *const nonsense[] = {"", "soon", "0", "-5"};
	for (int i = 0; i < 4; i++) {
		setenv(name, nonsense[i], 1);
		assert_int_equal(zcc_stop_ns(), second);
	}
	setenv(name, "999999999999999999999", 1);
	assert_int_equal(zcc_stop_ns(), 3600 * second);
	unsetenv(name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_fault_carries_status_code_place_and_message),
	        cmocka_unit_test(a_fault_nobody_asks_about_is_only_its_status),
	        cmocka_unit_test(long_texts_are_cut_and_end_in_nul),
	        cmocka_unit_test(context_goes_before_the_message_and_leaves_the_rest),
	        cmocka_unit_test(context_of_any_length_before_any_message_stays_within),
	        cmocka_unit_test(every_status_has_its_name),
	        cmocka_unit_test(a_launcher_kills_after_a_second_or_what_it_was_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
