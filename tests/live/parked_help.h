/* SPDX-License-Identifier: MIT */
/*
 * parked_help.h - what the tests share that park a task of a target (targets/parked.c and its like).
 */
#ifndef DINST_TESTS_LIVE_PARKED_HELP_H
#define DINST_TESTS_LIVE_PARKED_HELP_H

#include <stdio.h>
#include <unistd.h>

#include "mutator/request.h"
#include "tests/live/harness_session.h"

/* Sends the command; the answer must be that. */
static inline void ask(struct harness *h, const char *command, const char *answer)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

/* Tries again until nothing of the instance waits; false after two minutes. */
static inline bool becomes_active(struct session *s, unsigned id)
{
	for (int i = 0; i < 12000 && session_pending(s, id); i++) {
		request_retry_pending(s);
		usleep(10000);
	}
	return !session_pending(s, id);
}

/* What waits goes in now and counts all calls; the session and the target end, which is as it was. */
static inline void end_when_active(struct harness *h, struct session *s, unsigned id)
{
	assert_true(becomes_active(s, id));
	ask(h, "go 100", "done");
	assert_int_equal(session_value(s, id), 100);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

#endif
