/* SPDX-License-Identifier: MIT */
/*
 * flow_private.h - what the files that build a flow share; see flow.h.
 *
 *   flow.c         decoding and following, and the order of it all
 *   flow_pieces.c  which bytes are the function's, and the image's marks on them
 *   flow_hits.c    branches from elsewhere: true or chance
 *   flow_edges.c   short branches from next door; exits
 *   flow_odd.c     the same from code that is read in two ways
 *   flow_gaps.c    branches from bytes that are in no function
 *   flow_ways.c    the branches of the function itself, by where they lead
 *   flow_returns.c what ends a line, and calls behind which there may be data
 *   flow_outs.c    where the function branches to outside of itself
 *   flow_labels.c  addresses of the function that its instructions end with
 *   flow_sequences.c code between whose instructions nothing may be inserted
 *   tables*.c      jump tables: see tables_private.h
 */
#ifndef DINST_MUTATOR_FLOW_PRIVATE_H
#define DINST_MUTATOR_FLOW_PRIVATE_H

#include "mutator/flow.h"

/* flow_pieces.c: fills pieces, marks and heads of an empty flow. */
int flow_make_pieces(struct flow *f, struct dinst_error *e);
/* Marks what the image and its jump tables know of, and what is true of the hits. */
int flow_mark_references(struct flow *f, struct dinst_error *e);

/* flow_sequences.c, when all is decoded and in order: marks what must be executed where it is (MARK_RSEQ). */
void flow_mark_compared(struct flow *f);
void flow_mark_prefixed(struct flow *f);
int flow_mark_exclusives(struct flow *f, struct dinst_error *e);

/*
 * True if control does not go on behind the instruction. For a call that costs
 * something to find out, and is not asked where it makes no difference: behind
 * one that does not return a compiler leaves nothing but space and what
 * something else leads to.
 */
bool flow_ends_line(struct flow *f, const struct arch_insn *insn);
/* True for a breakpoint that is executed for its handler; in front of padding it says that nobody comes there. */
bool flow_traps(const struct flow *f, const struct arch_insn *insn);

/*
 * True if what is called begins by taking its return address off the stack: then what stands behind the
 * call may be data, a text whose address is had by that. A call of the next instruction is no such.
 */
bool flow_takes_return(const struct flow *f, const struct arch_insn *call);

/*
 * flow_outs.c: where jumps and branches of the function, reached or not, lead to that
 * is not in its pieces. Instructions are added as they are found, and never sorted
 * meanwhile.
 */
struct out {
	vaddr_t target;
	uint64_t found; /* the update that has brought it */
};

struct outs {
	struct out *items;
	size_t count, room;
	size_t insns, odd; /* how many of f's have been looked at */
	uint64_t updates;
	/* Where sorted runs begin: each more than twice as long as the next one. */
	size_t runs[64];
	unsigned run_count;
};

int outs_update(struct outs *o, const struct flow *f, struct dinst_error *e);
/* Calls `found` for those in [lo, hi) that came after update `after`; until it says true: then true. */
bool outs_into(const struct outs *o, vaddr_t lo, vaddr_t hi, uint64_t after,
	       bool (*found)(void *arg, vaddr_t target), void *arg);
void outs_release(struct outs *o);

/*
 * flow_gaps.c: marks and follows what the bytes between functions branch to. Each
 * gap is walked once, and again if the function turns out to branch into it.
 */
struct gap_walk {
	long before;	/* the function in front of the gap, -1: none */
	uint64_t known; /* the update of outs that it was walked with */
};

struct gap_walks {
	struct flow *f;
	struct gap_walk *items; /* by address */
	size_t count, room;
	struct outs outs;
};

/* Walks what is between function `before` and the next one, if it is not the last that was. */
int gap_walks_add(struct gap_walks *walks, long before, struct dinst_error *e);
int gap_walks_again(struct gap_walks *walks, struct dinst_error *e);
void gap_walks_release(struct gap_walks *walks);

/* flow_edges.c: marks the bytes that instructions of the function read or write as data, for good. */
void flow_mark_data(struct flow *f);

/* flow_edges.c: f->unresolved if jumps lead to where there is no code; their bytes are conflicts. */
void flow_mark_rewritten(struct flow *f);

/* flow_hits.c: marks what branches from elsewhere lead to. */
int flow_hits(struct flow *f, struct dinst_error *e);
/* A branch or a call, which leads to code for sure; else only an address is computed. */
struct image_hit;
bool flow_hit_branches(const struct flow *f, const struct image_hit *hit);

/* flow_edges.c: a branch from outside leads to v; within an instruction, v is read anew. */
int flow_enter(struct flow *f, vaddr_t v, struct dinst_error *e);
/*
 * flow_odd.c: follows short branches out of the part [lo, hi) of another function, `index`, from where somebody jumps
 * into the middle of one of its instructions. The sweep may go.
 */
int flow_mark_from_odd(struct flow *f, uint32_t index, const struct sweep *s, vaddr_t lo,
		       vaddr_t hi, struct dinst_error *e);
/* flow_edges.c: what a branch at any byte of [lo, hi) leads to. */
void flow_mark_every_offset(struct flow *f, vaddr_t lo, vaddr_t hi);
/* flow_hits.c: *real if one of the hits to v is no chance; they are settled for that. All are, to who settles others. */
int flow_is_led_to(struct flow *f, vaddr_t v, bool *real, struct dinst_error *e);
/*
 * Code in front of `hi`, where bytes of f's may begin, is read up to `at`: if one more instruction there runs
 * into f, its bytes are read in two ways, and control goes on behind it.
 */
int flow_run_over(struct flow *f, vaddr_t at, vaddr_t hi, struct dinst_error *e);

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

/* tables.c: true if v is where the function starts. */
bool flow_starts_at(const struct flow *f, vaddr_t v);

/* flow_labels.c: what is the same for all instructions of a function. */
struct label_search {
	bool fixed;
	vaddr_t bases[OFFSET_BASES];
	size_t count;
};
enum { LABELS_MOST = 2 + OFFSET_BASES };
void flow_label_search(const struct flow *f, struct label_search *s);
/*
 * Marks and counts the addresses in the function that the last bytes of the instruction may stand for;
 * how many there are. Those at which nobody knows of code are marked as targets only.
 */
size_t flow_mark_labels(struct flow *f, const struct label_search *s, const struct arch_insn *insn,
			vaddr_t labels[LABELS_MOST]);
/* Marks all of them as references, of what may be no instruction. */
void flow_mark_all_labels(struct flow *f, const struct label_search *s,
			  const struct arch_insn *insn);
/*
 * An address in the function's own code, other than its start, or inside of another one, is noted: a
 * jump of which nothing is known may be computed from it (into an unrolled loop), and lead anywhere.
 */
void flow_count_base(struct flow *f, vaddr_t v);

/* flow.c: as flow_build(), but no hit is settled: all count as real. */
int flow_build_probe(struct flow *f, struct image *img, struct freemap *map, uint32_t index,
		     struct dinst_error *e);

#endif
