/* SPDX-License-Identifier: MIT */
/*
 * threads_calls.c - whether the target's threads may make the system calls of
 * programs. The answer is asked for once for each piece of code, and looked for
 * at most a few times a second.
 */
#include <sys/syscall.h>
#include <time.h>

#include "inject/proc.h"
#include "mutator/threads_private.h"

enum { VALID_NS = 200 * 1000 * 1000 };

static struct {
	const struct session *session;
	uint64_t incarnation, ns;
	enum { NEVER, NOT_YET, MAY } answer;
} known;

struct question {
	struct session *session;
	int answer;
};

static int ask(struct stop *stop, void *arg, struct dinst_error *e)
{
	static const struct {
		long number, arguments[6];
	} calls[] = {
		{SYS_clock_gettime, {CLOCK_MONOTONIC}},
		{SYS_clock_gettime, {CLOCK_THREAD_CPUTIME_ID}},
		{SYS_clock_gettime, {CLOCK_PROCESS_CPUTIME_ID}},
		{SYS_process_vm_readv, {0, 0, 1, 0, 1, 0}},
		{SYS_getpid, {0}},
		{SYS_gettid, {0}},
	};
	struct question *q = arg;
	bool may = true;

	(void)e;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]) && may; i++)
		may = stop_may_call(stop, calls[i].number, calls[i].arguments);
	if (!may)
		threads_forbid_calls(q->session, stop);
	q->answer = !may ? NEVER : threads_settle_filters(q->session, stop) ? MAY : NOT_YET;
	return 0;
}

int threads_may_still_call(struct session *s, struct dinst_error *e)
{
	known.session = NULL;
	return threads_may_call(s, e);
}

int threads_may_call(struct session *s, struct dinst_error *e)
{
	const uint64_t now = clock_ns();
	struct stop_report report = {0};
	struct question q = {.session = s};
	int status = 0;

	if (known.session != s || known.incarnation != s->incarnation ||
	    now - known.ns >= VALID_NS) {
		status = target_stop(s->target, NULL, ask, &q, &report, e);
		session_note_stop(s, &report, NULL);
		if (status < 0)
			return 0;
		known.session = s;
		known.incarnation = s->incarnation;
		known.ns = now;
		known.answer = q.answer;
	}
	if (known.answer == NOT_YET)
		dinst_fail(e, DINST_REFUSED,
			   "process %d has begun to put a seccomp filter on itself (or to provide "
			   "pages of its memory itself, by userfaultfd), or one that shares its "
			   "memory has, and it is not known to be done: try again when it is",
			   (int)s->pid);
	else if (known.answer == NEVER)
		dinst_fail(
			e, DINST_REFUSED,
			"process %d runs under a seccomp filter that may forbid it the system "
			"calls that this needs (or the filter cannot be read: run dinst as root), "
			"or makes its system calls itself (PR_SET_SYSCALL_USER_DISPATCH)",
			(int)s->pid);
	return known.answer == MAY;
}

/* Descriptors may be many: they are looked through at most a few times a second. */
static bool provides_pages(const struct session *s)
{
	static struct {
		const struct session *session;
		uint64_t incarnation, ns;
		bool provides;
	} last;
	const uint64_t now = clock_ns();

	if (last.session != s || last.incarnation != s->incarnation || now - last.ns >= VALID_NS) {
		last.session = s;
		last.incarnation = s->incarnation;
		last.ns = now;
		last.provides = proc_provides_pages(target_memory_tid(s->target));
	}
	return last.provides;
}

bool threads_may_read(struct session *s, struct dinst_error *e)
{
	if (!provides_pages(s))
		return true;
	dinst_fail(
		e, DINST_REFUSED,
		"process %d provides pages of its memory itself (userfaultfd): a thread that does so "
		"would wait for ever where inserted code reads one that is not there yet, so "
		"nothing of its memory is read",
		(int)s->pid);
	return false;
}
