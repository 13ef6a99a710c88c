/* SPDX-License-Identifier: MIT */
/*
 * life_states.c - targets in states that make them hard to stop, or to know:
 * uninterruptible sleeps, a frozen container, filters that come at the wrong
 * moment, workers of the kernel. Leaders and pids are in life_leader.c.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/maps.h"
#include "inject/proc.h"
#include "inject/remote.h"
#include "inject/tasks.h"
#include "tests/live/harness_session.h"
#include "tests/live/inject_help.h"

/* All tries of a stop, with their pauses, on a machine that is busy. */
enum { BUSY_MS = 4000 };

static uint64_t now_ms(void)
{
	return clock_ns() / 1000000;
}

/* For programs that cannot be looked at all the time. Returns false if the mode is not to be had. */
static bool start(struct harness *h, const char *program, const char *mode)
{
	char path[256];
	const char *argv[] = {path, mode, NULL};

	snprintf(path, sizeof(path), "%s", harness_path(program));
	harness_start_argv(h, argv, false);
	return !strcmp(harness_line(h, HARNESS_ANSWER_MS), "ready");
}

static const char states[] = "tests/live/targets/life-states";
static const char stops[] = "tests/live/targets/stop-states";

static struct target *open_target(pid_t pid)
{
	struct dinst_error e = {0};
	struct target *t = NULL;

	if (target_open(pid, &t, &e))
		fail_msg("%s", e.text);
	return t;
}

/* The bytes of a function, as they are in the target now. */
static void read_code(struct session *s, const char *function, uint8_t *code, size_t size)
{
	struct dinst_error e = {0};

	if (target_read(s->target, session_address(s, function), code, size, &e))
		fail_msg("%s", e.text);
}

/* Points in and out; code is afterwards what it was. */
static void in_and_out(struct session *s, const char *function)
{
	uint8_t before[16], after[16];

	read_code(s, function, before, sizeof(before));
	session_insert(s, function);
	session_remove(s, session_insert_kind(s, function, POINT_EXIT));
	session_flush_all(s);
	while (s->instances)
		session_remove(s, s->instances->id);
	session_flush_all(s);
	read_code(s, function, after, sizeof(after));
	assert_memory_equal(before, after, sizeof(before));
}

/* ------------------------------------------------------ sleeps that last */

struct answer {
	int code;
	struct dinst_error e;
	uint64_t ms;
	bool traced;
};

static struct answer try_insert(struct harness *h, struct session *s, const char *focus)
{
	struct answer a = {0};
	uint64_t begin = now_ms();
	size_t count = 0;
	unsigned id = 0;

	a.code = session_try_insert(s, focus, false, &count, &id, &a.e);
	a.ms = now_ms() - begin;
	a.traced = strcmp(harness_status(h->pid, h->pid, "TracerPid:"), "0") != 0;
	return a;
}

/* It was not to be had: told in time, with the reason; nobody is traced. */
static void expect_busy(const struct answer *a, const char *reason)
{
	if (a->code != DINST_BUSY || !strstr(a->e.text, reason))
		fail_msg("the answer is %d: %s", a->code, a->e.text);
	assert_in_range(a->ms, 0, BUSY_MS);
	assert_false(a->traced);
}

/*
 * fear K2: a thread in an uninterruptible sleep (a page that is not there yet): the request is refused
 * within its deadline, nobody else was kept waiting for it, and later it is done.
 */
static void test_uninterruptible(void **state)
{
	struct harness *h = *state;
	struct stop_report report;
	struct dinst_error e = {0};
	struct answer answer;
	struct session *s;

	if (!start(h, states, "fault")) {
		print_message("skipped: no userfaultfd here (%d)\n",
			      harness_wait(h, HARNESS_ANSWER_MS));
		skip();
	}
	s = session_begin(h);
	harness_send(h, "sleep -1\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "asleep");
	answer = try_insert(h, s, "say");
	expect_busy(&answer, "state D");
	assert_int_equal(target_stop(s->target, NULL, help_nothing, NULL, &report, &e), DINST_BUSY);
	/* Nobody was stopped to wait for it. */
	assert_in_range(report.stop_ns, 0, 0);
	harness_send(h, "on\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "awake");
	in_and_out(s, "say");
	/* A sleep that ends in time is waited for. */
	harness_send(h, "sleep 30\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "asleep");
	session_insert(s, "say");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "awake");
	session_end(s);
	harness_end(h, 0);
}

/* Nothing may fail while it is frozen: what is frozen cannot be killed. */
static struct answer try_frozen(struct harness *h, struct session *s, const char *directory,
				unsigned id, uint64_t *value)
{
	struct answer a = {0};

	if (!harness_set(directory, "freezer.state", "FROZEN"))
		return a;
	for (int i = 0; i < 60000 && harness_status(h->pid, h->pid, "State:")[0] != 'D'; i++)
		usleep(1000);
	a = try_insert(h, s, "main");
	*value = instance_value(session_instance(s, id));
	harness_set(directory, "freezer.state", "THAWED");
	return a;
}

/* A control group of its own with a freezer of the first version, or the case is skipped. */
static void start_freezable(struct harness *h, char *directory, size_t size)
{
	harness_start(h, "calls", "3", NULL);
	snprintf(directory, size, "/sys/fs/cgroup/freezer/dinst-test-%d", (int)h->pid);
	if (mkdir(directory, 0755) || !harness_join(h->pid, directory)) {
		rmdir(directory);
		print_message("skipped: no freezer of the first version here\n");
		skip();
	}
}

/*
 * fear K2, A3: a container that is paused (the freezer of its cgroup): the request says so in time and
 * nothing is left that would fall upon it when it goes on; afterwards everything works.
 */
static void test_frozen(void **state)
{
	struct harness *h = *state;
	struct answer answer;
	char directory[64];
	struct session *s;
	uint64_t value;
	unsigned id;

	start_freezable(h, directory, sizeof(directory));
	s = session_begin(h);
	for (int i = 0; i < 2; i++) {
		id = session_insert(s, "tiny");
		session_go(h, 100);
		value = 0;
		answer = try_frozen(h, s, directory, id, &value);
		expect_busy(&answer, "is frozen");
		/* Values can be read all the time. */
		assert_int_equal(value, 300);
		in_and_out(s, "many");
	}
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
	rmdir(directory);
}

/*
 * fear K2, A3: the same where it was stopped before: the kernel would keep whoever wants to trace it waiting until it
 * goes on
 */
static void test_stopped_and_frozen(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	char directory[64];
	struct session *s;
	uint64_t begin, ms;
	int code;

	start_freezable(h, directory, sizeof(directory));
	s = session_begin(h);
	assert_int_equal(kill(h->pid, SIGSTOP), 0);
	harness_until(harness_status(h->pid, h->pid, "State:")[0] == 'T');
	assert_true(harness_set(directory, "freezer.state", "FROZEN"));
	for (int i = 0; i < 60000 && harness_status(h->pid, h->pid, "State:")[0] != 'D'; i++)
		usleep(1000);
	begin = now_ms();
	code = target_stop(s->target, NULL, help_nothing, NULL, NULL, &e);
	ms = now_ms() - begin;
	harness_set(directory, "freezer.state", "THAWED");
	if (code != DINST_BUSY || !strstr(e.text, "is frozen"))
		fail_msg("the answer is %d: %s", code, e.text);
	assert_in_range(ms, 0, BUSY_MS);
	harness_until(harness_status(h->pid, h->pid, "State:")[0] == 'T');
	assert_int_equal(kill(h->pid, SIGCONT), 0);
	in_and_out(s, "many");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
	rmdir(directory);
}

/* ------------------------------------------------------------------ filters */

/* Who sleeps is under the filter. One more in *arg for each. */
static int count_sleepers(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)e;
	for (size_t i = 0; i < stop_thread_count(s); i++) {
		const struct arch_regs *regs = &stop_thread(s, i)->regs;
		const long number = arch_in_syscall(regs) ? arch_syscall_number(regs) : -1;

		*(unsigned *)arg += number == SYS_nanosleep || number == SYS_clock_nanosleep;
	}
	return 0;
}

/*
 * fear A8: threads come under a filter that kills at restart_syscall just before they are stopped in a
 * sleep: what filters there are is asked when they stand still, not before.
 */
static void test_filters_come(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	unsigned stops = 0, sleepers = 0;
	struct target *t;
	uint64_t until;

	assert_true(start(h, states, "filters"));
	t = open_target(h->pid);
	for (until = now_ms() + 3000; now_ms() < until || stops < 20 || !sleepers;) {
		dinst_error_clear(&e);
		if (!target_stop(t, NULL, count_sleepers, &sleepers, NULL, &e))
			stops++;
		else if (e.code != DINST_BUSY)
			fail_msg("%s", e.text);
	}
	print_message("%u stops, %u sleepers in them\n", stops, sleepers);
	target_close(t);
	harness_end(h, 0);
}

/* CAP_SYS_ADMIN alone can lift a filter, or read it; the right to trace stays. */
static bool give_up_admin(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data))
		return false;
	data[0].effective &= ~(1u << CAP_SYS_ADMIN);
	return !syscall(SYS_capset, &header, data);
}

/* 0 if it is refused. */
static int refused_unprivileged(struct harness *h)
{
	struct session *s = session_begin(h);
	struct dinst_error e = {0};
	size_t count = 0;
	unsigned id = 0;
	int status;

	if (!give_up_admin())
		return 3;
	do {
		dinst_error_clear(&e);
		status = session_try_insert(s, "ready", false, &count, &id, &e);
	} while (status == DINST_BUSY);
	if (status == DINST_REFUSED && strstr(e.text, "seccomp filter"))
		return 0;
	fprintf(stderr, "%d: %s\n", status, e.text);
	return 1;
}

/*
 * fear A8, A9: under a filter that kills at restart_syscall, mmap and munmap: with privileges points
 * come and go ten times and a sleep goes on; without them it is refused, and nobody is killed.
 */
static void test_filter(void **state)
{
	struct harness *h = *state;
	pid_t child;
	int status;

	assert_true(start(h, stops, "filter"));
	for (int i = 0; i < 10; i++) {
		struct session *s = session_begin(h);

		in_and_out(s, "ready");
		session_insert(s, "libc.so.6:poll");
		session_end(s);
	}
	fflush(NULL);
	child = fork();
	if (!child)
		_exit(refused_unprivileged(h));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	harness_end(h, 0);
}

/* Two calls that the filter kills for. The second time we cannot even open what says that there is a filter. */
static int call_twice(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arch_remote_call call = {.number = SYS_getppid};
	struct arch_remote_program program = {.calls = &call, .count = 1};
	const taddr_t pc = arch_pc(&stop_thread(s, 0)->regs);
	struct dinst_error second = {0};
	struct rlimit limit, none;
	int *codes = arg;
	uint8_t byte;
	long result;

	codes[0] = remote_run(s, &program, 0, NULL, NULL, NULL, &result, e);
	/* The memory is open from then on. */
	if (target_read(stop_target(s), pc, &byte, 1, NULL) || stop_write(s, pc, &byte, 1, NULL) ||
	    getrlimit(RLIMIT_NOFILE, &limit))
		return 0;
	none = (struct rlimit){1, limit.rlim_max};
	setrlimit(RLIMIT_NOFILE, &none);
	codes[1] = remote_run(s, &program, 0, NULL, NULL, NULL, &result, &second);
	setrlimit(RLIMIT_NOFILE, &limit);
	return codes[0];
}

static int refused_without_descriptors(struct harness *h)
{
	struct target *t = open_target(h->pid);
	struct dinst_error e = {0};
	int codes[2] = {0};

	if (!give_up_admin())
		return 3;
	/* More than once: the pages that are looked at have to be there. */
	for (int i = 0; i < 3; i++)
		do
			dinst_error_clear(&e);
		while (target_stop(t, NULL, call_twice, codes, NULL, &e) == DINST_BUSY);
	return codes[0] == DINST_REFUSED && codes[1] < 0 && target_alive(t) ? 0 : 1;
}

/* fear A9, G9: our own descriptors have run out: nobody counts as free of filters for that */
static void test_filter_not_seen(void **state)
{
	struct harness *h = *state;
	pid_t child;
	int status;

	assert_true(start(h, stops, "filter"));
	fflush(NULL);
	child = fork();
	if (!child)
		_exit(refused_without_descriptors(h));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	harness_end(h, 0);
}

/* fear A9: the filter of one thread lets no call pass that we could end on: another one makes our calls */
static void test_one_is_barred(void **state)
{
	struct harness *h = *state;
	struct session *s;

	assert_true(start(h, stops, "barred"));
	s = session_begin(h);
	in_and_out(s, "ready");
	session_end(s);
	harness_end(h, 0);
}

/* How many are barred, how many of those are without their filter after a call of ours, and how many at all. */
static int look_at_barred(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct arch_remote_call call = {.number = SYS_getpid};
	const struct arch_remote_program program = {.calls = &call, .count = 1};
	unsigned *counts = arg;
	long result = -1;
	int status = remote_run(s, &program, 0, NULL, NULL, NULL, &result, e);

	for (size_t i = 0; i < s->held_count; i++) {
		counts[0] += s->held[i].barred;
		counts[1] += s->held[i].barred && s->held[i].seccomp_suspended;
		counts[2] += s->held[i].seccomp_suspended;
	}
	return status;
}

/*
 * fear A9, A4: the thread that makes none of our calls is watched on its way back into its own as ever, which
 * one without its filter is not: a handler that runs before that would not be told to the call
 */
static void test_barred_is_watched(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	unsigned counts[3] = {0};
	struct target *t;

	assert_true(start(h, stops, "barred"));
	t = open_target(h->pid);
	if (target_stop(t, NULL, look_at_barred, counts, NULL, &e))
		fail_msg("%s", e.text);
	assert_int_equal(counts[0], 1);
	assert_int_equal(counts[1], 0);
	assert_int_equal(counts[2], 1);
	target_close(t);
	harness_end(h, 0);
}

/* True if all threads are asleep: what a stop interrupted they have gone on with. */
static bool all_sleep(pid_t pid)
{
	char path[64];
	bool asleep = true;
	struct dirent *d;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	assert_non_null(tasks);
	while (asleep && (d = readdir(tasks)))
		if (d->d_name[0] != '.')
			asleep = harness_status(pid, atoi(d->d_name), "State:")[0] == 'S';
	closedir(tasks);
	return asleep;
}

/*
 * fear A8: all threads come under the filter together, by one of them, between two stops. A thread that
 * no processor has taken up since the last one is still to make the call that the filter kills for.
 */
static void test_filter_for_all(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;
	int status;

	assert_true(start(h, states, "sync"));
	t = open_target(h->pid);
	for (int i = 0; i < 100; i++) {
		if (i == 50) {
			while (!all_sleep(h->pid))
				usleep(1000);
			harness_send(h, "filter\n");
			assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
		}
		do {
			dinst_error_clear(&e);
			status = target_stop(t, NULL, help_nothing, NULL, NULL, &e);
		} while (status == DINST_BUSY);
		if (status)
			fail_msg("%s", e.text);
		usleep(2000);
	}
	target_close(t);
	harness_end(h, 0);
}

/* ------------------------------------------------------------ kernel's own */

/*
 * fear A10: while a worker of io_uring waits in a read points go in and out twenty times: the worker is
 * not touched, its read ends as it should, without EINTR.
 */
static void test_io_uring(void **state)
{
	struct harness *h = *state;

	if (!start(h, stops, "worker")) {
		print_message("skipped: no io_uring here (%d)\n",
			      harness_wait(h, HARNESS_ANSWER_MS));
		skip();
	}
	for (int i = 0; i < 20; i++) {
		struct session *s = session_begin(h);

		in_and_out(s, "wait_for_end");
		session_insert(s, "/Code/stop-states/*");
		session_end(s);
	}
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_uninterruptible),
		CASE(test_frozen),
		CASE(test_stopped_and_frozen),
		CASE(test_filters_come),
		CASE(test_filter),
		CASE(test_filter_not_seen),
		CASE(test_filter_for_all),
		CASE(test_one_is_barred),

		CASE(test_barred_is_watched),
		CASE(test_io_uring),
	};

	return cmocka_run_group_tests_name("live/life_states", tests, NULL, NULL);
}
