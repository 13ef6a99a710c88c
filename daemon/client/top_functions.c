/* SPDX-License-Identifier: MIT */
/*
 * top_functions.c - the functions of a view: which are called, and how often.
 *
 * Owns the counting and that it stays within its half of the limit. Never takes times.
 */
#include "daemon/client/top.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ the list */

static int by_focus(const void *a, const void *b)
{
	return strcmp(((const struct function *)a)->focus, ((const struct function *)b)->focus);
}

struct function *function_of(struct view *v, const char *focus)
{
	struct function key = {.focus = (char *)focus};

	return v->count ? bsearch(&key, v->functions, v->count, sizeof(key), by_focus) : NULL;
}

static char *text_of(const char *format, const char *a, const char *b)
{
	char *text = NULL;

	return asprintf(&text, format, a, b) < 0 ? NULL : text;
}

static bool take_function(const struct top *t, struct function *f, json_t *row)
{
	const char *module = json_string_value(json_object_get(row, "module"));
	const char *symbol = json_string_value(json_object_get(row, "symbol"));
	const char *name = json_string_value(json_object_get(row, "function"));
	const char *address = json_string_value(json_object_get(row, "address"));

	if (!module || !symbol || !name)
		return false;
	*f = (struct function){
		.focus = text_of("/Code/%s/%s", module, symbol),
		.name = strcmp(module, t->module) ? text_of("%s:%s", module, name) : strdup(name),
		.address = address ? strtoull(address, NULL, 16) : 0,
		.size = (uint64_t)json_integer_value(json_object_get(row, "size")),
		.rate = -1,
		.cpu = -1,
		.wall = -1,
		.p50 = -1,
		.p99 = -1,
		.timing_ns = {-1, -1},
	};
	if (f->focus && f->name)
		return true;
	free(f->focus);
	free(f->name);
	return false;
}

int functions_add(struct top *t, struct view *v, const char *pattern, struct dinst_error *e)
{
	json_t *params = json_pack("{s:o}", "pattern", rpc_text(pattern)), *answer = NULL, *rows;
	struct function *list;
	size_t index, all;
	json_t *row;
	int err = question_call(&t->q, "funcs", params, &answer, e);

	json_decref(params);
	if (err)
		return err;
	rows = json_object_get(answer, "rows");
	all = v->count + json_array_size(rows);
	list = realloc(v->functions, (all ? all : 1) * sizeof(*list));
	if (!list) {
		json_decref(answer);
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu functions", all);
	}
	v->functions = list;
	json_array_foreach(rows, index, row) if (take_function(t, &list[v->count], row)) v->count++;
	json_decref(answer);
	return 0;
}

void functions_sort(struct view *v)
{
	size_t kept = 0;

	qsort(v->functions, v->count, sizeof(*v->functions), by_focus);
	for (size_t n = 0; n < v->count; n++) {
		if (kept && !strcmp(v->functions[n].focus, v->functions[kept - 1].focus)) {
			free(v->functions[n].focus);
			free(v->functions[n].name);
			continue;
		}
		v->functions[kept++] = v->functions[n];
	}
	v->count = kept;
}

/* ---------------------------------------------------------------- the survey */

static void take_rate(struct top *t, struct probe *p, json_t *row, double seconds)
{
	struct function *f = p->function;
	const double now = json_number_value(json_object_get(row, "value"));
	const double rate = (now - p->value) / seconds;

	/* of several of one name: all of them */
	f->rate = f->rated_ns == t->reading_ns ? f->rate + rate : rate;
	f->rated_ns = t->reading_ns;
	f->seen = f->seen || now > p->value;
	f->sampled = !f->counted;
}

/* What counting it all the time costs, in ns per second. */
static double counting_ns(const struct function *f)
{
	return f->rate > 0 ? f->rate * (TOP_WAY_NS + 1) : 0;
}

static int by_rate(const void *a, const void *b)
{
	const double x = (*(struct function *const *)a)->rate;
	const double y = (*(struct function *const *)b)->rate;

	return (x > y) - (x < y);
}

/* Says which are counted all the time: the cheapest, as long as half of the limit lasts. */
static int choose_counted(struct top *t, struct view *v, struct dinst_error *e)
{
	struct function **called = calloc(v->count ? v->count : 1, sizeof(*called));
	const double most = t->limit * t->scale * 1e7 / 2;
	double sum = 0;
	size_t count = 0;

	if (!called)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu functions", v->count);
	for (size_t n = 0; n < v->count; n++) {
		v->functions[n].counted = false;
		if (v->functions[n].seen && !v->functions[n].uncountable)
			called[count++] = &v->functions[n];
	}
	qsort(called, count, sizeof(struct function *), by_rate);
	for (size_t n = 0; n < count; n++) {
		sum += counting_ns(called[n]);
		called[n]->counted = sum <= most;
	}
	free(called);
	return 0;
}

static bool not_counted(const struct probe *p)
{
	return !p->function->counted;
}

/* Counts functions[0..count) for a moment; what is to be counted on stays in. */
static int survey_some(struct top *t, struct view *v, struct function **some, size_t count,
		       struct dinst_error *e)
{
	struct probe_set set = {0};
	int err = probe_insert(t, &set, v->calls, some, count, v->kind == VIEW_CALLEES, e);

	if (!err)
		err = probe_read(t, &set, NULL, e);
	if (!err) {
		top_pause(t, top_now() + TOP_SURVEY_MS * 1000000ull);
		err = probe_read(t, &set, take_rate, e);
	}
	if (!err)
		err = probe_remove(t, &set, NULL, e);
	v->surveyed = v->surveyed && !set.missing;
	free(set.list);
	return err;
}

/* Those that are to be counted and are not yet. */
static int count_chosen(struct top *t, struct view *v, struct dinst_error *e)
{
	struct function **some = calloc(v->count ? v->count : 1, sizeof(*some));
	size_t count = 0;
	int err;

	if (!some)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu functions", v->count);
	for (size_t n = 0; n < v->count; n++)
		if (v->functions[n].counted && !v->functions[n].uncountable)
			some[count++] = &v->functions[n];
	for (size_t n = 0; n < v->counts.count; n++)
		for (size_t k = 0; k < count; k++)
			if (some[k] == v->counts.list[n].function) {
				some[k] = some[--count];
				break;
			}
	v->counts.missing = false;
	err = probe_insert(t, &v->counts, v->calls, some, count, v->kind == VIEW_CALLEES, e);
	free(some);
	/* all begin at one time */
	return err || !count ? err : probe_read(t, &v->counts, NULL, e);
}

int functions_survey(struct top *t, struct view *v, struct dinst_error *e)
{
	struct function **some = calloc(TOP_CHUNK, sizeof(*some));
	int err = some ? 0 : dinst_fail(e, DINST_NO_MEMORY, "no memory for a survey");

	/* whatever was refused may be possible now */
	for (size_t n = 0; n < v->count; n++) {
		v->functions[n].uncountable = v->functions[n].refused = false;
		v->functions[n].late_ns = 0;
	}
	v->surveyed = true;
	for (size_t n = 0;
	     !err && v->surveyed && n < v->count && question_going(&t->q) && !t->quit;) {
		size_t count = 0;

		top_say(t, "counting the calls of %zu functions for a moment: %zu%%", v->count,
			n * 100 / v->count);
		/* what is only a possibility is left to the scouts */
		for (; count < TOP_CHUNK && n < v->count; n++)
			if (!v->functions[n].possible)
				some[count++] = &v->functions[n];
		err = survey_some(t, v, some, count, e);
	}
	free(some);
	if (!err && !v->surveyed)
		return 0;
	if (!err)
		err = choose_counted(t, v, e);
	if (!err)
		err = count_chosen(t, v, e);
	/* so that something is known soon */
	t->credit_ns = t->limit * t->scale * 1e7 * TOP_HEAD_START;
	if (!t->busy)
		t->message[0] = '\0';
	return err;
}

/* --------------------------------------------------------------- every refresh */

/* Functions that are too hot to be counted on, and some that were never called. */
static size_t choose_sampled(struct view *v, bool scouts, struct function **some)
{
	size_t count = 0, looked = 0;

	/* from where the last ones ended: where there are more, each has its turn */
	for (size_t n = 0; n < v->count && count < TOP_SCOUT; n++) {
		struct function *f = &v->functions[v->resampled++ % v->count];

		if (f->seen && !f->counted && !f->uncountable)
			some[count++] = f;
	}
	for (; scouts && looked < v->count && count < (size_t)2 * TOP_SCOUT; looked++) {
		struct function *f = &v->functions[v->scouted++ % v->count];

		if (!f->seen && !f->uncountable)
			some[count++] = f;
		if (count >= TOP_SCOUT && looked >= TOP_SCOUT)
			break;
	}
	return count;
}

/* A program changes what it does: what has become too hot, or cool again. */
static int choose_anew(struct top *t, struct view *v, struct dinst_error *e)
{
	double sum = 0;
	bool met = false;
	int err;

	for (size_t n = 0; n < v->count; n++) {
		if (v->functions[n].counted)
			sum += counting_ns(&v->functions[n]);
	}
	/* with some room in between, so that it does not swing */
	for (size_t n = 0; n < v->count; n++) {
		const struct function *f = &v->functions[n];

		if (!f->counted && f->seen && !f->uncountable)
			met = met || sum + counting_ns(f) < t->limit * t->scale * 1e7 * 0.4;
	}
	if (!met && sum <= t->limit * t->scale * 1e7 * 0.6)
		return 0;
	err = choose_counted(t, v, e);
	if (!err)
		err = probe_remove(t, &v->counts, not_counted, e);
	return err ? err : count_chosen(t, v, e);
}

/* How long those are counted, in ns: shorter where that would cost more than a quarter of the limit. */
static uint64_t sample_ns(const struct top *t, struct function *const *some, size_t count)
{
	const double most = t->limit * t->scale * 1e7 * t->interval / 4;
	double sum = 0;
	uint64_t ns = TOP_SAMPLE_MS * 1000000ull;

	for (size_t n = 0; n < count; n++)
		sum += counting_ns(some[n]);
	if (sum * TOP_SAMPLE_MS / 1e3 > most)
		ns = (uint64_t)(most / sum * 1e9);
	return ns > 5000000 ? ns : 5000000;
}

int functions_count(struct top *t, struct view *v, struct dinst_error *e)
{
	struct function *some[2 * TOP_SCOUT];
	struct probe_set set = {0};
	bool scouts;
	size_t count;
	/* none are in after view_leave(): what they said before says nothing about now */
	int err = probe_read(t, &v->counts, take_rate, e);

	if (!err && (!v->counts.count || v->counts.missing))
		err = count_chosen(t, v, e);
	if (err)
		return err;
	scouts = v->rounds < TOP_SCOUT_EVERY || v->rounds % TOP_SCOUT_EVERY == 0 ||
		 v->kind == VIEW_CALLEES;
	v->rounds++;
	count = choose_sampled(v, scouts, some);
	err = probe_insert(t, &set, v->calls, some, count, v->kind == VIEW_CALLEES, e);
	if (!err && set.count) {
		err = probe_read(t, &set, NULL, e);
		top_pause(t, top_now() + sample_ns(t, some, count));
		if (!err)
			err = probe_read(t, &set, take_rate, e);
	}
	if (!err)
		err = probe_remove(t, &set, NULL, e);
	free(set.list);
	return err ? err : choose_anew(t, v, e);
}
