/* SPDX-License-Identifier: MIT */
/*
 * heap_private.h - what heap*.c share: the book-keeping of one arena.
 */
#ifndef DINST_INJECT_HEAP_PRIVATE_H
#define DINST_INJECT_HEAP_PRIVATE_H

#include "inject/heap.h"
#include "inject/heap_code.h"

enum {
	HEAP_SLOT = 8, /* bytes of one counter in one CPU's block */
	/* An element of a row that is not its first. */
	HEAP_ROW_PART = INT32_MAX,
};

struct heap {
	struct arena *arena;
	struct heap_code code;

	size_t code_begin;		 /* offset in the code half: behind the journal */
	size_t high_water;		 /* pages of code in use at a time, the most */
	bool was_full;			 /* heap_was_full() */
	bool poison;			 /* what is freed is filled */
	struct heap_totals *totals;	 /* NULL: nobody wants to know */
	size_t told_used, told_counters; /* our part of them */

	/* Slots are numbered alike in all blocks. */
	size_t first_counter; /* those below stay unused, or are the table of CPUs */
	taddr_t cpu_table;    /* address of the word for CPU 0; 0: there is none */
	uint32_t *references; /* of each row, at its first slot; 0: free; or HEAP_ROW_PART */
	uint64_t *baseline;   /* private arenas: what the slots held when it was allocated */
	uint64_t *last;	      /* private arenas: the value when it could be read last */
	bool *was_used;	      /* the slots may hold something */
	size_t counter_room;  /* slots in one block */
	size_t counter_hint;  /* none below it is free */
	size_t row_end;	      /* none from here on is free */
	size_t counters_used; /* slots */
	size_t counter_bytes; /* in all blocks */
	size_t counter_most;  /* the most that it was */
	bool *online;	      /* by CPU: those for which memory is made when it is given out */
	size_t made;	      /* bytes of it, of rows */
};

/* heap.c: what is in use has changed. */
void heap_tell(struct heap *h);

/* heap_counters.c */
/* The table of CPUs is written, too. DINST_OK or DINST_NO_MEMORY. */
int heap_counters_init(struct heap *h, struct dinst_error *e);
void heap_counters_release(struct heap *h);

#endif
