/* SPDX-License-Identifier: MIT */
/*
 * serve_events.c - the method that hands out events, and what rows of `insert` say
 * of them. Never waits: clients ask again.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mutator/serve.h"
#include "mutator/stream_private.h"
#include "mutator/variable.h"

enum { BYTES_USUAL = 1 << 20, BYTES_MOST = 8 << 20, BYTES_LEAST = 16384 };

/* ------------------------------------------------------------------- kinds */

static const char *kind_text(enum point_kind kind)
{
	switch (kind) {
	case POINT_ENTRY:
		return "entry";
	case POINT_EXIT:
		return "return";
	case POINT_CALL:
		return "call";
	default:
		return "other";
	}
}

static const char *form_text(enum stream_form form)
{
	static const char *const forms[] = {
		[STREAM_VALUE] = "value",
		[STREAM_STRING] = "string",
		[STREAM_BYTES] = "bytes",
		[STREAM_STACK] = "stack",
	};

	return forms[form];
}

static json_t *kind_json(const struct stream_event *event)
{
	json_t *fields = json_array();

	for (size_t n = 0; n < event->field_count; n++) {
		const struct stream_field *f = &event->fields[n];
		json_t *field =
			json_pack("{s:o, s:s, s:I, s:I, s:n}", "text", serve_text(f->text), "form",
				  form_text(f->form), "offset", (json_int_t)f->offset, "size",
				  (json_int_t)stream_field_told(f), "type");

		if (f->float_size)
			json_object_set_new(field, "float", json_integer(f->float_size));
		json_array_append_new(fields, field);
	}
	return json_pack("{s:I, s:o, s:o, s:o, s:s, s:o}", "id", (json_int_t)event->id, "function",
			 serve_text(event->function_name), "module", serve_text(event->module_name),
			 "address", serve_address(event->address), "kind", kind_text(event->kind),
			 "fields", fields);
}

/* The kinds of one queue with ids above `told`. */
static void add_kinds(const struct stream *st, const struct stream_queue *queue, uint32_t told,
		      json_t *list)
{
	for (size_t n = told; n < st->event_count; n++)
		if (st->events[n] && st->events[n]->queue == queue)
			json_array_append_new(list, kind_json(st->events[n]));
}

json_t *stream_events_json(const struct instance *i)
{
	const struct instance *source = instance_source(i);
	const struct stream *st = i->session->stream;
	struct stream_queue *queue = source->variable_count ? source->variables[0]->queue : NULL;
	json_t *list;

	if (!st || !queue)
		return NULL;
	stream_name(queue, i->id);
	queue->kinds_told = (uint32_t)st->event_count;
	list = json_array();
	add_kinds(st, queue, 0, list);
	return list;
}

void stream_tell_whose(const struct session *s, json_t *answer)
{
	json_object_set_new(answer, "session", serve_text(s->name));
	json_object_set_new(answer, "begun_ns",
			    json_integer(s->stream ? (json_int_t)s->stream->begun_ns : 0));
}

void stream_tell_kept(const struct session *s, json_t *answer)
{
	const struct stream *st = s->stream;
	json_t *kept = json_array();
	size_t end;

	for (size_t n = 0; n < st->event_count; n = end + 1) {
		for (end = n; end < st->event_count && st->events[end];)
			end++;
		if (end > n)
			json_array_append_new(kept, json_pack("[I, I]", (json_int_t)n + 1,
							      (json_int_t)end));
	}
	json_object_set_new(answer, "kept_kinds", kept);
}

/* ------------------------------------------------------------------ base64 */

/* RFC 4648, 4. NULL: no memory. */
static char *base64(const uint8_t *data, size_t size)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *text = malloc(size / 3 * 4 + 5), *to = text;

	for (size_t at = 0; text && at < size; at += 3) {
		const size_t left = size - at;
		const uint32_t bits = (uint32_t)data[at] << 16 |
				      (left > 1 ? (uint32_t)data[at + 1] << 8 : 0) |
				      (left > 2 ? data[at + 2] : 0u);

		*to++ = digits[bits >> 18];
		*to++ = digits[bits >> 12 & 63];
		*to++ = left > 1 ? digits[bits >> 6 & 63] : '=';
		*to++ = left > 2 ? digits[bits & 63] : '=';
	}
	if (text)
		*to = '\0';
	return text;
}

/* ------------------------------------------------------------------ events */

/* The queue of an instance; what waited for its module when it was inserted gets one later. */
static struct stream_queue *queue_of(const struct session *s, unsigned id)
{
	const struct instance *i = session_instance(s, id), *source;

	if (!i)
		return stream_find(s, id);
	source = instance_source(i);
	if (!source->variable_count || !source->variables[0]->queue)
		return NULL;
	stream_name(source->variables[0]->queue, id);
	return source->variables[0]->queue;
}

/* The queues of params.ids; none: all of them. */
static int read_ids(const struct session *s, const json_t *params, struct stream_queue ***out,
		    size_t *count, struct dinst_error *e)
{
	const json_t *ids = json_object_get(params, "ids");
	const size_t n = json_array_size(ids);

	*count = 0;
	if (ids && !json_is_array(ids))
		return dinst_fail(e, DINST_USAGE, "ids is a list of numbers");
	*out = calloc(n + 1, sizeof(struct stream_queue *));
	if (!*out)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for events");
	for (size_t k = 0; k < n; k++) {
		const json_int_t id = json_integer_value(json_array_get(ids, k));
		struct stream_queue *q =
			id > 0 && id <= UINT32_MAX ? queue_of(s, (unsigned)id) : NULL;

		for (size_t i = 0; i < *count && q; i++)
			q = (*out)[i] == q ? NULL : q;
		if (q)
			(*out)[(*count)++] = q;
	}
	return 0;
}

static int64_t clock_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Kinds that were not told yet: of modules that were loaded since. */
static json_t *new_kinds(const struct session *s, struct stream_queue *const *queues, size_t count,
			 bool all)
{
	const struct stream *st = s->stream;
	struct stream_queue *q = st && all ? st->queues : NULL;
	json_t *list = json_array();

	for (size_t n = 0; st && (n < count || q); n++) {
		struct stream_queue *at = q ? q : queues[n];

		add_kinds(st, at, at->kinds_told, list);
		at->kinds_told = (uint32_t)st->event_count;
		q = q ? q->next : NULL;
	}
	return list;
}

static json_t *answer(const struct stream_taken *taken, json_t *threads, json_t *kinds)
{
	char *text = base64(taken->data, taken->size);
	const int64_t now = clock_of(CLOCK_MONOTONIC);
	json_t *result =
		text ? json_pack("{s:s, s:I, s:I, s:b, s:I, s:I}", "data", text, "dropped",
				 (json_int_t)taken->dropped, "damaged", (json_int_t)taken->damaged,
				 "more", taken->more, "now_ns", (json_int_t)now, "epoch_ns",
				 (json_int_t)(clock_of(CLOCK_REALTIME) - now))
		     : NULL;

	free(text);
	if (result) {
		json_object_set(result, "threads", threads);
		json_object_set(result, "kinds", kinds);
		if (taken->places)
			json_object_set(result, "places", taken->places);
	}
	return result;
}

int serve_events(struct server *sv, const json_t *params, json_t **result, struct dinst_error *e)
{
	const json_t *bytes = json_object_get(params, "max_bytes");
	const bool some = json_array_size(json_object_get(params, "ids")) > 0;
	json_int_t most = bytes ? json_integer_value(bytes) : BYTES_USUAL;
	struct stream_taken taken = {0};
	struct stream_queue **queues = NULL;
	struct session *s;
	json_t *threads, *kinds;
	size_t count;
	int status = serve_session(sv, &s, e);

	if (status < 0)
		return status;
	if (bytes && !json_is_integer(bytes))
		return dinst_fail(e, DINST_USAGE, "max_bytes is a number of bytes");
	most = most < BYTES_LEAST ? BYTES_LEAST : most > BYTES_MOST ? BYTES_MOST : most;
	if (s->stream)
		s->stream->asked_ns = clock_ns();
	stream_collect(s);
	status = read_ids(s, params, &queues, &count, e);
	if (status < 0)
		return status;
	/* Ids that are of no stream: nothing, and not all. */
	status = stream_take(s, queues, count, some && !count ? 0 : (size_t)most, &taken, &threads,
			     e);
	kinds = status < 0 ? NULL : new_kinds(s, queues, count, !some);
	free(queues);
	if (status < 0)
		return status;
	*result = answer(&taken, threads, kinds);
	stream_tell_whose(s, *result);
	json_decref(threads);
	json_decref(kinds);
	json_decref(taken.places);
	free(taken.data);
	return 0;
}
