/* SPDX-License-Identifier: MIT */
/*
 * program_thread.c - operations of programs on the thread: clocks, ids, reads of
 * memory that may not be there. Of the general registers and flags a system call
 * changes x0 only; what it is given in registers is saved around it, and its
 * result goes through the stack. It also ends streaming mode, and what scalable
 * vectors hold above 128 bits, predicates and FFR are lost (Linux:
 * Documentation/arch/arm64/sve.rst, sme.rst): nothing is done about that, see
 * arch/program.h. Records and calls of the target's functions are refused.
 */
#include <stddef.h>
#include <time.h>

#include "arch/aarch64/emitter.h"

/* include/uapi/asm-generic/unistd.h */
enum { SYS_CLOCK_GETTIME = 113, SYS_GETPID = 172, SYS_PROCESS_VM_READV = 270 };

enum {
	RSEQ_CPU_ID = 4, /* struct rseq */
	X8 = 8,
	ARGUMENTS = 6,	  /* x0 to x5, and x8 with the number */
	SAVED_BYTES = 64, /* of these seven registers, at the stack pointer */
};

bool thread_wish(const struct arch_op *op, struct register_wish *wish)
{
	switch (op->kind) {
	case ARCH_OP_READ:
		wish->temps = 1 + wish_address(op);
		return true;
	case ARCH_OP_CPU:
	case ARCH_OP_THREAD:
		wish->temps = 1;
		return true;
	default:
		return op->kind == ARCH_OP_CLOCK || op->kind == ARCH_OP_PROCESS;
	}
}

/* The stack, `bytes` lower (or higher); it stays aligned to 16. */
static void emit_step(struct arch_buf *out, bool down, unsigned bytes, size_t pushed)
{
	a64_emit(out, down ? a64_sub(SP, SP, bytes) : a64_add(SP, SP, bytes));
	arch_note_pushed(out, pushed);
}

static void emit_saves(struct arch_buf *out, bool restore)
{
	for (unsigned i = 0; i <= ARGUMENTS; i++) {
		const unsigned reg = i < ARGUMENTS ? i : X8;

		a64_emit(out, restore ? a64_ldr(reg, SP, 8 * i) : a64_str(reg, SP, 8 * i));
	}
}

static void emit_syscall(struct arch_buf *out, unsigned number)
{
	a64_emit_constant(out, X8, number);
	a64_emit(out, 0xd4000001); /* svc #0 */
}

/* To `no` where the process has begun to forbid itself calls (pairing.h); x0 and x1 are changed. */
static void emit_test_filters(struct emitter *e, struct asm_label *no)
{
	struct arch_buf *out = e->out;

	if (!e->env->pairing.area)
		return;
	a64_emit_constant(out, 0, e->env->pairing.area);
	a64_emit(out, a64_ldr(1, 0, offsetof(struct pair_config, filters_begun)));
	a64_emit(out, a64_ldr(0, 0, offsetof(struct pair_config, filters_seen)));
	asm_subtract(out, 0, 0, 1);
	asm_branch(out, ASM_NOT_ZERO | 0, no);
}

/* ------------------------------------------------------------------ clocks */

/* clockid_t by enum arch_clock. */
static const uint8_t clock_ids[] = {
	[ARCH_CLOCK_MONOTONIC] = CLOCK_MONOTONIC,
	[ARCH_CLOCK_THREAD] = CLOCK_THREAD_CPUTIME_ID,
	[ARCH_CLOCK_PROCESS] = CLOCK_PROCESS_CPUTIME_ID,
};

/* A struct timespec above the saved registers, of zeros where the call fails. */
static void emit_clock_call(struct emitter *e)
{
	enum { AREA = SAVED_BYTES + 16 };
	struct arch_buf *out = e->out;
	struct asm_label forbidden = {0};

	emit_step(out, true, AREA, e->frame->pushed + AREA);
	emit_saves(out, false);
	a64_emit(out, a64_str(ZR, SP, SAVED_BYTES));
	a64_emit(out, a64_str(ZR, SP, SAVED_BYTES + 8));
	emit_test_filters(e, &forbidden);
	a64_emit_constant(out, 0, clock_ids[e->op->number]);
	a64_emit(out, a64_add(1, SP, SAVED_BYTES));
	emit_syscall(out, SYS_CLOCK_GETTIME);
	asm_place(out, &forbidden);
	a64_emit(out, a64_ldr(0, SP, SAVED_BYTES));
	a64_emit(out, a64_ldr(1, SP, SAVED_BYTES + 8));
	a64_emit_constant(out, 2, 1000000000);
	a64_emit(out, asm_three(0x9b000000 | 1 << 10, 0, 0, 2)); /* madd */
	a64_emit(out, a64_str(0, SP, SAVED_BYTES));
	emit_saves(out, true);
	a64_emit(out, a64_ldr(e->result, SP, SAVED_BYTES));
	emit_step(out, false, AREA, e->frame->pushed);
}

static void emit_clock(struct emitter *e)
{
	if (e->op->number > ARCH_CLOCK_PROCESS || e->env->undo)
		a64_fail(e->out, ARCH_REFUSED);
	else if (e->op->number == ARCH_CLOCK_TICKS)
		a64_emit(e->out, 0xd53be040 | e->result); /* mrs cntvct_el0 */
	else
		emit_clock_call(e);
}

static void emit_process(struct emitter *e)
{
	enum { AREA = SAVED_BYTES + 16 };
	struct asm_label forbidden = {0};

	emit_step(e->out, true, AREA, e->frame->pushed + AREA);
	emit_saves(e->out, false);
	a64_emit(e->out, a64_str(ZR, SP, SAVED_BYTES));
	emit_test_filters(e, &forbidden);
	emit_syscall(e->out, SYS_GETPID);
	a64_emit(e->out, a64_str(0, SP, SAVED_BYTES));
	asm_place(e->out, &forbidden);
	emit_saves(e->out, true);
	a64_emit(e->out, a64_ldr(e->result, SP, SAVED_BYTES));
	emit_step(e->out, false, AREA, e->frame->pushed);
}

/* -------------------------------------------------------------- who, where */

/* 32 bits at an offset from the thread pointer; `opcode`: ldr or ldrsw with a register. */
static void emit_thread_word(struct emitter *e, uint32_t opcode, unsigned reg, int64_t offset)
{
	const unsigned temp = emitter_temp(e);

	a64_emit(e->out, 0xd53bd040 | temp); /* mrs tpidr_el0 */
	a64_emit_constant(e->out, reg, (uint64_t)offset);
	a64_emit(e->out, asm_three(opcode, reg, temp, reg));
}

static void emit_thread(struct emitter *e)
{
	if (!e->env->pairing.tid_offset)
		a64_fail(e->out, ARCH_REFUSED);
	emit_thread_word(e, 0xb8606800, e->result, e->env->pairing.tid_offset);
}

/* -1 and -2 mean the same. */
static void emit_cpu(struct emitter *e)
{
	const int64_t offset = e->env->counter.rseq_offset;

	if (!offset) {
		a64_emit_constant(e->out, e->result, UINT64_MAX);
		return;
	}
	emit_thread_word(e, 0xb8a06800, e->result, offset + RSEQ_CPU_ID);
	a64_emit(e->out, 0xb6f80000 | 2 << 5 | e->result); /* tbz #63 */
	a64_emit_constant(e->out, e->result, UINT64_MAX);
}

/* ------------------------------------------------------------------- reads */

/* Offsets above the saved registers. */
enum {
	LOCAL = SAVED_BYTES,
	LOCAL_SIZE = LOCAL + 8,
	REMOTE = LOCAL + 16,
	REMOTE_SIZE = LOCAL + 24,
	BUFFER = LOCAL + 32,
	SUCCESS = LOCAL + 40,
	READ_AREA = LOCAL + 48,
};

/* The arguments; x0 to x5 are saved, temp is not one that is still wanted. */
static void emit_readv(struct emitter *e, unsigned size)
{
	struct arch_buf *out = e->out;
	struct asm_label whole = {0}, forbidden = {0};

	emit_test_filters(e, &forbidden);
	a64_emit(out, 0xd53bd040 | 1); /* mrs x1, tpidr_el0 */
	a64_emit_constant(out, 0, (uint64_t)(int64_t)e->env->pairing.tid_offset);
	a64_emit(out, asm_three(0xb8606800, 0, 1, 0));
	a64_emit(out, a64_add(1, SP, BUFFER));
	a64_emit(out, a64_str(1, SP, LOCAL));
	a64_emit(out, a64_add(1, SP, LOCAL));
	a64_emit_constant(out, 2, 1);
	a64_emit(out, a64_add(3, SP, REMOTE));
	a64_emit_constant(out, 4, 1);
	a64_emit_constant(out, 5, 0);
	emit_syscall(out, SYS_PROCESS_VM_READV);
	a64_emit(out, a64_sub(0, 0, size));
	a64_emit_constant(out, 1, 1);
	asm_branch(out, ASM_ZERO | 0, &whole);
	asm_place(out, &forbidden);
	a64_emit(out, a64_str(ZR, SP, BUFFER));
	a64_emit_constant(out, 1, 0);
	asm_place(out, &whole);
	a64_emit(out, a64_str(1, SP, SUCCESS));
}

static void emit_read(struct emitter *e)
{
	const struct arch_op *op = e->op;
	const unsigned size = op->size ? op->size : 8, address = emitter_address(e);
	const unsigned temp = emitter_temp(e);
	struct arch_buf *out = e->out;

	if (!e->env->pairing.tid_offset || size > 8)
		a64_fail(out, ARCH_REFUSED);
	emit_step(out, true, READ_AREA, e->frame->pushed + READ_AREA);
	emit_saves(out, false);
	a64_emit(out, a64_str(address, SP, REMOTE));
	a64_emit_constant(out, temp, size);
	a64_emit(out, a64_str(temp, SP, LOCAL_SIZE));
	a64_emit(out, a64_str(temp, SP, REMOTE_SIZE));
	a64_emit(out, a64_str(ZR, SP, BUFFER));
	emit_readv(e, size);
	emit_saves(out, true);
	if (op->result) {
		a64_emit(out, a64_ldr(e->result, SP, BUFFER));
		if (op->is_signed && size < 8) /* sbfm */
			a64_emit(out, asm_three(0x93400000, e->result, e->result, 0) |
					      (8 * size - 1) << 10);
	}
	if (op->second)
		a64_emit(out, a64_ldr(e->second, SP, SUCCESS));
	emit_step(out, false, READ_AREA, e->frame->pushed);
}

bool thread_emit(struct emitter *e)
{
	switch (e->op->kind) {
	case ARCH_OP_CLOCK:
		emit_clock(e);
		return true;
	case ARCH_OP_PROCESS:
		emit_process(e);
		return true;
	case ARCH_OP_CPU:
		emit_cpu(e);
		return true;
	case ARCH_OP_THREAD:
		emit_thread(e);
		return true;
	case ARCH_OP_READ:
		emit_read(e);
		return true;
	default:
		return false;
	}
}
