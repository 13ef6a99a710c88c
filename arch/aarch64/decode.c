/* SPDX-License-Identifier: MIT */
/*
 * decode.c - one word into a struct arch_insn: which class it is of, and
 * everything about control flow. What a class reads and writes is in effects.c
 * and memory.c.
 */
#include <string.h>

#include "arch/aarch64/a64.h"
#include "arch/common/common.h"

const uint16_t arch_elf_machine = 183; /* EM_AARCH64 */
const char *const arch_name = "AArch64";

const arch_regset arch_all_live = SET_ALL;
const arch_regset arch_always_live = SET_SP;
const arch_regset arch_callee_saved = 0x3ff80000ull; /* x19 to x29 */
/* x9 to x15 (AAPCS64): what is behind them linkers use on the way to a function. */
const arch_regset arch_entry_scratch = 0xfe00ull | SET_FLAGS;

enum { HINT_NOP = 0, HINT_PACIASP = 25, HINT_PACIBSP = 27, HINT_PACM = 39 };

static void stop_here(struct a64_insn *insn)
{
	insn->flow = ARCH_FLOW_STOP;
	insn->flags |= ARCH_INSN_NO_MOVE;
}

/* svc, hvc, smc, brk, hlt, dcps (C4.1.66, exception generation). */
static bool decode_exception(uint32_t w, struct a64_insn *insn)
{
	insn->reads = SET_ALL;
	if ((w & 0xffe0001f) == 0xd4000001) {
		insn->flow = ARCH_FLOW_SYSCALL;
		insn->flags |= ARCH_INSN_NO_MOVE;
		return true;
	}
	stop_here(insn);
	if ((w & 0xffe0001f) == 0xd4200000) /* brk: compilers put it behind what never returns */
		insn->flags |= ARCH_INSN_PADDING;
	return (w & 0x1c) == 0;
}

/*
 * Landing pads: bti with an operand, paciasp, pacibsp. They stay where they
 * are; the others with a pointer's signature read and write x30, x16 or x17. pacm, which is
 * about the very next instruction (PSTATE.PACM, FEAT_PAuth_LR), is one with it.
 */
static bool decode_hint(uint32_t w, struct a64_insn *insn)
{
	unsigned number = w >> 5 & 127;

	if (number == HINT_NOP) {
		insn->flags |= ARCH_INSN_NOP | ARCH_INSN_PADDING;
	} else if (number == HINT_PACIASP || number == HINT_PACIBSP || (number & 0x79) == 32) {
		insn->flags |= ARCH_INSN_LANDING_PAD | ARCH_INSN_NO_MOVE;
		insn->reads = number < 32 ? SET(X30) | SET_SP : 0;
		insn->may_change = number < 32 ? SET(X30) : 0;
	} else if (number < 6) { /* yield, wfe, wfi, sev, sevl */
		insn->reads = 0;
	} else {
		insn->reads = SET_ALL;
		if (number == HINT_PACM)
			insn->flags |= ARCH_INSN_PREFIX | ARCH_INSN_NO_MOVE;
	}
	return true;
}

/* Hints, barriers, system registers (C4.1.66, system). */
static bool decode_system(uint32_t w, struct a64_insn *insn)
{
	if ((w & 0xfffff01f) == 0xd503201f)
		return decode_hint(w, insn);
	if ((w & 0xfffff000) == 0xd5033000) { /* dmb, dsb, isb, clrex, sb */
		if ((w & 0xe0) == 0x40)
			insn->flags |= ARCH_INSN_EXCLUSIVE_END;
		return true;
	}
	if ((w & 0xfff00000) == 0xd5300000) { /* mrs */
		insn->reads = (w & 0xffffffe0) == 0xd53b4200 ? SET_FLAGS : 0;
		insn->writes = a64_set(a64_rd(w));
		/* Random numbers come with flags (rndr, rndrrs). */
		if ((w & 0xffffffc0) == 0xd53b2400)
			insn->reads = SET_ALL;
		return true;
	}
	if ((w & 0xffffffe0) == 0xd51b4200) { /* msr nzcv */
		insn->reads = a64_set(a64_rd(w));
		insn->writes = SET_FLAGS;
		return true;
	}
	insn->reads = SET_ALL;
	insn->flags |= ARCH_INSN_MEMORY; /* dc zva, at, ... */
	return true;
}

/* br, blr, ret and their forms with pointer authentication (C4.1.66). */
static bool decode_branch_register(uint32_t w, struct a64_insn *insn)
{
	unsigned opc = w >> 21 & 15, op3 = w >> 10 & 63, op4 = w & 31;
	bool plain = op3 == 0, authenticated = op3 == 2 || op3 == 3;

	if (a64_rm(w) != 31 || !(plain || authenticated))
		return false;
	insn->reads = a64_set(a64_rn(w));
	if (opc >= 8) { /* braa, blraa: a modifier in a register */
		if (plain)
			return false;
		insn->reads |= SET(op4);
		opc -= 8;
	} else if (op4 != (plain ? 0u : 31u)) {
		return false;
	}
	switch (opc) {
	case 0:
		insn->flow = ARCH_FLOW_JUMP_INDIRECT;
		return true;
	case 1:
		insn->flow = ARCH_FLOW_CALL_INDIRECT;
		/* The new return address would take the place of what is needed to go there. */
		if ((insn->reads & SET(X30)))
			insn->flags |= ARCH_INSN_NO_MOVE;
		insn->writes = SET(X30);
		return true;
	case 2:
		if (w >> 24 & 1)
			return false;
		insn->flow = ARCH_FLOW_RETURN;
		if (authenticated)
			insn->reads = SET(X30) | SET_SP;
		return !authenticated || a64_rn(w) == 31;
	case 4:
	case 5: /* eret, drps: not for us */
		stop_here(insn);
		return true;
	default:
		return false;
	}
}

static bool decode_branch(uint32_t w, struct a64_insn *insn)
{
	if ((w & 0x7c000000) == 0x14000000) { /* b, bl */
		insn->flow = w >> 31 ? ARCH_FLOW_CALL : ARCH_FLOW_JUMP;
		insn->writes = w >> 31 ? SET(X30) : 0;
		insn->target = insn->address + 4 * a64_signed(w, 0, 26);
		return true;
	}
	insn->flow = ARCH_FLOW_BRANCH;
	insn->target = insn->address + 4 * a64_signed(w, 5, 19);
	if ((w & 0xff000000) == 0x54000000) { /* b.cond, bc.cond */
		insn->reads = SET_FLAGS;
		return true;
	}
	insn->reads = a64_set(a64_rd(w));
	if ((w & 0x7e000000) == 0x34000000) /* cbz, cbnz */
		return true;
	insn->target = insn->address + 4 * a64_signed(w, 5, 14);
	if ((w & 0x7e000000) == 0x36000000) /* tbz, tbnz */
		return true;
	if (a64_is_compare_branch(w)) {
		insn->target = insn->address + 4 * a64_signed(w, 5, 9);
		if (!(w >> 24 & 1))
			insn->reads |= a64_set(a64_rm(w));
		return true;
	}
	insn->flow = ARCH_FLOW_NEXT;
	insn->target = 0;
	insn->reads = 0;
	if ((w & 0xff000000) == 0xd4000000)
		return decode_exception(w, insn);
	if ((w & 0xffc00000) == 0xd5000000)
		return decode_system(w, insn);
	if ((w & 0xfe000000) == 0xd6000000)
		return decode_branch_register(w, insn);
	return false;
}

/* udf, and the matrix extension, whose instructions are copied as they are. */
static bool decode_reserved(uint32_t w, struct a64_insn *insn)
{
	insn->reads = SET_ALL;
	if (w >> 16 == 0) {
		stop_here(insn);
		insn->flags |= ARCH_INSN_PADDING;
		return true;
	}
	insn->flags |= ARCH_INSN_MEMORY;
	return w >> 31;
}

/*
 * Scalable vectors, which are copied as they are. movprfx is one with the instruction behind it: both
 * stay, one after the other.
 */
static bool decode_scalable(uint32_t w, struct a64_insn *insn)
{
	insn->reads = SET_ALL;
	insn->flags |= ARCH_INSN_MEMORY;
	if ((w & 0xfffffc00) == 0x0420bc00 || (w & 0xff3ee000) == 0x04102000)
		insn->flags |= ARCH_INSN_PREFIX | ARCH_INSN_NO_MOVE;
	return true;
}

/* The class of a word (C4.1, top level). */
static bool decode_word(uint32_t w, struct a64_insn *insn)
{
	switch (w >> 25 & 15) {
	case 0:
		return decode_reserved(w, insn);
	case 2:
		return decode_scalable(w, insn);
	case 8:
	case 9:
		return a64_effects_immediate(w, insn);
	case 10:
	case 11:
		return decode_branch(w, insn);
	case 4:
	case 6:
	case 12:
	case 14:
		return a64_effects_memory(w, insn);
	case 5:
	case 13:
		return a64_effects_register(w, insn);
	case 7:
	case 15:
		return a64_effects_vector(w, insn);
	default:
		return false;
	}
}

int arch_decode(const uint8_t *bytes, size_t size, taddr_t address, struct arch_insn *insn)
{
	struct a64_insn found = {.address = address};

	if (size < A64_SIZE)
		return ARCH_TRUNCATED;
	if ((address & 3) || !decode_word(a64_load(bytes), &found))
		return ARCH_UNKNOWN;
	memset(insn, 0, sizeof(*insn));
	insn->address = address;
	insn->target = found.target;
	insn->data_ref = found.data_ref;
	insn->flags = found.flags;
	insn->flow = found.flow;
	insn->length = A64_SIZE;
	memcpy(insn->bytes, bytes, A64_SIZE);
	return ARCH_OK;
}

static struct a64_insn effects(const struct arch_insn *insn)
{
	struct a64_insn found = {.address = insn->address};

	if (!decode_word(a64_load(insn->bytes), &found)) {
		found.reads = SET_ALL;
		found.writes = 0;
	}
	return found;
}

void arch_effects(const struct arch_insn *insn, arch_regset *reads, arch_regset *writes)
{
	struct a64_insn found = effects(insn);

	*reads = found.reads;
	*writes = found.writes;
}

arch_regset arch_changes(const struct arch_insn *insn)
{
	struct a64_insn found = effects(insn);

	return found.reads == SET_ALL ? SET_ALL : found.writes | found.may_change;
}

bool arch_may_copy(const struct arch_insn *insn, arch_regset *from)
{
	(void)insn;
	(void)from;
	return false;
}

/* x0, x1, v0 to v3 (AAPCS64, 6.9); op0 of the encoding, and V of loads and stores, tell vectors. */
bool arch_keeps_results(const struct arch_insn *insn)
{
	const uint32_t w = a64_load(insn->bytes);
	const bool is_vector = (w >> 25 & 7) == 7 || ((w >> 25 & 5) == 4 && w >> 26 & 1);

	return !(arch_changes(insn) & (SET(0) | SET(1))) && !is_vector;
}

bool arch_falls_through(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_NEXT || insn->flow == ARCH_FLOW_BRANCH ||
	       insn->flow == ARCH_FLOW_SYSCALL;
}
