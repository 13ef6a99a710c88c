/* SPDX-License-Identifier: MIT */
/*
 * serve_listing.c - the methods that only look: modules, functions, metrics.
 *
 * Nothing here stops or changes the target.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/metrics.h"
#include "mutator/serve.h"

json_t *serve_address(taddr_t address)
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
				  "function", "address", serve_address(m->lo), "size",
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

int serve_too_many(const char *what, const char *way_out, struct dinst_error *e)
{
	return dinst_fail(
		e, DINST_FAILED,
		"more than %d %s match: give a narrower pattern, for example MODULE:NAME*%s",
		SERVE_ROWS_MAX, what, way_out);
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
	if (count > SERVE_ROWS_MAX) {
		free(found);
		return serve_too_many("functions", "", e);
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
				  "address", serve_address(f->address + m->bias), "size",
				  (json_int_t)f->size, "symbol", serve_text(f->name)));
	}
	free(found);
	*result = serve_rows(rows);
	return 0;
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
	struct session *s;
	json_t *rows;
	int status = serve_session(sv, &s, e);

	(void)params;
	if (status < 0)
		return status;
	rows = metric_rows(s->library);
	if (!rows)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the list of metrics");
	*result = serve_rows(rows);
	return 0;
}
