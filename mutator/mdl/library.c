/* SPDX-License-Identifier: MIT */
/*
 * library.c - what is loaded.
 *
 * Owns the definitions of all texts and the memory they lie in. A text goes in
 * whole or not at all; what a newer one replaces stays in memory as long as
 * somebody reads who began before it was replaced, and goes when all of its text is.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/mdl/private.h"

int mdl_library_create(struct mdl_library **out, struct dinst_error *e)
{
	struct mdl_library *l = calloc(1, sizeof(*l));

	if (!l)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the metrics");
	*out = l;
	return 0;
}

void mdl_library_free(struct mdl_library *l)
{
	struct kept_pool *k, *next;

	if (!l)
		return;
	for (k = l->pools; k; k = next) {
		struct pool pool = k->pool;

		/* it lies in its own pool */
		next = k->next;
		pool_free(&pool);
	}
	free(l);
}

/* ------------------------------------------------------------------ commit */

/*
 * Each puts one definition into its list, which is sorted by name, in the place
 * of the older one of its name.
 */
#define DEFINE_PUT(function, type, key)                                     \
	static void function(struct type **list, struct type *d)            \
	{                                                                   \
		int order = 1;                                              \
                                                                            \
		while (*list && (order = strcmp((*list)->key, d->key)) < 0) \
			list = &(*list)->next;                              \
		d->next = *list && order == 0 ? (*list)->next : *list;      \
		*list = d;                                                  \
	}

DEFINE_PUT(put_list, mdl_list, name)
DEFINE_PUT(put_constraint, mdl_constraint, name)
DEFINE_PUT(put_metric, mdl_metric, id)

static bool counts(const struct mdl_library *l, const struct pool *p)
{
	for (const struct mdl_list *list = l->lists; list; list = list->next)
		if (pool_has(p, list))
			return true;
	for (const struct mdl_constraint *c = l->constraints; c; c = c->next)
		if (pool_has(p, c))
			return true;
	for (const struct mdl_metric *m = l->metrics; m; m = m->next)
		if (pool_has(p, m))
			return true;
	return false;
}

/* Texts of which nothing is left that counts. */
static void bury(struct mdl_library *l)
{
	for (struct kept_pool *k = l->pools; k; k = k->next)
		if (!k->died && !counts(l, &k->pool))
			k->died = l->time;
}

void library_commit(struct mdl_library *l, struct parser *p, struct kept_pool *k)
{
	struct mdl_list *list, *next_list;
	struct mdl_constraint *constraint, *next_constraint;
	struct mdl_metric *metric, *next_metric;

	for (list = p->unit.lists; list; list = next_list) {
		next_list = list->next;
		put_list(&l->lists, list);
	}
	for (constraint = p->unit.constraints; constraint; constraint = next_constraint) {
		next_constraint = constraint->next;
		put_constraint(&l->constraints, constraint);
	}
	for (metric = p->unit.metrics; metric; metric = next_metric) {
		next_metric = metric->next;
		put_metric(&l->metrics, metric);
	}
	p->source->next = l->sources;
	l->sources = p->source;
	k->source = p->source;
	k->born = ++l->time;
	k->next = l->pools;
	l->pools = k;
	bury(l);
}

/* ------------------------------------------------------------- giving back */

void mdl_reader_enter(struct mdl_library *l, struct mdl_reader *r)
{
	*r = (struct mdl_reader){.of = l, .since = l->time};
	r->next = l->readers;
	r->link = &l->readers;
	if (r->next)
		r->next->link = &r->next;
	l->readers = r;
}

void mdl_reader_leave(struct mdl_reader *r)
{
	struct mdl_library *l = r->of;

	*r->link = r->next;
	if (r->next)
		r->next->link = r->link;
	mdl_library_sweep(l);
}

/* Somebody has begun to read while its definitions counted, and has not ended. */
static bool is_read(const struct mdl_library *l, const struct kept_pool *k)
{
	for (const struct mdl_reader *r = l->readers; r; r = r->next)
		if (r->since >= k->born && r->since < k->died)
			return true;
	return false;
}

static void forget_source(struct mdl_library *l, const struct source *source)
{
	struct source **at = &l->sources;

	while (*at != source)
		at = &(*at)->next;
	*at = (*at)->next;
}

void mdl_library_sweep(struct mdl_library *l)
{
	struct kept_pool **at = &l->pools, *k;
	struct pool pool;

	while ((k = *at)) {
		if (!k->died || is_read(l, k)) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		forget_source(l, k->source);
		/* it lies in its own pool */
		pool = k->pool;
		pool_free(&pool);
	}
}

/* --------------------------------------------------------------------- find */

const struct mdl_metric *mdl_find_metric(const struct mdl_library *l, const char *name)
{
	for (const struct mdl_metric *m = l->metrics; m; m = m->next)
		if (strcmp(m->id, name) == 0)
			return m;
	for (const struct mdl_metric *m = l->metrics; m; m = m->next)
		if (strcmp(m->name, name) == 0)
			return m;
	return NULL;
}

const struct mdl_constraint *mdl_find_constraint(const struct mdl_library *l, const char *name)
{
	for (const struct mdl_constraint *c = l->constraints; c; c = c->next)
		if (strcmp(c->name, name) == 0)
			return c;
	return NULL;
}

const struct mdl_list *mdl_find_list(const struct mdl_library *l, const char *name)
{
	for (const struct mdl_list *list = l->lists; list; list = list->next)
		if (strcmp(list->name, name) == 0)
			return list;
	return NULL;
}

const struct mdl_metric *mdl_metrics(const struct mdl_library *l)
{
	return l->metrics;
}

const struct mdl_constraint *mdl_constraints(const struct mdl_library *l)
{
	return l->constraints;
}

const struct mdl_constraint *mdl_used_constraint(const struct mdl_library *l,
						 const struct mdl_use *use)
{
	return use->constraint ? use->constraint : mdl_find_constraint(l, use->name);
}

/* ----------------------------------------------------------------- messages */

int mdl_fail(const struct mdl_library *l, struct dinst_error *e, int code,
	     const struct mdl_place *place, const char *format, ...)
{
	char told[DINST_ERROR_TEXT];
	const struct source *source = NULL;
	struct messages m;
	va_list args;

	for (const struct source *s = l ? l->sources : NULL; s && !source; s = s->next)
		if (s->file == place->file)
			source = s;
	messages_init(&m, told, sizeof(told));
	va_start(args, format);
	messages_add_list(&m, source, place, format, args);
	va_end(args);
	return dinst_fail_text(e, code, told);
}
