/* SPDX-License-Identifier: MIT */
/*
 * fault.c - see fault.h. Must never do anything unless a test asked for it.
 */
#include <signal.h>
#include <unistd.h>

#include "inject/fault.h"

unsigned long fault_countdown;
unsigned long fault_passed;
void (*fault_hook)(void);

void fault_point(void)
{
	__atomic_add_fetch(&fault_passed, 1, __ATOMIC_RELAXED);
	if (__builtin_expect(fault_countdown == 0, 1) ||
	    __atomic_sub_fetch(&fault_countdown, 1, __ATOMIC_RELAXED) != 0)
		return;
	if (fault_hook)
		fault_hook();
	else
		kill(getpid(), SIGKILL);
}
