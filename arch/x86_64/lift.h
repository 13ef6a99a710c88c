/* SPDX-License-Identifier: MIT */
/*
 * lift.h - what lift.c (moves, and which instruction is which), lift_values.c
 * (arithmetic, flags) and lift_control.c (what leads elsewhere) share. For arch/x86_64 only.
 */
#ifndef DINST_ARCH_X86_64_LIFT_H
#define DINST_ARCH_X86_64_LIFT_H

#include "arch/common/lift_common.h"
#include "arch/x86_64/x86.h"

/* One instruction. */
struct x86_step {
	struct lift *l;
	struct lift_state *s;
	const struct arch_insn *insn;
	struct x86_layout x;
};

struct x86_operand {
	bool memory;
	uint8_t at; /* in a register: 1 for ah and its like */
	unsigned size;
	struct lift_place place;
	struct lift_where where;
};

/* False: it is none that can be read; lift.why says so. */
bool x86_lift_begin(struct x86_step *t, struct lift *l, struct lift_state *s,
		    const struct arch_insn *insn);
/* The word at the stack pointer, which moves by so much before and after. */
struct x86_operand x86_lift_top(struct x86_step *t, int64_t before, int64_t after);
struct x86_operand x86_lift_register(struct x86_step *t, unsigned reg, unsigned size);
/* What ModRM.rm names. */
struct x86_operand x86_lift_rm(struct x86_step *t, unsigned size);
/* What is above the operand's size in the value means nothing. */
unsigned x86_lift_get(struct x86_step *t, const struct x86_operand *o);
/* `most`: it is not greater. */
void x86_lift_put(struct x86_step *t, const struct x86_operand *o, unsigned value, uint64_t most);

/* ----------------------------------------------------- lift_values.c */

/* A condition as a comparison of two values. */
struct x86_question {
	unsigned a, b;
	uint8_t test; /* enum arch_test */
};
/* By the low four bits of a jcc. False: the flags do not tell. */
bool x86_lift_ask(struct x86_step *t, unsigned condition, struct x86_question *q);
/* 1 or 0 where it is known whether it holds, else -1. */
int x86_lift_decide(const struct x86_step *t, const struct x86_question *q);
/* 1 where it holds, else 0. */
unsigned x86_lift_truth(struct x86_step *t, unsigned condition);

/* operation: add or adc sbb and sub xor cmp, as the opcodes count them. */
void x86_lift_combine(struct x86_step *t, unsigned operation, struct x86_operand *to,
		      struct x86_operand *from);
void x86_lift_combine_number(struct x86_step *t, unsigned operation, struct x86_operand *to,
			     int64_t number);
void x86_lift_test(struct x86_step *t, unsigned size);
void x86_lift_test_number(struct x86_step *t, struct x86_operand *o, int64_t number);
void x86_lift_negate(struct x86_step *t, struct x86_operand *o);
void x86_lift_step(struct x86_step *t, struct x86_operand *o, bool down);
void x86_lift_shift(struct x86_step *t, unsigned size);
void x86_lift_bit(struct x86_step *t, unsigned size);
void x86_lift_shift_double(struct x86_step *t, unsigned size);
void x86_lift_multiply(struct x86_step *t, unsigned size, bool by_number, int64_t number);
void x86_lift_multiply_wide(struct x86_step *t, struct x86_operand *o, bool is_signed);
void x86_lift_swap_bytes(struct x86_step *t, unsigned reg, unsigned size);
/* rax, as far as it was set; 0 where it is as it was. */
unsigned x86_lift_result(struct x86_step *t);

#endif
