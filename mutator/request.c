/* SPDX-License-Identifier: MIT */
/*
 * request.c - from a metric and its foci to points, sites and counters.
 *
 * A request makes one instance per focus, or with `each` one per function that
 * a focus matches. All instances of a request go in with one batch. If the
 * machinery fails nothing of the request stays; points that cannot be
 * instrumented are listed with the instance and do not fail it, unless there is
 * no other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/request.h"

/* -------------------------------------------------------------- metrics */

static const struct metric built_in[] = {
	{.name = "calls", .unit = "calls", .constraints = "/Code", .kind = POINT_ENTRY},
};

const struct metric *metric_find(const char *name)
{
	for (size_t i = 0; i < sizeof(built_in) / sizeof(built_in[0]); i++)
		if (!strcmp(built_in[i].name, name))
			return &built_in[i];
	return NULL;
}

size_t metric_all(const struct metric **metrics)
{
	*metrics = built_in;
	return sizeof(built_in) / sizeof(built_in[0]);
}

/* ------------------------------------------------------------ instances */

void instance_points(const struct instance *i, size_t *points, size_t *pending)
{
	*points = *pending = 0;
	for (const struct link *l = i->links; l; l = l->next_instance)
		if (l->site->dropped)
			continue;
		else if (l->site->state == SITE_PATCHED)
			++*points;
		else if (l->site->state == SITE_PLANNED)
			++*pending;
	if (i->waiting)
		++*pending;
}

uint64_t instance_value(const struct instance *i)
{
	uint64_t value = 0;

	for (unsigned t = 0; t < i->tally_count; t++)
		value += heap_read_counter(i->tallies[t].place->heap, i->tallies[t].counter);
	return value;
}

void instance_drop(struct session *s, struct instance *i)
{
	struct instance **p = &s->instances;

	while (*p && *p != i)
		p = &(*p)->next;
	if (*p)
		*p = i->next;
	for (unsigned t = 0; t < i->tally_count; t++)
		heap_unref_counter(i->tallies[t].place->heap, i->tallies[t].counter);
	instance_free(i);
}

static int tally_in(struct instance *i, struct place *p, taddr_t *counter, struct dinst_error *e)
{
	int status;

	for (unsigned t = 0; t < i->tally_count; t++)
		if (i->tallies[t].place == p) {
			*counter = i->tallies[t].counter;
			return 0;
		}
	if (i->tally_count == INSTANCE_TALLIES_MAX)
		return dinst_fail(e, DINST_NO_MEMORY, "%s: too many arenas for one instance",
				  i->focus);
	status = heap_alloc_counter(p->heap, counter, e);
	if (status < 0)
		return status;
	i->tallies[i->tally_count++] = (struct tally){.place = p, .counter = *counter};
	return 0;
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

/* -------------------------------------------------------------- requests */

static struct instance *add_instance(struct request *r, const char *focus, struct dinst_error *e)
{
	struct instance *i = calloc(1, sizeof(*i));

	if (r->count == r->room) {
		size_t room = r->room ? r->room * 2 : 64;
		struct instance **instances = realloc(r->instances, room * sizeof(*instances));

		if (instances) {
			r->instances = instances;
			r->room = room;
		}
	}
	if (i)
		i->focus = strdup(focus);
	if (!i || !i->focus || r->count == r->room) {
		if (i)
			free(i->focus);
		free(i);
		dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		return NULL;
	}
	i->metric = r->metric;
	r->instances[r->count++] = i;
	return i;
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

/* Nothing leads to it and nothing ever did. */
static bool site_is_fresh(const struct site *site)
{
	return site && site->state == SITE_PLANNED && !site->touched && !site->listed &&
	       !site->links && !site->queued && !site->queued_links;
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

/*
 * Writes what one point needs: its site and a mini for instance i. A place that
 * is full is left for a new one.
 */
static int prepare_point(struct request *r, struct instance *i, const struct function_ref *f,
			 const struct function_plan *plan, const struct point *p,
			 struct site **site, struct dinst_error *e)
{
	struct session *s = r->session;
	bool again;
	int status;

	do {
		const struct place *newest = s->places;
		struct snippet snippet = {.kind = r->metric->snippet};
		struct place *place;

		again = false;
		*site = NULL;
		status = place_for(s, f->module, &place, &r->stop_ns, e);
		if (status < 0)
			return status;
		status = site_make(s, f->module, place, plan, (unsigned)p->window, site, e);
		if (status >= 0 && !site_is_in_place(s, *site))
			notice_reverted(s, f->module);
		if (status >= 0)
			status = tally_in(i, (*site)->place, &snippet.counter, e);
		if (status >= 0)
			status = site_link(s, *site, p, &snippet, i, e);
		if (status >= 0)
			return status;
		if (status == DINST_NO_MEMORY && !place->full && (!*site || site_is_fresh(*site))) {
			/* Where not even a new arena helps another one will not. */
			again = newest == s->places;
			place->full = true;
		}
		if (site_is_fresh(*site))
			site_free(s, *site);
		if (again)
			dinst_error_clear(e);
	} while (again);
	return status;
}

/* Writes what one function needs for instance i; the window stays untouched for now. */
int request_prepare(struct request *r, struct instance *i, const struct function_ref *f,
		    struct dinst_error *e)
{
	const struct function_plan *plan;
	struct session *s = r->session;
	int status = session_plan(s, f->module, f->index, &plan, e);

	for (size_t n = 0; status >= 0 && n < plan->point_count; n++) {
		const struct point *p = &plan->points[n];
		struct site *site;

		if (p->kind != r->metric->kind)
			continue;
		if (p->window < 0) {
			status = refuse(i, f, p->refusal, e);
			continue;
		}
		status = prepare_point(r, i, f, plan, p, &site, e);
		if (status == DINST_REFUSED) {
			dinst_error_clear(e);
			status = refuse(i, f, REFUSAL_UNMOVABLE, e);
			continue;
		}
		if (status >= 0 && site->state == SITE_PLANNED && !site->listed) {
			site->listed = true;
			status = add_site(r, site, e);
		}
	}
	return status;
}

static int check_focus(const struct metric *m, const char *focus, struct dinst_error *e)
{
	if (focus[0] != '/' || !strcmp(focus, "/Code") || !strncmp(focus, "/Code/", 6))
		return 0;
	return dinst_fail(e, DINST_USAGE,
			  "%s cannot be constrained by %s: it takes a focus below %s, for example "
			  "/Code/libc.so.6/malloc",
			  m->name, focus, m->constraints);
}

static void name_of(const struct function_ref *f, char *text, size_t size)
{
	const struct image_function *functions;

	image_functions(f->module->image, &functions);
	snprintf(text, size, "/Code/%s/%s", f->module->name, functions[f->index].name);
}

int request_find(const struct session *s, const char *focus, struct function_ref **functions,
		 size_t *count, struct dinst_error *e)
{
	return focus[0] == '/' ? find_resource(s->modules, focus, functions, count, e)
			       : find_functions(s->modules, focus, functions, count, e);
}

/*
 * A shared object that is not mapped may still come (dlopen, or a program that
 * has only just been started); any other unknown name is a mistake.
 */
static bool may_come(const char *focus)
{
	const char *module = focus + strlen("/Code/");
	size_t size;

	if (strncmp(focus, "/Code/", strlen("/Code/")))
		return false;
	size = strcspn(module, "/");
	return memmem(module, size, ".so", 3) && !memchr(module, '*', size);
}

static int prepare_focus(struct request *r, const char *focus, bool each, struct dinst_error *e)
{
	struct function_ref *functions = NULL;
	struct instance *i = NULL;
	size_t count = 0;
	int status = check_focus(r->metric, focus, e);

	if (status < 0)
		return status;
	status = request_find(r->session, focus, &functions, &count, e);
	if (status == DINST_NO_MODULE && may_come(focus)) {
		dinst_error_clear(e);
		i = add_instance(r, focus, e);
		if (!i)
			return DINST_NO_MEMORY;
		i->waiting = true;
		r->session->maybe_pending = true;
		return 0;
	}
	for (size_t n = 0; status >= 0 && n < count; n++) {
		char name[1024];

		if (n % 1024 == 0 && count > 1024)
			session_progress(r->session, "preparing functions", n, count);
		if (each)
			name_of(&functions[n], name, sizeof(name));
		if (each || !i)
			i = add_instance(r, each ? name : focus, e);
		status = i ? request_prepare(r, i, &functions[n], e) : DINST_NO_MEMORY;
	}
	free(functions);
	return status;
}

/* Takes the links to foreign sites from one instance. */
static void drop_foreign_links(struct session *s, struct instance *i, struct dinst_error *e)
{
	struct link **p = &i->links, *l;

	while ((l = *p)) {
		const struct function_ref f = {.module = l->site->module,
					       .index = l->site->function};

		if (!l->site->foreign) {
			p = &l->next_instance;
			continue;
		}
		*p = l->next_instance;
		i->link_count--;
		removal_unlink(s, l, e);
		refuse(i, &f, REFUSAL_FOREIGN, e);
	}
}

void request_drop_foreign(struct session *s, struct instance **instances, size_t count,
			  struct site **sites, const bool *foreign, size_t site_count)
{
	struct dinst_error ignored = {0};
	bool any = false;

	for (size_t k = 0; k < site_count; k++)
		any |= sites[k]->foreign = foreign[k];
	for (size_t n = 0; any && n < count; n++)
		drop_foreign_links(s, instances[n], &ignored);
	for (struct instance *i = s->instances; any && i; i = i->next)
		drop_foreign_links(s, i, &ignored);
	for (size_t k = 0; k < site_count; k++)
		sites[k]->foreign = false;
}

int request_apply(struct request *r, struct dinst_error *e)
{
	struct session *s = r->session;
	struct batch_result result;
	bool *foreign;
	int status;

	if (!r->site_count)
		return place_send(s, &r->stop_ns, e);
	foreign = calloc(r->site_count, sizeof(*foreign));
	if (!foreign)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	session_progress(s, "patching", 0, r->site_count);
	status = batch_apply(s, r->sites, r->site_count, foreign, &result, e);
	if (result.stop_ns > r->stop_ns)
		r->stop_ns = result.stop_ns;
	if (status < 0 || result.pending) {
		s->maybe_pending = true;
		s->retry_pause_ns = 0;
	}
	for (size_t k = 0; k < r->site_count; k++)
		r->sites[k]->listed = false;
	if (status >= 0)
		request_drop_foreign(s, r->instances, r->count, r->sites, foreign, r->site_count);
	free(foreign);
	return status;
}

/* Takes everything of a failed request back. */
static void undo(struct request *r)
{
	struct dinst_error ignored = {0};

	for (size_t k = 0; k < r->site_count; k++)
		r->sites[k]->listed = false;
	for (size_t n = 0; n < r->count; n++) {
		struct flush_result flush;

		removal_remove(r->session, r->instances[n], &flush, &ignored);
	}
}

/* Instances without a single point are no use: the request says why and keeps the others. */
static int check_points(const struct request *r, struct dinst_error *e)
{
	const struct instance *last = NULL;

	for (size_t n = 0; n < r->count; n++) {
		if (r->instances[n]->link_count || r->instances[n]->waiting)
			return 0;
		last = r->instances[n];
	}
	if (last && last->refused_count)
		return dinst_fail(e, DINST_REFUSED, "%s: %s (%s)%s", last->refused[0].where,
				  refusal_text(last->refused[0].refusal),
				  refusal_name(last->refused[0].refusal),
				  r->count > 1 || last->refused_count > 1 ? ", and all others"
									  : "");
	return dinst_fail(e, DINST_NO_FUNCTION, "nothing to count: no function matches");
}

static void adopt_instances(struct request *r)
{
	struct instance **tail = &r->session->instances;

	while (*tail)
		tail = &(*tail)->next;
	for (size_t n = 0; n < r->count; n++) {
		r->instances[n]->id = r->session->next_id++;
		*tail = r->instances[n];
		tail = &r->instances[n]->next;
	}
}

int request_insert_metric(struct session *s, const struct metric *metric, const char *const *foci,
			  size_t focus_count, bool each, struct insert_result *result,
			  struct dinst_error *e)
{
	struct request r = {.session = s, .metric = metric};
	int status = session_check(s, e);

	*result = (struct insert_result){0};
	if (status >= 0)
		status = session_update_modules(s, e);
	if (status < 0)
		return status;
	for (size_t n = 0; status >= 0 && n < focus_count; n++)
		status = prepare_focus(&r, foci[n], each, e);
	if (status >= 0 && !focus_count)
		status = prepare_focus(&r, "/Code", each, e);
	if (status >= 0)
		status = request_apply(&r, e);
	if (status >= 0)
		status = check_points(&r, e);
	if (status < 0) {
		undo(&r);
		free(r.instances);
	} else {
		adopt_instances(&r);
		result->instances = r.instances;
		result->count = r.count;
		result->stop_ns = r.stop_ns;
	}
	free(r.sites);
	return status;
}

int request_insert(struct session *s, const char *metric, const char *const *foci,
		   size_t focus_count, bool each, struct insert_result *result,
		   struct dinst_error *e)
{
	const struct metric *m = metric_find(metric);

	*result = (struct insert_result){0};
	if (!m)
		return dinst_fail(e, DINST_NO_METRIC,
				  "no metric is called %s; `dinst metrics` lists them", metric);
	return request_insert_metric(s, m, foci, focus_count, each, result, e);
}
