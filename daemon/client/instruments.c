/* SPDX-License-Identifier: MIT */
/*
 * instruments.c - insert, read, remove, flush.
 *
 * Owns the commands that put instrumentation in and take it out. Everything
 * they do is done by the mutator; here it is asked for and shown.
 */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/client/command.h"
#include "daemon/client/values.h"

static const struct column insert_columns[] = {
	{"id", "ID", COLUMN_NUMBER},	       {"metric", "METRIC", COLUMN_TEXT},
	{"points", "POINTS", COLUMN_NUMBER},   {"refused", "REFUSED", COLUMN_NUMBER},
	{"pending", "PENDING", COLUMN_NUMBER}, {"stop_us", "STOP-US", COLUMN_NUMBER},
	{"focus", "FOCUS", COLUMN_TEXT},       {NULL, NULL, 0},
};

static const struct column remove_columns[] = {
	{"id", "ID", COLUMN_NUMBER},
	{"freed", "FREED", COLUMN_NUMBER},
	{"queued", "QUEUED", COLUMN_NUMBER},
	{NULL, NULL, 0},
};

/* --limit: percent of one CPU. Returns false if it is none. */
static bool read_limit(const char *text, double *percent)
{
	char *end = NULL;

	*percent = text ? strtod(text, &end) : 0;
	if (!text)
		return true;
	if (end != text && *end == '%')
		end++;
	return end != text && !*end && *percent > 0 && *percent <= 100000;
}

/* What `exclusive` does not hold for: the value will have the time of callees in it. */
static void note_own_calls(struct context *c, json_t *rows)
{
	json_int_t calls = 0;
	size_t index;
	json_t *row;

	json_array_foreach(rows, index, row) calls +=
		json_integer_value(json_object_get(row, "own_calls"));
	if (calls)
		note(c,
		     "of %lld call%s the return cannot be seen: what is called there counts as the function's "
		     "own, and the value is at most what is shown (--json says which)",
		     (long long)calls, calls == 1 ? "" : "s");
}

int insert_run(struct context *c, const struct arguments *a)
{
	const char *limit = arguments_get(a, OPTION_LIMIT);
	struct dinst_error e = {0, ""};
	double percent;
	json_t *focus = json_array();
	json_t *params, *answer = NULL;
	int status;

	if (!read_limit(limit, &percent)) {
		json_decref(focus);
		return report_text(c, DINST_USAGE, "--limit takes percent of a CPU, not '%s'",
				   limit);
	}
	for (int i = 1; i < a->word_count; i++)
		json_array_append_new(focus, rpc_text(a->word[i]));
	params = json_pack("{s:o,s:o,s:b}", "metric", rpc_text(a->word[0]), "focus", focus, "each",
			   arguments_get(a, OPTION_EACH) != NULL);
	if (limit)
		json_object_set_new(params, "limit", json_real(percent));
	if (arguments_get(a, OPTION_COST))
		json_object_set_new(params, "cost", json_true());
	if (c->verbose)
		json_object_set_new(params, "verbose", json_true());
	if (call(c, "insert", params, &answer, &e) != 0)
		status = report(c, &e);
	else
		status = print_rows(c, answer, insert_columns);
	note_own_calls(c, json_object_get(answer, "rows"));
	json_decref(params);
	json_decref(answer);
	return status;
}

static bool is_rate(json_t *row)
{
	const char *unit = json_string_value(json_object_get(row, "unit"));

	return unit && unit_is_rate(unit);
}

/* What is called a rate is one: on average since it was inserted, as the daemon saw it. */
static void add_rates(struct context *c, json_t *rows, json_t *params)
{
	json_t *answer = NULL, *row, *history;
	struct dinst_error ignored = {0, ""};
	bool any = false;
	size_t n, k;

	json_array_foreach(rows, n, row) any = any || is_rate(row);
	if (!any || call(c, "history", params, &answer, &ignored) != 0)
		return;
	json_array_foreach(json_object_get(answer, "rows"), k, history)
	{
		const double value = json_number_value(json_object_get(history, "value"));
		const double seconds = history_seconds(history);

		row = row_of(rows, json_object_get(history, "id"));
		if (row && is_rate(row) && seconds > 0)
			json_object_set_new(row, "mean_rate", json_real(value / seconds));
	}
	json_decref(answer);
}

int read_run(struct context *c, const struct arguments *a)
{
	struct dinst_error e = {0, ""};
	json_t *ids = ids_from_words(a, &e);
	json_t *params, *rows, *answer = NULL;
	int status;

	if (!ids)
		return report(c, &e);
	params = json_pack("{s:o,s:b}", "ids", ids, "verbose", c->verbose);
	if (call(c, "read", params, &answer, &e) != 0) {
		status = report(c, &e);
	} else if (c->json) {
		status = print_rows(c, answer, NULL);
	} else {
		add_rates(c, json_object_get(answer, "rows"), params);
		values_print(json_object_get(answer, "rows"), c->verbose);
		status = flush_output(c, EXIT_DONE);
	}
	rows = json_object_get(answer, "rows");
	if (status == EXIT_DONE && json_array_size(rows) == 0)
		note(c, "nothing is inserted");
	json_decref(params);
	json_decref(answer);
	return status;
}

int remove_run(struct context *c, const struct arguments *a)
{
	struct dinst_error e = {0, ""};
	bool all = arguments_get(a, OPTION_ALL) != NULL;
	json_t *ids = ids_from_words(a, &e);
	json_t *params, *answer = NULL;
	int status;

	if (!ids)
		return report(c, &e);
	if (all != (a->word_count == 0)) {
		json_decref(ids);
		return report_text(c, DINST_USAGE, "remove takes ids, or --all for everything");
	}
	params = all ? json_pack("{s:b}", "all", 1) : json_pack("{s:O}", "ids", ids);
	json_decref(ids);
	if (call(c, "remove", params, &answer, &e) != 0)
		status = report(c, &e);
	else
		status = print_rows(c, answer, remove_columns);
	json_decref(params);
	json_decref(answer);
	return status;
}

int flush_run(struct context *c, const struct arguments *a)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;
	int status;

	(void)a;
	if (call(c, "flush", NULL, &answer, &e) != 0)
		return report(c, &e);
	status = print_object(c, answer,
			      "{freed} freed, {queued} still queued, stopped for {stop_us} us");
	json_decref(answer);
	return status;
}
