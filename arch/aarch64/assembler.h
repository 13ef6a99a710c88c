/* SPDX-License-Identifier: MIT */
/*
 * assembler.h - a small assembler for code that is longer than a few
 * instructions, with labels that are used before they are known. For the files
 * of arch/aarch64 only. Registers are of 64 bits; whatever fails is in the
 * buffer's status.
 */
#ifndef DINST_ARCH_AARCH64_ASSEMBLER_H
#define DINST_ARCH_AARCH64_ASSEMBLER_H

#include "arch/aarch64/a64.h"

/* What a branch depends on: a condition, or ZERO or NOT_ZERO with a register's number. */
enum asm_condition {
	ASM_EQ,
	ASM_NE,
	ASM_HS,
	ASM_LO,
	ASM_HI = 8,
	ASM_LS,
	ASM_ALWAYS = 16,
	ASM_ZERO = 32,
	ASM_NOT_ZERO = 64,
};

/* An instruction word with three registers in the usual fields. */
uint32_t asm_three(uint32_t opcode, unsigned d, unsigned n, unsigned m);

void asm_move(struct arch_buf *out, unsigned to, unsigned from);
/* to = n + (m << shift) */
void asm_add(struct arch_buf *out, unsigned to, unsigned n, unsigned m, unsigned shift);
void asm_subtract(struct arch_buf *out, unsigned to, unsigned n, unsigned m);
void asm_compare(struct arch_buf *out, unsigned n, unsigned m);
void asm_shift_left(struct arch_buf *out, unsigned reg, unsigned count);
void asm_shift_right(struct arch_buf *out, unsigned to, unsigned from, unsigned count);
/* Leaves the lowest `bits` bits alone. */
void asm_cut(struct arch_buf *out, unsigned reg, unsigned bits);
/* 64 bits at base + (index << 3), or base + index. */
void asm_load_at(struct arch_buf *out, unsigned reg, unsigned base, unsigned index, bool scaled);
void asm_store_at(struct arch_buf *out, unsigned reg, unsigned base, unsigned index, bool scaled);

enum { ASM_USES = 12 }; /* branches to one label */

/* A place in one buffer; zero-initialised it is not known yet. */
struct asm_label {
	size_t uses[ASM_USES];
	unsigned count;
	size_t at; /* offset + 1 */
};

void asm_branch(struct arch_buf *out, unsigned condition, struct asm_label *l);
void asm_place(struct arch_buf *out, struct asm_label *l);
/* Takes `step` from the register and goes back while something is left. */
void asm_count_down(struct arch_buf *out, unsigned reg, unsigned step, struct asm_label *again);

#endif
