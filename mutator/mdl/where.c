/* SPDX-License-Identifier: MIT */
/*
 * where.c - statements, and expressions that are evaluated when a request is made.
 *
 * Each expression has a type, but for parts of a focus of which only the request
 * will tell: those may be whatever is asked of them. An error is told once; what
 * it stands in is of any type.
 */
#include <string.h>

#include "mutator/mdl/check.h"

static const struct where_type any = {WHERE_ANY, false, AT_ENTRY};
static const struct where_type number = {WHERE_NUMBER, false, AT_ENTRY};
static const struct where_type text = {WHERE_TEXT, false, AT_ENTRY};

static struct where_type one(enum where_kind kind)
{
	return (struct where_type){kind, false, AT_ENTRY};
}

static struct where_type list_of(enum where_kind kind)
{
	return (struct where_type){kind, true, AT_ENTRY};
}

const char *where_name(struct where_type type)
{
	static const char *const names[][2] = {
		[WHERE_ANY] = {"something", "a list"},
		[WHERE_NUMBER] = {"a number", "a list of numbers"},
		[WHERE_TEXT] = {"a string", "a list of strings"},
		[WHERE_PROCEDURE] = {"a procedure", "a list of procedures"},
		[WHERE_MODULE] = {"a module", "a list of modules"},
		[WHERE_POINT] = {"a point", "a list of points"},
		[WHERE_BLOCK] = {"a block", "a list of blocks"},
	};

	return names[type.kind][type.list];
}

/* ------------------------------------------------------------------- names */

static struct where_type type_of_name(struct body *b, const struct mdl_expr *e)
{
	static const enum where_kind kinds[] = {
		[MDL_OF_PROCEDURES] = WHERE_PROCEDURE,
		[MDL_OF_MODULES] = WHERE_MODULE,
		[MDL_OF_STRINGS] = WHERE_TEXT,
		[MDL_OF_INTEGERS] = WHERE_NUMBER,
	};
	const struct scope *s = scope_find(b, e->text);
	const struct mdl_list *list = s ? NULL : list_find(b->p, e->text);
	struct meant m = {.count = 0};
	char meant[MEANT_TEXT];
	enum mdl_vartype type;

	if (s)
		return s->type;
	if (list)
		return list_of(kinds[list->element]);
	if (variable_find(b, e->text, &type)) {
		parser_error(b->p, &e->place,
			     "'%.60s' is a %s of the running program: it has no value here, only "
			     "in (* *)",
			     e->text, mdl_vartype_name(type));
		return any;
	}
	meant_add_scopes(&m, b);
	meant_add_lists(&m, b->p);
	parser_error(b->p, &e->place, "there is no list or foreach variable '%.60s'%s", e->text,
		     meant_text(&m, b->p, e->text, meant));
	return any;
}

/* What stands at `at` of a path below `root`, 0 being the root itself. */
static struct where_type type_of_part(const char *root, size_t at)
{
	static const struct {
		const char *root;
		size_t at;
		enum where_kind kind;
	} parts[] = {
		{"Code", 1, WHERE_MODULE},     {"Code", 2, WHERE_PROCEDURE},
		{"Code", 3, WHERE_BLOCK},      {"Process", 1, WHERE_NUMBER},
		{"SyncObject", 1, WHERE_TEXT}, {"SyncObject", 2, WHERE_NUMBER},
	};

	if (at == 0)
		return text;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i].at == at && strcmp(parts[i].root, root) == 0)
			return one(parts[i].kind);
	return any;
}

/*
 * $constraint[n]. A path that ends in "*" says how deep the resource is; below
 * one that ends in a name, the resource is somewhere (evaluate.h).
 */
static struct where_type type_of_constraint(struct body *b, const struct mdl_expr *e)
{
	const struct mdl_constraint *c = b->constraint;
	size_t n = (size_t)e->number;

	if (!c) {
		parser_error(b->p, &e->place,
			     "$constraint is a part of the constraint's path: it is known in "
			     "constraints only");
		return any;
	}
	if (!e->left) {
		parser_error(b->p, &e->place,
			     "$constraint needs a number: $constraint[0] is the last part of the "
			     "path");
		return any;
	}
	if (!c->path_count)
		return any;
	if (strcmp(c->path[c->path_count - 1], "*") != 0) {
		if (n <= c->path_count + 1 && n < MDL_PATH_MAX)
			return any;
	} else if (n < c->path_count) {
		return type_of_part(c->path[0], c->path_count - 1 - n);
	}
	parser_error(b->p, &e->left->place,
		     "the path has no part %zu: $constraint[0] is its last one, $constraint[%zu] "
		     "its first",
		     n, c->path_count - 1);
	return any;
}

/* -------------------------------------------------------------- attributes */

static const struct attribute {
	enum where_kind of;
	const char *name;
	struct where_type type;
} attributes[] = {
	{WHERE_MODULE, "name", {WHERE_TEXT, false, AT_ENTRY}},
	{WHERE_MODULE, "funcs", {WHERE_PROCEDURE, true, AT_ENTRY}},
	{WHERE_PROCEDURE, "name", {WHERE_TEXT, false, AT_ENTRY}},
	{WHERE_PROCEDURE, "entry", {WHERE_POINT, false, AT_ENTRY}},
	{WHERE_PROCEDURE, "return", {WHERE_POINT, true, AT_EXIT}},
	{WHERE_PROCEDURE, "calls", {WHERE_POINT, true, AT_CALL}},
	{WHERE_PROCEDURE, "callers", {WHERE_PROCEDURE, true, AT_ENTRY}},
	{WHERE_POINT, "address", {WHERE_NUMBER, false, AT_ENTRY}},
	{WHERE_POINT, "callee", {WHERE_PROCEDURE, false, AT_ENTRY}},
	{WHERE_BLOCK, "entry", {WHERE_POINT, false, AT_BLOCK}},
	{WHERE_BLOCK, "address", {WHERE_NUMBER, false, AT_ENTRY}},
	/* $process and $machine are their names */
	{WHERE_TEXT, "name", {WHERE_TEXT, false, AT_ENTRY}},
};

enum { ATTRIBUTE_COUNT = sizeof(attributes) / sizeof(attributes[0]) };

static struct where_type no_attribute(struct body *b, const struct mdl_expr *e,
				      struct where_type of)
{
	struct meant m = {.count = 0};
	char meant[MEANT_TEXT];

	for (size_t i = 0; i < ATTRIBUTE_COUNT; i++)
		if (of.kind == WHERE_ANY || of.kind == attributes[i].of)
			meant_add(&m, attributes[i].name);
	meant_text(&m, b->p, e->text, meant);
	if (of.kind == WHERE_MODULE && !*meant)
		parser_error(b->p, &e->place,
			     "%s has no '.%.60s'; it has .name and .funcs, which has procedures",
			     where_name(of), e->text);
	else if (of.kind == WHERE_PROCEDURE && !*meant)
		parser_error(b->p, &e->place,
			     "%s has no '.%.60s'; it has .entry, .return, .calls, .callers and "
			     ".name",
			     where_name(of), e->text);
	else
		parser_error(b->p, &e->place, "%s has no '.%.60s'%s", where_name(of), e->text,
			     meant);
	return any;
}

static struct where_type type_of_attribute(struct body *b, const struct mdl_expr *e)
{
	struct where_type of = where_type(b, e->left), type = any;

	for (size_t i = 0; i < ATTRIBUTE_COUNT; i++) {
		const struct attribute *a = &attributes[i];

		if (strcmp(a->name, e->text) != 0 || (of.kind != WHERE_ANY && of.kind != a->of))
			continue;
		if (of.kind == WHERE_POINT && strcmp(a->name, "callee") == 0 &&
		    of.place != AT_CALL) {
			parser_error(b->p, &e->place, "only calls have a .callee");
			return any;
		}
		type = a->type;
		/* all entries of a list of procedures are points, but it has no one name */
		if (of.list && (type.kind == WHERE_TEXT || type.kind == WHERE_NUMBER)) {
			parser_error(b->p, &e->place,
				     "%s has no '.%.60s', but each of its elements has; take them "
				     "one by one, with foreach",
				     where_name(of), e->text);
			return any;
		}
		type.list |= of.list;
		return type;
	}
	return no_attribute(b, e, of);
}

/* --------------------------------------------------------------- operators */

static void want_number(struct body *b, const struct mdl_expr *e, struct where_type type)
{
	if (type.list || (type.kind != WHERE_NUMBER && type.kind != WHERE_ANY))
		parser_error(b->p, &e->place, "a number is needed, and this is %s",
			     where_name(type));
}

static struct where_type type_of_index(struct body *b, const struct mdl_expr *e)
{
	struct where_type list = where_type(b, e->left);

	want_number(b, e->right, where_type(b, e->right));
	if (list.kind == WHERE_ANY)
		return any;
	if (!list.list) {
		parser_error(b->p, &e->place, "only lists have elements, and this is %s",
			     where_name(list));
		return any;
	}
	list.list = false;
	return list;
}

static struct where_type type_of_binary(struct body *b, const struct mdl_expr *e)
{
	struct where_type left = where_type(b, e->left), right = where_type(b, e->right);
	bool compares = e->op >= MDL_OP_LT && e->op <= MDL_OP_NE;
	int64_t zero;

	if (compares && (left.kind == WHERE_TEXT || right.kind == WHERE_TEXT)) {
		const struct mdl_expr *odd = left.kind == WHERE_TEXT ? e->right : e->left;
		struct where_type type = left.kind == WHERE_TEXT ? right : left;

		if (type.list || (type.kind != WHERE_TEXT && type.kind != WHERE_ANY))
			parser_error(b->p, &odd->place,
				     "a string is compared with strings only, and this is %s",
				     where_name(type));
		return number;
	}
	want_number(b, e->left, left);
	want_number(b, e->right, right);
	if ((e->op == MDL_OP_DIV || e->op == MDL_OP_REM) && constant_value(e->right, &zero) &&
	    !zero)
		parser_error(b->p, &e->right->place, "this divides by zero");
	return number;
}

static struct where_type type_of_choice(struct body *b, const struct mdl_expr *e)
{
	struct where_type left, right;

	want_number(b, e->condition, where_type(b, e->condition));
	left = where_type(b, e->left);
	right = where_type(b, e->right);
	if (left.kind == WHERE_ANY)
		return right;
	if (right.kind != WHERE_ANY &&
	    (left.kind != right.kind || left.list != right.list || left.place != right.place)) {
		parser_error(b->p, &e->right->place, "this is %s, but what is before the ':' is %s",
			     where_name(right), where_name(left));
		return any;
	}
	return left;
}

static struct where_type in_code_only(struct body *b, const struct mdl_expr *e)
{
	static const char *const whats[] = {
		[MDL_CALL] = "a call",
		[MDL_ASSIGN] = "an assignment",
		[MDL_STEP] = "'++' or '--'",
		[MDL_ADDRESS] = "'&'",
	};
	const char *what = e->kind < sizeof(whats) / sizeof(whats[0]) ? whats[e->kind] : NULL;

	parser_error(b->p, &e->place,
		     "%s has no meaning when the request is made; it can stand in (* *) only",
		     what ? what : e->text);
	return any;
}

struct where_type where_type(struct body *b, const struct mdl_expr *e)
{
	switch (e->kind) {
	case MDL_INTEGER:
		return number;
	case MDL_STRING:
	case MDL_MACHINE:
	case MDL_PROCESS:
		return text;
	case MDL_NAME:
		return type_of_name(b, e);
	case MDL_PROCEDURES:
	case MDL_START:
	case MDL_EXIT:
		return list_of(WHERE_PROCEDURE);
	case MDL_MODULES:
		return list_of(WHERE_MODULE);
	case MDL_CONSTRAINT:
		return type_of_constraint(b, e);
	case MDL_ATTRIBUTE:
		return type_of_attribute(b, e);
	case MDL_INDEX:
		return type_of_index(b, e);
	case MDL_UNARY:
		want_number(b, e->left, where_type(b, e->left));
		return number;
	case MDL_BINARY:
		return type_of_binary(b, e);
	case MDL_CHOICE:
		return type_of_choice(b, e);
	default:
		return in_code_only(b, e);
	}
}

/* -------------------------------------------------------------- statements */

static void check_insert(struct body *b, const struct mdl_statement *s)
{
	struct where_type type = where_type(b, s->expr);
	enum point_place place = type.place;

	if (type.kind == WHERE_BLOCK)
		place = AT_BLOCK;
	else if (type.kind == WHERE_PROCEDURE)
		parser_error(b->p, &s->expr->place,
			     "this is %s; a point is needed: its .entry, .return or .calls",
			     where_name(type));
	else if (type.kind == WHERE_MODULE)
		parser_error(b->p, &s->expr->place,
			     "this is %s; a point is needed: take its .funcs with foreach, and of "
			     "each the .entry, .return or .calls",
			     where_name(type));
	else if (type.kind != WHERE_POINT && type.kind != WHERE_ANY)
		parser_error(b->p, &s->expr->place, "this is %s; a point is needed",
			     where_name(type));
	if (s->post_insn && type.kind != WHERE_ANY) {
		if (place != AT_CALL)
			parser_error(b->p, &s->expr->place,
				     "postInsn is behind calls only; use preInsn here");
		place = AT_AFTER;
	}
	check_code(b, s->code, type.kind == WHERE_ANY ? AT_GUARDED : place);
}

static void check_guard(struct body *b, const struct mdl_statement *s)
{
	if (!b->constraint || b->constraint->kind != MDL_FLAG)
		parser_error(b->p, &s->place,
			     "this code has no point; only the code of a constraint that 'is "
			     "counter' may do without: append preInsn POINT (* ... *)");
	else if (b->in_loop)
		parser_error(b->p, &s->place,
			     "code without a point cannot be in a foreach: it runs where the "
			     "metric's code does");
	check_code(b, s->code, AT_GUARDED);
}

static void check_foreach(struct body *b, const struct mdl_statement *s)
{
	struct where_type type = where_type(b, s->expr);
	struct scope inner = {s->variable, type, b->scope};
	const struct scope *outer = scope_find(b, s->variable);
	bool in_loop = b->in_loop;
	enum mdl_vartype other;

	if (!type.list && type.kind != WHERE_ANY)
		parser_error(b->p, &s->expr->place, "foreach needs a list, and this is %s",
			     where_name(type));
	if (outer || variable_find(b, s->variable, &other))
		parser_error(b->p, &s->place, "'%.60s' is the name of a %s already", s->variable,
			     outer ? "foreach variable" : mdl_vartype_name(other));
	inner.type.list = false;
	b->scope = &inner;
	b->in_loop = true;
	check_statement(b, s->then);
	b->in_loop = in_loop;
	b->scope = inner.outer;
}

void check_statement(struct body *b, const struct mdl_statement *s)
{
	switch (s->kind) {
	case MDL_BLOCK:
		for (const struct mdl_statement *each = s->first; each; each = each->next)
			check_statement(b, each);
		return;
	case MDL_FOREACH:
		check_foreach(b, s);
		return;
	case MDL_IF:
		want_number(b, s->expr, where_type(b, s->expr));
		check_statement(b, s->then);
		if (s->otherwise)
			check_statement(b, s->otherwise);
		return;
	case MDL_INSERT:
		check_insert(b, s);
		return;
	case MDL_GUARD:
		check_guard(b, s);
		return;
	}
}
