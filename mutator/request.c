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

#include "mutator/core.h"

/* -------------------------------------------------------------- metrics */

static const struct metric built_in[] = {
	{ .name = "calls", .unit = "calls", .constraints = "/Code", .kind = POINT_ENTRY },
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
		if (l->site->state == SITE_PATCHED)
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
	i->tallies[i->tally_count++] = (struct tally){ .place = p, .counter = *counter };
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
	r[i->refused_count++] = (struct refused_point){ .where = where, .refusal = why };
	return 0;
}

/* -------------------------------------------------------------- requests */

struct request {
	struct session *session;
	const struct metric *metric;
	struct instance **instances;
	size_t count, room;
	struct site **sites;  /* to be patched in this batch */
	size_t site_count, site_room;
	uint64_t stop_ns;
};

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
	return site && site->state == SITE_PLANNED && !site->links && !site->queued &&
	       !site->queued_links;
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
		struct place *place;
		taddr_t counter;

		again = false;
		*site = NULL;
		status = place_for(s, f->module, &place, &r->stop_ns, e);
		if (status < 0)
			return status;
		status = site_make(s, f->module, place, plan, (unsigned)p->window, site, e);
		if (status == DINST_NO_MEMORY && !place->full) {
			place->full = again = true;
			dinst_error_clear(e);
			continue;
		}
		if (status >= 0)
			status = tally_in(i, (*site)->place, &counter, e);
		if (status >= 0)
			status = site_link(s, *site, p->kind, p->insn, i, counter, e);
		if (status == DINST_NO_MEMORY && !place->full && site_is_fresh(*site)) {
			site_free(s, *site);
			place->full = again = true;
			dinst_error_clear(e);
		}
	} while (again);
	return status;
}

/* Writes what one function needs for instance i; the window stays untouched for now. */
static int prepare_function(struct request *r, struct instance *i, const struct function_ref *f,
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

static int find_focus(const struct session *s, const char *focus, struct function_ref **functions,
		      size_t *count, struct dinst_error *e)
{
	return focus[0] == '/' ? find_resource(s->modules, focus, functions, count, e) :
				 find_functions(s->modules, focus, functions, count, e);
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
	status = find_focus(r->session, focus, &functions, &count, e);
	if (status == DINST_NO_MODULE && may_come(focus)) {
		dinst_error_clear(e);
		i = add_instance(r, focus, e);
		if (!i)
			return DINST_NO_MEMORY;
		i->waiting = true;
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
		status = i ? prepare_function(r, i, &functions[n], e) : DINST_NO_MEMORY;
	}
	free(functions);
	return status;
}

/*
 * Somebody else changed the bytes of this site's window: its points are refused
 * after all. Its minis go through the queue, since a thread may have been moved
 * into the trampoline before the bytes were compared.
 */
static void drop_foreign(struct request *r, struct site *site, struct dinst_error *e)
{
	const struct function_ref f = { .module = site->module, .index = site->function };

	for (size_t n = 0; n < r->count; n++) {
		struct link **p = &r->instances[n]->links, *l;

		while ((l = *p)) {
			if (l->site != site) {
				p = &l->next_instance;
				continue;
			}
			*p = l->next_instance;
			r->instances[n]->link_count--;
			removal_unlink(r->session, l, e);
			refuse(r->instances[n], &f, REFUSAL_FOREIGN, e);
		}
	}
}

static int apply(struct request *r, struct dinst_error *e)
{
	struct batch_result result;
	bool *foreign;
	int status;

	if (!r->site_count)
		return 0;
	foreign = calloc(r->site_count, sizeof(*foreign));
	if (!foreign)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	session_progress(r->session, "patching", 0, r->site_count);
	status = batch_apply(r->session, r->sites, r->site_count, foreign, &result, e);
	if (result.stop_ns > r->stop_ns)
		r->stop_ns = result.stop_ns;
	for (size_t k = 0; k < r->site_count; k++) {
		r->sites[k]->listed = false;
		if (status >= 0 && foreign[k])
			drop_foreign(r, r->sites[k], e);
	}
	free(foreign);
	return status;
}

/* Takes everything of a failed request back. */
static void undo(struct request *r)
{
	struct dinst_error ignored = { 0 };

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
				  r->count > 1 || last->refused_count > 1 ? ", and all others" : "");
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
	struct request r = { .session = s, .metric = metric };
	int status = session_check(s, e);
	bool changed = false;

	*result = (struct insert_result){ 0 };
	if (status >= 0)
		status = module_list_update(s->modules, s->target, &changed, e);
	if (status < 0)
		return status;
	if (changed)
		site_drop_gone(s);
	for (size_t n = 0; status >= 0 && n < focus_count; n++)
		status = prepare_focus(&r, foci[n], each, e);
	if (status >= 0 && !focus_count)
		status = prepare_focus(&r, "/Code", each, e);
	if (status >= 0)
		status = apply(&r, e);
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

	*result = (struct insert_result){ 0 };
	if (!m)
		return dinst_fail(e, DINST_NO_METRIC,
				  "no metric is called %s; `dinst metrics` lists them", metric);
	return request_insert_metric(s, m, foci, focus_count, each, result, e);
}

/* -------------------------------------------------------------- pending */

bool request_has_pending(const struct session *s)
{
	for (const struct instance *i = s->instances; i; i = i->next)
		if (i->waiting)
			return true;
	for (size_t b = 0; b < s->site_buckets; b++)
		for (const struct site *site = s->site_hash[b]; site; site = site->next_hash)
			if (site->state == SITE_PLANNED && site->links)
				return true;
	return false;
}

/* Instances whose module has come: their functions are prepared like a new request's. */
static size_t begin_waiting(struct session *s, struct dinst_error *e)
{
	size_t began = 0;
	bool changed = false;

	if (module_list_update(s->modules, s->target, &changed, e) < 0 || !changed)
		return 0;
	for (struct instance *i = s->instances; i; i = i->next) {
		struct request r = {
			.session = s, .metric = i->metric, .instances = &i, .count = 1
		};
		struct function_ref *functions = NULL;
		size_t count = 0;
		int status;

		if (!i->waiting || find_focus(s, i->focus, &functions, &count, e) < 0) {
			dinst_error_clear(e);
			continue;
		}
		i->waiting = false;
		status = 0;
		for (size_t n = 0; status >= 0 && n < count; n++)
			status = prepare_function(&r, i, &functions[n], e);
		free(functions);
		/* What was prepared before a failure counts; windows that wait are tried again. */
		apply(&r, e);
		began += r.site_count;
		dinst_error_clear(e);
		free(r.sites);
	}
	return began;
}

size_t request_retry_pending(struct session *s)
{
	struct dinst_error ignored = { 0 };
	struct batch_result result = { 0 };
	struct site **sites;
	bool *foreign;
	size_t count = 0, began;

	if (session_check(s, &ignored) < 0)
		return 0;
	began = begin_waiting(s, &ignored);
	dinst_error_clear(&ignored);
	sites = calloc(s->site_count + 1, sizeof(struct site *));
	foreign = calloc(s->site_count + 1, sizeof(*foreign));
	for (size_t b = 0; sites && foreign && b < s->site_buckets; b++)
		for (struct site *site = s->site_hash[b]; site; site = site->next_hash)
			if (site->state == SITE_PLANNED && site->links)
				sites[count++] = site;
	if (count)
		batch_apply(s, sites, count, foreign, &result, &ignored);
	free(foreign);
	free(sites);
	return began + result.patched;
}
