/* SPDX-License-Identifier: MIT */
/*
 * registers.c - the state of a stopped thread: its program counter, the system
 * call it is in, the signal frames on its stack. Values only.
 */
#include <string.h>
#include <sys/syscall.h>

#include "arch/calling.h"
#include "arch/x86_64/x86.h"

const size_t arch_red_zone = 128; /* System V psABI x86-64, 3.2.2 */

bool arch_is_native(const struct arch_regs *r)
{
	return x86_is_user_cs(r->user.cs);
}

taddr_t arch_pc(const struct arch_regs *r)
{
	return r->user.rip;
}

void arch_set_pc(struct arch_regs *r, taddr_t pc)
{
	r->user.rip = pc;
}

taddr_t arch_sp(const struct arch_regs *r)
{
	return r->user.rsp;
}

taddr_t arch_thread_pointer(const struct arch_regs *r)
{
	return r->user.fs_base;
}

bool arch_in_syscall(const struct arch_regs *r)
{
	return (long)r->user.orig_rax >= 0;
}

bool arch_is_native_call(const uint8_t before[ARCH_SYSCALL_MAX])
{
	static const uint8_t syscall[SYSCALL_SIZE] = {0x0f, 0x05}; /* int $0x80 has others */

	return !memcmp(before + ARCH_SYSCALL_MAX - SYSCALL_SIZE, syscall, SYSCALL_SIZE);
}

/* What it was is in orig_rax until the thread goes on. */
bool arch_forgets_calls(void)
{
	return false;
}

enum arch_ahead arch_ahead(const struct arch_regs *r, const uint8_t next[ARCH_SYSCALL_MAX])
{
	(void)r;
	(void)next;
	return ARCH_AHEAD_CODE;
}

long arch_syscall_number(const struct arch_regs *r)
{
	return arch_in_syscall(r) ? (long)r->user.orig_rax : -1;
}

void arch_set_syscall_number(struct arch_regs *r, long number)
{
	r->user.orig_rax = (unsigned long)number;
}

long arch_syscall_result(const struct arch_regs *r)
{
	return (long)r->user.rax;
}

/* rdi rsi rdx r10 r8 r9 (System V psABI x86-64, A.2.1). */
long arch_syscall_argument(const struct arch_regs *r, unsigned n)
{
	const struct user_regs_struct *u = &r->user;

	switch (n) {
	case 0:
		return (long)u->rdi;
	case 1:
		return (long)u->rsi;
	case 2:
		return (long)u->rdx;
	case 3:
		return (long)u->r10;
	case 4:
		return (long)u->r8;
	case 5:
		return (long)u->r9;
	default:
		return 0;
	}
}

/* ebx ecx edx esi edi ebp (syscall(2)). */
long arch_narrow_argument(const struct arch_regs *r, unsigned n)
{
	const struct user_regs_struct *u = &r->user;
	const uint64_t values[] = {u->rbx, u->rcx, u->rdx, u->rsi, u->rdi, u->rbp};

	return n < sizeof(values) / sizeof(values[0]) ? (long)values[n] : 0;
}

void arch_set_syscall_argument(struct arch_regs *r, unsigned n, long value)
{
	struct user_regs_struct *u = &r->user;

	switch (n) {
	case 0:
		u->rdi = value;
		break;
	case 1:
		u->rsi = value;
		break;
	case 2:
		u->rdx = value;
		break;
	case 3:
		u->r10 = value;
		break;
	case 4:
		u->r8 = value;
		break;
	case 5:
		u->r9 = value;
		break;
	default:
		break;
	}
}

/* System V psABI x86-64, figure 3.36; number 16 is the return address. */
bool arch_dwarf_register(const struct arch_regs *r, unsigned number, uint64_t *value)
{
	const struct user_regs_struct *u = &r->user;
	const uint64_t values[] = {
		u->rax, u->rdx, u->rcx, u->rbx, u->rsi, u->rdi, u->rbp, u->rsp, u->r8,
		u->r9,	u->r10, u->r11, u->r12, u->r13, u->r14, u->r15, u->rip,
	};

	if (number >= sizeof(values) / sizeof(values[0]))
		return false;
	*value = values[number];
	return true;
}

/* System V psABI x86-64, figures 3.4 and 3.36. */
const uint8_t x86_preserved[X86_PRESERVED] = {RBP, RBX, R12, R13, R14, R15};

bool arch_preserved(unsigned n, unsigned *number)
{
	static const uint8_t numbers[X86_PRESERVED] = {6, 3, 12, 13, 14, 15};

	if (n >= X86_PRESERVED)
		return false;
	*number = numbers[n];
	return true;
}

void arch_restart_interrupted(struct arch_regs *r)
{
	long result = arch_syscall_result(r);

	if (!arch_in_syscall(r))
		return;
	if (result == -EINTR_VALUE || result == -ERESTART_RESTARTBLOCK_VALUE)
		r->user.rax = -(long)ERESTARTNOHAND_VALUE;
	else if (result == -EAGAIN_VALUE)
		r->user.rax = -(long)ERESTARTNOINTR_VALUE;
}

bool arch_will_restart(const struct arch_regs *r)
{
	const long result = -arch_syscall_result(r);

	return arch_in_syscall(r) &&
	       (result == ERESTARTSYS_VALUE || result == ERESTARTNOINTR_VALUE ||
		result == ERESTARTNOHAND_VALUE || result == ERESTART_RESTARTBLOCK_VALUE);
}

/* arch_do_signal_or_restart() (arch/x86/kernel/signal.c). */
void arch_go_before_restart(struct arch_regs *r)
{
	const long number = arch_syscall_result(r) == -ERESTART_RESTARTBLOCK_VALUE
				    ? SYS_restart_syscall
				    : arch_syscall_number(r);

	if (!arch_will_restart(r))
		return;
	r->user.rip -= SYSCALL_SIZE;
	r->user.rax = (uint64_t)number;
	arch_leave_syscall(r);
}

/* All else is as it was, but for the resume flag. */
bool arch_is_before_restart(const struct arch_regs *now, const struct arch_regs *stopped,
			    bool native)
{
	enum {
		FLAG_RF = 1 << 16,
		NARROW_RESTART = 0, /* restart_syscall (arch/x86/entry/syscalls/syscall_32.tbl) */
	};
	struct arch_regs expected = *stopped;

	arch_go_before_restart(&expected);
	if (!native && arch_syscall_result(stopped) == -ERESTART_RESTARTBLOCK_VALUE)
		expected.user.rax = NARROW_RESTART;
	/* It may have reached user mode, and have been interrupted there. */
	expected.user.orig_rax = now->user.orig_rax;
	expected.user.eflags ^= (expected.user.eflags ^ now->user.eflags) & FLAG_RF;
	return arch_will_restart(stopped) && !memcmp(&expected, now, sizeof(expected));
}

void arch_leave_syscall(struct arch_regs *r)
{
	r->user.orig_rax = -1L;
}

void arch_end_interrupted(struct arch_regs *r)
{
	arch_leave_syscall(r);
	r->user.rax = -(long)EINTR_VALUE;
}

bool arch_is_sigreturn(const uint8_t *code, size_t size)
{
	/* mov $15,%rax or %eax; syscall: glibc, musl and others, matched by unwinders, too. */
	static const uint8_t wide[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
	static const uint8_t narrow[] = {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05};

	return (size >= sizeof(wide) && memcmp(code, wide, sizeof(wide)) == 0) ||
	       (size >= sizeof(narrow) && memcmp(code, narrow, sizeof(narrow)) == 0);
}

/*
 * struct rt_sigframe (arch/x86/include/asm/sigframe.h): the return address,
 * then struct ucontext: flags 8, link 8, stack 24 bytes, then sigcontext: r8 to
 * r15, di, si, bp, bx, dx, ax, cx, sp, ip.
 */
enum { SIGCONTEXT = 8 + 40, FRAME_SP = SIGCONTEXT + 15 * 8, FRAME_IP = SIGCONTEXT + 16 * 8 };

int arch_signal_frame(const uint8_t *frame, size_t size, taddr_t *pc, taddr_t *sp)
{
	if (size < FRAME_IP + 8)
		return ARCH_TRUNCATED;
	memcpy(sp, frame + FRAME_SP, 8);
	memcpy(pc, frame + FRAME_IP, 8);
	return ARCH_OK;
}

bool arch_signal_frame_is_saved(const uint8_t *frame, size_t size)
{
	uint64_t words[ARCH_SAVED_WORDS];

	if (size < FRAME_IP + sizeof(words))
		return false;
	memcpy(words, frame + FRAME_IP, sizeof(words));
	return arch_may_be_saved_pc(words);
}
