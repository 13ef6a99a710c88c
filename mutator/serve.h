/* SPDX-License-Identifier: MIT */
/*
 * serve.h - the mutator's face: JSON-RPC 2.0 over the socket to the daemon.
 *
 * One request at a time, in order. Each method is a function that fills a
 * result object or an error; serve.c reads and writes the lines.
 */
#ifndef DINST_MUTATOR_SERVE_H
#define DINST_MUTATOR_SERVE_H

#include <jansson.h>

#include "mutator/core.h"

struct server {
	int fd;	     /* the socket to the daemon */
	char *input; /* bytes received that are not a whole line yet */
	size_t input_size, input_room;
	struct session *session; /* NULL before attach */
	bool exit_told;		 /* the event "exited" was sent */
	bool exec_told;		 /* the event "exec" was sent */
	bool broken;		 /* the daemon is gone: finish and end */
};

/*
 * A method: 0 and a new reference in *result, or a negative code and *e. The
 * result is an object; listings put their lines under "rows".
 */
typedef int (*serve_method)(struct server *sv, const json_t *params, json_t **result,
			    struct dinst_error *e);

/* Serves until the daemon closes the socket. Returns the process's exit status. */
int serve(int fd);

/* Sends a notification ("armed", "progress", "event"). Steals params. */
void serve_notify(struct server *sv, const char *method, json_t *params);

/* DINST_NO_SESSION unless attach was called. */
int serve_session(struct server *sv, struct session **s, struct dinst_error *e);

/* A string for an answer, whatever bytes `text` has. */
json_t *serve_text(const char *text);

/* {"rows": rows}; steals rows. */
json_t *serve_rows(json_t *rows);

/* Nanoseconds to whole microseconds, rounded up: a stop is never 0. */
json_int_t serve_us(uint64_t ns);

/* serve_listing.c */
int serve_modules(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_funcs(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_points(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_complete(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_metrics(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

/* serve_session.c */
int serve_attach(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_catch_exec(struct server *sv, const json_t *params, json_t **result,
		     struct dinst_error *e);
int serve_release(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_status(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_detach(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_repair(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

/* serve_change.c */
int serve_insert(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_read(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_remove(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_flush(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

#endif
