/* SPDX-License-Identifier: MIT */
/*
 * thread.h - the state of a stopped thread of the target, and the system calls
 * that it can be made to run. Part of the contract of arch.h.
 *
 * Values only, as all of arch/: registers come from ptrace and go back there by
 * inject/. What the kernel does with an interrupted system call when a thread
 * goes on is known here and nowhere else.
 */
#ifndef DINST_ARCH_THREAD_H
#define DINST_ARCH_THREAD_H

#include "arch/arch.h"

/* Registers of a stopped thread, as ptrace gives them: in arch/ARCH/state.h. */
struct arch_regs;

/* False where 32-bit code runs in a 64-bit process: it must not run ours, nor be moved. */
bool arch_is_native(const struct arch_regs *r);
taddr_t arch_pc(const struct arch_regs *r);
void arch_set_pc(struct arch_regs *r, taddr_t pc);
taddr_t arch_sp(const struct arch_regs *r);
taddr_t arch_thread_pointer(const struct arch_regs *r);
/*
 * The value of the register with that DWARF number (psABI, DWARF Register
 * Number Mapping), the program counter standing for the return address column;
 * false if there is none. *value is set on true only.
 */
bool arch_dwarf_register(const struct arch_regs *r, unsigned number, uint64_t *value);
/* Bytes below the stack pointer that the psABI reserves for the function: 128. */
extern const size_t arch_red_zone;

/* True if the thread was stopped inside a system call that the kernel would
 * restart or that reports a result when it is resumed (orig_rax >= 0). */
bool arch_in_syscall(const struct arch_regs *r);
long arch_syscall_number(const struct arch_regs *r); /* -1 if none */
/* True if the last of these bytes, which are in front of the program counter of a thread in a call, are the
 * instruction whose calls have the numbers of this architecture. */
enum { ARCH_SYSCALL_MAX = 4 };
bool arch_is_native_call(const uint8_t before[ARCH_SYSCALL_MAX]);
/*
 * True if the kernel puts a thread whose call is interrupted back in front of it and forgets the call before the
 * thread stops (AArch64): then arch_in_syscall() is false of it, and only arch_ahead() has a guess.
 */
bool arch_forgets_calls(void);
/*
 * What a thread does next by its registers and by the bytes at its program counter, where arch_forgets_calls() is
 * true: code, a call, or one that the kernel may have been about to go on with by restart_syscall, and that waits
 * its whole time again if another program is run before. Made anew or for the first time is not told.
 */
enum arch_ahead { ARCH_AHEAD_CODE, ARCH_AHEAD_CALL, ARCH_AHEAD_SLEEP };
enum arch_ahead arch_ahead(const struct arch_regs *r, const uint8_t next[ARCH_SYSCALL_MAX]);
/* At the entry of a call: another one is made instead. */
void arch_set_syscall_number(struct arch_regs *r, long number);
long arch_syscall_result(const struct arch_regs *r);
long arch_syscall_argument(const struct arch_regs *r, unsigned n); /* n = 0..5 */
/* The same of a call that is not native (arch_is_native_call()). */
long arch_narrow_argument(const struct arch_regs *r, unsigned n);
void arch_set_syscall_argument(struct arch_regs *r, unsigned n, long value);
/* A call that ended with EINTR only because of our stop, or that the kernel
 * would continue by restart_syscall, is made to be called anew unless a handler
 * runs: what the kernel calls ERESTARTNOHAND (-514); one that ended with EAGAIN
 * for that reason in any case: ERESTARTNOINTR (-513). Nothing else is changed. */
void arch_restart_interrupted(struct arch_regs *r);
/* True if the kernel makes the interrupted call anew when the thread goes on and no handler runs. */
bool arch_will_restart(const struct arch_regs *r);
/*
 * True if arch_will_restart() is true of `stopped`, and `now` is what the kernel has made of it in
 * order to make the call anew: the system call instruction is next, and a signal that is handled
 * now would not be told to the call. `native`: whether it is a native call.
 */
bool arch_is_before_restart(const struct arch_regs *now, const struct arch_regs *stopped,
			    bool native);
/* Makes that of a native call, where arch_will_restart() is true: a handler that runs now runs before the call. */
void arch_go_before_restart(struct arch_regs *r);
/* Forget the system call: the registers are now those of ordinary code. */
void arch_leave_syscall(struct arch_regs *r);
/* The interrupted call is over, and returns -EINTR: never restarted. */
void arch_end_interrupted(struct arch_regs *r);

/*
 * Signal frames. `code` are bytes at an address found on a stack: true if it
 * is the code that calls sigreturn. arch_signal_frame() reads the interrupted
 * context out of the frame whose return address (to that code) is at frame[0]; where
 * return addresses are in a register, `frame` is the stack pointer with which
 * the handler was called, and ARCH_UNKNOWN says that this is no signal frame.
 */
enum { ARCH_SIGRETURN_CODE = 16, ARCH_SIGNAL_FRAME = 640 };
bool arch_is_sigreturn(const uint8_t *code, size_t size);
/*
 * True if word[0] may be the program counter of a context that the kernel saved
 * (sigcontext), by the words behind it; ARCH_SAVED_WORDS of them are looked at.
 */
enum { ARCH_SAVED_WORDS = 3 };
bool arch_may_be_saved_pc(const uint64_t word[ARCH_SAVED_WORDS]);
int arch_signal_frame(const uint8_t *frame, size_t size, taddr_t *pc, taddr_t *sp);
/* arch_may_be_saved_pc() of the interrupted program counter there; false where it is not all in `size` bytes. */
bool arch_signal_frame_is_saved(const uint8_t *frame, size_t size);

/*
 * Shadow stacks: copies of return addresses that the processor keeps. A call
 * that arch_relocate() has moved is none for it, and the return faults.
 * arch_shadow_offered(): whether the text of /proc/cpuinfo says that programs can
 * have them; arch_shadow_is_on(): whether the text of a thread's status does,
 * or cannot tell.
 */
bool arch_shadow_offered(const char *cpuinfo);
bool arch_shadow_is_on(const char *status);

/* ------------------------------------------------------- remote programs */

/*
 * A remote program is a row of system calls that a stopped thread of the target is made to run,
 * followed by code that puts every register back as it was and goes on where the thread was
 * interrupted. If the mutator dies at any moment the thread heals itself. No stack is used.
 */
enum arch_remote_arg_kind {
	ARCH_ARG_CONST,	 /* value */
	ARCH_ARG_RESULT, /* what call number `value` returned */
	ARCH_ARG_DATA,	 /* address of the bytes at offset `value` of `data` */
};

struct arch_remote_arg {
	enum arch_remote_arg_kind kind;
	uint64_t value;
};

struct arch_remote_call {
	long number;
	struct arch_remote_arg args[6];
	bool always; /* run it even when an earlier call failed (close) */
};

struct arch_remote_program {
	const struct arch_remote_call *calls;
	size_t count;	     /* at most 4 */
	const uint8_t *data; /* constants, placed behind the code */
	size_t data_size;
};

enum { ARCH_REMOTE_MAX = 512 };

/*
 * Emits the program for a thread whose registers are `interrupted`. Where that was in a system
 * call the tail does what the kernel would have done (restart at pc-2, or restart_syscall). When
 * a call fails, the following ones that are not `always` are skipped.
 */
void arch_emit_remote(const struct arch_remote_program *program,
		      const struct arch_regs *interrupted, struct arch_buf *out);

/*
 * False if the processor says that it has not got the instructions by which such programs, and all that
 * is inserted, keep the flags: lahf and sahf of 64-bit mode, which the first x86-64 ones lack. Those of
 * AArch64 all have them.
 */
bool arch_keeps_flags(void);

/* Executes them, for a hypervisor may tell of less than there is: 0, or a process that dies of it. */
int arch_try_flags(void);

/* True if these bytes begin as every such program does. */
bool arch_is_remote(const uint8_t *bytes, size_t size);

/* Makes `r` (a copy of the interrupted registers) ready to run the program at `pc`. */
void arch_begin_remote(struct arch_regs *r, taddr_t pc);

/* At the exit stop of call number `n` of the program: its result. */
long arch_remote_result(const struct arch_regs *r);

#endif
