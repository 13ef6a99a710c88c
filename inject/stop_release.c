/* SPDX-License-Identifier: MIT */
/*
 * stop_release.c - from a process that stands still to one that runs as before.
 *
 * The kernel makes a system call anew that a stop has interrupted: it puts the
 * thread before the system call instruction again. A signal that comes between
 * that and the call finds a thread that is in no call: its handler would run,
 * and the call would begin, and wait, behind it, where without our stop it would have
 * ended with EINTR. On busy machines that moment lasts as long as the thread
 * waits for a CPU. So these threads run, but stay our tracees, until they are
 * seen to be back in their calls. Who gets a signal before gets the registers of the
 * interrupted call back first, so that the kernel decides as if there had been
 * no stop. Nobody stands still for that, and our death changes nothing else.
 *
 * A tracee that runs can be let go by the end of its tracer only; what has come
 * for it by then, it gets.
 */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "inject/control.h"

enum {
	STRAGGLER_NS = 200000,	    /* one look at one of them */
	STRAGGLERS_NS = 1000000000, /* at all of them */
	RETURN_NS = 300000000,	    /* for all to be back in their calls */
	RETURN_RUN_NS = 100000,	    /* on a CPU: many times what the way back takes */
	ROUND_NS = 10000,	    /* between two looks at them; doubled each time */
	ROUND_NS_MAX = 500000,
};

/* Lets one thread go for good. */
static void let_go(struct held *h)
{
	/* ESRCH: it was killed; nothing to let go. */
	tracee_detach(h->pub.tid, 0);
	h->stopped = false;
	h->seized = false;
	h->returning = false;
}

/* Lets one thread run as it was, if it stands still. */
static void release(struct stop *s, struct held *h)
{
	uint64_t kept;

	if (!h->stopped || h->gone)
		return;
	stop_restart_finish(s, h);
	if (h->pub.changed && memcmp(&h->pub.regs, &h->original, sizeof(h->original)))
		tracee_set_regs(h->pub.tid, &h->pub.regs);
	/* In a group-stop it would not stay where it is. */
	if (!s->executed && !h->pub.group_stopped && arch_will_restart(&h->pub.regs) &&
	    !tracee_resume(h->pub.tid, 0)) {
		h->stopped = false;
		h->returning = true;
		h->run_ns = 0;
	} else {
		let_go(h);
	}
	kept = clock_ns() - h->since_ns;
	if (h->since_ns && kept > s->longest_ns)
		s->longest_ns = kept;
}

/*
 * It stands still once more, for a signal or (0) since the kernel told us of a SIGCONT. Before the
 * call is made anew the signal goes first, as if the call had never been left. In a call, that goes on
 * unless a handler runs, as it would if it were not traced.
 */
static void go_on(struct held *h, int signal)
{
	struct arch_regs regs;

	if (!tracee_get_regs(h->pub.tid, &regs)) {
		if (!h->back && arch_is_before_restart(&regs, &h->pub.regs)) {
			tracee_set_regs(h->pub.tid, &h->pub.regs);
		} else {
			h->pub.regs = regs;
			stop_restart_begin(h);
		}
	}
	tracee_resume(h->pub.tid, signal);
	h->back = false;
	h->run_ns = 0;
}

static void handle(struct held *h, const struct tracee_event *event)
{
	switch (event->kind) {
	case TRACEE_SIGNAL:
		go_on(h, event->signal);
		break;
	case TRACEE_STOPPED:
		if (event->signal == SIGTRAP)
			go_on(h, 0);
		else
			let_go(h); /* a group-stop: there it stays */
		break;
	case TRACEE_SYSCALL:
	case TRACEE_EXEC:
	case TRACEE_EVENT:
		let_go(h);
		break;
	case TRACEE_EXITED:
	case TRACEE_VANISHED:
		h->returning = false;
		h->gone = true;
		break;
	}
}

/*
 * It sleeps, in its call if not elsewhere, or it has run for so long that it was there. The time
 * of one that runs is known as of the last tick.
 */
static bool is_back(struct held *h)
{
	struct proc_stat stat;
	uint64_t run_ns;

	if (proc_thread_stat_read(h->tgid, h->pub.tid, &stat))
		return true;
	if (stat.state != 'R')
		return stat.state != 't'; /* a stop, which we are about to be told */
	run_ns = proc_run_ns(h->pub.tid);
	if (!h->run_ns)
		h->run_ns = run_ns;
	return !run_ns || run_ns > h->run_ns + RETURN_RUN_NS;
}

/*
 * Looks once at all that are our tracees still, and run; how many may not be back. Who is back may
 * get signals all the same, as long as others are waited for.
 */
static size_t look_at_returning(struct stop *s)
{
	struct tracee_event event;
	size_t left = 0;
	struct held *h;

	for (size_t i = 0; i < s->held_count; i++) {
		h = &s->held[i];
		if (!h->returning)
			continue;
		if (!tracee_poll(h->pub.tid, h->pub.leader, &event)) {
			handle(h, &event);
			left += h->returning;
		} else if (!h->back) {
			h->back = is_back(h);
			left += !h->back;
		}
	}
	return left;
}

/*
 * Threads that were interrupted but did not stop in time must not just be left
 * to the kernel: their system call has been woken up, and would end with EINTR
 * (stop_restart.c). Each is let go as soon as it stops; nobody waits for it.
 */
static void release_stragglers(struct stop *s)
{
	uint64_t until = clock_ns() + STRAGGLERS_NS;
	struct held *h;
	bool more = true;
	size_t at;

	while (more && clock_ns() < until) {
		more = false;
		at = 0;
		while ((h = stop_next_straggler(s, &at))) {
			tracer_arm(&s->tracer, clock_ns() + STRAGGLER_NS);
			if (!held_settle(s, h))
				release(s, h);
			look_at_returning(s);
			more = true;
		}
	}
	tracer_arm(&s->tracer, 0);
}

static void wait_for_returning(struct stop *s)
{
	uint64_t until = clock_ns() + RETURN_NS;
	struct timespec pause = {0, ROUND_NS};

	while (look_at_returning(s) && clock_ns() < until) {
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		if (2 * pause.tv_nsec <= ROUND_NS_MAX)
			pause.tv_nsec *= 2;
	}
}

void stop_release(struct stop *s)
{
	for (size_t i = s->held_count; i-- > 0;)
		release(s, &s->held[i]);
	release_stragglers(s);
	wait_for_returning(s);
	stop_restart_expire(s);
	for (size_t i = 0; i < s->held_count; i++)
		s->left_attached |= s->held[i].seized && !s->held[i].gone;
}
