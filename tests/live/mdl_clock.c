/* SPDX-License-Identifier: MIT */
/*
 * mdl_clock.c - machines whose processor's clock is not steady: timers go by what
 * the vdso does, or by a system call, agree with the program's own clocks, and are
 * predicted to cost what that costs; streams, which need the processor's clock, are
 * refused. And what is left of a timer whose thread ends.
 *
 * DINST_UNSTEADY makes this machine such a one; as "call" it is one whose vdso is of no use, too.
 */
#include "tests/live/mdl_help.h"

#include <signal.h>
#include <stdlib.h>

#include "inject/proc.h"
#include "mutator/variable.h"

/* No system call is predicted to take less; reading the processor's clock is never predicted to. */
enum { CALL_NS = 100, LEAST_NS = 15 };

static int setup(void **state)
{
	setenv("DINST_UNSTEADY", "1", 1);
	return harness_setup(state);
}

static unsigned timed(struct harness *h, const char *metric, const char *function)
{
	char focus[100];

	snprintf(focus, sizeof(focus), "/Code/mdl_time/%s", function);
	return mdl_insert(h, metric, focus);
}

static void begin(struct harness *h, const char *text)
{
	harness_start(h, "mdl_time", NULL);
	mdl_attach(h, text);
}

/* Whatever the machine does in between, this holds of clocks of one kind. */
static void between(const char *what, int64_t got, int64_t least, int64_t most)
{
	if (got < least || got > most)
		fail_msg("%s: %" PRId64 ", not between %" PRId64 " and %" PRId64, what, got, least,
			 most);
}

/*
 * fear K4: on a machine that is said to have no steady clock, the program's clocks inside of a
 * function say the least, those around it the most
 */
static void test_timers(void **state)
{
	enum { ROUNDS = 20, MS = 3, SPUN_NS = ROUNDS * MS * 1000000 };
	struct harness *h = *state;
	unsigned wall, cpu, left, latency;
	const char *line;

	begin(h, NULL);
	wall = timed(h, "wall_inclusive", "outer");
	cpu = timed(h, "cpu_inclusive", "outer");
	latency = timed(h, "latency", "inner");
	left = timed(h, "wall_inclusive", "thrower");
	line = mdl_ask(h, "share %d %d", ROUNDS, MS);
	between("wall_inclusive", mdl_value(h, wall),
		mdl_number(line, "own") + mdl_number(line, "inner_wall"), mdl_number(line, "wall"));
	between("cpu_inclusive", mdl_value(h, cpu),
		mdl_number(line, "own_cpu") + mdl_number(line, "inner_cpu"),
		mdl_number(line, "cpu"));
	assert_int_equal(mdl_field(h, latency, "count"), ROUNDS);
	between("latency", mdl_field(h, latency, "sum"), SPUN_NS, mdl_number(line, "inner_wall"));
	/* Who catches works on for twice as long: that is not counted. */
	line = mdl_ask(h, "throw %d %d", ROUNDS, MS);
	between("wall_inclusive of what is left by exceptions", mdl_value(h, left), SPUN_NS,
		mdl_number(line, "wall") - 2 * SPUN_NS);
	mdl_end(h);
}

static void test_timers_by_calls(void **state)
{
	setenv("DINST_UNSTEADY", "call", 1);
	test_timers(state);
}

/* Timers that run are read by the same clock. */
static void test_running(void **state)
{
	struct harness *h = *state;
	int64_t before, after;
	unsigned wall;

	begin(h, NULL);
	assert_string_equal(mdl_ask(h, "wait 5"), "inside");
	wall = timed(h, "wall_inclusive", "held");
	before = mdl_value(h, wall);
	usleep(100000);
	after = mdl_value(h, wall);
	assert_true(after - before >= 100000000);
	mdl_ask(h, "on");
	assert_true(mdl_value(h, wall) >= after);
	mdl_end(h);
}

static const char when[] =
	"metric called_at {\n"
	"	constraint here /Code/*/* is replace counter {\n"
	"		prepend preInsn $constraint[0].entry (* called_at += $now; *)\n"
	"	}\n"
	"	base is counter { }\n"
	"}\n";

static void run_in_namespace(struct harness *h)
{
	enum { AHEAD = 1000000 };
	const char *const argv[] = {"unshare",
				    "--time",
				    "--monotonic",
				    harness_number(AHEAD),
				    harness_path("tests/live/targets/mdl_time"),
				    NULL};
	const int64_t begun = (int64_t)clock_ns(), ahead = INT64_C(1000000000) * AHEAD;
	int64_t before, after;
	unsigned wall, at;

	if (geteuid()) {
		print_message("skipped: time namespaces are root's to make\n");
		skip();
	}
	harness_start_argv(h, argv, true);
	mdl_attach(h, when);
	at = timed(h, "called_at", "held");
	assert_string_equal(mdl_ask(h, "wait 5"), "inside");
	wall = timed(h, "wall_inclusive", "held");
	before = mdl_value(h, wall);
	usleep(100000);
	after = mdl_value(h, wall);
	assert_true(after - before >= 100000000);
	mdl_ask(h, "on");
	between("wall_inclusive", mdl_value(h, wall), after, (int64_t)clock_ns() - begun);
	between("$now", mdl_value(h, at), begun + ahead, (int64_t)clock_ns() + ahead);
	mdl_end(h);
}

/*
 * fear K4: a program in a time namespace: a timer that was running before anything was inserted
 * begins, is read, and ends by that program's own clock, which is far ahead of ours
 */
static void test_namespace(void **state)
{
	run_in_namespace(*state);
}

/* The same by system calls. */
static void test_namespace_by_calls(void **state)
{
	setenv("DINST_UNSTEADY", "call", 1);
	run_in_namespace(*state);
}

/* The same where the processor's clock is steady: what it says is made into that program's. */
static void test_namespace_steady(void **state)
{
	unsetenv("DINST_UNSTEADY");
	run_in_namespace(*state);
}

/* It is ours once who started it has ended (harness.h). */
static pid_t find_daemon(void)
{
	struct proc_ids children = {0};
	struct proc_stat stat;
	pid_t found = 0;

	assert_int_equal(proc_children(getpid(), getpid(), &children), 0);
	for (size_t i = 0; i < children.count; i++)
		if (!proc_stat_read(children.ids[i], &stat) && !strcmp(stat.name, "dinstd") &&
		    stat.state != 'Z')
			found = children.ids[i];
	proc_ids_release(&children);
	assert_true(found > 0);
	return found;
}

/*
 * A thread that ends inside takes with it what its timer has run since its last start; all
 * that was counted before stays, and who gets its record next begins at nothing.
 */
static void test_ends_inside(void **state)
{
	struct harness *h = *state;
	unsigned wall, calls;
	const char *line;
	pid_t daemon;

	begin(h, NULL);
	wall = timed(h, "wall_inclusive", "leaver");
	calls = timed(h, "calls", "leaver");
	daemon = find_daemon();
	/* What it saw a moment before a thread ended would stay, up to a millisecond (docs/mdl.md). */
	kill(daemon, SIGSTOP);
	line = mdl_ask(h, "leave 20 5");
	kill(daemon, SIGCONT);
	/* each call is 5 ms at least; clocks around those that returned say the most */
	between("wall_inclusive", mdl_value(h, wall), 100000000, mdl_number(line, "returned"));
	assert_int_equal(mdl_value(h, calls), 40);
	mdl_end(h);
}

/*
 * fear K4: a forked child takes on a filter of system calls inside of a function that is timed, and ends
 * there, too: what it adds is a time that it can have run, not one since the machine was started
 */
static void test_filtered_child(void **state)
{
	enum { CHILDREN = 10 };
	static const char *const clocks[] = {"1", "call"};
	struct harness *h = *state;

	for (unsigned i = 0; i < 2; i++) {
		uint64_t begun;
		unsigned wall;

		setenv("DINST_UNSTEADY", clocks[i], 1);
		harness_start(h, "confined", "1", NULL);
		mdl_attach(h, NULL);
		wall = mdl_insert(h, "wall_inclusive", "/Code/confined/forks");
		begun = clock_ns();
		assert_string_equal(mdl_ask(h, "inside %d calls-prctl", CHILDREN), "died 0");
		between("wall_inclusive", mdl_value(h, wall), 1,
			(int64_t)(clock_ns() - begun) * (1 + CHILDREN));
		mdl_end(h);
	}
}

/*
 * fear A9: what is measured reads no clock, but what notes that functions are left by a jump would: under
 * a filter that kills for it, which is there before or comes later, that makes no call
 */
static void test_jumps_under_filter(void **state)
{
	struct harness *h = *state;

	setenv("DINST_UNSTEADY", "call", 1);
	for (unsigned later = 0; later < 2; later++) {
		harness_start(h, "confined", "1", later ? NULL : "calls", NULL);
		mdl_attach(h, NULL);
		mdl_insert(h, "active", "/Code/confined/leaps");
		if (later)
			assert_string_equal(mdl_ask(h, "take calls"), "taken");
		assert_string_equal(mdl_ask(h, "jump %d", 10), "done");
		mdl_end(h);
	}
}

/* fear A9: the same where they note CPU time, too, as somebody needed who is gone */
static void test_jumps_after_cpu_time(void **state)
{
	struct harness *h = *state;
	unsigned cpu;

	unsetenv("DINST_UNSTEADY");
	harness_start(h, "confined", "1", NULL);
	mdl_attach(h, NULL);
	mdl_insert(h, "active", "/Code/confined/leaps");
	cpu = mdl_insert(h, "cpu_inclusive", "/Code/confined/step");
	mdl_remove(h, cpu);
	assert_string_equal(mdl_ask(h, "take calls"), "taken");
	assert_string_equal(mdl_ask(h, "jump %d", 10), "done");
	mdl_end(h);
}

/* fear A9: a filter that nobody saw coming: when it is known, forked children make no call either */
static void test_children_under_filter(void **state)
{
	struct harness *h = *state;

	setenv("DINST_UNSTEADY", "call", 1);
	harness_start(h, "confined", "1", NULL);
	mdl_attach(h, NULL);
	mdl_insert(h, "active", "/Code/confined/step");
	mdl_insert(h, "wall_inclusive", "/Code/confined/leaps");
	assert_string_equal(mdl_ask(h, "jump %d", 10), "done");
	assert_string_equal(mdl_ask(h, "take calls-raw"), "taken");
	sleep(3);
	assert_string_equal(mdl_ask(h, "children %d no-new-privs", 3), "died 0");
	mdl_end(h);
}

static double predicted(struct harness *h)
{
	const char *const words[] = {"wall_inclusive", "/Code/mdl_time/outer", NULL};
	json_t *rows;
	double ns;

	begin(h, NULL);
	rows = mdl_insert_rows(h, false, words);
	ns = json_number_value(json_object_get(json_array_get(rows, 0), "predicted_ns"));
	json_decref(rows);
	mdl_end(h);
	return ns;
}

static void test_predicted(void **state)
{
	setenv("DINST_UNSTEADY", "call", 1);
	assert_true(predicted(*state) >= CALL_NS);
}

/* By the vdso, where its code is one that can be taken apart: tests/unit/wall_clock.c says so. */
static void test_predicted_of_vdso(void **state)
{
	const double ns = predicted(*state);

	assert_true(ns >= LEAST_NS);
	print_message("predicted: %.1f ns\n", ns);
}

/* Both of them, in that order. */
static void says(const char *what, const char *said, const char *a, const char *b)
{
	const char *at = strstr(said, a);

	if (!at || !strstr(at, b))
		fail_msg("%s: not '%s' and '%s' in: %s", what, a, b, said);
}

/* What doctor tells of the clock; the target is of no interest. */
static void doctor_says(struct harness *h, const char *a, const char *b)
{
	json_t *rows = NULL, *row;
	const char *why = NULL;
	size_t n;

	harness_dinst(h, &rows, "doctor");
	json_array_foreach(rows, n,
			   row) if (!strcmp(json_string_value(json_object_get(row, "check")),
					    "wall clock"))
	{
		assert_true(json_is_true(json_object_get(row, "ok")));
		why = json_string_value(json_object_get(row, "why"));
	}
	if (!why)
		fail_msg("doctor says nothing of the clock");
	says("doctor", why, a, b);
	json_decref(rows);
}

static const char *const timed_words[] = {"wall_inclusive", "/Code/mdl_time/outer", "-v", NULL};
static const char *const counted[] = {"calls", "/Code/mdl_time/outer", "-v", NULL};

static void test_told_call(void **state)
{
	struct harness *h = *state;

	setenv("DINST_UNSTEADY", "call", 1);
	doctor_says(h, "a system call", "streams");
	begin(h, NULL);
	json_decref(mdl_insert_rows(h, false, counted));
	assert_null(strstr(h->messages, "wall clock"));
	json_decref(mdl_insert_rows(h, false, timed_words));
	says("insert -v", h->messages, "wall clock: a system call", "ns");
	mdl_end(h);
}

/* By the vdso where it can be: of this machine's own code and of the target's the same is said. */
static void test_told(void **state)
{
	struct harness *h = *state;

	begin(h, NULL);
	json_decref(mdl_insert_rows(h, false, timed_words));
	if (strstr(h->messages, "wall clock: the vDSO's"))
		doctor_says(h, "the vDSO's", "streams");
	else
		says("insert -v", h->messages, "wall clock: a system call", "ns");
	mdl_end(h);
}

/* As this machine is: nothing of it unless it is of interest. */
static void test_told_steady(void **state)
{
	struct harness *h = *state;

	unsetenv("DINST_UNSTEADY");
	if (!ticks_may_do())
		skip();
	doctor_says(h, "the processor's", "steady");
	begin(h, NULL);
	json_decref(mdl_insert_rows(h, false, timed_words));
	assert_null(strstr(h->messages, "wall clock"));
	mdl_end(h);
}

static void test_streams_are_refused(void **state)
{
	static const char text[] =
		"list outers is procedure { items { \"outer\" }; }\n"
		"metric happened {\n"
		"	units events;\n"
		"	base is stream { foreach f in outers append preInsn f.entry\n"
		"		(* record(happened, $arg[0]); *) }\n"
		"}\n";
	struct harness *h = *state;
	json_t *rows = NULL;

	begin(h, text);
	assert_int_equal(harness_dinst(h, NULL, "insert", "happened", "-p", harness_number(h->pid)),
			 1);
	if (!strstr(h->messages, "clock"))
		fail_msg("it does not say why: %s", h->messages);
	/* Nothing of it is there, and everything else works. */
	assert_int_equal(harness_dinst(h, &rows, "read", "-p", harness_number(h->pid)), 0);
	assert_int_equal(json_array_size(rows), 0);
	json_decref(rows);
	assert_int_equal(mdl_value(h, timed(h, "wall_inclusive", "outer")), 0);
	mdl_end(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_timers, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_timers_by_calls, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_predicted_of_vdso, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_running, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_namespace, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_namespace_by_calls, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_namespace_steady, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_ends_inside, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_filtered_child, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_jumps_under_filter, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_jumps_after_cpu_time, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_children_under_filter, setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_predicted, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_told, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_told_call, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_told_steady, setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_streams_are_refused, setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
