/* SPDX-License-Identifier: MIT */
/*
 * serve_points.c - the method points: where code can be inserted, how, or why
 * not; in rows, or counted.
 *
 * Nothing here stops or changes the target.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/detail.h"
#include "mutator/serve.h"

enum {
	PROGRESS_EVERY = 512,
	REASONS = REFUSAL_COUNT,
	BASE_KINDS = 1 << POINT_ENTRY | 1 << POINT_EXIT | 1 << POINT_CALL,
};

/* ------------------------------------------------------------------ kinds */

static int add_kind(const char *name, size_t length, unsigned *kinds, struct dinst_error *e)
{
	for (int kind = 0; kind < POINT_KINDS; kind++) {
		const char *known = point_kind_name((enum point_kind)kind);

		/* "loop" is all that begins with it. */
		if ((strlen(known) == length && !strncmp(known, name, length)) ||
		    (length == 4 && !strncmp(name, "loop", 4) && !strncmp(known, "loop-", 5)))
			*kinds |= 1u << kind;
	}
	if (length == 3 && !strncmp(name, "all", 3))
		*kinds |= (1u << POINT_KINDS) - 1;
	if (*kinds)
		return 0;
	return dinst_fail(e, DINST_USAGE,
			  "there is no kind of point '%.*s': entry, exit, call, after, block, "
			  "edge, loop, instruction, load, store, or all",
			  (int)(length < 40 ? length : 40), name);
}

/* Names separated by commas; null: entry, exit and call. */
static int read_kinds(const json_t *params, unsigned *kinds, struct dinst_error *e)
{
	const json_t *value = json_object_get(params, "kinds");
	const char *text = json_string_value(value);

	*kinds = 0;
	if (!value || json_is_null(value)) {
		*kinds = BASE_KINDS;
		return 0;
	}
	if (!text)
		return dinst_fail(e, DINST_USAGE, "kinds is a list of names with commas");
	for (;;) {
		size_t length = strcspn(text, ",");
		unsigned one = 0;
		int status = add_kind(text, length, &one, e);

		if (status < 0)
			return status;
		*kinds |= one;
		if (!text[length])
			return 0;
		text += length + 1;
	}
}

/* The last kind decides how much of a plan is wanted. */
static enum point_kind dearest(unsigned kinds)
{
	return kinds & ~(unsigned)BASE_KINDS ? POINT_STORE : POINT_CALL;
}

/* ------------------------------------------------------------------- rows */

static json_t *callee_json(const struct module *m, const struct point *p)
{
	const struct image_function *functions;
	long at;

	if (!p->callee)
		return NULL;
	image_functions(m->image, &functions);
	at = image_function_at(m->image, p->callee);
	if (p->kind == POINT_EDGE || at < 0 || functions[at].address != p->callee)
		return serve_address(p->callee + m->bias);
	return serve_text(image_readable_name(m->image, functions[at].name));
}

static json_t *text_of(const struct module *m, vaddr_t v)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(m->image, v, &size);
	struct arch_insn insn;
	char text[SERVE_INSN_TEXT];

	if (!bytes || arch_decode(bytes, size, v, &insn) != ARCH_OK)
		return NULL;
	serve_disassemble(m, &insn, text, sizeof(text));
	return serve_text(text);
}

static size_t count_parts(const struct function_plan *plan, size_t first)
{
	size_t n = 1;

	while (first + n < plan->point_count && plan->points[first + n].part)
		n++;
	return n;
}

static json_t *point_row(const struct module *m, const char *function,
			 const struct function_plan *plan, size_t k, bool verbose)
{
	const struct point *p = &plan->points[k];
	size_t parts = count_parts(plan, k);
	json_t *row = json_pack("{s:o, s:o, s:s, s:o}", "module", serve_text(m->name), "function",
				serve_text(function), "kind", point_kind_name(p->kind), "address",
				serve_address(p->address + m->bias));
	json_t *extra;

	if (p->window >= 0) {
		json_object_set_new(row, "tactic", json_string(tactic_name(p->tactic)));
		json_object_set_new(row, "refused", json_null());
	} else {
		json_object_set_new(row, "tactic", json_null());
		json_object_set_new(row, "refused", json_string(refusal_name(p->refusal)));
		json_object_set_new(row, "why", json_string(refusal_text(p->refusal)));
	}
	if (parts > 1)
		json_object_set_new(row, "places", json_integer((json_int_t)parts));
	extra = callee_json(m, p);
	if (extra)
		json_object_set_new(row, "callee", extra);
	extra = verbose ? text_of(m, p->address) : NULL;
	if (extra)
		json_object_set_new(row, "instruction", extra);
	if (verbose && p->window >= 0)
		json_object_set_new(row, "window",
				    serve_address(plan->windows[p->window].start + m->bias));
	return row;
}

struct listing {
	struct session *session;
	unsigned kinds;
	bool verbose;
	json_t *rows;
	json_t *sites; /* of the rows' windows, each once; verbose only */
};

/* Sites that were made for windows of the plan, and the windows without one. */
static void add_sites(struct listing *l, const struct module *m, const struct function_plan *plan)
{
	for (size_t w = 0; w < plan->window_count; w++) {
		bool wanted = false;

		for (size_t k = 0; k < plan->point_count && !wanted; k++)
			wanted = plan->points[k].window == (int32_t)w &&
				 l->kinds & 1u << plan->points[k].kind;
		if (wanted)
			json_array_append_new(l->sites, serve_site(l->session, m, plan, w));
	}
}

static int list_function(struct listing *l, const struct function_ref *f, struct dinst_error *e)
{
	struct module *m = f->module;
	const struct image_function *functions;
	const struct function_plan *plan;
	const char *name;
	int status = session_plan_for(l->session, m, f->index, dearest(l->kinds), &plan, e);

	if (status < 0)
		return status;
	image_functions(m->image, &functions);
	name = image_readable_name(m->image, functions[f->index].name);
	if (json_array_size(l->rows) + plan->point_count > SERVE_ROWS_MAX)
		return serve_too_many("points", ", or count them: points --summary [MODULE]", e);
	for (size_t k = 0; k < plan->point_count; k++)
		if (!plan->points[k].part && l->kinds & 1u << plan->points[k].kind)
			json_array_append_new(l->rows, point_row(m, name, plan, k, l->verbose));
	if (l->verbose)
		add_sites(l, m, plan);
	return 0;
}

static int list_points(struct listing *l, const char *pattern, json_t **result,
		       struct dinst_error *e)
{
	struct session *s = l->session;
	struct function_ref *found;
	size_t count;
	int status = *pattern == '/' ? find_resource(s->modules, pattern, &found, &count, e)
				     : find_functions(s->modules, pattern, &found, &count, e);

	if (status < 0)
		return status;
	l->rows = json_array();
	l->sites = json_array();
	for (size_t i = 0; i < count && status >= 0; i++) {
		if (i % PROGRESS_EVERY == 0 && count > PROGRESS_EVERY)
			session_progress(s, "looking at functions", i, count);
		status = list_function(l, &found[i], e);
	}
	free(found);
	if (status < 0) {
		json_decref(l->rows);
		json_decref(l->sites);
		return status;
	}
	*result = serve_rows(l->rows);
	if (l->verbose)
		json_object_set_new(*result, "sites", l->sites);
	else
		json_decref(l->sites);
	return 0;
}

/* ---------------------------------------------------------------- summary */

struct summary {
	size_t points[POINT_KINDS], refused[POINT_KINDS];
	size_t tactics[POINT_KINDS][TACTIC_COUNT];
	size_t reasons[POINT_KINDS][REASONS];
};

static void count_points(const struct function_plan *plan, struct summary *sum)
{
	for (size_t k = 0; k < plan->point_count; k++) {
		const struct point *p = &plan->points[k];

		if (p->part)
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

/* Not through the session's plans: a summary of everything must not keep everything. */
static int count_function(const struct session *s, struct module *m, uint32_t index, unsigned kinds,
			  struct summary *sum, struct dinst_error *e)
{
	struct function_plan *plan;
	int status = plan_function(m->image, index, &plan, e);

	if (status < 0)
		return status;
	if (point_kind_level(dearest(kinds)) == PLAN_DETAIL)
		status = plan_add_detail(m->image, plan, e);
	if (status >= 0 && s->shadow_stacks)
		shadow_refuse(m->image, plan);
	if (status >= 0)
		count_points(plan, sum);
	plan_free(m->image, plan);
	return status;
}

static int summarize(struct session *s, struct module *m, unsigned kinds, struct summary *sum,
		     struct dinst_error *e)
{
	const struct image_function *functions;
	size_t count = image_functions(m->image, &functions);

	for (size_t i = 0; i < count; i++) {
		const struct function_plan *known = session_known_plan(s, m, (uint32_t)i);
		int status;

		if (i % PROGRESS_EVERY == 0 && count > PROGRESS_EVERY)
			session_progress(s, m->name, i, count);
		if (functions[i].flags & (FUNCTION_COLD | FUNCTION_STUB | FUNCTION_IFUNC))
			continue;
		if (known && known->level >= point_kind_level(dearest(kinds))) {
			count_points(known, sum);
			continue;
		}
		status = count_function(s, m, (uint32_t)i, kinds, sum, e);
		if (status < 0)
			return status;
	}
	return 0;
}

static void summary_rows(json_t *rows, const struct module *m, unsigned kinds,
			 const struct summary *sum)
{
	for (int kind = 0; kind < POINT_KINDS; kind++) {
		json_t *tactics, *reasons;

		if (!(kinds & 1u << kind))
			continue;
		tactics = json_object();
		reasons = json_object();
		for (int t = 0; t < TACTIC_COUNT; t++)
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

static int list_summary(struct session *s, const char *name, unsigned kinds, json_t **result,
			struct dinst_error *e)
{
	struct summary *sum = malloc(sizeof(*sum));
	json_t *rows = json_array();
	bool found = false;
	int status = sum ? 0 : dinst_fail(e, DINST_NO_MEMORY, "no memory for a summary");

	for (size_t i = 0; i < module_count(s->modules) && status >= 0; i++) {
		struct module *m = module_get(s->modules, i);

		if (!m->image || m->gone || (name && m != module_named(s->modules, name)))
			continue;
		found = true;
		memset(sum, 0, sizeof(*sum));
		status = summarize(s, m, kinds, sum, e);
		if (status >= 0)
			summary_rows(rows, m, kinds, sum);
	}
	free(sum);
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
	struct listing l = {.verbose = json_is_true(json_object_get(params, "verbose"))};
	int status = serve_session(sv, &l.session, e);

	if (status >= 0)
		status = read_kinds(params, &l.kinds, e);
	if (status < 0)
		return status;
	if (json_is_true(json_object_get(params, "summary")))
		return list_summary(l.session, module, l.kinds, result, e);
	if (!pattern)
		return dinst_fail(e, DINST_USAGE, "points needs a pattern, or --summary");
	return list_points(&l, pattern, result, e);
}
