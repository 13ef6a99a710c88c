/* SPDX-License-Identifier: MIT */
/*
 * lines.c - cutting a stream of bytes into lines, with a limit.
 *
 * Owns one growing buffer per stream. Never reads or writes a descriptor, and
 * never holds more than the limit and one read.
 */
#include "daemon/common/lines.h"

#include <stdlib.h>
#include <string.h>

enum {
	LINES_CHUNK = 16 * 1024, /* least room offered to a read */
	LINES_KEEP = 256 * 1024, /* an empty buffer larger than this is given back */
};

void lines_init(struct lines *l, size_t limit)
{
	memset(l, 0, sizeof(*l));
	l->limit = limit;
}

void lines_release(struct lines *l)
{
	free(l->data);
	memset(l, 0, sizeof(*l));
}

/* Moves what is left to the front, so that room is found behind it. */
static void lines_compact(struct lines *l)
{
	if (l->start == 0)
		return;
	l->used -= l->start;
	l->scanned -= l->start;
	if (l->used > 0)
		memmove(l->data, l->data + l->start, l->used);
	l->start = 0;
	if (l->used == 0 && l->size > LINES_KEEP) {
		free(l->data);
		l->data = NULL;
		l->size = 0;
	}
}

size_t lines_room(struct lines *l, char **to)
{
	lines_compact(l);
	if (l->size - l->used < LINES_CHUNK) {
		size_t size = l->size ? l->size * 2 : (size_t)2 * LINES_CHUNK;
		char *data = realloc(l->data, size);

		if (!data) {
			if (l->size == l->used)
				return 0;
		} else {
			l->data = data;
			l->size = size;
		}
	}
	*to = l->data + l->used;
	return l->size - l->used;
}

void lines_added(struct lines *l, size_t count)
{
	l->used += count;
}

enum lines_result lines_next(struct lines *l, char **line, size_t *length)
{
	char *end = NULL;

	if (l->used > l->scanned)
		end = memchr(l->data + l->scanned, '\n', l->used - l->scanned);
	if (!end) {
		l->scanned = l->used;
		if (l->skipping) {
			l->start = l->used;
			return LINES_MORE;
		}
		if (l->used - l->start <= l->limit)
			return LINES_MORE;
		l->skipping = 1;
		l->start = l->used;
		return LINES_TOO_LONG;
	}
	*line = l->data + l->start;
	*length = (size_t)(end - *line);
	*end = '\0';
	l->start = l->scanned = (size_t)(end - l->data) + 1;
	if (l->skipping) {
		/* the tail of a line that was reported already */
		l->skipping = 0;
		return lines_next(l, line, length);
	}
	return *length > l->limit ? LINES_TOO_LONG : LINES_LINE;
}

int lines_partial(const struct lines *l)
{
	return l->skipping || l->used > l->start;
}
