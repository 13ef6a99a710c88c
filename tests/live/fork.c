/* SPDX-License-Identifier: MIT */
/*
 * fork.c - targets that make other processes: the whole family counts into the
 * same counters, goes on when instrumentation comes and goes, and is given
 * everything back together.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/proc.h"
#include "tests/live/harness_session.h"
#include "tests/live/program_32.h"

static void ask(struct harness *h, const char *command)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

static struct session *begin(struct harness *h)
{
	harness_start(h, "forks", NULL);
	return session_begin(h);
}

static void end(struct harness *h, struct session *s)
{
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/* -------------------------------------------------------- exact counts */

/* fear G1: children and chains of children: exact counts of all together */
static void test_children_are_counted(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = session_insert(s, "hit");

	ask(h, "fork 8 50000");
	assert_int_equal(session_value(s, id), 9 * 50000);
	ask(h, "tree 5 10000");
	assert_int_equal(session_value(s, id), 9 * 50000 + 5 * 2 * 10000);
	end(h, s);
}

/* fear G8: a grandchild in a session of its own is counted */
static void test_a_daemon_is_counted(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = session_insert(s, "hit");

	ask(h, "daemon 100000");
	assert_int_equal(session_value(s, id), 100000);
	end(h, s);
}

/* Between fork and exec the child counts; behind exec it is another program. */
/*
 * fear G2, G3: children that fork, vfork or spawn, and then execute: counted up to there, unharmed
 */
static void test_exec_ends_it_for_the_child(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = session_insert(s, "hit");

	ask(h, "forkexec 50");
	assert_int_equal(session_value(s, id), 50);
	ask(h, "vfork 50");
	ask(h, "spawn 50");
	assert_int_equal(session_value(s, id), 50);
	end(h, s);
}

/* fear G1: a child checksums memory while the parent changes it, twenty times, as databases do */
static void test_saving_in_the_background(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = session_insert(s, "hit"), outer = session_insert(s, "hits");
	/* A round: 100 in the child; 2048 strides and 256 more in the parent. */
	const uint64_t round = 100 + 2048 + 256;

	ask(h, "save 20");
	assert_int_equal(session_value(s, id), 20 * round);
	assert_int_equal(session_value(s, outer), 20 * (1 + 256));
	end(h, s);
}

/* ------------------------------------------------- coming and going */

/* All functions of the program and of libc, in and out, while processes are made. */
static void churn(struct harness *h, const char *command)
{
	static const char *const foci[] = {"/Code/forks/*", "hit", "/Code/libc.so.6/*fork*",
					   "/Code/libc.so.6/*wait*", "/Code/libc.so.6/*spawn*"};
	enum { FOCI = sizeof(foci) / sizeof(foci[0]) };
	struct session *s = begin(h);
	unsigned ids[FOCI], done = 0;
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	for (int turn = 0; turn < 15; turn++) {
		unsigned count = 0;

		for (size_t f = 0; f < FOCI; f++) {
			struct dinst_error e = {0};
			/* A child that has our memory and runs, or waits: try again later. */
			int status = session_try_insert_kind(
				s, foci[f], turn & 1 ? POINT_ENTRY : POINT_EXIT, &ids[count], &e);

			if (status >= 0)
				count++;
			else if (status != DINST_BUSY)
				fail_msg("%s: %s", foci[f], e.text);
		}
		done += count;
		for (unsigned i = 0; i < count; i++)
			session_remove(s, ids[i]);
		for (int i = 0; i < 200 && s->queue_length; i++) {
			struct dinst_error e = {0};
			struct flush_result flushed;

			if (removal_flush(s, &flushed, &e) < 0 && e.code != DINST_BUSY)
				fail_msg("flush: %s", e.text);
			usleep(500);
		}
		harness_again(h, text);
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	print_message("%u of %d requests met nobody who cannot be stopped\n", done, 15 * FOCI);
	assert_true(done > 0);
	end(h, s);
}

/* fear G1: points of everything come and go while a hundred processes are forked */
static void test_churn_with_forks(void **state)
{
	churn(*state, "fork 100 20000");
}

static void test_churn_with_saves(void **state)
{
	churn(*state, "save 60");
}

/* fear G2: the same with 300 vforks */
static void test_churn_with_vforks(void **state)
{
	churn(*state, "vfork 300");
}

/* fear G2: the same with 300 calls of posix_spawn */
static void test_churn_with_spawns(void **state)
{
	churn(*state, "spawn 300");
}

/*
 * fear G3: children execute while they are being stopped, again and again: they are members no more, and no
 * reason to give up what was asked for
 */
static void test_executions_in_our_stops(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id;

	harness_send(h, "forkexec 100\n");
	for (int turn = 0; turn < 800; turn++) {
		struct dinst_error e = {0};
		struct flush_result flushed;

		id = session_insert(s, "hit");
		session_remove(s, id);
		if (removal_flush(s, &flushed, &e) < 0 && e.code != DINST_BUSY)
			fail_msg("flush: %s", e.text);
		harness_again(h, "forkexec 100\n");
	}
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	end(h, s);
}

/* fear G3: the same with 300 children that execute: in the middle of our stop, too */
static void test_churn_with_executions(void **state)
{
	churn(*state, "forkexec 300");
}

/*
 * fear G2: all of libc is instrumented, posix_spawn and vfork too, while the program starts others by
 * them, which count until they execute, and are unharmed
 */
static void test_all_of_libc(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id, spawns;

	for (int kind = POINT_ENTRY; kind <= POINT_EXIT; kind++)
		session_insert_kind(s, "/Code/libc.so.6/*", (enum point_kind)kind);
	id = session_insert(s, "hit");
	spawns = session_insert(s, "/Code/libc.so.6/posix_spawn");
	ask(h, "spawn 60");
	ask(h, "vfork 60");
	ask(h, "forkexec 20");
	ask(h, "fork 2 500");
	assert_int_equal(session_value(s, id), 20 + 3 * 500);
	assert_int_equal(session_value(s, spawns), 60);
	end(h, s);
}

static pid_t linger(struct harness *h)
{
	pid_t child = 0;

	harness_send(h, "linger\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "child %d", &child), 1);
	return child;
}

static unsigned long child_hits(struct harness *h)
{
	harness_send(h, "count\n");
	return strtoul(harness_line(h, HARNESS_ANSWER_MS), NULL, 10);
}

static void unlinger(struct harness *h)
{
	harness_send(h, "unlinger\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 7");
}

/* Its text is the file's. */
static void expect_text(pid_t child)
{
	struct harness_snapshot *now = harness_snapshot_take(child);
	char text[4096];

	assert_non_null(now);
	if (harness_differences(now, HARNESS_TEXT, text, sizeof(text)))
		fail_msg("the child is not restored:\n%s", text);
	harness_snapshot_free(now);
}

/*
 * Nobody traces or holds it either, and it has no descriptor of ours: what a snapshot that is
 * taken only now cannot tell.
 */
static void expect_restored(pid_t child)
{
	char text[128];

	expect_text(child);
	assert_string_equal(harness_status(child, child, "TracerPid:"), "0");
	if (!strchr("RS", harness_status(child, child, "State:")[0]))
		fail_msg("the child is %s", harness_status(child, child, "State:"));
	snprintf(text, sizeof(text), "ls -l /proc/%d/fd | grep -q memfd:dinst", (int)child);
	assert_int_not_equal(system(text), 0);
}

/* CPU time that a process has used, in ticks of the clock. */
static uint64_t cpu_ticks(pid_t pid)
{
	struct proc_stat stat = {0};

	return proc_stat_read(pid, &stat) ? 0 : stat.user_ticks + stat.system_ticks;
}

/* What was inserted before the fork is taken out of the child as well. */
/* fear G1, G8: what was inserted before a fork is taken out of the child, which goes on */
static void test_child_is_restored(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	uint64_t value;
	unsigned id, outer;
	char text[128];
	pid_t child;

	id = session_insert(s, "hit");
	outer = session_insert(s, "hits");
	child = linger(h);
	harness_until(session_value(s, id) > 0);
	/* One is removed while the child calls it, the other one counts on. */
	session_remove(s, id);
	session_flush_all(s);
	value = session_value(s, outer);
	harness_until(session_value(s, outer) > value);
	/* Now everything, and the child is as its parent is. */
	session_end(s);
	harness_verify(h);
	expect_restored(child);
	snprintf(text, sizeof(text), "grep -q memfd:dinst /proc/%d/maps", (int)child);
	assert_int_not_equal(system(text), 0);
	value = child_hits(h);
	harness_until(child_hits(h) > value);
	unlinger(h);
	harness_end(h, 0);
}

/* A child that is stopped by job control stays so, and does not keep the family from anything. */
/* fear A3, G1: a child that is stopped stays so, and keeps nobody from anything */
static void test_stopped_child(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = session_insert(s, "hit"), outer;
	pid_t child = linger(h);
	int answer = DINST_BUSY;

	harness_until(child_hits(h) > 0);
	kill(child, SIGSTOP);
	harness_until(harness_status(child, child, "State:")[0] == 'T');
	/* The parent is instrumented and makes children as ever. */
	outer = session_insert(s, "hits");
	assert_int_equal(session_pending(s, outer), 0);
	ask(h, "fork 1 100");
	assert_int_equal(session_value(s, outer), 2);
	session_remove(s, id);
	for (int i = 0; i < 200; i++) {
		struct dinst_error e = {0};
		struct flush_result flushed;

		answer = removal_flush(s, &flushed, &e);
		if (answer >= 0)
			break;
		if (e.code != DINST_BUSY)
			fail_msg("flush: %s", e.text);
		usleep(1000);
	}
	/* Not "try again" for as long as it is stopped: what it jumps through is taken out at once. */
	assert_true(answer >= 0);
	expect_text(child);
	/* Letting go of a stopped process makes it look runnable until it has stopped again. */
	harness_until(harness_status(child, child, "State:")[0] == 'T');
	/* It may have been stopped inside a trampoline: then it is waited for. */
	kill(child, SIGCONT);
	session_flush_all(s);
	session_end(s);
	harness_verify(h);
	unlinger(h);
	harness_end(h, 0);
}

/* The process has ended, or is another program now. */
static void detach_gone(struct session *s)
{
	struct detach_result detached;
	struct dinst_error e = {0};

	if (session_detach(s, 100, &detached, &e) < 0)
		fail_msg("detach: %s", e.text);
	assert_int_equal(detached.left, 0);
	session_free(s);
}

/* fear G8: the parent ends first; the child counts on and is given everything back */
static void test_orphan(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	unsigned id = session_insert(s, "hit");
	char command[128];
	uint64_t value, steps;
	pid_t child = linger(h);
	int status = 0;

	harness_end(h, 0);
	value = session_value(s, id);
	harness_until(session_value(s, id) > value);
	detach_gone(s);
	snprintf(command, sizeof(command), "grep -q memfd:dinst /proc/%d/maps", (int)child);
	assert_int_not_equal(system(command), 0);
	expect_restored(child);
	/* It is ours by now. Where it was led astray it would have died of it in that time. */
	steps = cpu_ticks(child);
	harness_until(waitpid(child, &status, WNOHANG) || cpu_ticks(child) > steps + 2);
	assert_int_equal(status, 0);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ------------------------------------------------------ files of members */

/* A program that nobody else runs or opens. */
static void copy_program(const struct harness *h, char *path, size_t size)
{
	const int from = open(harness_path("tests/live/targets/forks"), O_RDONLY | O_CLOEXEC);
	struct stat file;
	int to;

	snprintf(path, size, "%s/forks", h->directory);
	to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
	assert_true(from >= 0 && to >= 0);
	assert_int_equal(fstat(from, &file), 0);
	assert_int_equal(sendfile(to, from, NULL, (size_t)file.st_size), file.st_size);
	close(to);
	close(from);
}

/*
 * fear K2: in a stop of a family nobody opens the program that its members run: where that is of a file system that
 * a program or a server provides, the family would stand still for as long as those take
 */
static void test_program_is_not_opened(void **state)
{
	struct harness *h = *state;
	char path[128], events[4096];
	const char *argv[] = {path, NULL};
	struct session *s;
	unsigned id;
	int watch;

	copy_program(h, path, sizeof(path));
	harness_start_argv(h, argv, true);
	s = session_begin(h);
	id = session_insert(s, "hit");
	for (int i = 0; i < 3; i++) {
		harness_send(h, "linger\n");
		assert_int_equal(strncmp(harness_line(h, HARNESS_ANSWER_MS), "child ", 6), 0);
	}
	watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	assert_true(watch >= 0);
	assert_true(inotify_add_watch(watch, path, IN_OPEN) >= 0);
	session_remove(s, id);
	session_flush_all(s);
	assert_int_equal(read(watch, events, sizeof(events)), -1);
	/* ... and who does is seen. */
	close(open(path, O_RDONLY | O_CLOEXEC));
	assert_true(read(watch, events, sizeof(events)) > 0);
	close(watch);
	session_end(s);
	harness_kill(h);
	unlink(path);
}

/* ---------------------------------------------------------------- exec */

/* fear G3: after an exec the old session says so, keeps its values, and a new one works */
static void test_target_executes_another_program(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct dinst_error e = {0};
	unsigned id = session_insert(s, "hit"), other;
	size_t count;

	ask(h, "fork 1 1000");
	harness_send(h, "exec\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	assert_int_equal(session_try_insert(s, "hits", false, &count, &other, &e), DINST_GONE);
	assert_int_equal(session_value(s, id), 2000);
	detach_gone(s);
	/* A new session with the new program. */
	harness_snapshot_free(h->before);
	h->before = harness_snapshot_take(h->pid);
	s = session_begin(h);
	id = session_insert(s, "hit");
	ask(h, "fork 3 1000");
	assert_int_equal(session_value(s, id), 4000);
	end(h, s);
}

/* fear G3: an execve() that fails changes nothing, three times, and timers go on; one that does not ends it */
static void test_executions_that_fail(void **state)
{
	struct harness *h = *state;
	struct session *s = begin(h);
	struct dinst_error e = {0};
	unsigned id = session_insert(s, "hit"), other;
	unsigned timer = session_insert_metric(s, "wall_inclusive", "command", NULL)->id;
	uint64_t before, last;
	size_t count;

	ask(h, "fork 1 1000");
	ask(h, "execfail");
	before = session_value(s, timer);
	assert_true(before > 0);
	ask(h, "execfail");
	ask(h, "fork 1 1000");
	assert_int_equal(session_value(s, id), 4000);
	assert_true(session_value(s, timer) > before);
	session_remove(s, session_insert(s, "hits"));
	harness_send(h, "exec\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	assert_int_equal(session_try_insert(s, "hits", false, &count, &other, &e), DINST_GONE);
	assert_int_equal(session_value(s, id), 4000);
	last = session_value(s, timer);
	assert_true(last > before);
	usleep(20000);
	assert_int_equal(session_value(s, timer), last);
	detach_gone(s);
	harness_snapshot_free(h->before);
	h->before = harness_snapshot_take(h->pid);
	s = session_begin(h);
	id = session_insert(s, "hit");
	ask(h, "execfail");
	ask(h, "fork 3 1000");
	assert_int_equal(session_value(s, id), 4000);
	end(h, s);
}

/* True once it waits, as another program. */
static bool waits_as(pid_t pid, const char *program)
{
	char path[64], exe[4096] = "";
	struct proc_stat stat;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return readlink(path, exe, sizeof(exe) - 1) > 0 && !strcmp(exe, program) &&
	       !proc_stat_read(pid, &stat) && stat.state == 'S';
}

/* fear G3, H4: after an exec of a program of 32 bits, too, the session says so, and can be detached */
static void test_target_executes_32_bits(void **state)
{
	char path[] = "/tmp/dinst-32-XXXXXX", command[64];
	int fd = mkstemp(path);
	struct harness *h = *state;
	struct session *s = begin(h);
	struct dinst_error e = {0};
	unsigned id = session_insert(s, "hit"), other;
	bool runs;
	size_t count;

	assert_true(fd >= 0);
	close(fd);
	write_32_bit_program(path);
	ask(h, "fork 1 1000");
	snprintf(command, sizeof(command), "execute %s\n", path);
	harness_send(h, command);
	for (int i = 0; !(runs = waits_as(h->pid, path)) && i < 10000; i++)
		usleep(1000);
	unlink(path);
	if (!runs) {
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
		session_end(s);
		print_message("skipped: no 32-bit programs here\n");
		skip();
	}
	assert_int_equal(session_try_insert(s, "hits", false, &count, &other, &e), DINST_GONE);
	assert_non_null(strstr(e.text, "has executed another program"));
	assert_int_equal(session_value(s, id), 2000);
	detach_gone(s);
	snprintf(command, sizeof(command), "%s (deleted)", path);
	harness_until(waits_as(h->pid, command));
	harness_kill(h);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

/* fork [CASES]: those whose names it fits */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(test_children_are_counted),
		CASE(test_a_daemon_is_counted),
		CASE(test_exec_ends_it_for_the_child),
		CASE(test_saving_in_the_background),
		CASE(test_churn_with_forks),
		CASE(test_churn_with_saves),
		CASE(test_churn_with_vforks),
		CASE(test_churn_with_spawns),
		CASE(test_churn_with_executions),
		CASE(test_executions_in_our_stops),
		CASE(test_all_of_libc),
		CASE(test_child_is_restored),
		CASE(test_stopped_child),
		CASE(test_orphan),
		CASE(test_program_is_not_opened),
		CASE(test_target_executes_another_program),
		CASE(test_executions_that_fail),
		CASE(test_target_executes_32_bits),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/fork", tests, NULL, NULL);
}
