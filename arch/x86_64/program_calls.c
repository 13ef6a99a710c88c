/* SPDX-License-Identifier: MIT */
/*
 * program_calls.c - operations of programs that leave our code: system calls and
 * calls of the target's own functions. All that such a call may change is saved,
 * whoever uses it: the call costs more. Must be given a stack below which nothing
 * is kept (ARCH_NEED_STACK).
 */
#include "arch/x86_64/emitter.h"

#include <stddef.h>
#include <time.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

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
		arch_note_pushed(out, pushed + 8 * (i + 1));
	}
}

static void emit_restore(struct arch_buf *out, unsigned count, size_t pushed)
{
	for (unsigned i = count; i-- > 0;) {
		asm_push_pop(out, 0x58, caller_saved[i]);
		arch_note_pushed(out, pushed + 8 * i);
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
void calls_emit_clock(struct arch_buf *out, size_t pushed, unsigned clock, unsigned result)
{
	enum { TIMESPEC = 16, AT = 8 * SAVED_BY_CLOCK };

	emit_step(out, -TIMESPEC, pushed + TIMESPEC);
	asm_store_number(out, true, 0, asm_at(RSP, 0));
	asm_store_number(out, true, 0, asm_at(RSP, 8));
	emit_save(out, SAVED_BY_CLOCK, pushed + TIMESPEC);
	asm_number32(out, RDI, clock_ids[clock]);
	asm_op_mem(out, true, ASM_LEA, RSI, asm_at(RSP, AT));
	emit_syscall(out, SYS_CLOCK_GETTIME);
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

	emit_step(out, -8, pushed);
	emit_save(out, SAVED_BY_SYSCALL, pushed);
	emit_syscall(out, SYS_GETPID);
	asm_store(out, RAX, asm_at(RSP, 8 * SAVED_BY_SYSCALL));
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
	struct asm_label whole = {0};

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

/* ------------------------------------------------------------------- calls */

/* Integer arguments by number (psABI x86-64, 3.2.3). */
static const uint8_t arguments[] = {RDI, RSI, RDX, RCX, R8, R9};

enum {
	ARGUMENTS = sizeof(arguments),
	XSAVE_HEADER = 512, /* SDM volume 1, 13.4.2 */
	XSAVE_EXTENDED = 576,
	XSAVE_ALIGN = 64,
	XSAVE_COMPONENTS = 0xe7, /* x87, SSE, AVX, masks, ZMM: what a function may use unasked */
	XSAVE = 4,		 /* opcode extensions of 0f ae */
	XRSTOR = 5,
	FXSAVE = 0,
	FXRSTOR = 1,
};

/*
 * Bytes that the vector state takes, and which components: 0 where the system
 * has not enabled xsave (SDM volume 2, CPUID leaf 0dh), or this is another
 * machine than the target's.
 */
static unsigned vector_state(uint32_t *components)
{
	*components = 0;
#ifdef __x86_64__
	unsigned a, b, c, d, size = XSAVE_EXTENDED;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) ||
	    !__get_cpuid_count(0xd, 0, &a, &b, &c, &d))
		return XSAVE_HEADER;
	*components = a & XSAVE_COMPONENTS;
	for (unsigned i = 2; i < 8; i++) {
		unsigned bytes, offset, x, y;

		if ((*components >> i & 1) && __get_cpuid_count(0xd, i, &bytes, &offset, &x, &y) &&
		    offset + bytes > size)
			size = offset + bytes;
	}
	return (size + 63) / 64 * 64;
#else
	return XSAVE_HEADER;
#endif
}

/* xsave64 and its like at rbp; rax and rdx are changed. */
static void emit_vector_state(struct arch_buf *out, uint32_t components, bool save)
{
	if (components) {
		asm_number32(out, RAX, components);
		asm_op_reg(out, false, ASM_XOR_STORE, RDX, RDX);
		asm_op_mem(out, true, 0x0fae, save ? XSAVE : XRSTOR, asm_at(RBP, 0));
	} else {
		asm_op_mem(out, true, 0x0fae, save ? FXSAVE : FXRSTOR, asm_at(RBP, 0));
	}
}

/*
 * Two calls, of which the one runs that finds the stack aligned to 16 bytes: so
 * that whoever walks the stack knows how far it is to the caller's from each.
 */
static void emit_aligned_call(struct arch_buf *out, size_t pushed)
{
	static const uint8_t test_spl[] = {0x40, 0xf6, 0xc4, 0x08}; /* test $8,%spl */
	struct asm_label odd = {0}, join = {0};

	x86_emit(out, test_spl, sizeof(test_spl));
	asm_jump(out, ASM_JUMP_NE, &odd);
	asm_op_reg(out, false, 0xff, 2, R11); /* call *%r11 */
	asm_jump(out, ASM_JUMP_ALWAYS, &join);
	asm_place(out, &odd);
	emit_step(out, -8, pushed + 8);
	asm_op_reg(out, false, 0xff, 2, R11);
	emit_step(out, 8, pushed);
	asm_place(out, &join);
}

/*
 * From the arguments, which lie above the stack pointer, to the result behind
 * them, the saved registers and the flags. rbp, which a function keeps, points
 * to the vector state.
 */
static void emit_far_call(struct emitter *e, unsigned count, size_t pushed)
{
	struct arch_buf *out = e->out;
	uint32_t components;
	const int32_t area = (int32_t)vector_state(&components) + XSAVE_ALIGN;

	asm_push_pop(out, 0x50, RBP);
	arch_note_pushed(out, pushed += 8);
	emit_step(out, -area, pushed + (size_t)area);
	asm_op_mem(out, true, ASM_LEA, RBP, asm_at(RSP, XSAVE_ALIGN - 1));
	asm_immediate(out, true, ASM_IMM_AND, -XSAVE_ALIGN, RBP);
	/* xrstor wants a header that says nothing else. */
	for (unsigned i = 0; i < 64 && components; i += 8)
		asm_store_number(out, true, 0, asm_at(RBP, (int32_t)(XSAVE_HEADER + i)));
	emit_vector_state(out, components, true);
	for (unsigned i = 0; i < count; i++)
		asm_load(out, arguments[i], asm_at(RSP, area + 8 + 8 * (int32_t)i));
	x86_emit8(out, 0xfc); /* cld */
	asm_number64(out, R11, e->op->number);
	asm_op_reg(out, false, ASM_XOR_STORE, RAX, RAX); /* no vector arguments */
	emit_aligned_call(out, pushed + (size_t)area);
	asm_store(out, RAX, asm_at(RSP, area + 8 * (int32_t)(1 + count + SAVED + 1)));
	emit_vector_state(out, components, false);
	emit_step(out, area, pushed);
	asm_push_pop(out, 0x58, RBP);
	arch_note_pushed(out, pushed - 8);
}

void calls_emit_call(struct emitter *e)
{
	const unsigned count = e->op->size;
	struct arch_buf *out = e->out;
	size_t pushed = e->frame->pushed;

	if (count > ARGUMENTS) {
		x86_fail(out, ARCH_REFUSED);
		return;
	}
	emit_step(out, -8, pushed += 8);
	x86_emit8(out, 0x9c); /* pushf */
	arch_note_pushed(out, pushed += 8);
	emit_save(out, SAVED, pushed);
	pushed += 8 * SAVED;
	for (unsigned i = count; i-- > 0;) {
		const struct register_place *p = &e->plan.registers.values[e->op->a + i];

		if (p->kind == REGISTER_SLOT)
			asm_op_mem(out, false, 0xff, 6, /* push */
				   asm_at(RSP,
					  (int32_t)(pushed - e->frame->pushed + 8 * p->index)));
		else
			asm_push_pop(out, 0x50, emitter_use(e, e->op->a + i, 0));
		arch_note_pushed(out, pushed += 8);
	}
	emit_far_call(e, count, pushed);
	pushed -= 8 * count;
	if (count)
		emit_step(out, 8 * (int32_t)count, pushed);
	pushed -= 8 * SAVED;
	emit_restore(out, SAVED, pushed);
	x86_emit8(out, 0x9d); /* popf */
	arch_note_pushed(out, pushed -= 8);
	if (e->op->result)
		asm_load(out, e->result, asm_at(RSP, 0));
	emit_step(out, 8, pushed - 8);
}
