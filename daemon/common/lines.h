/* SPDX-License-Identifier: MIT */
/*
 * lines.h - cutting a stream of bytes into lines, with a limit.
 *
 * Calling sequence: lines_init(); then lines_room() for where to read to,
 * lines_added() for how much came, and lines_next() until it has no more; at
 * the end lines_release(). A line that is longer than the limit is dropped up
 * to its newline and reported once; what follows is read as usual.
 */
#ifndef DINST_DAEMON_LINES_H
#define DINST_DAEMON_LINES_H

#include <stddef.h>

struct lines {
	char *data;
	size_t size;	/* bytes allocated */
	size_t start;	/* first byte not handed out */
	size_t used;	/* end of what was read */
	size_t scanned; /* no newline before this */
	size_t limit;	/* longest line, without its newline */
	int skipping;	/* dropping the rest of a line that was too long */
};

enum lines_result {
	LINES_MORE = 0,	     /* no whole line yet */
	LINES_LINE = 1,	     /* *line and *length are set */
	LINES_TOO_LONG = -1, /* a line was dropped */
};

void lines_init(struct lines *l, size_t limit);
void lines_release(struct lines *l);

/* Where the next bytes go; returns how many fit (at least 1), 0 without memory. */
size_t lines_room(struct lines *l, char **to);
void lines_added(struct lines *l, size_t count);

/*
 * The next line, its newline replaced by a zero byte (a line may hold further
 * zero bytes). It is valid until the next lines_room().
 */
enum lines_result lines_next(struct lines *l, char **line, size_t *length);

/* True while there is the beginning of a line that has not ended. */
int lines_partial(const struct lines *l);

#endif
