/* SPDX-License-Identifier: MIT */
/*
 * values.h - values as people read them: units, distributions, vectors, charts.
 *
 * Takes rows as the daemon sends them (docs/protocol.md) and prints to standard
 * output. Nothing here asks the daemon.
 */
#ifndef DINST_DAEMON_VALUES_H
#define DINST_DAEMON_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum {
	VALUE_TEXT = 40,
	VECTOR_SHOWN = 10,
	COLUMNS_PIPE = 100, /* of lines that no terminal shows */
	COLUMNS_LEAST = 20, /* fewer are not believed */
};

/* "1.23 ms", "4.0 MiB", "1234 calls": at most VALUE_TEXT bytes. */
void value_with_unit(double value, const char *unit, char *text);
/* The same for a rate per second: "1.23 ms/s", "930 calls/s". */
void rate_with_unit(double rate, const char *unit, char *text);
/* True for units that have a nicer form than the number: ns, bytes. */
bool unit_is_scaled(const char *unit);
/* True for units that say that they are rates: callsPerSecond. */
bool unit_is_rate(const char *unit);
/* The time that a row of `history` is about. */
double history_seconds(json_t *row);

/* Value at fraction q of [[lo, hi, count], ...] between min and max; 0 where it is empty. */
double buckets_quantile(json_t *buckets, double min, double max, double q);
/* Buckets that came since `before`, as a new array. */
json_t *buckets_since(json_t *now, json_t *before);

/* The row with that id, borrowed; NULL if there is none. */
json_t *row_of(json_t *rows, json_t *id);
/* The table of `read`, then each distribution as bars and each vector's top; `all` of it. */
void values_print(json_t *rows, bool verbose);

/*
 * A distribution as it stands in a row or in an element of a vector: count, mean and quantiles,
 * then bars on a scale of powers of two, `columns` wide (what stands left of the bars takes 34
 * of them at least), in `lines` lines or few more. Returns the number of lines printed.
 */
size_t distribution_print(json_t *row, const char *unit, size_t columns, size_t lines, bool fine);
/* Widens first..last, exponents of two, to what the buckets hold; first > last: nothing yet. */
void buckets_extent(json_t *buckets, int *first, int *last);
/* One character for each power of two from `first` to `last`, as high as what is there. */
size_t spark_text(json_t *buckets, int first, int last, bool fine, char *text, size_t size);

/* A history over time: `columns` wide, with characters that not every terminal has if `fine`. */
void chart_print(json_t *row, size_t columns, bool fine);
/* The columns of the terminal that standard output is, or `else_columns` where it is none. */
size_t output_columns(size_t else_columns);
/* The same for its lines. */
size_t output_lines(size_t else_lines);
/* True if standard output takes UTF-8. */
bool output_is_fine(void);

#endif
