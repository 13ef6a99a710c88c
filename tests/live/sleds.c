/* SPDX-License-Identifier: MIT */
/*
 * sleds.c - a program that writes into its own code by itself, as the runtime of XRay does: it finds
 * there what it left, and nothing of ours is cut in half.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

enum { THREADS = 2, RUN_US = 20 * 1000, ROUNDS = 10 };

static void ask(struct harness *h, const char *command, const char *answer)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

static unsigned long end(struct harness *h)
{
	unsigned long calls = 0;

	harness_send(h, "end\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "ended %lu", &calls), 1);
	return calls;
}

/* All that can be had, of one kind; 0: all of it is refused. */
static unsigned insert(struct session *s, const char *focus, enum point_kind kind)
{
	struct dinst_error e = {0};
	unsigned id = 0;
	int status = session_try_insert_kind(s, focus, kind, &id, &e);

	if (status < 0 && status != DINST_REFUSED && status != DINST_NO_FUNCTION)
		fail_msg("%s: %s", focus, e.text);
	return status < 0 ? 0 : id;
}

/*
 * fear C3, C7: sleds of XRay are written while everything is instrumented and threads run through
 * them, again and again: no result is wrong, and what else is counted is counted on
 */
static void test_written(void **state)
{
	const char *argv[] = {harness_path("tests/live/targets/sleds"), harness_number(THREADS),
			      NULL};
	struct harness *h = *state;
	unsigned long calls;
	struct session *s;
	unsigned others;

	harness_start_argv(h, argv, true);
	s = session_begin(h);
	for (int kind = POINT_ENTRY; kind <= POINT_STORE; kind++)
		insert(s, "/Code/sleds/*", (enum point_kind)kind);
	others = insert(s, "added", POINT_INSTRUCTION);
	assert_true(others);
	ask(h, "start\n", "started");
	for (int i = 0; i < ROUNDS; i++) {
		ask(h, "on\n", "done");
		usleep(RUN_US);
		ask(h, "off\n", "done");
		usleep(RUN_US);
	}
	calls = end(h);
	assert_true(calls && session_value(s, others));
	assert_int_equal(session_value(s, others) % calls, 0);
	session_end(s);
	ask(h, "start\n", "started");
	ask(h, "on\n", "done");
	usleep(RUN_US);
	ask(h, "off\n", "done");
	end(h);
	ask(h, "off\n", "done");
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_written)};

	return cmocka_run_group_tests_name("live/sleds", tests, NULL, NULL);
}
