/* SPDX-License-Identifier: MIT */
/*
 * heap_counters.c - the data half of an arena: rows of counters, and rows of
 * words that all CPUs share.
 *
 *     block of CPU 0     | reserved | table of CPUs | singles -> ...  <- rows |
 *     ...
 *     block of CPU n - 1 |                          |           the same      |
 *     locked block       |                          |                         |
 *
 * A slot has the same number in every block. Words take slots as counters do,
 * and are those of the locked block; the others stay untouched. Single slots
 * are given out from below and rows from above, so that they do not cut each
 * other's room in pieces.
 *
 * Room is address space: a page comes to exist when somebody writes it, or
 * looks at it through a mapping. So whatever looks at much asks first where
 * there is something (lseek(2), SEEK_DATA: tmpfs tells pages that were swapped
 * out from holes, mincore(2) does not).
 *
 * A page is paid for by the control group of who writes it first. Where that of the
 * target has no room the kernel would kill it for an increment of ours: so what is
 * given out is written by us, for the CPUs that there are; not rows that are huge,
 * and for the most part never used. Where arena.commits all is made, or nothing.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/cpus.h"
#include "inject/fault.h"
#include "inject/heap_private.h"

enum {
	RESERVED = 8, /* the first 64 bytes of each block stay unused: arena_create's probe */
	NO_CPU = 2,   /* words of the table of CPUs for what is no CPU */
	LINE = 64 / HEAP_SLOT,	/* what is written often does not share a line with the table */
	FEW = 4096 / HEAP_SLOT, /* slots that are looked at without asking */
	CHUNK = 512,		/* slots that are read at a time */
	/* Slots of a row, and bytes of all rows, for which memory is made beforehand. */
	MADE_SLOTS = 8192,
	MADE_BYTES = 64 << 20,
};

static size_t table_words(size_t cpus)
{
	return (NO_CPU + cpus + LINE - 1) / LINE * LINE;
}

/*
 * Where there is room for it: not with thousands of CPUs and small blocks. If there is, it has a
 * word for whatever number the kernel may give a thread. Code takes what it finds there for a distance
 * and writes there; and the list of possible CPUs is a file, in place of which others may stand in a container.
 */
static int make_cpu_table(struct heap *h, struct dinst_error *e)
{
	struct arena *a = h->arena;
	const unsigned most = cpus_most();
	size_t words = table_words(most > a->cpus ? most : a->cpus);
	uint64_t *table = (uint64_t *)(void *)a->data_map + RESERVED + NO_CPU;
	const size_t at = (size_t)(RESERVED + NO_CPU) * HEAP_SLOT;
	int status;

	h->first_counter = RESERVED;
	if (RESERVED + 2 * words > h->counter_room)
		words = table_words(a->cpus);
	if (RESERVED + 2 * words > h->counter_room)
		return DINST_OK;
	status = arena_make_pages(a, a->code_size, (RESERVED + words) * HEAP_SLOT, e);
	if (status)
		return status;
	h->first_counter += words;
	for (unsigned cpu = 0; cpu < a->cpus; cpu++)
		table[cpu] = ((uint64_t)cpu << a->cpu_shift) + 1;
	arena_data_written(a, at, (size_t)a->cpus * HEAP_SLOT);
	h->cpu_table = a->data + at;
	return DINST_OK;
}

int heap_counters_init(struct heap *h, struct dinst_error *e)
{
	const bool private = h->arena->mode == ARENA_PRIVATE;
	int status;

	h->counter_room = ((size_t)1 << h->arena->cpu_shift) / HEAP_SLOT;
	status = make_cpu_table(h, e);
	if (status)
		return status;
	h->counter_hint = h->first_counter;
	h->row_end = h->counter_room;
	h->references = calloc(h->counter_room, sizeof(*h->references));
	h->was_used = calloc(h->counter_room, sizeof(*h->was_used));
	h->online = calloc(h->arena->cpus, sizeof(*h->online));
	if (h->online)
		cpus_online(h->online, h->arena->cpus);
	if (private) {
		h->baseline = calloc(h->counter_room, sizeof(*h->baseline));
		h->last = calloc(h->counter_room, sizeof(*h->last));
	}
	if (!h->references || !h->was_used || !h->online || (private && (!h->baseline || !h->last)))
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the heap's book-keeping");
	return DINST_OK;
}

void heap_counters_release(struct heap *h)
{
	free(h->references);
	free(h->baseline);
	free(h->last);
	free(h->was_used);
	free(h->online);
}

/* ------------------------------------------------------------------ blocks */

/* Offset in the data half of a slot; block `cpus` is the locked one. */
static size_t slot_offset(const struct heap *h, unsigned block, size_t number)
{
	return ((size_t)block << h->arena->cpu_shift) + number * HEAP_SLOT;
}

static uint64_t *slot_map(const struct heap *h, unsigned block, size_t number)
{
	return (uint64_t *)(void *)(h->arena->data_map + slot_offset(h, block, number));
}

/*
 * Of slots [*from, end) of a block of a shared arena, the first ones that may
 * be other than zero: *from is moved there, and where they end is returned.
 */
static size_t next_extent(const struct heap *h, unsigned block, size_t *from, size_t end)
{
	const struct arena *a = h->arena;
	const off_t begin = (off_t)(a->code_size + slot_offset(h, block, 0));
	off_t data, hole;

	if (a->fd < 0 || end - *from <= FEW)
		return end;
	data = lseek(a->fd, begin + (off_t)(*from * HEAP_SLOT), SEEK_DATA);
	if (data < 0 && errno == ENXIO) /* no data up to the end of the file */
		return *from = end;
	hole = data < 0 ? -1 : lseek(a->fd, data, SEEK_HOLE);
	if (hole < 0)
		return end;
	if (data >= begin + (off_t)(end * HEAP_SLOT))
		return *from = end;
	if (data > begin + (off_t)(*from * HEAP_SLOT))
		*from = (size_t)(data - begin) / HEAP_SLOT;
	return hole < begin + (off_t)(end * HEAP_SLOT) ? (size_t)(hole - begin) / HEAP_SLOT : end;
}

static void add_shared(const struct heap *h, unsigned block, size_t first, size_t count,
		       uint64_t *sums)
{
	size_t from = first;
	const size_t end = first + count;

	while (from < end) {
		const size_t to = next_extent(h, block, &from, end);

		for (; from < to; from++)
			sums[from - first] +=
				__atomic_load_n(slot_map(h, block, from), __ATOMIC_RELAXED);
	}
}

/* A private arena's values are the target's alone. False if they cannot be read (any more). */
static bool add_private(const struct heap *h, unsigned block, size_t first, size_t count,
			uint64_t *sums)
{
	const struct arena *a = h->arena;
	uint64_t values[CHUNK];

	for (size_t done = 0; done < count; done += CHUNK) {
		const size_t some = count - done < CHUNK ? count - done : CHUNK;
		const taddr_t at = a->data + slot_offset(h, block, first + done);

		if (target_read_some(a->target, at, values, some * HEAP_SLOT) != some * HEAP_SLOT)
			return false;
		for (size_t i = 0; i < some; i++)
			sums[done + i] += values[i];
	}
	return true;
}

/* Adds the slots of all blocks to `sums`. */
static bool add_blocks(const struct heap *h, size_t first, size_t count, uint64_t *sums)
{
	for (unsigned block = 0; block <= h->arena->cpus; block++) {
		if (h->arena->mode == ARENA_SHARED)
			add_shared(h, block, first, count, sums);
		else if (!add_private(h, block, first, count, sums))
			return false;
	}
	return true;
}

/* ---------------------------------------------------------------- clearing */

static void clear_shared(struct heap *h, unsigned block, size_t first, size_t count)
{
	size_t from = first;
	const size_t end = first + count;

	while (from < end) {
		const size_t to = next_extent(h, block, &from, end);

		for (; from < to; from++)
			__atomic_store_n(slot_map(h, block, from), 0, __ATOMIC_RELAXED);
	}
}

/* What the target has there is not known: whatever it is, the next arena_sync() sends zeros. */
static void clear_private_words(struct heap *h, size_t first, size_t count)
{
	struct arena *a = h->arena;
	const size_t at = slot_offset(h, a->cpus, first);

	memset(a->data_map + at, 0, count * HEAP_SLOT);
	memset(a->data_sent + at, 0xff, count * HEAP_SLOT);
	arena_data_written(a, at, count * HEAP_SLOT);
	memset(&h->last[first], 0, count * sizeof(*h->last));
	memset(&h->baseline[first], 0, count * sizeof(*h->baseline));
}

/* Counters of a private arena go on from what is there. Words that are still to be sent are not. */
static void clear_private_counters(struct heap *h, size_t first, size_t count)
{
	struct arena *a = h->arena;
	const size_t at = slot_offset(h, a->cpus, first);

	memcpy(a->data_sent + at, a->data_map + at, count * HEAP_SLOT);
	memset(&h->last[first], 0, count * sizeof(*h->last));
	memset(&h->baseline[first], 0, count * sizeof(*h->baseline));
	if (!add_blocks(h, first, count, &h->baseline[first]))
		memset(&h->baseline[first], 0, count * sizeof(*h->baseline));
}

/* Slots that were never used are zero already; writing them would only make pages exist. */
static void clear_row(struct heap *h, size_t first, size_t count, bool words)
{
	if (!memchr(&h->was_used[first], 1, count))
		return;
	if (h->arena->mode == ARENA_PRIVATE && words)
		clear_private_words(h, first, count);
	else if (h->arena->mode == ARENA_PRIVATE)
		clear_private_counters(h, first, count);
	for (unsigned block = 0; h->arena->mode == ARENA_SHARED && block <= h->arena->cpus; block++)
		clear_shared(h, block, first, count);
}

/* -------------------------------------------------------------- allocation */

/* A word in each page of a row that nobody has: zero, as it is. */
static void make_pages(struct heap *h, unsigned block, size_t first, size_t count)
{
	for (size_t slot = first; slot < first + count; slot = (slot / FEW + 1) * FEW) {
		__atomic_store_n(slot_map(h, block, slot), 0, __ATOMIC_RELAXED);
		h->made += count > 1 ? FEW * HEAP_SLOT : 0;
	}
}

static void make_row(struct heap *h, size_t first, size_t count, bool words)
{
	const struct arena *a = h->arena;

	if (a->mode != ARENA_SHARED || a->commits || count > MADE_SLOTS || h->made > MADE_BYTES)
		return;
	for (unsigned cpu = 0; !words && cpu < a->cpus; cpu++)
		if (h->online[cpu])
			make_pages(h, cpu, first, count);
	make_pages(h, a->cpus, first, count);
}

/* Of all CPUs, whether they are there or not: in place of make_row(), where that is not enough. */
static int commit_row(const struct heap *h, size_t first, size_t count, bool words,
		      struct dinst_error *e)
{
	const struct arena *a = h->arena;
	int status = DINST_OK;

	if (!a->commits)
		return DINST_OK;
	for (unsigned block = words ? a->cpus : 0; block <= a->cpus && !status; block++)
		status = arena_make_pages(a, a->code_size + slot_offset(h, block, first),
					  count * HEAP_SLOT, e);
	return status;
}

/* Number of a free slot; counter_room: there is none. */
static size_t find_single(struct heap *h)
{
	size_t number = h->counter_hint;

	while (number < h->counter_room && h->references[number])
		number++;
	h->counter_hint = number;
	return number;
}

/* The highest `count` free slots in a row, of whole lines; counter_room: there are none. */
static size_t find_row(struct heap *h, size_t count)
{
	size_t end;

	while (h->row_end > h->first_counter && h->references[h->row_end - 1])
		h->row_end--;
	end = h->row_end;
	while (end >= h->first_counter + count) {
		const size_t first = (end - count) / LINE * LINE;
		size_t taken = first + count;

		while (taken > first && !h->references[taken - 1])
			taken--;
		if (first < h->first_counter)
			break;
		if (taken == first)
			return first;
		end = taken - 1;
	}
	return h->counter_room;
}

/* Takes a row, zeros; `blocks`: in how many of the blocks its slots are used. */
static int take(struct heap *h, size_t count, bool words, size_t *first, struct dinst_error *e)
{
	const struct arena *a = h->arena;
	size_t number;
	int status;

	if (!count)
		return dinst_fail(e, DINST_FAILED, "an empty row of counters was asked for");
	number = count == 1 ? find_single(h) : find_row(h, count);
	h->was_full |= number == h->counter_room;
	if (number == h->counter_room)
		return dinst_fail(e, DINST_NO_MEMORY,
				  "the arena at %#llx has no room for %zu counters in a row: %zu "
				  "of %zu are in use; remove something first",
				  (unsigned long long)a->data, count, h->counters_used,
				  h->counter_room - h->first_counter);
	status = commit_row(h, number, count, words, e);
	if (status)
		return status;
	clear_row(h, number, count, words);
	make_row(h, number, count, words);
	for (size_t i = 0; i < count; i++) {
		h->was_used[number + i] = true;
		h->references[number + i] = i ? HEAP_ROW_PART : 1;
	}
	h->counters_used += count;
	h->counter_bytes += count * HEAP_SLOT * (words ? 1 : a->cpus + 1);
	if (h->counter_bytes > h->counter_most)
		h->counter_most = h->counter_bytes;
	heap_tell(h);
	*first = number;
	return DINST_OK;
}

int heap_alloc_counter(struct heap *h, taddr_t *out, struct dinst_error *e)
{
	return heap_alloc_counters(h, 1, out, e);
}

int heap_alloc_counters(struct heap *h, size_t count, taddr_t *first, struct dinst_error *e)
{
	size_t number;
	int result = take(h, count, false, &number, e);

	if (!result)
		*first = h->arena->data + number * HEAP_SLOT;
	return result;
}

int heap_alloc_words(struct heap *h, size_t count, taddr_t *first, struct dinst_error *e)
{
	size_t number;
	int result = take(h, count, true, &number, e);

	if (!result)
		*first = h->arena->data + slot_offset(h, h->arena->cpus, number);
	return result;
}

/* Of a counter (block 0) or a word (the locked block), of any slot of a row. */
static size_t slot_number(const struct heap *h, taddr_t address, unsigned *block)
{
	const size_t offset = address - h->arena->data;
	const size_t mask = ((size_t)1 << h->arena->cpu_shift) - 1;
	const size_t number = (offset & mask) / HEAP_SLOT;

	assert(address >= h->arena->data && offset % HEAP_SLOT == 0);
	*block = (unsigned)(offset >> h->arena->cpu_shift);
	assert(*block == 0 || *block == h->arena->cpus);
	assert(h->references[number]);
	return number;
}

/* Of the first slot of a row. */
static size_t row_number(const struct heap *h, taddr_t address, unsigned *block)
{
	const size_t number = slot_number(h, address, block);

	assert(h->references[number] != HEAP_ROW_PART);
	return number;
}

void heap_ref_counter(struct heap *h, taddr_t counter)
{
	unsigned block;

	h->references[row_number(h, counter, &block)]++;
}

void heap_unref_counter(struct heap *h, taddr_t counter)
{
	unsigned block;
	const size_t number = row_number(h, counter, &block);
	size_t count = 1;

	if (--h->references[number])
		return;
	while (number + count < h->counter_room && h->references[number + count] == HEAP_ROW_PART)
		h->references[number + count++] = 0;
	h->counters_used -= count;
	h->counter_bytes -= count * HEAP_SLOT * (block ? 1 : h->arena->cpus + 1);
	heap_tell(h);
	if (number < h->counter_hint)
		h->counter_hint = number;
	if (number + count > h->row_end)
		h->row_end = number + count;
}

taddr_t heap_cpu_table(const struct heap *h)
{
	return h->cpu_table;
}

/* ----------------------------------------------------------------- values */

uint64_t heap_read_counter(const struct heap *h, taddr_t counter)
{
	uint64_t value;

	heap_read_counters(h, counter, 1, &value);
	return value;
}

void heap_add_to_counter(struct heap *h, taddr_t counter, uint64_t number)
{
	unsigned block;
	const size_t slot = slot_number(h, counter, &block);

	assert(h->arena->mode == ARENA_SHARED && block == 0);
	__atomic_fetch_add(slot_map(h, h->arena->cpus, slot), number, __ATOMIC_RELAXED);
}

void heap_read_counters(const struct heap *h, taddr_t first, size_t count, uint64_t *values)
{
	unsigned block;
	const size_t number = slot_number(h, first, &block);

	assert(number + count <= h->counter_room);
	memset(values, 0, count * sizeof(*values));
	if (h->arena->mode == ARENA_SHARED) {
		add_blocks(h, number, count, values);
		return;
	}
	if (add_blocks(h, number, count, values))
		for (size_t i = 0; i < count; i++)
			h->last[number + i] = values[i] - h->baseline[number + i];
	memcpy(values, &h->last[number], count * sizeof(*values));
}

void heap_read_words(const struct heap *h, taddr_t first, size_t count, uint64_t *values)
{
	const size_t size = count * HEAP_SLOT;
	unsigned block;
	const size_t number = slot_number(h, first, &block);

	assert(number + count <= h->counter_room);
	memset(values, 0, size);
	if (h->arena->mode == ARENA_SHARED) {
		add_shared(h, block, number, count, values);
		return;
	}
	if (target_read_some(h->arena->target, first, values, size) == size)
		memcpy(&h->last[number], values, size);
	memcpy(values, &h->last[number], size);
}

void heap_write_word(struct heap *h, taddr_t word, uint64_t value)
{
	struct arena *a = h->arena;
	unsigned block;
	const size_t number = slot_number(h, word, &block);
	const size_t at = slot_offset(h, block, number);

	fault_point();
	__atomic_store_n(slot_map(h, block, number), value, __ATOMIC_RELAXED);
	if (a->mode == ARENA_SHARED)
		return;
	memset(a->data_sent + at, (uint8_t)~value, HEAP_SLOT);
	h->last[number] = value;
	arena_data_written(a, at, HEAP_SLOT);
}
