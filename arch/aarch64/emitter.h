/* SPDX-License-Identifier: MIT */
/*
 * emitter.h - what the files that emit programs (program*.c) share. For
 * arch/aarch64 only. No instruction wants a register by name, so all are of the
 * frame's pool.
 */
#ifndef DINST_ARCH_AARCH64_EMITTER_H
#define DINST_ARCH_AARCH64_EMITTER_H

#include "arch/aarch64/assembler.h"
#include "arch/common/program_registers.h"

enum { A64_POOL = 8 }; /* with one for the flags, what a frame gives */

struct emitter {
	const struct arch_program *p;
	const struct arch_environment *env;
	const struct arch_frame *frame;
	struct arch_buf *out, *cold;
	struct registers registers;
	/* Branches that are not patched yet. */
	struct {
		uint32_t at;
		uint16_t label;
	} jumps[ARCH_PROGRAM_OPS];
	unsigned jump_count;

	/* The operation at hand. */
	const struct arch_op *op;
	uint8_t result, second;
	uint8_t temps[REGISTERS_TEMPS];
	unsigned temp_count;
	unsigned next; /* the operation's own temporaries that are given out */
};

/* Registers of the operands; loads them if need be, so once for each operation. */
unsigned emitter_a(struct emitter *e);
/* Second operand in a register: value b, or the constant in a temporary. */
unsigned emitter_b(struct emitter *e);
/* The next temporary that the operation's wish has asked for. */
unsigned emitter_temp(struct emitter *e);
void emitter_move(struct arch_buf *out, unsigned to, unsigned from);
/* The address a + number in a register, which may be a's own. */
unsigned emitter_address(struct emitter *e);

/* Temporaries that emitter_b() and emitter_address() take. */
unsigned wish_b(const struct arch_op *op);
unsigned wish_address(const struct arch_op *op);

/* Each says what the kinds of its file want; false: none of its kinds. */
bool arithmetic_wish(const struct arch_op *op, struct register_wish *wish);
bool memory_wish(const struct arch_op *op, struct register_wish *wish);
bool thread_wish(const struct arch_op *op, struct register_wish *wish);
bool arithmetic_emit(struct emitter *e);
bool memory_emit(struct emitter *e);
bool thread_emit(struct emitter *e);
/* Condition code of an enum arch_test; the comparison of the operands. */
unsigned arithmetic_condition(unsigned condition);
void arithmetic_compare(struct emitter *e);
/* True if add, subtract and compare have room for the constant. */
bool arithmetic_is_short(const struct arch_op *op);

/* ------------------------------------------------------------ counters */

/* An addition to a counter. */
struct a64_count {
	uint8_t reg[3];	 /* changed */
	uint8_t index;	 /* register that is added to the counter's address, or ARCH_NO_REGISTER */
	uint8_t addend;	 /* register, or ARCH_NO_REGISTER: number */
	unsigned number; /* at most 4095 */
	size_t pushed;
};

void a64_emit_count(const struct arch_counter *spec, const struct a64_count *count,
		    struct arch_buf *out, struct arch_buf *cold);

#endif
