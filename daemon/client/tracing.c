/* SPDX-License-Identifier: MIT */
/*
 * tracing.c - asks for events, takes them until somebody has had enough, and leaves.
 * Owns the rhythm: events are asked for at once while there are more, else some fifty
 * times a second.
 */
#include "daemon/client/tracing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	PAUSE_MS = 20,
	FIRST_HINT_S = 3,
	LEFT_SHOWN_MS = 500, /* how long what is left is taken for at the end */
	STACK_USUAL = 16,
};

bool tracing_time(const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}};
	char *end;
	const double number = strtod(text, &end);

	for (size_t n = 0; end != text && n < sizeof(units) / sizeof(units[0]); n++)
		if (!strcmp(end, units[n].name) && number > 0 && number * units[n].ns < 1e16) {
			*ns = (uint64_t)(number * units[n].ns);
			return *ns > 0;
		}
	return false;
}

/* ----------------------------------------------------------------- the question */

static int set_number(struct context *c, const struct arguments *a, char letter, const char *key,
		      const char *what, unsigned long long max, json_t *params)
{
	const char *text = arguments_get(a, letter);
	unsigned long long number;

	if (!text)
		return EXIT_DONE;
	if (!parse_number(text, max, &number) || !number)
		return report_text(c, DINST_USAGE, "%s from 1 to %llu, not '%s'", what, max, text);
	json_object_set_new(params, key, json_integer((json_int_t)number));
	return EXIT_DONE;
}

static int set_limit(struct context *c, const struct arguments *a, json_t *params)
{
	const char *text = arguments_get(a, OPTION_LIMIT);
	char *end;
	double limit;

	if (!text)
		return EXIT_DONE;
	limit = strtod(text, &end);
	if (end == text || *end || !(limit > 0) || limit > 1e6)
		return report_text(c, DINST_USAGE, "--limit takes percent of a CPU, not '%s'",
				   text);
	json_object_set_new(params, "limit", json_real(limit));
	return EXIT_DONE;
}

/* EXIT_DONE and *params, or EXIT_USAGE, reported. */
static int make_params(struct context *c, const struct arguments *a, json_t *params)
{
	const char *condition = arguments_get(a, OPTION_IF);
	const char *min = arguments_get(a, 't'), *stack = arguments_get(a, OPTION_STACK);
	json_t *functions = json_array();
	uint64_t ns = 0;
	int status;

	for (int i = 0; i < a->word_count; i++)
		json_array_append_new(functions, rpc_text(a->word[i]));
	json_object_set_new(params, "functions", functions);
	json_object_set_new(params, "args", json_boolean(arguments_get(a, 'a')));
	json_object_set_new(params, "return", json_boolean(arguments_get(a, 'r')));
	json_object_set_new(params, "caller", json_boolean(arguments_get(a, OPTION_CALLER)));
	json_object_set_new(params, "libraries", json_boolean(arguments_get(a, OPTION_LIBRARIES)));
	if (condition)
		json_object_set_new(params, "if", rpc_text(condition));
	if (min && !tracing_time(min, &ns))
		return report_text(
			c, DINST_USAGE,
			"--min-time takes a time with its unit, as 10us or 5ms, not '%s'", min);
	if (ns)
		json_object_set_new(params, "min_time_ns", json_integer((json_int_t)ns));
	status = set_number(c, a, 'D', "depth", "--depth takes a number of levels", 16, params);
	if (status == EXIT_DONE)
		status = set_number(c, a, OPTION_STRING, "string_bytes",
				    "--string takes a number of bytes", 256, params);
	if (status == EXIT_DONE && stack && !*stack)
		json_object_set_new(params, "stack", json_integer(STACK_USUAL));
	else if (status == EXIT_DONE)
		status = set_number(c, a, OPTION_STACK, "stack", "--stack takes a number of calls",
				    64, params);
	return status == EXIT_DONE ? set_limit(c, a, params) : status;
}

static json_int_t integer_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* What came of the question: numbers, kinds of events, and what was refused. */
static int read_answer(struct tracing *t, json_t *answer, struct dinst_error *e)
{
	json_t *row;
	size_t i;

	t->rows = json_incref(json_object_get(answer, "rows"));
	t->functions = (size_t)integer_of(answer, "functions");
	t->at_return = json_is_true(json_object_get(answer, "at_return"));
	json_array_foreach(t->rows, i, row)
	{
		json_array_append(t->ids, json_object_get(row, "id"));
		t->points += (size_t)integer_of(row, "points");
	}
	t->partial = print_notes(t->q.c, answer) ? EXIT_PARTIAL : EXIT_DONE;
	if (t->q.c->verbose)
		note(t->q.c, "this is what was inserted:\n%s",
		     json_string_value(json_object_get(answer, "text")));
	return event_log_kinds(&t->log, t->rows, e);
}

/* What streams of others have lost in this session is not lost to this one. */
static int skip_losses(struct tracing *t, struct dinst_error *e)
{
	json_t *params, *answer = NULL;
	int status;

	if (t->q.attached)
		return 0;
	/* of no stream: events of others are left alone */
	params = json_pack("{s:[i]}", "ids", 0);
	status = question_call(&t->q, "events", params, &answer, e);
	t->log.dropped_before = (uint64_t)integer_of(answer, "dropped");
	json_decref(answer);
	json_decref(params);
	return status;
}

int tracing_begin(struct tracing *t, struct context *c, const struct arguments *a)
{
	struct dinst_error e = {0, ""};
	json_t *params = json_object(), *answer = NULL;
	int status = make_params(c, a, params);

	event_log_init(&t->log);
	t->cost_percent = t->cost_ns = -1;
	t->words = a->word;
	t->ids = json_array();
	if (status == EXIT_DONE)
		status = question_begin(&t->q, c, a);
	if (status != EXIT_DONE) {
		json_decref(params);
		json_decref(t->ids);
		return status;
	}
	if (skip_losses(t, &e) || question_call(&t->q, "trace", params, &answer, &e) ||
	    read_answer(t, answer, &e))
		status = report(c, &e);
	json_decref(answer);
	json_decref(params);
	if (status != EXIT_DONE)
		return tracing_end(t, status);
	if (isatty(STDERR_FILENO))
		note(c, "%zu function%s at %zu places; Ctrl-C ends it", t->functions,
		     t->functions == 1 ? "" : "s", t->points);
	return t->partial;
}

/* ------------------------------------------------------------------- events */

static int ask(struct tracing *t, const struct tracing_calls *calls, struct dinst_error *e)
{
	json_t *params = json_pack("{s:O}", "ids", t->ids), *answer = NULL;
	int status = question_call(&t->q, "events", params, &answer, e);

	if (!status)
		status = event_log_add(&t->log, answer, calls->event, calls->arg, e);
	json_decref(answer);
	json_decref(params);
	return status;
}

/* What the inserted code took, as far as that can be told beforehand. */
static void read_cost(struct tracing *t)
{
	struct dinst_error e = {0, ""};
	json_t *params = json_pack("{s:O, s:b}", "ids", t->ids, "verbose", 1), *answer = NULL;
	const json_t *row;

	if (!question_call(&t->q, "read", params, &answer, &e)) {
		row = json_array_get(json_object_get(answer, "rows"), 0);
		if (json_is_number(json_object_get(row, "cost_ns_per_s")))
			t->cost_percent =
				json_number_value(json_object_get(row, "cost_ns_per_s")) / 1e7;
		if (json_is_number(json_object_get(row, "predicted_ns")))
			t->cost_ns = json_number_value(json_object_get(row, "predicted_ns"));
		t->all = (uint64_t)json_integer_value(json_object_get(row, "value"));
		if (json_is_true(json_object_get(row, "stopped")))
			note(t->q.c,
			     json_is_true(json_object_get(row, "forbidden"))
				     ? "it was switched off: a seccomp filter, or who provides pages "
				       "of memory (userfaultfd), may forbid what it does"
				     : "it cost more than the limit and was switched off");
	}
	json_decref(answer);
	json_decref(params);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Something that has had nothing to say for a while says why. */
static void hint(const struct tracing *t, bool *told)
{
	if (*told || t->log.events || question_seconds(&t->q) < FIRST_HINT_S)
		return;
	*told = true;
	note(t->q.c, "nothing yet: %s%s not been called%s", t->words[0] ? t->words[0] : "it",
	     t->functions > 1 ? " and the others have" : " has",
	     t->at_return ? " so, or not for so long" : "");
}

int tracing_run(struct tracing *t, const struct tracing_calls *calls)
{
	struct dinst_error e = {0, ""};
	uint64_t end;
	bool told = false;
	int status;

	/* the time begins now: where there is always more, nothing is ever waited for */
	question_wait(&t->q, 0);
	do {
		status = ask(t, calls, &e);
		if (calls->idle)
			calls->idle(calls->arg, t->log.now_ns);
		hint(t, &told);
	} while (!status && (t->log.more ? question_going(&t->q) : question_wait(&t->q, PAUSE_MS)));
	if (!t->q.c->target_ended && status >= 0) {
		read_cost(t);
		question_remove(&t->q, NULL, NULL);
	}
	/* What was recorded before it was taken out, but nobody waits for ever for that. */
	end = now_ms() + (t->patience_ms ? t->patience_ms : LEFT_SHOWN_MS);
	while (!status) {
		status = ask(t, calls, &e);
		if (!t->log.more)
			break;
		if (now_ms() > end) {
			if (t->all > t->log.events + t->log.dropped)
				t->left = t->all - t->log.events - t->log.dropped;
			/* A recording tells them with the others that are not in it. */
			t->log.dropped += t->left;
			break;
		}
	}
	if (calls->idle)
		calls->idle(calls->arg, UINT64_MAX);
	/* A target that has ended, or somebody who is in a hurry, is no failure. */
	if (status >= 0 || t->q.c->target_ended || t->q.over)
		return t->partial;
	return report(t->q.c, &e);
}

/* ---------------------------------------------------------------------- end */

void tracing_tell(struct tracing *t, const char *what, uint64_t count)
{
	char cost[120] = "";

	if (t->cost_ns >= 0)
		snprintf(cost, sizeof(cost), "; about %.3g %% of a CPU, %.0f ns each at most",
			 t->cost_percent < 0 ? 0 : t->cost_percent, t->cost_ns);
	note(t->q.c, "%" PRIu64 " %s, %" PRIu64 " dropped%s", count, what, t->log.dropped, cost);
	if (t->left)
		note(t->q.c, "%" PRIu64 " of these were left out, so as not to keep you waiting",
		     t->left);
	if (t->log.damaged)
		note(t->q.c, "%" PRIu64 " events came damaged", t->log.damaged);
}

int tracing_end(struct tracing *t, int status)
{
	event_log_release(&t->log);
	json_decref(t->ids);
	json_decref(t->rows);
	t->ids = t->rows = NULL;
	return question_end(&t->q, status);
}
