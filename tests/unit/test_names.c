/* The list of distinct names: numbers in order of adding, found without walking it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/names.h"

static const char *name_of(int i)
{
	static char name[32];
	snprintf(name, sizeof name, "layers.%d.weight", i);
	return name;
}

static void names_keep_their_numbers_while_the_list_grows(void **state)
{
	(void)state;
	enum { COUNT = 5000 };
	zcci_names names = {0};
	assert_int_equal(zcci_names_find(&names, "layers.0.weight"), -1);
	for (int i = 0; i < COUNT; i++) {
		assert_int_equal(zcci_names_find(&names, name_of(i)), -1);
		assert_int_equal(zcci_names_add(&names, name_of(i)), ZCC_OK);
		assert_int_equal(zcci_names_find(&names, name_of(i)), i);
		assert_int_equal(zcci_names_find(&names, name_of(i / 2)), i / 2);
	}
	assert_int_equal(names.n_names, COUNT);
	for (int i = 0; i < COUNT; i++) {
		assert_int_equal(zcci_names_find(&names, name_of(i)), i);
		assert_string_equal(names.names[i], name_of(i));
	}
	assert_int_equal(zcci_names_find(&names, ""), -1);
	zcci_names_clear(&names);
	assert_int_equal(zcci_names_find(&names, name_of(0)), -1);
}

static void a_failed_addition_leaves_the_list_as_it_was(void **state)
{
	(void)state;
	for (int count = 0; count <= 32; count += 32)
		for (int64_t n = 1;; n++) {
			zcci_names names = {0};
			for (int i = 0; i < count; i++)
				assert_int_equal(zcci_names_add(&names, name_of(i)), ZCC_OK);
			zcci_fail_alloc(n);
			zcc_status status = zcci_names_add(&names, "more");
			bool hit = zcci_fail_alloc_hit();
			zcci_fail_alloc(0);
			assert_int_equal(status, hit ? ZCC_ENOMEM : ZCC_OK);
			assert_int_equal(names.n_names, hit ? count : count + 1);
			assert_int_equal(zcci_names_find(&names, "more"), hit ? -1 : count);
			for (int i = 0; i < count; i++)
				assert_int_equal(zcci_names_find(&names, name_of(i)), i);
			if (hit)
				assert_int_equal(zcci_names_add(&names, "more"), ZCC_OK);
			assert_int_equal(zcci_names_find(&names, "more"), count);
			zcci_names_clear(&names);
			if (!hit)
				break;
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(names_keep_their_numbers_while_the_list_grows),
	        cmocka_unit_test(a_failed_addition_leaves_the_list_as_it_was),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
