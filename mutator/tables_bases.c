/* SPDX-License-Identifier: MIT */
/*
 * tables_bases.c - whether a register has an address as it was computed, with nothing added to it since. Goes
 * back through the whole function, along every way by which control may have come:
 *
 *   1. those of branches, all of which must end where the address is computed;
 *   2. those of indirect jumps. Each may lead to whatever any table of the function names, though it does to
 *      few of those: a way that ends in a number, a call or memory is none. One that ends in arithmetic may be;
 *   3. back from that, by branches alone: there an address must not be what it was done with.
 */
#include "mutator/flow_ways.h"
#include "mutator/tables_private.h"

#include <string.h>

struct walk {
	const struct flow *f;
	size_t count;	      /* what is still to be gone back from: the first of f->ways->todo */
	size_t arithmetic;    /* what the third step begins with: the last of them */
	arch_regset by_table; /* registers that are asked for where a table leads to */
	bool by_jumps;	      /* the second step */
	bool found;	      /* an instruction that computes an address, at the end of a way */
};

enum made { MADE_KEPT, MADE_COPY, MADE_ADDRESS, MADE_NEVER, MADE_OTHERWISE };

static bool is_full(const struct walk *w)
{
	return w->count + w->arithmetic == w->f->ways->insns;
}

/* Asks how registers came about before insns[at], if that has not been asked; false if there is no room. */
static bool ask(struct walk *w, arch_regset regs, size_t at)
{
	struct flow_ways *ways = w->f->ways;

	regs &= ~ways->asked[at];
	if (!regs)
		return true;
	if (is_full(w))
		return false;
	ways->asked[at] |= regs;
	ways->todo[w->count++] = (struct way_asked){at, regs};
	return true;
}

/* Before the branches to insns[at], and calls of it; none of them may change the registers. */
static bool ask_before_branches(struct walk *w, arch_regset regs, size_t at, bool *any)
{
	const struct flow *f = w->f;
	vaddr_t v = f->insns.items[at].address;

	for (long i = flow_ways_first(f, v); i >= 0; i = flow_ways_next(f, i)) {
		*any = true;
		if (!flow_look(f, 1) ||
		    arch_changes(&f->insns.items[i]) & regs & ~arch_always_live ||
		    !ask(w, regs, (size_t)i))
			return false;
	}
	return true;
}

/* Before all indirect jumps but those to what the register has: that is an address of code. */
static bool ask_before_jumps(struct walk *w, arch_regset reg)
{
	const struct flow *f = w->f;
	struct indirect jump;

	if (!flow_look(f, f->insns.count))
		return false;
	for (size_t i = 0; i < f->insns.count; i++)
		if (flow_jumps_indirectly(f, i, &jump) && !(jump.wanted & reg) &&
		    !ask(w, reg, jump.before))
			return false;
	return true;
}

/* What insns[at] makes of register `reg`; if a copy of another one, of *from. */
static enum made made_by(struct walk *w, arch_regset reg, size_t at, arch_regset *from)
{
	const struct arch_insn *insn = &w->f->insns.items[at];
	arch_regset reads, writes;

	if (arch_is_call(insn) && flow_is_noreturn(w->f, at))
		return MADE_NEVER;
	if (arch_is_call(insn))
		return reg & arch_callee_saved ? MADE_KEPT : MADE_OTHERWISE;
	arch_effects(insn, &reads, &writes);
	if (!(writes & reg)) {
		if (!(arch_changes(insn) & reg))
			return MADE_KEPT;
		/* Either of the two. */
		return arch_may_copy(insn, from) && *from && ask(w, *from, at) ? MADE_KEPT
									       : MADE_OTHERWISE;
	}
	if (is_address_of(insn))
		return MADE_ADDRESS;
	*from = reads;
	return flow_is_copy(insn) ? MADE_COPY : MADE_OTHERWISE;
}

/* The registers of which, and of memory, insn makes something. */
static arch_regset parts_of(const struct arch_insn *insn)
{
	arch_regset reads, writes;

	if (arch_is_call(insn))
		return 0;
	arch_effects(insn, &reads, &writes);
	return reads & ~arch_always_live &
	       ~(insn->flags & ARCH_INSN_MEMORY ? flow_address_registers(insn) : 0);
}

/* insns[at] makes register `reg` something that is no address, perhaps in part: true if that may be. */
static bool is_no_way(struct walk *w, arch_regset reg, size_t at)
{
	const struct arch_insn *insn = &w->f->insns.items[at];
	struct flow_ways *ways = w->f->ways;
	arch_regset reads, writes, parts;

	arch_effects(insn, &reads, &writes);
	parts = parts_of(insn) | (arch_is_call(insn) ? 0 : reg & ~writes);
	if (!w->by_jumps || (parts && is_full(w)))
		return false;
	if (parts)
		ways->todo[ways->insns - ++w->arithmetic] = (struct way_asked){at, parts};
	return true;
}

/* The first two steps: false if register `reg` may be no address before insns[at]. */
static bool goes_back(struct walk *w, arch_regset reg, size_t at)
{
	const struct flow *f = w->f;
	arch_regset from;

	while (flow_look(f, 1)) {
		vaddr_t v = f->insns.items[at].address;
		const unsigned marks = flow_marks(f, v);
		bool starts = flow_starts_at(f, v), any = marks & MARK_TABLE;

		/* Others come there, too, with whatever they have in the register. */
		if (!starts && marks & MARK_FOREIGN)
			return false;
		if (any)
			w->by_table |= reg;
		if ((starts && !w->by_jumps) || !ask_before_branches(w, reg, at, &any))
			return false;
		if (!flow_is_run_into(f, at))
			return any || starts;
		switch (made_by(w, reg, --at, &from)) {
		case MADE_KEPT:
			break;
		case MADE_COPY:
			reg = from;
			break;
		case MADE_ADDRESS:
			w->found = true;
			return true;
		case MADE_NEVER:
			return true;
		case MADE_OTHERWISE:
			return is_no_way(w, reg, at);
		}
		if (f->ways->asked[at] & reg)
			return true;
		f->ways->asked[at] |= reg;
	}
	return false;
}

/* The third step: false if one of the registers may have come from an address. */
static bool are_numbers(struct walk *w, arch_regset regs, size_t at)
{
	const struct flow *f = w->f;
	bool any = false;

	while (flow_look(f, 1)) {
		const struct arch_insn *insn;
		arch_regset made;

		if (!ask_before_branches(w, regs, at, &any))
			return false;
		if (!flow_is_run_into(f, at))
			return true;
		insn = &f->insns.items[--at];
		made = arch_is_call(insn) ? regs & ~arch_callee_saved : arch_changes(insn) & regs;
		if (made && is_address_of(insn))
			return false;
		if (made) {
			arch_regset reads, writes;

			arch_effects(insn, &reads, &writes);
			regs &= arch_is_call(insn) ? ~made : ~(made & writes);
			regs |= parts_of(insn);
		}
		regs &= ~f->ways->asked[at];
		if (!regs)
			return true;
		f->ways->asked[at] |= regs;
	}
	return false;
}

static bool goes_back_from_all(struct walk *w, bool (*step)(struct walk *, arch_regset, size_t))
{
	while (w->count) {
		const struct way_asked next = w->f->ways->todo[--w->count];

		if (!step(w, next.regs, next.at))
			return false;
	}
	return true;
}

static void ask_nothing_yet(const struct flow_ways *ways)
{
	memset(ways->asked, 0, ways->insns * sizeof(*ways->asked));
}

bool flow_has_address(const struct flow *f, arch_regset reg, size_t at)
{
	struct flow_ways *ways = f->ways;
	struct walk w = {.f = f};
	arch_regset by_jumps = 0;

	ask_nothing_yet(ways);
	if (!flow_look(f, ways->insns / 64) || !ask(&w, reg, at) ||
	    !goes_back_from_all(&w, goes_back))
		return false;
	w.by_jumps = true;
	while (w.by_table & ~by_jumps) {
		reg = w.by_table & ~by_jumps;
		reg &= -reg;
		by_jumps |= reg;
		if (!ask_before_jumps(&w, reg) || !goes_back_from_all(&w, goes_back))
			return false;
	}
	ask_nothing_yet(ways);
	memmove(ways->todo, ways->todo + ways->insns - w.arithmetic,
		w.arithmetic * sizeof(*ways->todo));
	w.count = w.arithmetic;
	w.arithmetic = 0;
	return w.found && goes_back_from_all(&w, are_numbers);
}
