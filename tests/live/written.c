/* SPDX-License-Identifier: MIT */
/*
 * written.c - jumps that the program has written into itself before, wherever in a function they are, and
 * wherever in it they lead: what lies over their targets is refused, and no result is wrong.
 */
#include "tests/live/harness_session.h"

enum { ROUNDS = 100 };

static void check(struct harness *h, const char *function)
{
	struct session *s;
	unsigned id;

	harness_start(h, "written", NULL);
	s = session_begin(h);
	id = session_insert_kind(s, function, POINT_EXIT);
	session_go(h, ROUNDS);
	assert_int_equal(session_refused(s, id), 1);
	assert_int_equal(session_value(s, id), ROUNDS);
	session_end(s);
	/* Its text is not the file's. */
	harness_verify_what(h, HARNESS_MAPS | HARNESS_THREADS | HARNESS_SIGNALS | HARNESS_FDS);
	harness_end(h, 0);
}

/* fear C3: a jump that a program has written into a part of a function that was moved away, back to where that was */
static void test_back(void **state)
{
	check(*state, "back");
}

static void test_across(void **state)
{
	check(*state, "across");
}

/* fear C3: ... behind the first MiB of a function */
static void test_large(void **state)
{
	check(*state, "large");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_back), CASE(test_across), CASE(test_large)};

	return cmocka_run_group_tests_name("live/written", tests, NULL, NULL);
}
