/* SPDX-License-Identifier: MIT */
/*
 * stack_snapshot.h - struct snapshot from the inside; for stack*.c only.
 *
 * Copies are kept in regions that do not overlap, sorted by address; a thread
 * has spans, which are what of the regions is its own. Two threads on stacks
 * in one mapping (fibers, Go) share a copy, since where one ends is not known.
 */
#ifndef DINST_INJECT_STACK_SNAPSHOT_H
#define DINST_INJECT_STACK_SNAPSHOT_H

#include "inject/maps.h"
#include "inject/stack.h"

struct region_signals; /* stack_signals.h */

struct stack_region {
	taddr_t lo, hi; /* lo is aligned to 8 */
	uint8_t *bytes;
	struct region_signals *signals; /* NULL: not searched yet */
};

struct stack_span {
	taddr_t lo, hi;
	bool has_signals; /* what looks like a signal frame lies there */
};

enum { STACK_SPANS_MAX = 32 }; /* stacks of one thread: its own and what signals interrupted */

struct stack_shot {
	pid_t tid;
	struct arch_regs regs;
	struct stack_span *spans;
	size_t span_count;
	size_t frames; /* of signals, on all of them */
	bool partial;  /* something of its stack could not be copied, or nobody has looked there */
	bool unfollowed; /* ... since there were too many signal frames */
};

/* True if it can be a stack; NULL is none. */
bool is_stack_memory(const struct maps_entry *entry);

struct snapshot {
	const struct target *target;
	struct maps maps;
	struct stack_shot *threads;
	size_t thread_count;
	struct stack_region *regions;
	size_t region_count, region_room;
	size_t copied;	 /* bytes of all regions */
	size_t guards;	 /* that copying has gone round */
	size_t spanned;	 /* bytes of all spans: of one region there may be many */
	taddr_t *parked; /* words of private memory that lead into code: stack_parked.c */
	size_t parked_count;
	size_t searched;     /* pages, for them */
	bool parked_unknown; /* there may be any */
	bool parked_lack; /* ... for want of descriptors or memory of ours: another try may tell */
	bool doubted;	  /* ... by snapshot_doubt() */
};

/* Index of the first region that ends above `address`. */
size_t snapshot_region_index(const struct snapshot *shot, taddr_t address);

/* Makes sure that all of [lo, hi) is copied; *partial if not all can be. */
int snapshot_copy(struct snapshot *shot, taddr_t lo, taddr_t hi, bool *partial,
		  struct dinst_error *e);

/*
 * The lowest page that was ever used of a stack in `home` that ends at `hi` and begins at `lo`, a page's begin, or
 * behind it: at a guard that is no mapping. `hi` if there is none, `lo` where that cannot be told. *beyond: in front of
 * `lo`, a page's begin, more of it may be in use.
 */
taddr_t snapshot_home_begin(const struct snapshot *shot, const struct maps_entry *home, taddr_t lo,
			    taddr_t hi, bool *beyond);

/* Fills in what may be parked; in the stop. */
void snapshot_find_parked(struct snapshot *shot);

/* Sets `hit` on ranges that something parked leads into. */
void snapshot_mark_parked(const struct snapshot *shot, struct stack_range *ranges, size_t count);

/* Our copy of `size` bytes at `address`, or NULL if they are not all in one region. */
const uint8_t *snapshot_bytes(const struct snapshot *shot, taddr_t address, size_t size);

/* As snapshot_scan() for one thread. */
void snapshot_scan_thread(const struct snapshot *shot, const struct stack_shot *thread,
			  bool with_pc, struct stack_range *ranges, size_t count);

/*
 * The same for those of its stacks that signal frames lie on: from the first that is above `walked`, the
 * highest stack pointer of a frame that was seen there, or all where that is 0: a handler may have left one for another
 * stack, which may lie below in the same memory.
 */
void snapshot_scan_left(const struct snapshot *shot, const struct stack_shot *thread,
			const taddr_t *walked, struct stack_range *ranges, size_t count);

/* The lowest signal frame of the span that begins at `from` or above it; the end of the span if there is none. */
taddr_t snapshot_signal_above(const struct snapshot *shot, const struct stack_span *span,
			      taddr_t from);

/* Sets `hit` on the range that contains `value`, if there is one. */
void stack_ranges_mark(struct stack_range *ranges, size_t count, taddr_t value);

size_t stack_ranges_hits(const struct stack_range *ranges, size_t count);

#endif
