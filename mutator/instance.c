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

#include "mutator/evaluate.h"
#include "mutator/threads.h"
#include "mutator/variable.h"

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
	}
	if (!i || !i->metric || !i->unit || !i->focus) {
		if (i)
			instance_free(i);
		dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		return NULL;
	}
	return i;
}

void instance_free(struct instance *i)
{
	for (size_t r = 0; r < i->refused_count; r++) {
		free(i->refused[r].where);
		free(i->refused[r].why);
	}
	free(i->refused);
	free(i->pair_ids);
	free(i->pair_functions);
	free(i->undos);
	free(i->variables);
	free(i->flags);
	free(i->bases);
	free(i->metric);
	free(i->unit);
	free(i->focus);
	free(i);
}

void instance_drop(struct session *s, struct instance *i)
{
	struct instance **p = &s->instances;

	while (*p && *p != i)
		p = &(*p)->next;
	if (*p)
		*p = i->next;
	for (unsigned t = 0; t < i->tally_count; t++) {
		heap_unref_counter(i->tallies[t].place->heap, i->tallies[t].counter);
		if (i->tallies[t].exits)
			heap_unref_counter(i->tallies[t].place->heap, i->tallies[t].exits);
	}
	threads_drop_ids(s, i);
	instance_free(i);
}

/* --------------------------------------------------------------- points */

void instance_points(const struct instance *i, size_t *points, size_t *pending)
{
	bool waits = false, gone = false;

	*points = *pending = 0;
	/* The parts of a point stand in front of its first part. */
	for (const struct link *l = instance_source(i)->links; l; l = l->next_instance) {
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

uint64_t instance_value(const struct instance *i)
{
	uint64_t value = 0;

	for (unsigned t = 0; t < i->tally_count; t++)
		value += heap_read_counter(i->tallies[t].place->heap, i->tallies[t].counter);
	return value;
}

uint64_t instance_exits(const struct instance *i)
{
	uint64_t value = 0;

	for (unsigned t = 0; t < i->tally_count; t++)
		if (i->tallies[t].exits)
			value += heap_read_counter(i->tallies[t].place->heap, i->tallies[t].exits);
	return value;
}
