/* SPDX-License-Identifier: MIT */
/*
 * event.c - the log of event.h: kinds and threads by number, and records cut into events.
 * What comes in is not trusted: a record is looked at only where it is whole.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/report/event.h"

enum {
	RECORD_HEADER = 24,	 /* id, size, time, thread, flags */
	FIELD_END_MAX = 1 << 20, /* no field ends behind this */
	FIELDS_MAX = 256,
	THREADS_MAX = 1 << 18, /* those that come later have no name */
};

void event_log_init(struct event_log *log)
{
	memset(log, 0, sizeof(*log));
}

static void kind_free(struct event_kind *kind)
{
	if (!kind)
		return;
	for (size_t i = 0; i < kind->field_count; i++) {
		free(kind->fields[i].text);
		free(kind->fields[i].name);
		value_type_free(kind->fields[i].type);
	}
	free(kind->fields);
	free(kind->function);
	free(kind->module);
	free(kind);
}

void event_log_release(struct event_log *log)
{
	for (size_t i = 0; i < log->kind_count; i++)
		kind_free(log->kinds[i]);
	for (size_t i = 0; i < log->thread_count; i++) {
		free(log->threads[i]->name);
		free(log->threads[i]);
	}
	event_places_release(log);
	free(log->kinds);
	free(log->threads);
	free(log->buffer);
	event_log_init(log);
}

/* ------------------------------------------------------------------- kinds */

/* The place of `id` among kinds: where it is, or where it would be. */
static size_t kind_place(const struct event_log *log, uint32_t id)
{
	size_t low = 0, high = log->kind_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (log->kinds[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct event_kind *event_log_kind(const struct event_log *log, uint32_t id)
{
	size_t at = kind_place(log, id);

	return at < log->kind_count && log->kinds[at]->id == id ? log->kinds[at] : NULL;
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* The index of a word in a list that ends with NULL, `other` where it is not in it. */
static int word_index(const char *word, const char *const *list, int other)
{
	for (int i = 0; list[i]; i++) {
		if (!strcmp(word, list[i]))
			return i;
	}
	return other;
}

static bool number_of(const json_t *object, const char *key, uint64_t max, uint32_t *value)
{
	json_t *number = json_object_get(object, key);

	if (!json_is_integer(number) || json_integer_value(number) < 0 ||
	    (uint64_t)json_integer_value(number) > max)
		return false;
	*value = (uint32_t)json_integer_value(number);
	return true;
}

static bool field_read(const json_t *from, struct event_field *f)
{
	static const char *const forms[] = {"value", "string", "bytes", "stack", NULL};
	static const char *const roles[] = {"field",  "argument",  "result", "pointee",
					    "member", "elapsed",   "caller", "sp",
					    "depth",  "backtrace", NULL};
	const char *name = json_string_value(json_object_get(from, "name"));
	int form = word_index(text_of(from, "form"), forms, -1);

	if (form < 0 || !number_of(from, "offset", FIELD_END_MAX, &f->offset) ||
	    !number_of(from, "size", FIELD_END_MAX, &f->size) || f->offset < RECORD_HEADER)
		return false;
	number_of(from, "at", FIELD_END_MAX, &f->at);
	f->form = form;
	f->role = word_index(text_of(from, "role"), roles, EVENT_FIELD);
	f->text = strdup(text_of(from, "text"));
	f->name = strdup(name ? name : text_of(from, "text"));
	f->type = value_type_read(json_object_get(from, "type"));
	return f->text && f->name;
}

static struct event_kind *kind_read(const json_t *from)
{
	static const char *const whats[] = {"other", "entry", "return", "call", NULL};
	const json_t *fields = json_object_get(from, "fields"), *address;
	size_t count = json_array_size(fields);
	struct event_kind *kind = calloc(1, sizeof(*kind));

	if (!kind || count > FIELDS_MAX || !number_of(from, "id", UINT32_MAX, &kind->id) ||
	    kind->id == 0)
		goto wrong;
	address = json_object_get(from, "address");
	if (json_is_integer(address))
		kind->address = (uint64_t)json_integer_value(address);
	else
		kind->address = strtoull(text_of(from, "address"), NULL, 16);
	kind->what = word_index(text_of(from, "kind"), whats, EVENT_OTHER);
	kind->function = strdup(text_of(from, "function"));
	kind->module = strdup(text_of(from, "module"));
	kind->fields = calloc(count + 1, sizeof(*kind->fields));
	if (!kind->function || !kind->module || !kind->fields)
		goto wrong;
	for (size_t i = 0; i < count; i++) {
		kind->field_count = i + 1;
		if (!field_read(json_array_get(fields, i), &kind->fields[i]))
			goto wrong;
	}
	return kind;
wrong:
	kind_free(kind);
	return NULL;
}

static int kind_add(struct event_log *log, struct event_kind *kind, struct dinst_error *e)
{
	size_t at = kind_place(log, kind->id);
	struct event_kind **grown;

	if (at < log->kind_count && log->kinds[at]->id == kind->id) {
		kind_free(kind);
		return 0;
	}
	grown = realloc(log->kinds, (log->kind_count + 1) * sizeof(*grown));
	if (!grown) {
		kind_free(kind);
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for kinds of events");
	}
	log->kinds = grown;
	memmove(&grown[at + 1], &grown[at], (log->kind_count - at) * sizeof(*grown));
	grown[at] = kind;
	log->kind_count++;
	return 0;
}

int event_log_kinds(struct event_log *log, const json_t *rows, struct dinst_error *e)
{
	int status = 0, status_now;
	size_t i, j;
	json_t *row, *event;

	json_array_foreach((json_t *)rows, i, row)
	{
		json_array_foreach(json_object_get(row, "events"), j, event)
		{
			struct event_kind *kind = kind_read(event);

			status_now =
				kind ? kind_add(log, kind, e)
				     : dinst_fail(e, DINST_PROTOCOL,
						  "an event's description is none: function '%s'",
						  text_of(event, "function"));
			if (status_now)
				status = status_now;
		}
	}
	return status;
}

static json_int_t range_end(const json_t *ranges, size_t n, size_t end)
{
	return json_integer_value(json_array_get(json_array_get(ranges, n), end));
}

void event_log_keep(struct event_log *log, const json_t *ranges)
{
	size_t kept = 0, r = 0;

	for (size_t i = 0; i < log->kind_count; i++) {
		const json_int_t id = log->kinds[i]->id;

		while (r < json_array_size(ranges) && range_end(ranges, r, 1) < id)
			r++;
		if (r < json_array_size(ranges) && range_end(ranges, r, 0) <= id)
			log->kinds[kept++] = log->kinds[i];
		else
			kind_free(log->kinds[i]);
	}
	log->kind_count = kept;
}

/* ----------------------------------------------------------------- threads */

static size_t thread_place(const struct event_log *log, uint32_t tid)
{
	size_t low = 0, high = log->thread_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (log->threads[middle]->tid < tid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct event_thread *event_log_thread(const struct event_log *log, uint32_t tid)
{
	size_t at = thread_place(log, tid);

	return at < log->thread_count && log->threads[at]->tid == tid ? log->threads[at] : NULL;
}

/* A thread without a name at its place; NULL without memory. */
static struct event_thread *thread_insert(struct event_log *log, size_t at, uint32_t tid)
{
	struct event_thread *thread, **grown = log->threads;

	/* Room grows by doubling; the count says when that is due. */
	if (!(log->thread_count & (log->thread_count - 1))) {
		grown = realloc(grown,
				(log->thread_count ? 2 * log->thread_count : 1) * sizeof(*grown));
		if (!grown)
			return NULL;
		log->threads = grown;
	}
	thread = calloc(1, sizeof(*thread));
	if (!thread)
		return NULL;
	thread->tid = tid;
	memmove(&grown[at + 1], &grown[at],
		(log->thread_count - at) * sizeof(struct event_thread *));
	grown[at] = thread;
	log->thread_count++;
	return thread;
}

int event_log_name(struct event_log *log, uint32_t tid, uint32_t pid, const char *name,
		   struct dinst_error *e)
{
	size_t at = thread_place(log, tid);
	struct event_thread *thread = NULL;
	char *copy;

	if (at < log->thread_count && log->threads[at]->tid == tid)
		thread = log->threads[at];
	else if (log->thread_count >= THREADS_MAX)
		return 0;
	copy = strdup(name);
	if (copy && !thread)
		thread = thread_insert(log, at, tid);
	if (!copy || !thread) {
		free(copy);
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for names of threads");
	}
	free(thread->name);
	thread->name = copy;
	thread->pid = pid;
	return 0;
}

static int threads_read(struct event_log *log, const json_t *threads, struct dinst_error *e)
{
	int status = 0;
	size_t i;
	json_t *row;

	json_array_foreach((json_t *)threads, i, row)
	{
		uint32_t tid, pid = 0;

		if (!number_of(row, "tid", UINT32_MAX, &tid))
			continue;
		number_of(row, "pid", UINT32_MAX, &pid);
		status = event_log_name(log, tid, pid, text_of(row, "name"), e);
		if (status)
			break;
	}
	return status;
}

/* ------------------------------------------------------------------ events */

static uint32_t word32(const uint8_t *at)
{
	uint32_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static uint64_t word64(const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

int event_log_records(struct event_log *log, const uint8_t *data, size_t size, event_each *each,
		      void *arg)
{
	const struct event_kind *kind = NULL;
	const struct event_thread *thread = NULL;
	int status = 0;

	while (size && !status) {
		uint32_t length = size < RECORD_HEADER ? 0 : word32(data + 4);
		uint32_t id = length ? word32(data) : 0;
		struct event e;

		if (length < RECORD_HEADER || length % 8 || length > size) {
			log->damaged++;
			break;
		}
		e = (struct event){.ns = word64(data + 8),
				   .tid = word32(data + 16),
				   .data = data,
				   .size = length};
		if (!kind || kind->id != id)
			kind = event_log_kind(log, id);
		if (!thread || thread->tid != e.tid)
			thread = event_log_thread(log, e.tid);
		e.kind = kind;
		e.thread = thread;
		e.pid = thread ? thread->pid : 0;
		data += length;
		size -= length;
		if (!kind) {
			log->damaged += id != 0; /* 0 fills a ring's end */
			continue;
		}
		if (!log->first_ns)
			log->first_ns = e.ns;
		log->events++;
		status = each(arg, &e);
	}
	return status;
}

static uint64_t count_of(const json_t *object, const char *key, uint64_t other)
{
	json_t *number = json_object_get(object, key);

	return json_is_integer(number) ? (uint64_t)json_integer_value(number) : other;
}

/* Kinds that came with events: of modules that were loaded since. */
static int late_kinds(struct event_log *log, json_t *kinds, struct dinst_error *e)
{
	json_t *rows;
	int status;

	if (!json_array_size(kinds))
		return 0;
	rows = json_pack("[{s:O}]", "events", kinds);
	status = rows ? event_log_kinds(log, rows, e)
		      : dinst_fail(e, DINST_NO_MEMORY, "no memory for kinds of events");
	json_decref(rows);
	return status;
}

int event_log_add(struct event_log *log, const json_t *answer, event_each *each, void *arg,
		  struct dinst_error *e)
{
	json_t *data = json_object_get(answer, "data");
	size_t length = json_string_length(data), size;
	uint64_t dropped;
	int status;

	dropped = count_of(answer, "dropped", log->dropped_before + log->dropped);
	log->dropped = dropped > log->dropped_before ? dropped - log->dropped_before : 0;
	log->now_ns = count_of(answer, "now_ns", log->now_ns);
	log->epoch_ns = (int64_t)count_of(answer, "epoch_ns", (uint64_t)log->epoch_ns);
	log->more = json_is_true(json_object_get(answer, "more"));
	status = threads_read(log, json_object_get(answer, "threads"), e);
	if (!status)
		status = late_kinds(log, json_object_get(answer, "kinds"), e);
	if (!status)
		status = event_log_places(log, json_object_get(answer, "places"), e);
	if (status || !length)
		return status;
	if (length / 4 * 3 > log->buffer_size) {
		free(log->buffer);
		log->buffer_size = 0;
		log->buffer = malloc(length / 4 * 3);
		if (!log->buffer)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu bytes of events",
					  length / 4 * 3);
		log->buffer_size = length / 4 * 3;
	}
	size = base64_decode(json_string_value(data), length, log->buffer, log->buffer_size);
	if (size == SIZE_MAX)
		return dinst_fail(e, DINST_PROTOCOL, "events came damaged");
	return event_log_records(log, log->buffer, size, each, arg);
}

/* ------------------------------------------------------------------ fields */

const struct event_field *event_field(const struct event_kind *kind, enum event_role role)
{
	for (size_t i = 0; i < kind->field_count; i++) {
		if (kind->fields[i].role == role)
			return &kind->fields[i];
	}
	return NULL;
}

bool event_value(const struct event *e, const struct event_field *f, uint64_t *value)
{
	if (f->form != EVENT_VALUE || f->offset > e->size || e->size - f->offset < 8)
		return false;
	*value = word64(e->data + f->offset);
	return true;
}

bool event_bytes(const struct event *e, const struct event_field *f, const uint8_t **bytes,
		 size_t *length)
{
	uint64_t said;
	size_t room;

	if (f->form == EVENT_VALUE || f->size < 8 || f->offset > e->size ||
	    e->size - f->offset < f->size)
		return false;
	said = word64(e->data + f->offset);
	room = f->size - 8;
	*bytes = e->data + f->offset + 8;
	*length = said < room ? said : room;
	return true;
}
