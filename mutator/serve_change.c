/* SPDX-License-Identifier: MIT */
/*
 * serve_change.c - the methods that change instrumentation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/evaluate.h"
#include "mutator/serve.h"
#include "mutator/stream.h"
#include "mutator/values.h"
#include "mutator/wall_clock.h"

enum { REFUSED_SHOWN = 20 }; /* refused points told one by one for an instance */

static void note_one_refused(json_t *notes, const struct refused_point *r, const char *whose)
{
	char text[1400];

	if (r->why)
		snprintf(text, sizeof(text), "%s: %.600s: %.600s", whose, r->where, r->why);
	else
		snprintf(text, sizeof(text), "%s: %.600s: %s (%s)", whose, r->where,
			 refusal_text(r->refusal), refusal_name(r->refusal));
	json_array_append_new(notes, serve_text(text));
}

/* What is said of both is the same: the entry of a function and its exits, say. */
static bool are_told_alike(const struct refused_point *a, const struct refused_point *b)
{
	return a->refusal == b->refusal && !strcmp(a->where, b->where) &&
	       !strcmp(a->why ? a->why : "", b->why ? b->why : "");
}

/*
 * Notes for people of what was refused, the first ones by name, that begin with `whose`: one for all points of
 * which the same is said.
 */
static void note_refused(json_t *notes, const struct instance *i, const char *whose)
{
	const struct refused_point *told[REFUSED_SHOWN];
	size_t count = 0, more = 0, k;
	char text[1400];

	for (size_t n = 0; n < i->refused_count; n++) {
		for (k = 0; k < count && !are_told_alike(told[k], &i->refused[n]);)
			k++;
		if (k < count)
			continue;
		if (count == REFUSED_SHOWN) {
			more++;
			continue;
		}
		told[count++] = &i->refused[n];
		note_one_refused(notes, &i->refused[n], whose);
	}
	if (more) {
		snprintf(text, sizeof(text), "%s: %zu more of %s; `dinst points` lists them", whose,
			 more, i->focus);
		json_array_append_new(notes, serve_text(text));
	}
}

static void note_pending(json_t *notes, const struct session *s, const struct instance *i,
			 size_t pending)
{
	char text[1400];

	if (i->waiting)
		snprintf(text, sizeof(text), "pending: %s waits until its module is loaded",
			 i->focus);
	else if (s->unsearched)
		snprintf(
			text, sizeof(text),
			"pending: %zu points of %s wait: the program switches between tasks of its "
			"own (swapcontext() or the like), one that a signal interrupted may go on "
			"inside of them, and its memory is too large to be searched for that",
			pending, i->focus);
	else
		snprintf(text, sizeof(text),
			 "pending: %zu points of %s wait until no thread is inside them", pending,
			 i->focus);
	json_array_append_new(notes, serve_text(text));
}

static void append_refused(json_t *rows, const struct refused_point *list, size_t count)
{
	for (size_t n = 0; n < count; n++)
		json_array_append_new(
			rows, json_pack("{s:o, s:s, s:o}", "where", serve_text(list[n].where),
					"reason", refusal_name(list[n].refusal), "text",
					serve_text(list[n].why ? list[n].why
							       : refusal_text(list[n].refusal))));
}

/*
 * What could not be instrumented for an instance, nor for the constraints that guard it, which others may have, too:
 * its value lacks that. Returns how many points; rows for programs and notes for people are added where asked for.
 */
static size_t tell_refused(const struct instance *i, json_t *rows, json_t *left_out, json_t *notes)
{
	size_t count = 0;

	for (size_t n = 0; n <= i->flag_count; n++) {
		const struct instance *part = n ? i->flags[n - 1] : i;

		/* Hooks do nothing for the value. */
		if (n && (!part->has_key || part->raw))
			continue;
		count += part->refused_count;
		if (rows)
			append_refused(rows, part->refused, part->refused_count);
		if (left_out)
			append_refused(left_out, part->left_out, part->left_out_count);
		if (notes)
			note_refused(notes, part, n ? "refused for a constraint" : "refused");
	}
	return count;
}

/* Names of the text's lists that this program does not have, and the like. */
static json_t *skipped_json(const struct instance *i)
{
	json_t *rows = json_array();

	for (size_t n = 0; i->plan && n < i->plan->skipped_count; n++)
		json_array_append_new(rows, serve_text(i->plan->skipped[n]));
	return rows;
}

static json_t *instance_row(const struct instance *i, uint64_t stop_ns)
{
	const struct instance *source = instance_source(i);
	json_t *refused = json_array(), *left_out = json_array(), *row, *events;
	const size_t count = tell_refused(source, refused, left_out, NULL);
	size_t points, pending;

	instance_points(i, &points, &pending);
	row = json_pack("{s:I, s:s, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:b, s:f}", "id",
			(json_int_t)i->id, "metric", i->metric, "focus", serve_text(i->focus),
			"points", (json_int_t)points, "refused", (json_int_t)count, "pending",
			(json_int_t)pending, "stop_us", serve_us(stop_ns), "reasons", refused,
			"left_out", left_out, "skipped", skipped_json(source), "shared",
			i->source != NULL, "predicted_ns", (double)source->cost_ps / 1000);
	if (source->plan && source->plan->own_calls)
		json_object_set_new(row, "own_calls",
				    json_integer((json_int_t)source->plan->own_calls));
	events = stream_events_json(i);
	if (events)
		json_object_set_new(row, "events", events);
	return row;
}

static void note_unwalked(json_t *notes, const struct instance *i)
{
	char text[1400];

	snprintf(text, sizeof(text),
		 "%s: what %zu threads were in when it came is not known; counts and times of "
		 "their next calls are right, a level may stay off by one for each of them, and a "
		 "timer may go on: remove it and insert it again if it does",
		 i->focus, i->unwalked);
	json_array_append_new(notes, serve_text(text));
}

/* Of one that shares what was there: what ran before it came is none of its value. */
static int note_running(json_t *notes, struct instance *i)
{
	struct dinst_error e = {0};
	const int status = values_keep_running(i, &e);
	char text[DINST_ERROR_TEXT + 400];

	if (status >= 0)
		return status;
	snprintf(text, sizeof(text),
		 "%.300s: what ran when it came could not be read, and is in its value: %s",
		 i->focus, e.text);
	json_array_append_new(notes, serve_text(text));
	return status;
}

/* That its timers go by another clock than the processor's. */
static bool has_wall_clock(const struct instance *i)
{
	for (const struct link *l = instance_source(i)->links; l; l = l->next_instance)
		if (l->snippet.code && wall_clock_is_wanted(&l->snippet.code->program))
			return true;
	return false;
}

static void note_clock(json_t *notes, const struct insert_result *r, const struct session *s)
{
	char told[240], text[300];
	bool any = false;

	for (size_t n = 0; n < r->count && !any; n++)
		any = has_wall_clock(r->instances[n]);
	if (!any)
		return;
	wall_clock_tell(s->wall_clock, told, sizeof(told));
	snprintf(text, sizeof(text), "wall clock: %s", told);
	json_array_append_new(notes, serve_text(text));
}

static int read_foci(const json_t *list, const char ***out, size_t *count, struct dinst_error *e)
{
	size_t n = json_array_size(list);
	const char **foci = calloc(n + 1, sizeof(*foci));

	/* No list is everything: what is no list must not be taken for none. */
	if (list && !json_is_array(list)) {
		free(foci);
		return dinst_fail(e, DINST_USAGE, "focus is a list of strings");
	}
	if (!foci)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (size_t i = 0; i < n; i++) {
		foci[i] = json_string_value(json_array_get(list, i));
		if (!foci[i]) {
			free(foci);
			return dinst_fail(e, DINST_USAGE, "focus is a list of strings");
		}
	}
	*out = foci;
	*count = n;
	return 0;
}

int serve_insert(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	const char *metric = json_string_value(json_object_get(params, "metric"));
	const struct insert_options options = {
		.each = json_is_true(json_object_get(params, "each")),
		.cost = json_is_true(json_object_get(params, "cost")),
		.limit = json_number_value(json_object_get(params, "limit")),
	};
	struct insert_result inserted;
	json_t *rows, *notes;
	const char **foci = NULL;
	struct session *s;
	bool partial = false;
	size_t count = 0;
	int status = serve_session(sv, &s, e);

	if (status < 0)
		return status;
	if (!metric)
		return dinst_fail(e, DINST_USAGE, "insert needs a metric, a string");
	if (options.limit < 0 ||
	    (json_object_get(params, "limit") && !json_is_number(json_object_get(params, "limit"))))
		return dinst_fail(e, DINST_USAGE, "limit is a number: percent of one CPU");
	status = read_foci(json_object_get(params, "focus"), &foci, &count, e);
	if (status < 0)
		return status;
	status = request_insert(s, metric, foci, count, &options, &inserted, e);
	free(foci);
	if (status < 0)
		return status;
	rows = json_array();
	notes = json_array();
	for (size_t i = 0; i < inserted.count; i++) {
		struct instance *instance = inserted.instances[i];
		size_t points, pending;

		if (note_running(notes, instance) < 0)
			partial = true;
		instance_points(instance, &points, &pending);
		if (pending)
			note_pending(notes, s, instance, pending);
		if (tell_refused(instance_source(instance), NULL, NULL, notes) || pending)
			partial = true;
		if (instance->unwalked)
			note_unwalked(notes, instance);
		json_array_append_new(rows, instance_row(instance, inserted.stop_ns));
	}
	if (json_is_true(json_object_get(params, "verbose")))
		note_clock(notes, &inserted, s);
	free(inserted.instances);
	*result = json_pack("{s:o, s:b, s:o}", "rows", rows, "partial", partial, "notes", notes);
	if (s->stream) {
		stream_tell_whose(s, *result);
		stream_tell_kept(s, *result);
	}
	return 0;
}

static bool repeated(struct instance *const *list, size_t k)
{
	for (size_t j = 0; j < k; j++)
		if (list[j] == list[k])
			return true;
	return false;
}

int serve_remove(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	bool all = json_is_true(json_object_get(params, "all"));
	struct instance **list;
	struct flush_result flush;
	struct session *s;
	json_t *rows, *row;
	size_t count, index;
	int status = serve_session(sv, &s, e);

	if (status < 0)
		return status;
	if (!all && !json_array_size(json_object_get(params, "ids")))
		return dinst_fail(e, DINST_USAGE, "remove needs ids, or all");
	status = serve_instances(s, params, &list, &count, e);
	if (status < 0)
		return status;
	/* Also with `all`: ids say which, where both are given. */
	for (size_t k = 0; k < count && json_array_size(json_object_get(params, "ids")); k++)
		if (repeated(list, k))
			list[k--] = list[--count];
	rows = json_array();
	for (size_t k = 0; k < count; k++)
		json_array_append_new(rows, json_pack("{s:I, s:I}", "id", (json_int_t)list[k]->id,
						      "freed", (json_int_t)0));
	status = removal_switch_off_all(s, list, count, e);
	free(list);
	if (status < 0) {
		json_decref(rows);
		return status;
	}
	removal_look_for_tasks(s);
	/* One flush for all of them: what it freed stands with the last. */
	removal_settle(s, &flush);
	json_array_foreach(rows, index, row)
		json_object_set_new(row, "queued", json_integer((json_int_t)flush.queued));
	if (count)
		json_object_set_new(json_array_get(rows, count - 1), "freed",
				    json_integer((json_int_t)flush.freed));
	*result = serve_rows(rows);
	return 0;
}

int serve_flush(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	struct flush_result flush;
	struct session *s;
	int status = serve_session(sv, &s, e);

	(void)params;
	if (status >= 0)
		removal_look_for_tasks(s);
	if (status >= 0)
		status = removal_flush(s, &flush, e);
	if (status < 0)
		return status;
	*result = json_pack("{s:I, s:I, s:I, s:b}", "freed", (json_int_t)flush.freed, "queued",
			    (json_int_t)flush.queued, "stop_us", serve_us(flush.stop_ns), "partial",
			    flush.queued > 0);
	return 0;
}
