/* SPDX-License-Identifier: MIT */
/*
 * sessions.c - libdinst: sessions, and what is inserted in them.
 *
 * Owns the results of attach and insert: each is one block with its rows, beside the
 * answer whose strings it points to. Never waits but in library_call().
 */
#include <stdlib.h>

#include "lib/library.h"

/* ----------------------------------------------------------------- sessions */

struct kept_session {
	struct dinst_session s; /* first: the caller has its address */
	json_t *answer;
};

DINST_PUBLIC int dinst_attach(struct dinst *d, const char *target, const char *name, unsigned flags,
			      struct dinst_session **s, struct dinst_failure *f)
{
	json_t *params, *answer = NULL;
	struct kept_session *kept;
	int err;

	if (!target)
		return failure_missing(f, "the target");
	kept = calloc(1, sizeof(*kept));
	params = json_pack("{s:o}", "target", rpc_text(target));
	if (!kept || !params) {
		free(kept);
		json_decref(params);
		return failure_memory(f);
	}
	if (name)
		json_object_set_new(params, "name", rpc_text(name));
	if (flags & DINST_HOLD)
		json_object_set_new(params, "hold", json_true());
	err = library_call(d, "attach", params, &answer, f);
	if (err || !s) {
		json_decref(answer);
		free(kept);
		return err;
	}
	kept->answer = answer;
	kept->s.name = row_text(answer, "session");
	kept->s.pid = (int)row_count(answer, "pid");
	kept->s.modules = row_count(answer, "modules");
	kept->s.functions = row_count(answer, "functions");
	kept->s.attach_ms = row_number(answer, "attach_ms");
	kept->s.stop_us = row_count(answer, "stop_us");
	kept->s.joined = json_is_true(json_object_get(answer, "joined"));
	*s = &kept->s;
	return 0;
}

DINST_PUBLIC void dinst_session_free(struct dinst_session *s)
{
	struct kept_session *kept = (struct kept_session *)s;

	if (!kept)
		return;
	json_decref(kept->answer);
	free(kept);
}

/* The session has gone, and nobody could say how much of it is in the program: no number would be true. */
static int left_unknown(const json_t *answer, struct dinst_failure *f)
{
	const json_t *why = json_array_get(json_object_get(answer, "notes"), 0);
	struct dinst_error e = {0, ""};

	dinst_fail(&e, DINST_FAILED, "%s",
		   json_is_string(why) ? json_string_value(why) : "how much is left is not known");
	return failure_pass(f, &e);
}

DINST_PUBLIC int dinst_detach(struct dinst *d, const char *session, uint64_t *left,
			      struct dinst_failure *f)
{
	json_t *answer = NULL;
	int err = library_call(d, "detach", session_params(session), &answer, f);

	if (!err && json_is_null(json_object_get(answer, "left")))
		err = left_unknown(answer, f);
	else if (!err && left)
		*left = row_count(answer, "left");
	json_decref(answer);
	return err;
}

/* ------------------------------------------------------------------ metrics */

DINST_PUBLIC int dinst_load(struct dinst *d, const char *session, const char *name,
			    const char *text, struct dinst_failure *f)
{
	json_t *params;

	if (!name || !text)
		return failure_missing(f,
				       name ? "the text of the metrics" : "the name of the text");
	params = session_params(session);
	json_object_set_new(params, "name", rpc_text(name));
	json_object_set_new(params, "text", rpc_text(text));
	return library_call(d, "load", params, NULL, f);
}

struct kept_instances {
	struct dinst_instances i;
	json_t *answer;
	struct dinst_instance *instances;
	const struct dinst_instance **rows;
	const char **notes;
};

DINST_PUBLIC void dinst_instances_free(struct dinst_instances *instances)
{
	struct kept_instances *kept = (struct kept_instances *)instances;

	if (!kept)
		return;
	json_decref(kept->answer);
	free(kept->instances);
	free(kept->rows);
	free(kept->notes);
	free(kept);
}

static void take_instance(struct dinst_instance *i, const json_t *row)
{
	i->id = row_count(row, "id");
	i->metric = row_text(row, "metric");
	i->focus = row_text(row, "focus");
	i->points = row_count(row, "points");
	i->refused = row_count(row, "refused");
	i->pending = row_count(row, "pending");
	i->stop_us = row_count(row, "stop_us");
}

/* Takes over `answer`; NULL without memory. */
static struct dinst_instances *unpack_instances(json_t *answer)
{
	json_t *rows = json_object_get(answer, "rows"), *notes = json_object_get(answer, "notes");
	size_t row_total = json_array_size(rows), note_total = json_array_size(notes);
	struct kept_instances *kept = calloc(1, sizeof(*kept));

	if (!kept) {
		json_decref(answer);
		return NULL;
	}
	kept->answer = answer;
	kept->instances = calloc(row_total + 1, sizeof(*kept->instances));
	kept->rows = calloc(row_total + 1, sizeof(*kept->rows));
	kept->notes = calloc(note_total + 1, sizeof(*kept->notes));
	if (!kept->instances || !kept->rows || !kept->notes) {
		dinst_instances_free(&kept->i);
		return NULL;
	}
	for (size_t n = 0; n < row_total; n++) {
		take_instance(&kept->instances[n], json_array_get(rows, n));
		kept->rows[n] = &kept->instances[n];
	}
	for (size_t n = 0; n < note_total; n++) {
		const char *text = json_string_value(json_array_get(notes, n));

		kept->notes[n] = text ? text : "";
	}
	kept->i.row = kept->rows;
	kept->i.count = row_total;
	kept->i.partial = json_is_true(json_object_get(answer, "partial"));
	kept->i.notes = kept->notes;
	kept->i.note_count = note_total;
	return &kept->i;
}

int insert_call(struct dinst *d, const char *method, json_t *params,
		struct dinst_instances **instances, struct dinst_failure *f)
{
	json_t *answer = NULL;
	int err = library_call(d, method, params, &answer, f);

	if (err)
		return err;
	if (!instances) {
		json_decref(answer);
		return 0;
	}
	*instances = unpack_instances(answer);
	return *instances ? 0 : failure_memory(f);
}

DINST_PUBLIC int dinst_insert(struct dinst *d, const char *session, const char *metric,
			      const char *const *foci, unsigned flags, double limit,
			      struct dinst_instances **instances, struct dinst_failure *f)
{
	json_t *params, *names;

	if (!metric)
		return failure_missing(f, "the metric");
	params = session_params(session);
	names = json_array();
	for (; foci && *foci; foci++)
		json_array_append_new(names, rpc_text(*foci));
	json_object_set_new(params, "metric", rpc_text(metric));
	json_object_set_new(params, "focus", names);
	json_object_set_new(params, "each", json_boolean(flags & DINST_EACH));
	if (limit > 0)
		json_object_set_new(params, "limit", json_real(limit));
	if (flags & DINST_HOLD)
		json_object_set_new(params, "hold", json_true());
	return insert_call(d, "insert", params, instances, f);
}

DINST_PUBLIC int dinst_remove(struct dinst *d, const char *session, const uint64_t *ids,
			      size_t count, struct dinst_failure *f)
{
	json_t *params;

	/* nobody means all of them by that */
	if (count && !ids)
		return failure_missing(f, "the list of ids");
	params = session_params(session);
	if (count)
		json_object_set_new(params, "ids", ids_array(ids, count));
	else
		json_object_set_new(params, "all", json_true());
	return library_call(d, "remove", params, NULL, f);
}
