/* SPDX-License-Identifier: MIT */
/*
 * library.h - what the files of libdinst share; no part of the interface.
 *
 *   connection.c   opening, closing, a call, failures
 *   sessions.c     attach, detach, load, insert, remove
 *   values.c       read, watch
 *   events.c       trace, events
 *   kinds.c        what events of each session mean
 *
 * The socket, the lines and JSON-RPC are the client's own (daemon/client/connect.c,
 * daemon/common/rpc.c). Nothing here prints, ends the process, or keeps state outside of
 * a connection.
 */
#ifndef DINST_LIB_LIBRARY_H
#define DINST_LIB_LIBRARY_H

#include "daemon/client/connect.h"
#include "daemon/report/event.h"
#include "lib/dinst.h"

#define DINST_PUBLIC __attribute__((visibility("default")))

/* The kinds of events of one session that this connection has asked for. */
struct session_log {
	struct session_log *next;
	char *session;
	uint64_t
		begun_ns; /* of its stream: another mutator, or session of that name, has another one */
	unsigned passing; /* its events are being told: it stays until that is over */
	bool ended;
	struct event_log log;
};

struct dinst {
	struct link link;
	atomic_int interrupted;
	bool was_interrupted; /* the last call was, and failed */
	dinst_notice notice;  /* may be NULL */
	void *notice_arg;
	struct session_log *logs;
};

/* Passes on what failed; returns its code. */
int failure_pass(struct dinst_failure *f, const struct dinst_error *e);
int failure_memory(struct dinst_failure *f);
/* `what` was not given. */
int failure_missing(struct dinst_failure *f, const char *what);

/* {"session": NAME}, or {} where it is NULL; NULL without memory. */
json_t *session_params(const char *session);

/*
 * Sends a request, with `params` consumed (NULL: there was no memory for them). On success *result
 * is a new reference, NULL if `result` is.
 */
int library_call(struct dinst *d, const char *method, json_t *params, json_t **result,
		 struct dinst_failure *f);

/* Learns from an answer what events of its session mean, or that there is no such session any more. */
void kinds_learn(struct dinst *d, const char *method, const json_t *answer);
/* The log that an answer of `events` is of; NULL without memory. It goes back with kinds_passed(). */
struct session_log *kinds_pass(struct dinst *d, const json_t *answer);
void kinds_passed(struct session_log *l);
void kinds_release(struct dinst *d);

/* A call that inserts: unpacks its rows. Consumes `params`. */
int insert_call(struct dinst *d, const char *method, json_t *params,
		struct dinst_instances **instances, struct dinst_failure *f);

/* Members of a row; "" or NULL, and 0, where they are missing. */
const char *row_text(const json_t *row, const char *key);
uint64_t row_count(const json_t *row, const char *key);
double row_number(const json_t *row, const char *key);

/* ids as a JSON array; NULL without memory. */
json_t *ids_array(const uint64_t *ids, size_t count);

#endif
