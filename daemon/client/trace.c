/* SPDX-License-Identifier: MIT */
/*
 * trace.c - dinst trace: calls as they happen, a line each.
 *
 * Owns what is written and when: lines go out with every answer, so that they flow into a
 * terminal and a pipe alike.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/tracing.h"
#include "daemon/report/text.h"

enum { HELD_NS = 200 * 1000 * 1000 }; /* an open call gets its line after this */

const struct option_spec trace_options[] = {
	TRACING_OPTIONS,
	{'c', "count", "N", "end after N lines"},
	QUESTION_OPTIONS,
	{0, NULL, NULL, NULL},
};

struct tracer {
	struct tracing t;
	struct trace trace;
	struct text out;
	unsigned long long most; /* lines; 0: as many as come */
};

static bool is_full(const struct tracer *tr)
{
	return tr->most && tr->trace.lines >= tr->most;
}

/* One event may be worth two lines, with stacks: what is one too many is taken back. */
static void cut(struct tracer *tr)
{
	size_t end = tr->out.used;

	for (; tr->most && tr->trace.lines > tr->most; tr->trace.lines--) {
		do
			for (end -= end > 0; end && tr->out.data[end - 1] != '\n';)
				end--;
		while (end && text_is_stack(tr->out.data + end));
		tr->out.used = end;
	}
}

static int on_event(void *arg, const struct event *e)
{
	struct tracer *tr = arg;

	if (!is_full(tr))
		trace_event(&tr->trace, e, &tr->out);
	return is_full(tr);
}

static void on_idle(void *arg, uint64_t ns)
{
	struct tracer *tr = arg;

	if (!is_full(tr))
		trace_flush(&tr->trace,
			    ns == UINT64_MAX ? ns
			    : ns > HELD_NS   ? ns - HELD_NS
					     : 0,
			    &tr->out);
	cut(tr);
	if (!tr->out.used)
		return;
	/* Who reads a pipe and goes away ends the question; nothing else has to be said. */
	output_write(tr->out.data, tr->out.used);
	text_clear(&tr->out);
}

int trace_run(struct context *c, const struct arguments *a)
{
	const char *count = arguments_get(a, 'c'), *no_colour = getenv("NO_COLOR");
	struct tracer tr = {0};
	const struct tracing_calls calls = {on_event, on_idle, &tr};
	int status;

	if (count && (!parse_number(count, 1000000000, &tr.most) || !tr.most))
		return report_text(c, DINST_USAGE, "--count takes a number of lines, not '%s'",
				   count);
	status = tracing_begin(&tr.t, c, a);
	if (status != EXIT_DONE && status != EXIT_PARTIAL)
		return status;
	trace_init(&tr.trace, &tr.t.log);
	tr.trace.json = c->json;
	tr.trace.colour = tr.t.q.terminal && !(no_colour && *no_colour);
	status = tracing_run(&tr.t, &calls);
	if (tr.out.failed)
		status = report_text(c, DINST_NO_MEMORY, "no memory for what is to be shown");
	tracing_tell(&tr.t, c->json ? "events" : "lines", tr.trace.lines);
	trace_release(&tr.trace);
	text_drop(&tr.out);
	return tracing_end(&tr.t, status);
}
