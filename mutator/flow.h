/* SPDX-License-Identifier: MIT */
/*
 * flow.h - the decoded form of one function, private to planning.
 *
 * A flow is a function's own code and its cold fragments ("pieces"), decoded
 * linearly and followed from everything that may lead into it. Marks are kept
 * per byte, because real code jumps into the middle of instructions (over a
 * lock prefix). It is a superset: what is marked as a target may be none, what
 * is not marked is none, unless `unresolved` is set.
 *
 *   1. flow_build(); 2. ask; 3. flow_release().
 */
#ifndef DINST_MUTATOR_FLOW_H
#define DINST_MUTATOR_FLOW_H

#include "mutator/freemap.h"
#include "mutator/image.h"

enum flow_mark {
	MARK_COVER = 1 << 0, /* part of an instruction of the linear decode */
	/* Nothing is sure: instructions overlap here, or this is reached only by what
	 * may be data (an address that is computed, an entry behind a table). */
	MARK_CONFLICT = 1 << 1,
	MARK_REACHED = 1 << 2,	/* first byte of an instruction that control reaches */
	MARK_TARGET = 1 << 3,	/* control, or a return address, may arrive here */
	MARK_LOOP = 1 << 4,	/* a jump of this function itself leads here */
	MARK_REFERRED = 1 << 5, /* image_references_at() names it */
	MARK_RSEQ = 1 << 6,	/* of a sequence whose pcs somebody compares */
	MARK_SURE = 1 << 7,	/* a symbol, a handler or a stored address: code starts here */
	MARK_RETURN = 1 << 8,	/* a call returns here, or the kernel does */
	/* A branch leads here that is none of insns[]: it comes from another function,
	 * from bytes that nobody has decoded, or from an instruction inside another. */
	MARK_FOREIGN = 1 << 9,
	MARK_TABLE = 1 << 10, /* an entry of a jump table of the function leads here */
	/* Somebody has a constant that is this address, where addresses are fixed, or makes it of another one. */
	MARK_CONSTANT = 1 << 11,
};

struct piece {
	vaddr_t lo, hi;
	size_t base; /* index of the marks of lo */
};

struct insn_list {
	struct arch_insn *items;
	size_t count, room;
};

struct flow_ways; /* flow_ways.h */

struct flow {
	struct image *img;
	struct freemap *map;
	uint32_t function;
	struct piece *pieces; /* sorted by address, disjoint */
	size_t piece_count, piece_room;
	size_t byte_count;
	uint16_t *marks;	/* enum flow_mark of every byte of the pieces */
	uint32_t *heads;	/* 1 + index of the instruction that starts here, or 0 */
	struct insn_list insns; /* sorted by address, no overlaps */
	struct insn_list odd;	/* reached by jumps into the middle of others */
	size_t labels;		/* inner instructions whose address is stored or computed */
	size_t code_bases; /* addresses in the pieces, or inside of other functions, that it computes */
	size_t inner_bases;	/* ... other than that of its start */
	struct flow_ways *ways; /* what is found out on the side; NULL: nothing yet */
	bool unsorted;
	bool unsure;	 /* while building: what is reached now may be no code */
	bool compared;	 /* something is marked MARK_RSEQ */
	bool linear;	 /* decoded without a gap from the first byte to the last */
	bool unresolved; /* an indirect jump, or what is not in the file, may lead anywhere in here */
	bool single_only;  /* pcs may be parked anywhere: one instruction a window */
	bool turns_faults; /* what may fault stays where it is */
	bool led_into;	   /* another function computes an address in here */
	bool probe;	   /* built to settle hits: all that come in count as real */
};

/* Decodes function `index`. On failure (no memory, no references) nothing is held. */
int flow_build(struct flow *f, struct image *img, struct freemap *map, uint32_t index,
	       struct dinst_error *e);
void flow_release(struct flow *f);

/* Index of the first of the sorted instructions at or behind v; their number if there is none. */
size_t flow_insn_from(const struct flow *f, vaddr_t v);

/* Index of the first piece that ends behind v, of any number; piece_count if none does. */
size_t flow_piece_behind(const struct flow *f, vaddr_t v);

/* A function has one piece or two; who makes it of a hundred thousand has them searched. */
enum { PIECES_FEW = 4 };

/* The piece that v is in, NULL if it is in none. Asked for every instruction: inline. */
static inline const struct piece *flow_piece(const struct flow *f, vaddr_t v)
{
	size_t i = f->piece_count > PIECES_FEW ? flow_piece_behind(f, v) : 0;

	for (; i < f->piece_count; i++) {
		if (v - f->pieces[i].lo < f->pieces[i].hi - f->pieces[i].lo)
			return &f->pieces[i];
		if (f->piece_count > PIECES_FEW)
			break;
	}
	return NULL;
}

/* Index of v's marks, or -1 if v is in none of the pieces. */
static inline long flow_byte(const struct flow *f, vaddr_t v)
{
	const struct piece *p = flow_piece(f, v);

	return p ? (long)(p->base + (v - p->lo)) : -1;
}

static inline bool flow_contains(const struct flow *f, vaddr_t v)
{
	return flow_byte(f, v) >= 0;
}

/* Marks of one byte; 0 outside the pieces. */
static inline unsigned flow_marks(const struct flow *f, vaddr_t v)
{
	long at = flow_byte(f, v);

	return at < 0 ? 0 : f->marks[at];
}

/* Index of the instruction that starts at v, -1 if none does. */
static inline long flow_insn_at(const struct flow *f, vaddr_t v)
{
	long at = flow_byte(f, v);

	return at < 0 ? -1 : (long)f->heads[at] - 1;
}

/*
 * True if v is where a compiler would begin a basic block that only jumps lead
 * to: an instruction whose predecessor, in code without a gap, does not run on.
 */
bool flow_begins_block(const struct flow *f, vaddr_t v);

/* True for a breakpoint that is executed: whoever handles the trap goes on behind it. */
static inline bool flow_is_breakpoint(const struct flow *f, const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_STOP && insn->flags & ARCH_INSN_PADDING &&
	       flow_marks(f, insn->address) & MARK_REACHED;
}

/* Index of the instruction that the byte at v is part of, -1 if there is none. */
long flow_covering(const struct flow *f, vaddr_t v);

/* Adds marks to a byte of the pieces; outside them nothing happens. */
static inline void flow_mark(struct flow *f, vaddr_t v, unsigned marks)
{
	long at = flow_byte(f, v);

	if (at >= 0)
		f->marks[at] |= (uint16_t)marks;
}

/* Marks v as a target and follows control from there, as far as it is new. */
int flow_follow(struct flow *f, vaddr_t v, struct dinst_error *e);

/*
 * Reads the jump tables that the function may use, marks what they lead to and
 * follows it. Sets f->unresolved if some indirect jump remains a riddle.
 */
int flow_tables(struct flow *f, struct dinst_error *e);

/*
 * The same for what has been found since then, behind the first `settled` instructions:
 * with an indirect jump among it f->unresolved is set. Puts all in order.
 */
int flow_tables_late(struct flow *f, size_t settled, struct dinst_error *e);

/* True if the indirect jump insns[at] looks like a switch: computed, not loaded whole. */
bool flow_is_switch(const struct flow *f, size_t at);

/*
 * tables_jumps.c: what is built against speculation, in the function itself. True if insns[at] is a call
 * that only jumps to what a register holds; and if it is a return that calls what one holds.
 */
bool flow_begins_thunk(const struct flow *f, size_t at);
bool flow_calls_by_return(const struct flow *f, size_t at);
/* Whom insns[at] calls; 0: nobody knows, or it is no direct call. */
vaddr_t flow_callee(const struct flow *f, size_t at);

/* True if the jump or branch insns[at] leaves the function (an exit point). */
bool flow_is_exit(const struct flow *f, size_t at);

/* Where that exit has its point: there, or where the return address leaves the stack. */
size_t flow_exit_point(const struct flow *f, size_t at);

/* True if insns[at], which has the point of an exit, jumps to what a register or memory holds. */
bool flow_is_pointer_jump(const struct flow *f, size_t at);

/* True if control runs from insns[at] over the end of the function, into what is behind. */
bool flow_falls_out(const struct flow *f, size_t at);

/*
 * True if insns[at] is a call that does not come back. What follows it is not
 * reached from it, but its return point remains a target.
 */
bool flow_is_noreturn(const struct flow *f, size_t at);

/*
 * Where the indirect jump insns[at] may lead inside the function, as far as
 * tables of the function and stored addresses tell: sorted, without doubles,
 * malloc'ed. A superset; none: nothing is known (or it only leaves the function).
 * Takes no more than *left steps, and says how many it has left: with none the
 * list is not whole.
 */
int flow_jump_targets(const struct flow *f, size_t at, vaddr_t **targets, size_t *count,
		      uint64_t *left, struct dinst_error *e);

/* Marks what short branches of the code around the pieces lead to. flow_edges.c */
int flow_neighbours(struct flow *f, struct dinst_error *e);

/* Puts the instructions in order again after some have been added by following. */
void flow_sort(struct flow *f);

int insn_list_add(struct insn_list *list, const struct arch_insn *insn, struct dinst_error *e);

#endif
