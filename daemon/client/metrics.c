/* SPDX-License-Identifier: MIT */
/*
 * metrics.c - metrics: what can be inserted, and whether files of it are right.
 *
 * Owns the listing. The session's library is listed by its mutator; without a
 * session, the files that one would begin with are read here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/client/command.h"
#include "daemon/common/metrics.h"

static const struct column metric_columns[] = {
	{"metric", "METRIC", COLUMN_TEXT},
	{"unit", "UNIT", COLUMN_TEXT},
	{"file", "FILE", COLUMN_TEXT},
	{"constraints", "CONSTRAINTS", COLUMN_TEXT},
	{NULL, NULL, 0},
};

static const struct column constraint_columns[] = {
	{"constraint", "CONSTRAINT", COLUMN_TEXT},
	{"file", "FILE", COLUMN_TEXT},
	{"constraints", "PATH", COLUMN_TEXT},
	{NULL, NULL, 0},
};

/* ------------------------------------------------------------------ listing */

/* What is shipped and what is the user's, where no session says more. */
static int rows_of_files(struct context *c, json_t **rows, struct dinst_error *e)
{
	struct mdl_library *l = NULL;
	char *warnings = NULL;
	int err = mdl_library_create(&l, e);

	if (!err)
		err = mdl_library_load_installed(l, &warnings, e);
	if (warnings)
		note(c, "%s", warnings);
	free(warnings);
	if (!err) {
		*rows = metric_rows(l);
		if (!*rows)
			err = dinst_fail(e, DINST_NO_MEMORY, "no memory for the list");
	}
	mdl_library_free(l);
	return err;
}

/* Rows of one kind, for people: paths of files are shown in full only with -v. */
static json_t *rows_of_kind(struct context *c, json_t *rows, const char *kind)
{
	json_t *chosen = json_array(), *row, *copy;
	const char *is, *file, *slash;
	size_t index;

	json_array_foreach(rows, index, row)
	{
		is = json_string_value(json_object_get(row, "kind"));
		file = json_string_value(json_object_get(row, "file"));
		if (!is || strcmp(is, kind) != 0)
			continue;
		copy = json_copy(row);
		slash = file ? strrchr(file, '/') : NULL;
		if (slash && !c->verbose)
			json_object_set_new(copy, "file", rpc_text(slash + 1));
		json_array_append_new(chosen, copy);
	}
	return chosen;
}

/* A paragraph each: what it tells, what it can be restricted to, where it stands. */
static void describe(json_t *metrics)
{
	static const char *const keys[] = {"description", "constraints", "file", NULL};
	char text[512];
	size_t index;
	json_t *row;

	json_array_foreach(metrics, index, row)
	{
		value_text(json_object_get(row, "metric"), COLUMN_TEXT, text, sizeof(text));
		printf("%s%s ", index ? "\n" : "", text);
		value_text(json_object_get(row, "unit"), COLUMN_TEXT, text, sizeof(text));
		printf("(%s)\n", text);
		for (const char *const *key = keys; *key; key++) {
			value_text(json_object_get(row, *key), COLUMN_TEXT, text, sizeof(text));
			if (strcmp(text, "-") != 0)
				printf("    %s\n", text);
		}
	}
}

static int print_library(struct context *c, json_t *rows)
{
	json_t *metrics, *constraints, *row;
	size_t index;

	if (!json_is_array(rows))
		return report_text(c, DINST_PROTOCOL, "the daemon's answer has no rows");
	if (c->json) {
		json_array_foreach(rows, index, row) print_json(row);
		return flush_output(c, EXIT_DONE);
	}
	metrics = rows_of_kind(c, rows, "metric");
	constraints = rows_of_kind(c, rows, "constraint");
	if (c->verbose)
		describe(metrics);
	else
		table_print(metric_columns, metrics, false);
	if (json_array_size(constraints)) {
		putchar('\n');
		table_print(constraint_columns, constraints, c->verbose);
	}
	json_decref(metrics);
	json_decref(constraints);
	return flush_output(c, EXIT_DONE);
}

static int list_metrics(struct context *c)
{
	struct dinst_error e = {0, ""}, own = {0, ""};
	json_t *answer = NULL, *rows = NULL;
	int status;

	if (call(c, "metrics", NULL, &answer, &e) == 0)
		rows = json_incref(json_object_get(answer, "rows"));
	else if (e.code != DINST_NO_SESSION || c->target)
		return report(c, &e);
	else if (rows_of_files(c, &rows, &own) != 0)
		return report(c, &own);
	status = print_library(c, rows);
	json_decref(rows);
	json_decref(answer);
	return status;
}

/* -------------------------------------------------------------------- check */

static void print_verdict(struct context *c, const char *file, const struct mdl_verdict *verdict)
{
	json_t *row;

	if (c->json) {
		row = json_pack("{s:o,s:b,s:o}", "file", rpc_text(file), "ok", !verdict->bad,
				"messages", verdict->text ? rpc_text(verdict->text) : json_null());
		print_json(row);
		json_decref(row);
		return;
	}
	if (verdict->text)
		printf("%s\n", verdict->text);
	if (!verdict->bad && !c->quiet)
		printf("%s: ok\n", file);
}

static int check_files(struct context *c, const struct arguments *a)
{
	size_t count = (size_t)a->word_count;
	struct mdl_verdict *verdicts = calloc(count, sizeof(*verdicts));
	struct dinst_error e = {0, ""};
	struct mdl_library *l = NULL;
	char *warnings = NULL;
	int status = EXIT_DONE;
	int err = verdicts ? mdl_library_create(&l, &e)
			   : dinst_fail(&e, DINST_NO_MEMORY, "no memory to read files");

	/* warnings are of other files */
	if (!err)
		err = mdl_library_load_installed(l, &warnings, &e);
	free(warnings);
	if (!err)
		err = mdl_load_files(l, (const char *const *)a->word, count, verdicts, &e);
	for (size_t i = 0; i < count && !err; i++) {
		print_verdict(c, a->word[i], &verdicts[i]);
		if (verdicts[i].bad)
			status = EXIT_FAILED;
	}
	for (size_t i = 0; i < count && verdicts; i++)
		free(verdicts[i].text);
	free(verdicts);
	mdl_library_free(l);
	return err ? report(c, &e) : flush_output(c, status);
}

int metrics_run(struct context *c, const struct arguments *a)
{
	if (!arguments_get(a, OPTION_CHECK)) {
		if (a->word_count)
			return report_text(c, DINST_USAGE,
					   "metrics: unexpected argument '%.80s'; files are read "
					   "with --check",
					   a->word[0]);
		return list_metrics(c);
	}
	if (!a->word_count)
		return report_text(c, DINST_USAGE, "metrics --check needs a FILE");
	return check_files(c, a);
}
