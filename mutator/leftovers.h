/* SPDX-License-Identifier: MIT */
/*
 * leftovers.h - what leftovers.c and leftovers_arena.c share, and serve_session.c asks.
 */
#ifndef DINST_MUTATOR_LEFTOVERS_H
#define DINST_MUTATOR_LEFTOVERS_H

#include "mutator/core.h"

enum { PAUSE_MIN_US = 500, PAUSE_MAX_US = 50 * 1000 };

/* What one process has of what is to be taken out. */
struct process {
	struct target *target;
	struct arena_found found[ARENAS_MOST];
	size_t count;
	bool linked;  /* they lead into each other */
	bool blocked; /* a window of one of them may still lead to it */
	bool late; /* one stays in it, or in who was forked with it, for as long as a call lasts */
};

/* An arena of somebody is in the target; false also where that cannot be seen. */
bool leftovers_any(struct target *t);

/*
 * Arena `n` of the process: its windows become the original, and it goes when
 * nobody is in it. With `stays` its windows only; sets p->blocked where that did
 * not succeed. Sets p->late. What is left is counted in *result, and no error.
 */
int leftovers_take_out(struct process *p, size_t n, bool stays, uint64_t deadline,
		       struct leftovers *result, struct dinst_error *e);

/*
 * Of entries for one and the same place only those stay that are there, where any is, and of these
 * those that have what the mapped file has, where any has. While the target runs. Without memory all stay.
 */
void leftovers_drop_twins(const struct target *t, struct journal_entry *entries, size_t *count);

/*
 * Entries go in whose places there is what the mapped file has: nothing of ours is there, whatever was.
 * While the target runs. Without memory, or where the file cannot be read, all stay.
 */
void leftovers_drop_clean(const struct target *t, struct journal_entry *entries, size_t *count);

/*
 * Entries of arena `n` go that are there, and would bring back what the mapped file has not, where one of
 * another arena of the process is there as well, and brings that back. As leftovers_drop_clean().
 */
void leftovers_drop_others(const struct process *p, size_t n, struct journal_entry *entries,
			   size_t *count);

#endif
