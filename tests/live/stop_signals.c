/* SPDX-License-Identifier: MIT */
/*
 * stop_signals.c - a signal every millisecond across two hundred stops: none
 * is lost, none comes twice, their order and their siginfo are kept.
 */
#include "tests/live/harness.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/remote.h"

static int nothing(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)s;
	(void)arg;
	(void)e;
	return 0;
}

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
	storm(*state, nothing);
}

/* fear A4: the same while system calls are made in the target at each stop */
static void test_remote_calls(void **state)
{
	storm(*state, remote_getpid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_stops, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_remote_calls, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
