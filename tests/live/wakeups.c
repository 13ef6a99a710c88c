/* SPDX-License-Identifier: MIT */
/*
 * wakeups.c - no wake-up is lost: sixteen pairs of threads pass tokens to and fro
 * by as many ways of waiting while the target is stopped, makes system calls for
 * us, is instrumented, detached with leftovers, taken over, and while those who do
 * so are killed. The target itself watches that every answer comes.
 *
 * WAKEUPS_MS: how long each case lasts.
 */
#include "tests/live/harness_session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/remote.h"
#include "tests/live/inject_help.h"

enum { PAIRS = 16, PAUSE_US = 3000, CLEAN_MS = 20000, STOPS_MIN = 20 };

static unsigned long case_ms(void)
{
	const char *text = getenv("WAKEUPS_MS");

	if (text)
		return strtoul(text, NULL, 10);
	return getenv("DINST_SHORT") ? 1500 : 5000;
}

static void pause_randomly(void)
{
	usleep((unsigned)random() % PAUSE_US);
}

static void begin(struct harness *h)
{
	harness_limit(HARNESS_SECONDS + (unsigned)case_ms() / 1000);
	harness_start(h, "wakeups", NULL);
}

/* Every pair has got on, and none waits for an answer now. */
static void finish(struct harness *h)
{
	unsigned long turns, all = 0;
	long longest, most = 0;
	char name[64];

	/* Pairs that wait are seen after 20 s. */
	harness_send(h, "end\n");
	for (int i = 0; i < PAIRS; i++) {
		const char *line = harness_line(h, HARNESS_ANSWER_MS);

		assert_int_equal(sscanf(line, "%63s %lu %ld", name, &turns, &longest), 3);
		assert_true(turns > 0);
		all += turns;
		most = longest > most ? longest : most;
	}
	print_message("%lu turns, the longest %ld ms\n", all, most);
	harness_end(h, 0);
}

/* ---------------------------------------------------------------- stops */

/* A program of three calls, by a thread that waits like as not. */
static int make_calls(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arch_remote_call calls[3] = {
		{.number = SYS_getpid}, {.number = SYS_getuid}, {.number = SYS_getppid}};
	struct arch_remote_program program = {.calls = calls, .count = 3};
	long results[3];

	(void)arg;
	return remote_run(s, &program, 0, NULL, NULL, NULL, results, e);
}

/* Plain stops, stops with remote calls, and stops that are given up at once. */
static int stop_somehow(struct target *t, struct dinst_error *e)
{
	static const struct stop_options at_once = {.deadline_us = 1, .tries = 1};
	const int way = (int)(random() % 3);

	return target_stop(t, way == 2 ? &at_once : NULL, way == 1 ? make_calls : help_nothing,
			   NULL, NULL, e);
}

/*
 * fear A6: epoll, poll, select, pipes, sockets, futexes, condition variables, semaphores and signals
 * that wake threads up: each answer comes, however often the threads are stopped or make calls for us
 */
static void test_stops(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	unsigned long stops = 0;
	struct target *t;
	uint64_t until;
	int code;

	begin(h);
	t = help_open(h->pid);
	until = clock_ns() + case_ms() * 1000000;
	while (clock_ns() < until || stops < STOPS_MIN) {
		code = stop_somehow(t, &e);
		if (code && code != DINST_BUSY)
			fail_msg("%s", e.text);
		dinst_error_clear(&e);
		pause_randomly();
		stops += !code;
	}
	target_close(t);
	print_message("%lu stops\n", stops);
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS);
	finish(h);
}

/* ------------------------------------------------------------- sessions */

static unsigned long inserted;

static void insert_somewhere(struct session *s)
{
	static const char *const foci[] = {"/Code/wakeups/*",		"/Code/libc.so.6/read",
					   "/Code/libc.so.6/*poll*",	"/Code/libc.so.6/epoll_*",
					   "/Code/libc.so.6/pthread_*", "/Code/libc.so.6/sem_*",
					   "/Code/libc.so.6/sig*",	"/Code/libc.so.6/accept",
					   "/Code/libc.so.6/futex_*",	"/Code/libc.so.6/select",
					   "/Code/libc.so.6/recv*",	"/Code/libc.so.6/write*"};
	const char *focus = foci[(size_t)random() % (sizeof(foci) / sizeof(foci[0]))];
	struct dinst_error e = {0};
	size_t count = 0;
	unsigned id = 0;
	int status;

	if (random() % 2)
		status = session_try_insert(s, focus, false, &count, &id, &e);
	else
		status = session_try_insert_kind(s, focus, POINT_EXIT, &id, &e);
	/* libc's own names are not all there without its debug information. */
	if (status < 0 && status != DINST_BUSY && status != DINST_NO_FUNCTION)
		fail_msg("%s: %s", focus, e.text);
	inserted += status >= 0;
	if (status >= 0 && id && random() % 2)
		session_remove(s, id);
}

/* Takes out what a dead one left, as the mutator does when it attaches. */
static void clean(pid_t pid)
{
	struct leftovers left = {0};
	struct dinst_error e = {0};
	struct target *t = help_open(pid);

	while (leftovers_clean(t, CLEAN_MS, &left, &e) == DINST_BUSY)
		dinst_error_clear(&e);
	if (e.code)
		fail_msg("cleaning: %s", e.text);
	target_close(t);
}

/* Attaches, inserts, removes, and detaches at once: what threads are in stays behind. Returns how much. */
static size_t session_once(pid_t pid)
{
	struct detach_result result = {0};
	struct dinst_error e = {0};
	struct session *s = NULL;
	int status = session_attach(pid, "test", &s, &e);

	if (status == DINST_BUSY)
		return 0;
	if (status < 0)
		fail_msg("attach: %s", e.text);
	for (long i = random() % 4; i >= 0; i--) {
		insert_somewhere(s);
		pause_randomly();
	}
	do {
		dinst_error_clear(&e);
		status = session_detach(s, 0, &result, &e);
	} while (status == DINST_BUSY);
	if (status < 0)
		fail_msg("detach: %s", e.text);
	session_free(s);
	return result.left;
}

/*
 * fear A6, J1: the same while sessions come and go that count the very functions that wait, and leave
 * pieces behind for the next one to clean
 */
static void test_sessions(void **state)
{
	struct harness *h = *state;
	unsigned long sessions = 0, leaving = 0;
	uint64_t until;

	begin(h);
	until = clock_ns() + case_ms() * 1000000;
	for (; clock_ns() < until || !inserted; sessions++) {
		leaving += session_once(h->pid) != 0;
		pause_randomly();
	}
	print_message("%lu sessions, %lu insertions, %lu left pieces\n", sessions, inserted,
		      leaving);
	session_end(session_begin(h));
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS);
	finish(h);
}

/* --------------------------------------------------------------- deaths */

/* In a process of its own, until it is killed: mostly in the middle of something. */
static void work_until_killed(pid_t pid)
{
	struct dinst_error e = {0};
	struct target *t = NULL;

	clean(pid);
	if (target_open(pid, &t, &e))
		_exit(1);
	for (;;) {
		for (long i = random() % 20; i >= 0; i--) {
			stop_somehow(t, &e);
			dinst_error_clear(&e);
		}
		session_once(pid);
	}
}

/*
 * fear A6, J2: the same while those who stop the program, make calls in it and instrument it are
 * killed at any moment, and the next one cleans
 */
static void test_deaths(void **state)
{
	struct harness *h = *state;
	unsigned long deaths = 0;
	uint64_t until;
	int status;

	begin(h);
	until = clock_ns() + case_ms() * 1000000;
	for (; clock_ns() < until || !deaths; deaths++) {
		pid_t worker = fork();

		assert_true(worker >= 0);
		if (!worker) {
			srandom((unsigned)deaths);
			work_until_killed(h->pid);
		}
		usleep(2000 + (unsigned)random() % 60000);
		kill(worker, SIGKILL);
		assert_int_equal(waitpid(worker, &status, 0), worker);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	print_message("%lu deaths\n", deaths);
	clean(h->pid);
	session_end(session_begin(h));
	harness_verify_what(h, HARNESS_TEXT | HARNESS_THREADS);
	finish(h);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_stops), CASE(test_sessions),
					   CASE(test_deaths)};

	return cmocka_run_group_tests_name("live/wakeups", tests, NULL, NULL);
}
