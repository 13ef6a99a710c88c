/* SPDX-License-Identifier: MIT */
/*
 * gate.c - code that waits: holding a program at its entry point without
 * stopping it. It gives up by itself when nobody opens it, so a mutator that dies
 * does not leave the program hanging. And poison, which nobody may ever reach.
 */
#include <string.h>

#include "arch/x86_64/x86.h"

/* ModRM (and SIB) and displacement of a 32-bit word; `behind` bytes follow the displacement. */
static void emit_word_operand(struct arch_buf *out, unsigned extension, taddr_t word, size_t behind)
{
	if (word < INT32_MAX) {
		/* mod 0, rm 4, SIB without base and index: an absolute address */
		x86_emit8(out, 0x04 | extension << 3);
		x86_emit8(out, 0x25);
		x86_emit32(out, (uint32_t)word);
	} else {
		int64_t displacement = (int64_t)(word - (arch_here(out) + 1 + 4 + behind));

		if (displacement != (int32_t)displacement)
			x86_fail(out, ARCH_OUT_OF_RANGE);
		x86_emit8(out, 0x05 | extension << 3);
		x86_emit32(out, (uint32_t)displacement);
	}
}

void arch_emit_gate(struct arch_buf *out, taddr_t arrived, taddr_t go, taddr_t budget, taddr_t next)
{
	size_t loop, leave;

	/* movl $1, arrived */
	x86_emit8(out, 0xc7);
	emit_word_operand(out, 0, arrived, 4);
	x86_emit32(out, 1);
	loop = out->used;
	/* pause; decl budget; jz leave */
	x86_emit8(out, 0xf3);
	x86_emit8(out, 0x90);
	x86_emit8(out, 0xff);
	emit_word_operand(out, 1, budget, 0);
	x86_emit8(out, 0x74);
	leave = out->used;
	x86_emit8(out, 0);
	/* cmpl $0, go; je loop */
	x86_emit8(out, 0x83);
	emit_word_operand(out, 7, go, 1);
	x86_emit8(out, 0);
	x86_emit8(out, 0x74);
	x86_emit8(out, (uint8_t)(loop - (out->used + 1)));
	if (out->status == ARCH_OK)
		out->bytes[leave] = (uint8_t)(out->used - (leave + 1));
	arch_emit_jump(out, next);
}

void arch_fill_poison(uint8_t *bytes, size_t size)
{
	static const uint8_t jump_to_itself[] = {0xeb, 0xfe};

	memset(bytes, 0x90, size);
	if (size >= sizeof(jump_to_itself))
		memcpy(bytes + size - sizeof(jump_to_itself), jump_to_itself,
		       sizeof(jump_to_itself));
}
