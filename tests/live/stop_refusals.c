/* SPDX-License-Identifier: MIT */
/*
 * stop_refusals.c - who may not be attached to, and the reason that is given:
 * no such process, a thread, a zombie, a kernel thread, traced by another,
 * 32-bit, strict seccomp, another user, not dumpable. None of the looks may
 * change anything in the process.
 */
#include "tests/live/harness.h"
#include "tests/live/inject_help.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include "inject/control.h"
#include "tests/live/program_32.h"

enum { NOBODY = 65534 };

/* target_open(pid) fails with `code`, and its text has `words`. */
static void assert_refused(pid_t pid, int code, const char *words)
{
	struct dinst_error e = {0};
	struct target *t = NULL;
	int got = target_open(pid, &t, &e);

	if (got != code || e.code != code || !strstr(e.text, words))
		fail_msg("answer %d (%s) instead of %d with \"%s\"", got, e.text, code, words);
	assert_null(t);
}

/* The check `name` of target_checks() says no, and what to do. */
static void assert_check_fails(pid_t pid, const char *name)
{
	struct target_check checks[32];
	size_t count = target_checks(pid, checks, 32);

	for (size_t i = 0; i < count; i++)
		if (!strcmp(checks[i].check, name)) {
			assert_false(checks[i].ok);
			assert_true(checks[i].why[0] && checks[i].fix[0]);
			return;
		}
	fail_msg("no check is named %s", name);
}

/* A child that sleeps after `prepare`; it says when it is prepared. */
static pid_t start_child(void (*prepare)(void))
{
	int fds[2], gate[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pipe(gate), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(600);
		prepare();
		/*
		 * Strict seccomp leaves only read, write and exit. It has both
		 * ends of the gate, so nothing ever comes through it.
		 */
		if (write(fds[1], "x", 1) != 1)
			syscall(SYS_exit, 1);
		while (read(gate[0], &byte, 1) >= 0)
			;
		syscall(SYS_exit, 1);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	close(fds[0]);
	close(gate[0]);
	close(gate[1]);
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_no_process(void **state)
{
	(void)state;
	assert_refused(0, DINST_NO_PROCESS, "no process");
	assert_refused(-5, DINST_NO_PROCESS, "no process");
	assert_refused(0x3ffffffe, DINST_NO_PROCESS, "no process has the pid");
	assert_check_fails(0x3ffffffe, "exists");
}

static void exit_now(void)
{
}

static void test_zombie(void **state)
{
	pid_t pid = start_child(exit_now);

	(void)state;
	kill(pid, SIGKILL);
	usleep(50000);
	assert_refused(pid, DINST_GONE, "zombie");
	assert_check_fails(pid, "zombie");
	waitpid(pid, NULL, 0);
}

static void test_kernel_thread(void **state)
{
	char link[64], target[64];

	(void)state;
	snprintf(link, sizeof(link), "/proc/2/exe");
	if (access("/proc/2/stat", R_OK) || readlink(link, target, sizeof(target)) >= 0) {
		print_message("skipped: process 2 is no kernel thread here\n");
		skip();
	}
	assert_refused(2, DINST_UNSUPPORTED, "kernel thread");
}

static void test_thread(void **state)
{
	struct harness *h = *state;
	char path[64], words[64];

	harness_start(h, "stop-busy", "1", NULL);
	for (pid_t tid = h->pid + 1; tid < h->pid + 1000; tid++) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)h->pid, (int)tid);
		if (access(path, F_OK))
			continue;
		snprintf(words, sizeof(words), "is a thread of process %d", (int)h->pid);
		assert_refused(tid, DINST_NO_PROCESS, words);
		harness_end(h, 0);
		return;
	}
	fail_msg("no thread found");
}

static void be_traced(void)
{
}

/* fear A11: another tracer is named by attach and by doctor */
static void test_traced(void **state)
{
	pid_t pid = start_child(be_traced);
	char words[64];

	(void)state;
	assert_int_equal(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
	snprintf(words, sizeof(words), "traced by process %d (", (int)gettid());
	assert_refused(pid, DINST_TRACED, words);
	assert_check_fails(pid, "tracer");
	end_child(pid);
}

/* fear A11: somebody else begins to trace after we opened: named, and it works when he has gone */
static void test_traced_later(void **state)
{
	struct dinst_error e = {0};
	pid_t pid = start_child(be_traced), tracer;
	struct target *t = NULL;
	int fds[2];
	char byte;

	(void)state;
	assert_int_equal(target_open(pid, &t, &e), 0);
	assert_int_equal(pipe(fds), 0);
	tracer = fork();
	if (!tracer) {
		byte = ptrace(PTRACE_SEIZE, pid, NULL, NULL) ? 'n' : 'y';
		if (write(fds[1], &byte, 1) == 1)
			pause();
		_exit(0);
	}
	assert_int_equal(read(fds[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	assert_int_equal(target_stop(t, NULL, help_nothing, NULL, NULL, &e), DINST_TRACED);
	assert_non_null(strstr(e.text, "already traced by process"));
	end_child(tracer);
	dinst_error_clear(&e);
	usleep(10000);
	assert_int_equal(target_stop(t, NULL, help_nothing, NULL, NULL, &e), 0);
	target_close(t);
	end_child(pid);
	close(fds[0]);
	close(fds[1]);
}

/* In a container, with a /proc of its own: what a stop of the container's first process answers. */
static void stop_the_first(void)
{
	struct dinst_error e = {0};
	struct target *t = NULL;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("proc", "/proc", "proc", 0, NULL))
		_exit(77);
	if (!target_open(1, &t, &e))
		target_stop(t, NULL, help_nothing, NULL, NULL, &e);
	fprintf(stderr, "%s\n", e.text);
	_exit(e.code != DINST_NOT_PERMITTED ||
	      !strstr(e.text, "a tracer outside of this container"));
}

/* fear A11, I1: a tracer outside of our pid namespace, whom /proc does not show, is told of as what it may be */
static void test_traced_from_outside(void **state)
{
	const int ours = harness_container_begin();
	const pid_t pid = start_child(be_traced);
	pid_t visitor;
	int status = 0;

	(void)state;
	assert_int_equal(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
	visitor = fork();
	if (!visitor)
		stop_the_first();
	assert_int_equal(waitpid(visitor, &status, 0), visitor);
	end_child(pid);
	harness_container_end(ours);
	if (status == 77 << 8) {
		print_message("SKIP from outside: no /proc of a container's own here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

/* Another mutator: it has the claim, and is in a stop. Tells so with a byte, and stays. */
static void be_mutator(pid_t pid, int told)
{
	struct dinst_error e = {0};
	struct target *t = NULL;
	char byte = 'n';

	prctl(PR_SET_NAME, "dinst-mutator");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!target_open(pid, &t, &e) && !target_claim(t, 0, &e) &&
	    !ptrace(PTRACE_SEIZE, pid, NULL, NULL))
		byte = 'y';
	if (write(told, &byte, 1) == 1)
		pause();
	_exit(0);
}

/*
 * fear J6: whoever meets the stop of another dinst is told who has the process, as between two stops,
 * and gets it when that one has gone
 */
static void test_traced_by_dinst(void **state)
{
	struct dinst_error e = {0};
	pid_t pid = start_child(be_traced), mutator;
	struct target *t = NULL;
	char byte, words[64];
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	mutator = fork();
	if (!mutator)
		be_mutator(pid, fds[1]);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	assert_int_equal(target_open(pid, &t, &e), 0);
	assert_int_equal(target_claim(t, 0, &e), DINST_BUSY);
	snprintf(words, sizeof(words), "is being instrumented by process %d", (int)mutator);
	assert_non_null(strstr(e.text, words));
	assert_check_fails(pid, "tracer");
	end_child(mutator);
	dinst_error_clear(&e);
	assert_int_equal(target_claim(t, 10000, &e), 0);
	assert_int_equal(target_stop(t, NULL, help_nothing, NULL, NULL, &e), 0);
	target_close(t);
	end_child(pid);
	close(fds[0]);
	close(fds[1]);
}

static void stay(void)
{
}

struct rival {
	pid_t pid; /* whom its mutator claims */
	int told;
};

static void *have_mutator(void *arg)
{
	const struct rival *rival = arg;

	if (!fork())
		be_mutator(rival->pid, rival->told);
	pause();
	return NULL;
}

/* A daemon on its way out: a mutator of it lives, and one of its threads, but not the first one. */
static void be_dying_daemon(struct rival rival)
{
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "dinstd");
	if (pthread_create(&thread, NULL, have_mutator, &rival))
		_exit(1);
	syscall(SYS_exit, 0);
}

/* fear J2, J6: the mutator of a daemon that was killed, and has not quite ended, is one that is waited for */
static void test_daemon_is_ending(void **state)
{
	struct dinst_error e = {0};
	pid_t pid = start_child(stay), daemon;
	struct target *t = NULL;
	struct proc_stat stat;
	char byte;
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	daemon = fork();
	if (!daemon)
		be_dying_daemon((struct rival){pid, fds[1]});
	assert_int_equal(read(fds[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	do {
		assert_int_equal(proc_stat_read(daemon, &stat), 0);
	} while (stat.state != 'Z');
	assert_int_equal(waitpid(daemon, NULL, WNOHANG), 0);
	assert_int_equal(target_open(pid, &t, &e), 0);
	assert_int_equal(target_claim(t, 0, &e), DINST_BUSY);
	assert_non_null(strstr(e.text, "whose daemon has ended and which will end soon"));
	dinst_error_clear(&e);
	end_child(daemon);
	assert_int_equal(target_claim(t, 10000, &e), 0);
	target_close(t);
	end_child(pid);
	close(fds[0]);
	close(fds[1]);
}

/* A process of ours that has no descriptor left: what it cannot find out, by its exit status. */
static void be_short_of_descriptors(pid_t pid)
{
	const struct rlimit none = {1, 1}; /* standard input; poll() of one fails with less */
	struct dinst_error e = {0};
	struct target *t = NULL;

	if (target_open(pid, &t, &e) || setrlimit(RLIMIT_NOFILE, &none))
		_exit(1);
	if (target_claim(t, 0, &e) != DINST_FAILED || !strstr(e.text, strerror(EMFILE)))
		_exit(2);
	target_hold(t);
	_exit(target_at_hand(t, (taddr_t)(uintptr_t)&none, 1) ? 3 : 0);
}

/* Where our own descriptors have run out, nobody is said to be free and no page to be there. */
static void test_no_descriptors(void **state)
{
	pid_t pid = start_child(stay), child;
	int status = 0;

	(void)state;
	child = fork();
	if (!child)
		be_short_of_descriptors(pid);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	end_child(pid);
}

/* A dinst that makes one stop after the other, each by a thread that ends with it. */
static void stop_always(pid_t pid)
{
	struct dinst_error e = {0};
	struct target *t = NULL;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "dinst-mutator");
	while (target_open(pid, &t, &e))
		dinst_error_clear(&e);
	for (;;)
		target_stop(t, NULL, help_nothing, NULL, NULL, &e);
}

/* fear J6: ... also when its thread ends in the moment between that it is seen and asked for its name */
static void test_tracer_ends(void **state)
{
	struct target_check checks[32];
	pid_t pid = start_child(exit_now), mutator;
	unsigned traced = 0;

	(void)state;
	mutator = fork();
	if (!mutator)
		stop_always(pid);
	for (int i = 0; i < 5000; i++) {
		struct dinst_error e = {0};
		struct target *t = NULL;

		if (target_open(pid, &t, &e))
			fail_msg("%d: %s", i, e.text);
		target_close(t);
		if (i % 10)
			continue;
		for (size_t n = target_checks(pid, checks, 32); n > 0; n--)
			traced += !strcmp(checks[n - 1].check, "tracer") && !checks[n - 1].ok;
	}
	print_message("seen in a stop %u times of 500\n", traced);
	assert_true(traced > 0);
	end_child(mutator);
	end_child(pid);
}

static void strict(void)
{
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
}

/* fear A9: strict mode is refused */
static void test_strict_seccomp(void **state)
{
	pid_t pid = start_child(strict);

	(void)state;
	assert_refused(pid, DINST_UNSUPPORTED, "strict seccomp");
	end_child(pid);
}

/* fear H4: a 32-bit program is refused before anything is done to it, and the reason is told */
static void test_32_bit(void **state)
{
	char path[] = "/tmp/dinst-32-XXXXXX";
	int fd = mkstemp(path), fds[2], error = 0;
	pid_t pid;

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	write_32_bit_program(path);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(600);
		execl(path, path, NULL);
		error = errno;
		_exit(write(fds[1], &error, sizeof(error)) != sizeof(error));
	}
	close(fds[1]);
	if (read(fds[0], &error, sizeof(error)) > 0) {
		end_child(pid);
		unlink(path);
		print_message("skipped: no 32-bit programs here: %s\n", strerror(error));
		skip();
	}
	close(fds[0]);
	usleep(20000);
	unlink(path);
	assert_refused(pid, DINST_UNSUPPORTED, "32-bit");
	end_child(pid);
}

/* -------------------------------------------------------------- other users */

static void become_nobody(void)
{
	if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
		_exit(1);
	prctl(PR_SET_DUMPABLE, 1);
}

static void become_undumpable(void)
{
	become_nobody();
	prctl(PR_SET_DUMPABLE, 0);
}

/* As nobody: what target_open() and the check say, through the exit status. */
static bool refused_as_nobody(pid_t pid, const char *check, const char *words)
{
	struct target_check checks[32];
	struct dinst_error e = {0};
	struct target *t = NULL;
	size_t count;
	pid_t child = fork();
	int status;

	if (!child) {
		become_nobody();
		status = target_open(pid, &t, &e) == DINST_NOT_PERMITTED && strstr(e.text, words)
				 ? 0
				 : 1;
		if (status)
			fprintf(stderr, "%d: %s\n", e.code, e.text);
		count = target_checks(pid, checks, 32);
		for (size_t i = 0; i < count; i++)
			if (!strcmp(checks[i].check, check) && checks[i].ok)
				status |= 2;
		_exit(status);
	}
	waitpid(child, &status, 0);
	return status == 0;
}

/* fear A12: another user's process, and one that is not dumpable, as an ordinary user */
static void test_other_users(void **state)
{
	struct dinst_error e = {0};
	struct target *t = NULL;
	pid_t pid;

	(void)state;
	if (geteuid()) {
		print_message("skipped: only root can become somebody else\n");
		skip();
	}
	pid = start_child(stay);
	assert_true(refused_as_nobody(pid, "uid", "belongs to uid 0"));
	end_child(pid);
	pid = start_child(become_undumpable);
	assert_true(refused_as_nobody(pid, "dumpable", "not dumpable"));
	assert_int_equal(target_open(pid, &t, &e), 0);
	target_close(t);
	end_child(pid);
}

/* Opening and closing: nobody is traced or stopped, nothing is left. */
static void test_open_changes_nothing(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target_check checks[32];
	struct target *t = NULL;
	size_t count;

	harness_start(h, "stop-busy", "2", NULL);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(target_open(h->pid, &t, &e), 0);
		assert_true(target_alive(t));
		assert_string_equal(target_name(t), "stop-busy");
		target_close(t);
	}
	count = target_checks(h->pid, checks, 32);
	assert_true(count > 8);
	for (size_t i = 0; i < count; i++)
		if (!checks[i].ok && strcmp(checks[i].check, "memfd"))
			fail_msg("%s: %s", checks[i].check, checks[i].why);
	harness_verify(h);
	harness_end(h, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_no_process),
		TEST(test_zombie),
		TEST(test_kernel_thread),
		TEST(test_thread),
		TEST(test_traced),
		TEST(test_traced_later),
		TEST(test_traced_from_outside),
		TEST(test_traced_by_dinst),
		TEST(test_daemon_is_ending),
		TEST(test_tracer_ends),
		TEST(test_strict_seccomp),
		TEST(test_32_bit),
		TEST(test_other_users),
		TEST(test_open_changes_nothing),
		TEST(test_no_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
