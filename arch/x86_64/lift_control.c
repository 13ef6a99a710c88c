/* SPDX-License-Identifier: MIT */
/*
 * lift_control.c - branches, calls and returns of functions that are lifted
 * (arch/lift.h). Must never emit a label or a jump: where control goes is the
 * caller's.
 */
#include "arch/x86_64/lift.h"

/* What a function must leave as it was (psABI, figure 3.4). */
static const uint8_t kept_registers[] = {RBX, RBP, R12, R13, R14, R15};

int arch_lift_branch(struct lift *l, struct lift_state *s, const struct arch_insn *insn,
		     unsigned label)
{
	struct x86_question q;
	struct arch_op *op;
	struct x86_step t;

	if (!x86_lift_begin(&t, l, s, insn))
		return ARCH_REFUSED;
	if (insn->flow != ARCH_FLOW_BRANCH || (t.x.prefixes & PREFIX_66) ||
	    !(t.x.map == 1 || (t.x.opcode & 0xf0) == 0x70))
		return lift_refuse(l, "this branch is not one of those that are known for sure");
	if (!x86_lift_ask(&t, t.x.opcode & 15, &q))
		return ARCH_REFUSED;
	l->decided = x86_lift_decide(&t, &q);
	if (l->decided >= 0)
		return ARCH_OK;
	op = l->op(l->arg, ARCH_OP_IF);
	op->condition = q.test;
	op->a = (uint16_t)q.a;
	op->b = (uint16_t)q.b;
	op->label = (uint16_t)label;
	return ARCH_OK;
}

int arch_lift_return(struct lift *l, struct lift_state *s, const struct arch_insn *insn,
		     unsigned result)
{
	const struct lift_word *sp = &s->registers[RSP];
	struct x86_step t;
	struct arch_op *op;
	unsigned value;

	if (!x86_lift_begin(&t, l, s, insn))
		return ARCH_REFUSED;
	if (t.x.map || t.x.opcode != 0xc3 || (t.x.prefixes & PREFIX_66))
		return lift_refuse(l, "it does not return as functions do");
	if (sp->kind != LIFT_STACK || sp->bytes != 0xff || sp->number)
		return lift_refuse(l, "its stack pointer is not where it was");
	for (unsigned i = 0; i < sizeof(kept_registers); i++) {
		const struct lift_word *w = &s->registers[kept_registers[i]];

		if (w->kind != LIFT_ENTRY || w->which != kept_registers[i] || w->bytes != 0xff)
			return lift_refuse(l, "it changes a register that functions must keep");
	}
	if (!lift_buffer_is_set(l, s))
		return lift_refuse(l, "it does not fill what it is to fill");
	if (!result)
		return ARCH_OK;
	value = x86_lift_result(&t);
	if (!value)
		return ARCH_REFUSED;
	op = l->op(l->arg, ARCH_OP_COPY);
	op->a = (uint16_t)value;
	op->result = (uint16_t)result;
	return ARCH_OK;
}

int arch_lift_call(struct lift *l, struct lift_state *s, const struct arch_insn *insn)
{
	struct lift_place place;
	struct x86_operand top;
	struct x86_step t;

	if (!x86_lift_begin(&t, l, s, insn))
		return ARCH_REFUSED;
	if (t.x.map || t.x.opcode != 0xe8 || (t.x.prefixes & PREFIX_66))
		return lift_refuse(l, "this call is not one of those that are known for sure");
	top = x86_lift_top(&t, -8, 0);
	if (*l->why || !lift_frame_word(l, s, &top.where, &place))
		return lift_refuse(l, "its stack pointer is not known");
	lift_set_number(l, place, insn->address + insn->length);
	return ARCH_OK;
}

int arch_lift_call_return(struct lift *l, struct lift_state *s, const struct arch_insn *insn,
			  taddr_t address)
{
	struct lift_place place;
	struct x86_operand top;
	struct x86_step t;

	if (!x86_lift_begin(&t, l, s, insn))
		return ARCH_REFUSED;
	if (t.x.map || t.x.opcode != 0xc3 || (t.x.prefixes & PREFIX_66))
		return lift_refuse(l, "it does not return as functions do");
	top = x86_lift_top(&t, 0, 8);
	if (*l->why || !lift_frame_word(l, s, &top.where, &place) || !lift_is_known(place.word) ||
	    place.word->number != address)
		return lift_refuse(l, "its stack pointer is not where it was");
	return ARCH_OK;
}
