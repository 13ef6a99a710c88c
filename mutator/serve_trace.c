/* SPDX-License-Identifier: MIT */
/*
 * serve_trace.c - the method `trace`: events of calls with their arguments and results.
 *
 * Finds the functions, has a metric's text made of the question (trace_text.h), and goes the
 * way of `insert`. What its fields mean and of what types they are is added to the answer.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/evaluate_private.h"
#include "mutator/serve.h"
#include "mutator/trace_text.h"

enum { DEPTH_MOST = 16, CALLEES_MOST = 2000 };

struct tracing {
	struct session *s;
	struct trace_request q;
	unsigned depth;
	bool libraries; /* callees in other modules, too */
	struct trace_function *list;
	size_t count, room;
	size_t asked; /* functions that were asked for: the first ones */
};

/* ------------------------------------------------------------------ functions */

static bool is_there(const struct tracing *t, const struct function_ref *f)
{
	for (size_t i = 0; i < t->count; i++)
		if (function_is(&t->list[i].function, f))
			return true;
	return false;
}

static int add_function(struct tracing *t, const struct function_ref *f, unsigned level,
			struct dinst_error *e)
{
	if (is_there(t, f))
		return 0;
	if (level && t->count - t->asked >= CALLEES_MOST)
		return dinst_fail(
			e, DINST_USAGE,
			"more than %d functions are called within that depth; a smaller one?",
			CALLEES_MOST);
	if (t->count >= TRACE_FUNCTIONS_MOST)
		return dinst_fail(e, DINST_USAGE,
				  "more than %d functions match; a narrower pattern?",
				  TRACE_FUNCTIONS_MOST);
	if (t->count == t->room) {
		const size_t room = t->room ? 2 * t->room : 16;
		struct trace_function *grown = reallocarray(t->list, room, sizeof(*grown));

		if (!grown)
			return no_memory(e);
		t->list = grown;
		t->room = room;
	}
	t->list[t->count++] = (struct trace_function){.function = *f, .level = level};
	return 0;
}

static int find_asked(struct tracing *t, const json_t *patterns, struct dinst_error *e)
{
	json_t *pattern;
	size_t index;
	int status = 0;

	json_array_foreach(patterns, index, pattern)
	{
		const char *text = json_string_value(pattern);
		struct function_ref *found = NULL;
		size_t count = 0;

		if (!text)
			return dinst_fail(e, DINST_USAGE, "a function's name is a string");
		status = *text == '/' ? find_resource(t->s->modules, text, &found, &count, e)
				      : find_functions(t->s->modules, text, &found, &count, e);
		for (size_t i = 0; i < count && status >= 0; i++)
			status = add_function(t, &found[i], 0, e);
		free(found);
		if (status < 0)
			return status;
	}
	t->asked = t->count;
	return t->count ? 0 : dinst_fail(e, DINST_USAGE, "trace needs functions: a list of names");
}

/* The functions that those of the last level call, as far as their code says so. */
static int find_level(struct tracing *t, struct evaluation *v, unsigned level)
{
	const size_t before = t->count;
	int status = 0;

	for (size_t i = 0; i < before && status >= 0; i++) {
		const struct function_ref caller = t->list[i].function;
		struct function_set callees = {0};
		size_t unknown = 0;

		if (t->list[i].level != level - 1)
			continue;
		status = callees_add(v, &caller, &callees, &unknown);
		set_sort(&callees);
		for (size_t k = 0; k < callees.count && status >= 0; k++)
			if (t->libraries || callees.items[k].module == caller.module)
				status = add_function(t, &callees.items[k], level, v->e);
		set_release(&callees);
	}
	return status;
}

static int find_callees(struct tracing *t, struct dinst_error *e)
{
	struct evaluation v = {.s = t->s, .e = e};
	int status = 0;

	for (unsigned level = 1; level <= t->depth && status >= 0; level++) {
		const size_t before = t->count;

		session_progress(t->s, "looking for callees", level, t->depth);
		status = find_level(t, &v, level);
		if (t->count == before)
			break;
	}
	callees_free(&v);
	return status;
}

/* ------------------------------------------------------------------- answers */

static const struct trace_function *function_at(const struct tracing *t, taddr_t address)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct function_ref *f = &t->list[i].function;
		const struct image_function *functions;

		image_functions(f->module->image, &functions);
		if (functions[f->index].address + f->module->bias == address)
			return &t->list[i];
	}
	return NULL;
}

/* Says of each field what it is for. Where a function ends by a jump there is no result. */
static void tell_fields(json_t *fields, const struct trace_record *r)
{
	const bool whole = json_array_size(fields) == r->count;
	size_t at = 0;

	for (size_t i = 0; i < r->count; i++) {
		const struct trace_field *known = &r->fields[i];
		json_t *field;

		if (!whole && known->needs_result)
			continue;
		field = json_array_get(fields, at++);
		if (!field)
			return;
		json_object_set_new(field, "role", json_string(known->role));
		json_object_set_new(field, "name", serve_text(known->name));
		if (known->at || !strcmp(known->role, "member"))
			json_object_set_new(field, "at", json_integer(known->at));
		if (known->type)
			json_object_set(field, "type", known->type);
	}
}

static void tell_rows(const struct tracing *t, json_t *rows)
{
	json_t *row, *event;
	size_t i, k;

	json_array_foreach(rows, i, row)
	{
		json_object_set_new(row, "focus", json_string(""));
		json_array_foreach(json_object_get(row, "events"), k, event)
		{
			const char *address = json_string_value(json_object_get(event, "address"));
			const char *kind = json_string_value(json_object_get(event, "kind"));
			const struct trace_function *f =
				address ? function_at(t, strtoull(address, NULL, 16)) : NULL;

			if (!f || !kind)
				continue;
			json_object_set_new(event, "level", json_integer(f->level));
			tell_fields(json_object_get(event, "fields"),
				    !strcmp(kind, "entry") ? &f->entry : &f->result);
		}
	}
}

/* ------------------------------------------------------------------- request */

static bool wrong_type(const json_t *params, const char *key, bool ok, struct dinst_error *e)
{
	const json_t *value = json_object_get(params, key);

	if (!value || json_is_null(value) || ok)
		return false;
	dinst_fail(e, DINST_USAGE, "%s of trace is of the wrong type", key);
	return true;
}

static int read_request(const json_t *params, struct tracing *t, struct dinst_error *e)
{
	const json_t *condition = json_object_get(params, "if");
	const json_t *min = json_object_get(params, "min_time_ns");
	const json_t *depth = json_object_get(params, "depth");
	const json_t *bytes = json_object_get(params, "string_bytes");
	const json_t *stack = json_object_get(params, "stack");

	if (wrong_type(params, "if", json_is_string(condition), e) ||
	    wrong_type(params, "min_time_ns", json_is_integer(min) && json_integer_value(min) >= 0,
		       e) ||
	    wrong_type(params, "depth",
		       json_is_integer(depth) && json_integer_value(depth) >= 0 &&
			       json_integer_value(depth) <= DEPTH_MOST,
		       e) ||
	    wrong_type(params, "string_bytes",
		       json_is_integer(bytes) && json_integer_value(bytes) > 0 &&
			       json_integer_value(bytes) <= TRACE_STRING_MOST,
		       e) ||
	    wrong_type(params, "stack",
		       json_is_integer(stack) && json_integer_value(stack) >= 0 &&
			       json_integer_value(stack) <= MDL_STACK_MOST,
		       e) ||
	    wrong_type(params, "functions", json_is_array(json_object_get(params, "functions")), e))
		return DINST_USAGE;
	t->q = (struct trace_request){
		.arguments = json_is_true(json_object_get(params, "args")),
		.result = json_is_true(json_object_get(params, "return")),
		.caller = json_is_true(json_object_get(params, "caller")),
		.condition = json_string_value(condition),
		.min_ns = (uint64_t)json_integer_value(min),
		.string_bytes = (unsigned)json_integer_value(bytes),
		.stack = (unsigned)json_integer_value(stack),
	};
	t->depth = (unsigned)json_integer_value(depth);
	t->libraries = json_is_true(json_object_get(params, "libraries"));
	return 0;
}

/* What `insert` is told: the metric that was made, everywhere. */
static int insert(struct server *sv, const json_t *params, const char *metric, json_t **result,
		  struct dinst_error *e)
{
	json_t *as_insert = json_pack("{s:s, s:[]}", "metric", metric, "focus"), *limit;
	int status;

	if (!as_insert)
		return no_memory(e);
	limit = json_object_get(params, "limit");
	if (limit)
		json_object_set(as_insert, "limit", limit);
	json_object_set_new(as_insert, "cost", json_true());
	status = serve_insert(sv, as_insert, result, e);
	json_decref(as_insert);
	return status;
}

int serve_trace(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	static const char metric[] = "trace";
	struct tracing t = {0};
	char *text = NULL;
	int status = serve_session(sv, &t.s, e);

	if (status >= 0)
		status = read_request(params, &t, e);
	if (status >= 0)
		status = session_update_modules(t.s, e);
	if (status >= 0)
		status = find_asked(&t, json_object_get(params, "functions"), e);
	if (status >= 0)
		status = find_callees(&t, e);
	if (status >= 0)
		status = trace_text_make(&t.q, metric, t.list, t.count, &text, e);
	if (status >= 0)
		status = session_load_mdl(t.s, "trace", text, strlen(text), e);
	if (status >= 0)
		status = insert(sv, params, metric, result, e);
	if (status >= 0) {
		tell_rows(&t, json_object_get(*result, "rows"));
		json_object_set_new(*result, "functions", json_integer((json_int_t)t.count));
		json_object_set_new(*result, "at_return", json_boolean(trace_is_at_return(&t.q)));
		json_object_set_new(*result, "text", serve_text(text));
	}
	free(text);
	trace_functions_free(t.list, t.count);
	return status;
}
