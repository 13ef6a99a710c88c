/* SPDX-License-Identifier: MIT */
/*
 * check.c - declarations: what is there twice, and what is missing.
 *
 * Owns which variables the body of a base or a constraint has. A constraint that
 * a metric names need not be known: it is looked for when it is needed.
 */
#include "mutator/mdl/check.h"

#include <string.h>

static void twice(struct parser *p, const struct mdl_place *place, const char *what,
		  const char *name, const struct mdl_place *first)
{
	parser_error(p, place, "there is a %s '%.60s' already, in line %u", what, name,
		     first->line);
}

/* -------------------------------------------------------------- constraints */

static void check_constraint(struct parser *p, const struct mdl_constraint *c,
			     const struct mdl_metric *metric)
{
	struct body b = {
		.p = p,
		.constraint = c,
		.variable = c->name,
		.type = MDL_COUNTER,
	};

	if (c->kind == MDL_REPLACE && !metric) {
		parser_error(
			p, &c->place,
			"what 'is replace' belongs to a metric: it stands in the base's place");
		return;
	}
	if (c->kind == MDL_REPLACE) {
		b.variable = metric->id;
		b.type = c->type;
		b.temporaries = metric->variables;
	}
	if (c->body)
		check_statement(&b, c->body);
}

/* ------------------------------------------------------------------ metrics */

static void check_names_of_metric(struct parser *p, const struct mdl_metric *m)
{
	for (const struct mdl_variable *v = m->variables; v; v = v->next) {
		if (v->type == MDL_VOID)
			parser_error(p, &v->place, "a variable cannot be void");
		if (v->type == MDL_STREAM)
			parser_error(p, &v->place,
				     "a stream is the metric's own: 'base is stream { ... }', and "
				     "record(%.60s, ...) in it",
				     m->id);
		if (strcmp(v->name, m->id) == 0)
			parser_error(p, &v->place, "'%.60s' is the metric's own variable already",
				     v->name);
		for (const struct mdl_variable *o = m->variables; o != v; o = o->next)
			if (strcmp(o->name, v->name) == 0) {
				twice(p, &v->place, "variable", v->name, &o->place);
				break;
			}
	}
	for (const struct mdl_use *u = m->uses; u; u = u->next)
		for (const struct mdl_use *o = m->uses; o != u; o = o->next)
			if (strcmp(o->name, u->name) == 0) {
				twice(p, &u->place, "constraint", u->name, &o->place);
				break;
			}
}

static void check_metric(struct parser *p, const struct mdl_metric *m)
{
	struct body b = {
		.p = p,
		.variable = m->id,
		.type = m->type,
		.temporaries = m->variables,
	};

	check_names_of_metric(p, m);
	for (const struct mdl_use *u = m->uses; u; u = u->next)
		if (u->constraint)
			check_constraint(p, u->constraint, m);
	if (m->base)
		check_statement(&b, m->base);
	else
		parser_error(p, &m->place, "metric '%.60s' has no base: 'base is counter { ... }'",
			     m->id);
}

/* --------------------------------------------------------------------- all */

/* What stands before `of` in the text and has its name. */
#define DEFINE_EARLIER(function, type, key)                                                 \
	static const struct type *function(const struct type *first, const struct type *of) \
	{                                                                                   \
		for (const struct type *d = first; d != of; d = d->next)                    \
			if (strcmp(d->key, of->key) == 0)                                   \
				return d;                                                   \
		return NULL;                                                                \
	}

DEFINE_EARLIER(earlier_list, mdl_list, name)
DEFINE_EARLIER(earlier_constraint, mdl_constraint, name)
DEFINE_EARLIER(earlier_metric, mdl_metric, id)

void check_unit(struct parser *p)
{
	const struct unit *u = &p->unit;

	for (const struct mdl_list *l = u->lists; l; l = l->next) {
		const struct mdl_list *earlier = earlier_list(u->lists, l);

		if (earlier)
			twice(p, &l->place, "list", l->name, &earlier->place);
	}
	for (const struct mdl_constraint *c = u->constraints; c; c = c->next) {
		const struct mdl_constraint *earlier = earlier_constraint(u->constraints, c);

		if (earlier)
			twice(p, &c->place, "constraint", c->name, &earlier->place);
		check_constraint(p, c, NULL);
	}
	for (const struct mdl_metric *m = u->metrics; m; m = m->next) {
		const struct mdl_metric *earlier = earlier_metric(u->metrics, m);

		if (earlier)
			twice(p, &m->place, "metric", m->id, &earlier->place);
		check_metric(p, m);
	}
}
