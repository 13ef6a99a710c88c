/* SPDX-License-Identifier: MIT */
/*
 * top_lines.c - lines to show: which, in what order, and the text of their cells.
 *
 * Never asks the target and never draws.
 */
#include "daemon/client/top.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/client/values.h"

/* ------------------------------------------------------------------- making */

static bool passes(const struct top *t, const char *name)
{
	char pattern[sizeof(t->filter) + 2];

	if (!t->filter[0])
		return true;
	snprintf(pattern, sizeof(pattern), "*%s*", t->filter);
	return fnmatch(pattern, name, FNM_CASEFOLD) == 0;
}

static void from_function(struct line *l, struct function *f)
{
	snprintf(l->name, sizeof(l->name), "%s", f->name);
	text_clean(l->name, false);
	l->function = f;
	l->rate = f->rate;
	l->cpu = f->cpu;
	l->wall = f->wall;
	l->p50 = f->p50;
	l->p99 = f->p99;
	l->sampled = f->sampled;
	l->at_most = f->at_most;
}

static double sort_number(const struct line *l, enum top_sort sort)
{
	switch (sort) {
	case SORT_CPU:
		return l->cpu;
	case SORT_WALL:
		return l->wall;
	case SORT_P50:
		return l->p50;
	case SORT_P99:
		return l->p99;
	case SORT_CALLS:
	case SORT_NAME:
	case SORTS:
		break;
	}
	return l->rate;
}

/* What is known comes first; what has not been timed yet stands below, by how often it is called. */
static int compare(const void *a, const void *b, void *arg)
{
	const struct line *x = a, *y = b;
	const struct top *t = arg;
	double p = sort_number(x, t->sort), q = sort_number(y, t->sort);
	int order;

	if (t->sort == SORT_NAME)
		return t->descending ? strcmp(x->name, y->name) : strcmp(y->name, x->name);
	if ((p < 0) != (q < 0))
		return p < 0 ? 1 : -1;
	if (p == q) {
		p = x->rate;
		q = y->rate;
	}
	order = (p < q) - (p > q);
	if (!order)
		return strcmp(x->name, y->name);
	return t->descending ? order : -order;
}

/* The cursor stays on what it stood on. */
static void keep_cursor(struct top *t, struct view *v)
{
	for (size_t n = 0; n < v->line_count && v->cursor_name[0]; n++)
		if (!strcmp(v->lines[n].name, v->cursor_name))
			v->cursor = n;
	if (v->cursor >= v->line_count)
		v->cursor = v->line_count ? v->line_count - 1 : 0;
	if (v->first > v->cursor)
		v->first = v->cursor;
	if (t->rows && v->cursor >= v->first + t->rows)
		v->first = v->cursor - t->rows + 1;
}

/* Of callers and threads: all stay, for another filter; those that this one lets through come first. */
static void pass_first(const struct top *t, struct view *v)
{
	v->line_count = 0;
	for (size_t n = 0; n < v->line_all; n++)
		if (passes(t, v->lines[n].name)) {
			const struct line other = v->lines[v->line_count];

			v->lines[v->line_count++] = v->lines[n];
			v->lines[n] = other;
		}
}

int lines_make(struct top *t, struct view *v)
{
	struct line *lines;
	size_t count = 0;

	if (v->kind == VIEW_FUNCTIONS || v->kind == VIEW_CALLEES) {
		for (size_t n = 0; n < v->count; n++)
			count += v->functions[n].rate > 0;
		lines = realloc(v->lines, (count ? count : 1) * sizeof(*lines));
		if (!lines)
			return DINST_NO_MEMORY;
		v->lines = lines;
		v->line_count = 0;
		for (size_t n = 0; n < v->count; n++)
			if (v->functions[n].rate > 0 && passes(t, v->functions[n].name))
				from_function(&v->lines[v->line_count++], &v->functions[n]);
	} else {
		pass_first(t, v);
	}
	if (v->line_count)
		qsort_r(v->lines, v->line_count, sizeof(*v->lines), compare, t);
	keep_cursor(t, v);
	return 0;
}

/* -------------------------------------------------------------------- cells */

/* Four digits at most, so that columns stay narrow: 950, 12.3k, 4.56M. */
static void count_cell(double value, bool sampled, char *text)
{
	static const char *const units[] = {"", "k", "M", "G"};
	size_t unit = 0;

	while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1000;
		unit++;
	}
	snprintf(text, TOP_CELL, "%s%.*f%s", sampled ? "~" : "",
		 !unit		 ? value < 9.95 && value != (double)(long)value
		 : value < 9.995 ? 2
		 : value < 99.95 ? 1
				 : 0,
		 value, units[unit]);
}

/* Of one CPU, or of one thread's time. */
static void percent_cell(double ns, bool at_most, char *text)
{
	const double percent = ns / 1e7;

	snprintf(text, TOP_CELL, "%s%.*f%%", at_most ? "<" : "",
		 percent < 0.995  ? 2
		 : percent < 99.5 ? 1
				  : 0,
		 percent);
}

static void time_cell(double ns, char *text)
{
	char whole[VALUE_TEXT];

	value_with_unit(ns, "ns", whole);
	snprintf(text, TOP_CELL, "%.20s", whole);
}

void line_cells(const struct line *l, char cells[TOP_CELLS][TOP_CELL])
{
	const double percents[] = {l->cpu, l->wall}, times[] = {l->p50, l->p99};

	for (size_t n = 0; n < TOP_CELLS; n++)
		snprintf(cells[n], TOP_CELL, "-");
	if (l->rate >= 0)
		count_cell(l->rate, l->sampled, cells[0]);
	for (size_t n = 0; n < 2; n++)
		if (percents[n] >= 0)
			percent_cell(percents[n], !n && l->at_most, cells[1 + n]);
	for (size_t n = 0; n < 2; n++)
		if (times[n] >= 0)
			time_cell(times[n], cells[3 + n]);
}

void cost_text(const struct top *t, char *text, size_t size)
{
	if (t->cost < 0)
		snprintf(text, size, "limit %.3g %% of a CPU", t->limit);
	else
		snprintf(text, size, "costs it %.1f %% of a CPU (limit %.3g %%)", t->cost,
			 t->limit);
}
