/* SPDX-License-Identifier: MIT */
/*
 * stack.h - where the threads of the target are and where they will return to.
 *
 * Two questions are answered. At insertion, in the stop: does any live stack
 * or signal frame hold a value strictly inside one of these windows? At
 * removal, after the stop, from copies: which of these ranges can a thread
 * still be in or come back to?
 *
 * The conservative scan looks at every word from (sp - red zone) to the end of
 * the stack, follows signal frames to the stacks that they interrupted, and
 * never misses an address; a stale word may make it cautious. The walk
 * (libunwind-ptrace's accessors over the copies) is precise where it reaches
 * the start of the thread. It steps out of our own trampolines by `home`.
 */
#ifndef DINST_INJECT_STACK_H
#define DINST_INJECT_STACK_H

#include "arch/calling.h"
#include "inject/target.h"

/* Half-open ranges, sorted by lo, not overlapping. */
struct stack_range {
	taddr_t lo, hi;
	bool hit; /* set by the functions below, never cleared */
};

struct snapshot; /* copies of registers and live stacks */

/*
 * Copies registers and live stacks of all threads; in a stop. The snapshot
 * keeps a pointer to the target, which must stay open as long as it is used.
 */
int snapshot_take(struct stop *s, struct snapshot **out, struct dinst_error *e);
/* The same without what the program may have parked, whose search takes long: for walks, and snapshot_touches(). */
int snapshot_take_threads(struct stop *s, struct snapshot **out, struct dinst_error *e);
void snapshot_free(struct snapshot *shot);

/*
 * True if what the program may have parked (target_set_parks()) could not be looked for: it has
 * more memory than can be searched in a stop. Every range counts as hit then.
 */
bool snapshot_is_unsearched(const struct snapshot *shot);
/* True if it is, and another try would find the same: not for want of descriptors or memory of ours. */
bool snapshot_is_never_searched(const struct snapshot *shot);
/* Every range counts as hit from now on, too, for another reason: it may park something after all. */
void snapshot_doubt(struct snapshot *shot);
/* The target's, as they were in the stop; the snapshot's own. */
const struct maps *snapshot_maps(const struct snapshot *shot);
/* How much was searched for that, in pages. */
size_t snapshot_searched(const struct snapshot *shot);

/*
 * Sets `hit` on each range that contains a program counter, a register or any
 * aligned word of a live stack or signal frame. Where a stack could not be
 * copied whole every range is hit. Returns how many of the ranges are hit now,
 * as all functions here do.
 */
size_t snapshot_scan(const struct snapshot *shot, struct stack_range *ranges, size_t count);

/* As snapshot_scan, but without the threads' own program counters. */
size_t snapshot_scan_stacks(const struct snapshot *shot, struct stack_range *ranges, size_t count);

/*
 * For a program counter inside our own code: the address in the target's own
 * code that stands for it, and how many bytes our code has pushed. False if
 * `pc` is not ours.
 */
typedef bool (*stack_home)(void *arg, taddr_t pc, taddr_t *original, size_t *pushed);

/*
 * Sets `hit` like snapshot_scan, but for threads whose stack can be walked to
 * its start only on ranges that a frame's program counter lies in. Reads the
 * unwind tables out of the target, which runs meanwhile (target_read).
 */
size_t snapshot_walk(const struct snapshot *shot, stack_home home, void *arg,
		     struct stack_range *ranges, size_t count);

/*
 * Frames of one thread, innermost first, with what `home` says in place of our
 * own code; for tests and for people. Returns how many; *complete: the start
 * of the thread was reached.
 */
size_t snapshot_backtrace(const struct snapshot *shot, pid_t tid, stack_home home, void *arg,
			  taddr_t *pcs, size_t max, bool *complete);

/*
 * The thread, if something in its registers and live stacks is in one of the
 * ranges, its program counter included, or may be; 0 if not. `tid` 0: the first
 * thread of all of which that is true. Sets no `hit`.
 */
pid_t snapshot_touches(const struct snapshot *shot, pid_t tid, const struct stack_range *ranges,
		       size_t count);

/* True if the thread may be in a signal's handler: what looks like a signal frame is on its stacks, or can be. */
bool snapshot_handles(const struct snapshot *shot, pid_t tid);

/* True if something that is parked leads into one of the ranges, or may: snapshot_touches() knows threads only. */
bool snapshot_parks(const struct snapshot *shot, const struct stack_range *ranges, size_t count);

/* ------------------------------------------------------------- frames */

/* A frame as a walk sees it. */
struct stack_frame {
	taddr_t pc;	/* where it is or will be gone on; in our own code: as it stands */
	taddr_t home;	/* the same in the target's own code */
	taddr_t sp;	/* its stack pointer there, with what we have pushed taken off */
	bool returns;	/* pc is a return address */
	bool is_inside; /* pc is in our own code */
	bool guessed;	/* found by a frame pointer: no table describes the code in front of it */
};

struct stack_walk; /* opaque; for all threads of one snapshot, one after the other */

/* `home` as above. DINST_NO_MEMORY. Given back with stack_walk_end(). */
int stack_walk_begin(const struct snapshot *shot, stack_home home, void *arg,
		     struct stack_walk **out, struct dinst_error *e);
void stack_walk_end(struct stack_walk *walk);

/*
 * Calls seen() for each frame of the thread, innermost first; false from it ends
 * the walk. True: the start of the thread was reached, by unwind tables alone.
 */
bool stack_walk_thread(struct stack_walk *walk, pid_t tid,
		       bool (*seen)(void *arg, const struct stack_frame *frame), void *arg);

/* ------------------------------------------------------------- copies */

/* The begin of a stack as its thread copied it itself, where a function begins or returns. */
struct stack_copy {
	taddr_t pc, sp; /* where it returns to, and its stack pointer then */
	uint64_t preserved[ARCH_PRESERVED_MOST]; /* as arch_preserved() counts them */
	taddr_t lo;				 /* address of bytes[0]; a multiple of 8 */
	uint8_t *bytes;
	size_t size;
};

/*
 * A walk of such copies, by the target's mappings as they are now; for another target a new one,
 * and for another picture of the same. DINST_NO_MEMORY, or what maps_read() says. It keeps `t`.
 */
int stack_walk_begin_copies(const struct target *t, stack_home home, void *arg,
			    struct stack_walk **out, struct dinst_error *e);

/*
 * Calls seen() for each frame, from the caller on; false from it ends the walk. Where no table
 * describes the code it goes on by the frame pointer, if that leads up the copy to what follows
 * code; frames that were found so say it. Nothing of a stack is read but the copy. True: the start
 * of the thread was reached. *unmapped: the walk has ended at code that is not in the mappings.
 */
bool stack_walk_copy(struct stack_walk *walk, const struct stack_copy *copy,
		     bool (*seen)(void *arg, const struct stack_frame *frame), void *arg,
		     bool *unmapped);

#endif
