/* SPDX-License-Identifier: MIT */
/*
 * stop_settle.c - what has become of a tracee, and what to do about it.
 *
 * A thread that is met in another stop than ours gets its signal at once and, where it was
 * interrupted, is caught just after. Signals that nobody handles come to it as well, as long as it is
 * traced: none may end its system call (stop_restart.c), nor shorten its sleeps (stop_sleep.c).
 */
#include <errno.h>
#include <signal.h>

#include "inject/control.h"

enum { AT_ONCE = 64 }; /* who gets signals faster than we look does not keep us */

bool held_is_awaited(const struct held *h)
{
	return h->seized && !h->stopped && !h->gone && !h->lost && !h->returning;
}

static void read_state(struct stop *s, struct held *h)
{
	h->gone = tracee_get_regs(h->pub.tid, &h->pub.regs) != 0;
	h->stopped = !h->gone;
	h->original = h->pub.regs;
	h->pub.changed = false;
	stop_restart_begin(h);
	stop_sleep_keep(s, h, 0);
	h->rseq_unknown = tracee_get_rseq(h->pub.tid, &h->pub.rseq, &h->pub.rseq_size,
					  &h->pub.rseq_signature) == -EIO;
}

/* It stands still for something else: that goes first, and where we want to stop it we do so just behind. */
static int go_on(struct held *h, int signal)
{
	if (h->interrupted)
		tracee_interrupt(h->pub.tid);
	tracee_resume(h->pub.tid, signal);
	return -EAGAIN;
}

int stop_deliverable(const struct stop *s, const struct held *h, int signal)
{
	const bool is_ignored = signal == SIGSTOP && s->is_init && !h->pub.foreign &&
				tracee_knows_sender(h->pub.tid);

	return is_ignored ? 0 : signal;
}

/* A signal was met before our stop, or (0) something that it need not know of. */
static int deliver(struct stop *s, struct held *h, int signal)
{
	if (!tracee_get_regs(h->pub.tid, &h->pub.regs)) {
		stop_restart_begin(h);
		stop_sleep_keep(s, h, signal);
	}
	return go_on(h, signal);
}

/* What has become of a thread: 0 if it stands still now, -EAGAIN if it goes on, -ESRCH if it is gone. */
static int meet(struct stop *s, struct held *h, const struct tracee_event *event)
{
	switch (event->kind) {
	case TRACEE_STOPPED:
		/* Told of a SIGCONT, as the threads of a process are that is traced. */
		if (event->signal == SIGTRAP && !h->interrupted)
			return deliver(s, h, 0);
		h->interrupted = true;
		h->pub.group_stopped = event->signal != SIGTRAP;
		read_state(s, h);
		return h->gone ? -ESRCH : 0;
	case TRACEE_EXEC:
		if (h->pub.foreign) {
			/* It has left the target's memory: none of ours. */
			tracee_detach(h->pub.tid, 0);
			h->gone = true;
			return -ESRCH;
		}
		s->executed = true;
		h->stopped = true;
		return 0;
	case TRACEE_SIGNAL:
		return deliver(s, h, stop_deliverable(s, h, event->signal));
	case TRACEE_SYSCALL:
	case TRACEE_EVENT:
		return go_on(h, 0);
	case TRACEE_EXITED:
	case TRACEE_VANISHED:
		break;
	}
	h->gone = true;
	s->suspect |= h->pub.leader || event->kind == TRACEE_VANISHED;
	return -ESRCH;
}

int held_settle(struct stop *s, struct held *h)
{
	struct tracee_event event;
	int error;

	h->stopped = false;
	do {
		error = tracee_wait(&s->tracer, h->pub.tid, h->pub.leader, &event);
		if (!error)
			error = meet(s, h, &event);
	} while (error == -EAGAIN);
	return error;
}

static bool attend_to(struct stop *s, struct held *h)
{
	struct tracee_event event;

	if (!held_is_awaited(h) || h->interrupted || tracee_poll(h->pub.tid, h->pub.leader, &event))
		return false;
	meet(s, h, &event);
	return true;
}

void stop_attend(struct stop *s)
{
	struct held *h;
	pid_t tid;

	for (int i = 0; i < AT_ONCE; i++) {
		tid = tracee_next();
		if (!tid)
			return;
		h = tid > 0 ? stop_find_held(s, tid) : NULL;
		if (!h || !attend_to(s, h))
			break;
	}
	/* What is told first is not for us now, perhaps, and hides what others have to tell. */
	for (size_t i = 0; i < s->held_count; i++)
		attend_to(s, &s->held[i]);
}
