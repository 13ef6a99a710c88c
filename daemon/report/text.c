/* SPDX-License-Identifier: MIT */
/*
 * text.c - texts that grow, and words in them that no terminal obeys.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/report/text_private.h"

/* ----------------------------------------------------------- texts that grow */

static bool make_room(struct text *t, size_t more)
{
	size_t room = t->room ? t->room : 256;
	char *grown;

	if (t->room - t->used > more)
		return true;
	while (room - t->used <= more)
		room *= 2;
	grown = realloc(t->data, room);
	if (!grown) {
		t->failed = true;
		return false;
	}
	t->data = grown;
	t->room = room;
	return true;
}

void text_add_bytes(struct text *t, const char *bytes, size_t length)
{
	if (!make_room(t, length))
		return;
	memcpy(t->data + t->used, bytes, length);
	t->used += length;
	t->data[t->used] = '\0';
}

void text_addf(struct text *t, const char *format, ...)
{
	va_list args, again;
	int length;

	va_start(args, format);
	va_copy(again, args);
	length = vsnprintf(NULL, 0, format, again);
	va_end(again);
	if (length >= 0 && make_room(t, (size_t)length)) {
		vsnprintf(t->data + t->used, t->room - t->used, format, args);
		t->used += (size_t)length;
	}
	va_end(args);
}

void text_clear(struct text *t)
{
	t->used = 0;
	if (t->data)
		t->data[0] = '\0';
}

void text_drop(struct text *t)
{
	free(t->data);
	*t = (struct text){0};
}

/* --------------------------------------------------------------------- words */

/* Bytes of the UTF-8 character that begins here and may be printed; 0: none does. */
static size_t printable(const uint8_t *p, size_t left)
{
	size_t length = p[0] < 0x80   ? 1
			: p[0] < 0xc2 ? 0
			: p[0] < 0xe0 ? 2
			: p[0] < 0xf0 ? 3
			: p[0] < 0xf5 ? 4
				      : 0;

	if (length == 1)
		return p[0] >= ' ' && p[0] < 0x7f;
	if (!length || length > left)
		return 0;
	for (size_t i = 1; i < length; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	/* Controls of two bytes, forms that are too long, halves of pairs, marks that turn the text around. */
	if ((p[0] == 0xc2 && p[1] < 0xa0) || (p[0] == 0xe0 && p[1] < 0xa0) ||
	    (p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf0 && p[1] < 0x90) ||
	    (p[0] == 0xf4 && p[1] >= 0x90) ||
	    (p[0] == 0xe2 && p[1] == 0x80 &&
	     ((p[2] >= 0xa8 && p[2] <= 0xae) || (p[2] >= 0x8b && p[2] <= 0x8f))) ||
	    (p[0] == 0xe2 && p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9))
		return 0;
	return length;
}

static void add_character(struct text *t, const uint8_t **p, size_t *left, char quote)
{
	static const char from[] = "\n\t\r\f\v\a\b", to[] = "ntrfvab";
	const size_t length = printable(*p, *left);
	const char *special = **p ? strchr(from, **p) : NULL;

	if (**p == '\\' || **p == (uint8_t)quote) {
		text_addf(t, "\\%c", **p);
	} else if (length) {
		text_add_bytes(t, (const char *)*p, length);
		*p += length - 1;
		*left -= length - 1;
	} else if (special) {
		text_addf(t, "\\%c", to[special - from]);
	} else {
		text_addf(t, "\\x%02x", **p);
	}
	++*p;
	--*left;
}

void text_add_clean(struct text *t, const char *name)
{
	const uint8_t *p = (const uint8_t *)name;
	size_t left = strlen(name);

	while (left) {
		const size_t length = printable(p, left);

		text_add_bytes(t, length ? (const char *)p : "?", length ? length : 1);
		p += length ? length : 1;
		left -= length ? length : 1;
	}
}

void text_add_char(struct text *t, uint8_t byte)
{
	const uint8_t *p = &byte;
	size_t left = 1;

	text_add_bytes(t, "'", 1);
	add_character(t, &p, &left, '\'');
	text_add_bytes(t, "'", 1);
}

void text_add_quoted(struct text *t, const uint8_t *bytes, size_t length)
{
	text_add_bytes(t, "\"", 1);
	while (length)
		add_character(t, &bytes, &length, '"');
	text_add_bytes(t, "\"", 1);
}

void text_add_duration(struct text *t, uint64_t ns)
{
	static const struct {
		uint64_t ns;
		const char *unit;
	} units[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		const double value = (double)ns / (double)units[i].ns;

		if (ns < units[i].ns)
			continue;
		text_addf(t, "%.*f %s",
			  value < 10	 ? 3
			  : value < 100	 ? 2
			  : value < 1000 ? 1
					 : 0,
			  value, units[i].unit);
		return;
	}
	text_addf(t, "%" PRIu64 " ns", ns);
}

bool looks_like_text(const uint8_t *bytes, size_t length)
{
	size_t i = 0, one;

	while (i < length) {
		/* The last character may be cut. */
		one = bytes[i] == '\n' || bytes[i] == '\t' || bytes[i] == '\r'
			      ? 1
			      : printable(bytes + i, length - i);
		if (!one)
			return length - i < 4 && bytes[i] >= 0xc2 && i > 1;
		i += one;
	}
	return length > 1;
}
