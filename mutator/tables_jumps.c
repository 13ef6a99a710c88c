/* SPDX-License-Identifier: MIT */
/*
 * tables_jumps.c - which instructions are indirect jumps, in whatever guise:
 * the plain ones, and those of code that is built against speculation
 * (retpolines). There a return goes to what has just been stored where the
 * return address is, or that stands in a piece of code of its own, to which
 * everybody jumps:
 *
 *	thunk:  call 2f
 *	1:      pause; lfence; jmp 1b
 *	2:      mov %rax, (%rsp)
 *	        ret
 *
 * The same piece in the function itself, where it is called, is an indirect call:
 *
 *	        jmp  4f
 *	thunk:  ...
 *	4:      call thunk
 */
#include "mutator/flow_ways.h"
#include "mutator/tables_private.h"

static bool is_on_stack(const struct arch_memory *m)
{
	return m->computable && m->index == ARCH_NO_REGISTER && m->base != ARCH_NO_REGISTER &&
	       arch_always_live >> m->base & 1;
}

/* What the instruction leaves, whole, where a return address is: a register, or 0. */
static arch_regset left_on_top(const struct arch_insn *insn)
{
	struct arch_memory m[ARCH_MEMORY_MAX];
	arch_regset reads, writes;

	if (insn->flow != ARCH_FLOW_NEXT || !(insn->flags & ARCH_INSN_STACK_OPERAND) ||
	    insn->flags & ARCH_INSN_FRAME || arch_memory_operands(insn, m) != 1 || m[0].load ||
	    m[0].size != sizeof(vaddr_t) || !is_on_stack(&m[0]))
		return 0;
	/* A push stores below where the stack ends; right before a return nobody else does. */
	if (m[0].offset && m[0].offset != -(int64_t)sizeof(vaddr_t))
		return 0;
	arch_effects(insn, &reads, &writes);
	return reads & ~arch_always_live;
}

static bool decode(const struct flow *f, vaddr_t v, struct arch_insn *insn)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(f->img, v, &size);

	return bytes && arch_decode(bytes, size, v, insn) == ARCH_OK;
}

/* A return takes its address from the stack; where it is in a register, nothing is stored. */
static bool returns_to_top(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_RETURN && insn->flags & ARCH_INSN_MEMORY;
}

/* The register that the thunk at v jumps to; 0 if there is none. */
static arch_regset thunk_register(const struct flow *f, vaddr_t v)
{
	struct arch_insn insn;
	arch_regset left;

	if (!decode(f, v, &insn) || insn.flow != ARCH_FLOW_CALL || !decode(f, insn.target, &insn))
		return 0;
	left = left_on_top(&insn);
	return left && decode(f, insn.address + insn.length, &insn) && returns_to_top(&insn) ? left
											     : 0;
}

bool flow_end_is_indirect(const struct flow *f, size_t at, struct indirect *jump)
{
	const struct arch_insn *insn = &f->insns.items[at];
	arch_regset writes;

	*jump = (struct indirect){.before = at};
	switch (insn->flow) {
	case ARCH_FLOW_JUMP_INDIRECT:
		arch_effects(insn, &jump->wanted, &writes);
		jump->wanted &= insn->flags & ARCH_INSN_MEMORY ? 0 : ~arch_always_live;
		return true;
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_BRANCH:
		if (!flow_contains(f, insn->target))
			jump->wanted = thunk_register(f, insn->target);
		return jump->wanted;
	case ARCH_FLOW_RETURN:
		if (at == 0 || insn[-1].address + insn[-1].length != insn->address ||
		    !returns_to_top(insn))
			return false;
		jump->before = at - 1;
		jump->wanted = left_on_top(&insn[-1]);
		return jump->wanted;
	default:
		return false;
	}
}

/* insns[at] overwrites the return address of who has called it, and the next one goes to what is there now. */
static bool replaces_return(const struct flow *f, size_t at)
{
	struct arch_memory m[ARCH_MEMORY_MAX];
	struct indirect jump;

	return at + 1 < f->insns.count && f->insns.items[at + 1].flow == ARCH_FLOW_RETURN &&
	       flow_end_is_indirect(f, at + 1, &jump) &&
	       arch_memory_operands(&f->insns.items[at], m) == 1 && !m[0].offset;
}

bool flow_begins_thunk(const struct flow *f, size_t at)
{
	const struct arch_insn *call = &f->insns.items[at];
	long to = call->flow == ARCH_FLOW_CALL ? flow_insn_at(f, call->target) : -1;

	return to >= 0 && replaces_return(f, (size_t)to);
}

vaddr_t flow_callee(const struct flow *f, size_t at)
{
	const struct arch_insn *call = &f->insns.items[at];
	long to = call->flow == ARCH_FLOW_CALL ? flow_insn_at(f, call->target) : -1;

	return to >= 0 && flow_begins_thunk(f, (size_t)to) ? 0 : call->target;
}

/* True if control comes to insns[at] by calls of the function's own only. */
static bool is_only_called(const struct flow *f, size_t at)
{
	const vaddr_t v = f->insns.items[at].address;

	return !flow_is_run_into(f, at) && flow_ways_first(f, v) >= 0 &&
	       !(flow_marks(f, v) & (MARK_LOOP | MARK_FOREIGN | MARK_REFERRED));
}

bool flow_calls_by_return(const struct flow *f, size_t at)
{
	size_t store = at ? at - 1 : 0;

	if (f->insns.items[at].flow != ARCH_FLOW_RETURN || !at || !f->ways ||
	    !replaces_return(f, store) || !is_only_called(f, store))
		return false;
	for (long i = flow_ways_first(f, f->insns.items[store].address); i >= 0;
	     i = flow_ways_next(f, i))
		if (!is_only_called(f, (size_t)i))
			return false;
	return true;
}
