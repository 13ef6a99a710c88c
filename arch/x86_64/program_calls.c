/* SPDX-License-Identifier: MIT */
/*
 * program_calls.c - operations of programs that make system calls. All that such a
 * call may change is saved, whoever uses it: the call costs more. Must be given a
 * stack below which nothing is kept (ARCH_NEED_STACK). Where the process has begun to
 * put a filter on itself, under which a call might kill it, none is made: a clock and
 * a read give 0.
 */
#include "arch/x86_64/emitter.h"

#include <stddef.h>
#include <time.h>

/* arch/x86/entry/syscalls/syscall_64.tbl */
enum { SYS_GETPID = 39, SYS_CLOCK_GETTIME = 228, SYS_PROCESS_VM_READV = 310 };

/* What a call may change (psABI x86-64, 3.2.1); the first ones are what every system call does. */
static const uint8_t caller_saved[] = {RAX, RCX, R11, RDI, RSI, RDX, R10, R8, R9};

enum { SAVED = sizeof(caller_saved), SAVED_BY_SYSCALL = 3, SAVED_BY_CLOCK = 5 };

/* The lowest of `count` registers ends at the stack pointer. */
static void emit_save(struct arch_buf *out, unsigned count, size_t pushed)
{
	for (unsigned i = 0; i < count; i++) {
		asm_push_pop(out, 0x50, caller_saved[i]);
		arch_note_pushed(out, pushed + 8 * ((size_t)i + 1));
	}
}

static void emit_restore(struct arch_buf *out, unsigned count, size_t pushed)
{
	for (unsigned i = count; i-- > 0;) {
		asm_push_pop(out, 0x58, caller_saved[i]);
		arch_note_pushed(out, pushed + 8 * (size_t)i);
	}
}

static void emit_step(struct arch_buf *out, int32_t bytes, size_t pushed)
{
	asm_op_mem(out, true, ASM_LEA, RSP, asm_at(RSP, bytes));
	arch_note_pushed(out, pushed);
}

/* The number in eax, then the call. rcx and r11 are changed. */
static void emit_syscall(struct arch_buf *out, unsigned number)
{
	asm_number32(out, RAX, number);
	x86_emit8(out, 0x0f);
	x86_emit8(out, 0x05);
}

/* To `no` where the process has begun to forbid itself calls; rax, rcx and flags are changed. */
static void emit_test_filters(struct arch_buf *out, const struct arch_environment *env,
			      struct asm_label *no)
{
	if (!env->pairing.area)
		return;
	asm_number64(out, RAX, env->pairing.area);
	asm_load(out, RCX, asm_at(RAX, offsetof(struct pair_config, filters_begun)));
	asm_op_mem(out, true, ASM_CMP_STORE, RCX,
		   asm_at(RAX, offsetof(struct pair_config, filters_seen)));
	asm_jump(out, ASM_JUMP_NE, no);
}

/* ------------------------------------------------------------------ clocks */

/* clockid_t by enum arch_clock. */
static const uint8_t clock_ids[] = {
	[ARCH_CLOCK_MONOTONIC] = CLOCK_MONOTONIC,
	[ARCH_CLOCK_THREAD] = CLOCK_THREAD_CPUTIME_ID,
	[ARCH_CLOCK_PROCESS] = CLOCK_PROCESS_CPUTIME_ID,
};

/*
 * A struct timespec on the stack, of zeros where the call fails; the sum takes
 * the place of its second word, so that it is what remains.
 */
void calls_emit_clock(struct arch_buf *out, const struct arch_environment *env, size_t pushed,
		      unsigned clock, unsigned result)
{
	enum { TIMESPEC = 16, AT = 8 * SAVED_BY_CLOCK };
	struct asm_label forbidden = {0};

	emit_step(out, -TIMESPEC, pushed + TIMESPEC);
	asm_store_number(out, true, 0, asm_at(RSP, 0));
	asm_store_number(out, true, 0, asm_at(RSP, 8));
	emit_save(out, SAVED_BY_CLOCK, pushed + TIMESPEC);
	emit_test_filters(out, env, &forbidden);
	asm_number32(out, RDI, clock_ids[clock]);
	asm_op_mem(out, true, ASM_LEA, RSI, asm_at(RSP, AT));
	emit_syscall(out, SYS_CLOCK_GETTIME);
	asm_place(out, &forbidden);
	asm_op_mem(out, true, 0x69, RAX, asm_at(RSP, AT)); /* imul $1000000000,AT(%rsp),%rax */
	x86_emit32(out, 1000000000);
	asm_op_mem(out, true, ASM_ADD_STORE, RAX, asm_at(RSP, AT + 8));
	emit_restore(out, SAVED_BY_CLOCK, pushed + TIMESPEC);
	asm_load(out, result, asm_at(RSP, 8));
	emit_step(out, TIMESPEC, pushed);
}

void calls_emit_process(struct emitter *e)
{
	const size_t pushed = e->frame->pushed + 8;
	struct arch_buf *out = e->out;
	struct asm_label forbidden = {0};

	emit_step(out, -8, pushed);
	asm_store_number(out, true, 0, asm_at(RSP, 0));
	emit_save(out, SAVED_BY_SYSCALL, pushed);
	emit_test_filters(out, e->env, &forbidden);
	emit_syscall(out, SYS_GETPID);
	asm_store(out, RAX, asm_at(RSP, 8 * SAVED_BY_SYSCALL));
	asm_place(out, &forbidden);
	emit_restore(out, SAVED_BY_SYSCALL, pushed);
	asm_load(out, e->result, asm_at(RSP, 0));
	emit_step(out, 8, pushed - 8);
}

/* ------------------------------------------------------------------- reads */

/* What process_vm_readv() needs, from the stack pointer up. */
struct read_area {
	uint64_t local, local_size;
	uint64_t remote, remote_size;
	uint64_t buffer, success;
};

enum {
	LOCAL = offsetof(struct read_area, local),
	LOCAL_SIZE = offsetof(struct read_area, local_size),
	REMOTE = offsetof(struct read_area, remote),
	REMOTE_SIZE = offsetof(struct read_area, remote_size),
	BUFFER = offsetof(struct read_area, buffer),
	SUCCESS = offsetof(struct read_area, success),
	AREA = sizeof(struct read_area),
};

/* What process_vm_readv() reads into a record, from the stack pointer up. */
struct bytes_area {
	uint64_t local, local_size;
	uint64_t remote, remote_size;
};

/* The low `size` bytes of the word at the stack pointer + at. */
static void emit_word(struct emitter *e, unsigned reg, unsigned at, unsigned size, bool is_signed)
{
	asm_load(e->out, reg, asm_at(RSP, (int32_t)at));
	if (!is_signed || size == 8)
		return;
	/* What was not read is 0. */
	asm_shift(e->out, true, true, reg, 64 - 8 * size);
	asm_op_reg(e->out, true, 0xc1, 7, reg);
	x86_emit8(e->out, 64 - 8 * size);
}

/* The thread reads its own memory the way in which others would: an error where we would fault. */
static void emit_readv(struct emitter *e, unsigned size)
{
	const int32_t area = 8 * SAVED;
	struct arch_buf *out = e->out;
	struct asm_label whole = {0}, forbidden = {0};

	emit_test_filters(out, e->env, &forbidden);
	asm_op_mem(out, true, ASM_LEA, RSI, asm_at(RSP, area + LOCAL));
	asm_op_mem(out, true, ASM_LEA, R10, asm_at(RSP, area + REMOTE));
	asm_op_mem(out, true, ASM_LEA, RAX, asm_at(RSP, area + BUFFER));
	asm_store(out, RAX, asm_at(RSP, area + LOCAL));
	asm_load_thread(out, false, RDI, e->env->pairing.tid_offset);
	asm_number32(out, RDX, 1);
	asm_number32(out, R8, 1);
	asm_op_reg(out, false, ASM_XOR_STORE, R9, R9);
	emit_syscall(out, SYS_PROCESS_VM_READV);
	asm_immediate(out, true, ASM_IMM_CMP, (int32_t)size, RAX);
	asm_jump(out, ASM_JUMP_E, &whole);
	asm_place(out, &forbidden);
	asm_store_number(out, true, 0, asm_at(RSP, area + BUFFER));
	asm_store_number(out, true, 0, asm_at(RSP, area + SUCCESS));
	asm_place(out, &whole);
}

void calls_emit_read(struct emitter *e)
{
	const struct arch_op *op = e->op;
	const unsigned size = op->size ? op->size : 8;
	const size_t pushed = e->frame->pushed + AREA;
	struct arch_buf *out = e->out;
	const unsigned address = e->temps[0];

	if (!e->env->pairing.tid_offset || size > 8)
		x86_fail(out, ARCH_REFUSED);
	if (op->a)
		emitter_move(out, emitter_a(e), address);
	if (!op->a)
		emitter_number(e, out, address, op->number);
	else if (x86_fits32((int64_t)op->number) && op->number)
		asm_immediate(out, true, ASM_IMM_ADD, (int32_t)op->number, address);
	else if (op->number) {
		emitter_number(e, out, e->temps[1], op->number);
		asm_op_reg(out, true, ASM_ADD_STORE, e->temps[1], address);
	}
	emit_step(out, -AREA, pushed);
	asm_store(out, address, asm_at(RSP, REMOTE));
	asm_store_number(out, true, (int32_t)size, asm_at(RSP, LOCAL_SIZE));
	asm_store_number(out, true, (int32_t)size, asm_at(RSP, REMOTE_SIZE));
	asm_store_number(out, true, 0, asm_at(RSP, BUFFER));
	asm_store_number(out, true, 1, asm_at(RSP, SUCCESS));
	emit_save(out, SAVED, pushed);
	emit_readv(e, size);
	emit_restore(out, SAVED, pushed);
	if (op->result)
		emit_word(e, e->result, BUFFER, size, op->is_signed);
	if (op->second)
		asm_load(out, e->second, asm_at(RSP, SUCCESS));
	emit_step(out, AREA, e->frame->pushed);
}

/*
 * As emit_readv(), straight into the record. What the kernel could read up to the
 * end of a page it did read: then there are fewer bytes than were asked for.
 */
void calls_emit_ring_bytes(struct emitter *e)
{
	const int32_t size = e->op->immediate, area = 8 * SAVED;
	const size_t pushed = e->frame->pushed + sizeof(struct bytes_area);
	struct arch_buf *out = e->out;
	const unsigned local = e->temps[0];
	struct asm_label some = {0}, forbidden = {0};
	unsigned remote;

	if (!e->env->pairing.tid_offset || !e->op->a || !e->op->b || size <= 0 ||
	    size > ARCH_RECORD_MAX || e->op->number > ARCH_RECORD_MAX || e->env->undo) {
		x86_fail(out, ARCH_REFUSED);
		return;
	}
	asm_op_mem(out, true, ASM_LEA, local, asm_at(emitter_a(e), (int32_t)e->op->number + 8));
	/* Before the stack pointer moves: it may come from the stack. */
	remote = emitter_b(e);
	emit_step(out, -(int32_t)sizeof(struct bytes_area), pushed);
	asm_store(out, local, asm_at(RSP, LOCAL));
	asm_store_number(out, true, size, asm_at(RSP, LOCAL_SIZE));
	asm_store(out, remote, asm_at(RSP, REMOTE));
	asm_store_number(out, true, size, asm_at(RSP, REMOTE_SIZE));
	emit_save(out, SAVED, pushed);
	emit_test_filters(out, e->env, &forbidden);
	asm_op_mem(out, true, ASM_LEA, RSI, asm_at(RSP, area + LOCAL));
	asm_op_mem(out, true, ASM_LEA, R10, asm_at(RSP, area + REMOTE));
	asm_load_thread(out, false, RDI, e->env->pairing.tid_offset);
	asm_number32(out, RDX, 1);
	asm_number32(out, R8, 1);
	asm_op_reg(out, false, ASM_XOR_STORE, R9, R9);
	emit_syscall(out, SYS_PROCESS_VM_READV);
	asm_op_reg(out, true, ASM_TEST, RAX, RAX);
	asm_jump(out, ASM_JUMP_NS, &some);
	asm_place(out, &forbidden);
	asm_op_reg(out, false, ASM_XOR_STORE, RAX, RAX);
	asm_place(out, &some);
	asm_load(out, RCX, asm_at(RSP, area + LOCAL));
	asm_store(out, RAX, asm_at(RCX, -8));
	emit_restore(out, SAVED, pushed);
	emit_step(out, sizeof(struct bytes_area), e->frame->pushed);
}
