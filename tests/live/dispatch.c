/* SPDX-License-Identifier: MIT */
/*
 * dispatch.c - programs whose system calls come to themselves as signals
 * (PR_SET_SYSCALL_USER_DISPATCH): ours must never do so.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/remote.h"
#include "mutator/threads.h"
#include "tests/live/harness_session.h"

enum { GET_DISPATCH = 0x4211, CALLS = 1000 };

static bool may_not_ask, asked;

/* As before Linux 6.4, while that is so. */
long __real_ptrace(enum __ptrace_request request, pid_t tid, void *address, void *data);
long __wrap_ptrace(enum __ptrace_request request, pid_t tid, void *address, void *data);

long __wrap_ptrace(enum __ptrace_request request, pid_t tid, void *address, void *data)
{
	if (!may_not_ask || (unsigned)request != GET_DISPATCH)
		return __real_ptrace(request, tid, address, data);
	asked = true;
	errno = EIO;
	return -1;
}

static void start(struct harness *h, const char *mode)
{
	const char *argv[] = {harness_path("tests/live/targets/dispatched"), mode, NULL};

	harness_start_argv(h, argv, false);
	if (!strcmp(harness_line(h, HARNESS_ANSWER_MS), "ready"))
		return;
	print_message("SKIP: the kernel dispatches no system calls\n");
	asked = true;
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

static void expect_help(struct harness *h)
{
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

/* fear H4: ... while another thread of it may make them */
static void test_helped(void **state)
{
	expect_help(*state);
}

static void expect_to_wait(struct harness *h)
{
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

/* fear H4: ... or while it does so only at times: then one of those when it does not is waited for */
static void test_toggling(void **state)
{
	expect_to_wait(*state);
}

/* A thread that may read, write and exit, and does nothing but count. */
static void *count_strictly(void *arg)
{
	volatile unsigned long *turns = arg;

	if (!prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		for (;;)
			++*turns;
	return NULL;
}

static pid_t start_strict_thread(volatile unsigned long *turns)
{
	pid_t pid = fork();
	pthread_t thread;

	assert_true(pid >= 0);
	if (pid) {
		while (!*turns)
			usleep(1000);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (pthread_create(&thread, NULL, count_strictly, (void *)turns))
		_exit(1);
	for (;;)
		pause();
}

static int call_twice(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arch_remote_call calls[2] = {{.number = SYS_getpid}, {.number = SYS_getuid}};
	const struct arch_remote_program program = {.calls = calls, .count = 2};
	const long nothing[6] = {0};
	long results[2];
	int code = remote_run(s, &program, 0, NULL, NULL, NULL, results, e);

	*(bool *)arg = stop_may_call(s, SYS_getpid, nothing);
	return code;
}

/* fear A9: one thread of many is in the strict mode of seccomp: another one makes our calls */
static void test_strict_thread(void **state)
{
	volatile unsigned long *turns =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct dinst_error e = {0};
	struct target *t = NULL;
	unsigned long before;
	bool may = true;
	pid_t pid;

	(void)state;
	assert_ptr_not_equal(turns, MAP_FAILED);
	pid = start_strict_thread(turns);
	assert_int_equal(target_open(pid, &t, &e), 0);
	for (int i = 0; i < 5; i++) {
		if (target_stop(t, NULL, call_twice, &may, NULL, &e))
			fail_msg("%s", e.text);
		assert_false(may);
		before = *turns;
		usleep(50000);
		assert_int_not_equal(*turns, before);
	}
	target_close(t);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	munmap((void *)turns, 4096);
}

/* Calls are allowed to the C library only. */
static void filter_by_place(void)
{
	const uint32_t upper = (uint32_t)((uintptr_t)&syscall >> 32);
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, instruction_pointer) + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, upper, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int ask(struct stop *s, void *arg, struct dinst_error *e)
{
	const long nothing[6] = {0};

	(void)e;
	*(bool *)arg = stop_may_call(s, SYS_getpid, nothing);
	return 0;
}

/* fear A9: a filter that tells calls by where they are made: code of ours makes none */
static void test_by_place(void **state)
{
	struct dinst_error e = {0};
	struct target *t = NULL;
	bool may = true;
	int status = 0;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		filter_by_place();
		for (;;)
			pause();
	}
	while (harness_status(pid, pid, "Seccomp:")[0] != '2')
		usleep(1000);
	assert_int_equal(target_open(pid, &t, &e), 0);
	assert_int_equal(target_stop(t, NULL, ask, &may, NULL, &e), 0);
	assert_false(may);
	target_close(t);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	/* The filter would have said SIGSYS. */
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* fear H4: ... also where the kernel is too old to say so: the signal is taken back. */
static void test_untold(void **state)
{
	struct harness *h = *state;

	start(h, "blocked");
	expect_busy(h);
}

/* fear H4: ... and then another thread is tried */
static void test_untold_helped(void **state)
{
	expect_help(*state);
}

/*
 * fear H4: ... and none of ours is made in the program's handler, where the signal is blocked: the kernel
 * would take the handler away
 */
static void test_untold_toggling(void **state)
{
	for (int i = 0; i < 10; i++)
		expect_to_wait(*state);
}

static int set_up_untold(void **state)
{
	may_not_ask = true;
	return harness_setup(state);
}

static int tear_down_untold(void **state)
{
	const bool was_asked = asked;

	may_not_ask = asked = false;
	return harness_teardown(state) || !was_asked;
}

#define CASE(function)	 cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)
#define UNTOLD(function) cmocka_unit_test_setup_teardown(function, set_up_untold, tear_down_untold)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_blocked),
		CASE(test_helped),
		CASE(test_toggling),
		cmocka_unit_test(test_strict_thread),
		cmocka_unit_test(test_by_place),
		UNTOLD(test_untold),
		UNTOLD(test_untold_helped),
		UNTOLD(test_untold_toggling),
	};

	return cmocka_run_group_tests_name("live/dispatch", tests, NULL, NULL);
}
