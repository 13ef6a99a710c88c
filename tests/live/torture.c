/* SPDX-License-Identifier: MIT */
/*
 * torture.c - every point of the tortured target (tests/live/asm/), in and out
 * while it runs, and counted exactly where it rests.
 *
 * TORTURE_MS of the environment: of each part of each churning case; for the
 * rest see harness_torture.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/threads.h"
#include "tests/live/harness_torture.h"

/* --------------------------------------------------------------- counting */

struct totals {
	size_t points, refused, wrong, missing;
	uint64_t counted;
};

static void compare(const struct torture *t, const struct torture_function *f, enum point_kind kind,
		    uint64_t rounds, uint64_t slow, struct totals *total)
{
	const struct instance *i = torture_instance(t, f->focus, kind);
	uint64_t value = i ? instance_value(i) : 0, right, more;
	const char *what = torture_metric(kind)->name;
	struct torture_truth x;

	torture_expect(t, f, kind, &x);
	right = x.counted[0] * rounds + x.counted[1] * slow;
	more = x.more[0] * rounds + x.more[1] * slow;
	total->points += x.points;
	total->refused += x.refused;
	total->counted += value;
	if (x.exact && (value < right || value - right > more) && total->wrong++ < 20)
		print_error("%s of %s: %llu, not %llu (%zu points, %zu refused; %llu + %llu a "
			    "round)\n",
			    what, f->name, (unsigned long long)value, (unsigned long long)right,
			    x.points, x.refused, (unsigned long long)x.counted[0],
			    (unsigned long long)x.counted[1]);
	if (!x.undecoded &&
	    (kind == POINT_EXIT || kind == POINT_CALL || kind == POINT_INSTRUCTION) &&
	    (x.planned[0] != x.all[0] || x.planned[1] != x.all[1]) && total->missing++ < 20)
		print_error("%s of %s: the %zu points that were found ran %llu + %llu times a "
			    "round, all that there are %llu + %llu\n",
			    what, f->name, x.points, (unsigned long long)x.planned[0],
			    (unsigned long long)x.planned[1], (unsigned long long)x.all[0],
			    (unsigned long long)x.all[1]);
}

static void count_kind(struct torture *t, enum point_kind kind)
{
	struct totals total = {0};
	uint64_t rounds, slow;

	if (!torture_insert(t, NULL, 0, kind, true, NULL))
		fail_msg("no %s at all", torture_metric(kind)->name);
	torture_ask(t, "run 20", "done");
	torture_rest(t, &rounds, &slow);
	for (size_t i = 0; i < t->function_count; i++)
		compare(t, &t->functions[i], kind, rounds, slow, &total);
	print_message("%s: %zu points, %zu refused, %llu counted in %llu rounds\n",
		      torture_metric(kind)->name, total.points, total.refused,
		      (unsigned long long)total.counted, (unsigned long long)rounds);
	torture_remove_all(t);
	if (total.wrong || total.missing)
		fail_msg("%s: %zu functions counted wrongly, in %zu something is not found",
			 torture_metric(kind)->name, total.wrong, total.missing);
}

/* One kind after the other. */
static void run_counts(void **state, const char *program)
{
	struct torture t;

	torture_begin(&t, state, program, "2", NULL);
	for (int kind = POINT_ENTRY; kind < (int)torture_setting("TORTURE_KINDS", POINT_KINDS);
	     kind++)
		count_kind(&t, (enum point_kind)kind);
	torture_end(&t);
}

/* Left by its exits only, and all of them can be had. */
static bool is_balanced(const struct torture *t, const struct torture_function *f)
{
	struct torture_truth in, out;

	torture_expect(t, f, POINT_ENTRY, &in);
	torture_expect(t, f, POINT_EXIT, &out);
	return in.exact && !in.refused && !out.refused && !out.undecoded && in.points &&
	       in.counted[0] == out.all[0] && in.counted[1] == out.all[1];
}

/*
 * Entries paired with exits. On stacks of its own, as the target has them, what
 * is left without an exit stays for ever: only functions of which nothing stays.
 */
static void test_activations(void **state)
{
	const struct torture_function **some;
	size_t wrong = 0, count = 0;
	struct threads_statistics statistics;
	uint64_t rounds, slow;
	struct torture t;

	torture_begin(&t, state, "torture", "2", NULL);
	some = calloc(t.function_count, sizeof(*some));
	assert_non_null(some);
	for (size_t n = 0; n < t.function_count; n++)
		/* A return that is used as a jump is not at the stack pointer of the entry. */
		if (is_balanced(&t, &t.functions[n]) && strcmp(t.functions[n].name, "t_c_push_ret"))
			some[count++] = &t.functions[n];
	assert_true(count > 0);
	assert_true(torture_insert(&t, some, count, TORTURE_PAIRED, true, NULL));
	torture_ask(&t, "run 20", "done");
	torture_rest(&t, &rounds, &slow);
	for (size_t n = 0; n < count; n++) {
		const struct instance *i = torture_instance(&t, some[n]->focus, TORTURE_PAIRED);
		struct torture_truth x;
		uint64_t right;

		torture_expect(&t, some[n], POINT_ENTRY, &x);
		right = x.counted[0] * rounds + x.counted[1] * slow;
		if (instance_value(i) == right && instance_exits(i) == right &&
		    !threads_alive(t.s, i))
			continue;
		if (wrong++ < 20)
			print_error("%s was entered %llu and left %llu times, not %llu; %llu are "
				    "alive\n",
				    some[n]->name, (unsigned long long)instance_value(i),
				    (unsigned long long)instance_exits(i),
				    (unsigned long long)right,
				    (unsigned long long)threads_alive(t.s, i));
	}
	threads_statistics(t.s, &statistics);
	print_message("%zu functions; %llu lost, %llu overflown, %llu orphans, %u records\n", count,
		      (unsigned long long)statistics.lost, (unsigned long long)statistics.overflow,
		      (unsigned long long)statistics.orphans, statistics.used);
	assert_int_equal(wrong, 0);
	free(some);
	torture_remove_all(&t);
	torture_end(&t);
}

/*
 * fear C3, C4, C5, E5, F2, F7: hundreds of functions in assembler, each a corner case: all points counted
 * exactly as a trace says
 */
static void test_counts(void **state)
{
	run_counts(state, "torture");
}

/* fear C4: the same program at a fixed address: absolute jump tables and operands */
static void test_counts_fixed(void **state)
{
	run_counts(state, "torture-fixed");
}

#define LOOPS (1u << POINT_LOOP_ENTRY | 1u << POINT_LOOP_ROUND | 1u << POINT_LOOP_EXIT)

static uint64_t loop_points(const struct torture *t, const struct torture_function *f,
			    enum point_kind kind, bool *all)
{
	const struct instance *i = torture_instance(t, f->focus, kind);
	struct torture_truth x;

	torture_expect(t, f, kind, &x);
	*all &= !x.refused && x.points;
	return i ? instance_value(i) : 0;
}

/* Every loop that is entered is left, and its header runs once for that and once a round. */
static size_t compare_loops(const struct torture *t, const struct torture_function *f,
			    uint64_t rounds, uint64_t slow)
{
	struct torture_truth headers, instructions;
	uint64_t in, round, out, right;
	bool all = true;

	torture_expect(t, f, POINT_LOOP_ROUND, &headers);
	in = loop_points(t, f, POINT_LOOP_ENTRY, &all);
	round = loop_points(t, f, POINT_LOOP_ROUND, &all);
	out = loop_points(t, f, POINT_LOOP_EXIT, &all);
	right = headers.planned[0] * rounds + headers.planned[1] * slow;
	torture_expect(t, f, POINT_INSTRUCTION, &instructions);
	if (!all || !instructions.exact || (in == out && in + round == right))
		return 0;
	print_error("loops of %s: %llu in, %llu out, %llu rounds; the headers ran %llu times\n",
		    f->name, (unsigned long long)in, (unsigned long long)out,
		    (unsigned long long)round, (unsigned long long)right);
	return 1;
}

/* All kinds at once: each counts what it counted alone, and so do those of each kind. */
/*
 * fear D2: all kinds of points of all functions at once; registers, flags and vector state
 * compared
 */
static void test_counts_together(void **state)
{
	unsigned kinds = (unsigned)torture_setting("TORTURE_SET", (1u << POINT_KINDS) - 1);
	struct totals total = {0};
	uint64_t rounds, slow;
	struct torture t;

	torture_begin(&t, state, "torture", "2", NULL);
	for (int kind = POINT_KINDS - 1; kind >= 0; kind--)
		if (kinds >> kind & 1)
			assert_true(torture_insert(&t, NULL, 0, (unsigned)kind, true, NULL));
	for (size_t i = 0; i < t.function_count && getenv("TORTURE_VERBOSE"); i++)
		for (int kind = 0; kind < POINT_KINDS; kind++)
			if (kinds >> kind & 1)
				torture_expect(&t, &t.functions[i], kind,
					       &(struct torture_truth){0});
	torture_ask(&t, "run 20", "done");
	torture_rest(&t, &rounds, &slow);
	for (int kind = 0; kind < POINT_KINDS; kind++)
		for (size_t i = 0; i < t.function_count && kinds >> kind & 1; i++)
			compare(&t, &t.functions[i], (enum point_kind)kind, rounds, slow, &total);
	for (size_t i = 0; i < t.function_count && (kinds & LOOPS) == LOOPS; i++)
		total.wrong += compare_loops(&t, &t.functions[i], rounds, slow);
	assert_int_equal(total.wrong, 0);
	torture_remove_all(&t);
	torture_end(&t);
}

/* -------------------------------------------------------------- churning */

enum { SOME_MAX = 64 };

/* One function, or some, or all with a letter. */
static bool insert_some(struct torture *t, unsigned metric)
{
	const struct torture_function *some[SOME_MAX];
	size_t count = 1 + (torture_pick(t, 3) ? 0 : torture_pick(t, SOME_MAX));

	for (size_t i = 0; i < count; i++)
		some[i] = &t->functions[torture_pick(t, (unsigned)t->function_count)];
	return torture_insert(t, some, count, metric, false, NULL);
}

/* Subsets, in and out in any order. */
static void churn(struct torture *t, unsigned ms)
{
	unsigned metrics = (unsigned)torture_setting("TORTURE_KINDS", TORTURE_METRICS);
	uint64_t until = torture_now_ms() + ms, turns = 0;
	size_t alive = 0;

	for (; torture_now_ms() < until; turns++) {
		const struct instance *i = t->s->instances;

		if (alive < 40 && (!alive || torture_pick(t, 3))) {
			insert_some(t, torture_pick(t, metrics));
		} else {
			for (unsigned n = torture_pick(t, (unsigned)alive); n; n--)
				i = i->next;
			session_remove(t->s, i->id);
			if (torture_pick(t, 4) == 0)
				session_flush_all(t->s);
		}
		alive = 0;
		for (i = t->s->instances; i; i = i->next)
			alive++;
	}
	torture_remove_all(t);
	print_message("%llu changes\n", (unsigned long long)turns);
}

/* All kinds into all functions, out again, and so on. */
static void waves(struct torture *t, unsigned ms)
{
	unsigned metrics = (unsigned)torture_setting("TORTURE_KINDS", TORTURE_METRICS);
	uint64_t until = torture_now_ms() + ms, turns = 0;

	for (; torture_now_ms() < until; turns++) {
		for (unsigned k = 0; k < metrics; k++)
			torture_insert(t, NULL, 0, (unsigned)(k + turns) % metrics, false, NULL);
		usleep(20000);
		while (t->s->instances)
			session_remove(t->s, t->s->instances->id);
		if (turns & 1)
			session_flush_all(t->s);
	}
	torture_remove_all(t);
	print_message("%llu waves\n", (unsigned long long)turns);
}

/* Every single instruction, in and out as fast as it goes. */
static void instructions(struct torture *t, unsigned ms)
{
	uint64_t until = torture_now_ms() + ms, turns = 0;

	if (torture_setting("TORTURE_KINDS", POINT_KINDS) <= POINT_INSTRUCTION)
		return;
	for (; torture_now_ms() < until; turns++) {
		assert_true(torture_insert(t, NULL, 0, POINT_INSTRUCTION, false, NULL));
		torture_remove_all(t);
	}
	print_message("%llu times every instruction\n", (unsigned long long)turns);
}

struct churning {
	const char *program, *threads, *how;
	bool private; /* memory of the target's own instead of shared arenas */
};

static void run_churn(void **state, const struct churning *c)
{
	unsigned ms = (unsigned)torture_setting("TORTURE_MS", getenv("DINST_SHORT") ? 500 : 1000);
	uint64_t rounds, slow;
	const char *how = c->how;
	struct torture t;

	harness_limit(HARNESS_SECONDS + 3 * ms / 1000);
	torture_begin(&t, state, c->program, c->threads, how);
	t.s->private_arenas = c->private;
	torture_ask(&t, "start", "running");
	instructions(&t, ms);
	waves(&t, ms);
	churn(&t, ms);
	/* The last ones are there when it is detached, in full run. */
	for (unsigned k = 0; k < TORTURE_METRICS; k++)
		torture_insert(&t, NULL, 0, k, false, NULL);
	session_end(t.s);
	t.s = NULL;
	torture_rest(&t, &rounds, &slow);
	print_message("%llu rounds, %llu endings, %llu signals, %llu of them in code of ours\n",
		      (unsigned long long)rounds, (unsigned long long)t.ends,
		      (unsigned long long)t.signals, (unsigned long long)t.inside);
	assert_true(rounds > 0);
	if (how && !strcmp(how, "storm"))
		assert_true(t.signals > 0 && t.inside > 0);
	if (how && !strcmp(how, "ends"))
		assert_true(t.ends > 0);
	torture_end(&t);
}

/*
 * fear C1, C7, D1, D2, D4, D5: every instruction, all kinds in waves and at random, in and out
 * under three threads that compare registers, flags, red zone and the whole XSAVE state with an
 * uninstrumented run, at every alignment of the stack pointer
 */
static void test_churn(void **state)
{
	run_churn(state, &(struct churning){"torture", "3", NULL, false});
}

/* fear B7, C1: the same in a program at a fixed address */
static void test_churn_fixed(void **state)
{
	run_churn(state, &(struct churning){"torture-fixed", "3", NULL, false});
}

static void test_churn_private(void **state)
{
	run_churn(state, &(struct churning){"torture", "2", NULL, true});
}

/*
 * fear C2, E6: a profiler's signal every 0.4 ms while all is inserted and removed: each backtrace
 * has the program's own addresses only, and reaches the thread's start from all code with unwind
 * tables
 */
static void test_storm(void **state)
{
	run_churn(state, &(struct churning){"torture", "3", "storm", false});
}

/*
 * fear E1: threads that exit and are cancelled, and children that exit, inside of instrumented
 * functions
 */
static void test_ends(void **state)
{
	run_churn(state, &(struct churning){"torture", "2", "ends", false});
}

/* What is entered and never left: by threads and processes that end in it. */
static void test_endings_counted(void **state)
{
	uint64_t rounds, slow, before;
	unsigned entries, exits;
	struct torture t;

	torture_begin(&t, state, "torture", "1", "ends");
	before = t.ends;
	entries = session_insert_kind(t.s, "/Code/torture/x_ending", POINT_ENTRY);
	exits = session_insert_kind(t.s, "/Code/torture/x_ending", POINT_EXIT);
	torture_ask(&t, "run 20", "done");
	torture_rest(&t, &rounds, &slow);
	assert_int_equal(t.ends - before, 60);
	assert_int_equal(session_value(t.s, entries), 60);
	assert_int_equal(session_value(t.s, exits), 0);
	torture_remove_all(&t);
	torture_end(&t);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_counts),	    CASE(test_counts_fixed), CASE(test_counts_together),
		CASE(test_activations),	    CASE(test_churn),	     CASE(test_churn_private),
		CASE(test_churn_fixed),	    CASE(test_storm),	     CASE(test_ends),
		CASE(test_endings_counted),
	};

	/* A pattern of names, for trying things out. */
	if (getenv("TORTURE_CASES"))
		cmocka_set_test_filter(getenv("TORTURE_CASES"));
	return cmocka_run_group_tests_name("live/torture", tests, NULL, NULL);
}
