/* SPDX-License-Identifier: MIT */
/*
 * sampler.c - when values are asked for, and what is kept of them.
 *
 * Owns the timer of a session and its records. Never has more than one question
 * out, and never asks a mutator that is at work: what it missed is spread over
 * the time since the last sample.
 */
#include "daemon/server/sampler.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/timeline.h"

enum {
	MS = 1000 * 1000,
	SHARE = 100,	/* of the time at most: 1 part */
	QUIET_MAX = 25, /* samples without a change after the target's end: then no more */
};

struct record {
	unsigned id;
	bool ended;    /* removed, or lost with its mutator */
	json_t *about; /* id, metric, focus, unit, style, ... */
	struct timeline line;
};

struct sampler {
	struct session *session; /* NULL once that is closed */
	uv_timer_t timer;
	unsigned references; /* of the session, the timer, a question */
	struct record *records;
	size_t count, room;
	uint64_t armed_ns, last_ns; /* uv_hrtime(): armed, last sample */
	uint64_t asked_ns, took_ns, pause_ns;
	uint64_t
		least_ns; /* of the last two that it took: one that was held up once is not always slow */
	uint64_t total_ns; /* all that samples took */
	bool asking;	   /* a question is out */
	bool anew;	   /* an answer was lost: all of it again */
	bool off;	   /* nothing is inserted, or all has ended */
	unsigned quiet;	   /* samples without a change since the target ended */
	size_t unkept;	   /* instances for which there was no room */
	struct waiting {
		struct request *request;
		json_t *params;
		struct waiting *next;
	} * waiting; /* for the sample that is out */
};

static void ask(struct sampler *s);

static void sampler_release(struct sampler *s)
{
	if (--s->references)
		return;
	for (size_t i = 0; i < s->count; i++) {
		json_decref(s->records[i].about);
		timeline_release(&s->records[i].line);
	}
	free(s->records);
	free(s);
}

static void timer_closed(uv_handle_t *handle)
{
	sampler_release(handle->data);
}

/* ---------------------------------------------------------------- records */

static struct record *find(const struct sampler *s, unsigned id)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->records[i].id == id)
			return &s->records[i];
	return NULL;
}

static void forget(struct sampler *s, size_t index)
{
	json_decref(s->records[index].about);
	timeline_release(&s->records[index].line);
	memmove(&s->records[index], &s->records[index + 1],
		(--s->count - index) * sizeof(*s->records));
}

/* What ended first gives way. */
static bool make_room(struct sampler *s)
{
	struct record *grown;
	size_t room;

	if (s->count == SAMPLER_RECORDS) {
		for (size_t i = 0; i < s->count; i++)
			if (s->records[i].ended) {
				forget(s, i);
				return true;
			}
		return false;
	}
	if (s->count < s->room)
		return true;
	room = s->room ? s->room * 2 : 16;
	grown = realloc(s->records, room * sizeof(*grown));
	if (!grown)
		return false;
	s->records = grown;
	s->room = room;
	return true;
}

/* An instance that was not heard of before. */
static void take_new(struct sampler *s, json_t *about, int64_t value)
{
	const char *style = json_string_value(json_object_get(about, "style"));
	const bool level = style && !strcmp(style, "SampledFunction");
	const unsigned id = (unsigned)json_integer_value(json_object_get(about, "id"));
	const uint64_t start = s->last_ns > s->armed_ns ? s->last_ns : s->armed_ns;
	struct record *r = find(s, id);

	if (r && !r->ended)
		return;
	if (r)
		forget(s, (size_t)(r - s->records));
	if (!make_room(s)) {
		s->unkept++;
		return;
	}
	r = &s->records[s->count++];
	*r = (struct record){.id = id, .about = json_incref(about)};
	/* A total begins at nothing: what it is now came since it was inserted. */
	timeline_init(&r->line, level ? TIMELINE_LEVEL : TIMELINE_TOTAL, start, level ? value : 0);
}

static int by_id(const void *a, const void *b)
{
	const json_int_t *x = a, *y = b;

	return (x[0] > y[0]) - (x[0] < y[0]);
}

/* The rows of a sample, [id, value], sorted; NULL: none or no memory. */
static json_int_t (*read_rows(json_t *answer, size_t *count))[2]
{
	json_t *list = json_object_get(answer, "rows"), *row;
	json_int_t(*rows)[2] = calloc(json_array_size(list) + 1, sizeof(*rows));
	size_t index;

	*count = 0;
	json_array_foreach(list, index, row)
	{
		if (!rows)
			break;
		rows[*count][0] = json_integer_value(json_array_get(row, 0));
		rows[*count][1] = json_integer_value(json_array_get(row, 1));
		++*count;
	}
	if (rows)
		qsort(rows, *count, sizeof(*rows), by_id);
	return rows;
}

/* Every record goes on to now: those without a row are as they were. */
static void take_rows(struct sampler *s, json_t *answer, uint64_t now)
{
	json_t *fresh = json_object_get(answer, "new"), *gone = json_object_get(answer, "gone");
	json_int_t(*rows)[2], *row, key[2] = {0, 0};
	json_t *item;
	size_t count, index;

	rows = read_rows(answer, &count);
	json_array_foreach(fresh, index, item)
	{
		key[0] = json_integer_value(json_object_get(item, "id"));
		row = rows ? bsearch(key, rows, count, sizeof(*rows), by_id) : NULL;
		take_new(s, item, row ? row[1] : 0);
	}
	for (size_t i = 0; i < s->count; i++) {
		struct record *r = &s->records[i];

		if (r->ended)
			continue;
		key[0] = r->id;
		row = rows ? bsearch(key, rows, count, sizeof(*rows), by_id) : NULL;
		/* After the program's end time goes on only where its children do. */
		if (row || (s->session->state != SESSION_EXITED && !s->session->over))
			timeline_add(&r->line, now, row ? row[1] : r->line.value);
	}
	json_array_foreach(gone, index, item)
	{
		struct record *r = find(s, (unsigned)json_integer_value(item));

		if (r)
			r->ended = true;
	}
	s->quiet = count ? 0 : s->quiet + 1;
	free(rows);
}

/* ------------------------------------------------------------------ answers */

/* ns of CLOCK_REALTIME at a moment of uv_hrtime(). */
static json_int_t real_time(uint64_t moment)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (json_int_t)now.tv_sec * 1000000000 + now.tv_nsec -
	       (json_int_t)(uv_hrtime() - moment);
}

/* Bins from the one in which `since` (CLOCK_REALTIME, ns) lies. */
static json_t *record_row(const struct record *r, json_int_t since)
{
	const struct timeline *h = &r->line;
	const json_int_t start = real_time(h->start_ns);
	json_t *row = json_copy(r->about), *bins = json_array();
	size_t first = 0;

	if (since > start)
		first = (size_t)((uint64_t)(since - start) / h->width_ns);
	if (first > h->count)
		first = h->count;
	for (size_t i = first; i < h->count; i++)
		json_array_append_new(bins,
				      h->style == TIMELINE_TOTAL
					      ? json_integer((json_int_t)timeline_amount(h, i))
					      : json_real(timeline_amount(h, i)));
	json_object_set_new(row, "value", json_integer((json_int_t)h->value));
	json_object_set_new(row, "start", json_integer(start + (json_int_t)(first * h->width_ns)));
	json_object_set_new(row, "width_ns", json_integer((json_int_t)h->width_ns));
	json_object_set_new(row, "last_ns",
			    json_integer(h->count ? (json_int_t)timeline_covered(h, h->count - 1)
						  : 0));
	json_object_set_new(row, "ended", json_boolean(r->ended));
	json_object_set_new(row, "bins", bins);
	return row;
}

static void answer_one(struct sampler *s, struct request *request, json_t *params)
{
	json_t *ids = json_object_get(params, "ids"), *rows = json_array(), *id;
	const json_int_t since = json_integer_value(json_object_get(params, "since"));
	struct dinst_error e = {0};
	size_t index;

	for (size_t i = 0; s && !json_array_size(ids) && i < s->count; i++)
		json_array_append_new(rows, record_row(&s->records[i], since));
	json_array_foreach(ids, index, id)
	{
		const struct record *r = s ? find(s, (unsigned)json_integer_value(id)) : NULL;

		if (r)
			json_array_append_new(rows, record_row(r, since));
		else if (s && s->unkept)
			dinst_fail(&e, DINST_NO_ID,
				   "there is no history of id %lld: no more than %d are kept",
				   (long long)json_integer_value(id), SAMPLER_RECORDS);
		else
			dinst_fail(&e, DINST_NO_ID, "there is no history of id %lld",
				   (long long)json_integer_value(id));
	}
	if (e.code) {
		json_decref(rows);
		request_error_from(request, &e);
		return;
	}
	request_result(request, json_pack("{s:o}", "rows", rows));
}

static void answer_waiting(struct sampler *s)
{
	struct waiting *w;

	while ((w = s->waiting)) {
		s->waiting = w->next;
		answer_one(s, w->request, w->params);
		json_decref(w->params);
		free(w);
	}
}

/* ---------------------------------------------------------------- sampling */

static void on_timer(uv_timer_t *timer)
{
	struct sampler *s = timer->data;

	ask(s);
}

static void wait_for_next(struct sampler *s)
{
	uint64_t pause = UINT64_MAX;

	if (s->off || !s->session)
		return;
	for (size_t i = 0; i < s->count; i++)
		if (!s->records[i].ended && s->records[i].line.width_ns < pause)
			pause = s->records[i].line.width_ns;
	if (pause == UINT64_MAX)
		pause = TIMELINE_WIDTH_NS;
	if (pause < s->least_ns * SHARE)
		pause = s->least_ns * SHARE;
	s->pause_ns = pause;
	uv_timer_start(&s->timer, on_timer, pause / MS, 0);
}

static void sampled(void *arg, const struct reply *reply)
{
	struct sampler *s = arg;
	struct dinst_error e = {0, ""};
	const uint64_t now = uv_hrtime();
	json_t *answer = NULL;

	s->asking = false;
	if (reply->result.text)
		answer = rpc_load(reply->result.text, reply->result.length, &e);
	s->anew = !json_is_object(answer);
	if (s->session && !s->anew) {
		s->least_ns = now - s->asked_ns < s->took_ns ? now - s->asked_ns : s->took_ns;
		s->took_ns = now - s->asked_ns;
		s->total_ns += s->took_ns;
		take_rows(s, answer, now);
		s->last_ns = now;
		s->off = json_integer_value(json_object_get(answer, "count")) == 0 ||
			 (s->session->state == SESSION_EXITED && s->quiet > QUIET_MAX);
	}
	json_decref(answer);
	answer_waiting(s);
	wait_for_next(s);
	sampler_release(s);
}

/* Asks, unless the mutator is at work; then later. */
static void ask(struct sampler *s)
{
	struct session *se = s->session;
	json_t *params;

	if (!se || s->asking)
		return;
	if (!se->mutator || mutator_busy(se->mutator) ||
	    (se->state != SESSION_LIVE && se->state != SESSION_EXITED)) {
		/* Another mutator knows of no instances: the next insert wakes us. */
		if (se->mutator)
			wait_for_next(s);
		return;
	}
	params = json_pack("{s:b}", "anew", s->anew);
	s->asking = true;
	s->asked_ns = uv_hrtime();
	s->references++;
	mutator_call(se->mutator, "sample", params, NULL, sampled, s);
	json_decref(params);
}

/* --------------------------------------------------------------- interface */

void sampler_arm(struct session *se)
{
	struct sampler *s = se->sampler;

	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return; /* values are there without histories */
		s->session = se;
		s->references = 2;
		s->timer.data = s;
		uv_timer_init(&se->server->loop, &s->timer);
		se->sampler = s;
	}
	s->armed_ns = uv_hrtime();
	s->off = false;
	s->quiet = 0;
	ask(s);
}

void sampler_lost(struct session *se)
{
	struct sampler *s = se->sampler;

	if (!s)
		return;
	for (size_t i = 0; i < s->count; i++)
		s->records[i].ended = true;
	s->off = true;
	s->anew = false;
	s->took_ns = s->least_ns = 0;
	uv_timer_stop(&s->timer);
}

void sampler_close(struct session *se)
{
	struct sampler *s = se->sampler;

	if (!s)
		return;
	se->sampler = NULL;
	s->session = NULL;
	answer_waiting(s);
	uv_close((uv_handle_t *)&s->timer, timer_closed);
	sampler_release(s);
}

void sampler_answer(struct session *se, struct request *r, json_t *params)
{
	struct sampler *s = se->sampler;
	struct waiting *w = NULL;

	if (s && !s->off && !s->asking)
		ask(s);
	if (s && s->asking)
		w = calloc(1, sizeof(*w));
	if (!w) {
		answer_one(s, r, params);
		return;
	}
	w->request = r;
	w->params = params ? json_incref(params) : json_object();
	w->next = s->waiting;
	s->waiting = w;
}

json_t *sampler_rows(const struct session *se, json_t *ids, json_int_t since)
{
	json_t *rows = json_array(), *id;
	size_t index;

	json_array_foreach(ids, index, id)
	{
		const struct record *r =
			se->sampler ? find(se->sampler, (unsigned)json_integer_value(id)) : NULL;

		if (r)
			json_array_append_new(rows, record_row(r, since));
	}
	return rows;
}

uint64_t sampler_asked_ns(const struct session *se)
{
	return se->sampler ? se->sampler->total_ns : 0;
}

void sampler_tell(const struct session *se, json_t *row)
{
	const struct sampler *s = se->sampler;

	if (!s || s->off)
		return;
	json_object_set_new(row, "sampled_ms", json_integer((json_int_t)(s->pause_ns / MS)));
	json_object_set_new(row, "sample_us", json_integer((json_int_t)(s->took_ns + 999) / 1000));
}
