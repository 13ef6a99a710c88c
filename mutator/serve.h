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
#include "mutator/reloads.h"
#include "mutator/values.h"

struct server {
	int fd;	     /* the socket to the daemon */
	char *input; /* bytes received that are not a whole line yet */
	size_t input_size, input_room;
	struct session *session; /* NULL before attach */
	unsigned numbered;	 /* what the daemon was told as "numbered" */
	bool exit_told;		 /* the event "exited" was sent */
	bool end_told;		 /* the event "exec" or "taken" was sent */
	bool released;		 /* it has held the target, and has let it go */
	struct reloads reloads;
	struct values_seen seen; /* by the daemon's histories */
	size_t unused_bytes;	 /* of malloc(), when the last request had been served */
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

/*
 * Sends a notification ("armed", "leftovers", "numbered", "progress", "event"). Steals params. False without
 * memory: nothing was sent.
 */
bool serve_notify(struct server *sv, const char *method, json_t *params);

/* DINST_NO_SESSION unless attach was called. */
int serve_session(struct server *sv, struct session **s, struct dinst_error *e);

/* A string for an answer, whatever bytes `text` has. */
json_t *serve_text(const char *text);

/* {"rows": rows}; steals rows. */
json_t *serve_rows(json_t *rows);

/* Nanoseconds to whole microseconds, rounded up: a stop is never 0. */
json_int_t serve_us(uint64_t ns);

/* "0x..." */
json_t *serve_address(taddr_t address);

/* Beyond so many rows nobody reads on, and an answer must stay below 64 MiB. */
enum { SERVE_ROWS_MAX = 200000 };

/* DINST_FAILED: more rows than that; `way_out` ends the advice. */
int serve_too_many(const char *what, const char *way_out, struct dinst_error *e);

/* serve_code.c */
enum { SERVE_INSN_TEXT = ARCH_OPERAND_NAME_MAX + 32 };
/* The text of an instruction of the module's file, with the addresses of the target. */
void serve_disassemble(const struct module *m, const struct arch_insn *in_file, char *text,
		       size_t size);
/* The code that window `w` of the plan leads to, as an object. */
json_t *serve_site(struct session *s, const struct module *m, const struct function_plan *plan,
		   size_t w);

/* serve_listing.c */
int serve_modules(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_funcs(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_complete(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_metrics(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

/* serve_points.c */
int serve_points(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

/* serve_cfg.c */
int serve_cfg(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

/* serve_session.c */
int serve_attach(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_catch_exec(struct server *sv, const json_t *params, json_t **result,
		     struct dinst_error *e);
int serve_release(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_status(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_detach(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_repair(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

/* serve_change.c */
/* Bytes that rows and notes of an answer to `insert` may come to, less than 64 MiB; tests make it less. */
extern size_t serve_insert_room;
int serve_insert(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_remove(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_flush(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

/* serve_callees.c */
int serve_callees(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

/* serve_stacks.c */
int serve_stacks(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

/* serve_trace.c */
int serve_trace(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

/* serve_events.c */
int serve_events(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

/* serve_values.c */
/* The instances named by params.ids, all of them if it is empty; the caller frees *out. */
int serve_instances(const struct session *s, const json_t *params, struct instance ***out,
		    size_t *count, struct dinst_error *e);
int serve_read(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_sample(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);
int serve_load(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e);

#endif
