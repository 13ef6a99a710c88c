/* SPDX-License-Identifier: MIT */
/*
 * gate.c - code that waits: holding a program at its entry point without
 * stopping it. It gives up by itself when nobody opens it, so a mutator that dies
 * does not leave the program hanging. x16 and x17 are free there: any veneer on
 * the way may use them (AAPCS64, 6.1.1). And poison, which nobody may ever reach.
 */
#include "arch/aarch64/a64.h"

enum { NEAR_MAX = 16380 };

/* Where a word is: an offset from x16, which is set first unless all words share it. */
struct gate {
	struct arch_buf *out;
	taddr_t base; /* of all words; 0: x16 is set for each */
};

static unsigned word_at(const struct gate *g, taddr_t word)
{
	if (g->base)
		return word - g->base;
	a64_emit_address(g->out, X16, word);
	return 0;
}

static taddr_t lowest(taddr_t a, taddr_t b, taddr_t c)
{
	taddr_t least = a < b ? a : b;

	return c < least ? c : least;
}

void arch_emit_gate(struct arch_buf *out, taddr_t arrived, taddr_t go, taddr_t budget, taddr_t next)
{
	taddr_t base = lowest(arrived, go, budget);
	struct gate g = {.out = out};
	size_t loop, leave;
	unsigned at;

	if ((arrived | go | budget) & 3)
		a64_fail(out, ARCH_REFUSED);
	if (arrived - base <= NEAR_MAX && go - base <= NEAR_MAX && budget - base <= NEAR_MAX) {
		a64_emit_address(out, X16, base);
		g.base = base;
	}
	at = word_at(&g, arrived);
	a64_emit_constant(out, X17, 1);
	a64_emit(out, a64_str_w(X17, X16, at));
	loop = out->used;
	a64_emit(out, 0xd503203f); /* yield */
	at = word_at(&g, budget);
	a64_emit(out, a64_ldr_w(X17, X16, at));
	a64_emit(out, 0x51000400 | X17 << 5 | X17); /* sub w17, w17, #1 */
	a64_emit(out, a64_str_w(X17, X16, at));
	leave = out->used;
	a64_emit(out, 0);
	at = word_at(&g, go);
	a64_emit(out, a64_ldr_w(X17, X16, at));
	a64_emit(out, a64_cbz_w(X17, ((int)loop - (int)out->used) / A64_SIZE));
	if (out->status == ARCH_OK)
		a64_store(out->bytes + leave, a64_cbz_w(X17, (int)(out->used - leave) / A64_SIZE));
	arch_emit_jump(out, next);
}

void arch_fill_poison(uint8_t *bytes, size_t size)
{
	static const uint8_t branch_to_itself[] = {0x00, 0x00, 0x00, 0x14};

	for (size_t i = 0; i < size; i++)
		bytes[i] = branch_to_itself[i % sizeof(branch_to_itself)];
}
