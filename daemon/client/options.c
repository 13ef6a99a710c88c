/* SPDX-License-Identifier: MIT */
/*
 * options.c - the words of a command, told apart into options and arguments.
 *
 * Owns the syntax of options. Never acts on them.
 */
#include "daemon/client/options.h"

#include <string.h>

const struct option_spec global_options[] = {
	{OPTION_JSON, "json", NULL, "one JSON object per result line"},
	{'q', "quiet", NULL, "no notes and no progress"},
	{'v', "verbose", NULL, "more columns and notes"},
	{'p', "target", "TARGET", "a session, a pid or a process name"},
	{'h', "help", NULL, "this text"},
	{0, NULL, NULL, NULL},
};

static const struct option_spec *find_long(const struct option_spec *specs, const char *name,
					   size_t length)
{
	for (; specs && specs->letter; specs++)
		if (specs->name && strlen(specs->name) == length &&
		    strncmp(specs->name, name, length) == 0)
			return specs;
	return NULL;
}

static const struct option_spec *find_short(const struct option_spec *specs, char letter)
{
	for (; specs && specs->letter; specs++)
		if (specs->letter == letter && letter > ' ')
			return specs;
	return NULL;
}

static int keep(struct arguments *a, const struct option_spec *spec, const char *value,
		struct dinst_error *e)
{
	if (a->given_count == OPTIONS_MAX)
		return dinst_fail(e, DINST_USAGE, "more than %d options", OPTIONS_MAX);
	a->given[a->given_count].letter = spec->letter;
	a->given[a->given_count++].value = value ? value : "";
	return 0;
}

/* --name, --name=value, --name value. Returns how many words it took, or an error. */
static int parse_long(struct arguments *a, char **argv, int left, const struct option_spec *specs,
		      struct dinst_error *e)
{
	const char *name = argv[0] + 2;
	size_t length = strcspn(name, "=");
	const struct option_spec *spec = find_long(specs, name, length);
	const char *value = name[length] ? name + length + 1 : NULL;
	int err;

	if (!spec)
		spec = find_long(global_options, name, length);
	if (!spec)
		return dinst_fail(e, DINST_USAGE, "there is no option --%.*s here", (int)length,
				  name);
	if (!spec->value && value)
		return dinst_fail(e, DINST_USAGE, "--%s takes no value", spec->name);
	if (!option_wants(spec) || value) {
		err = keep(a, spec, value, e);
		return err ? err : 1;
	}
	if (left < 2)
		return dinst_fail(e, DINST_USAGE, "--%s needs a %s", spec->name, spec->value);
	err = keep(a, spec, argv[1], e);
	return err ? err : 2;
}

/* -q, -qv, -nNAME, -n NAME. */
static int parse_short(struct arguments *a, char **argv, int left, const struct option_spec *specs,
		       struct dinst_error *e)
{
	int err;

	for (const char *p = argv[0] + 1; *p; p++) {
		const struct option_spec *spec = find_short(specs, *p);

		if (!spec)
			spec = find_short(global_options, *p);
		if (!spec)
			return dinst_fail(e, DINST_USAGE, "there is no option -%c here", *p);
		if (!spec->value) {
			err = keep(a, spec, NULL, e);
			if (err)
				return err;
			continue;
		}
		if (p[1]) {
			err = keep(a, spec, p + 1, e);
			return err ? err : 1;
		}
		if (left < 2)
			return dinst_fail(e, DINST_USAGE, "-%c needs a %s", *p, spec->value);
		err = keep(a, spec, argv[1], e);
		return err ? err : 2;
	}
	return 1;
}

int arguments_parse(struct arguments *a, int argc, char **argv, const struct option_spec *specs,
		    bool first_word_ends, struct dinst_error *e)
{
	bool ended = false;
	int words = 0;

	memset(a, 0, sizeof(*a));
	for (int i = 0; i < argc;) {
		char *word = argv[i];
		int took;

		if (ended || word[0] != '-' || !word[1]) {
			ended = ended || first_word_ends;
			argv[words++] = word;
			i++;
			continue;
		}
		if (strcmp(word, "--") == 0) {
			ended = true;
			i++;
			continue;
		}
		took = word[1] == '-' ? parse_long(a, argv + i, argc - i, specs, e)
				      : parse_short(a, argv + i, argc - i, specs, e);
		if (took < 0)
			return took;
		i += took;
	}
	/* what was behind the last argument is none: exec hands the words on */
	if (words < argc)
		argv[words] = NULL;
	a->word = argv;
	a->word_count = words;
	return 0;
}

const char *arguments_get(const struct arguments *a, char letter)
{
	for (int i = a->given_count; i > 0; i--)
		if (a->given[i - 1].letter == letter)
			return a->given[i - 1].value;
	return NULL;
}
