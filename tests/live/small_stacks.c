/* SPDX-License-Identifier: MIT */
/*
 * small_stacks.c - code of OCaml 5, whose stacks end in what is the runtime's: whatever goes in there, nothing is
 * written below what each function finds.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/live/harness_session.h"

static const char *const functions[] = {"camlUnit.leaf_1", "camlUnit.spills_2", "camlUnit.looks_3"};

enum { FUNCTIONS = sizeof(functions) / sizeof(functions[0]), ROUNDS = 5 };

/* Goes in, or is refused for the lack of stack; true if it is in. */
static bool try(struct session *s, struct harness *h, const char *metric, const char *focus)
{
	struct insert_result result = {0};
	struct dinst_error e = {0};
	const int status = request_insert(s, metric, &focus, 1, NULL, &result, &e);

	if (status < 0 && (e.code != DINST_REFUSED || !strstr(e.text, "bytes of stack")))
		fail_msg("%s of %s: %s", metric, focus, e.text);
	free(result.instances);
	session_go(h, ROUNDS);
	return status >= 0;
}

/* fear H5: counters go in everywhere; what takes more stack than there is for certain is refused */
static void test_entries(void **state)
{
	struct harness *h = *state;
	unsigned ids[FUNCTIONS];
	struct session *s;

	harness_start(h, "small-stacks", NULL);
	s = session_begin(h);
	session_load_deep(s, 4);
	session_load_deep(s, 100);
	for (size_t i = 0; i < FUNCTIONS; i++)
		ids[i] = session_insert(s, functions[i]);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, ids[0]), 2 * ROUNDS);
	assert_int_equal(session_value(s, ids[1]), ROUNDS);
	assert_int_equal(session_value(s, ids[2]), ROUNDS);
	assert_true(try(s, h, "deep4", "camlUnit.leaf_1"));
	assert_true(try(s, h, "deep4", "camlUnit.looks_3"));
	try(s, h, "deep4", "camlUnit.spills_2");
	for (size_t i = 0; i < FUNCTIONS; i++)
		assert_false(try(s, h, "deep100", functions[i]));
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT);
	harness_end(h, 0);
}

/* fear H5: exits, blocks and time, wherever they can be had */
static void test_others(void **state)
{
	static const enum point_kind kinds[] = {POINT_EXIT, POINT_CALL, POINT_BLOCK,
						POINT_INSTRUCTION};
	static const char *const metrics[] = {"wall_inclusive", "cpu_inclusive", "latency",
					      "active"};
	struct harness *h = *state;
	struct session *s;

	harness_start(h, "small-stacks", NULL);
	s = session_begin(h);
	for (size_t i = 0; i < FUNCTIONS; i++) {
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			struct dinst_error e = {0};
			unsigned id;

			session_try_insert_kind(s, functions[i], kinds[k], &id, &e);
			session_go(h, ROUNDS);
		}
		for (size_t k = 0; k < sizeof(metrics) / sizeof(metrics[0]); k++)
			try(s, h, metrics[k], functions[i]);
	}
	session_end(s);
	harness_verify_what(h, HARNESS_TEXT);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_entries),
		CASE(test_others),
	};

	return cmocka_run_group_tests_name("live/small_stacks", tests, NULL, NULL);
}
