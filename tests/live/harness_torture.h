/* SPDX-License-Identifier: MIT */
/*
 * harness_torture.h - the tortured target (tests/live/asm/) under control of a
 * test: start, work and rest, and how often everything in it must have run.
 *
 *   1. torture_begin(): the target rests, a session is attached;
 *   2. torture_insert(), torture_ask(), torture_rest(), torture_expect();
 *   3. torture_end(): detaches and expects the target as it was.
 *
 * The target compares what each of its functions leaves behind with what it
 * left when nothing was instrumented; a difference ends it with a line that
 * says WRONG. Every function fails the test itself when something goes wrong.
 *
 * Environment: TORTURE_SEED; TORTURE_ONLY, TORTURE_SKIP: which functions, by globs with commas
 * between them; TORTURE_VERBOSE: what is refused and why.
 */
#ifndef DINST_TESTS_LIVE_HARNESS_TORTURE_H
#define DINST_TESTS_LIVE_HARNESS_TORTURE_H

#include "tests/live/harness_session.h"

struct trace_edge;

struct torture_function {
	uint32_t index;	  /* into image_functions() */
	const char *name; /* of the image */
	char *focus;
};

struct torture {
	struct harness *h;
	struct session *s; /* NULL if the test has ended it */
	struct module *module;
	struct torture_function *functions; /* those that are instrumented */
	size_t function_count;
	taddr_t low; /* of its code, and how many bytes of it */
	size_t size;
	uint32_t *counts[2];			      /* by byte: of a round and of a slow round */
	struct trace_edge *edges[2];		      /* TRACE_EDGES of each */
	uint64_t rounds, slow, ends, signals, inside; /* as of the last rest */
	uint64_t seed;
};

uint64_t torture_now_ms(void);
unsigned long torture_setting(const char *name, unsigned long otherwise);
/* A random number below `below`. */
unsigned torture_pick(struct torture *t, unsigned below);

void torture_begin(struct torture *t, void **state, const char *program, const char *threads,
		   const char *how);
void torture_end(struct torture *t);
void torture_ask(struct torture *t, const char *command, const char *answer);
/* Until all rest; what was done since the last time is in *rounds and *slow. */
void torture_rest(struct torture *t, uint64_t *rounds, uint64_t *slow);

/*
 * Inserts a metric at some of t->functions (NULL: all), an instance each if
 * `each`. False if none of them has such a point. *id (may be NULL) is the first instance's.
 */
bool torture_insert(struct torture *t, const struct torture_function *const *functions,
		    size_t count, unsigned metric, bool each, unsigned *id);
void torture_remove_all(struct torture *t);
const struct instance *torture_instance(const struct torture *t, const char *focus,
					unsigned metric);

/* What a round of either type does in one function. */
struct torture_truth {
	uint64_t counted[2]; /* at the points that have a window */
	uint64_t planned[2]; /* at all points that were found */
	uint64_t all[2];     /* at all points that there are; for the kinds that a trace tells */
	uint64_t more[2];    /* `counted` may be as many more: what no trace can see happen */
	size_t points, refused;
	bool exact;	/* `counted` is known for this kind */
	bool undecoded; /* not all of it can be read, and some points are not known */
};

void torture_expect(const struct torture *t, const struct torture_function *f, enum point_kind kind,
		    struct torture_truth *x);
/* The same for one point: type 0 is a round, type 1 a slow one. */
uint64_t torture_expect_at(const struct torture *t, int type, const struct point *p);

/* Metrics: each kind of point counted, by the number of the kind; and what does more than count. */
enum { TORTURE_LOADED = POINT_KINDS, TORTURE_STORED, TORTURE_PAIRED, TORTURE_METRICS };
const struct raw_metric *torture_metric(unsigned metric);

#endif
