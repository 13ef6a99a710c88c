/* SPDX-License-Identifier: MIT */
/*
 * life_threads.c - targets whose threads come and go, all the time, by the
 * hundred thousand, by the thousand at once, or until there can be no more.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/tasks.h"
#include "mutator/threads_private.h"
#include "mutator/variable.h"
#include "tests/live/harness_session.h"
#include "tests/live/mdl_help.h"

static uint64_t now_ms(void)
{
	return clock_ns() / 1000000;
}

static void begin(struct harness *h)
{
	harness_start(h, "life-threads", NULL);
}

static void tell(struct harness *h, const char *command, const char *answer)
{
	harness_send(h, command);
	harness_send(h, "\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

/* Ends what was begun; how many threads there were. */
static long stop(struct harness *h)
{
	long born = 0;

	harness_send(h, "stop\n");
	if (sscanf(harness_line(h, HARNESS_ANSWER_MS), "done %ld", &born) != 1)
		fail_msg("the target says %s", h->line);
	return born;
}

/* Threads have come and gone: stacks of theirs may be kept, everything else is as before. */
static void end(struct harness *h)
{
	harness_verify_what(h, HARNESS_TEXT | HARNESS_FDS | HARNESS_SIGNALS);
	harness_end(h, 0);
}

static const struct instance *insert(struct session *s, const char *metric, const char *focus)
{
	struct insert_result result;
	struct dinst_error e = {0};
	const struct instance *i;
	int status = DINST_BUSY;

	for (int tries = 0; tries < 100 && status == DINST_BUSY; tries++) {
		dinst_error_clear(&e);
		status = request_insert(s, metric, &focus, 1, NULL, &result, &e);
		if (status == DINST_BUSY)
			usleep(10000);
	}
	if (status < 0)
		fail_msg("%s %s: %s", metric, focus, e.text);
	i = result.instances[0];
	assert_int_equal(i->refused_count, 0);
	free(result.instances);
	return i;
}

/* ------------------------------------------------------------------ births */

struct look {
	size_t threads, awake;
};

/* Every thread that is listed stands still: none was born unseen. */
static int look(struct stop *s, void *arg, struct dinst_error *e)
{
	pid_t pid = target_pid(stop_target(s));
	struct look *l = arg;
	size_t count;
	pid_t *tasks = task_list(pid, &count);

	if (!tasks)
		return dinst_fail(e, DINST_FAILED, "cannot list the threads");
	l->threads += stop_thread_count(s);
	for (size_t i = 0; i < count; i++) {
		const char *state = harness_status(pid, tasks[i], "State:");

		l->awake += state && !strchr("tZX", state[0]);
	}
	free(tasks);
	return 0;
}

/*
 * fear A1: a thousand times opened, stopped and let go while each thread lives 100 ms and starts its
 * successor: every stop has every thread, none stalls, none of the births is lost.
 */
static void test_thready_thousand_stops(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct look seen = {0};
	struct target *t;
	int status;

	begin(h);
	tell(h, "chain 50 100", "begun");
	for (int i = 0; i < 1000; i++) {
		if (target_open(h->pid, &t, &e))
			fail_msg("%d: %s", i, e.text);
		do {
			dinst_error_clear(&e);
			status = target_stop(t, NULL, look, &seen, NULL, &e);
		} while (status == DINST_BUSY);
		if (status)
			fail_msg("%d: %s", i, e.text);
		target_close(t);
	}
	assert_int_equal(seen.awake, 0);
	assert_true(seen.threads > 20 * 1000);
	assert_true(stop(h) > 50);
	end(h);
}

/*
 * fear A1: the same by a hundred whole sessions: an arena, points and code come and go under the
 * births, and each time the code has run before it goes.
 */
static void test_thready_sessions(void **state)
{
	struct harness *h = *state;

	begin(h);
	tell(h, "chain 50 100", "begun");
	for (int i = 0; i < 100; i++) {
		struct session *s = session_begin(h);
		unsigned id = session_insert_kind(s, i % 2 ? "outer" : "/Code/life-threads/*",
						  i % 3 ? POINT_ENTRY : POINT_EXIT);

		harness_until(session_value(s, id) > 0);
		session_end(s);
	}
	assert_true(stop(h) > 50);
	end(h);
}

/*
 * Stops a target for LIFE_MS (2.5 s) and `least` times, whose 64 threads are in
 * signal-delivery-stops nearly all the time; then takes code in and out.
 */
static void stop_all_the_time(struct harness *h, const char *what, int least)
{
	const uint64_t ms = harness_setting("LIFE_MS", 2500), until = now_ms() + ms;
	struct dinst_error e = {0};
	struct look seen = {0};
	struct session *s;
	unsigned id = 0;
	int stops = 0;

	harness_limit(HARNESS_SECONDS + (unsigned)ms / 1000);
	begin(h);
	tell(h, what, "begun");
	s = session_begin(h);
	while (now_ms() < until || stops < least) {
		dinst_error_clear(&e);
		if (!target_stop(s->target, NULL, look, &seen, NULL, &e))
			stops++;
		else if (e.code != DINST_BUSY)
			fail_msg("%d: %s", stops, e.text);
	}
	assert_int_equal(seen.awake, 0);
	assert_true(seen.threads >= 64 * (size_t)stops);
	for (int i = 0; i < 10; i++) {
		if (id)
			session_remove(s, id);
		id = session_insert(s, "/Code/life-threads/*");
		session_flush_all(s);
	}
	harness_until(session_value(s, id) > 0);
	session_end(s);
	assert_int_equal(stop(h), 64);
	print_message("%d stops; the target: %s\n", stops, h->line);
	end(h);
}

/*
 * fear A2, A4: 64 threads that are in signal-delivery-stops nearly all the time, since each sends to
 * the next as fast as it can: everybody goes on after each of at least fifty stops, and no signal is
 * lost, doubled or out of order.
 */
static void test_ring_of_signals(void **state)
{
	stop_all_the_time(*state, "ring 64", 50);
}

/*
 * fear A2, A5: the same with 64 threads that all run into breakpoints of the program's own as fast as
 * its handler lets them (hostile/longer.sh: for a minute): each is handled once, as the processor's.
 */
static void test_breakpoints(void **state)
{
	stop_all_the_time(*state, "traps 64", 10);
}

/* ------------------------------------------------------------------- exact */

/*
 * fear D7: a hundred thousand threads of one call each: none is missed, none leaves a record, a
 * running timer or an activation behind, and sums are exact.
 */
static void test_hundred_thousand(void **state)
{
	enum { THREADS = 100000 };
	struct harness *h = *state;
	struct threads_statistics found;
	const struct instance *calls, *active, *wall;
	struct variable_value v = {0};
	struct dinst_error e = {0};
	struct session *s;
	uint64_t begun;

	begin(h);
	s = session_begin(h);
	calls = insert(s, "calls", "leaf");
	active = insert(s, "active", "outer");
	wall = insert(s, "wall_inclusive", "outer");
	begun = clock_ns();
	tell(h, "short 100000", "done");
	begun = clock_ns() - begun;
	assert_int_equal(instance_value(calls), 3 * THREADS);
	assert_int_equal(instance_value(active), 0);
	assert_int_equal(instance_read(wall, 0, &v, &e), 0);
	assert_true(v.value > 0 && (uint64_t)v.value < 8 * begun);
	variable_value_release(&v);
	threads_statistics(s, &found);
	assert_int_equal(found.lost, 0);
	assert_int_equal(found.overflow, 0);
	assert_int_equal(found.orphans, 0);
	assert_in_range(found.used, 1, 256);
	session_end(s);
	end(h);
}

/* fear D8: 64 threads count at one place at the same time, exactly, in each kind of variable. */
static void test_sixty_four(void **state)
{
	enum { THREADS = 64, CALLS = 20000 };
	struct harness *h = *state;
	const struct instance *calls, *latency, *active;
	struct variable_value v = {0};
	struct dinst_error e = {0};
	struct session *s;

	begin(h);
	s = session_begin(h);
	calls = insert(s, "calls", "leaf");
	latency = insert(s, "latency", "outer");
	active = insert(s, "active", "leaf");
	tell(h, "work 64 20000", "done");
	assert_int_equal(instance_value(calls), 3ull * THREADS * CALLS);
	assert_int_equal(instance_value(active), 0);
	assert_int_equal(instance_read(latency, 0, &v, &e), 0);
	assert_int_equal(v.count, (uint64_t)THREADS * CALLS);
	variable_value_release(&v);
	session_end(s);
	end(h);
}

/* ------------------------------------------------------------------- crowd */

/*
 * fear G9, A1: two thousand threads wait, others are born and die beside them: points go in and out,
 * what has per-thread state finds all that are inside, and detach leaves nothing.
 */
static void test_crowd(void **state)
{
	struct harness *h = *state;
	const struct instance *waiting;
	const long threads = 2000;
	struct session *s;
	uint64_t before;
	unsigned id;

	harness_limit(600);
	begin(h);
	tell(h, "crowd 2000", "begun");
	s = session_begin(h);
	id = session_insert(s, "leaf");
	waiting = insert(s, "active", "wait_here");
	assert_int_equal(waiting->unwalked, 0);
	assert_int_equal(instance_value(waiting), threads);
	before = session_value(s, id);
	harness_until(session_value(s, id) > before);
	for (int i = 0; i < 3; i++) {
		session_remove(s, session_insert_kind(s, "/Code/life-threads/*", POINT_EXIT));
		session_flush_all(s);
	}
	session_end(s);
	assert_true(stop(h) > threads);
	end(h);
}

/* fear G9, I3: the target may make no thread any more: nothing of ours needs one in it. */
static void test_no_more_threads(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned before, id;
	long made = 0;

	begin(h);
	s = session_begin(h);
	before = session_insert(s, "wait_here");
	harness_send(h, "exhaust\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "done %ld", &made), 1);
	assert_in_range(made, 1, 199);
	id = session_insert(s, "leaf");
	session_insert_kind(s, "/Code/libc.so.6/pthread_*", POINT_EXIT);
	assert_int_equal(session_value(s, before), made);
	assert_int_equal(stop(h), made);
	assert_int_equal(session_value(s, id), 0);
	session_end(s);
	end(h);
}

/* ------------------------------------------------------- nothing to be read */

static int catch_up(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct threads_function function = {.id = 1, .start = 1, .end = 2, .fresh = true};
	size_t threads, unwalked;

	return threads_catch_up(arg, stop, &function, 1, NULL, 0, &threads, &unwalked, e);
}

/*
 * fear A13, G1: a process of the family is killed in the stop in which it is caught up with, as by the
 * kernel when memory runs out: its state cannot be read any more, and the request fails. Here a process
 * that never had it stands for that one.
 */
static void test_state_that_is_gone(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *other;
	struct session *s;
	pid_t pid;

	begin(h);
	s = session_begin(h);
	insert(s, "active", "outer");
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	assert_int_equal(target_open(pid, &other, &e), 0);
	assert_int_equal(target_stop(other, NULL, catch_up, s, NULL, &e), DINST_FAILED);
	assert_non_null(strstr(e.text, "cannot be read"));
	target_close(other);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	session_end(s);
	end(h);
}

/*
 * fear G9, D7: more threads than there are records have come and gone, each with memory of its own: the
 * mutator sees by itself that some went without one, and those that come are measured again
 */
static void test_records_run_out(void **state)
{
	struct harness *h = *state;
	int64_t before, new = 0;
	unsigned id;

	begin(h);
	mdl_attach(h, NULL);
	id = mdl_insert(h, "latency", "outer");
	tell(h, "fresh 4500", "done");
	for (int i = 0; i < 40 && new != 10; i++) {
		usleep(250000);
		before = mdl_field(h, id, "count");
		tell(h, "fresh 10", "done");
		new = mdl_field(h, id, "count") - before;
	}
	assert_int_equal(new, 10);
	assert_int_equal(harness_dinst(h, NULL, "detach", harness_number(h->pid)), 0);
	end(h);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

/* life_threads [CASES]: those whose names it fits */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(test_thready_thousand_stops),
		CASE(test_thready_sessions),
		CASE(test_ring_of_signals),
		CASE(test_breakpoints),
		CASE(test_hundred_thousand),
		CASE(test_sixty_four),
		CASE(test_crowd),
		CASE(test_no_more_threads),
		CASE(test_records_run_out),
		CASE(test_state_that_is_gone),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/life_threads", tests, NULL, NULL);
}
