/* SPDX-License-Identifier: MIT */
/*
 * private.h - what the parts of the front end know of each other.
 *
 *   pool.c       memory that is given back at once
 *   messages.c   errors: place, line, caret; names that were meant
 *   lexer.l parser.y   words, and how they go together
 *   words.c      keywords, numbers, strings
 *   build.c declare.c outside.c   trees, with their limits (tree.h)
 *   unexpected.c what is said of a broken sentence
 *   check.c where.c code.c scope.c   names, types and places (check.h)
 *   load.c library.c installed.c verdicts.c   what is loaded, and from where
 *
 * A text becomes a struct unit. Only if there is no error in it do its
 * definitions go into the library, together with the pool they lie in.
 */
#ifndef DINST_MUTATOR_MDL_PRIVATE_H
#define DINST_MUTATOR_MDL_PRIVATE_H

#include <stdarg.h>

#include "mutator/mdl/mdl.h"

/* Limits that no honest text comes near to, and no other gets across. */
enum {
	TEXT_MOST = 1 << 20,	  /* bytes of one text */
	NODES_MOST = 200000,	  /* of all trees of a text */
	DEPTH_MOST = 200,	  /* of one tree: everybody may walk trees by recursion */
	STRING_MOST = 4096,	  /* bytes of a name or string */
	ARGUMENTS_MOST = 6,	  /* of a call: what goes in registers */
	ARGUMENT_LAST = 63,	  /* $arg[n] */
	ERRORS_MOST = 1000,	  /* behind them nothing is parsed */
	DECLARATIONS_MOST = 2048, /* of a text: names are looked for one by one */
};

/* ------------------------------------------------------------------ pool.c */

struct pool_block;

/* Memory of which nothing is given back but all. */
struct pool {
	struct pool_block *blocks;
	size_t left; /* in the first block */
};

/* Zeroed and aligned for anything; NULL if there is none. */
void *pool_take(struct pool *p, size_t size);
/* A copy with a zero behind it. */
char *pool_copy(struct pool *p, const char *bytes, size_t size);
/* True if it was taken from this one. */
bool pool_has(const struct pool *p, const void *at);
void pool_free(struct pool *p);

/* -------------------------------------------------------------- messages.c */

/* A text that places are in; kept for messages. */
struct source {
	const char *file; /* places point to it */
	const char *text;
	size_t size;
	struct source *next;
};

/* Messages about one or more texts; those that do not fit are counted. */
struct messages {
	char *text;
	size_t room, used;
	unsigned count, left_out;
};

void messages_init(struct messages *m, char *text, size_t room);
/* Adds "FILE:LINE:COLUMN: text", the line and a caret. */
void messages_add(struct messages *m, const struct source *source, const struct mdl_place *place,
		  const char *format, ...) __attribute__((format(printf, 4, 5)));
void messages_add_list(struct messages *m, const struct source *source,
		       const struct mdl_place *place, const char *format, va_list args);
/* "... and N more errors", if some did not fit. */
void messages_end(struct messages *m);

/* ------------------------------------------------------------------ a text */

/* What was parsed, in the order of the text. */
struct unit {
	struct mdl_list *lists;
	struct mdl_constraint *constraints;
	struct mdl_metric *metrics;
};

enum { OPEN_MOST = 64 };

struct parser {
	const struct mdl_library *known; /* what is known already */
	const struct loading *together;	 /* what is loaded together with it, itself included */
	struct pool *pool;
	struct source *source;
	struct messages messages;
	struct unit unit;
	struct mdl_list *last_list;
	struct mdl_constraint *last_constraint;
	struct mdl_metric *last_metric;
	size_t nodes;
	size_t declarations;
	int failed; /* enum dinst_code: there is no going on; else 0 */
	/* of the lexer */
	void *scanner;
	void *escape; /* jmp_buf */
	uint32_t line, column;
	unsigned path_state;	  /* 1 behind `constraint`, 2 where a path may follow */
	struct mdl_place comment; /* where the comment at hand began */
	bool lexical;		  /* the text ended in a comment: what the parser says is no news */
	/* the last word and the one before it, and where they ended */
	int last_token, before_token;
	struct mdl_place last_end, before_end;
	/* how many '{' and '(*' were read, and how many of them before the last error */
	unsigned braces, codes, error_braces, error_codes;
	/* where the braces were opened that are not closed, for a text that ends too soon */
	struct mdl_place open[OPEN_MOST];
	unsigned open_count;
};

/* An error at `place`. */
void parser_error(struct parser *p, const struct mdl_place *place, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Parses buffer[0..size), a copy of the source's text with two zeros behind it,
 * into p->unit. Errors are in p->messages, or p->failed is set.
 */
void parse(struct parser *p, char *buffer, size_t size);

/* What is said where `text` cannot stand; `names` of what could, as the grammar calls them. */
void unexpected(struct parser *p, const struct mdl_place *place, bool at_end,
		const char *const *names, size_t count);

/* ------------------------------------------------------------------- load.c */

/* A text on its way into the library. */
struct loading {
	struct parser parser;
	struct pool pool;
	struct kept_pool *keep;
	char *told; /* messages */
	struct loading *next;
};

/*
 * Texts that are loaded together know of each other's lists, whatever their
 * order; of those of one name the last one counts. Each is then loaded, or not, by itself.
 *
 *   1. loading_begin() for each parses it; *first is the first of them, NULL at first
 *   2. loading_check() checks all
 *   3. loading_end() for each puts it into the library or says what is wrong
 *
 * loading_begin() returns NULL and fills *e if there is no memory. `room` is for
 * messages: a struct dinst_error takes DINST_ERROR_TEXT of them.
 */
struct loading *loading_begin(struct mdl_library *l, struct loading **first, const char *file,
			      const char *text, size_t size, size_t room, struct dinst_error *e);
void loading_check(struct loading *first);
/* Frees the loading, whatever it returns. *told, if wanted, gets the messages, malloc'ed. */
int loading_end(struct mdl_library *l, struct loading *loading, char **told, struct dinst_error *e);

/* -------------------------------------------------------------- installed.c */

/* A whole file, malloc'ed. */
int read_file(const char *path, char **text, size_t *size, struct dinst_error *e);

/* ---------------------------------------------------------------- library.c */

/* Of one text. */
struct kept_pool {
	struct pool pool;
	const struct source *source; /* lies in it */
	uint64_t born, died; /* in the library's time; died 0: it has a definition that counts */
	struct kept_pool *next;
};

struct mdl_library {
	uint64_t time; /* texts that were loaded */
	struct mdl_reader *readers;
	struct kept_pool *pools;
	struct source *sources;
	struct mdl_list *lists;
	struct mdl_constraint *constraints;
	struct mdl_metric *metrics;
};

/* Puts a checked unit in; the library keeps the pool by k, which lies in it. */
void library_commit(struct mdl_library *l, struct parser *p, struct kept_pool *k);

#endif
