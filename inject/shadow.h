/* SPDX-License-Identifier: MIT */
/*
 * shadow.h - shadow stacks: may a call of the target be moved?
 *
 * Where a thread has one, the processor keeps a second copy of each return
 * address and faults when a return does not agree with it. A call that is moved
 * pushes its original return address itself and jumps, which the second stack
 * does not see. So before calls are moved somebody has to ask here.
 *
 *   1. shadow_offered() once: on most machines the answer is no, for good;
 *   2. shadow_is_on() before something is inserted, while the target runs.
 *
 * `proc` is where /proc is; tests have one of their own.
 */
#ifndef DINST_INJECT_SHADOW_H
#define DINST_INJECT_SHADOW_H

#include <stdbool.h>
#include <sys/types.h>

/* True if processor and kernel give shadow stacks to programs that ask for them. */
bool shadow_offered(const char *proc);

/*
 * True if a thread of the process has a shadow stack now, or if that cannot be
 * told. A new thread has one if the thread that made it has.
 */
bool shadow_is_on(const char *proc, pid_t pid);

#endif
