/* SPDX-License-Identifier: MIT */
/*
 * stop_storm.c - somebody else stops, continues and kills the target while we
 * stop it and make it call: every answer comes in time, and what job control
 * said last holds afterwards. The moments are drawn from a fixed seed.
 */
#include "tests/live/fast_job_control.h"
#include "tests/live/harness.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/remote.h"

static int remote_getpid(struct stop *s, void *arg, struct dinst_error *e)
{
	static const struct arch_remote_call call = {.number = SYS_getpid};
	static const struct arch_remote_program program = {.calls = &call, .count = 1};
	long result = 0;
	int code = remote_run(s, &program, 0, NULL, NULL, NULL, &result, e);

	(void)arg;
	if (!code && result != target_pid(stop_target(s)))
		code = dinst_fail(e, DINST_FAILED, "getpid returned %ld", result);
	return code;
}

static struct target *open_target(pid_t pid)
{
	struct dinst_error e = {0};
	struct target *t = NULL;

	if (target_open(pid, &t, &e))
		fail_msg("%s", e.text);
	return t;
}

/* A machine that is busy lets a stop fail: it is tried again, as a user would. */
static int stop_at_last(struct target *t, stop_work work, void *arg, struct dinst_error *e)
{
	int code = DINST_BUSY;

	for (int tries = 0; tries < 50 && code == DINST_BUSY; tries++) {
		dinst_error_clear(e);
		code = target_stop(t, NULL, work, arg, NULL, e);
	}
	return code;
}

/* A process that sends stop and continue signals until it is killed. */
static pid_t start_job_control(pid_t target)
{
	static const int stops[] = {SIGSTOP, SIGTSTP, SIGTTOU};
	unsigned seed = 7;
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0;; i++) {
		kill(target, stops[i % 3]);
		usleep((unsigned)rand_r(&seed) % 1500);
		kill(target, SIGCONT);
		usleep((unsigned)rand_r(&seed) % 1500);
	}
}

static void wait_for_state(pid_t pid, bool stopped)
{
	for (int i = 0; i < 60000; i++) {
		if ((harness_status(pid, pid, "State:")[0] == 'T') == stopped)
			return;
		usleep(1000);
	}
	fail_msg("the target is in state %s", harness_status(pid, pid, "State:"));
}

/*
 * fear A2, A3: somebody else stops and continues the target all the time: what job control said
 * last holds
 */
static void test_job_control(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;
	pid_t control;

	harness_start(h, "stop-busy", "3", NULL);
	t = open_target(h->pid);
	control = start_job_control(h->pid);
	for (int i = 0; i < 300; i++)
		if (stop_at_last(t, remote_getpid, NULL, &e))
			fail_msg("stop %d: %s", i, e.text);
	end_job_control(control);
	kill(h->pid, SIGSTOP);
	for (int i = 0; i < 10; i++)
		if (stop_at_last(t, remote_getpid, NULL, &e))
			fail_msg("stopped, %d: %s", i, e.text);
	wait_for_state(h->pid, true);
	kill(h->pid, SIGCONT);
	for (int i = 0; i < 10; i++)
		if (stop_at_last(t, remote_getpid, NULL, &e))
			fail_msg("continued, %d: %s", i, e.text);
	wait_for_state(h->pid, false);
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

/*
 * fear A2, A3: somebody else stops and continues the target faster than it can make a system call:
 * busy is the answer, no program is left behind, and what is between two storms is made use of
 */
static void test_fast_job_control(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	storm_from *from = make_storm();
	int made[2] = {0};
	struct target *t;
	pid_t control;
	int code;

	*from = 1;
	harness_start(h, "stop-busy", "3", NULL);
	t = open_target(h->pid);
	for (int pauses = 0; pauses < 2; pauses++) {
		control = start_fast_job_control(h->pid, from, pauses);
		for (int i = 0; i < 50; i++) {
			dinst_error_clear(&e);
			code = target_stop(t, NULL, remote_getpid, NULL, NULL, &e);
			if (code && code != DINST_BUSY)
				fail_msg("pauses %d, stop %d: %s", pauses, i, e.text);
			if (target_left_program(t))
				fail_msg("pauses %d, stop %d left its program: %s", pauses, i,
					 e.text);
			made[pauses] += !code;
		}
		end_job_control(control);
	}
	print_message("%d of 50 calls made in a storm, %d of 50 in one with breaks\n", made[0],
		      made[1]);
	assert_int_not_equal(made[1], 0);
	kill(h->pid, SIGCONT);
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
	munmap(from, sizeof(*from));
}

struct given_up {
	storm_from *storm;
	long results[4];
};

/* The storm begins when one call has been made. */
static int begin_storm(struct stop *s, size_t next, const long *results, void *arg,
		       struct dinst_error *e)
{
	struct given_up *g = arg;

	(void)s;
	(void)results;
	(void)e;
	*g->storm = next > 0;
	if (next == 1)
		usleep(200);
	return 0;
}

static int remote_getpids(struct stop *s, void *arg, struct dinst_error *e)
{
	static const struct arch_remote_call calls[] = {
		{.number = SYS_getpid},
		{.number = SYS_getpid},
		{.number = SYS_getpid},
		{.number = SYS_getpid},
	};
	static const struct arch_remote_program program = {.calls = calls, .count = 4};
	struct given_up *g = arg;

	return remote_run(s, &program, 0, NULL, begin_storm, g, g->results, e);
}

/*
 * fear A2, A3: the same, when one of several calls has been made: it is known that the rest was
 * given up, so that what the first has made is taken out
 */
static void test_calls_given_up(void **state)
{
	struct harness *h = *state;
	struct given_up g = {.storm = make_storm()};
	struct dinst_error e = {0};
	int given_up = 0, tries;
	struct target *t;
	pid_t control;
	int code;

	harness_start(h, "stop-busy", "3", NULL);
	control = start_fast_job_control(h->pid, g.storm, false);
	for (tries = 0; tries < 3000 && given_up < 3; tries++) {
		t = open_target(h->pid);
		g.results[0] = g.results[3] = -ECANCELED;
		dinst_error_clear(&e);
		code = target_stop(t, NULL, remote_getpids, &g, NULL, &e);
		*g.storm = 0;
		if (code && code != DINST_BUSY)
			fail_msg("stop %d: %s", tries, e.text);
		given_up += code && g.results[0] == h->pid;
		assert_int_equal(target_left_calls(t), code && g.results[0] == h->pid);
		assert_false(target_left_program(t));
		assert_int_equal(!code, g.results[3] == h->pid);
		target_close(t);
	}
	end_job_control(control);
	print_message("%d of %d given up\n", given_up, tries);
	assert_int_equal(given_up, 3);
	kill(h->pid, SIGCONT);
	harness_verify(h);
	harness_end(h, 0);
	munmap(g.storm, sizeof(*g.storm));
}

struct killer {
	pid_t pid;
	unsigned delay_us;
};

static void *kill_later(void *arg)
{
	struct killer *k = arg;

	usleep(k->delay_us);
	kill(k->pid, SIGKILL);
	return NULL;
}

/* Killed at any moment of a row of stops: an ordinary answer, at once. */
/*
 * fear G7, A2: killed at a random moment of stops and remote calls, sixty times: an answer at once
 */
static void test_killed_at_any_moment(void **state)
{
	struct harness *h = *state;
	struct timespec begin, end;
	struct dinst_error e;
	struct killer killer;
	unsigned seed = 11;
	struct target *t;
	pthread_t thread;
	int code;

	for (int i = 0; i < 60; i++) {
		harness_start(h, "stop-busy", "3", NULL);
		t = open_target(h->pid);
		killer = (struct killer){h->pid, (unsigned)rand_r(&seed) % 4000};
		assert_int_equal(pthread_create(&thread, NULL, kill_later, &killer), 0);
		do {
			dinst_error_clear(&e);
			clock_gettime(CLOCK_MONOTONIC, &begin);
			code = target_stop(t, NULL, remote_getpid, NULL, NULL, &e);
			clock_gettime(CLOCK_MONOTONIC, &end);
			assert_in_range(end.tv_sec - begin.tv_sec, 0, 2);
		} while (!code || code == DINST_BUSY);
		if (code != DINST_GONE)
			fail_msg("killed after %u us: %s", killer.delay_us, e.text);
		pthread_join(thread, NULL);
		assert_true(WIFSIGNALED(harness_wait(h, HARNESS_ANSWER_MS)));
		target_close(t);
	}
}

/* Two targets, one stopped inside the stop of the other, and both by several threads. */
static int stop_other(struct stop *s, void *arg, struct dinst_error *e)
{
	int code = target_stop(arg, NULL, remote_getpid, NULL, NULL, e);

	return code ? code : remote_getpid(s, NULL, e);
}

static void *stop_often(void *arg)
{
	struct dinst_error e = {0};
	intptr_t failures = 0;

	for (int i = 0; i < 50; i++)
		failures += stop_at_last(arg, remote_getpid, NULL, &e) != 0;
	return (void *)failures;
}

/* fear A2: stops of two targets inside of each other and at the same time */
static void test_nested_and_parallel(void **state)
{
	struct harness *h = *state;
	void *other_state, *failures;
	struct dinst_error e = {0};
	struct target *t, *u;
	pthread_t threads[4];

	assert_int_equal(harness_setup(&other_state), 0);
	harness_start(h, "stop-busy", "2", NULL);
	harness_start(other_state, "stop-busy", "2", NULL);
	t = open_target(h->pid);
	u = open_target(((struct harness *)other_state)->pid);
	for (int i = 0; i < 20; i++)
		if (stop_at_last(t, stop_other, u, &e))
			fail_msg("%s", e.text);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, stop_often, i % 2 ? t : u), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &failures);
		assert_null(failures);
	}
	target_close(t);
	target_close(u);
	harness_verify(h);
	harness_end(other_state, 0);
	harness_end(h, 0);
	harness_teardown(&other_state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_job_control),		TEST(test_fast_job_control),
		TEST(test_calls_given_up),	TEST(test_killed_at_any_moment),
		TEST(test_nested_and_parallel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
