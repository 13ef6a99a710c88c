/* SPDX-License-Identifier: MIT */
/*
 * relocate.c - an instruction made to do elsewhere what it does at its own
 * address. Uses no register, no flag and no stack of its own; only a call
 * pushes, and what it pushes is the original return address.
 */
#include <string.h>

#include "arch/x86_64/x86.h"

/* Reads the layout again; refuses what is not to be moved. */
static bool prepare(const struct arch_insn *insn, struct arch_buf *out, struct x86_layout *l)
{
	if ((insn->flags & ARCH_INSN_NO_MOVE) ||
	    x86_layout_read(insn->bytes, insn->length, l) != ARCH_OK) {
		x86_fail(out, ARCH_REFUSED);
		return false;
	}
	return true;
}

/*
 * Copies the instruction; a pc-relative operand goes on naming the same
 * address. An immediate may follow the displacement.
 */
static void emit_copy(const struct arch_insn *insn, const struct x86_layout *l,
		      const uint8_t *bytes, struct arch_buf *out)
{
	uint8_t copy[ARCH_INSN_MAX];

	memcpy(copy, bytes, insn->length);
	if (insn->flags & ARCH_INSN_PC_RELATIVE) {
		int64_t distance = insn->data_ref - (arch_here(out) + insn->length);

		if (!x86_fits32(distance))
			x86_fail(out, ARCH_OUT_OF_RANGE);
		for (unsigned i = 0; i < 4; i++)
			copy[l->disp_offset + i] = (uint64_t)distance >> (8 * i);
	}
	x86_emit(out, copy, insn->length);
}

/*
 * What a call pushes, `value` being its return address:
 *
 *	call  1f
 *	ud2
 * 1:	movl  $low,(%rsp)
 *	movl  $high,4(%rsp)	(or both by one movq)
 *
 * A push would do as well, but then the processor's own stack of return addresses
 * has one too few, and from here on every return that is under way is predicted
 * wrong, up to the outermost function. So only that of the callee is. The call must
 * not lead to what follows it: processors take that for none.
 */
static void emit_push(struct arch_buf *out, uint64_t value)
{
	static const uint8_t call_over[] = {0xe8, 2, 0, 0, 0, 0x0f, 0x0b};
	static const uint8_t store_all[] = {0x48, 0xc7, 0x04, 0x24}; /* movq $,(%rsp) */
	static const uint8_t store_low[] = {0xc7, 0x04, 0x24};
	static const uint8_t store_high[] = {0xc7, 0x44, 0x24, 0x04};

	x86_emit(out, call_over, sizeof(call_over));
	if (x86_fits32((int64_t)value)) {
		x86_emit(out, store_all, sizeof(store_all));
		x86_emit32(out, value);
		return;
	}
	x86_emit(out, store_low, sizeof(store_low));
	x86_emit32(out, value);
	x86_emit(out, store_high, sizeof(store_high));
	x86_emit32(out, value >> 32);
}

/*
 * An rsp-based operand of a call once the return address has been pushed: the
 * displacement grows by 8, and its encoding with it where it must.
 */
static void emit_stack_jump(const struct arch_insn *insn, const struct x86_layout *l,
			    struct arch_buf *out)
{
	int64_t disp = x86_read_signed(insn->bytes + l->disp_offset, l->disp_size) + 8;
	bool narrow = disp == (int8_t)disp;

	if (!x86_fits32(disp)) {
		x86_fail(out, ARCH_OUT_OF_RANGE);
		return;
	}
	x86_emit(out, insn->bytes, l->modrm_offset);
	x86_emit8(out, (narrow ? 0x40 : 0x80) | 4 << 3 | 4);
	x86_emit8(out, l->sib);
	if (narrow)
		x86_emit8(out, disp);
	else
		x86_emit32(out, disp);
}

/* call r/m (ff /2) turned into jmp r/m (ff /4), the return address being pushed already. */
static void emit_indirect_tail(const struct arch_insn *insn, const struct x86_layout *l,
			       struct arch_buf *out)
{
	uint8_t bytes[ARCH_INSN_MAX];

	if (x86_is_stack_based(l)) {
		emit_stack_jump(insn, l, out);
		return;
	}
	memcpy(bytes, insn->bytes, sizeof(bytes));
	bytes[l->modrm_offset] = (l->modrm & 0xc7) | 4 << 3;
	emit_copy(insn, l, bytes, out);
}

void arch_emit_call_tail(const struct arch_insn *call, struct arch_buf *out)
{
	struct x86_layout l;

	if (!prepare(call, out, &l))
		return;
	if (call->flow == ARCH_FLOW_CALL)
		arch_emit_jump(out, call->target);
	else if (call->flow == ARCH_FLOW_CALL_INDIRECT)
		emit_indirect_tail(call, &l, out);
	else
		x86_fail(out, ARCH_REFUSED);
}

/*
 * jcc as its 32-bit form. loop and jrcxz have none:
 *
 *	op    1f        (with its prefixes: to AMD's Zen 4 f2 loope is loopne)
 *	jmp   2f
 * 1:	jmp   taken
 * 2:
 */
static void emit_branch(const struct arch_insn *insn, const struct x86_layout *l, taddr_t taken,
			struct arch_buf *out)
{
	if (l->map == 0 && l->opcode >= 0xe0) {
		for (unsigned i = 0; i < l->opcode_offset; i++)
			if (insn->bytes[i] == 0x67 || (insn->bytes[i] & 0xfe) == 0xf2)
				x86_emit8(out, insn->bytes[i]);
		x86_emit8(out, l->opcode);
		x86_emit8(out, 2);
		x86_emit8(out, 0xeb);
		x86_emit8(out, 5);
		arch_emit_jump(out, taken);
		return;
	}
	x86_emit8(out, 0x0f);
	x86_emit8(out, 0x80 | (l->opcode & 15));
	x86_emit_relative(out, taken);
}

void arch_relocate_branch(const struct arch_insn *insn, taddr_t taken, struct arch_buf *out)
{
	struct x86_layout l;

	if (!prepare(insn, out, &l))
		return;
	if (insn->flow == ARCH_FLOW_BRANCH)
		emit_branch(insn, &l, taken, out);
	else if (insn->flow == ARCH_FLOW_JUMP)
		arch_emit_jump(out, taken);
	else
		x86_fail(out, ARCH_REFUSED);
}

void arch_relocate(const struct arch_insn *insn, struct arch_buf *out)
{
	struct x86_layout l;

	if (!prepare(insn, out, &l))
		return;
	switch (insn->flow) {
	case ARCH_FLOW_CALL:
	case ARCH_FLOW_CALL_INDIRECT:
		emit_push(out, insn->address + insn->length);
		arch_emit_call_tail(insn, out);
		break;
	case ARCH_FLOW_JUMP:
		arch_emit_jump(out, insn->target);
		break;
	case ARCH_FLOW_BRANCH:
		emit_branch(insn, &l, insn->target, out);
		break;
	default:
		emit_copy(insn, &l, insn->bytes, out);
	}
}
