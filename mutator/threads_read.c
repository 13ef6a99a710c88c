/* SPDX-License-Identifier: MIT */
/*
 * threads_read.c - words of records, read while the target runs.
 *
 * A timer's version (variable.h) says whether it has stopped between two looks:
 * only what was seen the same before and after its total was read is added up.
 * Everything read is outside input. Never stops or changes the target.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inject/proc.h"
#include "inject/tasks.h"
#include "mutator/threads_private.h"
#include "mutator/variable.h"

enum { FAMILY_NS = 200 * 1000 * 1000, TRIES = 16, TIMER_WORDS = 2, SHORT_NS = 1000 * 1000 };

/* Of word 0 of a timer. */
#define TIMER_BUSY  (1ull << 31) /* its last stop goes on: the total may be old or new */
#define TIMER_COUNT (TIMER_BUSY - 1)

/* ------------------------------------------------------------- the family */

static void forget_family(struct threads *t)
{
	while (t->family_count)
		target_close(t->family[--t->family_count]);
	free(t->family);
	t->family = NULL;
}

static int fail_lack(const struct session *s, struct dinst_error *e)
{
	return dinst_fail(e, DINST_BUSY,
			  "what the threads of process %d, and of those forked from it, are doing "
			  "cannot be told just now: no descriptor or no memory to look; try again "
			  "later",
			  (int)s->pid);
}

/*
 * The processes forked from the target that share its state; looked for a few times a second. Who has
 * ended or may not be looked at is left out; what we lack is told.
 */
static int find_family(struct session *s, struct dinst_error *e)
{
	struct threads *t = s->threads;
	const uint64_t now = clock_ns();
	pid_t *pids = NULL;
	size_t count = 0;
	int status = 0;

	if (t->family_ns && now - t->family_ns < FAMILY_NS)
		return 0;
	forget_family(t);
	t->family_ns = 0;
	if (!threads_find_family(s, &pids, &count))
		return fail_lack(s, e);
	t->family = calloc(count + 1, sizeof(struct target *));
	if (!t->family)
		status = DINST_NO_MEMORY;
	for (size_t i = 0; i < count && status != DINST_BUSY && status != DINST_NO_MEMORY; i++) {
		struct dinst_error ignored = {0};

		/* Of who is frozen, or traced by somebody else, memory and clocks can be read all the same. */
		status = target_open_known(pids[i], TARGET_BORN, &t->family[t->family_count],
					   &ignored);
		if (status >= 0)
			t->family_count++;
	}
	free(pids);
	if (status == DINST_BUSY || status == DINST_NO_MEMORY) {
		forget_family(t);
		return fail_lack(s, e);
	}
	t->family_ns = now;
	return 0;
}

/* --------------------------------------------------------------- the look */

/* One thread's words. */
struct look {
	const struct target *target;
	size_t member; /* 0: the target, else one of its family */
	size_t number; /* of the record */
	uint32_t owner;
	taddr_t id; /* where the C library keeps the thread's id, which its end clears */
	uint64_t words[TIMER_WORDS];
};

struct looks {
	struct look *items;
	size_t count, room;
};

static bool add(struct looks *l, const struct look *item)
{
	if (l->count == l->room) {
		size_t room = l->room ? l->room * 2 : 64;
		struct look *grown = realloc(l->items, room * sizeof(*grown));

		if (!grown)
			return false;
		l->items = grown;
		l->room = room;
	}
	l->items[l->count++] = *item;
	return true;
}

/*
 * Reads `size` bytes at each address; what cannot be read is left as it was. One
 * by one only where reading them together fails.
 */
static void read_each(const struct target *target, const struct target_range *ranges, size_t count)
{
	struct dinst_error ignored = {0};

	if (!count || !target_read_many(target, ranges, count, &ignored))
		return;
	for (size_t i = 0; i < count; i++)
		target_read_some(target, ranges[i].address, ranges[i].to, ranges[i].size);
}

/*
 * The words at `offset` of every record of a living thread that has found it its own. *seen: a
 * process that has ended, or has no such state, has none; of one that may not be looked at
 * any more nobody knows.
 */
static bool look_at(const struct threads *t, size_t member, const struct target *target,
		    uint32_t offset, struct looks *looks, bool *seen)
{
	const size_t records = (size_t)1 << t->shift, first = looks->count;
	struct target_range *ranges = NULL;
	uint32_t *ids = NULL;
	struct tables tables;
	bool complete = true;
	size_t kept = first;

	*seen = threads_tables_read(&tables, t, target);
	if (!*seen) {
		*seen = !target_is_denied(target);
		return true;
	}
	for (size_t i = 0; i < records && complete; i++)
		if (tables.keys[i] && tables.owners[i])
			complete =
				add(looks, &(struct look){.target = target,
							  .member = member,
							  .number = i,
							  .owner = tables.owners[i],
							  .id = tables.keys[i] +
								(taddr_t)(int64_t)t->tid_offset});
	ranges = calloc(2 * (looks->count - first) + 1, sizeof(*ranges));
	ids = calloc(looks->count - first + 1, sizeof(*ids));
	if (!ranges || !ids)
		complete = false;
	for (size_t i = first; complete && i < looks->count; i++) {
		struct look *l = &looks->items[i];
		const size_t n = i - first;

		ranges[2 * n] = (struct target_range){l->id, sizeof(*ids), &ids[n]};
		ranges[2 * n + 1] = (struct target_range){
			threads_record_address(t, l->number) + offset, sizeof(l->words), l->words};
	}
	if (complete)
		read_each(target, ranges, 2 * (looks->count - first));
	for (size_t i = first; complete && i < looks->count; i++)
		if (ids[i - first] == looks->items[i].owner)
			looks->items[kept++] = looks->items[i];
	/* The right to look may have ended since. */
	*seen = kept == looks->count || !target_is_denied(target);
	looks->count = complete ? kept : first;
	free(ids);
	free(ranges);
	threads_tables_release(&tables);
	return complete;
}

static int look_around(struct session *s, uint32_t offset, struct looks *looks,
		       struct dinst_error *e)
{
	struct threads *t = s->threads;
	bool complete, seen, ignored;

	looks->count = 0;
	complete = look_at(t, 0, s->target, offset, looks, &seen);
	for (size_t i = 0; i < t->family_count && complete; i++)
		complete = look_at(t, i + 1, t->family[i], offset, looks, &ignored);
	if (!complete)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	return seen ? 0
		    : dinst_fail(e, DINST_NOT_PERMITTED,
				 "process %d may not be looked at any more, so what its threads "
				 "are doing cannot be told",
				 (int)s->pid);
}

/* ---------------------------------------------------------------- timers */

static uint64_t clock_of(clockid_t clock)
{
	struct timespec now = {0};

	if (clock_gettime(clock, &now))
		return 0;
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The threads of one process and the ids that they have there; looked up once for all records. */
struct own_id {
	pid_t own, tid;
};

struct own_ids {
	pid_t pid;	      /* 0: not looked up */
	struct own_id *items; /* by `own` */
	size_t count;
	int lack; /* what could not be read for want of descriptors or memory, or 0 */
	const struct target *of; /* own_pid() */
	pid_t own;
};

static void own_ids_release(struct own_ids *ids)
{
	free(ids->items);
	ids->items = NULL;
	ids->count = 0;
}

static int by_own_id(const void *a, const void *b)
{
	const struct own_id *x = a, *y = b;

	return (x->own > y->own) - (x->own < y->own);
}

/* As task_own_id(). */
static pid_t own_id_of(pid_t pid, pid_t tid, struct own_ids *ids)
{
	pid_t own;

	errno = 0;
	own = task_own_id(pid, tid);
	if (!own)
		proc_note_lack(&ids->lack, -errno);
	return own;
}

static void own_ids_read(struct own_ids *ids, pid_t pid)
{
	struct proc_ids tids = {0};

	own_ids_release(ids);
	ids->pid = pid;
	proc_note_lack(&ids->lack, proc_tasks(pid, &tids));
	ids->items = calloc(tids.count + 1, sizeof(*ids->items));
	if (!ids->items) {
		ids->lack = -ENOMEM;
		proc_ids_release(&tids);
		return;
	}
	for (size_t i = 0; i < tids.count; i++)
		ids->items[ids->count++] =
			(struct own_id){own_id_of(pid, tids.ids[i], ids), tids.ids[i]};
	proc_ids_release(&tids);
	qsort(ids->items, ids->count, sizeof(*ids->items), by_own_id);
}

/* True if the thread of the record has not ended since it was looked at. */
static bool goes_on(const struct look *l)
{
	uint32_t id = 0;

	return target_read_some(l->target, l->id, &id, sizeof(id)) == sizeof(id) && id == l->owner;
}

/*
 * Which task the thread of a record is for us; 0: it has ended. A child of clone() may have its parent's id
 * where the C library keeps one, which then is none of its threads': it is the first of them.
 */
static pid_t task_of(const struct look *l, struct own_ids *ids)
{
	const struct own_id wanted = {.own = (pid_t)l->owner}, *found;
	const pid_t pid = target_pid(l->target);

	if (own_id_of(pid, wanted.own, ids) == wanted.own)
		return wanted.own;
	/* Or it is in a namespace of its own. */
	if (ids->pid != pid)
		own_ids_read(ids, pid);
	found = ids->count
			? bsearch(&wanted, ids->items, ids->count, sizeof(*ids->items), by_own_id)
			: NULL;
	if (found)
		return found->tid;
	return goes_on(l) ? pid : 0;
}

/* CPU time of another process's thread in ns, as of the last tick. */
static uint64_t thread_time(const struct look *l, struct own_ids *ids)
{
	const pid_t tid = task_of(l, ids);
	char path[64], text[100];
	ssize_t got;

	if (!tid)
		return 0;
	/* Documentation/scheduler/sched-stats.rst: the first number. */
	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)target_pid(l->target),
		 (int)tid);
	got = proc_read(path, text, sizeof(text));
	proc_note_lack(&ids->lack, (int)got);
	return got > 0 ? strtoull(text, NULL, 10) : 0;
}

static uint64_t process_time(pid_t pid)
{
	clockid_t clock;

	return clock_getcpuclockid(pid, &clock) ? 0 : clock_of(clock);
}

/* What the clock of a timer says now, for the thread that runs it. */
static uint64_t now_of(const struct look *l, enum arch_clock clock, struct own_ids *ids)
{
	switch (clock) {
	case ARCH_CLOCK_TICKS:
		return arch_clock_ticks();
	case ARCH_CLOCK_MONOTONIC:
		return clock_of(CLOCK_MONOTONIC) + (uint64_t)target_clock_offset(l->target);
	case ARCH_CLOCK_THREAD:
		return thread_time(l, ids);
	default:
		return process_time(target_pid(l->target));
	}
}

/*
 * The time at which the thread was on its way out, if it has done nothing since
 * that we know of: until then its timers have run for certain. 0: it was not.
 */
static uint64_t way_out(const struct threads *t, const struct look *l, enum arch_clock clock)
{
	const taddr_t record = threads_record_address(t, l->number);
	struct pair_entry last = {0};
	uint64_t out[2] = {0}; /* ticks, CPU time */
	uint32_t depth = 0;

	if (target_read_some(l->target, record + offsetof(struct pair_record, depth), &depth,
			     sizeof(depth)) != sizeof(depth) ||
	    !depth || depth > PAIR_HOME * sizeof(last) ||
	    target_read_some(l->target, record + offsetof(struct pair_record, end) + depth, &last,
			     sizeof(last)) != sizeof(last) ||
	    last.tag & PAIR_ID_MASK || last.start == PAIR_INHERITED)
		return 0;
	if (clock < ARCH_CLOCK_THREAD || !last.start)
		return last.start;
	if (clock != ARCH_CLOCK_THREAD ||
	    target_read_some(l->target, record + offsetof(struct pair_record, out_ticks), out,
			     sizeof(out)) != sizeof(out))
		return 0;
	return out[0] == last.start ? out[1] : 0;
}

/* The id that the process of a look has itself; looked up once for those of one process that follow. */
static pid_t own_pid(const struct look *l, struct own_ids *ids)
{
	if (ids->of != l->target)
		ids->own = own_id_of(target_pid(l->target), target_pid(l->target), ids);
	ids->of = l->target;
	return ids->own;
}

/*
 * How long the timer of one thread has been running, in units of its clock. A forked child has a copy of
 * what its parent ran: it may not be its business.
 */
static uint64_t running_of(const struct threads *t, const struct look *l,
			   const struct threads_timer *timer, struct own_ids *ids)
{
	const enum arch_clock clock = timer->clock;
	uint64_t now, out;

	if (!(l->words[0] & TIMER_COUNT) ||
	    (timer->only_tid && (pid_t)l->owner != timer->only_tid) ||
	    (timer->only_pid && own_pid(l, ids) != timer->only_pid))
		return 0;
	now = now_of(l, clock, ids);
	out = way_out(t, l, clock);
	if (out > l->words[1] && out < now)
		now = out;
	/* Clocks of other threads are a little behind, those of other CPUs may be. */
	return now > l->words[1] ? now - l->words[1] : 0;
}

/* What runs of a timer: its words, those beside it, and for how long each has run by then. */
struct parts {
	struct looks timers, words;
	uint64_t *units; /* by number of `timers` */
	struct own_ids ids;
};

static void parts_release(struct parts *p)
{
	own_ids_release(&p->ids);
	free(p->units);
	free(p->words.items);
	free(p->timers.items);
}

static int parts_read(struct session *s, const struct threads_timer *timer, uint32_t beside,
		      struct parts *p, struct dinst_error *e)
{
	int status = look_around(s, timer->offset, &p->timers, e);

	if (status >= 0 && beside)
		status = look_around(s, beside, &p->words, e);
	if (status < 0)
		return status;
	free(p->units);
	p->units = calloc(p->timers.count + 1, sizeof(*p->units));
	if (!p->units)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	own_ids_release(&p->ids);
	p->ids = (struct own_ids){0};
	for (size_t i = 0; i < p->timers.count; i++)
		p->units[i] = running_of(s->threads, &p->timers.items[i], timer, &p->ids);
	return p->ids.lack ? fail_lack(s, e) : 0;
}

static uint64_t ns_of(uint64_t units, enum arch_clock clock)
{
	return clock == ARCH_CLOCK_TICKS ? ticks_to_ns(units) : units;
}

/*
 * Nothing was stopped between the two looks, and nothing was about to be; but for what had run for less than
 * `least` ns at the first one: that much may be in the sum twice.
 */
static bool agree(const struct parts *p, const struct looks *after, enum arch_clock clock,
		  uint64_t least)
{
	if (p->timers.count != after->count)
		return false;
	for (size_t i = 0; i < after->count; i++) {
		const struct look *x = &p->timers.items[i], *y = &after->items[i];

		if (x->target != y->target || x->number != y->number || x->owner != y->owner)
			return false;
		if (ns_of(p->units[i], clock) >= least &&
		    (x->words[0] >> 31 != y->words[0] >> 31 || x->words[0] & TIMER_BUSY))
			return false;
		/* Started in between: what it has measured is not in the total, and short. */
	}
	return true;
}

/*
 * Totals between two looks. The family is looked for before all of them: that may take as long as timers run.
 * Where timers stop all the time, no look is ever like the one before: then it is enough that what has run
 * for longer has not stopped.
 */
static int read_at_once(struct session *s, const struct threads_timer *timer, uint32_t beside,
			threads_totals *totals, void *arg, struct parts *p, struct dinst_error *e)
{
	struct looks after = {0};
	int status = find_family(s, e);

	for (unsigned try = 0; status >= 0 && try < 2 * TRIES; try++) {
		status = parts_read(s, timer, beside, p, e);
		if (status >= 0)
			status = totals(arg, e);
		if (status >= 0)
			status = look_around(s, timer->offset, &after, e);
		if (status >= 0 && agree(p, &after, timer->clock, try < TRIES ? 0 : SHORT_NS))
			break;
	}
	free(after.items);
	return status;
}

int threads_read_timer(struct session *s, const struct threads_timer *timer, threads_totals *totals,
		       void *arg, uint64_t *running, struct dinst_error *e)
{
	struct parts p = {0};
	int status;

	*running = 0;
	if (!s->threads || !s->threads->area)
		return totals(arg, e);
	status = read_at_once(s, timer, 0, totals, arg, &p, e);
	for (size_t i = 0; status >= 0 && i < p.timers.count; i++)
		*running += p.units[i];
	parts_release(&p);
	return status;
}

int threads_read_word(struct session *s, uint32_t offset,
		      void (*each)(void *arg, pid_t tid, uint64_t word), void *arg,
		      struct dinst_error *e)
{
	struct looks looks = {0};
	int status;

	if (!s->threads || !s->threads->area)
		return 0;
	status = find_family(s, e);
	if (status >= 0)
		status = look_around(s, offset, &looks, e);
	for (size_t i = 0; status >= 0 && i < looks.count; i++)
		each(arg, (pid_t)looks.items[i].owner, looks.items[i].words[0]);
	free(looks.items);
	return status;
}

/*
 * The first word of the same record in other looks; 0 if it is not there. Both are in the
 * order in which records are looked at: `*from` is where to go on.
 */
static uint64_t word_beside(const struct looks *l, const struct look *of, size_t *from)
{
	for (; *from < l->count; (*from)++) {
		const struct look *at = &l->items[*from];

		if (at->member == of->member && at->number == of->number)
			return at->owner == of->owner ? at->words[0] : 0;
		if (at->member > of->member ||
		    (at->member == of->member && at->number > of->number))
			break;
	}
	return 0;
}

int threads_each_running(struct session *s, const struct threads_timer *timer, uint32_t beside,
			 threads_totals *totals,
			 void (*each)(void *arg, const struct threads_running *r), void *arg,
			 struct dinst_error *e)
{
	struct parts p = {0};
	size_t from = 0;
	int status;

	if (!s->threads || !s->threads->area)
		return totals(arg, e);
	status = read_at_once(s, timer, beside, totals, arg, &p, e);
	for (size_t i = 0; status >= 0 && i < p.timers.count; i++) {
		const struct look *l = &p.timers.items[i];

		if (p.units[i])
			each(arg, &(struct threads_running){.pid = own_pid(l, &p.ids),
							    .tid = (pid_t)l->owner,
							    .word = word_beside(&p.words, l, &from),
							    .units = p.units[i]});
	}
	if (status >= 0 && p.ids.lack)
		status = fail_lack(s, e);
	parts_release(&p);
	return status;
}
