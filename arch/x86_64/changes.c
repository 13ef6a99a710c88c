/* SPDX-License-Identifier: MIT */
/*
 * changes.c - the registers that an instruction may change, be it in part or on a
 * condition only: what effects.c counts neither as read nor as overwritten (8 and
 * 16 bits, cmov, bsf), besides what it does.
 *
 * The rule of caution: what might be changed is. What is not understood changes
 * everything. The differential test executes what is said here.
 */
#include "arch/x86_64/x86.h"

/* Without REX, numbers 4 to 7 of a byte are ah, ch, dh, bh. */
static arch_regset byte_of(const struct x86_layout *l, unsigned number)
{
	return SET(!l->rex && number >= 4 && number < 8 ? number - 4 : number);
}

static arch_regset operand(const struct x86_layout *l, unsigned number)
{
	return l->attributes & OP_BYTE ? byte_of(l, number) : SET(number);
}

static arch_regset rm_of(const struct x86_layout *l)
{
	return x86_is_memory(l) ? 0 : operand(l, x86_rm(l));
}

static unsigned short_register(const struct x86_layout *l)
{
	return (l->opcode & 7) | (l->rex & REX_B ? 8 : 0);
}

static arch_regset one_byte_group(const struct x86_layout *l)
{
	const unsigned ext = x86_extension(l);

	switch (l->opcode) {
	case 0x80 ... 0x83:
		return ext == 7 ? 0 : rm_of(l); /* cmp */
	case 0x8f:
		return rm_of(l) | SET(RSP);
	case 0xd8 ... 0xdf: /* fnstsw %ax */
		return l->opcode == 0xdf && l->modrm == 0xe0 ? SET(RAX) : 0;
	case 0xf6 ... 0xf7:
		if (ext >= 4)
			return SET(RAX) | SET(RDX);
		return ext < 2 ? 0 : rm_of(l); /* test */
	case 0xff:
		if (ext < 2)
			return rm_of(l);
		return ext == 4 || ext == 5 ? 0 : SET(RSP); /* jmp */
	default:					    /* shifts, mov, inc and dec of a byte */
		return rm_of(l);
	}
}

/* movs cmps stos lods scas ins outs, with or without rep. */
static arch_regset string(const struct x86_layout *l)
{
	const arch_regset count = l->prefixes & (PREFIX_F2 | PREFIX_F3) ? SET(RCX) : 0;

	switch (l->opcode & 0xfe) {
	case 0x6e:
		return count | SET(RSI);
	case 0xac:
		return count | SET(RSI) | SET(RAX);
	case 0xa4:
	case 0xa6:
		return count | SET(RSI) | SET(RDI);
	default:
		return count | SET(RDI);
	}
}

/* The opcodes that name registers by themselves. */
static arch_regset one_byte(const struct x86_layout *l)
{
	switch (l->opcode) {
	case 0x50 ... 0x57:
	case 0x68:
	case 0x6a:
	case 0x9c ... 0x9d:
	case 0xe8:
		return SET(RSP);
	case 0x58 ... 0x5f:
		return SET(RSP) | SET(short_register(l));
	case 0x6c ... 0x6f:
	case 0xa4 ... 0xa7:
	case 0xaa ... 0xaf:
		return string(l);
	case 0x90 ... 0x97:
		return short_register(l) == RAX ? 0 : SET(RAX) | SET(short_register(l));
	case 0x98:
	case 0x9f: /* lahf */
	case 0xa0 ... 0xa1:
	case 0xd7: /* xlat */
		return SET(RAX);
	case 0x99:
		return SET(RDX);
	case 0xb0 ... 0xb7:
		return byte_of(l, short_register(l));
	case 0xb8 ... 0xbf:
		return SET(short_register(l));
	case 0xc8 ... 0xc9:
		return SET(RSP) | SET(RBP);
	case 0xe0 ... 0xe2: /* loops */
		return SET(RCX);
	default:
		return 0;
	}
}

static arch_regset two_byte(const struct x86_layout *l)
{
	switch (l->opcode) {
	case 0x1e: /* rdssp; else a hint */
		return (l->prefixes & PREFIX_F3) && x86_extension(l) == 1 ? rm_of(l) : 0;
	case 0x7e:
		return l->prefixes & PREFIX_F3 ? 0 : rm_of(l);
	case 0x90 ... 0x9f:
		return rm_of(l);
	case 0xba:
		return x86_extension(l) == 4 ? 0 : rm_of(l); /* bt */
	case 0x02 ... 0x03:
	case 0x2c ... 0x2d:
	case 0x40 ... 0x4f:
	case 0xbc ... 0xbd:
		return operand(l, x86_reg(l));
	case 0xa0 ... 0xa1:
	case 0xa8 ... 0xa9:
		return SET(RSP);
	case 0xb0 ... 0xb1:
		return SET(RAX);
	case 0xc7: /* cmpxchg8b */
		return SET(RAX) | SET(RDX) | rm_of(l);
	case 0xc8 ... 0xcf:
		return SET(short_register(l));
	default:
		return 0;
	}
}

/* Operands that are marked as read only, or that the opcode says. */
static arch_regset implied(const struct x86_layout *l)
{
	const bool both = (l->attributes & OP_REG_R) && (l->attributes & OP_RM_R);

	if (l->map == 3)
		return l->opcode >= 0x14 && l->opcode <= 0x17 ? rm_of(l) : 0; /* pextr */
	if (l->encoding == X86_EVEX)
		return both ? rm_of(l) | SET(x86_reg(l)) : 0;
	if (l->encoding == X86_VEX)
		return l->map == 1 && l->opcode == 0x7e && l->simd == 1 ? rm_of(l) : 0;
	if (l->map == 2) /* movbe, crc32, adcx */
		return l->opcode >= 0xf0 && l->opcode <= 0xf6 ? SET(x86_reg(l)) : 0;
	if (l->map == 1)
		return two_byte(l);
	return l->attributes & OP_GROUP ? one_byte_group(l) : one_byte(l);
}

/* Of those that read everything: returns and traps are what somebody else is to see as it is. */
static arch_regset unknown(const struct arch_insn *insn, const struct x86_layout *l)
{
	switch (insn->flow) {
	case ARCH_FLOW_RETURN:
		return SET(RSP);
	case ARCH_FLOW_STOP:
		return 0;
	case ARCH_FLOW_SYSCALL: /* of 64 bits: psABI, A.2.1 */
		if (l->map == 1 && l->opcode == 0x05)
			return SET(RAX) | SET(RCX) | SET(R11);
		return SET_REGISTERS;
	default:
		return SET_REGISTERS;
	}
}

arch_regset arch_changes(const struct arch_insn *insn)
{
	arch_regset reads, writes;
	struct x86_layout l;

	if (x86_layout_read(insn->bytes, insn->length, &l) != ARCH_OK)
		return SET_REGISTERS;
	x86_effects(insn, &l, &reads, &writes);
	if (reads == SET_ALL)
		return unknown(insn, &l);
	writes |= implied(&l);
	if (l.attributes & OP_REG_W)
		writes |= operand(&l, x86_reg(&l));
	if (l.attributes & OP_RM_W)
		writes |= rm_of(&l);
	if (l.attributes & OP_RAX_W)
		writes |= SET(RAX);
	return writes & SET_REGISTERS;
}

/* cmov; of 16 bits it is but a part. */
bool arch_may_copy(const struct arch_insn *insn, arch_regset *from)
{
	struct x86_layout l;

	if (x86_layout_read(insn->bytes, insn->length, &l) != ARCH_OK || l.encoding != X86_LEGACY ||
	    l.map != 1 || (l.opcode & 0xf0) != 0x40 ||
	    ((l.prefixes & PREFIX_66) && !(l.rex & REX_W)))
		return false;
	*from = x86_is_memory(&l) ? 0 : SET(x86_rm(&l));
	return true;
}

/* What uses vector or floating-point registers, or may. */
static bool is_vector(const struct x86_layout *l)
{
	if (l->encoding != X86_LEGACY)
		return true;
	switch (l->map) {
	case 0:
		return l->opcode >= 0xd8 && l->opcode <= 0xdf;
	case 1:
		return (l->opcode >= 0x10 && l->opcode <= 0x17) ||
		       (l->opcode >= 0x28 && l->opcode <= 0x2f) ||
		       (l->opcode >= 0x50 && l->opcode <= 0x7f) || l->opcode == 0xae ||
		       (l->opcode >= 0xc2 && l->opcode <= 0xc6) || l->opcode >= 0xd0;
	default:
		return l->map == 3 || l->opcode < 0xf0;
	}
}

/* rax, rdx, xmm0, xmm1, st0, st1 (psABI, 3.2.3). */
bool arch_keeps_results(const struct arch_insn *insn)
{
	struct x86_layout l;

	return !(arch_changes(insn) & (SET(RAX) | SET(RDX))) &&
	       x86_layout_read(insn->bytes, insn->length, &l) == ARCH_OK && !is_vector(&l);
}
