/* SPDX-License-Identifier: MIT */
/*
 * record.c - code that notes down the address of a memory access: for snippets
 * at single instructions. Changes no flag, and nothing but the frame's scratch
 * registers and one word.
 */
#include "arch/x86_64/x86.h"

void arch_record_needs(struct arch_frame *frame)
{
	/* One that is neither base nor index, whatever the frame has chosen. */
	if (frame->scratch < 3)
		frame->scratch = 3;
}

static unsigned other_than(const struct arch_frame *frame, unsigned a, unsigned b)
{
	for (unsigned i = 0; i < frame->scratch; i++)
		if (frame->reg[i] != a && frame->reg[i] != b)
			return frame->reg[i];
	return frame->reg[0];
}

/* mov reg,word, the address an absolute operand. */
static void store_near(struct arch_buf *out, unsigned reg, taddr_t word)
{
	x86_emit8(out, 0x40 | REX_W | (reg >= 8 ? REX_R : 0));
	x86_emit8(out, 0x89);
	x86_emit8(out, (reg & 7) << 3 | 4);
	x86_emit8(out, 0x25);
	x86_emit32(out, (uint32_t)word);
}

/* movabs word,at; mov reg,0(at) */
static void store_far(struct arch_buf *out, unsigned reg, unsigned at, taddr_t word)
{
	x86_emit8(out, 0x40 | REX_W | (at >= 8 ? REX_B : 0));
	x86_emit8(out, 0xb8 | (at & 7));
	x86_emit64(out, word);
	x86_emit8(out, 0x40 | REX_W | (reg >= 8 ? REX_R : 0) | (at >= 8 ? REX_B : 0));
	x86_emit8(out, 0x89);
	x86_emit8(out, 0x80 | (reg & 7) << 3 | (at & 7));
	/* As a base, r12 wants a SIB byte. */
	if ((at & 7) == RSP)
		x86_emit8(out, 0x24);
	x86_emit32(out, 0);
}

void arch_emit_record_address(const struct arch_memory *memory, taddr_t word, size_t pushed,
			      const struct arch_frame *frame, struct arch_buf *out)
{
	unsigned reg = other_than(frame, memory->base, memory->index);

	arch_emit_effective_address(out, memory, SET(reg), frame->pushed + pushed);
	if (word <= INT32_MAX)
		store_near(out, reg, word);
	else
		store_far(out, reg, other_than(frame, reg, reg), word);
}
