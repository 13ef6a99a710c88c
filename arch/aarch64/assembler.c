/* SPDX-License-Identifier: MIT */
/*
 * assembler.c - instruction words and labels (DDI 0487, chapter C4).
 */
#include "arch/aarch64/assembler.h"

/* ------------------------------------------------------------- instructions */

uint32_t asm_three(uint32_t opcode, unsigned d, unsigned n, unsigned m)
{
	return opcode | m << 16 | n << 5 | d;
}

void asm_move(struct arch_buf *out, unsigned to, unsigned from)
{
	a64_emit(out, asm_three(0xaa000000, to, ZR, from));
}

void asm_add(struct arch_buf *out, unsigned to, unsigned n, unsigned m, unsigned shift)
{
	a64_emit(out, asm_three(0x8b000000, to, n, m) | shift << 10);
}

void asm_subtract(struct arch_buf *out, unsigned to, unsigned n, unsigned m)
{
	a64_emit(out, asm_three(0xcb000000, to, n, m));
}

void asm_compare(struct arch_buf *out, unsigned n, unsigned m)
{
	a64_emit(out, asm_three(0xeb000000, ZR, n, m));
}

void asm_shift_left(struct arch_buf *out, unsigned reg, unsigned count)
{
	a64_emit(out, asm_three(0xd3400000, reg, reg, (64 - count) & 63) | (63 - count) << 10);
}

void asm_shift_right(struct arch_buf *out, unsigned to, unsigned from, unsigned count)
{
	a64_emit(out, asm_three(0xd340fc00, to, from, count));
}

void asm_cut(struct arch_buf *out, unsigned reg, unsigned bits)
{
	a64_emit(out, asm_three(0xd3400000, reg, reg, 0) | (bits - 1) << 10);
}

void asm_load_at(struct arch_buf *out, unsigned reg, unsigned base, unsigned index, bool scaled)
{
	a64_emit(out, asm_three(scaled ? 0xf8607800 : 0xf8606800, reg, base, index));
}

void asm_store_at(struct arch_buf *out, unsigned reg, unsigned base, unsigned index, bool scaled)
{
	a64_emit(out, asm_three(scaled ? 0xf8207800 : 0xf8206800, reg, base, index));
}

/* ------------------------------------------------------------------- labels */

static void patch(struct arch_buf *out, const struct asm_label *l, size_t use)
{
	const int64_t distance = (int64_t)(l->at - 1) - (int64_t)use;
	uint32_t word;

	if (out->status != ARCH_OK)
		return;
	word = a64_load(out->bytes + use);
	word |= (word >> 26) == 5 ? a64_field(distance, 0, 26) : a64_field(distance, 5, 19);
	a64_store(out->bytes + use, word);
}

void asm_branch(struct arch_buf *out, unsigned condition, struct asm_label *l)
{
	if (condition & ASM_ZERO)
		a64_emit(out, 0xb4000000 | (condition & 31));
	else if (condition & ASM_NOT_ZERO)
		a64_emit(out, 0xb5000000 | (condition & 31));
	else
		a64_emit(out, condition == ASM_ALWAYS ? 0x14000000 : 0x54000000 | condition);
	if (out->status == ARCH_OK && l->at)
		patch(out, l, out->used - A64_SIZE);
	else if (out->status == ARCH_OK && l->count < ASM_USES)
		l->uses[l->count++] = out->used - A64_SIZE;
	else
		a64_fail(out, ARCH_NO_ROOM);
}

void asm_place(struct arch_buf *out, struct asm_label *l)
{
	l->at = out->used + 1;
	for (unsigned i = 0; i < l->count; i++)
		patch(out, l, l->uses[i]);
}

void asm_count_down(struct arch_buf *out, unsigned reg, unsigned step, struct asm_label *again)
{
	a64_emit(out, a64_sub(reg, reg, step));
	asm_branch(out, ASM_NOT_ZERO | reg, again);
}
