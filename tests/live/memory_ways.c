/* SPDX-License-Identifier: MIT */
/*
 * memory_ways.c - the ways to a target's memory, one after the other taken away
 * from the mutator by a seccomp filter that answers as kernels do that forbid
 * them: writing to /proc/PID/mem over the protection of a page
 * (proc_mem.force_override), process_vm_readv, and both.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

enum { TURNS = 12 };

static void ask(struct harness *h, const char *command, const char *answer)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

/* From now on these calls of this process fail so. 0: no such call. */
static int forbid(long first, int first_error, long second, int second_error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)first, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)first_error),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)second, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)second_error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* In a process of its own, whose exit status says how it went. */
static void mutate(pid_t pid, bool private)
{
	static const char *const names[] = {"five", "straddle_in", "straddle_out"};
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;
	unsigned id, busy = 0;

	if (session_attach(pid, "ways", &s, &e) < 0) {
		fprintf(stderr, "attach: %s\n", e.text);
		_exit(3);
	}
	s->private_arenas = private;
	for (int turn = 0; turn < TURNS; turn++) {
		struct flush_result result;
		int status = session_try_insert_kind(s, names[turn % 3],
						     turn & 1 ? POINT_EXIT : POINT_ENTRY, &id, &e);

		/* A machine that is busy lets a stop fail: it is tried again, as a user would. */
		if (status == DINST_BUSY && busy++ < 50 * TURNS) {
			dinst_error_clear(&e);
			usleep(20000);
			turn--;
			continue;
		}
		if (status < 0 || !session_instance(s, id)->link_count) {
			fprintf(stderr, "insert: %s\n", e.text);
			_exit(4);
		}
		if (removal_remove(s, session_instance(s, id), &result, &e) < 0)
			_exit(5);
	}
	if (session_detach(s, 100, &detached, &e) < 0 || detached.left) {
		fprintf(stderr, "detach: %s\n", e.text);
		_exit(6);
	}
	_exit(0);
}

static void run(struct harness *h, long first, int first_error, long second, int second_error,
		bool private)
{
	int status = 0;
	pid_t mutator;

	harness_start(h, "windows", "2", NULL);
	ask(h, "start all", "started");
	fflush(NULL);
	mutator = fork();
	if (mutator == 0) {
		if (forbid(first, first_error, second, second_error))
			_exit(2);
		mutate(h->pid, private);
	}
	assert_int_equal(waitpid(mutator, &status, 0), mutator);
	assert_int_equal(status, 0);
	ask(h, "end", "ended");
	ask(h, "go 1000 all", "done");
	harness_verify(h);
	harness_end(h, 0);
}

/* fear B3: /proc/PID/mem does not write over a page's protection: word by word through ptrace */
static void test_no_override(void **state)
{
	run(*state, SYS_pwrite64, EIO, -1, 0, false);
}

/* fear B3: no process_vm_readv (a kernel without it): read through /proc/PID/mem */
static void test_no_vm_read(void **state)
{
	run(*state, SYS_process_vm_readv, ENOSYS, -1, 0, false);
}

/* fear B3: neither of the two */
static void test_neither(void **state)
{
	run(*state, SYS_pwrite64, EIO, SYS_process_vm_readv, ENOSYS, false);
}

/* fear B3, B8: neither of the two, and private memory instead of a memfd */
static void test_neither_private(void **state)
{
	run(*state, SYS_pwrite64, EIO, SYS_process_vm_readv, ENOSYS, true);
}

/* fear B8: the mutator may not have a copy of the memfd's descriptor: private memory */
static void test_no_descriptor(void **state)
{
	run(*state, SYS_pidfd_getfd, EPERM, -1, 0, false);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_no_override),	    CASE(test_no_vm_read),    CASE(test_neither),
		CASE(test_neither_private), CASE(test_no_descriptor),
	};

	return cmocka_run_group_tests_name("live/memory_ways", tests, NULL, NULL);
}
