/* SPDX-License-Identifier: MIT */
/*
 * words.c - keywords, numbers and strings.
 *
 * Owns the list of keywords, which are names as well wherever a name is wanted
 * (parser.y; behind a dot all of them), and the escapes of strings.
 */
#include "mutator/mdl/private.h"
#include "mutator/mdl/parser.h"
#include "mutator/mdl/words.h"

#include <stdlib.h>
#include <string.h>

static const struct keyword {
	const char *word;
	int token;
} keywords[] = {
	{"aggregateOperator", AGGREGATE_OPERATOR},
	{"append", APPEND},
	{"base", BASE},
	{"constrained", CONSTRAINED},
	{"constraint", CONSTRAINT},
	{"counter", COUNTER},
	{"default", DEFAULT},
	{"description", DESCRIPTION},
	{"distribution", DISTRIBUTION},
	{"else", ELSE},
	{"exclusive", EXCLUSIVE},
	{"flavor", FLAVOR},
	{"foreach", FOREACH},
	{"if", IF},
	{"in", IN},
	{"inclusive", INCLUSIVE},
	{"is", IS},
	{"items", ITEMS},
	{"library", LIBRARY},
	{"list", LIST},
	{"metric", METRIC},
	{"mode", MODE},
	{"name", NAME},
	{"postInsn", POST_INSN},
	{"preInsn", PRE_INSN},
	{"prepend", PREPEND},
	{"processTimer", PROCESS_TIMER},
	{"replace", REPLACE},
	{"resourceList", RESOURCE_LIST},
	{"stream", STREAM},
	{"style", STYLE},
	{"threadTimer", THREAD_TIMER},
	{"unconstrained", UNCONSTRAINED},
	{"units", UNITS},
	{"unitsType", UNITS_TYPE},
	{"void", VOID},
	{"wallTimer", WALL_TIMER},
};

enum { KEYWORD_COUNT = sizeof(keywords) / sizeof(keywords[0]) };

static int compare_keyword(const void *word, const void *entry)
{
	return strcmp(word, ((const struct keyword *)entry)->word);
}

const char *lexer_keyword(int token)
{
	for (size_t i = 0; i < KEYWORD_COUNT; i++)
		if (keywords[i].token == token)
			return keywords[i].word;
	return NULL;
}

int lexer_took(struct parser *p, int token)
{
	/* `constraint`, a name, perhaps an extent, a path; a variable called constraint has no name behind it */
	if (p->path_state == 1 && (token == ID || lexer_keyword(token)))
		p->path_state = 2;
	else if (p->path_state != 2 || (token != INCLUSIVE && token != EXCLUSIVE))
		p->path_state = token == CONSTRAINT;
	p->braces += token == '{';
	p->codes += token == OPEN;
	if (token == MDL_YYerror) {
		p->error_braces = p->braces;
		p->error_codes = p->codes;
	}
	p->before_token = p->last_token;
	p->last_token = token;
	p->before_end = p->last_end;
	p->last_end.file = p->source->file;
	p->last_end.line = p->line;
	p->last_end.column = p->column;
	return token;
}

bool lexer_wants_path(const struct parser *p)
{
	return p->path_state == 2;
}

bool lexer_behind_word(const struct parser *p)
{
	return p->last_token != 0 && p->last_end.line == p->comment.line &&
	       p->last_end.column == p->comment.column;
}

static int fail(struct parser *p, int code)
{
	p->failed = code;
	return lexer_took(p, MDL_YYerror);
}

int lexer_text(struct parser *p, MDL_YYSTYPE *value, int token, const char *text, size_t size)
{
	value->text = pool_copy(p->pool, text, size);
	return value->text ? lexer_took(p, token) : fail(p, DINST_NO_MEMORY);
}

int lexer_word(struct parser *p, MDL_YYSTYPE *value, const char *text, size_t size)
{
	const struct keyword *k;

	if (size > STRING_MOST)
		size = STRING_MOST;
	value->text = pool_copy(p->pool, text, size);
	if (!value->text)
		return fail(p, DINST_NO_MEMORY);
	/* Members are called what they are called. */
	if (p->last_token == '.')
		return lexer_took(p, ID);
	k = bsearch(value->text, keywords, KEYWORD_COUNT, sizeof(keywords[0]), compare_keyword);
	return lexer_took(p, k ? k->token : ID);
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return 99;
}

int lexer_number(struct parser *p, MDL_YYSTYPE *value, const struct mdl_place *place,
		 const char *text, size_t size)
{
	bool hex = size > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	uint64_t number = 0, base = hex ? 16 : 10;
	const char *why = NULL;

	if (size > 1 && text[0] == '0' && !hex)
		why = "a decimal number does not begin with 0, and a hexadecimal one with 0x";
	for (size_t i = hex ? 2 : 0; i < size && !why; i++) {
		uint64_t digit = (uint64_t)digit_value(text[i]);

		if (digit >= base)
			why = "this is neither a number nor a name";
		else if (number > (UINT64_MAX - digit) / base)
			why = "this number has more than 64 bits";
		else
			number = number * base + digit;
	}
	if (!why && !hex && number > INT64_MAX)
		why = "this number is too large: the largest is 9223372036854775807";
	if (why) {
		parser_error(p, place, "%s", why);
		return lexer_took(p, MDL_YYerror);
	}
	value->number = (int64_t)number;
	return lexer_took(p, INTEGER);
}

/*
 * The character of the escape at text (behind the backslash), and how many bytes
 * it took; 0 if there is no such escape. C11 6.4.4.4 without \u.
 */
static size_t escape(const char *text, size_t left, char *c)
{
	static const char letters[] = "abfnrtv\\\"'?", meant[] = "\a\b\f\n\r\t\v\\\"'?";
	const char *at = left ? memchr(letters, text[0], sizeof(letters) - 1) : NULL;
	unsigned number = 0;
	size_t n = 0;

	if (at) {
		*c = meant[at - letters];
		return 1;
	}
	if (left > 1 && text[0] == 'x') {
		for (n = 1; n < left && n < 3 && digit_value(text[n]) < 16; n++)
			number = number * 16 + (unsigned)digit_value(text[n]);
		*c = (char)number;
		return n > 1 ? n : 0;
	}
	for (; n < left && n < 3 && text[n] >= '0' && text[n] <= '7'; n++)
		number = number * 8 + (unsigned)(text[n] - '0');
	*c = (char)number;
	return number <= 255 ? n : 0;
}

int lexer_string(struct parser *p, MDL_YYSTYPE *value, const struct mdl_place *place,
		 const char *text, size_t size)
{
	struct mdl_place at = *place;
	char *to;

	text++;
	size -= 2;
	if (size > STRING_MOST) {
		parser_error(p, place, "this string is too long: the longest has %d bytes",
			     STRING_MOST);
		return lexer_took(p, MDL_YYerror);
	}
	to = pool_take(p->pool, size + 1);
	if (!to)
		return fail(p, DINST_NO_MEMORY);
	value->string = (struct joined){.text = to};
	for (size_t i = 0; i < size; i++) {
		size_t used;

		if (text[i] != '\\') {
			*to++ = text[i];
			continue;
		}
		used = escape(text + i + 1, size - i - 1, to);
		if (!used) {
			at.column = place->column + 1 + (uint32_t)i;
			parser_error(p, &at,
				     "there is no such escape; there are those of C: \\n \\t \\\\ "
				     "\\\" \\x41 and so on");
			return lexer_took(p, MDL_YYerror);
		}
		to++;
		i += used;
	}
	value->string.size = (size_t)(to - value->string.text);
	*to = '\0';
	return lexer_took(p, STRING);
}

void lexer_open(struct parser *p, const struct mdl_place *place)
{
	if (p->open_count < OPEN_MOST)
		p->open[p->open_count] = *place;
	p->open_count++;
}

void lexer_close(struct parser *p)
{
	if (p->open_count)
		p->open_count--;
}

void lexer_stray(struct parser *p, const struct mdl_place *place, unsigned char c)
{
	/* the rest of such a run says nothing new */
	if (p->last_token == MDL_YYerror && p->last_end.line == place->line &&
	    p->last_end.column == place->column)
		return;
	if (c > 0x20 && c < 0x7f)
		parser_error(p, place, "'%c' begins nothing here", c);
	else
		parser_error(p, place, "this character (byte 0x%02x) begins nothing", c);
}
