/* SPDX-License-Identifier: MIT */
/*
 * metrics.c - the library of metrics as rows of a listing.
 *
 * Owns the keys of such a row. Texts of files may be no UTF-8; what is not is
 * shown as rpc_text() shows it.
 */
#include "daemon/common/metrics.h"

#include <string.h>

#include "daemon/common/rpc.h"

enum { PATH_TEXT_MAX = 256 };

static json_t *text_or_null(const char *text)
{
	return text ? rpc_text(text) : json_null();
}

static void add_path(json_t *paths, const struct mdl_constraint *c)
{
	char text[PATH_TEXT_MAX];
	size_t index;
	json_t *path;

	mdl_path_text(c, text, sizeof(text));
	json_array_foreach(paths, index, path)
	{
		if (strcmp(json_string_value(path), text) == 0)
			return;
	}
	json_array_append_new(paths, rpc_text(text));
}

static json_t *metric_row(const struct mdl_library *l, const struct mdl_metric *m)
{
	static const char *const aggregates[] = {
		[MDL_SUM] = "sum",
		[MDL_MIN] = "min",
		[MDL_MAX] = "max",
		[MDL_AVG] = "avg",
	};
	json_t *paths = json_array();

	for (const struct mdl_use *use = m->uses; use; use = use->next) {
		const struct mdl_constraint *c = mdl_used_constraint(l, use);

		if (c)
			add_path(paths, c);
	}
	return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:s,s:s,s:s}", "kind", "metric", "metric",
			 rpc_text(m->id), "unit", text_or_null(m->units), "constraints", paths,
			 "file", rpc_text(m->place.file), "description",
			 text_or_null(m->description), "type", mdl_vartype_name(m->type),
			 "aggregate", aggregates[m->aggregate], "style",
			 m->style == MDL_SAMPLED_FUNCTION ? "SampledFunction" : "EventCounter");
}

static json_t *constraint_row(const struct mdl_constraint *c)
{
	json_t *paths = json_array();

	add_path(paths, c);
	return json_pack("{s:s,s:n,s:o,s:n,s:o,s:o,s:n}", "kind", "constraint", "metric",
			 "constraint", rpc_text(c->name), "unit", "constraints", paths, "file",
			 rpc_text(c->place.file), "description");
}

json_t *metric_rows(const struct mdl_library *l)
{
	json_t *rows = json_array();

	for (const struct mdl_metric *m = mdl_metrics(l); m; m = m->next)
		json_array_append_new(rows, metric_row(l, m));
	for (const struct mdl_constraint *c = mdl_constraints(l); c; c = c->next)
		json_array_append_new(rows, constraint_row(c));
	return rows;
}
