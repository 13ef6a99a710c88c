/* SPDX-License-Identifier: MIT */
/*
 * top.c - dinst top: what a program does, live.
 *
 * Owns the command and its loop. On a terminal top_screen.c shows it; into a pipe go tables or,
 * with --json, one object for each refresh.
 */
#include "daemon/client/top.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINES_PRINTED = 20, COST_SECONDS = 3, LAUNCHER = 50 };

const struct option_spec top_options[] = {
	{'i', "interval", "SECONDS", "between refreshes (default 1)"},
	{'c', "count", "COUNT", "stop after so many refreshes"},
	{'n', "lines", "COUNT", "lines of a table that is not on a terminal (default 20)"},
	{'s', "sort", "KEY", "cpu (default), calls, wall, p50, p99 or name"},
	{'m', "module", "MODULE", "whose functions (default: the program's own; * for all)"},
	{OPTION_LIMIT, "limit", "PERCENT", "of a CPU that it may cost the target (default 4)"},
	{OPTION_FILTER, "filter", "TEXT", "only functions with that in their names"},
	QUESTION_OPTIONS,
	{0, NULL, NULL, NULL},
};

/* ------------------------------------------------------------------- waiting */

bool top_pause(struct top *t, uint64_t until_ns)
{
	const uint64_t now = top_now();

	if (t->screen) {
		/* -d begins with the first one */
		question_wait(&t->q, 0);
		screen_keys(t, until_ns);
	} else if (until_ns > now)
		question_wait(&t->q, (unsigned)((until_ns - now + 999999) / 1000000));
	return question_going(&t->q) && !t->quit;
}

void top_say(struct top *t, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(t->message, sizeof(t->message), format, args);
	va_end(args);
	t->busy = false;
	if (t->screen)
		screen_draw(t);
	else
		question_progress(&t->q, "%s", t->message);
}

void top_say_busy(struct top *t, const char *why)
{
	top_say(t, "%.400s", why);
	t->busy = true;
}

bool top_can_say(int err)
{
	return err == DINST_REFUSED || err == DINST_NO_FUNCTION || err == DINST_FAILED ||
	       err == DINST_USAGE || err == DINST_BAD_FILE || err == DINST_UNSUPPORTED;
}

/* ------------------------------------------------------------------ printing */

static const struct column top_columns[] = {
	{"calls", "CALLS/s", COLUMN_NUMBER},
	{"cpu", "CPU", COLUMN_NUMBER},
	{"wall", "WALL", COLUMN_NUMBER},
	{"p50", "P50", COLUMN_NUMBER},
	{"p99", "P99", COLUMN_NUMBER},
	{"function", "FUNCTION", COLUMN_TEXT},
	{NULL, NULL, 0},
};

static void print_table(struct top *t, const struct view *v)
{
	static const char *const keys[TOP_CELLS] = {"calls", "cpu", "wall", "p50", "p99"};
	json_t *rows = json_array();
	char cost[120];

	for (size_t n = 0; n < v->line_count && n < t->rows; n++) {
		char cells[TOP_CELLS][TOP_CELL];
		json_t *row = json_pack("{s:o}", "function", rpc_text(v->lines[n].name));

		line_cells(&v->lines[n], cells);
		for (size_t k = 0; k < TOP_CELLS; k++)
			json_object_set_new(row, keys[k], json_string(cells[k]));
		json_array_append_new(rows, row);
	}
	cost_text(t, cost, sizeof(cost));
	printf("%s (pid %d): %zu functions of %s were called, %s\n", t->q.c->session, (int)t->q.pid,
	       v->line_count, t->module, cost);
	if (!v->line_count)
		puts("  (dinst top -m MODULE looks at another module, dinst modules lists them)");
	table_print(top_columns, rows, t->q.c->verbose);
	putchar('\n');
	json_decref(rows);
}

static json_t *known(double value, double scale)
{
	return value < 0 ? json_null() : json_real(value / scale);
}

static void print_object_of(struct top *t, const struct view *v)
{
	json_t *rows = json_array(), *object;

	for (size_t n = 0; n < v->line_count && n < t->rows; n++) {
		const struct line *l = &v->lines[n];

		json_array_append_new(rows,
				      json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:b}", "function",
						rpc_text(l->name), "calls_per_s", known(l->rate, 1),
						"cpu_percent", known(l->cpu, 1e7), "wall_percent",
						known(l->wall, 1e7), "p50_ns", known(l->p50, 1),
						"p99_ns", known(l->p99, 1), "sampled", l->sampled,
						"cpu_at_most", l->at_most));
	}
	object = json_pack("{s:s,s:i,s:f,s:o,s:f,s:I,s:o}", "session", t->q.c->session, "pid",
			   (int)t->q.pid, "seconds", question_seconds(&t->q), "cost_percent",
			   known(t->cost, 1), "limit_percent", t->limit, "functions",
			   (json_int_t)v->line_count, "rows", rows);
	print_json(object);
	json_decref(object);
}

static void show(struct top *t, struct view *v)
{
	lines_make(t, v);
	if (t->screen)
		screen_draw(t);
	else if (t->q.c->json)
		print_object_of(t, v);
	else
		print_table(t, v);
	output_flush();
}

/* ---------------------------------------------------------------- refreshing */

/* What the target pays, over the last few seconds. */
static void take_cost(struct top *t)
{
	const uint64_t now = top_now();
	const double ns = (double)(now - t->spent_since);
	double percent;

	if (!t->spent_since || ns < 1e8) {
		t->spent_since = t->spent_since ? t->spent_since : now;
		return;
	}
	/* the survey at the beginning is a thing of its own */
	percent = t->views[t->depth - 1]->rounds > 1 ? 100 * t->spent_ns / ns : -1;
	t->cost =
		t->cost < 0 || percent < 0 ? percent : t->cost + (percent - t->cost) / COST_SECONDS;
	/* predictions may be wrong, and stops are dearer on some machines than on others */
	if (t->cost > t->limit)
		t->scale = t->scale > 0.1 ? t->scale * 0.8 : t->scale;
	else if (t->cost >= 0 && t->cost < 0.8 * t->limit)
		t->scale = t->scale < 0.9 ? t->scale * 1.1 : 1;
	t->spent_ns = 0;
	t->spent_since = now;
}

/* One refresh of a view of functions: counts, then times of what is shown. */
static int refresh_functions(struct top *t, struct view *v, uint64_t until, struct dinst_error *e)
{
	int err = v->surveyed ? functions_count(t, v, e) : functions_survey(t, v, e);

	if (err)
		return err;
	/* a survey takes its time, and what it found is timed before anything is shown */
	if (top_now() > until)
		until = top_now() + (uint64_t)(t->interval * 1e9 / 2);
	lines_make(t, v);
	if (t->screen)
		screen_draw(t);
	/* the first figures are there at once, times come with the next */
	return times_take(t, v, until, e);
}

static int refresh(struct top *t, struct dinst_error *e)
{
	struct view *v = t->views[t->depth - 1];
	const uint64_t until = top_now() + (uint64_t)(t->interval * 1e9);
	int err;

	/* said again where it still is */
	if (t->busy)
		t->message[0] = '\0';
	t->busy = false;
	if (v->kind == VIEW_FUNCTIONS || v->kind == VIEW_CALLEES)
		err = refresh_functions(t, v, until, e);
	else
		err = drill_refresh(t, v, until, e);
	if (!err)
		err = probe_stops(t, e);
	take_cost(t);
	return err;
}

/* Paused: nothing is counted, what was read last stays on the screen. */
static int stand_still(struct top *t, struct dinst_error *e)
{
	struct view *v = t->views[t->depth - 1];
	int err = view_leave(t, v, e);

	while (!err && t->paused && t->action == ACTION_NONE && top_pause(t, top_now() + 500000000))
		;
	return err;
}

static int act(struct top *t, struct dinst_error *e)
{
	const enum top_action action = t->action;
	struct view *v = t->views[t->depth - 1];
	struct line *l = v->cursor < v->line_count ? &v->lines[v->cursor] : NULL;
	struct function *f = l ? l->function : NULL;

	t->action = ACTION_NONE;
	if (l && !f && action != ACTION_BACK && action != ACTION_SURVEY)
		return dinst_fail(e, DINST_REFUSED, "%.300s: that is no function of %s", l->name,
				  t->module);
	switch (action) {
	case ACTION_BACK:
		return drill_back(t, e);
	case ACTION_SURVEY:
		v->surveyed = false;
		return view_leave(t, v, e);
	case ACTION_CALLEES:
		return f ? drill_into(t, VIEW_CALLEES, f, e) : 0;
	case ACTION_CALLERS:
		return f ? drill_into(t, VIEW_CALLERS, f, e) : 0;
	case ACTION_THREADS:
		return f ? drill_into(t, VIEW_THREADS, f, e) : 0;
	case ACTION_NONE:
		break;
	}
	return 0;
}

/* What one action cannot do is said; what ends the question is returned. */
static int act_or_say(struct top *t, struct dinst_error *e)
{
	struct dinst_error why = {0, ""};
	int err = act(t, &why);

	if (!top_can_say(err))
		return err ? dinst_fail_text(e, err, why.text) : 0;
	top_say(t, "%.400s", why.text);
	return 0;
}

static int loop(struct top *t)
{
	struct dinst_error e = {0, ""};
	int err = 0;

	for (unsigned long long n = 0; !err && question_going(&t->q) && !t->quit;) {
		if (t->action != ACTION_NONE)
			err = act_or_say(t, &e);
		else if (t->paused)
			err = stand_still(t, &e);
		else
			err = refresh(t, &e);
		if (err || t->action != ACTION_NONE)
			continue;
		show(t, t->views[t->depth - 1]);
		if (t->refreshes && ++n >= t->refreshes)
			break;
	}
	screen_close(t);
	if (t->q.c->target_ended)
		note(t->q.c, "%s (pid %d) has ended", t->q.c->session, (int)t->q.pid);
	if (!err || t->q.c->target_ended || t->q.over)
		return EXIT_DONE;
	return report(t->q.c, &e);
}

/* ------------------------------------------------------------------- command */

static bool is_system(const char *name)
{
	static const char *const names[] = {"libc.", "libm.", "ld-", "libstdc++", "libgcc_s"};

	for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
		if (!strncmp(name, names[n], strlen(names[n])))
			return true;
	return false;
}

/* The program's own module, or where that is a mere launcher the largest library of its own. */
static json_t *choose_module(json_t *rows, const char *path)
{
	json_t *row, *own = json_array_get(rows, 0), *largest = NULL;
	json_int_t most = LAUNCHER;
	size_t index;

	json_array_foreach(rows, index, row)
	{
		const char *file = json_string_value(json_object_get(row, "path"));
		const char *name = json_string_value(json_object_get(row, "module"));
		json_int_t count = json_integer_value(json_object_get(row, "functions"));

		if (file && !strcmp(file, path))
			own = row;
		if (name && !is_system(name) && count > most) {
			largest = row;
			most = count;
		}
	}
	if (largest && json_integer_value(json_object_get(own, "functions")) < LAUNCHER)
		return largest;
	return own;
}

static int find_module(struct top *t, struct dinst_error *e)
{
	char link[40], path[PATH_MAX];
	json_t *answer = NULL, *row;
	const char *name;
	ssize_t length;
	int err = question_call(&t->q, "modules", NULL, &answer, e);

	if (err)
		return err;
	snprintf(link, sizeof(link), "/proc/%d/exe", (int)process_thread(t->q.pid));
	length = readlink(link, path, sizeof(path) - 1);
	path[length > 0 ? length : 0] = '\0';
	row = choose_module(json_object_get(answer, "rows"), path);
	name = json_string_value(json_object_get(row, "module"));
	snprintf(t->module, sizeof(t->module), "%s", name ? name : "*");
	json_decref(answer);
	return 0;
}

static int begin(struct top *t, const char *module, struct dinst_error *e)
{
	struct view *v = view_new(VIEW_FUNCTIONS, NULL);
	char pattern[NAME_MAX + 16];
	int err = v ? find_module(t, e) : dinst_fail(e, DINST_NO_MEMORY, "no memory for a view");

	if (!v)
		return err;
	t->views[0] = v;
	t->depth = 1;
	snprintf(v->calls, sizeof(v->calls), "calls");
	snprintf(v->latency, sizeof(v->latency), "latency");
	snprintf(v->own, sizeof(v->own), "wall");
	if (!err && module)
		snprintf(t->module, sizeof(t->module), "%s", module);
	snprintf(pattern, sizeof(pattern), "/Code/%s/*", t->module);
	if (!err)
		err = functions_add(t, v, pattern, e);
	functions_sort(v);
	return err;
}

static bool sort_from(struct top *t, const char *word)
{
	static const char *const words[SORTS] = {"cpu", "calls", "wall", "p50", "p99", "name"};

	for (size_t n = 0; n < SORTS; n++)
		if (!word || !strcmp(word, words[n])) {
			t->sort = (enum top_sort)n;
			return true;
		}
	return false;
}

static int read_options(struct top *t, struct context *c, const struct arguments *a)
{
	const char *interval = arguments_get(a, 'i'), *count = arguments_get(a, 'c');
	const char *lines = arguments_get(a, 'n'), *limit = arguments_get(a, OPTION_LIMIT);
	unsigned long long rows = LINES_PRINTED;
	char *end = NULL;

	if (interval && (!question_seconds_from(interval, &t->interval) || t->interval < 0.2))
		return report_text(c, DINST_USAGE, "-i takes seconds from 0.2 on, not '%s'",
				   interval);
	if (count && (!parse_number(count, 1000000000, &t->refreshes) || !t->refreshes))
		return report_text(c, DINST_USAGE, "-c takes a number of refreshes, not '%s'",
				   count);
	if (lines && (!parse_number(lines, 100000, &rows) || !rows))
		return report_text(c, DINST_USAGE, "-n takes a number of lines, not '%s'", lines);
	if (limit)
		t->limit = strtod(limit, &end);
	if (limit &&
	    (end == limit || (*end && strcmp(end, "%")) || !(t->limit >= 0.1) || t->limit > 10000))
		return report_text(c, DINST_USAGE, "--limit takes percent of a CPU, not '%s'",
				   limit);
	if (!sort_from(t, arguments_get(a, 's')))
		return report_text(c, DINST_USAGE,
				   "-s takes cpu, calls, wall, p50, p99 or name, not '%s'",
				   arguments_get(a, 's'));
	if (arguments_get(a, OPTION_FILTER))
		snprintf(t->filter, sizeof(t->filter), "%s", arguments_get(a, OPTION_FILTER));
	t->rows = rows;
	return EXIT_DONE;
}

int top_run(struct context *c, const struct arguments *a)
{
	struct top *t = calloc(1, sizeof(*t));
	struct dinst_error e = {0, ""};
	int status;

	if (!t)
		return report_text(c, DINST_NO_MEMORY, "no memory");
	t->interval = 1;
	t->limit = 4;
	t->scale = 1;
	t->cost = t->stops_us = -1;
	t->descending = true;
	if (a->word_count)
		c->target = a->word[0];
	status = read_options(t, c, a);
	if (status == EXIT_DONE)
		status = question_begin(&t->q, c, a);
	if (status != EXIT_DONE) {
		free(t);
		return status;
	}
	if (begin(t, arguments_get(a, 'm'), &e) != 0)
		status = report(c, &e);
	if (status == EXIT_DONE) {
		if (t->q.terminal)
			screen_open(t);
		status = loop(t);
		screen_close(t);
	}
	while (t->depth)
		view_free(t->views[--t->depth]);
	status = question_end(&t->q, status);
	free(t);
	return status;
}
