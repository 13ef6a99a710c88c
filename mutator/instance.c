/* SPDX-License-Identifier: MIT */
/*
 * instance.c - what a request made: its life on our side, and its values.
 *
 * Owns names, references to variables, functions that are paired, and what an
 * instance was worth when it joined another one. Never touches a site: links
 * are gone before an instance is.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/request.h"

uint32_t instance_hash(const char *focus)
{
	uint32_t hash = 2166136261u;

	/* FNV-1a (Fowler, Noll, Vo). */
	while (*focus)
		hash = (hash ^ (uint8_t)*focus++) * 16777619u;
	return hash;
}

struct instance *instance_new(struct session *s, const char *metric, const char *unit,
			      const char *focus, struct dinst_error *e)
{
	struct instance *i = calloc(1, sizeof(*i));

	if (i) {
		i->session = s;
		i->references = 1;
		i->metric = strdup(metric);
		i->unit = strdup(unit ? unit : "");
		i->focus = strdup(focus);
		i->hash = instance_hash(focus);
	}
	if (!i || !i->metric || !i->unit || !i->focus || !instances_enter(s, i)) {
		if (i)
			instance_free(i);
		dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		return NULL;
	}
	return i;
}

static void free_refused(struct refused_point *list, size_t count)
{
	for (size_t r = 0; r < count; r++) {
		free(list[r].where);
		free(list[r].why);
	}
	free(list);
}

void instance_free(struct instance *i)
{
	instances_leave(i->session, i);
	free_refused(i->refused, i->refused_count);
	free_refused(i->left_out, i->left_out_count);
	free(i->pair_ids);
	free(i->pair_functions);
	free(i->undos);
	free(i->variables);
	free(i->flags);
	for (size_t n = 0; n < i->base_count; n++)
		variable_value_release(&i->bases[n]);
	free(i->bases);
	free(i->metric);
	free(i->unit);
	free(i->focus);
	free(i);
}

/* -------------------------------------------------------------- letting go */

void instance_unpair(struct session *s, struct instance *i)
{
	struct dinst_error ignored = {0};
	const bool had_undos = i->undo_count != 0;

	while (i->undo_count)
		snippet_code_unref(i->undos[--i->undo_count].code);
	if (i->raw) {
		threads_drop_ids(s, i);
		return;
	}
	/* What others have there stays; without memory the old routines do, too. */
	if (had_undos)
		request_set_undos(NULL, s, i->pair_ids, i->pair_id_count, &ignored);
	for (size_t n = 0; n < i->pair_id_count; n++)
		threads_unpair(s, i->pair_ids[n]);
	i->pair_id_count = 0;
}

static void drop_plan(struct instance *i)
{
	struct plan_set *set = i->plans;

	i->plan = NULL;
	i->plans = NULL;
	if (!set || --set->references)
		return;
	mdl_plans_free(set->plans, set->count);
	mdl_reader_leave(&set->reader);
	free(set);
}

static void drop_variables(struct session *s, struct instance *i)
{
	while (i->variable_count)
		variable_unref(s, i->variables[--i->variable_count]);
	if (i->table)
		variable_unref(s, i->table);
	if (i->hits)
		variable_unref(s, i->hits);
	i->table = i->hits = NULL;
}

void instance_let_go(struct instance *i)
{
	while (i->undo_count)
		snippet_code_unref(i->undos[--i->undo_count].code);
	drop_variables(i->session, i);
	drop_plan(i);
}

void instance_strip(struct session *s, struct instance *i)
{
	instance_unpair(s, i);
	/* What is measured is off by now: then flags may go. */
	while (i->flag_count)
		removal_release(s, i->flags[--i->flag_count]);
	drop_variables(s, i);
	for (unsigned t = 0; t < i->tally_count; t++) {
		heap_unref_counter(i->tallies[t].place->heap, i->tallies[t].counter);
		if (i->tallies[t].exits)
			heap_unref_counter(i->tallies[t].place->heap, i->tallies[t].exits);
	}
	i->tally_count = 0;
	drop_plan(i);
	free_refused(i->refused, i->refused_count);
	free_refused(i->left_out, i->left_out_count);
	i->refused = i->left_out = NULL;
	i->refused_count = i->left_out_count = 0;
	free(i->flags);
	i->flags = NULL;
}

void instance_drop(struct session *s, struct instance *i)
{
	struct instance *source = i->source;

	instances_take_out(s, i);
	if (!source)
		instance_strip(s, i);
	instance_free(i);
	if (source)
		removal_release(s, source);
}

/* --------------------------------------------------------------- points */

void instance_points(const struct instance *i, size_t *points, size_t *pending)
{
	bool waits = false, gone = false;

	*points = *pending = 0;
	/* The parts of a point stand in front of its first part. */
	for (const struct link *l = instance_source(i)->links; l; l = l->next_instance) {
		/* What only says that a function is entered or left is no point of the metric. */
		if (l->snippet.kind == SNIPPET_PROGRAM && !l->snippet.code)
			continue;
		gone |= l->site->dropped;
		waits |= l->site->state == SITE_PLANNED;
		if (l->part)
			continue;
		if (!gone)
			++*(waits ? pending : points);
		gone = waits = false;
	}
	if (i->waiting)
		++*pending;
}

/* --------------------------------------------------------------- values */

int instance_read(const struct instance *i, unsigned element, struct variable_value *out,
		  struct dinst_error *e)
{
	const struct instance *source = instance_source(i);
	struct variable_value now;
	int status;

	memset(out, 0, sizeof(*out));
	if (source->raw) {
		for (unsigned t = 0; t < source->tally_count; t++)
			out->value += (int64_t)heap_read_counter(source->tallies[t].place->heap,
								 source->tallies[t].counter);
		return 0;
	}
	/* It waits for its module: nothing happened yet. */
	if (!source->variable_count)
		return 0;
	status = variable_read(i->session, source->variables[0], element, &now, e);
	if (status < 0 || element >= i->base_count) {
		*out = now;
		return status;
	}
	status = variable_difference(&now, &i->bases[element], out, e);
	variable_value_release(&now);
	/*
	 * What ran when this one began is nobody's where its thread has ended in there: see values_add_running().
	 * From here on it counts anew: what comes must not make up for that.
	 */
	if (source->variables[0]->form == VARIABLE_TIMER && source->variables[0]->elements == 1 &&
	    out->value < 0) {
		i->bases[element].value += out->value;
		out->value = 0;
	}
	return status;
}

int instance_read_bases(struct instance *i, struct dinst_error *e)
{
	struct variable *v = i->source->variables[0];
	int64_t *values = calloc(v->elements, sizeof(*values));
	int status;

	if (!values)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	status = variable_read_row(i->session, v, 0, v->elements, values, e);
	for (unsigned n = 0; n < v->elements && status >= 0; n++)
		i->bases[n].value = values[n];
	free(values);
	return status;
}

uint64_t instance_value(const struct instance *i)
{
	struct dinst_error ignored = {0};
	struct variable_value value;
	uint64_t number;

	if (instance_read(i, 0, &value, &ignored) < 0)
		return 0;
	number = (uint64_t)value.value;
	variable_value_release(&value);
	return number;
}

bool instance_hits(const struct instance *i, uint64_t *hits)
{
	const struct instance *source = instance_source(i);
	struct dinst_error ignored = {0};
	struct variable_value value;

	*hits = 0;
	if (!source->hits)
		return false;
	if (variable_read(i->session, source->hits, 0, &value, &ignored) < 0)
		return false;
	*hits = (uint64_t)value.value - i->base_hits;
	variable_value_release(&value);
	return true;
}

uint64_t instance_exits(const struct instance *i)
{
	uint64_t value = 0;

	for (unsigned t = 0; t < i->tally_count; t++)
		if (i->tallies[t].exits)
			value += heap_read_counter(i->tallies[t].place->heap, i->tallies[t].exits);
	return value;
}
