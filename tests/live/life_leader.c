/* SPDX-License-Identifier: MIT */
/*
 * life_leader.c - targets whose main thread has exited, whose pid changes hands between threads, or
 * is another process's by now.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/maps.h"
#include "inject/proc.h"
#include "inject/tasks.h"
#include "tests/live/harness_session.h"
#include "tests/live/inject_help.h"

/* The bytes at the beginning of step(), as they are in the target now. */
static void read_step(struct session *s, uint8_t code[16])
{
	struct dinst_error e = {0};

	if (target_read(s->target, session_address(s, "step"), code, 16, &e))
		fail_msg("%s", e.text);
}

/* Private copies of the code of libc in KiB, as one of its threads that live shows them. */
static unsigned text_copies(pid_t pid)
{
	unsigned long lo, hi, kib, total = 0;
	char path[64], line[512], kind[5];
	bool inside = false;
	size_t count;
	pid_t *tids = task_list(pid, &count);
	FILE *f;

	assert_true(count > 0);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/smaps", (int)pid, (int)tids[count - 1]);
	free(tids);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %4s", &lo, &hi, kind) == 3)
			inside = kind[2] == 'x' && strstr(line, "/libc.so");
		else if (inside && sscanf(line, "Anonymous: %lu kB", &kib) == 1)
			total += kib;
	}
	fclose(f);
	return (unsigned)total;
}

/*
 * fear A13: the main thread has ended before dinst comes, or in the middle of a session: points go in
 * and out, count, and leave nothing.
 */
static void test_leader_exits(void **state)
{
	struct harness *h = *state;
	unsigned id, given_back = 0;
	uint8_t before[16], after[16];
	struct session *s;
	uint64_t value;

	harness_start(h, "life-states", "threads", NULL);
	s = session_begin(h);
	read_step(s, before);
	id = session_insert(s, "step");
	harness_send(h, "exit\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "exits");
	harness_until(harness_status(h->pid, h->pid, "State:")[0] == 'Z');
	value = session_value(s, id);
	harness_until(session_value(s, id) > value);
	session_insert_kind(s, "/Code/life-states/*", POINT_EXIT);
	session_insert_kind(s, "/Code/libc.so*/*nanosleep*", POINT_ENTRY);
	assert_true(text_copies(h->pid) > 0);
	session_end(s);
	given_back += text_copies(h->pid) == 0;
	harness_snapshot_free(h->before);
	h->before = harness_snapshot_settled(h->pid);
	for (int i = 0; i < 5; i++) {
		s = session_begin(h);
		read_step(s, after);
		assert_memory_equal(before, after, sizeof(before));
		id = session_insert(s, "step");
		session_insert_kind(s, "/Code/libc.so*/*nanosleep*", POINT_ENTRY);
		harness_until(session_value(s, id) > 0);
		session_end(s);
		given_back += text_copies(h->pid) == 0;
		harness_verify(h);
	}
	/* Pages are given back as far as the stop has time for it. */
	assert_true(given_back > 0);
	harness_end(h, 0);
}

static void *sleep_for_ever(void *unused)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
	return unused;
}

/* A process of one sleeping thread, whose main thread has exited. */
static pid_t headless(void)
{
	pid_t child = fork();
	pthread_t thread;

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (pthread_create(&thread, NULL, sleep_for_ever, NULL))
			_exit(1);
		syscall(SYS_exit, 0);
	}
	assert_true(child > 0);
	harness_until(harness_status(child, child, "State:")[0] == 'Z');
	return child;
}

/*
 * fear A13: what /proc and kcmp(2) do not tell of a main thread that has exited is asked of a thread
 * that lives: two such processes have not the same memory, none is a stranger without an executable.
 */
static void test_leader_tells_nothing(void **state)
{
	struct target_check checks[32];
	const pid_t one = headless(), other = headless();
	size_t count = target_checks(one, checks, 32);
	struct proc_stat stat;
	struct maps m;

	(void)state;
	harness_until(proc_memory_tid(one, &stat) > 0 && stat.state == 'S');
	assert_int_not_equal(proc_memory_tid(one, &stat), one);
	assert_int_equal(proc_memory_tid(getpid(), NULL), getpid());
	assert_true(task_same_memory(one, one));
	assert_true(task_same_memory(one, proc_memory_tid(one, NULL)));
	assert_false(task_same_memory(one, other));
	assert_int_equal(maps_read(one, &m, NULL), 0);
	assert_non_null(maps_named(&m, "[vdso]"));
	maps_release(&m);
	for (size_t i = 0; i < count; i++) {
		if (!strcmp(checks[i].check, "zombie"))
			assert_non_null(strstr(checks[i].why, "its main thread has exited"));
		if (!strcmp(checks[i].check, "bits"))
			assert_null(strstr(checks[i].why, "not known"));
		if (strstr("exists zombie bits access", checks[i].check))
			assert_true(checks[i].ok);
	}
	assert_true(count > 10);
	for (int i = 0; i < 2; i++) {
		kill(i ? one : other, SIGKILL);
		waitpid(i ? one : other, NULL, 0);
	}
	assert_int_equal(proc_memory_tid(one, NULL), 0);
	assert_false(task_same_memory(one, other));
}

/*
 * fear A13, G3: a thread that is not the leader executes the program anew every few milliseconds, at
 * whatever moment of attaching, inserting and detaching: an ordinary answer, and it goes on.
 */
static void test_thread_executes(void **state)
{
	struct harness *h = *state;
	uint64_t until = clock_ns() / 1000000 + 4000;
	unsigned id, done = 0, turns = 0;
	siginfo_t ended = {0};
	char path[256];

	snprintf(path, sizeof(path), "%s", harness_path("tests/live/targets/stop-states"));
	harness_start_argv(h, (const char *const[]){path, "exec", NULL}, false);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	while (clock_ns() / 1000000 < until ||
	       (done < 5 && clock_ns() / 1000000 < until + 200000)) {
		struct detach_result detached;
		struct dinst_error e = {0};
		struct session *s;
		int status = session_attach(h->pid, "test", &s, &e);

		turns++;
		if (status < 0) {
			if (e.code != DINST_GONE && e.code != DINST_BUSY && e.code != DINST_FAILED)
				fail_msg("attach: %s", e.text);
			continue;
		}
		status = session_try_insert_kind(s, "/Code/stop-states/*", POINT_ENTRY, &id, &e);
		if (status < 0 && e.code != DINST_GONE && e.code != DINST_BUSY)
			fail_msg("insert: %s (%s)", e.text, dinst_code_name(e.code));
		done += status >= 0;
		dinst_error_clear(&e);
		if (session_detach(s, 100, &detached, &e) < 0 && e.code != DINST_GONE &&
		    e.code != DINST_BUSY)
			fail_msg("detach: %s", e.text);
		session_free(s);
	}
	print_message("%u of %u met no exec\n", done, turns);
	/* "State: Z" would not tell: a leader shows it while another thread takes its place. */
	assert_int_equal(waitid(P_PID, (id_t)h->pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
	if (ended.si_pid)
		fail_msg("the target has ended: code %d, status %d", ended.si_code,
			 ended.si_status);
	assert_true(done > 0);
	/* Every fresh program is as its file is; it ends well. */
	harness_end(h, 0);
}

/* Another process with the pid that the target had. */
static pid_t start_under(pid_t pid)
{
	struct clone_args args = {.exit_signal = SIGCHLD, .set_tid_size = 1};
	pid_t child;

	args.set_tid = (uintptr_t)&pid;
	fflush(NULL);
	child = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (child)
		return child;
	for (;;)
		pause();
}

/*
 * fear A13: the target has ended and another process has its pid: every request says that the target is
 * gone, and the stranger is never touched.
 */
static void test_pid_is_used_again(void **state)
{
	struct harness *h = *state;
	struct detach_result detached;
	struct dinst_error e = {0};
	struct harness_snapshot *stranger_before;
	struct session *s;
	pid_t stranger, pid;
	size_t count = 0;
	char text[1024];
	unsigned id;

	harness_start(h, "calls", "2", NULL);
	s = session_begin(h);
	id = session_insert(s, "tiny");
	session_go(h, 100);
	pid = h->pid;
	kill(pid, SIGKILL);
	harness_wait(h, HARNESS_ANSWER_MS);
	stranger = start_under(pid);
	if (stranger != pid) {
		print_message("skipped: a pid cannot be asked for here\n");
		skip();
	}
	stranger_before = harness_snapshot_take(stranger);
	assert_non_null(stranger_before);
	assert_int_equal(session_value(s, id), 100 * 2);
	assert_false(target_alive(s->target));
	assert_int_equal(session_try_insert(s, "main", false, &count, &id, &e), DINST_GONE);
	dinst_error_clear(&e);
	assert_int_equal(target_stop(s->target, NULL, help_nothing, NULL, NULL, &e), DINST_GONE);
	dinst_error_clear(&e);
	if (session_detach(s, 100, &detached, &e) < 0)
		fail_msg("detach: %s", e.text);
	session_free(s);
	if (harness_differences(stranger_before, HARNESS_ALL, text, sizeof(text)))
		fail_msg("the stranger was touched:\n%s", text);
	harness_snapshot_free(stranger_before);
	kill(stranger, SIGKILL);
	waitpid(stranger, NULL, 0);
}

/* The first process of a container; it ends once it has read from `ask`. Its child says on `tell` that it is there. */
static pid_t start_container(int ask, int tell)
{
	const int ours = harness_container_begin();
	const pid_t first = fork();
	char byte = 0;

	if (first) {
		harness_container_end(ours);
		return first;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!fork()) {
		if (write(tell, &byte, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	_exit(read(ask, &byte, 1) != 1);
}

/*
 * fear A13: the target has no memory any more and has not ended, as the kernel waits for the rest of its container,
 * of which we keep one: it counts as one that has ended, not as one that cannot be read.
 */
static void test_end_is_long(void **state)
{
	static const char text[] = "what is read";
	char copy[sizeof(text)] = "", byte;
	struct proc_ids children = {0};
	const struct target_range range = {(taddr_t)(uintptr_t)text, sizeof(text), copy};
	struct dinst_error e = {0};
	int ask[2], tell[2];
	struct target *t;
	pid_t first;

	(void)state;
	assert_int_equal(pipe(ask), 0);
	assert_int_equal(pipe(tell), 0);
	first = start_container(ask[0], tell[1]);
	assert_true(first > 0);
	assert_int_equal(read(tell[0], &byte, 1), 1);
	assert_int_equal(proc_children(first, first, &children), 0);
	assert_int_equal(children.count, 1);
	assert_int_equal(ptrace(PTRACE_SEIZE, children.ids[0], NULL, NULL), 0);
	assert_int_equal(target_open(first, &t, &e), 0);
	assert_int_equal(target_read(t, range.address, copy, sizeof(copy), &e), 0);
	assert_string_equal(copy, text);
	assert_int_equal(write(ask[1], &byte, 1), 1);
	for (int ms = 0; ms < HARNESS_ANSWER_MS && proc_memory_tid(first, NULL); ms++)
		usleep(1000);
	assert_true(target_alive(t));
	assert_true(target_has_to_end(t));
	assert_int_equal(target_read(t, range.address, copy, sizeof(copy), &e), DINST_GONE);
	dinst_error_clear(&e);
	assert_int_equal(target_read_many(t, &range, 1, &e), DINST_GONE);
	dinst_error_clear(&e);
	assert_true(target_alive(t));
	assert_int_equal(waitpid(children.ids[0], NULL, __WALL), children.ids[0]);
	assert_int_equal(waitpid(first, NULL, 0), first);
	target_close(t);
	proc_ids_release(&children);
	for (int i = 0; i < 2; i++)
		assert_int_equal(close(ask[i]) + close(tell[i]), 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_leader_exits),    CASE(test_leader_tells_nothing),
		CASE(test_thread_executes), CASE(test_pid_is_used_again),
		CASE(test_end_is_long),
	};

	return cmocka_run_group_tests_name("live/life_leader", tests, NULL, NULL);
}
