/* SPDX-License-Identifier: MIT */
/*
 * stop_signals.c - a signal every millisecond across two hundred stops: none
 * is lost, none comes twice, their order and their siginfo are kept.
 */
#include "tests/live/harness.h"
#include "tests/live/inject_help.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

static void storm(struct harness *h, stop_work work)
{
	struct dinst_error e = {0};
	struct target *t = NULL;
	int sent, got;

	harness_start(h, "stop-signals", NULL);
	if (target_open(h->pid, &t, &e))
		fail_msg("%s", e.text);
	for (int i = 0; i < 200; i++) {
		/* A machine that is busy lets a stop fail: it is tried again. */
		if (target_stop(t, NULL, work, NULL, NULL, &e) && e.code != DINST_BUSY)
			fail_msg("stop %d: %s", i, e.text);
		i -= e.code == DINST_BUSY;
		dinst_error_clear(&e);
		usleep(2000);
	}
	target_close(t);
	close(h->input);
	h->input = -1;
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "%d %d", &sent, &got), 2);
	assert_int_equal(sent, got);
	assert_true(sent > 100);
	harness_end(h, 0);
}

/*
 * fear A4: a queued signal every millisecond through 200 stops: each number arrives once and in
 * order
 */
static void test_stops(void **state)
{
	storm(*state, help_nothing);
}

/* fear A4: the same while system calls are made in the target at each stop */
static void test_remote_calls(void **state)
{
	storm(*state, remote_getpid);
}

static volatile sig_atomic_t waited_for, others;

static void note(int signal)
{
	if (signal == SIGUSR1)
		waited_for = 1;
	else
		others++;
}

/* Waits for SIGUSR1, and for no other signal, which are all blocked meanwhile. */
static void suspend(void)
{
	struct sigaction action = {.sa_handler = note};
	sigset_t blocked, mask;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	sigfillset(&mask);
	sigdelset(&mask, SIGUSR1);
	sigsuspend(&mask);
	_exit(waited_for && others ? 0 : 1);
}

static bool is_suspended(pid_t pid)
{
	return harness_status(pid, pid, "State:")[0] == 'S' &&
	       !strncmp(harness_status(pid, pid, "SigBlk:"), "ffff", 4);
}

static void stop_suspended(stop_work work)
{
	struct dinst_error e = {0};
	struct target *t = NULL;
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid)
		suspend();
	for (int i = 0; i < 5000 && !is_suspended(pid); i++)
		usleep(1000);
	if (target_open(pid, &t, &e))
		fail_msg("%s", e.text);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(kill(pid, SIGUSR2), 0);
		for (int tries = 0; target_stop(t, NULL, work, NULL, NULL, &e); tries++) {
			if (e.code != DINST_BUSY || tries == 50)
				fail_msg("stop %d: %s", i, e.text);
			dinst_error_clear(&e);
			usleep(20000);
		}
		for (int k = 0; k < 1000 && !is_suspended(pid); k++)
			usleep(1000);
		assert_true(is_suspended(pid));
	}
	target_close(t);
	assert_int_equal(kill(pid, SIGUSR1), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* fear A4: a signal that the mask of the call blocks, and that of the thread does not, ends no such call */
static void test_masks_of_calls(void **state)
{
	(void)state;
	stop_suspended(help_nothing);
	stop_suspended(remote_getpid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_stops, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_remote_calls, harness_setup, harness_teardown),
		cmocka_unit_test(test_masks_of_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
