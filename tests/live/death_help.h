/* SPDX-License-Identifier: MIT */
/*
 * death_help.h - what death.c and death_repair.c share: the life of a mutator, in
 * a child process, that is killed at the Nth fault point (inject/fault.h), and
 * what must be true afterwards.
 *
 *   1. death_setup(), then run_whole() or learn_points(): how many points there are;
 *   2. start_mutator() and end_mutator(), or run_mutator(); clean_up(), verify();
 *   3. death_teardown().
 */
#ifndef DINST_TESTS_DEATH_HELP_H
#define DINST_TESTS_DEATH_HELP_H

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/fault.h"
#include "tests/live/harness_session.h"

enum { SEED = 20, CLEAN_MS = 60000 };

/* How a mutator ends by itself. On a busy machine a thread may not stop in time: told, not forced. */
enum { ENDED = 0, FAILED = 3, GAVE_UP = 4 };

/* What the child tells us before it dies; shared memory. */
struct account {
	unsigned long passed;
	int stage;
	char text[DINST_ERROR_TEXT];
};

static struct account *account;
static int gave_up; /* mutators that did */

static const char *const stages[] = {"attach",	     "insert", "more", "remove", "flush",
				     "insert again", "detach", "end",  "repair"};

static inline void stage(int n)
{
	account->stage = n;
	account->passed = fault_passed;
}

static inline int insert_one(struct session *s, const char *metric_focus, enum point_kind kind,
			     struct instance **out, struct dinst_error *e)
{
	static struct raw_metric metrics[3];
	const char *const foci[] = {metric_focus};
	struct insert_result result;
	int status;

	metrics[kind] = (struct raw_metric){
		.name = "points", .unit = "", .constraints = "/Code", .kind = kind};
	status = request_insert_raw(s, &metrics[kind], foci, 1, false, &result, e);
	if (status < 0)
		return status;
	*out = result.instances[0];
	free(result.instances);
	return 0;
}

/* A machine that is busy lets a stop fail: it is tried again, as a user would. */
static inline int insert_at_last(struct session *s, const char *focus, enum point_kind kind,
				 struct instance **out, struct dinst_error *e)
{
	int status = DINST_BUSY;

	for (int tries = 0; tries < 50 && status == DINST_BUSY; tries++) {
		dinst_error_clear(e);
		status = insert_one(s, focus, kind, out, e);
	}
	return status;
}

/* The one that is made second is to be used, or the first one, which is the last of the list. */
static inline void use_arena(struct session *s, bool second)
{
	for (struct place *p = s->places; p; p = p->next)
		p->full = second == !p->next;
}

/* Functions of the program that the target runs. */
/* Others than those of the program 'calls' are set by a test, and set back by it. */
static const char *victim = "many", *all = "/Code/calls/*", *caller = "work";

static inline int change(struct session *s, struct dinst_error *e)
{
	struct instance *first = NULL, *second = NULL, *third = NULL;
	struct flush_result flushed;
	int status;

	stage(1);
	status = insert_one(s, victim, POINT_ENTRY, &first, e);
	stage(2);
	if (status >= 0)
		status = insert_one(s, victim, POINT_ENTRY, &second, e);
	if (status >= 0)
		status = insert_one(s, all, POINT_EXIT, &third, e);
	stage(3);
	if (status >= 0)
		status = removal_remove(s, first, &flushed, e);
	if (status >= 0)
		status = removal_remove(s, third, &flushed, e);
	stage(4);
	if (status >= 0)
		status = removal_flush(s, &flushed, e);
	stage(5);
	if (status >= 0)
		status = insert_one(s, all, POINT_ENTRY, &first, e);
	if (status >= 0)
		status = insert_one(s, caller, POINT_CALL, &third, e);
	return status;
}

/* The whole life of a mutator; in the child. Dies at the chosen fault point or exits with 0. */
static inline void live_and_die(pid_t pid, unsigned long countdown)
{
	struct dinst_error e = {0};
	struct detach_result detached;
	struct session *s;
	int status;

	fault_passed = 0;
	fault_countdown = countdown;
	stage(0);
	status = session_attach(pid, "doomed", &s, &e);
	if (status >= 0)
		status = change(s, &e);
	stage(6);
	if (status >= 0)
		status = session_detach(s, 100, &detached, &e);
	stage(7);
	if (status >= 0 && detached.left)
		status = dinst_fail(&e, DINST_FAILED, "%zu things are left", detached.left);
	memcpy(account->text, e.text, sizeof(e.text));
	_exit(status >= 0 ? 0 : status == DINST_BUSY ? GAVE_UP : FAILED);
}

static inline pid_t start_mutator(struct harness *h, unsigned long countdown)
{
	pid_t child;

	memset(account, 0, sizeof(*account));
	fflush(NULL);
	child = fork();
	if (child < 0)
		fail_msg("fork: %s", strerror(errno));
	if (child == 0)
		live_and_die(h->pid, countdown);
	return child;
}

/* True if the mutator was killed, false if it came to its end first. */
static inline bool end_mutator(pid_t child, bool may_be_killed)
{
	int status = 0;

	if (waitpid(child, &status, 0) != child)
		fail_msg("waitpid: %s", strerror(errno));
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && may_be_killed)
		return true;
	if (!WIFEXITED(status) || (WEXITSTATUS(status) != ENDED && WEXITSTATUS(status) != GAVE_UP))
		fail_msg("the mutator failed in %s (status %x): %s", stages[account->stage],
			 (unsigned)status, account->text);
	gave_up += WEXITSTATUS(status) == GAVE_UP;
	return false;
}

static inline bool run_mutator(struct harness *h, unsigned long countdown)
{
	return end_mutator(start_mutator(h, countdown), countdown != 0);
}

static inline void clean_up(struct harness *h, unsigned long countdown)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	if (target_open(h->pid, &t, &e) < 0)
		fail_msg("open after death at %lu (%s): %s", countdown, stages[account->stage],
			 e.text);
	if (leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("cleaning after death at %lu (%s): %s", countdown, stages[account->stage],
			 e.text);
	target_close(t);
	if (left.arenas_left)
		fail_msg("%zu of %zu arenas are left after death at %lu (%s)", left.arenas_left,
			 left.arenas, countdown, stages[account->stage]);
}

static inline void verify(struct harness *h, unsigned long countdown)
{
	char text[4096];

	for (int i = 0; i < 3000; i++) {
		if (!harness_differences(h->before, HARNESS_ALL, text, sizeof(text)))
			return;
		usleep(10000);
	}
	fail_msg("not as before after death at %lu (%s):\n%s", countdown, stages[account->stage],
		 text);
}

/* A mutator that comes to its end: what it passed on the way is all there is. */
static inline void run_whole(struct harness *h)
{
	for (int tries = 0; tries < 5; tries++) {
		int before = gave_up;

		assert_false(run_mutator(h, 0));
		if (gave_up == before)
			return;
		clean_up(h, 0);
	}
	fail_msg("no mutator came to its end: %s", account->text);
}

static inline unsigned long learn_points(struct harness *h)
{
	harness_send(h, "go 10000\n");
	run_whole(h);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	clean_up(h, 0);
	harness_verify(h);
	assert_true(account->passed > 20);
	return account->passed;
}

static inline int death_setup(void **state)
{
	account = mmap(NULL, sizeof(*account), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	return account == MAP_FAILED ? -1 : harness_setup(state);
}

static inline int death_teardown(void **state)
{
	munmap(account, sizeof(*account));
	return harness_teardown(state);
}

/* As clean_up(), for so long; returns how many arenas are left: what cannot go yet is left. */
static inline size_t clean_for(struct harness *h, unsigned milliseconds)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	assert_int_equal(target_open(h->pid, &t, &e), 0);
	if (leftovers_clean(t, milliseconds, &left, &e) < 0)
		fail_msg("%s", e.text);
	target_close(t);
	return left.arenas_left;
}

#endif
