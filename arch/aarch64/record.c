/* SPDX-License-Identifier: MIT */
/*
 * record.c - code that notes down the address of a memory access: for snippets
 * at single instructions. Changes no flag, and nothing but the frame's scratch
 * registers and one word.
 */
#include "arch/aarch64/a64.h"

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

void arch_emit_record_address(const struct arch_memory *memory, taddr_t word, size_t pushed,
			      const struct arch_frame *frame, struct arch_buf *out)
{
	const unsigned reg = other_than(frame, memory->base, memory->index);
	const unsigned at = other_than(frame, reg, reg);

	arch_emit_effective_address(out, memory, SET(reg), frame->pushed + pushed);
	a64_emit_address(out, at, word);
	a64_emit(out, a64_str(reg, at, 0));
}
