/* SPDX-License-Identifier: MIT */
/*
 * mdl_insert.c - metrics and constraints put into running programs and taken
 * out: sharing, order at a point, per-thread flags, recursion, what is on the
 * stacks already, and that what fails or is removed leaves nothing.
 */
#include "tests/live/harness_session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/evaluate.h"
#include "mutator/threads.h"
#include "mutator/variable.h"

static const char text[] =
	"constraint inside /Code/*/* is counter {\n"
	"	append preInsn $constraint[0].entry (* inside++; *)\n"
	"	prepend preInsn $constraint[0].return (* inside--; *)\n"
	"}\n"
	"metric at_entry { name \"at_entry\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint inside;\n"
	"	base is counter { foreach f in shape append preInsn f.entry constrained\n"
	"		(* at_entry++; *) } }\n"
	"metric at_exit { name \"at_exit\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint inside;\n"
	"	base is counter { foreach f in shape append preInsn f.return constrained\n"
	"		(* at_exit++; *) } }\n"
	"metric leaves { name \"leaves\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint inside;\n"
	"	base is counter { foreach f in leaf_only append preInsn f.entry constrained\n"
	"		(* leaves++; *) } }\n"
	"metric outside { name \"outside\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint inside;\n"
	"	base is counter { foreach f in shape append preInsn f.entry unconstrained\n"
	"		(* outside++; *) } }\n"
	"metric impossible { name \"impossible\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint inside;\n"
	"	base is counter { foreach f in leaf_only append preInsn f.entry constrained\n"
	"		(* impossible += readSymbol(\"no_such_symbol_anywhere\"); *) } }\n";

static const char lists[] =
	"list shape is procedure { items { \"recursive\", \"fib\", \"sitter\" }; }\n"
	"list leaf_only is procedure { items { \"leaf\" }; }\n";

static struct session *begin(struct harness *h, const char *program, const char *argument)
{
	struct dinst_error e = {0};
	struct session *s;

	harness_start(h, program, argument, NULL);
	s = session_begin(h);
	if (session_load_mdl(s, "lists.mdl", lists, strlen(lists), &e) < 0 ||
	    session_load_mdl(s, "test.mdl", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static int try_insert(struct session *s, const char *metric, const char *focus, unsigned *id,
		      struct dinst_error *e)
{
	struct insert_result result;
	int status = request_insert(s, metric, &focus, focus ? 1 : 0, NULL, &result, e);

	if (status < 0)
		return status;
	assert_int_equal(result.count, 1);
	*id = result.instances[0]->id;
	assert_int_equal(result.instances[0]->unwalked, 0);
	free(result.instances);
	return 0;
}

static unsigned insert(struct session *s, const char *metric, const char *focus)
{
	struct dinst_error e = {0};
	unsigned id = 0;
	int status;

	for (unsigned tries = 0; tries < 50; tries++) {
		dinst_error_clear(&e);
		status = try_insert(s, metric, focus, &id, &e);
		if (status != DINST_BUSY)
			break;
		usleep(20000);
	}
	if (status < 0)
		fail_msg("%s %s: %s", metric, focus ? focus : "", e.text);
	return id;
}

static size_t hidden(const struct session *s)
{
	size_t count = 0;

	for (const struct instance *i = s->hidden; i; i = i->next)
		count++;
	return count;
}

static void ask(struct harness *h, const char *command, const char *answer)
{
	char line[64];

	snprintf(line, sizeof(line), "%s\n", command);
	harness_send(h, line);
	assert_string_equal(harness_line(h, 60000), answer);
}

/* ---------------------------------------------------------------- sharing */

static void test_the_same_twice(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, "calls", "2");
	unsigned first = insert(s, "calls", "/Code/calls/tiny"), second, third;
	const struct instance *one;
	size_t links;

	session_go(h, 1000);
	one = session_instance(s, first);
	links = one->link_count;
	second = insert(s, "calls", "/Code/calls/tiny");
	assert_ptr_equal(session_instance(s, second)->source, one);
	assert_int_equal(one->link_count, links);
	session_go(h, 500);
	assert_int_equal(session_value(s, first), 3000);
	assert_int_equal(session_value(s, second), 1000);
	/* What was there first goes first; what the other one counts is not lost. */
	session_remove(s, first);
	assert_null(session_instance(s, first));
	session_go(h, 10);
	assert_int_equal(session_value(s, second), 1020);
	third = insert(s, "calls", "/Code/calls/tiny");
	session_remove(s, second);
	session_go(h, 10);
	assert_int_equal(session_value(s, third), 20);
	session_remove(s, third);
	assert_int_equal(hidden(s), 0);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------------------ order */

/* The entry that sets the flag counts itself, and so does the exit that clears it. */
static void test_order_at_shared_points(void **state)
{
	enum { THREADS = 3, ROUNDS = 2000 };
	struct harness *h = *state;
	struct session *s = begin(h, "calls", harness_number(THREADS));
	/* The metric first at its function, then its flag at the same. */
	unsigned entry = insert(s, "at_entry", "/Code/calls/recursive");
	unsigned exit = insert(s, "at_exit", "/Code/calls/recursive");
	unsigned leaves = insert(s, "leaves", "/Code/calls/recursive");
	unsigned none = insert(s, "at_entry", "/Code/calls/strange");

	session_go(h, ROUNDS);
	/* work() calls recursive(4); indirect() calls it with i & 7 for every third i. */
	{
		uint64_t calls = 0, inner = 0;

		for (unsigned long i = 0; i < ROUNDS; i++) {
			unsigned long n = i % 3 == 2 ? (i & 7 ? i & 7 : 1) : 0;

			calls += 4 + n;
			inner += 3 + (n ? n - 1 : 0);
		}
		assert_int_equal(session_value(s, entry), THREADS * calls);
		assert_int_equal(session_value(s, exit), THREADS * calls);
		assert_int_equal(session_value(s, leaves), THREADS * inner);
		assert_int_equal(session_value(s, none), 0);
	}
	session_remove(s, entry);
	session_remove(s, exit);
	session_go(h, 10);
	session_remove(s, leaves);
	session_remove(s, none);
	assert_int_equal(hidden(s), 0);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ---------------------------------------------------------------- threads */

/* A flag that one thread sets is not another one's. */
static void test_flags_are_per_thread(void **state)
{
	enum { THREADS = 6, ROUNDS = 3000 };
	struct harness *h = *state;
	struct session *s = begin(h, "calls", harness_number(THREADS));
	static const char *const foci[] = {"/Code/calls/branchy",  "/Code/calls/tail",
					   "/Code/calls/indirect", "/Code/calls/recursive",
					   "/Code/calls/tiny",	   "/Code/calls/leaf"};
	unsigned ids[6], all = insert(s, "calls", "/Code/calls/leaf");
	uint64_t alone[6];

	for (unsigned n = 0; n < 6; n++)
		ids[n] = insert(s, "leaves", foci[n]);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, ids[4]), 0);
	assert_int_equal(session_value(s, ids[5]), session_value(s, all));
	assert_true(session_value(s, ids[0]) > 0);
	assert_true(session_value(s, ids[2]) < session_value(s, all));
	for (unsigned n = 0; n < 6; n++)
		alone[n] = session_value(s, ids[n]);
	/* All threads do the same: so do their values. */
	session_go(h, ROUNDS);
	for (unsigned n = 0; n < 6; n++)
		assert_int_equal(session_value(s, ids[n]), 2 * alone[n]);
	for (unsigned n = 0; n < 6; n++)
		session_remove(s, ids[n]);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* --------------------------------------------------------------- catch-up */

/* Every thread is inside already: its exits find the flag set, and take it back. */
static void test_caught_up(void **state)
{
	enum { THREADS = 4, DEPTH = 5 };
	struct harness *h = *state;
	struct session *s = begin(h, "paired", harness_number(THREADS));
	unsigned id, other;

	harness_send(h, "sit 5\n");
	assert_string_equal(harness_line(h, 20000), "sitting");
	id = insert(s, "at_exit", "/Code/paired/sitter");
	assert_int_equal(threads_alive(s, s->hidden->next ? s->hidden->next : s->hidden),
			 THREADS * DEPTH);
	/* The function is known already, and now comes something else that needs it. */
	other = insert(s, "outside", "/Code/paired/sitter");
	assert_int_equal(session_value(s, id), 0);
	ask(h, "stand", "done");
	assert_int_equal(session_value(s, id), THREADS * DEPTH);
	/* Flags are down again. */
	ask(h, "fib 5", "done");
	assert_int_equal(session_value(s, id), THREADS * DEPTH);
	assert_true(session_value(s, other) > 0);
	session_remove(s, id);
	session_remove(s, other);
	assert_int_equal(hidden(s), 0);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------------------ churn */

/* In and out under load: what stays is exact, and nothing is left in the end. */
static void test_churn(void **state)
{
	enum { THREADS = 4, TURNS = 60 };
	struct harness *h = *state;
	struct session *s = begin(h, "calls", harness_number(THREADS));
	unsigned kept, steady;
	size_t bytes = 0;

	harness_limit(200);
	kept = insert(s, "calls", "/Code/calls/tiny");
	steady = insert(s, "at_entry", "/Code/calls/recursive");
	harness_send(h, "go 400000\n");
	for (int turn = 0; turn < TURNS; turn++) {
		static const char *const foci[] = {"/Code/calls/branchy", "/Code/calls/indirect",
						   "/Code/calls/recursive"};
		unsigned id = insert(s, "leaves", foci[turn % 3]);
		unsigned also = insert(s, "at_exit", "/Code/calls/recursive");

		usleep(2000);
		session_remove(s, turn % 2 ? id : also);
		session_remove(s, turn % 2 ? also : id);
		if (turn % 8 == 7) {
			session_flush_all(s);
			if (!bytes)
				bytes = session_heap_bytes(s);
		}
	}
	assert_string_equal(harness_line(h, 150000), "done");
	session_flush_all(s);
	assert_int_equal(session_value(s, kept), THREADS * 400000ull);
	assert_true(session_heap_bytes(s) <= bytes + 4096);
	assert_true(session_value(s, steady) > 0);
	session_remove(s, kept);
	session_remove(s, steady);
	assert_int_equal(hidden(s), 0);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* --------------------------------------------------------------- failures */

static void test_failure_leaves_nothing(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, "calls", "2");
	unsigned id = 0, kept = insert(s, "calls", "/Code/calls/tiny");
	struct dinst_error e = {0};

	assert_true(try_insert(s, "impossible", "/Code/calls/recursive", &id, &e) < 0);
	assert_non_null(strstr(e.text, "no_such_symbol_anywhere"));
	dinst_error_clear(&e);
	assert_true(try_insert(s, "leaves", "/Code/calls/no_such_function", &id, &e) < 0);
	dinst_error_clear(&e);
	assert_int_equal(try_insert(s, "no_such_metric", "/Code/calls/tiny", &id, &e),
			 DINST_NO_METRIC);
	assert_int_equal(hidden(s), 0);
	assert_int_equal(session_points(s), 1);
	session_flush_all(s);
	session_go(h, 100);
	assert_int_equal(session_value(s, kept), 200);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_the_same_twice),
		CASE(test_order_at_shared_points),
		CASE(test_flags_are_per_thread),
		CASE(test_caught_up),
		CASE(test_churn),
		CASE(test_failure_leaves_nothing),
	};

	return cmocka_run_group_tests_name("live/mdl_insert", tests, NULL, NULL);
}
