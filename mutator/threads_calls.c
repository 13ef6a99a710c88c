/* SPDX-License-Identifier: MIT */
/*
 * threads_calls.c - whether the target's threads may make the system calls of
 * programs. The answer is asked for once for each piece of code, and looked for
 * at most a few times a second.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "inject/proc.h"
#include "inject/tasks.h"
#include "mutator/threads_private.h"

enum { VALID_NS = 200 * 1000 * 1000 };

static struct {
	const struct session *session;
	uint64_t incarnation, ns;
	int answer;
} known;

/* True if no thread has a filter: then nobody needs to be asked. */
static bool is_unfiltered(pid_t pid)
{
	size_t count = 0;
	pid_t *tids = task_list(pid, &count);
	bool unfiltered = count != 0;

	for (size_t i = 0; i < count && unfiltered; i++) {
		struct proc_status status;

		/* One that has ended needs nothing. */
		if (!proc_status_read(tids[i], &status) && status.seccomp > 0)
			unfiltered = false;
	}
	free(tids);
	return unfiltered;
}

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
	bool *may = arg;

	(void)e;
	*may = true;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]) && *may; i++)
		*may = stop_may_call(stop, calls[i].number, calls[i].arguments);
	return 0;
}

int threads_may_call(struct session *s, struct dinst_error *e)
{
	const uint64_t now = clock_ns();
	struct stop_report report = {0};
	bool may = true;
	int status = 0;

	if (known.session != s || known.incarnation != s->incarnation ||
	    now - known.ns >= VALID_NS) {
		if (!is_unfiltered(s->pid)) {
			status = target_stop(s->target, NULL, ask, &may, &report, e);
			session_note_stop(s, &report, NULL);
		}
		if (status < 0)
			return 0;
		known.session = s;
		known.incarnation = s->incarnation;
		known.ns = now;
		known.answer = may;
	}
	if (!known.answer)
		dinst_fail(
			e, DINST_REFUSED,
			"process %d runs under a seccomp filter that may forbid it the system "
			"calls that this needs (or the filter cannot be read: run dinst as root)",
			(int)s->pid);
	return known.answer;
}
