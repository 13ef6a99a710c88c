/* SPDX-License-Identifier: MIT */
/*
 * stop.c - one stop of the target, from the tracer's birth to its end.
 *
 * Each try runs on a thread of its own. Whatever could not be detached by hand
 * (a thread that never stopped) is let go by the kernel when that thread ends,
 * so nothing that happens here can leave the target traced. All state is in
 * struct stop: stops of several targets may be nested or run at the same time.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/cgroup.h"
#include "inject/control.h"

enum {
	DEFAULT_TRIES = 6,
	PATIENCE_MAX = 16,
	FIRST_PAUSE_NS = 5000000, /* doubled after each try */
	LAST_PAUSE_NS = 400000000,
	/* After a try that failed the target runs for so many times as long as it stood still. */
	RUNS_FOR_STOOD = 2,
	LET_GO_NS = 1000000000, /* for the kernel to let go after a tracer's end */
	LET_GO_POLL_NS = 50000,
	FIRST_NS = 50000000,	       /* a tracer goes first for so long, and a fifth more, ... */
	FIRST_LONGEST_NS = 1000000000, /* ... and up to that as long as it is of use */
	FIRST_MOST = 64,	       /* nested ones that do */
	BUDGETS = 4,		       /* to stop, to work, to let go, and for luck */
};

/* The timer kills us so long after we would have done it: we may get a processor late. */
static const uint64_t TIMER_LATE_NS = 5000000000;

struct attempt {
	struct target *target;
	const struct stop_options *options;
	stop_work work;
	void *arg;
	struct stop_report *report;
	struct dinst_error *e;
	unsigned patience; /* multiplies the default deadline */
	uint64_t held_ns;  /* how long threads stood still */
	pid_t tracer_tid;
	bool starved;
	bool left_attached;
	bool worked; /* work() was called: its answer is final */
	int code;
	unsigned depth;
	struct attempt *outer; /* the one whose work this is part of, or NULL */
	struct last_resort *last_resort;
	uint64_t may_take_ns; /* without anything going on */
};

/*
 * stop_last_resort_ms: when, and the timer that kills us. Only while somebody is kept from running: before and after that
 * we may wait for a CPU for longer, and nobody minds.
 */
struct last_resort {
	uint64_t until_ns; /* NEVER: nobody is kept */
	pid_t tracer_tid;  /* of the innermost */
	/* Tracers that go first, by how deep they are nested, since when, and until when; 0: none does yet. */
	pid_t first[FIRST_MOST];
	uint64_t first_since_ns, first_until_ns;
	timer_t timer;
	bool armed;
};

/* A tracer as it was seen when a span of FIRST_NS began, which ends at `until_ns`. */
struct first_look {
	uint64_t until_ns;
	pid_t tracer_tid;
	struct proc_usage usage;
};

/* How the innermost tracer fares since nothing has gone on for too long. */
struct last_look {
	uint64_t until_ns; /* is over */
	uint64_t since_ns;
	uint64_t served_ns; /* it had a processor, or wanted none */
	pid_t tracer_tid;
	struct proc_usage usage;
};

static const uint64_t NEVER = UINT64_MAX;

static _Thread_local struct attempt *traced_for; /* by this thread */

struct target *stop_target(struct stop *s)
{
	return s->target;
}

size_t stop_thread_count(const struct stop *s)
{
	return s->shown_count;
}

struct stop_thread *stop_thread(struct stop *s, size_t index)
{
	return &s->held[s->shown[index]].pub;
}

static int show(struct stop *s, struct dinst_error *e)
{
	s->shown = calloc(s->held_count + 1, sizeof(*s->shown));
	if (!s->shown)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the stop of process %d",
				  (int)s->target->pid);
	for (size_t i = 0; i < s->held_count; i++)
		if (s->held[i].stopped)
			s->shown[s->shown_count++] = i;
	if (s->shown_count)
		return 0;
	return dinst_fail(e, DINST_GONE, "process %d (%s) has ended", (int)s->target->pid,
			  s->target->name);
}

/* Signals with handlers, but for those of the C library's threads (pthread_cancel, setuid): these restart calls. */
static void look_at_signals(struct stop *s)
{
	const uint64_t of_threads = 3ull << 31; /* signals 32 and 33 */
	struct proc_status status;
	const bool is_known = !proc_status_read(s->target->pid, &status);

	s->caught = (is_known ? status.caught : ~0ull) & ~of_threads;
	s->is_init = is_known && status.own_id == 1;
}

/* The thread through which memory is reached stands still: it does not exit, but with all others. */
static bool holds_memory(const struct stop *s)
{
	for (size_t i = 0; i < s->held_count; i++)
		if (s->held[i].pub.tid == s->target->memory_tid)
			return s->held[i].stopped;
	return false;
}

static void run(struct attempt *a, struct stop *s)
{
	unsigned deadline_us = a->options ? a->options->deadline_us : 0;

	s->nested = a->outer != NULL;
	look_at_signals(s);
	/* In a nested one others stand still already: what they found mostly is right for it, too. */
	if (!s->nested)
		cgroup_find_freezer(target_memory_tid(s->target));
	stop_goes_on();
	target_hold(s->target);
	a->code = stop_gather(s, deadline_us, a->patience, a->e);
	a->starved = s->starved;
	/* What was seen of its pages while some of it still ran may be so no more. */
	target_look_again(s->target);
	if (!a->code)
		a->code = show(s, a->e);
	if (!a->code) {
		s->target->memory_tid_stays = target_find_memory_tid(s->target) && holds_memory(s);
		a->worked = true;
		stop_goes_on();
		a->code = a->work(s, a->arg, a->e);
		s->target->memory_tid_stays = false;
		/* Whatever failed for want of a target, that is the reason. */
		if (a->code < 0 && a->code != DINST_GONE && stop_is_dying(s)) {
			dinst_error_clear(a->e);
			a->code = dinst_fail(a->e, DINST_GONE,
					     "process %d (%s) ended while it was stopped",
					     (int)s->target->pid, s->target->name);
		}
	}
	stop_goes_on();
	stop_release(s);
	target_unhold(s->target);
	a->held_ns = s->longest_ns;
	if (a->report) {
		if (s->longest_ns > a->report->stop_ns)
			a->report->stop_ns = s->longest_ns;
		a->report->threads = (unsigned)s->shown_count;
	}
}

/*
 * While the target stands still its tracer waits for no CPU: on a machine with far more work than
 * CPUs a fair share would be a long stop. It sleeps whenever it waits. Where that is not permitted
 * (CAP_SYS_NICE, RLIMIT_RTPRIO, a limit for all real-time work) it has its fair share. So it has
 * after FIRST_NS if it waits for a CPU all the same: where others of a real-time priority take them for
 * good, the kernel keeps something for fair shares only, and without that even its end would let nobody
 * go. And so it has after FIRST_LONGEST_NS. Who has a real-time policy of somebody else's is not put
 * below that, but has it for no longer than that either.
 */
void stop_go_first(struct stop *s)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_RR)};
	struct last_resort *l = traced_for->last_resort;
	const int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
	const bool is_fair = policy == SCHED_OTHER || policy == SCHED_BATCH || policy == SCHED_IDLE;
	const uint64_t now = clock_ns();
	struct rlimit limit;

	if (s->first || traced_for->depth >= FIRST_MOST || getrlimit(RLIMIT_RTTIME, &limit) ||
	    limit.rlim_cur != RLIM_INFINITY)
		return;
	if (!s->nested) {
		__atomic_store_n(&l->first_since_ns, now, __ATOMIC_SEQ_CST);
		__atomic_store_n(&l->first_until_ns, now + FIRST_NS, __ATOMIC_SEQ_CST);
	} else if (now >= __atomic_load_n(&l->first_until_ns, __ATOMIC_SEQ_CST)) {
		return;
	}
	/* Told before: who is to make it fair again must not wait for it. */
	__atomic_store_n(&l->first[traced_for->depth], gettid(), __ATOMIC_SEQ_CST);
	s->first = !is_fair || !sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &lowest);
	/* Too late perhaps: nobody may have lowered it in the meantime. */
	if (clock_ns() >= __atomic_load_n(&l->first_until_ns, __ATOMIC_SEQ_CST))
		stop_step_back(s);
}

static const struct sched_param fair;

void stop_step_back(struct stop *s)
{
	if (s->first)
		sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &fair);
	stop_end_first(s);
}

void stop_end_first(struct stop *s)
{
	if (traced_for->depth < FIRST_MOST)
		__atomic_store_n(&traced_for->last_resort->first[traced_for->depth], 0,
				 __ATOMIC_SEQ_CST);
	s->first = false;
}

unsigned stop_last_resort_ms = 10000;

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

/* 0: never */
static void set_timer(struct last_resort *l, uint64_t ns)
{
	const struct itimerspec when = {.it_value = timespec_of(ns)};

	if (l->armed)
		timer_settime(l->timer, 0, &when, NULL);
}

/*
 * From now on for as long as this try may take. Without a timer (no room for another one) there
 * is only join_or_die(), which says why; with it we die a little later, even where we are
 * stopped ourselves.
 */
static void last_resort_extend(struct last_resort *l, const struct attempt *a)
{
	__atomic_store_n(&l->until_ns, clock_ns() + a->may_take_ns, __ATOMIC_SEQ_CST);
	set_timer(l, a->may_take_ns + TIMER_LATE_NS);
}

/* Nobody is kept any more. */
static void last_resort_end(struct last_resort *l)
{
	__atomic_store_n(&l->until_ns, NEVER, __ATOMIC_SEQ_CST);
	set_timer(l, 0);
}

/* The time is over; the timer waits for another `ns`, unless a tracer sets it at the same moment: that counts. */
static void last_resort_put_off(struct last_resort *l, uint64_t ns)
{
	uint64_t until = __atomic_load_n(&l->until_ns, __ATOMIC_SEQ_CST), seen, now;

	do {
		seen = until;
		now = clock_ns();
		if (seen == NEVER)
			set_timer(l, 0);
		else
			set_timer(l, (seen > now + ns ? seen - now : ns) + TIMER_LATE_NS);
		until = __atomic_load_n(&l->until_ns, __ATOMIC_SEQ_CST);
	} while (until != seen);
}

static void *tracer_main(void *arg)
{
	struct attempt *a = arg;
	struct stop s;

	memset(&s, 0, sizeof(s));
	s.target = a->target;
	s.serial = ++a->target->stop_serial;
	s.memory_fd = -1;
	s.births_fd = proc_births_open();
	traced_for = a;
	a->tracer_tid = gettid();
	__atomic_store_n(&a->last_resort->tracer_tid, a->tracer_tid, __ATOMIC_RELAXED);
	tracer_init(&s.tracer);
	run(a, &s);
	tracer_release(&s.tracer);
	a->left_attached = s.left_attached;
	if (s.memory_fd >= 0)
		close(s.memory_fd);
	if (s.births_fd >= 0)
		close(s.births_fd);
	proc_ids_release(&s.groups);
	stop_forget_maps(&s);
	free(s.shown);
	/* Where it did not come to a stop, nobody else has: our end would let them go with EINTR. */
	stop_attend(&s);
	if (s.left_attached)
		stop_goes_on();
	else if (!a->outer)
		last_resort_end(a->last_resort);
	free(s.table);
	free(s.held);
	/* Who goes on may wait for a processor: of us nothing could be told any more. */
	if (a->outer)
		__atomic_store_n(&a->last_resort->tracer_tid, a->outer->tracer_tid,
				 __ATOMIC_RELAXED);
	stop_end_first(&s);
	return NULL;
}

/*
 * pthread_join() returns when the tracer has left user mode, which is before
 * the kernel releases its tracees; they are released when its id is gone.
 */
static void wait_until_let_go(pid_t tracer_tid)
{
	struct timespec pause = {0, LET_GO_POLL_NS};
	uint64_t until = clock_ns() + LET_GO_NS;

	while (!syscall(SYS_tgkill, getpid(), tracer_tid, 0) && clock_ns() < until)
		nanosleep(&pause, NULL);
}

static uint64_t may_take_ns(const struct attempt *a)
{
	const long threads = proc_thread_count(a->target->pid);
	const unsigned deadline_us = a->options ? a->options->deadline_us : 0;

	return stop_last_resort_ms * 1000000ull +
	       BUDGETS *
		       stop_budget_ns(threads > 0 ? (size_t)threads : 0, deadline_us, a->patience);
}

void stop_goes_on(void)
{
	last_resort_extend(traced_for->last_resort, traced_for);
}

static void tell_last_resort(const struct last_resort *l, const struct target *t)
{
	const pid_t tracer = __atomic_load_n(&l->tracer_tid, __ATOMIC_RELAXED);
	struct proc_usage usage;
	char where[64];

	proc_usage_read(tracer, &usage);
	proc_word(tracer, "wchan", where, sizeof(where));
	fprintf(stderr,
		"dinst-mutator: process %d (%s) is kept from running, and nothing goes on: this mutator "
		"ends, so that the kernel lets it go (of this stop %.1f s on a processor and %.1f s "
		"waiting for one, now in %s)\n",
		(int)t->pid, t->name, usage.known ? (double)usage.run_ns / 1e9 : 0,
		usage.known ? (double)usage.wait_ns / 1e9 : 0, where);
}

/* Tracers have gone first for long enough. Each takes its id away before it ends. */
static void make_fair(struct last_resort *l)
{
	for (size_t i = 0; i < FIRST_MOST; i++) {
		const pid_t tid = __atomic_load_n(&l->first[i], __ATOMIC_SEQ_CST);

		if (tid)
			sched_setscheduler(tid, SCHED_OTHER | SCHED_RESET_ON_FORK, &fair);
	}
}

/*
 * Since `before` it has had a CPU when it wanted one, but for half of the time at most. The kernel adds a
 * time of waiting when it is over.
 */
static bool is_served(pid_t tracer, const struct proc_usage *before)
{
	struct proc_usage now;
	struct proc_stat stat;

	proc_usage_read(tracer, &now);
	if (!before->known || !now.known || now.wait_ns - before->wait_ns > FIRST_NS / 2 ||
	    proc_thread_stat_read(getpid(), tracer, &stat))
		return false;
	return now.run_ns != before->run_ns || now.sleeps != before->sleeps || stat.state != 'R';
}

/* Whoever goes first does so for another FIRST_NS, or no longer. */
static void look_at_first(struct last_resort *l, struct first_look *look)
{
	const uint64_t since = __atomic_load_n(&l->first_since_ns, __ATOMIC_SEQ_CST);
	const pid_t tracer = __atomic_load_n(&l->tracer_tid, __ATOMIC_RELAXED);
	const uint64_t now = clock_ns();
	uint64_t until = __atomic_load_n(&l->first_until_ns, __ATOMIC_SEQ_CST);
	const bool is_new = until != look->until_ns || tracer != look->tracer_tid;

	if (!until || (now < until && !is_new))
		return;
	if (now >= until) {
		if (now - since >= FIRST_LONGEST_NS ||
		    (!is_new && !is_served(tracer, &look->usage))) {
			make_fair(l);
			return;
		}
		if (__atomic_compare_exchange_n(&l->first_until_ns, &until, now + FIRST_NS, false,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			until = now + FIRST_NS;
	}
	look->until_ns = until;
	look->tracer_tid = tracer;
	proc_usage_read(tracer, &look->usage);
}

/* Returns 0 when the thread has ended, or what pthread_clockjoin_np(3) says. */
static int join_until(pthread_t thread, uint64_t until_ns)
{
	struct timespec until = timespec_of(until_ns);

#ifdef __SANITIZE_THREAD__
	/* gcc 12's does not know pthread_clockjoin_np(), and would take all that the thread has done
	 * for a race with what we do afterwards. */
	const uint64_t now = clock_ns();

	clock_gettime(CLOCK_REALTIME, &until);
	until = timespec_of((uint64_t)until.tv_sec * 1000000000 + (uint64_t)until.tv_nsec +
			    (until_ns > now ? until_ns - now : 0));
	return pthread_timedjoin_np(thread, NULL, &until);
#else
	return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until);
#endif
}

/*
 * The time is over. A tracer that gets no processor gets none to end, either: our death would let nobody
 * go sooner. So a tenth of that time is added, and of it counts what the tracer has had a processor
 * for, or wanted none.
 */
static bool waits_for_processor(struct last_resort *l, struct last_look *look)
{
	const uint64_t until = __atomic_load_n(&l->until_ns, __ATOMIC_SEQ_CST);
	const uint64_t now = clock_ns(), least = stop_last_resort_ms * 100000ull;
	const pid_t tracer = __atomic_load_n(&l->tracer_tid, __ATOMIC_RELAXED);
	struct last_look next = {.until_ns = until, .since_ns = now, .tracer_tid = tracer};
	struct proc_stat stat;
	uint64_t waited;

	if (look->until_ns == until && look->tracer_tid == tracer) {
		if (now - look->since_ns < least)
			return true;
		proc_usage_read(tracer, &next.usage);
		if (!next.usage.known || !look->usage.known ||
		    proc_thread_stat_read(getpid(), tracer, &stat))
			return false;
		waited = next.usage.wait_ns - look->usage.wait_ns;
		/* The kernel adds it when it is over. */
		if (!waited && stat.state == 'R' && next.usage.run_ns == look->usage.run_ns)
			waited = now - look->since_ns;
		next.served_ns = look->served_ns;
		if (waited < now - look->since_ns)
			next.served_ns += now - look->since_ns - waited;
	} else {
		proc_usage_read(tracer, &next.usage);
	}
	*look = next;
	last_resort_put_off(l, least);
	return look->served_ns < least;
}

static void join_or_die(pthread_t tracer, struct last_resort *l, const struct target *t)
{
	struct first_look first = {0};
	struct last_look last = {0};

	do {
		look_at_first(l, &first);
		if (!join_until(tracer, clock_ns() + FIRST_NS / 5))
			return;
	} while (clock_ns() < __atomic_load_n(&l->until_ns, __ATOMIC_SEQ_CST) ||
		 waits_for_processor(l, &last));
	tell_last_resort(l, t);
	kill(getpid(), SIGKILL);
}

static void trace(struct attempt *a)
{
	pthread_t tracer;
	int error = pthread_create(&tracer, NULL, tracer_main, a);

	if (error) {
		a->code = dinst_fail_errno(a->e, DINST_NO_MEMORY, error,
					   "cannot create a thread to trace process %d",
					   (int)a->target->pid);
		return;
	}
	if (a->outer)
		pthread_join(tracer, NULL);
	else
		join_or_die(tracer, a->last_resort, a->target);
	if (a->left_attached)
		wait_until_let_go(a->tracer_tid);
}

/* One inside another has the outermost one's last resort; its tracer begins by extending it, and we at its end. */
static int attempt(struct attempt *a)
{
	struct sigevent kill_us = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
	struct last_resort own = {.until_ns = NEVER};

	a->outer = traced_for;
	a->depth = a->outer ? a->outer->depth + 1 : 0;
	a->last_resort = a->outer ? a->outer->last_resort : &own;
	a->may_take_ns = may_take_ns(a);
	if (!a->outer)
		own.armed = !timer_create(CLOCK_MONOTONIC, &kill_us, &own.timer);
	trace(a);
	if (a->outer)
		last_resort_extend(a->last_resort, a->outer);
	else if (own.armed)
		timer_delete(own.timer);
	return a->code;
}

/*
 * Between two tries. On a machine without a free CPU a try may keep some threads waiting for long
 * until others come round: one after the other, such tries would be one long stop.
 */
static void pause_after(uint64_t held_ns, uint64_t *pause_ns)
{
	const uint64_t stood = held_ns * RUNS_FOR_STOOD;
	const uint64_t ns = stood > *pause_ns ? stood : *pause_ns;
	const struct timespec pause = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	*pause_ns = *pause_ns < LAST_PAUSE_NS ? 2 * *pause_ns : LAST_PAUSE_NS;
}

int target_stop(struct target *t, const struct stop_options *options, stop_work work, void *arg,
		struct stop_report *report, struct dinst_error *e)
{
	unsigned tries = options && options->tries ? options->tries : DEFAULT_TRIES;
	uint64_t pause_ns = FIRST_PAUSE_NS;
	struct attempt a = {.held_ns = 0};
	struct dinst_error busy;
	unsigned done = 0;
	int code;

	if (report)
		memset(report, 0, sizeof(*report));
	pthread_mutex_lock(&t->stop_lock);
	do {
		if (done)
			pause_after(a.held_ns, &pause_ns);
		dinst_error_clear(&busy);
		a = (struct attempt){.target = t,
				     .options = options,
				     .work = work,
				     .arg = arg,
				     .report = report,
				     .e = &busy,
				     .patience = t->patience};
		code = attempt(&a);
		/* On a machine with too few CPUs they have to come round: that takes longer. */
		if (!a.starved)
			t->patience = 1;
		else if (t->patience < PATIENCE_MAX)
			t->patience *= 2;
		done++;
	} while (code == DINST_BUSY && !a.worked && done < tries);
	pthread_mutex_unlock(&t->stop_lock);
	if (report)
		report->tries = done;
	if (code && busy.code)
		dinst_fail(e, busy.code, "%s", busy.text);
	else if (code)
		dinst_fail(e, code, "the work on stopped process %d (%s) failed", (int)t->pid,
			   t->name);
	return code;
}
