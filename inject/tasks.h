/* SPDX-License-Identifier: MIT */
/*
 * tasks.h - what /proc tells about the threads of a target: how they call
 * themselves, and where they are while they wait. Needs no stop; a thread that
 * has ended is an ordinary answer.
 */
#ifndef DINST_INJECT_TASKS_H
#define DINST_INJECT_TASKS_H

#include "inject/target.h"

/* The id that a thread of process `pid` has in its own pid namespace; 0 if it cannot be told: errno is why. */
pid_t task_own_id(pid_t pid, pid_t tid);

/*
 * The stack pointer of a thread that is blocked in the kernel or stopped; false
 * if it runs, or has ended, or may not be looked at.
 */
bool task_waits_at(pid_t pid, pid_t tid, taddr_t *sp);

/* The threads of `pid`, malloc'ed; NULL and 0 if there are none any more. */
pid_t *task_list(pid_t pid, size_t *count);

/* The stack pointer with which the process started to run its program; 0 if it cannot be told. */
taddr_t task_start_stack(pid_t pid);

/* Bytes that the main stack may grow to (RLIMIT_STACK), at most `most`. */
size_t task_stack_limit(pid_t pid, size_t most);

/* True if the two processes have their memory in common (CLONE_VM), as far as can be told. */
bool task_same_memory(pid_t a, pid_t b);

#endif
