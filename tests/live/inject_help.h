/* SPDX-License-Identifier: MIT */
/*
 * inject_help.h - what the live tests of inject/ share: one stop, one job.
 */
#ifndef DINST_TESTS_LIVE_INJECT_HELP_H
#define DINST_TESTS_LIVE_INJECT_HELP_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inject/target.h"
#include "tests/live/harness.h"

static inline struct target *help_open(pid_t pid)
{
	struct dinst_error e = {0};
	struct target *t = NULL;

	if (target_open(pid, &t, &e))
		fail_msg("%s", e.text);
	return t;
}

/* The work of an empty stop. */
static inline int help_nothing(struct stop *s, void *arg, struct dinst_error *e)
{
	(void)s;
	(void)arg;
	(void)e;
	return 0;
}

/* Runs `work` in a stop and returns what it returned; *e may be NULL. */
static inline int help_stop(struct target *t, stop_work work, void *arg, struct dinst_error *e)
{
	return target_stop(t, NULL, work, arg, NULL, e);
}

/*
 * As help_stop(), and fails the test unless all went well. On a machine that is busy enough a thread
 * may not stop in time: an answer, and to be tried again, as a user would.
 */
static inline void help_stop_well(struct target *t, stop_work work, void *arg)
{
	struct dinst_error e = {0};

	for (int tries = 0; help_stop(t, work, arg, &e); tries++) {
		if (e.code != DINST_BUSY || tries == 50)
			fail_msg("%s", e.text);
		dinst_error_clear(&e);
	}
}

/* Sends a line to the target and returns its answer. */
static inline const char *help_ask(struct harness *h, const char *question)
{
	harness_send(h, question);
	harness_send(h, "\n");
	return harness_line(h, HARNESS_ANSWER_MS);
}

static inline taddr_t help_ask_address(struct harness *h, const char *question)
{
	return strtoull(help_ask(h, question), NULL, 16);
}

#endif
