/* SPDX-License-Identifier: MIT */
/*
 * memory.c - which registers loads and stores read and write (C4.1.94). The
 * base register is read even where the instruction moves it.
 */
#include "arch/aarch64/a64.h"

static bool reads_everything(struct a64_insn *insn)
{
	insn->reads = SET_ALL;
	insn->writes = 0;
	return true;
}

/* The base register, which may be the stack pointer. */
static void base(uint32_t w, struct a64_insn *insn)
{
	insn->reads |= SET(a64_rn(w));
	if (a64_rn(w) == SP)
		insn->flags |= ARCH_INSN_STACK_OPERAND;
}

static void exclusive(bool is_load, struct a64_insn *insn)
{
	insn->flags |=
		ARCH_INSN_NO_MOVE | (is_load ? ARCH_INSN_EXCLUSIVE_LOAD : ARCH_INSN_EXCLUSIVE_END);
}

/*
 * Exclusives, ordered accesses, compare and swap. Between a load and a store
 * exclusive nothing of ours may run: our own stores could end the reservation
 * each time, for ever. The pair stays where it is, and what stands between the
 * two is the planner's to find (flow_sequences.c).
 */
static bool ordered(uint32_t w, struct a64_insn *insn)
{
	bool o2 = w >> 23 & 1, is_load = w >> 22 & 1, o1 = w >> 21 & 1;
	arch_regset rt = a64_set(a64_rd(w)), rt2 = a64_set(a64_rt2(w)), rs = a64_set(a64_rm(w));

	base(w, insn);
	if (o1 && (o2 || !(w >> 31))) /* cas, casp */
		return reads_everything(insn);
	if (o2) { /* ldar, stlr */
		*(is_load ? &insn->writes : &insn->reads) |= rt;
		return true;
	}
	exclusive(is_load, insn);
	if (is_load) {
		insn->writes = rt | (o1 ? rt2 : 0);
	} else {
		insn->reads |= rt | (o1 ? rt2 : 0);
		insn->writes = rs;
	}
	return true;
}

static bool literal(uint32_t w, struct a64_insn *insn)
{
	bool vector = w >> 26 & 1;
	unsigned opc = w >> 30;

	insn->data_ref = insn->address + 4 * a64_signed(w, 5, 19);
	insn->flags |= ARCH_INSN_PC_RELATIVE;
	if (!vector && opc == 3) /* prfm never faults */
		insn->flags &= ~ARCH_INSN_MEMORY;
	else if (!vector)
		insn->writes = a64_set(a64_rd(w));
	return !(vector && opc == 3);
}

static bool pair(uint32_t w, struct a64_insn *insn)
{
	bool vector = w >> 26 & 1, is_load = w >> 22 & 1;
	unsigned opc = w >> 30, form = w >> 23 & 3;
	arch_regset both = a64_set(a64_rd(w)) | a64_set(a64_rt2(w));

	base(w, insn);
	if (opc == 3)
		return reads_everything(insn);
	if (!vector)
		*(is_load ? &insn->writes : &insn->reads) |= both;
	if (form == 1 || form == 3)
		insn->writes |= SET(a64_rn(w));
	if (is_load && form == 1 && a64_rn(w) == SP)
		insn->flags |= ARCH_INSN_FRAME;
	return true;
}

/* ldadd, swp and their like; those of 64 bytes take eight registers. */
static bool atomic(uint32_t w, struct a64_insn *insn)
{
	if (w >> 15 & 1 && (w >> 12 & 7) != 0)
		return reads_everything(insn);
	base(w, insn);
	insn->reads |= a64_set(a64_rm(w)) | a64_set(a64_rd(w));
	insn->may_change = a64_set(a64_rd(w));
	return true;
}

/* One register, all addressing modes. */
static bool single(uint32_t w, struct a64_insn *insn)
{
	bool vector = w >> 26 & 1, scaled = w >> 24 & 1, other = !scaled && (w >> 21 & 1);
	unsigned size = w >> 30, opc = w >> 22 & 3, form = w >> 10 & 3;

	if (other && form == 0)
		return vector ? false : atomic(w, insn);
	base(w, insn);
	if (other && form != 2) { /* ldraa, ldrab: the base is authenticated, and may move */
		insn->writes = a64_set(a64_rd(w));
		insn->may_change = form == 3 ? SET(a64_rn(w)) : 0;
		return !vector && size == 3;
	}
	if (other)
		insn->reads |= a64_set(a64_rm(w));
	if (!scaled && !other && (form == 1 || form == 3))
		insn->writes |= SET(a64_rn(w));
	if (vector)
		return true;
	if (size == 3 && opc == 2) { /* prfm; rprfm reads its operand as well */
		insn->flags &= ~ARCH_INSN_MEMORY;
		insn->reads |= a64_set(a64_rm(w));
		return true;
	}
	if (opc == 0)
		insn->reads |= a64_set(a64_rd(w));
	else
		insn->writes |= a64_set(a64_rd(w));
	if (opc == 1 && !scaled && !other && form == 1 && a64_rn(w) == SP)
		insn->flags |= ARCH_INSN_FRAME;
	return !(size == 3 && opc == 3) && !(size == 2 && opc == 3);
}

bool a64_effects_memory(uint32_t w, struct a64_insn *insn)
{
	insn->flags |= ARCH_INSN_MEMORY;
	if ((w & 0x3f000000) == 0x08000000)
		return ordered(w, insn);
	if ((w & 0x3b000000) == 0x18000000)
		return literal(w, insn);
	if ((w & 0x3a000000) == 0x28000000)
		return pair(w, insn);
	if ((w & 0x3a000000) == 0x38000000)
		return single(w, insn);
	if ((w & 0xbe000000) == 0x0c000000) { /* vector structures; post-index by Rm */
		base(w, insn);
		insn->reads |= a64_set(a64_rm(w));
		insn->may_change = w >> 23 & 1 ? SET(a64_rn(w)) : 0;
		return true;
	}
	if ((w & 0x3f200c00) == 0x19000000 && (w >> 22 & 3) <= 1) { /* stlur, ldapur */
		base(w, insn);
		*(w >> 22 & 3 ? &insn->writes : &insn->reads) |= a64_set(a64_rd(w));
		return true;
	}
	if ((w & 0xbfa00000) == 0x89000000) /* exclusives with the rights of EL0 (FEAT_LSUI) */
		exclusive(w >> 22 & 1, insn);
	/* Memory copied and set, in three instructions one after the other: the kernel begins anew at the first. */
	if ((w & 0xfb200c00) == 0x19000400)
		insn->flags |= ARCH_INSN_NO_MOVE;
	return reads_everything(insn); /* tags, copies of memory, pairs of 128 bits */
}
