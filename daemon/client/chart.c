/* SPDX-License-Identifier: MIT */
/*
 * chart.c - `history`: one value over time as a chart of characters.
 *
 * Owns the axes. Totals are shown as rates per second, levels as they are; each
 * column is the mean of its time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/client/command.h"
#include "daemon/client/values.h"

enum { CHART_LINES = 8, LABEL_LEAST = 14, CHART_COLUMNS = 80, CELLS_LEAST = 10, CELLS_MAX = 1000 };

/* What is drawn: one number per column. */
struct chart {
	double cells[CELLS_MAX];
	size_t count;
	double low, high; /* of all bins */
	double mean;
	double seconds; /* of all */
};

static double number(json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

/* Length of a bin in s. */
static double length_of(json_t *row, size_t bin, size_t bins)
{
	return (bin + 1 == bins ? number(row, "last_ns") : number(row, "width_ns")) / 1e9;
}

/*
 * As many columns as there is room for, each of as many bins. Cells are means
 * over their time: of rates for totals, of the level else.
 */
static void make_chart(struct chart *c, json_t *row, bool level, size_t room)
{
	json_t *bins = json_object_get(row, "bins");
	const size_t count = json_array_size(bins);
	const size_t each = (count + room - 1) / room;

	memset(c, 0, sizeof(*c));
	for (size_t i = 0; i < count;) {
		double amount = 0, seconds = 0;

		for (size_t n = 0; n < each && i < count; n++, i++) {
			const double length = length_of(row, i, count);
			const double bin = json_number_value(json_array_get(bins, i));
			const double value = level ? bin : length > 0 ? bin / length : 0;

			/* What has only just begun says little about a rate. */
			if (!i || length * 2 > number(row, "width_ns") / 1e9) {
				if (!i || value < c->low)
					c->low = value;
				if (!i || value > c->high)
					c->high = value;
			}
			amount += value * length;
			seconds += length;
		}
		c->cells[c->count++] = seconds > 0 ? amount / seconds : 0;
		c->mean += amount;
		c->seconds += seconds;
	}
	c->mean = c->seconds > 0 ? c->mean / c->seconds : 0;
}

/* Eighths of a line that are filled, of line `line` from below. */
static int filled(double value, double top, int line)
{
	const double parts = top > 0 ? value / top * CHART_LINES * 8 : 0;
	const int rest = (int)(parts + 0.5) - line * 8;

	if (line == 0 && value > 0 && rest < 1)
		return 1;
	return rest < 0 ? 0 : rest > 8 ? 8 : rest;
}

static void number_text(double value, const char *unit, bool level, char *text)
{
	if (level)
		value_with_unit(value, unit, text);
	else
		rate_with_unit(value, unit, text);
}

/* What stands left of the line; the number on top, half of it in the middle. */
static void label_text(double top, int line, const char *unit, bool level, char *text)
{
	text[0] = '\0';
	if (line == CHART_LINES - 1)
		number_text(top, unit, level, text);
	else if (line == CHART_LINES / 2 - 1)
		number_text(top / 2, unit, level, text);
}

static int label_width(double top, const char *unit, bool level)
{
	char label[VALUE_TEXT];
	int width = LABEL_LEAST;

	for (int line = 0; line < CHART_LINES; line++) {
		label_text(top, line, unit, level, label);
		width = (int)strlen(label) > width ? (int)strlen(label) : width;
	}
	return width;
}

static void draw_lines(const struct chart *c, double top, const char *unit, bool level, bool fine)
{
	static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	const int width = label_width(top, unit, level);
	char label[VALUE_TEXT];

	for (int line = CHART_LINES - 1; line >= 0; line--) {
		label_text(top, line, unit, level, label);
		printf("%*s %s", width, label, fine ? "┤" : "|");
		for (size_t i = 0; i < c->count; i++) {
			const int parts = filled(c->cells[i], top, line);

			fputs(fine ? blocks[parts] : parts >= 4 ? "#" : parts ? "." : " ", stdout);
		}
		putchar('\n');
	}
	printf("%*s %s", width, "0", fine ? "└" : "+");
	for (size_t i = 0; i < c->count; i++)
		fputs(fine ? "─" : "-", stdout);
	putchar('\n');
}

static void draw_time(const struct chart *c, json_t *row, int label)
{
	const bool ended = json_is_true(json_object_get(row, "ended"));
	const time_t start =
		(time_t)(json_integer_value(json_object_get(row, "start")) / 1000000000);
	char first[40], last[VALUE_TEXT];
	struct tm tm;
	int gap;

	localtime_r(&start, &tm);
	strftime(first, sizeof(first), "%H:%M:%S", &tm);
	value_with_unit(c->seconds * 1e9, "ns", last);
	gap = (int)c->count - (int)strlen(first) - (int)strlen(last) - 1;
	printf("%*s  %s%*s+%s%s\n", label, "", first, gap > 1 ? gap : 1, "", last,
	       ended ? " (ended)" : "");
}

/* In one line, or in four where that is longer than `columns`. */
static void print_range(const struct chart *c, json_t *row, const char *unit, bool level,
			size_t columns)
{
	char value[VALUE_TEXT], low[VALUE_TEXT], mean[VALUE_TEXT], high[VALUE_TEXT];
	char text[5 * VALUE_TEXT];
	const char *when = level ? "now" : "in all";

	value_with_unit(number(row, "value"), unit, value);
	number_text(c->low, unit, level, low);
	number_text(c->mean, unit, level, mean);
	number_text(c->high, unit, level, high);
	snprintf(text, sizeof(text), "  %s %s; lowest %s, mean %s, highest %s", value, when, low,
		 mean, high);
	if (strlen(text) <= columns)
		puts(text);
	else
		printf("  %s %s\n  lowest %s\n  mean %s\n  highest %s\n", value, when, low, mean,
		       high);
}

void chart_print(json_t *row, size_t columns, bool fine)
{
	const char *style = json_string_value(json_object_get(row, "style"));
	const char *unit = json_string_value(json_object_get(row, "unit"));
	const bool level = style && !strcmp(style, "SampledFunction");
	const bool distribution = json_is_true(json_object_get(row, "distribution"));
	char focus[512];
	struct chart c;
	size_t room, label;

	if (distribution)
		unit = "values";
	/* how high it goes says how wide its labels are, and that how many columns are left */
	make_chart(&c, row, level, CELLS_MAX);
	label = (size_t)label_width(c.high > 0 ? c.high : 1, unit, level);
	room = columns > label + 2 + CELLS_LEAST ? columns - label - 2 : CELLS_LEAST;
	make_chart(&c, row, level, room < CELLS_MAX ? room : CELLS_MAX);
	value_text(json_object_get(row, "focus"), COLUMN_TEXT, focus, sizeof(focus));
	printf("%lld: %s %s\n", (long long)number(row, "id"),
	       json_string_value(json_object_get(row, "metric")), focus);
	if (!c.count) {
		puts("  no samples yet");
		return;
	}
	print_range(&c, row, unit, level, columns);
	/* A level below zero has no bar: the numbers say it. */
	draw_lines(&c, c.high > 0 ? c.high : 1, unit, level, fine);
	draw_time(&c, row, (int)label);
}

int history_run(struct context *c, const struct arguments *a)
{
	struct dinst_error e = {0, ""};
	json_t *ids = ids_from_words(a, &e), *params, *answer = NULL, *rows, *row;
	size_t index;
	int status;

	if (!ids)
		return report(c, &e);
	params = json_pack("{s:o}", "ids", ids);
	if (call(c, "history", params, &answer, &e) != 0) {
		status = report(c, &e);
		json_decref(params);
		return status;
	}
	json_decref(params);
	rows = json_object_get(answer, "rows");
	json_array_foreach(rows, index, row)
	{
		if (c->json) {
			print_json(row);
			continue;
		}
		if (index)
			putchar('\n');
		chart_print(row, output_columns(CHART_COLUMNS), output_is_fine());
	}
	if (json_array_size(rows) == 0)
		note(c, "nothing was inserted yet");
	json_decref(answer);
	return flush_output(c, EXIT_DONE);
}
