/* SPDX-License-Identifier: MIT */
/*
 * check.h - names, types and places of what was parsed.
 *
 *   check.c   declarations: duplicates, what is missing
 *   where.c   what is evaluated when a request is made
 *   code.c    what becomes machine code
 *   scope.c   names, and what may have been meant
 *
 * Statements belong to a body, that of a base or of a constraint. What may be named
 * in it, and what it measures, is in struct body.
 */
#ifndef DINST_MUTATOR_MDL_CHECK_H
#define DINST_MUTATOR_MDL_CHECK_H

#include "mutator/mdl/tree.h"

/* Checks p->unit against itself, the library, and what is loaded together; errors go to
 * p->messages. */
void check_unit(struct parser *p);

/* Types of the where-world. */
enum where_kind {
	WHERE_ANY, /* known only when a request is made, or wrong and told */
	WHERE_NUMBER,
	WHERE_TEXT,
	WHERE_PROCEDURE,
	WHERE_MODULE,
	WHERE_POINT,
	WHERE_BLOCK, /* a basic block */
};

/* Where code runs. */
enum point_place { AT_ENTRY, AT_EXIT, AT_CALL, AT_AFTER, AT_BLOCK, AT_GUARDED };

struct where_type {
	enum where_kind kind;
	bool list;
	enum point_place place; /* of a point */
};

/* A variable of foreach, and those around it. */
struct scope {
	const char *name;
	struct where_type type;
	const struct scope *outer;
};

struct body {
	struct parser *p;
	const struct mdl_constraint *constraint; /* whose body this is, or NULL */
	const char *variable;			 /* what is measured, or the flag */
	enum mdl_vartype type;			 /* of it */
	const struct mdl_variable *temporaries;
	const struct scope *scope;
	bool in_loop; /* of foreach */
};

/* ------------------------------------------------------------------ where.c */

void check_statement(struct body *b, const struct mdl_statement *s);
/* "a procedure", "a list of points" */
const char *where_name(struct where_type type);
struct where_type where_type(struct body *b, const struct mdl_expr *e);

/* ------------------------------------------------------------------- code.c */

void check_code(struct body *b, const struct mdl_code *first, enum point_place place);

/* ------------------------------------------------------------------ scope.c */

const struct scope *scope_find(const struct body *b, const char *name);
/* A variable of the body, with its type; false if there is none of that name. */
bool variable_find(const struct body *b, const char *name, enum mdl_vartype *type);
/* Of the last of the texts that are loaded together, itself included, that has one; else of the library. */
const struct mdl_list *list_find(const struct parser *p, const char *name);

/* Names that something may have been meant to be. */
enum { MEANT_MOST = 512 };

struct meant {
	const char *names[MEANT_MOST];
	size_t count;
};

void meant_add(struct meant *m, const char *name);
void meant_add_scopes(struct meant *m, const struct body *b);
void meant_add_variables(struct meant *m, const struct body *b);
void meant_add_lists(struct meant *m, const struct parser *p);
/* "; did you mean 'x'?" or "", into text[]. */
enum { MEANT_TEXT = 96 };
const char *meant_text(const struct meant *m, const struct parser *p, const char *name,
		       char text[MEANT_TEXT]);

#endif
