/* SPDX-License-Identifier: MIT */
/*
 * every_step_sweep.c - a metric with state of threads comes to a function that another one measures
 * already, while a thread stands before one instruction after the other of what that one has at the
 * function's entry and exits: whichever code the thread goes on in, what was switched on is off when it has
 * left, and the other way round. The same with a timer that leaves out what the function calls, and where a
 * handler jumps out of all that. Environment:
 * SWEEP_STEP, instructions between two tries.
 */
#include <time.h>

#include "mutator/threads_private.h"
#include "tests/live/every_step_log.h"
#include "tests/live/every_step_workers.h"

enum { WORK_MOST = 4000 };

static struct scene playing; /* where teardown() finds it */

static int insert(struct scene *c, const char *metric, const char *function, unsigned *id)
{
	const struct insert_options options = {0};
	struct insert_result result = {0};
	struct dinst_error e = {0};
	char focus[64];
	const char *const words[] = {focus};
	int status;

	snprintf(focus, sizeof(focus), "/Code/step-state/%s", function);
	status = request_insert(c->s, metric, words, 1, &options, &result, &e);
	if (status < 0 && status != DINST_BUSY)
		fail_msg("%s of %s: %s", metric, function, e.text);
	if (status >= 0)
		*id = result.instances[0]->id;
	free(result.instances);
	return status;
}

static void begin(struct scene *c, struct harness *h)
{
	pid_t tids[WORKERS];

	*c = (struct scene){.h = h};
	harness_start(h, "step-state", NULL);
	assert_int_equal(harness_numbers(say(c, "where"), tids, WORKERS), WORKERS);
	for (unsigned i = 0; i < WORKERS; i++)
		c->p[i] = (struct stepper){.pid = h->pid, .tid = tids[i]};
	c->s = session_begin(h);
}

/* True if it has got there in its round: before the nth instruction of ours. */
static bool stand(struct scene *c, unsigned n)
{
	struct stepper *p = &c->p[0];

	for (unsigned i = 0; i < WORK_MOST; i++) {
		step_checked(c, p);
		if (is_ours(c, p->regs.rip) && !n--)
			return true;
	}
	return false;
}

/* What is on in some thread's record although it is in nothing. */
static void check_off(struct scene *c, const char *what, unsigned n)
{
	const struct threads *t = c->s->threads;
	struct tables tables;

	assert_true(threads_tables_read(&tables, t, c->s->target));
	for (size_t i = 0; i < (size_t)1 << t->shift; i++) {
		if (!tables.keys[i] || !threads_record_read(&tables, i))
			continue;
		for (size_t k = 0; k < PAIR_CHUNKS * PAIR_CHUNK; k++)
			if (t->words[k] == WORD_TAKEN && !(t->chunks[k / PAIR_CHUNK] && k % 2) &&
			    (uint32_t)tables.record->words[k])
				fail_msg("%s: a timer goes on, at instruction %u", what, n);
	}
	threads_tables_release(&tables);
}

/* One try; false: there are no more instructions. *tried counts those at which the request came. */
static bool try_at(struct scene *c, const char *function, unsigned n, unsigned *tried)
{
	unsigned active = 0, wall = 0;
	int64_t value;
	bool stands, has_active, has_wall = false;

	hold_all(c);
	say(c, "start 0 1");
	stands = stand(c, n);
	freeze_all(c);
	has_active = stands && insert(c, "active", function, &active) >= 0;
	if (has_active)
		has_wall = insert(c, "wall_inclusive", function, &wall) >= 0;
	release_all(c);
	assert_string_equal(say(c, "wait"), "done");
	assert_string_equal(say(c, "plain 0 1"), "started");
	assert_string_equal(say(c, "wait"), "done");
	value = has_active ? (int64_t)session_value(c->s, active) : 0;
	if (value)
		fail_msg("%s: active is %lld, at instruction %u (pc %llx)", function,
			 (long long)value, n, c->p[0].regs.rip);
	if (has_wall)
		check_off(c, function, n);
	if (has_active)
		session_remove(c->s, active);
	if (has_wall)
		session_remove(c->s, wall);
	session_flush_all(c->s);
	*tried += has_active;
	return stands;
}

static void sweep(struct harness *h, const char *function, unsigned first, unsigned most)
{
	const unsigned by = (unsigned)harness_setting("SWEEP_STEP", getenv("DINST_SHORT") ? 7 : 3);
	struct scene *c = &playing;
	unsigned id, tried = 0, n = first;

	begin(c, h);
	assert_true(insert(c, "latency", function, &id) >= 0);
	note_places(c);
	for (; n < most && try_at(c, function, n, &tried); n += by)
		;
	print_message("%s: %u instructions, came at %u\n", function, n, tried);
	assert_in_range(tried, (most - first) / by / 4, most);
	session_end(c->s);
	c->s = NULL;
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear D7, E4: a timer and a level come to a function while a thread is in the middle of what notes its
 * entry, or its exit: they are off when it has left
 */
static void test_leaf(void **state)
{
	sweep(*state, "st_leaf", 0, 120);
}

/* fear D7, E4: the same where a landing pad stands before what is inserted */
static void test_landing(void **state)
{
	sweep(*state, "own_landing", 0, 120);
}

/* fear D7, E4: the same where it calls itself */
static void test_recursion(void **state)
{
	sweep(*state, "st_recurse", 0, 900);
}

/* fear D7, E3: the same where what longjmp() has left is just dropped */
static void test_after_jumps(void **state)
{
	sweep(*state, "st_lander", 0, 90);
}

/* ---------------------------------------------------------------- jumping out */

/* In st_middle: a level, timers of all kinds, and calls that a flag is looked at for. */
static const char leaps_mdl[] =
	"list w_leaf is procedure { items { \"st_leaf\" }; }\n"
	"metric w_leafs { name \"w_leafs\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint procedure;\n"
	"	base is counter { foreach f in w_leaf append preInsn f.entry (* w_leafs++; *) } }\n";

static const char *const leapt[] = {"active", "w_leafs", "wall", "wall_inclusive", "cpu_inclusive"};

enum { LEAPT = sizeof(leapt) / sizeof(leapt[0]), LEAPS = 700 };

static int64_t value_now(const struct scene *c, unsigned id)
{
	return (int64_t)session_value(c->s, id);
}

static void plain_round(struct scene *c)
{
	assert_string_equal(say(c, "plain 0 1"), "started");
	assert_string_equal(say(c, "wait"), "done");
}

/* False: there are no more instructions. The level is one lower than it was at most. */
static bool leap_at(struct scene *c, const unsigned *ids, unsigned n, int64_t leafs, unsigned *low)
{
	int64_t before[LEAPT];
	bool stands;

	for (unsigned i = 0; i < LEAPT; i++)
		before[i] = value_now(c, ids[i]);
	hold_all(c);
	say(c, "start 0 1");
	stands = stand(c, n);
	if (stands)
		assert_string_equal(say(c, "signal 0 1"), "sent");
	release_all(c);
	assert_string_equal(say(c, "wait"), "done");
	/* What it has left is noticed in the next round. */
	plain_round(c);
	check_off(c, "st_middle, left by a jump", n);
	assert_in_range(before[0] - value_now(c, ids[0]), 0, 1);
	*low += before[0] != value_now(c, ids[0]);
	before[1] = value_now(c, ids[1]);
	plain_round(c);
	assert_int_equal(value_now(c, ids[1]) - before[1], leafs);
	for (unsigned i = 2; i < LEAPT; i++) {
		before[i] = value_now(c, ids[i]);
		usleep(100);
		if (value_now(c, ids[i]) != before[i])
			fail_msg("%s goes on, at instruction %u (pc %llx)", leapt[i], n,
				 c->p[0].regs.rip);
	}
	return stands;
}

/*
 * fear E1, E4: a handler jumps out of what runs at a function's entry and exit, before any instruction of it: no
 * timer goes on, no flag stays on, and the level is not too high
 */
static void test_leaps(void **state)
{
	const unsigned by = (unsigned)harness_setting("SWEEP_STEP", getenv("DINST_SHORT") ? 7 : 2);
	struct scene *c = &playing;
	struct dinst_error e = {0};
	unsigned ids[LEAPT], low = 0, n = 0;
	int64_t leafs;

	begin(c, *state);
	if (session_load_mdl(c->s, "leaps.mdl", leaps_mdl, strlen(leaps_mdl), &e) < 0)
		fail_msg("%s", e.text);
	for (unsigned i = 0; i < LEAPT; i++)
		assert_true(insert(c, leapt[i], "st_middle", &ids[i]) >= 0);
	note_places(c);
	plain_round(c);
	leafs = value_now(c, ids[1]);
	plain_round(c);
	leafs = value_now(c, ids[1]) - leafs;
	assert_true(leafs > 0);
	/* There are two calls of some 500 instructions at least in a round. */
	for (; n < LEAPS; n += by)
		assert_true(leap_at(c, ids, n, leafs, &low));
	print_message("%u instructions, at %u jumps the level is one too low\n", n, low);
	session_end(c->s);
	c->s = NULL;
	harness_verify(c->h);
	harness_end(c->h, 0);
}

/* ------------------------------------------------------- without what is called */

/* Nothing, something that is not paired, or something that is, is there before. */
static const char *const before[] = {NULL, "calls", "latency"};

enum { WITHIN_MOST = 3000 };

/* True if it has got there before it was back: the nth instruction of all from the function's first one on. */
static bool stand_within(struct scene *c, taddr_t start, unsigned n)
{
	struct stepper *p = &c->p[0];
	uint64_t back;

	step_watch(p, start);
	step_go(p, PTRACE_CONT);
	step_watch(p, 0);
	assert_true(p->regs.rip == start);
	step_read(p, p->regs.rsp, &back, sizeof(back));
	while (n-- && p->regs.rip != back)
		step_checked(c, p);
	return p->regs.rip != back;
}

static taddr_t entry_of(const struct instance *i)
{
	for (const struct link *l = i->links; l; l = l->next_instance)
		if (l->kind == POINT_ENTRY)
			return l->site->key.start;
	fail_msg("nothing is at the function's entry");
	return 0;
}

/* Where the thread is to stand and what is there before, NULL: nothing; each how many instructions. */
struct within {
	const char *function, *first;
	unsigned by;
};

static bool try_within(struct scene *c, const struct within *w, taddr_t start, unsigned n,
		       unsigned *tried)
{
	unsigned id = 0;
	bool stands, has;

	hold_all(c);
	say(c, "start 0 1");
	stands = stand_within(c, start, n);
	freeze_all(c);
	has = stands && insert(c, "wall", w->function, &id) >= 0;
	release_all(c);
	assert_string_equal(say(c, "wait"), "done");
	assert_string_equal(say(c, "plain 0 1"), "started");
	assert_string_equal(say(c, "wait"), "done");
	if (has && !session_instance(c->s, id)->unwalked)
		check_off(c, w->function, n);
	if (has)
		session_remove(c->s, id);
	session_flush_all(c->s);
	*tried += has;
	return stands;
}

static void sweep_within(struct harness *h, const struct within *w)
{
	const unsigned by = (unsigned)harness_setting("SWEEP_STEP", w->by);
	struct scene *c = &playing;
	unsigned id, tried = 0, n = 0;
	taddr_t start;

	begin(c, h);
	/* A request finds out where things are. */
	assert_true(insert(c, w->first ? w->first : "calls", w->function, &id) >= 0);
	note_places(c);
	start = entry_of(session_instance(c->s, id));
	if (!w->first)
		session_remove(c->s, id);
	session_flush_all(c->s);
	for (; n < WITHIN_MOST && try_within(c, w, start, n, &tried); n += by)
		;
	print_message("%s, %s before: %u instructions, came at %u\n", w->function,
		      w->first ? w->first : "nothing", n, tried);
	assert_in_range(n, 1, WITHIN_MOST - 1);
	assert_in_range(tried, n / by / 4, n);
	session_end(c->s);
	c->s = NULL;
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear D7, E4: a timer that leaves out what is called comes while a thread is before any instruction of the
 * function or of what it calls, in new code, in old code, on its way to a call or just back from one, or behind
 * the landing pad at its beginning: it is off when the thread has left
 */
static void test_exclusive(void **state)
{
	static const char *const functions[] = {"st_middle",	"st_outer",   "st_recurse",
						"own_caller",	"own_ladder", "own_recursing",
						"own_restored", "own_landing"};
	/* What is paired has many instructions. */
	const unsigned many = getenv("DINST_SHORT") ? 7 : 3;

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		for (size_t k = 0; k < sizeof(before) / sizeof(before[0]); k++) {
			const struct within w = {.function = functions[i],
						 .first = before[k],
						 .by = k == 2 ? many : 1};

			sweep_within(*state, &w);
		}
}

static int teardown(void **state)
{
	return teardown_workers(&playing, state);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, step_setup, teardown)

/* An argument names the tests to run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(test_leaf),	CASE(test_landing), CASE(test_recursion),
		CASE(test_after_jumps), CASE(test_leaps),   CASE(test_exclusive),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/every_step_sweep", tests, NULL, NULL);
}
