/* SPDX-License-Identifier: MIT */
/*
 * chrome.h - activations over time as trace events of Chromium, in JSON: what Perfetto
 * (ui.perfetto.dev), chrome://tracing and speedscope read.
 *
 * Calling sequence: chrome_begin(); chrome_span() for each activation, in any order (the call
 * tree's call_tree_watch() has them); chrome_thread() for each thread; chrome_end(). Activations are
 * complete events ("X"), so what was left by longjmp nests like all others.
 *
 * Layout: "Trace Event Format", by Google's Catapult project.
 */
#ifndef DINST_DAEMON_REPORT_CHROME_H
#define DINST_DAEMON_REPORT_CHROME_H

#include <stdio.h>

#include "daemon/report/tree.h"

struct chrome {
	FILE *out;
	uint64_t base_ns; /* time 0 of the file */
	uint64_t spans, left_out;
	bool any;
};

/* No viewer opens more than that in reasonable time: what comes later is counted in left_out. */
enum { CHROME_SPANS = 2000000 };

void chrome_begin(struct chrome *c, FILE *out, uint64_t base_ns);
void chrome_span(struct chrome *c, const struct call_span *span);
/* `name` may be NULL. */
void chrome_thread(struct chrome *c, uint32_t pid, uint32_t tid, const char *name);
/* `process`: the name of process `pid`. */
void chrome_process(struct chrome *c, uint32_t pid, const char *process);
/* Failures of writing are the stream's (ferror()). */
void chrome_end(struct chrome *c);

#endif
