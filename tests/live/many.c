/* SPDX-License-Identifier: MIT */
/*
 * many.c - ten thousand points in one batch, with five hundred threads to stop.
 * How long they stand still is a figure of an idle machine (tests/bench/stops.c);
 * here it has a bound.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

enum { THREADS = 500, FUNCTIONS = 10000 };

/* However busy the machine is. */
static const uint64_t STOP_NS = 2000000000;

static void ask(struct harness *h, const char *command, const char *answer)
{
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

static const struct instance *insert(struct session *s)
{
	const struct instance *i = session_insert_metric(s, "calls", "/Code/many/many_*", NULL);

	print_message("%zu points, stopped for %.1f ms at most\n", i->link_count,
		      (double)s->longest_stop_ns / 1e6);
	assert_int_equal(i->link_count, FUNCTIONS);
	assert_int_equal(i->refused_count, 0);
	return i;
}

/*
 * fear K2, G9: 10,000 points in one batch under 500 threads that run through them: all are in, or all
 * are out again, every result is right, and calls are counted exactly
 */
static void test_batch(void **state)
{
	struct harness *h = *state;
	const struct instance *i;
	struct session *s;

	harness_start(h, "many", harness_number(THREADS), NULL);
	s = session_begin(h);
	ask(h, "begin 5\n", "begun");
	i = insert(s);
	ask(h, "end\n", "done");
	session_remove(s, i->id);
	session_flush_all(s);
	i = insert(s);
	ask(h, "go 1\n", "done");
	/* The main thread's calls, to know what is right, are in it. */
	assert_int_equal(instance_value(i), (uint64_t)(THREADS + 1) * FUNCTIONS);
	ask(h, "begin 5\n", "begun");
	session_remove(s, i->id);
	session_flush_all(s);
	ask(h, "end\n", "done");
	assert_in_range(s->longest_stop_ns, 1, STOP_NS);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_batch, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/many", tests, NULL, NULL);
}
