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
#include "mutator/threads.h"

/* -------------------------------------------------------------- metrics */

static const struct raw_metric built_in[] = {
	{.name = "calls", .unit = "calls", .constraints = "/Code", .kind = POINT_ENTRY},
};

static const struct raw_metric *metric_find(const char *name)
{
	for (size_t i = 0; i < sizeof(built_in) / sizeof(built_in[0]); i++)
		if (!strcmp(built_in[i].name, name))
			return &built_in[i];
	return NULL;
}

size_t metric_all(const struct raw_metric **metrics)
{
	*metrics = built_in;
	return sizeof(built_in) / sizeof(built_in[0]);
}

/* -------------------------------------------------------------- requests */

static struct instance *add_instance(struct request *r, const char *focus, struct dinst_error *e)
{
	struct instance *i;

	if (r->count == r->room) {
		size_t room = r->room ? r->room * 2 : 64;
		struct instance **instances = realloc(r->instances, room * sizeof(*instances));

		if (!instances) {
			dinst_fail(e, DINST_NO_MEMORY, "out of memory");
			return NULL;
		}
		r->instances = instances;
		r->room = room;
	}
	i = instance_new(r->session, r->metric->name, r->metric->unit, focus, e);
	if (!i)
		return NULL;
	i->raw = r->metric;
	r->instances[r->count++] = i;
	return i;
}

static int check_focus(const struct raw_metric *m, const char *focus, struct dinst_error *e)
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

int request_insert_raw(struct session *s, const struct raw_metric *metric, const char *const *foci,
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
		   size_t focus_count, const struct insert_options *options,
		   struct insert_result *result, struct dinst_error *e)
{
	const struct raw_metric *m = metric_find(metric);

	*result = (struct insert_result){0};
	if (!m)
		return dinst_fail(e, DINST_NO_METRIC,
				  "no metric is called %s; `dinst metrics` lists them", metric);
	return request_insert_raw(s, m, foci, focus_count, options && options->each, result, e);
}
