/* SPDX-License-Identifier: MIT */
/*
 * why_world.c - the search's hands: looks at the target, inserts what tests need, reads, and
 * takes out again; switches off what costs more than the limit.
 *
 * All tests of a round are in at the same time. Owns what it cost; decides nothing else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/client/why.h"
#include "inject/target.h"

enum {
	LOOK_MS = 90,	  /* between looks; longer where a stop takes long */
	LOOK_PART = 100,  /* looks may stop the target for one part in so many of the time */
	PAUSE_MS = 500,	  /* at most */
	LOOKS_LEAST = 12, /* so many there are, if that takes longer than it should */
	LONGER = 3,	  /* so many times as long, at most */
	POLL_MS = 200,	  /* how often the cost of what is in is looked at */
	SOON = 4,	  /* the first ones come earlier */
	SOON_MS = 50,
	ROWS_MAX = 4 * 64,
};

/* Predictions are of the longest way, which the code of cpu_sampled takes one time in 64. */
static const double SAMPLED_PART = 0.15;

/* A test that is under way. */
struct running {
	struct search_test *test;
	json_int_t ids[WHY_METRICS_MAX]; /* 0: none */
	unsigned count;
	uint64_t begun_ns, begun_cpu;
	bool over;
};

struct round {
	struct why *why;
	struct running *running;
	size_t count;
	uint64_t looked_ns; /* at the cost */
};

static void count_stop(struct why *w, double us)
{
	if (us <= 0)
		return;
	w->cost.stops++;
	w->cost.stop_us += us;
	if (us > w->cost.longest_us)
		w->cost.longest_us = us;
}

/* --------------------------------------------------------------------- looks */

static void add_thread(struct chains *chains, json_t *row)
{
	const char *state = json_string_value(json_object_get(row, "state"));
	struct chain_frame frames[CHAIN_FRAMES_MAX];
	json_t *list = json_object_get(row, "frames"), *frame;
	size_t index, count = 0;
	enum chain_kind kind;

	json_array_foreach(list, index, frame)
	{
		if (count == CHAIN_FRAMES_MAX)
			break;
		frames[count++] = (struct chain_frame){
			.module = json_string_value(json_object_get(frame, "module")),
			.function = json_string_value(json_object_get(frame, "function")),
			.symbol = json_string_value(json_object_get(frame, "symbol"))};
	}
	kind = chain_kind_of(state ? state[0] : '?', frames, count);
	chains_add(chains, kind, frames, count);
	/* A thread that runs in a write is writing as well, as far as files are concerned. */
	if (kind == CHAIN_RUNS) {
		kind = chain_kind_of('S', frames, count);
		if (kind == CHAIN_WRITES || kind == CHAIN_READS)
			chains_add(chains, kind, frames, count);
	}
}

/* One look; how long to leave the target alone afterwards, in ms. */
static unsigned look(struct why *w, struct chains *chains)
{
	struct dinst_error e = {0, ""};
	json_t *result = NULL, *row;
	unsigned pause = LOOK_MS;
	json_int_t left_out;
	size_t index;
	double us;

	if (question_call(&w->q, "stacks", NULL, &result, &e) != 0) {
		if (!w->q.over)
			snprintf(w->search.notes[0], SEARCH_TEXT,
				 "its stacks could not be looked at: %.300s", e.text);
		w->search.note_count = w->search.note_count ? w->search.note_count : 1;
		return LOOK_MS;
	}
	json_array_foreach(json_object_get(result, "rows"), index, row) add_thread(chains, row);
	us = json_number_value(json_object_get(result, "stop_us"));
	count_stop(w, us);
	w->cost.looks++;
	left_out = json_integer_value(json_object_get(result, "left_out"));
	if (left_out > w->cost.left_out && left_out <= INT32_MAX)
		w->cost.left_out = (unsigned)left_out;
	if (us * LOOK_PART / 1000 > pause)
		pause = us * LOOK_PART / 1000 < PAUSE_MS ? (unsigned)(us * LOOK_PART / 1000)
							 : PAUSE_MS;
	json_decref(result);
	/* Not in step with what the program does at regular times. */
	return pause + (unsigned)(clock_ns() / 1000 % (LOOK_MS / 3));
}

static bool observe(void *arg, double seconds, struct chains *chains, struct search_facts *facts)
{
	struct why *w = arg;
	const uint64_t begun = clock_ns(), time = (uint64_t)(seconds * 1e9);
	bool going = true;

	if (!w->facts.begun_ns)
		why_facts_begin(&w->facts, w->q.pid);
	while (going && (clock_ns() - begun < time ||
			 (w->cost.looks < LOOKS_LEAST && clock_ns() - begun < time * LONGER))) {
		const unsigned pause = look(w, chains);

		question_progress(&w->q, "looking at %d: %u looks, stopped for %.1f ms in all",
				  (int)w->q.pid, w->cost.looks, w->cost.stop_us / 1000);
		going = question_wait(&w->q, pause);
		why_facts_step(&w->facts);
	}
	why_facts_sum(&w->facts, facts);
	return going;
}

/* --------------------------------------------------------------------- tests */

static void give_up(struct running *r, const char *why)
{
	r->over = true;
	r->test->done = false;
	snprintf(r->test->why_not, sizeof(r->test->why_not), "%.*s", SEARCH_TEXT - 1, why);
}

static int insert(struct why *w, const char *metric, json_t *foci, bool each, json_t **result,
		  struct dinst_error *e)
{
	json_t *params = json_pack("{s:s, s:O, s:b, s:b, s:f}", "metric", metric, "focus", foci,
				   "each", each, "cost", 1, "limit",
				   strcmp(metric, "cpu_sampled") ? w->search.limit
								 : w->search.limit / SAMPLED_PART);
	int status = question_call(&w->q, "insert", params, result, e);
	json_t *row;

	json_decref(params);
	if (status == 0) {
		row = json_array_get(json_object_get(*result, "rows"), 0);
		count_stop(w, json_number_value(json_object_get(row, "stop_us")));
	}
	return status;
}

static json_t *foci_of(const struct search_test *t, const struct why_plan *plan, unsigned i)
{
	json_t *foci = json_array();

	if (plan->focus[i][0])
		json_array_append_new(foci, json_string(plan->focus[i]));
	if (t->what == MEASURE_CPU_THREADS)
		json_array_append_new(foci, json_string("/Process/*"));
	return foci;
}

/* Takes the rows of one metric's insert: functions of one name are one test. */
static void take_rows(struct running *r, json_t *result, char *why, size_t size)
{
	json_t *rows = json_object_get(result, "rows"), *row;
	size_t index;

	json_array_foreach(rows, index, row)
	{
		json_t *reason = json_array_get(json_object_get(row, "reasons"), 0);
		const char *text = json_string_value(json_object_get(reason, "text"));

		if (json_integer_value(json_object_get(row, "points")) > 0 &&
		    r->count < WHY_METRICS_MAX)
			r->ids[r->count++] = json_integer_value(json_object_get(row, "id"));
		else if (text)
			snprintf(why, size, "refused: %s", text);
	}
}

static void begin_one(struct why *w, struct running *r)
{
	struct dinst_error e = {0, ""};
	char why[SEARCH_TEXT] = "there is no such function in this program";
	struct why_plan plan;
	int status = 0;

	if (!why_plan_make(r->test, &plan)) {
		give_up(r, "no memory");
		return;
	}
	if (plan.text)
		status = question_load(&w->q, "why.mdl", plan.text, &e);
	for (unsigned i = 0; status == 0 && i < plan.count; i++) {
		json_t *foci = foci_of(r->test, &plan, i), *result = NULL;

		status = insert(w, plan.metric[i], foci, false, &result, &e);
		if (status == 0)
			take_rows(r, result, why, sizeof(why));
		json_decref(result);
		json_decref(foci);
	}
	free(plan.text);
	if (status != 0 || !r->count)
		give_up(r, status != 0 ? e.text : why);
	r->begun_ns = clock_ns();
	r->begun_cpu = why_cpu_ns(w->q.pid);
	w->cost.tests++;
}

static bool is_alike(const struct search_test *a, const struct search_test *b)
{
	return a->what == b->what && a->symbol[0] && b->symbol[0] && a->what != MEASURE_BLOCKS &&
	       a->what != MEASURE_CPU_THREADS;
}

/*
 * Tests of many functions by one metric go in together, in one stop. False: they have to
 * go in one by one, since one that is refused refuses them all.
 */
static bool begin_alike(struct why *w, struct running *list, size_t count)
{
	struct dinst_error e = {0, ""};
	json_t *foci = json_array(), *result = NULL, *row;
	struct why_plan plan = {.count = 0};
	char why[SEARCH_TEXT] = "it has no points";
	bool good;
	size_t index;

	for (size_t i = 0; i < count; i++) {
		why_plan_make(list[i].test, &plan);
		json_array_append_new(foci, json_string(plan.focus[0]));
	}
	good = insert(w, plan.metric[0], foci, true, &result, &e) == 0 &&
	       json_array_size(json_object_get(result, "rows")) == count;
	/* One row for each word, in their order: where a name means several functions it is not so. */
	json_array_foreach(json_object_get(result, "rows"), index, row)
	{
		const char *focus = json_string_value(json_object_get(row, "focus"));
		const char *word = json_string_value(json_array_get(foci, index));

		good = good && focus && word && strcmp(focus, word) == 0;
	}
	for (size_t i = 0; good && i < count; i++) {
		json_t *one = json_pack("{s:[O]}", "rows",
					json_array_get(json_object_get(result, "rows"), i));

		take_rows(&list[i], one, why, sizeof(why));
		json_decref(one);
		if (!list[i].count)
			give_up(&list[i], why);
		list[i].begun_ns = clock_ns();
		list[i].begun_cpu = why_cpu_ns(w->q.pid);
		w->cost.tests++;
	}
	if (!good && result) {
		json_t *ids = json_array();

		json_array_foreach(json_object_get(result, "rows"), index, row)
			json_array_append(ids, json_object_get(row, "id"));
		question_remove(&w->q, ids, &e);
		json_decref(ids);
	}
	json_decref(result);
	json_decref(foci);
	return good;
}

static void begin(struct round *r)
{
	for (size_t i = 0; i < r->count && !r->why->q.over;) {
		size_t n = 1;

		while (i + n < r->count && is_alike(r->running[i].test, r->running[i + n].test))
			n++;
		if (n < 2 || !begin_alike(r->why, &r->running[i], n))
			for (size_t k = 0; k < n && !r->why->q.over; k++)
				begin_one(r->why, &r->running[i + k]);
		i += n;
	}
}

/* ------------------------------------------------------------------- results */

static json_t *ids_of(const struct running *r)
{
	json_t *ids = json_array();

	for (unsigned i = 0; i < r->count; i++)
		json_array_append_new(ids, json_integer(r->ids[i]));
	return ids;
}

static void remove_it(struct why *w, struct running *r)
{
	struct dinst_error ignored = {0, ""};
	json_t *ids = ids_of(r);

	if (r->count)
		question_remove(&w->q, ids, &ignored);
	json_decref(ids);
	r->count = 0;
}

static void take(struct why *w, struct running *r, json_t *rows)
{
	struct search_test *t = r->test;
	const double ns = (double)(clock_ns() - r->begun_ns) + 1;
	const uint64_t cpu = why_cpu_ns(w->q.pid);
	double scale = 1 / ns, sum = 0;
	json_t *row;
	size_t index;

	t->cpu = cpu > r->begun_cpu ? (double)(cpu - r->begun_cpu) / ns : 0;
	t->done = true;
	if (t->what == MEASURE_BLOCKS) {
		why_take_blocks(t, rows);
		return;
	}
	if (t->what == MEASURE_CALLS)
		scale = 1e9 / ns;
	if (t->what == MEASURE_CPU_SAMPLED)
		scale = 64 / ns;
	json_array_foreach(rows, index, row) sum +=
		json_number_value(json_object_get(row, "value"));
	t->value = sum * scale;
	why_take_elements(w, t, json_object_get(json_array_get(rows, 0), "elements"), scale);
}

/* What its code has cost: percent of a CPU; of blocks, that nobody has looked at meanwhile. */
static void count_cost(struct why *w, const struct running *r, json_t *rows)
{
	double percent = 0, ns = 0;
	size_t index;
	json_t *row;

	if (r->test->what != MEASURE_BLOCKS)
		return;
	json_array_foreach(rows, index, row)
	{
		percent += json_number_value(json_object_get(row, "cost_ns_per_s")) / 1e7;
		ns += json_number_value(json_object_get(row, "predicted_ns")) *
		      json_number_value(json_object_get(row, "hits"));
	}
	w->cost.total_ns += ns;
	if (percent > w->cost.highest)
		w->cost.highest = percent;
}

static void finish(struct why *w, struct running *r)
{
	json_t *ids = ids_of(r), *params = json_pack("{s:O, s:b}", "ids", ids, "verbose", 1);
	json_t *result = NULL, *rows, *row;
	struct dinst_error e = {0, ""};
	bool stopped = false, forbidden = false;
	size_t index;

	if (question_call(&w->q, "read", params, &result, &e) != 0) {
		give_up(r, e.text);
	} else {
		rows = json_object_get(result, "rows");
		count_cost(w, r, rows);
		json_array_foreach(rows, index, row)
		{
			stopped |= json_is_true(json_object_get(row, "stopped"));
			forbidden |= json_is_true(json_object_get(row, "forbidden"));
		}
		if (forbidden) {
			give_up(r,
				"switched off: a seccomp filter, or who provides pages of memory "
				"(userfaultfd), may forbid what it does");
		} else if (stopped) {
			w->cost.switched_off++;
			give_up(r, "switched off: it cost more than the limit");
		} else {
			take(w, r, rows);
		}
	}
	r->over = true;
	json_decref(result);
	json_decref(params);
	json_decref(ids);
	remove_it(w, r);
}

/* ---------------------------------------------------------------------- cost */

/* Of which test a row is; -1: of none that is still in. */
static long running_of(const struct round *r, json_int_t id)
{
	for (size_t i = 0; i < r->count; i++)
		for (unsigned k = 0; k < r->running[i].count; k++)
			if (r->running[i].ids[k] == id)
				return (long)i;
	return -1;
}

/* Percent of a CPU that each test has cost so far, and their sum. */
static double read_costs(struct round *r, double *each)
{
	json_t *ids = json_array(), *params, *result = NULL, *row;
	struct dinst_error e = {0, ""};
	double all = 0;
	size_t index;

	/* Blocks have long vectors: the mutator looks after their limit. */
	for (size_t i = 0; i < r->count && i < ROWS_MAX; i++)
		for (unsigned k = 0; k < r->running[i].count; k++)
			if (r->running[i].test->what != MEASURE_BLOCKS)
				json_array_append_new(ids, json_integer(r->running[i].ids[k]));
	params = json_pack("{s:O, s:b}", "ids", ids, "verbose", 1);
	if (json_array_size(ids) && question_call(&r->why->q, "read", params, &result, &e) == 0)
		json_array_foreach(json_object_get(result, "rows"), index, row)
		{
			const long i =
				running_of(r, json_integer_value(json_object_get(row, "id")));
			const double cost =
				json_number_value(json_object_get(row, "cost_ns_per_s")) / 1e7 *
				(i >= 0 && r->running[i].test->what == MEASURE_CPU_SAMPLED
					 ? SAMPLED_PART
					 : 1);

			if (i >= 0 && i < ROWS_MAX) {
				r->running[i].test->cost = cost;
				each[i] += cost;
				all += cost;
			}
		}
	json_decref(params);
	json_decref(result);
	json_decref(ids);
	return all;
}

/* What all that is in costs; the costliest is switched off while it is more than the limit. */
static void watch_cost(struct round *r)
{
	double each[ROWS_MAX] = {0}, all = read_costs(r, each);
	struct why *w = r->why;

	if (all > w->cost.highest)
		w->cost.highest = all;
	w->cost.total_ns += all / 100 * (double)(clock_ns() - r->looked_ns);
	r->looked_ns = clock_ns();
	while (all > w->search.limit) {
		char text[160];
		size_t worst = 0;

		for (size_t i = 1; i < r->count && i < ROWS_MAX; i++)
			if (each[i] > each[worst])
				worst = i;
		snprintf(
			text, sizeof(text),
			"switched off: it cost %.1f %% of a CPU, all tests together %.1f %%, and the limit "
			"is %.0f %%",
			each[worst], all, w->search.limit);
		remove_it(w, &r->running[worst]);
		give_up(&r->running[worst], text);
		w->cost.switched_off++;
		all -= each[worst];
		each[worst] = 0;
	}
}

static bool measure(void *arg, struct search_test *tests, size_t count)
{
	struct why *w = arg;
	struct round r = {.why = w, .count = count, .looked_ns = clock_ns()};
	bool going = true, left = true;
	unsigned polls = 0;

	r.running = calloc(count + 1, sizeof(*r.running));
	if (!r.running)
		return false;
	for (size_t i = 0; i < count; i++)
		r.running[i].test = &tests[i];
	question_progress(&w->q, "inserting %zu tests", count);
	begin(&r);
	while (left && going) {
		/* What is called much more often than it was shows at once. */
		going = question_wait(&w->q, polls++ < SOON ? SOON_MS : POLL_MS);
		why_facts_step(&w->facts);
		watch_cost(&r);
		left = false;
		for (size_t i = 0; i < count; i++) {
			struct running *one = &r.running[i];

			if (!one->over && clock_ns() - one->begun_ns >= one->test->seconds * 1e9)
				finish(w, one);
			left |= !one->over;
		}
		question_progress(&w->q, "%zu tests, %.1f %% of a CPU at most so far", count,
				  w->cost.highest);
	}
	/* The question is over: what has been measured so far counts for what it is. */
	for (size_t i = 0; i < count; i++)
		if (!r.running[i].over && r.running[i].count)
			finish(w, &r.running[i]);
		else if (!r.running[i].over)
			give_up(&r.running[i], "there was no time left");
	free(r.running);
	return going;
}

void why_world(struct why *w, struct search_world *world)
{
	*world = (struct search_world){
		.arg = w, .observe = observe, .measure = measure, .told = why_tell};
}
