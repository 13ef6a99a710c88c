/* SPDX-License-Identifier: MIT */
/*
 * messages.c - errors of texts: where, what, the line itself and a caret.
 *
 * Owns what a message looks like. Texts may hold anything: what is shown of them
 * is printable, and at most a screen's width of it.
 */
#include <stdarg.h>

#include "mutator/mdl/private.h"

#include <stdio.h>
#include <string.h>

enum {
	SHOWN_WIDTH = 96,  /* bytes of a line that are shown */
	SHOWN_BEFORE = 64, /* of them before the caret, at most */
	MESSAGE_MOST = 1024,
	MORE_ROOM = 48, /* is kept for "and N more errors" */
};

void messages_init(struct messages *m, char *text, size_t room)
{
	memset(m, 0, sizeof(*m));
	m->text = text;
	m->room = room;
	if (room)
		text[0] = '\0';
}

/* ---------------------------------------------------------- the line shown */

/* How many bytes the UTF-8 character at text has; 0 if it is none. RFC 3629, section 4. */
static size_t character_size(const unsigned char *text, size_t left)
{
	static const struct {
		unsigned char first, last, second_first, second_last;
		size_t size;
	} shapes[] = {
		{0x20, 0x7e, 0, 0, 1},	     {0xc2, 0xdf, 0x80, 0xbf, 2},
		{0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
		{0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
		{0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
		{0xf4, 0xf4, 0x80, 0x8f, 4},
	};

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		if (text[0] < shapes[i].first || text[0] > shapes[i].last)
			continue;
		if (shapes[i].size > left)
			return 0;
		if (shapes[i].size > 1 &&
		    (text[1] < shapes[i].second_first || text[1] > shapes[i].second_last))
			return 0;
		for (size_t k = 2; k < shapes[i].size; k++)
			if ((text[k] & 0xc0) != 0x80)
				return 0;
		return shapes[i].size;
	}
	return 0;
}

struct line_text {
	char text[MESSAGE_MOST];
	size_t used;
};

static void put(struct line_text *t, const char *bytes, size_t size)
{
	if (size >= sizeof(t->text) - t->used)
		size = sizeof(t->text) - 1 - t->used;
	memcpy(t->text + t->used, bytes, size);
	t->used += size;
	t->text[t->used] = '\0';
}

/* Printable text of bytes[0..size); returns how many columns it takes. */
static size_t put_printable(struct line_text *t, const char *bytes, size_t size)
{
	size_t columns = 0, n;

	for (size_t at = 0; at < size; at += n, columns++) {
		n = character_size((const unsigned char *)bytes + at, size - at);
		if (n) {
			put(t, bytes + at, n);
			continue;
		}
		n = 1;
		put(t, bytes[at] == '\t' ? " " : "?", 1);
	}
	return columns;
}

/* Line `line` of the text, without its end; false if there is none. */
static bool find_line(const struct source *s, uint32_t line, const char **start, size_t *size)
{
	const char *at = s->text, *end = s->text + s->size, *newline;

	for (; line > 1; line--) {
		newline = memchr(at, '\n', (size_t)(end - at));
		if (!newline)
			return false;
		at = newline + 1;
	}
	newline = memchr(at, '\n', (size_t)(end - at));
	*start = at;
	*size = (size_t)((newline ? newline : end) - at);
	if (*size && at[*size - 1] == '\r')
		--*size;
	return true;
}

/* A start or end inside of a character moves to its first byte. */
static size_t whole(const char *line, size_t size, size_t at)
{
	for (int i = 0; i < 3 && at > 0 && at < size && ((unsigned char)line[at] & 0xc0) == 0x80;
	     i++)
		at--;
	return at;
}

static void put_line(struct line_text *t, const struct source *s, const struct mdl_place *place)
{
	const char *line;
	size_t size, caret, from, to, columns = 0;

	if (!s || !find_line(s, place->line, &line, &size))
		return;
	caret = place->column ? place->column - 1 : 0;
	if (caret > size)
		caret = size;
	from = caret > SHOWN_BEFORE ? whole(line, size, caret - SHOWN_BEFORE) : 0;
	to = size - from > SHOWN_WIDTH ? whole(line, size, from + SHOWN_WIDTH) : size;
	put(t, "\n    ", 5);
	if (from) {
		put(t, "...", 3);
		columns = 3;
	}
	columns += put_printable(t, line + from, caret - from);
	put_printable(t, line + caret, to - caret);
	if (to < size)
		put(t, "...", 3);
	put(t, "\n    ", 5);
	for (size_t i = 0; i < columns; i++)
		put(t, " ", 1);
	put(t, "^", 1);
}

/* --------------------------------------------------------------- messages */

void messages_add_list(struct messages *m, const struct source *source,
		       const struct mdl_place *place, const char *format, va_list args)
{
	char head[320], what[MESSAGE_MOST / 2];
	struct line_text t = {.used = 0};

	m->count++;
	/* finding lines of a large text over and over would take its time */
	if (m->left_out) {
		m->left_out++;
		return;
	}
	snprintf(head, sizeof(head), "%.240s:%u:%u: ", place->file ? place->file : "?", place->line,
		 place->column);
	if (vsnprintf(what, sizeof(what), format, args) < 0)
		snprintf(what, sizeof(what), "error");
	put_printable(&t, head, strlen(head));
	put_printable(&t, what, strlen(what));
	put_line(&t, source, place);
	if (m->used + 1 + t.used + MORE_ROOM >= m->room) {
		/* one alone is shown as far as there is room */
		if (m->used || m->room <= 1) {
			m->left_out++;
			return;
		}
		if (t.used >= m->room)
			t.used = m->room - 1;
	}
	if (m->used)
		m->text[m->used++] = '\n';
	memcpy(m->text + m->used, t.text, t.used);
	m->used += t.used;
	m->text[m->used] = '\0';
}

void messages_add(struct messages *m, const struct source *source, const struct mdl_place *place,
		  const char *format, ...)
{
	va_list args;

	va_start(args, format);
	messages_add_list(m, source, place, format, args);
	va_end(args);
}

void messages_end(struct messages *m)
{
	bool given_up = m->count >= ERRORS_MOST;

	if (m->left_out && m->used < m->room)
		snprintf(m->text + m->used, m->room - m->used, "\nand %s%u more error%s",
			 given_up ? "at least " : "", m->left_out, m->left_out == 1 ? "" : "s");
}

void parser_error(struct parser *p, const struct mdl_place *place, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	messages_add_list(&p->messages, p->source, place, format, args);
	va_end(args);
	if (p->messages.count >= ERRORS_MOST && !p->failed)
		p->failed = DINST_USAGE;
}
