/* SPDX-License-Identifier: MIT */
/*
 * points_pieces.c - functions that lie in each other so that it would take hours to plan
 * one of them (tests/live/targets/points-pieces.S) are planned, or left alone.
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

enum { INNER = 100000, REACHING = 30000 };

static struct image *open_target(void)
{
	struct dinst_error e = {0};
	struct image *img = NULL;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/points-pieces", getenv("DINST_BUILD"));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, path, NULL, &img, &e), 0);
	close(fd);
	return img;
}

static struct function_plan *plan_of(struct image *img, const char *name)
{
	const struct image_function *functions;
	size_t count = image_functions(img, &functions), i = 0;
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};

	while (i < count && strcmp(functions[i].name, name) != 0)
		i++;
	assert_true(i < count);
	assert_int_equal(plan_function(img, (uint32_t)i, &plan, &e), 0);
	return plan;
}

/* fear L1: a function that a hundred thousand others cut into pieces does not hold an insert up */
static void test_pieces(void **state)
{
	struct image *img = open_target();
	struct function_plan *plan = plan_of(img, "outer");

	(void)state;
	/* In front of each inner one it is left, and behind the last there is its return. */
	assert_int_equal(plan->point_count, 1 + INNER + 1);
	assert_int_equal(plan->points[0].kind, POINT_ENTRY);
	assert_int_equal(plan->points[0].tactic, TACTIC_JUMP);
	assert_int_equal(plan->window_count, 1);
	assert_int_equal(plan->windows[0].length, 8);
	for (size_t i = 1; i < plan->point_count; i++) {
		assert_int_equal(plan->points[i].kind, POINT_EXIT);
		assert_int_equal(plan->points[i].window, i == 1 ? 0 : -1);
		assert_int_equal(plan->points[i].place, i <= INNER ? PLACE_FALLS : PLACE_BEFORE);
	}
	plan_free(img, plan);
	image_close(img);
}

static void check_refused(struct image *img, unsigned number)
{
	struct function_plan *plan;
	char name[64];

	snprintf(name, sizeof(name), "reaching.%u", number);
	plan = plan_of(img, name);
	assert_int_equal(plan->point_count, 2);
	assert_int_equal(plan->window_count, 0);
	assert_int_equal(plan->points[0].refusal, REFUSAL_NO_ROOM);
	assert_int_equal(plan->points[1].refusal, REFUSAL_NO_ROOM);
	plan_free(img, plan);
}

/*
 * fear L1: a function with tens of thousands of neighbours, all of which want something of
 * theirs, gets nothing of them, soon; whoever is asked for first
 */
static void test_neighbours(void **state)
{
	enum { STEP = 1999 };
	struct image *img = open_target();

	(void)state;
	for (unsigned i = 0; i < REACHING; i += STEP)
		check_refused(img, INNER + i);
	check_refused(img, INNER + REACHING - 1);
	image_close(img);
	img = open_target();
	check_refused(img, INNER + REACHING - 1);
	for (unsigned i = 0; i < REACHING; i += STEP)
		check_refused(img, INNER + REACHING - 2 - i);
	image_close(img);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_neighbours),
	};

	alarm(120); /* without a bound each takes hours */
	return cmocka_run_group_tests_name("points: pieces", tests, NULL, NULL);
}
