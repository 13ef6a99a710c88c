/* SPDX-License-Identifier: MIT */
/*
 * library.h - what the files of libdinst share; no part of the interface.
 *
 *   connection.c   opening, closing, a call, failures
 *   sessions.c     attach, detach, load, insert, remove
 *   values.c       read, watch
 *   events.c       trace, events
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

struct dinst {
	struct link link;
	atomic_int interrupted;
	bool was_interrupted; /* the last call was, and failed */
	dinst_notice notice;  /* may be NULL */
	void *notice_arg;
	struct event_log log; /* the kinds of events that this connection has asked for */
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

/* A call that inserts: learns the kinds of events, unpacks its rows. Consumes `params`. */
int insert_call(struct dinst *d, const char *method, json_t *params,
		struct dinst_instances **instances, struct dinst_failure *f);

/* Members of a row; "" or NULL, and 0, where they are missing. */
const char *row_text(const json_t *row, const char *key);
uint64_t row_count(const json_t *row, const char *key);
double row_number(const json_t *row, const char *key);

/* ids as a JSON array; NULL without memory. */
json_t *ids_array(const uint64_t *ids, size_t count);

#endif
