/* SPDX-License-Identifier: MIT */
/*
 * search_private.h - what the parts of the search share; for search*.c only.
 *
 * A part is one hypothesis. In each round every part that is not done gives tests, all of
 * which run at the same time, and takes their results.
 */
#ifndef DINST_REPORT_SEARCH_PRIVATE_H
#define DINST_REPORT_SEARCH_PRIVATE_H

#include "daemon/report/search.h"

enum { SEARCH_TESTS_MAX = 64, SEARCH_CANDIDATES_MAX = 40, SEARCH_LEVELS_MAX = 6 };

/* What was measured of a function that looks have shown. */
struct search_measured {
	uint32_t function; /* number in the chains */
	double rate;	   /* calls a second */
	double share;	   /* of what is refined */
	double per_cpu;	   /* calls in a second of the program's CPU time */
	bool known;
	bool by_looks; /* it could not be measured: share is what looks say */
};

/* One way to wait for input and output: in writes and syncs, or in reads of files. */
struct search_waits {
	bool known;   /* false: it could not be measured, and the rest is 0 */
	double total; /* threads that wait in it */
	double worst; /* of that, for the worst descriptor; 0 where none has enough to be told */
	char object[SEARCH_NAME]; /* its name */
	double cost;		  /* percent of a CPU that one test of it costs */
};

struct search_part {
	unsigned stage;
	bool done;
	struct search_measured candidates[SEARCH_CANDIDATES_MAX];
	size_t candidate_count;
	uint64_t lock;			   /* lock: the worst one */
	char object[SEARCH_TEXT];	   /* lock: its name */
	double worst;			   /* lock: its share */
	struct search_waits writes, reads; /* I/O */
	struct search_node *node;	   /* of the lock, or of the culprit */
	uint32_t culprit;		   /* CPU: number of the function */
	bool has_culprit;
	char path[SEARCH_LEVELS_MAX][SEARCH_NAME]; /* memory: who allocates, then who calls that */
	char modules[SEARCH_LEVELS_MAX][64];
	unsigned level;
	double kept[SEARCH_LEVELS_MAX]; /* memory: part of all that stays, for each of the path */
};

struct search_tests {
	struct search_test list[SEARCH_TESTS_MAX];
	size_t count;
};

/* A test in the list, zero but for these; NULL: the list is full. */
struct search_test *search_test_add(struct search_tests *t, enum search_measure what,
				    double seconds, long user);
/* The same about a function of the chains. */
struct search_test *search_test_function(struct search *s, struct search_tests *t,
					 enum search_measure what, double seconds, long user,
					 uint32_t function);

/* A new child, or NULL without memory. */
struct search_node *search_node_add(struct search_node *parent, const char *kind,
				    const char *format, ...) __attribute__((format(printf, 3, 4)));
void search_figure(struct search_node *n, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Sets the state of a hypothesis and tells. */
void search_decide(struct search *s, enum search_why why, enum search_state state,
		   const char *format, ...) __attribute__((format(printf, 4, 5)));
void search_note(struct search *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Keeps the findings sorted; the least one is lost where there are too many. */
void search_find(struct search *s, const struct search_finding *finding);

/*
 * Nodes for the chains of these kinds, below `parent`, of candidates whose share is known and
 * large enough: each below the nearest one that calls it.
 */
void search_tree(struct search *s, struct search_node *parent, unsigned kinds,
		 const struct search_measured *list, size_t count);
/* Tells the candidates that were measured and are too little. */
void search_reject(struct search *s, enum search_why why, const struct search_measured *list,
		   size_t count);
/* The node below which least is lost: walks down from `n` where a child holds most of it. */
struct search_node *search_deepest(struct search_node *n);
/* "a, called from b, called from c" of the node's parents; "" without. */
void search_callers(const struct search_node *root, const struct search_node *n, char *text,
		    size_t size);

void search_cpu_tests(struct search *s, struct search_tests *t);
void search_cpu_take(struct search *s, struct search_test *list, size_t count);
void search_lock_tests(struct search *s, struct search_tests *t);
void search_lock_take(struct search *s, struct search_test *list, size_t count);
void search_io_tests(struct search *s, struct search_tests *t);
void search_io_take(struct search *s, struct search_test *list, size_t count);
void search_memory_tests(struct search *s, struct search_tests *t);
void search_memory_take(struct search *s, struct search_test *list, size_t count);

#endif
