/* SPDX-License-Identifier: MIT */
/*
 * graph.h - what the parts of `dinst graph` know of each other.
 *
 *   graph.c          the command: what is called below a function is found, then counted
 *   graph_find.c     finding it, level by level, by counters that count inside of the function only
 *   graph_entered.c  what is entered below the function, in whatever way
 *   graph_count.c    counting it, by events of entries and returns
 *   graph_show.c     the tree on a terminal, and as JSON
 */
#ifndef DINST_DAEMON_GRAPH_H
#define DINST_DAEMON_GRAPH_H

#include "daemon/client/exports.h"
#include "daemon/client/question.h"

enum { GRAPH_DEPTH = 8, GRAPH_FUNCTIONS = 3000, GRAPH_NAME = 40 };

/* A function that may be called below the one that was asked for. */
struct graph_function {
	char *name, *module;
	char address[24];	       /* "0x..." of the target: no two functions share it */
	uint64_t at;		       /* the same as a number */
	unsigned level;		       /* calls away from the root, as far as code and counts say */
	json_int_t id;		       /* of its counter, 0: it has none */
	uint64_t calls;		       /* inside of the root, while it was counted */
	uint64_t root_before;	       /* calls of the root when its counter was inserted */
	double per_call;	       /* of the root: how often it is called in one */
	bool usable;		       /* its entry can be instrumented */
	bool asked;		       /* its callees are known */
	bool follows;		       /* it is in the events */
	bool hot;		       /* it is called so often that it is not */
	size_t unknown;		       /* calls and jumps out of it through pointers */
	size_t *callees, callee_count; /* indices */
};

struct graph {
	struct question q;
	struct context *c;
	unsigned depth;
	double budget;	/* events per second */
	double seconds; /* of counting; 0: until a signal comes */

	struct graph_function *functions; /* the root first */
	size_t count, room;
	/* names of the metrics, of this process alone */
	char calls[GRAPH_NAME], entries[GRAPH_NAME], events[GRAPH_NAME];
	double find_seconds; /* since the root is counted */
	double visits; /* expected entries and returns of what is followed, per call of the root */
	bool blind;    /* the root was not called: what the code says is believed */
	bool too_many; /* some functions were left out, there were more than can be had */
	json_t *covered; /* names of the modules in which what is called is known for certain */

	unsigned every; /* one of so many calls of the root is followed */
	struct exports exports;
	struct event_log *log;
	bool taken;		     /* the first events have been asked for */
	uint64_t lost_before;	     /* events that were lost before this, by others */
	uint64_t begun_ns, ended_ns; /* what is counted now, CLOCK_MONOTONIC */
	uint64_t first_ns;	     /* when counting began first */
	uint64_t counted_ns;	     /* for how long, all together */
	uint64_t last_ns;	     /* of the last event in the tree */
	uint64_t events_seen;	     /* that are in the tree */
	uint64_t root_calls;	     /* of the root while it was counted, followed or not */
	uint64_t stop_us;	     /* all stops together */
	double predicted_ns;	     /* for an event */
};

/* graph.c: *function is the new row's index. Returns 0 or a negative code. */
int graph_add(struct graph *g, const char *name, const char *module, const char *address,
	      size_t *index, struct dinst_error *e);
/* The index of the function at that address, or g->count. */
size_t graph_at(const struct graph *g, const char *address);
/*
 * The next larger number of calls of which one is followed. They are odd, so that what a program does
 * every second or fourth time does not hide between.
 */
unsigned graph_sparser(unsigned every);
/*
 * Loads a metric of events inside of every n-th call of the root, in the functions that `items` names (a list
 * of MDL): `records` says where, and what is recorded if `inside > 0`; `calls` tells the calls apart.
 */
int graph_load(struct graph *g, const char *name, unsigned every, const char *items,
	       const char *records, struct dinst_error *e);
/* All stops that the rows of an answer tell of. */
void graph_note_stop(struct graph *g, json_t *answer);

/*
 * graph_find.c: finds what is called, decides what is followed and how often. Returns 0 or a negative
 * code with *e filled; also when the question is over by then.
 */
int graph_find(struct graph *g, struct dinst_error *e);
/* The counter of the root, as it stands. */
int graph_root_calls(struct graph *g, uint64_t *calls, struct dinst_error *e);

/*
 * graph_entered.c: adds what is entered inside of the root in whatever way: for a moment, all functions of
 * all modules that are not too large record that, in a few calls of the root. One look for all.
 */
int graph_entered(struct graph *g, struct dinst_error *e);
/* Is the module one of those? */
bool graph_covers(const struct graph *g, const char *module);

/* graph_count.c: events of what is followed, into g->exports, until the question is over. */
int graph_count(struct graph *g, struct dinst_error *e);

/* graph_show.c: prints the tree; returns EXIT_DONE or EXIT_FAILED. */
int graph_show(struct graph *g);
/* "processCommand in redis-server", and what was done, for heads of files. */
void graph_title(const struct graph *g, char *text, size_t size);
void graph_subtitle(const struct graph *g, char *text, size_t size);

#endif
