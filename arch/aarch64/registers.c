/* SPDX-License-Identifier: MIT */
/*
 * registers.c - the state of a stopped thread: its program counter, the system
 * call it is in, the signal frames on its stack. Values only.
 *
 * Where a thread stands in a stop of ours the kernel has done its part of an
 * interrupted system call already (arch/arm64/kernel/signal.c, do_signal()):
 * a call to be restarted is about to be made again, with the program counter at
 * its svc, and the call is forgotten. So a thread is "in a system call" at the
 * entry and exit stops of one only.
 */
#include <string.h>
#include <sys/syscall.h>

#include "arch/aarch64/a64.h"
#include "arch/calling.h"

const size_t arch_red_zone = 0; /* AAPCS64, 6.4.5.1 */

enum {
	/* Fields of pstate, as in SPSR_EL1. */
	STATE_32_BIT = 1 << 4,	     /* M[4] */
	STATE_BRANCH_TYPE = 3 << 10, /* BTYPE */
	ERESTARTNOINTR_VALUE = 513,
	ERESTARTNOHAND_VALUE = 514,
	ERESTART_RESTARTBLOCK_VALUE = 516,
	EINTR_VALUE = 4,
	EAGAIN_VALUE = 11,

	/* The calls that may return ERESTART_RESTARTBLOCK, by include/uapi/asm-generic/unistd.h. */
	FUTEX_CALL = 98,
	NANOSLEEP_CALL = 101,
	CLOCK_NANOSLEEP_CALL = 115,
	RESTART_CALL = 128,
};

taddr_t arch_pc(const struct arch_regs *r)
{
	return r->user.pc;
}

/*
 * A thread that is stopped behind an indirect jump, before what that leads to, may go on at a
 * landing pad only, where pages are guarded (BTI): that is about the place which it leaves here.
 */
void arch_set_pc(struct arch_regs *r, taddr_t pc)
{
	r->user.pc = pc;
	r->user.pstate &= ~(uint64_t)STATE_BRANCH_TYPE;
}

taddr_t arch_sp(const struct arch_regs *r)
{
	return r->user.sp;
}

taddr_t arch_thread_pointer(const struct arch_regs *r)
{
	return r->thread_pointer;
}

bool arch_is_native(const struct arch_regs *r)
{
	return !(r->user.pstate & STATE_32_BIT);
}

bool arch_in_syscall(const struct arch_regs *r)
{
	return r->system_call >= 0;
}

bool arch_is_native_call(const uint8_t before[ARCH_SYSCALL_MAX])
{
	return a64_load(before) == 0xd4000001; /* svc #0; a 64-bit thread has no others */
}

/* See above. */
bool arch_forgets_calls(void)
{
	return true;
}

enum arch_ahead arch_ahead(const struct arch_regs *r, const uint8_t next[ARCH_SYSCALL_MAX])
{
	if (!arch_is_native_call(next))
		return ARCH_AHEAD_CODE;
	switch (r->user.regs[8]) {
	case FUTEX_CALL:
	case NANOSLEEP_CALL:
	case CLOCK_NANOSLEEP_CALL:
	case RESTART_CALL:
		return ARCH_AHEAD_SLEEP;
	default:
		return ARCH_AHEAD_CALL;
	}
}

long arch_syscall_number(const struct arch_regs *r)
{
	return arch_in_syscall(r) ? r->system_call : -1;
}

void arch_set_syscall_number(struct arch_regs *r, long number)
{
	r->system_call = number;
}

long arch_syscall_result(const struct arch_regs *r)
{
	return (long)r->user.regs[0];
}

/* x0 to x5. */
long arch_syscall_argument(const struct arch_regs *r, unsigned n)
{
	return n < 6 ? (long)r->user.regs[n] : 0;
}

/* A 64-bit thread has no such calls. */
long arch_narrow_argument(const struct arch_regs *r, unsigned n)
{
	return arch_syscall_argument(r, n);
}

void arch_set_syscall_argument(struct arch_regs *r, unsigned n, long value)
{
	if (n < 6)
		r->user.regs[n] = value;
}

/* DWARF for the Arm 64-bit architecture (AADWARF64), 4.1: x0 to x30, sp, pc. */
bool arch_dwarf_register(const struct arch_regs *r, unsigned number, uint64_t *value)
{
	if (number > 32)
		return false;
	if (number < 31)
		*value = r->user.regs[number];
	else
		*value = number == 31 ? r->user.sp : r->user.pc;
	return true;
}

/* Only events want them, and there are none here. */
bool arch_preserved(unsigned n, unsigned *number)
{
	(void)n;
	(void)number;
	return false;
}

void arch_restart_interrupted(struct arch_regs *r)
{
	long result = arch_syscall_result(r);

	if (!arch_in_syscall(r))
		return;
	if (result == -EINTR_VALUE || result == -ERESTART_RESTARTBLOCK_VALUE)
		r->user.regs[0] = -(long)ERESTARTNOHAND_VALUE;
	else if (result == -EAGAIN_VALUE)
		r->user.regs[0] = -(long)ERESTARTNOINTR_VALUE;
}

/* The kernel has forgotten it by then: see above. */
bool arch_will_restart(const struct arch_regs *r)
{
	(void)r;
	return false;
}

bool arch_is_before_restart(const struct arch_regs *now, const struct arch_regs *stopped,
			    bool native)
{
	(void)now;
	(void)stopped;
	(void)native;
	return false;
}

void arch_go_before_restart(struct arch_regs *r)
{
	(void)r;
}

void arch_leave_syscall(struct arch_regs *r)
{
	r->system_call = -1;
}

void arch_end_interrupted(struct arch_regs *r)
{
	arch_leave_syscall(r);
	r->user.regs[0] = -(long)EINTR_VALUE;
}

/* mov x8, #139; svc #0 (arch/arm64/kernel/vdso/sigreturn.S, and every C library). */
bool arch_is_sigreturn(const uint8_t *code, size_t size)
{
	return size >= 8 && a64_load(code) == 0xd2801168 && a64_load(code + 4) == 0xd4000001;
}

/*
 * struct rt_sigframe (arch/arm64/kernel/signal.c): siginfo 128 bytes, then
 * struct ucontext: flags 8, link 8, stack 24, signal mask 128, 8 of padding,
 * then sigcontext: fault address, x0 to x30, sp, pc, pstate, and aligned to 16
 * the first of the extension records, which is always that of the vector
 * registers. The return address is in x30 and not on the stack: `frame` is what
 * sp was when the handler was called, and the record's magic number and size
 * say whether it is one.
 */
enum {
	SIGCONTEXT = 128 + 176,
	SP_AT = SIGCONTEXT + 8 + 31 * 8,
	PC_AT = SP_AT + 8,
	RECORD_AT = SIGCONTEXT + 288,
	VECTOR_MAGIC = 0x46508001, /* FPSIMD_MAGIC, asm/sigcontext.h */
	VECTOR_SIZE = 528,
};

int arch_signal_frame(const uint8_t *frame, size_t size, taddr_t *pc, taddr_t *sp)
{
	if (size < RECORD_AT + 8)
		return ARCH_TRUNCATED;
	if (a64_load(frame + RECORD_AT) != VECTOR_MAGIC ||
	    a64_load(frame + RECORD_AT + 4) != VECTOR_SIZE)
		return ARCH_UNKNOWN;
	memcpy(sp, frame + SP_AT, 8);
	memcpy(pc, frame + PC_AT, 8);
	return ARCH_OK;
}

bool arch_signal_frame_is_saved(const uint8_t *frame, size_t size)
{
	uint64_t words[ARCH_SAVED_WORDS];

	if (size < PC_AT + sizeof(words))
		return false;
	memcpy(words, frame + PC_AT, sizeof(words));
	return arch_may_be_saved_pc(words);
}
