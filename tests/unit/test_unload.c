/* The library as a program has it that loads it by name and lets it go again, with something left open. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "zcc/device.h"

/* The thread of the device's stream looks for work for a while, wherever the library has gone. */
static void threads_go_on_when_the_library_is_let_go_of(void **state)
{
	(void)state;
	zcc_device *first = NULL;
	for (int i = 0; i < 20; i++) {
		void *library = dlopen(ZCC_LIBRARY, RTLD_NOW | RTLD_LOCAL);
		if (library == NULL)
			fail_msg("%s", dlerror());
		__typeof__(zcc_device_open) *open_device;
		*(void **)&open_device = dlsym(library, "zcc_device_open");
		zcc_device *device = NULL;
		zcc_error error = {0};
		assert_int_equal(open_device("late:host,lazy", &device, &error), ZCC_OK);
		assert_int_equal(dlclose(library), 0);
		usleep(1000);
		/* Still there: what was opened once is the same the next time. */
		if (first == NULL)
			first = device;
		assert_ptr_equal(device, first);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(threads_go_on_when_the_library_is_let_go_of),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
