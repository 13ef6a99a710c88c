/* SPDX-License-Identifier: MIT */
/*
 * cfg_private.h - what the files that build a graph share; see cfg.h.
 *
 *   cfg.c        blocks, and the order of it all
 *   cfg_edges.c  the edges between them
 *   cfg_loops.c  dominators and loops
 */
#ifndef DINST_MUTATOR_CFG_PRIVATE_H
#define DINST_MUTATOR_CFG_PRIVATE_H

#include "mutator/cfg.h"

/* What is known of an instruction while blocks are cut. */
enum insn_bit {
	IS_LEADER = 1 << 0,
	IS_ENTERED = 1 << 1, /* reached by something that will be no edge */
	IS_LANDING = 1 << 2,
	IS_REACHED = 1 << 3,
};

struct making {
	struct cfg *g;
	const struct flow *f;
	uint8_t *bits; /* enum insn_bit of each instruction */
	struct dinst_error *e;
	int status;	 /* of edges: what went wrong, or 0 */
	bool all_tables; /* which table is whose is not known */
};

/* cfg.c: `items`, with room for one more than `count`; NULL without memory. */
void *cfg_grow(void *items, uint32_t count, uint32_t *room, size_t size);

/* cfg_edges.c: the edges of the blocks that are there, and lists of those that lead to each. */
int cfg_make_edges(struct making *m);

static inline const struct arch_insn *insn_at(const struct making *m, size_t i)
{
	return &m->f->insns.items[i];
}

static inline vaddr_t end_of(const struct arch_insn *insn)
{
	return insn->address + insn->length;
}

/* Control goes on at the next instruction, and that is known to be reached. */
static inline bool goes_on(const struct making *m, size_t i)
{
	return i + 1 < m->f->insns.count && end_of(insn_at(m, i)) == insn_at(m, i + 1)->address &&
	       m->bits[i + 1] & IS_REACHED;
}

static inline bool does_not_return(const struct making *m, size_t i)
{
	const struct arch_insn *insn = insn_at(m, i);

	return insn->flow == ARCH_FLOW_STOP || (arch_is_call(insn) && flow_is_noreturn(m->f, i));
}

#endif
