/* SPDX-License-Identifier: MIT */
/*
 * request_points.c - the points of one function for one instance: links at
 * sites, and their code.
 *
 * What fails is taken back link by link; what a thread may be in already goes
 * through the queue. Nothing here stops the target, but where a place is made
 * or is full.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/access.h"
#include "mutator/request.h"

enum { FLUSH_WORTH = 1024 }; /* things on the queue: so many more and another flush is tried */

static int add_refused(struct refused_point **list, size_t *count, const struct function_ref *f,
		       enum refusal refusal, const char *why, struct dinst_error *e)
{
	const struct image_function *functions;
	struct refused_point *r;
	size_t size;
	char *where, *text = why ? strdup(why) : NULL;

	image_functions(f->module->image, &functions);
	size = strlen(f->module->name) + strlen(functions[f->index].name) + 2;
	r = realloc(*list, (*count + 1) * sizeof(*r));
	if (r)
		*list = r;
	where = malloc(size);
	if (!r || !where || (why && !text)) {
		free(where);
		free(text);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	}
	snprintf(where, size, "%s:%s", f->module->name, functions[f->index].name);
	r[(*count)++] = (struct refused_point){.where = where, .refusal = refusal, .why = text};
	return 0;
}

int request_refuse(struct instance *i, const struct function_ref *f, enum refusal refusal,
		   const char *why, struct dinst_error *e)
{
	return add_refused(&i->refused, &i->refused_count, f, refusal, why, e);
}

int request_leave_out(struct instance *i, const struct function_ref *f, const char *why,
		      struct dinst_error *e)
{
	return add_refused(&i->left_out, &i->left_out_count, f, REFUSAL_NONE, why, e);
}

static int add_site(struct request *r, struct site *site, struct dinst_error *e)
{
	if (r->site_count == r->site_room) {
		size_t room = r->site_room ? r->site_room * 2 : 256;
		struct site **sites = realloc(r->sites, room * sizeof(struct site *));

		if (!sites)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		r->sites = sites;
		r->site_room = room;
	}
	r->sites[r->site_count++] = site;
	return 0;
}

/* --------------------------------------------------------- raw metrics */

/* The counter of the instance in place p; for exits that are paired it has another one. */
static int tally_in(struct instance *i, struct place *p, bool exits, taddr_t *counter,
		    struct dinst_error *e)
{
	int status;

	for (unsigned t = 0; t < i->tally_count; t++)
		if (i->tallies[t].place == p) {
			struct tally *tally = &i->tallies[t];

			status = exits && !tally->exits
					 ? heap_alloc_counter(p->heap, &tally->exits, e)
					 : 0;
			*counter = exits ? tally->exits : tally->counter;
			return status;
		}
	if (i->tally_count == INSTANCE_TALLIES_MAX)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: too many arenas for one instance",
				  i->focus);
	status = heap_alloc_counter(p->heap, counter, e);
	if (status < 0)
		return status;
	i->tallies[i->tally_count++] = (struct tally){.place = p, .counter = *counter};
	return exits ? tally_in(i, p, true, counter, e) : 0;
}

/* True if the metric wants something at points of that kind. */
static bool is_for(const struct raw_metric *m, enum point_kind kind)
{
	return kind == m->kind || (m->snippet == SNIPPET_ENTER && kind == POINT_EXIT);
}

/* Links one part of a point, and asks for a counter. `id`: of the function where it is paired. */
static int link_raw(struct request *r, struct instance *i, struct function_work *w,
		    struct place *place, const struct function_plan *plan, const struct point *p,
		    struct dinst_error *e)
{
	struct snippet snippet = {.kind = p->kind == w->raw->kind ? w->raw->snippet : SNIPPET_LEAVE,
				  .rank.role = MDL_MEASURES,
				  .argument = w->pair};
	const bool is_program = w->raw->snippet == SNIPPET_PROGRAM;
	struct module *m = w->function.module;
	struct site *site = NULL;
	int status;

	if (snippet.kind == SNIPPET_ADDRESS &&
	    !access_word(m->image, &plan->windows[p->window], p, m->bias, &snippet.argument))
		return dinst_fail(e, DINST_REFUSED, "the address of an access is not computable");
	status = request_site(r, m, place, plan, p, &site, e);
	if (is_program) {
		snippet.code = w->code;
		snippet.rank.role = MDL_SETS_FLAGS;
		snippet.rank.prepend = true;
	}
	if (status >= 0 && p->place != PLACE_BYPASS && !is_program)
		status = tally_in(i, site->place, snippet.kind == SNIPPET_LEAVE, &snippet.counter,
				  e);
	/* The site may be in another place than the one that was asked for. */
	if (status >= 0 && (w->pair || is_program))
		status = threads_prepare(r->session, site->place, &r->stop_ns, e);
	if (status >= 0)
		status = request_link(r, i, site, p, &snippet, e);
	if (status < 0 && site)
		request_let_go(r->session, site);
	return status;
}

/* Links every point of the metric's kind; the refused ones are listed with the instance. */
static int link_points(struct request *r, struct instance *i, struct function_work *w,
		       const struct function_plan *plan, struct place *place, struct dinst_error *e)
{
	int status = 0;
	size_t parts;

	w->pair = 0;
	if (w->raw->snippet == SNIPPET_ENTER) {
		status = threads_prepare(r->session, place, &r->stop_ns, e);
		if (status >= 0)
			status = threads_take_id(r->session, i, &w->pair, e);
	}
	for (size_t n = 0; status >= 0 && n < plan->point_count; n += parts) {
		const struct point *p = &plan->points[n];
		const struct link *mark = i->links;

		parts = request_parts(plan, n);
		if (!is_for(w->raw, p->kind))
			continue;
		if (p->window < 0) {
			status = request_refuse(i, &w->function, p->refusal, NULL, e);
			continue;
		}
		for (size_t k = 0; status >= 0 && k < parts; k++)
			status = link_raw(r, i, w, place, plan, &p[k], e);
		if (status == DINST_REFUSED) {
			dinst_error_clear(e);
			request_unlink(r->session, i, mark);
			status = request_refuse(i, &w->function, REFUSAL_UNMOVABLE, NULL, e);
		}
	}
	return status;
}

/* ----------------------------------------------------------------- code */

/* Those of the request's sites that have lost all their links are not to be patched: they are freed soon. */
static void unlist_empty(struct request *r)
{
	size_t kept = 0;

	for (size_t k = 0; k < r->site_count; k++)
		if (r->sites[k]->links)
			r->sites[kept++] = r->sites[k];
		else
			r->sites[k]->listed = false;
	r->site_count = kept;
}

/*
 * Writes the code of the sites that got their first links since `mark`, and
 * lists those that are to be patched. What cannot be generated is refused after
 * all. What had code before is written once, at the end (request_write()):
 * many instances may meet there.
 */
static int write_sites(struct request *r, struct instance *i, const struct function_work *w,
		       const struct link *mark, struct dinst_error *e)
{
	bool refused = false;
	int status = 0;

	for (struct link *l = i->links; l != mark && status >= 0; l = l->next_instance) {
		struct site *site = l->site;

		if (site->changed && !site->foreign && !site->head)
			status = site_update(r->session, site, e);
		/* Half of what is paired is worse than nothing. */
		if (status == DINST_REFUSED && !w->pair) {
			dinst_error_clear(e);
			site->foreign = refused = true;
			status = 0;
		}
		if (status >= 0 && !site->foreign && site->state == SITE_PLANNED && !site->listed) {
			status = add_site(r, site, e);
			site->listed = status >= 0;
		}
	}
	if (refused) {
		request_drop_points(r->session, i, &w->function, REFUSAL_UNMOVABLE);
		unlist_empty(r);
		for (struct site *site = r->session->changed; site; site = site->next_changed)
			site->foreign = false;
		site_update_all(r->session);
	}
	return status;
}

/* *at: the site at which it failed. */
static int write_links(struct session *s, const struct instance *i, struct site **at,
		       struct dinst_error *e)
{
	int status = 0;

	for (struct link *l = i->links; l && status >= 0; l = l->next_instance)
		if (l->site->changed) {
			*at = l->site;
			status = site_update(s, l->site, e);
		}
	return status;
}

static int write_all(struct request *r, struct instance *also, struct site **at,
		     struct dinst_error *e)
{
	int status = also ? write_links(r->session, also, at, e) : 0;

	for (size_t n = 0; n < r->count && status >= 0; n++)
		status = write_links(r->session, r->instances[n], at, e);
	for (const struct instance *i = r->hidden; i && status >= 0; i = i->next)
		status = write_links(r->session, i, at, e);
	return status;
}

/* Its heap or its journal has refused something since it was last asked. */
static bool is_full(struct place *p)
{
	const bool heap = heap_was_full(p->heap), journal = journal_was_full(p->journal);

	return heap || journal;
}

/*
 * A site's code stays in the arena that has its first, and there is no room in it. What is new may
 * have taken that: the request is begun anew, and that goes elsewhere.
 */
static int crowded(struct place *p, struct dinst_error *e)
{
	p->crowded = true;
	dinst_error_clear(e);
	return dinst_fail(
		e, DINST_NO_MEMORY,
		"the arena at %#llx (%zu KiB%s) is full, and what is inserted in some of these functions already keeps new code for them there: remove something first",
		(unsigned long long)p->arena->code, p->arena->code_size >> 10,
		p->arena->locks_memory ? ", no more since the target locks its memory" : "");
}

int request_write(struct request *r, struct instance *also, struct dinst_error *e)
{
	struct session *s = r->session;
	struct dinst_error ignored = {0};
	struct flush_result flush = {0};
	struct site *at = NULL;
	int status = write_all(r, also, &at, e);

	/* What waits on the queue may be worth enough. */
	if (status == DINST_NO_MEMORY && s->queue_length &&
	    removal_flush(s, &flush, &ignored) >= 0 && flush.freed) {
		dinst_error_clear(e);
		status = write_all(r, also, &at, e);
	}
	/* Our own memory may be what is missing. */
	return status == DINST_NO_MEMORY && is_full(at->place) ? crowded(at->place, e) : status;
}

/*
 * What to do where a place has no room: old bodies are given back, once, and
 * else the place is left for a new one. False if neither helps.
 */
static bool make_room(struct request *r, struct place *place, const struct place *newest,
		      bool *flushed)
{
	struct session *s = r->session;
	struct dinst_error ignored = {0};
	struct flush_result flush;
	bool full = false;

	for (struct place *p = s->places; p; p = p->next)
		full |= is_full(p);
	/* Each flush is a stop: not one a function where the place is full of what is used. */
	if (!*flushed && s->queue_length > r->queue_left) {
		*flushed = true;
		if (removal_flush(s, &flush, &ignored) >= 0) {
			r->queue_left = s->queue_length + FLUSH_WORTH;
			if (flush.freed)
				return true;
		}
	}
	/* What we have no memory for ourselves has room in no arena. */
	if (!full || place->full)
		return false;
	place->full = true;
	/* Where not even a new arena helps another one will not. */
	return newest == s->places;
}

/* The points that are planned on request only are asked for where a placement needs them. */
static enum point_kind widest_kind(const struct function_work *w)
{
	enum point_kind kind = w->raw ? w->raw->kind : POINT_ENTRY;

	for (size_t n = 0; n < w->count; n++)
		if (w->placements[n]->kind > kind)
			kind = w->placements[n]->kind;
	return kind;
}

/* What a failed attempt at a function has left behind. */
static void take_back(struct request *r, struct instance *i, const struct link *mark, size_t listed,
		      size_t refused, size_t left_out)
{
	while (r->site_count > listed)
		r->sites[--r->site_count]->listed = false;
	request_unlink(r->session, i, mark);
	while (i->refused_count > refused) {
		free(i->refused[--i->refused_count].where);
		free(i->refused[i->refused_count].why);
	}
	while (i->left_out_count > left_out) {
		free(i->left_out[--i->left_out_count].where);
		free(i->left_out[i->left_out_count].why);
	}
}

/* A function that is refused is not paired: nothing of it is caught up with. `functions`: noted before it. */
static void forget_function(struct request *r, struct instance *i, const struct function_work *w,
			    size_t functions)
{
	if (w->raw)
		return;
	/* Another instance may have noted it before. */
	if (r->function_count > functions) {
		r->function_count = functions;
		r->function_at[w->pair] = 0;
	}
	if (i->pair_id_count && i->pair_ids[i->pair_id_count - 1] == w->pair)
		threads_unpair(r->session, i->pair_ids[--i->pair_id_count]);
}

int request_function(struct request *r, struct instance *i, struct function_work *w,
		     struct dinst_error *e)
{
	const struct function_plan *plan;
	struct session *s = r->session;
	const struct function_ref *f = &w->function;
	const struct link *mark = i->links;
	const size_t listed = r->site_count, refused = i->refused_count;
	const size_t left_out = i->left_out_count;
	const size_t functions = r->function_count, late = r->late_count, undos = i->undo_count;
	int status = session_plan_for(s, f->module, f->index, widest_kind(w), &plan, e);
	/* What stands for exits that never come is one routine for all that measure a function: its
	 * counters are told from each other by how the arenas are divided. */
	struct place *bound = threads_undo_place(s, threads_paired(s, f));
	bool again, flushed = false;

	if (status < 0)
		return status;
	do {
		const struct place *newest = s->places;
		struct place *place;

		again = false;
		status = place_for(s, f->module, &place, &r->stop_ns, e);
		if (status < 0)
			return status;
		if (bound && !place_is_alike(place, bound))
			place = bound;
		status = w->raw ? link_points(r, i, w, plan, place, e)
				: request_link_placements(r, i, w, plan, place, e);
		if (status >= 0)
			status = write_sites(r, i, w, mark, e);
		if (status >= 0)
			break;
		take_back(r, i, mark, listed, refused, left_out);
		request_forget_late(r, i, late, undos);
		if (status == DINST_NO_MEMORY)
			again = make_room(r, place, newest, &flushed);
		if (again)
			dinst_error_clear(e);
	} while (again);
	if (status == DINST_REFUSED && w->pair) {
		/* Its code cannot be generated at one of its points. */
		char why[200];

		snprintf(why, sizeof(why), "%.190s", e->text);
		dinst_error_clear(e);
		forget_function(r, i, w, functions);
		status = request_refuse(i, f, REFUSAL_UNMOVABLE, why, e);
	}
	return status;
}

void request_drop_foreign(struct request *r, struct session *s, struct site **sites,
			  const bool *foreign, size_t site_count)
{
	bool any = false;

	for (size_t k = 0; k < site_count; k++)
		any |= sites[k]->foreign = foreign[k];
	for (size_t n = 0; any && r && n < r->count; n++)
		request_drop_points(s, r->instances[n], NULL, REFUSAL_FOREIGN);
	for (struct instance *i = r ? r->hidden : NULL; any && i; i = i->next)
		request_drop_points(s, i, NULL, REFUSAL_FOREIGN);
	for (struct instance *i = s->instances; any && i; i = i->next)
		request_drop_points(s, i, NULL, REFUSAL_FOREIGN);
	for (struct instance *i = s->hidden; any && i; i = i->next)
		request_drop_points(s, i, NULL, REFUSAL_FOREIGN);
	for (size_t k = 0; k < site_count; k++)
		sites[k]->foreign = sites[k]->unwritable = false;
	if (any)
		site_update_all(s);
}
