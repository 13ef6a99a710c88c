/* SPDX-License-Identifier: MIT */
/*
 * stop_restart.c - system calls that our stop would have cut short.
 *
 * Most interrupted calls are restarted by the kernel. Some return EINTR
 * instead: epoll_wait, epoll_pwait, epoll_pwait2, rt_sigtimedwait, semtimedop,
 * io_getevents, recv and accept with a receive timeout, reads of inotify. When
 * we are the reason, the call is made to restart unless a handler runs: as soon
 * as the thread is seen stopped, so that our death in the stop changes nothing.
 *
 * Sleeps, poll and futex go on by restart_syscall, which a seccomp filter may
 * answer with death: under a filter that does not surely let it pass the call
 * itself is made again instead.
 *
 * A restarted call begins its relative timeout anew. Where the timeout is in a
 * register it is shortened by what had passed; where it is behind a pointer
 * (epoll_pwait2, rt_sigtimedwait, semtimedop, io_getevents; under such
 * a filter nanosleep and futex) or belongs to the socket there is no safe place to write another one, and the call may last
 * longer, by at most the time that it had waited before the last stop. A call is not made
 * shorter than the target asked for; but code that does not load the register before each call
 * (a system call instruction in a loop of its own) keeps what we wrote until a stop finds that out. Other code
 * may ask for just that by chance, as an event loop that computes its timeouts: what is in the register proves nothing.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "inject/control.h"

enum {
	NS_PER_MS = 1000000,
	OVER_NS = 100000000,  /* a thread is back in its call by then */
	RESTART_BLOCK = -516, /* ERESTART_RESTARTBLOCK (include/linux/errno.h) */
	/* Of 32-bit calls (arch/x86/entry/syscalls/syscall_32.tbl). */
	NARROW_RESTART = 0,
	NARROW_CLOSE = 6,
};

bool stop_call_is_native(const struct held *h)
{
	uint8_t before[ARCH_SYSCALL_MAX];
	uint64_t word;

	if (tracee_peek(h->pub.tid, arch_pc(&h->pub.regs) - sizeof(word), &word))
		return true;
	memcpy(before, (uint8_t *)&word + sizeof(word) - sizeof(before), sizeof(before));
	return arch_is_native_call(before);
}

/* Calls that take a relative timeout in milliseconds as an argument. */
static int timeout_argument(long number)
{
	switch (number) {
#ifdef SYS_epoll_wait
	case SYS_epoll_wait:
#endif
	case SYS_epoll_pwait:
		return 3;
#ifdef SYS_poll
	case SYS_poll: /* under such a filter */
		return 2;
#endif
	default:
		return -1;
	}
}

static struct restart *find(struct target *t, pid_t tid)
{
	for (size_t i = 0; i < t->restart_count; i++)
		if (t->restarts[i].tid == tid)
			return &t->restarts[i];
	return NULL;
}

static struct restart *add(struct target *t, pid_t tid)
{
	size_t capacity = t->restart_capacity ? 2 * t->restart_capacity : 16;
	struct restart *restarts;

	if (t->restart_count == t->restart_capacity) {
		restarts = realloc(t->restarts, capacity * sizeof(*restarts));
		if (!restarts)
			return NULL; /* the call starts anew, as if never seen */
		t->restarts = restarts;
		t->restart_capacity = capacity;
	}
	restarts = &t->restarts[t->restart_count++];
	memset(restarts, 0, sizeof(*restarts));
	restarts->tid = tid;
	return restarts;
}

/*
 * How long the thread has certainly slept in this call since its last release. A loop calls again and again with
 * the same stack pointer and the same arguments, and may ask by chance for just what we wrote, so looking alike is
 * not enough: the thread has slept exactly once (its two voluntary
 * switches are that sleep and our stop) and slept when we came, and then the sleep was in this call:
 * the time that has passed without what it spent on a CPU or waiting for one. (One that ran may have slept
 * elsewhere, and have been interrupted where it was about to sleep in the call.)
 */
static uint64_t time_in_call(const struct restart *r, const struct proc_usage *usage,
			     const struct held *h)
{
	uint64_t passed = h->since_ns > r->released_ns ? h->since_ns - r->released_ns : 0;
	uint64_t busy;

	if (h->state != 'S' || !usage->known || !r->usage.known ||
	    usage->sleeps != r->usage.sleeps + 2)
		return 0;
	busy = usage->run_ns - r->usage.run_ns + usage->wait_ns - r->usage.wait_ns;
	return passed > busy ? passed - busy : 0;
}

static bool is_same_place(const struct restart *r, const struct stop_thread *thread)
{
	return r->sp == arch_sp(&thread->regs) && r->pc == arch_pc(&thread->regs) &&
	       r->number == arch_syscall_number(&thread->regs);
}

/*
 * A call of which nothing proves that it is the one of the last stop gets the time that it asks for. Is it what
 * we left in the register? Then it is that call, or code that leaves the register as it is from call to call: if the
 * call that this was left of is over it is the latter, and gets its own value back. (Code that was seen to have
 * another one there may have loaded it, or was entered anew: it is believed once.) Returns what it is to wait for.
 */
static long begin_timeout(struct restart *r, bool same_place, long timeout, uint64_t now)
{
	if (!same_place)
		r->loads = false;
	else if (timeout != r->written)
		r->loads = true;
	if (!same_place || timeout != r->written || r->written == r->original)
		r->original = timeout;
	else if (now >= r->end_ns + OVER_NS && r->loads)
		r->loads = false; /* once it may be chance */
	else if (now >= r->end_ns + OVER_NS)
		timeout = r->original;
	r->end_ns = now + (uint64_t)timeout * NS_PER_MS;
	return timeout;
}

/* Continues a call with what is left of its timeout, if it is one that we know. */
static void continue_timeout(struct stop *s, struct held *h, unsigned argument)
{
	struct stop_thread *thread = &h->pub;
	const long timeout = (int)arch_syscall_argument(&thread->regs, argument);
	struct restart *r = find(s->target, thread->tid);
	struct proc_usage usage;
	uint64_t now, passed = 0;
	bool same_place;

	if (timeout <= 0)
		return;
	proc_usage_read(thread->tid, &usage);
	now = clock_ns();
	if (!r)
		r = add(s->target, thread->tid);
	if (!r)
		return;
	same_place = is_same_place(r, thread);
	if (same_place && timeout == r->written)
		passed = time_in_call(r, &usage, h);
	if (passed) {
		r->end_ns = h->since_ns - passed + (uint64_t)timeout * NS_PER_MS;
		/* Never 0: see above. */
		r->written =
			r->end_ns > now ? (long)((r->end_ns - now + NS_PER_MS - 1) / NS_PER_MS) : 1;
	} else {
		r->written = begin_timeout(r, same_place, timeout, now);
	}
	if (r->written != timeout) {
		arch_set_syscall_argument(&thread->regs, argument, r->written);
		thread->changed = true;
	}
	r->sp = arch_sp(&thread->regs);
	r->pc = arch_pc(&thread->regs);
	r->number = arch_syscall_number(&thread->regs);
	r->usage = usage;
	r->released_ns = now;
	r->serial = s->serial;
}

/*
 * A thread that we stopped before sleeps in restart_syscall: what it had called is known no more. Under
 * a filter that came since only EINTR is left.
 */
static bool is_past_restart(const struct held *h)
{
	const long number = stop_call_is_native(h) ? SYS_restart_syscall : NARROW_RESTART;

	return arch_syscall_result(&h->pub.regs) == RESTART_BLOCK &&
	       arch_syscall_number(&h->pub.regs) == number;
}

/* Do its filters let pass what the kernel would go on with its call by? */
static bool may_restart(const struct held *h)
{
	const bool native = stop_call_is_native(h);

	return tracee_filters_allow(h->pub.tid, native ? SYS_restart_syscall : NARROW_RESTART,
				    native, &h->pub.regs);
}

/* Would the call end with EINTR, or with the filter's verdict, only because of us? */
static bool is_cut_short(const struct held *h)
{
	const struct arch_regs *regs = &h->pub.regs;
	const long number = arch_syscall_number(regs);

	if (!arch_in_syscall(regs))
		return false;
	if (arch_syscall_result(regs) == RESTART_BLOCK)
		return held_is_filtered(h) && !may_restart(h);
	/* The verifier gives up at any signal; nothing has been made by then (kernel/bpf/verifier.c). */
	if (arch_syscall_result(regs) == -EAGAIN && number == SYS_bpf)
		return arch_syscall_argument(regs, 0) == BPF_PROG_LOAD && stop_call_is_native(h);
	/* An interrupted close() has closed the descriptor: never twice (close(2)). */
	return arch_syscall_result(regs) == -EINTR &&
	       number != (stop_call_is_native(h) ? SYS_close : NARROW_CLOSE);
}

void stop_restart_begin(struct held *h)
{
	h->restarted = is_cut_short(h);
	if (!h->restarted)
		return;
	if (is_past_restart(h))
		arch_end_interrupted(&h->pub.regs);
	else
		arch_restart_interrupted(&h->pub.regs);
	/* Should this fail the thread is dead, and the next request says so. */
	tracee_set_regs(h->pub.tid, &h->pub.regs);
	h->original = h->pub.regs;
}

void stop_restart_finish(struct stop *s, struct held *h)
{
	int argument;

	/* While it stood still another thread may have put both under a filter. */
	if (!h->restarted && arch_in_syscall(&h->pub.regs) &&
	    arch_syscall_result(&h->pub.regs) == RESTART_BLOCK)
		stop_restart_begin(h);
	if (!h->restarted || !arch_in_syscall(&h->pub.regs))
		return;
	argument = timeout_argument(arch_syscall_number(&h->pub.regs));
	if (argument >= 0 && stop_call_is_native(h))
		continue_timeout(s, h, (unsigned)argument);
}

void stop_restart_forget(struct stop *s, const struct held *h)
{
	struct restart *r = find(s->target, h->pub.tid);

	if (r)
		r->usage.known = false;
}

/*
 * What we wrote may still be in the register of a thread that was in no such call now: the next stop that
 * meets it in one has to know. How often it slept tells nothing then.
 */
static bool is_over(struct stop *s, struct restart *r)
{
	const struct held *h = stop_find_held(s, r->tid);

	if (r->serial == s->serial || !s->gathered)
		return false;
	r->usage.known = false;
	return !h || h->gone || (r->written == r->original && !r->loads);
}

void stop_restart_expire(struct stop *s)
{
	struct target *t = s->target;
	size_t kept = 0;

	for (size_t i = 0; i < t->restart_count; i++)
		if (!is_over(s, &t->restarts[i]))
			t->restarts[kept++] = t->restarts[i];
	t->restart_count = kept;
}
