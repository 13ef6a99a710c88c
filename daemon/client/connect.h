/* SPDX-License-Identifier: MIT */
/*
 * connect.h - the client's end of the socket.
 *
 * Calling sequence: link_init(); link_open(), which starts a daemon if asked
 * to; link_call() as often as needed; link_close(). Calls are answered in the
 * order in which they are made, one at a time.
 */
#ifndef DINST_DAEMON_CONNECT_H
#define DINST_DAEMON_CONNECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "daemon/common/lines.h"
#include "daemon/common/paths.h"
#include "daemon/common/rpc.h"

struct link {
	int fd; /* -1: not connected */
	struct lines lines;
	json_int_t last_id;
	int patience;	    /* seconds to wait for an answer, 0: for ever */
	const char *socket; /* where the daemon is; NULL: where the environment says */
	/* set by whoever wants waiting to end, maybe in another thread; link_interrupted unless
	 * there is another one */
	const atomic_int *interrupted;
	/* called every second while an answer is waited for, and when a signal comes; or NULL */
	void (*tick)(void *arg);
	void *tick_arg;
	pid_t daemon_pid;
	char version[32]; /* the daemon's */
};

/* What comes before the answer; `method` is "progress", "event" or "armed". */
typedef void (*link_notified)(void *arg, const char *method, json_t *params);

void link_init(struct link *l);
void link_close(struct link *l);

/*
 * Connects, starting a daemon if none runs and `start`. Checks who answers.
 * DINST_DAEMON if none runs and none is to be started.
 */
int link_open(struct link *l, bool start, struct dinst_error *e);

/*
 * Sends a request and waits for its answer. On success *result is a new
 * reference to an object. The daemon's error is passed on. A broken
 * connection is DINST_DAEMON, and closes the link; so does an interrupt.
 */
int link_call(struct link *l, const char *method, json_t *params, link_notified notified, void *arg,
	      json_t **result, struct dinst_error *e);

/* Waits until the daemon closes the connection, at most so long. */
void link_wait_end(struct link *l, int milliseconds);

/* Set by a handler of SIGINT, where one is installed (lock-free, as a handler needs): ends waiting. */
extern atomic_int link_interrupted;

/* Starts a daemon for the place and waits until it answers or fails (start.c). */
int daemon_start(const struct socket_place *place, struct dinst_error *e);

#endif
