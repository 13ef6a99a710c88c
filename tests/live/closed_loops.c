/* SPDX-License-Identifier: MIT */
/*
 * closed_loops.c - threads in code that jumps to its own beginning, and that they never leave: what is inserted
 * there counts who comes in, and no rounds, and is taken out under them; or it is refused.
 */
#include "tests/live/harness_session.h"

enum { ROUNDS_US = 100000, DETACH_SECONDS = 20 };

static void run(struct harness *h, int loop)
{
	char command[32];

	snprintf(command, sizeof(command), "run %d\n", loop);
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "running");
	/* It is in there by then. */
	usleep(ROUNDS_US);
}

/* Returns if it could be had. */
static bool check(struct harness *h, int loop, const char *name, bool is_inside)
{
	struct detach_result detached = {0};
	struct dinst_error e = {0};
	struct session *s;
	size_t count;
	unsigned id;
	int status;

	harness_start(h, "closed-loops", NULL);
	if (is_inside)
		run(h, loop);
	s = session_begin(h);
	status = session_try_insert(s, name, false, &count, &id, &e);
	if (status < 0 && e.code != DINST_REFUSED)
		fail_msg("%s: %s", name, e.text);
	run(h, loop);
	if (status >= 0) {
		assert_int_equal(session_value(s, id), 1);
		session_remove(s, id);
	}
	dinst_error_clear(&e);
	if (session_detach(s, DETACH_SECONDS, &detached, &e) < 0)
		fail_msg("%s: %s", name, e.text);
	assert_int_equal(detached.left, 0);
	session_free(s);
	harness_verify_what(h, HARNESS_TEXT);
	harness_end(h, 0);
	print_message("%s: %s\n", name, status < 0 ? "refused" : "counted");
	return status >= 0;
}

static void run_both(struct harness *h, int loop, const char *name, bool is_had)
{
	for (int is_inside = 0; is_inside < 2; is_inside++)
		assert_int_equal(check(h, loop, name, is_inside), is_had);
}

/* fear J3: a jump to itself: refused, since who is in the copy of it would never leave that */
static void test_self(void **state)
{
	run_both(*state, 0, "loop_self", false);
}

/* fear J3: a jump to what stands before it */
static void test_round(void **state)
{
	run_both(*state, 1, "loop_pause", true);
	run_both(*state, 2, "loop_work", true);
	run_both(*state, 3, "loop_twice", true);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_self), CASE(test_round)};

	return cmocka_run_group_tests_name("live/closed_loops", tests, NULL, NULL);
}
