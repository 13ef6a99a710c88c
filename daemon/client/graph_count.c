/* SPDX-License-Identifier: MIT */
/*
 * graph_count.c - events of entries and returns below the root, from the target to the tree.
 *
 * Owns the pace of taking events, and what is done where there are more than were meant: fewer
 * calls of the root are followed then.
 */
#include "daemon/client/graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAUSE_MS = 20, TAKE_BYTES = 4 << 20, LOOK_SECONDS = 1, TOO_MUCH = 3 };

static const uint64_t TAKE_NS = 500000000, LAST_NS = 3000000000u;
static const double LOSS_MOST = 0.01; /* of the events */

/*
 * The count of calls also tells one call that is followed from the next, where events between them
 * were lost.
 */
static int load_events(struct graph *g, struct dinst_error *e)
{
	const char *between = "";
	char records[2 * GRAPH_NAME + 160], *items = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&items, &size);
	int err;

	if (!out)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (size_t i = 0; i < g->count; i++) {
		if (!g->functions[i].follows)
			continue;
		fprintf(out, "%s\"%s\"", between, g->functions[i].address);
		between = ", ";
	}
	snprintf(records, sizeof(records),
		 "append preInsn f.entry (* if (inside > 0) record(%s, $stack, calls); *) "
		 "prepend preInsn f.return (* if (inside > 0) record(%s, $stack, calls); *)",
		 g->events, g->events);
	if (fclose(out) != 0)
		err = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	else
		err = graph_load(g, g->events, g->every, items, records, e);
	free(items);
	return err;
}

/* The tree begins at the root. */
static int begin_tree(struct graph *g, struct dinst_error *e)
{
	for (size_t i = 0; i < g->log->kind_count; i++) {
		const struct event_kind *kind = g->log->kinds[i];

		if (kind->what != EVENT_ENTRY || kind->address != g->functions[0].at)
			continue;
		if (call_tree_only(g->exports.tree, kind->function, kind->module) != 0 ||
		    call_tree_run(g->exports.tree, "calls") != 0)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		return 0;
	}
	return dinst_fail(e, DINST_REFUSED, "the entry of %s cannot be followed",
			  g->functions[0].name);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/*
 * *ids: the instance, for `events` and to remove it. Counting begins when all is in and the target
 * runs: calls that have begun by then are not followed.
 */
static int insert_events(struct graph *g, json_t **ids, struct dinst_error *e)
{
	json_t *answer = NULL, *row;
	int err = load_events(g, e);

	*ids = NULL;
	if (!err)
		err = question_insert(&g->q, g->events, NULL, false, 0, &answer, e);
	row = json_array_get(json_object_get(answer, "rows"), 0);
	if (!err)
		err = event_log_kinds(g->log, json_object_get(answer, "rows"), e);
	if (!err)
		err = begin_tree(g, e);
	if (!err) {
		*ids = json_pack("[O]", json_object_get(row, "id"));
		g->predicted_ns = json_number_value(json_object_get(row, "predicted_ns"));
		graph_note_stop(g, answer);
	}
	g->begun_ns = now_ns();
	g->ended_ns = UINT64_MAX;
	json_decref(answer);
	return err;
}

static int each_event(void *arg, const struct event *event)
{
	struct graph *g = arg;

	/* calls that a stop of ours fell into would be told with the time of the stop */
	if (event->ns < g->begun_ns || event->ns > g->ended_ns)
		return 0;
	g->events_seen++;
	g->last_ns = event->ns;
	return exports_event(&g->exports, event);
}

/* Kinds of modules that have been loaded meanwhile come along. */
static int learn_kinds(struct graph *g, json_t *answer, struct dinst_error *e)
{
	json_t *kinds = json_object_get(answer, "kinds"), *rows;
	int err;

	if (!json_array_size(kinds))
		return 0;
	rows = json_pack("[{s:O}]", "events", kinds);
	err = event_log_kinds(g->log, rows, e);
	json_decref(rows);
	return err;
}

/* What was dropped was dropped before, between or far behind the events that come with this answer. */
static void note_dropped(struct graph *g, json_t *answer)
{
	const uint64_t now = (uint64_t)json_integer_value(json_object_get(answer, "dropped"));

	/* in a session of others, streams before this one may have lost some */
	if (!g->taken && !g->q.attached)
		g->lost_before = g->log->dropped = now;
	g->taken = true;
	if (now > g->log->dropped)
		call_tree_doubt(g->exports.tree, g->log->now_ns,
				(uint64_t)json_integer_value(json_object_get(answer, "now_ns")));
}

/* What is there now, for at most so long: where more comes than can be taken, it never ends. */
static int take(struct graph *g, json_t *ids, uint64_t most_ns, struct dinst_error *e)
{
	const uint64_t until = now_ns() + most_ns;
	json_t *params = json_pack("{s:O,s:i}", "ids", ids, "max_bytes", TAKE_BYTES);
	int err = 0;

	do {
		json_t *answer = NULL;

		err = question_call(&g->q, "events", params, &answer, e);
		if (!err)
			err = learn_kinds(g, answer, e);
		if (!err) {
			note_dropped(g, answer);
			err = event_log_add(g->log, answer, each_event, g, e);
		}
		json_decref(answer);
	} while (!err && g->log->more && now_ns() < until);
	json_decref(params);
	return err == DINST_NO_MEMORY ? dinst_fail(e, err, "out of memory") : err;
}

static int stop_events(struct graph *g, json_t *ids, struct dinst_error *e)
{
	struct dinst_error why = {0, ""};
	int err = question_remove(&g->q, ids, &why);

	/* what was written until then is still there, also where the target has ended */
	if (err && err != DINST_GONE)
		return dinst_fail_text(e, err, why.text);
	err = take(g, ids, LAST_NS, e);
	/* what could not be looked at any more was not counted */
	if (!err && g->log->more && g->last_ns < g->ended_ns)
		g->ended_ns = g->last_ns;
	return err;
}

/* The program has more to do than when it was looked at: so many times fewer calls are followed. */
static int slow_down(struct graph *g, json_t **ids, double times, struct dinst_error *e)
{
	int err;

	g->ended_ns = now_ns();
	err = stop_events(g, *ids, e);
	g->counted_ns += g->ended_ns > g->begun_ns ? g->ended_ns - g->begun_ns : 0;
	for (const unsigned before = g->every;
	     g->every < before * times && graph_sparser(g->every) != g->every;)
		g->every = graph_sparser(g->every);
	json_decref(*ids);
	*ids = NULL;
	call_tree_lost(g->exports.tree);
	if (!err)
		err = insert_events(g, ids, e);
	return err;
}

static int follow(struct graph *g, json_t **ids, struct dinst_error *e)
{
	uint64_t since = now_ns(), seen = 0, dropped = g->log->dropped;
	int err = 0;

	while (!err && question_wait(&g->q, PAUSE_MS)) {
		const double seconds = (double)(now_ns() - since) / 1e9;
		double rate;

		err = take(g, *ids, TAKE_NS, e);
		if (err || seconds < LOOK_SECONDS)
			continue;
		rate = (double)(g->log->events + g->log->dropped - seen) / seconds;
		seen = g->log->events + g->log->dropped;
		since = now_ns();
		question_progress(&g->q, "%s: %.0f s, %" PRIu64 " events, %.0f a second",
				  g->functions[0].name, (double)(since - g->first_ns) / 1e9,
				  g->log->events, rate);
		/* too many, or more than can be taken: on a busy machine that may be few */
		if (rate > TOO_MUCH * g->budget)
			err = slow_down(g, ids, rate / g->budget, e);
		else if ((double)(g->log->dropped - dropped) > rate * seconds * LOSS_MOST)
			err = slow_down(g, ids, 2, e);
		dropped = g->log->dropped;
	}
	return err;
}

int graph_count(struct graph *g, struct dinst_error *e)
{
	struct dinst_error ignored = {0, ""};
	uint64_t before = 0, after = 0;
	json_t *ids = NULL;
	int err = insert_events(g, &ids, e);

	g->first_ns = g->begun_ns;
	if (!err)
		err = graph_root_calls(g, &before, e);
	/* from here on, however long it took until all was in */
	if (g->seconds > 0)
		g->q.duration_s = question_seconds(&g->q) + g->seconds;
	if (!err)
		err = follow(g, &ids, e);
	g->ended_ns = now_ns();
	if (graph_root_calls(g, &after, &ignored) == 0)
		g->root_calls = after - before;
	/* where the target has ended, what it wrote last is there all the same */
	if (ids && (!err || err == DINST_GONE)) {
		dinst_error_clear(e);
		err = stop_events(g, ids, e);
	}
	g->counted_ns += g->ended_ns > g->begun_ns ? g->ended_ns - g->begun_ns : 0;
	json_decref(ids);
	return err;
}
