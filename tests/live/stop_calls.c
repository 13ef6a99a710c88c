/* SPDX-License-Identifier: MIT */
/*
 * stop_calls.c - blocking system calls under a hundred stops: none returns
 * early, none returns EINTR, and with a handler each still returns EINTR.
 *
 * All cases run at the same time, each in a process of its own. Must leave no
 * process behind: the harness is a subreaper and kills what is left.
 */
#include "tests/live/harness.h"
#include "tests/live/inject_help.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/target.h"

enum { CYCLES = 100, SECOND_MS = 1000, SLACK_MS = 700, LONG_S = 100 };

/* How the length of a restarted call is kept. */
enum length {
	KEPT,	      /* by the kernel, or by us */
	KEPT_BY_ROOT, /* without privilege the filter cannot be read, and it begins anew */
	ANEW,	      /* it begins anew at the last stop: longer, never shorter */
};

static const struct {
	const char *name;
	enum length length;
	int result, error; /* when it ends by itself */
	bool eintr;	   /* a handler makes it return EINTR */
} cases[] = {
	{"nanosleep", KEPT, 0, 0, true},
	{"filtered", KEPT_BY_ROOT, 0, 0, true},
	{"clock_nanosleep", KEPT, 0, 0, true},
	{"poll", KEPT, 0, 0, true},
	{"ppoll", KEPT, 0, 0, true},
	{"select", KEPT, 0, 0, true},
	{"pselect", KEPT, 0, 0, true},
	{"epoll_wait", KEPT, 0, 0, true},
	{"epoll_pwait", KEPT, 0, 0, true},
	{"epoll_pwait2", ANEW, 0, 0, true},
	{"futex", KEPT, -1, ETIMEDOUT, true},
	{"sigtimedwait", ANEW, -1, EAGAIN, true},
	{"semtimedop", ANEW, -1, EAGAIN, true},
	{"recv", ANEW, -1, EAGAIN, true},
	{"narrow-read", ANEW, -1, EAGAIN, true},
	{"narrow-sleep", KEPT, 0, 0, true},
	{"narrow-denied", ANEW, 0, 0, true},
	{"narrow-filtered", KEPT_BY_ROOT, 0, 0, true},
	{"accept", ANEW, -1, EAGAIN, true},
	{"io_getevents", ANEW, 0, 0, true},
	{"timerfd", KEPT, 0, 0, true},
	{"read", KEPT, 0, 0, true},
	{"inotify", KEPT, 0, 0, true},
	{"msgrcv", KEPT, 0, 0, true},
	/* Ended with a part by a stop, the rest is another call, in which no handler need find it. */
	{"write-parts", KEPT, 0, 0, false},
	{"recv-parts", KEPT, 0, 0, false},
};

enum { CASES = sizeof(cases) / sizeof(cases[0]) };

struct run {
	pid_t pid;
	int output;
	struct target *target;
	long last_stop_ms; /* since the start */
};

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Reads one line, without stdio's own buffer: the next call continues behind it. */
static void read_line(int fd, char *line, size_t size)
{
	size_t used = 0;

	while (used + 1 < size && read(fd, line + used, 1) == 1 && line[used] != '\n')
		used++;
	line[used] = '\0';
}

static void start(struct run *run, const char *name, int seconds)
{
	struct dinst_error e = {0};
	char line[64];
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	run->pid = fork();
	assert_true(run->pid >= 0);
	if (!run->pid) {
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		execl(harness_path("tests/live/targets/stop-calls"), "stop-calls", name,
		      harness_number(seconds), NULL);
		_exit(99);
	}
	close(fds[1]);
	run->output = fds[0];
	run->last_stop_ms = 0;
	read_line(run->output, line, sizeof(line));
	assert_string_equal(line, "ready");
	if (target_open(run->pid, &run->target, &e))
		fail_msg("%s", e.text);
}

/* What the call returned; the target has ended with 0. */
static void finish(struct run *run, int *result, int *error, long *ms)
{
	char line[64];
	int status;

	read_line(run->output, line, sizeof(line));
	assert_int_equal(sscanf(line, "%d %d %ld", result, error, ms), 3);
	assert_int_equal(waitpid(run->pid, &status, 0), run->pid);
	assert_int_equal(status, 0);
	target_close(run->target);
	close(run->output);
}

/* Returns true if it was too late. */
static bool stop_once(struct run *run, const struct stop_options *options, stop_work work)
{
	struct dinst_error e = {0};
	int code = target_stop(run->target, options, work, run, NULL, &e);

	if (code && code != DINST_GONE && !(options && code == DINST_BUSY))
		fail_msg("%s", e.text);
	return code == DINST_BUSY;
}

/*
 * fear A6, A7: twenty blocking calls under a hundred stops each: none returns early or with EINTR,
 * none lasts longer than the documentation says; what moves data in parts loses and doubles none
 */
static void test_hundred_stops(void **state)
{
	struct run runs[CASES];
	long begin, ms, latest, asked, longest = 0;
	int result, error;
	bool anew;

	(void)state;
	begin = now_ms();
	for (size_t i = 0; i < CASES; i++)
		start(&runs[i], cases[i].name, 1);
	usleep(50000);
	for (int cycle = 0; cycle < CYCLES; cycle++) {
		for (size_t i = 0; i < CASES; i++) {
			asked = now_ms();
			stop_once(&runs[i], NULL, help_nothing);
			runs[i].last_stop_ms = now_ms() - begin;
			if (now_ms() - asked > longest)
				longest = now_ms() - asked;
		}
		/* The last one comes late: a call that it made begin anew would be seen. */
		while (now_ms() - begin < 50 + 9 * (cycle + 1))
			usleep(500);
	}
	for (size_t i = 0; i < CASES; i++)
		assert_true(runs[i].last_stop_ms > SLACK_MS + 100);
	for (size_t i = 0; i < CASES; i++) {
		finish(&runs[i], &result, &error, &ms);
		anew = cases[i].length == ANEW || (cases[i].length == KEPT_BY_ROOT && geteuid());
		/* On a machine that is busy threads come late as stops do. */
		latest = SECOND_MS + SLACK_MS + 10 * longest + (anew ? runs[i].last_stop_ms : 0);
		if (result != cases[i].result || error != cases[i].error || ms < SECOND_MS - 1 ||
		    ms > latest)
			fail_msg("%s: returned %d, errno %d after %ld ms (at most %ld)",
				 cases[i].name, result, error, ms, latest);
	}
}

/* A child that computes until it is killed. */
static pid_t spin(void)
{
	pid_t spinner = fork();

	assert_true(spinner >= 0);
	if (spinner)
		return spinner;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(600);
	for (;;)
		;
}

/* Makes `pid` wait long for a CPU whenever it wakes up; returns who is in its way. */
static pid_t starve(pid_t pid)
{
	const struct sched_param none = {0};
	cpu_set_t first;
	pid_t spinner;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	assert_int_equal(sched_setaffinity(pid, sizeof(first), &first), 0);
	assert_int_equal(sched_setscheduler(pid, SCHED_IDLE, &none), 0);
	spinner = spin();
	assert_int_equal(sched_setaffinity(spinner, sizeof(first), &first), 0);
	return spinner;
}

/* Woken up by an interrupt, and not stopped in time: that is no reason for EINTR either. */
/* fear A6: a thread that was woken up and did not stop in time does not return EINTR either */
static void test_late_stops(void **state)
{
	enum { SECONDS = 3 };
	static const struct stop_options at_once = {.deadline_us = 1, .tries = 1};
	const struct sched_param none = {0};
	struct run run;
	unsigned late = 0;
	int result, error;
	pid_t spinner;
	long ms;

	(void)state;
	start(&run, "epoll_wait", SECONDS);
	spinner = starve(run.pid);
	/* On a busy machine it may get a CPU in time for long. */
	for (int i = 0; i < 10 || (!late && i < 100); i++) {
		usleep(20000);
		late += stop_once(&run, &at_once, help_nothing);
	}
	kill(spinner, SIGKILL);
	waitpid(spinner, NULL, 0);
	/* Others may want the CPU all the time. */
	assert_int_equal(sched_setscheduler(run.pid, SCHED_OTHER, &none), 0);
	finish(&run, &result, &error, &ms);
	assert_int_equal(error, 0);
	assert_int_equal(result, 0);
	assert_in_range(ms, SECONDS * SECOND_MS - 1, 10 * SECOND_MS);
	assert_true(late > 0);
}

static int send_signal(struct stop *s, void *arg, struct dinst_error *e)
{
	struct run *run = arg;

	(void)s;
	(void)e;
	return kill(run->pid, SIGUSR1);
}

/* The signal comes while the target is stopped: its handler runs, and the call says so. */
/* fear A6: a handler that runs makes each of them return EINTR, as ever */
static void test_handler_still_interrupts(void **state)
{
	struct run runs[CASES];
	int result, error;
	long ms;

	(void)state;
	for (size_t i = 0; i < CASES; i++)
		if (cases[i].eintr)
			start(&runs[i], cases[i].name, LONG_S);
	/* They are in their calls. */
	for (size_t i = 0; i < CASES; i++)
		if (cases[i].eintr)
			harness_until(harness_status(runs[i].pid, runs[i].pid, "State:")[0] == 'S');
	for (size_t i = 0; i < CASES; i++) {
		if (!cases[i].eintr)
			continue;
		stop_once(&runs[i], NULL, help_nothing);
		stop_once(&runs[i], NULL, send_signal);
	}
	for (size_t i = 0; i < CASES; i++) {
		if (!cases[i].eintr)
			continue;
		finish(&runs[i], &result, &error, &ms);
		if (result != -1 || error != EINTR || ms > LONG_S * 1000 - 1000)
			fail_msg("%s: returned %d, errno %d after %ld ms", cases[i].name, result,
				 error, ms);
	}
}

/* Who waits for a CPU may not stop in time, and is asked again. */
static void stop_at_last(struct run *run, stop_work work)
{
	const long until = now_ms() + HARNESS_ANSWER_MS;
	struct dinst_error e = {0};

	while (target_stop(run->target, NULL, work, run, NULL, &e)) {
		if (e.code != DINST_BUSY || now_ms() > until)
			fail_msg("%s", e.text);
		dinst_error_clear(&e);
		usleep(10000);
	}
}

/*
 * The container has used up its share of the CPUs: on its way back into its call a thread waits, for
 * some tenths of a second, until it may run again (since Linux 6.18 that is where it waits). A
 * signal that comes then, behind a stop or in the next one, ends the call all the same.
 *
 * fear A6, K2: under a limit of CPU time each call still returns EINTR when a handler runs
 */
static void test_throttled(void **state)
{
	const int rounds = (int)harness_setting("THROTTLED", 2);
	static const char *const names[] = {"read", "nanosleep", "epoll_wait", "inotify"};
	enum { CALLED = sizeof(names) / sizeof(names[0]) };
	char directory[64];
	struct run run;
	pid_t spinner;
	int result, error;
	long ms;

	(void)state;
	for (int i = 0; i < rounds * CALLED; i++) {
		start(&run, names[i % CALLED], LONG_S);
		harness_until(harness_status(run.pid, run.pid, "State:")[0] == 'S');
		/* A child of ours that spins: the one that is to wait is in its call already. */
		spinner = spin();
		if (!harness_confine(spinner, HARNESS_LIMIT_CPU, "1000", directory,
				     sizeof(directory))) {
			print_message("skipped: no limit of CPU time can be set here\n");
			skip();
		}
		assert_true(harness_join(run.pid, directory));
		usleep(20000 + (useconds_t)(i * 30011) % 300000);
		stop_at_last(&run, help_nothing);
		if (i % 2)
			stop_at_last(&run, send_signal);
		else
			assert_int_equal(kill(run.pid, SIGUSR1), 0);
		kill(spinner, SIGKILL);
		waitpid(spinner, NULL, 0);
		finish(&run, &result, &error, &ms);
		rmdir(directory);
		if (result != -1 || error != EINTR || ms > LONG_S * 1000 - 1000)
			fail_msg("%s: returned %d, errno %d after %ld ms", names[i % CALLED],
				 result, error, ms);
	}
}

/*
 * Signals for threads that sleep in calls, while stop follows upon stop and other threads of theirs
 * compute: some come when a thread that we have let go waits for a CPU, and has not made its
 * call anew yet.
 *
 * fear A6, A4: a signal with a handler ends a call with EINTR, also in the moment behind a stop
 */
static void test_signals_behind_stops(void **state)
{
	const unsigned long run_ms = harness_setting("SIGNALS_MS", 8000);
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *target;
	int rounds, lost, stops = 0;
	char line[64];
	long end;

	harness_start(h, "interrupted", NULL);
	assert_int_equal(target_open(h->pid, &target, &e), 0);
	snprintf(line, sizeof(line), "run %lu\n", run_ms);
	harness_send(h, line);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "begun");
	end = now_ms() + (long)run_ms;
	for (; now_ms() < end; stops++) {
		if (target_stop(target, NULL, help_nothing, NULL, NULL, &e))
			fail_msg("%s", e.text);
		usleep((useconds_t)(random() % 2000));
	}
	target_close(target);
	assert_int_equal(
		sscanf(harness_line(h, 30000 + HARNESS_ANSWER_MS), "%d %d", &rounds, &lost), 2);
	print_message("%d rounds, %d stops\n", rounds, stops);
	assert_int_equal(lost, 0);
	assert_true(rounds >= 10 && stops >= 10);
	harness_end(h, 0);
}

/* One stop in the middle of a wait: what had passed counts from the second stop on. */
/* fear A7: what had passed of a timeout before a stop counts */
static void test_timeout_is_not_begun_anew(void **state)
{
	enum { SECONDS = 3 };
	struct run run;
	int result, error;
	long begin, last = 0, ms;

	(void)state;
	start(&run, "epoll_wait", SECONDS);
	begin = now_ms();
	for (int i = 0; i < 4; i++) {
		usleep(i ? 900000 : 10000);
		last = now_ms() - begin;
		stop_once(&run, NULL, help_nothing);
	}
	finish(&run, &result, &error, &ms);
	assert_int_equal(result, 0);
	/* Begun anew by the last one it would last so long from then on. */
	assert_in_range(ms, SECONDS * 1000 - 1, SECONDS * 1000 + last - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hundred_stops, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_late_stops, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_handler_still_interrupts, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_throttled, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_signals_behind_stops, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_timeout_is_not_begun_anew, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
