/* SPDX-License-Identifier: MIT */
/*
 * serve_callees.c - the method `callees`: which functions some functions call, as far as their
 * code says so.
 *
 * Reads plans, and what the loader has bound stubs to. Nothing here stops or changes the target.
 */
#include <stdlib.h>

#include "mutator/evaluate_private.h"
#include "mutator/serve.h"

enum { CALLEES_ASKED_MAX = 10000 };

static json_t *function_row(const struct function_ref *f)
{
	const struct image_function *functions;

	image_functions(f->module->image, &functions);
	functions += f->index;
	return json_pack("{s:o, s:o, s:o}", "module", serve_text(f->module->name), "function",
			 serve_text(image_readable_name(f->module->image, functions->name)),
			 "address", serve_address(functions->address + f->module->bias));
}

int callees_add(struct evaluation *v, const struct function_ref *f, struct function_set *callees,
		size_t *unknown)
{
	const struct function_plan *plan;
	int status = session_plan(v->s, f->module, f->index, &plan, v->e);

	for (size_t i = 0; status >= 0 && i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];
		struct function_ref callee;
		bool known;

		if (!leads_on(p))
			continue;
		status = callee_of(v, &(struct site_ref){*f, p->address, p->callee, true}, &callee,
				   &known);
		if (status >= 0 && known)
			status = set_add(callees, &callee, v->e);
		else
			*unknown += !p->callee;
	}
	return status;
}

static int add_row(struct evaluation *v, const struct function_ref *f, json_t *rows)
{
	struct function_set callees = {0};
	json_t *row = function_row(f), *list = json_array();
	size_t unknown = 0;
	int status = row && list ? callees_add(v, f, &callees, &unknown) : no_memory(v->e);

	set_sort(&callees);
	for (size_t i = 0; status >= 0 && i < callees.count; i++)
		json_array_append_new(list, function_row(&callees.items[i]));
	set_release(&callees);
	json_object_set_new(row, "unknown", json_integer((json_int_t)unknown));
	json_object_set_new(row, "callees", list);
	json_array_append_new(rows, row);
	return status;
}

/* All functions that match one pattern; one that nothing matches is an error. */
static int add_pattern(struct evaluation *v, const char *pattern, json_t *rows)
{
	struct function_ref *found = NULL;
	size_t count = 0;
	int status = *pattern == '/' ? find_resource(v->s->modules, pattern, &found, &count, v->e)
				     : find_functions(v->s->modules, pattern, &found, &count, v->e);

	if (status >= 0 && json_array_size(rows) + count > CALLEES_ASKED_MAX)
		status = dinst_fail(v->e, DINST_FAILED, "more than %d functions are asked for",
				    CALLEES_ASKED_MAX);
	for (size_t i = 0; status >= 0 && i < count; i++)
		status = add_row(v, &found[i], rows);
	free(found);
	return status;
}

int serve_callees(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	const json_t *patterns = json_object_get(params, "functions");
	struct evaluation v = {.e = e};
	json_t *rows, *pattern;
	size_t index;
	int status = serve_session(sv, &v.s, e);

	if (status < 0)
		return status;
	if (!json_is_array(patterns))
		return dinst_fail(e, DINST_USAGE, "callees needs functions: a list of names");
	rows = json_array();
	json_array_foreach(patterns, index, pattern)
	{
		const char *text = json_string_value(pattern);

		if (status >= 0)
			status = text ? add_pattern(&v, text, rows)
				      : dinst_fail(e, DINST_USAGE, "a function's name is a string");
	}
	callees_free(&v);
	if (status < 0)
		json_decref(rows);
	else
		*result = serve_rows(rows);
	return status;
}
