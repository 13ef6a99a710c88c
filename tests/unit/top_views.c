/* SPDX-License-Identifier: MIT */
/*
 * top_views.c - the views of dinst top on a target whose answers are made here: one that is busy
 * for a moment, refuses, has names of any length, calls in a way that is known. Times are the
 * machine's own, and nothing is waited for.
 */
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

static int insert(json_t *params, json_t **result, struct dinst_error *why)
{
	json_t *foci = json_object_get(params, "focus"), *focus, *rows;
	const unsigned number = target.inserts++;
	size_t index;

	target.foci = json_array_size(foci);
	if (number >= target.busy_from && number < target.busy_to)
		return dinst_fail(why, DINST_BUSY, "a thread does not stop; try again later");
	if (target.fails)
		return dinst_fail(why, DINST_FAILED, "it cannot be done");
	rows = json_array();
	json_array_foreach(foci, index, focus)
	{
		if (target.refused && !strcmp(json_string_value(focus), target.refused)) {
			json_decref(rows);
			return dinst_fail(why, DINST_REFUSED, "not there");
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

static struct view *begin(size_t count, size_t length, char filler)
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

static void end(void)
{
	while (t->depth)
		view_free(t->views[--t->depth]);
	json_decref(target.elements);
	free(t->q.c);
	free(t);
}

static size_t lost(const struct view *v)
{
	size_t count = 0;

	for (size_t n = 0; n < v->count; n++)
		count += v->functions[n].uncountable || v->functions[n].refused;
	return count;
}

static void survey(struct view *v)
{
	assert_int_equal(functions_survey(t, v, &e), 0);
}

static void count(struct view *v)
{
	assert_int_equal(functions_count(t, v, &e), 0);
}

/* ------------------------------------------------------------------ refusals */

/* The whole survey is made again, and nobody is to blame: nobody is looked for either. */
static void a_survey_while_it_is_busy(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	target.busy_to = 1;
	survey(v);
	assert_int_equal(target.inserts, 1);
	assert_false(v->surveyed);
	assert_int_equal(lost(v), 0);
	assert_non_null(strstr(t->message, "try again later"));
	survey(v);
	assert_true(v->surveyed);
	assert_int_equal(v->counts.count, FEW);
	assert_string_equal(t->message, "");
	end();
}

/* What was left out when it was to be counted on goes in with the next refresh. */
static void left_out_while_it_is_busy(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	target.busy_from = 1;
	target.busy_to = 3;
	survey(v);
	assert_true(v->surveyed);
	assert_int_equal(v->counts.count, 0);
	count(v);
	assert_int_equal(v->counts.count, 0);
	count(v);
	assert_int_equal(v->counts.count, FEW);
	assert_false(v->counts.missing);
	assert_int_equal(lost(v), 0);
	end();
}

/* Some are counted already, and others were to come beside them. */
static void some_are_in_already(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	survey(v);
	for (size_t n = 0; n < 10; n++)
		v->functions[n].counted = v->functions[n].seen = false;
	v->counts.count -= 10;
	for (size_t n = 0; n < v->counts.count; n++)
		v->counts.list[n].function = &v->functions[10 + n];
	for (size_t n = 0; n < 10; n++)
		v->functions[n].seen = true;
	target.busy_from = target.inserts;
	target.busy_to = target.inserts + 2;
	count(v);
	assert_int_equal(v->counts.count, FEW - 10);
	count(v);
	assert_int_equal(v->counts.count, FEW);
	end();
}

/* Those that are sampled are sampled again, and go on to be timed. */
static void samples_while_it_is_busy(void **state)
{
	struct view *v = begin(FEW, 0, 0);
	uint64_t rated;

	(void)state;
	t->limit = 0.1;
	survey(v);
	rated = v->functions[FEW - 1].rated_ns;
	assert_false(v->functions[FEW - 1].counted);
	target.busy_from = target.inserts;
	target.busy_to = target.inserts + 1;
	count(v);
	assert_int_equal(lost(v), 0);
	assert_true(v->functions[FEW - 1].rated_ns == rated);
	count(v);
	assert_true(v->functions[FEW - 1].rated_ns > rated);
	end();
}

static void times_while_it_is_busy(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	survey(v);
	for (size_t n = 0; n < FEW; n++)
		v->functions[n].rate = 10;
	lines_make(t, v);
	target.busy_from = target.inserts;
	target.busy_to = target.inserts + 1;
	assert_int_equal(times_take(t, v, 0, &e), 0);
	assert_int_equal(lost(v), 0);
	assert_int_equal(v->latencies.count, 0);
	assert_int_equal(times_take(t, v, 0, &e), 0);
	assert_int_equal(v->latencies.count, FEW);
	end();
}

/* One is refused: all others are counted; what it did before is not shown on and on; `z` tries it again. */
static void one_is_refused(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	t->limit = 0.1;
	survey(v);
	assert_true(v->functions[7].rate > 0);
	target.refused = v->functions[7].focus;
	count(v);
	assert_int_equal(lost(v), 1);
	assert_true(v->functions[7].uncountable);
	assert_true(v->functions[7].rate < 0);
	target.refused = NULL;
	survey(v);
	assert_int_equal(lost(v), 0);
	assert_true(v->functions[7].rate > 0);
	end();
}

/* A signal while it is looked for who is to blame: no more is inserted. */
static void over_while_it_is_looked_for(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	target.fails = true;
	target.over_after = 3;
	survey(v);
	assert_int_equal(target.inserts, 3);
	assert_int_equal(lost(v), 0);
	end();
}

/* Of as many functions with such names as go into several requests all are counted. */
static void names(size_t number, size_t length, char filler)
{
	struct view *v = begin(number, length, filler);

	survey(v);
	assert_int_equal(e.code, 0);
	assert_int_equal(v->counts.count, number);
	assert_true(target.longest > RPC_CLIENT_LINE / 8);
	assert_true(target.inserts > 2);
	end();
}

static void long_names(void **state)
{
	(void)state;
	names(3000, 1000, 'n');
	/* each of them takes two bytes, and six, in a request */
	names(1500, 600, '"');
	names(1500, 200, '\1');
}

/* ------------------------------------------------------------------- callers */

static struct view *drill(enum view_kind kind, struct function *f)
{
	assert_int_equal(drill_into(t, kind, f, &e), 0);
	return t->views[t->depth - 1];
}

static void drill_once(struct view *v)
{
	assert_int_equal(drill_refresh(t, v, 0, &e), 0);
}

/* Their refreshes count, so that what they cost is told; a thread's processor time costs clocks, too. */
static void threads_are_within_the_limit(void **state)
{
	struct view *v = begin(FEW, 0, 0);
	const double call_ns = PREDICTED_NS + TOP_WAY_NS;
	struct function *f = &v->functions[0];

	(void)state;
	survey(v);
	f->mean = 1000 * TOP_CLOCK_NS;
	f->rate = 10;
	v = drill(VIEW_THREADS, f);
	t->spent_ns = 0;
	drill_once(v);
	assert_int_equal(v->rounds, 1);
	assert_int_equal(json_array_size(v->ids), 2);
	/* what they said at first was since zero */
	assert_true(t->spent_ns == target.reads * (double)HITS * (2 * call_ns + TOP_CLOCK_NS));
	/* its calls alone would be within the limit, but not the clocks of them: a part of the time */
	t->limit = f->rate * 400 / 1e7;
	t->credit_ns = 1e12;
	v->rate = f->rate;
	drill_once(v);
	assert_null(v->ids);
	end();
}

/* While it is busy the view stays and says so, until it goes on; what is refused goes back with the reason. */
static void callers_that_cannot_go_in(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	v = drill(VIEW_CALLERS, &v->functions[0]);
	target.busy_to = 1;
	drill_once(v);
	assert_int_equal(t->depth, 2);
	assert_null(v->ids);
	assert_true(t->busy);
	assert_non_null(strstr(t->message, "try again later"));
	drill_once(v);
	assert_int_equal(json_array_size(v->ids), 1);
	assert_int_equal(view_leave(t, v, &e), 0);
	target.fails = true;
	drill_once(v);
	assert_int_equal(t->depth, 1);
	assert_string_equal(t->message, "it cannot be done");
	assert_false(t->busy);
	end();
}

static json_t *element(const char *key, const char *name, double calls)
{
	return json_pack("{s:s,s:s,s:f,s:f,s:f,s:f,s:[]}", "key", key, "name", name, "count", calls,
			 "sum", calls, "min", 1.0, "max", 2.0, "buckets");
}

/* How often it is called is seen there, whatever it was when the view was opened. */
static void becomes_hot_meanwhile(void **state)
{
	struct view *v = begin(FEW, 0, 0);
	struct function *f = &v->functions[0];

	(void)state;
	survey(v);
	f->rate = 1;
	v = drill(VIEW_CALLERS, f);
	target.elements = json_array();
	drill_once(v);
	json_array_append_new(target.elements, element("0x10", "x:f000001+0x4", 1e6));
	drill_once(v);
	assert_true(v->rate > 1e6);
	json_array_clear(target.elements);
	drill_once(v);
	assert_true(v->rate < 1e6);
	end();
}

static struct function *called(const char *name)
{
	struct view *v = t->views[t->depth - 1];

	json_array_clear(target.elements);
	json_array_append_new(target.elements, element("0x10", name, 5));
	drill_once(v);
	assert_int_equal(v->line_count, 1);
	return v->lines[0].function;
}

static void rename_function(struct function *f, const char *name)
{
	free(f->name);
	f->name = strdup(name);
}

/* Who calls is told by the name that people read: of C++ that is not the symbol. */
static void callers_by_readable_names(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	rename_function(&v->functions[3], "ns::f(int)");
	rename_function(&v->functions[4], "ns::operator+(ns::a, int)");
	rename_function(&v->functions[5], "y:ns::f(int)");
	target.elements = json_array();
	drill(VIEW_CALLERS, &v->functions[0]);
	assert_ptr_equal(called("x:f000001+0x4"), &v->functions[1]);
	assert_ptr_equal(called("x:ns::f(int)+0x4"), &v->functions[3]);
	assert_ptr_equal(called("x:ns::operator+(ns::a, int)+0x14"), &v->functions[4]);
	assert_ptr_equal(called("x:ns::operator+(ns::a, int)"), &v->functions[4]);
	assert_ptr_equal(called("y:ns::f(int)+0x4"), &v->functions[5]);
	assert_null(called("z:ns::f(int)+0x4"));
	end();
}

/* The filter that the head tells of is applied there, too, and can be taken back. */
static void callers_are_filtered(void **state)
{
	struct view *v = begin(FEW, 0, 0);

	(void)state;
	target.elements = json_array();
	json_array_append_new(target.elements, element("0x10", "x:f000001+0x4", 1));
	json_array_append_new(target.elements, element("0x20", "x:f000002+0x4", 2));
	json_array_append_new(target.elements, element("0x30", "x:f000003+0x4", 3));
	v = drill(VIEW_CALLERS, &v->functions[0]);
	drill_once(v);
	lines_make(t, v);
	assert_int_equal(v->line_count, 3);
	snprintf(t->filter, sizeof(t->filter), "000003");
	lines_make(t, v);
	assert_int_equal(v->line_count, 1);
	assert_string_equal(v->lines[0].name, "x:f000003+0x4");
	drill_once(v);
	lines_make(t, v);
	assert_int_equal(v->line_count, 1);
	t->filter[0] = '\0';
	lines_make(t, v);
	assert_int_equal(v->line_count, 3);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_survey_while_it_is_busy),
		cmocka_unit_test(left_out_while_it_is_busy),
		cmocka_unit_test(some_are_in_already),
		cmocka_unit_test(samples_while_it_is_busy),
		cmocka_unit_test(times_while_it_is_busy),
		cmocka_unit_test(one_is_refused),
		cmocka_unit_test(over_while_it_is_looked_for),
		cmocka_unit_test(long_names),
		cmocka_unit_test(threads_are_within_the_limit),
		cmocka_unit_test(callers_that_cannot_go_in),
		cmocka_unit_test(becomes_hot_meanwhile),
		cmocka_unit_test(callers_by_readable_names),
		cmocka_unit_test(callers_are_filtered),
	};

	return cmocka_run_group_tests_name("top_views", tests, NULL, NULL);
}
