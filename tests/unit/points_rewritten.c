/* SPDX-License-Identifier: MIT */
/*
 * points_rewritten.c - direct jumps to where the file has no code are another tool's, which has rewritten it: only single
 * instructions of such a function are replaced, and not that one. Calls to 0 are a compiler's.
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

static struct image *open_target(void)
{
	const char *build = getenv("DINST_BUILD");
	struct dinst_error e = {0};
	struct image *img = NULL;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/points-rewritten",
		 build ? build : "build");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	if (image_open(fd, path, NULL, &img, &e) < 0)
		fail_msg("%s: %s", path, e.text);
	close(fd);
	return img;
}

static struct function_plan *plan_of(struct image *img, const char *name)
{
	const struct image_function *functions;
	const size_t count = image_functions(img, &functions);
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};

	for (size_t i = 0; i < count && !plan; i++)
		if (!strcmp(functions[i].name, name))
			assert_int_equal(plan_function(img, (uint32_t)i, &plan, &e), 0);
	assert_non_null(plan);
	return plan;
}

static void test_compilers(void **state)
{
	static const char *const names[] = {"absent", "hidden"};
	struct image *img = open_target();

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct function_plan *plan = plan_of(img, names[i]);

		for (size_t k = 0; k < plan->point_count; k++)
			assert_int_equal(plan->points[k].refusal, REFUSAL_NONE);
		plan_free(img, plan);
	}
	image_close(img);
}

/* fear C3: nothing is patched over the jump, and nothing that is more than one instruction */
static void test_rewritten(void **state)
{
	static const char *const names[] = {"jumps", "branches", "calls"};
	enum { JUMP = 7, JUMP_SIZE = 5 }; /* where it is, and how long at least */
	struct image *img = open_target();

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct function_plan *plan = plan_of(img, names[i]);

		assert_true(plan->points[0].window >= 0);
		for (size_t k = 0; k < plan->window_count; k++) {
			const struct window *w = &plan->windows[k];
			const vaddr_t at = w->start - plan->points[0].address;

			assert_int_equal(w->insn_count, 1);
			assert_true(at + w->length + w->padding <= JUMP || at >= JUMP + JUMP_SIZE);
		}
		plan_free(img, plan);
	}
	image_close(img);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compilers),
		cmocka_unit_test(test_rewritten),
	};

	return cmocka_run_group_tests_name("points: rewritten files", tests, NULL, NULL);
}
