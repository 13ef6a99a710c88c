/* SPDX-License-Identifier: MIT */
/*
 * complete.h - what a word of the prompt could become.
 */
#ifndef DINST_DAEMON_COMPLETE_H
#define DINST_DAEMON_COMPLETE_H

#include "daemon/client/command.h"

enum { COMPLETION_MAX = 256, COMPLETIONS_MAX = 100 };

struct completion {
	char *name[COMPLETIONS_MAX]; /* whole words, sorted as they were found */
	size_t count;
	size_t typed; /* bytes of the word that are there already */
	bool more;    /* there are further ones */
	bool open;    /* a single one is not a whole word yet (/Code/module/) */
};

/* Finds what the word before `cursor` could be. Asks the daemon, but starts none. */
void complete_line(struct context *c, const char *line, size_t cursor, struct completion *found);
void completion_release(struct completion *found);
/* Bytes that all candidates have in common; 0 without any. */
size_t completion_common(const struct completion *found);

#endif
