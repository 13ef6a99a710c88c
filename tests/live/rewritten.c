/* SPDX-License-Identifier: MIT */
/*
 * rewritten.c - functions of a file that another tool has rewritten before: what can be had there counts what is so,
 * the rest is refused, and no result is wrong.
 */
#include "tests/live/harness_session.h"

enum { ROUNDS = 100 };

/* fear C3, J4: a jump to code that is not in the file, which comes back to the jump's own last bytes */
static void test_entry(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "rewritten", NULL);
	s = session_begin(h);
	id = session_insert_kind(s, "rewritten", POINT_ENTRY);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, id), ROUNDS);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_others(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	harness_start(h, "rewritten", NULL);
	s = session_begin(h);
	for (int kind = POINT_EXIT; kind <= POINT_STORE; kind++) {
		struct dinst_error e = {0};

		session_try_insert_kind(s, "rewritten", (enum point_kind)kind, &id, &e);
		session_go(h, ROUNDS);
	}
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* Where it comes back to is no exit that anybody knows of, and the jump is none. */
static void test_exit(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct session *s;
	unsigned id;

	harness_start(h, "rewritten", NULL);
	s = session_begin(h);
	assert_int_equal(session_try_insert_kind(s, "rewritten", POINT_EXIT, &id, &e),
			 DINST_REFUSED);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_entry), CASE(test_exit), CASE(test_others)};

	return cmocka_run_group_tests_name("live/rewritten", tests, NULL, NULL);
}
