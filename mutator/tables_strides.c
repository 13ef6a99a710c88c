/* SPDX-License-Identifier: MIT */
/*
 * tables_strides.c - jumps into rows of equal pieces of code: not by a table,
 * but to an address in the function plus a number that has been multiplied on
 * the line before the jump. The number may be any: every address counts that is
 * a multiple of the factor away, either way. Of the factor only the power of two
 * in it is sure, since what does not fit into a register is lost.
 */
#include "mutator/flow_ways.h"
#include "mutator/tables_private.h"

enum {
	LOOK_BACK = 24, /* instructions before the jump */
	STRIDE_MIN = 16,
};

struct sum {
	vaddr_t base;	 /* 0: no register holds an address of the function */
	uint64_t stride; /* 0: no register is known to be a multiple of anything */
	unsigned parts;	 /* registers that are added */
};

/* The instruction before insns[at] on its line that defines `wanted`; -1 if it is not there. */
static long defined_by(const struct flow *f, size_t at, arch_regset wanted, arch_regset *reads)
{
	for (unsigned steps = 0; at > 0 && steps < LOOK_BACK; steps++) {
		const struct arch_insn *insn = &f->insns.items[at - 1];
		arch_regset writes;

		if (insn->flow != ARCH_FLOW_NEXT ||
		    insn->address + insn->length != f->insns.items[at].address ||
		    flow_marks(f, f->insns.items[at].address) & MARK_TARGET)
			return -1;
		at--;
		arch_effects(insn, reads, &writes);
		if (writes & wanted)
			return (long)at;
		if (arch_changes(insn) & wanted)
			return -1;
	}
	return -1;
}

static uint64_t lowest_bit(uint64_t n)
{
	return n & -n;
}

/* What one register of the sum is made of. */
static void look_at(const struct flow *f, size_t at, arch_regset wanted, struct sum *sum)
{
	uint64_t stride = 1, factor;
	arch_regset reads;
	long def = defined_by(f, at, wanted, &reads);

	sum->parts++;
	if (def >= 0 && f->insns.items[def].flags & ARCH_INSN_ADDRESS_OF) {
		if (flow_contains(f, f->insns.items[def].data_ref))
			sum->base = f->insns.items[def].data_ref;
		return;
	}
	while (def >= 0 && arch_multiplies(&f->insns.items[def], &factor) && factor) {
		stride *= lowest_bit(factor);
		if (stride > f->byte_count)
			break;
		def = defined_by(f, (size_t)def, reads, &reads);
	}
	sum->stride = stride;
}

static struct sum sum_of(const struct flow *f, size_t at)
{
	struct sum sum = {0, 0, 0};
	arch_regset wanted, reads, writes;
	long add;

	arch_effects(&f->insns.items[at], &wanted, &writes);
	add = defined_by(f, at, wanted & ~arch_always_live, &reads);
	/* No constant comes to it, and none of the two is multiplied once more. */
	if (add < 0 || f->insns.items[add].flags & ARCH_INSN_MEMORY ||
	    !arch_adds(&f->insns.items[add]))
		return sum;
	for (arch_regset rest = reads; rest; rest &= rest - 1)
		look_at(f, (size_t)add, rest & -rest, &sum);
	return sum;
}

/* Everything that is a multiple of the stride away from the base. */
static int follow_row(struct flow *f, const struct sum *sum, struct dinst_error *e)
{
	int r = 0;

	for (size_t i = 0; i < f->piece_count; i++) {
		const struct piece *p = &f->pieces[i];
		vaddr_t v = p->lo + ((sum->base - p->lo) & (sum->stride - 1));

		for (; v < p->hi && r == 0 && flow_look(f, 1); v += sum->stride) {
			/* Nobody begins a row with the function itself: its entry is no loop. */
			flow_mark(f, v, MARK_TARGET | (v == p->lo ? 0 : MARK_LOOP | MARK_TABLE));
			if (flow_insn_at(f, v) < 0)
				continue;
			f->unsure = !flow_begins_block(f, v);
			r = flow_follow(f, v, e);
			f->unsure = false;
		}
	}
	return r;
}

int flow_row(struct flow *f, size_t at, bool *known, struct dinst_error *e)
{
	const struct arch_insn *jump = &f->insns.items[at];
	struct sum sum;

	*known = false;
	if (jump->flow != ARCH_FLOW_JUMP_INDIRECT || jump->flags & ARCH_INSN_MEMORY || !f->linear)
		return 0;
	sum = sum_of(f, at);
	if (sum.parts != 2 || !sum.base || sum.stride < STRIDE_MIN)
		return 0;
	*known = true;
	return follow_row(f, &sum, e);
}
