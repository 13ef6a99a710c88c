/* SPDX-License-Identifier: MIT */
/*
 * effects.c - which registers data processing instructions read and write.
 * Precise for integers; what is rare reads everything, which is always sound:
 * a register that is read is never taken for dead.
 */
#include "arch/aarch64/a64.h"

enum { FRAME_POINTER = X29 };

/* Number 31 is the stack pointer in some operands. */
static arch_regset set_sp(unsigned reg)
{
	return SET(reg);
}

static bool reads_everything(struct a64_insn *insn)
{
	insn->reads = SET_ALL;
	insn->writes = 0;
	return true;
}

/* adr, adrp (C4.1.65, PC-rel. addressing). */
static bool pc_relative(uint32_t w, struct a64_insn *insn)
{
	int64_t offset = a64_signed(w, 5, 19) * 4 + (w >> 29 & 3);

	if (w >> 31)
		insn->data_ref = (insn->address & ~4095ull) + (uint64_t)offset * 4096;
	else
		insn->data_ref = insn->address + offset;
	insn->flags |= ARCH_INSN_PC_RELATIVE | ARCH_INSN_ADDRESS_OF;
	insn->writes = a64_set(a64_rd(w));
	return true;
}

/* add sp, sp, #n and mov sp, x29 take a frame away. */
static void mark_frame(uint32_t w, struct a64_insn *insn)
{
	bool is_sub = w >> 30 & 1;

	if (a64_rd(w) == SP && !is_sub && (a64_rn(w) == SP || a64_rn(w) == FRAME_POINTER))
		insn->flags |= ARCH_INSN_FRAME;
}

static bool add_immediate(uint32_t w, struct a64_insn *insn)
{
	bool sets_flags = w >> 29 & 1;

	insn->reads = set_sp(a64_rn(w));
	insn->writes = sets_flags ? a64_set(a64_rd(w)) | SET_FLAGS : set_sp(a64_rd(w));
	if (!sets_flags)
		mark_frame(w, insn);
	return true;
}

bool a64_effects_immediate(uint32_t w, struct a64_insn *insn)
{
	unsigned opc = w >> 29 & 3;

	switch (w >> 23 & 7) {
	case 0:
	case 1:
		return pc_relative(w, insn);
	case 2:
		return add_immediate(w, insn);
	case 3: /* tags; minimum and maximum */
		return reads_everything(insn);
	case 4: /* and, orr, eor, ands */
		insn->reads = a64_set(a64_rn(w));
		insn->writes = opc == 3 ? a64_set(a64_rd(w)) | SET_FLAGS : set_sp(a64_rd(w));
		return w >> 31 || !(w >> 22 & 1);
	case 5: /* movn, movz, movk */
		insn->reads = opc == 3 ? a64_set(a64_rd(w)) : 0;
		insn->writes = a64_set(a64_rd(w));
		return opc != 1 && (w >> 31 || !(w >> 22 & 1));
	case 6: /* sbfm, bfm, ubfm */
		insn->reads = a64_set(a64_rn(w)) | (opc == 1 ? a64_set(a64_rd(w)) : 0);
		insn->writes = a64_set(a64_rd(w));
		return opc != 3 && (w >> 31) == (w >> 22 & 1);
	default: /* extr; the others are relative to the program counter in new ways */
		insn->reads = a64_set(a64_rn(w)) | a64_set(a64_rm(w));
		insn->writes = a64_set(a64_rd(w));
		return (w & 0x7fa00000) == 0x13800000 && (w >> 31) == (w >> 22 & 1);
	}
}

/* Logical, add and subtract with a register: shifted or extended. */
static bool two_registers(uint32_t w, struct a64_insn *insn)
{
	bool is_add = w >> 24 & 1, extended = is_add && (w >> 21 & 1);
	bool sets_flags = is_add ? w >> 29 & 1 : (w >> 29 & 3) == 3;

	insn->reads = a64_set(a64_rm(w)) | (extended ? set_sp(a64_rn(w)) : a64_set(a64_rn(w)));
	insn->writes = extended && !sets_flags ? set_sp(a64_rd(w)) : a64_set(a64_rd(w));
	if (sets_flags)
		insn->writes |= SET_FLAGS;
	if (extended)
		mark_frame(w, insn);
	return true;
}

/*
 * One source: reverse, count, and the pointer authentication. Those whose
 * opcode is 32 or more sign with the program counter and stay where they are.
 */
static bool one_source(uint32_t w, struct a64_insn *insn)
{
	unsigned opcode = w >> 10 & 63;

	if (a64_rm(w) > 1)
		return false;
	insn->reads = a64_set(a64_rn(w));
	insn->writes = a64_set(a64_rd(w));
	if (a64_rm(w) == 1) {
		insn->reads |= a64_set(a64_rd(w)) | SET_SP;
		if (opcode >= 32) {
			insn->flags |= ARCH_INSN_NO_MOVE;
			return reads_everything(insn);
		}
	}
	return true;
}

/* Carry, conditional compare and select, one and two sources (C4.1.68). */
static bool conditional_and_sources(uint32_t w, struct a64_insn *insn)
{
	arch_regset sources = a64_set(a64_rn(w)) | a64_set(a64_rm(w));
	bool sets_flags = w >> 29 & 1;

	switch (w >> 21 & 7) {
	case 0: /* adc, sbc; rmif and its like change some flags only */
		if (w & 0xfc00)
			return reads_everything(insn);
		insn->reads = sources | SET_FLAGS;
		insn->writes = a64_set(a64_rd(w)) | (sets_flags ? SET_FLAGS : 0);
		return true;
	case 2: /* ccmn, ccmp; the second operand may be a number */
		insn->reads = a64_set(a64_rn(w)) | SET_FLAGS;
		if (!(w >> 11 & 1))
			insn->reads |= a64_set(a64_rm(w));
		insn->writes = SET_FLAGS;
		return sets_flags && !(w & 0x410);
	case 4: /* csel and its like */
		insn->reads = sources | SET_FLAGS;
		insn->writes = a64_set(a64_rd(w));
		return !sets_flags && !(w & 0x800);
	case 6:
		if (sets_flags)
			return reads_everything(insn); /* subps */
		if (w >> 30 & 1)
			return one_source(w, insn);
		insn->reads = sources | SET_SP;
		insn->writes = a64_set(a64_rd(w));
		return true;
	default:
		return false;
	}
}

bool a64_effects_register(uint32_t w, struct a64_insn *insn)
{
	switch (w >> 24 & 31) {
	case 10:
	case 11:
		return two_registers(w, insn);
	case 26:
		return conditional_and_sources(w, insn);
	case 27: /* madd and its like */
		if (w >> 29 & 3)
			return false;
		insn->reads = a64_set(a64_rn(w)) | a64_set(a64_rm(w)) | a64_set(a64_rt2(w));
		insn->writes = a64_set(a64_rd(w));
		return true;
	default:
		return false;
	}
}

/* True if a general register is what it makes of a vector's element (C4.1.69, C4.1.70). */
static bool makes_general(uint32_t w)
{
	unsigned opcode = w >> 16 & 7;

	if ((w & 0x9fe08400) == 0x0e000400) /* umov, smov; not dup and ins */
		return (w & 0x6800) == 0x2800;
	/* Conversions: whole numbers, and with a fixed point; the others make a vector. */
	if ((w & 0x5f20fc00) == 0x1e200000 || (w & 0x5f200000) == 0x1e000000)
		return opcode != 2 && opcode != 3 && opcode != 7;
	return false;
}

/*
 * Floating point and vectors: the only general register that any of them reads
 * is Rn. What they write is not claimed.
 */
bool a64_effects_vector(uint32_t w, struct a64_insn *insn)
{
	bool scalar = (w & 0x5f200000) == 0x1e200000;

	insn->reads = a64_set(a64_rn(w));
	if (scalar && (w >> 10 & 1)) /* fccmp, fcsel */
		insn->reads |= SET_FLAGS;
	if (makes_general(w))
		insn->may_change = a64_set(a64_rd(w));
	/* fccmp, fccmpe, and fjcvtzs, which says if it is exact. */
	if ((w & 0xff200c00) == 0x1e200400 || (w & 0xfffffc00) == 0x1e7e0000)
		insn->may_change |= SET_FLAGS;
	/* fcmp writes the flags and nothing else. */
	if ((w & 0xff20fc07) == 0x1e202000)
		insn->writes = SET_FLAGS;
	return true;
}
