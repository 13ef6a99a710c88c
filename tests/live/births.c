/* SPDX-License-Identifier: MIT */
/*
 * births.c - exact counts where threads are born and die all the time, and
 * where they are moved from CPU to CPU in the middle of counting.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

/*
 * Inserts and removes other things while the target does what it is told, again and again. Returns how
 * often it has.
 */
static unsigned churn_under(struct harness *h, struct session *s, int turns, const char *command)
{
	static const char *const foci[] = {"/Code/births/*", "tick", "/Code/libc.so.6/pthread_*",
					   "/Code/libc.so.6/m*"};
	unsigned done = 1;

	harness_send(h, command);
	for (int turn = 0; turn < turns; turn++) {
		session_remove(s, session_insert_kind(s, foci[turn % 4],
						      turn % 3 ? POINT_ENTRY : POINT_EXIT));
		session_flush_all(s);
		done += harness_again(h, command);
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	return done;
}

/*
 * fear A1, D7: 8,000 threads are born and die while points come and go: each of their calls is
 * counted once
 */
static void test_threads_are_born_and_die(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id, done;

	harness_start(h, "births", NULL);
	s = session_begin(h);
	id = session_insert(s, "tick");
	done = churn_under(h, s, 60, "born 8000 100\n");
	assert_int_equal(session_value(s, id), done * 800000ull);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear D8: threads are moved from CPU to CPU in the middle of counting: sums are exact */
static void test_threads_are_moved(void **state)
{
	struct harness *h = *state;
	unsigned ids[3], done;
	struct session *s;

	harness_start(h, "births", NULL);
	s = session_begin(h);
	for (int i = 0; i < 3; i++)
		ids[i] = session_insert_kind(s, "tick", i & 1 ? POINT_EXIT : POINT_ENTRY);
	done = churn_under(h, s, 40, "moved 60000000\n");
	for (int i = 0; i < 3; i++)
		assert_int_equal(session_value(s, ids[i]), done * 4 * 60000000ull);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_threads_are_born_and_die),
		CASE(test_threads_are_moved),
	};

	return cmocka_run_group_tests_name("live/births", tests, NULL, NULL);
}
