/* SPDX-License-Identifier: MIT */
/*
 * stop_register.c - code that does not load a timeout before each call: what a stop has written into
 * the register for the call that it cut short stays there for the calls that follow. And code that does, and
 * asks by chance for just that.
 */
#include "tests/live/harness_thread.h"
#include "tests/live/inject_help.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of each call, in ms; stops that follow each other are in the same one. */
enum { TIMEOUT = 400, BETWEEN_US = 50000, TRIES = 100, FAILS_MS = 100 };

/* Another thread of the target is in an uninterruptible sleep: a stop that fails, while nobody stands still. */
static int fail_to_stop(struct target *t)
{
	const struct stop_options once = {.deadline_us = 1000 * FAILS_MS, .tries = 1};
	struct dinst_error e = {0};

	assert_int_equal(target_stop(t, &once, help_nothing, NULL, NULL, &e), DINST_BUSY);
	assert_non_null(strstr(e.text, "state D"));
	return 1;
}

/* ... since a thread of it is traced by another thread of ours. */
static int fail_to_seize(struct target *t)
{
	const struct stop_options once = {.tries = 1};
	struct dinst_error e = {0};

	assert_int_equal(target_stop(t, &once, help_nothing, NULL, NULL, &e), DINST_BUSY);
	assert_non_null(strstr(e.text, "another stop of ours"));
	return 1;
}

static void ask(struct harness *h, long *timeout, unsigned long *calls)
{
	assert_int_equal(sscanf(help_ask(h, "tell"), "%ld %lu", timeout, calls), 2);
}

/* Stops, three in a call, until one has left what is left of it in the register. */
static void shorten(struct harness *h, struct target *t, long *timeout, long own)
{
	unsigned long calls, before;

	for (int i = 0; i < TRIES; i++) {
		for (int stop = 0; stop < 3; stop++) {
			help_stop_well(t, help_nothing, NULL);
			usleep(BETWEEN_US);
		}
		ask(h, timeout, &before);
		do {
			usleep(BETWEEN_US);
			ask(h, timeout, &calls);
		} while (calls == before);
		if (*timeout != own)
			break;
	}
	assert_in_range(*timeout, 1, own - 1);
}

/* The call of then is over for sure, and this is another one. */
static void expect_found_out(struct harness *h, struct target *t, long *timeout, long own)
{
	unsigned long calls;

	for (int i = 0; i < TRIES && *timeout != own; i++) {
		usleep(2 * TIMEOUT * 1000);
		help_stop_well(t, help_nothing, NULL);
		usleep(2 * TIMEOUT * 1000);
		ask(h, timeout, &calls);
	}
	assert_int_equal(*timeout, own);
}

/*
 * fear A6: a system call instruction in a loop that loads its timeout once: what two stops of one call
 * make of that is found out by a later one, and is put right; it never becomes a loop without rest
 */
static void test_found_out(void **state)
{
	struct harness *h = *state;
	struct target *t;
	long timeout;

	harness_start(h, "epoll-loop", harness_number(TIMEOUT), NULL);
	t = help_open(h->pid);
	shorten(h, t, &timeout, TIMEOUT);
	expect_found_out(h, t, &timeout, TIMEOUT);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear A6, A7: the same where the loop was left and entered again with another timeout, at the same place */
static void test_entered_anew(void **state)
{
	enum { ANEW = TIMEOUT / 2 };
	struct harness *h = *state;
	unsigned long calls;
	struct target *t;
	long timeout;

	harness_start(h, "epoll-loop", harness_number(TIMEOUT), NULL);
	t = help_open(h->pid);
	help_stop_well(t, help_nothing, NULL);
	help_ask(h, "anew 200");
	do {
		usleep(BETWEEN_US);
		ask(h, &timeout, &calls);
	} while (timeout != ANEW);
	shorten(h, t, &timeout, ANEW);
	expect_found_out(h, t, &timeout, ANEW);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear A6, A7: the same where a stop in between finds it in no call at all */
static void test_not_in_a_call(void **state)
{
	struct harness *h = *state;
	unsigned long calls, before;
	struct target *t;
	long timeout;

	harness_start(h, "epoll-loop", harness_number(TIMEOUT), NULL);
	t = help_open(h->pid);
	shorten(h, t, &timeout, TIMEOUT);
	help_ask(h, "spin on");
	do {
		ask(h, &timeout, &before);
		usleep(2 * TIMEOUT * 1000);
		ask(h, &timeout, &calls);
	} while (calls != before);
	help_stop_well(t, help_nothing, NULL);
	help_ask(h, "spin");
	expect_found_out(h, t, &timeout, TIMEOUT);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear A6, A7: the same where stops fail in between: what is known of a call is not forgotten */
static void test_failing_stops(void **state)
{
	struct harness *h = *state;
	struct target *t;
	long timeout;

	harness_start(h, "epoll-loop", harness_number(TIMEOUT), NULL);
	t = help_open(h->pid);
	shorten(h, t, &timeout, TIMEOUT);
	help_ask(h, "hold");
	fail_to_stop(t);
	help_ask(h, "on");
	expect_found_out(h, t, &timeout, TIMEOUT);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* Begins a call of the C library's with this timeout, and returns when it sleeps in it. */
static void begin_wait(struct harness *h, long timeout)
{
	char command[32];

	snprintf(command, sizeof(command), "wait %ld\n", timeout);
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "sleeping");
	thread_wait_syscall(h->pid, h->pid, SYS_epoll_wait);
}

/* How long the call took, in ms, of which it knows nothing else. */
static double end_wait(struct harness *h)
{
	double ms;
	long result;
	int error;

	assert_int_equal(
		sscanf(harness_line(h, HARNESS_ANSWER_MS), "%ld %d %lf", &result, &error, &ms), 3);
	assert_int_equal(result, 0);
	return ms;
}

/* What it sleeps for: the fourth argument of its call. */
static long asked(pid_t pid)
{
	unsigned long timeout = 0;
	char path[64];
	FILE *file;

	thread_wait_syscall(pid, pid, SYS_epoll_wait);
	snprintf(path, sizeof(path), "/proc/%d/syscall", (int)pid);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*d %*x %*x %*x %lx", &timeout), 1);
	fclose(file);
	return (long)timeout;
}

/* A call, of which stops leave something, ends; the next one asks for that, and is stopped `later_ms` after it began. */
static void run_by_chance(struct harness *h, unsigned later_ms)
{
	struct target *t;
	long left;
	double ms;

	harness_start(h, "hazards", NULL);
	t = help_open(h->pid);
	/* There are others, too. */
	begin_wait(h, TIMEOUT);
	help_stop_well(t, help_nothing, NULL);
	end_wait(h);
	do {
		begin_wait(h, 4L * TIMEOUT);
		help_stop_well(t, help_nothing, NULL);
		usleep(2000 * TIMEOUT);
		help_stop_well(t, help_nothing, NULL);
		left = asked(h->pid);
		ms = end_wait(h);
		assert_true(ms > 4 * TIMEOUT - 1);
	} while (left > 3 * TIMEOUT);
	begin_wait(h, left);
	usleep(1000 * later_ms);
	help_stop_well(t, help_nothing, NULL);
	ms = end_wait(h);
	print_message("asked for %ld ms: %.0f ms\n", left, ms);
	assert_true(ms > left - 1);
	assert_true(ms < 4 * TIMEOUT);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* fear A6, A7: an event loop asks for just what a stop had left of the call before, which is over by now: it waits neither shorter nor for what that one asked for */
static void test_asked_by_chance(void **state)
{
	run_by_chance(*state, TIMEOUT / 2);
}

/* fear A6, A7: the same where the stop comes in the moment that the call before should end in */
static void test_asked_at_once(void **state)
{
	run_by_chance(*state, 0);
}

/* Sends a thread one signal and the other, for `ms` or until it is killed itself. */
static pid_t send_for(unsigned ms, pid_t pid, pid_t tid, int one, int other)
{
	const uint64_t until = clock_ns() + ms * 1000000ull;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (clock_ns() < until) {
		syscall(SYS_tgkill, pid, tid, one);
		usleep(500);
		syscall(SYS_tgkill, pid, tid, other);
		usleep(500);
	}
	_exit(0);
}

static void end_sending(pid_t sender)
{
	kill(sender, SIGKILL);
	waitpid(sender, NULL, 0);
}

/*
 * fear A6: while a stop fails the threads are traced, so that even a signal which nobody handles wakes them up:
 * their calls do not return EINTR for that, and go on at once
 */
static void test_ignored_signals(void **state)
{
	enum { STOPS = 10 };
	struct harness *h = *state;
	unsigned long calls;
	struct target *t;
	long timeout;
	int tid;

	harness_start(h, "epoll-loop", harness_number(10 * TIMEOUT), NULL);
	t = help_open(h->pid);
	assert_int_equal(sscanf(help_ask(h, "hold"), "%ld %lu %d", &timeout, &calls, &tid), 3);
	/* Not in the last moments: then the threads are let go by the end of ours (docs/safety.md). */
	for (int i = 0; i < STOPS; i++) {
		const pid_t sender = send_for(FAILS_MS / 2, h->pid, tid, SIGWINCH, SIGCONT);

		fail_to_stop(t);
		end_sending(sender);
	}
	help_ask(h, "on");
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

static int count_handled(struct harness *h)
{
	int handled, tid;
	unsigned long calls;
	long timeout;

	assert_int_equal(
		sscanf(help_ask(h, "tell"), "%ld %lu %d %d", &timeout, &calls, &tid, &handled), 4);
	return handled;
}

/* arg: a thread's id, and how long. */
static void *be_traced(void *arg)
{
	const pid_t tid = *(const pid_t *)arg;

	/* Up to the end of this thread. */
	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL))
		return arg;
	for (volatile int *held = (volatile int *)arg + 1; *held;)
		usleep(1000);
	return NULL;
}

/* How many signals the main thread handles in stops that fail since `fails` says so. */
static void expect_handled(struct harness *h, struct target *t, int (*fails)(struct target *t))
{
	enum { STOPS = 10, EACH = 4 };
	const pid_t sender = send_for(60000, h->pid, h->pid, SIGUSR1, SIGUSR1);
	const int before = count_handled(h);
	int tries = 0, handled;

	for (int i = 0; i < STOPS; i++)
		tries += fails(t);
	handled = count_handled(h) - before;
	end_sending(sender);
	print_message("%d signals handled in %d stops that failed\n", handled, tries);
	assert_true(handled > EACH * tries);
}

/*
 * fear A4, K2: as long as threads are only traced, while others are looked for or waited for, who gets a signal
 * goes on with it
 */
static void test_signals_before_stops(void **state)
{
	struct harness *h = *state;
	struct target *t;
	pthread_t tracer;
	unsigned long calls;
	long timeout;
	int traced[2] = {0, 1};

	harness_start(h, "epoll-loop", harness_number(10 * TIMEOUT), NULL);
	t = help_open(h->pid);
	assert_int_equal(sscanf(help_ask(h, "hold"), "%ld %lu %d", &timeout, &calls, &traced[0]),
			 3);
	expect_handled(h, t, fail_to_stop);
	help_ask(h, "on");
	/* Another stop of ours seems to go on: it is waited for. */
	assert_int_equal(pthread_create(&tracer, NULL, be_traced, traced), 0);
	harness_until(strcmp(harness_status(h->pid, traced[0], "TracerPid:"), "0") != 0);
	expect_handled(h, t, fail_to_seize);
	traced[1] = 0;
	pthread_join(tracer, NULL);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* Threads of it that somebody traces. */
static unsigned count_traced(pid_t pid)
{
	unsigned traced = 0;
	struct dirent *entry;
	char path[64];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	assert_non_null(tasks);
	while ((entry = readdir(tasks)))
		if (entry->d_name[0] != '.')
			traced += strcmp(harness_status(pid, atoi(entry->d_name), "TracerPid:"),
					 "0") != 0;
	closedir(tasks);
	return traced;
}

static int count_in_stop(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)e;
	*(unsigned *)arg = count_traced(target_pid(stop_target(s)));
	return 0;
}

/*
 * fear A1: one of 67 threads cannot be stopped, or not be seized: when the answer is there, none of the others
 * is traced any more, and all go on
 */
static void test_untraced(void **state)
{
	enum { STOPS = 10, THREADS = 67 };
	int traced[2] = {0, 1};
	struct harness *h = *state;
	unsigned long calls;
	unsigned seen = 0;
	struct target *t;
	pthread_t tracer;
	long timeout;

	harness_start(h, "epoll-loop", harness_number(10 * TIMEOUT), NULL);
	t = help_open(h->pid);
	help_ask(h, "crowd");
	help_stop_well(t, count_in_stop, &seen);
	assert_int_equal(seen, THREADS);
	assert_int_equal(count_traced(h->pid), 0);
	assert_int_equal(sscanf(help_ask(h, "hold"), "%ld %lu %d", &timeout, &calls, &traced[0]),
			 3);
	for (int i = 0; i < STOPS; i++) {
		fail_to_stop(t);
		assert_int_equal(count_traced(h->pid), 0);
	}
	help_ask(h, "on");
	assert_int_equal(pthread_create(&tracer, NULL, be_traced, traced), 0);
	harness_until(count_traced(h->pid) == 1);
	for (int i = 0; i < STOPS; i++) {
		fail_to_seize(t);
		assert_int_equal(count_traced(h->pid), 1);
	}
	traced[1] = 0;
	pthread_join(tracer, NULL);
	target_close(t);
	harness_end(h, 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_found_out),	    CASE(test_not_in_a_call),
		CASE(test_failing_stops),   CASE(test_entered_anew),
		CASE(test_asked_by_chance), CASE(test_asked_at_once),
		CASE(test_ignored_signals), CASE(test_signals_before_stops),
		CASE(test_untraced),
	};

	return cmocka_run_group_tests_name("live/stop_register", tests, NULL, NULL);
}
