/* SPDX-License-Identifier: MIT */
/*
 * target_exec.c - catching a process at its execve(), and letting it run.
 *
 * The tracer is a thread of its own, as in a stop: when it ends, the kernel
 * lets the process go. What is left behind on success is a plain SIGSTOP, which
 * anybody can end with SIGCONT. Never waits without a bound.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/fault.h"

struct catch
{
	pid_t pid;
	void (*armed)(void *arg);
	void *arg;
	unsigned timeout_ms;
	struct dinst_error *e;
	int code;
};

/* 0: go on; 1: done; or a code. */
static int handle(struct catch *c, const struct tracee_event *event, bool *executed)
{
	int signal = 0;

	switch (event->kind) {
	case TRACEE_EXITED:
	case TRACEE_VANISHED:
		return dinst_fail(c->e, DINST_GONE,
				  "process %d ended before it executed the program", (int)c->pid);
	case TRACEE_EXEC:
		*executed = true;
		fault_point();
		/* Taken before the first instruction: the way back to user mode delivers it. */
		if (syscall(SYS_tgkill, c->pid, c->pid, SIGSTOP))
			return dinst_fail_errno(c->e, DINST_FAILED, errno, "cannot hold process %d",
						(int)c->pid);
		break;
	case TRACEE_STOPPED:
		if (*executed && event->signal == SIGSTOP)
			return 1;
		break;
	case TRACEE_SIGNAL:
		signal = event->signal;
		break;
	case TRACEE_SYSCALL:
	case TRACEE_EVENT:
		break;
	}
	tracee_resume(c->pid, signal);
	return 0;
}

static int follow(struct catch *c, struct tracer *tracer)
{
	struct tracee_event event;
	bool executed = false;
	int error, status = 0;

	while (!status) {
		error = tracee_wait(tracer, c->pid, true, &event);
		if (error == -ETIMEDOUT)
			return dinst_fail(c->e, DINST_BUSY,
					  "process %d did not execute a program within %u ms",
					  (int)c->pid, c->timeout_ms);
		if (error)
			return dinst_fail_errno(c->e, DINST_FAILED, -error,
						"cannot wait for process %d", (int)c->pid);
		status = handle(c, &event, &executed);
	}
	if (status < 0)
		return status;
	error = tracee_detach(c->pid, 0);
	if (error)
		return dinst_fail(c->e, DINST_GONE, "process %d was killed", (int)c->pid);
	return 0;
}

static void *catch_main(void *arg)
{
	struct catch *c = arg;
	struct tracer tracer;
	int error;

	tracer_init(&tracer);
	error = tracee_seize(c->pid, 0);
	if (error == -ESRCH)
		c->code = dinst_fail(c->e, DINST_NO_PROCESS, "no process has the pid %d",
				     (int)c->pid);
	else if (error)
		c->code = target_explain_denial(c->pid, c->e);
	if (!error) {
		tracer_arm(&tracer, clock_ns() + c->timeout_ms * 1000000ull);
		c->armed(c->arg);
		c->code = follow(c, &tracer);
		tracer_arm(&tracer, 0);
	}
	tracer_release(&tracer);
	return NULL;
}

int target_catch_exec(pid_t pid, void (*armed)(void *arg), void *arg, unsigned timeout_ms,
		      struct dinst_error *e)
{
	struct catch c = {.pid = pid, .armed = armed, .arg = arg, .timeout_ms = timeout_ms, .e = e};
	pthread_t tracer;
	int error = pthread_create(&tracer, NULL, catch_main, &c);

	if (error)
		return dinst_fail_errno(e, DINST_NO_MEMORY, error,
					"cannot create a thread to trace process %d", (int)pid);
	pthread_join(tracer, NULL);
	return c.code;
}

int target_release(struct target *t, struct dinst_error *e)
{
	if (!syscall(SYS_pidfd_send_signal, t->pidfd, SIGCONT, NULL, 0))
		return 0;
	if (errno == ESRCH)
		return dinst_fail(e, DINST_GONE, "process %d (%s) has ended", (int)t->pid, t->name);
	return dinst_fail_errno(e, DINST_FAILED, errno, "cannot let process %d (%s) run",
				(int)t->pid, t->name);
}
