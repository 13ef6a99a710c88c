/* SPDX-License-Identifier: MIT */
/*
 * question.h - what commands that answer a question have in common: they attach if
 * need be, insert, look for a while, and leave the target as it was.
 *
 * Calling sequence:
 *   1. struct question q = {.duration_s = 10};   the rest zero; both are optional
 *   2. question_begin(), which joins the target's session or attaches to it
 *   3. question_load(), question_insert(), question_call() as often as needed
 *   4. while (question_wait(&q, 1000)) { question_read() ... print to stdout }
 *   5. what it came to; then return question_end(&q, status), also after errors of 3 and 4
 *
 * All that is inserted through here, and a session that was made for the question, is
 * *held*: the daemon takes it out when the connection ends, however it ends. So nothing
 * stays after kill -9. Numbers of whoever else uses the session are left alone.
 *
 * Signals: from begin to end the first SIGINT, SIGTERM, SIGHUP or SIGQUIT ends question_wait(),
 * while a call at hand goes on (after half a second it is said what is waited for); the
 * second one (a quarter of a second later or more) cuts the connection, and the daemon cleans up alone. Any of
 * them ends the script, too, in which the command stands (c->ended_by). SIGPIPE is ignored: a
 * reader that has gone ends question_wait().
 *
 * Output: -o FILE stands in for standard output between begin and end, so that all that
 * prints there (print_json(), table_print()) prints into the file.
 */
#ifndef DINST_DAEMON_QUESTION_H
#define DINST_DAEMON_QUESTION_H

#include <signal.h>

#include "daemon/client/command.h"
#include "daemon/client/result_file.h"

/* Two rows for the table of options of every such command. */
#define QUESTION_OPTIONS                                                               \
	{'d', "duration", "SECONDS", "so long (1.5, 30s, 2m; default: until Ctrl-C)"}, \
	{                                                                              \
		'o', "output", "FILE", "write there, not to standard output"           \
	}

struct question {
	/* To be set before question_begin(), or left 0. */
	double duration_s; /* where -d is not given; 0: until a signal comes */
	bool own_output;   /* -o is the command's own: it is not opened here */
	/* shows what is waited for after a signal, where standard error is no place for it; or NULL */
	void (*waits)(struct question *q, const char *text);

	/* To be read after it. */
	struct context *c;
	pid_t pid;     /* of the target */
	bool attached; /* the session was made for this question alone */
	bool terminal; /* standard output is one, and neither --json nor -o is given */
	bool over;     /* the duration is over, a signal came, the target ended, nobody reads */

	/* For question.c only. */
	uint64_t begun_ns;	   /* at the first wait; 0: none yet */
	json_t *ids;		   /* what was inserted and is not removed */
	int saved_output;	   /* standard output while -o stands in for it; -1: none */
	struct result_file output; /* that file */
	struct sigaction before[5];
	char session_before[PROCESS_NAME_MAX]; /* c->session */
	const char *waiting;		       /* the method that is called */
	bool began, told;
};

/*
 * Joins the session of c->target (-p), or attaches, starting a daemon where none runs; without a
 * target there must be exactly one session. Returns EXIT_DONE, or the status with which to
 * leave, reported; then question_end() is not called.
 */
int question_begin(struct question *q, struct context *c, const struct arguments *a);

/* Sleeps. False when the question is over; it may return early then. The first call starts -d. */
bool question_wait(struct question *q, unsigned milliseconds);
/* The same without sleeping: may it go on? */
bool question_going(struct question *q);
/* Seconds since the first question_wait(); 0 before it. */
double question_seconds(const struct question *q);

/* The following return 0 or a negative code with *e filled; results are new references. */

/* Gives the session definitions in MDL. `name` is what errors call the text. */
int question_load(struct question *q, const char *name, const char *text, struct dinst_error *e);
/*
 * Inserts `metric` at `foci` (a list of resource names, borrowed; NULL: the whole program), one
 * instance for each match if `each`; `limit` in percent of a CPU, 0 for none. *result is the
 * whole answer: rows, partial, notes.
 */
int question_insert(struct question *q, const char *metric, json_t *foci, bool each, double limit,
		    json_t **result, struct dinst_error *e);
/* Values of `ids` (borrowed; NULL: all that the question has inserted). *rows is the list. */
int question_read(struct question *q, json_t *ids, json_t **rows, struct dinst_error *e);
/* Removes `ids` (borrowed; NULL: all that the question has inserted). */
int question_remove(struct question *q, json_t *ids, struct dinst_error *e);
/*
 * Any other method of the session, params borrowed or NULL. What inserts (`insert`, `trace`) is
 * held, and its rows' ids are remembered.
 */
int question_call(struct question *q, const char *method, json_t *params, json_t **result,
		  struct dinst_error *e);

/* A line that is replaced by the next one, on standard error where that is a terminal. */
void question_progress(struct question *q, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Removes what was inserted, detaches if the session was made for this and nobody else
 * uses it, writes out and closes the output, restores the signals. Returns `status`, or
 * EXIT_FAILED (reported) if it was EXIT_DONE or EXIT_PARTIAL and something of that failed.
 */
int question_end(struct question *q, int status);

/* Seconds from "1.5", "30s", "2m", "1h", "200ms". False if it is none, not above 0, or above 4e6 (of ms, an unsigned has no more). */
bool question_seconds_from(const char *text, double *seconds);

#endif
