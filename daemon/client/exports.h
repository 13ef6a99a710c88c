/* SPDX-License-Identifier: MIT */
/*
 * exports.h - the options that write call trees to files for other programs, for all
 * commands that have them: --flame --chrome --perfetto --folded --callgrind --pprof.
 *
 * Calling sequence:
 *   1. EXPORT_OPTIONS in the command's table of options
 *   2. exports_begin() before anything is inserted: files that cannot be written are told at once
 *   3. exports_event() for each event; call_tree_lost(x.tree) where some were dropped
 *   4. exports_thread() for each thread; exports_end(), which writes all files and says so
 *   5. x.tree may be looked at; exports_release()
 */
#ifndef DINST_DAEMON_EXPORTS_H
#define DINST_DAEMON_EXPORTS_H

#include "daemon/client/command.h"
#include "daemon/client/result_file.h"
#include "daemon/report/chrome.h"
#include "daemon/report/tree.h"

/* Letters of options that have no short form; those of options.h end before them. */
enum {
	OPTION_FLAME = 20,
	OPTION_CHROME,
	OPTION_PERFETTO,
	OPTION_FOLDED,
	OPTION_CALLGRIND,
	OPTION_PPROF,
	OPTION_BUDGET
};

#define EXPORT_OPTIONS                                                                             \
	{OPTION_FLAME, "flame", "FILE", "a flame graph for a browser (SVG: click, search)"},       \
		{OPTION_CHROME, "chrome", "FILE", "all calls over time, for chrome://tracing"},    \
		{OPTION_PERFETTO, "perfetto", "FILE", "the same, for ui.perfetto.dev"},            \
		{OPTION_FOLDED, "folded", "FILE", "folded stacks, for flamegraph.pl, speedscope"}, \
		{OPTION_CALLGRIND, "callgrind", "FILE", "for KCachegrind, callgrind_annotate"},    \
	{                                                                                          \
		OPTION_PPROF, "pprof", "FILE", "for go tool pprof"                                 \
	}

enum { EXPORT_KINDS = 6 };

/* What was measured, for the files' heads. */
struct export_facts {
	const char *title;    /* "processCommand in redis-server" */
	const char *subtitle; /* how long, how much; may be NULL */
	const char *process;  /* name of process `pid`; may be NULL */
	uint32_t pid;
	uint64_t realtime_ns; /* when it began, CLOCK_REALTIME */
	uint64_t duration_ns;
};

struct exports {
	struct call_tree *tree;
	struct {
		FILE *file; /* NULL: not wanted */
		struct result_file result;
	} out[EXPORT_KINDS];
	struct chrome chrome[2];
	bool begun; /* an event has come */
};

/* True if one of the options was given. */
bool exports_wanted(const struct arguments *a);
/* Opens the files. Returns 0 or a negative code with *e filled and nothing left behind. */
int exports_begin(struct exports *x, const struct arguments *a, struct dinst_error *e);
/* Puts an event into the tree, and into what is written along. Returns 0 or DINST_NO_MEMORY. */
int exports_event(struct exports *x, const struct event *event);
void exports_thread(struct exports *x, uint32_t pid, uint32_t tid, const char *name);
/*
 * Ends the tree at `now_ns` (CLOCK_MONOTONIC) and writes the files; a note for each. Returns EXIT_DONE, or
 * EXIT_FAILED, reported.
 */
int exports_end(struct exports *x, struct context *c, const struct export_facts *facts,
		uint64_t now_ns);
/* What of the calls is not in the tree, and whose times are not what others' are. */
void note_tree(struct context *c, const struct call_tree *t);

/*
 * Leaves the tree with the daemon, for its page (docs/protocol.md, `recording`). Nothing depends on it, so
 * failures are not told. Within the session, after exports_end().
 */
void exports_recording(struct exports *x, struct context *c, const char *title);
/* Closes what is open: a file that was not written stays empty. */
void exports_release(struct exports *x);

#endif
