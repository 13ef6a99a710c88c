/* SPDX-License-Identifier: MIT */
/*
 * pid_space.h - pid namespaces (pid_namespaces(7)): which of them can be seen from ours.
 *
 * A process has a number in its own namespace and in each around that one, and is seen there only. So a
 * dinst inside of a container sees nobody who works on its programs from outside.
 */
#ifndef DINST_INJECT_PID_SPACE_H
#define DINST_INJECT_PID_SPACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The namespace of a process: its inode, which no other one that lives has; 0: it cannot be told. */
uint64_t pid_space(pid_t pid);
/* The same of ours. */
uint64_t pid_space_own(void);
/*
 * True if `space`, in which somebody has seen process `pid`, is ours, or within ours: who lives in there has
 * a number here. False, also where that cannot be told, if it is one around ours.
 */
bool pid_space_is_seen(uint64_t space, pid_t pid);

#endif
