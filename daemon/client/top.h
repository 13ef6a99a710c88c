/* SPDX-License-Identifier: MIT */
/*
 * top.h - what the parts of `dinst top` know of each other.
 *
 *   top.c             the command: options, the loop, tables and JSON
 *   top_probe.c       sets of instances: inserting, reading, removing, what they cost
 *   top_functions.c   the functions of a view: which are called, and how often
 *   top_times.c       times of the functions that are shown, within the limit
 *   top_drill.c       views of what a function calls, who calls it, and its threads
 *   top_lines.c       lines to show: order, filter, the text of a cell
 *   top_screen.c      the terminal: drawing and keys (the only one that knows ncurses)
 *
 * How the cost is kept within the limit: at first all functions are counted for a moment
 * (the survey). Of those that were called, the cheap ones stay counted until half of the
 * limit is used up, the others are sampled: counted for a tenth of the time. The other half is for times
 * (latency, cpu), of functions that are on the screen only: all the time if that
 * is cheap enough, else a few at a time, for as long as has been saved up.
 */
#ifndef DINST_DAEMON_TOP_H
#define DINST_DAEMON_TOP_H

#include <limits.h>

#include "daemon/client/question.h"

enum {
	TOP_CHUNK = 4000,    /* functions that are counted at once in a survey */
	TOP_SURVEY_MS = 200, /* how long */
	TOP_SAMPLE_MS = 100, /* how long the sampled ones are counted, every refresh */
	TOP_SCOUT =
		400, /* functions of those that were never called that are looked at again with them */
	TOP_HEAD_START = 2,    /* seconds of the limit that may be spent on times at first */
	TOP_SCOUT_EVERY = 5,   /* refreshes */
	TOP_SLICE_MIN_MS = 20, /* times are not taken for less */
	TOP_WAY_NS = 2,	       /* what the way to inserted code and back takes beside the code */
	TOP_CLOCK_NS = 300,    /* to ask for the processor time of a thread */
	TOP_DEPTH = 16,	       /* views behind each other */
	TOP_NAME = 512,
};

/* One instance of a metric at one function, and what it said last. */
struct probe {
	json_int_t id;
	struct function *function;
	double hit_ns;		 /* what a hit costs */
	double value, sum, hits; /* at the last reading */
	json_t *buckets;	 /* of a distribution; owned */
};

struct probe_set {
	struct probe *list;
	size_t count;
	uint64_t read_ns; /* when it was read last */
	double clock_ns; /* what a hit takes beside its predicted code: clocks that are system calls */
	bool times;	 /* what cannot be had is a function's times, not its count */
	bool missing;	 /* something could not go in just now, which is to be tried again */
	unsigned busy;	   /* how many insertions in a row met one that could not */
	unsigned row;	   /* ... and requests of this insertion */
	unsigned row_most; /* ... if one function is to blame */
};

/* What is timed of a function: its calls, and what of that is its own. */
enum timing { TIMING_LATENCY, TIMING_OWN, TIMINGS };

struct function {
	char *focus; /* /Code/MODULE/SYMBOL */
	char *name;  /* as people write it; MODULE:NAME outside of the main module */
	uint64_t address, size;
	double rate;		    /* calls per second; -1: not known */
	double cpu, wall;	    /* ns per second; -1: not known */
	double p50, p99;	    /* ns; -1: not known */
	double mean;		    /* ns of a call; 0: not known */
	double timing_ns[TIMINGS];  /* what that costs in a call; -1: not known */
	uint64_t timed_ns[TIMINGS]; /* when it was done last; 0: never */
	uint64_t late_ns;	    /* is not timed before: a thread was in it all the time */
	uint64_t rated_ns;	    /* when its rate was taken last */
	double calls, sum;	    /* at that reading of its latency: how many, ns in all */
	double paid_ns[TIMINGS];    /* what that reading's timing has cost */
	bool seen;		    /* was called once */
	bool possible;	     /* of a view of callees: in a library, so perhaps it is called */
	bool counted;	     /* all the time */
	bool timed[TIMINGS]; /* now */
	bool sampled;	     /* rate comes from samples */
	bool at_most;	     /* cpu has the time of callees in it that could not be taken out */
	bool refused;	     /* its times cannot be had */
	bool uncountable;    /* nor its count */
};

enum view_kind { VIEW_FUNCTIONS, VIEW_CALLEES, VIEW_CALLERS, VIEW_THREADS };

struct view {
	enum view_kind kind;
	struct function *of;		      /* whose callees, callers or threads; NULL: all */
	char name[TOP_NAME];		      /* of it */
	char calls[40], latency[40], own[40]; /* metrics; `own` may be empty */
	struct function *functions;	      /* sorted by focus */
	size_t count;
	bool surveyed;
	unsigned rounds;  /* refreshes of it so far */
	size_t resampled; /* where the next of those that are too hot to be counted on begin */
	size_t scouted;	  /* where the next scouts begin */
	struct probe_set counts, latencies, walls, cpus;
	json_t *ids;  /* of vectors: callers, threads */
	json_t *last; /* their rows at the last reading */
	uint64_t last_ns;
	double rate;	    /* calls of `of` per second, as they saw it last; -1: not known */
	struct line *lines; /* what there is to show, in its order */
	size_t line_count;
	size_t line_all; /* callers, threads: with those behind them that the filter keeps back */
	size_t cursor, first;
	char cursor_name[TOP_NAME]; /* so that it stays on its line */
};

/* What is shown, whatever it is of. Numbers are -1 where they are not known. */
struct line {
	char name[TOP_NAME];
	struct function *function; /* NULL in views of callers and threads */
	double rate, cpu, wall, p50, p99;
	bool sampled, at_most;
};

/* What a key asks for that cannot be done in the middle of a refresh. */
enum top_action {
	ACTION_NONE,
	ACTION_CALLEES,
	ACTION_CALLERS,
	ACTION_THREADS,
	ACTION_BACK,
	ACTION_SURVEY
};

enum top_sort { SORT_CPU, SORT_CALLS, SORT_WALL, SORT_P50, SORT_P99, SORT_NAME, SORTS };

struct top {
	struct question q;
	double interval, limit;
	unsigned long long refreshes; /* 0: no end */
	char module[NAME_MAX + 1];    /* a file's name */
	enum top_sort sort;
	bool descending;
	char filter[80];
	struct view *views[TOP_DEPTH];
	unsigned depth;	     /* the view shown is views[depth - 1] */
	size_t rows;	     /* that fit on the screen, or that are printed */
	double credit_ns;    /* saved up for times */
	double spent_ns;     /* since `spent_since`: what the target has paid */
	uint64_t reading_ns; /* when the reading that is taken over was made, one and no other */
	uint64_t spent_since;
	double scale; /* of the limit that is planned with, so that what it costs stays below it */
	double stops_us; /* what it stood still in all, when that was asked last; -1: never */
	double cost;	 /* percent of a CPU over the last seconds; -1: not known yet */
	unsigned serial; /* for names of metrics */
	enum top_action action;
	bool paused, quit, screen;
	char message[TOP_NAME];
	bool busy; /* it says why something could not go in just now: it goes with the next refresh */
};

/* -------------------------------------------------------------- top_probe.c */

uint64_t top_now(void);
/*
 * Inserts `metric` at functions[0..count); with `hits` runs are counted. What is refused is left out
 * for good; where the target is busy all may be left out for now: then set->missing is true. Nothing
 * goes in any more where the question is over.
 */
int probe_insert(struct top *t, struct probe_set *set, const char *metric,
		 struct function **functions, size_t count, bool hits, struct dinst_error *e);
bool probe_has(const struct probe_set *set, const struct function *f);
/*
 * Reads all of them. For each that could be read, each(arg, p, row, seconds since the last reading)
 * is called before the probe takes the new values over. What that cost is added to t->spent_ns.
 */
int probe_read(struct top *t, struct probe_set *set,
	       void (*each)(struct top *t, struct probe *p, json_t *row, double seconds),
	       struct dinst_error *e);
/* Adds to t->spent_ns what the target stood still since the last time. */
int probe_stops(struct top *t, struct dinst_error *e);
/* Removes those for which `which` says so (NULL: all). */
int probe_remove(struct top *t, struct probe_set *set, bool (*which)(const struct probe *p),
		 struct dinst_error *e);

/* ---------------------------------------------------------- top_functions.c */

/* The functions that a pattern of `funcs` matches, added to the view. */
int functions_add(struct top *t, struct view *v, const char *pattern, struct dinst_error *e);
/* To be called when all are added: sorts them. Those of one name are one, with several probes. */
void functions_sort(struct view *v);
struct function *function_of(struct view *v, const char *focus);
/*
 * Counts all of them for a moment, and keeps those that matter. Where the target is busy v->surveyed
 * stays false: all is to be done again.
 */
int functions_survey(struct top *t, struct view *v, struct dinst_error *e);
/* Reads what is counted, samples the rest, looks at some that were never called. */
int functions_count(struct top *t, struct view *v, struct dinst_error *e);

/* -------------------------------------------------------------- top_times.c */

/* Times of the lines that are shown; takes until `until_ns` at most. */
int times_take(struct top *t, struct view *v, uint64_t until_ns, struct dinst_error *e);

/* -------------------------------------------------------------- top_drill.c */

struct view *view_new(enum view_kind kind, struct function *of);
void view_free(struct view *v);
/* Makes a view of that kind of the function and shows it. */
int drill_into(struct top *t, enum view_kind kind, struct function *f, struct dinst_error *e);
int drill_back(struct top *t, struct dinst_error *e);
/* All that the view has in the target goes; what is known of its functions stays. */
int view_leave(struct top *t, struct view *v, struct dinst_error *e);
/*
 * One refresh of a view of callers or threads, until then. Where that cannot be had it goes back, so
 * that the view is gone, and says why; while the target is busy it says so, to be tried again.
 */
int drill_refresh(struct top *t, struct view *v, uint64_t until_ns, struct dinst_error *e);

/* -------------------------------------------------------------- top_lines.c */

/* Makes the view's lines anew, in order, those that the filter lets through. */
int lines_make(struct top *t, struct view *v);
enum { TOP_CELL = 24, TOP_CELLS = 5 };
/* Cells of a line: calls/s, cpu, wall, p50, p99. */
void line_cells(const struct line *l, char cells[TOP_CELLS][TOP_CELL]);
/* "costs it 1.2 % of a CPU (limit 3 %)" */
void cost_text(const struct top *t, char *text, size_t size);

/* ------------------------------------------------------------- top_screen.c */

/* False: this terminal cannot; nothing was changed. */
bool screen_open(struct top *t);
void screen_close(struct top *t);
void screen_draw(struct top *t);
/* Waits for keys until `until_ns` and obeys them; returns early for an action, or where the question is over. */
void screen_keys(struct top *t, uint64_t until_ns);

/* -------------------------------------------------------------------- top.c */

/* Waits, with keys where there is a screen. False: the question is over. */
bool top_pause(struct top *t, uint64_t until_ns);
void top_say(struct top *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same of what passes by itself, and is tried again with every refresh. */
void top_say_busy(struct top *t, const char *why);
/* What one action, or one view, cannot do, which is said; whatever else fails ends the question. */
bool top_can_say(int err);

#endif
