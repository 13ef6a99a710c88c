/* SPDX-License-Identifier: MIT */
/*
 * stop_seccomp.c - whether threads are under filters, and whether code in the
 * target may make a system call.
 *
 * Filters are run over a description of the call as the thread would make it
 * now; where they cannot be read, or do anything but let it pass, it may not.
 */
#include "inject/control.h"

bool held_is_filtered(const struct held *h)
{
	struct proc_status status;
	int has = tracee_has_filters(h->pub.tid);

	if (has >= 0)
		return has > 0;
	return !proc_status_read(h->pub.tid, &status) && status.seccomp > 0;
}

bool stop_may_call(struct stop *s, long number, const long arguments[6])
{
	for (size_t i = 0; i < s->held_count; i++) {
		const struct held *h = &s->held[i];
		struct arch_regs regs = h->pub.regs;

		if (!h->stopped || h->gone || !held_is_filtered(h))
			continue;
		for (unsigned n = 0; n < 6; n++)
			arch_set_syscall_argument(&regs, n, arguments[n]);
		if (!tracee_filters_allow(h->pub.tid, number, &regs))
			return false;
	}
	return true;
}
