/* SPDX-License-Identifier: MIT */
/*
 * search_findings.c - what the search of `dinst why` says where several things are measured of one
 * kind, or some could not be: whom it names, with which figures, and what it leaves undecided.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/search_looks.h"

/* What a test measures; of a list the first line that is about it counts, and without one it is done, and is 0. */
struct made_answer {
	enum search_measure what;
	const char *symbol; /* the function that it is about; NULL: whichever */
	double value;
	const char *why_not; /* it cannot be done */
	struct made_element {
		const char *name; /* of a file, or of a function */
		double value;
	} elements[4];
};

struct world {
	struct search_facts facts;
	const struct made_chain *chains;
	const struct made_answer *answers; /* ends with one of no value, reason or elements */
	char told[SEARCH_TEXT * 2];	   /* the last that was told while it was under way */
};

static bool observe(void *arg, double seconds, struct chains *chains, struct search_facts *facts)
{
	struct world *w = arg;

	(void)seconds;
	looks_add(chains, w->chains);
	*facts = w->facts;
	return true;
}

static const struct made_answer *answer_to(const struct world *w, const struct search_test *t)
{
	for (const struct made_answer *a = w->answers;
	     a && (a->value > 0 || a->why_not || a->elements[0].name); a++)
		if (a->what == t->what && (!a->symbol || !strcmp(a->symbol, t->symbol)))
			return a;
	return NULL;
}

static void answer(const struct made_answer *a, struct search_test *t)
{
	t->done = !a || !a->why_not;
	if (a && a->why_not)
		snprintf(t->why_not, sizeof(t->why_not), "%s", a->why_not);
	if (!a || a->why_not)
		return;
	t->value = a->value;
	t->elements = calloc(4, sizeof(*t->elements));
	assert_non_null(t->elements);
	for (size_t i = 0; i < 4 && a->elements[i].name; i++) {
		struct search_element *e = &t->elements[t->element_count++];

		snprintf(e->key, sizeof(e->key), "%zu", i + 3);
		snprintf(e->name, sizeof(e->name), "%s", a->elements[i].name);
		snprintf(e->module, sizeof(e->module), "server");
		e->value = e->made = a->elements[i].value;
		e->bytes = 100;
		e->is_file = true;
	}
}

static bool measure(void *arg, struct search_test *tests, size_t count)
{
	struct world *w = arg;

	for (size_t i = 0; i < count; i++) {
		tests[i].cpu = w->facts.cpu;
		answer(answer_to(w, &tests[i]), &tests[i]);
	}
	return true;
}

static void told(void *arg, const struct search_node *node, const char *text)
{
	struct world *w = arg;

	(void)node;
	snprintf(w->told, sizeof(w->told), "%s", text);
}

static void search(struct search *s, struct world *w)
{
	const struct search_world world = {
		.arg = w, .observe = observe, .measure = measure, .told = told};

	*s = (struct search){.limit = 10, .program = "server"};
	assert_true(search_run(s, &world));
}

/* ------------------------------------------------------------- shares of CPU */

/*
 * A function has what the looks give it among all its callers, whichever was met first; below one that has too little
 * of it, it is not told.
 */
static void test_callers(void **state)
{
	static const struct made_chain chains[][3] = {
		{{CHAIN_RUNS, 5, {"main", "f", "g"}}, {CHAIN_RUNS, 95, {"main", "x", "f", "g"}}},
		{{CHAIN_RUNS, 95, {"main", "x", "f", "g"}}, {CHAIN_RUNS, 5, {"main", "f", "g"}}},
	};
	static const struct made_answer answers[] = {
		{.what = MEASURE_CPU, .symbol = "main", .value = 1},
		{.what = MEASURE_CPU, .symbol = "x", .value = 0.95},
		{.what = MEASURE_CPU, .symbol = "f", .value = 0.9},
		{.what = MEASURE_CPU, .symbol = "g", .value = 0.9},
		{0},
	};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct world w = {.facts = busy(1), .chains = chains[i], .answers = answers};
		const struct search_node *top;
		struct search s;

		search(&s, &w);
		assert_int_equal(s.finding_count, 1);
		assert_string_equal(s.findings[0].function, "g");
		assert_float_equal(s.findings[0].share, 0.9 * 95 / 100, 1e-6);
		top = s.roots[SEARCH_CPU]->children[0];
		assert_string_equal(top->function, "main");
		assert_int_equal(top->child_count, 1);
		assert_string_equal(top->children[0]->function, "x");
		search_release(&s);
	}
}

/* A good part of the time is in main() itself, and more in what it calls. */
static const struct made_chain split_chains[] = {
	{CHAIN_RUNS, 30, {"main"}},
	{CHAIN_RUNS, 70, {"main", "f"}},
	{0},
};

/* A program that gets little of a CPU is told one function: the one that has most, not the one that was met first. */
static void test_starved(void **state)
{
	static const struct made_answer answers[] = {
		{.what = MEASURE_CPU, .symbol = "main", .value = 0.2},
		{.what = MEASURE_CPU, .symbol = "f", .value = 0.14},
		{0},
	};
	struct world w = {.facts = busy(0.2), .chains = split_chains, .answers = answers};
	struct search s;

	(void)state;
	w.facts.busiest[0].waiting = 0.8;
	search(&s, &w);
	assert_int_equal(s.finding_count, 1);
	assert_string_equal(s.findings[0].function, "f");
	assert_non_null(strstr(s.findings[0].text, "70 % of its CPU time is in f()"));
	assert_non_null(strstr(s.findings[0].text, "it gets only 20 % of a CPU"));
	assert_false(s.roots[SEARCH_CPU]->children[0]->is_culprit);
	assert_true(s.roots[SEARCH_CPU]->children[0]->children[0]->is_culprit);
	search_release(&s);
}

/* What is told of the culprit while the search goes on is about CPU time, also where something else is worse. */
static void test_told(void **state)
{
	static const struct made_answer answers[] = {
		{.what = MEASURE_CPU, .symbol = "main", .value = 0.6},
		{.what = MEASURE_CPU, .symbol = "f", .value = 0.42},
		{0},
	};
	struct world w = {.facts = busy(0.6), .chains = split_chains, .answers = answers};
	struct search s;

	(void)state;
	w.facts.growth = 2e7;
	w.facts.steps = w.facts.rises = 4;
	search(&s, &w);
	assert_int_equal(s.findings[0].why, SEARCH_MEMORY);
	assert_string_equal(s.findings[1].function, "f");
	assert_string_equal(w.told, s.findings[1].text);
	search_release(&s);
}

/* ---------------------------------------------------------------------- I/O */

static const char costly[] = "switched off: it cost more than the limit";

static void expect_undecided(const struct made_answer *answers, enum search_state state,
			     const char *figure, const char *note)
{
	struct world w = {.facts = busy(0.1), .answers = answers};
	struct search s;

	search(&s, &w);
	assert_int_equal(s.roots[SEARCH_IO]->state, state);
	assert_non_null(strstr(s.roots[SEARCH_IO]->figure, figure));
	assert_int_equal(s.note_count, 1);
	assert_string_equal(s.notes[0], note);
	assert_int_equal(s.finding_count, state == SEARCH_HOLDS);
	search_release(&s);
}

/*
 * Waiting is wall time without CPU time: where one of them was not measured it is not known, which is told, and
 * nothing is concluded from the other one alone.
 */
static void test_io_unmeasured(void **state)
{
	static const struct made_answer all_cpu[] = {
		{.what = MEASURE_WRITES, .elements = {{"socket:[1]", 0.45}}},
		{.what = MEASURE_WRITES_CPU, .why_not = costly},
		{0},
	};
	static const struct made_answer no_wall[] = {
		{.what = MEASURE_WRITES, .why_not = costly},
		{.what = MEASURE_WRITES_CPU, .elements = {{"socket:[1]", 0.02}}},
		{0},
	};
	static const struct made_answer no_reads[] = {
		{.what = MEASURE_WRITES, .elements = {{"/var/log/a", 0.05}}},
		{.what = MEASURE_READS_CPU, .why_not = costly},
		{0},
	};
	static const struct made_answer other_holds[] = {
		{.what = MEASURE_WRITES_CPU, .why_not = costly},
		{.what = MEASURE_READS, .elements = {{"/srv/data", 0.45}}},
		{.what = MEASURE_READS_CPU, .elements = {{"/srv/data", 0.05}}},
		{0},
	};
	static const struct made_answer neither[] = {
		{.what = MEASURE_WRITES_CPU, .why_not = costly},
		{.what = MEASURE_READS, .why_not = "refused: no reason"},
		{0},
	};
	static const char no_writes_note[] =
		"I/O-bound: waiting in writes and syncs could not be measured: "
		"switched off: it cost more than the limit";

	(void)state;
	expect_undecided(all_cpu, SEARCH_UNKNOWN,
			 "an unknown part of a thread's time in writes and syncs, 0.0 % in reads",
			 no_writes_note);
	expect_undecided(no_wall, SEARCH_UNKNOWN,
			 "an unknown part of a thread's time in writes and syncs, 0.0 % in reads",
			 no_writes_note);
	expect_undecided(no_reads, SEARCH_UNKNOWN,
			 "5.0 % of a thread's time in writes and syncs, an unknown part in reads",
			 "I/O-bound: waiting in reads could not be measured: "
			 "switched off: it cost more than the limit");
	expect_undecided(other_holds, SEARCH_HOLDS,
			 "an unknown part of a thread's time in writes and syncs, 40.0 % in reads",
			 no_writes_note);
	expect_undecided(
		neither, SEARCH_UNKNOWN, costly,
		"I/O-bound could not be tested: switched off: it cost more than the limit");
}

/* Of several files the worst one of those is named that the finding is about, with what it has of the whole. */
static void test_io_files(void **state)
{
	static const struct made_answer answers[] = {
		{.what = MEASURE_WRITES, .elements = {{"/var/log/a", 0.27}, {"/var/log/b", 0.23}}},
		{.what = MEASURE_READS, .elements = {{"/srv/data", 0.4}}},
		{0},
	};
	static const struct made_answer others[] = {
		{.what = MEASURE_WRITES, .elements = {{"/var/log/a", 0.3}}},
		{.what = MEASURE_READS, .elements = {{"/srv/data", 0.4}}},
		{0},
	};
	struct world w = {.facts = busy(0.1), .answers = answers};
	struct search s;

	(void)state;
	search(&s, &w);
	assert_int_equal(s.finding_count, 1);
	assert_string_equal(s.findings[0].text,
			    "waiting in writes and syncs takes 50 % of a thread's time "
			    "(54 % of it for /var/log/a)");
	search_release(&s);
	w.answers = others;
	search(&s, &w);
	assert_string_equal(s.findings[0].text,
			    "waiting in reads of /srv/data takes 40 % of a thread's time");
	search_release(&s);
}

/* ------------------------------------------------------------------- memory */

/*
 * Who calls a function that only hands on what it allocates has a part of that function's part, in the finding and in
 * the tree.
 */
static void test_levels(void **state)
{
	static const struct made_answer answers[] = {
		{.what = MEASURE_BLOCKS,
		 .symbol = "",
		 .elements = {{"must_malloc", 600}, {"other", 400}}},
		{.what = MEASURE_BLOCKS,
		 .symbol = "must_malloc",
		 .elements = {{"keep_a", 310}, {"keep_b", 290}}},
		{.what = MEASURE_BLOCKS,
		 .symbol = "keep_a",
		 .elements = {{"a", 100}, {"b", 90}, {"c", 90}}},
		{0},
	};
	struct world w = {.facts = busy(0.1), .answers = answers};
	const struct search_node *n;
	struct search s;

	(void)state;
	w.facts.growth = 1e6;
	w.facts.steps = w.facts.rises = 4;
	search(&s, &w);
	assert_int_equal(s.finding_count, 1);
	assert_string_equal(s.findings[0].text, "memory grows by 1.00 MB a second: 31 % of what "
						"stays is allocated in keep_a()");
	assert_float_equal(s.findings[0].share, 0.31, 1e-6);
	n = s.roots[SEARCH_MEMORY]->children[0];
	assert_string_equal(n->figure, "60 % of what stays: 600 of 600 blocks that were followed");
	assert_float_equal(n->share, 0.6, 1e-6);
	n = n->children[0];
	assert_true(n->is_culprit);
	assert_string_equal(n->figure, "52 % of what must_malloc() allocates: 310 of 310 blocks "
				       "that were followed");
	assert_float_equal(n->share, 0.31, 1e-6);
	search_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_callers),	 cmocka_unit_test(test_starved),
		cmocka_unit_test(test_told),	 cmocka_unit_test(test_io_unmeasured),
		cmocka_unit_test(test_io_files), cmocka_unit_test(test_levels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
