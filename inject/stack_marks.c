/* SPDX-License-Identifier: MIT */
/*
 * stack_marks.c - what threads are in or come back to, by walks of their stacks. A walk leaves out what the
 * cautious scan finds: it counts only where it has come to the start of the thread, through every signal
 * frame on its way. Only from such a frame anybody returns into our own code.
 */
#include <string.h>

#include "inject/stack_walk.h"

struct marking {
	struct stack_walk *walk;
	const struct stack_shot *thread;
	taddr_t walked
		[STACK_SPANS_MAX]; /* of its spans, the highest frame that was seen there; 0: none */
	taddr_t passed
		[STACK_SPANS_MAX]; /* ... up to where the walk has gone through all signal frames */
	taddr_t next
		[STACK_SPANS_MAX]; /* the first signal frame from there on, or the span's end; 0: not looked for */
	taddr_t sp;		   /* of the frame before */
	bool interrupting; /* a handler returned there */
	bool skipped;	   /* a signal frame that the walk has not gone through */
	struct stack_range *ranges;
	size_t count;
};

static bool is_in_span(const struct stack_span *span, taddr_t sp)
{
	return sp >= span->lo && sp < span->hi;
}

static void begin_thread(struct marking *m, const struct stack_shot *thread)
{
	m->thread = thread;
	memset(m->walked, 0, sizeof(m->walked));
	memset(m->next, 0, sizeof(m->next));
	m->sp = arch_sp(&thread->regs);
	m->interrupting = m->skipped = false;
	/* Below its stack pointer nothing lives that is a frame. */
	for (size_t i = 0; i < thread->span_count; i++)
		m->passed[i] = is_in_span(&thread->spans[i], m->sp) ? m->sp : thread->spans[i].lo;
}

/* One look leads through all frames below what it finds: stacks are deep. */
static taddr_t next_signal(struct marking *m, size_t span)
{
	if (m->next[span] < m->passed[span] || !m->next[span])
		m->next[span] = snapshot_signal_above(m->walk->shot, &m->thread->spans[span],
						      m->passed[span]);
	return m->next[span];
}

/*
 * A table that is wrong where a function ends leads from a signal's handler to the caller of what it
 * interrupted: not a word of the signal frame between the two has been looked at then.
 */
static void pass_signals(struct marking *m, const struct stack_frame *frame)
{
	const bool interrupting = stack_walk_is_sigreturn(m->walk, frame->pc);

	for (size_t i = 0; i < m->thread->span_count; i++) {
		const struct stack_span *span = &m->thread->spans[i];
		const bool here = is_in_span(span, frame->sp);
		taddr_t next;

		if (!span->has_signals || (!here && (m->interrupting || !is_in_span(span, m->sp))))
			continue;
		/* The frame of its own, where it returns to sigreturn, begins at most a word below. */
		next = next_signal(m, i);
		m->skipped |= here ? next + sizeof(taddr_t) < frame->sp : next < span->hi;
		if (here && frame->sp > m->passed[i])
			m->passed[i] = frame->sp + interrupting;
	}
	m->interrupting = interrupting;
	m->sp = frame->sp;
}

static bool mark_frame(void *arg, const struct stack_frame *frame)
{
	struct marking *m = arg;

	if (m->thread->frames)
		pass_signals(m, frame);
	for (size_t i = 0; i < m->thread->span_count; i++)
		if (is_in_span(&m->thread->spans[i], frame->sp) && frame->sp > m->walked[i])
			m->walked[i] = frame->sp;
	stack_ranges_mark(m->ranges, m->count, frame->pc);
	stack_ranges_mark(m->ranges, m->count, frame->home);
	return true;
}

size_t snapshot_walk(const struct snapshot *shot, stack_home home, void *arg,
		     struct stack_range *ranges, size_t count)
{
	struct marking m = {.ranges = ranges, .count = count};
	struct stack_walk w;

	if (!count)
		return 0;
	if (!stack_walker_init(&w, shot, home, arg))
		return snapshot_scan(shot, ranges, count);
	w.wary = true;
	m.walk = &w;
	for (size_t i = 0; i < shot->thread_count; i++) {
		begin_thread(&m, &shot->threads[i]);
		if (m.thread->unfollowed || !stack_walk_shot(&w, m.thread, mark_frame, &m) ||
		    m.skipped)
			snapshot_scan_thread(shot, m.thread, true, ranges, count);
		else
			snapshot_scan_left(shot, m.thread, m.walked, ranges, count);
	}
	stack_walker_release(&w);
	snapshot_mark_parked(shot, ranges, count);
	return stack_ranges_hits(ranges, count);
}
