/* SPDX-License-Identifier: MIT */
/*
 * command.h - what the parts of the client know of each other.
 *
 *   main.c           the global options, the exit status
 *   dispatch.c help.c   the table of commands, nearest names; help
 *   options.c        the syntax of options
 *   connect.c start.c   the socket; starting a daemon
 *   output.c         results, notes and errors as people or programs want them
 *   table.c          aligned columns
 *   values.c chart.c    values as people read them
 *   load.c           files of metrics
 *   sessions.c code.c metrics.c instruments.c watch.c exec.c doctor.c   the commands
 *   script.c prompt.c   where commands come from
 *
 * A command returns an exit status (enum exit_status) and has printed why.
 */
#ifndef DINST_DAEMON_COMMAND_H
#define DINST_DAEMON_COMMAND_H

#include <stdarg.h>
#include <stdbool.h>

#include "daemon/client/connect.h"
#include "daemon/client/options.h"
#include "daemon/common/process.h"

enum exit_status { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_PARTIAL = 3 };

struct context {
	struct link link;
	bool json, quiet, verbose;
	const char *target;		/* -p of the command at hand; NULL if not given */
	char session[PROCESS_NAME_MAX]; /* what -p is when it is left out; may be empty */
	const char *source;		/* of a script's line, for messages; may be NULL */
	unsigned line;
	unsigned depth; /* scripts in scripts */
	bool prompt;	/* at the prompt: no prompt in it */
	bool quit;
	int ended_by; /* the signal that ended a command, and is for what follows, too; 0: none */
	uint64_t started_ns; /* of the call at hand, for progress */
	bool progress_shown;
	bool target_ended; /* an event said so, of whatever session this connection used */
};

struct command {
	const char *name;
	const char *usage;   /* behind the name */
	const char *summary; /* one line */
	const char *more;    /* explanation for --help: whole lines, may be empty */
	const char *example;
	const struct option_spec *options;
	int words_min, words_max; /* words_max -1: any number */
	bool first_word_ends;	  /* what follows the first argument is not ours */
	int (*run)(struct context *c, const struct arguments *a);
};

/* -------------------------------------------------------------- dispatch.c */

extern const struct command commands[]; /* ends with name NULL */
const struct command *command_named(const char *name);
/* Runs argv[0..argc); global options may stand anywhere. */
int command_run(struct context *c, int argc, char **argv);
int help_run(struct context *c, const struct arguments *a);

/* ------------------------------------------------------------------ help.c */

/* On a screen of 24 lines and 80 columns. */
void command_help(const struct command *command);
void commands_help(void);

/* ---------------------------------------------------------------- output.c */

/* Columns of a listing. */
enum column_form {
	COLUMN_TEXT,
	COLUMN_NUMBER,	/* right aligned */
	COLUMN_ADDRESS, /* hexadecimal where it comes as a number */
	COLUMN_WIDE,	/* only with -v */
};

struct column {
	const char *key;
	const char *title;
	enum column_form form;
};

/* "dinst: TEXT" or the JSON object, on standard error; returns the exit status. */
int report(struct context *c, const struct dinst_error *e);
int report_text(struct context *c, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void note(struct context *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* To standard error, without what a terminal obeys: also with --json, where names are not cleaned yet. */
void print_clean(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

/*
 * The notes of a result, to standard error: in any case where something was left undone, else they are
 * courtesy. True if something was.
 */
bool print_notes(struct context *c, const json_t *result);
/*
 * Prints result.rows by `columns` (ends with key NULL), or every row as JSON,
 * then the notes. Returns EXIT_DONE or EXIT_PARTIAL.
 */
int print_rows(struct context *c, json_t *result, const struct column *columns);
/*
 * Prints one object: as JSON, or by a template in which {key} stands for a
 * member. Notes as above.
 */
int print_object(struct context *c, json_t *result, const char *format);
void print_json(json_t *value);
/* Writes out what was printed; why that failed is kept for flush_output(). */
void output_flush(void);
void output_write(const char *data, size_t size); /* and these bytes behind it */
/* As output_flush(); EXIT_FAILED, reported once, if some of the output could not be written. */
int flush_output(struct context *c, int status);

/*
 * What the session says itself. An event may have waited in the socket since an earlier command, which used
 * another session, or one of the same name.
 */
bool session_has_ended(struct context *c);
/* Calls the daemon with params.session set; shows progress and events. */
int call(struct context *c, const char *method, json_t *params, json_t **result,
	 struct dinst_error *e);
/* As call(), without a session. Starts a daemon if `start`. */
int call_daemon(struct context *c, bool start, const char *method, json_t *params,
		link_notified notified, void *arg, json_t **result, struct dinst_error *e);
/* Shows "progress" and "event" messages. */
void show_notification(struct context *c, const char *method, json_t *params);

/* Numbers from words, as a JSON array; NULL with *e filled if one is none. */
json_t *ids_from_words(const struct arguments *a, struct dinst_error *e);

/* ----------------------------------------------------------------- table.c */

/* Prints rows in aligned columns. Returns the number of lines printed. */
size_t table_print(const struct column *columns, json_t *rows, bool wide);
/* One value as text: "-" for null, "a 1, b 2" for an object. */
void value_text(json_t *value, enum column_form form, char *text, size_t size);

/* --------------------------------------------------------------- the commands */

int attach_run(struct context *c, const struct arguments *a);
int exec_run(struct context *c, const struct arguments *a);
int ls_run(struct context *c, const struct arguments *a);
int detach_run(struct context *c, const struct arguments *a);
int repair_run(struct context *c, const struct arguments *a);
int serve_run(struct context *c, const struct arguments *a);
int stop_run(struct context *c, const struct arguments *a);
int modules_run(struct context *c, const struct arguments *a);
int funcs_run(struct context *c, const struct arguments *a);
int points_run(struct context *c, const struct arguments *a);
int cfg_run(struct context *c, const struct arguments *a);
int metrics_run(struct context *c, const struct arguments *a);
int insert_run(struct context *c, const struct arguments *a);
int read_run(struct context *c, const struct arguments *a);
int remove_run(struct context *c, const struct arguments *a);
int flush_run(struct context *c, const struct arguments *a);
int watch_run(struct context *c, const struct arguments *a);
int history_run(struct context *c, const struct arguments *a);
int graph_run(struct context *c, const struct arguments *a);
int why_run(struct context *c, const struct arguments *a);
int doctor_run(struct context *c, const struct arguments *a);
int trace_run(struct context *c, const struct arguments *a);
int record_run(struct context *c, const struct arguments *a);
int report_run(struct context *c, const struct arguments *a);
int hist_run(struct context *c, const struct arguments *a);
int top_run(struct context *c, const struct arguments *a);
int run_run(struct context *c, const struct arguments *a);

/* Options of commands that are too many for the table's file. */
extern const struct option_spec hist_options[];
extern const struct option_spec top_options[];
extern const struct option_spec trace_options[];
extern const struct option_spec record_options[];
extern const struct option_spec report_options[];

/* The files given with -M, as a new array; NULL with *e filled. */
json_t *load_read(const struct arguments *a, struct dinst_error *e);
/* Sends them to the session; EXIT_DONE, or the status with which it failed, reported. */
int load_send(struct context *c, json_t *files);

/* -x SCRIPT and -e COMMAND in their order, stopping at the first failure. */
int run_given(struct context *c, const struct arguments *a);
/* The template by which attach and exec print their object. */
extern const char attach_format[];

/* -------------------------------------------------------- script.c, prompt.c */

/* One line as a command; empty lines and comments are nothing. */
int run_line(struct context *c, const char *line);
/* A file of lines; "-" is standard input. */
int run_script(struct context *c, const char *path);
/* "ended by a signal", and what is not done therefore, as an error. */
int report_ended(struct context *c, const char *undone);
/* By another one than Ctrl-C at a terminal: no prompt and no waiting follow. */
bool told_to_end(const struct context *c);
/* Reads commands from the terminal until `quit`. */
int prompt_loop(struct context *c);
/* True if both ends are a terminal and no prompt is open. */
bool prompt_wanted(const struct context *c);

#endif
