/* SPDX-License-Identifier: MIT */
/*
 * stop_seccomp.c - whether code in the target may make a system call.
 *
 * Filters are run over a description of the call as the thread would make it
 * now; where they cannot be read, or do anything but let it pass, it may not.
 */
#include "inject/control.h"

bool stop_may_call(struct stop *s, long number, const long arguments[6])
{
	for (size_t i = 0; i < s->held_count; i++) {
		const struct held *h = &s->held[i];
		struct arch_regs regs = h->pub.regs;

		/* Not told: the kernel has none. */
		if (!h->stopped || h->gone || h->seccomp <= 0)
			continue;
		for (unsigned n = 0; n < 6; n++)
			arch_set_syscall_argument(&regs, n, arguments[n]);
		if (!tracee_filters_allow(h->pub.tid, number, &regs))
			return false;
	}
	return true;
}
