/* SPDX-License-Identifier: MIT */
/*
 * code.c - modules, funcs, points, cfg: what could be instrumented.
 *
 * Owns the columns of these listings. Changes nothing.
 */
#include <stdio.h>
#include <string.h>

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
	{"places", "PLACES", COLUMN_NUMBER},
	{"window", "WINDOW", COLUMN_WIDE},
	{"module", "MODULE", COLUMN_TEXT},
	{"function", "FUNCTION", COLUMN_TEXT},
	{"callee", "CALLEE", COLUMN_WIDE},
	{"instruction", "INSTRUCTION", COLUMN_WIDE},
	{"refused", "REFUSED", COLUMN_TEXT},
	{"why", "WHY", COLUMN_WIDE},
	{NULL, NULL, 0},
};

static const struct column block_columns[] = {
	{"block", "BLOCK", COLUMN_NUMBER},
	{"address", "ADDRESS", COLUMN_ADDRESS},
	{"size", "SIZE", COLUMN_NUMBER},
	{"instructions", "INSNS", COLUMN_NUMBER},
	{"loops", "LOOPS", COLUMN_TEXT},
	{"dominator", "DOMINATOR", COLUMN_WIDE},
	{"leads", "LEADS TO", COLUMN_TEXT},
	{"flags", "FLAGS", COLUMN_TEXT},
	{NULL, NULL, 0},
};

static const struct column summary_columns[] = {
	{"module", "MODULE", COLUMN_TEXT},
	{"kind", "KIND", COLUMN_TEXT},
	{"points", "POINTS", COLUMN_NUMBER},
	{"refused", "REFUSED", COLUMN_NUMBER},
	/* the one that is longest last: nothing has to be aligned behind it */
	{"reasons", "REASONS", COLUMN_TEXT},
	{"tactics", "TACTICS", COLUMN_TEXT},
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

/* ---------------------------------------------------------------- points */

static const char *text_at(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "-";
}

/* One site: what is written in the target, line by line, with its meaning. */
static void print_site(json_t *site)
{
	size_t index;
	json_t *line;

	printf("\nwindow %s, %s bytes, %s: %s\n", text_at(site, "window"), text_at(site, "bytes"),
	       text_at(site, "patch"), text_at(site, "state"));
	json_array_foreach(json_object_get(site, "code"), index, line)
	{
		const char *note = json_string_value(json_object_get(line, "note"));

		printf("  %-14s  %-44s%s%s\n", text_at(line, "address"), text_at(line, "text"),
		       note ? "  ; " : "", note ? note : "");
	}
}

/* Rows as ever; behind them the code of each window. */
static int print_points(struct context *c, json_t *answer)
{
	int status = print_rows(c, answer, point_columns);
	size_t index;
	json_t *site;

	if (c->json)
		return status;
	json_array_foreach(json_object_get(answer, "sites"), index, site) print_site(site);
	return flush_output(c, status);
}

/* With --json the code goes into the row of the first point that uses the window. */
static void merge_sites(json_t *answer)
{
	json_t *rows = json_object_get(answer, "rows"), *row, *site;
	size_t index, row_index = 0;

	json_array_foreach(json_object_get(answer, "sites"), index, site)
	{
		json_array_foreach(rows, row_index, row)
		{
			if (strcmp(text_at(row, "window"), text_at(site, "window")) != 0)
				continue;
			json_object_set(row, "code", json_object_get(site, "code"));
			json_object_set(row, "state", json_object_get(site, "state"));
			break;
		}
	}
}

int points_run(struct context *c, const struct arguments *a)
{
	const char *kinds = arguments_get(a, OPTION_KINDS);
	json_t *word = a->word_count ? rpc_text(a->word[0]) : NULL;
	bool summary = arguments_get(a, OPTION_SUMMARY);
	struct dinst_error e = {0, ""};
	json_t *params, *answer = NULL;
	int status;

	if (!summary && !word)
		return report_text(c, DINST_USAGE,
				   "points needs a PATTERN, or --summary (dinst points --help)");
	params = json_pack("{s:b,s:b}", "summary", summary, "verbose", c->verbose && !summary);
	json_object_set_new(params, summary ? "module" : "pattern", word ? word : json_null());
	if (kinds)
		json_object_set_new(params, "kinds", rpc_text(kinds));
	if (call(c, "points", params, &answer, &e) != 0) {
		status = report(c, &e);
	} else if (summary) {
		status = print_rows(c, answer, summary_columns);
	} else {
		if (c->json)
			merge_sites(answer);
		status = print_points(c, answer);
	}
	json_decref(params);
	json_decref(answer);
	return status;
}

/* ------------------------------------------------------------------- cfg */

/* "fall 3, branch 1 (loop), jump 0x401000" */
static void describe_edges(json_t *row)
{
	char text[400] = "";
	size_t used = 0, index;
	json_t *edge;

	json_array_foreach(json_object_get(row, "edges"), index, edge)
	{
		json_t *block = json_object_get(edge, "block");
		char to[40];

		if (json_is_integer(block))
			snprintf(to, sizeof(to), "%lld", (long long)json_integer_value(block));
		else
			snprintf(to, sizeof(to), "%.30s", text_at(edge, "address"));
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s%s",
					 index ? ", " : "", text_at(edge, "kind"), to,
					 json_is_true(json_object_get(edge, "back")) ? " (loop)"
										     : "");
		if (used >= sizeof(text) - 80) {
			snprintf(text + used, sizeof(text) - used, ", ...");
			break;
		}
	}
	json_object_set_new(row, "leads", json_string(text));
}

/* One table a function. */
static int print_graphs(struct context *c, json_t *answer)
{
	json_t *rows = json_object_get(answer, "rows"), *row;
	const char *previous = "";
	json_t *some = NULL;
	size_t index;

	json_array_foreach(rows, index, row)
	{
		const char *name = text_at(row, "function");

		if (!some || strcmp(name, previous) != 0) {
			if (some)
				table_print(block_columns, some, c->verbose);
			json_decref(some);
			printf("%s%s:%s%s\n", some ? "\n" : "", text_at(row, "module"), name,
			       json_is_true(json_object_get(row, "unresolved"))
				       ? " (an indirect jump is not resolved)"
				       : "");
			some = json_array();
			previous = name;
		}
		describe_edges(row);
		json_array_append(some, row);
	}
	if (some)
		table_print(block_columns, some, c->verbose);
	json_decref(some);
	return flush_output(c, EXIT_DONE);
}

int cfg_run(struct context *c, const struct arguments *a)
{
	bool dot = arguments_get(a, OPTION_DOT);
	struct dinst_error e = {0, ""};
	json_t *params, *answer = NULL;
	int status;

	params = json_pack("{s:o,s:b}", "pattern", rpc_text(a->word[0]), "dot", dot);
	if (call(c, "cfg", params, &answer, &e) != 0) {
		status = report(c, &e);
	} else if (dot && c->json) {
		print_json(answer);
		status = flush_output(c, EXIT_DONE);
	} else if (dot) {
		fputs(text_at(answer, "dot"), stdout);
		status = flush_output(c, EXIT_DONE);
	} else if (c->json) {
		status = print_rows(c, answer, block_columns);
	} else {
		status = print_graphs(c, answer);
	}
	json_decref(params);
	json_decref(answer);
	return status;
}
