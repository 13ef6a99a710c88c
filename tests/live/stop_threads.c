/* SPDX-License-Identifier: MIT */
/*
 * stop_threads.c - all threads stand still in a stop, and go on as they were:
 * threads that are born and die, many busy ones, stopped by job control,
 * without a leader, waiting in vfork, sharing memory with another process,
 * replaced by exec, workers of the kernel.
 */
#include "tests/live/harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/proc.h"
#include "inject/target.h"
#include "tests/live/harness_session.h"

static struct target *open_target(pid_t pid)
{
	struct dinst_error e = {0};
	struct target *t = NULL;

	if (target_open(pid, &t, &e))
		fail_msg("%s", e.text);
	return t;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Every task that /proc lists is stopped and traced, or ends, or is a kernel's worker: known to the stop or not. */
static int check_listed(pid_t pid, struct dinst_error *e)
{
	struct proc_stat stat;
	struct dirent *entry;
	char path[64];
	int code = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && !code && (entry = readdir(dir))) {
		const pid_t tid = atoi(entry->d_name);

		if (tid > 0 && !proc_thread_stat_read(pid, tid, &stat) &&
		    !strchr("tZXx", stat.state) && !(stat.flags & PROC_EXITING) &&
		    !proc_is_worker(&stat))
			code = dinst_fail(e, DINST_FAILED, "thread %d is in state %c in a stop",
					  (int)tid, stat.state);
	}
	if (dir)
		closedir(dir);
	return code;
}

/* So is every one that the stop knows, of which there are so many. */
static int check_all_stopped(struct stop *s, void *arg, struct dinst_error *e)
{
	pid_t pid = target_pid(stop_target(s));
	unsigned *expected = arg;
	const char *text;

	if (expected && stop_thread_count(s) != *expected)
		return dinst_fail(e, DINST_FAILED, "%zu threads instead of %u",
				  stop_thread_count(s), *expected);
	for (size_t i = 0; i < stop_thread_count(s); i++) {
		text = harness_status(pid, stop_thread(s, i)->tid, "State:");
		if (text && text[0] != 't')
			return dinst_fail(e, DINST_FAILED, "thread %d is in state %s",
					  (int)stop_thread(s, i)->tid, text);
	}
	return check_listed(pid, e);
}

static void stop_times(struct target *t, int times, unsigned *expected, unsigned pause_us)
{
	struct dinst_error e = {0};

	for (int i = 0; i < times; i++) {
		/* A machine that is busy lets a stop fail: it is tried again. */
		if (target_stop(t, NULL, check_all_stopped, expected, NULL, &e) &&
		    e.code != DINST_BUSY)
			fail_msg("stop %d: %s", i, e.text);
		i -= e.code == DINST_BUSY;
		dinst_error_clear(&e);
		usleep(pause_us);
	}
}

/*
 * fear A1: 300 stops of a process in four chains of threads that live a millisecond: all that are
 * listed stand still in each
 */
static void test_churn(void **state)
{
	struct harness *h = *state;
	struct target *t;

	harness_start(h, "stop-churn", "4", NULL);
	t = open_target(h->pid);
	stop_times(t, 300, NULL, 500);
	target_close(t);
	harness_end(h, 0);
}

/* fear A2: 64 threads that compute are stopped and let go, all of them, each time */
static void test_busy(void **state)
{
	struct harness *h = *state;
	unsigned expected = 65;
	struct target *t;

	harness_start(h, "stop-busy", "64", NULL);
	t = open_target(h->pid);
	stop_times(t, 5, &expected, 1000);
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

static int count_group_stopped(struct stop *s, void *arg, struct dinst_error *e)
{
	unsigned *count = arg;

	(void)e;
	*count = 0;
	for (size_t i = 0; i < stop_thread_count(s); i++)
		*count += stop_thread(s, i)->group_stopped;
	return 0;
}

static bool all_in_state(pid_t pid, const char *program, char wanted)
{
	char path[64];

	(void)program;
	for (int i = 0; i < 60000; i++) {
		snprintf(path, sizeof(path), "%d", (int)pid);
		if (harness_status(pid, pid, "State:")[0] == wanted)
			return true;
		usleep(1000);
	}
	return false;
}

/* Stopped by job control before, stopped by job control afterwards, by each of the signals. */
/* fear A3: stopped by SIGSTOP, SIGTSTP or SIGTTIN before, and stopped afterwards, ten stops long */
static void test_group_stopped(void **state)
{
	static const int signals[] = {SIGSTOP, SIGTSTP, SIGTTIN};
	struct harness *h = *state;
	struct dinst_error e = {0};
	unsigned stopped = 0;
	struct target *t;

	harness_start(h, "stop-busy", "3", NULL);
	t = open_target(h->pid);
	for (size_t i = 0; i < 3; i++) {
		kill(h->pid, signals[i]);
		assert_true(all_in_state(h->pid, "stop-busy", 'T'));
		for (int k = 0; k < 10; k++) {
			assert_int_equal(
				target_stop(t, NULL, count_group_stopped, &stopped, NULL, &e), 0);
			assert_int_equal(stopped, 4);
			assert_true(all_in_state(h->pid, "stop-busy", 'T'));
		}
		kill(h->pid, SIGCONT);
		harness_until(harness_status(h->pid, h->pid, "State:")[0] != 'T');
	}
	harness_verify(h);
	target_close(t);
	harness_end(h, 0);
}

/* For programs that a snapshot cannot be taken of: a dead leader, an exec at any moment. */
static void start_without_snapshot(struct harness *h, const char *mode)
{
	const char *const argv[] = {harness_path("tests/live/targets/stop-states"), mode, NULL};

	harness_start_argv(h, argv, false);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
}

/* fear A13: fifty stops of a process whose main thread has exited */
static void test_dead_leader(void **state)
{
	struct harness *h = *state;
	uint64_t incarnation;
	unsigned expected = 2;
	struct target *t;

	start_without_snapshot(h, "leader");
	t = open_target(h->pid);
	incarnation = target_incarnation(t);
	assert_true(incarnation != 0);
	stop_times(t, 50, &expected, 1000);
	assert_true(target_alive(t));
	assert_true(target_incarnation(t) == incarnation);
	target_close(t);
	harness_end(h, 0);
}

/*
 * fear K2: a parent that waits in vfork is answered with BUSY in time, and nobody is left stopped
 */
static void test_vfork_parent(void **state)
{
	struct stop_report report;
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;
	long begin;
	int code;

	harness_start(h, "stop-states", "vfork", NULL);
	t = open_target(h->pid);
	begin = now_ms();
	code = target_stop(t, NULL, check_all_stopped, NULL, &report, &e);
	assert_int_equal(code, DINST_BUSY);
	assert_non_null(strstr(e.text, "state D"));
	assert_in_range(now_ms() - begin, 1, 1500);
	assert_true(report.tries > 1);
	assert_string_equal(harness_status(h->pid, h->pid, "TracerPid:"), "0");
	harness_send(h, "on\n");
	harness_until(harness_status(h->pid, h->pid, "State:")[0] != 'D');
	do {
		dinst_error_clear(&e);
		code = target_stop(t, NULL, check_all_stopped, NULL, &report, &e);
	} while (code == DINST_BUSY);
	if (code)
		fail_msg("%s", e.text);
	target_close(t);
	harness_end(h, 0);
}

struct shared {
	pid_t other;
	taddr_t counter;
	unsigned foreign;
	bool stood_still;
};

static int watch_counter(struct stop *s, void *arg, struct dinst_error *e)
{
	struct shared *shared = arg;
	long before, after;

	shared->foreign = 0;
	for (size_t i = 0; i < stop_thread_count(s); i++)
		shared->foreign +=
			stop_thread(s, i)->foreign && stop_thread(s, i)->tid == shared->other;
	if (target_read(stop_target(s), shared->counter, &before, sizeof(before), e))
		return DINST_FAILED;
	usleep(5000);
	if (target_read(stop_target(s), shared->counter, &after, sizeof(after), e))
		return DINST_FAILED;
	shared->stood_still = before == after;
	return 0;
}

/* Starts a mode of stop-states that tells of a process, and of where one of its processes counts. */
static pid_t start_sharers(struct harness *h, const char *mode, unsigned long *counter)
{
	int told;

	harness_start_argv(h,
			   (const char *const[]){harness_path("tests/live/targets/stop-states"),
						 mode, NULL},
			   false);
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "%d %lx", &told, counter), 2);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ready");
	return told;
}

/* In each stop of `pid` process `other`, which counts, stands still. */
static void expect_still(pid_t pid, pid_t other, unsigned long counter)
{
	struct shared shared = {.other = other, .counter = counter};
	struct dinst_error e = {0};
	struct target *t = open_target(pid);

	for (int i = 0; i < 10; i++) {
		assert_int_equal(target_stop(t, NULL, watch_counter, &shared, NULL, &e), 0);
		assert_int_equal(shared.foreign, 1);
		assert_true(shared.stood_still);
	}
	target_close(t);
}

/* fear G2: a process of its own that shares the memory stands still in each stop, too */
static void test_shared_memory(void **state)
{
	struct harness *h = *state;
	unsigned long counter;
	const pid_t other = start_sharers(h, "clone", &counter);

	expect_still(h->pid, other, counter);
	harness_end(h, 0);
}

/* fear G2: who created the process that created the target, all in one memory, stands still, too */
static void test_creators(void **state)
{
	struct harness *h = *state;
	unsigned long counter;
	const pid_t last = start_sharers(h, "creators", &counter);

	expect_still(last, h->pid, counter);
	harness_end(h, 0);
}

static int check_sharers(struct stop *s, void *arg, struct dinst_error *e)
{
	return stop_check_sharers(s, arg, e);
}

/* What comes of a request; where it is refused that names who is there. */
static void try_to_insert(pid_t pid, int expected, const char *name)
{
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;
	unsigned id;

	if (session_attach(pid, "test", &s, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(session_try_insert_kind(s, "/Code/stop-states/main", POINT_ENTRY, &id, &e),
			 expected);
	if (expected)
		assert_non_null(strstr(e.text, name));
	dinst_error_clear(&e);
	assert_int_equal(session_detach(s, 100, &detached, &e), 0);
	session_free(s);
}

/* fear G2: nothing is written while a process is in the memory that no stop finds (a sibling of its creator) */
static void test_strangers(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	unsigned long counter;
	const pid_t other = start_sharers(h, "sibling", &counter);
	struct target *t = open_target(h->pid);
	struct proc_ids sharers = {0};
	char name[32];

	snprintf(name, sizeof(name), "process %d ", (int)other);
	assert_int_equal(target_find_sharers(t, &sharers, &e), 0);
	for (int i = 0; i < 3; i++) {
		dinst_error_clear(&e);
		assert_int_equal(target_stop(t, NULL, check_sharers, &sharers, NULL, &e),
				 DINST_REFUSED);
		assert_non_null(strstr(e.text, name));
	}
	try_to_insert(h->pid, DINST_REFUSED, name);
	/* It is ours to wait for. */
	kill(other, SIGKILL);
	assert_int_equal(waitpid(other, NULL, __WALL), other);
	dinst_error_clear(&e);
	assert_int_equal(target_stop(t, NULL, check_sharers, &sharers, NULL, &e), 0);
	proc_ids_release(&sharers);
	target_close(t);
	try_to_insert(h->pid, 0, name);
	harness_end(h, 0);
}

/* Whatever moment of an exec we meet: an answer in time, and the program goes on. */
static void stop_execs(struct harness *h, const char *mode, int stops, unsigned pause_us)
{
	struct dinst_error e;
	unsigned stopped = 0;
	struct target *t;
	int code;

	start_without_snapshot(h, mode);
	t = open_target(h->pid);
	for (int i = 0; i < stops || stopped < 10; i++) {
		dinst_error_clear(&e);
		code = target_stop(t, NULL, check_all_stopped, NULL, NULL, &e);
		if (code && code != DINST_GONE && code != DINST_BUSY)
			fail_msg("%s", e.text);
		stopped += !code;
		usleep((unsigned)(i * 37) % pause_us);
	}
	print_message("%u of them met no exec\n", stopped);
	assert_true(target_alive(t));
	target_close(t);
	harness_end(h, 0);
}

/* fear A13: 300 stops at whatever moment of executions by another thread */
static void test_exec(void **state)
{
	stop_execs(*state, "exec", 300, 3000);
}

/*
 * fear A13: the same with thirty threads more, each of which has to end before the new program begins: one
 * that has ended as our tracee while we wait for the exec would keep both waiting for ever
 */
static void test_exec_many(void **state)
{
	stop_execs(*state, "exec-many", 2000, 700);
}

/*
 * fear A10: fifty stops while a worker of io_uring waits in a read, which then ends without EINTR
 */
static void test_kernel_worker(void **state)
{
	struct harness *h = *state;
	unsigned expected = 1;
	struct target *t;
	int status;

	harness_start_argv(h,
			   (const char *const[]){harness_path("tests/live/targets/stop-states"),
						 "worker", NULL},
			   false);
	if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "ready")) {
		status = harness_wait(h, HARNESS_ANSWER_MS);
		print_message("skipped: no io_uring here (status %d)\n", status);
		skip();
	}
	t = open_target(h->pid);
	stop_times(t, 50, &expected, 1000);
	target_close(t);
	harness_end(h, 0);
}

static int kill_it(struct stop *s, void *arg, struct dinst_error *e)
{
	taddr_t *address = arg;
	char byte = 0;

	kill(target_pid(stop_target(s)), SIGKILL);
	for (size_t i = 0; i < stop_thread_count(s); i++)
		harness_until(strchr("ZX?", harness_status(target_pid(stop_target(s)),
							   stop_thread(s, i)->tid, "State:")[0]));
	return stop_write(s, *address, &byte, 1, e);
}

/* fear G7: killed while it is stopped: an ordinary answer */
static void test_killed_in_stop(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	taddr_t address = 0x10000;
	struct target *t;

	harness_start(h, "stop-busy", "8", NULL);
	t = open_target(h->pid);
	assert_int_equal(target_stop(t, NULL, kill_it, &address, NULL, &e), DINST_GONE);
	assert_true(WIFSIGNALED(harness_wait(h, HARNESS_ANSWER_MS)));
	assert_false(target_alive(t));
	dinst_error_clear(&e);
	assert_int_equal(target_stop(t, NULL, check_all_stopped, NULL, NULL, &e), DINST_GONE);
	assert_true(target_incarnation(t) == 0);
	target_close(t);
}

/* ---------------------------------------------------- programs with privileges */

enum { NOBODY = 65534, SPAWN_STOPS = 150, SPAWN_STOPPED = 10, SPAWN_TRIES = 2000, SPAWNS = 10 };

/* A copy of the target's program that gives whoever executes it root's id. */
static void make_set_uid(const char *path)
{
	int from = open(harness_path("tests/live/targets/stop-states"), O_RDONLY | O_CLOEXEC);
	int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	struct stat st;

	assert_true(from >= 0 && to >= 0);
	assert_int_equal(fstat(from, &st), 0);
	assert_int_equal(sendfile(to, from, NULL, (size_t)st.st_size), st.st_size);
	assert_int_equal(fchmod(to, 04755), 0);
	close(from);
	close(to);
}

/* In a child without privileges: 0, or what was not as expected. */
static int stop_as_nobody(pid_t pid)
{
	struct dinst_error e = {0};
	struct target *t;
	int stopped = 0, code;

	if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY))
		return 1;
	if (target_open(pid, &t, &e))
		return 2;
	for (int i = 0; i < SPAWN_STOPS || stopped < SPAWN_STOPPED; i++) {
		dinst_error_clear(&e);
		code = target_stop(t, NULL, check_all_stopped, NULL, NULL, &e);
		if ((code && code != DINST_BUSY) || i > SPAWN_TRIES)
			return 3;
		stopped += !code;
		usleep((unsigned)(i * 37) % 5000);
	}
	target_close(t);
	return 0;
}

/*
 * fear G2, A12: an ordinary user's program starts set-uid ones by vfork() while it is stopped again
 * and again by that user: the kernel takes privileges from who is traced, so its children are not
 */
static void test_set_uid_children(void **state)
{
	char directory[] = "/tmp/dinst-spawn-XXXXXX", path[64];
	struct harness *h = *state;
	unsigned with, without;
	int status = 0;
	pid_t child;

	if (geteuid()) {
		print_message("skipped: only root can make a set-uid program\n");
		skip();
	}
	assert_non_null(mkdtemp(directory));
	assert_int_equal(chmod(directory, 0755), 0);
	snprintf(path, sizeof(path), "%s/who", directory);
	make_set_uid(path);
	/* From there, too: nobody may not come to where we were built. */
	harness_start_argv(h, (const char *const[]){path, "spawn", path, NULL}, false);
	if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "ready")) {
		unlink(path);
		rmdir(directory);
		print_message("skipped: set-uid has no effect here\n");
		skip();
	}
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(stop_as_nobody(h->pid));
	assert_int_equal(waitpid(child, &status, 0), child);
	harness_send(h, "on\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "%u %u", &with, &without), 2);
	unlink(path);
	rmdir(directory);
	assert_int_equal(status, 0);
	print_message("%u of %u children had no privileges\n", without, with + without);
	assert_int_equal(without, 0);
	assert_true(with >= SPAWNS);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_churn, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_busy, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_group_stopped, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_dead_leader, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_vfork_parent, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_shared_memory, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_creators, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_strangers, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_exec, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_exec_many, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_kernel_worker, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_killed_in_stop, harness_setup,
						harness_teardown),
		cmocka_unit_test_setup_teardown(test_set_uid_children, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
