/* SPDX-License-Identifier: MIT */
/*
 * heap_code.h - the part of the heap that hands out code, for heap.c only.
 *
 * Hot pieces lie close together and apart from cold ones, which are seldom or
 * never executed, so that they fill fewer cache lines and pages.
 *
 * Offsets instead of addresses: 0 is the start of the code half. Code grows
 * down from the end of the half towards the journal, page by page; a page that
 * has become free serves any size again.
 *
 *     | journal | .......................... <- pages of code: grow down |
 *     0                                    floor                        size
 */
#ifndef DINST_INJECT_HEAP_CODE_H
#define DINST_INJECT_HEAP_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	HEAP_PAGE = 4096,
	HEAP_SLAB_PAGES = 4,
	HEAP_CLASSES = 19,
	HEAP_SMALL_MAX = 4096, /* more than that: whole pages */
	HEAP_SLAB_SLOTS = 512, /* HEAP_SLAB_PAGES pages of the smallest class */
};

enum heap_warmth { HEAP_HOT, HEAP_COLD, HEAP_WARMTHS };

/* Some pages that hold pieces of one size; on its class's list while not full. */
struct heap_slab {
	struct heap_slab *prev, *next;
	uint32_t page; /* its first page */
	uint16_t class, used, slots;
	uint8_t warmth;			      /* enum heap_warmth */
	bool leaving;			      /* to be emptied: nothing new comes here */
	uint64_t taken[HEAP_SLAB_SLOTS / 64]; /* a bit for each piece */
};

/* What a page is used for. */
struct heap_page {
	struct heap_slab *slab; /* NULL: free, or of a large piece */
	uint32_t run;		/* on the first page of a large piece: its pages; else 0 */
	bool taken;
};

struct heap_code {
	struct heap_page *pages; /* by page number in the half */
	size_t page_count;	 /* of the half */
	size_t floor;		 /* the lowest page ever handed out */
	size_t cursor; /* where the last free pages were found: the search goes on there */
	size_t none; /* there are not so many free pages in a row above the floor; SIZE_MAX: nobody knows */
	size_t pages_taken;
	size_t bytes; /* in use, rounded to classes and pages */
	struct heap_slab *partial[HEAP_WARMTHS][HEAP_CLASSES];
	struct heap_slab *leaving;
};

/* False if there is no memory. `size`: bytes of the half. */
bool heap_code_init(struct heap_code *c, size_t size);
void heap_code_release(struct heap_code *c);

/*
 * `size` bytes (1 or more) whose pages all lie at or above `limit`, an offset.
 * Aligned to 16 bytes; to 32 or 64 where the size is a multiple of that. Returns false if there is no room (or, which looks the same, no memory).
 */
bool heap_code_alloc(struct heap_code *c, enum heap_warmth warmth, size_t size, size_t limit,
		     size_t *offset);

/* Gives back what heap_code_alloc returned; anything else ends our process. */
void heap_code_free(struct heap_code *c, size_t offset);

/* Bytes of the piece at `offset`, as they were handed out: rounded to the class, or pages. */
size_t heap_code_piece(const struct heap_code *c, size_t offset);

/* True if the byte at `offset` is of a piece that is handed out. */
bool heap_code_is_taken(const struct heap_code *c, size_t offset);

/* How many pages would be free if the pieces of each size lay close together. */
size_t heap_code_spare_pages(const struct heap_code *c);

/*
 * Chooses the emptiest slabs, such that all their pieces find room in the
 * others, and hands out nothing of them until heap_code_end_leaving(). Whose
 * pieces they are moves them: allocates anew, and frees the old piece.
 */
void heap_code_begin_leaving(struct heap_code *c);
bool heap_code_is_leaving(const struct heap_code *c, size_t offset);
void heap_code_end_leaving(struct heap_code *c);

#endif
