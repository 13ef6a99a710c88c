/* SPDX-License-Identifier: MIT */
/*
 * heap.h - the instrumentation heap: who uses which bytes of an arena.
 *
 * Two kinds of things are allocated: code, hot and cold (size classes), and
 * data: rows of counters (a 64-bit slot per CPU each) and rows of plain words. The book-keeping is in the mutator;
 * nothing in the target is trusted.
 *
 * Freeing is the caller's promise that no thread is inside any more, and that
 * no thread's rseq_cs points there (arch_emit_count()).
 */
#ifndef DINST_INJECT_HEAP_H
#define DINST_INJECT_HEAP_H

#include "inject/arena.h"

struct heap; /* opaque; one per arena */

int heap_create(struct arena *a, struct heap **out, struct dinst_error *e);
void heap_destroy(struct heap *h); /* our side only; not the arena */

/* Bytes of several heaps together, as in struct heap_stats: in use, and the most at a time. */
struct heap_totals {
	size_t used, used_most;
	size_t counter_bytes, counter_most;
};

/* From now on, until its end, what the heap has in use is a part of *totals; borrowed. */
void heap_count_in(struct heap *h, struct heap_totals *totals);

/*
 * `size` bytes of code, 16-byte aligned (32 where the size is a multiple of
 * 32). The address in the target; heap_map() is our view. Cold code, which is
 * seldom or never executed, lies apart from the other.
 */
int heap_alloc_code(struct heap *h, size_t size, taddr_t *out, struct dinst_error *e);
int heap_alloc_cold(struct heap *h, size_t size, taddr_t *out, struct dinst_error *e);
void heap_free_code(struct heap *h, taddr_t address);

/*
 * For tests: what is freed is filled with code in which a thread stays, and
 * goes wrong in nothing else (arch_fill_poison()); heap_is_poison() then finds
 * the thread that came back too late. Threads run on whatever is freed otherwise.
 */
void heap_poison_freed(struct heap *h);
/* True if that is wanted and nothing that is handed out lies at `address` of the code half. */
bool heap_is_poison(const struct heap *h, taddr_t address);

/*
 * Compaction. Pieces of one size share pages, so that a few that are left of many
 * may keep all of those. heap_begin_compaction() chooses pages to be emptied, if
 * that is worth it: at least half of all pages would be free then, or the
 * heap is above its mark. Who uses what heap_is_leaving() says allocates it anew
 * and frees the old one, until heap_end_compaction(). Data is not moved.
 *
 * Pages that are free serve any size again. They stay the target's until the
 * arena goes: the kernel takes no page out of a file that is sealed against
 * writing (F_SEAL_FUTURE_WRITE; fallocate(2) and madvise(2) say EPERM).
 */
bool heap_wants_compaction(const struct heap *h);
void heap_begin_compaction(struct heap *h);
bool heap_is_leaving(const struct heap *h, taddr_t address);
void heap_end_compaction(struct heap *h);

/*
 * `count` counters in a row, zero in every CPU's block and in the locked slots; reference count 1.
 * Counter n of the row is at *first + 8 * n. A row is referred to by its first counter.
 */
int heap_alloc_counters(struct heap *h, size_t count, taddr_t *first, struct dinst_error *e);
int heap_alloc_counter(struct heap *h, taddr_t *out, struct dinst_error *e);
/*
 * `count` 64-bit words in a row, each one for all CPUs, zero; reference count 1. In a private
 * arena the target has the zeros after the next arena_sync().
 */
int heap_alloc_words(struct heap *h, size_t count, taddr_t *first, struct dinst_error *e);
/* Of a row of counters or words. What is freed is given out again only as zeros. */
void heap_ref_counter(struct heap *h, taddr_t counter);
void heap_unref_counter(struct heap *h, taddr_t counter);

/*
 * The table of CPUs (struct arch_counter) in the arena's data: the address of
 * the word for CPU 0, or 0 where there is no room for it.
 */
taddr_t heap_cpu_table(const struct heap *h);

/*
 * Sum over all CPUs and the locked slot, read with plain loads. In a private
 * arena it is read out of the target, and stays what it was once that has ended.
 */
uint64_t heap_read_counter(const struct heap *h, taddr_t counter);

/* The same for `count` counters from any of a row on. */
void heap_read_counters(const struct heap *h, taddr_t first, size_t count, uint64_t *values);
/* `count` words from any of a row on: each whole, not all at one moment. As above once the target
 * has ended. */
void heap_read_words(const struct heap *h, taddr_t first, size_t count, uint64_t *values);
/* Shared arenas: one more of what is counted, `number` of them, beside all code that counts. */
void heap_add_to_counter(struct heap *h, taddr_t counter, uint64_t number);
/* For words that no code uses yet. In a private arena the target has it after arena_sync(). */
void heap_write_word(struct heap *h, taddr_t word, uint64_t value);

/* Our writable view of `size` bytes at `address` of the arena; NULL if outside. */
void *heap_map(const struct heap *h, taddr_t address, size_t size);

/*
 * `used`, `touched` and `capacity` are bytes of the code half behind the
 * journal; data has an area of its own and joins in above_mark.
 */
struct heap_stats {
	size_t code_bytes, counter_bytes; /* in use, all CPUs' slots of counters counted */
	size_t counter_most;		  /* the most that `counter_bytes` ever was */
	size_t used;	   /* handed out and not free now, with the unused rest of pages */
	size_t touched;	   /* ever handed out */
	size_t high_water; /* the most that `used` ever was */
	/* Bytes of memory that exist for all of the arena, data too: what the target's control
	 * group pays for. Shared arenas only; of a private one it is not known, and 0. */
	size_t resident;
	size_t capacity;
	bool above_mark; /* code half or counters are fuller than 3/4: flush */
};
/* True if something has found no room since it was last asked. */
bool heap_was_full(struct heap *h);
void heap_get_stats(const struct heap *h, struct heap_stats *stats);

#endif
