/* SPDX-License-Identifier: MIT */
/*
 * search.h - why a program is slow: hypotheses, what tests them, where they hold.
 *
 * The search of the Paradyn tools in small: it starts from a few hypotheses about the whole
 * program (why), has the metrics inserted that test them, drops those that fail, and refines
 * those that hold along objects, functions and threads (where). What is told of the times at
 * which a hypothesis held is "when".
 *
 * It is pure: all that it knows of a program comes through struct search_world, which the
 * command implements with /proc and MDL, and a test with a table. Looks at stacks decide what
 * is measured first; only what was measured is told as a finding.
 *
 * Calling sequence: search_run(); then nodes, findings and notes are read; search_release().
 */
#ifndef DINST_REPORT_SEARCH_H
#define DINST_REPORT_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/report/chains.h"

enum search_why { SEARCH_CPU, SEARCH_LOCK, SEARCH_IO, SEARCH_MEMORY, SEARCH_WHYS };

enum search_state { SEARCH_UNTESTED, SEARCH_HOLDS, SEARCH_FAILS, SEARCH_UNKNOWN };

enum { SEARCH_THREADS_MAX = 16, SEARCH_TEXT = 400, SEARCH_NAME = 256, SEARCH_WHEN_MAX = 120 };
enum {
	SEARCH_SYMBOL = 2048
}; /* what a function is asked for by; longer than names that are shown */

/* When a hypothesis holds; docs/why.md explains each. Shares of one CPU, or of one thread's time. */
#define SEARCH_CPU_BOUND  0.5 /* the busiest thread runs, or waits for a CPU, so much of its time */
#define SEARCH_CPU_ALL	  0.8 /* or all threads together */
#define SEARCH_WAIT_BOUND 0.2 /* time that passes in waiting for one lock, one file */
#define SEARCH_REFINE	  0.2 /* of what is refined: what is less is not followed */
#define SEARCH_GROWTH	  102400.0 /* bytes a second that memory grows by */

struct search_thread {
	pid_t tid;
	char name[32];
	double cpu;	/* share of its time on a CPU */
	double waiting; /* share of its time in which it waited for one */
};

/* What the kernel tells for nothing, about one stretch of time. */
struct search_facts {
	double seconds;
	double cpu, user, system; /* CPUs that were busy with it */
	double starved;		  /* threads, on the average, that waited for a CPU */
	unsigned threads;	  /* how many there are */
	struct search_thread busiest[SEARCH_THREADS_MAX]; /* descending by cpu + waiting */
	unsigned busiest_count;
	double memory;			/* resident and swapped bytes at the end */
	double growth;			/* bytes a second */
	unsigned rises, steps;		/* in how many of the steps it grew */
	double disk_read, disk_written; /* bytes a second */
	double major_faults;		/* pages a second that had to be read in */
};

/* ------------------------------------------------------------------ tests */

enum search_measure {
	MEASURE_CALLS,	     /* value: calls a second of the function */
	MEASURE_CPU,	     /* value: share of a CPU, of the function with all that it calls */
	MEASURE_CPU_SAMPLED, /* the same by one call in 64 */
	MEASURE_CPU_THREADS, /* the same; elements: threads */
	MEASURE_LOCKS,	     /* value: threads that wait for locks; elements: locks */
	MEASURE_WAITERS,     /* for lock `object`; elements: who wants it (addresses of code) */
	MEASURE_HOLDERS,     /* the same: who has it, by who gives it back */
	MEASURE_WRITES, /* value: threads that are in writes, sends, syncs; elements: descriptors */
	MEASURE_WRITES_CPU, /* the same: what of that is CPU time */
	MEASURE_READS,
	MEASURE_READS_CPU,
	MEASURE_WRITES_IN, /* as MEASURE_WRITES, while in the function */
	MEASURE_READS_IN,
	MEASURE_BLOCKS, /* value: sampled blocks that live; elements: who allocated them */
};

struct search_element {
	char key[32];		/* as the vector has it: an address, a number */
	char name[SEARCH_NAME]; /* a path, a thread's name, or the function; "" if there is none */
	char module[64];	/* of a function */
	double value;		/* in the unit of the measure */
	double made;		/* blocks: how many came in the same time */
	double bytes;		/* blocks: how large one is, on the average */
	bool is_file; /* descriptors: a file or a disk, not a socket, a pipe, a terminal */
};

struct search_test {
	enum search_measure what;
	/* the function; "" if it is not about one */
	char module[SEARCH_NAME], symbol[SEARCH_SYMBOL];
	uint64_t object;
	double seconds; /* how long it should run */
	long user;	/* for whoever made the test */

	/* Filled by the world. */
	bool done;		   /* false: `why_not` says why */
	char why_not[SEARCH_TEXT]; /* refused, switched off, does not exist */
	double value;
	double cost;			 /* percent of a CPU, at most */
	double cpu;			 /* what the whole program used in the same time, in CPUs */
	struct search_element *elements; /* largest first; freed by search_test_release() */
	size_t element_count;
};

void search_test_release(struct search_test *t);

/* ------------------------------------------------------------ what is found */

struct search_node {
	enum search_why why;
	enum search_state state;
	char what[SEARCH_NAME];	  /* "CPU-bound", "redis-server:main", "thread 12 (worker)" */
	char figure[SEARCH_TEXT]; /* the evidence, in words */
	char kind[16];		  /* "program", "module", "function", "thread", "lock", "file" */
	char module[64], function[SEARCH_NAME]; /* as they are shown: cut where they are longer */
	uint32_t number; /* 1 + the function's among the chains'; 0: of none */
	double share;
	unsigned seen; /* in how many looks; what several callers share is divided by it */
	bool is_culprit;
	struct search_node **children;
	size_t child_count;
};

struct search_finding {
	enum search_why why;
	double weight;				/* what is larger is told first */
	char text[SEARCH_TEXT * 2];		/* a sentence for whoever runs the program */
	char module[64], function[SEARCH_NAME]; /* the culprit; "" where it is none */
	double share;
};

enum { SEARCH_FINDINGS_MAX = 8, SEARCH_NOTES_MAX = 32 };

/* ------------------------------------------------------------------- world */

struct search_world {
	void *arg;
	/* Waits, and adds what was seen to the chains; *facts is about all the time since the first
	 * call. False: the question is over. */
	bool (*observe)(void *arg, double seconds, struct chains *chains,
			struct search_facts *facts);
	/* Inserts what the tests need, waits as long as each wants, and removes it. False: the
	 * question is over; tests may be done nevertheless. */
	bool (*measure)(void *arg, struct search_test *tests, size_t count);
	/* Something new is known of this hypothesis; may be NULL. */
	void (*told)(void *arg, const struct search_node *node, const char *text);
};

struct search {
	const struct search_world *world;
	double limit; /* percent of a CPU that all tests together may cost */
	char program[64];

	struct chains chains;
	struct search_facts facts;
	struct search_node *roots[SEARCH_WHYS];
	struct search_finding findings[SEARCH_FINDINGS_MAX]; /* the worst first */
	unsigned finding_count;
	char notes[SEARCH_NOTES_MAX][SEARCH_TEXT]; /* what could not be tested, and why */
	unsigned note_count;
	char rejected[SEARCH_WHYS]
		     [SEARCH_TEXT]; /* where a hypothesis was tested and does not hold */
	bool is_over;		    /* the question ended before the search did */

	struct search_part *parts[SEARCH_WHYS]; /* private to search_*.c */
};

/* The name of a hypothesis: "CPU-bound". */
const char *search_why_name(enum search_why why);
const char *search_state_name(enum search_state state);

/*
 * Searches. `limit` and `program` are to be set, the rest zero. False: no memory. Ends when nothing
 * is left to be tested, or when the world says that the question is over (is_over).
 */
bool search_run(struct search *s, const struct search_world *world);
void search_release(struct search *s);

#endif
