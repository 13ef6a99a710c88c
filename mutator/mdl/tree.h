/* SPDX-License-Identifier: MIT */
/*
 * tree.h - how trees are built while a text is parsed.
 *
 * What returns a pointer or bool gives NULL or false when a limit is reached or
 * memory is out; then p->failed or a message says so, and parsing ends. What is
 * merely wrong is told (parser_error()) and built all the same.
 */
#ifndef DINST_MUTATOR_MDL_TREE_H
#define DINST_MUTATOR_MDL_TREE_H

#include "mutator/mdl/private.h"

/* Lists as they grow. */
struct words {
	const char **words;
	size_t count, room;
};

struct exprs {
	struct mdl_expr **exprs;
	size_t count, room;
};

/* A string, to which more may be joined: with a zero behind it. */
struct joined {
	char *text;
	size_t size, room; /* room 0: as the lexer made it */
};

struct code_chain {
	struct mdl_code *first, *last;
};

struct statement_chain {
	struct mdl_statement *first, *last;
};

/* Attributes of which a metric has one at most. */
enum metric_attribute {
	METRIC_NAME,
	METRIC_UNITS,
	METRIC_UNITS_TYPE,
	METRIC_MODE,
	METRIC_DESCRIPTION,
	METRIC_AGGREGATE,
	METRIC_STYLE,
	METRIC_BASE,
	METRIC_ATTRIBUTES,
};

/* A metric as its attributes come in. */
struct metric_parts {
	struct mdl_metric metric;
	struct mdl_place given[METRIC_ATTRIBUTES]; /* line 0: not yet */
	size_t flavor_room;
	struct mdl_variable *last_variable;
	struct mdl_use *last_use;
	struct mdl_statement *last_statement; /* of statements outside */
};

/* ------------------------------------------------------------------ build.c */

/* Zeroed memory. */
void *build_node(struct parser *p, size_t size);
/* Of something with a name. */
void *build_declaration(struct parser *p, size_t size);
bool build_words_add(struct parser *p, struct words *list, const char *word);
bool build_exprs_add(struct parser *p, struct exprs *list, struct mdl_expr *expr);
bool build_exprs_add_all(struct parser *p, struct exprs *list, const struct exprs *more);
bool build_joined_add(struct parser *p, struct joined *string, const struct joined *more);

struct mdl_expr *build_number(struct parser *p, const struct mdl_place *place, int64_t number);
struct mdl_expr *build_string(struct parser *p, const struct mdl_place *place, const char *text,
			      size_t size);
struct mdl_expr *build_name(struct parser *p, const struct mdl_place *place, const char *name);
struct mdl_expr *build_dollar(struct parser *p, const struct mdl_place *place, const char *name);
struct mdl_expr *build_unary(struct parser *p, const struct mdl_place *place, int op,
			     struct mdl_expr *operand);
struct mdl_expr *build_address(struct parser *p, const struct mdl_place *place,
			       struct mdl_expr *operand);
struct mdl_expr *build_binary(struct parser *p, enum mdl_operator op, struct mdl_expr *left,
			      struct mdl_expr *right);
struct mdl_expr *build_choice(struct parser *p, struct mdl_expr *condition, struct mdl_expr *left,
			      struct mdl_expr *right);
struct mdl_expr *build_index(struct parser *p, struct mdl_expr *left, struct mdl_expr *index);
struct mdl_expr *build_attribute(struct parser *p, struct mdl_expr *left,
				 const struct mdl_place *place, const char *name);
struct mdl_expr *build_call(struct parser *p, const struct mdl_place *place, const char *name,
			    const struct exprs *args);
struct mdl_expr *build_assign(struct parser *p, struct mdl_expr *left, int op,
			      struct mdl_expr *right);
struct mdl_expr *build_step(struct parser *p, struct mdl_expr *left, int by);

struct mdl_code *build_code(struct parser *p, enum mdl_code_kind kind,
			    const struct mdl_place *place);
struct mdl_statement *build_statement(struct parser *p, enum mdl_statement_kind kind,
				      const struct mdl_place *place);

/* The value of an expression of numbers only, as the target computes it. */
bool constant_value(const struct mdl_expr *e, int64_t *value);

/* ---------------------------------------------------------------- declare.c */

bool list_add_items(struct parser *p, struct mdl_list *list, const struct exprs *items);
void list_set_library(struct parser *p, struct mdl_list *list, const struct mdl_place *place,
		      const char *word);
struct mdl_constraint *build_constraint(struct parser *p, const struct mdl_place *place,
					const char *name, enum mdl_extent extent,
					const struct mdl_place *path_place, const char *path,
					enum mdl_constraint_kind kind);

/* `place` of the attribute, `value_place` of its value. */
void metric_set_text(struct parser *p, struct metric_parts *m, enum metric_attribute which,
		     const struct mdl_place *place, const struct mdl_place *value_place,
		     const char *text);
void metric_set_aggregate(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
			  const struct mdl_place *value_place, const char *word);
void metric_set_style(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
		      const struct mdl_place *value_place, const char *word);
bool metric_add_flavors(struct parser *p, struct metric_parts *m, const struct words *flavors);
bool metric_add_variable(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
			 enum mdl_vartype type, const char *name);
bool metric_add_use(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
		    const char *name, struct mdl_constraint *own);
/* The extent may stand before `base` or behind `is`. */
void metric_set_base(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
		     enum mdl_extent before, const struct mdl_place *behind_place,
		     enum mdl_extent behind, enum mdl_vartype type, struct mdl_statement *block);

bool unit_add_list(struct parser *p, struct mdl_list *list, const struct mdl_place *place,
		   const char *name, const struct mdl_place *element_place, const char *element);
bool unit_add_constraint(struct parser *p, struct mdl_constraint *c);
bool unit_add_metric(struct parser *p, struct metric_parts *m, const struct mdl_place *place,
		     const char *id);

/* ---------------------------------------------------------------- outside.c */

/* A statement outside of metrics: a metric, or a part of one. */
bool unit_add_statement(struct parser *p, struct mdl_statement *s);

#endif
