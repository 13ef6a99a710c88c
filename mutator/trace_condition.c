/* SPDX-License-Identifier: MIT */
/*
 * trace_condition.c - what people write behind --if, as MDL. Only names of arguments are
 * looked at here; whether the rest means anything the compiler of MDL says.
 */
#include "mutator/trace_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* The length of the string that begins here, quotes included. */
static size_t string_length(const char *p)
{
	size_t n = 1;

	while (p[n] && p[n] != '"')
		n += p[n] == '\\' && p[n + 1] ? 2 : 1;
	return p[n] ? n + 1 : n;
}

/* The length of the word, number or string at p, or 1. */
static size_t token_length(const char *p)
{
	size_t n = *p == '$';

	if (*p == '"')
		return string_length(p);
	while (is_word(p[n]))
		n++;
	return n ? n : 1;
}

static bool is_name(const char *p)
{
	return isalpha((unsigned char)*p) || *p == '_';
}

bool trace_is_late(const char *condition)
{
	for (const char *p = condition; p && *p; p += token_length(p)) {
		const size_t n = token_length(p);

		if ((n == 7 && !strncmp(p, "$return", n)) || (n == 8 && !strncmp(p, "$elapsed", n)))
			return true;
	}
	return false;
}

/* The number of an argument by its name; -1: there is none. */
static int argument_named(const json_t *described, const char *name, size_t length)
{
	size_t i;
	json_t *argument;

	json_array_foreach(json_object_get(described, "arguments"), i, argument)
	{
		const char *known = json_string_value(json_object_get(argument, "name"));

		if (known && strlen(known) == length && !strncmp(known, name, length))
			return (int)i;
	}
	return -1;
}

static int unknown_name(const char *name, size_t length, const char *function,
			const json_t *described, struct dinst_error *e)
{
	char known[400] = "";
	size_t i;
	json_t *argument;

	json_array_foreach(json_object_get(described, "arguments"), i, argument)
		snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%.60s",
			 i ? ", " : "", json_string_value(json_object_get(argument, "name")));
	if (!described)
		return dinst_fail(
			e, DINST_USAGE,
			"'%.*s': there is no debug information that names the arguments of "
			"%.120s; write $arg[0], $arg[1], ...",
			(int)(length < 60 ? length : 60), name, function);
	return dinst_fail(e, DINST_USAGE, "%.120s has no argument '%.*s'; it has %s", function,
			  (int)(length < 60 ? length : 60), name, known[0] ? known : "none");
}

int trace_condition_make(const char *condition, const char *function, const json_t *described,
			 char **out, struct dinst_error *e)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	bool member = false; /* what follows is one's name */
	int status = 0;

	if (!to)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (const char *p = condition; *p && status >= 0;) {
		const size_t n = token_length(p);
		const char *behind = p + n + strspn(p + n, " \t");
		int number;

		if (!strncmp(p, "->", 2)) {
			fputc('.', to);
			member = true;
			p += 2;
			continue;
		}
		number = is_name(p) && !member && *behind != '(' ? argument_named(described, p, n)
								 : -2;
		if (number >= 0)
			fprintf(to, "$arg[%d]", number);
		else if (number == -1)
			status = unknown_name(p, n, function, described, e);
		else
			fwrite(p, 1, n, to);
		if (*p != ' ' && *p != '\t')
			member = *p == '.';
		p += n;
	}
	if (fclose(to) != 0 && status >= 0)
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	if (status < 0)
		free(text);
	else
		*out = text;
	return status;
}

/* The length of a use of an argument, "$arg[0].next[1].x"; 0: there is none here. */
static size_t use_length(const char *p)
{
	size_t n = 4, more;

	if (strncmp(p, "$arg", 4) != 0 || p[4] != '[')
		return 0;
	for (;;) {
		if (p[n] == '[' && (more = strspn(p + n + 1, "0123456789")) &&
		    p[n + 1 + more] == ']')
			n += more + 2;
		else if (p[n] == '.' && is_name(p + n + 1))
			n += 1 + token_length(p + n + 1);
		else
			return n;
	}
}

enum { SAVES_MOST = 16 };

int trace_condition_save(const char *condition, const char *prefix, char **replaced, char **saves,
			 size_t *count, struct dinst_error *e)
{
	struct {
		const char *at;
		size_t length;
	} uses[SAVES_MOST];
	char *text = NULL, *kept = NULL;
	size_t text_size, kept_size, i, n;
	FILE *to = open_memstream(&text, &text_size), *save = open_memstream(&kept, &kept_size);
	int status = to && save ? 0 : dinst_fail(e, DINST_NO_MEMORY, "out of memory");

	*count = 0;
	for (const char *p = condition; status >= 0 && *p; p += n) {
		n = use_length(p);
		if (!n) {
			n = token_length(p);
			fwrite(p, 1, n, to);
			continue;
		}
		for (i = 0; i < *count; i++)
			if (uses[i].length == n && !strncmp(uses[i].at, p, n))
				break;
		if (i == SAVES_MOST) {
			status = dinst_fail(e, DINST_USAGE,
					    "the condition uses more than %d arguments and members",
					    SAVES_MOST);
			break;
		}
		if (i == *count) {
			uses[i].at = p;
			uses[i].length = n;
			(*count)++;
			fprintf(save, "%s%zu = %.*s; ", prefix, i, (int)n, p);
		}
		fprintf(to, "%s%zu", prefix, i);
	}
	if (to && fclose(to) != 0 && status >= 0)
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	if (save && fclose(save) != 0 && status >= 0)
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	if (status < 0) {
		free(text);
		free(kept);
		return status;
	}
	*replaced = text;
	*saves = kept;
	return 0;
}
