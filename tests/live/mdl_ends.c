/* SPDX-License-Identifier: MIT */
/*
 * mdl_ends.c - metrics of functions that never return, and of such that call what returns twice: what
 * was switched on when they were entered is off when they have been left.
 */
#include "tests/live/mdl_help.h"

/* What one thread had left, and had not come by since, when the request came (docs/mdl.md). */
enum { ROUNDS = 50, LEFT_MAX = 8 };

static const char operations[] =
	"list opf is procedure { items { \"op\" }; }\n"
	"metric ops { name \"ops\"; units calls; aggregateOperator sum; style EventCounter;\n"
	"	constraint procedure; constraint thread; constraint process;\n"
	"	base is counter { foreach f in opf { append preInsn f.entry (* ops++; *) } } }\n";

static unsigned of(struct harness *h, const char *metric, const char *function)
{
	char focus[100];

	snprintf(focus, sizeof(focus), "/Code/mdl_ends/%s", function);
	return mdl_insert(h, metric, focus);
}

static void begin(struct harness *h)
{
	harness_start(h, "mdl_ends", NULL);
	mdl_attach(h, operations);
}

/* It has run, and runs no more. */
static void expect_ended(struct harness *h, unsigned timer)
{
	const struct timespec pause = {.tv_nsec = 30 * 1000 * 1000};
	const int64_t value = mdl_value(h, timer);

	assert_true(value > 0);
	nanosleep(&pause, NULL);
	assert_int_equal(mdl_value(h, timer), value);
}

/* fear E3: a function that has no return at all, only a throw */
static void test_never_returns(void **state)
{
	struct harness *h = *state;
	unsigned ops, active, wall, inclusive;

	begin(h);
	ops = of(h, "ops", "fail_with");
	active = of(h, "active", "fail_with");
	wall = of(h, "wall", "fail_with");
	inclusive = of(h, "wall_inclusive", "fail_with");
	assert_string_equal(mdl_ask(h, "fail %d", ROUNDS), "done");
	/* One of three calls of op() is made from within. */
	assert_int_equal(mdl_value(h, ops), ROUNDS);
	assert_int_equal(mdl_value(h, active), 0);
	expect_ended(h, wall);
	expect_ended(h, inclusive);
	mdl_end(h);
}

/* fear E3: the same with longjmp(): what it left is undone when the thread comes to the next such function */
static void test_only_jumps(void **state)
{
	struct harness *h = *state;
	unsigned active, wall, inclusive;

	begin(h);
	active = of(h, "active", "leap_with");
	wall = of(h, "wall", "leap_with");
	inclusive = of(h, "wall_inclusive", "leap_with");
	of(h, "active", "fail_with");
	assert_string_equal(mdl_ask(h, "leap %d", ROUNDS), "done");
	assert_string_equal(mdl_ask(h, "fail 1"), "done");
	assert_int_equal(mdl_value(h, active), 0);
	expect_ended(h, wall);
	expect_ended(h, inclusive);
	mdl_end(h);
}

/* fear E3: what is dropped while a request comes, and was entered before it, is not taken from its counts */
static void test_comes_while_it_jumps(void **state)
{
	struct harness *h = *state;
	unsigned active;
	int64_t value;

	begin(h);
	of(h, "wall", "leap_with");
	of(h, "active", "fail_with");
	harness_send(h, "leap 3000000\n");
	active = of(h, "active", "leap_with");
	assert_string_equal(harness_line(h, MDL_ANSWER_MS), "done");
	assert_string_equal(mdl_ask(h, "fail 1"), "done");
	value = mdl_value(h, active);
	assert_true(value <= 0 && value >= -LEFT_MAX);
	mdl_end(h);
}

static void check_twice(struct harness *h, const char *command, const char *function)
{
	unsigned wall, calls;

	begin(h);
	wall = of(h, "wall", function);
	calls = of(h, "calls", function);
	assert_string_equal(mdl_ask(h, "%s %d", command, ROUNDS), "done");
	assert_int_equal(mdl_value(h, calls), ROUNDS);
	expect_ended(h, wall);
	mdl_end(h);
}

/* fear E3: setjmp() returns once more, where nothing had stopped the timer: it is not started twice */
static void test_returns_twice(void **state)
{
	check_twice(*state, "twice", "lander");
}

/* fear E3, G2: the same of vfork(), whose child ends without coming out of the function */
static void test_vfork(void **state)
{
	check_twice(*state, "vfork", "parent");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_never_returns, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_only_jumps, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_comes_while_it_jumps, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_returns_twice, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_vfork, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/mdl_ends", tests, NULL, NULL);
}
