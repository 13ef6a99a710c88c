/* SPDX-License-Identifier: MIT */
/*
 * remote_death.c - the tracer is killed at every step of a stop with remote
 * calls, one after the other, until it gets through. The target finishes the
 * program alone, and its registers, flags, red zone and interrupted call are
 * as they should be; nothing holds it; its text can be put right.
 *
 * epoll_wait and sigtimedwait have a target for each death: killed between the interrupt and the first look
 * at the thread, we leave it with EINTR that once (a limit that docs/safety.md names).
 */
#include "tests/live/inject_help.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/fault.h"
#include "inject/remote.h"

enum { STEPS_MAX = 100 };

static int protect_twice(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arch_remote_call calls[3];
	struct arch_remote_program program = {.calls = calls, .count = 3};
	long results[3];

	(void)arg;
	memset(calls, 0, sizeof(calls));
	calls[0].number = SYS_getpid;
	calls[1].number = SYS_getuid;
	calls[2].number = SYS_getppid;
	return remote_run(s, &program, 0, NULL, NULL, NULL, results, e);
}

/* Calls that the filter of the target kills for. */
static int make_forbidden_calls(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arch_remote_call calls[3];
	struct arch_remote_program program = {.calls = calls, .count = 3};
	long results[3];
	int code;

	(void)arg;
	memset(calls, 0, sizeof(calls));
	calls[0].number = SYS_madvise;
	calls[1].number = SYS_munmap;
	calls[1].always = true;
	calls[2].number = SYS_mprotect;
	code = remote_run(s, &program, 0, NULL, NULL, NULL, results, e);
	if (code)
		return code;
	/* Of nothing at address 0; the last one is left out, since one before it has failed. */
	return results[0] == 0 && results[1] == -EINVAL && results[2] == -ECANCELED ? 0 : 3;
}

/* In a process of its own: true if it was killed at its `step`th fault point. */
static bool die_at(pid_t pid, unsigned long step, stop_work work)
{
	struct dinst_error e = {0};
	struct target *t = NULL;
	pid_t tracer = fork();
	int status;

	assert_true(tracer >= 0);
	if (!tracer) {
		fault_countdown = step;
		if (target_open(pid, &t, &e))
			_exit(1);
		_exit(target_stop(t, NULL, work, NULL, NULL, &e) ? 2 : 0);
	}
	assert_int_equal(waitpid(tracer, &status, 0), tracer);
	if (WIFSIGNALED(status)) {
		assert_int_equal(WTERMSIG(status), SIGKILL);
		return true;
	}
	assert_int_equal(status, 0);
	return false;
}

static int clean(struct stop *s, void *arg, struct dinst_error *e)
{
	return remote_clean_tails(s, arg, e);
}

static void clean_up(pid_t pid)
{
	struct dinst_error e = {0};
	struct target *t = NULL;
	struct remote_tails tails;

	if (target_open(pid, &t, &e))
		fail_msg("%s", e.text);
	for (int i = 0; i < 5000 && remote_tails_dirty(t); i++) {
		if (target_stop(t, NULL, clean, &tails, NULL, &e) && e.code != DINST_BUSY)
			fail_msg("%s", e.text);
		dinst_error_clear(&e);
		usleep(1000);
	}
	assert_false(remote_tails_dirty(t));
	target_close(t);
}

/* One target for all deaths; what each leaves is cleaned up. */
static void die_everywhere(struct harness *h, const char *mode)
{
	unsigned long step;

	harness_start(h, "remote-registers", mode, NULL);
	for (step = 1; step < STEPS_MAX && die_at(h->pid, step, protect_twice); step++) {
		usleep(2000);
		assert_string_equal(harness_status(h->pid, h->pid, "TracerPid:"), "0");
		assert_int_not_equal(harness_status(h->pid, h->pid, "State:")[0], 'T');
		clean_up(h->pid);
	}
	assert_in_range(step, 10, STEPS_MAX - 1);
	harness_verify(h);
	if (strcmp(mode, "nanosleep"))
		harness_end(h, 0);
	else
		assert_int_equal(harness_wait(h, HARNESS_ANSWER_MS), 0);
}

#define STATE(mode)                            \
	static void test_##mode(void **state)  \
	{                                      \
		die_everywhere(*state, #mode); \
	}

STATE(read)
STATE(nanosleep)
STATE(futex)
STATE(poll)
STATE(ppoll)
STATE(accept)

/* fear A4, J2: all signals are blocked, and SIGTRAP is pending: it is handled once, after everything */
STATE(blocked)
STATE(masked)

/* fear A4, J2: SIGTRAP is ignored */
STATE(ignored)

STATE(running)
/* fear B4, D2, J2: the same with the processor checking alignment: what puts the registers back reads no odd address */
STATE(aligned)
STATE(sequence)

static bool *everybody_stood; /* shared with the tracer */

static int tell_and_protect(struct stop *s, void *arg, struct dinst_error *e)
{
	*everybody_stood = true;
	return protect_twice(s, arg, e);
}

/*
 * Calls that the kernel itself ends with EINTR, so that the tail has to begin them again: a target for each death,
 * since one before all of it stood still may end its call.
 */
static void die_in_each(struct harness *h, const char *mode, const char *interrupted)
{
	unsigned long step, inside = 0;
	bool died = true;
	int status;

	everybody_stood = mmap(NULL, sizeof(*everybody_stood), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(everybody_stood != MAP_FAILED);
	for (step = 1; step < STEPS_MAX && died; step++) {
		*everybody_stood = false;
		harness_start(h, "remote-registers", mode, NULL);
		died = die_at(h->pid, step, tell_and_protect);
		usleep(2000);
		close(h->input);
		h->input = -1;
		status = harness_wait(h, HARNESS_ANSWER_MS);
		if (*everybody_stood || status == 0)
			assert_int_equal(status, 0);
		else
			assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), interrupted);
		inside += died && *everybody_stood;
		close(h->output);
		h->output = -1;
	}
	assert_in_range(inside, 8, STEPS_MAX - 1);
	munmap(everybody_stood, sizeof(*everybody_stood));
}

/* fear A6, J2: epoll_wait goes on, whatever call of ours the tracer dies in */
static void test_epoll(void **state)
{
	die_in_each(*state, "epoll", "result is fffffffffffffffc and was 1");
}

/* fear A6, J2: the same of sigtimedwait */
static void test_sigtimedwait(void **state)
{
	die_in_each(*state, "sigtimedwait", "result is fffffffffffffffc and was a");
}

/* A signal a millisecond: whatever stop the tracer dies in, none is lost. */
static void test_signals(void **state)
{
	struct harness *h = *state;
	unsigned long step;
	int sent, got, status;

	harness_start(h, "stop-signals", NULL);
	for (int round = 0; round < 8; round++) {
		for (step = 1; step < STEPS_MAX && die_at(h->pid, step, protect_twice); step++)
			clean_up(h->pid);
		assert_in_range(step, 10, STEPS_MAX - 1);
	}
	close(h->input);
	h->input = -1;
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "%d %d", &sent, &got), 2);
	assert_int_equal(sent, got);
	assert_true(sent > 50);
	/* 2: epoll_wait with EINTR, see above; anything else is wrong. */
	status = harness_wait(h, HARNESS_ANSWER_MS);
	assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2));
}

/* fear A9, J2: the same under a filter that kills for each call that was to be made: it lives */
static void test_filtered(void **state)
{
	struct harness *h = *state;
	unsigned long step;

	harness_start(h, "confined", "3", "kill", NULL);
	for (step = 1; step < STEPS_MAX && die_at(h->pid, step, make_forbidden_calls); step++) {
		usleep(2000);
		assert_string_equal(harness_status(h->pid, h->pid, "TracerPid:"), "0");
		clean_up(h->pid);
		assert_string_equal(help_ask(h, "go 10"), "done");
	}
	assert_in_range(step, 10, STEPS_MAX - 1);
	harness_verify(h);
	harness_end(h, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_read),	 TEST(test_nanosleep), TEST(test_futex),
		TEST(test_poll),	 TEST(test_running),   TEST(test_sequence),
		TEST(test_signals),	 TEST(test_filtered),  TEST(test_aligned),
		TEST(test_ppoll),	 TEST(test_accept),    TEST(test_blocked),
		TEST(test_masked),	 TEST(test_ignored),   TEST(test_epoll),
		TEST(test_sigtimedwait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
