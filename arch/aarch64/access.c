/* SPDX-License-Identifier: MIT */
/*
 * access.c - what loads and stores access (C4.1.94), and code that computes
 * their addresses: add, sub and adr only, no flag, no other register. What is
 * not known in detail (scalable vectors, tags, copies of memory) is one access
 * of unknown size that is load and store and has no address.
 */
#include "arch/aarch64/a64.h"

enum { LOAD = 1, STORE = 2, BOTH = 3, UXTX = 3 };

static bool is_bit(uint32_t w, unsigned bit)
{
	return w >> bit & 1;
}

static void set(struct arch_memory *m, unsigned access, uint32_t size)
{
	m->load = access & LOAD;
	m->store = access & STORE;
	m->size = size;
	m->computable = true;
}

static void unknown(struct arch_memory *m)
{
	set(m, BOTH, 0);
	m->computable = false;
}

/* Exclusives, ordered accesses, compare and swap: at the base. */
static void ordered(uint32_t w, struct arch_memory *m)
{
	bool o2 = is_bit(w, 23), is_load = is_bit(w, 22), o1 = is_bit(w, 21);
	unsigned size = w >> 30;

	if (o2 && o1)
		set(m, BOTH, 1u << size); /* cas */
	else if (o1 && !is_bit(w, 31))
		set(m, BOTH, 8u << (size & 1)); /* casp */
	else if (o1)
		set(m, is_load ? LOAD : STORE, 8u << (size & 1)); /* ldxp, stxp */
	else
		set(m, is_load ? LOAD : STORE, 1u << size);
}

static void literal(const struct arch_insn *insn, uint32_t w, struct arch_memory *m)
{
	bool vector = is_bit(w, 26);
	unsigned opc = w >> 30;

	set(m, LOAD, vector ? 4u << opc : opc == 1 ? 8 : 4);
	m->base = ARCH_NO_REGISTER;
	m->offset = (int64_t)insn->data_ref;
}

static void pair(uint32_t w, struct arch_memory *m)
{
	bool vector = is_bit(w, 26), is_load = is_bit(w, 22);
	unsigned opc = w >> 30, form = w >> 23 & 3;
	unsigned element = vector ? 4u << opc : opc == 2 ? 8 : 4;

	if (opc == 3 || (!vector && opc == 1 && (!is_load || form == 0))) {
		unknown(m); /* stgp: a tag as well */
		return;
	}
	set(m, is_load ? LOAD : STORE, 2 * element);
	if (form != 1)
		m->offset = a64_signed(w, 15, 7) * (int64_t)element;
}

/* ldadd, swp and their like; ldapr; 64 bytes at once. */
static void atomic(uint32_t w, struct arch_memory *m)
{
	if ((w & 0x3ffffc00) == 0x38bfc000)
		set(m, LOAD, 1u << (w >> 30));
	else if (is_bit(w, 15) && (w >> 12 & 7) != 0)
		set(m, (w >> 12 & 7) == 5 ? LOAD : STORE, 64);
	else
		set(m, BOTH, 1u << (w >> 30));
}

/* One register, all addressing modes. */
static void single(uint32_t w, struct arch_memory *m)
{
	bool vector = is_bit(w, 26), scaled = is_bit(w, 24), other = !scaled && is_bit(w, 21);
	unsigned size = w >> 30, opc = w >> 22 & 3, form = w >> 10 & 3;
	unsigned log2 = vector && (opc & 2) ? 4 : size;
	bool is_load = vector ? opc & 1 : opc != 0;

	if (other && form == 0) {
		atomic(w, m);
		return;
	}
	if (other && form != 2) { /* ldraa, ldrab: the base carries a signature */
		set(m, LOAD, 8);
		m->computable = false;
		return;
	}
	set(m, is_load ? LOAD : STORE, 1u << log2);
	if (scaled) {
		m->offset = (int64_t)(w >> 10 & 0xfff) << log2;
	} else if (other) {
		m->extend = w >> 13 & 7;
		m->index = a64_rm(w) == ZR ? ARCH_NO_REGISTER : a64_rm(w);
		m->shift = is_bit(w, 12) ? log2 : 0;
		m->computable = m->extend & 2;
	} else if (form != 1) {
		m->offset = a64_signed(w, 12, 9);
	}
}

/* ld1 to ld4, st1 to st4: registers, or single elements of them. */
static void structures(uint32_t w, struct arch_memory *m)
{
	static const uint8_t registers[16] = {
		[0] = 4, [2] = 4, [4] = 3, [6] = 3, [7] = 1, [8] = 2, [10] = 2};
	unsigned size = w >> 10 & 3, opcode = w >> 13 & 7;
	unsigned access = is_bit(w, 22) ? LOAD : STORE;

	if (!is_bit(w, 24)) {
		set(m, access, registers[w >> 12 & 15] * (is_bit(w, 30) ? 16u : 8u));
		return;
	}
	switch (opcode >> 1) {
	case 0:
		size = 0;
		break;
	case 1:
		size = 1;
		break;
	case 2:
		size = size & 1 ? 3 : 2;
		break;
	default: /* one element for all lanes */
		break;
	}
	set(m, access, ((opcode & 1) << 1 | is_bit(w, 21)) + 1u);
	m->size <<= size;
}

unsigned arch_memory_operands(const struct arch_insn *insn,
			      struct arch_memory memory[ARCH_MEMORY_MAX])
{
	uint32_t w = a64_load(insn->bytes);

	if (!(insn->flags & ARCH_INSN_MEMORY))
		return 0;
	memory[0] = (struct arch_memory){.base = a64_rn(w), .index = ARCH_NO_REGISTER};
	if ((w & 0x0a000000) != 0x08000000)
		unknown(memory); /* no load or store: scalable vectors, caches */
	else if ((w & 0x3f000000) == 0x08000000)
		ordered(w, memory);
	else if ((w & 0x3b000000) == 0x18000000)
		literal(insn, w, memory);
	else if ((w & 0x3a000000) == 0x28000000)
		pair(w, memory);
	else if ((w & 0x3a000000) == 0x38000000)
		single(w, memory);
	else if ((w & 0xbe000000) == 0x0c000000)
		structures(w, memory);
	else if ((w & 0x3f200c00) == 0x19000000) { /* stlur, ldapur */
		set(memory, w >> 22 & 3 ? LOAD : STORE, 1u << (w >> 30));
		memory[0].offset = a64_signed(w, 12, 9);
	} else
		unknown(memory);
	return 1;
}

/* --------------------------------------------------------------- emission */

enum { IMMEDIATE_BITS = 12, IMMEDIATE = (1 << IMMEDIATE_BITS) - 1, SHIFTED = 1 << 22 };

/* rd = rn + offset, at most two instructions; rn may be the stack pointer. */
static void emit_add(struct arch_buf *out, unsigned rd, unsigned rn, int64_t offset)
{
	uint64_t amount = (uint64_t)(offset < 0 ? -offset : offset);
	uint32_t high = amount >> IMMEDIATE_BITS, low = amount & IMMEDIATE;

	if (amount >> (2 * IMMEDIATE_BITS)) {
		a64_fail(out, ARCH_OUT_OF_RANGE);
		return;
	}
	if (high) {
		a64_emit(out,
			 SHIFTED | (offset < 0 ? a64_sub(rd, rn, high) : a64_add(rd, rn, high)));
		rn = rd;
	}
	if (low || !high)
		a64_emit(out, offset < 0 ? a64_sub(rd, rn, low) : a64_add(rd, rn, low));
}

/* add rd, rn, rm, extend #shift: rn may be the stack pointer (C6.2, ADD extended register). */
static uint32_t add_extended(unsigned rd, unsigned rn, unsigned rm, unsigned extend, unsigned shift)
{
	return 0x8b200000 | rm << 16 | extend << 13 | shift << 10 | rn << 5 | rd;
}

void arch_emit_effective_address(struct arch_buf *out, const struct arch_memory *memory,
				 arch_regset destination, size_t pushed)
{
	int64_t offset = memory->offset;
	unsigned rd, rn = memory->base;

	if (!memory->computable || memory->thread_relative || !destination ||
	    (destination & (destination - 1)) || destination >= SET_SP ||
	    (memory->index != ARCH_NO_REGISTER && destination == SET(memory->index))) {
		a64_fail(out, ARCH_REFUSED);
		return;
	}
	rd = __builtin_ctzll(destination);
	if (rn == ARCH_NO_REGISTER) {
		a64_emit_address(out, rd, (taddr_t)offset);
		return;
	}
	if (rn == SP)
		offset += (int64_t)pushed;
	if (offset || memory->index == ARCH_NO_REGISTER) {
		emit_add(out, rd, rn, offset);
		rn = rd;
	}
	if (memory->index != ARCH_NO_REGISTER)
		a64_emit(out, add_extended(rd, rn, memory->index, memory->extend, memory->shift));
}
