/* SPDX-License-Identifier: MIT */
/*
 * compile_scan.c - what code does, found by looking at it: whether it belongs to
 * a thread, whether it can be done at another moment, and of what form its
 * variables have to be. Emits nothing.
 */
#include <string.h>

#include "mutator/compile_private.h"

struct variable *compile_find_variable(const struct compiler *c, const char *name)
{
	for (size_t i = 0; i < c->q->variable_count; i++)
		if (c->q->variables[i] && !strcmp(c->q->variables[i]->name, name))
			return c->q->variables[i];
	return NULL;
}

static bool is_at_activation(const struct compiler *c)
{
	return c->q->placement->kind == POINT_ENTRY || c->q->placement->kind == POINT_EXIT;
}

bool compile_is_level_step(const struct compiler *c, const struct mdl_expr *x,
			   const struct variable *v)
{
	return c->q->sampled && is_at_activation(c) && x->kind == MDL_STEP &&
	       (v->form == VARIABLE_TOTAL || v->form == VARIABLE_LEVEL);
}

static void uses_of_variable(const struct compiler *c, const struct mdl_expr *x,
			     const struct mdl_expr *name, bool changed, struct compile_uses *uses)
{
	const struct variable *v;

	if (!name || name->kind != MDL_NAME || !name->text)
		return;
	if (c->local_name && !strcmp(c->local_name, name->text))
		return;
	v = compile_find_variable(c, name->text);
	if (!v)
		return;
	if (changed && compile_is_level_step(c, x, v))
		uses->thread_effects = true;
	if (v->form != VARIABLE_FLAG && v->form != VARIABLE_TIMER)
		return;
	uses->thread_reads = true;
	uses->thread_effects |= changed;
}

static void uses_of_call(const struct compiler *c, const struct mdl_expr *x,
			 struct compile_uses *uses)
{
	switch (x->function) {
	case MDL_DO_START_WALL:
	case MDL_DO_STOP_WALL:
	case MDL_DO_START_PROCESS:
	case MDL_DO_STOP_PROCESS:
	case MDL_DO_START_THREAD:
	case MDL_DO_STOP_THREAD:
		if (x->arg_count)
			uses_of_variable(c, x, x->args[0], true, uses);
		break;
	case MDL_DO_CALL:
	case MDL_DO_STACK:
		uses->moment = true;
		break;
	default:
		break;
	}
}

void uses_of_expr(const struct compiler *c, const struct mdl_expr *x, struct compile_uses *uses)
{
	if (!x)
		return;
	switch (x->kind) {
	case MDL_ARGUMENT:
	case MDL_RETURN:
		uses->moment = uses->functions = true;
		break;
	case MDL_CALLER:
	case MDL_STACK:
		uses->moment = true;
		break;
	case MDL_NAME:
		uses_of_variable(c, x, x, false, uses);
		break;
	case MDL_ASSIGN:
	case MDL_STEP:
	case MDL_ADDRESS:
		uses_of_variable(c, x, x->left, true, uses);
		break;
	case MDL_CALL:
		uses_of_call(c, x, uses);
		break;
	default:
		break;
	}
	uses_of_expr(c, x->left, uses);
	uses_of_expr(c, x->right, uses);
	uses_of_expr(c, x->condition, uses);
	for (size_t i = 0; i < x->arg_count; i++)
		uses_of_expr(c, x->args[i], uses);
}

void uses_of_code(const struct compiler *c, const struct mdl_code *code, struct compile_uses *uses)
{
	for (; code; code = code->next) {
		uses_of_expr(c, code->expr, uses);
		uses_of_code(c, code->then, uses);
		uses_of_code(c, code->otherwise, uses);
		uses_of_code(c, code->first, uses);
	}
}

/* ---------------------------------------------------------------- forms */

struct form_search {
	const char *name;
	bool level; /* is set, or read */
};

static bool names(const struct mdl_expr *x, const char *name)
{
	return x && x->kind == MDL_NAME && x->text && !strcmp(x->text, name);
}

/* `wanted`: what the expression gives is used. */
static void search_expr(struct form_search *s, const struct mdl_expr *x, bool wanted)
{
	if (!x)
		return;
	if (names(x, s->name) || (names(x->left, s->name) &&
				  ((x->kind == MDL_ASSIGN && (!x->op || wanted)) ||
				   (x->kind == MDL_STEP && wanted) || x->kind == MDL_ADDRESS))) {
		s->level = true;
		return;
	}
	if (!((x->kind == MDL_ASSIGN || x->kind == MDL_STEP) && names(x->left, s->name)))
		search_expr(s, x->left, true);
	search_expr(s, x->right, true);
	search_expr(s, x->condition, true);
	for (size_t i = 0; i < x->arg_count; i++)
		search_expr(s, x->args[i], true);
}

static void search_code(struct form_search *s, const struct mdl_code *code)
{
	for (; code; code = code->next) {
		search_expr(s, code->expr, code->kind != MDL_CODE_EXPR);
		search_code(s, code->then);
		search_code(s, code->otherwise);
		search_code(s, code->first);
	}
}

static bool is_level(const struct mdl_plan *plan, const char *name)
{
	struct form_search s = {.name = name};

	for (size_t i = 0; i < plan->placement_count && !s.level; i++)
		search_code(&s, plan->placements[i].code);
	return s.level;
}

static enum variable_form form_of(const struct mdl_plan *plan, const struct variable *v)
{
	switch (v->type) {
	case MDL_WALL_TIMER:
	case MDL_PROCESS_TIMER:
	case MDL_THREAD_TIMER:
		return VARIABLE_TIMER;
	case MDL_DISTRIBUTION:
		return VARIABLE_DISTRIBUTION;
	case MDL_STREAM:
		return VARIABLE_STREAM;
	default:
		break;
	}
	/* Temporaries are a thread's own. */
	if (strcmp(v->name, plan->metric->id) != 0)
		return VARIABLE_FLAG;
	return is_level(plan, v->name) ? VARIABLE_LEVEL : VARIABLE_TOTAL;
}

int compile_choose_forms(const struct mdl_plan *plan, struct variable *const *variables,
			 size_t count, struct dinst_error *e)
{
	if (!plan->metric)
		return dinst_fail(e, DINST_FAILED, "a plan without a metric has no variables");
	for (size_t i = 0; i < count; i++)
		if (variables[i] && variables[i]->form != VARIABLE_TABLE)
			variables[i]->form = form_of(plan, variables[i]);
	return 0;
}
