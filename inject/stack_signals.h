/* SPDX-License-Identifier: MIT */
/*
 * stack_signals.h - the signal frames on copied stacks; for stack.c only.
 *
 * Many threads may have stacks in one mapping (fibers, Go), so that each copy is
 * searched once and what is found is kept with it. What a program can write there
 * must not keep a stop going: there is a limit to the frames, and to the looks into
 * the target that telling them takes.
 */
#ifndef DINST_INJECT_STACK_SIGNALS_H
#define DINST_INJECT_STACK_SIGNALS_H

#include "inject/stack_snapshot.h"

enum { SIGRETURN_CACHE = 256 };

struct signal_frame {
	taddr_t at; /* where it begins */
	taddr_t sp; /* of the code that it interrupted; may be in memory that cannot be a stack now */
};

/* What was found in one copy. */
struct region_signals {
	size_t count, room;
	bool incomplete;	      /* there was too much: it has not been searched to its end */
	struct signal_frame frames[]; /* by address */
};

/* The search through all copies of one snapshot. */
struct signal_search {
	struct snapshot *shot;
	taddr_t text_lo, text_hi;	 /* all executable mappings lie between */
	taddr_t cached[SIGRETURN_CACHE]; /* addresses that were looked at */
	bool is_sigreturn[SIGRETURN_CACHE];
	unsigned looks; /* that were taken */
	size_t frames;	/* that were found */
};

/* `shot` has its maps. `*s` needs no release. */
void signal_search_begin(struct signal_search *s, struct snapshot *shot);

/* Searches the copy for r->signals, unless it has been. DINST_NO_MEMORY. */
int signal_frames_find(struct signal_search *s, struct stack_region *r, struct dinst_error *e);

/* The first frame of a searched copy that begins at `address` or above it; false: there is none. */
bool signal_frames_from(const struct stack_region *r, taddr_t address, struct signal_frame *frame);

#endif
