/* SPDX-License-Identifier: MIT */
/*
 * top_probe.c - sets of instances of one metric at many functions.
 *
 * Owns what is remembered of each instance between two readings, and the sum of what they
 * cost the target.
 */
#include "daemon/client/top.h"
#include "daemon/common/rpc.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t top_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double number(json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

/* ---------------------------------------------------------------- inserting */

static const uint64_t LATE_NS =
	10000000000; /* a function that a thread does not leave is not timed for so long */

static int by_focus(const void *a, const void *b)
{
	return strcmp((*(struct function *const *)a)->focus, (*(struct function *const *)b)->focus);
}

static struct function *find(struct function **sorted, size_t count, const char *focus)
{
	struct function key = {.focus = (char *)focus}, *wanted = &key;
	struct function **found =
		focus ? bsearch(&wanted, sorted, count, sizeof(*sorted), by_focus) : NULL;

	return found ? *found : NULL;
}

static void refuse(const struct probe_set *set, struct function *f)
{
	if (set->times) {
		f->refused = true;
	} else {
		f->uncountable = true;
		/* what was read before, by samples, would stay as it was then */
		f->rate = -1;
	}
}

/* Instances at nothing are of no use: they are removed again. */
static int drop(struct top *t, json_t *ids, struct dinst_error *e)
{
	int err = question_remove(&t->q, ids, e);

	json_decref(ids);
	return err;
}

bool probe_has(const struct probe_set *set, const struct function *f)
{
	for (size_t n = 0; n < set->count; n++)
		if (set->list[n].function == f)
			return true;
	return false;
}

static bool has_points(json_t *row)
{
	return json_integer_value(json_object_get(row, "points")) != 0;
}

static int take_rows(struct top *t, struct probe_set *set, json_t *rows,
		     struct function **functions, size_t count, struct dinst_error *e)
{
	const size_t all = set->count + json_array_size(rows);
	struct probe *list = realloc(set->list, (all ? all : 1) * sizeof(*list));
	json_t *useless = json_array(), *row;
	size_t index;

	if (!list) {
		json_decref(useless);
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu functions", all);
	}
	set->list = list;
	qsort(functions, count, sizeof(*functions), by_focus);
	json_array_foreach(rows, index, row)
	{
		struct function *f =
			find(functions, count, json_string_value(json_object_get(row, "focus")));

		if (!f || !has_points(row)) {
			json_array_append(useless, json_object_get(row, "id"));
			continue;
		}
		list[set->count++] = (struct probe){
			.id = json_integer_value(json_object_get(row, "id")),
			.function = f,
			.hit_ns = number(row, "predicted_ns") + TOP_WAY_NS + set->clock_ns};
	}
	/* of several of one name it takes one */
	json_array_foreach(rows, index, row)
	{
		struct function *f =
			find(functions, count, json_string_value(json_object_get(row, "focus")));

		if (f && !has_points(row) && !probe_has(set, f))
			refuse(set, f);
	}
	return drop(t, useless, e);
}

static int insert_some(struct top *t, struct probe_set *set, const char *metric,
		       struct function **functions, size_t count, bool hits, struct dinst_error *e)
{
	json_t *foci = json_array(), *params, *answer = NULL;
	int err;

	for (size_t n = 0; n < count; n++)
		json_array_append_new(foci, rpc_text(functions[n]->focus));
	params = json_pack("{s:s,s:o,s:b,s:b}", "metric", metric, "focus", foci, "each", 1, "cost",
			   hits);
	err = question_call(&t->q, "insert", params, &answer, e);
	if (!err)
		err = take_rows(t, set, json_object_get(answer, "rows"), functions, count, e);
	json_decref(params);
	json_decref(answer);
	return err;
}

/* The request's own fault, or one function's; anything else but DINST_BUSY ends the question. */
static bool is_refusal(int err)
{
	return err == DINST_NO_FUNCTION || err == DINST_REFUSED || err == DINST_FAILED ||
	       err == DINST_UNSUPPORTED;
}

/* What a focus takes in a line of JSON at most, in bytes. */
static size_t length_in_json(const char *focus)
{
	size_t length = strlen("\"\",");

	for (const unsigned char *at = (const unsigned char *)focus; *at; at++)
		length += *at < ' ' || *at > '~'      ? strlen("\\u0000")
			  : *at == '"' || *at == '\\' ? 2
						      : 1;
	return length;
}

static bool fit_one_request(struct function **functions, size_t count)
{
	size_t length = 0;

	for (size_t n = 0; n < count; n++)
		length += length_in_json(functions[n]->focus);
	return length <= RPC_CLIENT_LINE / 2;
}

/*
 * Mostly it is nobody's fault, and passes. But times wait for threads that are in the function, and one may
 * stay there for long: in every CYCLE insertions in a row the third one looks for that, until more requests in a row
 * than one function explains say that it is the target.
 */
static bool is_looked_for(const struct probe_set *set)
{
	enum { CYCLE = 16, THIRD = 2 };

	return set->times && set->busy % CYCLE == THIRD && set->row <= set->row_most;
}

static int insert_parts(struct top *t, struct probe_set *set, const char *metric,
			struct function **functions, size_t count, bool hits, struct dinst_error *e)
{
	const bool fit = count < 2 || fit_one_request(functions, count);
	struct dinst_error why = {0, ""};
	int err = 0;

	if (!count || set->row > set->row_most || !question_going(&t->q))
		return 0;
	if (fit)
		err = insert_some(t, set, metric, functions, count, hits, &why);
	set->row = err == DINST_BUSY ? set->row + 1 : 0;
	if (err == DINST_BUSY) {
		set->missing = true;
		top_say_busy(t, why.text);
		if (!is_looked_for(set))
			return 0;
		if (count == 1) {
			functions[0]->late_ns = top_now() + LATE_NS;
			return 0;
		}
	}
	/* a request is carried out as a whole or not at all: the one that is to blame is looked for */
	if (!fit || err == DINST_BUSY || (is_refusal(err) && count > 1)) {
		err = insert_parts(t, set, metric, functions, count / 2, hits, e);
		return err ? err
			   : insert_parts(t, set, metric, functions + count / 2, count - count / 2,
					  hits, e);
	}
	if (is_refusal(err)) {
		refuse(set, functions[0]);
		return 0;
	}
	return err ? dinst_fail_text(e, err, why.text) : 0;
}

int probe_insert(struct top *t, struct probe_set *set, const char *metric,
		 struct function **functions, size_t count, bool hits, struct dinst_error *e)
{
	const bool missing = set->missing;
	int err;

	set->missing = false;
	set->row = 0;
	/* in halves, down to one */
	set->row_most = 1;
	for (size_t n = count; n; n /= 2)
		set->row_most++;
	err = insert_parts(t, set, metric, functions, count, hits, e);
	if (count)
		set->busy = set->missing ? set->busy + 1 : 0;
	set->missing |= missing;
	return err;
}

/* ------------------------------------------------------------------ reading */

static void take_values(struct top *t, struct probe *p, json_t *row)
{
	const double hits =
		json_object_get(row, "hits") ? number(row, "hits") : number(row, "value");

	t->spent_ns += (hits - p->hits) * p->hit_ns;
	p->hits = hits;
	p->value = number(row, "value");
	p->sum = number(row, "sum");
	json_decref(p->buckets);
	p->buckets = json_incref(json_object_get(row, "buckets"));
}

static int read_rows(struct top *t, struct probe_set *set, json_t **rows, struct dinst_error *e)
{
	json_t *ids = json_array(), *params, *answer = NULL;
	int err;

	for (size_t n = 0; n < set->count; n++)
		json_array_append_new(ids, json_integer(set->list[n].id));
	params = json_pack("{s:o,s:b}", "ids", ids, "verbose", 1);
	err = question_call(&t->q, "read", params, &answer, e);
	json_decref(params);
	if (!err)
		*rows = json_incref(json_object_get(answer, "rows"));
	json_decref(answer);
	return err;
}

int probe_read(struct top *t, struct probe_set *set,
	       void (*each)(struct top *t, struct probe *p, json_t *row, double seconds),
	       struct dinst_error *e)
{
	const uint64_t before = top_now();
	json_t *rows = NULL;
	uint64_t now;
	double seconds;
	int err;

	if (!set->count)
		return 0;
	err = read_rows(t, set, &rows, e);
	if (err)
		return err;
	now = before + (top_now() - before) / 2;
	seconds = set->read_ns ? (double)(now - set->read_ns) / 1e9 : 0;
	t->reading_ns = now;
	for (size_t n = 0; n < set->count && n < json_array_size(rows); n++) {
		json_t *row = json_array_get(rows, n);

		/* as asked: one for each id, in their order */
		if (json_integer_value(json_object_get(row, "id")) != set->list[n].id)
			continue;
		if (each && seconds > 0)
			each(t, &set->list[n], row, seconds);
		take_values(t, &set->list[n], row);
	}
	set->read_ns = now;
	json_decref(rows);
	return 0;
}

/* ----------------------------------------------------------------- removing */

int probe_remove(struct top *t, struct probe_set *set, bool (*which)(const struct probe *p),
		 struct dinst_error *e)
{
	json_t *ids = json_array();
	size_t kept = 0;
	int err;

	for (size_t n = 0; n < set->count; n++) {
		if (which && !which(&set->list[n])) {
			set->list[kept++] = set->list[n];
			continue;
		}
		json_array_append_new(ids, json_integer(set->list[n].id));
		json_decref(set->list[n].buckets);
	}
	set->count = kept;
	if (!kept)
		set->read_ns = 0;
	err = question_remove(&t->q, ids, e);
	json_decref(ids);
	return err;
}

/* ---------------------------------------------------------------------- stops */

int probe_stops(struct top *t, struct dinst_error *e)
{
	json_t *answer = NULL;
	int err = question_call(&t->q, "status", NULL, &answer, e);
	double us;

	if (err)
		return err;
	us = number(answer, "stops_us");
	if (us > t->stops_us && t->stops_us >= 0)
		t->spent_ns += (us - t->stops_us) * 1000;
	t->stops_us = us;
	json_decref(answer);
	return 0;
}
