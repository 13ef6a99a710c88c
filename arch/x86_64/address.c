/* SPDX-License-Identifier: MIT */
/*
 * address.c - code that computes the address of a memory access into a register
 * that the caller names. lea and mov only: no flag, no other register.
 */
#include "arch/x86_64/x86.h"

/* lea offset(base,index,1 << shift),reg; base and index may be ARCH_NO_REGISTER, not both. */
static void emit_lea(struct arch_buf *out, unsigned reg, unsigned base, unsigned index,
		     unsigned shift, int64_t offset)
{
	bool has_base = base != ARCH_NO_REGISTER, has_index = index != ARCH_NO_REGISTER;
	unsigned sib_index = has_index ? index : RSP;
	bool narrow = has_base && offset == (int8_t)offset;

	if (!x86_fits32(offset)) {
		x86_fail(out, ARCH_OUT_OF_RANGE);
		return;
	}
	x86_emit8(out, 0x40 | REX_W | (reg >= 8 ? REX_R : 0) |
			       (has_index && index >= 8 ? REX_X : 0) |
			       (has_base && base >= 8 ? REX_B : 0));
	x86_emit8(out, 0x8d);
	x86_emit8(out, (has_base ? (narrow ? 0x40 : 0x80) : 0) | (reg & 7) << 3 | 4);
	x86_emit8(out, shift << 6 | (sib_index & 7) << 3 | (has_base ? base & 7 : 5));
	if (narrow)
		x86_emit8(out, offset);
	else
		x86_emit32(out, offset);
}

/* A constant: sign-extended, relative to the program counter, or in full. */
static void emit_constant(struct arch_buf *out, unsigned reg, uint64_t value)
{
	bool extended = reg >= 8;
	enum { LEA_SIZE = 7 };

	if (x86_fits32(value)) {
		x86_emit8(out, 0x40 | REX_W | (extended ? REX_B : 0));
		x86_emit8(out, 0xc7);
		x86_emit8(out, 0xc0 | (reg & 7));
		x86_emit32(out, value);
	} else if (x86_fits32(value - (arch_here(out) + LEA_SIZE))) {
		x86_emit8(out, 0x40 | REX_W | (extended ? REX_R : 0));
		x86_emit8(out, 0x8d);
		x86_emit8(out, (reg & 7) << 3 | 5);
		x86_emit_relative(out, value);
	} else {
		x86_emit8(out, 0x40 | REX_W | (extended ? REX_B : 0));
		x86_emit8(out, 0xb8 | (reg & 7));
		x86_emit64(out, value);
	}
}

/* mov %fs:0,reg: the thread block begins with its own address (psABI, TLS variant II). */
static void emit_thread_pointer(struct arch_buf *out, unsigned reg)
{
	static const uint8_t absolute_0[] = {0x25, 0, 0, 0, 0};

	x86_emit8(out, 0x64);
	x86_emit8(out, 0x40 | REX_W | (reg >= 8 ? REX_R : 0));
	x86_emit8(out, 0x8b);
	x86_emit8(out, (reg & 7) << 3 | 4);
	x86_emit(out, absolute_0, sizeof(absolute_0));
}

/* The register is a term of its own then, which lea adds like any other. */
static void emit_thread_relative(struct arch_buf *out, const struct arch_memory *m, unsigned reg,
				 int64_t offset)
{
	emit_thread_pointer(out, reg);
	if (m->base != ARCH_NO_REGISTER && m->index != ARCH_NO_REGISTER)
		emit_lea(out, reg, m->base, reg, 0, 0);
	if (m->index != ARCH_NO_REGISTER)
		emit_lea(out, reg, reg, m->index, m->shift, offset);
	else if (m->base != ARCH_NO_REGISTER)
		emit_lea(out, reg, m->base, reg, 0, offset);
	else if (offset)
		emit_lea(out, reg, reg, ARCH_NO_REGISTER, 0, offset);
}

void arch_emit_effective_address(struct arch_buf *out, const struct arch_memory *memory,
				 arch_regset destination, size_t pushed)
{
	int64_t offset = memory->offset + (memory->base == RSP ? (int64_t)pushed : 0);
	unsigned reg;

	if (!memory->computable || !destination || (destination & (destination - 1)) ||
	    (destination & ~SET_REGISTERS) || destination == SET(RSP)) {
		x86_fail(out, ARCH_REFUSED);
		return;
	}
	reg = __builtin_ctzll(destination);
	if (reg == memory->index || (memory->thread_relative && reg == memory->base))
		x86_fail(out, ARCH_REFUSED);
	else if (memory->thread_relative)
		emit_thread_relative(out, memory, reg, offset);
	else if (memory->base == ARCH_NO_REGISTER && memory->index == ARCH_NO_REGISTER)
		emit_constant(out, reg, (uint64_t)offset);
	else
		emit_lea(out, reg, memory->base, memory->index, memory->shift, offset);
}
