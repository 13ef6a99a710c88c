/* SPDX-License-Identifier: MIT */
/*
 * points_ocaml.c - where Stack_overflow is made of a fault of OCaml's own code, nothing goes in
 * there, and anything into what else is in the file (tests/live/targets/points-ocaml.S).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/points.h"

static struct image *open_target(const char *name)
{
	struct dinst_error e = {0};
	struct image *img = NULL;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", getenv("DINST_BUILD"), name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, path, NULL, &img, &e), 0);
	close(fd);
	return img;
}

/* Entry, call and exit are all refused, or none is. */
static void check(struct image *img, const char *name, bool refused)
{
	const struct image_function *functions;
	size_t count = image_functions(img, &functions), i = 0;
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};

	while (i < count && strcmp(functions[i].name, name) != 0)
		i++;
	assert_true(i < count);
	assert_int_equal(image_overflows(img, functions[i].address), refused);
	assert_int_equal(image_overflows(img, functions[i].address + functions[i].size - 1),
			 refused);
	assert_int_equal(plan_function(img, (uint32_t)i, &plan, &e), 0);
	assert_int_equal(plan->point_count, 3);
	for (size_t k = 0; k < plan->point_count; k++) {
		assert_int_equal(plan->points[k].window < 0, refused);
		if (refused)
			assert_int_equal(plan->points[k].refusal, REFUSAL_UNMOVABLE);
	}
	plan_free(img, plan);
}

/* fear E1: what makes an exception of a stack overflow finds it in OCaml's code only */
static void test_units(void **unused)
{
	struct image *img = open_target("points-ocaml");

	(void)unused;
	check(img, "camlOne__f_1", true);
	check(img, "caml_between", false);
	check(img, "camlTwo__g_1", true);
	check(img, "caml_behind", false);
	image_close(img);
}

/* Version 5 makes room before it needs it. */
static void test_later(void **unused)
{
	struct image *img = open_target("points-ocaml-5");

	(void)unused;
	check(img, "camlOne__f_1", false);
	image_close(img);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_units),
		cmocka_unit_test(test_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
