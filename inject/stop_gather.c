/* SPDX-License-Identifier: MIT */
/*
 * stop_gather.c - from a running process to one in which every thread stands still.
 *
 * Threads are seized while they run, then interrupted and waited for, blocked
 * ones first. It is done when a listing shows nobody who is not stopped: sets
 * are compared, never their sizes. Never sends a signal
 * to the target, never leaves a thread that was stopped unaccounted for.
 *
 * The kernel's own workers (io_uring, vhost) are left alone: they never run
 * the target's code, and an interrupted one would fail its request with EINTR.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/cgroup.h"
#include "inject/control.h"
#include "inject/tasks.h"

enum {
	SEIZE_ROUNDS = 4, /* while running; the rest is found in the stop */
	POLL_NS = 300000,
	SERVED_POLL_NS = 30000,
	SERVED_NS = 400000000, /* for an answer, while everybody runs */
	WAKE_NS = 20000000,    /* who waits to seize a thread is woken up from then on */
	ATTEND_EACH = 32, /* threads: from one look at those that have been seized to the next */
	LOOK_FEW = 16,	  /* threads: as many are looked at while others stand still (20 us each) */
};

/* The slot of `tid` in the table: its own, or the free one where it would go. */
static unsigned *slot_of(struct stop *s, pid_t tid)
{
	size_t at = (size_t)tid * 2654435761u;

	for (;; at++) {
		unsigned *slot = &s->table[at & (s->table_size - 1)];

		if (!*slot || s->held[*slot - 1].pub.tid == tid)
			return slot;
	}
}

/* After the order of s->held has changed, or the table has become too small. */
static int index_held(struct stop *s)
{
	size_t size = s->table_size ? s->table_size : 128;
	unsigned *table = s->table;

	while (size < 2 * (s->held_count + 1))
		size *= 2;
	if (size != s->table_size) {
		table = realloc(table, size * sizeof(*table));
		if (!table)
			return -ENOMEM;
		s->table = table;
		s->table_size = size;
	}
	memset(table, 0, size * sizeof(*table));
	/* Later entries win: an id that was given to a new thread is that thread's. */
	for (size_t i = 0; i < s->held_count; i++)
		*slot_of(s, s->held[i].pub.tid) = (unsigned)i + 1;
	return 0;
}

struct held *stop_find_held(struct stop *s, pid_t tid)
{
	const unsigned *slot = s->table_size ? slot_of(s, tid) : NULL;

	return slot && *slot ? &s->held[*slot - 1] : NULL;
}

/* A living entry for `tid`: a dead one's id may have been given to a new thread. */
static bool is_known(struct stop *s, pid_t tid)
{
	const struct held *h = stop_find_held(s, tid);

	return h && !h->gone;
}

static struct held *add(struct stop *s, pid_t tid, pid_t tgid)
{
	size_t capacity = s->held_capacity ? 2 * s->held_capacity : 64;
	struct held *held;

	if (s->held_count == s->held_capacity) {
		held = realloc(s->held, capacity * sizeof(*held));
		if (!held)
			return NULL;
		s->held = held;
		s->held_capacity = capacity;
	}
	held = &s->held[s->held_count++];
	memset(held, 0, sizeof(*held));
	held->pub.tid = tid;
	held->pub.leader = tid == tgid;
	held->pub.foreign = tgid != s->target->pid;
	held->tgid = tgid;
	if (2 * (s->held_count + 1) > s->table_size) {
		if (index_held(s)) {
			s->held_count--;
			return NULL;
		}
	} else {
		*slot_of(s, tid) = (unsigned)s->held_count;
	}
	return held;
}

static void pause_ns(long ns)
{
	struct timespec pause = {0, ns};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

static void interrupt(struct stop *s, struct held *h)
{
	if (!held_is_awaited(h) || h->interrupted)
		return;
	if (h->sleep.at || s->held_count <= LOOK_FEW)
		stop_sleep_look(s, h);
	h->since_ns = clock_ns();
	/* ESRCH: it died, or it stopped before us (group-stop); the wait tells. */
	tracee_interrupt(h->pub.tid);
	h->interrupted = true;
}

static int check_frozen(struct stop *s, pid_t tid, struct dinst_error *e)
{
	char group[CGROUP_PATH_MAX];

	if (!cgroup_is_frozen(tid, group, sizeof(group)))
		return 0;
	return dinst_fail(
		e, DINST_BUSY,
		"process %d (%s) cannot be stopped: its control group is frozen (%s); thaw it first",
		(int)s->target->pid, s->target->name, group);
}

/* Takes thread `tid` into the stop; once others stand still already, it is interrupted at once. */
static int take(struct stop *s, pid_t tid, pid_t tgid, struct dinst_error *e)
{
	struct proc_stat stat;
	struct held *h;
	int code;

	if (proc_thread_stat_read(tgid, tid, &stat))
		return 0; /* it has ended already: the next listing does not show it */
	/*
	 * Interrupted, it gives up what it writes into a pipe (to systemd-coredump and the like): signals end
	 * a write there. Those that go before it have been taken at most, and are let go as they were.
	 */
	if (stat.flags & PROC_DUMPS_CORE)
		return dinst_fail(e, DINST_BUSY,
				  "process %d (%s) has crashed and is writing its core dump",
				  (int)tgid, s->target->name);
	/* PTRACE_SEIZE would wait for one that was stopped before it was frozen (version 1), until it is thawed. */
	if (stat.state == 'D' && !s->unfrozen) {
		code = check_frozen(s, tid, e);
		if (code)
			return code;
		s->unfrozen = true;
	}
	h = add(s, tid, tgid);
	if (!h)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for thread %d", (int)tid);
	h->state = stat.state;
	h->pub.kernel_worker = proc_is_worker(&stat);
	if (h->pub.kernel_worker)
		return 0;
	if (stat.state == 'S')
		stop_sleep_look(s, h);
	code = stop_seize(s, h, e);
	if (!code && s->deadline_ns)
		interrupt(s, h);
	return code;
}

/* Looking at thousands takes a tenth of a second: while all run, nobody is kept waiting for that. */
static void attend_at_times(struct stop *s, size_t done)
{
	if (!s->deadline_ns && done % ATTEND_EACH == ATTEND_EACH - 1)
		stop_attend(s);
}

/* Takes in whoever is not yet. *more says that the list has to be looked at again. */
static int take_new(struct stop *s, pid_t tgid, bool *more, struct dinst_error *e)
{
	struct proc_ids tasks = {0};
	int error = proc_tasks(tgid, &tasks);
	int code = 0;

	if (error == -ENOMEM)
		code = dinst_fail(e, DINST_NO_MEMORY, "no memory for the threads of process %d",
				  (int)tgid);
	else if (error && error != -ENOENT && error != -ESRCH)
		code = dinst_fail_errno(e, DINST_FAILED, -error,
					"cannot list the threads of process %d", (int)tgid);
	else if (error && tgid == s->target->pid)
		code = dinst_fail(e, DINST_GONE, "process %d (%s) has ended", (int)tgid,
				  s->target->name);
	for (size_t i = 0; !code && i < tasks.count; i++) {
		if (is_known(s, tasks.ids[i]))
			continue;
		code = take(s, tasks.ids[i], tgid, e);
		*more = true;
		attend_at_times(s, i);
	}
	proc_ids_release(&tasks);
	return code;
}

/* Processes that threads of the stop have created, and that share the target's memory. */
static int find_groups(struct stop *s, bool *more, struct dinst_error *e)
{
	int code = 0;

	for (size_t i = 0; !code && i < s->held_count; i++) {
		const int error = s->held[i].seized && !s->held[i].gone
					  ? stop_find_sharers(s, &s->held[i], more)
					  : 0;

		if (error)
			code = dinst_fail_errno(e, error == -EAGAIN ? DINST_BUSY : DINST_NO_MEMORY,
						-error,
						"cannot look for processes that share the memory "
						"of process %d",
						(int)s->target->pid);
		attend_at_times(s, i);
	}
	return code;
}

/*
 * One look around: new threads of all groups, then new groups. While there are
 * new threads nobody looks for groups: they may have created others meanwhile,
 * and each thread has to be asked.
 */
static int look_around(struct stop *s, bool *more, struct dinst_error *e)
{
	int code = 0;

	for (size_t g = 0; !code && g < s->groups.count; g++)
		if (!g || stop_shares_memory(s, s->groups.ids[g]))
			code = take_new(s, s->groups.ids[g], more, e);
	return code || *more ? code : find_groups(s, more, e);
}

/* While all run. s->births is set if the last look showed nobody new. */
static int seize_running(struct stop *s, struct dinst_error *e)
{
	bool more = true;
	long births;
	int code = 0;

	if (proc_ids_add(&s->groups, s->target->pid))
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the stop of process %d",
				  (int)s->target->pid);
	code = stop_find_creator(s, e);
	s->births = -1;
	tracer_arm(&s->tracer, clock_ns() + WAKE_NS);
	for (int round = 0; !code && more && round < SEIZE_ROUNDS; round++) {
		births = proc_births(s->births_fd);
		more = false;
		s->overlooked = false;
		code = look_around(s, &more, e);
		if (!more && !s->overlooked)
			s->births = births;
	}
	tracer_arm(&s->tracer, 0);
	return code;
}

/* Blocked threads first: they have the least to lose by standing still. */
static int by_state(const void *a, const void *b)
{
	const struct held *x = a, *y = b;
	int running_x = x->state == 'R', running_y = y->state == 'R';

	if (running_x != running_y)
		return running_x - running_y;
	return (x->pub.tid > y->pub.tid) - (x->pub.tid < y->pub.tid);
}

/* Otherwise it has been woken up, and only waits for a CPU. */
static bool is_uninterruptible(const struct held *h)
{
	struct proc_stat stat;

	return !proc_thread_stat_read(h->tgid, h->pub.tid, &stat) && stat.state == 'D';
}

struct held *stop_next_straggler(struct stop *s, size_t *at)
{
	struct held *h;

	while (*at < s->held_count) {
		h = &s->held[(*at)++];
		if (held_is_awaited(h) && h->interrupted && !is_uninterruptible(h))
			return h;
	}
	return NULL;
}

int stop_fail_busy(struct stop *s, const struct held *h, const char *what, const char *remedy,
		   struct dinst_error *e)
{
	char channel[64], name[PROC_NAME_MAX];
	const int code = check_frozen(s, target_memory_tid(s->target), e);
	struct proc_stat stat;

	if (code)
		return code;
	proc_word(h->pub.tid, "wchan", channel, sizeof(channel));
	proc_word(h->pub.tid, "comm", name, sizeof(name));
	if (proc_thread_stat_read(h->tgid, h->pub.tid, &stat))
		stat.state = '?';
	return dinst_fail(e, DINST_BUSY,
			  "thread %d (%s) of process %d (%s) %s: state %c, waiting in %s; %s",
			  (int)h->pub.tid, name, (int)s->target->pid, s->target->name, what,
			  stat.state, channel[0] == '0' ? "nothing" : channel, remedy);
}

static int busy(struct stop *s, const struct held *h, const char *what, struct dinst_error *e)
{
	return stop_fail_busy(s, h, what, "try again later", e);
}

/*
 * A thread in an uninterruptible sleep (a vfork parent, a disk) would keep all
 * the others standing until the deadline: it is waited for while they run. *served: somebody
 * waits for a file system's server, or a TPM.
 */
static int wait_uninterruptible(struct stop *s, uint64_t budget_ns, bool *served,
				struct dinst_error *e)
{
	uint64_t until = clock_ns() + budget_ns;
	struct proc_stat stat;
	bool is_served;
	struct held *h;
	int code;

	for (size_t i = 0; i < s->held_count; i++) {
		attend_at_times(s, i);
		h = &s->held[i];
		if (!held_is_awaited(h))
			continue;
		/* Not waited for: what it does next may well be the next such call. */
		code = stop_check_effect(s, h, &is_served, e);
		if (code)
			return code;
		*served |= is_served;
		while (held_is_awaited(h) && h->state == 'D' && !s->executed) {
			if (proc_thread_stat_read(h->tgid, h->pub.tid, &stat))
				break;
			h->state = stat.state;
			if (h->state != 'D')
				break;
			if (clock_ns() >= until)
				return busy(s, h, "is in an uninterruptible sleep", e);
			pause_ns(POLL_NS);
			stop_attend(s);
		}
	}
	return 0;
}

/* Who waits for a file system's server, or a TPM, or NULL. */
static struct held *next_served(struct stop *s)
{
	for (size_t i = 0; i < s->held_count && !s->executed; i++) {
		attend_at_times(s, i);
		if (held_is_awaited(&s->held[i]) && stop_waits_for_server(&s->held[i]))
			return &s->held[i];
	}
	return NULL;
}

/*
 * For a moment in which nobody waits for a file system's server, or a TPM (stop_effects.c). All run meanwhile, so this may
 * take longer. There are those whose next such call follows soon: one look follows the other soon, and the
 * last one is had by who goes before all others and waits for no processor from there to the first interrupt.
 */
static int wait_for_servers(struct stop *s, uint64_t budget_ns, struct dinst_error *e)
{
	const uint64_t longer_ns = !s->nested && budget_ns < SERVED_NS ? SERVED_NS : budget_ns;
	const uint64_t until = clock_ns() + longer_ns;
	struct held *h;

	for (;;) {
		stop_go_first(s);
		h = next_served(s);
		if (!h)
			return 0;
		stop_step_back(s);
		do {
			if (clock_ns() >= until)
				return busy(s, h,
					    "waits for a file system's server (FUSE), or a TPM", e);
			pause_ns(SERVED_POLL_NS);
			stop_attend(s);
			h = next_served(s);
		} while (h);
	}
}

static int wait_all(struct stop *s, struct dinst_error *e)
{
	int error, code;

	for (size_t i = 0; i < s->held_count; i++) {
		if (!held_is_awaited(&s->held[i]))
			continue;
		error = held_settle(s, &s->held[i]);
		if (error == -ETIMEDOUT && stop_leader_has_exited(s, &s->held[i]))
			return dinst_fail(
				e, DINST_BUSY,
				"the main thread of process %d (%s) exits just now; try again later",
				(int)s->target->pid, s->target->name);
		if (error == -ETIMEDOUT) {
			code = busy(s, &s->held[i], "did not stop in time", e);
			s->starved = !is_uninterruptible(&s->held[i]);
			return code;
		}
		if (error && error != -ESRCH)
			return dinst_fail_errno(e, DINST_FAILED, -error,
						"cannot wait for thread %d of process %d (%s)",
						(int)s->held[i].pub.tid, (int)s->target->pid,
						s->target->name);
	}
	return 0;
}

/*
 * Who was stopped first may be dead by now: killed, or by an exec in another
 * thread, whose new program then has the leader's id. *more asks to look again.
 */
static void check_still_stopped(struct stop *s, bool *more)
{
	struct arch_regs regs;
	struct held *h;

	for (size_t i = 0; i < s->held_count; i++) {
		h = &s->held[i];
		if (!h->stopped || s->executed || !tracee_get_regs(h->pub.tid, &regs))
			continue;
		h->stopped = false;
		h->gone = true;
		s->suspect |= h->pub.leader;
		*more = true;
	}
	if (s->suspect)
		s->executed |= target_incarnation(s->target) != s->incarnation;
}

/* The kernel's own workers do not stand still, and end whenever they like. True if any has. */
static bool forget_ended_workers(struct stop *s)
{
	struct proc_stat stat;
	bool any = false;

	for (size_t i = 0; i < s->held_count; i++) {
		struct held *h = &s->held[i];

		if (h->pub.kernel_worker && !h->gone &&
		    proc_thread_stat_read(h->tgid, h->pub.tid, &stat))
			h->gone = any = true;
	}
	return any;
}

/*
 * The number is enough here: all that we know are among the living (and stand
 * still), so if there are no more of these, they are the same.
 */
static bool all_are_known(struct stop *s)
{
	long known;

	forget_ended_workers(s);
	for (size_t g = 0; g < s->groups.count; g++) {
		known = 0;
		for (size_t i = 0; i < s->held_count; i++)
			known += s->held[i].tgid == s->groups.ids[g] && !s->held[i].gone;
		if (proc_thread_count(s->groups.ids[g]) != known)
			return false;
	}
	return true;
}

/*
 * All known threads stand still. Nobody else is there if no task at all was
 * born since the last look (and none was just being born then: threads are counted
 * by now, and a process is seen as a child), or if another look shows nobody. *more: somebody is.
 */
static int look_again(struct stop *s, bool *more, struct dinst_error *e)
{
	long births = proc_births(s->births_fd);
	int code;

	*more = false;
	if (stop_leader_is_another(s)) {
		s->suspect = true;
		s->executed |= target_incarnation(s->target) != s->incarnation;
		if (s->executed)
			return 0;
	}
	s->overlooked = false;
	if (births >= 0 && births == s->births && !s->suspect && all_are_known(s)) {
		code = find_groups(s, more, e);
		*more |= s->overlooked;
		return code;
	}
	code = look_around(s, more, e);
	*more |= s->overlooked;
	if (!code && !*more) {
		s->births = births;
		/* Whom a listing has told, and who has ended meanwhile, may have kept it from telling another. */
		*more = forget_ended_workers(s);
		check_still_stopped(s, more);
	}
	return code;
}

static int gather_all(struct stop *s, struct dinst_error *e)
{
	bool more = true;
	int code = 0;

	while (!code && more && !s->executed) {
		for (size_t i = 0; i < s->held_count; i++)
			interrupt(s, &s->held[i]);
		code = wait_all(s, e);
		if (!code)
			code = look_again(s, &more, e);
		if (!code && more && clock_ns() >= s->deadline_ns)
			code = dinst_fail(
				e, DINST_BUSY,
				"process %d (%s) creates threads faster than they can be stopped",
				(int)s->target->pid, s->target->name);
	}
	return code;
}

/* Another process may have its pid by now. As long as it lives, whoever has the pid is it. */
static int check_identity(struct stop *s, struct dinst_error *e)
{
	if (target_alive(s->target))
		return 0;
	return dinst_fail(e, DINST_GONE, "process %d (%s) has ended", (int)s->target->pid,
			  s->target->name);
}

uint64_t stop_budget_ns(size_t threads, unsigned deadline_us, unsigned patience)
{
	return deadline_us ? deadline_us * 1000ull : patience * (20000000ull + 200000ull * threads);
}

int stop_gather(struct stop *s, unsigned deadline_us, unsigned patience, struct dinst_error *e)
{
	bool served = false;
	uint64_t budget_ns;
	int code;

	s->incarnation = target_incarnation(s->target);
	code = check_identity(s, e);
	if (!code)
		code = seize_running(s, e);
	if (code)
		return code;
	qsort(s->held, s->held_count, sizeof(*s->held), by_state);
	index_held(s); /* as many as before: cannot fail */
	budget_ns = stop_budget_ns(s->held_count, deadline_us, patience);
	code = wait_uninterruptible(s, budget_ns, &served, e);
	if (!code && (served || s->held_count <= LOOK_FEW))
		code = wait_for_servers(s, budget_ns, e);
	if (!code) {
		stop_go_first(s);
		stop_goes_on();
		s->deadline_ns = clock_ns() + budget_ns;
		tracer_arm(&s->tracer, s->deadline_ns);
		code = gather_all(s, e);
		tracer_arm(&s->tracer, 0);
	}
	s->gathered = !code;
	/* Those that stand still are its threads only if it is still there. */
	if (!code && !s->executed)
		code = check_identity(s, e);
	if (!code && s->executed) {
		s->left_attached = true; /* ids have changed hands: our end lets all go */
		code = dinst_fail(e, DINST_GONE, "process %d (%s) is executing another program",
				  (int)s->target->pid, s->target->name);
	}
	return code;
}
