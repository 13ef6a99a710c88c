/* SPDX-License-Identifier: MIT */
/*
 * graph_find.c - which functions are really called below the root.
 *
 * Most are seen at once (graph_entered.c). Who calls whom, and so how far from the root they are, is
 * asked level by level; what the code of the ones that were called may call in modules that are too large for
 * that gets a counter that counts inside of the root only. What is found is then followed by events
 * (graph_count.c), as far as the budget goes: first only every n-th call of the root is followed, then
 * the functions that are called most are left out.
 */
#include "daemon/client/graph.h"

#include <stdlib.h>
#include <string.h>

enum {
	STEP_LEAST_MS = 100,
	STEP_MOST_MS = 1000,
	STEP_CALLS = 30, /* of the root: enough to see what it calls */
	FIRST_MS = 3000, /* for the first call of the root */
	LOOK_MS = 50,
	FOLLOWED_LEAST = 20, /* calls of the root per second */
	BLIND_MOST = 500,    /* functions, where only the code says what may be called */
};

/* Inside of the root: what is counted where. The object of /SyncObject is none, only a place for the flag. */
static const char counting[] = "list %s_root is procedure { items { \"%s\" }; }\n"
			       "constraint %s_inside /SyncObject/Graph/* is counter {\n"
			       "	foreach f in %s_root {\n"
			       "		append preInsn f.entry (* %s_inside++; *)\n"
			       "		prepend preInsn f.return (* %s_inside--; *)\n"
			       "	}\n"
			       "}\n"
			       "metric %s {\n"
			       "	units calls;\n"
			       "	constraint %s_inside;\n"
			       "	constraint %s_function /Code/*/* is replace counter {\n"
			       "		append preInsn $constraint[0].entry (* %s++; *)\n"
			       "	}\n"
			       "	base is counter { }\n"
			       "}\n";

static int load_counting(struct graph *g, struct dinst_error *e)
{
	const char *n = g->calls;
	char *text = NULL;
	int err;

	if (asprintf(&text, counting, n, g->functions[0].address, n, n, n, n, n, n, n, n) < 0)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	err = question_load(&g->q, "graph", text, e);
	free(text);
	return err;
}

/* ------------------------------------------------------------- counters */

int graph_root_calls(struct graph *g, uint64_t *calls, struct dinst_error *e)
{
	json_t *ids = json_pack("[I]", g->functions[0].id), *rows = NULL;
	int err = question_read(&g->q, ids, &rows, e);

	if (!err)
		*calls = (uint64_t)json_integer_value(
			json_object_get(json_array_get(rows, 0), "value"));
	json_decref(ids);
	json_decref(rows);
	return err;
}

/* Counters for functions [first, g->count). */
static int insert_counters(struct graph *g, size_t first, struct dinst_error *e)
{
	json_t *foci = json_array(), *answer = NULL, *row;
	uint64_t root = 0;
	size_t index, at = first;
	int err = first ? graph_root_calls(g, &root, e) : 0;

	for (size_t i = first; i < g->count; i++)
		json_array_append_new(foci, json_string(g->functions[i].address));
	json_array_append_new(foci, json_string("/SyncObject/Graph/0x1"));
	if (!err && first < g->count)
		err = question_insert(&g->q, g->calls, foci, true, 0, &answer, e);
	/* one row for each focus, in their order */
	json_array_foreach(json_object_get(answer, "rows"), index, row)
	{
		if (at >= g->count)
			break;
		if (json_integer_value(json_object_get(row, "points")) > 0) {
			g->functions[at].id = json_integer_value(json_object_get(row, "id"));
			g->functions[at].usable = true;
		}
		g->functions[at++].root_before = root;
	}
	if (!err)
		graph_note_stop(g, answer);
	json_decref(answer);
	json_decref(foci);
	return err;
}

/* Reads all counters. */
static int read_counters(struct graph *g, struct dinst_error *e)
{
	json_t *ids = json_array(), *rows = NULL, *row;
	size_t index, at = 0;
	int err;

	for (size_t i = 0; i < g->count; i++)
		if (g->functions[i].id)
			json_array_append_new(ids, json_integer(g->functions[i].id));
	err = json_array_size(ids) ? question_read(&g->q, ids, &rows, e) : 0;
	json_array_foreach(rows, index, row)
	{
		const json_int_t id = json_integer_value(json_object_get(row, "id"));

		/* rows come in the order of the ids */
		while (at < g->count && g->functions[at].id != id)
			at++;
		if (at < g->count)
			g->functions[at].calls =
				(uint64_t)json_integer_value(json_object_get(row, "value"));
	}
	for (size_t i = 1; i < g->count; i++) {
		struct graph_function *f = &g->functions[i];
		const double seen = (double)g->functions[0].calls - (double)f->root_before;

		if (f->id)
			f->per_call = seen > 0 ? (double)f->calls / seen : 0;
	}
	json_decref(ids);
	json_decref(rows);
	return err;
}

/* Takes the counters of functions out for which `out` says so. */
static int remove_counters(struct graph *g, bool (*out)(const struct graph_function *),
			   struct dinst_error *e)
{
	json_t *ids = json_array();
	int err;

	for (size_t i = 1; i < g->count; i++) {
		struct graph_function *f = &g->functions[i];

		if (!f->id || !out(f))
			continue;
		json_array_append_new(ids, json_integer(f->id));
		f->id = 0;
	}
	err = json_array_size(ids) ? question_remove(&g->q, ids, e) : 0;
	json_decref(ids);
	return err;
}

/* Until the root was called often enough, or long enough. */
static int step(struct graph *g, unsigned most_ms, struct dinst_error *e)
{
	uint64_t before = 0, now = 0;
	unsigned ms = 0;
	int err = graph_root_calls(g, &before, e);

	now = before;
	while (!err && ms < most_ms && (ms < STEP_LEAST_MS || now < before + STEP_CALLS) &&
	       question_wait(&g->q, LOOK_MS)) {
		ms += LOOK_MS;
		err = graph_root_calls(g, &now, e);
		question_progress(&g->q,
				  "%s: %llu calls; looking for what it calls: %zu function%s",
				  g->functions[0].name, (unsigned long long)now, g->count,
				  g->count == 1 ? "" : "s");
	}
	return err;
}

/* --------------------------------------------------------------- callees */

static bool is_called(const struct graph *g, const struct graph_function *f)
{
	return f == g->functions || f->calls || (g->blind && f->usable);
}

static int take_callees(struct graph *g, size_t caller, json_t *row, struct dinst_error *e)
{
	json_t *callees = json_object_get(row, "callees"), *callee;
	size_t index, *indices = calloc(json_array_size(callees) + 1, sizeof(*indices));
	struct graph_function *f;
	int err = indices ? 0 : dinst_fail(e, DINST_NO_MEMORY, "out of memory");

	free(g->functions[caller].callees);
	g->functions[caller].callees = indices;
	g->functions[caller].callee_count = 0;
	g->functions[caller].unknown = (size_t)json_integer_value(json_object_get(row, "unknown"));
	json_array_foreach(callees, index, callee)
	{
		const char *address = json_string_value(json_object_get(callee, "address"));
		size_t at;

		if (err || !address)
			break;
		at = graph_at(g, address);
		/* it would have been seen if it were called */
		if (at == g->count &&
		    graph_covers(g, json_string_value(json_object_get(callee, "module"))))
			continue;
		if (at == g->count && g->count >= (g->blind ? BLIND_MOST : GRAPH_FUNCTIONS)) {
			g->too_many = true;
			continue;
		}
		if (at == g->count)
			err = graph_add(g, json_string_value(json_object_get(callee, "function")),
					json_string_value(json_object_get(callee, "module")),
					address, &at, e);
		f = &g->functions[caller];
		if (!err)
			f->callees[f->callee_count++] = at;
	}
	return err;
}

/* Asks for the callees of all that are called and not too deep; true in *asked if there were any. */
static int ask_callees(struct graph *g, bool *asked, struct dinst_error *e)
{
	const size_t count = g->count;
	json_t *params, *answer = NULL, *names = json_array(), *row;
	size_t *who = calloc(count, sizeof(*who)), asking = 0, index;
	int err = who ? 0 : dinst_fail(e, DINST_NO_MEMORY, "out of memory");

	for (size_t i = 0; !err && i < count; i++) {
		struct graph_function *f = &g->functions[i];

		if (f->asked || f->level >= g->depth || !is_called(g, f))
			continue;
		f->asked = true;
		who[asking++] = i;
		json_array_append_new(names, json_string(f->address));
	}
	*asked = asking > 0;
	params = json_pack("{s:O}", "functions", names);
	if (!err && asking)
		err = question_call(&g->q, "callees", params, &answer, e);
	json_array_foreach(json_object_get(answer, "rows"), index, row)
	{
		if (!err && index < asking)
			err = take_callees(g, who[index], row, e);
	}
	json_decref(params);
	json_decref(answer);
	json_decref(names);
	free(who);
	return err;
}

/* ---------------------------------------------------------------- levels */

/* One more than the caller nearest to the root, until nothing changes. */
static void spread_levels(struct graph *g)
{
	for (bool changed = true; changed;) {
		changed = false;
		for (size_t i = 0; i < g->count; i++) {
			const struct graph_function *f = &g->functions[i];

			if (f->level == UINT32_MAX || !is_called(g, f))
				continue;
			for (size_t k = 0; k < f->callee_count; k++) {
				struct graph_function *callee = &g->functions[f->callees[k]];

				if (callee->level <= f->level + 1)
					continue;
				callee->level = f->level + 1;
				changed = true;
			}
		}
	}
}

/* The lowest level on which something is called through a pointer; UINT32_MAX: on none. */
static unsigned nearest_unknown(const struct graph *g)
{
	unsigned nearest = UINT32_MAX;

	for (size_t i = 0; i < g->count; i++)
		if (g->functions[i].unknown && is_called(g, &g->functions[i]) &&
		    g->functions[i].level < nearest)
			nearest = g->functions[i].level;
	return nearest;
}

/* Those that are called, but by nobody as far as is known, or (`any`) by nobody with a level. */
static void place_unreached(struct graph *g, unsigned level, bool any)
{
	bool *has_caller = calloc(g->count, sizeof(*has_caller));

	for (size_t i = 0; has_caller && i < g->count && !any; i++)
		for (size_t k = 0; k < g->functions[i].callee_count; k++)
			if (is_called(g, &g->functions[i]) && g->functions[i].callees[k] != i)
				has_caller[g->functions[i].callees[k]] = true;
	for (size_t i = 1; has_caller && i < g->count; i++)
		if (g->functions[i].level == UINT32_MAX && is_called(g, &g->functions[i]) &&
		    !has_caller[i])
			g->functions[i].level = level;
	free(has_caller);
}

/*
 * What no known call leads to was called through a pointer: it is taken to be one level below what
 * is nearest to the root and makes such calls.
 */
static void find_levels(struct graph *g)
{
	unsigned nearest;

	for (size_t i = 1; i < g->count; i++)
		g->functions[i].level = UINT32_MAX;
	spread_levels(g);
	nearest = nearest_unknown(g);
	if (nearest == UINT32_MAX)
		return;
	place_unreached(g, nearest + 1, false);
	spread_levels(g);
	place_unreached(g, nearest + 1, true);
	spread_levels(g);
}

/* ----------------------------------------------------------------- budget */

/* The one that is called most, of those that nothing is known to be called by; the root never. */
static struct graph_function *hottest(struct graph *g)
{
	struct graph_function *best = NULL;

	for (int leaves = 1; leaves >= 0 && !best; leaves--)
		for (size_t i = 1; i < g->count; i++) {
			struct graph_function *f = &g->functions[i];
			bool leaf = !f->unknown;

			for (size_t k = 0; k < f->callee_count && leaf && leaves; k++)
				leaf = !g->functions[f->callees[k]].follows;
			if (f->follows && (leaf || !leaves) &&
			    (!best || f->per_call > best->per_call))
				best = f;
		}
	return best;
}

/* Which functions are followed, and how many of the root's calls. */
static void choose(struct graph *g)
{
	const double rate = (double)g->functions[0].calls / (g->find_seconds + 1e-9);
	struct graph_function *hot;

	g->visits = 0;
	g->functions[0].per_call = 1;
	for (size_t i = 0; i < g->count; i++) {
		struct graph_function *f = &g->functions[i];

		f->follows = i == 0 || (f->usable && f->level <= g->depth && is_called(g, f));
		if (f->follows)
			g->visits += 2 * f->per_call;
	}
	for (g->every = 1; rate * g->visits / g->every > g->budget;) {
		const unsigned next = graph_sparser(g->every);

		if (next == g->every || rate / next < FOLLOWED_LEAST)
			break;
		g->every = next;
	}
	while (rate * g->visits / g->every > g->budget && (hot = hottest(g)) != NULL) {
		hot->follows = false;
		hot->hot = true;
		g->visits -= 2 * hot->per_call;
	}
}

static bool is_not_needed(const struct graph_function *f)
{
	return f->calls > 0 || f->follows;
}

/* ------------------------------------------------------------------- all */

static int first_call(struct graph *g, struct dinst_error *e)
{
	int err = load_counting(g, e);

	if (!err)
		err = insert_counters(g, 0, e);
	if (!err && !g->functions[0].id)
		err = dinst_fail(e, DINST_REFUSED,
				 "%s cannot be instrumented: `dinst points -v %s` says why",
				 g->functions[0].name, g->functions[0].name);
	for (int i = 0; !err && i * STEP_MOST_MS < FIRST_MS && !g->functions[0].calls; i++) {
		err = step(g, STEP_MOST_MS, e);
		if (!err)
			err = read_counters(g, e);
	}
	g->blind = g->functions[0].calls == 0;
	return err;
}

int graph_find(struct graph *g, struct dinst_error *e)
{
	bool asked = true;
	json_t *answer = NULL;
	int err = first_call(g, e);

	if (!err && !g->blind && g->depth && question_going(&g->q))
		err = graph_entered(g, e);
	while (!err && asked && question_going(&g->q)) {
		const size_t first = g->count;

		err = ask_callees(g, &asked, e);
		if (!err && g->count > first)
			err = insert_counters(g, first, e);
		if (!err && g->count > first && !g->blind)
			err = step(g, STEP_MOST_MS, e);
		if (!err)
			err = read_counters(g, e);
		find_levels(g);
	}
	if (!err)
		err = read_counters(g, e);
	g->find_seconds = question_seconds(&g->q);
	choose(g);
	if (!err)
		err = remove_counters(g, is_not_needed, e);
	/* what is taken out is freed now, so that no stop for it falls into what is counted */
	if (!err)
		err = question_call(&g->q, "flush", NULL, &answer, e);
	g->stop_us += (uint64_t)json_integer_value(json_object_get(answer, "stop_us"));
	json_decref(answer);
	return err;
}
