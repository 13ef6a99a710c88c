/* SPDX-License-Identifier: MIT */
/*
 * stop_sleep.c - sleeps whose remainder the kernel writes over what they have asked for.
 *
 * nanosleep(&t, &t), in a loop that does not set t again: undisturbed t never changes. Interrupted, the
 * kernel writes what is left into t (nanosleep_copyout() in its kernel/time/hrtimer.c), and what it goes
 * on with, restart_syscall, does not undo that: all later sleeps would be shorter, and each stop would make
 * them shorter yet, towards a loop without rest.
 *
 * So t is read before a thread is traced and again before it is interrupted (where threads are many, only if
 * the first look has shown such a sleep), and is written back as soon as the thread is seen stopped: our death
 * in the stop changes nothing. Where a handler is about to run,
 * the call returns EINTR, and t has to be what is left: so it gets that back first.
 *
 * Never writes but over what the kernel has written in that very sleep, which is less than what was
 * there: the thread has slept, and did not wake up in between, from our look to our interrupt.
 */
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "inject/control.h"

enum {
	NS_PER_S = 1000000000,
	/* Of the C library's threads (cancelling, setuid), which struct stop's `caught` leaves out. */
	LIBRARY_FIRST = 32,
	LIBRARY_LAST = 33,
};

/* Where both arguments of such a call lead; 0 if it is none. Of restart_syscall only its memory tells. */
static taddr_t request_of(long number, const uint64_t arguments[6])
{
	const bool is_plain = arguments[0] && arguments[0] == arguments[1];
	const bool is_clock = arguments[2] == arguments[3] && !(arguments[1] & TIMER_ABSTIME);

	switch (number) {
	case SYS_nanosleep:
		return is_plain ? arguments[0] : 0;
	case SYS_clock_nanosleep:
		return is_clock ? arguments[2] : 0;
	case SYS_restart_syscall:
		return is_plain ? arguments[0] : is_clock ? arguments[2] : 0;
	default:
		return 0;
	}
}

/* What is known already stays where there is nothing better: whether it is about the same sleep is asked later. */
void stop_sleep_look(struct stop *s, struct held *h)
{
	struct sleep_time asked;
	struct proc_usage usage;
	struct proc_call call;
	struct proc_stat stat;
	taddr_t at;

	if (proc_call_read(h->pub.tid, &call))
		return;
	h->call = call.number;
	at = request_of(call.number, call.arguments);
	if (!at)
		return;
	/*
	 * In this order: if it sleeps on from here to the stop, that is what the call has asked for. One that a signal
	 * has woken up meanwhile, and that stands still for it, has the remainder there, but does not sleep.
	 */
	proc_usage_read(h->pub.tid, &usage);
	if (!usage.known || target_read(s->target, at, &asked, sizeof(asked), NULL) ||
	    proc_thread_stat_read(h->tgid, h->pub.tid, &stat) || stat.state != 'S')
		return;
	h->sleep = (struct sleep_call){.at = at, .sleeps = usage.sleeps, .asked = asked};
}

/* Still in the call that was seen, which the kernel goes on with, or begins anew? */
static bool is_in_call(const struct held *h)
{
	const struct arch_regs *regs = &h->pub.regs;
	uint64_t arguments[6];

	if (!h->sleep.at || !arch_will_restart(regs))
		return false;
	for (unsigned i = 0; i < 6; i++)
		arguments[i] = (uint64_t)arch_syscall_argument(regs, i);
	return request_of(arch_syscall_number(regs), arguments) == h->sleep.at &&
	       stop_call_is_native(h);
}

/*
 * It has slept once, or not at all, since it was seen: its voluntary switches are that sleep, which was
 * counted then, and the stop in which it is now. Or it goes on with what we have seen before in this stop.
 */
static bool is_same_sleep(struct held *h)
{
	struct proc_usage usage;
	bool same;

	proc_usage_read(h->pub.tid, &usage);
	same = (h->sleep.kept && arch_syscall_number(&h->pub.regs) == SYS_restart_syscall) ||
	       (usage.known && usage.sleeps <= h->sleep.sleeps + 1);
	h->sleep.sleeps = usage.sleeps + 1; /* the one that it goes back to */
	return same;
}

/* A process in the target's memory that is another one has handlers of its own. All, where that cannot be read. */
static uint64_t caught_by(const struct stop *s, const struct held *h)
{
	struct proc_status status;

	if (!h->pub.foreign)
		return s->caught;
	return proc_status_read(h->pub.tid, &status) ? ~UINT64_C(0) : status.caught;
}

static bool is_handled(const struct stop *s, const struct held *h, int signal)
{
	return signal && ((signal >= LIBRARY_FIRST && signal <= LIBRARY_LAST) ||
			  (caught_by(s, h) >> (signal - 1) & 1));
}

static bool is_time(const struct sleep_time *t)
{
	return t->s >= 0 && t->ns >= 0 && t->ns < NS_PER_S;
}

static bool is_less(const struct sleep_time *a, const struct sleep_time *b)
{
	return a->s < b->s || (a->s == b->s && a->ns < b->ns);
}

static bool read_time(const struct held *h, struct sleep_time *t)
{
	uint64_t s, ns;

	if (tracee_peek(h->pub.tid, h->sleep.at, &s) ||
	    tracee_peek(h->pub.tid, h->sleep.at + sizeof(s), &ns))
		return false;
	*t = (struct sleep_time){(int64_t)s, (int64_t)ns};
	return true;
}

/* The call will go on: it gets back what it has asked for. Seconds first: never too little in between. */
static void put_asked(const struct held *h)
{
	tracee_poke(h->pub.tid, h->sleep.at, (uint64_t)h->sleep.asked.s);
	tracee_poke(h->pub.tid, h->sleep.at + sizeof(h->sleep.asked.s),
		    (uint64_t)h->sleep.asked.ns);
}

/* A handler will run: as the kernel has left it. Seconds last. */
static void put_left(const struct held *h)
{
	tracee_poke(h->pub.tid, h->sleep.at + sizeof(h->sleep.left.s), (uint64_t)h->sleep.left.ns);
	tracee_poke(h->pub.tid, h->sleep.at, (uint64_t)h->sleep.left.s);
}

void stop_sleep_keep(struct stop *s, struct held *h, int signal)
{
	struct sleep_time now;
	bool same;

	if (!is_in_call(h) || !read_time(h, &now)) {
		h->sleep.at = 0;
		return;
	}
	if (is_handled(s, h, signal)) {
		if (h->sleep.kept && !memcmp(&now, &h->sleep.asked, sizeof(now)))
			put_left(h);
		h->sleep.at = 0; /* what it does next is another call */
		return;
	}
	same = is_same_sleep(h);
	if (!is_time(&now) || !is_less(&now, &h->sleep.asked))
		return;
	if (same) {
		h->sleep.left = now;
		h->sleep.kept = true;
		put_asked(h);
	} else {
		h->sleep.at = 0;
	}
}
