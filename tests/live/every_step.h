/* SPDX-License-Identifier: MIT */
/*
 * every_step.h - one thread of a target goes on by so many instructions as every_step.c wants, and
 * stands still in between: held by us (`held`), or with its whole process by SIGSTOP, so that a
 * mutator can come.
 *
 *   1. step_hold(): from either state, or from running;
 *   2. step_once(), until it stands where it is wanted;
 *   3. step_freeze(), and what is to be tried; step_hold() again, or step_release().
 *
 * It is our own target, which may end with us. Every function fails the test itself.
 */
#ifndef DINST_TESTS_LIVE_EVERY_STEP_H
#define DINST_TESTS_LIVE_EVERY_STEP_H

#include <errno.h>
#include <linux/rseq.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "tests/live/harness_thread.h"

struct stepper {
	pid_t pid, tid;
	bool held, frozen;
	bool may_end, ended;
	int signal;		      /* to be delivered with the next step */
	struct user_regs_struct regs; /* while it is held: those of now */
	uint64_t rseq;		      /* the address of its struct rseq, 0: none */
	unsigned long steps, sequences;
};

static inline void step_read(const struct stepper *p, uint64_t address, void *bytes, size_t size)
{
	const struct iovec remote = {.iov_base = (void *)address, .iov_len = size};
	const struct iovec local = {.iov_base = bytes, .iov_len = size};

	if (process_vm_readv(p->pid, &local, 1, &remote, 1, 0) != (ssize_t)size)
		memset(bytes, 0, size);
}

static inline uint8_t step_byte(const struct stepper *p, uint64_t address)
{
	uint8_t byte;

	step_read(p, address, &byte, 1);
	return byte;
}

/* Waits for the next stop; a signal that comes is kept for the next step. False: only a notice. */
static inline bool step_wait(struct stepper *p)
{
	int status, what;

	if (waitpid(p->tid, &status, __WALL) != p->tid)
		fail_msg("waiting for thread %d: %s", (int)p->tid, strerror(errno));
	if (!WIFSTOPPED(status)) {
		p->held = false;
		p->ended = p->may_end;
		if (p->ended)
			return true;
		fail_msg("thread %d has ended (status %x) after pc %llx", (int)p->tid,
			 (unsigned)status, p->regs.rip);
	}
	what = WSTOPSIG(status);
	thread_get(p->tid, &p->regs);
	if (status >> 16)
		return false;
	if (what == SIGTRAP)
		return true;
	if (what != SIGUSR1)
		fail_msg("thread %d gets signal %d (%s) at %llx", (int)p->tid, what,
			 strsignal(what), p->regs.rip);
	p->signal = what;
	return false;
}

static inline void step_go(struct stepper *p, enum __ptrace_request how)
{
	do {
		if (ptrace(how, p->tid, NULL, (void *)(intptr_t)p->signal))
			fail_msg("stepping thread %d: %s", (int)p->tid, strerror(errno));
		p->signal = 0;
	} while (!step_wait(p));
}

/*
 * Each stop begins a restartable sequence again: it is run through at once. Returns where that ends,
 * 0 if the thread is in none.
 */
static inline uint64_t step_sequence_end(const struct stepper *p)
{
	struct rseq_cs cs;
	uint64_t at = 0;

	if (!p->rseq)
		return 0;
	step_read(p, p->rseq + offsetof(struct rseq, rseq_cs), &at, sizeof(at));
	if (!at)
		return 0;
	step_read(p, at, &cs, sizeof(cs));
	if (p->regs.rip - cs.start_ip >= cs.post_commit_offset)
		return 0;
	return cs.start_ip + cs.post_commit_offset;
}

static inline void step_watch(const struct stepper *p, uint64_t address)
{
	const size_t at = offsetof(struct user, u_debugreg);

	if (ptrace(PTRACE_POKEUSER, p->tid, at, address) ||
	    ptrace(PTRACE_POKEUSER, p->tid, at + 7 * sizeof(long), address ? 1 : 0))
		fail_msg("breakpoint at %llx: %s", (unsigned long long)address, strerror(errno));
}

/* One instruction, or one restartable sequence. */
static inline void step_once(struct stepper *p)
{
	const uint64_t end = step_sequence_end(p);

	if (p->ended)
		return;
	if (end) {
		step_watch(p, end);
		step_go(p, PTRACE_CONT);
		if (!p->ended)
			step_watch(p, 0);
		p->sequences++;
		return;
	}
	step_go(p, PTRACE_SINGLESTEP);
	p->steps++;
}

static inline void step_find_sequences(struct stepper *p)
{
	struct __ptrace_rseq_configuration c;

	if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, p->tid, sizeof(c), &c) == (long)sizeof(c))
		p->rseq = c.rseq_abi_pointer;
}

static inline void step_hold(struct stepper *p)
{
	if (p->held)
		return;
	thread_seize(p->tid);
	p->held = true;
	if (p->frozen)
		thread_thaw(p->pid);
	p->frozen = false;
	thread_get(p->tid, &p->regs);
	step_find_sequences(p);
}

/* It stands there, with its whole process, and nobody holds it. */
static inline void step_freeze(struct stepper *p)
{
	if (p->frozen)
		return;
	if (p->signal)
		step_once(p);
	thread_freeze(p->pid, p->tid);
	p->held = false;
	p->frozen = true;
}

static inline void step_release(struct stepper *p)
{
	if (p->held && p->signal)
		step_once(p);
	if (p->held)
		thread_let_go(p->tid);
	if (p->frozen)
		thread_thaw(p->pid);
	p->held = p->frozen = false;
}

/* It comes to where `pc` is, of itself, and stands there as by step_freeze(). */
static inline void step_to(struct stepper *p, uint64_t pc)
{
	enum { MOST = 1000000 };

	step_hold(p);
	for (unsigned n = 0; p->regs.rip != pc; n++) {
		if (p->ended || n == MOST)
			fail_msg("thread %d never comes to %llx", (int)p->tid,
				 (unsigned long long)pc);
		step_once(p);
	}
	step_freeze(p);
}

/* Where a test has failed: it ends when whoever traces it has seen that. */
static inline void step_kill(const struct stepper *p)
{
	if (!p->held)
		return;
	kill(p->pid, SIGKILL);
	waitpid(p->tid, NULL, __WALL);
}

#endif
