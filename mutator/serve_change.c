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

size_t serve_insert_room = 40 << 20;

/*
 * What is done is never told as failed because it takes too many words: each instance has a row, with its number
 * and its counts at least, and the rest is told as far as there is room.
 */
struct insert_answer {
	json_t *rows, *notes;
	size_t bytes, list_bytes, note_bytes; /* by now: of all, of lists in rows, of notes */
	size_t short_rows;		      /* have no more than numbers */
	size_t entries_left_off, notes_left_off;
};

/* True if the value fits into the answer, of whose parts *used may come to `most`: then it is counted. */
static bool has_room(struct insert_answer *a, size_t *used, size_t most, const json_t *value)
{
	const size_t size =
		json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY) + 1;

	if (a->bytes + size > serve_insert_room || *used + size > most)
		return false;
	a->bytes += size;
	if (used != &a->bytes)
		*used += size;
	return true;
}

/* Steals the note. */
static void add_note(struct insert_answer *a, json_t *note)
{
	if (has_room(a, &a->note_bytes, serve_insert_room / 8, note)) {
		json_array_append_new(a->notes, note);
		return;
	}
	a->notes_left_off++;
	json_decref(note);
}

static void note_one_refused(struct insert_answer *a, const struct refused_point *r,
			     const char *whose)
{
	char text[1400];

	if (r->why)
		snprintf(text, sizeof(text), "%s: %.600s: %.600s", whose, r->where, r->why);
	else
		snprintf(text, sizeof(text), "%s: %.600s: %s (%s)", whose, r->where,
			 refusal_text(r->refusal), refusal_name(r->refusal));
	add_note(a, serve_text(text));
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
static void note_refused(struct insert_answer *a, const struct instance *i, const char *whose)
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
		note_one_refused(a, &i->refused[n], whose);
	}
	if (more) {
		snprintf(text, sizeof(text), "%s: %zu more of %s; `dinst points` lists them", whose,
			 more, i->focus);
		add_note(a, serve_text(text));
	}
}

static void note_pending(struct insert_answer *a, const struct session *s, const struct instance *i,
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
			"inside of them, and its memory is too large to be searched for that, or shared and "
			"not to be read without CAP_CHECKPOINT_RESTORE",
			pending, i->focus);
	else
		snprintf(text, sizeof(text),
			 "pending: %zu points of %s wait until no thread is inside them", pending,
			 i->focus);
	add_note(a, serve_text(text));
}

/* Steals the entry of a list in a row; *left_off counts those that there is no room for. */
static void add_entry(struct insert_answer *a, json_t *list, json_t *entry, size_t *left_off)
{
	if (has_room(a, &a->list_bytes, serve_insert_room / 4, entry)) {
		json_array_append_new(list, entry);
		return;
	}
	++*left_off;
	json_decref(entry);
}

static void append_refused(struct insert_answer *a, json_t *rows, const struct refused_point *list,
			   size_t count, size_t *left_off)
{
	for (size_t n = 0; n < count; n++)
		add_entry(a, rows,
			  json_pack("{s:o, s:s, s:o}", "where", serve_text(list[n].where), "reason",
				    refusal_name(list[n].refusal), "text",
				    serve_text(list[n].why ? list[n].why
							   : refusal_text(list[n].refusal))),
			  left_off);
}

/* A constraint that guards it, which others may have, too: the value lacks what that lacks. Hooks do nothing for it. */
static bool lacks_for(const struct instance *constraint)
{
	return constraint->has_key && !constraint->raw;
}

/* How many points could not be instrumented for an instance and for what guards it. */
static size_t count_refused(const struct instance *i)
{
	size_t count = i->refused_count;

	for (size_t n = 0; n < i->flag_count; n++)
		count += lacks_for(i->flags[n]) ? i->flags[n]->refused_count : 0;
	return count;
}

/* Rows for programs about them and about what was left out. */
static void list_refused(struct insert_answer *a, const struct instance *i, json_t *refused,
			 json_t *left_out, size_t *left_off)
{
	append_refused(a, refused, i->refused, i->refused_count, left_off);
	append_refused(a, left_out, i->left_out, i->left_out_count, left_off);
	for (size_t n = 0; n < i->flag_count; n++) {
		const struct instance *part = i->flags[n];

		if (!lacks_for(part))
			continue;
		append_refused(a, refused, part->refused, part->refused_count, left_off);
		append_refused(a, left_out, part->left_out, part->left_out_count, left_off);
	}
}

/* Notes for people about them. */
static void note_all_refused(struct insert_answer *a, const struct instance *i)
{
	note_refused(a, i, "refused");
	for (size_t n = 0; n < i->flag_count; n++)
		if (lacks_for(i->flags[n]))
			note_refused(a, i->flags[n], "refused for a constraint");
}

/* Names of the text's lists that this program does not have, and the like. */
static json_t *skipped_json(struct insert_answer *a, const struct instance *i, size_t *left_off)
{
	json_t *rows = json_array();

	for (size_t n = 0; i->plan && n < i->plan->skipped_count; n++)
		add_entry(a, rows, serve_text(i->plan->skipped[n]), left_off);
	return rows;
}

/* What there is room for in any case. */
static json_t *short_row(const struct instance *i, uint64_t stop_ns)
{
	size_t points, pending;

	instance_points(i, &points, &pending);
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "id", (json_int_t)i->id, "points",
			 (json_int_t)points, "refused",
			 (json_int_t)count_refused(instance_source(i)), "pending",
			 (json_int_t)pending, "stop_us", serve_us(stop_ns));
}

/* All but the lists. */
static json_t *plain_row(const struct instance *i, uint64_t stop_ns)
{
	const struct instance *source = instance_source(i);
	json_t *row, *events;
	size_t points, pending;

	instance_points(i, &points, &pending);
	row = json_pack("{s:I, s:s, s:o, s:I, s:I, s:I, s:I, s:b, s:f}", "id", (json_int_t)i->id,
			"metric", i->metric, "focus", serve_text(i->focus), "points",
			(json_int_t)points, "refused", (json_int_t)count_refused(source), "pending",
			(json_int_t)pending, "stop_us", serve_us(stop_ns), "shared",
			i->source != NULL, "predicted_ns", (double)source->cost_ps / 1000);
	if (source->plan && source->plan->own_calls)
		json_object_set_new(row, "own_calls",
				    json_integer((json_int_t)source->plan->own_calls));
	events = stream_events_json(i);
	if (events)
		json_object_set_new(row, "events", events);
	return row;
}

static void add_row(struct insert_answer *a, const struct instance *i, uint64_t stop_ns)
{
	json_t *row = plain_row(i, stop_ns), *refused, *left_out;
	size_t left_off = 0;

	if (!has_room(a, &a->bytes, serve_insert_room, row)) {
		json_decref(row);
		json_array_append_new(a->rows, short_row(i, stop_ns));
		a->short_rows++;
		return;
	}
	refused = json_array();
	left_out = json_array();
	list_refused(a, instance_source(i), refused, left_out, &left_off);
	json_object_set_new(row, "reasons", refused);
	json_object_set_new(row, "left_out", left_out);
	json_object_set_new(row, "skipped", skipped_json(a, instance_source(i), &left_off));
	if (left_off)
		json_object_set_new(row, "left_off", json_integer((json_int_t)left_off));
	a->entries_left_off += left_off;
	json_array_append_new(a->rows, row);
}

/* That not all is told, which takes no room of the rest. */
static void note_left_off(struct insert_answer *a)
{
	char text[400];

	if (a->short_rows) {
		snprintf(
			text, sizeof(text),
			"the answer would be too long: %zu rows have numbers only; dinst read shows their metrics and foci",
			a->short_rows);
		json_array_append_new(a->notes, serve_text(text));
	}
	if (a->entries_left_off || a->notes_left_off) {
		snprintf(
			text, sizeof(text),
			"the answer would be too long: %zu entries of lists in rows and %zu notes are left off; dinst points tells what is refused",
			a->entries_left_off, a->notes_left_off);
		json_array_append_new(a->notes, serve_text(text));
	}
}

static void note_unwalked(struct insert_answer *a, const struct instance *i)
{
	char text[1400];

	snprintf(text, sizeof(text),
		 "%s: what %zu threads were in when it came is not known; counts and times of "
		 "their next calls are right, a level may stay off by one for each of them, and a "
		 "timer may go on: remove it and insert it again if it does",
		 i->focus, i->unwalked);
	add_note(a, serve_text(text));
}

/* Of one that shares what was there: what ran before it came is none of its value. */
static int note_running(struct insert_answer *a, struct instance *i)
{
	struct dinst_error e = {0};
	const int status = values_keep_running(i, &e);
	char text[DINST_ERROR_TEXT + 400];

	if (status >= 0)
		return status;
	snprintf(text, sizeof(text),
		 "%.300s: what ran when it came could not be read, and is in its value: %s",
		 i->focus, e.text);
	add_note(a, serve_text(text));
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

static void note_clock(struct insert_answer *a, const struct insert_result *r,
		       const struct session *s)
{
	char told[240], text[300];
	bool any = false;

	for (size_t n = 0; n < r->count && !any; n++)
		any = has_wall_clock(r->instances[n]);
	if (!any)
		return;
	wall_clock_tell(s->wall_clock, told, sizeof(told));
	snprintf(text, sizeof(text), "wall clock: %s", told);
	add_note(a, serve_text(text));
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

static void answer_inserted(struct session *s, const struct insert_result *inserted, bool verbose,
			    json_t **result)
{
	struct insert_answer a = {.rows = json_array(), .notes = json_array()};
	bool partial = false;

	for (size_t i = 0; i < inserted->count; i++) {
		struct instance *instance = inserted->instances[i];
		size_t points, pending;

		if (note_running(&a, instance) < 0)
			partial = true;
		instance_points(instance, &points, &pending);
		if (pending)
			note_pending(&a, s, instance, pending);
		note_all_refused(&a, instance_source(instance));
		if (count_refused(instance_source(instance)) || pending)
			partial = true;
		if (instance->unwalked)
			note_unwalked(&a, instance);
		add_row(&a, instance, inserted->stop_ns);
	}
	if (verbose)
		note_clock(&a, inserted, s);
	note_left_off(&a);
	*result = json_pack("{s:o, s:b, s:o}", "rows", a.rows, "partial", partial || a.short_rows,
			    "notes", a.notes);
	if (a.short_rows)
		json_object_set_new(*result, "short_rows", json_integer((json_int_t)a.short_rows));
	if (s->stream) {
		stream_tell_whose(s, *result);
		stream_tell_kept(s, *result);
	}
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
	const char **foci = NULL;
	struct session *s;
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
	answer_inserted(s, &inserted, json_is_true(json_object_get(params, "verbose")), result);
	free(inserted.instances);
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
