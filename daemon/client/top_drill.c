/* SPDX-License-Identifier: MIT */
/*
 * top_drill.c - views of what a function calls, of who calls it, and of its threads.
 *
 * Owns the texts of their metrics. What a function calls is told by the return address at the entry
 * of each candidate; who calls it, by the return address at its own exits.
 */
#include "daemon/client/top.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/values.h"

/* The vectors of a view of callers or threads, in the order of their ids: there may be no CPUS. */
enum { LATENCIES, CPUS };

/* --------------------------------------------------------------------- views */

struct view *view_new(enum view_kind kind, struct function *of)
{
	struct view *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->kind = kind;
	v->of = of;
	v->rate = of ? of->rate : -1;
	v->latencies.times = v->walls.times = v->cpus.times = true;
	v->cpus.clock_ns = TOP_CLOCK_NS;
	if (of)
		snprintf(v->name, sizeof(v->name), "%s", of->name);
	text_clean(v->name, false);
	return v;
}

static void release_set(struct probe_set *set)
{
	for (size_t n = 0; n < set->count; n++)
		json_decref(set->list[n].buckets);
	free(set->list);
}

void view_free(struct view *v)
{
	for (size_t n = 0; n < v->count; n++) {
		free(v->functions[n].focus);
		free(v->functions[n].name);
	}
	free(v->functions);
	free(v->lines);
	release_set(&v->counts);
	release_set(&v->latencies);
	release_set(&v->walls);
	release_set(&v->cpus);
	json_decref(v->ids);
	json_decref(v->last);
	free(v);
}

int view_leave(struct top *t, struct view *v, struct dinst_error *e)
{
	int err = probe_remove(t, &v->counts, NULL, e);

	if (!err)
		err = probe_remove(t, &v->latencies, NULL, e);
	if (!err)
		err = probe_remove(t, &v->walls, NULL, e);
	if (!err)
		err = probe_remove(t, &v->cpus, NULL, e);
	if (!err && v->ids)
		err = question_remove(&t->q, v->ids, e);
	json_decref(v->ids);
	json_decref(v->last);
	v->ids = v->last = NULL;
	return err;
}

/* -------------------------------------------------------------------- callees */

/* One metric of the three: only calls that return into the function count. */
static void callee_metric(FILE *to, const struct function *of, const char *name, const char *units,
			  const char *type, const char *entry, const char *end)
{
	char condition[100];

	snprintf(condition, sizeof(condition), "$caller >= 0x%" PRIx64 " && $caller < 0x%" PRIx64,
		 of->address, of->address + of->size);
	fprintf(to,
		"metric %s {\n\tunits %s; description \"Calls by one function.\";\n"
		"\tconstraint callee inclusive /Code/*/* is replace %s {\n",
		name, units, type);
	if (entry)
		fprintf(to, "\t\tappend preInsn $constraint[0].entry (* if (%s) %s; *)\n",
			condition, entry);
	if (end)
		fprintf(to, "\t\tprepend preInsn $constraint[0].return (* if (%s) %s; *)\n",
			condition, end);
	fprintf(to, "\t}\n\tbase is %s { }\n}\n", type);
}

static int load_callees(struct top *t, struct view *v, struct dinst_error *e)
{
	char count[60], record[80], *text = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);
	int err;

	if (!to)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a text");
	snprintf(count, sizeof(count), "%s++", v->calls);
	snprintf(record, sizeof(record), "record(%s, $elapsed)", v->latency);
	callee_metric(to, v->of, v->calls, "calls", "counter", count, NULL);
	callee_metric(to, v->of, v->latency, "ns", "distribution", NULL, record);
	err = fclose(to) == 0 ? question_load(&t->q, "top", text, e)
			      : dinst_fail(e, DINST_NO_MEMORY, "no memory for a text");
	free(text);
	return err;
}

/*
 * Candidates: what was called of the main module, and what the C library has. Whatever else is
 * called counts as the function's own.
 */
static int add_candidates(struct top *t, struct view *v, struct dinst_error *e)
{
	const struct view *all = t->views[0];
	size_t own;
	struct function *list = calloc(all->count + 1, sizeof(*list));

	if (!list)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu functions", all->count);
	v->functions = list;
	for (size_t n = 0; n < all->count; n++) {
		const struct function *f = &all->functions[n];

		if (f->rate <= 0 || f->uncountable)
			continue;
		list[v->count] = (struct function){
			.focus = strdup(f->focus),
			.name = strdup(f->name),
			.address = f->address,
			.size = f->size,
			.rate = -1,
			.cpu = -1,
			.wall = -1,
			.p50 = -1,
			.p99 = -1,
			.timing_ns = {-1, -1},
		};
		if (!list[v->count].focus || !list[v->count].name)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for names");
		v->count++;
	}
	own = v->count;
	/* there may be none */
	functions_add(t, v, "/Code/libc.so*/*", &(struct dinst_error){0, ""});
	for (size_t n = own; n < v->count; n++)
		v->functions[n].possible = true;
	functions_sort(v);
	return 0;
}

static int begin_callees(struct top *t, struct view *v, struct dinst_error *e)
{
	int err;

	if (!v->of->size)
		return dinst_fail(e, DINST_REFUSED, "%s: nobody knows where it ends", v->name);
	t->serial++;
	snprintf(v->calls, sizeof(v->calls), "top_calls_%d_%u", (int)getpid(), t->serial);
	snprintf(v->latency, sizeof(v->latency), "top_time_%d_%u", (int)getpid(), t->serial);
	err = load_callees(t, v, e);
	return err ? err : add_candidates(t, v, e);
}

/* ------------------------------------------------------------ callers, threads */

/* "/Code/M/F" as an item of a list: "M:F". NULL if it cannot be one. */
static char *item_of(const struct function *f)
{
	char *item = strdup(f->focus + strlen("/Code/"));
	char *slash = item ? strchr(item, '/') : NULL;

	if (!slash || strpbrk(item, "\"\\\n")) {
		free(item);
		return NULL;
	}
	*slash = ':';
	return item;
}

static int load_callers(struct top *t, struct view *v, struct dinst_error *e)
{
	char *item = item_of(v->of), *text = NULL;
	int err;

	if (!item)
		return dinst_fail(e, DINST_REFUSED, "%s cannot be named", v->name);
	t->serial++;
	snprintf(v->latency, sizeof(v->latency), "top_who_%d_%u", (int)getpid(), t->serial);
	if (asprintf(&text,
		     "list %2$s_functions is procedure { items { \"%1$s\" }; }\n"
		     "constraint %2$s_caller /SyncObject/Caller/* is counter {\n"
		     "\t(* %2$s_caller = ($caller == $constraint[0]); *)\n}\n"
		     "metric %2$s {\n\tunits ns; description \"Calls by who calls.\";\n"
		     "\tconstraint thread; constraint %2$s_caller;\n\tbase is distribution {\n"
		     "\t\tforeach f in %2$s_functions\n"
		     "\t\t\tprepend preInsn f.return (* record(%2$s, $elapsed); *)\n\t}\n}\n",
		     item, v->latency) < 0)
		err = dinst_fail(e, DINST_NO_MEMORY, "no memory for a text");
	else
		err = question_load(&t->q, "top", text, e);
	free(item);
	free(text);
	return err;
}

static int insert_vector(struct top *t, struct view *v, const char *metric, json_t *foci,
			 struct dinst_error *e)
{
	json_t *params = json_pack("{s:s,s:O,s:b}", "metric", metric, "focus", foci, "cost", 1);
	json_t *answer = NULL, *row;
	int err = question_call(&t->q, "insert", params, &answer, e);

	json_decref(params);
	if (err)
		return err;
	row = json_array_get(json_object_get(answer, "rows"), 0);
	json_array_append(v->ids, json_object_get(row, "id"));
	if (json_integer_value(json_object_get(row, "points")) == 0)
		err = dinst_fail(e, DINST_REFUSED, "%s: none of its exits can be instrumented",
				 v->name);
	json_decref(answer);
	return err;
}

/* The processor's clock is a system call: it is read only where calls take longer than that. */
static bool takes_cpu(const struct view *v)
{
	return v->kind == VIEW_THREADS && v->of->mean > 100 * TOP_CLOCK_NS;
}

static int insert_vectors(struct top *t, struct view *v, struct dinst_error *e)
{
	const bool threads = v->kind == VIEW_THREADS;
	json_t *foci = json_pack("[s]", threads ? "/Process/*" : "/SyncObject/Caller/*");
	int err;

	v->ids = json_array();
	err = insert_vector(t, v, v->latency, foci, e);
	json_decref(foci);
	if (!err && takes_cpu(v)) {
		foci = json_pack("[s,s]", v->of->focus, "/Process/*");
		err = insert_vector(t, v, "cpu", foci, e);
		json_decref(foci);
	}
	return err;
}

/* --------------------------------------------------- what vectors have to say */

static double number(json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

static json_t *element_of(json_t *row, json_t *key)
{
	json_t *element;
	size_t index;

	json_array_foreach(json_object_get(row, "elements"), index,
			   element) if (json_equal(json_object_get(element, "key"),
						   key)) return element;
	return NULL;
}

/* By its name as people read it, which is not its symbol's in C++ and Rust: "MODULE:NAME". */
static struct function *function_read(struct top *t, const char *name)
{
	const size_t length = strlen(t->module);
	const bool own = !strncmp(name, t->module, length) && name[length] == ':';
	struct view *all = t->views[0];

	for (size_t n = 0; n < all->count; n++)
		if (!strcmp(all->functions[n].name, own ? name + length + 1 : name))
			return &all->functions[n];
	return NULL;
}

/* "redis-server:call+0x8f": the function that has this call in it. */
static struct function *function_called(struct top *t, const char *name)
{
	char focus[TOP_NAME + 8] = "/Code/", *readable = focus + strlen(focus), *end;
	struct function *f = NULL;

	snprintf(readable, TOP_NAME, "%s", name);
	/* not the one of operator+() */
	end = strrchr(readable, '+');
	if (end && !strncmp(end, "+0x", strlen("+0x")))
		*end = '\0';
	end = strchr(readable, ':');
	if (end) {
		*end = '/';
		f = function_of(t->views[0], focus);
		*end = ':';
	}
	return f ? f : function_read(t, readable);
}

static void element_line(struct top *t, struct view *v, struct line *l, json_t *element,
			 double seconds)
{
	json_t *before =
		element_of(json_array_get(v->last, LATENCIES), json_object_get(element, "key"));
	const char *name = json_string_value(json_object_get(element, "name"));
	const double calls = number(element, "count") - number(before, "count");
	json_t *since = buckets_since(json_object_get(element, "buckets"),
				      json_object_get(before, "buckets"));
	char key[TOP_NAME / 2];

	value_text(json_object_get(element, "key"), COLUMN_TEXT, key, sizeof(key));
	if (json_is_null(json_object_get(element, "key")))
		snprintf(l->name, sizeof(l->name), "(others)");
	else if (v->kind == VIEW_THREADS)
		snprintf(l->name, sizeof(l->name), "%s %.200s", key, name ? name : "");
	else
		snprintf(l->name, sizeof(l->name), "%.400s", name ? name : key);
	text_clean(l->name, false);
	l->function = v->kind == VIEW_CALLERS && name ? function_called(t, name) : NULL;
	l->rate = calls / seconds;
	l->cpu = -1;
	l->wall = (number(element, "sum") - number(before, "sum")) / seconds;
	l->p50 = calls > 0 ? buckets_quantile(since, number(element, "min"), number(element, "max"),
					      0.5)
			   : -1;
	l->p99 = calls > 0 ? buckets_quantile(since, number(element, "min"), number(element, "max"),
					      0.99)
			   : -1;
	l->sampled = l->at_most = false;
	json_decref(since);
}

/* Processor time of a thread, from the second vector. */
static void thread_cpu(struct view *v, json_t *cpus, json_t *key, struct line *l, double seconds)
{
	json_t *now = element_of(cpus, key);
	json_t *before = element_of(json_array_get(v->last, CPUS), key);

	if (now)
		l->cpu = (number(now, "value") - number(before, "value")) / seconds;
}

static int take_elements(struct top *t, struct view *v, json_t *rows, double seconds)
{
	json_t *elements = json_object_get(json_array_get(rows, LATENCIES), "elements"), *element;
	const size_t count = json_array_size(elements);
	struct line *lines = realloc(v->lines, (count ? count : 1) * sizeof(*lines));
	size_t index;

	if (!lines)
		return DINST_NO_MEMORY;
	v->lines = lines;
	v->line_count = 0;
	v->rate = 0;
	json_array_foreach(elements, index, element)
	{
		struct line *l = &v->lines[v->line_count++];

		element_line(t, v, l, element, seconds);
		if (json_array_size(rows) > CPUS)
			thread_cpu(v, json_array_get(rows, CPUS), json_object_get(element, "key"),
				   l, seconds);
		v->rate += l->rate;
	}
	v->line_all = v->line_count;
	return 0;
}

static void add_cost(struct top *t, struct view *v, json_t *rows)
{
	json_t *row;
	size_t index;

	json_array_foreach(rows, index, row)
	{
		const double before = number(json_array_get(v->last, index), "hits");

		/* the second one takes processor time, whose clock is a system call */
		t->spent_ns +=
			(number(row, "hits") - before) * (number(row, "predicted_ns") + TOP_WAY_NS +
							  (index == CPUS ? TOP_CLOCK_NS : 0));
	}
}

static int read_vectors(struct top *t, struct view *v, bool take, struct dinst_error *e)
{
	json_t *params = json_pack("{s:O,s:b}", "ids", v->ids, "verbose", 1), *answer = NULL;
	const uint64_t before = top_now();
	uint64_t now;
	int err = question_call(&t->q, "read", params, &answer, e);

	json_decref(params);
	if (err)
		return err;
	now = before + (top_now() - before) / 2;
	add_cost(t, v, json_object_get(answer, "rows"));
	if (take && v->last_ns && now > v->last_ns)
		err = take_elements(t, v, json_object_get(answer, "rows"),
				    (double)(now - v->last_ns) / 1e9);
	json_decref(v->last);
	v->last = json_incref(json_object_get(answer, "rows"));
	v->last_ns = now;
	json_decref(answer);
	return err;
}

static int drill_read(struct top *t, struct view *v, uint64_t until_ns, struct dinst_error *e)
{
	enum { CALL_NS = 120 };
	const double budget = t->limit * t->scale * 1e7, before = t->spent_ns;
	const double call_ns = CALL_NS + (takes_cpu(v) ? 2 * TOP_CLOCK_NS : 0);
	const double cost = v->rate > 0 ? v->rate * call_ns : 0;
	uint64_t end = until_ns;
	int err = 0;

	t->credit_ns += budget * t->interval;
	if (t->credit_ns > budget * 2)
		t->credit_ns = budget * 2;
	if (cost > budget)
		end = top_now() + (uint64_t)(t->credit_ns > 0 ? t->credit_ns / cost * 1e9 : 0);
	if (cost > budget && end < top_now() + TOP_SLICE_MIN_MS * 1000000ull) {
		/* not enough saved up yet; it may have become this dear while it was in */
		err = v->ids ? view_leave(t, v, e) : 0;
		top_pause(t, until_ns);
		return err;
	}
	if (!v->ids) {
		v->last_ns = 0;
		err = insert_vectors(t, v, e);
		if (!err)
			err = read_vectors(t, v, false, e);
	}
	if (!err)
		top_pause(t, end < until_ns ? end : until_ns);
	if (!err)
		err = read_vectors(t, v, true, e);
	if (!err)
		v->rounds++;
	t->credit_ns -= t->spent_ns - before;
	return !err && (cost > budget || v->rate * call_ns > budget) ? view_leave(t, v, e) : err;
}

/* ----------------------------------------------------------------- going about */

int drill_into(struct top *t, enum view_kind kind, struct function *f, struct dinst_error *e)
{
	struct view *v;
	int err;

	if (t->depth == TOP_DEPTH)
		return 0;
	v = view_new(kind, f);
	if (!v)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a view");
	err = view_leave(t, t->views[t->depth - 1], e);
	if (!err)
		err = kind == VIEW_CALLEES ? begin_callees(t, v, e) : load_callers(t, v, e);
	if (err) {
		view_free(v);
		return err;
	}
	t->views[t->depth++] = v;
	t->credit_ns = 0;
	return 0;
}

int drill_back(struct top *t, struct dinst_error *e)
{
	struct view *v;
	int err;

	if (t->depth == 1)
		return 0;
	v = t->views[t->depth - 1];
	err = view_leave(t, v, e);
	if (err)
		return err;
	view_free(v);
	t->depth--;
	t->credit_ns = 0;
	/* what it counted goes in again with the next refresh */
	return 0;
}

int drill_refresh(struct top *t, struct view *v, uint64_t until_ns, struct dinst_error *e)
{
	struct dinst_error why = {0, ""};
	int err = drill_read(t, v, until_ns, &why);

	if (err != DINST_BUSY && !top_can_say(err))
		return err ? dinst_fail_text(e, err, why.text) : 0;
	if (err == DINST_BUSY) {
		err = view_leave(t, v, e);
		top_say_busy(t, why.text);
		top_pause(t, until_ns);
		return err;
	}
	err = drill_back(t, e);
	top_say(t, "%.400s", why.text);
	return err;
}
