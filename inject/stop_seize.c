/* SPDX-License-Identifier: MIT */
/*
 * stop_seize.c - one thread becomes a tracee, or is no obstacle, or says why not.
 *
 * Never waits for long: an exec in the target may wait for us, or for a disk, while others
 * stand still.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "inject/control.h"

enum {
	PAUSE_NS = 300000,
	DENIED_PATIENCE_NS = 30000000,
	DENIALS_MAX = 50,
	RUNNING_NS = 20000000, /* for one seize while everybody runs */
	STANDING_NS = 5000000,
};

/*
 * Seizing was not permitted: the thread is dying, or changes places with the
 * leader in an exec, or somebody else traces it, or an earlier try of ours has
 * not quite ended. 0 if the thread is no obstacle, -EAGAIN to try again, or a
 * code: `last` says that there is no more patience.
 */
static int seize_denied(struct stop *s, struct held *h, bool last, struct dinst_error *e)
{
	struct proc_status status, tracer;

	if (proc_status_read(h->pub.tid, &status)) {
		h->gone = true;
		return 0;
	}
	if (strchr("ZXx", status.state)) {
		/* A dead leader stays listed as long as other threads live. */
		h->gone = !h->pub.leader;
		return 0;
	}
	if (!status.tracer)
		return last ? target_explain_denial(s->target->pid, e) : -EAGAIN;
	if (proc_status_read(status.tracer, &tracer)) {
		/* It has ended just now; or it is hidden from us. */
		if (!last || (kill(status.tracer, 0) && errno == ESRCH))
			return -EAGAIN;
		return dinst_fail(
			e, DINST_TRACED,
			"process %d (%s) is already traced by process %d; end that tracer first",
			(int)s->target->pid, s->target->name, (int)status.tracer);
	}
	/* The kernel shows the parent, too, for a moment (target_facts.c, read_tracer()). */
	if ((tracer.tgid == getpid() || tracer.tgid == status.parent) && !last)
		return -EAGAIN;
	if (tracer.tgid == getpid())
		return dinst_fail(e, DINST_BUSY, "process %d (%s) is in another stop of ours",
				  (int)s->target->pid, s->target->name);
	return dinst_fail(
		e, DINST_TRACED,
		"process %d (%s) is already traced by process %d (%s); end that tracer first",
		(int)s->target->pid, s->target->name, (int)status.tracer, tracer.name);
}

/* One that hangs is ended by the timer's signals only: where others stand still, long before the deadline. */
static int seize(struct stop *s, pid_t tid)
{
	const bool stands = s->nested || s->deadline_ns;
	const uint64_t until = clock_ns() + (stands ? STANDING_NS : RUNNING_NS);
	int error;

	if (stands)
		tracer_arm(&s->tracer, until);
	error = tracee_seize(tid, until);
	if (stands)
		tracer_arm(&s->tracer, s->deadline_ns ? s->deadline_ns : until);
	return error;
}

int stop_seize(struct stop *s, struct held *h, struct dinst_error *e)
{
	const uint64_t patience = clock_ns() + DENIED_PATIENCE_NS;
	const struct timespec pause = {0, PAUSE_NS};
	int error, code;

	/* Both counts: one request alone may wait longer for an exec to end. */
	for (int denials = 0;; denials++) {
		error = seize(s, h->pub.tid);
		if (!error) {
			h->seized = true;
			return 0;
		}
		if (error == -ESRCH) {
			h->gone = true;
			return 0;
		}
		if (error == -ETIMEDOUT) {
			s->left_attached = true;
			return dinst_fail(
				e, DINST_BUSY,
				"process %d (%s) is just executing another program; try again later",
				(int)h->tgid, s->target->name);
		}
		if (error != -EPERM)
			return dinst_fail_errno(e, DINST_FAILED, -error,
						"cannot seize thread %d of process %d (%s)",
						(int)h->pub.tid, (int)s->target->pid,
						s->target->name);
		code = seize_denied(s, h, denials > DENIALS_MAX && clock_ns() > patience, e);
		if (code != -EAGAIN)
			return code;
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		if (!s->deadline_ns)
			stop_attend(s);
	}
}
