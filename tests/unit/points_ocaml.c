/* SPDX-License-Identifier: MIT */
/*
 * points_ocaml.c - where Stack_overflow is made of a fault of OCaml's own code, nothing goes in
 * there, and anything into what else is in the file (tests/live/targets/points-ocaml.S). Where stacks
 * grow instead (points-ocaml-5.S), as much of them is taken as every function finds.
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

#include "mutator/body.h"
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

/* Version 5 makes no exception of a fault. */
static void test_later(void **unused)
{
	struct image *img = open_target("points-ocaml-5");

	(void)unused;
	check(img, "camlOne__f_1", false);
	image_close(img);
}

/* fear H5: on OCaml's stacks, which end in others' memory, no more is taken than is there for certain */
static void test_small_stacks(void **unused)
{
	static const struct {
		const char *name;
		size_t left;
	} cases[] = {
		{"camlThree.looks_1", 240},  {"camlThree.leaf_2", 240},
		{"camlThree.leaf_3", 240},   {"camlThree.spills_4", 0},
		{"camlThree.pushes_5", 0},   {"camlThree.late_6", 0},
		{"camlThree.branches_7", 0}, {"camlOne__f_1", 0},
		{"caml_alloc1", 0},	     {"caml_call_realloc_stack", 0},
		{"caml_behind", SIZE_MAX},   {"main", SIZE_MAX},
	};
	struct image *img = open_target("points-ocaml-5");
	const struct image_function *functions;
	const size_t count = image_functions(img, &functions);

	(void)unused;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct image_function *f = functions;

		while (f < functions + count && strcmp(f->name, cases[i].name) != 0)
			f++;
		assert_true(f < functions + count);
		for (size_t k = 0; k < f->size; k++)
			if (code_stack_left(img, f->address + k) != cases[i].left)
				fail_msg("%s+%zu: %zu, not %zu", f->name, k,
					 code_stack_left(img, f->address + k), cases[i].left);
	}
	image_close(img);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_units),
		cmocka_unit_test(test_later),
		cmocka_unit_test(test_small_stacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
