/* SPDX-License-Identifier: MIT */
/*
 * dispatch.c - programs whose system calls come to themselves as signals
 * (PR_SET_SYSCALL_USER_DISPATCH): ours must never do so.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mutator/threads.h"
#include "tests/live/harness_session.h"

enum { GET_DISPATCH = 0x4211, CALLS = 1000 };

static void start(struct harness *h, const char *mode)
{
	const char *argv[] = {harness_path("tests/live/targets/dispatched"), mode, NULL};

	harness_start_argv(h, argv, false);
	if (!strcmp(harness_line(h, HARNESS_ANSWER_MS), "ready"))
		return;
	print_message("SKIP: the kernel dispatches no system calls\n");
	harness_kill(h);
	skip();
}

static void expect_busy(struct harness *h)
{
	struct session *s = session_begin(h);
	struct dinst_error e = {0};
	unsigned id;

	for (int i = 0; i < 3; i++) {
		dinst_error_clear(&e);
		assert_int_equal(session_try_insert(s, "step", false, NULL, &id, &e), DINST_BUSY);
		assert_non_null(strstr(e.text, "PR_SET_SYSCALL_USER_DISPATCH"));
		session_go(h, CALLS);
	}
	session_end(s);
	session_go(h, CALLS);
	harness_end(h, 0);
}

/* fear H4, A9: a program that turns system calls into signals to itself, as under Wine, gets none of ours */
static void test_blocked(void **state)
{
	struct harness *h = *state;

	start(h, "blocked");
	expect_busy(h);
}

/* What would make system calls in that thread is refused at any time. */
static void expect_no_calls(struct session *s)
{
	struct dinst_error e = {0};

	assert_int_equal(threads_may_call(s, &e), 0);
	assert_non_null(strstr(e.text, "PR_SET_SYSCALL_USER_DISPATCH"));
}

/* fear H4: ... while another thread of it may make them */
static void test_helped(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	start(h, "helped");
	s = session_begin(h);
	for (int i = 0; i < 5; i++) {
		id = session_insert(s, "step");
		session_go(h, CALLS);
		assert_int_equal(session_value(s, id), CALLS);
		session_remove(s, id);
	}
	expect_no_calls(s);
	session_end(s);
	session_go(h, CALLS);
	harness_end(h, 0);
}

/* fear H4: ... or while it does so only at times: then one of those when it does not is waited for */
static void test_toggling(void **state)
{
	struct harness *h = *state;
	struct session *s;
	unsigned id;

	start(h, "toggling");
	harness_send(h, "run\n");
	s = session_begin(h);
	id = session_insert(s, "step");
	expect_no_calls(s);
	harness_send(h, "go 1000\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_true(session_value(s, id) >= CALLS);
	session_remove(s, id);
	harness_send(h, "run\n");
	session_end(s);
	harness_send(h, "go 1000\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	session_go(h, CALLS);
	harness_end(h, 0);
}

/* From now on this process cannot ask whether a thread dispatches, as before Linux 6.4. */
static void forget_how_to_ask(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, GET_DISPATCH, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	assert_int_equal(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
				 &program),
			 0);
}

/* fear H4: ... also where the kernel is too old to say so: the signal is taken back. The last test. */
static void test_untold(void **state)
{
	struct harness *h = *state;

	start(h, "blocked");
	forget_how_to_ask();
	expect_busy(h);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_blocked),
		CASE(test_helped),
		CASE(test_toggling),
		CASE(test_untold),
	};

	return cmocka_run_group_tests_name("live/dispatch", tests, NULL, NULL);
}
