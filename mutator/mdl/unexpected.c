/* SPDX-License-Identifier: MIT */
/*
 * unexpected.c - what is said where a text breaks the grammar.
 *
 * Owns the words for it: what stands there, what could, and which keyword may
 * have been meant. The parser says which tokens could have followed.
 */
#include "mutator/mdl/private.h"
#include "mutator/mdl/parser.h"

#include <stdio.h>
#include <string.h>

enum { FOUND_SHOWN = 40, EXPECTED_SHOWN = 5, WORD_ROOM = 64 };

struct expected {
	const char *const *names;
	size_t count;
};

static bool has(const struct expected *x, const char *name)
{
	for (size_t i = 0; i < x->count; i++)
		if (strcmp(x->names[i], name) == 0)
			return true;
	return false;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Keywords are called what they are; all other tokens have a quote or a blank in their names. */
static bool is_keyword(const char *name)
{
	return is_letter(name[0]) && !strchr(name, ' ');
}

/* What stands at `place`, the last word that was read. */
static void found_text(const struct parser *p, const struct mdl_place *place, char *text,
		       size_t size)
{
	const char *at = p->source->text, *end = at + p->source->size, *newline;
	size_t length;

	text[0] = '\0';
	for (uint32_t line = 1; line < place->line; line++) {
		newline = memchr(at, '\n', (size_t)(end - at));
		if (!newline)
			return;
		at = newline + 1;
	}
	if (place->column - 1 > (size_t)(end - at))
		return;
	at += place->column - 1;
	newline = memchr(at, '\n', (size_t)(end - at));
	length = (size_t)((newline ? newline : end) - at);
	if (p->last_end.line == place->line && p->last_end.column - place->column < length)
		length = p->last_end.column - place->column;
	snprintf(text, size, "%.*s%s", (int)(length > FOUND_SHOWN ? FOUND_SHOWN : length), at,
		 length > FOUND_SHOWN ? "..." : "");
}

/* Of what could follow, what is worth naming. */
static void list_expected(const struct expected *x, char *text, size_t size)
{
	static const char *const worthy[] = {"';'",
					     "')'",
					     "']'",
					     "'{'",
					     "'}'",
					     "'(*'",
					     "'*)'",
					     "','",
					     "':'",
					     "'('",
					     "a string",
					     "a number",
					     "a path like /Code/*"};
	const char *chosen[EXPECTED_SHOWN];
	size_t count = 0, used = 0;
	bool names = has(x, "a name");

	if (names)
		chosen[count++] = "a name";
	for (size_t i = 0; i < sizeof(worthy) / sizeof(worthy[0]); i++) {
		/* '(' follows any name */
		if (count < EXPECTED_SHOWN && has(x, worthy[i]) &&
		    (strcmp(worthy[i], "'('") != 0 || x->count == 1))
			chosen[count++] = worthy[i];
	}
	for (size_t i = 0; i < x->count && !names; i++)
		if (count < EXPECTED_SHOWN && is_keyword(x->names[i]))
			chosen[count++] = x->names[i];
	text[0] = '\0';
	for (size_t i = 0; i < count && used < size; i++) {
		const char *quote = is_keyword(chosen[i]) ? "'" : "";
		int n = snprintf(text + used, size - used, "%s%s%s%s",
				 !i		  ? ""
				 : i + 1 == count ? " or "
						  : ", ",
				 quote, chosen[i], quote);

		if (n < 0)
			break;
		used += (size_t)n;
	}
}

static void say_expected(const struct expected *x, char *text, size_t size)
{
	if (has(x, "metric") && !has(x, "a name"))
		snprintf(text, size, "a metric, constraint, list or statement");
	else if (has(x, "base") && !has(x, "a name"))
		snprintf(text, size, "'base', or another attribute, or '}'");
	else if (has(x, "append"))
		snprintf(text, size, "a statement%s", has(x, "'}'") ? " or '}'" : "");
	else if (has(x, "a $name"))
		snprintf(text, size, "%s%s",
			 has(x, "if") ? "an expression, 'if' or '{'" : "an expression",
			 has(x, "'*)'")	 ? ", or '*)'"
			 : has(x, "'}'") ? ", or '}'"
			 : has(x, "')'") ? " or ')'"
					 : "");
	else
		list_expected(x, text, size);
}

/* The keyword that could stand here and was perhaps meant. */
static const char *meant_keyword(const struct expected *x, const char *found)
{
	const char *candidates[64];
	size_t count = 0;

	if (!is_letter(found[0]))
		return NULL;
	for (size_t i = 0; i < x->count && count < sizeof(candidates) / sizeof(*candidates); i++)
		if (is_keyword(x->names[i]))
			candidates[count++] = x->names[i];
	return mdl_nearest(found, candidates, count);
}

static void say_end(struct parser *p, const struct mdl_place *place, const char *expected)
{
	unsigned open = p->open_count < OPEN_MOST ? p->open_count : OPEN_MOST;

	if (open)
		parser_error(p, place, "the text ends here; the '{' of line %u is not closed",
			     p->open[open - 1].line);
	else
		parser_error(p, place, "the text ends here; expected %s", expected);
}

void unexpected(struct parser *p, const struct mdl_place *place, bool at_end,
		const char *const *names, size_t count)
{
	struct expected x = {names, count};
	char found[FOUND_SHOWN + 8], expected[256];
	const char *meant;

	/* what was no word has been told already */
	if (p->lexical)
		return;
	/* it will only be counted */
	if (p->messages.left_out) {
		parser_error(p, place, "unexpected");
		return;
	}
	say_expected(&x, expected, sizeof(expected));
	/* what is missing is missing behind the last word, not in front of the next line's */
	if (has(&x, "';'") && !has(&x, "a name") && p->before_end.line < place->line &&
	    p->before_end.line) {
		parser_error(p, &p->before_end, "';' is missing here");
		return;
	}
	if (at_end) {
		say_end(p, place, expected);
		return;
	}
	found_text(p, place, found, sizeof(found));
	meant = meant_keyword(&x, found);
	if (meant)
		parser_error(p, place, "unexpected '%s'; did you mean '%s'?", found, meant);
	else if (strcmp(found, "++") == 0 || strcmp(found, "--") == 0)
		parser_error(p, place, "'%s' stands behind its variable", found);
	else if (strcmp(found, ";") == 0 && p->before_token == CLOSE)
		parser_error(p, place, "no ';' goes behind '*)'");
	else
		parser_error(p, place, "unexpected '%s'; expected %s", found, expected);
}
