/* SPDX-License-Identifier: MIT */
/*
 * heap.c - the instrumentation heap: code through heap_code.c, data through
 * heap_counters.c.
 *
 * Owns all book-keeping of one arena; nothing in the target says what is used.
 * Never frees what a thread may still be in: that is the caller's promise.
 */
#include "inject/heap.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "inject/heap_private.h"
#include "inject/journal.h"

enum {
	MARK_NUMERATOR = 3, /* the high-water mark: 3/4 */
	MARK_DENOMINATOR = 4,
	SPARE_LEAST = 16, /* pages that compaction must free */
	BLOCK = 512,	  /* of st_blocks, stat(2) */
};

static bool above(size_t used, size_t capacity)
{
	return used > capacity / MARK_DENOMINATOR * MARK_NUMERATOR;
}

int heap_create(struct arena *a, struct heap **out, struct dinst_error *e)
{
	struct heap *h = calloc(1, sizeof(*h));
	int status = DINST_OK;

	if (!h)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the heap's book-keeping");
	h->arena = a;
	h->code_begin = journal_size(a);
	if (!heap_code_init(&h->code, a->code_size))
		status = dinst_fail(e, DINST_NO_MEMORY, "no memory for the heap's book-keeping");
	if (!status)
		status = heap_counters_init(h, e);
	if (status) {
		heap_destroy(h);
		return status;
	}
	*out = h;
	return DINST_OK;
}

static void tell_totals(struct heap *h, size_t used, size_t counters)
{
	struct heap_totals *t = h->totals;

	if (!t)
		return;
	t->used += used - h->told_used;
	t->counter_bytes += counters - h->told_counters;
	h->told_used = used;
	h->told_counters = counters;
	if (t->used > t->used_most)
		t->used_most = t->used;
	if (t->counter_bytes > t->counter_most)
		t->counter_most = t->counter_bytes;
}

void heap_tell(struct heap *h)
{
	tell_totals(h, h->code.pages_taken * HEAP_PAGE, h->counter_bytes);
}

void heap_count_in(struct heap *h, struct heap_totals *totals)
{
	h->totals = totals;
	heap_tell(h);
}

bool heap_was_full(struct heap *h)
{
	const bool was = h->was_full;

	h->was_full = false;
	return was;
}

void heap_destroy(struct heap *h)
{
	if (!h)
		return;
	tell_totals(h, 0, 0);
	heap_code_release(&h->code);
	heap_counters_release(h);
	free(h);
}

/* ------------------------------------------------------------------- code */

static int alloc(struct heap *h, enum heap_warmth warmth, size_t size, taddr_t *out,
		 struct dinst_error *e)
{
	const size_t floor = h->code.floor;
	size_t offset;
	int status;

	if (!size)
		return dinst_fail(e, DINST_FAILED, "an empty piece of code was asked for");
	if (!heap_code_alloc(&h->code, warmth, size, h->code_begin, &offset)) {
		h->was_full = true;
		return dinst_fail(
			e, DINST_NO_MEMORY,
			"the instrumentation heap at %#llx has no room for %zu bytes of code: remove something first",
			(unsigned long long)h->arena->code, size);
	}
	if (h->code.floor != floor)
		journal_note_floor(h->arena, h->code.floor * HEAP_PAGE);
	status = arena_make_pages(h->arena, offset, size, e);
	if (status) {
		heap_code_free(&h->code, offset);
		return status;
	}
	if (h->code.pages_taken > h->high_water)
		h->high_water = h->code.pages_taken;
	heap_tell(h);
	*out = h->arena->code + offset;
	return DINST_OK;
}

int heap_alloc_code(struct heap *h, size_t size, taddr_t *out, struct dinst_error *e)
{
	return alloc(h, HEAP_HOT, size, out, e);
}

int heap_alloc_cold(struct heap *h, size_t size, taddr_t *out, struct dinst_error *e)
{
	return alloc(h, HEAP_COLD, size, out, e);
}

void heap_free_code(struct heap *h, taddr_t address)
{
	assert(address >= h->arena->code + h->code_begin);
	assert(address < h->arena->code + h->arena->code_size);
	if (h->poison)
		arch_fill_poison(h->arena->code_map + (address - h->arena->code),
				 heap_code_piece(&h->code, address - h->arena->code));
	heap_code_free(&h->code, address - h->arena->code);
	heap_tell(h);
}

void heap_poison_freed(struct heap *h)
{
	h->poison = true;
}

bool heap_is_poison(const struct heap *h, taddr_t address)
{
	const taddr_t begin = h->arena->code + h->code_begin;

	return h->poison && address >= begin && address < h->arena->code + h->arena->code_size &&
	       !heap_code_is_taken(&h->code, address - h->arena->code);
}

/* ------------------------------------------------------------- compaction */

bool heap_wants_compaction(const struct heap *h)
{
	const size_t spare = heap_code_spare_pages(&h->code);
	const size_t capacity = h->arena->code_size - h->code_begin;

	return spare >= SPARE_LEAST && (2 * spare >= h->code.pages_taken ||
					above(h->code.pages_taken * HEAP_PAGE, capacity));
}

void heap_begin_compaction(struct heap *h)
{
	heap_code_begin_leaving(&h->code);
}

bool heap_is_leaving(const struct heap *h, taddr_t address)
{
	return heap_code_is_leaving(&h->code, address - h->arena->code);
}

void heap_end_compaction(struct heap *h)
{
	heap_code_end_leaving(&h->code);
}

/* -------------------------------------------------------------- the whole */

static bool within(taddr_t address, size_t size, taddr_t start, size_t length)
{
	return address >= start && size <= length && address - start <= length - size;
}

void *heap_map(const struct heap *h, taddr_t address, size_t size)
{
	const struct arena *a = h->arena;

	if (within(address, size, a->code, a->code_size))
		return a->code_map + (address - a->code);
	if (within(address, size, a->data, a->data_size))
		return a->data_map + (address - a->data);
	return NULL;
}

void heap_get_stats(const struct heap *h, struct heap_stats *stats)
{
	struct stat file;

	stats->code_bytes = h->code.bytes;
	stats->counter_bytes = h->counter_bytes;
	stats->counter_most = h->counter_most;
	stats->used = h->code.pages_taken * HEAP_PAGE;
	stats->touched = (h->code.page_count - h->code.floor) * HEAP_PAGE;
	stats->high_water = h->high_water * HEAP_PAGE;
	stats->resident = !h->arena->code_map || h->arena->fd < 0 || fstat(h->arena->fd, &file)
				  ? 0
				  : (size_t)file.st_blocks * BLOCK;
	stats->capacity = h->arena->code_size - h->code_begin;
	stats->above_mark = above(stats->used, stats->capacity) ||
			    above(h->counters_used, h->counter_room - h->first_counter);
}
