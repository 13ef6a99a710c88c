/* SPDX-License-Identifier: MIT */
/*
 * flow_returns.c - what control does not go on behind, and calls behind which there may be data.
 */
#include "mutator/flow_private.h"

bool flow_takes_return(const struct flow *f, const struct arch_insn *call)
{
	struct arch_memory m[ARCH_MEMORY_MAX];
	struct arch_insn insn;
	arch_regset reads, writes;
	size_t size = 0;
	const uint8_t *bytes = image_code(f->img, call->target, &size);

	if (!arch_call_pushes || call->flow != ARCH_FLOW_CALL || !bytes ||
	    call->target == call->address + call->length ||
	    arch_decode(bytes, size, call->target, &insn) != ARCH_OK)
		return false;
	if (insn.flags & ARCH_INSN_LANDING_PAD &&
	    arch_decode(bytes + insn.length, size - insn.length, insn.address + insn.length,
			&insn) != ARCH_OK)
		return false;
	if (insn.flow != ARCH_FLOW_NEXT || !(insn.flags & ARCH_INSN_FRAME) ||
	    arch_memory_operands(&insn, m) != 1 || !m[0].load || !m[0].computable || m[0].offset ||
	    m[0].base == ARCH_NO_REGISTER || !(arch_always_live >> m[0].base & 1))
		return false;
	arch_effects(&insn, &reads, &writes);
	return writes & ~arch_always_live;
}

bool flow_ends_line(struct flow *f, const struct arch_insn *insn)
{
	vaddr_t end = insn->address + insn->length;
	long next;

	switch (insn->flow) {
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_JUMP_INDIRECT:
	case ARCH_FLOW_RETURN:
		return true;
	case ARCH_FLOW_STOP:
		return !flow_is_breakpoint(f, insn);
	case ARCH_FLOW_CALL:
		/* In the function itself it is a jump. */
		if (flow_contains(f, insn->target) && flow_takes_return(f, insn))
			return true;
		break;
	case ARCH_FLOW_CALL_INDIRECT:
		break;
	default:
		return false;
	}
	next = flow_insn_at(f, end);
	if (next >= 0 && !(f->insns.items[next].flags & ARCH_INSN_PADDING) &&
	    !(flow_marks(f, end) & (MARK_LOOP | MARK_REFERRED | MARK_FOREIGN)))
		return false;
	return freemap_never_returns(f->map, insn);
}

bool flow_traps(const struct flow *f, const struct arch_insn *insn)
{
	const long next = flow_insn_at(f, insn->address + insn->length);

	return flow_is_breakpoint(f, insn) &&
	       !(next >= 0 && f->insns.items[next].flags & ARCH_INSN_PADDING);
}
