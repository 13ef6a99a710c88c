/* SPDX-License-Identifier: MIT */
/*
 * types_classes.c - which classes are passed by value is told by their
 * declarations: the target's functions say in their names what is right.
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

#include "mutator/types.h"

static struct image *open_target(const char *name)
{
	const char *build = getenv("DINST_BUILD");
	struct dinst_error e = {0};
	struct image *img;
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	if (image_open(fd, path, NULL, &img, &e))
		fail_msg("%s", e.text);
	close(fd);
	return img;
}

static void test_classes(void **state)
{
	struct image *img = open_target(*state);
	const struct image_function *functions;
	const size_t count = image_functions(img, &functions);
	unsigned values = 0, references = 0;

	for (size_t i = 0; i < count; i++) {
		const char *name = functions[i].name;
		const bool value = !strncmp(name, "value_", 6);
		struct type_function f;

		if (!value && strncmp(name, "reference_", 10) != 0)
			continue;
		types_of_function(img, (uint32_t)i, &f);
		assert_true(f.known);
		assert_int_equal(f.argument_count, 1);
		if (f.arguments[0].kind != (value ? TYPE_STRUCT : TYPE_BY_REFERENCE))
			fail_msg("%s: %d", name, f.arguments[0].kind);
		value ? values++ : references++;
	}
	assert_int_equal(values, 5);
	assert_int_equal(references, 9);
	image_close(img);
}

/* Where neither the class nor "= default" is told of, what is not certain is left open, and nothing is wrong. */
static void test_old(void **state)
{
	struct image *img = open_target("classes-old");
	const struct image_function *functions;
	const size_t count = image_functions(img, &functions);
	unsigned values = 0, references = 0, unsure = 0;

	(void)state;
	for (size_t i = 0; i < count; i++) {
		const char *name = functions[i].name;
		const bool value = !strncmp(name, "value_", 6);
		struct type_function f;

		if (!value && strncmp(name, "reference_", 10) != 0)
			continue;
		types_of_function(img, (uint32_t)i, &f);
		assert_true(f.known);
		if (f.arguments[0].kind == TYPE_UNSURE)
			unsure++;
		else if (f.arguments[0].kind != (value ? TYPE_STRUCT : TYPE_BY_REFERENCE))
			fail_msg("%s: %d", name, f.arguments[0].kind);
		else
			value ? values++ : references++;
	}
	assert_int_equal(values, 4);
	assert_true(references > 0);
	assert_true(unsure > 0);
	image_close(img);
}

int main(void)
{
	static char classes[] = "classes", four[] = "classes-four";
	const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_classes, classes),
					   cmocka_unit_test_prestate(test_classes, four),
					   cmocka_unit_test(test_old)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
