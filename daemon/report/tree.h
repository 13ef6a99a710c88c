/* SPDX-License-Identifier: MIT */
/*
 * tree.h - the call tree that events of entries and returns make: who called whom, how often and
 * for how long. Pure: no protocol, no terminal, no files.
 *
 * Calling sequence:
 *   1. call_tree_new()
 *   2. call_tree_event()   for each event, those of a thread in their order (event.h)
 *      call_tree_lost()    where events were dropped
 *   3. call_tree_end()     activations that are running get the time they have had; self times and
 *                          the order of children are made
 *   4. call_tree_root(); daemon/report/{folded,flame,callgrind,pprof}.h write it to files
 *   5. call_tree_free()
 *
 * Each thread has a stack of activations; all threads share one tree, so it does not depend on
 * how they were interleaved. A return ends the activation it belongs to and all above it (those
 * were left by longjmp or an exception, or their returns were dropped). Events that have a field
 * `$stack` tell by it which activations are over: then a jump out, and what was dropped, is
 * noticed at the thread's next event, whatever that is. Without it, it is noticed at the
 * next return. A return whose entry was not seen (the thread was inside before) is not counted.
 * Coroutines that change stacks within a thread are taken for jumps.
 *
 * What a thread does in one activation of an outermost function becomes part of the tree when
 * that one is over. Where events were lost meanwhile (call_tree_doubt()), it counts only if nothing had to be
 * guessed.
 */
#ifndef DINST_DAEMON_REPORT_TREE_H
#define DINST_DAEMON_REPORT_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/report/event.h"

/* A function as called on one path from the root. */
struct call_node {
	struct call_node *parent;   /* NULL: the root, which is no function */
	struct call_node *children; /* the first one */
	struct call_node *next;	    /* the parent's next child */
	const char *function, *module;
	uint64_t count;	   /* entries that were seen */
	uint64_t total_ns; /* from entry to return, summed */
	uint64_t self_ns;  /* without what is below it in the tree */
	uint64_t most_ns;  /* the longest single one */
	uint64_t open;	   /* activations that were running at call_tree_end() */
};

struct call_tree_facts {
	uint64_t events;    /* that became part of the tree */
	uint64_t unmatched; /* returns without an entry */
	/* activations that ended without a return of their own; where all around them did, too, by their last event */
	uint64_t left;
	uint64_t
		doubtful; /* activations of outermost functions that were left out, see call_tree_doubt() */
	uint64_t too_deep; /* entries on a stack that was too deep already */
	size_t nodes;	   /* without the root */
};

/* One activation that is over. */
struct call_span {
	const struct call_node *node;
	uint32_t tid, pid; /* pid 0: not told */
	uint64_t begun_ns, ns;
	bool left; /* its return was not seen: its time is a guess */
};

/* Called when an activation ends: those that are called end before who calls. */
typedef void call_tree_each(void *arg, const struct call_span *span);

/* Deeper than this the tree does not go: entries there are counted as too_deep only. */
enum { CALL_TREE_DEPTH = 1024 };

struct call_tree;

/* NULL without memory. */
struct call_tree *call_tree_new(void);
void call_tree_free(struct call_tree *t);

/*
 * From now on the tree begins at that function (and module, unless NULL): what a thread does
 * outside of it is passed over. Returns 0 or DINST_NO_MEMORY.
 */
int call_tree_only(struct call_tree *t, const char *function, const char *module);

/*
 * The field `text` differs from one activation of an outermost function to the thread's next: where it
 * changes within one, that one is over. If events were lost meanwhile it is left out, else it was left by a jump.
 * Returns 0 or DINST_NO_MEMORY.
 */
int call_tree_run(struct call_tree *t, const char *text);

/* From now on `each` is told of every activation. */
void call_tree_watch(struct call_tree *t, call_tree_each *each, void *arg);

/*
 * Takes an event; others than entries and returns are passed over. Returns 0, or
 * DINST_NO_MEMORY, after which the tree is still good, without that event.
 */
int call_tree_event(struct call_tree *t, const struct event *e);

/* Events were lost about now: what threads are inside of is not known any more. */
void call_tree_lost(struct call_tree *t);

/*
 * Events were lost between these two times: activations of outermost functions that ran meanwhile count
 * only if nothing of them had to be guessed. To be called before any event that is younger than
 * `from_ns` is taken in.
 */
void call_tree_doubt(struct call_tree *t, uint64_t from_ns, uint64_t until_ns);

/*
 * Of threads that are not there any more, what they were inside of ended with them: by their last event, as far
 * as is known. Before call_tree_end(), which lets it run on.
 */
typedef bool call_tree_is_there(uint32_t pid, uint32_t tid);
void call_tree_gone(struct call_tree *t, call_tree_is_there *is_there);

/*
 * What is running now has run until `now_ns`; self times; children by time, the largest first,
 * then by name. To be called once; no event may follow.
 */
void call_tree_end(struct call_tree *t, uint64_t now_ns);

/* Its count and times are the sums of its children's. */
const struct call_node *call_tree_root(const struct call_tree *t);
void call_tree_facts(const struct call_tree *t, struct call_tree_facts *facts);

/*
 * For trees that are made of something else: the child of `parent` (NULL: the root) of that
 * name, made if need be; who calls adds to its count, total_ns and most_ns. NULL without memory.
 */
struct call_node *call_tree_child(struct call_tree *t, struct call_node *parent,
				  const char *function, const char *module);

/*
 * The node behind `node` in preorder, NULL behind the last one; *depth (which may be NULL) goes
 * along: 0 at the root.
 */
const struct call_node *call_node_next(const struct call_node *node, unsigned *depth);

#endif
