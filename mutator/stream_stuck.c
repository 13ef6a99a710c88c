/* SPDX-License-Identifier: MIT */
/*
 * stream_stuck.c - rings whose holder never comes back: a thread that was killed
 * while it wrote a record, or that jumped out of the handler which interrupted
 * it. They are freed, and the record counts as dropped.
 *
 * A thread that has ended is known by /proc. Of one that is there nobody can tell
 * without a stop, in which nothing in its registers and live stacks leads into our
 * code, nor anything that the program has parked, which may be its task that gave way to another in
 * the middle of a record (where that is not known of all code, nothing is freed before it is): that costs a stop, so it is seldom done, and only where a ring stays taken for long.
 */
#include "mutator/parks.h"
#include "mutator/stream_private.h"

enum { RANGES_MOST = 64 };

static const uint64_t GONE_NS = 100000000;   /* a holder is looked for after so long */
static const uint64_t STUCK_NS = 500000000;  /* ... and in a stop after so long */
static const uint64_t PAUSE_NS = 1000000000; /* between two such stops, at least */
static const uint64_t PAUSE_MOST = 80000000000;

/* What was never finished is nobody's any more. */
static void free_ring(struct stream *st, struct ring_reader *r)
{
	uint64_t lock = r->stuck.lock;

	if (__atomic_compare_exchange_n(&r->ring->lock, &lock, 0, false, __ATOMIC_RELEASE,
					__ATOMIC_RELAXED))
		st->lost++;
	r->stuck = (struct stuck){0};
}

/* ------------------------------------------------------------ in a stop */

/* All code of ours. */
static size_t code_ranges(const struct session *s, struct stack_range *ranges)
{
	size_t count = 0;

	for (const struct place *p = s->places; p; p = p->next) {
		size_t at = count;

		if (count == RANGES_MOST)
			return 0;
		for (; at && ranges[at - 1].lo > p->arena->code; at--)
			ranges[at] = ranges[at - 1];
		ranges[at] = (struct stack_range){.lo = p->arena->code,
						  .hi = p->arena->code + p->arena->code_size};
		count++;
	}
	return count;
}

static bool has_thread(struct stop *stop, pid_t tid)
{
	for (size_t n = 0; n < stop_thread_count(stop); n++)
		if (stop_thread(stop, n)->tid == tid)
			return true;
	return false;
}

static int look_at_process(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct stream *st = arg;
	struct stack_range ranges[RANGES_MOST];
	const size_t count = code_ranges(st->session, ranges);
	struct snapshot *shot = NULL;
	const uint64_t now = clock_ns();
	int status = 0;

	for (unsigned n = 0; n < st->ring_count && count && status >= 0; n++) {
		struct ring_reader *r = &st->rings[n];
		const pid_t tid = r->stuck.tid;

		if (!r->stuck.lock || now - r->stuck.since_ns < STUCK_NS ||
		    __atomic_load_n(&r->ring->lock, __ATOMIC_RELAXED) != r->stuck.lock ||
		    __atomic_load_n(&r->ring->opened, __ATOMIC_RELAXED) != r->stuck.opened)
			continue;
		if (!tid || !has_thread(stop, tid))
			continue;
		if (!shot)
			status = parks_snapshot(st->session, stop, &shot, e);
		if (shot && !snapshot_touches(shot, tid, ranges, count) &&
		    !snapshot_parks(shot, ranges, count))
			free_ring(st, r);
	}
	if (shot)
		snapshot_free(shot);
	return status;
}

static void look_in_stop(struct stream *st)
{
	struct session *s = st->session;
	struct stop_report report = {0};
	struct dinst_error ignored = {0};
	const uint64_t lost = st->lost;

	if (s->state != SESSION_RUNNING || session_check(s, &ignored) < 0)
		return;
	family_stop(s, look_at_process, st, &report, &ignored);
	family_release(s);
	session_note_stop(s, &report, NULL);
	st->stop_pause_ns = st->lost != lost			 ? PAUSE_NS
			    : st->stop_pause_ns * 2 < PAUSE_MOST ? st->stop_pause_ns * 2
								 : PAUSE_MOST;
	st->stopped_ns = clock_ns();
}

/* -------------------------------------------------------------- the whole */

/* True if its holder, who is there, has it for so long that a stop is worth it. */
static bool look_at_ring(struct stream *st, struct ring_reader *r, uint64_t now)
{
	const uint64_t lock = __atomic_load_n(&r->ring->lock, __ATOMIC_ACQUIRE);
	const uint64_t opened = __atomic_load_n(&r->ring->opened, __ATOMIC_ACQUIRE);
	struct stuck *stuck = &r->stuck;
	pid_t holder;

	if (!lock || lock != stuck->lock || opened != stuck->opened) {
		*stuck = (struct stuck){
			.lock = lock, .opened = opened, .since_ns = now, .looked_ns = now};
		return false;
	}
	if (now - stuck->looked_ns < GONE_NS)
		return false;
	stuck->looked_ns = now;
	if (lock > INT32_MAX) {
		free_ring(st, r);
		return false;
	}
	/* By the id that it has for us, if that has been found out. */
	holder = stuck->tid ? stuck->tid : (pid_t)lock;
	stuck->wanted = !stream_is_holder(st, holder, (uint32_t)lock);
	stuck->tid = stuck->wanted ? 0 : holder;
	return !stuck->wanted && now - stuck->since_ns >= STUCK_NS;
}

/* Who is not found by the id that a ring has is looked for everywhere, for all rings at once. */
static void free_the_gone(struct stream *st)
{
	bool any = false;

	for (unsigned n = 0; n < st->ring_count; n++)
		any |= st->rings[n].stuck.wanted;
	if (!any || !stream_find_holders(st))
		return;
	for (unsigned n = 0; n < st->ring_count; n++) {
		struct ring_reader *r = &st->rings[n];

		if (r->stuck.wanted && !r->stuck.tid)
			free_ring(st, r);
		r->stuck.wanted = false;
	}
}

void stream_look_for_stuck(struct stream *st)
{
	const uint64_t now = clock_ns();
	bool stop = false;

	for (unsigned n = 0; n < st->ring_count; n++)
		stop |= look_at_ring(st, &st->rings[n], now);
	free_the_gone(st);
	if (!st->stop_pause_ns)
		st->stop_pause_ns = PAUSE_NS;
	if (stop && (!st->stopped_ns || now - st->stopped_ns >= st->stop_pause_ns))
		look_in_stop(st);
}
