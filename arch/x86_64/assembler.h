/* SPDX-License-Identifier: MIT */
/*
 * assembler.h - a small assembler for code that is longer than a few
 * instructions: memory operands, and labels that are used before they are known.
 * For the files of arch/x86_64 only. Whatever fails is in the buffer's status.
 */
#ifndef DINST_ARCH_X86_64_ASSEMBLER_H
#define DINST_ARCH_X86_64_ASSEMBLER_H

#include "arch/x86_64/x86.h"

/* Opcodes of the form OP r, r/m (Intel SDM volume 2). */
enum asm_opcode {
	ASM_ADD_STORE = 0x01,
	ASM_OR_STORE = 0x09,
	ASM_AND_STORE = 0x21,
	ASM_SUB_LOAD = 0x2b,
	ASM_XOR_STORE = 0x31,
	ASM_CMP_STORE = 0x39, /* memory - register */
	ASM_CMP_LOAD = 0x3b,  /* register - memory */
	ASM_MOVSXD = 0x63,
	ASM_TEST = 0x85,
	ASM_STORE = 0x89,
	ASM_LOAD = 0x8b,
	ASM_LEA = 0x8d,
};

/* Opcode extensions of 81 and 83, and condition codes of 0f 80. */
enum asm_operation {
	ASM_IMM_ADD = 0,
	ASM_IMM_OR = 1,
	ASM_IMM_AND = 4,
	ASM_IMM_SUB = 5,
	ASM_IMM_CMP = 7
};
enum asm_condition {
	ASM_JUMP_C = 2,
	ASM_JUMP_NC = 3,
	ASM_JUMP_E = 4,
	ASM_JUMP_NE = 5,
	ASM_JUMP_BE = 6,
	ASM_JUMP_A = 7,
	ASM_JUMP_NS = 9,
	ASM_JUMP_ALWAYS = 16
};

enum { ASM_NO_BASE = 255 };

struct asm_mem {
	unsigned base; /* ASM_NO_BASE: none */
	int index;     /* -1: none */
	unsigned scale;
	int32_t disp;
};

static inline struct asm_mem asm_at(unsigned base, int32_t disp)
{
	return (struct asm_mem){base, -1, 1, disp};
}

static inline struct asm_mem asm_at_index(unsigned base, unsigned index, unsigned scale,
					  int32_t disp)
{
	return (struct asm_mem){base, (int)index, scale, disp};
}

/* The address itself, below 2 GiB. */
static inline struct asm_mem asm_absolute(int32_t disp)
{
	return (struct asm_mem){ASM_NO_BASE, -1, 1, disp};
}

/* One instruction with a memory operand; `wide`: of 64 bits. Opcodes above 0xff have two bytes. */
void asm_op_mem(struct arch_buf *out, bool wide, unsigned opcode, unsigned reg, struct asm_mem m);
/* The same with two registers: `reg` is the ModRM.reg one. Opcodes likewise. */
void asm_op_reg(struct arch_buf *out, bool wide, unsigned opcode, unsigned reg, unsigned rm);

void asm_load(struct arch_buf *out, unsigned reg, struct asm_mem m);
void asm_load32(struct arch_buf *out, unsigned reg, struct asm_mem m);
void asm_store(struct arch_buf *out, unsigned reg, struct asm_mem m);
void asm_store32(struct arch_buf *out, unsigned reg, struct asm_mem m);
void asm_move(struct arch_buf *out, unsigned from, unsigned to);
void asm_move32(struct arch_buf *out, unsigned from, unsigned to);
/* A number, sign-extended from 32 bits, into memory, or compared with memory. */
void asm_store_number(struct arch_buf *out, bool wide, int32_t value, struct asm_mem m);
void asm_compare_number(struct arch_buf *out, bool wide, int8_t value, struct asm_mem m);
/* enum asm_operation with a number. */
void asm_immediate(struct arch_buf *out, bool wide, unsigned operation, int32_t value,
		   unsigned reg);
void asm_number32(struct arch_buf *out, unsigned reg, uint32_t value);
void asm_number64(struct arch_buf *out, unsigned reg, uint64_t value);
void asm_shift(struct arch_buf *out, bool wide, bool left, unsigned reg, unsigned count);
/* from * number, both 32 bits, into `to`. */
void asm_multiply(struct arch_buf *out, uint32_t number, unsigned from, unsigned to);
/* cmpxchg with 0, which rax is set to; ZF where it was stored, else rax is what was there. */
void asm_exchange_if_zero(struct arch_buf *out, bool locked, unsigned reg, struct asm_mem m);
/*
 * mov %fs:offset,%reg. At 0 the psABI has the thread pointer. Through the segment
 * nothing is followed that might not be one.
 */
void asm_load_thread(struct arch_buf *out, bool wide, unsigned reg, int32_t offset);
/* The same at the offset that is in a register. */
void asm_load_thread_at(struct arch_buf *out, unsigned reg, unsigned offset, int32_t disp);
/* 0x50 or 0x58. */
void asm_push_pop(struct arch_buf *out, unsigned opcode, unsigned reg);

enum { ASM_USES = 12 }; /* jumps to one label */

/* A place; zero-initialised it is not known yet. All jumps to it stand in one buffer. */
struct asm_label {
	struct arch_buf *out;
	size_t uses[ASM_USES];
	unsigned count;
	bool known;
	taddr_t address;
};

void asm_jump(struct arch_buf *out, unsigned condition, struct asm_label *l);
/* The label is at that address, or here. */
void asm_place_at(struct asm_label *l, taddr_t address);
void asm_place(struct arch_buf *out, struct asm_label *l);

#endif
