/* SPDX-License-Identifier: MIT */
/*
 * output.c - results, notes and errors as people or programs want them.
 *
 * Owns standard output and standard error: results go to the one, everything
 * else to the other. With --json nothing but objects goes to standard output.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/client/command.h"

enum { PROGRESS_AFTER_MS = 1000 };

/* ----------------------------------------------------------------- errors */

static void clear_progress(struct context *c)
{
	if (c->progress_shown)
		fputs("\r\033[K", stderr);
	c->progress_shown = false;
}

int report(struct context *c, const struct dinst_error *e)
{
	char where[300] = "";
	char text[DINST_ERROR_TEXT + 320];
	json_t *error;
	char *line;

	clear_progress(c);
	fflush(stdout);
	if (c->source)
		snprintf(where, sizeof(where), "%.256s:%u: ", c->source, c->line);
	snprintf(text, sizeof(text), "%s%s", where, e->text);
	if (c->json) {
		error = json_pack("{s:{s:s,s:o}}", "error", "code", dinst_code_name(e->code),
				  "message", rpc_text(text));
		line = rpc_shown(error, JSON_COMPACT);
		fprintf(stderr, "%s\n", line ? line : "{\"error\":{\"code\":\"no-memory\"}}");
		free(line);
		json_decref(error);
	} else {
		text_clean(text, true);
		fprintf(stderr, "dinst: %s\n", text);
	}
	return e->code == DINST_USAGE ? EXIT_USAGE : EXIT_FAILED;
}

int report_text(struct context *c, int code, const char *format, ...)
{
	struct dinst_error e = {code, ""};
	va_list args;

	va_start(args, format);
	vsnprintf(e.text, sizeof(e.text), format, args);
	va_end(args);
	return report(c, &e);
}

void print_clean(const char *format, va_list args)
{
	char *text = NULL;

	if (vasprintf(&text, format, args) < 0)
		return;
	text_clean(text, true);
	fputs(text, stderr);
	free(text);
}

void note(struct context *c, const char *format, ...)
{
	va_list args;

	if (c->quiet)
		return;
	clear_progress(c);
	fflush(stdout);
	fputs("dinst: ", stderr);
	va_start(args, format);
	print_clean(format, args);
	va_end(args);
	fputc('\n', stderr);
}

/* Why the output could not be written: the C library keeps only that it could not. */
static int output_error;

void output_flush(void)
{
	if (fflush(stdout) != 0)
		output_error = errno;
}

void output_write(const char *data, size_t size)
{
	if (fwrite(data, 1, size, stdout) != size)
		output_error = errno;
	output_flush();
}

int flush_output(struct context *c, int status)
{
	int error;

	output_flush();
	if (!ferror(stdout))
		return status;
	/* told once; what follows may go elsewhere */
	error = output_error;
	output_error = 0;
	clearerr(stdout);
	/* Ctrl-C may cut a write short, which is what was wanted; so has a reader who went away */
	if (link_interrupted || error == EPIPE)
		return status;
	return report_text(c, DINST_FAILED, "cannot write the output%s%s", error ? ": " : "",
			   error ? strerror(error) : "");
}

/* ---------------------------------------------------------------- results */

/* What is measured and computed has nine, mostly; whole numbers have all of theirs. */
enum { DIGITS_LEAST = 9, DIGITS_MOST = 17 };

/* From 2^53 on there are no others. */
static bool is_whole(double number)
{
	const double no_others = (double)(INT64_C(1) << 53);

	return number >= no_others || number <= -no_others || number == (double)(int64_t)number;
}

/* How many digits it takes that each whole number in it is read as what it is; `least` at least. */
static int digits_of(json_t *value, int least)
{
	char text[40];
	const char *key;
	json_t *member;
	size_t index;

	if (json_is_array(value)) {
		json_array_foreach(value, index, member) least = digits_of(member, least);
	} else if (json_is_object(value)) {
		json_object_foreach(value, key, member) least = digits_of(member, least);
	} else if (json_is_real(value) && is_whole(json_real_value(value))) {
		for (; least < DIGITS_MOST; least++) {
			snprintf(text, sizeof(text), "%.*g", least, json_real_value(value));
			if (strtod(text, NULL) == json_real_value(value))
				break;
		}
	}
	return least;
}

void print_json(json_t *value)
{
	const int digits = digits_of(value, DIGITS_LEAST);
	char *text = rpc_shown(value, JSON_COMPACT | JSON_ENCODE_ANY |
					      (size_t)JSON_REAL_PRECISION(digits));

	fputs(text ? text : "{\"error\":{\"code\":\"no-memory\"}}", stdout);
	putchar('\n');
	free(text);
}

bool print_notes(struct context *c, const json_t *result)
{
	bool partial = json_is_true(json_object_get(result, "partial"));
	bool quiet = c->quiet;
	size_t index;
	json_t *text;

	if (partial)
		c->quiet = false;
	json_array_foreach(json_object_get(result, "notes"), index, text) if (json_is_string(text))
		note(c, "%s", json_string_value(text));
	c->quiet = quiet;
	return partial;
}

static int end_result(struct context *c, const json_t *result)
{
	return flush_output(c, print_notes(c, result) ? EXIT_PARTIAL : EXIT_DONE);
}

int print_rows(struct context *c, json_t *result, const struct column *columns)
{
	json_t *rows = json_object_get(result, "rows");
	size_t index;
	json_t *row;

	clear_progress(c);
	if (!json_is_array(rows))
		return report_text(c, DINST_PROTOCOL, "the daemon's answer has no rows");
	if (c->json) {
		json_array_foreach(rows, index, row) print_json(row);
	} else {
		table_print(columns, rows, c->verbose);
	}
	return end_result(c, result);
}

static void print_template(json_t *result, const char *format)
{
	char key[40], text[512];

	while (*format) {
		size_t length = strcspn(format, "{");

		printf("%.*s", (int)length, format);
		format += length;
		if (*format != '{')
			break;
		length = strcspn(++format, "}");
		snprintf(key, sizeof(key), "%.*s", (int)length, format);
		value_text(json_object_get(result, key), COLUMN_TEXT, text, sizeof(text));
		fputs(text, stdout);
		format += length + (format[length] == '}');
	}
	putchar('\n');
}

int print_object(struct context *c, json_t *result, const char *format)
{
	json_t *row;

	clear_progress(c);
	if (c->json) {
		/* what is for us and for standard error is no part of the result */
		row = json_copy(result);
		json_object_del(row, "notes");
		json_object_del(row, "partial");
		print_json(row);
		json_decref(row);
	} else {
		print_template(result, format);
	}
	return end_result(c, result);
}

/* ------------------------------------------------------------------ calls */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void show_notification(struct context *c, const char *method, json_t *params)
{
	const char *text, *kind, *session, *asked = c->target ? c->target : c->session;
	json_int_t done = json_integer_value(json_object_get(params, "done"));
	json_int_t total = json_integer_value(json_object_get(params, "total"));

	rpc_clean(params);
	text = json_string_value(json_object_get(params, "text"));
	kind = json_string_value(json_object_get(params, "kind"));
	if (strcmp(method, "event") == 0) {
		if (kind &&
		    (!strcmp(kind, "exited") || !strcmp(kind, "exec") || !strcmp(kind, "taken")))
			c->target_ended = true;
		/* of a session that is not called as the one that was asked for, or nobody said which */
		session = json_string_value(json_object_get(params, "session"));
		if (text && session && strcmp(session, asked) != 0)
			note(c, "%s: %s", session, text);
		else if (text)
			note(c, "%s", text);
		return;
	}
	if (strcmp(method, "progress") != 0 || c->quiet || !text || !isatty(STDERR_FILENO) ||
	    now_ns() - c->started_ns < PROGRESS_AFTER_MS * 1000000ull)
		return;
	fprintf(stderr, "\r\033[K%.60s", text);
	if (total > 0)
		fprintf(stderr, " %lld of %lld", (long long)done, (long long)total);
	c->progress_shown = true;
}

static void call_notified(void *arg, const char *method, json_t *params)
{
	show_notification(arg, method, params);
}

/* The daemon has not answered for a second: it may be waiting for a processor itself. */
static void not_greeted(void *arg)
{
	struct context *c = arg;

	if (c->quiet || !isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r\033[Kwaiting for dinstd (pid %d)", (int)c->link.daemon_pid);
	c->progress_shown = true;
}

static int open_link(struct context *c, bool start, struct dinst_error *e)
{
	const bool ticks = c->link.tick != NULL;
	int err;

	if (!ticks) {
		c->link.tick = not_greeted;
		c->link.tick_arg = c;
	}
	err = link_open(&c->link, start, e);
	if (!ticks)
		c->link.tick = NULL;
	return err;
}

int call_daemon(struct context *c, bool start, const char *method, json_t *params,
		link_notified notified, void *arg, json_t **result, struct dinst_error *e)
{
	int err;

	c->started_ns = now_ns();
	err = open_link(c, start, e);
	if (!err && start && strcmp(c->link.version, DINST_VERSION) != 0)
		note(c,
		     "the daemon is version %s and this is " DINST_VERSION
		     ": dinst stop ends it, and the next attach starts this version's",
		     c->link.version);
	if (!err)
		err = link_call(&c->link, method, params, notified ? notified : call_notified,
				notified ? arg : c, result, e);
	/* names come from programs and files; in JSON they stay what they are, escaped */
	if (!err && !c->json)
		rpc_clean(*result);
	clear_progress(c);
	return err;
}

int call(struct context *c, const char *method, json_t *params, json_t **result,
	 struct dinst_error *e)
{
	const char *target = c->target ? c->target : c->session[0] ? c->session : NULL;
	json_t *copy = params ? json_copy(params) : json_object();
	struct dinst_error why = {0, ""};
	int err;

	if (target)
		json_object_set_new(copy, "session", rpc_text(target));
	err = call_daemon(c, false, method, copy, NULL, NULL, result, &why);
	json_decref(copy);
	if (err == DINST_DAEMON && c->link.daemon_pid == 0)
		return dinst_fail(
			e, DINST_NO_SESSION,
			"there is no session (no daemon runs): dinst attach TARGET first");
	return err ? dinst_fail_text(e, err, why.text) : 0;
}

bool session_has_ended(struct context *c)
{
	struct dinst_error ignored = {0, ""};
	json_t *answer = NULL;
	const char *state;
	bool ended;

	call(c, "status", NULL, &answer, &ignored);
	state = json_string_value(json_object_get(answer, "state"));
	ended = state &&
		(!strcmp(state, "exited") || !strcmp(state, "exec") || !strcmp(state, "taken"));
	json_decref(answer);
	return ended;
}

json_t *ids_from_words(const struct arguments *a, struct dinst_error *e)
{
	json_t *ids = json_array();
	unsigned long long id;

	for (int i = 0; i < a->word_count; i++) {
		if (!parse_number(a->word[i], INT32_MAX, &id)) {
			dinst_fail(e, DINST_USAGE,
				   "an id is a number, not '%s' (dinst read lists them)",
				   a->word[i]);
			json_decref(ids);
			return NULL;
		}
		json_array_append_new(ids, json_integer((json_int_t)id));
	}
	return ids;
}
