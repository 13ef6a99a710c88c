/* SPDX-License-Identifier: MIT */
/*
 * compare.c - comparisons with a constant, and what branches make of them, and
 * shifts by a constant: how compilers bound and scale the index of a jump table
 * or the way into unrolled code. Knows nothing of either.
 */
#include "arch/x86_64/x86.h"

/* 3c, 3d: cmp with al, rax; 80, 81, 83 /7: with anything. */
static bool is_compare(const struct x86_layout *l)
{
	if (l->encoding != X86_LEGACY || l->map != 0)
		return false;
	switch (l->opcode) {
	case 0x3c:
	case 0x3d:
		return true;
	case 0x80:
	case 0x81:
	case 0x83:
		return x86_extension(l) == 7;
	default:
		return false;
	}
}

bool arch_compares(const struct arch_insn *insn, arch_regset *reg, uint64_t *limit)
{
	struct x86_layout l;
	unsigned number = RAX;
	uint64_t value;

	if (x86_layout_read(insn->bytes, insn->length, &l) != ARCH_OK || !is_compare(&l))
		return false;
	if (l.modrm_offset)
		number = x86_rm(&l);
	value = (uint64_t)x86_read_signed(insn->bytes + l.imm_offset, l.imm_size);
	if (l.attributes & OP_BYTE) {
		if (l.modrm_offset && x86_mod(&l) == 3 && !l.rex && number >= 4)
			return false; /* ah, ch, dh, bh: a part that no set can name */
		value = (uint8_t)value;
	} else if (!(l.rex & REX_W)) {
		value = l.prefixes & PREFIX_66 ? (uint16_t)value : (uint32_t)value;
	}
	*reg = x86_is_memory(&l) ? 0 : SET(number);
	*limit = value;
	return true;
}

enum arch_condition arch_condition(const struct arch_insn *insn)
{
	struct x86_layout l;

	if (insn->flow != ARCH_FLOW_BRANCH ||
	    x86_layout_read(insn->bytes, insn->length, &l) != ARCH_OK)
		return ARCH_CONDITION_OTHER;
	if (!(l.map == 1 || (l.opcode & 0xf0) == 0x70))
		return ARCH_CONDITION_OTHER; /* loop, jrcxz, xbegin */
	switch (l.opcode & 15) {
	case 2:
		return ARCH_CONDITION_BELOW;
	case 3:
		return ARCH_CONDITION_ABOVE_EQUAL;
	case 4:
		return ARCH_CONDITION_EQUAL;
	case 5:
		return ARCH_CONDITION_NOT_EQUAL;
	case 6:
		return ARCH_CONDITION_BELOW_EQUAL;
	case 7:
		return ARCH_CONDITION_ABOVE;
	default:
		return ARCH_CONDITION_OTHER;
	}
}

/* c1 /4 ib, d1 /4 of a register; 8 and 16 bits keep the rest of it. */
bool arch_shifts_left(const struct arch_insn *insn, unsigned *count)
{
	struct x86_layout l;
	unsigned shift;

	if (x86_layout_read(insn->bytes, insn->length, &l) != ARCH_OK || l.encoding != X86_LEGACY ||
	    l.map != 0 || (l.opcode != 0xc1 && l.opcode != 0xd1) || x86_extension(&l) != 4 ||
	    x86_is_memory(&l))
		return false;
	if ((l.prefixes & PREFIX_66) && !(l.rex & REX_W))
		return false;
	shift = l.imm_size ? insn->bytes[l.imm_offset] : 1;
	*count = shift & (l.rex & REX_W ? 63 : 31);
	return true;
}
