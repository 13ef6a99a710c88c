/* SPDX-License-Identifier: MIT */
/*
 * tables_bounds.c - where a switch's table of whole addresses ends, as the comparison tells that keeps the switch
 * from taking what is behind it. Goes back from what takes an entry along the straight way, as long as no other one
 * comes in between. Only which jumps are exits depends on it: the tables of switches are read on behind (tables.c).
 */
#include "mutator/tables_private.h"

enum {
	LOOK_BACK = 24,		/* instructions between the comparison and what takes an entry */
	ENTRIES_MAX = 1u << 16, /* of a table; what is compared with more bounds none */
};

/* What counts the entries: in a register, or in the memory that it is loaded from. */
struct counter {
	arch_regset reg; /* 0: it is in memory */
	struct arch_memory place;
	arch_regset address; /* the registers of its place */
};

/* True if control comes to insns[at] from the instruction in front of it, and by no other way. */
static bool is_run_into_only(const struct flow *f, size_t at)
{
	return flow_is_run_into(f, at) && !(flow_marks(f, f->insns.items[at].address) &
					    (MARK_LOOP | MARK_REFERRED | MARK_FOREIGN));
}

static bool is_same_place(const struct arch_memory *a, const struct arch_memory *b)
{
	return a->computable && b->computable && a->thread_relative == b->thread_relative &&
	       a->base == b->base && a->index == b->index && a->shift == b->shift &&
	       a->extend == b->extend && a->offset == b->offset;
}

static bool stores(const struct arch_insn *insn)
{
	struct arch_memory m[ARCH_MEMORY_MAX];
	unsigned n = arch_memory_operands(insn, m);

	for (unsigned i = 0; i < n; i++)
		if (m[i].store)
			return true;
	return false;
}

/* The instruction makes the counter's register: what is the counter before it? False if nobody knows. */
static bool find_origin(struct counter *c, const struct arch_insn *insn, arch_regset reads,
			arch_regset writes)
{
	struct arch_memory m[ARCH_MEMORY_MAX];

	if (writes != c->reg)
		return false;
	if (!(insn->flags & ARCH_INSN_MEMORY)) {
		c->reg = reads;
		return (flow_is_copy(insn) || arch_extends(insn)) &&
		       __builtin_popcountll(reads) == 1;
	}
	c->address = flow_address_registers(insn);
	if (arch_memory_operands(insn, m) != 1 || !m[0].load || !m[0].computable ||
	    reads & ~c->address)
		return false;
	c->place = m[0];
	c->reg = 0;
	return true;
}

/* What is the counter before the instruction? False if nobody knows. */
static bool go_back(struct counter *c, const struct arch_insn *insn)
{
	arch_regset reads, writes, changed;

	arch_effects(insn, &reads, &writes);
	changed = writes | arch_changes(insn);
	if (!c->reg)
		return !(changed & c->address) && !stores(insn);
	return !(changed & c->reg) || find_origin(c, insn, reads, writes);
}

/* How many values the counter may have where a branch that asks for `asked` was not taken; 0: any. */
static uint64_t count_values(const struct counter *c, const struct arch_insn *insn,
			     enum arch_condition asked)
{
	struct arch_memory m[ARCH_MEMORY_MAX];
	arch_regset reg;
	uint64_t limit;

	if (!arch_compares(insn, &reg, &limit) || reg != c->reg || limit >= ENTRIES_MAX)
		return 0;
	if (!reg && (arch_memory_operands(insn, m) != 1 || !is_same_place(&m[0], &c->place)))
		return 0;
	switch (asked) {
	case ARCH_CONDITION_ABOVE:
		return limit + 1;
	case ARCH_CONDITION_ABOVE_EQUAL:
		return limit;
	default:
		return 0;
	}
}

uint64_t flow_entries_bound(const struct flow *f, size_t at, arch_regset index)
{
	enum arch_condition asked = ARCH_CONDITION_OTHER;
	struct counter c = {.reg = index};
	arch_regset of = 0; /* the flags that a branch behind asks */

	for (unsigned steps = 0; steps < LOOK_BACK && is_run_into_only(f, at); steps++) {
		const struct arch_insn *insn = &f->insns.items[--at];
		arch_regset reads, writes;

		arch_effects(insn, &reads, &writes);
		if (insn->flow != ARCH_FLOW_NEXT && insn->flow != ARCH_FLOW_BRANCH)
			return 0;
		if (insn->flow == ARCH_FLOW_BRANCH) {
			asked = arch_condition(insn);
			of = reads;
		} else if (writes & of) {
			const uint64_t count = count_values(&c, insn, asked);

			if (count)
				return count;
			of = 0;
		}
		if (!go_back(&c, insn))
			return 0;
	}
	return 0;
}
