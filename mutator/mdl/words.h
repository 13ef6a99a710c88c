/* SPDX-License-Identifier: MIT */
/*
 * words.h - what lexer.l does with a word: keywords, numbers, strings, and what
 * is kept for messages. Needs parser.h before it for the tokens.
 */
#ifndef DINST_MUTATOR_MDL_WORDS_H
#define DINST_MUTATOR_MDL_WORDS_H

#include "mutator/mdl/private.h"

union MDL_YYSTYPE;

/* buffer[size] and buffer[size + 1] are zero; it is changed, and used until lexer_stop(). */
int lexer_start(struct parser *p, char *buffer, size_t size);
void lexer_stop(struct parser *p);

/* Notes that a token was taken, and returns it. */
int lexer_took(struct parser *p, int token);
int lexer_text(struct parser *p, union MDL_YYSTYPE *value, int token, const char *text,
	       size_t size);
/* A keyword or a name. */
int lexer_word(struct parser *p, union MDL_YYSTYPE *value, const char *text, size_t size);
int lexer_number(struct parser *p, union MDL_YYSTYPE *value, const struct mdl_place *place,
		 const char *text, size_t size);
int lexer_string(struct parser *p, union MDL_YYSTYPE *value, const struct mdl_place *place,
		 const char *text, size_t size);
/* True where a path may stand. */
bool lexer_wants_path(const struct parser *p);
void lexer_open(struct parser *p, const struct mdl_place *place);
void lexer_close(struct parser *p);
/* True if p->comment stands right behind a word, where a path was meant. */
bool lexer_behind_word(const struct parser *p);
/* A character that begins nothing. */
void lexer_stray(struct parser *p, const struct mdl_place *place, unsigned char c);
/* The keyword of a token, NULL if it is none. */
const char *lexer_keyword(int token);

#endif
