/* SPDX-License-Identifier: MIT */
/*
 * serve_listing.c - the methods that only look: modules, functions, points.
 *
 * Nothing here stops or changes the target.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/serve.h"

/* Beyond LISTED_MAX rows nobody reads on, and an answer must stay below 64 MiB. */
enum {
	LISTED_MAX = 200000,
	PROGRESS_EVERY = 512,
	KINDS = POINT_CALL + 1,
	REASONS = 32,
	TACTICS = TACTIC_MERGED + 1
};

static json_t *address_json(taddr_t address)
{
	char text[32];

	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)address);
	return json_string(text);
}

static size_t count_functions(const struct image *img)
{
	const struct image_function *functions;
	size_t n = image_functions(img, &functions), count = 0;

	for (size_t i = 0; i < n; i++)
		count += !(functions[i].flags & (FUNCTION_COLD | FUNCTION_STUB));
	return count;
}

int serve_modules(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	struct session *s;
	json_t *rows;
	int status = serve_session(sv, &s, e);

	(void)params;
	if (status < 0)
		return status;
	rows = json_array();
	for (size_t i = 0; i < module_count(s->modules); i++) {
		const struct module *m = module_get(s->modules, i);
		json_t *row =
			json_pack("{s:o, s:n, s:o, s:I, s:I, s:o}", "module", serve_text(m->name),
				  "function", "address", address_json(m->lo), "size",
				  (json_int_t)(m->hi - m->lo), "functions",
				  (json_int_t)(m->image ? count_functions(m->image) : 0), "path",
				  serve_text(m->path ? m->path : ""));

		json_object_set_new(row, "problem",
				    m->image ? json_null() : serve_text(m->problem));
		if (m->gone)
			json_object_set_new(row, "gone", json_true());
		json_array_append_new(rows, row);
	}
	*result = serve_rows(rows);
	return 0;
}

static int too_many(const char *what, const char *way_out, struct dinst_error *e)
{
	return dinst_fail(
		e, DINST_FAILED,
		"more than %d %s match: give a narrower pattern, for example MODULE:NAME*%s",
		LISTED_MAX, what, way_out);
}

int serve_funcs(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	const char *pattern = json_string_value(json_object_get(params, "pattern"));
	struct function_ref *found;
	struct session *s;
	json_t *rows;
	size_t count;
	int status = serve_session(sv, &s, e);

	if (status >= 0)
		status = pattern && *pattern == '/'
				 ? find_resource(s->modules, pattern, &found, &count, e)
				 : find_functions(s->modules, pattern ? pattern : "*", &found,
						  &count, e);
	if (status < 0)
		return status;
	if (count > LISTED_MAX) {
		free(found);
		return too_many("functions", "", e);
	}
	rows = json_array();
	for (size_t i = 0; i < count; i++) {
		struct module *m = found[i].module;
		const struct image_function *f;

		image_functions(m->image, &f);
		f += found[i].index;
		json_array_append_new(
			rows,
			json_pack("{s:o, s:o, s:o, s:I, s:o}", "module", serve_text(m->name),
				  "function", serve_text(image_readable_name(m->image, f->name)),
				  "address", address_json(f->address + m->bias), "size",
				  (json_int_t)f->size, "symbol", serve_text(f->name)));
	}
	free(found);
	*result = serve_rows(rows);
	return 0;
}

/* --------------------------------------------------------------- points */

static json_t *point_row(const struct module *m, const char *function, const struct point *p)
{
	json_t *row = json_pack("{s:o, s:o, s:s, s:o}", "module", serve_text(m->name), "function",
				serve_text(function), "kind", point_kind_name(p->kind), "address",
				address_json(p->address + m->bias));

	if (p->window >= 0) {
		json_object_set_new(row, "tactic", json_string(tactic_name(p->tactic)));
		json_object_set_new(row, "refused", json_null());
	} else {
		json_object_set_new(row, "tactic", json_null());
		json_object_set_new(row, "refused", json_string(refusal_name(p->refusal)));
		json_object_set_new(row, "why", json_string(refusal_text(p->refusal)));
	}
	return row;
}

static int list_points(struct session *s, const char *pattern, json_t **result,
		       struct dinst_error *e)
{
	struct function_ref *found;
	size_t count;
	json_t *rows;
	int status = *pattern == '/' ? find_resource(s->modules, pattern, &found, &count, e)
				     : find_functions(s->modules, pattern, &found, &count, e);

	if (status < 0)
		return status;
	rows = json_array();
	for (size_t i = 0; i < count && status >= 0; i++) {
		struct module *m = found[i].module;
		const struct image_function *functions;
		const struct function_plan *plan;
		const char *name;

		if (i % PROGRESS_EVERY == 0 && count > PROGRESS_EVERY)
			session_progress(s, "looking at functions", i, count);
		image_functions(m->image, &functions);
		name = image_readable_name(m->image, functions[found[i].index].name);
		status = session_plan(s, m, found[i].index, &plan, e);
		if (status >= 0 && json_array_size(rows) + plan->point_count > LISTED_MAX)
			status =
				too_many("points", ", or count them: points --summary [MODULE]", e);
		for (size_t k = 0; status >= 0 && k < plan->point_count; k++)
			json_array_append_new(rows, point_row(m, name, &plan->points[k]));
	}
	free(found);
	if (status < 0)
		json_decref(rows);
	else
		*result = serve_rows(rows);
	return status;
}

struct summary {
	size_t points[KINDS], refused[KINDS];
	size_t tactics[KINDS][TACTICS];
	size_t reasons[KINDS][REASONS];
};

static void count_points(const struct function_plan *plan, struct summary *sum)
{
	for (size_t k = 0; k < plan->point_count; k++) {
		const struct point *p = &plan->points[k];

		/* A plan with details, and a point at several places, count as any other. */
		if ((int)p->kind >= KINDS || p->part)
			continue;
		sum->points[p->kind]++;
		if (p->window >= 0)
			sum->tactics[p->kind][p->tactic]++;
		else
			sum->refused[p->kind]++;
		if (p->window < 0 && (int)p->refusal < REASONS)
			sum->reasons[p->kind][p->refusal]++;
	}
}

static int summarize(struct session *s, struct module *m, struct summary *sum,
		     struct dinst_error *e)
{
	const struct image_function *functions;
	size_t count = image_functions(m->image, &functions);

	for (size_t i = 0; i < count; i++) {
		const struct function_plan *known = session_known_plan(s, m, (uint32_t)i);
		struct function_plan *plan;
		int status;

		if (i % PROGRESS_EVERY == 0 && count > PROGRESS_EVERY)
			session_progress(s, m->name, i, count);
		if (functions[i].flags & (FUNCTION_COLD | FUNCTION_STUB | FUNCTION_IFUNC))
			continue;
		if (known) {
			count_points(known, sum);
			continue;
		}
		/* Not through the cache: a summary of everything must not keep everything. */
		status = plan_function(m->image, (uint32_t)i, &plan, e);
		if (status < 0)
			return status;
		count_points(plan, sum);
		plan_free(m->image, plan);
	}
	return 0;
}

static void summary_rows(json_t *rows, const struct module *m, const struct summary *sum)
{
	for (int kind = 0; kind < KINDS; kind++) {
		json_t *tactics = json_object(), *reasons = json_object();

		for (int t = 0; t < TACTICS; t++)
			if (sum->tactics[kind][t])
				json_object_set_new(
					tactics, tactic_name(t),
					json_integer((json_int_t)sum->tactics[kind][t]));
		for (int r = 0; r < REASONS; r++)
			if (sum->reasons[kind][r])
				json_object_set_new(
					reasons, refusal_name(r),
					json_integer((json_int_t)sum->reasons[kind][r]));
		json_array_append_new(rows,
				      json_pack("{s:o, s:s, s:I, s:o, s:I, s:o}", "module",
						serve_text(m->name), "kind", point_kind_name(kind),
						"points", (json_int_t)sum->points[kind], "tactics",
						tactics, "refused", (json_int_t)sum->refused[kind],
						"reasons", reasons));
	}
}

static int list_summary(struct session *s, const char *name, json_t **result, struct dinst_error *e)
{
	json_t *rows = json_array();
	bool found = false;
	int status = 0;

	for (size_t i = 0; i < module_count(s->modules) && status >= 0; i++) {
		struct module *m = module_get(s->modules, i);
		struct summary sum = {0};

		if (!m->image || m->gone || (name && m != module_named(s->modules, name)))
			continue;
		found = true;
		status = summarize(s, m, &sum, e);
		if (status >= 0)
			summary_rows(rows, m, &sum);
	}
	if (status >= 0 && !found)
		status = dinst_fail(e, DINST_NO_MODULE,
				    "no module is called %s; `dinst modules` lists them",
				    name ? name : "anything");
	if (status < 0)
		json_decref(rows);
	else
		*result = serve_rows(rows);
	return status;
}

int serve_points(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	const char *pattern = json_string_value(json_object_get(params, "pattern"));
	const char *module = json_string_value(json_object_get(params, "module"));
	struct session *s;
	int status = serve_session(sv, &s, e);

	if (status < 0)
		return status;
	if (json_is_true(json_object_get(params, "summary")))
		return list_summary(s, module, result, e);
	if (!pattern)
		return dinst_fail(e, DINST_USAGE, "points needs a pattern, or --summary");
	return list_points(s, pattern, result, e);
}

/* --------------------------------------------------------------- others */

int serve_complete(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	const char *prefix = json_string_value(json_object_get(params, "prefix"));
	const char *module = json_string_value(json_object_get(params, "module"));
	json_int_t max = json_integer_value(json_object_get(params, "max"));
	struct function_ref *found = NULL;
	struct dinst_error none = {0};
	char pattern[512];
	json_t *names;
	struct session *s;
	size_t count = 0;
	int status = serve_session(sv, &s, e);

	if (status < 0)
		return status;
	if (!prefix)
		prefix = "";
	snprintf(pattern, sizeof(pattern), "%s%s%s*", module ? module : "", module ? ":" : "",
		 prefix);
	names = json_array();
	/* No match is no error here: there is nothing to complete. */
	if (find_functions(s->modules, pattern, &found, &count, &none) < 0)
		count = 0;
	for (size_t i = 0; i < count && (max <= 0 || (json_int_t)i < max); i++) {
		const struct image_function *functions;
		const char *name;

		image_functions(found[i].module->image, &functions);
		name = functions[found[i].index].name;
		/* What matched may be the readable name. */
		if (strncmp(name, prefix, strlen(prefix)) != 0)
			name = image_readable_name(found[i].module->image, name);
		json_array_append_new(names, serve_text(name));
	}
	free(found);
	*result = json_pack("{s:o}", "names", names);
	return 0;
}

int serve_metrics(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	const struct metric *metrics;
	size_t count = metric_all(&metrics);
	json_t *rows = json_array();

	(void)sv;
	(void)params;
	(void)e;
	for (size_t i = 0; i < count; i++)
		json_array_append_new(rows,
				      json_pack("{s:s, s:s, s:[s], s:s}", "metric", metrics[i].name,
						"unit", metrics[i].unit, "constraints",
						metrics[i].constraints, "file", "(built in)"));
	*result = serve_rows(rows);
	return 0;
}
