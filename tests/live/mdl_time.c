/* SPDX-License-Identifier: MIT */
/*
 * mdl_time.c - cpu, wall, their inclusive forms and latency against clocks that
 * the program placed by hand: recursion, mutual recursion, tail calls, and
 * functions that are left by exceptions and longjmp; catch-up of what runs.
 *
 * The machine may be busy with other things: a clock of the wall and one of the
 * processor are each compared with their like, measured around the same work.
 */
#include "mutator/core.h"
#include "tests/live/mdl_help.h"

#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PERCENT = 5, SLACK_NS = 2000000 };

static unsigned timed(struct harness *h, const char *metric, const char *function)
{
	char focus[100];

	snprintf(focus, sizeof(focus), "/Code/mdl_time/%s", function);
	return mdl_insert(h, metric, focus);
}

static void begin(struct harness *h)
{
	harness_start(h, "mdl_time", NULL);
	mdl_attach(h, NULL);
}

/* Time that others had the CPU: it may lie between a clock of the program and ours. */
static int64_t stolen(const char *line)
{
	return mdl_number(line, "wall") - mdl_number(line, "cpu");
}

/* `line` is what the program says of itself. */
static void near(struct harness *h, const char *what, unsigned id, int64_t wanted, const char *line)
{
	mdl_near(what, mdl_value(h, id), wanted, PERCENT, SLACK_NS + stolen(line));
}

/* However deep: the outermost call's time, once. */
/* fear E4: recursion to any depth: the outermost time, once */
static void test_recursion(void **state)
{
	struct harness *h = *state;
	unsigned wall, cpu, own;
	const char *line;

	begin(h);
	wall = timed(h, "wall_inclusive", "fib");
	cpu = timed(h, "cpu_inclusive", "fib");
	own = timed(h, "wall", "fib");
	line = mdl_ask(h, "fib 20 18");
	near(h, "wall_inclusive", wall, mdl_number(line, "wall"), line);
	near(h, "cpu_inclusive", cpu, mdl_number(line, "cpu"), line);
	/* all that it calls is itself, but the stops and starts in between are lost */
	assert_true(mdl_value(h, own) <= mdl_number(line, "wall"));
	/* Of the time that it had a CPU: when others had it may all have been in the gaps. */
	assert_true(mdl_value(h, own) > mdl_number(line, "cpu") / 4);
	mdl_end(h);
}

/* fear E4: one call in 64 is timed, of a function that calls itself: to its end, not to the inner one's */
static void test_sampled(void **state)
{
	enum { ROUNDS = 320, TURNS = 64 / 2 };
	struct harness *h = *state;
	unsigned sampled;
	const char *line;

	begin(h);
	sampled = timed(h, "cpu_sampled", "again");
	line = mdl_ask(h, "again %d 1", ROUNDS);
	mdl_near("cpu_sampled", mdl_value(h, sampled), mdl_number(line, "cpu") / TURNS, 10,
		 SLACK_NS);
	mdl_end(h);
}

/* Moves the main thread from one CPU to the other, until it is killed. */
static pid_t start_mover(pid_t pid)
{
	const pid_t child = fork(), parent = getppid();
	cpu_set_t all, one;

	if (child)
		return child;
	alarm(HARNESS_SECONDS);
	sched_getaffinity(0, sizeof(all), &all);
	for (int cpu = 0; getppid() == parent; cpu = (cpu + 1) % CPU_SETSIZE) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(pid, sizeof(one), &one))
			_exit(1);
		usleep(500);
	}
	_exit(0);
}

/* fear K4: timers of a thread that is moved between CPUs all the time: near to the clock, never back */
static void test_migrations(void **state)
{
	struct harness *h = *state;
	int64_t last = 0, wanted = 0, lost = 0, value;
	unsigned wall;
	pid_t mover;

	begin(h);
	wall = timed(h, "wall_inclusive", "fib");
	mover = start_mover(h->pid);
	assert_true(mover > 0);
	for (int turn = 0; turn < 20; turn++) {
		const char *line = mdl_ask(h, "fib 20 1");

		wanted += mdl_number(line, "wall");
		lost += stolen(line);
		for (int n = 0; n < 3; n++) {
			value = mdl_value(h, wall);
			assert_true(value >= last);
			last = value;
		}
	}
	kill(mover, SIGKILL);
	waitpid(mover, NULL, 0);
	mdl_near("wall_inclusive", mdl_value(h, wall), wanted, PERCENT, SLACK_NS + lost);
	mdl_end(h);
}

/* fear E4: functions that call each other */
static void test_mutual_recursion(void **state)
{
	struct harness *h = *state;
	unsigned both[2], own[2];
	const char *line;
	int64_t wall, cpu;

	begin(h);
	both[0] = timed(h, "wall_inclusive", "even");
	both[1] = timed(h, "cpu_inclusive", "odd");
	line = mdl_ask(h, "mutual 10 300");
	near(h, "wall_inclusive of even", both[0], mdl_number(line, "wall"), line);
	near(h, "cpu_inclusive of odd", both[1], mdl_number(line, "cpu"), line);
	mdl_remove(h, both[0]);
	mdl_remove(h, both[1]);
	/* some each, and together all that there was */
	own[0] = timed(h, "wall", "even");
	own[1] = timed(h, "wall", "odd");
	line = mdl_ask(h, "mutual 10 301");
	wall = mdl_number(line, "wall");
	cpu = mdl_number(line, "cpu");
	assert_true(mdl_value(h, own[0]) + mdl_value(h, own[1]) <= wall);
	mdl_near("even and odd", mdl_value(h, own[0]) + mdl_value(h, own[1]), wall, 15,
		 SLACK_NS + stolen(line));
	/* Of the time that they had a CPU: when others had it may all have been in one of them. */
	assert_true(mdl_value(h, own[0]) > cpu / 5 && mdl_value(h, own[1]) > cpu / 5);
	mdl_end(h);
}

static void test_exclusive(void **state)
{
	struct harness *h = *state;
	unsigned own, own_cpu, all, inner, inner_cpu;
	const char *line;
	int64_t outer;

	begin(h);
	own = timed(h, "wall", "outer");
	own_cpu = timed(h, "cpu", "outer");
	all = timed(h, "wall_inclusive", "outer");
	inner = timed(h, "wall_inclusive", "inner");
	inner_cpu = timed(h, "cpu_inclusive", "inner");
	line = mdl_ask(h, "share 30 5");
	outer = mdl_number(line, "own");
	near(h, "wall of outer", own, outer, line);
	near(h, "cpu of outer", own_cpu, mdl_number(line, "own_cpu"), line);
	near(h, "wall_inclusive of outer", all, outer + mdl_number(line, "inner_wall"), line);
	near(h, "wall_inclusive of inner", inner, mdl_number(line, "inner_wall"), line);
	near(h, "cpu_inclusive of inner", inner_cpu, mdl_number(line, "inner_cpu"), line);
	mdl_end(h);
}

/* Where a call cannot be taken out its time is in the value, and whoever reads that is told. */
static void test_own_calls(void **state)
{
	struct harness *h = *state;
	const char *line;
	unsigned own, all;

	begin(h);
	own = timed(h, "wall", "tight");
	all = timed(h, "wall_inclusive", "tight");
	line = mdl_ask(h, "tight 20 5");
	near(h, "wall of tight", own, mdl_number(line, "inner_wall"), line);
	assert_int_equal(mdl_field(h, own, "own_calls"), 2);
	assert_null(json_object_get(mdl_rows(h, all), "own_calls"));
	mdl_end(h);
}

/* Behind a call that never returns there is nothing; before it the function is left all the same. */
/* fear E3: what a function calls that never returns is not the function's own time: server loops, and main()
 *   of libc, which was called before anybody looked */
static void test_calls_without_return(void **state)
{
	struct harness *h = *state;
	unsigned own, all, main_own, main_all;
	const char *line;
	int64_t inner;

	begin(h);
	own = timed(h, "cpu", "ender");
	all = timed(h, "cpu_inclusive", "ender");
	main_own = mdl_insert(h, "cpu", "/Code/libc.so.6/__libc_start_main");
	main_all = mdl_insert(h, "cpu_inclusive", "/Code/libc.so.6/__libc_start_main");
	line = mdl_ask(h, "ender 20 5");
	inner = mdl_number(line, "cpu");
	assert_true(inner > 90000000);
	assert_true(mdl_value(h, all) > inner / 2);
	assert_true(mdl_value(h, main_all) > inner / 2);
	assert_true(mdl_value(h, own) < inner / 10);
	assert_true(mdl_value(h, main_own) < inner / 10);
	mdl_end(h);
}

/* A function that ends by a jump to another one has been left. */
static void test_tail_calls(void **state)
{
	static const char *const names[] = {"first", "second", "third"};
	struct harness *h = *state;
	unsigned ids[3], counts[3];
	const char *line;

	begin(h);
	for (int i = 0; i < 3; i++) {
		ids[i] = timed(h, "wall_inclusive", names[i]);
		counts[i] = timed(h, "latency", names[i]);
	}
	line = mdl_ask(h, "tail 40 2");
	for (int i = 0; i < 3; i++) {
		near(h, names[i], ids[i], mdl_number(line, names[i]), line);
		assert_int_equal(mdl_field(h, counts[i], "count"), 40);
		mdl_near(names[i], mdl_field(h, counts[i], "sum"), mdl_number(line, names[i]),
			 PERCENT, SLACK_NS + stolen(line));
	}
	mdl_end(h);
}

/* Until it was left, not until somebody noticed; and only the call behind all counts as one that
 * returned. */
static void left(struct harness *h, const char *function, const char *command)
{
	unsigned wall, cpu, latency;
	const char *line;

	begin(h);
	wall = timed(h, "wall_inclusive", function);
	cpu = timed(h, "cpu_inclusive", function);
	latency = timed(h, "latency", function);
	line = mdl_ask(h, "%s 30 4", command);
	near(h, "wall_inclusive", wall, mdl_number(line, "left"), line);
	near(h, "cpu_inclusive", cpu, mdl_number(line, "left_cpu"), line);
	assert_int_equal(mdl_field(h, latency, "count"), 1);
	mdl_end(h);
}

/* fear E3: timers of functions that are left by exceptions */
static void test_exceptions(void **state)
{
	left(*state, "thrower", "throw");
}

/* fear E3: timers of functions that are left by longjmp */
static void test_longjmp(void **state)
{
	left(*state, "jumper", "jump");
}

/*
 * What is taken back for functions that are left: first what measures, then the flags that it asks. In several
 * orders of coming: which of them would be right by chance is not known.
 */
static void test_longjmp_under_a_flag(void **state)
{
	enum { METRICS = 8 };
	static const char form[] =
		"metric jumping_%d { units ns; unitsType normalized; constraint procedure;\n"
		"  base is wallTimer { append preInsn jumpers.entry (* startWallTimer(jumping_%d); *)\n"
		"    prepend preInsn jumpers.return (* stopWallTimer(jumping_%d); *) } }\n";
	char name[32], text[4096] = "list jumpers is procedure { items { \"jumper\" }; }\n";
	struct harness *h = *state;
	unsigned ids[METRICS];
	const char *line;

	for (int i = 0; i < METRICS; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), form, i, i, i);
	harness_start(h, "mdl_time", NULL);
	mdl_attach(h, text);
	for (int i = 0; i < METRICS; i++) {
		snprintf(name, sizeof(name), "jumping_%d", i);
		ids[i] = timed(h, name, "jumper");
	}
	line = mdl_ask(h, "jump 30 4");
	for (int i = 0; i < METRICS; i++)
		near(h, "jumping", ids[i], mdl_number(line, "left"), line);
	mdl_end(h);
}

/*
 * What came by `prepend` runs in front of what is there: at exits, in what is taken back for functions that are
 * left without one, and in what is done for calls that were there before the request.
 */
static void test_order_of_prepended(void **state)
{
	static const char text[] =
		"list jumpers is procedure { items { \"jumper\" }; }\n"
		"metric leaving { units ns; unitsType normalized; counter y; base is wallTimer {\n"
		"  append preInsn jumpers.entry (* y++; startWallTimer(leaving); *)\n"
		"  prepend preInsn jumpers.return (* y--; *)\n"
		"  prepend preInsn jumpers.return (* if (y > 0) stopWallTimer(leaving); *) } }\n"
		"list holders is procedure { items { \"held\" }; }\n"
		"metric holding { units ns; unitsType normalized; counter y; base is wallTimer {\n"
		"  append preInsn holders.entry (* if (y > 0) startWallTimer(holding); *)\n"
		"  prepend preInsn holders.entry (* y++; *)\n"
		"  prepend preInsn holders.return (* stopWallTimer(holding); y--; *) } }\n";
	struct harness *h = *state;
	unsigned id;
	const char *line;

	harness_start(h, "mdl_time", NULL);
	mdl_attach(h, text);
	id = mdl_insert(h, "leaving");
	line = mdl_ask(h, "jump 30 4");
	near(h, "leaving", id, mdl_number(line, "left"), line);
	assert_string_equal(mdl_ask(h, "wait 1"), "inside");
	id = mdl_insert(h, "holding");
	usleep(100000);
	assert_true(mdl_value(h, id) >= 100000000);
	mdl_ask(h, "on");
	mdl_end(h);
}

static void test_latency(void **state)
{
	struct harness *h = *state;
	unsigned id;
	const char *line;
	json_t *rows;
	int64_t sum, p50, p99;

	begin(h);
	id = timed(h, "latency", "request");
	line = mdl_ask(h, "request 1000");
	rows = mdl_rows(h, id);
	sum = mdl_number(line, "spent");
	assert_int_equal(harness_integer(rows, "count"), 1000);
	mdl_near("sum", harness_integer(rows, "sum"), sum, PERCENT, SLACK_NS);
	p50 = harness_integer(rows, "p50");
	p99 = harness_integer(rows, "p99");
	assert_true(harness_integer(rows, "min") >= 49000);
	mdl_near("p50", p50, mdl_number(line, "p50"), PERCENT, 20000);
	mdl_near("p99", p99, mdl_number(line, "p99"), 2 * PERCENT, 20000);
	assert_true(p99 >= p50 && harness_integer(rows, "max") >= p99 * 32 / 33);
	json_decref(rows);
	mdl_end(h);
}

/* The request comes while the function runs: from then on. */
static void test_catch_up(void **state)
{
	struct harness *h = *state;
	unsigned wall, cpu, latency;
	struct timespec a, b;
	int64_t waited;
	const char *line;

	begin(h);
	assert_string_equal(mdl_ask(h, "wait 50"), "inside");
	clock_gettime(CLOCK_MONOTONIC, &a);
	wall = timed(h, "wall_inclusive", "held");
	cpu = timed(h, "cpu_inclusive", "held");
	latency = timed(h, "latency", "held");
	usleep(100000);
	/* running timers are read while they run */
	assert_true(mdl_value(h, wall) >= 100000000);
	assert_true(mdl_value(h, cpu) < 5000000);
	line = mdl_ask(h, "on");
	clock_gettime(CLOCK_MONOTONIC, &b);
	waited = (b.tv_sec - a.tv_sec) * 1000000000ll + b.tv_nsec - a.tv_nsec;
	usleep(10000);
	assert_true(mdl_value(h, wall) <= waited + 10000000);
	assert_true(mdl_value(h, wall) >= 100000000 + mdl_number(line, "rest"));
	mdl_near("cpu_inclusive", mdl_value(h, cpu), mdl_number(line, "cpu"), PERCENT, SLACK_NS);
	/* when it was entered is not known */
	assert_int_equal(mdl_field(h, latency, "count"), 0);
	mdl_end(h);
}

/*
 * The request comes while the functions run, and the flag that it asks is another request's, set by one in the
 * middle of them: what lies around that was entered when the flag was not set.
 */
static void test_catch_up_under_a_flag(void **state)
{
	static const char text[] =
		"list rings is procedure { items { \"around\", \"amid\", \"within\" }; }\n"
		"list outermost is procedure { items { \"around\" }; }\n"
		"metric rung { units calls; unitsType normalized; constraint procedure;\n"
		"  base is counter { foreach f in rings append preInsn f.entry (* rung++; *) } }\n"
		"metric ringed { units calls; unitsType sampled; style SampledFunction; constraint procedure;\n"
		"  base is counter { foreach f in rings { append preInsn f.entry (* ringed++; *)\n"
		"    prepend preInsn f.return (* ringed--; *) } } }\n"
		"metric ringing { units ns; unitsType normalized; constraint procedure;\n"
		"  base is wallTimer { foreach f in outermost { append preInsn f.entry (* startWallTimer(ringing); *)\n"
		"    prepend preInsn f.return (* stopWallTimer(ringing); *) } } }\n";
	static const char focus[] = "/Code/mdl_time/amid";
	struct harness *h = *state;
	unsigned first, level, timer;

	harness_start(h, "mdl_time", NULL);
	mdl_attach(h, text);
	first = mdl_insert(h, "rung", focus);
	assert_string_equal(mdl_ask(h, "rings 50"), "inside");
	assert_int_equal(mdl_value(h, first), 2);
	level = mdl_insert(h, "ringed", focus);
	timer = mdl_insert(h, "ringing", focus);
	assert_int_equal(mdl_value(h, level), 2);
	mdl_ask(h, "on");
	assert_int_equal(mdl_value(h, first), 2);
	assert_int_equal(mdl_value(h, level), 0);
	assert_int_equal(mdl_value(h, timer), 0);
	mdl_end(h);
}

/* Nanoseconds on a processor, of all threads, as the kernel says. */
static int64_t schedstat(pid_t pid)
{
	char path[64];
	long long ns = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", pid, pid);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lld", &ns), 1);
	fclose(f);
	return ns;
}

static void test_whole_program(void **state)
{
	struct harness *h = *state;
	unsigned cpu, wall;
	int64_t from, from_value;

	begin(h);
	cpu = mdl_insert(h, "cpu");
	wall = mdl_insert(h, "wall");
	from = schedstat(h->pid);
	from_value = mdl_value(h, cpu);
	mdl_ask(h, "share 40 5");
	mdl_near("cpu", mdl_value(h, cpu) - from_value, schedstat(h->pid) - from, PERCENT,
		 SLACK_NS);
	assert_true(mdl_value(h, wall) >= mdl_value(h, cpu));
	mdl_end(h);
}

/* ------------------------------------------------------------------ cost */

static double number_of(const json_t *rows, unsigned id, const char *key)
{
	const json_t *row;
	size_t n;

	json_array_foreach(rows, n,
			   row) if (json_integer_value(json_object_get(row, "id")) ==
				    id) return json_number_value(json_object_get(row, key));
	fail_msg("there is no %u", id);
	return 0;
}

/* What is told to be taken in a second, by what hits alone take. */
static double surplus(const json_t *rows, unsigned id)
{
	return number_of(rows, id, "cost_ns_per_s") /
	       (number_of(rows, id, "hits") * number_of(rows, id, "predicted_ns"));
}

/* A thread that sleeps inside at every turn: behind each, its clock is a system call. */
static void test_switches_cost(void **state)
{
	enum { REQUESTS = 3000, CALL_NS = 250 };
	struct harness *h = *state;
	json_t *rows = NULL;
	unsigned wall, cpu;
	int64_t ns;

	begin(h);
	cpu = mdl_insert(h, "cpu_inclusive", "/Code/mdl_time/request", "--cost");
	wall = mdl_insert(h, "wall_inclusive", "/Code/mdl_time/request", "--cost");
	ns = mdl_number(mdl_ask(h, "request %d", REQUESTS), "wall");
	assert_true(ns >= 1000000000);
	assert_int_equal(harness_dinst(h, &rows, "read", "-v", "-p", harness_number(h->pid)), 0);
	assert_true(number_of(rows, cpu, "hits") >= 2 * REQUESTS);
	/* Where it always is one, each hit says so. */
	if (number_of(rows, cpu, "predicted_ns") < CALL_NS &&
	    surplus(rows, cpu) < surplus(rows, wall) * 1.2)
		fail_msg("the clock of a thread that sleeps takes no more than one that runs: %s",
			 json_dumps(rows, 0));
	json_decref(rows);
	mdl_end(h);
}

/* A switch between two hits is one system call, and so are a hundred. */
static void test_switches_are_bounded(void **state)
{
	const struct instance i = {.cost_ps = 20000, .switch_ps = 250000};
	const struct instance shared = {.source = (struct instance *)(uintptr_t)&i};

	(void)state;
	assert_true(instance_predicted_ns(&i, 10, 0) == 200);
	assert_true(instance_predicted_ns(&i, 10, 4) == 1200);
	assert_true(instance_predicted_ns(&i, 10, 1000) == 2700);
	assert_true(instance_predicted_ns(&shared, 10, 4) == 1200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_recursion, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_sampled, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_migrations, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_mutual_recursion, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_exclusive, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_own_calls, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_calls_without_return, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_tail_calls, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_exceptions, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_longjmp, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_longjmp_under_a_flag, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_order_of_prepended, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_latency, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_catch_up, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_catch_up_under_a_flag, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_whole_program, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_switches_cost, harness_setup,
						harness_teardown),
		cmocka_unit_test(test_switches_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
