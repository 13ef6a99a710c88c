/* SPDX-License-Identifier: MIT */
/*
 * points_slow.c - functions each of whose instructions asks for a look at all others
 * (tests/live/targets/points-slow.S) are planned soon: what is known of them is what it
 * would be after hours, or they are left with what is safe for any.
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
#include <time.h>
#include <unistd.h>

#include "mutator/points.h"
#include "tests/slower.h"

static struct image *img;

static int open_target(void **state)
{
	struct dinst_error e = {0};
	char path[4096];
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/tests/live/targets/points-slow", getenv("DINST_BUILD"));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, path, NULL, &img, &e), 0);
	close(fd);
	return 0;
}

static int close_target(void **state)
{
	(void)state;
	image_close(img);
	return 0;
}

static struct function_plan *plan(const char *name)
{
	const struct image_function *functions;
	size_t count = image_functions(img, &functions), i = 0;
	struct function_plan *p = NULL;
	struct dinst_error e = {0};

	while (i < count && strcmp(functions[i].name, name) != 0)
		i++;
	assert_true(i < count);
	assert_int_equal(plan_function(img, (uint32_t)i, &p, &e), 0);
	assert_true(p->point_count > 0);
	assert_int_equal(p->points[0].kind, POINT_ENTRY);
	return p;
}

static size_t exits(const struct function_plan *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->point_count; i++)
		n += p->points[i].kind == POINT_EXIT && !p->points[i].part;
	return n;
}

static size_t refused(const struct function_plan *p, enum refusal why)
{
	size_t n = 0;

	for (size_t i = 0; i < p->point_count; i++)
		n += p->points[i].window < 0 && p->points[i].refusal == why;
	return n;
}

/* fear L1: hundreds of thousands of indirect jumps, each come to by a chain of branches, are all understood */
static void test_chained(void **state)
{
	struct function_plan *p = plan("chained");

	(void)state;
	assert_int_equal(exits(p), 150001);
	assert_int_equal(refused(p, REFUSAL_UNRESOLVED), 0);
	assert_true(refused(p, REFUSAL_BRANCH_TARGET) > 149000);
	plan_free(img, p);
}

/* fear L1: jumps that ask for a look at a whole, long function, each, do not hold an insert up */
static void test_lost(void **state)
{
	struct function_plan *p = plan("lost");

	(void)state;
	/* They may lead back: no exits. The first instruction is alone in its window. */
	assert_int_equal(p->point_count, 1);
	assert_int_equal(p->points[0].tactic, TACTIC_JUMP);
	assert_int_equal(p->windows[p->points[0].window].length, 7);
	plan_free(img, p);
}

/* fear L1: jumps that may lead to each piece of a long row, each, are unresolved before all has been followed */
static void test_rows(void **state)
{
	struct function_plan *p = plan("rows");

	(void)state;
	assert_int_equal(p->point_count, 1);
	assert_int_equal(p->points[0].refusal, REFUSAL_UNRESOLVED);
	plan_free(img, p);
}

/* fear L1: labels that are known one from the other, hundreds of thousands, are all followed, and soon */
static void test_labels(void **state)
{
	struct function_plan *p = plan("labels");

	(void)state;
	assert_true(p->points[0].window >= 0);
	assert_int_equal(exits(p), 400002);
	/* They may be data: nothing is patched there. */
	assert_int_equal(refused(p, REFUSAL_UNDECODED), 400001);
	plan_free(img, p);
}

/* fear L1: hundreds of thousands of exits without room do not try the ways that lead there for minutes */
static void test_crowded(void **state)
{
	struct function_plan *p = plan("crowded");

	(void)state;
	assert_true(exits(p) >= 350000);
	assert_int_equal(refused(p, REFUSAL_UNRESOLVED), 0);
	assert_true(refused(p, REFUSAL_BRANCH_TARGET) > 349000);
	plan_free(img, p);
}

/* fear C4: an indirect jump that is found last, behind a label, may lead anywhere as one that is found first may */
static void test_late(void **state)
{
	struct function_plan *p = plan("late");

	(void)state;
	assert_int_equal(p->points[0].window, -1);
	assert_int_equal(p->points[0].refusal, REFUSAL_UNRESOLVED);
	plan_free(img, p);
}

/* fear L1: a table that leads to many long functions in turn does not have each decoded a thousand times */
static void test_swept(void **state)
{
	struct function_plan *p = plan("swept");

	(void)state;
	assert_int_equal(exits(p), 2);
	assert_int_equal(refused(p, REFUSAL_UNRESOLVED), 2);
	plan_free(img, p);
}

static double cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* fear L1: tens of thousands of branches from many long functions do not have each decoded a thousand times */
static void test_entered(void **state)
{
	struct function_plan *p;
	double begun;

	(void)state;
	plan_free(img, plan("late")); /* what is found out once for the whole file */
	begun = cpu_time();
	p = plan("entered");
	assert_true(cpu_time() - begun < 5 * SLOWER);
	assert_int_equal(exits(p), 1);
	assert_int_equal(p->points[0].refusal, REFUSAL_BRANCH_TARGET);
	plan_free(img, p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chained), cmocka_unit_test(test_lost),
		cmocka_unit_test(test_rows),	cmocka_unit_test(test_labels),
		cmocka_unit_test(test_crowded), cmocka_unit_test(test_late),
		cmocka_unit_test(test_swept),	cmocka_unit_test(test_entered),
	};

	alarm(300); /* without a bound it takes hours */
	return cmocka_run_group_tests_name("points: slow functions", tests, open_target,
					   close_target);
}
