/* SPDX-License-Identifier: MIT */
/*
 * options.h - the words of a command, told apart into options and arguments.
 *
 * Every command has a table of its options; the global ones (--json -q -v -p -h)
 * may stand before or after the command. `--` ends the options. Nothing is
 * copied: the results point into argv.
 */
#ifndef DINST_DAEMON_OPTIONS_H
#define DINST_DAEMON_OPTIONS_H

#include <stdbool.h>

#include "inject/error.h"

enum { OPTIONS_MAX = 64 };

struct option_spec {
	char letter;	   /* as it is looked up; below ' ' where there is no short form */
	const char *name;  /* long form without dashes; NULL if there is none */
	const char *value; /* what it takes, for the help; NULL: a switch; "[=N]": may take it */
	const char *help;
};

struct option_given {
	char letter;
	const char *value; /* "" for a switch */
};

struct arguments {
	struct option_given given[OPTIONS_MAX]; /* in their order */
	int given_count;
	char **word; /* what is no option; a NULL behind them */
	int word_count;
};

extern const struct option_spec global_options[]; /* ends with letter 0 */

/* True if the next word is its value, where that is not behind a '='. */
static inline bool option_wants(const struct option_spec *spec)
{
	return spec->value && spec->value[0] != '[';
}

enum {
	OPTION_JSON = 1,
	OPTION_SUMMARY,
	OPTION_EACH,
	OPTION_ALL,
	OPTION_WAIT,
	OPTION_VERSION,
	OPTION_KINDS,
	OPTION_DOT,
	OPTION_CHECK,
	OPTION_LIMIT,
	OPTION_FILTER,
	OPTION_COST
};

/*
 * Takes argv[0..argc) apart by `specs` (ends with letter 0; may be NULL) and
 * the global options; argv[argc] is NULL. `first_word_ends`: options end at the first argument
 * that is none. argv is reordered: the arguments come to stand at word[0..).
 * Returns 0 or DINST_USAGE.
 */
int arguments_parse(struct arguments *a, int argc, char **argv, const struct option_spec *specs,
		    bool first_word_ends, struct dinst_error *e);

/* The value given last; NULL if the option was not given. */
const char *arguments_get(const struct arguments *a, char letter);

#endif
