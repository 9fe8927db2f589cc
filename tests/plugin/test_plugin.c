/* What the listing and the opening say of a plug-in that is missing, refused or there. A plug-in is looked for once in
 * a program, so each case is a program of its own: this one, started again with the folder of one fake on the loader's
 * path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"

/* Prints the rows of the listing after the host's, then what opening says. */
static int print_all(void)
{
	char name[32], about[256];
	int32_t found;
	zcc_error error = {0};
	zcc_device *device;
	for (int32_t i = 2; zcc_device_list(i, name, about, &found, &error) == ZCC_OK && found; i++)
		printf("%s|%s\n", name, about);
	zcc_status status = zcc_device_open("cuda:5", &device, &error);
	printf("%s|%s\n", zcc_status_name(status), error.message);
	return 0;
}

static char output[4096];

static void run_with(const char *fake)
{
	char self[1024], command[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	assert_true(n > 0);
	self[n] = '\0';
	snprintf(command, sizeof command, "LD_LIBRARY_PATH='%s/%s' '%s' print", ZCC_FAKE_PLUGINS, fake, self);
	FILE *pipe = popen(command, "r");
	size_t length = fread(output, 1, sizeof output - 1, pipe);
	output[length] = '\0';
	assert_int_equal(pclose(pipe), 0);
}

static void says(const char *part)
{
	if (strstr(output, part) == NULL)
		fail_msg("\"%s\" is not in:\n%s", part, output);
}

static void a_missing_plugin_is_one_row_that_says_where_it_was_looked_for(void **state)
{
	(void)state;
	run_with("nowhere");
	says("cuda|libzcc_cuda.so is neither beside libzcc.so nor where the loader looks\n");
	says("ZCC_EDEVICE|libzcc_cuda.so is neither beside");
}

static void a_plugin_of_another_version_is_refused_with_both_numbers(void **state)
{
	(void)state;
	char text[128];
	run_with("other_version");
	snprintf(text, sizeof text, "is of device version 77, this library of %d\n", ZCCI_DEVICE_VERSION);
	says("cuda|");
	says(text);
	says("ZCC_EDEVICE|");
	run_with("other_size");
	snprintf(text, sizeof text, "has a table of 24 bytes, this library of %zu\n", sizeof(zcci_device_ops));
	says(text);
}

static void a_plugin_that_lacks_something_is_refused_with_its_name(void **state)
{
	(void)state;
	run_with("missing_slot");
	says("has no stream_wait_event in its table\n");
	run_with("no_table");
	says("has no table for a library of device version");
	run_with("no_symbol");
	says("has no zcc_device_plugin\n");
}

static void a_plugin_without_driver_or_device_says_so(void **state)
{
	(void)state;
	run_with("no_driver");
	says("cuda|the driver is too old\n");
	says("ZCC_EDEVICE|the driver is too old\n");
	run_with("no_device");
	says("cuda|this machine has none\n");
	says("ZCC_EINVAL|cuda:5 asked for, this machine has 0\n");
}

static void a_plugin_that_is_well_lists_its_devices(void **state)
{
	(void)state;
	run_with("good");
	says("cuda:0|number 0\ncuda:1|number 1\nZCC_EINVAL|cuda:5 asked for, this machine has 2\n");
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "print") == 0)
		return print_all();
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_missing_plugin_is_one_row_that_says_where_it_was_looked_for),
	        cmocka_unit_test(a_plugin_of_another_version_is_refused_with_both_numbers),
	        cmocka_unit_test(a_plugin_that_lacks_something_is_refused_with_its_name),
	        cmocka_unit_test(a_plugin_without_driver_or_device_says_so),
	        cmocka_unit_test(a_plugin_that_is_well_lists_its_devices),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
