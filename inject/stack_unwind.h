/* SPDX-License-Identifier: MIT */
/*
 * stack_unwind.h - unwind tables of the target, for stack_walk.c.
 *
 * Finds the .eh_frame_hdr of the module that contains an address, in the
 * target's memory and not in files: so it works for deleted files, in
 * containers and for the vdso. Everything read is outside input.
 */
#ifndef DINST_INJECT_STACK_UNWIND_H
#define DINST_INJECT_STACK_UNWIND_H

#include "inject/maps.h"
#include "inject/target.h"

/* Where a module's table of functions is (LSB, "Exception Frames", .eh_frame_hdr). */
struct unwind_table {
	taddr_t lo, hi;	  /* the module's code that was asked for: one mapping */
	taddr_t header;	  /* of .eh_frame_hdr */
	taddr_t table;	  /* the sorted table in it */
	uint64_t entries; /* pairs of 32-bit numbers */
	bool valid;	  /* false: nothing is known about [lo, hi) */
};

enum { UNWIND_PAGES = 256, UNWIND_TABLES = 64 };

/* Reads of the target's modules through a cache; one walk long. */
struct unwind_memory {
	const struct target *target;
	const struct maps *maps;
	bool no_shared; /* nothing of shared mappings that are writable: they may be stacks */
	taddr_t pages[UNWIND_PAGES]; /* page addresses + 1; 0: empty */
	uint8_t *bytes;		     /* UNWIND_PAGES pages */
	struct unwind_table tables[UNWIND_TABLES];
	size_t table_count;
};

/* False if there is no memory. */
bool unwind_memory_init(struct unwind_memory *u, const struct target *t, const struct maps *maps);
void unwind_memory_release(struct unwind_memory *u);

/*
 * Reads bytes of modules: of mappings that are not writable, or of a file
 * (pointers to personality routines are in .data). False for everything else:
 * a stack must come from a copy, since the target runs.
 */
bool unwind_read(struct unwind_memory *u, taddr_t address, void *to, size_t size);

/* The table for code at `pc`; NULL if there is none. Valid until the next call. */
const struct unwind_table *unwind_find(struct unwind_memory *u, taddr_t pc);

#endif
