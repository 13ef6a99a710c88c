/* SPDX-License-Identifier: MIT */
/*
 * build.c - nodes of trees, as the parser meets them.
 *
 * Owns the limits: how many nodes a text may have, and how deep a tree may be, so
 * that everybody may walk trees by recursion. Checks no names and no types.
 */
#include "mutator/mdl/tree.h"

#include <string.h>

/* The depth is ours alone. */
struct deep_expr {
	struct mdl_expr expr;
	unsigned depth;
};

static unsigned depth_of(const struct mdl_expr *e)
{
	return e ? ((const struct deep_expr *)e)->depth : 0;
}

void *build_node(struct parser *p, size_t size)
{
	void *node;

	if (++p->nodes > NODES_MOST) {
		if (!p->failed)
			parser_error(p, &p->last_end, "this text is too large: more than %d parts",
				     NODES_MOST);
		p->failed = DINST_USAGE;
		return NULL;
	}
	node = pool_take(p->pool, size);
	if (!node)
		p->failed = DINST_NO_MEMORY;
	return node;
}

void *build_declaration(struct parser *p, size_t size)
{
	if (++p->declarations > DECLARATIONS_MOST) {
		parser_error(p, &p->last_end, "this text is too large: more than %d definitions",
			     DECLARATIONS_MOST);
		p->failed = DINST_USAGE;
		return NULL;
	}
	return build_node(p, size);
}

/*
 * Room for `more` elements of `size` besides; returns where the elements are now. What they leave is
 * not given back, so the room doubles: a little more each time would be the square of it.
 */
static void *grow(struct parser *p, void *elements, size_t count, size_t more, size_t *room,
		  size_t size)
{
	size_t wanted = *room ? *room : 4;
	void *grown;

	if (more <= *room && count <= *room - more)
		return elements;
	while (wanted < count + more)
		wanted *= 2;
	grown = pool_take(p->pool, wanted * size);
	if (!grown) {
		p->failed = DINST_NO_MEMORY;
		return NULL;
	}
	if (count)
		memcpy(grown, elements, count * size);
	*room = wanted;
	return grown;
}

bool build_words_add(struct parser *p, struct words *list, const char *word)
{
	const char **words = grow(p, list->words, list->count, 1, &list->room, sizeof(*words));

	if (!words)
		return false;
	list->words = words;
	words[list->count++] = word;
	return true;
}

bool build_exprs_add_all(struct parser *p, struct exprs *list, const struct exprs *more)
{
	struct mdl_expr **exprs =
		grow(p, list->exprs, list->count, more->count, &list->room, sizeof(*exprs));

	if (!exprs)
		return false;
	memcpy(exprs + list->count, more->exprs, more->count * sizeof(*exprs));
	list->exprs = exprs;
	list->count += more->count;
	return true;
}

bool build_exprs_add(struct parser *p, struct exprs *list, struct mdl_expr *expr)
{
	const struct exprs one = {&expr, 1, 1};

	return build_exprs_add_all(p, list, &one);
}

bool build_joined_add(struct parser *p, struct joined *string, const struct joined *more)
{
	char *text;

	if (more->size > STRING_MOST || string->size + more->size > STRING_MOST) {
		parser_error(p, &p->last_end, "this string is too long: the longest has %d bytes",
			     STRING_MOST);
		return true;
	}
	text = grow(p, string->text, string->size, more->size + 1, &string->room, 1);
	if (!text)
		return false;
	memcpy(text + string->size, more->text, more->size);
	string->text = text;
	string->size += more->size;
	text[string->size] = '\0';
	return true;
}

/* ------------------------------------------------------------- expressions */

static struct mdl_expr *build_expr(struct parser *p, enum mdl_expr_kind kind,
				   const struct mdl_place *place, unsigned depth)
{
	struct deep_expr *d;

	if (depth >= DEPTH_MOST) {
		parser_error(p, place, "this expression is nested too deeply: more than %d levels",
			     DEPTH_MOST);
		p->failed = DINST_USAGE;
		return NULL;
	}
	d = build_node(p, sizeof(*d));
	if (!d)
		return NULL;
	d->expr.kind = kind;
	d->expr.place = *place;
	d->depth = depth + 1;
	return &d->expr;
}

static struct mdl_expr *build_parent(struct parser *p, enum mdl_expr_kind kind,
				     const struct mdl_place *place, struct mdl_expr *left,
				     struct mdl_expr *right)
{
	unsigned depth = depth_of(left) > depth_of(right) ? depth_of(left) : depth_of(right);
	struct mdl_expr *e = build_expr(p, kind, place, depth);

	if (e) {
		e->left = left;
		e->right = right;
	}
	return e;
}

struct mdl_expr *build_number(struct parser *p, const struct mdl_place *place, int64_t number)
{
	struct mdl_expr *e = build_expr(p, MDL_INTEGER, place, 0);

	if (e)
		e->number = number;
	return e;
}

struct mdl_expr *build_string(struct parser *p, const struct mdl_place *place, const char *text,
			      size_t size)
{
	struct mdl_expr *e = build_expr(p, MDL_STRING, place, 0);

	if (e) {
		e->text = text;
		e->text_size = size;
	}
	return e;
}

struct mdl_expr *build_name(struct parser *p, const struct mdl_place *place, const char *name)
{
	struct mdl_expr *e = build_expr(p, MDL_NAME, place, 0);

	if (e)
		e->text = name;
	return e;
}

static const struct dollar {
	const char *name;
	enum mdl_expr_kind kind;
	bool indexed;
} dollars[] = {
	{"$procedures", MDL_PROCEDURES, false},
	{"$modules", MDL_MODULES, false},
	{"$start", MDL_START, false},
	{"$exit", MDL_EXIT, false},
	{"$machine", MDL_MACHINE, false},
	{"$process", MDL_PROCESS, false},
	{"$constraint", MDL_CONSTRAINT, true},
	{"$arg", MDL_ARGUMENT, true},
	{"$return", MDL_RETURN, false},
	{"$thread", MDL_THREAD, false},
	{"$pid", MDL_PID, false},
	{"$cpu", MDL_CPU, false},
	{"$now", MDL_NOW, false},
	{"$elapsed", MDL_ELAPSED, false},
	{"$caller", MDL_CALLER, false},
	{"$stack", MDL_STACK, false},
};

enum { DOLLAR_COUNT = sizeof(dollars) / sizeof(dollars[0]) };

/* What is given behind $arg and $constraint is put in by build_index(). */
struct mdl_expr *build_dollar(struct parser *p, const struct mdl_place *place, const char *name)
{
	const char *names[DOLLAR_COUNT], *meant;
	struct mdl_expr *e;

	for (size_t i = 0; i < DOLLAR_COUNT; i++) {
		names[i] = dollars[i].name;
		if (strcmp(names[i], name) != 0)
			continue;
		e = build_expr(p, dollars[i].kind, place, 0);
		if (e) {
			e->text = names[i];
			e->number = dollars[i].indexed ? -1 : 0;
		}
		return e;
	}
	meant = p->messages.left_out ? NULL : mdl_nearest(name, names, DOLLAR_COUNT);
	parser_error(p, place, "there is no '%.60s'%s%s%s", name, meant ? "; did you mean '" : "",
		     meant ? meant : "", meant ? "'?" : "");
	return build_number(p, place, 0);
}

struct mdl_expr *build_unary(struct parser *p, const struct mdl_place *place, int op,
			     struct mdl_expr *operand)
{
	struct mdl_expr *e = build_parent(p, MDL_UNARY, place, operand, NULL);

	if (e)
		e->op = op;
	return e;
}

struct mdl_expr *build_address(struct parser *p, const struct mdl_place *place,
			       struct mdl_expr *operand)
{
	return build_parent(p, MDL_ADDRESS, place, operand, NULL);
}

struct mdl_expr *build_binary(struct parser *p, enum mdl_operator op, struct mdl_expr *left,
			      struct mdl_expr *right)
{
	struct mdl_expr *e = build_parent(p, MDL_BINARY, &left->place, left, right);

	if (e)
		e->op = op;
	return e;
}

struct mdl_expr *build_choice(struct parser *p, struct mdl_expr *condition, struct mdl_expr *left,
			      struct mdl_expr *right)
{
	const struct mdl_expr *deepest = left;
	struct mdl_expr *e;

	if (depth_of(right) > depth_of(deepest))
		deepest = right;
	if (depth_of(condition) > depth_of(deepest))
		deepest = condition;
	e = build_expr(p, MDL_CHOICE, &condition->place, depth_of(deepest));
	if (e) {
		e->condition = condition;
		e->left = left;
		e->right = right;
	}
	return e;
}

/* $arg[n] has its number at once: everybody wants it as one. */
static struct mdl_expr *index_argument(struct parser *p, struct mdl_expr *left,
				       struct mdl_expr *index)
{
	int64_t n;

	if (!constant_value(index, &n) || n < 0 || n > ARGUMENT_LAST) {
		parser_error(p, &index->place,
			     "which argument must be a number that is known here, 0 to %d",
			     ARGUMENT_LAST);
		n = 0;
	}
	left->number = n;
	return left;
}

struct mdl_expr *build_index(struct parser *p, struct mdl_expr *left, struct mdl_expr *index)
{
	int64_t n;

	if (left->kind == MDL_ARGUMENT && left->number < 0)
		return index_argument(p, left, index);
	if (left->kind != MDL_CONSTRAINT || left->left)
		return build_parent(p, MDL_INDEX, &left->place, left, index);
	if (!constant_value(index, &n) || n < 0 || n >= MDL_PATH_MAX) {
		parser_error(p, &index->place,
			     "which part of the path must be a number that is known here, from 0, "
			     "the last part, on");
		n = 0;
	}
	/* a constant is a leaf, however it was written */
	left->left = build_number(p, &index->place, n);
	left->number = n;
	((struct deep_expr *)left)->depth++;
	return left->left ? left : NULL;
}

struct mdl_expr *build_attribute(struct parser *p, struct mdl_expr *left,
				 const struct mdl_place *place, const char *name)
{
	struct mdl_expr *e = build_parent(p, MDL_ATTRIBUTE, place, left, NULL);

	if (e)
		e->text = name;
	return e;
}

static const struct {
	const char *name;
	enum mdl_function function;
} functions[] = {
	{"startWallTimer", MDL_DO_START_WALL},
	{"stopWallTimer", MDL_DO_STOP_WALL},
	{"startProcessTimer", MDL_DO_START_PROCESS},
	{"stopProcessTimer", MDL_DO_STOP_PROCESS},
	{"startThreadTimer", MDL_DO_START_THREAD},
	{"stopThreadTimer", MDL_DO_STOP_THREAD},
	{"record", MDL_DO_RECORD},
	{"readSymbol", MDL_DO_READ_SYMBOL},
	{"readMemory", MDL_DO_READ_MEMORY},
	{"string", MDL_DO_STRING},
	{"bytes", MDL_DO_BYTES},
	{"stack", MDL_DO_STACK},
};

struct mdl_expr *build_call(struct parser *p, const struct mdl_place *place, const char *name,
			    const struct exprs *args)
{
	struct mdl_expr *e;
	unsigned depth = 0;
	size_t skip = 0;

	for (size_t i = 0; i < args->count; i++)
		if (depth_of(args->exprs[i]) > depth)
			depth = depth_of(args->exprs[i]);
	e = build_expr(p, MDL_CALL, place, depth);
	if (!e)
		return NULL;
	e->text = name;
	e->function = MDL_DO_CALL;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (strcmp(functions[i].name, name) == 0)
			e->function = functions[i].function;
	if (strcmp(name, "while") == 0 || strcmp(name, "for") == 0)
		parser_error(p, place, "there are no loops in code: its cost has to be known");
	if (strcmp(name, "Call") == 0) {
		if (args->count && args->exprs[0]->kind == MDL_STRING) {
			e->text = args->exprs[0]->text;
			skip = 1;
		} else {
			parser_error(p, place,
				     "the first argument of Call is the function's name: "
				     "Call(\"module:function\", ...)");
		}
	}
	e->args = args->exprs ? args->exprs + skip : NULL;
	e->arg_count = args->count - skip;
	return e;
}

struct mdl_expr *build_assign(struct parser *p, struct mdl_expr *left, int op,
			      struct mdl_expr *right)
{
	struct mdl_expr *e = build_parent(p, MDL_ASSIGN, &left->place, left, right);

	if (e)
		e->op = op;
	return e;
}

struct mdl_expr *build_step(struct parser *p, struct mdl_expr *left, int by)
{
	struct mdl_expr *e = build_parent(p, MDL_STEP, &left->place, left, NULL);

	if (e)
		e->number = by;
	return e;
}

/* ---------------------------------------------------- code and statements */

struct mdl_code *build_code(struct parser *p, enum mdl_code_kind kind,
			    const struct mdl_place *place)
{
	struct mdl_code *c = build_node(p, sizeof(*c));

	if (c) {
		c->kind = kind;
		c->place = *place;
	}
	return c;
}

struct mdl_statement *build_statement(struct parser *p, enum mdl_statement_kind kind,
				      const struct mdl_place *place)
{
	struct mdl_statement *s = build_node(p, sizeof(*s));

	if (s) {
		s->kind = kind;
		s->place = *place;
	}
	return s;
}
