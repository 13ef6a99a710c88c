/* SPDX-License-Identifier: MIT */
/*
 * stop_leader.c - a process whose main thread has exited while others live.
 *
 * Its id stays listed, as a zombie that cannot be seized and never stops, until the last thread has
 * ended or another one executes a program: that one has the id then.
 */
#include <string.h>

#include "inject/control.h"

bool stop_leader_has_exited(struct stop *s, struct held *h)
{
	struct proc_stat stat;

	if (!h->pub.leader || proc_thread_stat_read(h->tgid, h->pub.tid, &stat) ||
	    stat.state != 'Z')
		return false;
	h->gone = true;
	s->left_attached = true;
	return true;
}

bool stop_leader_is_another(struct stop *s)
{
	struct proc_stat stat;
	struct held *h = NULL;

	for (size_t i = 0; i < s->held_count && !h; i++)
		if (s->held[i].pub.tid == s->target->pid && !s->held[i].gone)
			h = &s->held[i];
	if (!h || h->seized || h->pub.kernel_worker ||
	    proc_thread_stat_read(h->tgid, h->pub.tid, &stat) || strchr("ZXx", stat.state))
		return false;
	h->gone = true;
	return true;
}
