/* SPDX-License-Identifier: MIT */
/*
 * remote.h - making a stopped thread of the target run system calls for us.
 *
 * The program heals itself (arch.h, remote programs): the mutator may die at
 * any moment. Never single-steps, never inserts a trap, never changes a signal
 * mask. A signal that wants delivery goes first, with the registers put back.
 * Victims are never inside a restartable sequence (or are moved to its abort
 * address for good), never io_uring workers, never in restart_syscall under a
 * seccomp filter.
 */
#ifndef DINST_INJECT_REMOTE_H
#define DINST_INJECT_REMOTE_H

#include "inject/target.h"

/*
 * Called at the entry stop of call number `next` (0 .. count-1) with the
 * results so far, while the target stands still in between: the place to copy
 * a descriptor out of it. A negative answer makes the rest fail.
 */
typedef int (*remote_between)(struct stop *s, size_t next, const long *results, void *arg,
			      struct dinst_error *e);

/*
 * Runs the program on some thread of the stopped target. `scratch` is an
 * address in executable memory of ours with ARCH_REMOTE_MAX writable bytes
 * (through *scratch_map), or 0: then the unused zero tail of some module's last
 * executable page serves, and is zero again afterwards.
 * results[i] gets what call i returned (negative errno on failure); calls that
 * were skipped get -ECANCELED. Returns an error only when the machinery failed: some
 * of the calls may have been made then, as their results tell (DINST_BUSY: the target
 * gets signals faster than calls can be made, or a thread is still at them), and
 * target_left_calls() says so from then on.
 */
int remote_run(struct stop *s, const struct arch_remote_program *program, taddr_t scratch,
	       void *scratch_map, remote_between between, void *arg, long *results,
	       struct dinst_error *e);

/* The thread that runs the program; for `between`, 0 elsewhere. */
pid_t remote_victim(const struct stop *s);

/* What there was behind the code of modules, where programs run that have no arena yet. */
struct remote_tails {
	size_t cleaned; /* modules put right */
	pid_t inside;	/* a thread that is in such a program, or comes back to it; 0: none */
	size_t unknown; /* what looks like one where nobody is, and the module's file is not readable */
};

/*
 * Zeroes what the program of a mutator that died may have left behind the code
 * of modules: what begins as such a program does and is zero in the file, where no
 * thread is. What cannot be compared with the file is left as it is.
 */
int remote_clean_tails(struct stop *s, struct remote_tails *tails, struct dinst_error *e);

/*
 * True if remote_clean_tails() would find something, of whatever kind; looks only, while the
 * target runs.
 */
bool remote_tails_dirty(const struct target *t);

#endif
