/* SPDX-License-Identifier: MIT */
/*
 * why.h - what the parts of `dinst why` know of each other.
 *
 *   why.c         the command: begins, searches, prints, ends
 *   why_facts.c   what the kernel tells of the target for nothing
 *   why_text.c    the metrics of a test, as MDL
 *   why_world.c   looks and tests, by a question's session
 *   why_results.c  what is read, as results of tests
 *   why_print.c   the tree, for people and as JSON
 */
#ifndef DINST_DAEMON_WHY_H
#define DINST_DAEMON_WHY_H

#include "daemon/client/question.h"
#include "daemon/report/search.h"

/* -------------------------------------------------------------- why_facts.c */

enum { WHY_THREADS_MAX = 4096 };

struct why_thread {
	pid_t tid;
	uint64_t run_ns, wait_ns; /* when it was seen first */
	bool is_new;		  /* it was born later */
};

struct why_facts {
	pid_t pid;
	uint64_t begun_ns;
	uint64_t cpu_ns;       /* of the process, at the beginning */
	uint64_t user, system; /* ticks */
	uint64_t disk_read, disk_written, major_faults;
	double memory_first, memory_last;
	unsigned steps, rises;
	struct why_thread *threads;
	size_t thread_count;
	double when[SEARCH_WHEN_MAX]; /* CPUs used in each second */
	unsigned when_count;
	uint64_t second_ns, second_cpu;
};

void why_facts_begin(struct why_facts *f, pid_t pid);
/* To be called now and then: what memory did, and the CPU time of each second. */
void why_facts_step(struct why_facts *f);
/* About all the time since the beginning. */
void why_facts_sum(const struct why_facts *f, struct search_facts *out);
void why_facts_release(struct why_facts *f);
/* CPU time of a process, dead threads included, in ns; 0 if it has ended. */
uint64_t why_cpu_ns(pid_t pid);
/* What descriptor `fd` of the process is; "" if it is not open. *is_file: a file or a disk. */
void why_descriptor(pid_t pid, const char *fd, char *text, size_t size, bool *is_file);
/* What memory the address belongs to: "redis-server+0x1234", "[heap]"; "" if that says nothing. */
void why_place(pid_t pid, uint64_t address, char *text, size_t size);
/* Which child uses CPU time, by a look of a third of a second: a note, or "". */
void why_children(pid_t pid, char *text, size_t size);

/* --------------------------------------------------------------- why_text.c */

enum { WHY_METRICS_MAX = 3 };

/* What a test inserts. */
struct why_plan {
	const char *metric[WHY_METRICS_MAX]; /* the first one gives the value */
	/* "" for the whole program */
	char focus[WHY_METRICS_MAX][SEARCH_SYMBOL + SEARCH_NAME + 80];
	unsigned count;
	char *text; /* to be loaded before; NULL: the library has it. free() */
};

/* False: no memory. */
bool why_plan_make(const struct search_test *t, struct why_plan *plan);

/* -------------------------------------------------------------- why_world.c */

struct why_cost {
	double highest;	 /* percent of a CPU that all that was in cost at once, at most */
	double total_ns; /* of CPU time, predicted */
	unsigned stops;	 /* of the target, those that are known */
	double stop_us;	 /* all of them */
	double longest_us;
	unsigned tests, looks, switched_off;
	unsigned left_out; /* threads that a look did not show, at most */
};

struct why {
	struct question q;
	struct search search;
	struct why_facts facts;
	struct why_cost cost;
	bool plain;   /* lines, not a live view */
	double begun; /* seconds of the question when the search began */
	const char *doing;
};

/* The world that searches through this question. */
void why_world(struct why *w, struct search_world *world);

/* ------------------------------------------------------------ why_results.c */

/* Elements of a vector, times `scale`; those of one function, called from several places, are one. */
void why_take_elements(struct why *w, struct search_test *t, json_t *list, double scale);
/*
 * Rows of the three metrics of MEASURE_BLOCKS. Who allocated a block stands in its element; what
 * these addresses are called, in the other two vectors.
 */
void why_take_blocks(struct search_test *t, json_t *rows);

/* -------------------------------------------------------------- why_print.c */

/* Cleans the texts of the search for a terminal. */
void why_print(struct why *w);
void why_print_json(const struct why *w);
/* A line while it searches. */
void why_tell(void *arg, const struct search_node *node, const char *text);

#endif
