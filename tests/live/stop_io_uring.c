/* SPDX-License-Identifier: MIT */
/*
 * stop_io_uring.c - stops of a process for which threads of the kernel's work: they are none of those
 * that stand still, come and go as they like, and nothing that they do ends with EINTR.
 */
#include "tests/live/inject_help.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/proc.h"
#include "inject/remote.h"

/* What the flags of this kernel's threads tell is not known. */
static bool flags_are_unknown;
bool __real_proc_is_worker(const struct proc_stat *stat);
bool __wrap_proc_is_worker(const struct proc_stat *stat);

bool __wrap_proc_is_worker(const struct proc_stat *stat)
{
	return !flags_are_unknown && __real_proc_is_worker(stat);
}

enum { STOPS = 300, PAUSE_US = 1000, STANDS_US = 3000 };

struct seen {
	unsigned most;	 /* threads of the program's own */
	unsigned stops;	 /* in which there were threads of the kernel's */
	unsigned others; /* ... other ones than in the stop before */
	bool polls;	 /* one was called iou-sqp- */
	pid_t youngest;
};

/* Counts the kernel's threads. All others stand still, or end. */
static int look_at_all(pid_t pid, struct seen *seen, struct dinst_error *e)
{
	struct proc_ids tasks = {0};
	struct proc_stat stat;
	unsigned count = 0;
	int code = proc_tasks(pid, &tasks) ? dinst_fail(e, DINST_FAILED, "no threads") : 0;
	pid_t before = seen->youngest;

	for (size_t i = 0; !code && i < tasks.count; i++) {
		if (proc_thread_stat_read(pid, tasks.ids[i], &stat))
			continue;
		if (proc_is_worker(&stat)) {
			seen->polls |= !strncmp(stat.name, "iou-sqp-", 8);
			if (tasks.ids[i] > seen->youngest)
				seen->youngest = tasks.ids[i];
			count++;
		} else if (!strchr("tZXx", stat.state) && !(stat.flags & PROC_EXITING)) {
			code = dinst_fail(e, DINST_FAILED, "thread %d is in state %c",
					  (int)tasks.ids[i], stat.state);
		}
	}
	proc_ids_release(&tasks);
	seen->stops += count > 0;
	seen->others += seen->youngest > before;
	return code;
}

/* The program's own threads stand still, for long enough that a read ends meanwhile. */
static int look(struct stop *s, void *arg, struct dinst_error *e)
{
	struct seen *seen = arg;

	usleep(STANDS_US);
	if (stop_thread_count(s) < 1 || stop_thread_count(s) > seen->most)
		return dinst_fail(e, DINST_FAILED, "%zu threads instead of %u",
				  stop_thread_count(s), seen->most);
	return look_at_all(target_pid(stop_target(s)), seen, e);
}

static void stop_reading(struct harness *h, const char *mode, struct seen *seen)
{
	struct dinst_error e = {0};
	struct target *t;

	harness_start_argv(h,
			   (const char *const[]){harness_path("tests/live/targets/stop-states"),
						 mode, NULL},
			   false);
	if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "ready")) {
		print_message("skipped: no io_uring here (status %d)\n",
			      harness_wait(h, HARNESS_ANSWER_MS));
		skip();
	}
	t = help_open(h->pid);
	for (int i = 0; i < STOPS; i++) {
		/* A machine that is busy lets a stop fail: it is tried again. */
		if (help_stop(t, look, seen, &e) && e.code != DINST_BUSY)
			fail_msg("stop %d: %s", i, e.text);
		i -= e.code == DINST_BUSY;
		dinst_error_clear(&e);
		usleep(PAUSE_US);
	}
	target_close(t);
	print_message("%u of %d stops with threads of the kernel's, %u with new ones\n",
		      seen->stops, STOPS, seen->others);
	harness_end(h, 0);
}

/*
 * fear A10: 300 stops while workers of io_uring read, and end with the thread that they work for: each read ends as it should,
 * in the stop or behind it, without EINTR
 */
static void test_workers(void **state)
{
	struct seen seen = {.most = 2};

	stop_reading(*state, "workers", &seen);
	assert_true(seen.stops > STOPS / 4 && seen.others > STOPS / 20);
}

/* fear A10: the same with a thread that polls the ring for its program (IORING_SETUP_SQPOLL) and falls asleep and wakes up */
static void test_polling(void **state)
{
	struct seen seen = {.most = 1};

	stop_reading(*state, "sqpoll", &seen);
	assert_true(seen.polls);
	assert_int_equal(seen.stops, STOPS);
}

static int note_victim(struct stop *s, size_t next, const long *results, void *arg,
		       struct dinst_error *e)
{
	(void)next;
	(void)results;
	(void)e;
	*(pid_t *)arg = remote_victim(s);
	return 0;
}

/* The kernel's thread has to be among those that stand still. */
static int make_call(struct stop *s, void *arg, struct dinst_error *e)
{
	struct arch_remote_call getpid_call = {.number = SYS_getpid};
	const struct arch_remote_program program = {.calls = &getpid_call, .count = 1};
	long result = 0;

	if (stop_thread_count(s) != 2)
		return dinst_fail(e, DINST_FAILED, "%zu threads", stop_thread_count(s));
	return remote_run(s, &program, 0, NULL, note_victim, arg, &result, e);
}

/* fear A10: a thread of the kernel's is not known as one by its flags: it is none that makes calls for us, since it never comes to them */
static void test_unknown_flags(void **state)
{
	struct harness *h = *state;
	struct target *t;
	pid_t victim = 0;

	harness_start_argv(
		h, (const char *const[]){harness_path("tests/live/targets/idle-ring"), NULL},
		false);
	if (strcmp(harness_line(h, HARNESS_ANSWER_MS), "ready")) {
		print_message("skipped: no io_uring here\n");
		skip();
	}
	t = help_open(h->pid);
	flags_are_unknown = true;
	help_stop_well(t, make_call, &victim);
	flags_are_unknown = false;
	target_close(t);
	assert_int_equal(victim, h->pid);
	harness_end(h, 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_workers), CASE(test_polling),
					   CASE(test_unknown_flags)};

	return cmocka_run_group_tests_name("live/stop_io_uring", tests, NULL, NULL);
}
