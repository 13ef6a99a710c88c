/* SPDX-License-Identifier: MIT */
/*
 * remote.c - system calls made by a stopped thread of the target.
 *
 * The program (arch_emit_remote) would finish alone and go on where the thread
 * was interrupted, should we die. While we live we stop it behind the last
 * call and set the interrupted registers ourselves, in a stop at which the
 * kernel still restarts interrupted system calls.
 *
 * The filter of a thread is suspended for as long as we live. Were we to die, the calls of its program
 * that are left would meet the filter, which may kill: so they are calls that do nothing, which
 * the filter lets pass, and each is made the one that is meant when the thread is about to enter it.
 *
 * A signal that wants delivery in between goes first: the interrupted
 * registers are put back, the kernel builds the handler's frame on them, and
 * the calls that are still to be made are made by a new program, from there.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "inject/cgroup.h"
#include "inject/remote_private.h"

enum {
	CALLS_MAX = 4,
	ERRNO_MAX = 4095,      /* results in [-4095, -1] are errors (psABI A.2.1) */
	RESTART_LOWEST = -516, /* the kernel's own results for interrupted calls */
	RESTART_HIGHEST = -512,
	REMOTE_NS = 2000000000, /* for one program */
	/* Signals and stops of job control between two calls: more than both, and it is given up. */
	STORM_LEAST = 64,
	STORM_NS = 100000000,
	/*
	 * Each signal puts a frame on the stack of a thread that we then keep from running its
	 * handler: a handler that does not block its signal gets one upon the other. Frames of
	 * 1 to 11 KiB, on a stack that may be an alternate one of SIGSTKSZ: so many in all of a stop.
	 */
	FRAMES_MAX = 4,
	DISPATCHED_MAX = 4, /* threads whose calls came back as signals: so many are tried */
};

/* How a program ended. */
enum ending {
	ENDED_DONE,   /* all calls made */
	ENDED_BROKEN, /* `between` said no; the others may go on */
	ENDED_SIGNAL, /* `signal` wants to be delivered */
	ENDED_DEAD,
	ENDED_LOST,	  /* it did not come back in time */
	ENDED_STORM,	  /* stopped by others again and again: the next call was not begun */
	ENDED_ASTRAY,	  /* it did something that is not in the program */
	ENDED_FAULTED,	  /* the program cannot be executed: its memory is gone */
	ENDED_DISPATCHED, /* the kernel made a signal of our call (before Linux 6.4 it does not say) */
};

struct remote {
	struct stop *s;
	struct held *victim;
	long harmless; /* what its program calls instead; -1: it has no filter */
	bool resumed;  /* at the entry of a call already */
	const struct arch_remote_program *program;
	remote_between between;
	void *arg;
	long *results;
	struct dinst_error *e;
	taddr_t place;
	size_t room;
	size_t used; /* most bytes written there */
	void *map;
	bool in_tail;
	bool made[CALLS_MAX];	/* results[i] is what it returned */
	bool failed[CALLS_MAX]; /* ... an error; or it was refused by `between` */
	int refusal;		/* what `between` answered when it said no */
	struct dinst_error why; /* ... and its reason: told if nothing worse comes */
	int signal;
	unsigned dispatched; /* threads to which a call of ours came as a signal */
	uint64_t storm_ns;   /* clock_ns() up to which a storm is waited out */
};

/* ---------------------------------------------- the calls that are left */

/* True if the program leaves this call out, after what failed before it (arch.h). */
static bool is_skipped(const struct remote *r, size_t index)
{
	const struct arch_remote_call *call = &r->program->calls[index];
	bool needed;

	for (size_t i = 0; i < index; i++) {
		needed = !call->always;
		for (size_t a = 0; a < 6; a++)
			needed |= call->args[a].kind == ARCH_ARG_RESULT && call->args[a].value == i;
		if (needed && (r->failed[i] || (!r->made[i] && is_skipped(r, i))))
			return true;
	}
	return false;
}

/* Call numbers, in order, that have still to be made as far as is known; returns how many. */
static size_t pending(const struct remote *r, size_t order[CALLS_MAX])
{
	size_t count = 0;

	for (size_t i = 0; i < r->program->count; i++)
		if (!r->made[i] && !r->failed[i] && !is_skipped(r, i))
			order[count++] = i;
	return count;
}

/* An argument that names an earlier call: by its place here, or by its known result. */
static void translate(const struct remote *r, const size_t *order, size_t count,
		      struct arch_remote_arg *arg)
{
	size_t named = arg->value;

	if (arg->kind != ARCH_ARG_RESULT)
		return;
	for (size_t i = 0; i < count; i++)
		if (order[i] == named) {
			arg->value = i;
			return;
		}
	arg->kind = ARCH_ARG_CONST;
	arg->value = (uint64_t)r->results[named];
}

/* Emits the rest of the program for the victim and puts it in place. */
static int place_program(struct remote *r, const size_t *order, size_t count)
{
	struct arch_remote_program rest = *r->program;
	struct arch_remote_call calls[CALLS_MAX];
	uint8_t bytes[ARCH_REMOTE_MAX];
	struct arch_buf out = {.bytes = bytes, .size = sizeof(bytes), .pc = r->place};

	for (size_t i = 0; i < count; i++) {
		calls[i] = r->program->calls[order[i]];
		for (size_t a = 0; a < 6; a++)
			translate(r, order, count, &calls[i].args[a]);
		if (r->harmless >= 0)
			calls[i].number = r->harmless;
	}
	rest.calls = calls;
	rest.count = count;
	arch_emit_remote(&rest, &r->victim->pub.regs, &out);
	if (out.status)
		return dinst_fail(r->e, DINST_FAILED, "cannot encode %zu remote calls", count);
	if (out.used > r->room)
		return dinst_fail(
			r->e, DINST_REFUSED,
			"process %d (%s): %zu bytes are needed for the first system calls, and only %zu are free behind the code of any module",
			(int)r->s->target->pid, r->s->target->name, out.used, r->room);
	if (out.used > r->used)
		r->used = out.used;
	if (r->in_tail)
		return stop_write(r->s, r->place, bytes, out.used, r->e);
	memcpy(r->map, bytes, out.used);
	return 0;
}

/* ---------------------------------------------------- running a program */

/*
 * Lets the victim run to its next system call's entry or exit. Stops of job control come on
 * the way back to the program only, thus never between the entry and the exit of a call.
 */
static enum ending next_syscall_stop(struct remote *r)
{
	struct tracee_event event;
	int error;

	for (int stray = 0; stray < STORM_LEAST || clock_ns() < r->storm_ns; stray++) {
		error = r->resumed ? 0 : tracee_resume_to_syscall(r->victim->pub.tid, 0);
		r->resumed = false;
		if (!error)
			error = tracee_wait(&r->s->tracer, r->victim->pub.tid,
					    r->victim->pub.leader, &event);
		if (error == -ETIMEDOUT)
			return ENDED_LOST;
		if (error || event.kind == TRACEE_EXITED || event.kind == TRACEE_VANISHED)
			return ENDED_DEAD;
		if (event.kind == TRACEE_SYSCALL)
			return ENDED_DONE;
		if (event.kind == TRACEE_SIGNAL) {
			/* That is of our making, and not for the thread's handlers. */
			if (tracee_has_faulted(r->victim->pub.tid, r->place, r->place + r->room))
				return ENDED_FAULTED;
			r->signal = event.signal;
			return tracee_was_dispatched(r->victim->pub.tid, r->place,
						     r->place + r->used)
				       ? ENDED_DISPATCHED
				       : ENDED_SIGNAL;
		}
		/* An old interrupt or a group-stop: it goes on all the same. */
	}
	return ENDED_STORM;
}

static bool is_error(long result)
{
	return result < 0 && result >= -ERRNO_MAX;
}

/* At the entry of call `index`: is it the one, and may it go on? */
static enum ending enter_call(struct remote *r, size_t index)
{
	const long number = r->program->calls[index].number;
	struct arch_regs regs;
	taddr_t pc;
	int code;

	if (tracee_get_regs(r->victim->pub.tid, &regs))
		return ENDED_DEAD;
	pc = arch_pc(&regs);
	if (arch_syscall_number(&regs) != (r->harmless < 0 ? number : r->harmless) ||
	    pc < r->place || pc > r->place + r->used)
		return ENDED_ASTRAY;
	code = r->between ? r->between(r->s, index, r->results, r->arg, &r->why) : 0;
	if (code >= 0 && r->harmless < 0)
		return ENDED_DONE;
	if (code >= 0) {
		arch_set_syscall_number(&regs, number);
		r->resumed = true;
		return tracee_enter_syscall(r->victim->pub.tid, &regs) ? ENDED_DEAD : ENDED_DONE;
	}
	r->refusal = r->refusal ? r->refusal : code;
	if (r->harmless >= 0)
		return ENDED_BROKEN;
	/* The call is not made: the kernel skips a call without a number. */
	arch_leave_syscall(&regs);
	return tracee_set_regs(r->victim->pub.tid, &regs) ? ENDED_DEAD : ENDED_BROKEN;
}

static enum ending leave_call(struct remote *r, size_t index)
{
	struct arch_regs regs;
	long result;

	if (tracee_get_regs(r->victim->pub.tid, &regs))
		return ENDED_DEAD;
	result = arch_remote_result(&regs);
	if (result >= RESTART_LOWEST && result <= RESTART_HIGHEST)
		result = -EINTR;
	r->results[index] = result;
	r->made[index] = true;
	r->failed[index] = is_error(result);
	return ENDED_DONE;
}

/* Runs the program that is in place, call by call. */
static enum ending run_program(struct remote *r)
{
	struct arch_regs regs = r->victim->pub.regs;
	size_t order[CALLS_MAX];
	enum ending ending;

	arch_begin_remote(&regs, r->place);
	if (tracee_set_regs(r->victim->pub.tid, &regs))
		return ENDED_DEAD;
	while (pending(r, order)) {
		ending = next_syscall_stop(r);
		if (ending == ENDED_DONE)
			ending = enter_call(r, order[0]);
		if (ending == ENDED_BROKEN)
			r->failed[order[0]] = true;
		if (ending == ENDED_DONE)
			ending = next_syscall_stop(r);
		if (ending == ENDED_DONE)
			ending = leave_call(r, order[0]);
		if (ending != ENDED_DONE)
			return ending;
	}
	return ENDED_DONE;
}

/* The interrupted registers again, in a stop where the kernel restarts calls. */
static int put_back(struct remote *r, enum ending ending)
{
	struct held *h = r->victim;
	struct tracee_event event = {.kind = TRACEE_SIGNAL, .signal = r->signal};
	taddr_t sp;
	int error = 0;

	while (!error && ending != ENDED_SIGNAL) {
		tracee_interrupt(h->pub.tid);
		error = tracee_resume(h->pub.tid, 0);
		if (!error)
			error = tracee_wait(&r->s->tracer, h->pub.tid, h->pub.leader, &event);
		if (!error && (event.kind == TRACEE_EXITED || event.kind == TRACEE_VANISHED))
			error = -ESRCH;
		if (event.kind == TRACEE_STOPPED || event.kind == TRACEE_SIGNAL)
			break;
	}
	if (!error && event.kind == TRACEE_SIGNAL)
		event.signal = stop_deliverable(r->s, h, event.signal);
	if (!error && event.kind == TRACEE_SIGNAL && stop_call_ignores(r->s, h, event.signal))
		arch_go_before_restart(&h->pub.regs);
	if (!error)
		error = tracee_set_regs(h->pub.tid, &h->pub.regs);
	if (error)
		return error;
	h->original = h->pub.regs;
	h->pub.changed = false;
	if (event.kind == TRACEE_STOPPED) {
		h->pub.group_stopped = event.signal != SIGTRAP;
		return 0;
	}
	stop_sleep_keep(r->s, h, event.signal);
	/* The signal first; then the thread stands at its handler, or where it was. */
	sp = arch_sp(&h->pub.regs);
	tracee_interrupt(h->pub.tid);
	error = tracee_resume(h->pub.tid, event.signal);
	if (!error)
		error = held_settle(r->s, h);
	h->frames += !error && arch_sp(&h->pub.regs) != sp;
	return error;
}

static int machinery_failed(struct remote *r, enum ending ending, int error)
{
	struct held *h = r->victim;
	struct target *t = r->s->target;

	if (ending == ENDED_LOST || error == -ETIMEDOUT) {
		/* It finishes alone; the kernel lets it go when the stop ends. */
		h->lost = true;
		h->stopped = false;
		t->memory_tid_stays = false;
		t->left_program++;
		t->left_calls++;
		return dinst_fail(
			r->e, DINST_BUSY,
			"thread %d of process %d (%s) did not come back from a remote call",
			(int)h->pub.tid, (int)t->pid, t->name);
	}
	if (ending == ENDED_ASTRAY)
		return dinst_fail(
			r->e, DINST_FAILED,
			"thread %d of process %d (%s) made a system call that is not ours",
			(int)h->pub.tid, (int)t->pid, t->name);
	if (ending == ENDED_FAULTED && !error)
		return dinst_fail(
			r->e, DINST_FAILED,
			"thread %d of process %d (%s) cannot execute system calls at %#llx for us",
			(int)h->pub.tid, (int)t->pid, t->name, (unsigned long long)r->place);
	h->gone = true;
	h->stopped = false;
	return dinst_fail(r->e, DINST_GONE,
			  "thread %d of process %d (%s) was killed during a remote call",
			  (int)h->pub.tid, (int)t->pid, t->name);
}

static int fail_storm(struct remote *r)
{
	return dinst_fail(
		r->e, DINST_BUSY,
		"process %d (%s) gets signals faster than a system call can be made; try again",
		(int)r->s->target->pid, r->s->target->name);
}

/* One program on one victim, up to its end or to a signal. */
static int run_once(struct remote *r, const size_t *order, size_t count)
{
	enum ending ending;
	int error;
	int code = remote_choose_victim(r->s, &r->victim, &r->harmless, r->e);

	if (code)
		return code;
	if (r->victim->frames >= FRAMES_MAX)
		return fail_storm(r);
	code = place_program(r, order, count);
	if (code)
		return code;
	r->signal = 0;
	r->resumed = false;
	r->s->remote_victim = r->victim->pub.tid;
	ending = run_program(r);
	r->s->remote_victim = 0;
	if (ending == ENDED_DEAD || ending == ENDED_LOST)
		return machinery_failed(r, ending, 0);
	error = put_back(r, ending);
	if (error || ending == ENDED_ASTRAY || ending == ENDED_FAULTED)
		return machinery_failed(r, ending, error);
	if (ending == ENDED_STORM)
		return fail_storm(r);
	if (ending != ENDED_DISPATCHED)
		return 0;
	/* That thread is not chosen again; another one may make its calls as everybody does. */
	r->victim->was_dispatched = true;
	return ++r->dispatched < DISPATCHED_MAX ? 0 : remote_is_dispatched(r->s, r->e);
}

static int run_all(struct remote *r)
{
	size_t order[CALLS_MAX];
	size_t count;
	int code = 0;

	for (int attempt = 0; !code && (count = pending(r, order)); attempt++) {
		if (attempt >= STORM_LEAST && clock_ns() >= r->storm_ns)
			code = fail_storm(r);
		else
			code = run_once(r, order, count);
	}
	return code;
}

static int find_place(struct remote *r, taddr_t scratch, void *scratch_map)
{
	struct stop *s = r->s;
	struct remote_tail tail;
	int code;

	r->place = scratch;
	r->room = ARCH_REMOTE_MAX;
	r->map = scratch_map;
	if (scratch)
		return 0;
	if (!s->tail || !remote_tail_is_zero(s, s->tail, s->tail_size)) {
		code = remote_find_tail(s, &tail, r->e);
		if (code)
			return code;
		s->tail = tail.address;
		s->tail_size = tail.size;
	}
	r->place = s->tail;
	r->room = s->tail_size;
	r->in_tail = true;
	return 0;
}

/* The tail is zero again, once nobody is in it. */
static int clear_place(struct remote *r)
{
	static const uint8_t zeros[ARCH_REMOTE_MAX];

	if (!r->in_tail || !r->used || (r->victim && r->victim->lost))
		return 0;
	return stop_write(r->s, r->place, zeros, r->used, r->e);
}

/* Dropping pages leaves the mappings as they are; what else is called for would rather not. */
static bool changes_mappings(const struct arch_remote_program *program)
{
	for (size_t i = 0; i < program->count; i++)
		if (program->calls[i].number != SYS_madvise ||
		    program->calls[i].args[2].value != MADV_DONTNEED)
			return true;
	return false;
}

int remote_run(struct stop *s, const struct arch_remote_program *program, taddr_t scratch,
	       void *scratch_map, remote_between between, void *arg, long *results,
	       struct dinst_error *e)
{
	struct remote r = {.s = s,
			   .program = program,
			   .between = between,
			   .arg = arg,
			   .results = results,
			   .e = e};
	char group[CGROUP_PATH_MAX];
	int code, clear_code;
	bool left;

	/*
	 * It would stay stopped, but not come back: its calls would be made when it is thawed. Looking
	 * takes as long as a call or two: it is not done for each program of a stop.
	 */
	if (!s->thawed && cgroup_is_frozen(target_memory_tid(s->target), group, sizeof(group)))
		return dinst_fail(
			e, DINST_BUSY,
			"process %d (%s) cannot make a system call for us: its control group is frozen (%s); thaw it first",
			(int)s->target->pid, s->target->name, group);
	s->thawed = true;
	if (!program->count || program->count > CALLS_MAX)
		return dinst_fail(e, DINST_FAILED, "a remote program has 1 to %d calls, not %zu",
				  CALLS_MAX, program->count);
	for (size_t i = 0; i < program->count; i++)
		results[i] = -ECANCELED;
	code = find_place(&r, scratch, scratch_map);
	if (code)
		return code;
	if (changes_mappings(program))
		stop_forget_maps(s);
	r.storm_ns = clock_ns() + STORM_NS;
	tracer_arm(&s->tracer, clock_ns() + REMOTE_NS);
	/* Everybody else stands still: the thread has a CPU of its own, as a rule. */
	s->tracer.eager = true;
	code = run_all(&r);
	tracer_arm(&s->tracer, 0);
	clear_code = clear_place(&r);
	left = clear_code != 0;
	for (size_t i = 0; code && i < program->count; i++)
		left |= r.made[i] && !r.failed[i];
	s->target->left_calls += left;
	if (!code && r.refusal) {
		code = r.refusal;
		if (e && !e->code)
			*e = r.why;
	}
	return code ? code : clear_code;
}

pid_t remote_victim(const struct stop *s)
{
	return s->remote_victim;
}
