/* SPDX-License-Identifier: MIT */
/*
 * question.c - what commands that answer a question have in common.
 *
 * Owns their signals, their duration, their output and their leaving. Everything that
 * they insert is held by the connection, so that the daemon cleans up where we cannot.
 */
#include "daemon/client/question.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SLICE_NS = 100 * 1000 * 1000, AGAIN_NS = 250 * 1000 * 1000 };

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/* Since question_begin(): the first one, but SIGINT gives way to what is meant for more than the command. */
static volatile sig_atomic_t signal_seen;
static volatile uint64_t first_signal_ns;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ------------------------------------------------------------------ options */

bool question_seconds_from(const char *text, double *seconds)
{
	static const struct {
		const char *name;
		double factor;
	} units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"min", 60}, {"h", 3600}};
	char *end;
	const double number = strtod(text, &end);

	for (size_t n = 0; end != text && n < sizeof(units) / sizeof(units[0]); n++)
		if (!strcmp(end, units[n].name) && number > 0 && number * units[n].factor <= 4e6) {
			*seconds = number * units[n].factor;
			return true;
		}
	return false;
}

static int read_duration(struct question *q, const struct arguments *a)
{
	const char *text = arguments_get(a, 'd');

	if (text && !question_seconds_from(text, &q->duration_s))
		return report_text(q->c, DINST_USAGE,
				   "--duration takes a time as 10, 1.5s or 2m, not '%s'", text);
	return EXIT_DONE;
}

/* ------------------------------------------------------------------- output */

static int open_output(struct question *q, const struct arguments *a)
{
	const char *path = q->own_output ? NULL : arguments_get(a, 'o');
	struct result_file *file = &q->output;
	int error;

	*file = (struct result_file){.fd = -1};
	q->terminal = !path && !q->c->json && isatty(STDOUT_FILENO);
	if (!path || !strcmp(path, "-"))
		return EXIT_DONE;
	output_flush();
	error = result_file_open(file, path);
	if (error)
		return report_text(q->c, DINST_BAD_FILE, "cannot write %s: %s", path,
				   strerror(-error));
	q->saved_output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (q->saved_output < 0 || dup2(file->fd, STDOUT_FILENO) < 0) {
		error = errno;
		result_file_drop(file);
		close(file->fd);
		return report_text(q->c, DINST_FAILED, "cannot write %s: %s", path,
				   strerror(error));
	}
	close(file->fd);
	file->fd = STDOUT_FILENO;
	return EXIT_DONE;
}

static bool reader_is_gone(void)
{
	struct pollfd reader = {STDOUT_FILENO, 0, 0};

	return poll(&reader, 1, 0) > 0 && (reader.revents & POLLERR);
}

static int close_output(struct question *q, int status)
{
	/* the reader of a pipe went away: it has what it wanted */
	if (reader_is_gone())
		clearerr(stdout);
	else
		status = flush_output(q->c, status);
	if (q->saved_output >= 0) {
		result_file_settle(&q->output);
		/* done in part is a result, too, if only that nothing has come */
		if (!q->output.begun && (status == EXIT_DONE || status == EXIT_PARTIAL))
			result_file_begin(&q->output);
		else if (!q->output.begun)
			result_file_drop(&q->output);
		dup2(q->saved_output, STDOUT_FILENO);
		close(q->saved_output);
		clearerr(stdout);
	}
	q->saved_output = -1;
	return status;
}

/* ------------------------------------------------------------------ signals */

/*
 * The first one lets the call at hand end, so that the leaving is orderly. What comes right
 * behind it is the same one once more: from a shell, timeout(1) or sudo that pass it on.
 */
static void on_signal(int sig)
{
	const uint64_t now = now_ns();

	if (!signal_seen)
		first_signal_ns = now;
	else if (now - first_signal_ns > AGAIN_NS)
		link_interrupted = 1;
	if (!signal_seen || signal_seen == SIGINT)
		signal_seen = sig;
}

/* While an answer is waited for. */
static void tick(void *arg)
{
	struct question *q = arg;
	char text[120];

	if (!signal_seen || q->told)
		return;
	q->told = true;
	snprintf(text, sizeof(text),
		 "leaving as soon as '%s' is done; once more leaves the cleaning to the daemon",
		 q->waiting ? q->waiting : "attach");
	if (q->waits)
		q->waits(q, text);
	else
		note(q->c, "%s", text);
}

static void catch_signals(struct question *q)
{
	/* no SA_RESTART: sleeping and waiting are to end */
	struct sigaction action = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};
	size_t n = 0;

	_Static_assert(sizeof(ending_signals) / sizeof(ending_signals[0]) + 1 ==
			       sizeof(q->before) / sizeof(q->before[0]),
		       "one for each, and SIGPIPE");
	signal_seen = 0;
	for (; n < sizeof(ending_signals) / sizeof(ending_signals[0]); n++) {
		sigaction(ending_signals[n], NULL, &q->before[n]);
		/* what was ignored stays so: nohup */
		if (q->before[n].sa_handler != SIG_IGN)
			sigaction(ending_signals[n], &action, NULL);
	}
	sigaction(SIGPIPE, &ignore, &q->before[n]);
	q->c->link.tick = tick;
	q->c->link.tick_arg = q;
}

static void restore_signals(struct question *q)
{
	size_t n = 0;

	for (; n < sizeof(ending_signals) / sizeof(ending_signals[0]); n++)
		sigaction(ending_signals[n], &q->before[n], NULL);
	sigaction(SIGPIPE, &q->before[n], NULL);
	q->c->link.tick = NULL;
	link_interrupted = 0;
	if (signal_seen)
		q->c->ended_by = signal_seen;
}

/* ---------------------------------------------------------------- beginning */

/* Without a target: the only session there is. */
static int only_session(struct question *q, char *name, size_t size, struct dinst_error *e)
{
	json_t *answer = NULL, *rows;
	struct dinst_error why = {0, ""};
	const char *found;
	int err = call_daemon(q->c, false, "sessions", NULL, NULL, NULL, &answer, &why);

	if (err && (err != DINST_DAEMON || q->c->link.daemon_pid))
		return dinst_fail_text(e, err, why.text);
	rows = json_object_get(answer, "rows");
	found = json_string_value(json_object_get(json_array_get(rows, 0), "session"));
	if (json_array_size(rows) > 1)
		err = dinst_fail(e, DINST_USAGE,
				 "there are several sessions (dinst ls): choose a program with -p "
				 "PID or -p NAME");
	else if (!found)
		err = dinst_fail(e, DINST_USAGE, "of which program? say -p PID or -p NAME");
	else
		snprintf(name, size, "%s", found);
	json_decref(answer);
	return err;
}

static int join(struct question *q, struct dinst_error *e)
{
	struct context *c = q->c;
	const char *target = c->target ? c->target : c->session[0] ? c->session : NULL;
	char only[PROCESS_NAME_MAX];
	json_t *params, *answer = NULL;
	const char *name;
	int err;

	if (!target) {
		err = only_session(q, only, sizeof(only), e);
		if (err)
			return err;
		target = only;
	}
	params = json_pack("{s:o,s:b}", "target", rpc_text(target), "hold", 1);
	err = call_daemon(c, true, "attach", params, NULL, NULL, &answer, e);
	json_decref(params);
	if (err)
		return err;
	name = json_string_value(json_object_get(answer, "session"));
	snprintf(q->session_before, sizeof(q->session_before), "%s", c->session);
	snprintf(c->session, sizeof(c->session), "%s", name ? name : "");
	c->target = NULL;
	q->attached = !json_is_true(json_object_get(answer, "joined"));
	q->pid = (pid_t)json_integer_value(json_object_get(answer, "pid"));
	json_decref(answer);
	/* said before the answer was: maybe of the session of an earlier command */
	if (c->target_ended)
		c->target_ended = session_has_ended(c);
	return 0;
}

int question_begin(struct question *q, struct context *c, const struct arguments *a)
{
	struct dinst_error e = {0, ""};
	int status;

	q->c = c;
	q->saved_output = -1;
	c->target_ended = false;
	status = read_duration(q, a);
	if (status == EXIT_DONE)
		status = open_output(q, a);
	if (status != EXIT_DONE)
		return status;
	q->ids = json_array();
	catch_signals(q);
	if (join(q, &e) == 0)
		return EXIT_DONE;
	restore_signals(q);
	json_decref(q->ids);
	close_output(q, EXIT_FAILED);
	return report(c, &e);
}

/* ------------------------------------------------------------------ waiting */

bool question_going(struct question *q)
{
	if (signal_seen || q->c->target_ended || q->c->link.fd < 0 || ferror(stdout) ||
	    (q->begun_ns && q->duration_s > 0 && question_seconds(q) >= q->duration_s))
		q->over = true;
	if (reader_is_gone())
		q->over = true;
	return !q->over;
}

bool question_wait(struct question *q, unsigned milliseconds)
{
	const uint64_t until = now_ns() + milliseconds * 1000000ull;
	struct timespec pause = {0, 0};
	uint64_t now;

	output_flush();
	if (q->saved_output >= 0)
		result_file_settle(&q->output);
	if (!q->begun_ns)
		q->begun_ns = now_ns();
	/* in short pieces: a signal may come right before one of them begins */
	while (question_going(q) && (now = now_ns()) < until) {
		uint64_t left = until - now, end = (uint64_t)(q->duration_s * 1e9) + q->begun_ns;

		if (q->duration_s > 0 && end < now + left)
			left = end > now ? end - now : 1;
		pause.tv_nsec = left < SLICE_NS ? (long)left : SLICE_NS;
		nanosleep(&pause, NULL);
	}
	return question_going(q);
}

double question_seconds(const struct question *q)
{
	return q->begun_ns ? (double)(now_ns() - q->begun_ns) / 1e9 : 0;
}

/* ------------------------------------------------------------------- asking */

static int ask(struct question *q, const char *method, json_t *params, json_t **result,
	       struct dinst_error *e)
{
	int err;

	q->waiting = method;
	err = call(q->c, method, params, result, e);
	q->waiting = NULL;
	if (err == DINST_GONE)
		q->c->target_ended = true;
	return err;
}

int question_call(struct question *q, const char *method, json_t *params, json_t **result,
		  struct dinst_error *e)
{
	const bool inserts = !strcmp(method, "insert") || !strcmp(method, "trace");
	json_t *held = params ? json_copy(params) : json_object(), *row;
	size_t index;
	int err;

	if (inserts)
		json_object_set_new(held, "hold", json_true());
	*result = NULL;
	err = ask(q, method, held, result, e);
	json_decref(held);
	if (!err && inserts)
		json_array_foreach(json_object_get(*result, "rows"), index, row)
			json_array_append(q->ids, json_object_get(row, "id"));
	return err;
}

int question_load(struct question *q, const char *name, const char *text, struct dinst_error *e)
{
	json_t *params = json_pack("{s:o,s:o}", "name", rpc_text(name), "text", rpc_text(text));
	json_t *answer = NULL;
	int err = ask(q, "load", params, &answer, e);

	json_decref(params);
	json_decref(answer);
	return err;
}

int question_insert(struct question *q, const char *metric, json_t *foci, bool each, double limit,
		    json_t **result, struct dinst_error *e)
{
	json_t *params = json_pack("{s:o,s:b}", "metric", rpc_text(metric), "each", each);
	int err;

	if (foci)
		json_object_set(params, "focus", foci);
	if (limit > 0)
		json_object_set_new(params, "limit", json_real(limit));
	err = question_call(q, "insert", params, result, e);
	json_decref(params);
	return err;
}

int question_read(struct question *q, json_t *ids, json_t **rows, struct dinst_error *e)
{
	json_t *params, *answer = NULL;
	int err = 0;

	*rows = NULL;
	ids = ids ? ids : q->ids;
	/* no ids at all would mean those of everybody */
	if (json_array_size(ids) == 0) {
		*rows = json_array();
		return 0;
	}
	params = json_pack("{s:O}", "ids", ids);
	err = ask(q, "read", params, &answer, e);
	if (!err)
		*rows = json_incref(json_object_get(answer, "rows"));
	json_decref(params);
	json_decref(answer);
	return err;
}

/* Thousands may go at once: looked up by their text. */
static void forget(struct question *q, json_t *gone)
{
	json_t *left = json_array(), *set = json_object(), *id;
	char key[24];
	size_t index;

	json_array_foreach(gone, index, id)
	{
		snprintf(key, sizeof(key), "%lld", (long long)json_integer_value(id));
		json_object_set_new(set, key, json_null());
	}
	json_array_foreach(q->ids, index, id)
	{
		snprintf(key, sizeof(key), "%lld", (long long)json_integer_value(id));
		if (!json_object_get(set, key))
			json_array_append(left, id);
	}
	json_decref(set);
	json_decref(q->ids);
	q->ids = left;
}

int question_remove(struct question *q, json_t *ids, struct dinst_error *e)
{
	json_t *params, *answer = NULL;
	int err;

	ids = ids ? ids : q->ids;
	if (json_array_size(ids) == 0)
		return 0;
	params = json_pack("{s:O}", "ids", ids);
	err = ask(q, "remove", params, &answer, e);
	if (!err)
		forget(q, ids);
	json_decref(params);
	json_decref(answer);
	return err;
}

void question_progress(struct question *q, const char *format, ...)
{
	va_list args;

	if (q->c->quiet || !isatty(STDERR_FILENO))
		return;
	output_flush();
	fputs("\r\033[K", stderr);
	va_start(args, format);
	print_clean(format, args);
	va_end(args);
	q->c->progress_shown = true;
}

/* ------------------------------------------------------------------ leaving */

/* What had to stay, and what takes it out: the mutator knows when that can be done. */
static void report_left(struct question *q, const json_t *answer)
{
	const json_t *note = json_array_get(json_object_get(answer, "notes"), 0);
	const long long left = json_integer_value(json_object_get(answer, "left"));

	if (json_is_string(note))
		report_text(q->c, DINST_FAILED, "%lld places had to stay for now: %s", left,
			    json_string_value(note));
	else
		report_text(q->c, DINST_FAILED,
			    "%lld places had to stay for now: dinst repair %d takes them out", left,
			    (int)q->pid);
}

/*
 * What was inserted goes, and the session if it was made for this. `before`: how it went, which is told; what had to stay
 * for now is no more than done in part.
 */
static int leave(struct question *q, int before)
{
	const int stays = before == EXIT_PARTIAL ? EXIT_PARTIAL : EXIT_FAILED;
	struct dinst_error e = {0, ""};
	json_t *params, *answer = NULL;
	int err, status = EXIT_DONE;
	bool unknown;
	json_int_t left;

	/* cut off: by a second signal, or by the daemon's end, which nobody need have noticed */
	if (q->c->link.fd < 0 && link_interrupted)
		note(q->c, "the daemon takes out what is left");
	else if (q->c->link.fd < 0 && !q->c->target_ended && before != EXIT_FAILED)
		return report_text(
			q->c, DINST_DAEMON,
			"the daemon has ended before this did: what is shown ends there");
	if (q->c->link.fd < 0)
		return EXIT_DONE;
	params = json_pack("{s:b}", "hold", 1);
	err = ask(q, "detach", params, &answer, &e);
	json_decref(params);
	left = json_integer_value(json_object_get(answer, "left"));
	unknown = json_is_null(json_object_get(answer, "left"));
	if (!err && q->attached && left == 0 && !unknown && q->c->verbose)
		note(q->c, "detached: %lld places restored, stopped for %lld us",
		     (long long)json_integer_value(json_object_get(answer, "restored")),
		     (long long)json_integer_value(json_object_get(answer, "stop_us")));
	if (link_interrupted)
		note(q->c, "the daemon takes out what is left");
	else if (unknown)
		report_text(q->c, DINST_FAILED,
			    "nobody could take out what is left: dinst repair %d does",
			    (int)q->pid);
	else if (left > 0)
		report_left(q, answer);
	/* where the target has ended nothing is left, and no session may be */
	else if (err && err != DINST_GONE && err != DINST_NO_SESSION)
		status = report(q->c, &e);
	if (!link_interrupted && (unknown || left > 0))
		status = stays;
	json_decref(answer);
	return status;
}

int question_end(struct question *q, int status)
{
	int left, closed;

	/* the terminal has shown ^C: what follows begins on a line of its own */
	if (signal_seen && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO))
		fputc('\n', stderr);
	left = leave(q, status);
	snprintf(q->c->session, sizeof(q->c->session), "%s", q->session_before);
	closed = close_output(q, status);
	restore_signals(q);
	json_decref(q->ids);
	q->ids = NULL;
	if (status != EXIT_DONE && status != EXIT_PARTIAL)
		return status;
	return left != EXIT_DONE ? left : closed;
}
