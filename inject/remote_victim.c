/* SPDX-License-Identifier: MIT */
/*
 * remote_victim.c - which thread is made to run system calls.
 *
 * Best is one that was running its own code; then one whose interrupted call
 * restarts plainly; then one with a restart block, which sleeps its whole time again where the kernel has
 * forgotten its call (arch_forgets_calls()). A thread under a seccomp
 * filter only where the filter can be suspended for the length of the stop.
 * A thread inside a restartable sequence only when there is no other, and then
 * its sequence is aborted first, never where that cannot be read; where the kernel does not tell of those (before Linux 5.13), one
 * that was running its own code only when there is no other, either. Never one that runs 32-bit code
 * or sleeps in a call of it (int $0x80), or whose system calls become signals to itself (a program
 * under Wine, for example), or end it (the strict mode of seccomp, which is a thread's own).
 */
#include <errno.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/remote_private.h"

/* Lower is better. */
enum rank {
	RANK_RUNNING = 0,
	RANK_IN_CALL = 1,
	RANK_RESTART_BLOCK = 2,
	RANK_SEQUENCE = 4,
	RANK_FILTERED = 8,
	RANK_OTHER_FILES = 16, /* its descriptors are not the process's: pidfd_getfd misses them */
	RANK_NEVER = 1000,
};

enum { BARRED_MAX = 4 }; /* threads that are asked, one after the other */

/* The kernel's ERESTART_RESTARTBLOCK (include/linux/errno.h). */
enum { RESTART_BLOCK = -516 };

/* Other files than thread `like`, whose files are the process's. */
static bool has_other_files(pid_t like, const struct held *h)
{
	return h->pub.tid != like && syscall(SYS_kcmp, like, h->pub.tid, KCMP_FILES, 0, 0) > 0;
}

/* Of one that is in no call, as far as the kernel tells. One that has yet to make its own is none the worse for it. */
static int rank_of_ahead(const struct stop *s, const struct held *h)
{
	uint8_t next[ARCH_SYSCALL_MAX];

	if (!arch_forgets_calls() ||
	    target_read(s->target, arch_pc(&h->pub.regs), next, sizeof(next), NULL))
		return RANK_RUNNING;
	switch (arch_ahead(&h->pub.regs, next)) {
	case ARCH_AHEAD_SLEEP:
		return RANK_RESTART_BLOCK;
	case ARCH_AHEAD_CALL:
		return RANK_IN_CALL;
	default:
		return RANK_RUNNING;
	}
}

/*
 * A thread of the kernel's, which never comes back to code of the program's: the kernel says so by these
 * (copy_thread()). Its flags have told already, unless this kernel has other ones than others of its release.
 */
static bool has_no_code(const struct held *h)
{
	return !arch_pc(&h->pub.regs) && !arch_sp(&h->pub.regs);
}

/* What its registers alone tell, and where they do not the instruction that is next. */
static int rank_cheaply(const struct stop *s, const struct held *h)
{
	if (!h->stopped || h->gone || h->pub.foreign || !arch_is_native(&h->pub.regs) ||
	    has_no_code(h))
		return RANK_NEVER;
	if (!arch_in_syscall(&h->pub.regs))
		return rank_of_ahead(s, h);
	return arch_syscall_result(&h->pub.regs) == RESTART_BLOCK ? RANK_RESTART_BLOCK
								  : RANK_IN_CALL;
}

/* If we died it would be sent back with the number that goes on with a sleep of a native call. */
static bool is_in_compat_sleep(struct stop *s, const struct held *h)
{
	uint8_t before[ARCH_SYSCALL_MAX];

	return arch_in_syscall(&h->pub.regs) &&
	       arch_syscall_result(&h->pub.regs) == RESTART_BLOCK &&
	       (target_read(s->target, arch_pc(&h->pub.regs) - sizeof(before), before,
			    sizeof(before), NULL) ||
		!arch_is_native_call(before));
}

/* What has to be looked up: only for those that are as good as can be otherwise. */
static int rank_of_lookups(struct stop *s, const struct held *h, pid_t like)
{
	taddr_t abort_pc;
	const bool may_be = h->rseq_unknown && !arch_in_syscall(&h->pub.regs);
	const int in = stop_in_sequence(s, &h->pub, &abort_pc);
	int value = may_be || in > 0 ? RANK_SEQUENCE : 0;

	if (in < 0 || h->barred || held_is_dispatched(s, h) || is_in_compat_sleep(s, h) ||
	    held_is_strict(h))
		return RANK_NEVER;
	if (held_is_filtered(h))
		value += RANK_FILTERED;
	return has_other_files(like, h) ? value + RANK_OTHER_FILES : value;
}

/* The first thread of the lowest rank; NULL if there is no thread. */
static struct held *best_thread(struct stop *s)
{
	const pid_t like = target_memory_tid(s->target);
	struct held *best = NULL;
	int best_rank = RANK_NEVER;
	int value;

	for (int level = 0; level <= RANK_RESTART_BLOCK; level++)
		for (size_t i = 0; i < s->held_count; i++) {
			if (level >= best_rank)
				return best;
			if (rank_cheaply(s, &s->held[i]) != level)
				continue;
			value = level + rank_of_lookups(s, &s->held[i], like);
			if (value < best_rank) {
				best_rank = value;
				best = &s->held[i];
			}
		}
	return best;
}

/* Makes a filtered thread free of its filter until it is released. */
static bool lift_filter(struct held *h)
{
	if (h->seccomp_suspended || !held_is_filtered(h))
		return true;
	h->seccomp_suspended = !tracee_suspend_seccomp(h->pub.tid);
	return h->seccomp_suspended;
}

/*
 * False if its filter could be lifted, and lets nothing pass that does nothing: it is left under it.
 * *harmless: see struct remote.
 */
static bool may_end_in_call(struct held *h, long *harmless)
{
	*harmless = lift_filter(h) && h->seccomp_suspended ? held_harmless_call(h) : -1;
	h->barred = h->seccomp_suspended && *harmless < 0;
	/* Without its filter it could not be watched on its way back into its call (stop_release.c). */
	if (h->barred)
		h->seccomp_suspended = tracee_restore_seccomp(h->pub.tid) != 0;
	return !h->barred;
}

static bool some_thread_is_dispatched(const struct stop *s)
{
	for (size_t i = 0; i < s->shown_count; i++)
		if (held_is_dispatched(s, &s->held[s->shown[i]]))
			return true;
	return false;
}

/* One of whom nobody can say now whether it is in a restartable sequence. */
static const struct held *find_unread(struct stop *s)
{
	taddr_t abort_pc;

	for (size_t i = 0; i < s->shown_count; i++)
		if (stop_in_sequence(s, &s->held[s->shown[i]].pub, &abort_pc) < 0)
			return &s->held[s->shown[i]];
	return NULL;
}

static int fail_unread(const struct stop *s, const struct held *h, struct dinst_error *e)
{
	return dinst_fail(
		e, DINST_BUSY,
		"cannot read whether thread %d of process %d (%s) is in a restartable sequence; try again later",
		(int)h->pub.tid, (int)s->target->pid, s->target->name);
}

int remote_is_dispatched(const struct stop *s, struct dinst_error *e)
{
	return dinst_fail(
		e, DINST_BUSY,
		"process %d (%s) makes its system calls itself (PR_SET_SYSCALL_USER_DISPATCH), and ours would come to it as signals at this moment; try again later",
		(int)s->target->pid, s->target->name);
}

int remote_choose_victim(struct stop *s, struct held **victim, long *harmless,
			 struct dinst_error *e)
{
	const struct held *barred = NULL, *unread;
	struct held *best = NULL;

	/* Each looks at all threads, and as a rule all are under the same filter. */
	for (unsigned tries = 0; !best && tries < BARRED_MAX; tries++) {
		best = best_thread(s);
		if (!best)
			break;
		if (!may_end_in_call(best, harmless)) {
			barred = barred ? barred : best;
			best = NULL;
		}
	}
	if (!best && barred)
		return dinst_fail(
			e, DINST_REFUSED,
			"process %d (%s): the seccomp filter of thread %d lets no harmless system call pass, such as getpid: it could not survive the end of dinst in the middle of one of ours",
			(int)s->target->pid, s->target->name, (int)barred->pub.tid);
	if (!best && some_thread_is_dispatched(s))
		return remote_is_dispatched(s, e);
	unread = best ? NULL : find_unread(s);
	if (unread)
		return fail_unread(s, unread, e);
	if (!best)
		return dinst_fail(
			e, DINST_REFUSED,
			"process %d (%s) has no thread that can make a system call for us",
			(int)s->target->pid, s->target->name);
	if (!lift_filter(best))
		return target_explain_filter(s->target->pid, e);
	if (stop_leave_sequence(s, &best->pub) < 0)
		return fail_unread(s, best, e);
	*victim = best;
	return 0;
}
