/* SPDX-License-Identifier: MIT */
/*
 * watch.c - values over time, with their rate, and what was lowest and highest
 * in between, which the daemon's histories know.
 *
 * Owns the clock of repeated readings: they are taken at fixed times, so the
 * time a reading takes does not add up. Ends cleanly on SIGINT, and when the
 * target has ended.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "daemon/client/command.h"
#include "daemon/client/values.h"

struct watch {
	struct context *context;
	json_t *params;
	json_t *before;		/* rows of the last reading */
	uint64_t before_ns;	/* when it was taken */
	json_int_t before_time; /* CLOCK_REALTIME, ns */
	size_t drawn;		/* lines of the table on the terminal */
	bool redraw;
};

static const struct column watch_columns[] = {
	{"id", "ID", COLUMN_NUMBER},
	{"metric", "METRIC", COLUMN_TEXT},
	{"value", "VALUE", COLUMN_NUMBER},
	{"rate", "PER-SECOND", COLUMN_NUMBER},
	{"lowest", "LOWEST", COLUMN_NUMBER},
	{"highest", "HIGHEST", COLUMN_NUMBER},
	{"interval_p50", "P50", COLUMN_NUMBER},
	{"interval_p99", "P99", COLUMN_NUMBER},
	{"unit", "UNIT", COLUMN_TEXT},
	{"focus", "FOCUS", COLUMN_TEXT},
	{NULL, NULL, 0},
};

static void on_interrupt(int sig)
{
	(void)sig;
	link_interrupted = 1;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool is_level(json_t *row)
{
	const char *style = json_string_value(json_object_get(row, "style"));

	return style && !strcmp(style, "SampledFunction");
}

/* What a distribution got since the reading before. */
static void add_quantiles(json_t *row, json_t *old)
{
	json_t *buckets = json_object_get(row, "buckets"), *since;
	const double min = json_number_value(json_object_get(row, "min"));
	const double max = json_number_value(json_object_get(row, "max"));
	const bool any = json_number_value(json_object_get(row, "value")) >
			 json_number_value(json_object_get(old, "value"));

	if (!buckets)
		return;
	since = old && any ? buckets_since(buckets, json_object_get(old, "buckets")) : NULL;
	json_object_set_new(row, "interval_p50",
			    since ? json_real(buckets_quantile(since, min, max, 0.5))
				  : json_null());
	json_object_set_new(row, "interval_p99",
			    since ? json_real(buckets_quantile(since, min, max, 0.99))
				  : json_null());
	json_decref(since);
}

/* Adds time and, from the second reading on, rate to every row; a level has none. */
static void add_rates(struct watch *w, json_t *rows, uint64_t now)
{
	double seconds = (double)(now - w->before_ns) / 1e9;
	json_int_t time = (json_int_t)clock_ns(CLOCK_REALTIME);
	size_t index;
	json_t *row;

	json_array_foreach(rows, index, row)
	{
		json_t *old = row_of(w->before, json_object_get(row, "id"));
		json_t *value = json_object_get(row, "value");
		json_t *rate = NULL;

		if (old && json_is_number(value) && seconds > 0 && !is_level(row))
			rate = json_real((json_number_value(value) -
					  json_number_value(json_object_get(old, "value"))) /
					 seconds);
		json_object_set_new(row, "time", json_integer(time));
		json_object_set_new(row, "rate", rate ? rate : json_null());
		add_quantiles(row, old);
	}
}

/* The lowest and highest of a history's whole bins: of rates, or of a level. */
static void add_extremes(json_t *row, json_t *history)
{
	json_t *bins = json_object_get(history, "bins"), *bin;
	const double width = json_number_value(json_object_get(history, "width_ns")) / 1e9;
	const double last = json_number_value(json_object_get(history, "last_ns")) / 1e9;
	double low = 0, high = 0;
	bool any = false;
	size_t index;

	json_array_foreach(bins, index, bin)
	{
		double value = json_number_value(bin);

		if (index + 1 == json_array_size(bins) && last < width)
			break;
		if (!is_level(row))
			value /= width;
		low = !any || value < low ? value : low;
		high = !any || value > high ? value : high;
		any = true;
	}
	json_object_set_new(row, "lowest", any ? json_real(low) : json_null());
	json_object_set_new(row, "highest", any ? json_real(high) : json_null());
}

/*
 * True if what has that number has come since the reading before: where somebody has detached and attached
 * again, numbers begin anew.
 */
static bool is_another(const struct watch *w, json_t *history)
{
	return json_integer_value(json_object_get(history, "start")) > w->before_time;
}

static void drop_rates(json_t *row)
{
	json_object_set_new(row, "rate", json_null());
	if (json_object_get(row, "buckets")) {
		json_object_set_new(row, "interval_p50", json_null());
		json_object_set_new(row, "interval_p99", json_null());
	}
}

/* What happened between two readings, as far as the daemon looked in between. */
static void look_between(struct watch *w, json_t *rows)
{
	json_t *params = json_copy(w->params), *answer = NULL, *histories, *row, *history;
	struct dinst_error ignored = {0, ""};
	size_t index;

	json_object_set_new(params, "since", json_integer(w->before_time));
	if (w->before && call(w->context, "history", params, &answer, &ignored) == 0) {
		histories = json_object_get(answer, "rows");
		json_array_foreach(rows, index, row)
		{
			history = row_of(histories, json_object_get(row, "id"));
			if (!history)
				continue;
			add_extremes(row, history);
			if (is_another(w, history))
				drop_rates(row);
		}
	}
	json_decref(answer);
	json_decref(params);
}

/* Rows as people read them, with units. */
static json_t *rows_shown(json_t *rows)
{
	static const char *const rates[] = {"rate", "lowest", "highest", NULL};
	static const char *const quantiles[] = {"interval_p50", "interval_p99", NULL};
	json_t *shown = json_array(), *row;
	size_t index;

	json_array_foreach(rows, index, row)
	{
		const char *unit = json_string_value(json_object_get(row, "unit"));
		const bool distribution = json_object_get(row, "buckets") != NULL;
		json_t *copy = json_copy(row);
		char text[VALUE_TEXT];

		for (const char *const *key = distribution ? quantiles : rates; *key; key++) {
			json_t *number = json_object_get(row, *key);

			if (!json_is_number(number) || !unit_is_scaled(unit))
				continue;
			value_with_unit(json_number_value(number), unit, text);
			json_object_set_new(copy, *key, json_string(text));
		}
		if (distribution)
			json_object_set_new(copy, "unit", json_string("values"));
		json_array_append_new(shown, copy);
	}
	return shown;
}

/* The busiest first; what has no rate yet by its value. */
static int by_rate(const void *a, const void *b)
{
	json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	double p = json_number_value(json_object_get(x, "rate"));
	double q = json_number_value(json_object_get(y, "rate"));

	if (p == q) {
		p = json_number_value(json_object_get(x, "value"));
		q = json_number_value(json_object_get(y, "value"));
	}
	return (p < q) - (p > q);
}

/* The `max` busiest rows where there are more: a new array. */
static json_t *busiest(json_t *rows, size_t max)
{
	size_t count = json_array_size(rows);
	json_t **all = calloc(count ? count : 1, sizeof(*all)), *some = json_array();

	for (size_t i = 0; all && i < count; i++)
		all[i] = json_array_get(rows, i);
	if (all && count > max)
		qsort(all, count, sizeof(*all), by_rate);
	for (size_t i = 0; all && i < count && i < max; i++)
		json_array_append(some, all[i]);
	free(all);
	return some;
}

/* In place: no more lines than the screen has, and none that wraps. */
static void redraw(struct watch *w, json_t *rows)
{
	struct winsize size = {0};
	size_t count = json_array_size(rows), max = 20;
	json_t *some, *shown;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 4)
		max = size.ws_row - 3u;
	some = busiest(rows, max);
	if (w->drawn)
		printf("\033[%zuA\033[J", w->drawn);
	fputs("\033[?7l", stdout);
	shown = rows_shown(some);
	w->drawn = table_print(watch_columns, shown, w->context->verbose);
	json_decref(shown);
	if (count > max) {
		printf("... and %zu more\n", count - max);
		w->drawn++;
	}
	fputs("\033[?7h", stdout);
	json_decref(some);
}

static void draw(struct watch *w, json_t *rows)
{
	size_t index;
	json_t *row, *shown;

	if (w->context->json) {
		json_array_foreach(rows, index, row) print_json(row);
	} else if (w->redraw) {
		redraw(w, rows);
	} else {
		shown = rows_shown(rows);
		table_print(watch_columns, shown, w->context->verbose);
		json_decref(shown);
	}
	output_flush();
}

/* Returns an exit status, or -1 to go on. */
static int reading(struct watch *w)
{
	struct dinst_error e = {0, ""};
	json_t *answer = NULL, *rows;
	json_int_t time;
	uint64_t now;

	if (call(w->context, "read", w->params, &answer, &e) != 0)
		return link_interrupted ? EXIT_DONE : report(w->context, &e);
	now = clock_ns(CLOCK_MONOTONIC);
	time = (json_int_t)clock_ns(CLOCK_REALTIME);
	rows = json_object_get(answer, "rows");
	/* an empty table for ever would look like a program that hangs */
	if (!w->before && json_array_size(rows) == 0) {
		note(w->context, "nothing is inserted");
		json_decref(answer);
		return EXIT_DONE;
	}
	add_rates(w, rows, now);
	look_between(w, rows);
	draw(w, rows);
	json_decref(w->before);
	w->before = json_incref(rows);
	w->before_ns = now;
	w->before_time = time;
	json_decref(answer);
	return ferror(stdout) && !link_interrupted ? EXIT_FAILED : -1;
}

static void sleep_until(uint64_t when)
{
	struct timespec until = {(time_t)(when / 1000000000u), (long)(when % 1000000000u)};

	while (!link_interrupted &&
	       clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static int watch_loop(struct watch *w, uint64_t interval_ns, unsigned long long count)
{
	uint64_t next = clock_ns(CLOCK_MONOTONIC);
	int status = -1;

	for (unsigned long long n = 0; status < 0 && (!count || n < count); n++) {
		if (n > 0) {
			uint64_t now = clock_ns(CLOCK_MONOTONIC);

			next += interval_ns;
			if (next < now)
				next = now;
			sleep_until(next);
		}
		if (link_interrupted)
			break;
		status = reading(w);
		/* that was the last value there will ever be */
		if (w->context->target_ended)
			break;
	}
	return status < 0 ? EXIT_DONE : status;
}

int watch_run(struct context *c, const struct arguments *a)
{
	const char *interval = arguments_get(a, 'i'), *count_text = arguments_get(a, 'c');
	struct sigaction action = {.sa_handler = on_interrupt}, before;
	struct watch w = {.context = c};
	struct dinst_error e = {0, ""};
	unsigned long long count = 0;
	double seconds = 1;
	char *end = NULL;
	json_t *ids;
	int status;

	if (interval) {
		seconds = strtod(interval, &end);
		if (end == interval || *end || !(seconds >= 0.01 && seconds <= 86400))
			return report_text(c, DINST_USAGE,
					   "-i takes seconds from 0.01 to 86400, not '%s'",
					   interval);
	}
	if (count_text && (!parse_number(count_text, 1000000000, &count) || !count))
		return report_text(c, DINST_USAGE, "-c takes a number of readings, not '%s'",
				   count_text);
	ids = ids_from_words(a, &e);
	if (!ids)
		return report(c, &e);
	w.params = json_pack("{s:o}", "ids", ids);
	w.redraw = !c->json && isatty(STDOUT_FILENO);
	/* no SA_RESTART: the sleep and the wait for an answer are to end */
	sigaction(SIGINT, &action, &before);
	/* events of the session of an earlier command come before its answer */
	c->target_ended = session_has_ended(c);
	status = watch_loop(&w, (uint64_t)(seconds * 1e9), count);
	/* the terminal has shown ^C: what follows begins on a line of its own */
	if (link_interrupted && isatty(STDOUT_FILENO))
		putchar('\n');
	status = flush_output(c, status);
	sigaction(SIGINT, &before, NULL);
	if (link_interrupted)
		c->ended_by = SIGINT;
	link_interrupted = 0;
	json_decref(w.params);
	json_decref(w.before);
	return status;
}
