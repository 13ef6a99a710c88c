/* SPDX-License-Identifier: MIT */
/*
 * code.c - modules, funcs, points, metrics: what could be instrumented.
 *
 * Owns the columns of these listings. Changes nothing.
 */
#include <stdio.h>

#include "daemon/client/command.h"

static const struct column module_columns[] = {
	{"module", "MODULE", COLUMN_TEXT},
	{"address", "ADDRESS", COLUMN_ADDRESS},
	{"size", "SIZE", COLUMN_NUMBER},
	{"functions", "FUNCTIONS", COLUMN_NUMBER},
	{"path", "PATH", COLUMN_WIDE},
	{"problem", "PROBLEM", COLUMN_TEXT},
	{NULL, NULL, 0},
};

static const struct column function_columns[] = {
	{"address", "ADDRESS", COLUMN_ADDRESS},
	{"size", "SIZE", COLUMN_NUMBER},
	{"module", "MODULE", COLUMN_TEXT},
	{"function", "FUNCTION", COLUMN_TEXT},
	{NULL, NULL, 0},
};

static const struct column point_columns[] = {
	{"address", "ADDRESS", COLUMN_ADDRESS},
	{"kind", "KIND", COLUMN_TEXT},
	{"tactic", "TACTIC", COLUMN_TEXT},
	{"module", "MODULE", COLUMN_TEXT},
	{"function", "FUNCTION", COLUMN_TEXT},
	{"callee", "CALLEE", COLUMN_WIDE},
	{"instruction", "INSTRUCTION", COLUMN_WIDE},
	{"refused", "REFUSED", COLUMN_TEXT},
	{"why", "WHY", COLUMN_WIDE},
	{NULL, NULL, 0},
};

static const struct column summary_columns[] = {
	{"module", "MODULE", COLUMN_TEXT},
	{"kind", "KIND", COLUMN_TEXT},
	{"points", "POINTS", COLUMN_NUMBER},
	{"refused", "REFUSED", COLUMN_NUMBER},
	{"tactics", "TACTICS", COLUMN_TEXT},
	{"reasons", "REASONS", COLUMN_TEXT},
	{NULL, NULL, 0},
};

static const struct column metric_columns[] = {
	{"metric", "METRIC", COLUMN_TEXT},
	{"unit", "UNIT", COLUMN_TEXT},
	{"constraints", "CONSTRAINTS", COLUMN_TEXT},
	{"file", "FILE", COLUMN_TEXT},
	{NULL, NULL, 0},
};

/* Asks and prints; takes `params` over. */
static int list(struct context *c, const char *method, json_t *params, const struct column *columns)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;
	int status;

	if (call(c, method, params, &answer, &e) != 0)
		status = report(c, &e);
	else
		status = print_rows(c, answer, columns);
	json_decref(params);
	json_decref(answer);
	return status;
}

int modules_run(struct context *c, const struct arguments *a)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;
	int status;

	(void)a;
	if (call(c, "modules", NULL, &answer, &e) != 0)
		return report(c, &e);
	status = print_rows(c, answer, module_columns);
	json_decref(answer);
	return status;
}

int funcs_run(struct context *c, const struct arguments *a)
{
	json_t *pattern = a->word_count ? rpc_text(a->word[0]) : json_null();

	return list(c, "funcs", json_pack("{s:o}", "pattern", pattern), function_columns);
}

int points_run(struct context *c, const struct arguments *a)
{
	json_t *word = a->word_count ? rpc_text(a->word[0]) : NULL;

	if (arguments_get(a, OPTION_SUMMARY))
		return list(c, "points",
			    json_pack("{s:b,s:o}", "summary", 1, "module",
				      word ? word : json_null()),
			    summary_columns);
	if (!word)
		return report_text(c, DINST_USAGE,
				   "points needs a PATTERN, or --summary (dinst points --help)");
	return list(c, "points", json_pack("{s:o}", "pattern", word), point_columns);
}

int metrics_run(struct context *c, const struct arguments *a)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL;
	int status;

	(void)a;
	if (call(c, "metrics", NULL, &answer, &e) != 0) {
		/* without a session there is what every mutator brings along */
		if (e.code != DINST_NO_SESSION || c->target)
			return report(c, &e);
		answer = json_pack("{s:[{s:s,s:s,s:[],s:n}]}", "rows", "metric", "calls", "unit",
				   "calls", "constraints", "file");
	}
	status = print_rows(c, answer, metric_columns);
	json_decref(answer);
	return status;
}
