/* SPDX-License-Identifier: MIT */
/*
 * snapshot.h - the values of all sessions as they were a moment ago, for whoever
 * wants all of them: scrapes, exports, the page.
 *
 * snapshot_wait() asks the mutators that are idle what they have (`read` and `status`),
 * and comes back when they have answered, or after SNAPSHOT_WAIT_MS: one that is at work
 * is neither asked nor waited for, and what it said last stands. A mutator is asked at most
 * every SNAPSHOT_YOUNG_MS and at most 2 % of the time, however many want to know, so that
 * nobody who hammers at us reaches a target. The target is never stopped for it.
 */
#ifndef DINST_DAEMON_SNAPSHOT_H
#define DINST_DAEMON_SNAPSHOT_H

#include "daemon/server/server.h"

enum {
	SNAPSHOT_WAIT_MS = 400,
	SNAPSHOT_YOUNG_MS = 450,
	SNAPSHOT_TEXT_MAX = 16 << 20, /* bytes of an answer; what is longer is left out */
};

/* Of one session; it owns it. */
struct snapshot {
	json_t *rows;	   /* as `read` gives them, verbose; NULL: none yet */
	json_t *starts;	   /* {id: ns of CLOCK_REALTIME}: since when each is there */
	json_t *before;	   /* {id: hits} of the snapshot before this one */
	uint64_t taken_ns; /* uv_hrtime() */
	uint64_t lost_ns;  /* uv_hrtime() of the last mutator's end; 0: there was none */
	uint64_t asked_ns;
	uint64_t took_ns; /* from question to answer, the last time */
	uint64_t
		least_ns; /* the lesser of the last two times: one that was held up once is not always slow */
	uint64_t total_ns; /* of all times */
	double cost_ns;	   /* per second, predicted, since the snapshot before */
	bool cost_known;   /* hits are counted of at least one instance */
	unsigned waiting;  /* answers that are out */
	bool too_long;	   /* there is more than can be told */
};

/* Calls ready(arg) once: at once if nothing is to be asked, else later, from the loop. */
void snapshot_wait(struct server *s, void (*ready)(void *arg), void *arg);
/* At the end of the server: everybody is called. */
void snapshot_end(struct server *s);
/* The session's mutator died: what it had is gone. */
void snapshot_lost(struct session *se);
/* With the session, when its mutator will answer no more. */
void snapshot_close(struct session *se);

#endif
