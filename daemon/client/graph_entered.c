/* SPDX-License-Identifier: MIT */
/*
 * graph_entered.c - which functions are entered below the root, in whatever way: by calls that code
 * shows, through pointers and tables, by callbacks of other modules.
 *
 * For a moment all functions of all modules that are not too large record that they are entered, in a few
 * calls of the root only. One instance for all: there is one stop for it.
 */
#include "daemon/client/graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	FUNCTIONS_MOST = 12000,
	PAUSE_MS = 20,
	LONGEST_MS = 1000,
	CALLS_ENOUGH = 30,	/* of the root, that were followed */
	CALLS_PER_SECOND = 100, /* of the root, that are followed */
	TAKE_BYTES = 8 << 20,
};

/* How often each kind of event came, in the order of the log's kinds. */
struct tally {
	struct graph *g;
	struct event_log log;
	uint64_t *counts;
	size_t size;
	uint64_t root; /* entries of the root */
};

bool graph_covers(const struct graph *g, const char *module)
{
	json_t *name;
	size_t index;

	json_array_foreach(g->covered, index, name)
	{
		if (module && strcmp(json_string_value(name), module) == 0)
			return true;
	}
	return false;
}

/* The items of the list: the root's module first, then the others, as far as they are not too large. */
static int modules_items(struct graph *g, char **items, struct dinst_error *e)
{
	json_t *answer = NULL, *row;
	size_t size = 0, left = FUNCTIONS_MOST, index;
	FILE *out = open_memstream(items, &size);
	int err = out ? question_call(&g->q, "modules", NULL, &answer, e)
		      : dinst_fail(e, DINST_NO_MEMORY, "out of memory");

	for (int own = 1; own >= 0 && !err; own--) {
		json_array_foreach(json_object_get(answer, "rows"), index, row)
		{
			const char *name = json_string_value(json_object_get(row, "module"));
			const json_int_t functions =
				json_integer_value(json_object_get(row, "functions"));

			if (!name || (strcmp(name, g->functions[0].module) == 0) != own)
				continue;
			/* names that would end the string, or be taken for patterns; [vdso] */
			if (functions <= 0 || (size_t)functions > left ||
			    strpbrk(name, "\"\\*?[\n"))
				continue;
			left -= (size_t)functions;
			fprintf(out, "%s\"%s:*\"", json_array_size(g->covered) ? ", " : "", name);
			json_array_append_new(g->covered, json_string(name));
		}
	}
	json_decref(answer);
	if (out && fclose(out) != 0 && !err)
		err = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	return err;
}

static int load(struct graph *g, const char *items, struct dinst_error *e)
{
	const double seconds = question_seconds(&g->q);
	const double rate = seconds > 0 ? (double)g->functions[0].calls / seconds : 0;
	char records[2 * GRAPH_NAME + 64];
	unsigned every = 1;

	while (rate / every > CALLS_PER_SECOND && graph_sparser(every) != every)
		every = graph_sparser(every);
	snprintf(records, sizeof(records),
		 "append preInsn f.entry (* if (inside > 0) record(%s); *)", g->entries);
	return graph_load(g, g->entries, every, items, records, e);
}

static int each_event(void *arg, const struct event *event)
{
	struct tally *t = arg;
	size_t lo = 0, hi = t->size;

	/* the log's kinds are sorted by id */
	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if (t->log.kinds[mid]->id < event->kind->id)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < t->size && t->log.kinds[lo] == event->kind)
		t->counts[lo]++;
	t->root += event->kind->address == t->g->functions[0].at;
	return 0;
}

static int take(struct tally *t, json_t *ids, struct dinst_error *e)
{
	json_t *params = json_pack("{s:O,s:i}", "ids", ids, "max_bytes", TAKE_BYTES);
	int err;

	do {
		json_t *answer = NULL;

		err = question_call(&t->g->q, "events", params, &answer, e);
		if (!err)
			err = event_log_add(&t->log, answer, each_event, t, e);
		json_decref(answer);
	} while (!err && t->log.more && t->root < CALLS_ENOUGH);
	json_decref(params);
	return err;
}

/* Functions that were entered and are not known yet. */
static int add_found(struct tally *t, struct dinst_error *e)
{
	struct graph *g = t->g;
	char address[24];
	size_t at;
	int err = 0;

	for (size_t i = 0; i < t->size && !err; i++) {
		const struct event_kind *kind = t->log.kinds[i];

		if (!t->counts[i] || kind->what != EVENT_ENTRY)
			continue;
		snprintf(address, sizeof(address), "0x%" PRIx64, kind->address);
		if (graph_at(g, address) < g->count)
			continue;
		if (g->count >= GRAPH_FUNCTIONS) {
			g->too_many = true;
			continue;
		}
		err = graph_add(g, kind->function, kind->module, address, &at, e);
		if (err)
			continue;
		g->functions[at].usable = true;
		g->functions[at].calls = t->counts[i];
		g->functions[at].per_call = (double)t->counts[i] / (t->root ? (double)t->root : 1);
	}
	return err;
}

static int look(struct tally *t, json_t *answer, struct dinst_error *e)
{
	json_t *rows = json_object_get(answer, "rows");
	json_t *ids = json_pack("[O]", json_object_get(json_array_get(rows, 0), "id"));
	int err = event_log_kinds(&t->log, rows, e);

	t->size = t->log.kind_count;
	t->counts = calloc(t->size + 1, sizeof(*t->counts));
	if (!err && !t->counts)
		err = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (unsigned ms = 0;
	     !err && ms < LONGEST_MS && t->root < CALLS_ENOUGH && question_wait(&t->g->q, PAUSE_MS);
	     ms += PAUSE_MS)
		err = take(t, ids, e);
	if (!err)
		err = question_remove(&t->g->q, ids, e);
	json_decref(ids);
	return err;
}

int graph_entered(struct graph *g, struct dinst_error *e)
{
	struct tally t = {.g = g};
	json_t *answer = NULL;
	char *items = NULL;
	int err;

	g->covered = json_array();
	err = modules_items(g, &items, e);

	event_log_init(&t.log);
	question_progress(&g->q, "%s: looking for what it calls", g->functions[0].name);
	if (!err && items && items[0]) {
		err = load(g, items, e);
		if (!err)
			err = question_insert(&g->q, g->entries, NULL, false, 0, &answer, e);
		if (!err)
			graph_note_stop(g, answer);
		if (!err)
			err = look(&t, answer, e);
		/* what was lost here is not lost to what is counted later */
		g->lost_before = g->log->dropped = t.log.dropped;
		if (!err)
			err = add_found(&t, e);
	}
	json_decref(answer);
	event_log_release(&t.log);
	free(t.counts);
	free(items);
	return err;
}
