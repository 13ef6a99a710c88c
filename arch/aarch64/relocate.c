/* SPDX-License-Identifier: MIT */
/*
 * relocate.c - an instruction made to do elsewhere what it does at its own
 * address. Uses no flag and no register but the one that the instruction
 * writes anyway; the one exception, a vector loaded from far away, keeps a
 * register on the stack for its time.
 */
#include "arch/aarch64/a64.h"

/* A call's tail: x30 holds the return address. br and braa differ from blr and blraa by a bit. */
static void emit_tail(const struct arch_insn *call, struct arch_buf *out)
{
	if (call->flow == ARCH_FLOW_CALL)
		arch_emit_jump(out, call->target);
	else if (call->flow == ARCH_FLOW_CALL_INDIRECT)
		a64_emit(out, a64_load(call->bytes) & ~(1u << 21));
	else
		a64_fail(out, ARCH_REFUSED);
}

void arch_emit_call_tail(const struct arch_insn *call, struct arch_buf *out)
{
	if (call->flags & ARCH_INSN_NO_MOVE)
		a64_fail(out, ARCH_REFUSED);
	else
		emit_tail(call, out);
}

/*
 * A conditional branch whose target is too far away:
 *
 *	b.not	1f
 *	b	taken
 * 1:
 *
 * What compares, and so has not always an opposite:
 *
 *	cb	1f
 *	b	2f
 * 1:	b	taken
 * 2:
 */
static void emit_branch(const struct arch_insn *insn, taddr_t taken, struct arch_buf *out)
{
	uint32_t w = a64_load(insn->bytes);
	bool is_condition = (w & 0xff000000) == 0x54000000, compares = a64_is_compare_branch(w);
	unsigned bits = compares ? 9 : (w & 0x7e000000) == 0x36000000 ? 14 : 19;
	uint32_t rest = w & ~(((1u << bits) - 1) << 5);
	int64_t distance = (int64_t)(taken - arch_here(out));

	if (a64_fits(distance, bits)) {
		a64_emit(out, rest | a64_field(distance, 5, bits));
		return;
	}
	if (compares) {
		a64_emit(out, rest | a64_field(2 * A64_SIZE, 5, bits));
		arch_emit_jump(out, arch_here(out) + 2 * A64_SIZE);
	} else if (!is_condition || (w & 14) != 14) {
		/* Conditions 14 and 15 are both "always" and have no opposite. */
		a64_emit(out,
			 (rest ^ (is_condition ? 1 : 1u << 24)) | a64_field(2 * A64_SIZE, 5, bits));
	}
	arch_emit_jump(out, taken);
}

void arch_relocate_branch(const struct arch_insn *insn, taddr_t taken, struct arch_buf *out)
{
	if (insn->flags & ARCH_INSN_NO_MOVE)
		a64_fail(out, ARCH_REFUSED);
	else if (insn->flow == ARCH_FLOW_BRANCH)
		emit_branch(insn, taken, out);
	else if (insn->flow == ARCH_FLOW_JUMP)
		arch_emit_jump(out, taken);
	else
		a64_fail(out, ARCH_REFUSED);
}

/* A vector from an address that needs a register of its own. */
static void emit_vector_load(const struct arch_insn *insn, uint32_t w, struct arch_buf *out)
{
	static const uint32_t loads[3] = {0xbd400000, 0xfd400000, 0x3dc00000};
	const size_t before = out->trace ? arch_pushed_at(out->trace, out->used) : 0;

	a64_emit(out, a64_push(X16, 16));
	arch_note_pushed(out, before + 16);
	a64_emit_address(out, X16, insn->data_ref);
	a64_emit(out, loads[w >> 30] | X16 << 5 | a64_rd(w));
	a64_emit(out, a64_pop(X16, 16));
	arch_note_pushed(out, before);
}

/* ldr, ldrsw, prfm of a literal. */
static void emit_literal(const struct arch_insn *insn, struct arch_buf *out)
{
	static const uint32_t loads[3] = {0xb9400000, 0xf9400000, 0xb9800000};
	uint32_t w = a64_load(insn->bytes);
	int64_t distance = (int64_t)(insn->data_ref - arch_here(out));
	unsigned opc = w >> 30, rt = a64_rd(w);

	if (a64_fits(distance, 19)) {
		a64_emit(out, (w & 0xff00001f) | a64_field(distance, 5, 19));
	} else if (w >> 26 & 1) {
		emit_vector_load(insn, w, out);
	} else if (opc == 3) {
		a64_emit(out, 0xd503201f); /* a hint that may be left out */
	} else if (rt == ZR) {
		a64_fail(out, ARCH_OUT_OF_RANGE); /* no register to make the address in */
	} else {
		a64_emit_address(out, rt, insn->data_ref);
		a64_emit(out, loads[opc] | rt << 5 | rt);
	}
}

static void emit_other(const struct arch_insn *insn, struct arch_buf *out)
{
	uint32_t w = a64_load(insn->bytes);

	if (!(insn->flags & ARCH_INSN_PC_RELATIVE))
		a64_emit(out, w);
	else if (!(insn->flags & ARCH_INSN_ADDRESS_OF))
		emit_literal(insn, out);
	else if (a64_rd(w) == ZR)
		a64_emit(out, 0xd503201f);
	else
		a64_emit_address(out, a64_rd(w), insn->data_ref);
}

void arch_relocate(const struct arch_insn *insn, struct arch_buf *out)
{
	if (insn->flags & ARCH_INSN_NO_MOVE) {
		a64_fail(out, ARCH_REFUSED);
		return;
	}
	switch (insn->flow) {
	case ARCH_FLOW_CALL:
	case ARCH_FLOW_CALL_INDIRECT:
		a64_emit_address(out, X30, insn->address + A64_SIZE);
		emit_tail(insn, out);
		break;
	case ARCH_FLOW_JUMP:
		arch_emit_jump(out, insn->target);
		break;
	case ARCH_FLOW_BRANCH:
		emit_branch(insn, insn->target, out);
		break;
	default:
		emit_other(insn, out);
	}
}
