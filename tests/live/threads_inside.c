/* SPDX-License-Identifier: MIT */
/*
 * threads_inside.c - per-thread state of threads that are inside of functions:
 * when a request comes, when it goes, when they jump out, fork, or end.
 */
#include "tests/live/harness_session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mutator/threads.h"
#include "mutator/variable.h"

static const char text[] =
	"list leaf_only is procedure { items { \"leaf\" }; }\n"
	"constraint inside /Code/*/* is counter {\n"
	"	append preInsn $constraint[0].entry (* inside++; *)\n"
	"	prepend preInsn $constraint[0].return (* inside--; *)\n"
	"}\n"
	"metric now { name \"now\"; units calls; unitsType sampled; aggregateOperator sum;\n"
	"	style SampledFunction;\n"
	"	constraint ofFunction /Code/*/* is replace counter {\n"
	"		append preInsn $constraint[0].entry (* now++; *)\n"
	"		prepend preInsn $constraint[0].return (* now--; *) }\n"
	"	base is counter { foreach f in leaf_only {\n"
	"		append preInsn f.entry (* now++; *)\n"
	"		prepend preInsn f.return (* now--; *) } } }\n"
	"metric leaves { name \"leaves\"; units calls; aggregateOperator sum;\n"
	"	style EventCounter; constraint inside;\n"
	"	base is counter { foreach f in leaf_only append preInsn f.entry constrained\n"
	"		(* leaves++; *) } }\n"
	"metric spent { name \"spent\"; units ns; aggregateOperator sum; style EventCounter;\n"
	"	constraint ofFunction inclusive /Code/*/* is replace wallTimer {\n"
	"		append preInsn $constraint[0].entry (* startWallTimer(spent); *)\n"
	"		prepend preInsn $constraint[0].return (* stopWallTimer(spent); *) }\n"
	"	base is wallTimer { foreach f in leaf_only {\n"
	"		append preInsn f.entry (* startWallTimer(spent); *)\n"
	"		prepend preInsn f.return (* stopWallTimer(spent); *) } } }\n"
	"list held_only is procedure { items { \"held\" }; }\n"
	"metric waited { name \"waited\"; units ns; aggregateOperator sum; style EventCounter;\n"
	"	constraint inside;\n"
	"	base is wallTimer { foreach f in held_only {\n"
	"		append preInsn f.entry constrained (* startWallTimer(waited); *)\n"
	"		prepend preInsn f.return constrained (* stopWallTimer(waited); *) } } }\n";

static struct session *begin(struct harness *h)
{
	struct dinst_error e = {0};
	struct session *s;

	harness_start(h, "threads_inside", NULL);
	s = session_begin(h);
	if (session_load_mdl(s, "test.mdl", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

/* Threads leave stacks of theirs behind: then the target is not as it was before. */
static void end(struct harness *h, struct session *s, bool had_threads)
{
	session_end(s);
	if (!had_threads)
		harness_verify(h);
	harness_end(h, 0);
}

static void expect(struct harness *h, const char *command, const char *answer)
{
	char line[100];

	snprintf(line, sizeof(line), "%s\n", command);
	harness_send(h, line);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

static struct instance *insert(struct session *s, const char *metric, const char *function,
			       uint64_t *stop_ns)
{
	struct insert_result result = {0};
	struct dinst_error e = {0};
	struct instance *i;
	char focus[100];
	const char *words = focus;
	int status = DINST_BUSY;

	snprintf(focus, sizeof(focus), "/Code/threads_inside/%s", function);
	for (unsigned tries = 0; tries < 100 && status == DINST_BUSY; tries++) {
		dinst_error_clear(&e);
		status = request_insert(s, metric, &words, 1, NULL, &result, &e);
		if (status == DINST_BUSY)
			usleep(10000);
	}
	if (status < 0)
		fail_msg("%s %s: %s", metric, focus, e.text);
	assert_int_equal(result.count, 1);
	i = result.instances[0];
	if (stop_ns)
		*stop_ns = result.stop_ns;
	free(result.instances);
	return i;
}

static int64_t value(const struct instance *i)
{
	struct variable_value v = {0};
	struct dinst_error e = {0};
	int64_t number;

	if (instance_read(i, 0, &v, &e) < 0)
		fail_msg("%s", e.text);
	number = v.value;
	variable_value_release(&v);
	return number;
}

static void removed(struct session *s, struct instance *i)
{
	struct flush_result flush;
	struct dinst_error e = {0};

	if (removal_remove(s, i, &flush, &e) < 0)
		fail_msg("%s", e.text);
}

/* Every thread's stack, however deep, tells how often it is in a function. */
static void test_held(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *nest, *held, *again;

	expect(h, "hold 12 7", "held");
	held = insert(s, "now", "held", NULL);
	nest = insert(s, "now", "nest", NULL);
	assert_int_equal(held->unwalked + nest->unwalked, 0);
	assert_int_equal(value(held), 12);
	assert_int_equal(value(nest), 12 * 7);
	/* Paired already: the same is true for another request. */
	removed(s, nest);
	again = insert(s, "now", "nest", NULL);
	assert_int_equal(value(again), 12 * 7);
	expect(h, "free", "done");
	assert_int_equal(value(held), 0);
	assert_int_equal(value(again), 0);
	expect(h, "hold 3 100", "held");
	assert_int_equal(value(held), 3);
	assert_int_equal(value(again), 300);
	expect(h, "free", "done");
	assert_int_equal(value(again), 0);
	end(h, s, true);
}

/*
 * fear H5: a function that runs on a signal's stack is inside of those that were interrupted, also where
 * that stack lies above the thread's own
 */
static void test_stack_above(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *waited;
	int64_t before;

	expect(h, "above 3", "held");
	waited = insert(s, "waited", "nest", NULL);
	assert_int_equal(waited->unwalked, 0);
	usleep(20000);
	before = value(waited);
	assert_true(before >= 20000000);
	expect(h, "free", "done");
	before = value(waited);
	usleep(20000);
	assert_int_equal(value(waited), before);
	end(h, s, true);
}

/* fear D7, J7: what a removed request had is another's later, and begins at 0 wherever threads are */
static void test_words_are_clean(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);

	expect(h, "hold 5 3", "held");
	for (unsigned turn = 0; turn < 20; turn++) {
		struct instance *nest = insert(s, "now", "nest", NULL);
		struct instance *leaves = insert(s, "leaves", "held", NULL);

		assert_int_equal(value(nest), 15);
		assert_int_equal(value(leaves), 0);
		removed(s, leaves);
		removed(s, nest);
		session_flush_all(s);
	}
	expect(h, "free", "done");
	end(h, s, true);
}

/* Threads that run our code all the time are caught up with, too. */
static void test_spinning(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *leaf, *outer, *guarded;
	int64_t before;

	expect(h, "spin 4", "held");
	leaf = insert(s, "now", "leaf", NULL);
	outer = insert(s, "now", "outer", NULL);
	guarded = insert(s, "leaves", "outer", NULL);
	assert_int_equal(outer->unwalked + guarded->unwalked, 0);
	for (unsigned turn = 0; turn < 20; turn++) {
		assert_int_equal(value(outer), 4);
		assert_in_range(value(leaf), 0, 4);
		usleep(1000);
	}
	before = value(guarded);
	harness_until(value(guarded) > before);
	for (unsigned turn = 0; turn < 15; turn++) {
		removed(s, outer);
		outer = insert(s, "now", "outer", NULL);
		assert_int_equal(outer->unwalked, 0);
		assert_int_equal(value(outer), 4);
	}
	harness_send(h, "stop\n");
	assert_non_null(harness_line(h, HARNESS_ANSWER_MS));
	assert_int_equal(value(outer), 0);
	assert_int_equal(value(leaf), 0);
	end(h, s, true);
}

/*
 * fear E3: a handler of a signal that has come in the middle of what was inserted is running when the next request
 * for the same function comes: it goes back to code as it was, and where that is the way out the function does
 * not count as one that is active
 */
static void test_caught(void **state)
{
	enum { TURNS = 40 };

	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned known = 0;

	insert(s, "spent", "leaf", NULL);
	for (unsigned turn = 0; turn < TURNS; turn++) {
		struct instance *leaf;
		size_t unknown;

		expect(h, "alone", "held");
		expect(h, "catch", "caught");
		leaf = insert(s, "now", "leaf", NULL);
		unknown = leaf->unwalked;
		assert_in_range(value(leaf), 0, 1);
		harness_send(h, "stop\n");
		assert_non_null(harness_line(h, HARNESS_ANSWER_MS));
		/* In a routine that many functions share nobody knows by which of them. */
		if (!unknown)
			assert_int_equal(value(leaf), 0);
		known += !unknown;
		removed(s, leaf);
	}
	print_message("a handler was above our code %u times, known where in %u\n", TURNS, known);
	assert_true(known > 0);
	end(h, s, true);
}

/*
 * fear E3: a function in whose callee a thread runs our code when the request comes is left by a jump: it
 * is not active any more, as any other
 */
static void test_leaps(void **state)
{
	enum { TURNS = 3, TURNS_MOST = 60 };

	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned strays = 0;

	/* With threads, so that it is known where their stacks are. */
	expect(h, "hold 2 1", "held");
	insert(s, "now", "nest", NULL);
	insert(s, "now", "leaf", NULL);
	expect(h, "free", "done");
	/* Until somebody was caught in our code, and has to be brought home. */
	for (unsigned turn = 0; turn < TURNS || (!strays && turn < TURNS_MOST); turn++) {
		struct instance *leaper;

		expect(h, "leap 4", "held");
		leaper = insert(s, "now", "leaper", NULL);
		if (!leaper->unwalked)
			assert_int_equal(value(leaper), 4);
		strays += threads_have_strayed(s);
		/* They are in our code most of the time, and run when there is a processor for them. */
		for (unsigned tries = 0; tries < 2000 && threads_have_strayed(s); tries++) {
			usleep(5000);
			threads_bring_home(s);
		}
		assert_false(threads_have_strayed(s));
		expect(h, "land", "done");
		assert_int_equal(value(leaper), 0);
		removed(s, leaper);
	}
	assert_true(strays > 0);
	end(h, s, true);
}

/*
 * fear E3: functions are left 10,000 times by a jump: the number of active ones is at most that of
 * the last jump, and 0 after the thread's next call; no more time than passed, and no record overflows
 */
static void test_jumps(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *nest = insert(s, "now", "nest", NULL);
	struct instance *spent = insert(s, "spent", "nest", NULL);
	struct threads_statistics statistics;
	const int64_t begun = (int64_t)clock_ns();

	for (unsigned turn = 0; turn < 5; turn++) {
		expect(h, "jump 2000", "done");
		/* All but those of the last jump, which nothing has come after in that thread. */
		assert_in_range(value(nest), 0, 5);
		expect(h, "nest", "done");
		assert_int_equal(value(nest), 0);
		expect(h, "churn 1", "done");
		assert_int_equal(value(nest), 0);
	}
	threads_statistics(s, &statistics);
	assert_int_equal(statistics.overflow, 0);
	/* Two threads, one after the other. */
	assert_true(value(spent) > 0 && value(spent) <= (int64_t)clock_ns() - begun);
	end(h, s, true);
}

/* fear E3, H5: coroutines' activations are elsewhere, found all the same, and none is left over */
static void test_fibers(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *work = insert(s, "now", "fiber_work", NULL);
	struct instance *leaves = insert(s, "leaves", "fiber_work", NULL);

	for (unsigned turn = 1; turn <= 20; turn++) {
		expect(h, "fibers 100", "done");
		assert_int_equal(value(work), 0);
		assert_int_equal(value(leaves), 200 * turn);
	}
	end(h, s, false);
}

/*
 * fear E3, H5: a coroutine's stack begins with nobody who has called: what its thread's own stack has is active all
 * the same when a request comes, and that not all can be known is told
 */
static void test_away(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *both;

	insert(s, "spent", "away", NULL);
	expect(h, "away", "held");
	both = insert(s, "now", "*away", NULL);
	assert_int_equal(both->unwalked, 1);
	assert_int_equal(value(both), 2);
	expect(h, "free", "done");
	assert_int_equal(value(both), 0);
	end(h, s, true);
}

/* Words of a counter: what threads have added that had a number of their CPU, and what the others have. */
static void words_of(const struct instance *i, uint64_t *of_cpus, uint64_t *locked)
{
	const struct place *p = i->links->site->place;
	const struct arena *a = p->arena;
	const taddr_t counter = i->links->snippet.counter
					? i->links->snippet.counter
					: i->links->snippet.code->program.ops[0].number;

	*of_cpus = 0;
	for (unsigned cpu = 0; cpu <= a->cpus; cpu++) {
		const taddr_t word = counter + ((taddr_t)cpu << a->cpu_shift);

		*locked = *(const uint64_t *)heap_map(p->heap, word, sizeof(*locked));
		*of_cpus += cpu < a->cpus ? *locked : 0;
	}
}

/*
 * fear D7: what the C library calls of a new thread before it has registered its restartable sequences,
 * while the number of a CPU in its memory is 0, or that of the thread that had it before, is counted exactly
 */
static void test_before_rseq(void **state)
{
	static const char *const functions[] = {"/Code/libc.so.6/__ctype_init",
						"/Code/libc.so.6/start_thread"};
	struct harness *h = *state;
	struct session *s = begin(h);

	for (size_t n = 0; n < sizeof(functions) / sizeof(functions[0]); n++) {
		struct insert_result result = {0};
		struct dinst_error e = {0};
		uint64_t of_cpus, locked;

		if (request_insert(s, "calls", &functions[n], 1, NULL, &result, &e) < 0) {
			/* Its name is in debug information only. */
			print_message("%s\n", e.text);
			assert_true(n);
			dinst_error_clear(&e);
			continue;
		}
		assert_int_equal(result.count, 1);
		expect(h, "churn 200", "done");
		assert_int_equal(value(result.instances[0]), 200);
		words_of(result.instances[0], &of_cpus, &locked);
		assert_int_equal(of_cpus, 0);
		assert_int_equal(locked, 200);
		free(result.instances);
	}
	end(h, s, true);
}

/* fear D7: two thousand threads in the memory of old ones begin with nothing; no record is lost */
static void test_churn(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *nest = insert(s, "now", "nest", NULL);
	struct instance *spent = insert(s, "spent", "nest", NULL);
	struct threads_statistics statistics;

	for (unsigned turn = 0; turn < 10; turn++) {
		expect(h, "churn 200", "done");
		assert_int_equal(value(nest), 0);
	}
	threads_statistics(s, &statistics);
	assert_int_equal(statistics.lost, 0);
	assert_true(value(spent) > 0);
	end(h, s, true);
}

/* A child has its parent's frames: it leaves them, and what it measures is its own. */
static void test_child(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct instance *nest = insert(s, "now", "nest", NULL);
	struct instance *spent = insert(s, "spent", "nest", NULL);

	for (unsigned turn = 0; turn < 10; turn++) {
		expect(h, "child", "done 7");
		assert_int_equal(value(nest), 0);
	}
	assert_true(value(spent) > 0);
	end(h, s, false);
}

/* fear D7, G1: what a child has inherited is active once, in its parent, also if the request comes afterwards */
static void test_inherited_before(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);

	insert(s, "spent", "nest", NULL);
	for (unsigned turn = 0; turn < 3; turn++) {
		struct instance *nest;

		expect(h, "family", "forked");
		nest = insert(s, "now", "nest", NULL);
		assert_int_equal(nest->unwalked, 0);
		assert_int_equal(value(nest), 2);
		expect(h, "go on", "done 7");
		assert_int_equal(value(nest), 0);
		removed(s, nest);
	}
	end(h, s, false);
}

/* Five hundred threads: what they are kept waiting for is bounded. */
/* fear G9, K2: 500 threads ten frames deep are caught up with; the stop is bounded, and told */
static void test_many_threads(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	uint64_t first = 0, second = 0;
	struct instance *nest, *held;

	expect(h, "hold 500 10", "held");
	nest = insert(s, "now", "nest", &first);
	held = insert(s, "spent", "held", &second);
	assert_int_equal(nest->unwalked + held->unwalked, 0);
	assert_int_equal(value(nest), 5000);
	assert_true(value(held) > 0);
	print_message("caught up with 500 threads, 10 frames each: stopped for %.1f ms, then for "
		      "%.1f ms\n",
		      (double)first / 1e6, (double)second / 1e6);
	expect(h, "free", "done");
	assert_int_equal(value(nest), 0);
	/* On an idle machine it is some 30 ms. */
	assert_true(first < 2000000000 && second < 2000000000);
	end(h, s, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_held, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_stack_above, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_words_are_clean, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_spinning, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_caught, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_leaps, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_jumps, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_fibers, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_away, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_before_rseq, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_churn, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_child, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_inherited_before, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_many_threads, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
