/* SPDX-License-Identifier: MIT */
/*
 * stop_woken.c - who has been woken up for a signal without effect.
 *
 * The kernel drops such a signal (SIGCHLD without a handler, for one) when it is sent. For a process that is traced
 * it is queued all the same, since the tracer may want to know (sig_ignored() in kernel/signal.c), and wakes
 * a thread up, whose call goes on as long as we look after it (stop_settle.c, stop_release.c). If our tracing
 * ended before that thread has got a CPU, epoll_wait() and the like would return EINTR.
 */
#include "inject/control.h"

/* Runs as our tracee, or is about to: our end lets it go. */
static bool is_left(const struct held *h)
{
	return h->seized && !h->stopped && !h->gone && !h->lost;
}

/*
 * It wants to run, and a signal waits that it does not block and has no handler for. (One for the process may
 * have woken up another thread: also that one is waited for then.)
 */
static bool is_woken(const struct held *h)
{
	struct proc_status status;
	struct proc_stat stat;

	return !proc_thread_stat_read(h->tgid, h->pub.tid, &stat) && stat.state == 'R' &&
	       !proc_status_read(h->pub.tid, &status) &&
	       (status.pending & ~status.blocked & ~status.caught);
}

bool stop_is_somebody_left(const struct stop *s)
{
	for (size_t i = 0; i < s->held_count; i++)
		if (is_left(&s->held[i]))
			return true;
	return false;
}

bool stop_is_somebody_woken(const struct stop *s)
{
	for (size_t i = 0; i < s->held_count; i++)
		if (is_left(&s->held[i]) && is_woken(&s->held[i]))
			return true;
	return false;
}
