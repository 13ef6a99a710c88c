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

/* lea (r,r,scale), lea 0(,r,scale), lea (r): 0 if it is none of these. */
static uint64_t lea_factor(const struct arch_insn *insn, const struct x86_layout *l)
{
	unsigned base = (l->sib & 7) | (l->rex & REX_B ? 8 : 0);
	unsigned index = (l->sib >> 3 & 7) | (l->rex & REX_X ? 8 : 0);
	bool has_base = !((l->sib & 7) == 5 && x86_mod(l) == 0);

	if (x86_is_pc_relative(l) || (l->prefixes & PREFIX_67) ||
	    x86_read_signed(insn->bytes + l->disp_offset, l->disp_size) != 0)
		return 0;
	if (!x86_has_sib(l))
		return 1;
	if (index == RSP)
		return has_base;
	if (!has_base)
		return 1ull << (l->sib >> 6);
	return base == index ? 1 + (1ull << (l->sib >> 6)) : 0;
}

/* 8 and 16 bits keep the rest of a register. */
bool arch_multiplies(const struct arch_insn *insn, uint64_t *factor)
{
	struct x86_layout l;
	uint64_t found = 0;
	bool is_register;

	if (x86_layout_read(insn->bytes, insn->length, &l) != ARCH_OK || l.encoding != X86_LEGACY ||
	    l.map != 0 || ((l.prefixes & PREFIX_66) && !(l.rex & REX_W)))
		return false;
	is_register = l.modrm_offset && !x86_is_memory(&l);
	if (l.opcode == 0x8d) {
		found = lea_factor(insn, &l);
	} else if (is_register && (l.opcode == 0x89 || l.opcode == 0x8b)) {
		found = 1;
	} else if (is_register && (l.opcode == 0x69 || l.opcode == 0x6b)) {
		found = (uint64_t)x86_read_signed(insn->bytes + l.imm_offset, l.imm_size);
	} else if (is_register && x86_extension(&l) == 4) {
		unsigned mask = l.rex & REX_W ? 63 : 31;

		if (l.opcode == 0xd1)
			found = 2;
		else if (l.opcode == 0xc1)
			found = 1ull << (insn->bytes[l.imm_offset] & mask);
	}
	if ((int64_t)found <= 0)
		return false;
	*factor = found;
	return true;
}

bool arch_adds(const struct arch_insn *insn)
{
	struct x86_layout l;

	if (x86_layout_read(insn->bytes, insn->length, &l) != ARCH_OK || l.encoding != X86_LEGACY ||
	    l.map != 0)
		return false;
	if (l.opcode == 0x03 || (l.opcode == 0x01 && l.modrm_offset && !x86_is_memory(&l)))
		return true;
	/* lea (base,index), or with a displacement of 0 where there must be one. */
	if (l.opcode != 0x8d || !x86_has_sib(&l) || l.sib >> 6 ||
	    (x86_mod(&l) == 0 && (l.sib & 7) == 5))
		return false;
	return !l.disp_size || !x86_read_signed(insn->bytes + l.disp_offset, l.disp_size);
}

/* An operation of the first eight (Intel SDM volume 2, table B-13) with a constant. */
static bool combine(unsigned operation, uint64_t held, uint64_t value, uint64_t *made)
{
	switch (operation) {
	case 0:
		*made = held + value;
		return true;
	case 1:
		*made = held | value;
		return true;
	case 4:
		*made = held & value;
		return true;
	case 5:
		*made = held - value;
		return true;
	case 6:
		*made = held ^ value;
		return true;
	default:
		return false; /* adc, sbb, cmp */
	}
}

/* lea d(r), lea d(,r,scale). */
static bool displace(const struct arch_insn *insn, const struct x86_layout *l, uint64_t held,
		     uint64_t *made)
{
	const bool has_base = !x86_has_sib(l) || !((l->sib & 7) == 5 && x86_mod(l) == 0);
	const bool has_index =
		x86_has_sib(l) && ((l->sib >> 3 & 7) | (l->rex & REX_X ? 8 : 0)) != RSP;

	if (x86_is_pc_relative(l) || l->prefixes & PREFIX_67 || has_base == has_index)
		return false;
	*made = (has_index ? held << (l->sib >> 6) : held) +
		(uint64_t)x86_read_signed(insn->bytes + l->disp_offset, l->disp_size);
	return true;
}

/* With what is no memory; *made is as if it were 64 bits. */
static bool make(const struct arch_insn *insn, const struct x86_layout *l, uint64_t held,
		 uint64_t *made)
{
	const uint64_t value = (uint64_t)x86_read_signed(insn->bytes + l->imm_offset, l->imm_size);

	switch (l->opcode) {
	case 0x05:
	case 0x0d:
	case 0x25:
	case 0x2d:
	case 0x35: /* rax */
		return combine(l->opcode >> 3, held, value, made);
	case 0x81:
	case 0x83:
		return combine(x86_extension(l), held, value, made);
	case 0x89:
	case 0x8b:
		*made = held;
		return true;
	case 0xff:
		*made = x86_extension(l) ? held - 1 : held + 1;
		return x86_extension(l) < 2;
	default:
		return false;
	}
}

bool arch_makes(const struct arch_insn *insn, uint64_t held, uint64_t *made)
{
	struct x86_layout l;

	if (x86_layout_read(insn->bytes, insn->length, &l) != ARCH_OK || l.encoding != X86_LEGACY ||
	    l.map != 0 || (l.prefixes & PREFIX_66 && !(l.rex & REX_W)))
		return false;
	if (l.opcode == 0x8d ? !displace(insn, &l, held, made)
			     : x86_is_memory(&l) || !make(insn, &l, held, made))
		return false;
	if (!(l.rex & REX_W))
		*made = (uint32_t)*made;
	return true;
}

bool arch_extends(const struct arch_insn *insn)
{
	struct x86_layout l;

	if (x86_layout_read(insn->bytes, insn->length, &l) != ARCH_OK || l.encoding != X86_LEGACY ||
	    ((l.prefixes & PREFIX_66) && !(l.rex & REX_W)))
		return false;
	if (l.map == 0 && l.opcode == 0x98)
		return true;
	if (!l.modrm_offset || x86_is_memory(&l))
		return false;
	/* movslq; movzbl, movzwl, movsbl, movswl */
	return (l.map == 0 && l.opcode == 0x63) || (l.map == 1 && (l.opcode & 0xf6) == 0xb6);
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i])
			return false;
	return true;
}

/* b8 to bf; c7 /0: mov of a constant to a register. */
static bool moves_constant(const struct x86_layout *l)
{
	return (l->opcode & 0xf8) == 0xb8 ||
	       (l->opcode == 0xc7 && x86_extension(l) == 0 && !x86_is_memory(l));
}

/* 8 and 16 bits keep the rest of a register. */
bool arch_clears(const struct arch_insn *insn)
{
	struct x86_layout l;

	if (x86_layout_read(insn->bytes, insn->length, &l) != ARCH_OK || l.encoding != X86_LEGACY ||
	    ((l.prefixes & PREFIX_66) && !(l.rex & REX_W)) || l.map != 0)
		return false;
	if (moves_constant(&l))
		return is_zero(insn->bytes + l.imm_offset, l.imm_size);
	/* xor of a register with itself */
	return (l.opcode == 0x31 || l.opcode == 0x33) && !x86_is_memory(&l) &&
	       x86_reg(&l) == x86_rm(&l);
}
