/* SPDX-License-Identifier: MIT */
/*
 * ending.c - targets that end, are killed, stopped or continued at any moment of
 * what we do to them, and targets with stacks of their own making.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/proc.h"
#include "tests/live/harness_session.h"

/* ------------------------------------------------------------- the end */

/*
 * Inserts and removes until the target is gone; fails at any other answer but busy. Returns how
 * often all of it went well.
 */
static unsigned churn_until_gone(struct session *s)
{
	static const char *const foci[] = {"/Code/calls/*", "many", "/Code/libc.so.6/pthread_*"};

	unsigned flushes = 0;

	for (int turn = 0;; turn++) {
		struct dinst_error e = {0};
		struct flush_result flushed;
		unsigned id;
		int status = session_try_insert_kind(s, foci[turn % 3],
						     turn % 2 ? POINT_ENTRY : POINT_EXIT, &id, &e);

		if (status >= 0)
			status = removal_remove(s, session_instance(s, id), &flushed, &e);
		if (status >= 0)
			status = removal_flush(s, &flushed, &e);
		if (status == DINST_GONE)
			return flushes;
		flushes += status >= 0;
		if (status < 0 && status != DINST_BUSY)
			fail_msg("%s (%s)", e.text, dinst_code_name(e.code));
	}
}

/* A process that does something to the target after a while. */
static pid_t start_helper(struct harness *h, unsigned delay_us, int sig)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	usleep(delay_us);
	_exit(sig && kill(h->pid, sig) != 0);
}

/* fear G7: killed at random moments of a stream of requests; the last values are there */
static void test_killed(void **state)
{
	enum { TURNS = 25 };
	struct harness *h = *state;
	unsigned short seed[3] = {1, 2, 3};
	unsigned spread = 60000, flushes = 0;

	for (int turn = 0; turn < TURNS; turn++) {
		struct detach_result detached;
		struct dinst_error e = {0};
		struct session *s;
		unsigned kept, now;
		pid_t helper;

		harness_start(h, "calls", "4", NULL);
		s = session_begin(h);
		kept = session_insert(s, "tiny");
		session_go(h, 100);
		harness_send(h, "go 100000000\n");
		helper = start_helper(h, (unsigned)nrand48(seed) % spread, SIGKILL);
		now = churn_until_gone(s);
		flushes += now;
		/* A slow machine has not come so far that anything was taken out again. */
		if (!now)
			spread *= 2;
		assert_int_equal(waitpid(helper, NULL, 0), helper);
		/* The last values are there. */
		assert_true(session_value(s, kept) >= 400);
		if (session_detach(s, 100, &detached, &e) < 0)
			fail_msg("detach: %s", e.text);
		assert_int_equal(detached.left, 0);
		session_free(s);
		/* It died of that signal, and not of us. */
		assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS), SIGKILL);
		harness_kill(h);
	}
	assert_true(flushes > 5);
}

/* The code at which the target is killed when it is written to; 0: none. */
static taddr_t fatal;

int __real_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e);
int __wrap_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e);

int __wrap_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e)
{
	const pid_t pid = target_pid(stop_target(s));
	struct proc_stat stat;
	pid_t with_memory;

	if (fatal && address / 4096 == fatal / 4096) {
		kill(pid, SIGKILL);
		harness_until(!proc_memory_look(pid, &stat, &with_memory) && !with_memory);
	}
	return __real_stop_write(s, address, from, size, e);
}

/* fear G7, B3: killed just before its code is written to: that is said, and not that it cannot be written */
static void test_killed_before_a_write(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct session *s;
	size_t count;
	unsigned id;

	harness_start(h, "calls", "4", NULL);
	s = session_begin(h);
	session_remove(s, session_insert(s, "tiny"));
	fatal = session_address(s, "many");
	assert_int_equal(session_try_insert(s, "many", false, &count, &id, &e), DINST_GONE);
	fatal = 0;
	session_free(s);
	assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS), SIGKILL);
}

/* fear G7: the program ends by itself while points come and go; the last values are exact */
static void test_ends_by_itself(void **state)
{
	enum { TURNS = 15 };
	struct harness *h = *state;
	unsigned short seed[3] = {4, 5, 6};
	unsigned long rounds;
	unsigned flushes = 0;
	char go[32];

	for (int turn = 0; turn < TURNS; turn++) {
		struct session *s;
		unsigned kept;
		int status;

		harness_start(h, "calls", "4", NULL);
		s = session_begin(h);
		kept = session_insert(s, "tiny");
		session_insert(s, "/Code/libc.so.6/*exit*");
		rounds = 20000 + (unsigned long)nrand48(seed) % 200000;
		snprintf(go, sizeof(go), "go %lu\n", rounds);
		harness_send(h, go);
		/* It sees the end of its input and goes when its threads have done that, while we go on. */
		close(h->input);
		h->input = -1;
		flushes += churn_until_gone(s);
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
		status = harness_wait(h, HARNESS_ANSWER_MS);
		assert_int_equal(status, 0);
		assert_int_equal(session_value(s, kept), 4 * rounds);
		session_free(s);
	}
	assert_true(flushes > 5);
}

/* ---------------------------------------------------------- job control */

/* In a process of its own: stops and continues the target for two seconds. */
static void stop_and_continue(pid_t pid)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < 200; i++) {
		kill(pid, SIGSTOP);
		usleep(4000);
		kill(pid, SIGCONT);
		usleep(6000);
	}
	_exit(0);
}

/* fear A3: stopped and continued all the time while points come and go; counts are exact */
static void test_stopped_and_continued(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned kept;
	unsigned rounds = 1;
	pid_t helper;

	harness_start(h, "calls", "4", NULL);
	s = session_begin(h);
	kept = session_insert(s, "tiny");
	harness_send(h, "go 1000000\n");
	fflush(NULL);
	helper = fork();
	if (helper == 0)
		stop_and_continue(h->pid);
	while (waitpid(helper, NULL, WNOHANG) == 0) {
		session_remove(s, session_insert_kind(s, "/Code/calls/*", POINT_ENTRY));
		session_remove(s, session_insert_kind(s, "many", POINT_EXIT));
		session_flush_all(s);
		rounds += harness_again(h, "go 1000000\n");
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_int_equal(session_value(s, kept), rounds * 4 * 1000000ull);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* --------------------------------------------------------------- fibers */

/* fear H5, C2: fibers stand still in frames that are instrumented after and removed before they go on */
static void test_fibers(void **state)
{
	struct harness *h = *state;
	unsigned ids[3], kept;
	struct session *s;

	harness_start(h, "fibers", "3", NULL);
	s = session_begin(h);
	kept = session_insert(s, "deeper");
	for (int turn = 0; turn < 20; turn++) {
		for (int kind = POINT_ENTRY; kind <= POINT_CALL; kind++)
			ids[kind] = session_insert_kind(s, "/Code/fibers/*", (enum point_kind)kind);
		if (turn & 1)
			session_go(h, 7);
		for (int kind = POINT_ENTRY; kind <= POINT_CALL; kind++)
			session_remove(s, ids[kind]);
		session_flush_all(s);
		session_go(h, 3);
	}
	assert_int_equal(session_value(s, kept), 3 * 16 * (20 * 3 + 10 * 7));
	harness_send(h, "go 100000\n");
	for (int turn = 0; turn < 30; turn++) {
		ids[0] = session_insert_kind(s, "/Code/fibers/*", (enum point_kind)(turn % 3));
		ids[1] = session_insert_kind(s, "/Code/libc.so.6/*context*", POINT_ENTRY);
		session_remove(s, ids[0]);
		session_remove(s, ids[1]);
		session_flush_all(s);
		harness_again(h, "go 100000\n");
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_end(s);
	harness_verify(h);
	session_go(h, 10);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_killed),	   CASE(test_killed_before_a_write),
		CASE(test_ends_by_itself), CASE(test_stopped_and_continued),
		CASE(test_fibers),
	};

	return cmocka_run_group_tests_name("live/ending", tests, NULL, NULL);
}
