/* SPDX-License-Identifier: MIT */
/*
 * remote.c - remote programs: a row of system calls, and a tail that puts the
 * interrupted thread back as it was. No stack is used and nothing is called.
 *
 *	or $-1,%r12 ... %r15     results of calls that did not run are negative
 *	[call n: tests of what it depends on, arguments, syscall, result kept]
 *	tail: every register that was changed from an immediate; jmp to where
 *	      the thread was
 */
#include <string.h>
#include <sys/syscall.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "arch/x86_64/x86.h"

enum {
	RESULT_FIRST = R12, /* result of call n is in r12 + n */
	CALLS_MAX = 4,

	TRAP_FLAG = 1 << 8,
};

/* rdi rsi rdx r10 r8 r9 (System V psABI x86-64, A.2.1). */
static const uint8_t argument_registers[6] = {RDI, RSI, RDX, R10, R8, R9};

/* A constant into a register, as short as it can be; flags are kept if asked. */
static void emit_constant(struct arch_buf *out, unsigned reg, uint64_t value, bool keep_flags)
{
	const unsigned low = reg & 7, rex_b = reg >= 8 ? REX_B : 0;

	if (value == 0 && !keep_flags) {
		if (reg >= 8)
			x86_emit8(out, 0x45);
		x86_emit8(out, 0x31);
		x86_emit8(out, 0xc0 | low << 3 | low);
	} else if (value <= UINT32_MAX) {
		if (reg >= 8)
			x86_emit8(out, 0x41);
		x86_emit8(out, 0xb8 | low);
		x86_emit32(out, value);
	} else if (x86_fits32(value)) {
		x86_emit8(out, 0x48 | rex_b);
		x86_emit8(out, 0xc7);
		x86_emit8(out, 0xc0 | low);
		x86_emit32(out, value);
	} else {
		x86_emit8(out, 0x48 | rex_b);
		x86_emit8(out, 0xb8 | low);
		x86_emit64(out, value);
	}
}

/* mov %from,%to */
static void emit_move(struct arch_buf *out, unsigned from, unsigned to)
{
	x86_emit8(out, 0x48 | (from >= 8 ? REX_R : 0) | (to >= 8 ? REX_B : 0));
	x86_emit8(out, 0x89);
	x86_emit8(out, 0xc0 | (from & 7) << 3 | (to & 7));
}

/* test %r,%r; js over the call. Returns the offset of the displacement. */
static size_t emit_skip_if_failed(struct arch_buf *out, unsigned call)
{
	unsigned low = (RESULT_FIRST + call) & 7;

	x86_emit8(out, 0x4d);
	x86_emit8(out, 0x85);
	x86_emit8(out, 0xc0 | low << 3 | low);
	x86_emit8(out, 0x78);
	x86_emit8(out, 0);
	return out->used - 1;
}

/* Which earlier calls have to have succeeded: all, or those whose results it needs. */
static bool depends_on(const struct arch_remote_call *call, unsigned earlier)
{
	if (!call->always)
		return true;
	for (unsigned i = 0; i < 6; i++)
		if (call->args[i].kind == ARCH_ARG_RESULT && call->args[i].value == earlier)
			return true;
	return false;
}

static void emit_argument(struct arch_buf *out, unsigned n, const struct arch_remote_arg *arg,
			  taddr_t data)
{
	unsigned reg = argument_registers[n];

	switch (arg->kind) {
	case ARCH_ARG_CONST:
		emit_constant(out, reg, arg->value, false);
		break;
	case ARCH_ARG_RESULT:
		if (arg->value >= CALLS_MAX)
			x86_fail(out, ARCH_REFUSED);
		emit_move(out, RESULT_FIRST + (arg->value & 3), reg);
		break;
	case ARCH_ARG_DATA:
		x86_emit8(out, 0x48 | (reg >= 8 ? REX_R : 0)); /* lea data(%rip),%reg */
		x86_emit8(out, 0x8d);
		x86_emit8(out, (reg & 7) << 3 | 5);
		x86_emit_relative(out, data + arg->value);
		break;
	}
}

static void emit_call(struct arch_buf *out, const struct arch_remote_call *call, unsigned n,
		      taddr_t data)
{
	size_t skips[CALLS_MAX], skip_count = 0;

	for (unsigned earlier = 0; earlier < n; earlier++)
		if (depends_on(call, earlier))
			skips[skip_count++] = emit_skip_if_failed(out, earlier);
	for (unsigned i = 0; i < 6; i++)
		emit_argument(out, i, &call->args[i], data);
	emit_constant(out, RAX, call->number, false);
	x86_emit8(out, 0x0f);
	x86_emit8(out, 0x05);
	emit_move(out, RAX, RESULT_FIRST + n);
	for (size_t i = 0; i < skip_count && out->status == ARCH_OK; i++) {
		size_t distance = out->used - (skips[i] + 1);

		if (distance > INT8_MAX)
			x86_fail(out, ARCH_OUT_OF_RANGE);
		else
			out->bytes[skips[i]] = distance;
	}
}

/*
 * What the kernel would have made of an interrupted call on the way back to
 * user mode (arch/x86/kernel/signal.c, arch_do_signal_or_restart).
 */
static void resume_state(const struct arch_regs *interrupted, uint64_t *rax, taddr_t *pc)
{
	const struct user_regs_struct *u = &interrupted->user;

	*rax = u->rax;
	*pc = u->rip;
	if (!arch_in_syscall(interrupted))
		return;
	/* An interrupted close() has closed the descriptor: never twice (close(2)). */
	if ((long)u->rax == -EINTR_VALUE && u->orig_rax == SYS_close)
		return;
	switch (-(long)u->rax) {
	case EINTR_VALUE:
	case ERESTARTSYS_VALUE:
	case ERESTARTNOINTR_VALUE:
	case ERESTARTNOHAND_VALUE:
		*rax = u->orig_rax;
		*pc -= SYSCALL_SIZE;
		break;
	case ERESTART_RESTARTBLOCK_VALUE:
		*rax = SYS_restart_syscall;
		*pc -= SYSCALL_SIZE;
		break;
	}
}

/*
 * To `pc`, by what is behind the jump: at a multiple of 8, since the thread may have had the processor check
 * alignment (EFLAGS.AC). No endbr64 is needed there (the prefix notrack).
 */
static void emit_jump(struct arch_buf *out, taddr_t pc)
{
	static const uint8_t jump[] = {0x3e, 0xff, 0x25}; /* notrack jmp *padding(%rip) */
	size_t padding;

	x86_emit(out, jump, sizeof(jump));
	padding = -(arch_here(out) + 4) & 7;
	x86_emit32(out, padding);
	while (padding--)
		x86_emit8(out, 0);
	x86_emit64(out, pc);
}

/*
 * Flags first, by way of rax: sahf takes SF ZF AF PF CF from ah, and adding 127
 * to 1 or 0 in al makes OF. Then the registers; mov changes no flag. DF and AC are as they were:
 * nothing here, nor any system call, changes them.
 */
static void emit_tail(struct arch_buf *out, const struct arch_regs *interrupted, size_t calls)
{
	static const uint8_t flags[] = {0x04, 0x7f, 0x9e}; /* add $127,%al; sahf */
	const struct user_regs_struct *u = &interrupted->user;
	const uint64_t results[CALLS_MAX] = {u->r12, u->r13, u->r14, u->r15};
	uint64_t rax;
	taddr_t pc;

	resume_state(interrupted, &rax, &pc);
	x86_emit8(out, 0xb8);
	x86_emit32(out, (u->eflags & 0xff) << 8 | (u->eflags >> 11 & 1));
	x86_emit(out, flags, sizeof(flags));
	emit_constant(out, RCX, u->rcx, true);
	emit_constant(out, R11, u->r11, true);
	for (unsigned i = 0; i < 6; i++)
		emit_constant(out, argument_registers[i], arch_syscall_argument(interrupted, i),
			      true);
	for (size_t i = 0; i < calls; i++)
		emit_constant(out, RESULT_FIRST + i, results[i], true);
	emit_constant(out, RAX, rax, true);
	emit_jump(out, pc);
}

static void emit_program(const struct arch_remote_program *program,
			 const struct arch_regs *interrupted, taddr_t data, struct arch_buf *out)
{
	for (size_t i = 0; i < program->count; i++) { /* or $-1,%r */
		x86_emit8(out, 0x49);
		x86_emit8(out, 0x83);
		x86_emit8(out, 0xc8 | ((RESULT_FIRST + i) & 7));
		x86_emit8(out, 0xff);
	}
	for (size_t i = 0; i < program->count; i++)
		emit_call(out, &program->calls[i], i, data);
	emit_tail(out, interrupted, program->count);
}

void arch_emit_remote(const struct arch_remote_program *program,
		      const struct arch_regs *interrupted, struct arch_buf *out)
{
	uint8_t scratch[ARCH_REMOTE_MAX];
	struct arch_buf probe = {.bytes = scratch, .size = sizeof(scratch), .pc = arch_here(out)};

	if (program->count > CALLS_MAX) {
		x86_fail(out, ARCH_REFUSED);
		return;
	}
	/* Once to see how long the code is; its length depends on where it is, not on where the data is. */
	emit_program(program, interrupted, probe.pc, &probe);
	if (probe.status != ARCH_OK) {
		x86_fail(out, probe.status);
		return;
	}
	emit_program(program, interrupted, probe.pc + probe.used, out);
	x86_emit(out, program->data, program->data_size);
}

/* LAHF-SAHF: CPUID 80000001h, ECX bit 0 (SDM volume 2, CPUID). */
bool arch_keeps_flags(void)
{
#ifdef __x86_64__
	unsigned a, b, c, d;

	return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & 1);
#else
	return true;
#endif
}

int arch_try_flags(void)
{
#ifdef __x86_64__
	__asm__ volatile("lahf; sahf" : : : "rax", "cc");
#endif
	return 0;
}

bool arch_is_remote(const uint8_t *bytes, size_t size)
{
	static const uint8_t first[] = {0x49, 0x83, 0xc8 | (RESULT_FIRST & 7), 0xff};

	return size > sizeof(first) && !memcmp(bytes, first, sizeof(first));
}

void arch_begin_remote(struct arch_regs *r, taddr_t pc)
{
	r->user.rip = pc;
	/* No system call is being left: the kernel must restart nothing. */
	r->user.orig_rax = -1L;
	/* A thread that executes itself step by step gets its traps for its own instructions. */
	r->user.eflags &= ~(uint64_t)TRAP_FLAG;
}

long arch_remote_result(const struct arch_regs *r)
{
	return (long)r->user.rax;
}
