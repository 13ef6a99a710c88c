/* SPDX-License-Identifier: MIT */
/*
 * evaluate_code.c - what trees do with names: looked at, never evaluated.
 */
#include <string.h>

#include "mutator/evaluate_private.h"

struct walk {
	int (*name)(void *arg, const struct mdl_expr *x);
	constraint_found constraint;
	int (*call)(const struct mdl_expr *x);
	void *arg;
};

static int walk_expr(const struct walk *w, const struct mdl_expr *x, const char *attribute)
{
	int r = 0;

	if (!x)
		return 0;
	if (w->name && (x->kind == MDL_NAME || x->kind == MDL_CONSTRAINT))
		r = w->name(w->arg, x);
	if (!r && w->constraint && x->kind == MDL_CONSTRAINT)
		r = w->constraint(w->arg, x, attribute);
	if (!r && w->call && x->kind == MDL_CALL)
		r = w->call(x);
	if (!r)
		r = walk_expr(w, x->left, x->kind == MDL_ATTRIBUTE ? x->text : NULL);
	if (!r)
		r = walk_expr(w, x->right, NULL);
	if (!r)
		r = walk_expr(w, x->condition, NULL);
	for (size_t i = 0; i < x->arg_count && !r; i++)
		r = walk_expr(w, x->args[i], NULL);
	return r;
}

static int walk_code(const struct walk *w, const struct mdl_code *code)
{
	int r = 0;

	for (const struct mdl_code *c = code; c && !r; c = c->next) {
		r = walk_expr(w, c->expr, NULL);
		if (!r)
			r = walk_code(w, c->first);
		if (!r)
			r = walk_code(w, c->then);
		if (!r)
			r = walk_code(w, c->otherwise);
	}
	return r;
}

static int walk_statements(const struct walk *w, const struct mdl_statement *first)
{
	int r = 0;

	for (const struct mdl_statement *st = first; st && !r; st = st->next) {
		r = walk_expr(w, st->expr, NULL);
		if (!r)
			r = walk_statements(w, st->first);
		if (!r)
			r = walk_statements(w, st->then);
		if (!r)
			r = walk_statements(w, st->otherwise);
		if (!r)
			r = walk_code(w, st->code);
	}
	return r;
}

int code_names(const struct mdl_code *code, int (*found)(void *arg, const struct mdl_expr *x),
	       void *arg)
{
	return walk_code(&(struct walk){.name = found, .arg = arg}, code);
}

int expr_names(const struct mdl_expr *x, int (*found)(void *arg, const struct mdl_expr *x),
	       void *arg)
{
	return walk_expr(&(struct walk){.name = found, .arg = arg}, x, NULL);
}

int body_constraints(const struct mdl_statement *st, constraint_found found, void *arg)
{
	return walk_statements(&(struct walk){.constraint = found, .arg = arg}, st);
}

static int is_start(const struct mdl_expr *call)
{
	return call->function == MDL_DO_START_WALL || call->function == MDL_DO_START_PROCESS ||
	       call->function == MDL_DO_START_THREAD;
}

bool code_starts(const struct mdl_code *code)
{
	return walk_code(&(struct walk){.call = is_start}, code) != 0;
}

/* ---------------------------------------------------------------- size */

static unsigned parts_of_expr(const struct mdl_expr *x)
{
	unsigned parts = 1;

	if (!x)
		return 0;
	for (size_t i = 0; i < x->arg_count; i++)
		parts += parts_of_expr(x->args[i]);
	return parts + parts_of_expr(x->left) + parts_of_expr(x->right) +
	       parts_of_expr(x->condition);
}

unsigned code_parts(const struct mdl_code *code)
{
	unsigned parts = 0;

	for (const struct mdl_code *c = code; c; c = c->next)
		parts += 1 + parts_of_expr(c->expr) + code_parts(c->first) + code_parts(c->then) +
			 code_parts(c->otherwise);
	return parts;
}

/* ---------------------------------------------------------------- roles */

/* What code does to a flag. */
struct effects {
	const char *flag;
	bool sets, clears;
};

static bool is_flag(const struct effects *f, const struct mdl_expr *x)
{
	return x && x->kind == MDL_NAME && x->text && !strcmp(x->text, f->flag);
}

static bool is_zero(const struct mdl_expr *x)
{
	return x && x->kind == MDL_INTEGER && !x->number;
}

static void effects_of_expr(struct effects *f, const struct mdl_expr *x)
{
	bool clears = false, changes = false;

	if (!x)
		return;
	if (x->kind == MDL_ASSIGN && is_flag(f, x->left)) {
		changes = true;
		clears = x->op == '-' || (!x->op && is_zero(x->right));
	} else if (x->kind == MDL_STEP && is_flag(f, x->left)) {
		changes = true;
		clears = x->number < 0;
	} else if (x->kind == MDL_ADDRESS && is_flag(f, x->left)) {
		changes = true;
	}
	f->clears |= changes && clears;
	f->sets |= changes && !clears;
	effects_of_expr(f, x->left);
	effects_of_expr(f, x->right);
	effects_of_expr(f, x->condition);
	for (size_t i = 0; i < x->arg_count; i++)
		effects_of_expr(f, x->args[i]);
}

static void effects_of_code(struct effects *f, const struct mdl_code *code)
{
	for (const struct mdl_code *c = code; c; c = c->next) {
		effects_of_expr(f, c->expr);
		effects_of_code(f, c->first);
		effects_of_code(f, c->then);
		effects_of_code(f, c->otherwise);
	}
}

bool code_clears(const struct mdl_code *code, const char *flag)
{
	struct effects f = {.flag = flag};

	effects_of_code(&f, code);
	return f.clears && !f.sets;
}
