/* SPDX-License-Identifier: MIT */
/*
 * summary.h - what a stretch of events comes to: for each function how often it was called and
 * how long its calls took, as sums and as a distribution.
 *
 * Calling sequence: summary_init(), summary_event() for each, summary_end() when there are no
 * more, then functions[] by total time; summary_release(). Names are the log's.
 *
 * Where entries and returns were recorded, a call tree says what belongs to whom; where
 * only calls that are over were recorded, their own time is not known.
 */
#ifndef DINST_DAEMON_REPORT_SUMMARY_H
#define DINST_DAEMON_REPORT_SUMMARY_H

#include "daemon/report/tree.h"

/* 32 buckets for each power of two: quantiles are right to 3 %. */
enum { SUMMARY_BUCKETS = 1920 };

struct summary_function {
	const char *function, *module;
	uint64_t calls, timed; /* all of them; those whose return was seen, too */
	uint64_t total_ns;     /* calls in calls of the same function counted once */
	uint64_t self_ns;      /* without what else was recorded in them */
	bool has_self;
	uint64_t min_ns, max_ns;
	uint64_t *buckets; /* SUMMARY_BUCKETS; of each call, those in others too */
};

struct summary {
	struct summary_function *functions;
	size_t count, room;
	struct call_tree *tree;
	bool failed; /* there was no memory: it is not whole */
};

/* Returns 0 or DINST_NO_MEMORY. */
int summary_init(struct summary *s);
void summary_release(struct summary *s);
void summary_event(struct summary *s, const struct event *e);
/* Events were dropped about now. */
void summary_lost(struct summary *s);
/* `now_ns`: up to when calls that are not over have run. */
void summary_end(struct summary *s, uint64_t now_ns);

/* Quantile q from 0 to 1 of a function's calls, ns. */
uint64_t summary_quantile(const struct summary_function *f, double q);

#endif
