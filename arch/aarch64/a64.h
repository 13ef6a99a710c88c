/* SPDX-License-Identifier: MIT */
/*
 * a64.h - what the files of arch/aarch64 share: register bits, fields of
 * instruction words, and word emitters. Nothing outside arch/aarch64 (and its
 * unit tests) may include it. Encodings: Arm Architecture Reference Manual for
 * A-profile (DDI 0487), chapter C4.
 */
#ifndef DINST_ARCH_AARCH64_A64_H
#define DINST_ARCH_AARCH64_A64_H

#include "arch/thread.h"

enum { A64_SIZE = 4, ZR = 31, SP = 31, X16 = 16, X17 = 17, X29 = 29, X30 = 30 };

/*
 * arch_regset: bit n is x0 to x30, bit 31 the stack pointer, bit 32 the four
 * condition flags, which are always written together. Vector registers are not
 * tracked: inserted code uses none.
 */
#define SET(reg)  (1ull << (reg))
#define SET_SP	  (1ull << 31)
#define SET_FLAGS (1ull << 32)
#define SET_ALL	  ((1ull << 33) - 1)

/* Register fields of a word. */
static inline unsigned a64_rd(uint32_t w)
{
	return w & 31;
}

static inline unsigned a64_rn(uint32_t w)
{
	return w >> 5 & 31;
}

static inline unsigned a64_rt2(uint32_t w)
{
	return w >> 10 & 31;
}

static inline unsigned a64_rm(uint32_t w)
{
	return w >> 16 & 31;
}

/* The set of one general register where number 31 is the zero register. */
static inline arch_regset a64_set(unsigned reg)
{
	return reg == ZR ? 0 : SET(reg);
}

/* `bits` bits of `w` from bit `at` on, as a signed number. */
static inline int64_t a64_signed(uint32_t w, unsigned at, unsigned bits)
{
	uint64_t value = w >> at & ((1ull << bits) - 1);

	return (int64_t)(value << (64 - bits)) >> (64 - bits);
}

/* True if `distance` is a multiple of 4 that fits a field of so many bits, counted in words. */
static inline bool a64_fits(int64_t distance, unsigned bits)
{
	int64_t limit = (int64_t)4 << (bits - 1);

	return !(distance & 3) && distance >= -limit && distance < limit;
}

/* `distance` as a field of so many bits at bit `at`, counted in words. */
static inline uint32_t a64_field(int64_t distance, unsigned at, unsigned bits)
{
	return ((uint32_t)(distance >> 2) & ((1u << bits) - 1)) << at;
}

/*
 * cb<cc>, cbb<cc>, cbh<cc> (FEAT_CMPBR): a branch that compares a register with another one, or with a
 * number, and has 9 bits for where it leads.
 */
static inline bool a64_is_compare_branch(uint32_t w)
{
	bool is_known = (w & 0x7e000000) == 0x74000000 && (w >> 22 & 3) != 2;

	if (w >> 24 & 1)
		return is_known && !(w >> 14 & 1);
	return is_known && (w >> 15 & 1 ? !(w >> 31) : !(w >> 14 & 1));
}

/* The word of an instruction, whose bytes are little-endian on any host. */
static inline uint32_t a64_load(const uint8_t *bytes)
{
	return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static inline void a64_store(uint8_t *bytes, uint32_t word)
{
	for (unsigned i = 0; i < 4; i++)
		bytes[i] = word >> (8 * i);
}

/* ---------------------------------------------------------------- effects */

/* What decoding a word finds out; as in struct arch_insn, and arch_effects(). */
struct a64_insn {
	taddr_t address, target, data_ref;
	arch_regset reads, writes;
	arch_regset may_change; /* besides `writes`: it is not sure, or nobody needs it to be */
	uint16_t flags;
	uint8_t flow;
};

/*
 * Fill in reads, writes and flags of an instruction of their class; false if it
 * is none that we are sure of (then the instruction is unknown). What is not
 * understood in detail reads everything and writes nothing.
 */
bool a64_effects_immediate(uint32_t w, struct a64_insn *insn);
bool a64_effects_register(uint32_t w, struct a64_insn *insn);
bool a64_effects_vector(uint32_t w, struct a64_insn *insn);
bool a64_effects_memory(uint32_t w, struct a64_insn *insn);

/* --------------------------------------------------------------- emission */

/* Sets the status of `out` if it has none yet. */
void a64_fail(struct arch_buf *out, int status);
/* Appends bytes, or one instruction word. */
void a64_emit_bytes(struct arch_buf *out, const void *bytes, size_t count);
void a64_emit(struct arch_buf *out, uint32_t word);
/* movz/movn and movk: a constant into a register, one to four words; no flags. */
void a64_emit_constant(struct arch_buf *out, unsigned reg, uint64_t value);
/* An address into a register, as short as it can be: adr, adrp and add, or the constant. */
void a64_emit_address(struct arch_buf *out, unsigned reg, taddr_t address);

/* Instructions with their operands filled in. Offsets are bytes. */
uint32_t a64_add(unsigned rd, unsigned rn, unsigned imm12);
uint32_t a64_sub(unsigned rd, unsigned rn, unsigned imm12);
uint32_t a64_ldr(unsigned rt, unsigned rn, unsigned offset);   /* x, offset / 8 */
uint32_t a64_str(unsigned rt, unsigned rn, unsigned offset);   /* x, offset / 8 */
uint32_t a64_ldr_w(unsigned rt, unsigned rn, unsigned offset); /* w, offset / 4 */
uint32_t a64_str_w(unsigned rt, unsigned rn, unsigned offset); /* w, offset / 4 */
uint32_t a64_push(unsigned rt, unsigned bytes);		       /* str x, [sp, #-bytes]! */
uint32_t a64_pop(unsigned rt, unsigned bytes);		       /* ldr x, [sp], #bytes */

/* cbz or cbnz of a w register, `words` further or back. */
uint32_t a64_cbz_w(unsigned rt, int words);
uint32_t a64_cbnz_w(unsigned rt, int words);

#endif
