/* SPDX-License-Identifier: MIT */
/*
 * complete.h - what a word could become, at the prompt and in shells.
 *
 *   complete.c          which kind of word stands where, by the table of commands
 *   complete_offers.c   the words of each kind
 *
 * Errors mean: no candidates. A daemon is asked, but none is started.
 */
#ifndef DINST_DAEMON_COMPLETE_H
#define DINST_DAEMON_COMPLETE_H

#include "daemon/client/command.h"

enum { COMPLETION_MAX = 256, COMPLETIONS_MAX = 200 };

struct completion {
	char *name[COMPLETIONS_MAX];  /* whole words, sorted as they were found */
	char *about[COMPLETIONS_MAX]; /* a few words about each; may be NULL */
	size_t count;
	size_t typed; /* bytes of the word that are there already */
	bool more;    /* there are further ones */
	bool open;    /* a single one is not a whole word yet (/Code/module/) */
	bool files;   /* names of files are meant, which shells know better */
};

/* Finds what the word before `cursor` could be. */
void complete_line(struct context *c, const char *line, size_t cursor, struct completion *found);
/* The same for words that are cut already: the last one is being typed, and may be empty. */
void complete_words(struct context *c, char **word, int count, struct completion *found);
void completion_release(struct completion *found);
/* Bytes that all candidates have in common; 0 without any. */
size_t completion_common(const struct completion *found);

/*
 * dinst --complete WORD...: the candidates for the last WORD, one a line, "NAME" or
 * "NAME<tab>ABOUT"; a name that ends in '/' goes on. A line ":files" stands for names of files.
 * Gives up silently after two seconds.
 */
int complete_run(struct context *c, int count, char **word);

/* -------------------------------------------------------- complete_offers.c */

/* Adds head + name if it begins with what was typed. */
void offer(struct completion *found, const char *typed, const char *head, const char *name,
	   const char *about);
void offer_commands(struct completion *found, const char *typed);
void offer_options(struct completion *found, const char *typed, const struct option_spec *specs);
void offer_sessions(struct context *c, struct completion *found, const char *typed);
/* Sessions, then processes: names, or pids where a digit was typed. */
void offer_targets(struct context *c, struct completion *found, const char *typed);
void offer_modules(struct context *c, struct completion *found, const char *typed);
/* NAME, MODULE:NAME or a resource name. */
void offer_functions(struct context *c, struct completion *found, const char *typed);
void offer_resources(struct context *c, struct completion *found, const char *typed);
void offer_metrics(struct context *c, struct completion *found, const char *typed);
/* Of what `method` lists: "read" or "history". */
void offer_ids(struct context *c, struct completion *found, const char *typed, const char *method);
/* The words of a list such as "thread|caller|arg0". */
void offer_list(struct completion *found, const char *typed, const char *list);

#endif
