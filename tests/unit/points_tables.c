/* SPDX-License-Identifier: MIT */
/*
 * points_tables.c - a function whose jump tables would take hours to read
 * (tests/live/targets/points-tables.S) is left with what is safe for any.
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

/* fear L1: a function that is made of jump tables inside of one another does not hold an insert up */
static void test_endless_tables(void **state)
{
	const struct image_function *functions;
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};
	struct image *img = NULL;
	char path[4096];
	size_t count, i = 0;
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/tests/live/targets/points-tables", getenv("DINST_BUILD"));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, path, NULL, &img, &e), 0);
	close(fd);
	count = image_functions(img, &functions);
	while (i < count && strcmp(functions[i].name, "endless") != 0)
		i++;
	assert_true(i < count);
	assert_int_equal(plan_function(img, (uint32_t)i, &plan, &e), 0);
	assert_int_equal(plan->point_count, 2);
	/* The first instruction alone is in its window, whatever else may be led to. */
	assert_int_equal(plan->points[0].tactic, TACTIC_JUMP);
	assert_int_equal(plan->windows[plan->points[0].window].length, 7);
	assert_int_equal(plan->points[1].refusal, REFUSAL_UNRESOLVED);
	plan_free(img, plan);
	image_close(img);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_endless_tables),
	};

	alarm(60); /* without a bound it takes minutes */
	return cmocka_run_group_tests_name("points: endless tables", tests, NULL, NULL);
}
