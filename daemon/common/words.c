/* SPDX-License-Identifier: MIT */
/*
 * words.c - a line of a script, cut into words as a simple shell would.
 *
 * Owns the quoting rules of `run`, -x, -e and the prompt. Never expands anything.
 */
#include "daemon/common/words.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Copies one word from *from to `to`, without its quotes. */
static int copy_word(const char **from, char *to, struct dinst_error *e)
{
	const char *p = *from;
	char quote = 0;

	for (; *p && (quote || !blank(*p)); p++) {
		if (quote ? *p == quote : (*p == '\'' || *p == '"')) {
			quote = quote ? 0 : *p;
		} else if (*p == '\\' && quote != '\'') {
			if (!p[1])
				return dinst_fail(e, DINST_USAGE,
						  "a backslash at the end of the line");
			/* between "..", only \" and \\ lose the backslash */
			if (quote && p[1] != '"' && p[1] != '\\')
				*to++ = *p;
			*to++ = *++p;
		} else {
			*to++ = *p;
		}
	}
	*to = '\0';
	*from = p;
	if (quote)
		return dinst_fail(e, DINST_USAGE, "a %c quote is not closed", quote);
	return 0;
}

static int append(struct words *w, char *word, struct dinst_error *e)
{
	char **more = realloc(w->word, ((size_t)w->count + 2) * sizeof(*more));

	if (!more)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the words of a line");
	w->word = more;
	w->word[w->count++] = word;
	w->word[w->count] = NULL;
	return 0;
}

int words_split(const char *line, struct words *w, struct dinst_error *e)
{
	char *text = malloc(strlen(line) + 1);
	int err = 0;

	w->count = 0;
	w->word = calloc(1, sizeof(*w->word));
	if (!text || !w->word)
		err = dinst_fail(e, DINST_NO_MEMORY, "no memory for the words of a line");
	while (!err) {
		char *word;

		while (blank(*line))
			line++;
		if (!*line || *line == '#')
			break;
		err = copy_word(&line, text, e);
		if (err)
			break;
		word = strdup(text);
		if (!word)
			err = dinst_fail(e, DINST_NO_MEMORY, "no memory for the words of a line");
		else if ((err = append(w, word, e)) != 0)
			free(word);
	}
	free(text);
	if (err)
		words_release(w);
	return err;
}

void words_release(struct words *w)
{
	for (int i = 0; i < w->count; i++)
		free(w->word[i]);
	free(w->word);
	w->word = NULL;
	w->count = 0;
}
