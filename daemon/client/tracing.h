/* SPDX-License-Identifier: MIT */
/*
 * tracing.h - what `trace` and `record` have in common: the question, the events that come, and
 * what is said at the end.
 *
 * Calling sequence:
 *   1. struct tracing t = {.q.own_output = ...};
 *   2. tracing_begin(), which inserts; where it returns something else than EXIT_DONE or EXIT_PARTIAL, that
 *      is the command's status, and it is over
 *   3. tracing_run(): events until the question is over; then takes everything out, and what is
 *      still in the rings
 *   4. tracing_end()
 */
#ifndef DINST_DAEMON_TRACING_H
#define DINST_DAEMON_TRACING_H

#include "daemon/client/question.h"
#include "daemon/report/event.h"

/* Letters of options that have no short form; others' end before them. */
enum { OPTION_IF = 26, OPTION_CALLER, OPTION_LIBRARIES, OPTION_STRING, OPTION_STACK };

/* What both commands ask. */
#define TRACING_OPTIONS                                                                            \
	{'a', "args", NULL, "arguments: named and typed where there is debug information"},        \
		{'r', "return", NULL, "what calls return"},                                        \
		{OPTION_IF, "if", "EXPR", "calls for which it holds: 'n > 3', '$elapsed > 1000'"}, \
		{'t', "min-time", "TIME", "calls that took at least so long: 10us, 5ms, 1s"},      \
		{'D', "depth", "N", "also what its code calls, N levels (not by pointers)"},       \
		{OPTION_LIBRARIES, "libs", NULL, "with --depth: also those of other modules"},     \
		{OPTION_CALLER, "caller", NULL, "where calls come from"},                          \
		{OPTION_STRING, "string", "BYTES", "of a string (default 64, at most 256)"},       \
		{OPTION_STACK, "stack", "[=N]", "the N calls around it (default 16, at most 64)"}, \
	{                                                                                          \
		OPTION_LIMIT, "limit", "PERCENT", "end it where it takes more than that of a CPU"  \
	}

struct tracing {
	struct question q;
	struct event_log log;
	bool at_return; /* one event a call, when it is over */
	json_t *ids;
	json_t *rows; /* of the answer of `trace`, with the kinds of events */
	size_t functions, points;
	char **words;		      /* what was asked for */
	int partial;		      /* EXIT_PARTIAL where something was refused, else EXIT_DONE */
	double cost_percent, cost_ns; /* of a CPU; of an event. Predicted; negative: not known */
	uint64_t all;		      /* events that there were when it ended, dropped ones too */
	uint64_t left;		      /* of them nobody has taken */
	unsigned patience_ms;	      /* how long those are taken at the end; 0: half a second */
};

int tracing_begin(struct tracing *t, struct context *c, const struct arguments *a);

struct tracing_calls {
	event_each *event; /* anything but 0 ends it all, and leaves what is in the rings */
	/* After each answer, with the time up to which everything has come; 0: write what is held back. */
	void (*idle)(void *arg, uint64_t ns);
	void *arg;
};

/* Returns an exit status; what failed was reported. */
int tracing_run(struct tracing *t, const struct tracing_calls *calls);

/* Says how many events there were and what they cost, `what` ("events shown") of them. */
void tracing_tell(struct tracing *t, const char *what, uint64_t count);
int tracing_end(struct tracing *t, int status);

/* ns of "10us", "5ms", "1.5s", "800ns"; false if it is none. */
bool tracing_time(const char *text, uint64_t *ns);

#endif
