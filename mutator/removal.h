/* SPDX-License-Identifier: MIT */
/*
 * removal.h - a flush in progress; for removal.c and restore.c only.
 *
 *   1. restore_prepare() while the target runs;
 *   2. restore_and_copy() for each process of the family, in its stop;
 *   3. the copies are looked at (removal.c);
 *   4. restore_release().
 */
#ifndef DINST_MUTATOR_REMOVAL_H
#define DINST_MUTATOR_REMOVAL_H

#include "mutator/core.h"

/* The near jump that a short jump leads to; padding when it is restored. */
struct hole {
	taddr_t at;
	size_t restore; /* index into restores */
};

/* Code on the queue that is no body. */
struct spent_code {
	struct place *place;
	taddr_t code;
	size_t size;
	struct site *site; /* whose base it was; NULL: a routine */
	struct snippet_code **codes;
	size_t count;
	struct spent_code *next;
};

struct flush {
	struct session *session;
	struct site **restores; /* to be restored in this stop, by address */
	bool *restored;		/* in every process of the family */
	size_t restore_count;
	struct hole *holes; /* by address */
	struct stack_range *hole_ranges;
	size_t hole_count;
	struct patch *patches;
	size_t *patch_site;
	struct site_move **moves; /* by address */
	size_t move_count;
	struct patch_files *files; /* at the places of modules that are no more */
	struct snapshot **shots;
	size_t shot_count;
	size_t searched; /* pages of all of them, for what is parked */
	taddr_t others;	 /* where somebody else has written over a patch; 0: nowhere */
	pid_t late;	 /* one that may come back from a call of ours to where nobody sees */
};

/* Finds out what is to be restored. */
int restore_prepare(struct flush *f, struct dinst_error *e);

/*
 * Restores windows in one process and copies its stacks (a family_work).
 * restored[i] becomes false where that was not possible, or not yet.
 */
int restore_and_copy(struct stop *stop, void *arg, struct dinst_error *e);

void restore_release(struct flush *f);

#endif
