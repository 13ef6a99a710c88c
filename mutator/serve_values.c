/* SPDX-License-Identifier: MIT */
/*
 * serve_values.c - the methods that read what is counted, and the one that
 * loads metrics of the user's.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/serve.h"

int serve_instances(const struct session *s, const json_t *params, struct instance ***out,
		    size_t *count, struct dinst_error *e)
{
	const json_t *ids = json_object_get(params, "ids");
	size_t n = json_array_size(ids), total = 0;
	struct instance **list;

	if (ids && !json_is_array(ids))
		return dinst_fail(e, DINST_USAGE, "ids is a list of numbers");
	for (const struct instance *i = s->instances; i; i = i->next)
		total++;
	list = calloc((n ? n : total) + 1, sizeof(struct instance *));
	if (!list)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	*count = 0;
	for (struct instance *i = s->instances; !n && i; i = i->next)
		list[(*count)++] = i;
	for (size_t k = 0; k < n; k++) {
		json_int_t id = json_integer_value(json_array_get(ids, k));
		struct instance *i =
			id > 0 && id <= UINT32_MAX ? session_instance(s, (unsigned)id) : NULL;

		if (!i) {
			free(list);
			return dinst_fail(e, DINST_NO_ID,
					  "no instance has id %lld; `dinst read` lists them",
					  (long long)id);
		}
		list[(*count)++] = i;
	}
	*out = list;
	return 0;
}

int serve_read(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	const bool verbose = json_is_true(json_object_get(params, "verbose"));
	struct instance **list;
	struct session *s;
	json_t *rows, *row;
	size_t count;
	int status = serve_session(sv, &s, e);

	if (status >= 0)
		status = serve_instances(s, params, &list, &count, e);
	if (status < 0)
		return status;
	rows = json_array();
	for (size_t k = 0; k < count && status >= 0; k++) {
		status = values_row(list[k], verbose, &row, e);
		if (status >= 0)
			json_array_append_new(rows, row);
	}
	free(list);
	if (status < 0) {
		json_decref(rows);
		return status;
	}
	*result = serve_rows(rows);
	return 0;
}

int serve_sample(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	struct session *s;
	int status = serve_session(sv, &s, e);

	if (status < 0)
		return status;
	if (json_is_true(json_object_get(params, "anew")))
		values_seen_release(&sv->seen);
	return values_sample(s, &sv->seen, result, e);
}

int serve_load(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	const json_t *text = json_object_get(params, "text");
	const char *name = json_string_value(json_object_get(params, "name"));
	struct session *s;
	int status = serve_session(sv, &s, e);

	if (status < 0)
		return status;
	if (!name || !json_is_string(text))
		return dinst_fail(e, DINST_USAGE, "load needs a name and a text, two strings");
	status = session_load_mdl(s, name, json_string_value(text), json_string_length(text), e);
	if (status < 0)
		return status;
	*result = json_pack("{s:o}", "name", serve_text(name));
	return 0;
}
