/* SPDX-License-Identifier: MIT */
/*
 * compare.c - comparisons with a constant, and what branches make of them, and
 * shifts by a constant: how compilers bound and scale the index of a jump table
 * or the way into unrolled code. Knows nothing of either.
 */
#include "arch/aarch64/a64.h"

/* subs zr, rn, #imm (C4.1.65, add/subtract immediate). */
bool arch_compares(const struct arch_insn *insn, arch_regset *reg, uint64_t *limit)
{
	uint32_t w = a64_load(insn->bytes);
	uint64_t value = w >> 10 & 0xfff;

	if ((w & 0x7f80001f) != 0x7100001f || a64_rn(w) == SP)
		return false;
	*reg = SET(a64_rn(w));
	*limit = w >> 22 & 1 ? value << 12 : value;
	return true;
}

/* b.cond (C1.2.4). */
enum arch_condition arch_condition(const struct arch_insn *insn)
{
	uint32_t w = a64_load(insn->bytes);

	if ((w & 0xff000000) != 0x54000000)
		return ARCH_CONDITION_OTHER;
	switch (w & 15) {
	case 0:
		return ARCH_CONDITION_EQUAL;
	case 1:
		return ARCH_CONDITION_NOT_EQUAL;
	case 2:
		return ARCH_CONDITION_ABOVE_EQUAL;
	case 3:
		return ARCH_CONDITION_BELOW;
	case 8:
		return ARCH_CONDITION_ABOVE;
	case 9:
		return ARCH_CONDITION_BELOW_EQUAL;
	default:
		return ARCH_CONDITION_OTHER;
	}
}

/*
 * lsl rd, rn, #n, which is ubfm rd, rn, #(-n mod bits), #(bits - 1 - n); add
 * rd, rn, rn, lsl #n; mov rd, rm, which is orr rd, zr, rm (C6.2).
 */
bool arch_multiplies(const struct arch_insn *insn, uint64_t *factor)
{
	uint32_t w = a64_load(insn->bytes);
	unsigned bits = w >> 31 ? 64 : 32, rotate = w >> 16 & 63, last = w >> 10 & 63;

	if (a64_rd(w) == ZR)
		return false;
	if ((w & 0x7f800000) == 0x53000000 && (w >> 31) == (w >> 22 & 1) && rotate < bits &&
	    last < bits && last + 1 == rotate)
		*factor = 1ull << (bits - rotate);
	else if ((w & 0x7fe00000) == 0x0b000000 && a64_rn(w) == a64_rm(w) && a64_rm(w) != ZR &&
		 last < bits && last < 63)
		*factor = 1 + (1ull << last);
	else if ((w & 0x7fe0ffe0) == 0x2a0003e0 && a64_rm(w) != ZR)
		*factor = 1;
	else
		return false;
	return true;
}

bool arch_adds(const struct arch_insn *insn)
{
	/* ADD (shifted register), ADD (extended register): Arm ARM, C4.1.5. */
	return (a64_load(insn->bytes) & 0x7f000000) == 0x0b000000;
}

/* ADD, SUB (immediate), flags set or not; mov rd, rm, which is orr rd, zr, rm (Arm ARM, C4.1.65, C6.2). */
bool arch_makes(const struct arch_insn *insn, uint64_t held, uint64_t *made)
{
	const uint32_t w = a64_load(insn->bytes);
	const uint64_t value = (uint64_t)(w >> 10 & 0xfff) << (w >> 22 & 1 ? 12 : 0);

	if ((w & 0x1f800000) == 0x11000000)
		*made = w >> 30 & 1 ? held - value : held + value;
	else if ((w & 0x7fe0ffe0) == 0x2a0003e0 && a64_rm(w) != ZR)
		*made = held;
	else
		return false;
	if (!(w >> 31))
		*made = (uint32_t)*made;
	return true;
}

bool arch_extends(const struct arch_insn *insn)
{
	/* uxtb, uxth, sxtb, sxth, sxtw: UBFM and SBFM from bit 0 on (C6.2). */
	const uint32_t w = a64_load(insn->bytes), last = w >> 10 & 63;

	return ((w & 0x7f800000) == 0x53000000 || (w & 0x7f800000) == 0x13000000) &&
	       (w >> 31) == (w >> 22 & 1) && (w >> 16 & 63) == 0 && a64_rd(w) != ZR &&
	       (last == 7 || last == 15 || last == 31);
}

bool arch_clears(const struct arch_insn *insn)
{
	const uint32_t w = a64_load(insn->bytes);

	/* MOVZ of 0; ORR of the zero register with itself. */
	return a64_rd(w) != ZR &&
	       ((w & 0x7f9fffe0) == 0x52800000 || (w & 0x7fffffe0) == 0x2a1f03e0);
}
