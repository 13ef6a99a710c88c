/* SPDX-License-Identifier: MIT */
/*
 * flow_ways.h - which instructions of a flow branch to a place in it, without a
 * look at all of them for each; and how much has been looked at in this flow.
 *
 *   1. flow_ways_find(), when instructions may have been added;
 *   2. flow_ways_first(), flow_ways_next(). flow_release() frees what is held.
 */
#ifndef DINST_MUTATOR_FLOW_WAYS_H
#define DINST_MUTATOR_FLOW_WAYS_H

#include "mutator/flow.h"

/* A register is stored, whole, to a place in the frame. */
struct frame_store {
	uint8_t base;
	int64_t offset;
	size_t at;
	arch_regset stored;
};

/* How registers came about that have something before insns[at] is asked. */
struct way_asked {
	size_t at;
	arch_regset regs;
};

/* What is known of a flow on the side: it grows while the flow is only read. */
struct flow_ways {
	uint32_t *first;   /* by byte: 1 + the index of the first instruction that leads there */
	uint32_t *next;	   /* by instruction: the same of the next one that leads where it does */
	uint8_t *switches; /* by instruction: flow_is_switch() */
	struct frame_store *stores; /* tables_stores.c; by place, then by instruction */
	size_t store_count;
	/* Room for tables_bases.c, as much as there are instructions: what has been asked before each, and what is to be. */
	arch_regset *asked;
	struct way_asked *todo;
	size_t insns; /* as many as there were when it was made; 0: not, or no more */
	bool judged;  /* `switches` is filled */
	uint64_t looks;
};

/* Makes sure that the flow's instructions, which must be in order, are known. */
int flow_ways_find(struct flow *f, struct dinst_error *e);

/* They are not those that it was made of any more. */
void flow_ways_forget(struct flow *f);

void flow_ways_release(struct flow *f);

/* Index of the first instruction that has v as its target; -1 if none does. */
static inline long flow_ways_first(const struct flow *f, vaddr_t v)
{
	long at = flow_byte(f, v);

	return at < 0 ? -1 : (long)f->ways->first[at] - 1;
}

/* The one behind insns[at] that has the same target; -1 if there is none. */
static inline long flow_ways_next(const struct flow *f, long at)
{
	return (long)f->ways->next[at] - 1;
}

/*
 * Looks at one instruction, or at something like it, to find out where all the indirect
 * jumps of one function may lead: a second or so. The function that takes most, in
 * libLLVM, takes about 640,000 of these 16.7 million.
 */
#define FLOW_LOOKS_MOST (UINT64_C(1) << 24)

static inline bool flow_looked_too_often(const struct flow *f)
{
	return f->ways->looks > FLOW_LOOKS_MOST;
}

/* Counts n looks; false if they are too many. */
static inline bool flow_look(const struct flow *f, uint64_t n)
{
	f->ways->looks += n;
	return !flow_looked_too_often(f);
}

#endif
