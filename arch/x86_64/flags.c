/* SPDX-License-Identifier: MIT */
/*
 * flags.c - which flags conditions look at, and which a result overwrites.
 */
#include "arch/x86_64/x86.h"

arch_regset x86_condition_flags(unsigned condition)
{
	switch (condition >> 1 & 7) {
	case 0:
		return FLAG_OF;
	case 1:
		return FLAG_CF;
	case 2:
		return FLAG_ZF;
	case 3:
		return FLAG_CF | FLAG_ZF;
	case 4:
		return FLAG_SF;
	case 5:
		return FLAG_PF;
	case 6:
		return FLAG_SF | FLAG_OF;
	default:
		return FLAG_ZF | FLAG_SF | FLAG_OF;
	}
}

/*
 * Which flags an instruction overwrites that sets flags by its result. AMD's Zen leaves those
 * alone that are undefined after imul (69, 6b, 0f af), bsf, bsr, tzcnt and lzcnt (0f bc, bd).
 * CF is of the last two, which processors without them execute as the first two.
 */
arch_regset x86_result_flags(const struct x86_layout *l)
{
	if (l->encoding == X86_LEGACY &&
	    ((l->map == 0 && (l->opcode == 0x69 || l->opcode == 0x6b)) ||
	     (l->map == 1 && l->opcode == 0xaf)))
		return X86_PRODUCT_FLAGS;
	if (l->encoding == X86_LEGACY && l->map == 1 && (l->opcode == 0xbc || l->opcode == 0xbd))
		return FLAG_ZF;
	return SET_FLAGS;
}
