/* SPDX-License-Identifier: MIT */
/*
 * table.c - aligned columns.
 *
 * Owns how values look to people. Never decides what is shown.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/client/command.h"

enum { COLUMNS_MAX = 24, CELL_MAX = 512, WIDTH_MAX = 60 };

/* snprintf at *used, which never goes past the end. */
static void add(char *text, size_t size, size_t *used, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void add(char *text, size_t size, size_t *used, const char *format, ...)
{
	va_list args;
	int n;

	if (*used + 1 >= size)
		return;
	va_start(args, format);
	n = vsnprintf(text + *used, size - *used, format, args);
	va_end(args);
	if (n > 0)
		*used += (size_t)n < size - *used ? (size_t)n : size - *used - 1;
}

static void scalar_text(json_t *value, enum column_form form, char *text, size_t size)
{
	if (json_is_string(value))
		snprintf(text, size, "%s", json_string_value(value));
	else if (json_is_integer(value) && form == COLUMN_ADDRESS)
		snprintf(text, size, "0x%" PRIx64, (uint64_t)json_integer_value(value));
	else if (json_is_integer(value))
		snprintf(text, size, "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		snprintf(text, size, "%.1f", json_real_value(value));
	else if (json_is_boolean(value))
		snprintf(text, size, "%s", json_is_true(value) ? "yes" : "no");
	else
		snprintf(text, size, "-");
}

void value_text(json_t *value, enum column_form form, char *text, size_t size)
{
	char part[CELL_MAX];
	size_t used = 0, index;
	const char *key;
	json_t *member;

	text[0] = '\0';
	if (json_is_array(value)) {
		json_array_foreach(value, index, member)
		{
			scalar_text(member, form, part, sizeof(part));
			add(text, size, &used, "%s%s", index ? " " : "", part);
		}
	} else if (json_is_object(value)) {
		json_object_foreach(value, key, member)
		{
			scalar_text(member, form, part, sizeof(part));
			add(text, size, &used, "%s%s %s", used ? ", " : "", key, part);
		}
	} else {
		scalar_text(value, form, text, size);
	}
	if (!text[0])
		snprintf(text, size, "-");
	text_clean(text, false);
}

/* Characters, not bytes: names may be UTF-8. */
static int text_width(const char *text)
{
	int width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

static void print_cell(const char *text, int width, bool right, bool last)
{
	int fill = width - text_width(text);

	if (fill < 0)
		fill = 0;
	if (right)
		printf("%*s%s", fill, "", text);
	else if (last)
		fputs(text, stdout);
	else
		printf("%s%*s", text, fill, "");
	fputs(last ? "\n" : "  ", stdout);
}

/* Which columns are shown: those that some row has, the wide ones only on demand. */
static size_t choose_columns(const struct column *columns, json_t *rows, bool wide,
			     const struct column **shown, int *widths)
{
	char text[CELL_MAX];
	size_t count = 0, index;
	json_t *row;

	for (; columns->key && count < COLUMNS_MAX; columns++) {
		int width = text_width(columns->title);
		bool present = false;

		if (columns->form == COLUMN_WIDE && !wide)
			continue;
		json_array_foreach(rows, index, row)
		{
			json_t *value = json_object_get(row, columns->key);

			present = present || value;
			value_text(value, columns->form, text, sizeof(text));
			if (text_width(text) > width)
				width = text_width(text);
		}
		if (!present)
			continue;
		/* one monster of a C++ name must not push everything off the screen */
		widths[count] = width > WIDTH_MAX ? WIDTH_MAX : width;
		shown[count++] = columns;
	}
	return count;
}

size_t table_print(const struct column *columns, json_t *rows, bool wide)
{
	const struct column *shown[COLUMNS_MAX];
	int widths[COLUMNS_MAX];
	char text[CELL_MAX];
	size_t count = choose_columns(columns, rows, wide, shown, widths);
	size_t index;
	json_t *row;

	if (count == 0)
		return 0;
	for (size_t i = 0; i < count; i++)
		print_cell(shown[i]->title, widths[i], shown[i]->form == COLUMN_NUMBER,
			   i + 1 == count);
	json_array_foreach(rows, index, row)
	{
		for (size_t i = 0; i < count; i++) {
			value_text(json_object_get(row, shown[i]->key), shown[i]->form, text,
				   sizeof(text));
			print_cell(text, widths[i], shown[i]->form == COLUMN_NUMBER,
				   i + 1 == count);
		}
	}
	return json_array_size(rows) + 1;
}
