/* SPDX-License-Identifier: MIT */
/*
 * sums.c - follows an address from register to register, and what constants make of it, along the one way
 * that control takes if no branch is taken. What is not understood is forgotten.
 */
#include "arch/common/sums.h"

/* The registers of which something is known, and what they hold. */
struct known {
	arch_regset set;
	taddr_t values[64];
};

static bool is_one(arch_regset set)
{
	return set && !(set & (set - 1));
}

/* What `insn` makes of what is known; false if control may not go on behind it. */
static bool step(const struct sum_scan *s, const struct arch_insn *insn, struct known *k)
{
	const arch_regset changes = arch_changes(insn);
	arch_regset reads, writes;
	taddr_t held, made;

	switch (insn->flow) {
	case ARCH_FLOW_NEXT:
		break;
	case ARCH_FLOW_BRANCH:
	case ARCH_FLOW_JUMP:
		return true;
	case ARCH_FLOW_CALL:
	case ARCH_FLOW_CALL_INDIRECT:
		k->set &= arch_callee_saved;
		return true;
	default:
		return false;
	}
	arch_effects(insn, &reads, &writes);
	if (!is_one(reads) || !(reads & k->set) || !is_one(changes)) {
		k->set &= ~changes;
		return true;
	}
	held = k->values[__builtin_ctzll(reads)];
	k->set &= ~changes;
	if (!arch_makes(insn, held, &made))
		return true;
	k->set |= changes;
	k->values[__builtin_ctzll(changes)] = made;
	if (made != held && made >= s->lo && made < s->hi)
		s->found(s->arg, insn->address, made);
	return true;
}

void sum_follow(const struct sum_scan *s, size_t at, taddr_t base)
{
	struct arch_insn insn;
	arch_regset reads, writes;
	struct known k;

	if (arch_decode(s->bytes + at, s->size - at, s->address + at, &insn) != ARCH_OK ||
	    insn.flow != ARCH_FLOW_NEXT)
		return;
	arch_effects(&insn, &reads, &writes);
	k.set = arch_changes(&insn);
	if (reads || !is_one(k.set))
		return;
	k.values[__builtin_ctzll(k.set)] = base;
	for (unsigned steps = 0; steps < SUM_STEPS && k.set; steps++) {
		taddr_t next =
			insn.flow == ARCH_FLOW_JUMP ? insn.target : insn.address + insn.length;

		at = next - s->address;
		if (at >= s->size ||
		    arch_decode(s->bytes + at, s->size - at, next, &insn) != ARCH_OK ||
		    !step(s, &insn, &k))
			return;
	}
}
