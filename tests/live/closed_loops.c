/* SPDX-License-Identifier: MIT */
/*
 * closed_loops.c - threads in code that jumps to its own beginning, and that they never leave: what is inserted
 * there counts who comes in, and no rounds, and is taken out under them; or it is refused.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

enum { ROUNDS_US = 100000, DETACH_SECONDS = 20, FUNCTION_BYTES = 16 };

static void run(struct harness *h, int loop)
{
	char command[32];

	snprintf(command, sizeof(command), "run %d\n", loop);
	harness_send(h, command);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "running");
	/* It is in there by then. */
	usleep(ROUNDS_US);
}

static pid_t second_thread(pid_t pid)
{
	struct dirent *entry;
	pid_t tid = 0;
	char path[40];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	assert_non_null(tasks);
	while ((entry = readdir(tasks)))
		if (entry->d_name[0] != '.' && atoi(entry->d_name) != pid)
			tid = (pid_t)atoi(entry->d_name);
	closedir(tasks);
	assert_int_not_equal(tid, 0);
	return tid;
}

/*
 * The thread that goes round stands behind the first instruction: one at the beginning cannot be told from one who
 * has just been called, and is counted as such.
 */
static void hold_inside(struct harness *h, struct session *s, const char *name)
{
	const taddr_t start = session_address(s, name);
	const pid_t tid = second_thread(h->pid);
	struct user_regs_struct regs;

	thread_seize_at(tid, start + 1, start + FUNCTION_BYTES, &regs);
	thread_freeze(h->pid, tid);
}

/* Returns if it could be had. */
static bool check(struct harness *h, int loop, const char *name, bool is_inside)
{
	/* Of a single instruction there is nothing behind the first one. */
	const bool is_held = is_inside && loop;
	struct detach_result detached = {0};
	struct dinst_error e = {0};
	struct session *s;
	size_t count;
	unsigned id;
	int status;

	harness_start(h, "closed-loops", NULL);
	if (is_inside)
		run(h, loop);
	s = session_begin(h);
	if (is_held)
		hold_inside(h, s, name);
	status = session_try_insert(s, name, false, &count, &id, &e);
	if (is_held)
		thread_thaw(h->pid);
	if (status < 0 && e.code != DINST_REFUSED)
		fail_msg("%s: %s", name, e.text);
	run(h, loop);
	if (status >= 0) {
		assert_int_equal(session_value(s, id), 1);
		session_remove(s, id);
	}
	dinst_error_clear(&e);
	if (session_detach(s, DETACH_SECONDS, &detached, &e) < 0)
		fail_msg("%s: %s", name, e.text);
	assert_int_equal(detached.left, 0);
	session_free(s);
	harness_verify_what(h, HARNESS_TEXT);
	harness_end(h, 0);
	print_message("%s: %s\n", name, status < 0 ? "refused" : "counted");
	return status >= 0;
}

static void run_both(struct harness *h, int loop, const char *name, bool is_had)
{
	for (int is_inside = 0; is_inside < 2; is_inside++)
		assert_int_equal(check(h, loop, name, is_inside), is_had);
}

/* fear J3: a jump to itself: refused, since who is in the copy of it would never leave that */
static void test_self(void **state)
{
	run_both(*state, 0, "loop_self", false);
}

/* fear J3: a jump to what stands before it */
static void test_round(void **state)
{
	run_both(*state, 1, "loop_pause", true);
	run_both(*state, 2, "loop_work", true);
	run_both(*state, 3, "loop_twice", true);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_self), CASE(test_round)};

	return cmocka_run_group_tests_name("live/closed_loops", tests, NULL, NULL);
}
