/* SPDX-License-Identifier: MIT */
/*
 * outside.c - statements that stand outside of metrics, as papers/002 shows them:
 *
 *	foreach i in $procedures
 *		append preInsn i.entry (* proc_calls++; *)
 *
 * is a metric named like the counter that it changes. Several statements that
 * change the same one are one metric.
 */
#include <string.h>

#include "mutator/mdl/tree.h"

/* Also tells such a metric from those that are written out: by its address. */
static const char outside_units[] = "events";

/* The first variable that is changed, in the order of the text; NULL if none is. */
static const char *changed_by_expr(const struct mdl_expr *e)
{
	const char *name = NULL;

	if (!e)
		return NULL;
	if ((e->kind == MDL_ASSIGN || e->kind == MDL_STEP || e->kind == MDL_ADDRESS) &&
	    e->left->kind == MDL_NAME)
		return e->left->text;
	name = changed_by_expr(e->condition);
	if (!name)
		name = changed_by_expr(e->left);
	if (!name)
		name = changed_by_expr(e->right);
	for (size_t i = 0; i < e->arg_count && !name; i++)
		name = changed_by_expr(e->args[i]);
	return name;
}

static const char *changed_by_code(const struct mdl_code *first)
{
	const char *name = NULL;

	for (const struct mdl_code *c = first; c && !name; c = c->next) {
		name = changed_by_expr(c->expr);
		if (!name)
			name = changed_by_code(c->first);
		if (!name)
			name = changed_by_code(c->then);
		if (!name)
			name = changed_by_code(c->otherwise);
	}
	return name;
}

static const char *changed_by(const struct mdl_statement *first)
{
	const char *name = NULL;

	for (const struct mdl_statement *s = first; s && !name; s = s->next) {
		name = changed_by_code(s->code);
		if (!name)
			name = changed_by(s->first);
		if (!name)
			name = changed_by(s->then);
		if (!name)
			name = changed_by(s->otherwise);
	}
	return name;
}

static struct metric_parts *metric_of(struct parser *p, const struct mdl_place *place,
				      const char *name)
{
	struct mdl_metric *m;
	struct metric_parts *parts;

	for (m = p->unit.metrics; m; m = m->next)
		if (m->units == outside_units && strcmp(m->id, name) == 0)
			return (struct metric_parts *)m; /* its first member */
	parts = build_declaration(p, sizeof(*parts));
	if (!parts)
		return NULL;
	m = &parts->metric;
	m->base = build_statement(p, MDL_BLOCK, place);
	if (!m->base)
		return NULL;
	m->units = outside_units;
	m->type = MDL_COUNTER;
	return unit_add_metric(p, parts, place, name) ? parts : NULL;
}

bool unit_add_statement(struct parser *p, struct mdl_statement *s)
{
	const char *name = changed_by(s);
	struct metric_parts *m;

	if (!name) {
		/* unless what changes it is what is wrong */
		if (!p->messages.count)
			parser_error(p, &s->place,
				     "what stands outside of metrics counts something: its code "
				     "changes a counter, which names the metric that it is; for "
				     "anything else, write a metric");
		return true;
	}
	m = metric_of(p, &s->place, name);
	if (!m)
		return false;
	if (m->last_statement)
		m->last_statement->next = s;
	else
		m->metric.base->first = s;
	m->last_statement = s;
	return true;
}
