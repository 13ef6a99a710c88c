/* SPDX-License-Identifier: MIT */
/*
 * scope.c - what names stand for, and what may have been meant.
 */
#include <stdio.h>
#include <string.h>

#include "mutator/mdl/check.h"

const struct scope *scope_find(const struct body *b, const char *name)
{
	for (const struct scope *s = b->scope; s; s = s->outer)
		if (strcmp(s->name, name) == 0)
			return s;
	return NULL;
}

bool variable_find(const struct body *b, const char *name, enum mdl_vartype *type)
{
	if (strcmp(b->variable, name) == 0) {
		*type = b->type;
		return true;
	}
	for (const struct mdl_variable *v = b->temporaries; v; v = v->next)
		if (strcmp(v->name, name) == 0) {
			*type = v->type;
			return true;
		}
	return false;
}

static const struct mdl_list *find_in(const struct mdl_list *first, const char *name)
{
	for (const struct mdl_list *list = first; list; list = list->next)
		if (strcmp(list->name, name) == 0)
			return list;
	return NULL;
}

const struct mdl_list *list_find(const struct parser *p, const char *name)
{
	const struct mdl_list *found = find_in(p->known->lists, name);

	/* the last one loaded is the one that will be there, be it p's own or not */
	for (const struct loading *g = p->together; g; g = g->next) {
		const struct mdl_list *newer = find_in(g->parser.unit.lists, name);

		if (newer)
			found = newer;
	}
	return found;
}

/* ------------------------------------------------------------------- meant */

void meant_add(struct meant *m, const char *name)
{
	if (name && m->count < MEANT_MOST)
		m->names[m->count++] = name;
}

void meant_add_scopes(struct meant *m, const struct body *b)
{
	for (const struct scope *s = b->scope; s; s = s->outer)
		meant_add(m, s->name);
}

void meant_add_variables(struct meant *m, const struct body *b)
{
	meant_add(m, b->variable);
	for (const struct mdl_variable *v = b->temporaries; v; v = v->next)
		meant_add(m, v->name);
}

void meant_add_lists(struct meant *m, const struct parser *p)
{
	for (const struct mdl_list *list = p->unit.lists; list; list = list->next)
		meant_add(m, list->name);
	for (const struct loading *g = p->together; g; g = g->next)
		for (const struct mdl_list *list = g->parser.unit.lists; list; list = list->next)
			meant_add(m, list->name);
	for (const struct mdl_list *list = p->known->lists; list; list = list->next)
		meant_add(m, list->name);
}

const char *meant_text(const struct meant *m, const struct parser *p, const char *name,
		       char text[MEANT_TEXT])
{
	const char *best = NULL;

	/* not for messages that are only counted */
	if (!p->messages.left_out)
		best = mdl_nearest(name, m->names, m->count);
	text[0] = '\0';
	if (best)
		snprintf(text, MEANT_TEXT, "; did you mean '%.70s'?", best);
	return text;
}
