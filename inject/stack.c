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
 * with all that lies above it, so outside of the main thread's own mapping a
 * stack is taken to be no deeper than OTHER_MOST: what could be missed so is
 * a signal frame that lies deeper still.
 */
#include "inject/stack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "inject/stack_signals.h"

static const size_t MAIN_MOST = (size_t)64 << 20;  /* bytes copied of the main thread's stack */
static const size_t OTHER_MOST = (size_t)16 << 20; /* ... of any other */
static const size_t HOME_MOST = (size_t)1 << 20;   /* ... of one that its thread has left */
/*
 * ... of all stacks: what a program can make of its stack pointers must not take the
 * memory of the machine. Of a stack that is not copied everything counts.
 */
static const size_t ALL_MOST = (size_t)512 << 20;

/*
 * ... counted as often as threads share them (some seconds' looking at each of them): of the
 * stacks beyond everything counts, too.
 */
static const size_t SPANNED_MOST = (size_t)16 << 30;

enum {
	WORD = 8,
	THREAD_FRAMES = 1024, /* of signals, on the stacks of one thread */
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

/* ----------------------------------------------------------------- regions */

/* Index of the first region that ends above `address`. */
static size_t region_index(const struct snapshot *shot, taddr_t address)
{
	size_t lo = 0, hi = shot->region_count;

	while (lo < hi) {
		size_t middle = lo + (hi - lo) / 2;

		if (shot->regions[middle].hi <= address)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo;
}

const uint8_t *snapshot_bytes(const struct snapshot *shot, taddr_t address, size_t size)
{
	size_t at = region_index(shot, address);
	const struct stack_region *r = &shot->regions[at];

	if (at == shot->region_count || address < r->lo || r->hi - address < size)
		return NULL;
	return r->bytes + (address - r->lo);
}

/* Copies [lo, hi), of which nothing is copied yet. *partial if not all can be read. */
static int add_region(struct snapshot *shot, taddr_t lo, taddr_t hi, bool *partial,
		      struct dinst_error *e)
{
	size_t at = region_index(shot, lo);
	struct stack_region *grown;
	uint8_t *bytes;
	size_t got;

	if (shot->region_count == shot->region_room) {
		size_t room = shot->region_room ? shot->region_room * 2 : 64;

		grown = realloc(shot->regions, room * sizeof(*grown));
		if (!grown)
			return dinst_fail(e, DINST_NO_MEMORY, "no memory for copies of stacks");
		shot->regions = grown;
		shot->region_room = room;
	}
	if (hi - lo > ALL_MOST - shot->copied) {
		*partial = true;
		return DINST_OK;
	}
	bytes = malloc(hi - lo);
	if (!bytes)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a copy of %llu KiB of stack",
				  (unsigned long long)(hi - lo) >> 10);
	got = target_read_some(shot->target, lo, bytes, hi - lo);
	if (got < hi - lo)
		*partial = true;
	if (got < WORD) {
		free(bytes);
		return DINST_OK;
	}
	memmove(&shot->regions[at + 1], &shot->regions[at],
		(shot->region_count - at) * sizeof(*shot->regions));
	shot->regions[at] =
		(struct stack_region){.lo = lo, .hi = lo + got / WORD * WORD, .bytes = bytes};
	shot->region_count++;
	shot->copied += hi - lo;
	return DINST_OK;
}

/* Makes sure that all of [lo, hi) is copied. */
static int copy(struct snapshot *shot, taddr_t lo, taddr_t hi, bool *partial, struct dinst_error *e)
{
	int result = DINST_OK;

	while (lo < hi && !result) {
		size_t at = region_index(shot, lo);
		taddr_t end = hi;

		if (at < shot->region_count && shot->regions[at].lo <= lo) {
			lo = shot->regions[at].hi;
			continue;
		}
		if (at < shot->region_count && shot->regions[at].lo < hi)
			end = shot->regions[at].lo;
		result = add_region(shot, lo, end, partial, e);
		lo = end;
	}
	return result;
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

/* Adds the stack that `sp` points into to the thread's spans, and copies it. */
static int add_stack(struct snapshot *shot, struct stack_shot *thread, taddr_t sp,
		     struct dinst_error *e)
{
	const struct maps_entry *entry = maps_find(&shot->maps, sp), *last;
	taddr_t lo = sp > arch_red_zone ? sp - arch_red_zone : 0;
	taddr_t hi;
	struct stack_span *grown;

	/* An empty stack: sp is the end of the mapping. */
	if (!is_stack_memory(entry) && sp)
		entry = maps_find(&shot->maps, sp - 1);
	if (!is_stack_memory(entry) || thread->span_count == STACK_SPANS_MAX) {
		thread->partial = true;
		return DINST_OK;
	}
	if (lo < entry->lo)
		lo = entry->lo;
	lo -= lo % WORD;
	last = maps_stack_end(&shot->maps, entry, arch_thread_pointer(&thread->regs));
	hi = last->hi;
	if (strcmp(last->name, "[stack]") && hi - lo > OTHER_MOST) {
		hi = lo + OTHER_MOST;
	} else if (hi - lo > MAIN_MOST) {
		hi = lo + MAIN_MOST;
		thread->partial = true;
	}
	grown = realloc(thread->spans, (thread->span_count + 1) * sizeof(*grown));
	if (!grown)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for copies of stacks");
	thread->spans = grown;
	thread->spans[thread->span_count++] = (struct stack_span){.lo = lo, .hi = hi};
	shot->spanned += hi - lo;
	thread->partial |= shot->spanned > SPANNED_MOST;
	return copy(shot, lo, hi, &thread->partial, e);
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
		size_t index = region_index(shot, at);
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
		/* Adding moves the regions. */
		if (!has_span(thread, frame.sp) && add_stack(shot, thread, frame.sp, e))
			return e && e->code ? e->code : DINST_NO_MEMORY;
	}
	thread->partial |= thread->unfollowed;
	return DINST_OK;
}

/* The stack that the thread was given when it began; NULL where it cannot be told. */
static const struct maps_entry *home_of(const struct snapshot *shot,
					const struct stack_shot *thread)
{
	const struct maps_entry *entry;

	if (thread->tid == target_pid(shot->target))
		return maps_named(&shot->maps, "[stack]");
	/* The C library puts a thread's block on top of its stack. */
	entry = maps_find(&shot->maps, arch_thread_pointer(&thread->regs));
	return is_stack_memory(entry) && !entry->shared ? entry : NULL;
}

/*
 * A thread that runs on a stack of the program's own making, and came there from
 * a signal handler, has left a frame on the one that it was given. How deep that
 * is in use is not known, so that all of it counts.
 */
static int add_home(struct snapshot *shot, struct stack_shot *thread, struct dinst_error *e)
{
	const struct maps_entry *home = home_of(shot, thread);
	taddr_t lo;

	for (size_t i = 0; home && i < thread->span_count; i++)
		if (thread->spans[i].lo < home->hi && thread->spans[i].hi > home->lo)
			home = NULL;
	if (!home)
		return DINST_OK;
	lo = home->hi - home->lo > HOME_MOST ? home->hi - HOME_MOST : home->lo;
	return add_stack(shot, thread, lo + arch_red_zone, e);
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
		result = add_home(search->shot, thread, e);
	return result ? result : follow_spans(search, thread, followed, e);
}

/* ------------------------------------------------------------ life of one */

int snapshot_take(struct stop *s, struct snapshot **out, struct dinst_error *e)
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
	if (!result && target_parks(shot->target))
		snapshot_find_parked(shot);
out:
	free(search);
	if (result)
		snapshot_free(shot);
	else
		*out = shot;
	return result;
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
	size_t at = region_index(shot, span->lo);

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

void snapshot_scan_left(const struct snapshot *shot, const struct stack_shot *thread,
			uint32_t walked, struct stack_range *ranges, size_t count)
{
	for (size_t i = 0; i < thread->span_count && count; i++)
		if (thread->spans[i].has_signals && !(walked >> i & 1))
			scan_span(shot, &thread->spans[i], ranges, count);
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
		size_t at = region_index(shot, span->lo);

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
