/* SPDX-License-Identifier: MIT */
/*
 * unwind.c - C++ exceptions, longjmp, pthread_exit, pthread_cancel, backtrace()
 * and gdb on a program whose functions are instrumented at entry, exit and call
 * sites: the stack is the target's own, always.
 */
#include <signal.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

enum { THREADS = 4 };

static unsigned next_static;

static void ask(struct harness *h, const char *command, const char *answer)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

/* The next of its static objects: each is made once. */
static void ask_static(struct harness *h)
{
	char command[32];

	snprintf(command, sizeof(command), "static %u", next_static++);
	ask(h, command, "done");
}

static struct session *begin(struct harness *h)
{
	next_static = 0;
	harness_start(h, "throws", harness_number(THREADS), NULL);
	return session_begin(h);
}

static void insert_all(struct session *s, unsigned ids[3])
{
	for (int kind = POINT_ENTRY; kind <= POINT_CALL; kind++)
		ids[kind] = session_insert_kind(s, "/Code/throws/*", (enum point_kind)kind);
}

/* Functions of the program, the C++ library, the unwinder and libc that a throw goes through. */
static void insert_unwinder(struct session *s)
{
	static const char *const foci[] = {"/Code/libstdc++.so.6/*throw*",
					   "/Code/libstdc++.so.6/__cxa_*", "/Code/libgcc_s.so.1/*",
					   "/Code/libc.so.6/*longjmp*",
					   "/Code/libc.so.6/pthread_*"};
	unsigned inserted = 0;

	for (size_t i = 0; i < sizeof(foci) / sizeof(foci[0]); i++)
		for (int kind = POINT_ENTRY; kind <= POINT_CALL; kind++) {
			struct dinst_error e = {0};
			unsigned id;
			int status =
				session_try_insert_kind(s, foci[i], (enum point_kind)kind, &id, &e);

			if (status < 0 && status != DINST_REFUSED && status != DINST_NO_FUNCTION &&
			    status != DINST_BUSY)
				fail_msg("%s: %s", foci[i], e.text);
			inserted += status >= 0;
		}
	/* Those of C++ at least: not all that libc has can be seen everywhere. */
	assert_true(inserted >= 6);
}

/*
 * Each kind of point alone, blocks and instructions too, then entries, exits and calls together;
 * entries are exact though most are never left.
 */
/*
 * fear E1, E2, E3: exceptions caught in the same and next frame, far away, thrown again, out of
 * noexcept; through C that cleans up, out of the making of a static object that others wait for;
 * longjmp, pthread_exit, pthread_cancel
 */
static void test_throw_through(void **state)
{
	enum { ROUNDS = 300 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned ids[3], throwers, passings, exits, narrows[2];

	for (int kind = POINT_ENTRY; kind <= POINT_STORE; kind++) {
		ids[0] = session_insert_kind(s, "/Code/throws/*", (enum point_kind)kind);
		ask(h, "go 50", "done");
		ask_static(h);
		ask(h, "abort", "done");
		session_remove(s, ids[0]);
	}
	insert_all(s, ids);
	throwers = session_insert_kind(s, "thrower", POINT_ENTRY);
	exits = session_insert_kind(s, "next_frame", POINT_EXIT);
	passings = session_insert_kind(s, "passing", POINT_ENTRY);
	for (unsigned kind = POINT_ENTRY; kind <= POINT_EXIT; kind++)
		narrows[kind] = session_insert_kind(s, "narrow", (enum point_kind)kind);
	ask(h, "go 300", "done");
	assert_int_equal(session_value(s, narrows[POINT_ENTRY]), (uint64_t)THREADS * ROUNDS);
	assert_int_equal(session_value(s, narrows[POINT_EXIT]), 0);
	assert_int_equal(session_value(s, throwers), (uint64_t)THREADS * ROUNDS * 6);
	assert_int_equal(session_value(s, passings), (uint64_t)THREADS * ROUNDS * 7);
	assert_int_equal(session_value(s, exits), (uint64_t)THREADS * ROUNDS);
	ask_static(h);
	ask(h, "abort", "done");
	session_end(s);
	ask(h, "go 10", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* fear C11, E1: with the unwinder and the C++ library instrumented too */
static void test_instrumented_unwinder(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned ids[3];

	insert_all(s, ids);
	insert_unwinder(s);
	ask(h, "go 100", "done");
	for (int i = 0; i < 8; i++)
		ask_static(h);
	ask(h, "abort", "done");
	session_end(s);
	ask(h, "go 10", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* All in and out again and again while every thread throws. */
/* fear E1: all in and out again and again while every thread throws */
static void test_churn(void **state)
{
	enum { TURNS = 60 };
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned ids[3], kept = session_insert(s, "caught_again"), rounds = 1;
	static const char go[] = "go 4000\n";

	harness_send(h, go);
	for (int turn = 0; turn < TURNS; turn++) {
		insert_all(s, ids);
		for (int kind = 0; kind < 3; kind++)
			session_remove(s, ids[(kind + turn) % 3]);
		if (turn % 3 == 0)
			session_flush_all(s);
		rounds += harness_again(h, go);
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_int_equal(session_value(s, kept), (uint64_t)rounds * THREADS * 4000);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* backtrace() gives the same return addresses with everything instrumented as without. */
/*
 * fear E2, E6: backtrace(3) gives the same addresses with all instrumented, the unwinder included
 */
static void test_backtrace_is_equal(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	char before[4096];
	unsigned ids[3];

	harness_send(h, "trace\n");
	snprintf(before, sizeof(before), "%s", harness_line(h, HARNESS_ANSWER_MS));
	assert_true(strlen(before) > 80);
	insert_all(s, ids);
	ask(h, "trace", before);
	insert_unwinder(s);
	ask(h, "trace", before);
	session_end(s);
	ask(h, "trace", before);
	harness_verify(h);
	harness_end(h, 0);
}

/* ---------------------------------------------------------- gdb beside us */

/* The function names of all threads' backtraces as gdb sees them. */
static void gdb_backtraces(struct harness *h, char *text, size_t size)
{
	char command[512];
	size_t used;
	FILE *gdb;

	snprintf(command, sizeof(command),
		 "gdb -nx -batch -p %d -ex 'set width 0' -ex 'thread apply all bt' 2>/dev/null "
		 "| grep '^#' | sed 's/^#[0-9]* *\\(0x[0-9a-f]* in\\)* *\\([^ ]*\\).*/\\2/'",
		 (int)h->pid);
	gdb = popen(command, "r");
	assert_non_null(gdb);
	used = fread(text, 1, size - 1, gdb);
	text[used] = '\0';
	pclose(gdb);
}

/* Every thread waits in the kernel, where it was going to. */
static bool all_asleep(pid_t pid)
{
	char path[64];
	struct dirent *entry;
	bool asleep = true;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (atoi(entry->d_name) > 0)
			asleep &= harness_status(pid, atoi(entry->d_name), "State:")[0] == 'S';
	if (dir)
		closedir(dir);
	return asleep;
}

/* fear A11, E6: gdb's backtraces of all threads are the same with everything instrumented */
static void test_gdb_beside_us(void **state)
{
	struct harness *h = *state;
	char before[8192], with[8192];
	struct session *s;
	unsigned ids[3];

	if (system("command -v gdb >/dev/null 2>&1") != 0) {
		print_message("SKIP gdb beside us: gdb is not installed\n");
		skip();
	}
	s = begin(h);
	ask(h, "sit", "sitting");
	harness_until(all_asleep(h->pid));
	gdb_backtraces(h, before, sizeof(before));
	assert_non_null(strstr(before, "sit_down"));
	ask(h, "stand", "done");
	insert_all(s, ids);
	ask(h, "sit", "sitting");
	harness_until(all_asleep(h->pid));
	gdb_backtraces(h, with, sizeof(with));
	assert_string_equal(before, with);
	/* gdb has come and gone: we go on. */
	session_remove(s, ids[0]);
	session_flush_all(s);
	ids[0] = session_insert_kind(s, "/Code/throws/*", POINT_ENTRY);
	gdb_backtraces(h, with, sizeof(with));
	assert_string_equal(before, with);
	ask(h, "stand", "done");
	ask(h, "go 10", "done");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* A process that traces `pid` until it is killed; returns when it does. */
static pid_t start_tracer(pid_t pid)
{
	char byte = 0;
	int ready[2];
	pid_t tracer;

	assert_int_equal(pipe(ready), 0);
	fflush(NULL);
	tracer = fork();
	if (tracer == 0) {
		thread_seize(pid);
		thread_continue(pid);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return tracer;
}

/* While another tracer holds a thread we say so, name it, and change nothing. */
/* fear A11: another tracer is named, and nothing is changed while it is there */
static void test_another_tracer(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = session_insert(s, "thrower"), other;
	struct dinst_error e = {0};
	size_t count;
	pid_t tracer = start_tracer(h->pid);

	session_try_insert(s, "next_frame", false, &count, &other, &e);
	if (e.code != DINST_TRACED)
		fail_msg("not told that it is traced: %s (%s)", e.text, dinst_code_name(e.code));
	assert_non_null(strstr(e.text, harness_number(tracer)));
	kill(tracer, SIGKILL);
	assert_int_equal(waitpid(tracer, NULL, 0), tracer);
	ask(h, "go 10", "done");
	assert_int_equal(session_value(s, id), THREADS * 10 * 6);
	other = session_insert(s, "next_frame");
	ask(h, "go 10", "done");
	assert_int_equal(session_value(s, other), THREADS * 10);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_throw_through), CASE(test_instrumented_unwinder),
		CASE(test_churn),	  CASE(test_backtrace_is_equal),
		CASE(test_gdb_beside_us), CASE(test_another_tracer),
	};

	return cmocka_run_group_tests_name("live/unwind", tests, NULL, NULL);
}
