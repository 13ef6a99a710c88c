/* SPDX-License-Identifier: MIT */
/*
 * assembler.c - instructions and labels (Intel SDM volume 2, chapter 2).
 * Displacements are as short as they can be, jumps always near.
 */
#include "arch/x86_64/assembler.h"

/* ------------------------------------------------------------- instructions */

static unsigned log2_of(unsigned scale)
{
	return scale == 8 ? 3 : scale / 2;
}

/* ARCH_NO_REGISTER, or any other number that is none, must not become some register by its low bits. */
static void check_register(struct arch_buf *out, unsigned reg)
{
	if (reg > R15)
		x86_fail(out, ARCH_REFUSED);
}

static void emit_opcode(struct arch_buf *out, unsigned rex, unsigned opcode)
{
	if (rex)
		x86_emit8(out, 0x40 | rex);
	if (opcode > 0xff)
		x86_emit8(out, opcode >> 8);
	x86_emit8(out, opcode & 0xff);
}

/* Without a base there is a SIB byte, base 5 and mod 0, and always four bytes of displacement. */
static void emit_no_base(struct arch_buf *out, unsigned reg, struct asm_mem m)
{
	x86_emit8(out, (reg & 7) << 3 | RSP);
	x86_emit8(out,
		  log2_of(m.scale) << 6 | (m.index >= 0 ? (unsigned)m.index & 7 : RSP) << 3 | RBP);
	x86_emit32(out, (uint32_t)m.disp);
}

void asm_op_mem(struct arch_buf *out, bool wide, unsigned opcode, unsigned reg, struct asm_mem m)
{
	const bool has_base = m.base != ASM_NO_BASE;
	const bool sib = m.index >= 0 || (m.base & 7) == RSP;
	const bool byte = m.disp == (int8_t)m.disp;
	/* Base 5 without a displacement means something else. */
	const unsigned mod = m.disp == 0 && (m.base & 7) != RBP ? 0 : byte ? 0x40 : 0x80;
	const unsigned rex = (wide ? REX_W : 0) | (reg >= 8 ? REX_R : 0) |
			     (m.index >= 8 ? REX_X : 0) | (has_base && m.base >= 8 ? REX_B : 0);

	check_register(out, reg);
	if (m.index >= 0)
		check_register(out, (unsigned)m.index);
	if (has_base)
		check_register(out, m.base);
	emit_opcode(out, rex, opcode);
	if (!has_base) {
		emit_no_base(out, reg, m);
		return;
	}
	x86_emit8(out, mod | (reg & 7) << 3 | (sib ? RSP : m.base & 7));
	if (sib)
		x86_emit8(out, log2_of(m.scale) << 6 |
				       (m.index >= 0 ? (unsigned)m.index & 7 : RSP) << 3 |
				       (m.base & 7));
	if (mod == 0x40)
		x86_emit8(out, (unsigned)m.disp & 0xff);
	else if (mod == 0x80)
		x86_emit32(out, (uint32_t)m.disp);
}

void asm_op_reg(struct arch_buf *out, bool wide, unsigned opcode, unsigned reg, unsigned rm)
{
	const unsigned rex = (wide ? REX_W : 0) | (reg >= 8 ? REX_R : 0) | (rm >= 8 ? REX_B : 0);

	check_register(out, reg);
	check_register(out, rm);
	emit_opcode(out, rex, opcode);
	x86_emit8(out, 0xc0 | (reg & 7) << 3 | (rm & 7));
}

void asm_load(struct arch_buf *out, unsigned reg, struct asm_mem m)
{
	asm_op_mem(out, true, ASM_LOAD, reg, m);
}

void asm_load32(struct arch_buf *out, unsigned reg, struct asm_mem m)
{
	asm_op_mem(out, false, ASM_LOAD, reg, m);
}

void asm_store(struct arch_buf *out, unsigned reg, struct asm_mem m)
{
	asm_op_mem(out, true, ASM_STORE, reg, m);
}

void asm_store32(struct arch_buf *out, unsigned reg, struct asm_mem m)
{
	asm_op_mem(out, false, ASM_STORE, reg, m);
}

void asm_move(struct arch_buf *out, unsigned from, unsigned to)
{
	asm_op_reg(out, true, ASM_STORE, from, to);
}

void asm_move32(struct arch_buf *out, unsigned from, unsigned to)
{
	asm_op_reg(out, false, ASM_STORE, from, to);
}

void asm_store_number(struct arch_buf *out, bool wide, int32_t value, struct asm_mem m)
{
	asm_op_mem(out, wide, 0xc7, 0, m);
	x86_emit32(out, (uint32_t)value);
}

void asm_immediate(struct arch_buf *out, bool wide, unsigned operation, int32_t value, unsigned reg)
{
	const bool byte = value == (int8_t)value;

	asm_op_reg(out, wide, byte ? 0x83 : 0x81, operation, reg);
	if (byte)
		x86_emit8(out, (unsigned)value & 0xff);
	else
		x86_emit32(out, (uint32_t)value);
}

void asm_compare_number(struct arch_buf *out, bool wide, int8_t value, struct asm_mem m)
{
	asm_op_mem(out, wide, 0x83, ASM_IMM_CMP, m);
	x86_emit8(out, (unsigned)value & 0xff);
}

void asm_number32(struct arch_buf *out, unsigned reg, uint32_t value)
{
	check_register(out, reg);
	if (reg >= 8)
		x86_emit8(out, 0x41);
	x86_emit8(out, 0xb8 | (reg & 7));
	x86_emit32(out, value);
}

void asm_number64(struct arch_buf *out, unsigned reg, uint64_t value)
{
	check_register(out, reg);
	x86_emit8(out, 0x48 | (reg >= 8 ? REX_B : 0));
	x86_emit8(out, 0xb8 | (reg & 7));
	x86_emit64(out, value);
}

void asm_shift(struct arch_buf *out, bool wide, bool left, unsigned reg, unsigned count)
{
	asm_op_reg(out, wide, 0xc1, left ? 4 : 5, reg);
	x86_emit8(out, count);
}

void asm_multiply(struct arch_buf *out, uint32_t number, unsigned from, unsigned to)
{
	asm_op_reg(out, false, 0x69, to, from);
	x86_emit32(out, number);
}

void asm_exchange_if_zero(struct arch_buf *out, bool locked, unsigned reg, struct asm_mem m)
{
	asm_op_reg(out, false, ASM_XOR_STORE, RAX, RAX);
	if (locked)
		x86_emit8(out, 0xf0);
	asm_op_mem(out, true, 0x0fb1, reg, m);
}

void asm_load_thread(struct arch_buf *out, bool wide, unsigned reg, int32_t offset)
{
	const unsigned rex = (wide ? REX_W : 0) | (reg >= 8 ? REX_R : 0);

	check_register(out, reg);
	x86_emit8(out, 0x64);
	if (rex)
		x86_emit8(out, 0x40 | rex);
	x86_emit8(out, ASM_LOAD);
	x86_emit8(out, (reg & 7) << 3 | 4);
	x86_emit8(out, 0x25);
	x86_emit32(out, (uint32_t)offset);
}

void asm_load_thread_at(struct arch_buf *out, unsigned reg, unsigned offset, int32_t disp)
{
	x86_emit8(out, 0x64);
	asm_op_mem(out, true, ASM_LOAD, reg, asm_at(offset, disp));
}

void asm_push_pop(struct arch_buf *out, unsigned opcode, unsigned reg)
{
	check_register(out, reg);
	if (reg >= 8)
		x86_emit8(out, 0x41);
	x86_emit8(out, opcode | (reg & 7));
}

/* ------------------------------------------------------------------- labels */

static void patch_use(struct asm_label *l, size_t use)
{
	const uint64_t distance = l->address - (l->out->pc + use + 4);

	if (l->out->status != ARCH_OK)
		return;
	if (!x86_fits32((int64_t)distance)) {
		x86_fail(l->out, ARCH_OUT_OF_RANGE);
		return;
	}
	for (unsigned i = 0; i < 4; i++)
		l->out->bytes[use + i] = distance >> (8 * i);
}

void asm_jump(struct arch_buf *out, unsigned condition, struct asm_label *l)
{
	if (condition == ASM_JUMP_ALWAYS) {
		x86_emit8(out, 0xe9);
	} else {
		x86_emit8(out, 0x0f);
		x86_emit8(out, 0x80 | condition);
	}
	l->out = out;
	x86_emit32(out, 0);
	if (l->known)
		patch_use(l, out->used - 4);
	else if (l->count < ASM_USES)
		l->uses[l->count++] = out->used - 4;
	else
		x86_fail(out, ARCH_NO_ROOM);
}

void asm_place_at(struct asm_label *l, taddr_t address)
{
	l->known = true;
	l->address = address;
	for (unsigned i = 0; i < l->count; i++)
		patch_use(l, l->uses[i]);
}

void asm_place(struct arch_buf *out, struct asm_label *l)
{
	asm_place_at(l, arch_here(out));
}
