/* SPDX-License-Identifier: MIT */
/*
 * detail.c - blocks, edges, loops, single instructions and returns of calls,
 * counted in a program that executes each a known number of times: exactly,
 * with several threads, beside entries, exits and calls, and while things are
 * inserted and removed all the time.
 *
 * The numbers were found by stepping through one round of the program, and
 * follow from its source by hand.
 */
#include "tests/live/harness_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 300 };

struct count_case {
	const char *function;
	enum point_kind kind;
	unsigned per_round; /* by one thread */
	unsigned refused;   /* points that cannot be had */
};

static const struct count_case cases[] = {
	{"d_straight", POINT_BLOCK, 6, 0},
	{"d_straight", POINT_INSTRUCTION, 60, 0},
	{"d_nest", POINT_BLOCK, 28, 0},
	{"d_nest", POINT_EDGE, 25, 0},
	{"d_nest", POINT_INSTRUCTION, 73, 0},
	{"d_nest", POINT_LOOP_ENTRY, 5, 0},
	{"d_nest", POINT_LOOP_ROUND, 12, 0},
	{"d_nest", POINT_LOOP_EXIT, 5, 0},
	{"d_switch", POINT_BLOCK, 18, 0},
	/* From the table into case 3, into which case 2 falls: nobody's place. */
	{"d_switch", POINT_EDGE, 12, 1},
	{"d_switch", POINT_INSTRUCTION, 41, 0},
	{"d_early", POINT_BLOCK, 3033, 0},
	{"d_early", POINT_EDGE, 3030, 0},
	{"d_early", POINT_INSTRUCTION, 7071, 0},
	{"d_early", POINT_LOOP_ENTRY, 3, 0},
	{"d_early", POINT_LOOP_ROUND, 1007, 0},
	{"d_early", POINT_LOOP_EXIT, 3, 0},
	{"d_recursive", POINT_BLOCK, 62, 0},
	{"d_recursive", POINT_EDGE, 37, 0},
	{"d_recursive", POINT_INSTRUCTION, 220, 0},
	{"d_recursive", POINT_AFTER, 24, 0},
	{"d_shared", POINT_BLOCK, 22, 0},
	{"d_shared", POINT_EDGE, 16, 0},
	{"d_shared", POINT_INSTRUCTION, 44, 0},
	{"d_split", POINT_BLOCK, 5, 0},
	{"d_split", POINT_INSTRUCTION, 23, 0},
	/* A branch leads to the first call's return point, too. */
	{"d_split", POINT_AFTER, 6, 1},
	{"d_memory", POINT_BLOCK, 6, 0},
	{"d_memory", POINT_EDGE, 5, 0},
	{"d_memory", POINT_INSTRUCTION, 32, 0},
	{"d_memory", POINT_LOOP_ENTRY, 1, 0},
	{"d_memory", POINT_LOOP_ROUND, 3, 0},
	{"d_memory", POINT_LOOP_EXIT, 1, 0},
	/* One for an instruction that loads or stores, implied accesses of the stack too. */
	{"d_straight", POINT_LOAD, 12, 0},
	{"d_straight", POINT_STORE, 6, 0},
	{"d_switch", POINT_LOAD, 9, 0},
	{"d_recursive", POINT_LOAD, 49, 0},
	{"d_recursive", POINT_STORE, 48, 0},
	/* What pop loads is beyond reach: between a return point and the exit's own window. */
	{"d_split", POINT_LOAD, 2, 1},
	{"d_split", POINT_STORE, 9, 0},
	{"d_memory", POINT_LOAD, 14, 0},
	{"d_memory", POINT_STORE, 13, 0},
	{"d_recursive", POINT_ENTRY, 25, 0},
	{"d_recursive", POINT_EXIT, 25, 0},
	{"d_recursive", POINT_CALL, 24, 0},
	{"d_shared", POINT_ENTRY, 6, 0},
	{"d_shared", POINT_EXIT, 6, 0},
};

enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static const struct raw_metric *metric_of(enum point_kind kind)
{
	/* Instances keep a pointer to their metric. */
	static struct raw_metric metrics[POINT_KINDS];

	metrics[kind].name = point_kind_name(kind);
	metrics[kind].unit = "";
	metrics[kind].constraints = "/Code";
	metrics[kind].kind = kind;
	return &metrics[kind];
}

/* A machine that is busy lets a stop fail: it is tried again, as a user would. */
static unsigned insert(struct session *s, const char *function, enum point_kind kind)
{
	const char *const foci[] = {function};
	struct dinst_error e = {0};
	struct insert_result result;
	unsigned tries = 0, id;
	int status;

	do {
		dinst_error_clear(&e);
		if (tries)
			usleep(20000);
		status = request_insert_raw(s, metric_of(kind), foci, 1, false, &result, &e);
	} while (status == DINST_BUSY && ++tries < 50);
	if (status < 0)
		fail_msg("%s %s: %s", function, point_kind_name(kind), e.text);
	assert_int_equal(result.count, 1);
	id = result.instances[0]->id;
	free(result.instances);
	return id;
}

static unsigned insert_case(struct session *s, const struct count_case *c)
{
	unsigned id = insert(s, c->function, c->kind);

	if (session_refused(s, id) != c->refused)
		fail_msg("%s %s: %zu points refused, not %u", c->function, point_kind_name(c->kind),
			 session_refused(s, id), c->refused);
	assert_int_equal(session_pending(s, id), 0);
	return id;
}

static void check_case(struct session *s, const struct count_case *c, unsigned id, uint64_t rounds)
{
	uint64_t is = session_value(s, id), is_to_be = rounds * c->per_round;

	if (is != is_to_be)
		fail_msg("%s %s: %llu, not %llu", c->function, point_kind_name(c->kind),
			 (unsigned long long)is, (unsigned long long)is_to_be);
}

/* Each kind of each function alone, and the target as it was in between. */
/* fear C4, D2: blocks, edges, loops, instructions, loads and stores counted exactly */
static void test_one_by_one(void **state)
{
	struct harness *h = *state;
	struct session *s;

	harness_limit(600);
	harness_start(h, "detail", harness_number(THREADS), NULL);
	s = session_begin(h);
	for (size_t i = 0; i < CASES; i++) {
		unsigned id = insert_case(s, &cases[i]);

		harness_verify_what(h, HARNESS_ATTACHED);
		session_go(h, ROUNDS);
		check_case(s, &cases[i], id, (uint64_t)THREADS * ROUNDS);
		session_remove(s, id);
		session_flush_all(s);
	}
	session_end(s);
	harness_verify(h);
	session_go(h, 10);
	harness_end(h, 0);
}

/* Everything at once: windows serve several points, and slots several snippets. */
static void all_at_once(struct harness *h, bool base_last)
{
	unsigned ids[CASES];
	struct session *s;

	harness_start(h, "detail", harness_number(THREADS), NULL);
	s = session_begin(h);
	for (size_t i = 0; i < CASES; i++) {
		size_t k = base_last ? i : CASES - 1 - i;

		ids[k] = insert_case(s, &cases[k]);
	}
	session_go(h, ROUNDS);
	for (size_t i = 0; i < CASES; i++)
		check_case(s, &cases[i], ids[i], (uint64_t)THREADS * ROUNDS);
	/* Every second one goes, and the others go on. */
	for (size_t i = 0; i < CASES; i += 2)
		session_remove(s, ids[i]);
	session_flush_all(s);
	session_go(h, ROUNDS);
	for (size_t i = 1; i < CASES; i += 2)
		check_case(s, &cases[i], ids[i], 2ull * THREADS * ROUNDS);
	session_end(s);
	harness_verify(h);
	session_go(h, 10);
	harness_end(h, 0);
}

static void test_all_at_once(void **state)
{
	all_at_once(*state, true);
}

/* Entries and exits first: their plans get details while their windows are patched. */
static void test_plans_are_upgraded(void **state)
{
	all_at_once(*state, false);
}

/* In and out under running threads; what stays in counts exactly. */
static void test_churn(void **state)
{
	enum { TURNS = 400 };
	struct harness *h = *state;
	unsigned kept[CASES], rounds = 1;
	struct session *s;

	harness_limit(600);
	harness_start(h, "detail", harness_number(THREADS), NULL);
	s = session_begin(h);
	for (size_t i = 0; i < CASES; i++)
		kept[i] = i % 5 ? 0 : insert_case(s, &cases[i]);
	harness_send(h, "go 4000\n");
	for (int turn = 0; turn < TURNS; turn++) {
		size_t i = (size_t)turn % CASES;
		unsigned id = insert(s, cases[i].function, cases[i].kind);

		if (turn % 3 == 0)
			usleep(500);
		session_remove(s, id);
		if (turn % 7 == 0)
			session_flush_all(s);
		rounds += harness_again(h, "go 4000\n");
	}
	assert_string_equal(harness_line(h, 120000), "done");
	for (size_t i = 0; i < CASES; i++)
		if (kept[i])
			check_case(s, &cases[i], kept[i], rounds * 4000ull * THREADS);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	session_go(h, 10);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_by_one, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_all_at_once, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_plans_are_upgraded, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_churn, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
