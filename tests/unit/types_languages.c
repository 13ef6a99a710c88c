/* SPDX-License-Identifier: MIT */
/*
 * types_languages.c - what debug information of other languages than C means in another way: arguments
 * that are passed by their address, arrays that begin at 1, or of which the first index is the innermost.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdbool.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "mutator/types_describe.h"

static struct image *image;

static int set_up(void **state)
{
	const char *build = getenv("DINST_BUILD");
	struct dinst_error e = {0};
	char path[512];
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/tests/live/targets/typed-fortran",
		 build ? build : "build");
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	if (image_open(fd, path, NULL, &image, &e))
		fail_msg("%s", e.text);
	close(fd);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	image_close(image);
	return 0;
}

static uint32_t function(const char *name)
{
	const struct image_function *functions;
	const size_t count = image_functions(image, &functions);
	uint32_t i = 0;

	while (i < count && strcmp(functions[i].name, name) != 0)
		i++;
	assert_true(i < count);
	return i;
}

static struct type_function taken_by(const char *name)
{
	struct type_function f;

	types_of_function(image, function(name), &f);
	return f;
}

/* An argument of Fortran has the type of the value, and is its address: also where the unit with its code is C's. */
static void test_fortran(void **state)
{
	static const char *const names[] = {"takes_referred", "takes_instance"};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		assert_false(taken_by(names[i]).known);
		assert_null(types_describe(image, function(names[i])));
	}
}

/* Of any language: that the value is where an argument's register leads to says that it is passed by its address. */
static void test_addresses(void **state)
{
	struct type_function f = taken_by("takes_address");

	(void)state;
	assert_true(f.known);
	assert_int_equal(f.result.kind, TYPE_INTEGER);
	assert_int_equal(f.arguments[0].kind, TYPE_INTEGER);
	assert_int_equal(f.arguments[1].kind, TYPE_UNSURE);
	assert_int_equal(taken_by("takes_kept").arguments[0].kind, TYPE_UNSURE);
	f = taken_by("takes_value");
	assert_int_equal(f.arguments[0].kind, TYPE_INTEGER);
	assert_int_equal(f.arguments[1].kind, TYPE_INTEGER);
}

/* Variables of a module; arrays whose first element is not number 0, and those that no C program has. */
static void test_variables(void **state)
{
	static const struct {
		const char *name;
		enum type_kind kind;
		uint32_t size;
	} known[] = {
		{"ratio", TYPE_FLOAT, 8},      {"vector", TYPE_ARRAY, 12},
		{"shifted", TYPE_ARRAY, 12},   {"matrix", TYPE_OTHER, 24},
		{"elsewhere", TYPE_OTHER, 12},
	};
	const struct image_function *functions;
	vaddr_t address;

	(void)state;
	image_functions(image, &functions);
	address = functions[function("beside")].address;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		struct type type = {0};

		types_of_variable(image, address + 64 * (i + 1), &type);
		if (type.kind != known[i].kind || type.size != known[i].size)
			fail_msg("%s: %d of %u bytes", known[i].name, type.kind, type.size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fortran),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_variables),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
