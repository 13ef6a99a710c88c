/* SPDX-License-Identifier: MIT */
/*
 * emitter.h - what the files that emit programs (program*.c) share, and counter.c
 * with them. For arch/x86_64 only.
 *
 * Registers wanted by name are rax, rcx and rdx; their numbers among the named
 * registers (program_registers.h) are those of the encoding.
 */
#ifndef DINST_ARCH_X86_64_EMITTER_H
#define DINST_ARCH_X86_64_EMITTER_H

#include "arch/common/program_registers.h"
#include "arch/x86_64/assembler.h"

enum { X86_POOL = 8 }; /* registers that a frame has for a program, whatever it reads */

/* What a program asks of its frame. */
struct x86_plan {
	const struct arch_program *p;
	const struct arch_environment *env;
	bool flags; /* may be changed */
	unsigned named;
	arch_regset reads;
	struct registers registers;
};

struct emitter {
	struct x86_plan plan;
	const struct arch_environment *env;
	const struct arch_frame *frame;
	struct arch_buf *out, *cold;
	uint8_t pool[X86_POOL];
	/* Jumps that are not patched yet: offsets of their displacements. */
	struct {
		uint32_t at;
		uint16_t label;
	} jumps[ARCH_PROGRAM_OPS];
	unsigned jump_count;

	/* The operation at hand. */
	const struct arch_op *op;
	uint8_t result, second; /* where to leave the results; always a register */
	uint8_t temps[REGISTERS_TEMPS];
	unsigned temp_count; /* those that the operation's own code may use come first */

	/* The value for which the flags are as after a test with itself; 0: none. */
	uint16_t tested;
};

/* Registers of the operands; loads them if need be, so once for each operation. */
unsigned emitter_a(struct emitter *e);
unsigned emitter_b(struct emitter *e);
/* Second operand in a register: value b, or the constant in the temporary. */
unsigned emitter_b_or(struct emitter *e, unsigned temp);
/* The register of a value, through the nth shuttle if it is on the stack. */
unsigned emitter_use(struct emitter *e, unsigned value, unsigned shuttle);
/* a + number; the temporary is used where number has more than 32 bits. */
struct asm_mem emitter_address(struct emitter *e, unsigned temp);
/* True if emitter_address() uses it. */
bool emitter_far(const struct arch_op *op);
/* A constant as short as can be. */
void emitter_number(struct emitter *e, struct arch_buf *out, unsigned reg, uint64_t number);
void emitter_move(struct arch_buf *out, unsigned from, unsigned to);

/* Each says what the kinds of its file want; false: none of its kinds. */
bool arithmetic_wish(const struct x86_plan *plan, const struct arch_op *op,
		     struct register_wish *wish);
bool memory_wish(const struct x86_plan *plan, const struct arch_op *op, struct register_wish *wish);
bool thread_wish(const struct x86_plan *plan, const struct arch_op *op, struct register_wish *wish);
bool ring_wish(const struct x86_plan *plan, const struct arch_op *op, struct register_wish *wish);
/* Emit one operation of their kinds. */
bool arithmetic_emit(struct emitter *e);
bool memory_emit(struct emitter *e);
bool thread_emit(struct emitter *e);
bool ring_emit(struct emitter *e);
/* Condition code of an enum arch_test; cmp or test of the operands. */
unsigned arithmetic_condition(unsigned condition);
void arithmetic_compare(struct emitter *e);
/* System calls (program_calls.c). */
void calls_emit_read(struct emitter *e);
void calls_emit_process(struct emitter *e);
void calls_emit_ring_bytes(struct emitter *e);
/* clock_gettime() into a register, 0 where it cannot be had; changes flags, nothing else. */
void calls_emit_clock(struct arch_buf *out, const struct arch_environment *env, size_t pushed,
		      unsigned clock, unsigned result);

/* ------------------------------------------------------------ counters */

/* An addition to a counter. */
struct x86_count {
	uint8_t r;	/* scratch; rcx is, too, where flags must not change */
	uint8_t b;	/* scratch, where they must not */
	uint8_t index;	/* register that is added to the counter's address, or ARCH_NO_REGISTER */
	uint8_t addend; /* register, or ARCH_NO_REGISTER: number */
	int32_t number;
	bool flags; /* may be changed */
	bool red_zone;
	size_t pushed;
};

void x86_emit_count(const struct arch_counter *spec, const struct x86_count *count,
		    struct arch_buf *out, struct arch_buf *cold);

#endif
