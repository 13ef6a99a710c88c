/* SPDX-License-Identifier: MIT */
/*
 * heap.c - the instrumentation heap: counters, and code through heap_code.c.
 *
 * Owns all book-keeping of one arena; nothing in the target says what is used.
 * Never frees what a thread may still be in: that is the caller's promise.
 */
#include "inject/heap.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "inject/heap_code.h"
#include "inject/journal.h"

enum {
	SLOT = 8,	    /* bytes of one counter in one CPU's block */
	RESERVED = 8,	    /* the first 64 bytes of each block stay unused: arena_create's probe */
	NO_CPU = 2,	    /* words of the table of CPUs for what is no CPU */
	LINE = 64 / SLOT,   /* what is written often does not share a line with the table */
	MARK_NUMERATOR = 3, /* the high-water mark: 3/4 */
	MARK_DENOMINATOR = 4,
};

struct heap {
	struct arena *arena;
	struct heap_code code;

	size_t code_begin; /* offset in the code half: behind the journal */

	size_t first_counter; /* those below stay unused, or are the table of CPUs */
	taddr_t cpu_table;    /* address of the word for CPU 0; 0: there is none */
	uint32_t *references; /* of each counter; 0: free */
	uint64_t *baseline;   /* private arenas: what the slots held when it was allocated */
	uint64_t *last;	      /* private arenas: the value when it could be read last */
	bool *was_used;	      /* the slots may hold something */
	size_t counter_room;  /* counters in one block */
	size_t counter_hint;  /* none below it is free */
	size_t counters_used;
};

/* Where there is room for it: not with thousands of CPUs and small blocks. */
static void make_cpu_table(struct heap *h)
{
	const struct arena *a = h->arena;
	size_t words = (NO_CPU + a->cpus + LINE - 1) / LINE * LINE;
	uint64_t *table = (uint64_t *)(void *)a->data_map + RESERVED + NO_CPU;

	h->first_counter = RESERVED;
	if (RESERVED + 2 * words > h->counter_room)
		return;
	h->first_counter += words;
	for (unsigned cpu = 0; cpu < a->cpus; cpu++)
		table[cpu] = ((uint64_t)cpu << a->cpu_shift) + 1;
	h->cpu_table = a->data + (RESERVED + NO_CPU) * SLOT;
}

int heap_create(struct arena *a, struct heap **out, struct dinst_error *e)
{
	struct heap *h = calloc(1, sizeof(*h));

	if (!h)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the heap's book-keeping");
	h->arena = a;
	h->code_begin = journal_size(a);
	h->counter_room = ((size_t)1 << a->cpu_shift) / SLOT;
	make_cpu_table(h);
	h->counter_hint = h->first_counter;
	h->references = calloc(h->counter_room, sizeof(*h->references));
	h->was_used = calloc(h->counter_room, sizeof(*h->was_used));
	if (a->mode == ARENA_PRIVATE) {
		h->baseline = calloc(h->counter_room, sizeof(*h->baseline));
		h->last = calloc(h->counter_room, sizeof(*h->last));
	}
	if (!h->references || !h->was_used ||
	    (a->mode == ARENA_PRIVATE && (!h->baseline || !h->last)) ||
	    !heap_code_init(&h->code, a->code_size)) {
		heap_destroy(h);
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the heap's book-keeping");
	}
	*out = h;
	return DINST_OK;
}

void heap_destroy(struct heap *h)
{
	if (!h)
		return;
	heap_code_release(&h->code);
	free(h->references);
	free(h->baseline);
	free(h->last);
	free(h->was_used);
	free(h);
}

/* ------------------------------------------------------------------- code */

static int alloc(struct heap *h, enum heap_warmth warmth, size_t size, taddr_t *out,
		 struct dinst_error *e)
{
	size_t offset;

	if (!size)
		return dinst_fail(e, DINST_FAILED, "an empty piece of code was asked for");
	if (!heap_code_alloc(&h->code, warmth, size, h->code_begin, &offset))
		return dinst_fail(
			e, DINST_NO_MEMORY,
			"the instrumentation heap at %#llx has no room for %zu bytes of code",
			(unsigned long long)h->arena->code, size);
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
	heap_code_free(&h->code, address - h->arena->code);
}

/* --------------------------------------------------------------- counters */

/* Our view of one slot of a counter; index cpus is the locked one. */
static uint64_t *slot_map(const struct heap *h, size_t number, unsigned cpu)
{
	return (uint64_t *)(void *)(h->arena->data_map + ((size_t)cpu << h->arena->cpu_shift) +
				    number * SLOT);
}

/* A private arena's values are the target's alone. False if it cannot be read (any more). */
static bool sum_private(const struct heap *h, size_t number, uint64_t *sum)
{
	const struct arena *a = h->arena;
	uint64_t value;

	*sum = 0;
	for (unsigned cpu = 0; cpu <= a->cpus; cpu++) {
		taddr_t at = a->data + ((taddr_t)cpu << a->cpu_shift) + number * SLOT;

		if (target_read_some(a->target, at, &value, sizeof(value)) != sizeof(value))
			return false;
		*sum += value;
	}
	return true;
}

static uint64_t sum_shared(const struct heap *h, size_t number)
{
	uint64_t sum = 0;

	for (unsigned cpu = 0; cpu <= h->arena->cpus; cpu++)
		sum += __atomic_load_n(slot_map(h, number, cpu), __ATOMIC_RELAXED);
	return sum;
}

/* Slots that were never used are zero already; writing them would only make pages exist. */
static void clear_slots(struct heap *h, size_t number)
{
	if (h->arena->mode == ARENA_PRIVATE)
		h->last[number] = 0;
	if (!h->was_used[number])
		return;
	if (h->arena->mode == ARENA_PRIVATE) {
		sum_private(h, number, &h->baseline[number]);
		return;
	}
	for (unsigned cpu = 0; cpu <= h->arena->cpus; cpu++)
		__atomic_store_n(slot_map(h, number, cpu), 0, __ATOMIC_RELAXED);
}

int heap_alloc_counter(struct heap *h, taddr_t *out, struct dinst_error *e)
{
	size_t number = h->counter_hint;

	while (number < h->counter_room && h->references[number])
		number++;
	h->counter_hint = number;
	if (number == h->counter_room)
		return dinst_fail(e, DINST_NO_MEMORY,
				  "all %zu counters of the arena at %#llx are in use",
				  h->counter_room - h->first_counter,
				  (unsigned long long)h->arena->data);
	clear_slots(h, number);
	h->was_used[number] = true;
	h->references[number] = 1;
	h->counter_hint = number + 1;
	h->counters_used++;
	*out = h->arena->data + number * SLOT;
	return DINST_OK;
}

static size_t counter_number(const struct heap *h, taddr_t counter)
{
	size_t number;

	assert(counter >= h->arena->data && (counter - h->arena->data) % SLOT == 0);
	number = (counter - h->arena->data) / SLOT;
	assert(number < h->counter_room && h->references[number]);
	return number;
}

void heap_ref_counter(struct heap *h, taddr_t counter)
{
	h->references[counter_number(h, counter)]++;
}

void heap_unref_counter(struct heap *h, taddr_t counter)
{
	size_t number = counter_number(h, counter);

	if (--h->references[number])
		return;
	h->counters_used--;
	if (number < h->counter_hint)
		h->counter_hint = number;
}

taddr_t heap_cpu_table(const struct heap *h)
{
	return h->cpu_table;
}

uint64_t heap_read_counter(const struct heap *h, taddr_t counter)
{
	size_t number = counter_number(h, counter);
	uint64_t sum;

	if (h->arena->mode == ARENA_SHARED)
		return sum_shared(h, number);
	if (sum_private(h, number, &sum))
		h->last[number] = sum - h->baseline[number];
	return h->last[number];
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

static bool above(size_t used, size_t capacity)
{
	return used > capacity / MARK_DENOMINATOR * MARK_NUMERATOR;
}

void heap_get_stats(const struct heap *h, struct heap_stats *stats)
{
	size_t slots = (size_t)h->arena->cpus + 1;

	stats->code_bytes = h->code.bytes;
	stats->counter_bytes = h->counters_used * SLOT * slots;
	stats->used = h->code.pages_taken * HEAP_PAGE;
	stats->touched = (h->code.page_count - h->code.floor) * HEAP_PAGE;
	stats->capacity = h->arena->code_size - h->code_begin;
	stats->above_mark = above(stats->used, stats->capacity) ||
			    above(h->counters_used, h->counter_room - h->first_counter);
}
