/* SPDX-License-Identifier: MIT */
/*
 * stop_seccomp.c - whether threads are under filters or dispatch their system
 * calls to themselves, and whether code in the target may make a system call.
 *
 * Filters are run over a description of the call as the thread would make it
 * now; where they cannot be read, or do anything but let it pass, it may not. Nor where
 * nobody can say whether there are any (we have no descriptor left).
 */
#include <signal.h>
#include <sys/syscall.h>

#include "inject/control.h"

bool held_is_filtered(const struct held *h)
{
	struct proc_status status;
	int has = tracee_has_filters(h->pub.tid);

	if (has >= 0)
		return has > 0;
	return proc_status_read(h->pub.tid, &status) || status.seccomp > 0;
}

bool held_is_strict(const struct held *h)
{
	enum {
		NARROW_WRITE = 4
	}; /* arch/x86/entry/syscalls/syscall_32.tbl; read is below it there, too */
	struct proc_status status;

	/* It waits in a call that does not exist in that mode: of most threads nothing has to be read. */
	if (arch_will_restart(&h->pub.regs) && arch_syscall_number(&h->pub.regs) > NARROW_WRITE)
		return false;
	return proc_status_read(h->pub.tid, &status) || status.seccomp == PROC_SECCOMP_STRICT;
}

long held_harmless_call(const struct held *h)
{
	/* Whatever their arguments are. */
	static const long harmless[] = {SYS_getpid,  SYS_gettid, SYS_getppid, SYS_getuid,
					SYS_geteuid, SYS_getgid, SYS_getegid, SYS_sched_yield};
	struct arch_regs regs = h->pub.regs;

	/* It is made in a program of ours, not where the thread is. */
	arch_set_pc(&regs, 0);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (tracee_filters_allow(h->pub.tid, harmless[i], true, &regs))
			return harmless[i];
	return -1;
}

/* Whoever dispatches its calls has a handler for the signal: without one it would be ended by it. */
static bool may_dispatch(const struct stop *s)
{
	return s->caught >> (SIGSYS - 1) & 1;
}

bool held_is_dispatched(const struct stop *s, const struct held *h)
{
	taddr_t selector = 0;
	uint8_t blocks = 1;
	int dispatches;

	if (h->was_dispatched)
		return true;
	dispatches = tracee_dispatches(h->pub.tid, &selector);
	/*
	 * The signal for a call of ours is taken back (remote.c). Where it is blocked, as it is in its
	 * handler, the kernel takes the handler away for good (force_sig_info_to_task()).
	 */
	if (dispatches < 0)
		return may_dispatch(s) && tracee_blocks(h->pub.tid, SIGSYS);
	if (!dispatches)
		return false;
	/* What cannot be read, or is neither value, kills the thread at its next call. */
	return !selector || target_read(s->target, selector, &blocks, sizeof(blocks), NULL) ||
	       blocks;
}

bool stop_may_call(struct stop *s, long number, const long arguments[6])
{
	for (size_t i = 0; i < s->held_count; i++) {
		const struct held *h = &s->held[i];
		struct arch_regs regs = h->pub.regs;
		taddr_t selector;
		int dispatches;

		if (!h->stopped || h->gone)
			continue;
		dispatches = tracee_dispatches(h->pub.tid, &selector);
		/* What the selector says may change with every instruction. */
		if (dispatches > 0 || (dispatches < 0 && may_dispatch(s)) || held_is_strict(h))
			return false;
		if (!held_is_filtered(h))
			continue;
		arch_set_pc(&regs, 0); /* somewhere in an arena */
		for (unsigned n = 0; n < 6; n++)
			arch_set_syscall_argument(&regs, n, arguments[n]);
		if (!tracee_filters_allow(h->pub.tid, number, true, &regs))
			return false;
	}
	return true;
}
