/* SPDX-License-Identifier: MIT */
/*
 * values.c - what `read` prints: a table, bars for distributions, the largest
 * elements of vectors.
 *
 * Owns how numbers with units look. Never changes what --json prints.
 */
#include "daemon/client/values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "daemon/client/command.h"

enum {
	BAR_LEFT = 46, /* what stands left of a bar */
	BAR_WIDTH = 40,
	COUNT_WIDTH = 11, /* of it, what is left out of lines with no room for a bar */
	BAR_LEAST = 10,
	BARS_LEAST = 4, /* lines */
	ROWS_MAX = 64,
};

/* ------------------------------------------------------------------- units */

struct scale {
	double from; /* absolute values from here on */
	const char *name;
};

static const struct scale times[] = {
	{86400e9, "d"}, {3600e9, "h"}, {60e9, "min"}, {1e9, "s"},
	{1e6, "ms"},	{1e3, "us"},   {1, "ns"},     {0, NULL},
};

static const struct scale sizes[] = {
	{1099511627776.0, "TiB"},
	{1073741824, "GiB"},
	{1048576, "MiB"},
	{1024, "KiB"},
	{1, "B"},
	{0, NULL},
};

static const struct scale *scales_of(const char *unit)
{
	if (unit && !strcmp(unit, "ns"))
		return times;
	if (unit && !strcmp(unit, "bytes"))
		return sizes;
	return NULL;
}

bool unit_is_scaled(const char *unit)
{
	return scales_of(unit) != NULL;
}

/* Three digits that count; whole numbers where there is nothing behind the point. */
static void three_digits(double value, const char *unit, char *text)
{
	const double size = value < 0 ? -value : value;
	const int digits = size == (double)(long long)size ? 0 : size < 10 ? 2 : size < 100 ? 1 : 0;

	snprintf(text, VALUE_TEXT, "%.*f %.16s", digits, value, unit);
}

void value_with_unit(double value, const char *unit, char *text)
{
	const struct scale *scale = scales_of(unit);
	const double size = value < 0 ? -value : value;

	while (scale && scale[1].name && size < scale->from)
		scale++;
	if (scale)
		three_digits(value / scale->from, scale->name, text);
	else if (unit && *unit)
		snprintf(text, VALUE_TEXT, "%.*f %.16s", value == (double)(long long)value ? 0 : 1,
			 value, unit);
	else
		snprintf(text, VALUE_TEXT, "%.*f", value == (double)(long long)value ? 0 : 1,
			 value);
}

static const char per_second[] = "PerSecond";

bool unit_is_rate(const char *unit)
{
	const size_t length = strlen(unit), tail = sizeof(per_second) - 1;

	return length > tail && !strcmp(unit + length - tail, per_second);
}

double history_seconds(json_t *row)
{
	const size_t bins = json_array_size(json_object_get(row, "bins"));

	return bins ? ((double)(bins - 1) * json_number_value(json_object_get(row, "width_ns")) +
		       json_number_value(json_object_get(row, "last_ns"))) /
			       1e9
		    : 0;
}

void rate_with_unit(double rate, const char *unit, char *text)
{
	size_t length = unit ? strlen(unit) : 0, used;
	char counted[VALUE_TEXT];

	if (length && unit_is_rate(unit))
		length -= sizeof(per_second) - 1;
	snprintf(counted, sizeof(counted), "%.*s", (int)(length < 16 ? length : 16),
		 unit ? unit : "");
	value_with_unit(rate, counted, text);
	used = strlen(text);
	snprintf(text + used, VALUE_TEXT - used, "/s");
}

size_t output_columns(size_t else_columns)
{
	struct winsize size = {0};

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
		return else_columns;
	return size.ws_col < COLUMNS_LEAST ? COLUMNS_LEAST : size.ws_col;
}

size_t output_lines(size_t else_lines)
{
	struct winsize size = {0};

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0)
		return else_lines;
	return size.ws_row;
}

bool output_is_fine(void)
{
	static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
	const char *value = NULL;

	/* The first that is set says it (locale(7)). */
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && (!value || !*value); i++)
		value = getenv(names[i]);
	return value && (strcasestr(value, "utf-8") || strcasestr(value, "utf8"));
}

/* ----------------------------------------------------------- distributions */

static double number_at(json_t *list, size_t index)
{
	return json_number_value(json_array_get(list, index));
}

double buckets_quantile(json_t *buckets, double min, double max, double q)
{
	double total = 0, before = 0, rank, at = 0;
	size_t index;
	json_t *bucket;

	json_array_foreach(buckets, index, bucket) total += number_at(bucket, 2);
	rank = q * total;
	if (total <= 0)
		return 0;
	json_array_foreach(buckets, index, bucket)
	{
		const double lo = number_at(bucket, 0), hi = number_at(bucket, 1);
		const double count = number_at(bucket, 2);

		at = hi - lo > 1 ? lo + (rank - before) / count * (hi - lo) : lo;
		before += count;
		if (before >= rank)
			break;
	}
	return at < min ? min : at > max ? max : at;
}

json_t *buckets_since(json_t *now, json_t *before)
{
	json_t *since = json_array(), *bucket;
	size_t index, k = 0;

	json_array_foreach(now, index, bucket)
	{
		const double lo = number_at(bucket, 0);
		double count = number_at(bucket, 2);

		while (k < json_array_size(before) && number_at(json_array_get(before, k), 0) < lo)
			k++;
		if (k < json_array_size(before) && number_at(json_array_get(before, k), 0) == lo)
			count -= number_at(json_array_get(before, k), 2);
		if (count > 0)
			json_array_append_new(
				since, json_pack("[O, O, I]", json_array_get(bucket, 0),
						 json_array_get(bucket, 1), (json_int_t)count));
	}
	return since;
}

/* One line of bars: a power of two, with what its buckets hold. */
struct bar {
	double lo, hi, count;
};

static int exponent_of(double value)
{
	int e = 0;

	while (value >= 2) {
		value /= 2;
		e++;
	}
	return value < 1 ? -1 : e; /* -1: below 1 */
}

/* Values below 1 have a line of their own: -1. */
static double two_to(int exponent)
{
	return exponent < 0 ? 0 : (double)(UINT64_C(1) << exponent);
}

/* Lines from the first to the last that has something. Returns how many. */
static size_t make_bars(json_t *buckets, struct bar *bars)
{
	const size_t last = json_array_size(buckets);
	int first = exponent_of(number_at(json_array_get(buckets, 0), 0));
	size_t count = 0, index;
	json_t *bucket;

	if (last)
		count = (size_t)(exponent_of(number_at(json_array_get(buckets, last - 1), 0)) -
				 first) +
			1;
	if (count > ROWS_MAX)
		count = ROWS_MAX;
	for (size_t n = 0; n < count; n++) {
		const int e = first + (int)n;

		bars[n].lo = two_to(e);
		bars[n].hi = two_to(e + 1);
		bars[n].count = 0;
	}
	json_array_foreach(buckets, index, bucket)
	{
		const size_t n = (size_t)(exponent_of(number_at(bucket, 0)) - first);

		if (n < count)
			bars[n].count += number_at(bucket, 2);
	}
	return count;
}

static void print_bar(double share, int width, bool fine)
{
	static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
	const int parts = (int)(share * width * 8 + 0.5);
	/* What is there is seen, however little it is beside the rest. */
	const int shown = share > 0 && parts < (fine ? 1 : 4) ? (fine ? 1 : 8) : parts;

	for (int n = 0; n < shown / 8; n++)
		fputs(fine ? "█" : "#", stdout);
	if (fine)
		fputs(eighths[shown % 8], stdout);
	else if (shown % 8 >= 4)
		putchar('#');
}

static double member_number(json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

/* The quantiles, in as many lines as it takes; returns how many. */
static size_t print_quantiles(json_t *row, const char *unit, size_t columns)
{
	static const struct {
		const char *key, *name;
	} parts[] = {{"min", "min"}, {"p50", "p50"},	{"p90", "p90"},
		     {"p99", "p99"}, {"p999", "p99.9"}, {"max", "max"}};
	enum { PARTS = sizeof(parts) / sizeof(parts[0]) };
	char text[PARTS][2 * VALUE_TEXT], value[VALUE_TEXT];
	size_t all = 2 + 3 * (PARTS - 1), used = 0, lines = 1;

	for (size_t n = 0; n < PARTS; n++) {
		value_with_unit(member_number(row, parts[n].key), unit, value);
		all += (size_t)snprintf(text[n], sizeof(text[n]), "%s %s", parts[n].name, value);
	}
	for (size_t n = 0; n < PARTS; n++) {
		const char *gap = all <= columns ? "   " : "  ";

		if (n && used + strlen(gap) + strlen(text[n]) > columns) {
			putchar('\n');
			lines++;
			used = 0;
		}
		used += (size_t)printf("%s%s", used ? gap : "  ", text[n]);
	}
	putchar('\n');
	return lines;
}

/* Returns the number of lines. */
static size_t print_summary(json_t *row, const char *unit, size_t columns)
{
	const double count = member_number(row, "count");
	char text[VALUE_TEXT];

	value_with_unit(member_number(row, "sum"), unit, text);
	printf("  %.0f values, sum %s", count, text);
	if (count > 0) {
		value_with_unit(member_number(row, "sum") / count, unit, text);
		printf(", mean %s", text);
	}
	putchar('\n');
	return 1 + (count > 0 ? print_quantiles(row, unit, columns) : 0);
}

/* So many lines at most: two of them become one. */
static size_t merge_bars(struct bar *bars, size_t count, size_t most)
{
	while (count > most) {
		for (size_t n = 0; n < count; n += 2) {
			bars[n / 2] = bars[n];
			if (n + 1 < count) {
				bars[n / 2].hi = bars[n + 1].hi;
				bars[n / 2].count += bars[n + 1].count;
			}
		}
		count = (count + 1) / 2;
	}
	return count;
}

size_t distribution_print(json_t *row, const char *unit, size_t columns, size_t lines, bool fine)
{
	const bool narrow = columns < BAR_LEFT + BAR_LEAST;
	const size_t left = BAR_LEFT - (narrow ? COUNT_WIDTH : 0);
	const size_t room = columns > left + BARS_LEAST ? columns - left : BARS_LEAST;
	const int width = room < BAR_WIDTH ? (int)room : BAR_WIDTH;
	const double total = member_number(row, "count");
	const size_t head = print_summary(row, unit, columns);
	struct bar bars[ROWS_MAX];
	size_t count = make_bars(json_object_get(row, "buckets"), bars);
	char lo[VALUE_TEXT], hi[VALUE_TEXT];
	double most = 0;

	if (total <= 0)
		return head;
	count = merge_bars(bars, count, lines > head + BARS_LEAST ? lines - head : BARS_LEAST);
	for (size_t n = 0; n < count; n++)
		if (bars[n].count > most)
			most = bars[n].count;
	for (size_t n = 0; n < count; n++) {
		value_with_unit(bars[n].lo, unit, lo);
		value_with_unit(bars[n].hi, unit, hi);
		printf("  %10.20s - %-10.20s ", lo, hi);
		if (!narrow)
			printf("%10.0f ", bars[n].count);
		printf("%5.1f %% %s", 100 * bars[n].count / total, fine ? "│" : "|");
		print_bar(bars[n].count / most, width, fine);
		putchar('\n');
	}
	return head + count;
}

size_t spark_text(json_t *buckets, int first, int last, bool fine, char *text, size_t size)
{
	static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	static const char marks[] = " .:-=+*%@";
	struct bar bars[ROWS_MAX];
	const size_t count = make_bars(buckets, bars);
	double most = 0;
	size_t used = 0;

	for (size_t n = 0; n < count; n++)
		most = bars[n].count > most ? bars[n].count : most;
	text[0] = '\0';
	for (int e = first; e <= last && used + 8 < size; e++) {
		int level = 0;

		for (size_t n = 0; n < count; n++)
			if (exponent_of(bars[n].lo) == e && bars[n].count > 0)
				level = 1 + (int)(bars[n].count / most * 7);
		used += (size_t)(fine ? snprintf(text + used, size - used, "%s", blocks[level])
				      : snprintf(text + used, size - used, "%c", marks[level]));
	}
	return used;
}

void buckets_extent(json_t *buckets, int *first, int *last)
{
	const size_t count = json_array_size(buckets);
	const int low = exponent_of(number_at(json_array_get(buckets, 0), 0));
	const int high = exponent_of(number_at(json_array_get(buckets, count - 1), 0));

	if (!count)
		return;
	if (*first > *last) {
		*first = low;
		*last = high;
	}
	*first = low < *first ? low : *first;
	*last = high > *last ? high : *last;
}

/* ----------------------------------------------------------------- vectors */

static const struct column element_columns[] = {
	{"key", "KEY", COLUMN_TEXT},
	{"name", "NAME", COLUMN_TEXT},
	{"value", "VALUE", COLUMN_NUMBER},
	{"is", "IS", COLUMN_NUMBER},
	{"share", "SHARE", COLUMN_NUMBER},
	{"p50", "P50", COLUMN_NUMBER},
	{"p99", "P99", COLUMN_NUMBER},
	{"max", "MAX", COLUMN_NUMBER},
	{NULL, NULL, 0},
};

/* An element with what is shown of it beside the numbers. */
static json_t *element_shown(json_t *element, const char *unit, double sum)
{
	json_t *shown = json_copy(element);
	const double value = member_number(element, "value");
	const bool distribution = json_object_get(element, "buckets") != NULL;
	char text[VALUE_TEXT];

	if (json_is_null(json_object_get(element, "key")))
		json_object_set_new(shown, "key", json_string("(others)"));
	if (unit_is_scaled(unit) && !distribution) {
		value_with_unit(value, unit, text);
		json_object_set_new(shown, "is", json_string(text));
	}
	for (const char *const *key = (const char *const[]){"p50", "p99", "max", NULL};
	     distribution && *key; key++) {
		value_with_unit(member_number(element, *key), unit, text);
		json_object_set_new(shown, *key, json_string(text));
	}
	if (sum > 0 && value >= 0) {
		snprintf(text, sizeof(text), "%.1f %%", 100 * value / sum);
		json_object_set_new(shown, "share", json_string(text));
	}
	return shown;
}

static void print_vector(json_t *row, const char *unit, bool all)
{
	json_t *elements = json_object_get(row, "elements"), *shown = json_array(), *element;
	const double full = member_number(row, "full");
	const size_t count = json_array_size(elements);
	const size_t most = all ? count : VECTOR_SHOWN;
	const bool distributions = json_object_get(json_array_get(elements, 0), "buckets") != NULL;
	double sum = 0, rest = 0;
	char text[VALUE_TEXT];
	size_t index;

	json_array_foreach(elements, index, element)
	{
		sum += member_number(element, "value");
		if (index >= most)
			rest += member_number(element, "value");
	}
	json_array_foreach(elements, index, element) if (index < most)
		json_array_append_new(shown, element_shown(element, unit, sum));
	table_print(element_columns, shown, all);
	if (count > most) {
		/* of distributions it is a number of values, whatever their unit is */
		value_with_unit(rest, distributions ? "values" : unit, text);
		printf("... and %zu more with %s (-v shows them)\n", count - most, text);
	}
	if (full > 0)
		printf("for %.0f more there was no room: they are (others)\n", full);
	json_decref(shown);
}

/* --------------------------------------------------------------- the whole */

json_t *row_of(json_t *rows, json_t *id)
{
	size_t index;
	json_t *row;

	json_array_foreach(rows, index,
			   row) if (json_equal(json_object_get(row, "id"), id)) return row;
	return NULL;
}

static const struct column read_columns[] = {
	{"id", "ID", COLUMN_NUMBER},
	{"metric", "METRIC", COLUMN_TEXT},
	{"value", "VALUE", COLUMN_NUMBER},
	{"unit", "UNIT", COLUMN_TEXT},
	{"is", "IS", COLUMN_NUMBER},
	{"note", "NOTE", COLUMN_TEXT},
	{"predicted_ns", "NS/HIT", COLUMN_NUMBER},
	{"hits", "HITS", COLUMN_NUMBER},
	{"cost", "COST", COLUMN_NUMBER},
	{"focus", "FOCUS", COLUMN_TEXT},
	{NULL, NULL, 0},
};

static json_t *row_shown(json_t *row)
{
	const char *unit = json_string_value(json_object_get(row, "unit"));
	json_t *cost = json_object_get(row, "cost_ns_per_s");
	json_t *shown = json_copy(row);
	char text[VALUE_TEXT];

	/* The value of a distribution is a number of values, whatever their unit is. */
	if (json_object_get(row, "buckets")) {
		json_object_set_new(shown, "unit", json_string("values"));
	} else if (unit_is_scaled(unit)) {
		value_with_unit(member_number(row, "value"), unit, text);
		json_object_set_new(shown, "is", json_string(text));
	}
	if (json_object_get(row, "mean_rate")) {
		rate_with_unit(member_number(row, "mean_rate"), unit, text);
		json_object_set_new(shown, "is", json_string(text));
	}
	if (json_is_true(json_object_get(row, "stopped")))
		json_object_set_new(shown, "note", json_string("stopped"));
	else if (json_is_true(json_object_get(row, "waiting")))
		json_object_set_new(shown, "note", json_string("waiting"));
	else if (json_object_get(row, "own_calls"))
		json_object_set_new(shown, "note", json_string("at most"));
	if (cost) {
		snprintf(text, sizeof(text), "%.2f %%", json_number_value(cost) / 1e7);
		json_object_set_new(shown, "cost", json_string(text));
	}
	return shown;
}

void values_print(json_t *rows, bool verbose)
{
	json_t *shown = json_array(), *row;
	const bool fine = output_is_fine();
	size_t index;

	json_array_foreach(rows, index, row) json_array_append_new(shown, row_shown(row));
	table_print(read_columns, shown, verbose);
	json_decref(shown);
	json_array_foreach(rows, index, row)
	{
		const char *unit = json_string_value(json_object_get(row, "unit"));
		char focus[512];

		if (!json_object_get(row, "buckets") && !json_object_get(row, "elements"))
			continue;
		value_text(json_object_get(row, "focus"), COLUMN_TEXT, focus, sizeof(focus));
		printf("\n%lld: %s %s\n", (long long)member_number(row, "id"),
		       json_string_value(json_object_get(row, "metric")), focus);
		if (json_object_get(row, "buckets"))
			distribution_print(row, unit, output_columns(COLUMNS_PIPE), SIZE_MAX, fine);
		if (json_object_get(row, "elements"))
			print_vector(row, unit, verbose);
	}
}
