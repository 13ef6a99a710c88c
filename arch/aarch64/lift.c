/* SPDX-License-Identifier: MIT */
/*
 * lift.c - instructions of AArch64 are not lifted: every function is refused, and
 * with it a request that would call one.
 */
#include "arch/common/lift_common.h"

int arch_lift_begin(struct lift *l, struct lift_state *s, const struct lift_argument *arguments,
		    unsigned count)
{
	(void)s, (void)arguments, (void)count;
	return lift_refuse(l, "functions of this architecture are not taken apart");
}

int arch_lift(struct lift *l, struct lift_state *s, const struct arch_insn *insn)
{
	(void)s, (void)insn;
	return lift_refuse(l, "it is not taken apart");
}

int arch_lift_branch(struct lift *l, struct lift_state *s, const struct arch_insn *insn,
		     unsigned label)
{
	(void)label;
	return arch_lift(l, s, insn);
}

int arch_lift_return(struct lift *l, struct lift_state *s, const struct arch_insn *insn,
		     unsigned result)
{
	(void)result;
	return arch_lift(l, s, insn);
}

int arch_lift_call(struct lift *l, struct lift_state *s, const struct arch_insn *insn)
{
	return arch_lift(l, s, insn);
}

int arch_lift_call_return(struct lift *l, struct lift_state *s, const struct arch_insn *insn,
			  taddr_t address)
{
	(void)address;
	return arch_lift(l, s, insn);
}
