/* SPDX-License-Identifier: MIT */
/*
 * life_inherited.c - what workers have inherited when a request comes: a part of what it needs, or an
 * id that another one has, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/live/family_help.h"
#include "tests/live/harness_thread.h"

/*
 * fear I1, G1: two workers are each the first of a pid namespace of its own: both call themselves 1,
 * and are counted together by that. A number that is one of them for us is not taken for both.
 */
static void test_contained_workers(void **state)
{
	struct harness *h = *state;
	unsigned each, first;
	pid_t numbers[3];
	char focus[32];
	const char *line;

	begin(h);
	each = mdl_insert(h, "calls", "/Code/life-family/handle", "/Machine/*");
	harness_send(h, "contain 2\n");
	line = harness_line(h, HARNESS_ANSWER_MS);
	assert_int_equal(strncmp(line, "workers ", 8), 0);
	assert_int_equal(harness_numbers(line + 8, numbers, 3), 2);
	ask(h, "requests 100");
	assert_int_equal(part_of(h, each, 1), 200);
	snprintf(focus, sizeof(focus), "/Machine/%d", (int)numbers[1]);
	if (harness_dinst(h, NULL, "insert", "calls", "-p", harness_number(h->pid),
			  "/Code/life-family/handle", focus) == 0)
		fail_msg("%s is inserted", focus);
	if (!strstr(h->messages, "pid namespace"))
		fail_msg("it says: %s", h->messages);
	first = mdl_insert(h, "calls", "/Code/life-family/handle", "/Machine/1");
	ask(h, "requests 10");
	ask(h, "call 5");
	assert_int_equal(mdl_value(h, first), 20);
	ask(h, "dismiss");
	mdl_end(h);
}

/*
 * fear I1: a thread of a pid namespace has the id in there that another one has for us: that number could be
 * either, and is not taken for both
 */
static void test_namesake(void **state)
{
	struct harness *h = *state;
	json_t *rows = NULL;
	pid_t workers[2];
	char focus[32], worker[32];
	const char *line;
	unsigned id;

	harness_start(h, "life-family", NULL);
	harness_send(h, "contain 1\n");
	line = harness_line(h, HARNESS_ANSWER_MS);
	assert_int_equal(strncmp(line, "workers ", 8), 0);
	assert_int_equal(harness_numbers(line + 8, workers, 2), 1);
	snprintf(worker, sizeof(worker), "%d", (int)workers[0]);
	if (strcmp(mdl_ask(h, "namesake"), "done")) {
		ask(h, "dismiss");
		print_message("skipped: a thread's id cannot be chosen here\n");
		skip();
	}
	assert_int_equal(harness_dinst(h, NULL, "attach", worker), 0);
	snprintf(focus, sizeof(focus), "/Process/%d", (int)workers[0]);
	if (harness_dinst(h, NULL, "insert", "calls", "-p", worker, "/Code/life-family/handle",
			  focus) == 0)
		fail_msg("%s is inserted", focus);
	if (!strstr(h->messages, "which calls itself 1"))
		fail_msg("it says: %s", h->messages);
	if (harness_dinst(h, &rows, "insert", "calls", "-p", worker, "/Code/life-family/handle",
			  "/Process/1") != 0)
		fail_msg("it says: %s", h->messages);
	id = (unsigned)harness_integer(rows, "id");
	json_decref(rows);
	ask(h, "requests 100");
	rows = NULL;
	assert_int_equal(harness_dinst(h, &rows, "read", harness_number(id), "-p", worker), 0);
	assert_int_equal(harness_integer(rows, "value"), 100);
	json_decref(rows);
	assert_int_equal(harness_dinst(h, NULL, "detach", worker), 0);
	ask(h, "dismiss");
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear G1: workers that were forked when a function's entry was patched and its exits were not run
 * through the entry's code, and never come to the exits': what would be timed there without an end is
 * refused, until nothing is left in them; what they only count goes on.
 */
static void test_half_patched(void **state)
{
	struct harness *h = *state;
	unsigned calls, wall;

	begin(h);
	mdl_remove(h, mdl_insert(h, "wall_inclusive", "handle"));
	calls = mdl_insert(h, "calls", "handle_all");
	harness_send(h, "serve 4\n");
	assert_int_equal(strncmp(harness_line(h, HARNESS_ANSWER_MS), "workers ", 8), 0);
	if (harness_dinst(h, NULL, "insert", "wall_inclusive", "-p", harness_number(h->pid),
			  "handle_all") == 0) {
		wall = mdl_insert(h, "wall_inclusive", "handle_all");
		ask(h, "requests 10");
		usleep(400 * 1000);
		ask(h, "requests 10");
		fail_msg("it is inserted, and measures %" PRId64 " ns", mdl_value(h, wall));
	}
	if (!strstr(h->messages, "handle_all") || !strstr(h->messages, "only a part"))
		fail_msg("it says: %s", h->messages);
	ask(h, "requests 10");
	ask(h, "call 10");
	assert_int_equal(mdl_value(h, calls), WORKERS + 1);
	mdl_remove(h, calls);
	wall = mdl_insert(h, "wall_inclusive", "handle_all");
	ask(h, "requests 10");
	usleep(400 * 1000);
	ask(h, "requests 10");
	ask(h, "call 10");
	if (mdl_value(h, wall) >= 200 * 1000 * 1000)
		fail_msg("%" PRId64 " ns are measured", mdl_value(h, wall));
	/* The same of what does not count the time in calls. */
	assert_int_equal(strncmp(mdl_ask(h, "replace"), "worker ", 7), 0);
	if (harness_dinst(h, NULL, "insert", "wall", "-p", harness_number(h->pid), "handle_all") ==
	    0)
		fail_msg("it is inserted");
	if (!strstr(h->messages, "only a part"))
		fail_msg("it says: %s", h->messages);
	mdl_remove(h, wall);
	mdl_insert(h, "wall", "handle_all");
	ask(h, "dismiss");
	mdl_end(h);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_contained_workers),
		CASE(test_namesake),
		CASE(test_half_patched),
	};

	return cmocka_run_group_tests_name("live/life_inherited", tests, NULL, NULL);
}
