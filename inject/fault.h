/* SPDX-License-Identifier: MIT */
/*
 * fault.h - places where a test lets the mutator die, or lets something happen to the target.
 *
 * A fault point stands before every step that changes the target or tells
 * where it may be changed: each ptrace request, each write to its memory, each
 * store into an arena. A test sets fault_countdown to N and the process is
 * killed with SIGKILL at the Nth point that it passes; or fault_hook is called
 * there, once, on the thread that passes it, and all goes on. Zero, the only
 * value outside tests, means never.
 */
#ifndef DINST_INJECT_FAULT_H
#define DINST_INJECT_FAULT_H

extern unsigned long fault_countdown;
extern void (*fault_hook)(void); /* NULL: die */

/* Points passed since the start; a test learns from it how many moments there are. */
extern unsigned long fault_passed;

void fault_point(void);

#endif
