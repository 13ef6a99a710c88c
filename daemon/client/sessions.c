/* SPDX-License-Identifier: MIT */
/*
 * sessions.c - attach, ls, detach, repair, stop.
 *
 * Owns what the client does with whole sessions. Only `attach` and `repair`
 * (and `exec`) start a daemon; the others have nothing to ask one that does
 * not run.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "daemon/client/command.h"

const char attach_format[] = "session {session} (pid {pid}): {modules} modules, {functions} "
			     "functions, attached in {attach_ms} ms, stopped for {stop_us} us";
static const char detach_format[] =
	"{session}: {restored} patches restored, {left} left, stopped for {stop_us} us";
static const char unknown_format[] = "{session}: nothing restored; how much is left is not known";

/* ------------------------------------------------------------------ attach */

static int attached(struct context *c, json_t *answer, const struct arguments *a, json_t *files)
{
	const char *name = json_string_value(json_object_get(answer, "session"));
	json_int_t cleaned;
	int status;

	snprintf(c->session, sizeof(c->session), "%s", name ? name : "");
	c->target = NULL;
	cleaned = json_integer_value(json_object_get(answer, "cleaned"));
	if (cleaned > 0)
		note(c, "%lld patches that an earlier mutator had left were taken out",
		     (long long)cleaned);
	status = print_object(c, answer, attach_format);
	if (status != EXIT_FAILED) {
		const int further = load_send(c, files) ?: run_given(c, a);

		if (further)
			status = further;
	}
	/* Ctrl-C drops what was still to be run: the terminal is there for what is wanted instead */
	if ((status == EXIT_DONE || c->ended_by == SIGINT) && !told_to_end(c) && prompt_wanted(c))
		status = prompt_loop(c);
	return status;
}

int attach_run(struct context *c, const struct arguments *a)
{
	const char *target = a->word_count ? a->word[0] : c->target;
	struct dinst_error e = {0, ""};
	json_t *params, *files, *answer = NULL;
	int status;

	if (!target)
		return report_text(c, DINST_USAGE,
				   "attach needs a TARGET: a pid or a process name");
	files = load_read(a, &e);
	if (!files)
		return report(c, &e);
	params = json_pack("{s:o}", "target", rpc_text(target));
	if (arguments_get(a, 'n'))
		json_object_set_new(params, "name", rpc_text(arguments_get(a, 'n')));
	if (call_daemon(c, true, "attach", params, NULL, NULL, &answer, &e) != 0)
		status = report(c, &e);
	else
		status = attached(c, answer, a, files);
	json_decref(files);
	json_decref(params);
	json_decref(answer);
	return status;
}

/* ---------------------------------------------------------------------- ls */

static const struct column ls_columns[] = {
	{"session", "SESSION", COLUMN_TEXT},
	{"pid", "PID", COLUMN_NUMBER},
	{"name", "NAME", COLUMN_TEXT},
	{"state", "STATE", COLUMN_TEXT},
	{"points", "POINTS", COLUMN_NUMBER},
	{"active", "ACTIVE", COLUMN_NUMBER},
	{"queued", "QUEUED", COLUMN_NUMBER},
	{"heap_bytes", "HEAP-BYTES", COLUMN_NUMBER},
	{"heap_code", "HEAP-CODE", COLUMN_WIDE},
	{"heap_most", "HEAP-MOST", COLUMN_WIDE},
	{"heap_values", "HEAP-VALUES", COLUMN_WIDE},
	{"heap_values_most", "VALUES-MOST", COLUMN_WIDE},
	{"heap_memory", "HEAP-MEMORY", COLUMN_WIDE},
	{"text_memory", "TEXT-MEMORY", COLUMN_WIDE},
	{"arena", "ARENA", COLUMN_WIDE},
	{"busy", "BUSY", COLUMN_WIDE},
	{"sampled_ms", "SAMPLED-MS", COLUMN_WIDE},
	{"sample_us", "SAMPLE-US", COLUMN_WIDE},
	{"why", "WHY", COLUMN_TEXT},
	{NULL, NULL, 0},
};

/* True if the only reason is that no daemon runs, which is no failure for some commands. */
static bool no_daemon(const struct context *c, const struct dinst_error *e)
{
	return e->code == DINST_DAEMON && c->link.daemon_pid == 0;
}

int ls_run(struct context *c, const struct arguments *a)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;
	int status;

	(void)a;
	if (call_daemon(c, false, "sessions", NULL, NULL, NULL, &answer, &e) != 0) {
		if (!no_daemon(c, &e))
			return report(c, &e);
		note(c, "no sessions (no daemon runs)");
		return EXIT_DONE;
	}
	if (json_array_size(json_object_get(answer, "rows")) == 0) {
		note(c, "no sessions");
		status = EXIT_DONE;
	} else {
		status = print_rows(c, answer, ls_columns);
	}
	json_decref(answer);
	return status;
}

/* ------------------------------------------------------------------ detach */

static int detach_one(struct context *c, const char *target, json_t *params)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;
	const char *name;
	int status;

	c->target = target;
	if (call(c, "detach", params, &answer, &e) != 0)
		return report(c, &e);
	status = print_object(c, answer,
			      json_is_null(json_object_get(answer, "left")) ? unknown_format
									    : detach_format);
	if (json_integer_value(json_object_get(answer, "left")) > 0)
		status = EXIT_PARTIAL;
	/* commands that follow keep theirs if it was another one */
	name = json_string_value(json_object_get(answer, "session"));
	if (name && !strcmp(name, c->session))
		c->session[0] = '\0';
	json_decref(answer);
	return status;
}

static int detach_all(struct context *c, json_t *params)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL, *row;
	int status = EXIT_DONE;
	size_t index;

	if (call_daemon(c, false, "sessions", NULL, NULL, NULL, &answer, &e) != 0)
		return no_daemon(c, &e) ? EXIT_DONE : report(c, &e);
	if (json_array_size(json_object_get(answer, "rows")) == 0)
		note(c, "no sessions");
	json_array_foreach(json_object_get(answer, "rows"), index, row)
	{
		const char *name = json_string_value(json_object_get(row, "session"));
		int one = name ? detach_one(c, name, params) : EXIT_FAILED;

		/* the others are detached all the same; the worst is reported */
		if (one == EXIT_FAILED || status == EXIT_DONE)
			status = one;
	}
	json_decref(answer);
	return status;
}

int detach_run(struct context *c, const struct arguments *a)
{
	const char *seconds = arguments_get(a, 't');
	unsigned long long number = 0;
	json_t *params = json_object();
	int status;

	if (seconds && !parse_number(seconds, 86400, &number)) {
		status = report_text(c, DINST_USAGE, "-t takes whole seconds, not '%s'", seconds);
	} else if (arguments_get(a, OPTION_ALL) && (a->word_count || c->target)) {
		status = report_text(c, DINST_USAGE, "--all takes no TARGET");
	} else {
		if (seconds)
			json_object_set_new(params, "seconds", json_integer((json_int_t)number));
		if (arguments_get(a, OPTION_ALL))
			status = detach_all(c, params);
		else
			status = detach_one(c, a->word_count ? a->word[0] : c->target, params);
		if (arguments_get(a, OPTION_ALL) && status != EXIT_FAILED)
			c->session[0] = '\0';
	}
	json_decref(params);
	return status;
}

/* ------------------------------------------------------------------ repair */

int repair_run(struct context *c, const struct arguments *a)
{
	const char *target = a->word_count ? a->word[0] : c->target;
	struct dinst_error e = {0, ""};
	json_t *params, *answer = NULL;
	int status;

	if (!target)
		return report_text(c, DINST_USAGE,
				   "repair needs a TARGET: a pid or a process name");
	params = json_pack("{s:o}", "target", rpc_text(target));
	if (call_daemon(c, true, "repair", params, NULL, NULL, &answer, &e) != 0)
		status = report(c, &e);
	else
		status = print_object(c, answer, "{patches} patches found, {restored} restored");
	json_decref(params);
	json_decref(answer);
	return status;
}

/* -------------------------------------------------------------------- stop */

static const struct column stop_columns[] = {
	{"session", "SESSION", COLUMN_TEXT},
	{"restored", "RESTORED", COLUMN_NUMBER},
	{"left", "LEFT", COLUMN_NUMBER},
	{"stop_us", "STOP-US", COLUMN_NUMBER},
	{NULL, NULL, 0},
};

int stop_run(struct context *c, const struct arguments *a)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;
	int status;

	(void)a;
	if (call_daemon(c, false, "stop", NULL, NULL, NULL, &answer, &e) != 0) {
		if (!no_daemon(c, &e))
			return report(c, &e);
		note(c, "no daemon runs");
		return EXIT_DONE;
	}
	status = print_rows(c, answer, stop_columns);
	json_decref(answer);
	/* when we return the daemon does no more and its socket is gone */
	link_wait_end(&c->link, 10000);
	c->link.daemon_pid = 0;
	c->session[0] = '\0';
	return status;
}
