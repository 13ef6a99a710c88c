/* SPDX-License-Identifier: MIT */
/*
 * stack_regions.c - the copies of stacks that a snapshot has. A guard that is no mapping of its own
 * (MADV_GUARD_INSTALL) has nothing in it, so that it is gone round. What else cannot be
 * read makes a copy a part of what was asked for.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/stack_snapshot.h"

/*
 * Bytes of all copies: what a program can make of its stack pointers must not take the
 * memory of the machine. Of a stack that is not copied everything counts.
 */
static const size_t ALL_MOST = (size_t)512 << 20;

enum {
	WORD = 8,
	PAGE = 4096,
	GUARDS_MOST = 4096, /* that are gone round in one snapshot, some 5 us each */
	PIECE_PAGES = 512,  /* looked at together */
};

size_t snapshot_region_index(const struct snapshot *shot, taddr_t address)
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
	size_t at = snapshot_region_index(shot, address);
	const struct stack_region *r = &shot->regions[at];

	if (at == shot->region_count || address < r->lo || r->hi - address < size)
		return NULL;
	return r->bytes + (address - r->lo);
}

static bool make_region_room(struct snapshot *shot)
{
	size_t room = shot->region_room ? shot->region_room * 2 : 64;
	struct stack_region *grown;

	if (shot->region_count < shot->region_room)
		return true;
	grown = realloc(shot->regions, room * sizeof(*grown));
	if (!grown)
		return false;
	shot->regions = grown;
	shot->region_room = room;
	return true;
}

static void insert_region(struct snapshot *shot, taddr_t lo, size_t size, uint8_t *bytes)
{
	size_t at = snapshot_region_index(shot, lo);

	memmove(&shot->regions[at + 1], &shot->regions[at],
		(shot->region_count - at) * sizeof(*shot->regions));
	shot->regions[at] = (struct stack_region){.lo = lo, .hi = lo + size, .bytes = bytes};
	shot->region_count++;
	shot->copied += size;
}

/* Behind the guard that begins there (madvise(2), MADV_GUARD_INSTALL: nothing is in it); `at`: there is none. */
static taddr_t behind_guard(struct snapshot *shot, taddr_t at, taddr_t hi)
{
	const int pagemap = shot->guards < GUARDS_MOST
				    ? maps_open_pagemap(target_memory_tid(shot->target))
				    : -1;

	if (pagemap < 0)
		return at;
	shot->guards++;
	at = maps_skip_guards(pagemap, at, hi);
	close(pagemap);
	return at;
}

/*
 * Copies [lo, hi), of which nothing is copied yet, or its beginning up to a guard. *partial if not
 * all can be read. *next: where to go on.
 */
static int add_region(struct snapshot *shot, taddr_t lo, taddr_t hi, taddr_t *next, bool *partial,
		      struct dinst_error *e)
{
	uint8_t *bytes, *less;
	size_t got;

	*next = hi;
	if (!make_region_room(shot))
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for copies of stacks");
	if (hi - lo > ALL_MOST - shot->copied) {
		*partial = true;
		return DINST_OK;
	}
	bytes = malloc(hi - lo);
	if (!bytes)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a copy of %llu KiB of stack",
				  (unsigned long long)(hi - lo) >> 10);
	got = target_read_some(shot->target, lo, bytes, hi - lo);
	if (got < hi - lo) {
		*next = behind_guard(shot, lo + got, hi);
		if (*next == lo + got) {
			*partial = true;
			*next = hi;
		}
		less = got < WORD ? NULL : realloc(bytes, got);
		bytes = less ? less : bytes;
	}
	if (got < WORD)
		free(bytes);
	else
		insert_region(shot, lo, got / WORD * WORD, bytes);
	return DINST_OK;
}

int snapshot_copy(struct snapshot *shot, taddr_t lo, taddr_t hi, bool *partial,
		  struct dinst_error *e)
{
	int result = DINST_OK;

	while (lo < hi && !result) {
		size_t at = snapshot_region_index(shot, lo);
		taddr_t end = hi;

		if (at < shot->region_count && shot->regions[at].lo <= lo) {
			lo = shot->regions[at].hi;
			continue;
		}
		if (at < shot->region_count && shot->regions[at].lo < hi)
			end = shot->regions[at].lo;
		result = add_region(shot, lo, end, &lo, partial, e);
	}
	return result;
}

/* Downwards from the page that ends at `end`, if there is any in [lo, end); *guarded: to a guard. */
static taddr_t lowest_page(int pagemap, taddr_t lo, taddr_t end, bool *guarded)
{
	uint64_t entries[PIECE_PAGES];
	taddr_t lowest = end;

	lo = maps_first_page(pagemap, lo, end) / PAGE * PAGE;
	for (size_t count; end > lo; end -= (taddr_t)count * PAGE) {
		count = (end - lo) / PAGE < PIECE_PAGES ? (end - lo) / PAGE : PIECE_PAGES;
		if (pread(pagemap, entries, count * WORD, (off_t)((end / PAGE - count) * WORD)) !=
		    (ssize_t)(count * WORD))
			return lo;
		for (size_t i = count; i-- > 0;) {
			*guarded = entries[i] & MAPS_PAGEMAP_GUARD;
			if (*guarded)
				return lowest;
			if (entries[i] & MAPS_PAGEMAP_THERE)
				lowest = end - (taddr_t)(count - i) * PAGE;
		}
	}
	return lowest;
}

taddr_t snapshot_home_begin(const struct snapshot *shot, const struct maps_entry *home, taddr_t lo,
			    taddr_t hi, bool *beyond)
{
	/* What is shared may be there, and this process have no pages of it yet: it was forked. */
	static const taddr_t SHARED_LEAST = 1 << 20;
	const int pagemap = maps_open_pagemap(target_memory_tid(shot->target));
	taddr_t begin = lo, least;
	bool guarded = false, ignored = false;

	*beyond = lo > home->lo;
	if (pagemap >= 0) {
		begin = lowest_page(pagemap, lo, (hi + PAGE - 1) / PAGE * PAGE, &guarded);
		/* Behind a guard in one mapping there is another stack. */
		*beyond = *beyond && !guarded && lowest_page(pagemap, home->lo, lo, &ignored) < lo;
		close(pagemap);
	}
	if (home->shared) {
		least = hi - lo > SHARED_LEAST ? (hi - SHARED_LEAST) / PAGE * PAGE : lo;
		return begin < least ? begin : least;
	}
	return begin < hi ? begin : hi;
}
