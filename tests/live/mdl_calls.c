/* SPDX-License-Identifier: MIT */
/*
 * mdl_calls.c - calls, active, exceptions, syscall_wrappers against counts that
 * the programs keep themselves; threads and their flags, exact.
 */
#include "tests/live/harness_thread.h"
#include "tests/live/mdl_help.h"

enum { THREADS = 10 };

/* Guarded by flags where `calls` has a way of its own. */
static const char leaves[] =
	"list leaf_func is procedure { items { \"leaf\" }; }\n"
	"metric leaves {\n"
	"	constraint procedure; constraint thread;\n"
	"	base is counter { foreach f in leaf_func append preInsn f.entry (* leaves++; *) }\n"
	"}\n";

static const char *function(int i)
{
	static char names[4][64];
	static unsigned next;
	char *name = names[next++ % 4];

	snprintf(name, sizeof(names[0]), "/Code/mdl_threads/work_%d", i);
	return name;
}

static void test_calls(void **state)
{
	struct harness *h = *state;
	unsigned fib, mutual, each;
	int64_t calls;

	harness_start(h, "mdl_time", NULL);
	mdl_attach(h, NULL);
	fib = mdl_insert(h, "calls", "/Code/mdl_time/fib");
	mutual = mdl_insert(h, "calls", "/Code/mdl_time/even");
	each = mdl_insert(h, "call_rate", "/Code/mdl_time/fib");
	calls = mdl_number(mdl_ask(h, "fib 7 18"), "calls");
	assert_int_equal(mdl_value(h, fib), calls);
	mdl_value(h, each);
	mdl_ask(h, "mutual 10 101");
	assert_int_equal(mdl_value(h, mutual), 10 * 51);
	assert_int_equal(mdl_value(h, fib), calls);
	mdl_end(h);
}

/* One request a thread: no thread's flag is another's. */
static void test_threads(void **state)
{
	struct harness *h = *state;
	unsigned ids[THREADS], shared[2];

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, leaves);
	for (int i = 0; i < THREADS; i++)
		ids[i] = mdl_insert(h, "leaves", function(i));
	shared[0] = mdl_insert(h, "leaves");
	/* the same again is the same instrumentation */
	shared[1] = mdl_insert(h, "leaves", function(3));
	mdl_ask(h, "go 20000");
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(mdl_value(h, ids[i]), 20000 * (i + 1));
	assert_int_equal(mdl_value(h, shared[0]), 20000 * 55);
	assert_int_equal(mdl_value(h, shared[1]), 20000 * 4);
	mdl_remove(h, ids[3]);
	mdl_ask(h, "go 1000");
	assert_int_equal(mdl_value(h, shared[1]), 21000 * 4);
	assert_int_equal(mdl_value(h, ids[9]), 21000 * 10);
	mdl_end(h);
}

/* Every thread is inside of its function when the request comes. */
static void test_catch_up(void **state)
{
	struct harness *h = *state;
	unsigned ids[THREADS], active[THREADS];

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, leaves);
	assert_string_equal(mdl_ask(h, "hold"), "held");
	for (int i = 0; i < THREADS; i++) {
		ids[i] = mdl_insert(h, "leaves", function(i));
		active[i] = mdl_insert(h, "active", function(i));
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(mdl_value(h, active[i]), 1);
	mdl_ask(h, "free 1000");
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(mdl_value(h, ids[i]), 1000);
		assert_int_equal(mdl_value(h, active[i]), 0);
	}
	/* and what they do from now on is as it was always */
	mdl_ask(h, "go 100");
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(mdl_value(h, ids[i]), 1000 + 100 * (i + 1));
		assert_int_equal(mdl_value(h, active[i]), 0);
	}
	mdl_end(h);
}

/* By thread: one of them by its id, all of them by their names in one vector. */
static void test_by_thread(void **state)
{
	struct harness *h = *state;
	long tids[THREADS];
	char focus[40];
	unsigned one, all, leaf;
	json_t *rows, *elements, *element;
	const char *names;
	size_t i;

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, leaves);
	names = mdl_ask(h, "names");
	for (int k = 0; k < THREADS; k++)
		tids[k] = strtol(names, (char **)&names, 10);
	snprintf(focus, sizeof(focus), "/Process/%ld", tids[4]);
	one = mdl_insert(h, "leaves", focus);
	all = mdl_insert(h, "leaves", "/Process/worker*");
	leaf = mdl_insert(h, "calls", "/Code/mdl_threads/leaf", focus);
	mdl_ask(h, "go 3000");
	assert_int_equal(mdl_value(h, one), 3000 * 5);
	assert_int_equal(mdl_value(h, leaf), 3000 * 5);
	assert_int_equal(mdl_value(h, all), 3000 * 55);
	rows = mdl_rows(h, all);
	elements = json_object_get(json_array_get(rows, 0), "elements");
	assert_int_equal(json_array_size(elements), THREADS);
	json_array_foreach(elements, i, element)
	{
		/* the largest first */
		assert_int_equal(json_integer_value(json_object_get(element, "value")),
				 3000 * (THREADS - (int)i));
	}
	json_decref(rows);
	mdl_end(h);
}

/* Nanoseconds on a processor of each thread, as the kernel says. */
static void schedstats(pid_t pid, const long *tids, long long *ns)
{
	for (int i = 0; i < THREADS; i++) {
		char path[64];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%ld/schedstat", pid, tids[i]);
		f = fopen(path, "r");
		assert_non_null(f);
		assert_int_equal(fscanf(f, "%lld", &ns[i]), 1);
		fclose(f);
	}
}

/* CPU time of threads: what each did since the request, as the kernel counts it. */
static void test_cpu_by_thread(void **state)
{
	struct harness *h = *state;
	long long before[THREADS], after[THREADS];
	long tids[THREADS];
	unsigned ids[THREADS];
	const char *names;

	harness_start(h, "mdl_threads", NULL);
	mdl_attach(h, NULL);
	names = mdl_ask(h, "names");
	for (int k = 0; k < THREADS; k++)
		tids[k] = strtol(names, (char **)&names, 10);
	for (int k = 0; k < THREADS; k += 3) {
		char focus[40];

		snprintf(focus, sizeof(focus), "/Process/%ld", tids[k]);
		ids[k] = mdl_insert(h, "cpu", focus);
	}
	schedstats(h->pid, tids, before);
	for (int k = 0; k < THREADS; k += 3)
		before[k] -= mdl_value(h, ids[k]);
	mdl_ask(h, "go 3000000");
	schedstats(h->pid, tids, after);
	for (int k = 0; k < THREADS; k += 3)
		mdl_near("cpu of a thread", mdl_value(h, ids[k]), after[k] - before[k], 5, 3000000);
	mdl_end(h);
}

/* What is left without a return is not active any more. */
static void test_left(void **state)
{
	struct harness *h = *state;
	unsigned active[4], thrown;

	harness_start(h, "mdl_time", NULL);
	mdl_attach(h, NULL);
	active[0] = mdl_insert(h, "active", "/Code/mdl_time/thrower");
	active[1] = mdl_insert(h, "active", "/Code/mdl_time/jumper");
	active[2] = mdl_insert(h, "active", "/Code/mdl_time/fib");
	active[3] = mdl_insert(h, "active", "/Code/mdl_time/catcher");
	thrown = mdl_insert(h, "exceptions");
	mdl_ask(h, "throw 50 0");
	mdl_ask(h, "jump 50 0");
	mdl_ask(h, "fib 2 15");
	for (int i = 0; i < 4; i++)
		assert_int_equal(mdl_value(h, active[i]), 0);
	assert_int_equal(mdl_value(h, thrown), 50);
	mdl_end(h);
}

static void test_system_calls(void **state)
{
	struct harness *h = *state;
	unsigned id;
	const char *line;
	int64_t before;

	harness_start(h, "mdl_io", NULL);
	mdl_attach(h, NULL);
	id = mdl_insert(h, "syscall_wrappers");
	mdl_ask(h, "fail 1");
	thread_wait_input(h->pid);
	before = mdl_value(h, id);
	line = mdl_ask(h, "sockets 500");
	thread_wait_input(h->pid);
	/* eight for each round; and one read and one write for command and answer */
	assert_int_equal(mdl_value(h, id) - before, mdl_number(line, "ops") + 2);
	mdl_end(h);
}

/* fear G4: the same again, when a library has been loaded that it names, is not what was there before */
static void test_same_words(void **state)
{
	static const char text[] =
		"list part_func is procedure { items { \"do_call\", \"plugin_work\" }; }\n"
		"metric parts { base is counter {\n"
		"	foreach f in part_func append preInsn f.entry (* parts++; *)\n"
		"} }\n";
	struct harness *h = *state;
	unsigned before, behind, same;

	harness_start(h, "loads", NULL);
	mdl_attach(h, text);
	before = mdl_insert(h, "parts");
	mdl_ask(h, "open");
	behind = mdl_insert(h, "parts");
	same = mdl_insert(h, "parts");
	mdl_ask(h, "call 10");
	assert_int_equal(mdl_value(h, before), 1);
	assert_int_equal(mdl_value(h, behind), 11);
	assert_int_equal(mdl_value(h, same), 11);
	mdl_remove(h, behind);
	mdl_ask(h, "call 10");
	assert_int_equal(mdl_value(h, same), 22);
	mdl_ask(h, "close");
	mdl_end(h);
}

/* Two functions, and each of them alone: code that names its loop's variable is each function's own. */
static const char named[] =
	"list two is procedure { items { \"mdl_time:fib\", \"mdl_time:even\" }; }\n"
	"list first is procedure { items { \"mdl_time:fib\" }; }\n"
	"list second is procedure { items { \"mdl_time:even\" }; }\n"
	"metric last { base is counter { foreach f in two append preInsn f.entry (* last = f; *) } }\n"
	"metric last_fib { base is counter { foreach f in first append preInsn f.entry (* last_fib = f; *) } }\n"
	"metric last_even { base is counter { foreach f in second append preInsn f.entry (* last_even = f; *) } }\n";

static void test_loop_variable(void **state)
{
	struct harness *h = *state;
	unsigned both, fib, even;

	harness_start(h, "mdl_time", NULL);
	mdl_attach(h, named);
	both = mdl_insert(h, "last");
	fib = mdl_insert(h, "last_fib");
	even = mdl_insert(h, "last_even");
	mdl_ask(h, "fib 1 5");
	assert_int_equal(mdl_value(h, both), mdl_value(h, fib));
	mdl_ask(h, "mutual 1 11");
	assert_int_equal(mdl_value(h, both), mdl_value(h, even));
	assert_true(mdl_value(h, fib) != mdl_value(h, even));
	mdl_end(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_loop_variable, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_calls, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_threads, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_same_words, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_catch_up, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_by_thread, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_cpu_by_thread, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_left, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_system_calls, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
