/* SPDX-License-Identifier: MIT */
/*
 * search.c - the search of `dinst why` in made-up worlds: what it tests, in which order, what
 * it concludes, and that it keeps to its limit. Shares are given by a table of functions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/search_looks.h"

/* What each function of the chains measures. */
struct made_function {
	const char *name;
	double share, rate; /* of a CPU; calls a second */
	bool refused;
};

struct world {
	struct search_facts facts;
	const struct made_chain *chains;
	const struct made_function *functions;
	double locks, writes, reads;		    /* threads that wait */
	const char *holder, *waiter, *path, *maker; /* "" or NULL: nobody */
	bool is_file;
	unsigned rounds, counted, timed, sampled, over_after;
	double planned; /* percent that the tests of the costliest round must cost */
};

static const struct made_function *function_of(const struct world *w, const char *name)
{
	for (const struct made_function *f = w->functions; f && f->name; f++)
		if (!strcmp(f->name, name))
			return f;
	return NULL;
}

static bool observe(void *arg, double seconds, struct chains *chains, struct search_facts *facts)
{
	struct world *w = arg;

	(void)seconds;
	looks_add(chains, w->chains);
	*facts = w->facts;
	return true;
}

static void one_element(struct search_test *t, const char *key, const char *name, double value)
{
	t->elements = calloc(1, sizeof(*t->elements));
	assert_non_null(t->elements);
	t->element_count = 1;
	t->elements[0].value = value;
	snprintf(t->elements[0].key, sizeof(t->elements[0].key), "%s", key);
	snprintf(t->elements[0].name, sizeof(t->elements[0].name), "%s", name);
	snprintf(t->elements[0].module, sizeof(t->elements[0].module), "server");
}

static void answer_function(struct world *w, struct search_test *t)
{
	const struct made_function *f = function_of(w, t->symbol);

	t->done = f && !f->refused;
	if (!t->done) {
		snprintf(t->why_not, sizeof(t->why_not), "refused: no reason");
		return;
	}
	t->value = t->what == MEASURE_CALLS ? f->rate : f->share;
	w->counted += t->what == MEASURE_CALLS;
	w->timed += t->what == MEASURE_CPU;
	w->sampled += t->what == MEASURE_CPU_SAMPLED;
}

static void answer(struct world *w, struct search_test *t)
{
	t->done = true;
	t->cpu = w->facts.cpu;
	switch (t->what) {
	case MEASURE_LOCKS:
		t->value = w->locks;
		if (w->locks > 0)
			one_element(t, "0x1234", "", w->locks);
		break;
	case MEASURE_WAITERS:
	case MEASURE_HOLDERS:
		assert_int_equal(t->object, 0x1234);
		if (t->what == MEASURE_WAITERS && w->waiter)
			one_element(t, "0x10", w->waiter, w->locks);
		if (t->what == MEASURE_HOLDERS && w->holder)
			one_element(t, "0x20", w->holder, 0.9);
		break;
	case MEASURE_WRITES:
	case MEASURE_READS:
		t->value = t->what == MEASURE_WRITES ? w->writes : w->reads;
		if (t->value > 0) {
			one_element(t, "7", w->path, t->value);
			t->elements[0].is_file = w->is_file;
		}
		break;
	case MEASURE_BLOCKS:
		if (w->maker && !t->symbol[0])
			one_element(t, "0x30", "must_malloc", 100);
		else if (w->maker && !strcmp(t->symbol, "must_malloc"))
			one_element(t, "0x31", w->maker, 100);
		if (t->element_count)
			t->elements[0].bytes = t->elements[0].made = 200;
		break;
	case MEASURE_WRITES_CPU:
	case MEASURE_READS_CPU:
	case MEASURE_CPU_THREADS:
		break;
	default:
		answer_function(w, t);
		break;
	}
}

static bool measure(void *arg, struct search_test *tests, size_t count)
{
	struct world *w = arg;
	double planned = 0;

	for (size_t i = 0; i < count; i++) {
		const struct made_function *f = function_of(w, tests[i].symbol);

		assert_true(tests[i].seconds > 0 && tests[i].seconds < 10);
		answer(w, &tests[i]);
		if (f && (tests[i].what == MEASURE_CPU || tests[i].what == MEASURE_CPU_THREADS))
			planned += f->rate * 70 / 1e7;
		if (f && tests[i].what == MEASURE_CPU_SAMPLED)
			planned += f->rate * 4 / 1e7;
	}
	if (planned > w->planned)
		w->planned = planned;
	w->rounds++;
	return !w->over_after || w->rounds < w->over_after;
}

static void search(struct search *s, struct world *w)
{
	const struct search_world world = {.arg = w, .observe = observe, .measure = measure};

	*s = (struct search){.limit = 10, .program = "server"};
	assert_true(search_run(s, &world));
	assert_true(w->rounds < 12);
}

/* ------------------------------------------------------------------- cases */

static const struct made_chain hot_chains[] = {
	{CHAIN_RUNS, 16, {"main", "loop", "serve", "compress", "hash"}},
	{CHAIN_RUNS, 3, {"main", "loop", "serve", "parse"}},
	{CHAIN_RUNS, 1, {"main", "loop", "lib:epoll_wait"}},
	{0},
};

static void test_hot(void **state)
{
	static const struct made_function functions[] = {
		{"main", 0.99, 0, false},
		{"loop", 0.99, 0, false},
		{"serve", 0.95, 1000, false},
		{"compress", 0.8, 2000, false},
		{"hash", 0.79, 1e5, false},
		{"parse", 0.13, 1000, false},
		{0},
	};
	struct world w = {.facts = busy(0.99), .chains = hot_chains, .functions = functions};
	struct search s;

	(void)state;
	search(&s, &w);
	assert_int_equal(s.finding_count, 1);
	assert_string_equal(s.findings[0].function, "hash");
	assert_non_null(strstr(s.findings[0].text, "called from compress() < serve() < loop()"));
	assert_int_equal(s.roots[SEARCH_CPU]->state, SEARCH_HOLDS);
	assert_int_equal(s.roots[SEARCH_LOCK]->state, SEARCH_FAILS);
	assert_int_equal(s.roots[SEARCH_IO]->state, SEARCH_FAILS);
	assert_int_equal(s.roots[SEARCH_MEMORY]->state, SEARCH_FAILS);
	/* What is less than a tenth of the looks is not even counted. */
	assert_int_equal(w.counted, 6);
	assert_int_equal(w.timed, 6);
	assert_non_null(strstr(s.rejected[SEARCH_CPU], "parse() 13 %"));
	search_release(&s);
}

/*
 * Names of templates are longer than what is shown of them, and alike as far as that goes: they are measured all the
 * same, told apart, and cut between characters.
 */
static void test_long_names(void **state)
{
	static char one[400], other[400];
	const struct made_chain chains[] = {
		{CHAIN_RUNS, 12, {"main", "loop", one}},
		{CHAIN_RUNS, 8, {"main", "loop", other}},
		{0},
	};
	const struct made_function functions[] = {
		{"main", 0.99, 0, false},
		{"loop", 0.99, 1000, false},
		{one, 0.59, 1000, false},
		{other, 0.39, 1000, false},
		{0},
	};
	struct world w = {.facts = busy(0.99), .chains = chains, .functions = functions};
	const struct search_finding *f;
	struct search s;
	json_t *text;

	(void)state;
	for (size_t i = 0; i < 300; i += 2)
		memcpy(one + i, "\xc3\xa4", 3);
	memcpy(other, one, sizeof(one));
	memcpy(one + 300, "one", 4);
	memcpy(other + 300, "other", 6);
	search(&s, &w);
	f = &s.findings[0];
	assert_int_equal(s.finding_count, 2);
	assert_true(f->share > 0.55 && f->share < 0.6);
	assert_memory_equal(f->function, one, 250);
	assert_string_equal(f->function + 252, "...");
	text = json_string(f->function);
	assert_non_null(text);
	json_decref(text);
	assert_int_equal(w.timed, 4);
	search_release(&s);
}

/* What is called too often is timed one call in 64, or not at all: the plan keeps to the limit. */
static void test_limit(void **state)
{
	static const struct made_function functions[] = {
		{"main", 0.99, 0, false},
		{"loop", 0.99, 0, false},
		{"serve", 0.95, 1e6, false},
		{"compress", 0.8, 3e6, false},
		{"hash", 0.79, 4e8, false},
		{"parse", 0.13, 1e6, false},
		{0},
	};
	struct world w = {.facts = busy(1), .chains = hot_chains, .functions = functions};
	struct search s;

	(void)state;
	search(&s, &w);
	assert_true(w.planned <= 10);
	assert_true(w.sampled >= 1);
	/* By looks alone it is found nevertheless, and said that it was not measured. */
	assert_string_equal(s.findings[0].function, "hash");
	assert_true(s.note_count >= 1);
	assert_non_null(strstr(s.notes[0], "hash() is called 400.0 million times a second"));
	search_release(&s);
}

/* Where nothing that looks have shown can be timed, it is told by looks alone: nobody measures. */
static void test_all_too_often(void **state)
{
	static const struct made_chain chains[] = {
		{CHAIN_RUNS, 19, {"hash"}}, {CHAIN_RUNS, 1, {"parse"}}, {0}};
	static const struct made_function functions[] = {
		{"hash", 0.95, 4e8, false}, {"parse", 0.05, 4e8, false}, {0}};
	struct world w = {.facts = busy(0.99), .chains = chains, .functions = functions};
	struct search s;

	(void)state;
	/* A second thread that is busy: which of them it is would be measured next. */
	w.facts.busiest[1] = (struct search_thread){.tid = 2, .name = "other", .cpu = 0.9};
	w.facts.busiest_count = 2;
	search(&s, &w);
	assert_int_equal(s.finding_count, 1);
	assert_string_equal(s.findings[0].function, "hash");
	assert_true(s.findings[0].share > 0.94 && s.findings[0].share < 0.96);
	assert_non_null(strstr(s.roots[SEARCH_CPU]->children[0]->figure, "by looks alone about"));
	assert_int_equal(w.timed + w.sampled, 0);
	assert_true(w.planned <= 10);
	assert_non_null(strstr(s.notes[0], "looks at the stacks show it in 95 %"));
	assert_non_null(strstr(s.notes[1], "which threads are in hash() was not measured"));
	search_release(&s);
}

static void test_refused(void **state)
{
	static const struct made_function functions[] = {
		{"main", 0.99, 0, false},
		{"loop", 0.99, 0, false},
		{"serve", 0.95, 1000, false},
		{"compress", 0.8, 2000, false},
		{"hash", 0, 0, true},
		{"parse", 0.13, 1000, false},
		{0},
	};
	struct world w = {.facts = busy(0.99), .chains = hot_chains, .functions = functions};
	struct search s;

	(void)state;
	search(&s, &w);
	assert_string_equal(s.findings[0].function, "hash");
	assert_non_null(strstr(s.notes[0], "refused: no reason"));
	search_release(&s);
}

/* Where the time splits into many small parts, the last function that has them all is named. */
static void test_split(void **state)
{
	static const struct made_chain chains[] = {
		{CHAIN_RUNS, 3, {"main", "loop", "call", "a"}},
		{CHAIN_RUNS, 3, {"main", "loop", "call", "b"}},
		{CHAIN_RUNS, 3, {"main", "loop", "call", "c"}},
		{CHAIN_RUNS, 3, {"main", "loop", "call", "d"}},
		{CHAIN_RUNS, 3, {"main", "loop", "call", "e"}},
		{CHAIN_RUNS, 3, {"main", "loop", "call", "f"}},
		{0},
	};
	static const struct made_function functions[] = {
		{"main", 0.99, 0, false},  {"loop", 0.98, 0, false},
		{"call", 0.9, 1e4, false}, {"a", 0.15, 1e4, false},
		{"b", 0.15, 1e4, false},   {"c", 0.15, 1e4, false},
		{"d", 0.15, 1e4, false},   {"e", 0.15, 1e4, false},
		{"f", 0.15, 1e4, false},   {0},
	};
	struct world w = {.facts = busy(0.99), .chains = chains, .functions = functions};
	struct search s;

	(void)state;
	search(&s, &w);
	assert_int_equal(s.finding_count, 1);
	assert_string_equal(s.findings[0].function, "call");
	assert_non_null(strstr(s.findings[0].text, "call() and what it calls"));
	search_release(&s);
}

static void test_lock(void **state)
{
	struct world w = {
		.facts = busy(0.05), .locks = 2.5, .holder = "update", .waiter = "read_totals"};
	struct search s;

	(void)state;
	search(&s, &w);
	assert_int_equal(s.finding_count, 1);
	assert_string_equal(s.findings[0].function, "update");
	assert_non_null(strstr(s.findings[0].text, "250 % of a thread's time in read_totals()"));
	search_release(&s);

	/* Nobody has it for long: who waits is named. */
	w = (struct world){.facts = busy(0.05), .locks = 2.5, .waiter = "read_totals"};
	search(&s, &w);
	assert_string_equal(s.findings[0].function, "read_totals");
	assert_non_null(strstr(s.findings[0].text, "it is taken too often"));
	search_release(&s);
}

static void test_io(void **state)
{
	static const struct made_chain chains[] = {
		{CHAIN_WRITES, 10, {"main", "store", "flush", "lib:write"}},
		{CHAIN_READS, 20, {"main", "commands", "lib:read"}},
		{0},
	};
	static const struct made_function functions[] = {
		{"main", 0.9, 1, false}, {"store", 0.9, 1, false}, {"flush", 0.9, 1, false}, {0}};
	struct world w = {.facts = busy(0.05),
			  .chains = chains,
			  .functions = functions,
			  .writes = 0.9,
			  .path = "pipe:[1]"};
	struct search s;

	(void)state;
	search(&s, &w);
	assert_int_equal(s.finding_count, 1);
	assert_string_equal(s.findings[0].function, "flush");
	assert_non_null(strstr(s.findings[0].text, "pipe:[1]"));
	search_release(&s);

	/* To wait for input is no fault; to wait for a file is. */
	w = (struct world){.facts = busy(0.05), .chains = chains, .reads = 1, .path = "socket:[1]"};
	search(&s, &w);
	assert_int_equal(s.finding_count, 0);
	search_release(&s);
	w = (struct world){
		.facts = busy(0.05), .chains = chains, .reads = 1, .path = "/a/b", .is_file = true};
	search(&s, &w);
	assert_int_equal(s.finding_count, 1);
	assert_non_null(strstr(s.findings[0].text, "waiting in reads of /a/b"));
	search_release(&s);
}

static void test_leak(void **state)
{
	struct world w = {.facts = busy(0.05), .maker = "keep_session"};
	struct search s;

	(void)state;
	w.facts.growth = 2e6;
	w.facts.steps = 10;
	w.facts.rises = 9;
	search(&s, &w);
	assert_int_equal(s.finding_count, 1);
	assert_string_equal(s.findings[0].function, "keep_session");
	search_release(&s);

	/* Nobody allocates it. */
	w.maker = NULL;
	w.rounds = 0;
	search(&s, &w);
	assert_int_equal(s.finding_count, 1);
	assert_string_equal(s.findings[0].function, "");
	search_release(&s);
}

/* A question that ends early leaves what was not tested untested, and says so. */
static void test_over(void **state)
{
	static const struct made_function functions[] = {{"main", 0.99, 0, false}, {0}};
	struct world w = {
		.facts = busy(0.99), .chains = hot_chains, .functions = functions, .over_after = 1};
	struct search s;

	(void)state;
	search(&s, &w);
	assert_true(s.is_over);
	assert_int_equal(s.finding_count, 0);
	search_release(&s);
}

static void test_kinds(void **state)
{
	static const struct chain_frame lock[] = {
		{"libc.so.6", "__lll_lock_wait", "__lll_lock_wait"},
		{"libc.so.6", "pthread_mutex_lock", "pthread_mutex_lock"},
		{"server", "write", "write"}};
	static const struct chain_frame cond[] = {
		{"libc.so.6", "__futex_abstimed_wait_common", "__futex_abstimed_wait_common"},
		{"libc.so.6", "pthread_cond_wait", "pthread_cond_wait"}};
	static const struct chain_frame own[] = {{"server", "write", "write"}};

	(void)state;
	assert_int_equal(chain_kind_of('S', lock, 3), CHAIN_LOCKS);
	assert_int_equal(chain_kind_of('R', lock, 3), CHAIN_RUNS);
	assert_int_equal(chain_kind_of('S', cond, 2), CHAIN_IDLE);
	assert_int_equal(chain_kind_of('S', own, 1), CHAIN_IDLE);
	assert_int_equal(chain_kind_of('D', own, 1), CHAIN_READS);
	assert_int_equal(chain_kind_of('?', NULL, 0), CHAIN_IDLE);
}

/* Recursion counts once; many functions do not overflow what is asked for. */
static void test_chains(void **state)
{
	struct chains c = {0};
	struct chain_frame frames[CHAIN_FRAMES_MAX + 10];
	char names[CHAIN_FRAMES_MAX + 10][16];
	uint32_t list[4];

	(void)state;
	for (unsigned i = 0; i < CHAIN_FRAMES_MAX + 10; i++) {
		snprintf(names[i], sizeof(names[i]), "f%u", i % 3 ? i : 0);
		frames[i] = (struct chain_frame){"server", names[i], NULL};
	}
	assert_true(chains_add(&c, CHAIN_RUNS, frames, CHAIN_FRAMES_MAX + 10));
	assert_true(chains_add(&c, CHAIN_RUNS, frames, 1));
	assert_true(chains_add(&c, CHAIN_RUNS, NULL, 0));
	assert_int_equal(c.looks[CHAIN_RUNS], 3);
	assert_int_equal(chains_candidates(&c, 1u << CHAIN_RUNS, 0.1, true, list, 4), 4);
	assert_string_equal(c.functions[list[0]].function, "f0");
	assert_true(chains_share(&c, 1u << CHAIN_RUNS, list[0]) < 0.7);
	assert_int_equal(chains_candidates(&c, 1u << CHAIN_LOCKS, 0.1, true, list, 4), 0);
	assert_int_equal(chains_candidates(&c, 1u << CHAIN_RUNS, 0.5, true, list, 4), 1);
	chains_release(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hot),	   cmocka_unit_test(test_limit),
		cmocka_unit_test(test_long_names), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_split),	   cmocka_unit_test(test_lock),
		cmocka_unit_test(test_io),	   cmocka_unit_test(test_leak),
		cmocka_unit_test(test_over),	   cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_chains),	   cmocka_unit_test(test_all_too_often),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
