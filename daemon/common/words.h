/* SPDX-License-Identifier: MIT */
/*
 * words.h - a line of a script, cut into words as a simple shell would.
 */
#ifndef DINST_DAEMON_WORDS_H
#define DINST_DAEMON_WORDS_H

#include "inject/error.h"

struct words {
	int count;
	char **word; /* count words and a NULL */
};

/*
 * Cuts `line`: blanks separate, '..' quotes everything, ".." everything but
 * backslash before " and backslash, a backslash the next character, # at the
 * beginning of a word starts a comment. Nothing else is special: globs stay as they are.
 * Returns 0, or DINST_USAGE for a quote that is not closed.
 */
int words_split(const char *line, struct words *w, struct dinst_error *e);
void words_release(struct words *w);

#endif
