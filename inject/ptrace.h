/* SPDX-License-Identifier: MIT */
/*
 * ptrace.h - the only door to ptrace() and waitpid().
 *
 * Private to inject/. Thin wrappers: each returns 0 or a negative errno and
 * decides nothing. Policy (what to do about a signal, a death, a deadline) is
 * in stop.c and remote.c.
 *
 * ptrace belongs to one thread, so all of this must be called on the thread
 * that seized the tracee.
 *
 * Calling sequence on that thread:
 *   1. tracer_init();
 *   2. tracee_seize(), tracee_interrupt(), tracee_wait(), registers, detach;
 *   3. tracer_release(), then the thread must end: what could not be detached
 *      is let go by the kernel when it does (ptrace(2), "exit of the tracer").
 */
#ifndef DINST_INJECT_PTRACE_H
#define DINST_INJECT_PTRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "arch/thread.h"

/*
 * The bound on waiting: a timer whose signal interrupts this thread only. The kernel refuses it
 * where the user's processes have as many signals pending as RLIMIT_SIGPENDING allows all of
 * them together (getrlimit(2)): then waits look again and again.
 */
struct tracer {
	timer_t timer;
	bool looks; /* without a timer */
	bool armed;
	bool eager; /* waits look for a moment before they sleep: as long as that helps, until it is armed */
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
};

void tracer_init(struct tracer *tr);
void tracer_release(struct tracer *tr);

/* From now on waits end with -ETIMEDOUT at `deadline_ns`; 0: no deadline, no signals. */
void tracer_arm(struct tracer *tr, uint64_t deadline_ns);

enum tracee_event_kind {
	TRACEE_STOPPED,	 /* PTRACE_EVENT_STOP by interrupt (signal is SIGTRAP) or group-stop */
	TRACEE_SIGNAL,	 /* signal-delivery-stop: `signal` waits for our word */
	TRACEE_SYSCALL,	 /* entry or exit of a system call */
	TRACEE_EXEC,	 /* PTRACE_EVENT_EXEC */
	TRACEE_EVENT,	 /* some other event */
	TRACEE_EXITED,	 /* the thread is no more */
	TRACEE_VANISHED, /* nobody with that id is ours: an exec gave the id away (ptrace(2)) */
};

struct tracee_event {
	enum tracee_event_kind kind;
	int signal; /* TRACEE_STOPPED, TRACEE_SIGNAL */
};

/*
 * Makes `tid` a tracee that goes on running. While its process executes another program the kernel
 * keeps everybody who asks waiting: for as long as the program is read and, where the exec itself waits for
 * a thread that has ended as our tracee, for ever. -ETIMEDOUT at `until_ns` (0: never), or later at the first signal
 * of the timer (tracer_arm()): it may have become a tracee all the same, which only the end of this thread undoes.
 */
int tracee_seize(pid_t tid, uint64_t until_ns);
/* On a stopped tracee; needs CAP_SYS_ADMIN. */
int tracee_suspend_seccomp(pid_t tid);
int tracee_restore_seccomp(pid_t tid); /* its filters hold again */
int tracee_interrupt(pid_t tid);

/* Lets a stopped tracee run; `signal` is delivered if it is in a signal-delivery-stop. */
int tracee_resume(pid_t tid, int signal);
/* As tracee_resume(), up to the next entry or exit of a system call. */
int tracee_resume_to_syscall(pid_t tid, int signal);
/* At the entry of a system call: sets the registers and goes on to its exit, with nothing in between. */
int tracee_enter_syscall(pid_t tid, const struct arch_regs *regs);
int tracee_detach(pid_t tid, int signal);

int tracee_get_regs(pid_t tid, struct arch_regs *regs);
int tracee_set_regs(pid_t tid, const struct arch_regs *regs);

/* The struct rseq that the thread registered; all 0 if it has none. */
int tracee_get_rseq(pid_t tid, taddr_t *address, uint32_t *size, uint32_t *signature);

/* Whether the stopped tracee is under seccomp filters: 1, 0, or -errno where that is not told. */
int tracee_has_filters(pid_t tid);

/*
 * True if all seccomp filters of the tracee let system call `number` pass, with
 * the arguments that are in its registers. False also where that cannot be
 * told: filters can be read with CAP_SYS_ADMIN only. A program counter of 0: wherever it is made.
 * `native`: by a native call; else by one as the tracee is in.
 */
bool tracee_filters_allow(pid_t tid, long number, bool native, const struct arch_regs *regs);

/*
 * 1 if the stopped tracee dispatches its system calls to itself (prctl(2),
 * PR_SET_SYSCALL_USER_DISPATCH): those from elsewhere than a range of its own code
 * become SIGSYS while the byte at *selector says so; always where that is 0.
 * Else 0; -1 where the kernel (before 6.4) does not tell.
 */
int tracee_dispatches(pid_t tid, taddr_t *selector);

/* True if the next system call of the stopped tracee would be made with `signal` blocked, or that cannot be told. */
bool tracee_blocks(pid_t tid, int signal);

/*
 * True if the signal that the tracee is about to get says that a system call in
 * [lo, hi) was dispatched to it.
 */
bool tracee_was_dispatched(pid_t tid, taddr_t lo, taddr_t hi);

/* True if that signal was sent by a process that the tracee's own pid namespace knows, or by one that pretends to be. */
bool tracee_knows_sender(pid_t tid);

/* True if `signal` waits for the stopped tracee or its process. It is not looked for behind a thousand others. */
bool tracee_is_pending(pid_t tid, int signal);

/* True if that signal says that what the tracee executes in [lo, hi] cannot be executed. */
bool tracee_has_faulted(pid_t tid, taddr_t lo, taddr_t hi);

/* One word of the tracee's memory, at any address, where /proc/PID/mem refuses. */
int tracee_poke(pid_t tid, taddr_t address, uint64_t word);

/* One word of a stopped tracee's memory: 0 or -errno. */
int tracee_peek(pid_t tid, taddr_t address, uint64_t *word);

/*
 * Waits until `tid` stops or ends. A dead leader is reported but not reaped,
 * since it may be our process's own child. 0, -ETIMEDOUT, or another -errno;
 * a tracee that is no longer ours is TRACEE_VANISHED.
 */
int tracee_wait(struct tracer *tr, pid_t tid, bool leader, struct tracee_event *event);

/* The same without waiting: -EAGAIN while it runs. */
int tracee_poll(pid_t tid, bool leader, struct tracee_event *event);

/* False if tracee_poll() has nothing to tell of any tracee of this thread. */
bool tracee_any(void);
/* One of whom it has something to tell; 0: nobody, -1: not known. */
pid_t tracee_next(void);

/* What ptrace() answers us about nobody at all: -ESRCH unless we may not even ask. */
int tracer_ask(void);

enum { PROBE_KILLED = -10000 };

/*
 * What `call` (0 or a negative errno) says in a child process of ours, which may
 * die of it: PROBE_KILLED. 0 if there can be no child now.
 */
int probe_in_child(int (*call)(void));

#endif
