/* SPDX-License-Identifier: MIT */
/*
 * stack_walk.h - struct stack_walk from the inside; for stack_walk.c, stack_marks.c and stack_copy.c only.
 */
#ifndef DINST_INJECT_STACK_WALK_H
#define DINST_INJECT_STACK_WALK_H

#include <libunwind.h>

#include "inject/stack_snapshot.h"
#include "inject/stack_unwind.h"

enum { STACK_REGISTERS = 64 }; /* by DWARF number; more than any architecture passes */

/* One walker serves all threads of a snapshot, one after the other. */
struct stack_walk {
	const struct snapshot *shot;
	struct unwind_memory memory;
	unw_addr_space_t space;
	stack_home home;
	void *home_arg;
	uint64_t registers[STACK_REGISTERS]; /* of the frame to start at */
	unsigned register_count;
	uint64_t known;	 /* bit n: register n is */
	bool behind;	 /* the frame to start at is that of a call, one byte in front of its end */
	bool by_pointer; /* ... which a frame pointer has led to */
	bool copied;	 /* of a stack_copy */
	bool wary;	 /* a zero on the stack is not taken for the start of a thread */
	taddr_t own_lo, own_hi; /* the mapping of its stack: nothing else is read of it */
	struct snapshot *own;	/* what `shot` is then */
	unsigned long accesses; /* of memory; bounded, since expressions can loop */
	unsigned long step_end; /* how many there may be when this step is done */
	taddr_t last_access;	/* of this step; 0: none */
	bool guessed;		/* a table was missing: libunwind goes by guesses */
};

/* Called for each frame; false ends the walk. */
typedef bool (*frame_seen)(void *arg, const struct stack_frame *frame);

bool stack_walker_init(struct stack_walk *w, const struct snapshot *shot, stack_home home,
		       void *arg);
void stack_walker_release(struct stack_walk *w);

/* From the frame in w->registers on. Returns true if the start of the thread was reached. */
bool stack_walk_registers(struct stack_walk *w, frame_seen seen, void *arg);

/* The same from where the thread is. */
bool stack_walk_shot(struct stack_walk *w, const struct stack_shot *thread, frame_seen seen,
		     void *arg);

/* True if a signal's handler returns to `pc`, into the kernel. */
bool stack_walk_is_sigreturn(struct stack_walk *w, taddr_t pc);

#endif
