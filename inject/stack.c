/* SPDX-License-Identifier: MIT */
/*
 * stack.c - copying registers and live stacks, and the cautious scan of them.
 *
 * Owns the copies. Never decides that a word is not an address: what looks
 * like one counts. Where a stack cannot be copied whole, everything counts.
 *
 *     mapping   |.......................#####################|
 *               lo            sp - red zone ^      live      ^ hi
 *
 * The live part of a stack is taken to reach to the end of its mapping. Where a program has locked a page
 * of its stack, or keeps it out of core dumps, there are several, up to that with the thread's block. A
 * signal frame in it tells where the interrupted code's stack is, which is
 * another mapping when the handler runs on an alternate stack.
 *
 * A stack inside of something larger (fibers on a heap, Go) would be copied
 * with all that lies above it, so one that is not known to be a thread's own
 * is taken to be no deeper than OTHER_MOST: what could be missed so is
 * a signal frame that lies deeper still. Of a thread's own that is deeper than
 * OWN_MOST both ends are copied, which a walk may get along with.
 */
#include "inject/stack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arch/pairing.h"
#include "inject/stack_signals.h"

/* Bytes copied of a stack that its thread was given, and of these at its other end where it is deeper. */
static const size_t OWN_MOST = (size_t)64 << 20;
static const size_t OWN_END = (size_t)16 << 20;
static const size_t OTHER_MOST = (size_t)16 << 20; /* ... of any other stack */
static const size_t HOME_MOST = (size_t)1
				<< 20; /* ... of what its thread may have left, and may be none */
/*
 * ... of all, counted as often as threads share them (some seconds' looking at each of them): of the
 * stacks beyond everything counts, too.
 */
static const size_t SPANNED_MOST = (size_t)16 << 30;

enum {
	WORD = 8,
	PAGE = 4096,
	THREAD_FRAMES = 1024, /* of signals, on the stacks of one thread */
	/* Bytes of a thread's block behind its pointer; of all that is seen a few thousand. */
	BLOCK_MOST = 1 << 16,
};

/* ------------------------------------------------------------------ ranges */

/* Number of the range that contains `value`, or `count`. */
static size_t range_of(const struct stack_range *ranges, size_t count, taddr_t value)
{
	size_t lo = 0, hi = count;

	while (lo < hi) {
		size_t middle = lo + (hi - lo) / 2;

		if (ranges[middle].hi <= value)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo < count && ranges[lo].lo <= value ? lo : count;
}

void stack_ranges_mark(struct stack_range *ranges, size_t count, taddr_t value)
{
	size_t at = range_of(ranges, count, value);

	if (at < count)
		ranges[at].hit = true;
}

size_t stack_ranges_hits(const struct stack_range *ranges, size_t count)
{
	size_t hits = 0;

	for (size_t i = 0; i < count; i++)
		hits += ranges[i].hit;
	return hits;
}

/* ------------------------------------------------------------------- spans */

static bool has_span(const struct stack_shot *thread, taddr_t sp)
{
	for (size_t i = 0; i < thread->span_count; i++)
		if (sp >= thread->spans[i].lo && sp < thread->spans[i].hi)
			return true;
	return false;
}

bool is_stack_memory(const struct maps_entry *entry)
{
	return entry && (entry->protection & PROT_WRITE) && (entry->protection & PROT_READ);
}

/* Copies [lo, hi), and says that it is the thread's. */
static int add_span(struct snapshot *shot, struct stack_shot *thread, taddr_t lo, taddr_t hi,
		    struct dinst_error *e)
{
	struct stack_span *grown;

	if (thread->span_count == STACK_SPANS_MAX) {
		thread->partial = true;
		return DINST_OK;
	}
	grown = realloc(thread->spans, (thread->span_count + 1) * sizeof(*grown));
	if (!grown)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for copies of stacks");
	thread->spans = grown;
	thread->spans[thread->span_count++] = (struct stack_span){.lo = lo, .hi = hi};
	shot->spanned += hi - lo;
	thread->partial |= shot->spanned > SPANNED_MOST;
	return snapshot_copy(shot, lo, hi, &thread->partial, e);
}

/*
 * The end of the stack that the thread was given, if `lo` is in it; 0 where that is not known. The
 * C library puts a thread's block on top of its stack. In the mapping anything may follow: the
 * kernel merges neighbours, with stacks of others where a guard is no mapping (MADV_GUARD_INSTALL).
 */
static taddr_t end_of_own(const struct snapshot *shot, const struct stack_shot *thread, taddr_t lo,
			  const struct maps_entry *last)
{
	const taddr_t pointer = arch_thread_pointer(&thread->regs);
	uint64_t first;

	if (!strcmp(last->name, "[stack]"))
		return last->hi;
	if (pointer < lo || pointer >= last->hi)
		return 0;
	if (last->hi - pointer <= BLOCK_MOST)
		return last->hi;
	if (target_read_some(shot->target, pointer, &first, sizeof(first)) != sizeof(first) ||
	    !arch_thread_pointer_is_sane(pointer, first))
		return 0;
	return pointer - pointer % WORD;
}

/* Adds the stack that `sp` points into to the thread's spans, and copies it. */
static int add_stack(struct snapshot *shot, struct stack_shot *thread, taddr_t sp,
		     struct dinst_error *e)
{
	const struct maps_entry *entry = maps_find(&shot->maps, sp), *last;
	taddr_t lo = sp > arch_red_zone ? sp - arch_red_zone : 0;
	taddr_t hi, own;
	int result;

	/* Words are looked at where all calls but such a one's push them. */
	thread->partial |= sp % WORD != 0;
	/* An empty stack: sp is the end of the mapping. */
	if (!is_stack_memory(entry) && sp)
		entry = maps_find(&shot->maps, sp - 1);
	if (!is_stack_memory(entry)) {
		thread->partial = true;
		return DINST_OK;
	}
	if (lo < entry->lo)
		lo = entry->lo;
	lo -= lo % WORD;
	last = maps_stack_end(&shot->maps, entry, arch_thread_pointer(&thread->regs));
	own = end_of_own(shot, thread, lo, last);
	hi = own ? own : last->hi;
	if (!own && hi - lo > OTHER_MOST)
		hi = lo + OTHER_MOST;
	if (hi - lo <= OWN_MOST)
		return add_span(shot, thread, lo, hi, e);
	thread->partial = true;
	result = add_span(shot, thread, lo, lo + (OWN_MOST - OWN_END), e);
	return result ? result : add_span(shot, thread, hi - OWN_END, hi, e);
}

/* ----------------------------------------------------------- signal frames */

/* Follows the signal frames in one span; the stacks that they interrupted become spans too. */
static int follow_span(struct signal_search *search, struct stack_shot *thread, size_t number,
		       struct dinst_error *e)
{
	struct snapshot *shot = search->shot;
	const struct stack_span span = thread->spans[number];
	taddr_t at = span.lo;

	while (at < span.hi && !thread->unfollowed) {
		size_t index = snapshot_region_index(shot, at);
		struct signal_frame frame;

		if (index == shot->region_count || shot->regions[index].lo >= span.hi)
			break;
		if (signal_frames_find(search, &shot->regions[index], e))
			return DINST_NO_MEMORY;
		if (!signal_frames_from(&shot->regions[index], at, &frame)) {
			at = shot->regions[index].hi;
			thread->unfollowed |= shot->regions[index].signals->incomplete;
			continue;
		}
		at = frame.at + WORD;
		if (frame.at + WORD > span.hi)
			break;
		thread->spans[number].has_signals = true;
		thread->unfollowed |= ++thread->frames > THREAD_FRAMES;
		thread->partial |= frame.sp % WORD != 0;
		/* Adding moves the regions. */
		if (!has_span(thread, frame.sp) && add_stack(shot, thread, frame.sp, e))
			return e && e->code ? e->code : DINST_NO_MEMORY;
	}
	thread->partial |= thread->unfollowed;
	return DINST_OK;
}

/* What can be a stack at its thread pointer: the C library puts a thread's block on top of its stack. */
static const struct maps_entry *own_mapping(const struct snapshot *shot,
					    const struct stack_shot *thread)
{
	const struct maps_entry *entry = maps_find(&shot->maps, arch_thread_pointer(&thread->regs));

	return is_stack_memory(entry) ? entry : NULL;
}

static bool is_on(const struct stack_shot *thread, taddr_t lo, taddr_t hi)
{
	for (size_t i = 0; i < thread->span_count; i++)
		if (thread->spans[i].lo < hi && thread->spans[i].hi > lo)
			return true;
	return false;
}

/*
 * A thread that runs on a stack of the program's own making, and came there from
 * a signal handler, has left a frame on the one that it was given. How deep that
 * is in use is not known, so that all of it counts that was ever used; what lies above the thread's block is
 * another stack. `most`: bytes that are copied; where OWN_MOST are too few everything counts.
 */
static int add_home(struct snapshot *shot, struct stack_shot *thread, const struct maps_entry *home,
		    size_t most, struct dinst_error *e)
{
	const taddr_t pointer = arch_thread_pointer(&thread->regs);
	const taddr_t own = home ? end_of_own(shot, thread, home->lo, home) : 0;
	bool beyond = false;
	taddr_t hi, lo;

	if (!home)
		return DINST_OK;
	hi = own && strcmp(home->name, "[stack]") != 0 ? pointer - pointer % WORD : home->hi;
	if (is_on(thread, home->lo, hi) || hi == home->lo)
		return DINST_OK;
	if (!own)
		most = HOME_MOST;
	lo = hi - home->lo > most ? hi - most : home->lo;
	lo -= lo % PAGE;
	if (own) {
		lo = snapshot_home_begin(shot, home, lo, hi, &beyond);
		thread->partial |= most == OWN_MOST && beyond;
	}
	return lo < hi ? add_span(shot, thread, lo, hi, e) : DINST_OK;
}

/*
 * The kernel's [stack] is that of the first thread. In a child that another thread has forked the only one
 * has its number, and that other's stack: nothing tells, so that what is at its thread pointer counts, too.
 */
static int add_homes(struct snapshot *shot, struct stack_shot *thread, struct dinst_error *e)
{
	const struct maps_entry *first;
	bool is_first;
	int result;

	if (thread->tid != target_pid(shot->target))
		return add_home(shot, thread, own_mapping(shot, thread), OWN_MOST, e);
	first = maps_named(&shot->maps, "[stack]");
	is_first = first && is_on(thread, first->lo, first->hi);
	result = add_home(shot, thread, first, OWN_MOST, e);
	if (result || is_first)
		return result;
	return add_home(shot, thread, own_mapping(shot, thread), OTHER_MOST, e);
}

static int follow_spans(struct signal_search *search, struct stack_shot *thread, size_t from,
			struct dinst_error *e)
{
	int result = DINST_OK;

	for (size_t i = from; i < thread->span_count && !result; i++)
		result = follow_span(search, thread, i, e);
	return result;
}

static int take_thread(struct signal_search *search, struct stack_shot *thread,
		       struct dinst_error *e)
{
	int result = add_stack(search->shot, thread, arch_sp(&thread->regs), e);
	size_t followed;

	if (!result)
		result = follow_spans(search, thread, 0, e);
	followed = thread->span_count;
	if (!result)
		result = add_homes(search->shot, thread, e);
	return result ? result : follow_spans(search, thread, followed, e);
}

/* ------------------------------------------------------------ life of one */

int snapshot_take_threads(struct stop *s, struct snapshot **out, struct dinst_error *e)
{
	struct snapshot *shot = calloc(1, sizeof(*shot));
	struct signal_search *search = calloc(1, sizeof(*search));
	size_t count = stop_thread_count(s);
	int result;

	if (!shot || !search) {
		result = dinst_fail(e, DINST_NO_MEMORY, "no memory for a snapshot");
		goto out;
	}
	shot->target = stop_target(s);
	shot->threads = calloc(count + 1, sizeof(*shot->threads));
	if (!shot->threads) {
		result = dinst_fail(e, DINST_NO_MEMORY, "no memory for a snapshot");
		goto out;
	}
	result = maps_read(target_pid(shot->target), &shot->maps, e);
	if (result)
		goto out;
	signal_search_begin(search, shot);
	for (size_t i = 0; i < count && !result; i++) {
		const struct stop_thread *thread = stop_thread(s, i);
		struct stack_shot *copied = &shot->threads[shot->thread_count];

		if (thread->kernel_worker)
			continue;
		copied->tid = thread->tid;
		copied->regs = thread->regs;
		shot->thread_count++;
		result = take_thread(search, copied, e);
	}
out:
	free(search);
	if (result)
		snapshot_free(shot);
	else
		*out = shot;
	return result;
}

int snapshot_take(struct stop *s, struct snapshot **out, struct dinst_error *e)
{
	int result = snapshot_take_threads(s, out, e);

	if (!result && target_parks(stop_target(s)))
		snapshot_find_parked(*out);
	return result;
}

const struct maps *snapshot_maps(const struct snapshot *shot)
{
	return &shot->maps;
}

void snapshot_free(struct snapshot *shot)
{
	if (!shot)
		return;
	for (size_t i = 0; i < shot->thread_count; i++)
		free(shot->threads[i].spans);
	for (size_t i = 0; i < shot->region_count; i++) {
		free(shot->regions[i].bytes);
		free(shot->regions[i].signals);
	}
	free(shot->parked);
	free(shot->threads);
	free(shot->regions);
	maps_release(&shot->maps);
	free(shot);
}

/* -------------------------------------------------------------------- scan */

/* All words of a copy; the quick filter first: few words are addresses near the ranges. */
static void scan_words(const uint8_t *bytes, size_t size, struct stack_range *ranges, size_t count)
{
	taddr_t lowest = ranges[0].lo;
	taddr_t width = ranges[count - 1].hi - lowest;

	for (size_t at = 0; at + WORD <= size; at += WORD) {
		taddr_t word;

		memcpy(&word, bytes + at, sizeof(word));
		if (word - lowest < width)
			stack_ranges_mark(ranges, count, word);
	}
}

static void scan_registers(const struct stack_shot *thread, bool with_pc,
			   struct stack_range *ranges, size_t count)
{
	taddr_t pc = arch_pc(&thread->regs);
	uint64_t value;

	for (unsigned number = 0; arch_dwarf_register(&thread->regs, number, &value); number++)
		/* The program counter is among them; what merely equals it says the same. */
		if (value != pc)
			stack_ranges_mark(ranges, count, value);
	if (with_pc)
		stack_ranges_mark(ranges, count, pc);
}

static void mark_all(struct stack_range *ranges, size_t count)
{
	for (size_t i = 0; i < count; i++)
		ranges[i].hit = true;
}

static void scan_span(const struct snapshot *shot, const struct stack_span *span,
		      struct stack_range *ranges, size_t count)
{
	size_t at = snapshot_region_index(shot, span->lo);

	for (; at < shot->region_count && shot->regions[at].lo < span->hi; at++) {
		const struct stack_region *r = &shot->regions[at];
		taddr_t lo = r->lo > span->lo ? r->lo : span->lo;
		taddr_t hi = r->hi < span->hi ? r->hi : span->hi;

		scan_words(r->bytes + (lo - r->lo), hi - lo, ranges, count);
	}
}

void snapshot_scan_thread(const struct snapshot *shot, const struct stack_shot *thread,
			  bool with_pc, struct stack_range *ranges, size_t count)
{
	if (thread->partial)
		mark_all(ranges, count);
	if (!count || thread->partial)
		return;
	scan_registers(thread, with_pc, ranges, count);
	for (size_t i = 0; i < thread->span_count; i++)
		scan_span(shot, &thread->spans[i], ranges, count);
}

taddr_t snapshot_signal_above(const struct snapshot *shot, const struct stack_span *span,
			      taddr_t from)
{
	struct signal_frame frame;

	/* A guard in it makes it two copies, or more. */
	for (size_t at = snapshot_region_index(shot, from);
	     at < shot->region_count && shot->regions[at].lo < span->hi; at++)
		if (shot->regions[at].signals &&
		    signal_frames_from(&shot->regions[at], from, &frame))
			return frame.at < span->hi ? frame.at : span->hi;
	return span->hi;
}

void snapshot_scan_left(const struct snapshot *shot, const struct stack_shot *thread,
			const taddr_t *walked, struct stack_range *ranges, size_t count)
{
	for (size_t i = 0; i < thread->span_count && count; i++) {
		struct stack_span left = thread->spans[i];

		if (walked[i])
			left.lo = snapshot_signal_above(shot, &left, walked[i]);
		if (left.has_signals)
			scan_span(shot, &left, ranges, count);
	}
}

static size_t scan(const struct snapshot *shot, bool with_pc, struct stack_range *ranges,
		   size_t count)
{
	if (!count)
		return 0;
	/* Each region once, though threads may share it. */
	for (size_t i = 0; i < shot->region_count; i++)
		scan_words(shot->regions[i].bytes, shot->regions[i].hi - shot->regions[i].lo,
			   ranges, count);
	for (size_t i = 0; i < shot->thread_count; i++) {
		if (shot->threads[i].partial)
			mark_all(ranges, count);
		scan_registers(&shot->threads[i], with_pc, ranges, count);
	}
	snapshot_mark_parked(shot, ranges, count);
	return stack_ranges_hits(ranges, count);
}

void snapshot_mark_parked(const struct snapshot *shot, struct stack_range *ranges, size_t count)
{
	if (!count)
		return;
	if (shot->parked_unknown)
		mark_all(ranges, count);
	scan_words((const uint8_t *)shot->parked, shot->parked_count * WORD, ranges, count);
}

size_t snapshot_scan(const struct snapshot *shot, struct stack_range *ranges, size_t count)
{
	return scan(shot, true, ranges, count);
}

size_t snapshot_scan_stacks(const struct snapshot *shot, struct stack_range *ranges, size_t count)
{
	return scan(shot, false, ranges, count);
}

bool snapshot_parks(const struct snapshot *shot, const struct stack_range *ranges, size_t count)
{
	for (size_t i = 0; i < shot->parked_count && count; i++)
		if (range_of(ranges, count, shot->parked[i]) < count)
			return true;
	return shot->parked_unknown && count;
}

static bool region_touches(const struct stack_region *r, taddr_t lo, taddr_t hi,
			   const struct stack_range *ranges, size_t count)
{
	const taddr_t lowest = ranges[0].lo, width = ranges[count - 1].hi - lowest;

	for (taddr_t at = lo; at + WORD <= hi; at += WORD) {
		taddr_t word;

		memcpy(&word, r->bytes + (at - r->lo), sizeof(word));
		if (word - lowest < width && range_of(ranges, count, word) < count)
			return true;
	}
	return false;
}

static bool thread_touches(const struct snapshot *shot, const struct stack_shot *thread,
			   const struct stack_range *ranges, size_t count)
{
	uint64_t value;

	for (unsigned number = 0; arch_dwarf_register(&thread->regs, number, &value); number++)
		if (range_of(ranges, count, value) < count)
			return true;
	for (size_t i = 0; i < thread->span_count; i++) {
		const struct stack_span *span = &thread->spans[i];
		size_t at = snapshot_region_index(shot, span->lo);

		for (; at < shot->region_count && shot->regions[at].lo < span->hi; at++) {
			const struct stack_region *r = &shot->regions[at];
			taddr_t lo = r->lo > span->lo ? r->lo : span->lo;
			taddr_t hi = r->hi < span->hi ? r->hi : span->hi;

			if (region_touches(r, lo, hi, ranges, count))
				return true;
		}
	}
	return thread->partial;
}

pid_t snapshot_touches(const struct snapshot *shot, pid_t tid, const struct stack_range *ranges,
		       size_t count)
{
	for (size_t i = 0; i < shot->thread_count && count; i++)
		if ((!tid || shot->threads[i].tid == tid) &&
		    thread_touches(shot, &shot->threads[i], ranges, count))
			return shot->threads[i].tid;
	return 0;
}

bool snapshot_handles(const struct snapshot *shot, pid_t tid)
{
	for (size_t i = 0; i < shot->thread_count; i++)
		if (shot->threads[i].tid == tid)
			return shot->threads[i].frames || shot->threads[i].partial;
	return false;
}
