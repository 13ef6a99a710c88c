/* SPDX-License-Identifier: MIT */
/*
 * frame.c - what surrounds the snippets of one place: finds dead registers for
 * them, saves what is live, and puts it back. The stack pointer stays aligned
 * to 16 bytes (AAPCS64), and there is no red zone: the lowest saved pair is
 * pushed, the others lie above it.
 *
 *	stp a, b, [sp, #-bytes]!
 *	stp or str of further ones at [sp, #16]
 *	mrs f, nzcv             where flags are live and will change
 *	... the snippets ...
 *	and so on, in the opposite order
 */
#include "arch/aarch64/a64.h"

#define PUSH_PAIR  0xa9800000u /* stp x, x, [n, #imm]! */
#define POP_PAIR   0xa8c00000u /* ldp x, x, [n], #imm */
#define STORE_PAIR 0xa9000000u
#define LOAD_PAIR  0xa9400000u
#define READ_NZCV  0xd53b4200u
#define WRITE_NZCV 0xd51b4200u

#define STEP_DOWN 0xd10003ffu /* sub sp, sp, #imm12 */
#define STEP_UP	  0x910003ffu /* add sp, sp, #imm12 */

/* frame->saves: how many of the first registers are on the stack, and the one with the flags. */
enum { SAVED_MASK = 15, FLAGS_KEPT = 1 << 4, FLAGS_IN_SHIFT = 5 };

/* Never sp, x29, x30, nor the platform's x18. Callee-saved registers last. */
static const uint8_t order[] = {17, 16, 15, 14, 13, 12, 11, 10, 9,  8,	7,  6,	5,  4,
				3,  2,	1,  0,	19, 20, 21, 22, 23, 24, 25, 26, 27, 28};

/* The registers to use: live ones, which are saved, stand first. */
static void plan(struct arch_frame *f, struct arch_buf *out)
{
	const arch_regset never = f->reads | f->fixed;
	bool flags = (f->needs & ARCH_NEED_FLAGS) && (f->live & SET_FLAGS);
	unsigned wanted = f->scratch + flags, dead = 0, saved = 0;
	uint8_t found[ARCH_SCRATCH_MAX];

	f->saves = f->pushed = 0;
	if (wanted > ARCH_SCRATCH_MAX) {
		a64_fail(out, ARCH_NO_ROOM);
		wanted = f->scratch = ARCH_SCRATCH_MAX;
		flags = false;
	}
	for (size_t i = 0; i < sizeof(order) && dead < wanted; i++)
		if (!((f->live | never) & SET(order[i])))
			found[dead++] = order[i];
	for (size_t i = 0; i < sizeof(order) && saved + dead < wanted; i++)
		if (f->live & ~never & SET(order[i]))
			f->reg[saved++] = order[i];
	for (unsigned i = 0; i < dead; i++)
		f->reg[saved + i] = found[i];
	f->saves = saved;
	/* The last one, which is none of the `scratch` that the snippets use. */
	if (flags)
		f->saves |= FLAGS_KEPT | (uint64_t)f->reg[wanted - 1] << FLAGS_IN_SHIFT;
	f->pushed = (uint16_t)((saved + 1) / 2 * 16);
}

static uint32_t pair(uint32_t opcode, const uint8_t *reg, int bytes)
{
	return opcode | (uint32_t)(bytes / 8 & 127) << 15 | (uint32_t)reg[1] << 10 | SP << 5 |
	       reg[0];
}

/* Bytes of the slots, which lie below what is saved. */
static unsigned slots(const struct arch_frame *f)
{
	return (f->slots + 1u) / 2 * 16;
}

void arch_frame_open(struct arch_buf *out, struct arch_frame *f)
{
	unsigned saved, i;

	plan(f, out);
	saved = f->saves & SAVED_MASK;
	if (saved == 1)
		a64_emit(out, a64_push(f->reg[0], f->pushed));
	if (saved > 1)
		a64_emit(out, pair(PUSH_PAIR, f->reg, -f->pushed));
	if (saved)
		arch_note_pushed(out, f->pushed);
	for (i = 2; i + 1 < saved; i += 2)
		a64_emit(out, pair(STORE_PAIR, f->reg + i, (int)(8 * i)));
	if (i + 1 == saved)
		a64_emit(out, a64_str(f->reg[i], SP, 8 * i));
	if (f->saves & FLAGS_KEPT)
		a64_emit(out, READ_NZCV | (uint32_t)(f->saves >> FLAGS_IN_SHIFT));
	if (f->slots) {
		a64_emit(out, STEP_DOWN | slots(f) << 10);
		f->pushed += slots(f);
		arch_note_pushed(out, f->pushed);
	}
}

void arch_frame_close(struct arch_buf *out, const struct arch_frame *f)
{
	unsigned saved = f->saves & SAVED_MASK, pushed = f->pushed, i;

	if (f->slots) {
		a64_emit(out, STEP_UP | slots(f) << 10);
		pushed -= slots(f);
		arch_note_pushed(out, pushed);
	}
	if (f->saves & FLAGS_KEPT)
		a64_emit(out, WRITE_NZCV | (uint32_t)(f->saves >> FLAGS_IN_SHIFT));
	for (i = 2; i + 1 < saved; i += 2)
		a64_emit(out, pair(LOAD_PAIR, f->reg + i, (int)(8 * i)));
	if (i + 1 == saved)
		a64_emit(out, a64_ldr(f->reg[i], SP, 8 * i));
	if (saved == 1)
		a64_emit(out, a64_pop(f->reg[0], pushed));
	if (saved > 1)
		a64_emit(out, pair(POP_PAIR, f->reg, (int)pushed));
	if (saved)
		arch_note_pushed(out, 0);
}
