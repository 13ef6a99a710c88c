/* SPDX-License-Identifier: MIT */
/*
 * graph.c - `dinst graph`: the call tree below a function, found and counted while the program runs.
 */
#include "daemon/client/graph.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/proc.h"

enum { DURATION_S = 10, DEPTH_MOST = 64, NAMES_TOLD = 5 };

/* Events per second that are worth 1 or 2 % of a processor. */
static const double budget_usual = 200000;

/* -------------------------------------------------------------- functions */

size_t graph_at(const struct graph *g, const char *address)
{
	const uint64_t at = strtoull(address, NULL, 16);
	size_t i = 0;

	while (i < g->count && g->functions[i].at != at)
		i++;
	return i;
}

int graph_add(struct graph *g, const char *name, const char *module, const char *address,
	      size_t *index, struct dinst_error *e)
{
	struct graph_function *f;

	if (g->count == g->room) {
		const size_t room = g->room ? g->room * 2 : 64;
		void *more = reallocarray(g->functions, room, sizeof(*g->functions));

		if (!more)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		g->functions = more;
		g->room = room;
	}
	f = &g->functions[g->count];
	*f = (struct graph_function){.name = strdup(name ? name : "?"),
				     .module = strdup(module ? module : "?"),
				     .at = strtoull(address, NULL, 16),
				     .level = g->count ? UINT32_MAX : 0};
	snprintf(f->address, sizeof(f->address), "%s", address);
	if (!f->name || !f->module) {
		free(f->name);
		free(f->module);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	}
	*index = g->count++;
	return 0;
}

unsigned graph_sparser(unsigned every)
{
	/* primes, each about twice the one before */
	static const unsigned numbers[] = {1,	3,    7,    13,	  31,	61,    127,   251,
					   509, 1021, 2039, 4093, 8191, 16381, 32749, 65521};
	const size_t count = sizeof(numbers) / sizeof(numbers[0]);

	for (size_t i = 0; i < count; i++)
		if (numbers[i] > every)
			return numbers[i];
	return numbers[count - 1];
}

/*
 * Each thread has its own count of calls and its own depth inside of the root: of what is called
 * inside of a call that is followed, everything is.
 */
static const char inside_of_root[] =
	"list %s_root is procedure { items { \"%s\" }; }\n"
	"list %s_all is procedure { items { %s }; }\n"
	"metric %s {\n"
	"	units events;\n"
	"	counter calls;\n"
	"	counter inside;\n"
	"	base is stream {\n"
	"		foreach f in %s_root {\n"
	"			append preInsn f.entry (* if (inside > 0 || calls++ %% %u == 0) inside++; *)\n"
	"			prepend preInsn f.return (* if (inside > 0) inside--; *)\n"
	"		}\n"
	"		foreach f in %s_all { %s }\n"
	"	}\n"
	"}\n";

int graph_load(struct graph *g, const char *name, unsigned every, const char *items,
	       const char *records, struct dinst_error *e)
{
	char *text = NULL;
	int err;

	if (asprintf(&text, inside_of_root, name, g->functions[0].address, name, items, name, name,
		     every, name, records) < 0)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	err = question_load(&g->q, "graph", text, e);
	free(text);
	return err;
}

static void forget_functions(struct graph *g)
{
	for (size_t i = 0; i < g->count; i++) {
		free(g->functions[i].name);
		free(g->functions[i].module);
		free(g->functions[i].callees);
	}
	free(g->functions);
}

void graph_note_stop(struct graph *g, json_t *answer)
{
	json_t *rows = json_object_get(answer, "rows"), *row;
	json_int_t most = 0, us;
	size_t index;

	/* all rows of a request tell of the same stop */
	json_array_foreach(rows, index, row)
	{
		us = json_integer_value(json_object_get(row, "stop_us"));
		most = us > most ? us : most;
	}
	g->stop_us += (uint64_t)most;
}

/* The one function that is meant. */
static int find_root(struct graph *g, const char *pattern, struct dinst_error *e)
{
	json_t *params = json_pack("{s:o}", "pattern", rpc_text(pattern)), *answer = NULL;
	json_t *rows, *row;
	char names[400] = "";
	size_t used = 0, index;
	int err = question_call(&g->q, "funcs", params, &answer, e);

	rows = json_object_get(answer, "rows");
	json_array_foreach(rows, index, row)
	{
		if (index >= NAMES_TOLD || used + 70 >= sizeof(names))
			break;
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%.24s:%.40s",
					 index ? ", " : "",
					 json_string_value(json_object_get(row, "module")),
					 json_string_value(json_object_get(row, "function")));
	}
	row = json_array_get(rows, 0);
	if (!err && json_array_size(rows) > 1)
		err = dinst_fail(e, DINST_USAGE,
				 "%zu functions match '%.80s': %s%s; give one of them",
				 json_array_size(rows), pattern, names,
				 json_array_size(rows) > NAMES_TOLD ? ", ..." : "");
	else if (!err && !row)
		err = dinst_fail(e, DINST_NO_FUNCTION, "no function matches '%.80s'", pattern);
	else if (!err)
		err = graph_add(g, json_string_value(json_object_get(row, "function")),
				json_string_value(json_object_get(row, "module")),
				json_string_value(json_object_get(row, "address")), &index, e);
	json_decref(params);
	json_decref(answer);
	return err;
}

/* ---------------------------------------------------------------- the end */

/* pid 0: it is not known, but each thread has a directory. */
static bool is_there(uint32_t pid, uint32_t tid)
{
	struct proc_stat stat;
	const int error = proc_thread_stat_read((pid_t)(pid ? pid : tid), (pid_t)tid, &stat);

	/* A main thread that has exited stays listed as long as others live. */
	return error ? error != -ENOENT && error != -ESRCH : !strchr("ZXx", stat.state);
}

static int write_out(struct graph *g)
{
	char title[300], subtitle[300];
	const struct export_facts facts = {.title = title,
					   .subtitle = subtitle,
					   .process = g->functions[0].module,
					   .pid = (uint32_t)g->q.pid,
					   .realtime_ns = g->first_ns + (uint64_t)g->log->epoch_ns,
					   .duration_ns = g->counted_ns};
	int status, shown;

	graph_title(g, title, sizeof(title));
	/* where all have ended it was counted until then */
	if (!g->c->target_ended && process_alive(g->q.pid))
		call_tree_gone(g->exports.tree, is_there);
	/* the tree's counts are known when it has ended */
	call_tree_end(g->exports.tree, g->ended_ns);
	graph_subtitle(g, subtitle, sizeof(subtitle));
	for (size_t i = 0; i < g->log->thread_count; i++)
		exports_thread(&g->exports, g->log->threads[i]->pid, g->log->threads[i]->tid,
			       g->log->threads[i]->name);
	shown = graph_show(g);
	status = exports_end(&g->exports, g->c, &facts, g->ended_ns);
	exports_recording(&g->exports, g->c, title);
	return shown != EXIT_DONE ? shown : status;
}

static int run(struct graph *g, const char *pattern)
{
	struct dinst_error e = {0, ""};
	int err;

	/* -d is the time of counting: what it takes to find out what to count comes before */
	g->seconds = g->q.duration_s;
	g->q.duration_s = 0;
	err = find_root(g, pattern, &e);
	if (!err)
		err = graph_find(g, &e);
	if (!err && g->c->target_ended)
		return report_text(g->c, DINST_GONE, "it ended before anything was counted");
	if (!err && !question_going(&g->q))
		return EXIT_DONE;
	if (!err)
		err = graph_count(g, &e);
	/* the target may have ended by itself: what was counted until then counts */
	if (err && !(err == DINST_GONE && g->log->events))
		return report(g->c, &e);
	return write_out(g);
}

static int read_options(struct graph *g, const struct arguments *a)
{
	const char *depth = arguments_get(a, 'n'), *budget = arguments_get(a, OPTION_BUDGET);
	unsigned long long number = GRAPH_DEPTH;

	if (depth && (!parse_number(depth, DEPTH_MOST, &number)))
		return report_text(g->c, DINST_USAGE,
				   "--depth takes a number of levels up to %d, not '%s'",
				   DEPTH_MOST, depth);
	g->depth = (unsigned)number;
	number = (unsigned long long)budget_usual;
	if (budget && (!parse_number(budget, 100000000, &number) || number < 100))
		return report_text(g->c, DINST_USAGE,
				   "--budget takes events per second, 100 to 100000000, not '%s'",
				   budget);
	g->budget = (double)number;
	return EXIT_DONE;
}

int graph_run(struct context *c, const struct arguments *a)
{
	struct graph g = {.c = c, .every = 1, .q = {.duration_s = DURATION_S}};
	struct event_log log;
	struct dinst_error e = {0, ""};
	int status = read_options(&g, a);

	if (status != EXIT_DONE)
		return status;
	snprintf(g.calls, sizeof(g.calls), "graph_%d_calls", (int)getpid());
	snprintf(g.events, sizeof(g.events), "graph_%d_events", (int)getpid());
	snprintf(g.entries, sizeof(g.entries), "graph_%d_entries", (int)getpid());
	if (exports_begin(&g.exports, a, &e) != 0)
		return report(c, &e);
	event_log_init(&log);
	g.log = &log;
	status = question_begin(&g.q, c, a);
	if (status == EXIT_DONE)
		status = question_end(&g.q, run(&g, a->word[0]));
	forget_functions(&g);
	json_decref(g.covered);
	event_log_release(&log);
	exports_release(&g.exports);
	return status;
}
