/* SPDX-License-Identifier: MIT */
/*
 * insert.c - counting what a running program does: exact counts, several
 * snippets at one point, insertion and removal under full speed, everything
 * given back. After every case the target is as it was.
 */
#include "tests/live/harness_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 20000 };

/* Functions of the target "calls" that every round calls exactly once a thread. */
static const char *const once[] = {"tiny", "floating", "many", "strange", "indirect"};

static void test_exact_counts(void **state)
{
	struct harness *h = *state;
	unsigned ids[sizeof(once) / sizeof(once[0])];
	struct session *s;

	harness_start(h, "calls", harness_number(THREADS), NULL);
	s = session_begin(h);
	for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++)
		ids[i] = session_insert(s, once[i]);
	harness_verify_what(h, HARNESS_ATTACHED);
	session_go(h, ROUNDS);
	for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++)
		assert_int_equal(session_value(s, ids[i]), (uint64_t)THREADS * ROUNDS);
	session_end(s);
	harness_verify(h);
	session_go(h, 10);
	harness_end(h, 0);
}

static void test_one_instance_for_a_list(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned all, parts = 0;
	uint64_t sum = 0;
	size_t count;
	struct dinst_error e = {0};

	harness_start(h, "calls", "2", NULL);
	s = session_begin(h);
	all = session_insert(s, "/Code/calls/*");
	assert_int_equal(session_try_insert(s, "/Code/calls/*", true, &count, &parts, &e), 0);
	assert_true(count > 10);
	session_go(h, ROUNDS);
	for (size_t i = 0; i < count; i++)
		sum += session_value(s, parts + (unsigned)i);
	assert_int_equal(session_value(s, all), sum);
	assert_true(sum > 2ull * ROUNDS * 10);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* The second snippet at an instrumented point goes in, and out, without a stop. */
static void test_second_snippet_without_stop(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned first, second, third;
	uint64_t stop;

	harness_start(h, "calls", "2", NULL);
	s = session_begin(h);
	first = session_insert_kind(s, "many", POINT_ENTRY);
	s->last_stop_ns = 0;
	second = session_insert_kind(s, "many", POINT_ENTRY);
	third = session_insert_kind(s, "many", POINT_ENTRY);
	stop = s->last_stop_ns;
	assert_int_equal(stop, 0);
	session_go(h, ROUNDS);
	session_remove(s, second);
	session_go(h, ROUNDS);
	session_remove(s, first);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, third), 3 * 2 * ROUNDS);
	first = session_insert_kind(s, "many", POINT_ENTRY);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, third), 4 * 2 * ROUNDS);
	assert_int_equal(session_value(s, first), 2 * ROUNDS);
	assert_int_equal(s->last_stop_ns, 0);
	session_flush_all(s);
	assert_int_not_equal(s->last_stop_ns, 0);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, first), 2 * 2 * ROUNDS);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

static void test_removed_counts_no_more(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id, other;

	harness_start(h, "calls", "1", NULL);
	s = session_begin(h);
	id = session_insert(s, "tiny");
	other = session_insert(s, "strange");
	session_go(h, 100);
	session_remove(s, id);
	session_flush_all(s);
	assert_null(session_instance(s, id));
	/* The window of tiny is the original again, that of strange is not. */
	session_go(h, 100);
	assert_int_equal(session_value(s, other), 200);
	id = session_insert(s, "tiny");
	session_go(h, 100);
	assert_int_equal(session_value(s, id), 100);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* 10,000 insertions and removals on functions that 8 threads call at full speed. */
static void test_churn(void **state)
{
	enum { TURNS = 10000 };
	struct harness *h = *state;
	static const char *const names[] = {"tiny", "leaf",    "branchy",  "recursive", "tail",
					    "many", "strange", "floating", "indirect"};
	struct session *s;
	unsigned kept, id, rounds = 1;
	size_t heap_early = 0;

	harness_limit(600);
	harness_start(h, "calls", "8", NULL);
	s = session_begin(h);
	kept = session_insert(s, "strange");
	harness_send(h, "go 1000000\n");
	for (int turn = 0; turn < TURNS; turn++) {
		id = session_insert(s, names[turn % 9]);
		session_remove(s, id);
		if (turn % 100 == 99)
			session_flush_all(s);
		if (turn == 1000)
			heap_early = session_heap_bytes(s);
		rounds += harness_again(h, "go 1000000\n");
	}
	session_flush_all(s);
	/* Nothing leaks: the heap is no larger than when a tenth was done. */
	assert_true(session_heap_bytes(s) <= heap_early);
	assert_string_equal(harness_line(h, 200000), "done");
	assert_int_equal(session_value(s, kept), rounds * 8 * 1000000ull);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_exact_counts, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_one_instance_for_a_list, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_second_snippet_without_stop, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_removed_counts_no_more, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_churn, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests_name("live/insert", tests, NULL, NULL);
}
