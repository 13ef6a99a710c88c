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
 * no stop. Nobody stands still for that, but for a moment who has run for so long that it may be anywhere.
 *
 * A tracee that runs can be let go by the end of its tracer only; what has come
 * for it by then, it gets. So this is done where it matters only, and the end
 * follows soon.
 */
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "inject/control.h"

enum {
	STRAGGLER_NS = 200000,	    /* one look at one of them */
	STRAGGLERS_NS = 1000000000, /* at all of them */
	RETURN_NS = 1000000000,	    /* for all to be back in their calls */
	STARVED_S = 10,		    /* for those of all these who only get no CPU */
	RETURN_RUN_NS = 100000,	    /* on a CPU: the way back takes far less */
	IN_MOST = 8,	  /* who was in its call so often when it was interrupted once more is */
	ROUND_NS = 10000, /* between two looks at them; doubled each time */
	ROUND_NS_MAX = 200000,
	REST_NS_MAX = 20000000, /* where a round takes longer */
	LOOKS = 16,
	LOOK_NS = 1000000, /* between two looks at them while others are stopped yet */
};

/* Lets one thread go for good, with a signal that it stands still for, or 0. */
static void let_go_with(struct held *h, int signal)
{
	/* ESRCH: it was killed; nothing to let go. */
	tracee_detach(h->pub.tid, signal);
	h->stopped = false;
	h->seized = false;
	h->returning = false;
}

static void let_go(struct held *h)
{
	let_go_with(h, 0);
}

/*
 * Whether the thread has to be watched on its way back into its call. Not where the program handles no
 * signal; nor where it would run without the filter that a remote call has suspended; where privileges
 * would be withheld from what it executes; or while others stand still until we are done.
 */
static bool has_to_be_watched(const struct stop *s, const struct held *h)
{
	const long number = arch_syscall_number(&h->pub.regs);

	return arch_will_restart(&h->pub.regs) && s->caught && !s->nested && !h->pub.foreign &&
	       !h->pub.group_stopped && !h->seccomp_suspended && number != SYS_execve &&
	       number != SYS_execveat;
}

/*
 * Whether the thread has to be met at a SIGSTOP that waits for it, since that may be none that stops it: it is let go there.
 * Its filter holds again. Who stands still for job control does not go on either way.
 */
static bool has_to_be_met(const struct stop *s, struct held *h)
{
	if (!s->is_init || h->pub.foreign || h->pub.group_stopped ||
	    !tracee_is_pending(h->pub.tid, SIGSTOP))
		return false;
	if (h->seccomp_suspended)
		h->seccomp_suspended = tracee_restore_seccomp(h->pub.tid) != 0;
	return !h->seccomp_suspended;
}

/*
 * A thread that executes a program gets the leader's id, whatever was known of that: nothing of the
 * old one must be written into the new program.
 */
static bool is_another(const struct held *h)
{
	struct arch_regs now;

	return h->pub.leader &&
	       (tracee_get_regs(h->pub.tid, &now) || arch_pc(&now) != arch_pc(&h->original) ||
		arch_sp(&now) != arch_sp(&h->original));
}

/* Lets one thread run as it was, if it stands still. */
static void release(struct stop *s, struct held *h)
{
	uint64_t kept;

	if (!h->stopped || h->gone)
		return;
	if (s->executed || is_another(h)) {
		let_go(h);
		s->left_attached = true;
		return;
	}
	stop_restart_finish(s, h);
	if (h->pub.changed && memcmp(&h->pub.regs, &h->original, sizeof(h->original)))
		tracee_set_regs(h->pub.tid, &h->pub.regs);
	if ((has_to_be_watched(s, h) || has_to_be_met(s, h)) && !tracee_resume(h->pub.tid, 0)) {
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
 * Some calls wait with a signal mask of their own, which is not that of a thread on its way back.
 * Whether the interrupted call would have been told of `signal`; no if we cannot know. (0 and what has no handler
 * would have had no effect, and another one may follow before the call is made.)
 */
static bool call_is_told(const struct stop *s, const struct held *h, int signal)
{
	const struct arch_regs *regs = &h->pub.regs;
	const uint64_t bit = signal ? 1ull << (signal - 1) : 0;
	uint64_t mask, at;

	/* That has other numbers, and its arguments elsewhere. */
	if (!stop_call_is_native(h))
		return true;
	switch (arch_syscall_number(regs)) {
	case SYS_rt_sigsuspend:
		at = (uint64_t)arch_syscall_argument(regs, 0);
		break;
	case SYS_ppoll:
		at = (uint64_t)arch_syscall_argument(regs, 3);
		break;
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
		at = (uint64_t)arch_syscall_argument(regs, 4);
		break;
	case SYS_pselect6:
	case SYS_io_pgetevents: /* a pointer to one and its size */
		at = (uint64_t)arch_syscall_argument(regs, 5);
		if (at && tracee_peek(h->pub.tid, at, &at))
			return false;
		break;
	case SYS_io_uring_enter: /* one or something else */
		return !arch_syscall_argument(regs, 4);
	default:
		return true;
	}
	if (!at)
		return true;
	return (s->caught & bit) && !tracee_peek(h->pub.tid, at, &mask) && !(mask & bit);
}

bool stop_call_ignores(const struct stop *s, const struct held *h, int signal)
{
	return signal && (s->caught >> (signal - 1) & 1) && arch_will_restart(&h->pub.regs) &&
	       !call_is_told(s, h, signal);
}

/*
 * It stands still once more, for `signal` or (0) since the kernel told us of a SIGCONT, or in a group-stop. Before
 * the call is made anew: as if the call had never been left. In a call: that goes on unless a
 * handler runs, as it would if it were not traced.
 */
static void put_right(struct stop *s, struct held *h, int signal)
{
	struct arch_regs regs;

	stop_restart_forget(s, h);
	if (tracee_get_regs(h->pub.tid, &regs))
		return;
	if (!h->back && arch_is_before_restart(&regs, &h->pub.regs, stop_call_is_native(h))) {
		if (call_is_told(s, h, signal))
			tracee_set_regs(h->pub.tid, &h->pub.regs);
	} else {
		h->pub.regs = regs;
		stop_restart_begin(h);
		h->in++;
		/* A call of ours that it has made has ended with the mask of its own one. */
		if (stop_call_ignores(s, h, signal)) {
			regs = h->pub.regs;
			arch_go_before_restart(&regs);
			tracee_set_regs(h->pub.tid, &regs);
		}
	}
	stop_sleep_keep(s, h, signal);
	h->back = !arch_will_restart(&h->pub.regs);
	h->run_ns = 0;
}

/* It goes on: for good, if it is in no call that it has to be back in, or was only to be met at a SIGSTOP. */
static void go_on(struct stop *s, struct held *h, int signal)
{
	if (h->asked && clock_ns() - h->since_ns > s->longest_ns)
		s->longest_ns = clock_ns() - h->since_ns;
	put_right(s, h, signal);
	if ((h->back || (s->is_init && !has_to_be_watched(s, h))) && !has_to_be_met(s, h))
		let_go_with(h, signal);
	else
		tracee_resume(h->pub.tid, signal);
}

/* The leader's id may be that of one of our tracees now, whose own is gone: it executed a program. */
static void find_executed(struct stop *s, const struct held *h)
{
	struct tracee_event event;

	s->left_attached = true;
	if (!h->pub.leader && !tracee_poll(h->tgid, true, &event) && event.kind == TRACEE_EXEC)
		tracee_detach(h->tgid, 0);
}

static void handle(struct stop *s, struct held *h, const struct tracee_event *event)
{
	switch (event->kind) {
	case TRACEE_SIGNAL:
		go_on(s, h, stop_deliverable(s, h, event->signal));
		break;
	case TRACEE_STOPPED:
		if (event->signal == SIGTRAP) {
			go_on(s, h, 0);
		} else {
			put_right(s, h, 0);
			let_go(h); /* a group-stop: there it stays */
		}
		break;
	case TRACEE_SYSCALL:
	case TRACEE_EXEC:
	case TRACEE_EVENT:
		let_go(h);
		break;
	case TRACEE_VANISHED:
		find_executed(s, h);
		/* fall through */
	case TRACEE_EXITED:
		h->returning = false;
		h->gone = true;
		break;
	}
	/* Whatever it stopped for: the interrupt is over (ptrace_stop() in kernel/signal.c). */
	h->asked = false;
}

/*
 * It has run for longer than the way back takes: it is through with its call, or works in it, or its
 * virtual CPU was taken away on that way. Interrupted once more it shows where it is, to handle().
 */
static void ask(struct stop *s, struct held *h)
{
	if (clock_ns() >= s->ask_until_ns)
		return;
	stop_go_first(s); /* as it is about to stand still */
	h->since_ns = clock_ns();
	h->asked = !tracee_interrupt(h->pub.tid);
}

/*
 * It sleeps: in its call, if not elsewhere. Who gets no CPU is waited for: in a container that has used
 * up its share that lasts some tenths of a second. (The time of one that runs is known as of the
 * last tick.)
 */
static bool is_back(struct stop *s, struct held *h)
{
	struct proc_stat stat;
	uint64_t run_ns;

	if (proc_thread_stat_read(h->tgid, h->pub.tid, &stat) || stat.state == 'Z' ||
	    stat.state == 'X') {
		h->asked = false; /* who exits does not stop any more */
		return true;
	}
	/* Asked, and still waiting for a CPU: nobody keeps it. */
	if (stat.state == 'R' && h->asked)
		h->since_ns = clock_ns();
	if (stat.state != 'R' || h->asked)
		return !h->asked && stat.state != 't'; /* of a stop we are about to be told */
	run_ns = proc_run_ns(h->pub.tid);
	if (!run_ns)
		return true; /* this kernel does not count it */
	if (!h->run_ns)
		h->run_ns = run_ns;
	if (run_ns <= h->run_ns + RETURN_RUN_NS)
		return false;
	if (h->in >= IN_MOST)
		return true; /* it works there: KVM_RUN for one */
	ask(s, h);
	return false;
}

/*
 * Looks once at all that are our tracees still, and run; how many may not be back. Who is back may
 * get signals all the same, as long as others are waited for. *came: somebody stood still.
 */
static size_t look_at_returning(struct stop *s, bool *came)
{
	struct tracee_event event;
	size_t left = 0, looked = 0;
	struct held *h;
	bool any = false;

	*came = false;
	for (size_t i = 0; i < s->held_count; i++) {
		h = &s->held[i];
		if (!h->returning)
			continue;
		/* Looking at many takes time, in which somebody may come to stand still. */
		if (looked++ % LOOKS == 0)
			any = tracee_any();
		if (any && !tracee_poll(h->pub.tid, h->pub.leader, &event)) {
			handle(s, h, &event);
			*came = true;
		} else if (!h->back) {
			h->back = is_back(s, h);
		}
		left += h->returning && !h->back;
	}
	return left;
}

/*
 * Threads that were interrupted but did not stop in time must not just be left
 * to the kernel: their system call has been woken up, and would end with EINTR
 * (stop_restart.c). Each is let go as soon as it stops; nobody waits for it. One look at each: false if
 * there was none. *looked: when we looked at those who return.
 */
static bool look_at_stragglers(struct stop *s, uint64_t *looked)
{
	bool came, any = false;
	struct held *h;
	size_t at = 0;

	while ((h = stop_next_straggler(s, &at))) {
		tracer_arm(&s->tracer, clock_ns() + STRAGGLER_NS);
		if (!held_settle(s, h))
			release(s, h);
		any = true;
		if (clock_ns() < *looked + LOOK_NS)
			continue;
		look_at_returning(s, &came);
		*looked = clock_ns();
	}
	return any;
}

/* It will be seen to stop as soon as it gets a CPU, or stands still already. */
static bool is_about_to_stop(const struct held *h)
{
	struct proc_stat stat;

	return !proc_thread_stat_read(h->tgid, h->pub.tid, &stat) &&
	       (stat.state == 'R' || stat.state == 't' || stat.state == 'T');
}

static bool is_anybody_about_to_stop(const struct stop *s)
{
	for (size_t i = 0; i < s->held_count; i++) {
		const struct held *h = &s->held[i];

		if (((held_is_awaited(h) && h->interrupted) || (h->returning && h->asked)) &&
		    is_about_to_stop(h))
			return true;
	}
	return false;
}

/*
 * Whether to wait on: in any case until `until_ns`, and for who gets no CPU longer, where nobody stands still
 * until we are done.
 */
static bool has_time(const struct stop *s, uint64_t until_ns)
{
	const uint64_t now = clock_ns();

	return now < until_ns || (!s->nested && now < until_ns + STARVED_S * UINT64_C(1000000000) &&
				  is_anybody_about_to_stop(s));
}

static void release_stragglers(struct stop *s)
{
	uint64_t looked = clock_ns();
	const uint64_t until = looked + STRAGGLERS_NS;

	while (look_at_stragglers(s, &looked) && has_time(s, until))
		stop_goes_on();
}

static void rest(uint64_t ns)
{
	const struct timespec t = {0, (long)(ns < REST_NS_MAX ? ns : REST_NS_MAX)};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

static bool is_somebody_asked(const struct stop *s)
{
	for (size_t i = 0; i < s->held_count; i++)
		if (s->held[i].returning && s->held[i].asked)
			return true;
	return false;
}

/*
 * Until all are back, and for a last look in which nobody stands still: our end follows. Not in time: who was
 * interrupted by us is waited for all the same, once more as long, since its call has been woken up.
 * Where many have no CPU, looking at them does not take it: half of the time, nobody is looked at.
 */
static void wait_for_returning(struct stop *s)
{
	uint64_t looked = clock_ns(), until = looked + RETURN_NS, pause = ROUND_NS, took;
	bool came, asked;

	s->ask_until_ns = until;
	while ((look_at_returning(s, &came) || came) && has_time(s, until + RETURN_NS)) {
		stop_goes_on();
		took = clock_ns() - looked;
		asked = is_somebody_asked(s);
		if (!asked)
			stop_step_back(s);
		if (!asked && clock_ns() >= until)
			break;
		if (came)
			pause = ROUND_NS;
		rest(asked || took < pause ? pause : took);
		if (2 * pause <= ROUND_NS_MAX)
			pause *= 2;
		/* One that could not be woken up then may be awake by now. */
		looked = clock_ns();
		look_at_stragglers(s, &looked);
		looked = clock_ns();
	}
	stop_step_back(s);
}

/*
 * Until nobody is just about to be seen to stop for a signal without effect. We go first from the last look to our
 * end, which follows at once.
 */
static void wait_for_woken(struct stop *s)
{
	const uint64_t until = clock_ns() + STARVED_S * UINT64_C(1000000000);
	uint64_t looked, pause = ROUND_NS;
	bool woken, came;

	while (!s->nested && stop_is_somebody_left(s)) {
		stop_go_first(s);
		woken = stop_is_somebody_woken(s);
		stop_attend(s);
		look_at_returning(s, &came);
		if ((!woken && !came) || clock_ns() >= until)
			return;
		stop_step_back(s);
		stop_goes_on();
		rest(pause);
		if (2 * pause <= ROUND_NS_MAX)
			pause *= 2;
		looked = clock_ns();
		look_at_stragglers(s, &looked);
	}
}

void stop_release(struct stop *s)
{
	struct held *leader = s->is_init ? stop_find_held(s, s->target->pid) : NULL;

	/* The leader's being traced is what keeps the kernel from ignoring what is sent to the process. */
	if (leader)
		release(s, leader);
	for (size_t i = s->held_count; i-- > 0;)
		release(s, &s->held[i]);
	stop_step_back(s);
	release_stragglers(s);
	wait_for_returning(s);
	wait_for_woken(s);
	stop_goes_on();
	tracer_arm(&s->tracer, 0);
	stop_restart_expire(s);
	for (size_t i = 0; i < s->held_count; i++)
		s->left_attached |= s->held[i].seized && !s->held[i].gone;
}
