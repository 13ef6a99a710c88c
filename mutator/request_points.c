/* SPDX-License-Identifier: MIT */
/*
 * request_points.c - the points of one function for one instance: links at
 * sites, counters, and refusals.
 *
 * What fails is taken back link by link; what a thread may be in already goes
 * through the queue. Nothing here stops the target.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/access.h"
#include "mutator/request.h"
#include "mutator/threads.h"

enum { FLUSH_WORTH = 1024 }; /* things on the queue: so many more and another flush is tried */

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

static int refuse(struct instance *i, const struct function_ref *f, enum refusal why,
		  struct dinst_error *e)
{
	const struct image_function *functions;
	struct refused_point *r;
	size_t size;
	char *where;

	image_functions(f->module->image, &functions);
	size = strlen(f->module->name) + strlen(functions[f->index].name) + 2;
	r = realloc(i->refused, (i->refused_count + 1) * sizeof(*r));
	if (r)
		i->refused = r;
	where = malloc(size);
	if (!r || !where) {
		free(where);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	}
	snprintf(where, size, "%s:%s", f->module->name, functions[f->index].name);
	r[i->refused_count++] = (struct refused_point){.where = where, .refusal = why};
	return 0;
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

/* Nothing leads to it, nothing ever did, and nobody wants anything of it. */
static bool site_is_fresh(const struct site *site)
{
	return site->state == SITE_PLANNED && !site->touched && !site->entered && !site->listed &&
	       !site->links && !site->queued && !site->spent && !site->guests;
}

/* A window is the original again: look at all of its module, which was loaded anew perhaps. */
static void notice_reverted(struct session *s, const struct module *m)
{
	for (size_t b = 0; b < s->site_buckets; b++)
		for (struct site *site = s->site_hash[b]; site; site = site->next_hash) {
			if (site->module != m || site_is_in_place(s, site))
				continue;
			site->state = SITE_PLANNED;
			site->touched = true;
			s->maybe_pending = true;
		}
}

/* The end of the point whose links begin at l: behind its first part. */
static struct link *behind_point(struct link *l, bool *foreign)
{
	*foreign = false;
	for (bool last = false; l && !last; l = l->next_instance) {
		*foreign |= l->site->foreign;
		last = !l->part;
	}
	return l;
}

/* Takes from the instance all points with a part at a site that is `foreign`: refused after all. */
static void drop_points(struct session *s, struct instance *i, const struct function_ref *f,
			enum refusal why)
{
	struct dinst_error ignored = {0};
	struct link **p = &i->links;

	while (*p) {
		bool foreign;
		struct link *l = *p, *end = behind_point(l, &foreign), *next;
		const struct function_ref own = {.module = l->site->module,
						 .index = l->site->function};

		if (!foreign) {
			while (*p != end)
				p = &(*p)->next_instance;
			continue;
		}
		*p = end;
		for (; l != end; l = next) {
			next = l->next_instance;
			i->link_count--;
			site_unlink(s, l);
		}
		refuse(i, f ? f : &own, why, &ignored);
	}
}

/* The host of a part's window is a further part of the point, without a snippet. */
static int link_host(struct session *s, struct instance *i, struct site *host,
		     const struct point *p, struct dinst_error *e)
{
	const struct snippet nothing = {.kind = SNIPPET_NONE};
	const struct point part = {
		.kind = p->kind, .part = UINT16_MAX, .place = PLACE_BEFORE, .live = arch_all_live};

	if (!site_is_in_place(s, host))
		notice_reverted(s, host->module);
	return site_link(s, host, &part, &nothing, i, e);
}

/* True if the metric wants something at points of that kind. */
static bool is_for(const struct raw_metric *m, enum point_kind kind)
{
	return kind == m->kind || (m->snippet == SNIPPET_ENTER && kind == POINT_EXIT);
}

/*
 * Links one part of a point: makes its site if need be, and asks for a counter.
 * `id`: the number of the function where it is paired.
 */
static int link_part(struct request *r, struct instance *i, struct module *m, struct place *place,
		     const struct function_plan *plan, const struct point *p, uint32_t id,
		     struct dinst_error *e)
{
	struct snippet snippet = {.kind = p->kind == r->metric->kind ? r->metric->snippet
								     : SNIPPET_LEAVE,
				  .argument = id};
	struct session *s = r->session;
	struct site *site;
	int status;

	if (snippet.kind == SNIPPET_ADDRESS &&
	    !access_word(m->image, &plan->windows[p->window], p, m->bias, &snippet.argument))
		return dinst_fail(e, DINST_REFUSED, "the address of an access is not computable");
	status = site_make(s, m, place, plan, (unsigned)p->window, &site, e);
	if (status < 0)
		return status;
	if (!site_is_in_place(s, site))
		notice_reverted(s, m);
	if (p->place == PLACE_BYPASS)
		snippet.kind = SNIPPET_NONE;
	else
		status = tally_in(i, site->place, snippet.kind == SNIPPET_LEAVE, &snippet.counter,
				  e);
	/* The site may be in another place than the one that was asked for. */
	if (status >= 0 && id)
		status = threads_prepare(s, site->place, &r->stop_ns, e);
	if (status >= 0)
		status = site_link(s, site, p, &snippet, i, e);
	return status < 0 || !site->host ? status : link_host(s, i, site->host, p, e);
}

/* Takes back the links that the instance got since `mark` was its first. */
static void take_back(struct session *s, struct instance *i, const struct link *mark)
{
	while (i->links != mark) {
		struct link *l = i->links;
		struct site *site = l->site;

		i->links = l->next_instance;
		i->link_count--;
		site_unlink(s, l);
		if (site_is_fresh(site))
			site_free(s, site);
	}
	site_update_all(s);
}

/* How many parts the point that begins at plan->points[n] has. */
static size_t count_parts(const struct function_plan *plan, size_t n)
{
	size_t count = 1;

	while (n + count < plan->point_count && plan->points[n + count].part)
		count++;
	return count;
}

/* Links every point of the metric's kind; the refused ones are listed with the instance. */
static int link_points(struct request *r, struct instance *i, const struct function_ref *f,
		       const struct function_plan *plan, struct place *place, struct dinst_error *e)
{
	uint32_t id = 0;
	int status = 0;
	size_t parts;

	if (r->metric->snippet == SNIPPET_ENTER) {
		status = threads_prepare(r->session, place, &r->stop_ns, e);
		if (status >= 0)
			status = threads_take_id(r->session, i, &id, e);
	}

	for (size_t n = 0; status >= 0 && n < plan->point_count; n += parts) {
		const struct point *p = &plan->points[n];
		const struct link *mark = i->links;

		parts = count_parts(plan, n);
		if (!is_for(r->metric, p->kind))
			continue;
		if (p->window < 0) {
			status = refuse(i, f, p->refusal, e);
			continue;
		}
		for (size_t k = 0; status >= 0 && k < parts; k++)
			status = link_part(r, i, f->module, place, plan, &p[k], id, e);
		if (status == DINST_REFUSED) {
			dinst_error_clear(e);
			take_back(r->session, i, mark);
			status = refuse(i, f, REFUSAL_UNMOVABLE, e);
		}
	}
	return status;
}

/*
 * Writes the code of the sites that got links since `mark`, and lists those
 * that are to be patched. What cannot be generated is refused after all.
 */
static int write_sites(struct request *r, struct instance *i, const struct function_ref *f,
		       const struct link *mark, struct dinst_error *e)
{
	bool refused = false;
	int status = 0;

	for (struct link *l = i->links; l != mark && status >= 0; l = l->next_instance) {
		struct site *site = l->site;

		if (site->changed && !site->foreign)
			status = site_update(r->session, site, e);
		if (status == DINST_REFUSED) {
			dinst_error_clear(e);
			site->foreign = refused = true;
			status = 0;
		}
		if (status >= 0 && !site->foreign && site->state == SITE_PLANNED && !site->listed) {
			status = add_site(r, site, e);
			site->listed = status >= 0;
		}
	}
	if (refused)
		drop_points(r->session, i, f, REFUSAL_UNMOVABLE);
	return status;
}

/* Writes what one function needs for instance i; the window stays untouched for now. */
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

	/* Each flush is a stop: not one a function where the place is full of what is used. */
	if (!*flushed && s->queue_length > r->queue_left) {
		*flushed = true;
		if (removal_flush(s, &flush, &ignored) >= 0) {
			r->queue_left = s->queue_length + FLUSH_WORTH;
			if (flush.freed)
				return true;
		}
	}
	if (place->full)
		return false;
	place->full = true;
	/* Where not even a new arena helps another one will not. */
	return newest == s->places;
}

int request_prepare(struct request *r, struct instance *i, const struct function_ref *f,
		    struct dinst_error *e)
{
	const struct function_plan *plan;
	struct session *s = r->session;
	const struct link *mark = i->links;
	const size_t listed = r->site_count, refused = i->refused_count;
	int status = session_plan_for(s, f->module, f->index, r->metric->kind, &plan, e);
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
		status = link_points(r, i, f, plan, place, e);
		if (status >= 0)
			status = write_sites(r, i, f, mark, e);
		if (status >= 0)
			break;
		while (r->site_count > listed)
			r->sites[--r->site_count]->listed = false;
		take_back(s, i, mark);
		while (i->refused_count > refused)
			free(i->refused[--i->refused_count].where);
		if (status == DINST_NO_MEMORY)
			again = make_room(r, place, newest, &flushed);
		if (again)
			dinst_error_clear(e);
	} while (again);
	return status;
}

void request_drop_foreign(struct session *s, struct instance **instances, size_t count,
			  struct site **sites, const bool *foreign, size_t site_count)
{
	bool any = false;

	for (size_t k = 0; k < site_count; k++)
		any |= sites[k]->foreign = foreign[k];
	for (size_t n = 0; any && n < count; n++)
		drop_points(s, instances[n], NULL, REFUSAL_FOREIGN);
	for (struct instance *i = s->instances; any && i; i = i->next)
		drop_points(s, i, NULL, REFUSAL_FOREIGN);
	for (size_t k = 0; k < site_count; k++)
		sites[k]->foreign = false;
	if (any)
		site_update_all(s);
}
