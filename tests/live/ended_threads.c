/* SPDX-License-Identifier: MIT */
/*
 * ended_threads.c - what threads leave behind them. The C library gives their
 * memory to new threads, struct rseq included, and kernels before Linux 6.15 go
 * by the rseq_cs that they find there: they kill a new thread for a sequence of
 * ours that an old one ran, when that has gone. So on such kernels, which
 * DINST_RSEQ makes of any, nobody may end with one.
 */
#include "tests/live/mdl_help.h"

#include <stdlib.h>

enum { ROUNDS = 50, TURNS = 3, THREADS = 24 };

static const char *const metrics[] = {"calls", "cpu_inclusive", "latency", "wall_inclusive"};

static int setup(void **state)
{
	setenv("DINST_RSEQ", "inherited", 1);
	return harness_setup(state);
}

static int teardown(void **state)
{
	unsetenv("DINST_RSEQ");
	return harness_teardown(state);
}

/* fear B6: the memory of threads that have ended names no sequence of ours: the next one would die of it */
static void test_nothing_is_left(void **state)
{
	struct harness *h = *state;

	harness_start(h, "ended-threads", NULL);
	mdl_attach(h, NULL);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		const unsigned id = mdl_insert(h, metrics[i], "/Code/ended-threads/last_words");
		const char *line = mdl_ask(h, "go %d", ROUNDS);

		if (mdl_number(line, "left"))
			fail_msg("%s: %s", metrics[i], line);
		if (!i)
			assert_int_equal(mdl_value(h, id), ROUNDS * THREADS);
		mdl_remove(h, id);
	}
	mdl_end(h);
}

/* All at one place, and new threads in the memory of the old ones. */
static void test_together(void **state)
{
	struct harness *h = *state;
	unsigned ids[sizeof(metrics) / sizeof(metrics[0])];

	harness_start(h, "ended-threads", NULL);
	mdl_attach(h, NULL);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
		ids[i] = mdl_insert(h, metrics[i], "/Code/ended-threads/last_words");
	for (int turn = 0; turn < TURNS; turn++)
		assert_int_equal(mdl_number(mdl_ask(h, "go %d", ROUNDS), "left"), 0);
	assert_int_equal(mdl_value(h, ids[0]), TURNS * ROUNDS * THREADS);
	mdl_end(h);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_nothing_is_left), CASE(test_together)};

	return cmocka_run_group_tests_name("live/ended_threads", tests, NULL, NULL);
}
