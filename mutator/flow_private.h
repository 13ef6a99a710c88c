/* SPDX-License-Identifier: MIT */
/*
 * flow_private.h - what the files that build a flow share; see flow.h.
 *
 *   flow.c         decoding and following, and the order of it all
 *   flow_pieces.c  which bytes are the function's, and the image's marks on them
 *   flow_hits.c    branches from elsewhere: true or chance
 *   flow_edges.c   short branches from next door; exits
 *   flow_gaps.c    branches from bytes that are in no function
 *   flow_ways.c    the branches of the function itself, by where they lead
 *   tables*.c      jump tables: see tables_private.h
 */
#ifndef DINST_MUTATOR_FLOW_PRIVATE_H
#define DINST_MUTATOR_FLOW_PRIVATE_H

#include "mutator/flow.h"

/* flow_pieces.c: fills pieces, marks and heads of an empty flow. */
int flow_make_pieces(struct flow *f, struct dinst_error *e);
/* Marks what the image and its jump tables know of, and what is true of the hits. */
int flow_mark_references(struct flow *f, struct dinst_error *e);

/*
 * flow_gaps.c: marks and follows what the bytes [lo, hi), which no function has,
 * branch to. `run_into`: control may come to lo from what is in front of it.
 */
int flow_walk_gap(struct flow *f, vaddr_t lo, vaddr_t hi, bool run_into, struct dinst_error *e);

/* flow_hits.c: marks what branches from elsewhere lead to. */
int flow_hits(struct flow *f, struct dinst_error *e);
/* A branch or a call, which leads to code for sure; else only an address is computed. */
struct image_hit;
bool flow_hit_branches(const struct flow *f, const struct image_hit *hit);

/* flow_edges.c: a branch from outside leads to v; within an instruction, v is read anew. */
int flow_enter(struct flow *f, vaddr_t v, struct dinst_error *e);

/*
 * tables_jumps.c: true if insns[at] jumps to what a register holds, or to what it
 * loads itself: an indirect jump, a jump to a thunk that does it, a return to what
 * has just been stored as the return address. flow_end_is_indirect() is the same for
 * what may be one.
 */
struct indirect {
	size_t before;	    /* the instruction in front of which `wanted` has the address */
	arch_regset wanted; /* 0: loaded by the jump itself */
};
bool flow_end_is_indirect(const struct flow *f, size_t at, struct indirect *jump);

/* Asked of every instruction: inline. */
static inline bool flow_jumps_indirectly(const struct flow *f, size_t at, struct indirect *jump)
{
	switch (f->insns.items[at].flow) {
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_JUMP_INDIRECT:
	case ARCH_FLOW_BRANCH:
	case ARCH_FLOW_RETURN:
		return flow_end_is_indirect(f, at, jump);
	default:
		return false;
	}
}

/* flow.c: as flow_build(), but no hit is settled: all count as real. */
int flow_build_probe(struct flow *f, struct image *img, struct freemap *map, uint32_t index,
		     struct dinst_error *e);

#endif
