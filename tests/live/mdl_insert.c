/* SPDX-License-Identifier: MIT */
/*
 * mdl_insert.c - metrics and constraints put into running programs and taken
 * out: sharing, order at a point, per-thread flags, recursion, what is on the
 * stacks already, and that what fails or is removed leaves nothing.
 */
#include "tests/live/harness_session.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/fault.h"
#include "mutator/evaluate.h"
#include "mutator/threads.h"
#include "mutator/variable.h"
#include "tests/live/leaves.h"

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
	"metric both { name \"both\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter;\n"
	"	constraint here /Code/*/* is replace counter {\n"
	"		foreach f in two append preInsn f.entry (* both++; *) }\n"
	"	base is counter { foreach f in two append preInsn f.entry (* both++; *) } }\n"
	"metric guarded_both { name \"guarded_both\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint inside;\n"
	"	base is counter { foreach f in two append preInsn f.entry constrained\n"
	"		(* guarded_both++; *) } }\n"
	"metric impossible { name \"impossible\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint inside;\n"
	"	base is counter { foreach f in leaf_only append preInsn f.entry constrained\n"
	"		(* impossible += readSymbol(\"no_such_symbol_anywhere\"); *) } }\n";

static const char lists[] =
	"list shape is procedure { items { \"recursive\", \"fib\", \"sitter\" }; }\n"
	"list leaf_only is procedure { items { \"leaf\" }; }\n"
	"list two is procedure { items { \"tiny\", \"strange\" }; }\n";

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
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
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

/* A level is what is there, also for one who comes later. */
static void test_the_same_level(void **state)
{
	enum { THREADS = 3, DEPTH = 2 };
	struct harness *h = *state;
	struct session *s = begin(h, "paired", harness_number(THREADS));
	unsigned first, second;

	harness_send(h, "sit 2\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "sitting");
	first = insert(s, "active", "/Code/paired/sitter");
	second = insert(s, "active", "/Code/paired/sitter");
	assert_int_equal(session_value(s, first), THREADS * DEPTH);
	assert_int_equal(session_value(s, second), THREADS * DEPTH);
	session_remove(s, first);
	ask(h, "stand", "done");
	assert_int_equal(session_value(s, second), 0);
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

/* A flag that one thread sets is not another one's: ten threads, ten functions, all at once. */
static void test_flags_are_per_thread(void **state)
{
	enum { THREADS = 10, ROUNDS = 3000 };
	struct harness *h = *state;
	struct session *s = begin(h, "calls", harness_number(THREADS));
	uint64_t expected[LEAF_FOCI] = {0};
	unsigned ids[LEAF_FOCI], all = insert(s, "calls", "/Code/calls/leaf");

	for (unsigned n = 0; n < LEAF_FOCI; n++)
		ids[n] = insert(s, "leaves", leaf_foci[n]);
	for (unsigned long v = 0; v < ROUNDS; v++)
		add_leaves(expected, v);
	expected[LEAF] = expected[WORK];
	/* tail() has returned when branchy() runs. */
	expected[TAIL] = 0;
	for (uint64_t turn = 1; turn <= 2; turn++) {
		session_go(h, ROUNDS);
		assert_int_equal(session_value(s, all), turn * THREADS * expected[WORK]);
		for (unsigned n = 0; n < LEAF_FOCI; n++)
			if (session_value(s, ids[n]) != turn * THREADS * expected[n])
				fail_msg("%s: %" PRIu64 ", not %" PRIu64, leaf_foci[n],
					 session_value(s, ids[n]), turn * THREADS * expected[n]);
	}
	for (unsigned n = 0; n < LEAF_FOCI; n++)
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
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "sitting");
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
	unsigned kept, steady, rounds = 1;
	size_t bytes = 0;

	harness_limit(600);
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
		rounds += harness_again(h, "go 400000\n");
	}
	assert_string_equal(harness_line(h, 150000), "done");
	session_flush_all(s);
	assert_int_equal(session_value(s, kept), rounds * THREADS * 400000ull);
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

/* ------------------------------------------------------------------ words */

/* Words of removed flags are used again, and what the heap holds does not grow. */
static void test_nothing_piles_up(void **state)
{
	enum { TURNS = 120 };
	struct harness *h = *state;
	struct session *s = begin(h, "calls", "2");
	static const char *const foci[] = {"/Code/calls/branchy", "/Code/calls/indirect",
					   "/Code/calls/recursive", "/Code/calls/tail"};
	uint32_t highest = 0, late = 0;
	size_t counters = 0;

	harness_limit(600);
	harness_send(h, "go 100000\n");
	for (int turn = 0; turn < TURNS; turn++, harness_again(h, "go 100000\n")) {
		struct heap_stats stats;
		unsigned ids[4];

		for (unsigned n = 0; n < 4; n++) {
			const struct instance *i;

			ids[n] = insert(s, "leaves", foci[n]);
			i = session_instance(s, ids[n]);
			if (turn < 20 && i->flags[0]->variables[0]->record_offset > highest)
				highest = i->flags[0]->variables[0]->record_offset;
			if (turn >= 20 && i->flags[0]->variables[0]->record_offset > late)
				late = i->flags[0]->variables[0]->record_offset;
		}
		for (unsigned n = 0; n < 4; n++)
			session_remove(s, ids[n]);
		assert_int_equal(hidden(s), 0);
		session_flush_all(s);
		heap_get_stats(s->places->heap, &stats);
		if (turn == 20)
			counters = stats.counter_bytes;
		if (turn > 20)
			assert_true(stats.counter_bytes <= counters);
	}
	assert_true(highest && late <= highest);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ---------------------------------------------------------------- no room */

/* Part of a metric is in one place and part in another one: one value, and one flag for both. */
static void test_two_places(void **state)
{
	enum { ROUNDS = 600 };
	struct harness *h = *state;
	struct session *s = begin(h, "calls", "3");
	unsigned tiny = insert(s, "calls", "/Code/calls/tiny"), both, flagged;
	struct place *place = session_instance(s, tiny)->links->site->place;
	const struct instance *i;

	/* As if nothing new had room there. */
	place->full = true;
	both = insert(s, "both", "/Code/calls/tiny");
	flagged = insert(s, "guarded_both", "/Code/calls/branchy");
	i = session_instance(s, both);
	assert_int_equal(i->variables[0]->place_count, 2);
	session_go(h, ROUNDS);
	assert_int_equal(session_value(s, tiny), 3 * ROUNDS);
	/* tiny() and strange(), each once a round. */
	assert_int_equal(session_value(s, both), 2 * 3 * ROUNDS);
	assert_int_equal(session_value(s, flagged), 0);
	session_remove(s, both);
	session_remove(s, flagged);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ----------------------------------------------------------------- limits */

static void told(void *arg, const struct instance *i, double percent)
{
	assert_true(percent > i->limit);
	++*(int *)arg;
}

/* fear K3: what costs more than its limit is switched off and stays so, with its values; the rest goes on */
static void test_limit(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h, "calls", "2");
	const struct insert_options tight = {.limit = 1e-7}, wide = {.limit = 1000, .cost = true};
	const char *tiny = "/Code/calls/tiny", *recursive = "/Code/calls/recursive";
	const struct insert_options *options[] = {&tight, &wide, &tight};
	const struct instance *made[3];
	struct dinst_error e = {0};
	uint64_t value, hits;
	int times = 0;

	for (unsigned n = 0; n < 3; n++) {
		struct insert_result result;

		if (request_insert(s, n == 2 ? "at_entry" : "calls", n == 2 ? &recursive : &tiny, 1,
				   options[n], &result, &e) < 0)
			fail_msg("%s", e.text);
		made[n] = result.instances[0];
		free(result.instances);
		assert_null(made[n]->source);
		assert_true(made[n]->cost_ps > 0);
	}
	session_go(h, 50000);
	assert_true(instance_hits(made[1], &hits));
	assert_int_equal(hits, 100000);
	assert_true(instance_hits(made[2], &hits) && hits >= 400000);
	/* Too early to say. */
	session_poll(s, told, &times);
	for (int n = 0; n < 2400 && times < 2; n++) {
		usleep(50000);
		session_poll(s, told, &times);
	}
	assert_int_equal(times, 2);
	assert_true(made[0]->stopped && !made[1]->stopped && made[2]->stopped);
	value = instance_value(made[0]);
	assert_int_equal(value, 100000);
	session_go(h, 1000);
	assert_int_equal(instance_value(made[0]), value);
	assert_int_equal(instance_value(made[1]), 102000);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------------------ deaths */

/* A machine that is busy lets a stop fail: it is tried again, as a user would. */
static int put_in(struct session *s, const char *metric, const char *focus,
		  struct insert_result *result, struct dinst_error *e)
{
	int status = DINST_BUSY;

	for (int tries = 0; tries < 50 && status == DINST_BUSY; tries++) {
		dinst_error_clear(e);
		status = request_insert(s, metric, &focus, 1, NULL, result, e);
	}
	return status;
}

static void live_and_die(pid_t pid, unsigned long countdown)
{
	static const char *const foci[] = {"/Code/calls/recursive", "/Code/calls/branchy"};
	struct dinst_error e = {0};
	struct detach_result detached;
	struct insert_result result;
	struct flush_result flush;
	struct session *s;

	alarm(600);
	fault_countdown = countdown;
	if (session_attach(pid, "doomed", &s, &e) < 0 ||
	    session_load_mdl(s, "lists.mdl", lists, strlen(lists), &e) < 0 ||
	    session_load_mdl(s, "test.mdl", text, strlen(text), &e) < 0)
		_exit(3);
	for (int turn = 0; turn < 4; turn++) {
		struct instance *first;
		int status;

		if (put_in(s, "leaves", foci[turn % 2], &result, &e) < 0)
			_exit(4);
		first = result.instances[0];
		free(result.instances);
		status = put_in(s, "at_exit", foci[0], &result, &e);
		free(result.instances);
		if (status < 0 || removal_remove(s, first, &flush, &e) < 0)
			_exit(5);
	}
	_exit(session_detach(s, 100, &detached, &e) < 0 || detached.left ? 6 : 0);
}

/* The mutator dies at all kinds of moments: the target goes on, and its text comes back. */
static void test_deaths(void **state)
{
	enum { STEP = 9, MOST = 6000 };
	struct harness *h = *state;
	bool killed = true;

	harness_limit(600);
	harness_start(h, "calls", "2", NULL);
	for (unsigned long at = 1; killed && at < MOST; at += at < 300 ? STEP : 10 * STEP) {
		struct dinst_error e = {0};
		struct leftovers left;
		struct target *t;
		char differences[4096];
		int status = 0;
		pid_t child;

		harness_send(h, "go 3000\n");
		fflush(NULL);
		child = fork();
		if (child == 0)
			live_and_die(h->pid, at);
		assert_int_equal(waitpid(child, &status, 0), child);
		killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		if (!killed && status)
			fail_msg("the mutator ended with %x at %lu", (unsigned)status, at);
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
		if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, 60000, &left, &e) < 0)
			fail_msg("after death at %lu: %s", at, e.text);
		target_close(t);
		assert_int_equal(left.arenas_left, 0);
		if (harness_differences(h->before, HARNESS_TEXT | HARNESS_THREADS | HARNESS_FDS,
					differences, sizeof(differences)))
			fail_msg("not as before after death at %lu:\n%s", at, differences);
	}
	assert_false(killed);
	session_go(h, 100);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_the_same_twice),
		CASE(test_the_same_level),
		CASE(test_order_at_shared_points),
		CASE(test_flags_are_per_thread),
		CASE(test_caught_up),
		CASE(test_churn),
		CASE(test_failure_leaves_nothing),
		CASE(test_nothing_piles_up),
		CASE(test_two_places),
		CASE(test_limit),
		CASE(test_deaths),
	};

	return cmocka_run_group_tests_name("live/mdl_insert", tests, NULL, NULL);
}
