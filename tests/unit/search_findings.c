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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_callers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
