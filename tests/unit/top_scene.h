/* SPDX-License-Identifier: MIT */
/*
 * top_scene.h - a target for dinst top whose answers are made here: one that is busy
 * for a moment, refuses, has names of any length, calls in a way that is known. Times are the
 * machine's own, and nothing is waited for.
 */
#ifndef DINST_TESTS_UNIT_TOP_SCENE_H
#define DINST_TESTS_UNIT_TOP_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "daemon/client/top.h"
#include "daemon/common/rpc.h"

enum { FEW = 60, HITS = 1000, PREDICTED_NS = 10 };

/* What the target does, and what it was asked. */
static struct {
	unsigned busy_from, busy_to; /* inserts that cannot be done now: [from, to) */
	unsigned over_after;	     /* inserts; 0: never */
	const char *refused;	     /* this focus is */
	const char *occupied;	     /* a thread is in this one, and stays there */
	bool fails;		     /* so does whatever goes in */
	unsigned inserts, reads;
	size_t foci;	/* of the last insert */
	size_t longest; /* request, bytes */
	json_int_t next_id;
	json_t *elements; /* of each row that is read, where there are any */
} target;

static struct top *t;
static struct dinst_error e;

/* ---------------------------------------------------- what stands in for it */

bool __wrap_question_going(struct question *q);
bool __wrap_top_pause(struct top *top, uint64_t until_ns);
int __wrap_question_load(struct question *q, const char *name, const char *text,
			 struct dinst_error *why);
int __wrap_question_remove(struct question *q, json_t *ids, struct dinst_error *why);
int __wrap_question_call(struct question *q, const char *method, json_t *params, json_t **result,
			 struct dinst_error *why);

bool __wrap_question_going(struct question *q)
{
	(void)q;
	return !target.over_after || target.inserts < target.over_after;
}

bool __wrap_top_pause(struct top *top, uint64_t until_ns)
{
	const struct timespec a_while = {0, 2000000};

	(void)until_ns;
	nanosleep(&a_while, NULL);
	return !top->quit;
}

int __wrap_question_load(struct question *q, const char *name, const char *text,
			 struct dinst_error *why)
{
	(void)q, (void)name, (void)text, (void)why;
	return 0;
}

int __wrap_question_remove(struct question *q, json_t *ids, struct dinst_error *why)
{
	(void)q, (void)ids, (void)why;
	return 0;
}

static bool is(const json_t *focus, const char *other)
{
	return other && !strcmp(json_string_value(focus), other);
}

static int insert(json_t *params, json_t **result, struct dinst_error *why)
{
	json_t *foci = json_object_get(params, "focus"), *focus, *rows;
	const unsigned number = target.inserts++;
	size_t index;
	int code;

	target.foci = json_array_size(foci);
	if (number >= target.busy_from && number < target.busy_to)
		return dinst_fail(why, DINST_BUSY, "a thread does not stop; try again later");
	if (target.fails)
		return dinst_fail(why, DINST_FAILED, "it cannot be done");
	rows = json_array();
	json_array_foreach(foci, index, focus)
	{
		code = is(focus, target.occupied)  ? DINST_BUSY
		       : is(focus, target.refused) ? DINST_REFUSED
						   : 0;
		if (code) {
			json_decref(rows);
			return dinst_fail(why, code, "this one cannot be had");
		}
		json_array_append_new(rows, json_pack("{s:I,s:O,s:i,s:i}", "id", ++target.next_id,
						      "focus", focus, "points", 1, "predicted_ns",
						      PREDICTED_NS));
	}
	*result = json_pack("{s:o}", "rows", rows);
	return 0;
}

/* At every reading all were called HITS times more. */
static int read_all(json_t *params, json_t **result)
{
	json_t *rows = json_array(), *id, *row;
	const double calls = ++target.reads * (double)HITS;
	size_t index;

	json_array_foreach(json_object_get(params, "ids"), index, id)
	{
		row = json_pack("{s:O,s:f,s:f,s:f,s:i}", "id", id, "value", calls, "hits", calls,
				"sum", calls, "predicted_ns", PREDICTED_NS);
		if (target.elements)
			json_object_set_new(row, "elements", json_deep_copy(target.elements));
		json_array_append_new(rows, row);
	}
	*result = json_pack("{s:o}", "rows", rows);
	return 0;
}

int __wrap_question_call(struct question *q, const char *method, json_t *params, json_t **result,
			 struct dinst_error *why)
{
	char *text = json_dumps(params, JSON_COMPACT | JSON_ENCODE_ANY);
	const size_t length = text ? strlen(text) : 0;

	(void)q;
	free(text);
	*result = NULL;
	if (length > target.longest)
		target.longest = length;
	/* with what the client puts around it */
	if (length + 200 > RPC_CLIENT_LINE)
		return dinst_fail(why, DINST_USAGE, "the request is longer than 1 MiB");
	return !strcmp(method, "insert") ? insert(params, result, why) : read_all(params, result);
}

/* ---------------------------------------------------------------- the scene */

/* `length` bytes of a name are `filler`. */
static void add_functions(struct view *v, size_t count, size_t length, char filler)
{
	char *name = malloc(length + 20);

	v->functions = calloc(count, sizeof(*v->functions));
	v->count = count;
	for (size_t n = 0; n < count; n++) {
		struct function *f = &v->functions[n];

		memset(name, filler, length);
		snprintf(name + length, 20, "f%06zu", n);
		*f = (struct function){.rate = -1, .cpu = -1, .wall = -1, .p50 = -1, .p99 = -1};
		f->timing_ns[TIMING_LATENCY] = f->timing_ns[TIMING_OWN] = -1;
		f->name = strdup(name);
		assert_true(asprintf(&f->focus, "/Code/x/%s", name) > 0);
	}
	free(name);
	functions_sort(v);
}

static inline struct view *begin(size_t count, size_t length, char filler)
{
	struct view *v = view_new(VIEW_FUNCTIONS, NULL);

	memset(&target, 0, sizeof(target));
	e = (struct dinst_error){0, ""};
	t = calloc(1, sizeof(*t));
	t->q.c = calloc(1, sizeof(*t->q.c));
	t->q.c->quiet = true;
	t->interval = t->scale = 1;
	t->limit = 10000;
	t->cost = t->stops_us = -1;
	t->descending = true;
	t->rows = 20;
	snprintf(t->module, sizeof(t->module), "x");
	snprintf(v->calls, sizeof(v->calls), "calls");
	snprintf(v->latency, sizeof(v->latency), "latency");
	snprintf(v->own, sizeof(v->own), "wall");
	add_functions(v, count, length, filler);
	t->views[0] = v;
	t->depth = 1;
	return v;
}

static inline void end(void)
{
	while (t->depth)
		view_free(t->views[--t->depth]);
	json_decref(target.elements);
	free(t->q.c);
	free(t);
}

static inline size_t lost(const struct view *v)
{
	size_t count = 0;

	for (size_t n = 0; n < v->count; n++)
		count += v->functions[n].uncountable || v->functions[n].refused;
	return count;
}

static inline void survey(struct view *v)
{
	assert_int_equal(functions_survey(t, v, &e), 0);
}

static inline void count(struct view *v)
{
	assert_int_equal(functions_count(t, v, &e), 0);
}

#endif
