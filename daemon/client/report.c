/* SPDX-License-Identifier: MIT */
/*
 * report.c - dinst report: what a recording comes to, its lines, or files of it for other
 * programs. Needs no daemon and no target. What a recording says was made by anybody.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/exports.h"
#include "daemon/client/values.h"
#include "daemon/report/ctf.h"
#include "daemon/report/summary.h"
#include "daemon/report/text.h"

enum { OPTION_TRACE = 26, FUNCTIONS_SHOWN = 40, WRITE_AT = 1 << 16 };

const struct option_spec report_options[] = {
	{OPTION_TRACE, "trace", NULL, "the calls one by one, as dinst trace shows them"},
	{'c', "count", "N", "with --trace: the first N lines; else: N functions (default 40)"},
	{'s', "sort", "calls|total|self|p99|max", "what is largest first (default total)"},
	EXPORT_OPTIONS,
	{0, NULL, NULL, NULL},
};

struct reporter {
	struct context *c;
	struct event_log log;
	struct ctf_facts facts;
	struct summary summary;
	struct trace trace;
	struct text out;
	struct exports exports;
	bool traced, exported;
	unsigned long long most;
	uint64_t dropped; /* as it was told before the event at hand */
	int failed;
};

/* --------------------------------------------------------------------- events */

static void write_lines(struct reporter *r)
{
	if (r->out.used)
		output_write(r->out.data, r->out.used);
	text_clear(&r->out);
}

/* A return may be worth two lines; the number is exact all the same. */
static int trace_one(struct reporter *r, const struct event *e)
{
	const size_t before = r->out.used;
	const uint64_t lines = r->trace.lines;

	trace_event(&r->trace, e, &r->out);
	if (r->most && r->trace.lines > r->most && r->out.data && lines < r->most) {
		const char *end = strchr(r->out.data + before, '\n');

		while (end && text_is_stack(end + 1))
			end = strchr(end + 1, '\n');
		r->out.used = end ? (size_t)(end + 1 - r->out.data) : before;
		r->trace.lines = r->most;
	}
	if (r->out.used > WRITE_AT)
		write_lines(r);
	return r->out.failed || ferror(stdout) || (r->most && r->trace.lines >= r->most);
}

static int on_event(void *arg, const struct event *e)
{
	struct reporter *r = arg;
	const bool lost = r->log.dropped != r->dropped;

	r->dropped = r->log.dropped;
	if (r->traced)
		return trace_one(r, e);
	if (lost)
		summary_lost(&r->summary);
	summary_event(&r->summary, e);
	if (!r->exported)
		return 0;
	if (lost)
		call_tree_lost(r->exports.tree);
	if (exports_event(&r->exports, e))
		r->failed = DINST_NO_MEMORY;
	return r->failed != 0;
}

/* -------------------------------------------------------------------- summary */

static const char *sort_key;

static uint64_t key_of(const struct summary_function *f)
{
	if (!strcmp(sort_key, "calls"))
		return f->calls;
	if (!strcmp(sort_key, "self"))
		return f->self_ns;
	if (!strcmp(sort_key, "p99"))
		return summary_quantile(f, 0.99);
	return !strcmp(sort_key, "max") ? f->max_ns : f->total_ns;
}

static int by_key(const void *a, const void *b)
{
	const uint64_t x = key_of(a), y = key_of(b);

	return x < y   ? 1
	       : x > y ? -1
		       : strcmp(((const struct summary_function *)a)->function,
				((const struct summary_function *)b)->function);
}

static json_t *ns_cell(const struct context *c, bool known, uint64_t ns)
{
	struct text t = {0};
	json_t *cell;

	if (!known)
		return json_null();
	if (c->json)
		return json_integer((json_int_t)ns);
	text_add_duration(&t, ns);
	cell = json_string(t.data ? t.data : "");
	text_drop(&t);
	return cell;
}

static json_t *row_of_function(const struct context *c, const struct summary_function *f)
{
	const bool any = f->timed > 0;

	return json_pack("{s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "function",
			 rpc_text(f->function), "module", rpc_text(f->module), "calls",
			 (json_int_t)f->calls, "total_ns", ns_cell(c, true, f->total_ns), "self_ns",
			 ns_cell(c, f->has_self, f->self_ns), "min_ns",
			 ns_cell(c, any, any ? f->min_ns : 0), "p50_ns",
			 ns_cell(c, any, summary_quantile(f, 0.5)), "p99_ns",
			 ns_cell(c, any, summary_quantile(f, 0.99)), "max_ns",
			 ns_cell(c, any, f->max_ns));
}

static const struct column columns[] = {
	{"calls", "CALLS", COLUMN_NUMBER},  {"total_ns", "TOTAL", COLUMN_NUMBER},
	{"self_ns", "SELF", COLUMN_NUMBER}, {"min_ns", "MIN", COLUMN_NUMBER},
	{"p50_ns", "P50", COLUMN_NUMBER},   {"p99_ns", "P99", COLUMN_NUMBER},
	{"max_ns", "MAX", COLUMN_NUMBER},   {"function", "FUNCTION", COLUMN_TEXT},
	{"module", "MODULE", COLUMN_WIDE},  {NULL, NULL, 0},
};

static void print_head(const struct reporter *r)
{
	const double seconds = (double)(r->facts.last_ns - r->facts.first_ns) / 1e9;
	struct text t = {0};

	text_add_clean(&t, r->facts.process);
	text_addf(&t, "/%" PRIu32 ": %" PRIu64 " events in %.3f s, %" PRIu64 " dropped",
		  r->facts.pid, r->log.events, r->log.events ? seconds : 0, r->log.dropped);
	printf("%s\n\n", t.data ? t.data : "");
	text_drop(&t);
}

static void print_summary(struct reporter *r)
{
	const size_t most = r->most ? r->most : FUNCTIONS_SHOWN;
	const size_t count = r->summary.count;
	json_t *rows = json_array(), *row;
	size_t i;

	if (count)
		qsort(r->summary.functions, count, sizeof(*r->summary.functions), by_key);
	for (i = 0; i < count && (i < most || r->c->json); i++)
		json_array_append_new(rows, row_of_function(r->c, &r->summary.functions[i]));
	if (r->c->json) {
		json_array_foreach(rows, i, row) print_json(row);
	} else {
		print_head(r);
		table_print(columns, rows, r->c->verbose);
		if (count > most)
			printf("... and %zu more functions; -c %zu shows them\n", count - most,
			       count);
	}
	json_decref(rows);
}

/* -------------------------------------------------------------------- command */

static int write_exports(struct reporter *r)
{
	struct call_tree_facts tree;
	char title[400], subtitle[200];
	struct export_facts facts = {
		.title = title,
		.subtitle = subtitle,
		.process = r->facts.process,
		.pid = r->facts.pid,
		.realtime_ns = r->facts.first_ns + (uint64_t)r->log.epoch_ns,
		.duration_ns = r->facts.last_ns - r->facts.first_ns,
	};

	call_tree_facts(r->exports.tree, &tree);
	/* of calls that are told when they are over nobody knows what was called from where */
	if (!tree.nodes && r->log.events)
		return report_text(
			r->c, DINST_UNSUPPORTED,
			"these calls were recorded when they were over (--min-time, or a "
			"condition on $return or $elapsed): there is no tree of them");
	snprintf(title, sizeof(title), "%.120s in %.64s", r->facts.words, r->facts.process);
	snprintf(subtitle, sizeof(subtitle), "%" PRIu64 " events in %.3f s, %" PRIu64 " dropped",
		 r->log.events, (double)facts.duration_ns / 1e9, r->log.dropped);
	for (size_t i = 0; i < r->log.thread_count; i++)
		exports_thread(&r->exports, r->log.threads[i]->pid, r->log.threads[i]->tid,
			       r->log.threads[i]->name);
	return exports_end(&r->exports, r->c, &facts, r->facts.last_ns);
}

static int show(struct reporter *r)
{
	int status = EXIT_DONE;

	if (r->traced) {
		if (!r->most || r->trace.lines < r->most)
			trace_flush(&r->trace, UINT64_MAX, &r->out);
		write_lines(r);
		return r->out.failed ? report_text(r->c, DINST_NO_MEMORY, "out of memory")
				     : EXIT_DONE;
	}
	summary_end(&r->summary, r->facts.last_ns);
	if (r->summary.failed || r->failed)
		return report_text(r->c, DINST_NO_MEMORY, "no memory for the summary");
	if (r->exported)
		status = write_exports(r);
	else
		print_summary(r);
	note_tree(r->c, r->summary.tree);
	return status;
}

static int read_options(struct reporter *r, const struct arguments *a)
{
	static const char *const keys[] = {"calls", "total", "self", "p99", "max", NULL};
	const char *count = arguments_get(a, 'c'), *key = arguments_get(a, 's');
	size_t i = 0;

	sort_key = key ? key : "total";
	while (keys[i] && strcmp(keys[i], sort_key) != 0)
		i++;
	if (!keys[i])
		return report_text(r->c, DINST_USAGE,
				   "--sort takes calls, total, self, p99 or max, not '%s'", key);
	if (count && (!parse_number(count, 1000000000, &r->most) || !r->most))
		return report_text(r->c, DINST_USAGE, "--count takes a number, not '%s'", count);
	r->traced = arguments_get(a, OPTION_TRACE) != NULL;
	r->exported = exports_wanted(a);
	if (r->traced && r->exported)
		return report_text(r->c, DINST_USAGE, "--trace, or files: one of them at a time");
	return EXIT_DONE;
}

int report_run(struct context *c, const struct arguments *a)
{
	const char *no_colour = getenv("NO_COLOR");
	struct reporter r = {.c = c};
	struct dinst_error e = {0, ""};
	int status = read_options(&r, a);

	if (status != EXIT_DONE)
		return status;
	event_log_init(&r.log);
	trace_init(&r.trace, &r.log);
	r.trace.json = c->json;
	r.trace.colour = !c->json && isatty(STDOUT_FILENO) && !(no_colour && *no_colour);
	if (summary_init(&r.summary) || (r.exported && exports_begin(&r.exports, a, &e)))
		status = e.code ? report(c, &e) : report_text(c, DINST_NO_MEMORY, "out of memory");
	else if (ctf_read(a->word[0], &r.log, &r.facts, on_event, &r, &e) < 0)
		status = report(c, &e);
	else
		status = show(&r);
	if (r.facts.cut && !r.traced)
		note(c, "the end of the recording is missing: it was interrupted");
	if (r.log.damaged)
		note(c, "%" PRIu64 " events are damaged", r.log.damaged);
	if (r.exported && r.exports.tree)
		exports_release(&r.exports);
	summary_release(&r.summary);
	trace_release(&r.trace);
	text_drop(&r.out);
	event_log_release(&r.log);
	return flush_output(c, status);
}
