/* SPDX-License-Identifier: MIT */
/*
 * heap_code.c - pieces of code of any size out of one half of an arena.
 *
 * Small pieces come from slabs: four pages cut into pieces of one size, with a
 * bit each. Large ones take whole pages. Pure book-keeping: it never touches
 * the memory that it hands out. A wrong free is a fault of ours and asserted.
 */
#include "inject/heap_code.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/*
 * Multiples of 16, at most a third apart. The class of a multiple of 32 is one,
 * too, and up to 256 the class of a multiple of 64.
 */
static const uint16_t class_size[HEAP_CLASSES] = {
	32,  48,  64,  80,  96,	  112,	128,  160,  192,  256,
	320, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
};

enum { SLAB_BYTES = HEAP_SLAB_PAGES * HEAP_PAGE };

static unsigned class_of(size_t size)
{
	unsigned class = 0;

	while (class_size[class] < size)
		class ++;
	return class;
}

bool heap_code_init(struct heap_code *c, size_t size)
{
	memset(c, 0, sizeof(*c));
	c->page_count = size / HEAP_PAGE;
	c->floor = c->page_count;
	c->cursor = c->page_count;
	c->none = SIZE_MAX;
	c->pages = calloc(c->page_count, sizeof(*c->pages));
	return c->pages != NULL;
}

void heap_code_release(struct heap_code *c)
{
	size_t page = c->floor;

	while (c->pages && page < c->page_count) {
		struct heap_slab *slab = c->pages[page].slab;

		free(slab);
		page += slab ? HEAP_SLAB_PAGES : 1;
	}
	free(c->pages);
	memset(c, 0, sizeof(*c));
}

/* ------------------------------------------------------------ whole pages */

/* `count` free pages in a row in [lo, hi), the highest; false if there are none. */
static bool find_between(const struct heap_code *c, size_t lo, size_t hi, size_t count,
			 size_t *first)
{
	size_t run = 0;

	for (size_t page = hi; page > lo;) {
		page--;
		run = c->pages[page].taken ? 0 : run + 1;
		if (run == count) {
			*first = page;
			return true;
		}
	}
	return false;
}

/* `count` free pages in a row that were in use before; false if there are none. */
static bool find_used_before(struct heap_code *c, size_t count, size_t *first)
{
	if (c->page_count - c->floor - c->pages_taken < count || count >= c->none)
		return false;
	if (!find_between(c, c->floor, c->cursor, count, first) &&
	    !find_between(c, c->floor, c->page_count, count, first)) {
		c->none = count;
		return false;
	}
	c->cursor = *first;
	return true;
}

/* Lowers the floor over `count` pages in a row, free ones just above it included. */
static bool find_fresh(struct heap_code *c, size_t count, size_t limit, size_t *first)
{
	size_t above = 0;

	while (above < count && c->floor + above < c->page_count &&
	       !c->pages[c->floor + above].taken)
		above++;
	if (c->floor < count - above || (c->floor - (count - above)) * HEAP_PAGE < limit)
		return false;
	*first = c->floor - (count - above);
	return true;
}

static bool take_pages(struct heap_code *c, size_t count, size_t limit, size_t *first)
{
	if (!find_used_before(c, count, first) && !find_fresh(c, count, limit, first))
		return false;
	if (*first < c->floor)
		c->floor = *first;
	for (size_t i = 0; i < count; i++)
		c->pages[*first + i] = (struct heap_page){.taken = true};
	c->pages_taken += count;
	return true;
}

/* How many free pages there are in a row around `first`, up to c->none. */
static size_t free_around(const struct heap_code *c, size_t first)
{
	size_t lo = first, hi = first;

	while (hi < c->page_count && !c->pages[hi].taken && hi - lo < c->none)
		hi++;
	while (lo > c->floor && !c->pages[lo - 1].taken && hi - lo < c->none)
		lo--;
	return hi - lo;
}

static void give_pages(struct heap_code *c, size_t first, size_t count)
{
	for (size_t i = 0; i < count; i++)
		c->pages[first + i] = (struct heap_page){.taken = false};
	c->pages_taken -= count;
	if (c->none != SIZE_MAX && free_around(c, first) >= c->none)
		c->none = SIZE_MAX;
}

/* ------------------------------------------------------------------ slabs */

static struct heap_slab **list_of(struct heap_code *c, const struct heap_slab *slab)
{
	return slab->leaving ? &c->leaving : &c->partial[slab->warmth][slab->class];
}

static void list_add(struct heap_code *c, struct heap_slab *slab)
{
	struct heap_slab **list = list_of(c, slab);

	slab->prev = NULL;
	slab->next = *list;
	if (slab->next)
		slab->next->prev = slab;
	*list = slab;
}

static void list_remove(struct heap_code *c, struct heap_slab *slab)
{
	if (slab->prev)
		slab->prev->next = slab->next;
	else
		*list_of(c, slab) = slab->next;
	if (slab->next)
		slab->next->prev = slab->prev;
	slab->prev = slab->next = NULL;
}

static struct heap_slab *slab_new(struct heap_code *c, enum heap_warmth warmth, unsigned class,
				  size_t limit)
{
	struct heap_slab *slab = calloc(1, sizeof(*slab));
	size_t first;

	if (!slab)
		return NULL;
	if (!take_pages(c, HEAP_SLAB_PAGES, limit, &first)) {
		free(slab);
		return NULL;
	}
	slab->page = (uint32_t)first;
	slab->class = (uint16_t) class;
	slab->warmth = warmth;
	slab->slots = (uint16_t)(SLAB_BYTES / class_size[class]);
	for (size_t i = 0; i < HEAP_SLAB_PAGES; i++)
		c->pages[first + i].slab = slab;
	list_add(c, slab);
	return slab;
}

static unsigned slab_take(struct heap_slab *slab)
{
	for (unsigned i = 0; i < HEAP_SLAB_SLOTS / 64; i++) {
		unsigned slot;

		if (slab->taken[i] == UINT64_MAX)
			continue;
		slot = i * 64 + (unsigned)__builtin_ctzll(~slab->taken[i]);
		assert(slot < slab->slots);
		slab->taken[i] |= (uint64_t)1 << (slot % 64);
		slab->used++;
		return slot;
	}
	assert(!"a full slab stood on the list");
	return 0;
}

static bool alloc_small(struct heap_code *c, enum heap_warmth warmth, size_t size, size_t limit,
			size_t *offset)
{
	unsigned class = class_of(size);
	struct heap_slab *slab = c->partial[warmth][class];

	if (!slab)
		slab = slab_new(c, warmth, class, limit);
	if (!slab)
		return false;
	*offset = (size_t)slab->page * HEAP_PAGE + (size_t)slab_take(slab) * class_size[class];
	if (slab->used == slab->slots)
		list_remove(c, slab);
	c->bytes += class_size[class];
	return true;
}

static void free_small(struct heap_code *c, struct heap_slab *slab, size_t offset)
{
	size_t within = offset - (size_t)slab->page * HEAP_PAGE;
	size_t slot = within / class_size[slab->class];
	uint64_t bit = (uint64_t)1 << (slot % 64);

	assert(within % class_size[slab->class] == 0 && slot < slab->slots);
	assert(slab->taken[slot / 64] & bit);
	slab->taken[slot / 64] &= ~bit;
	if (slab->used == slab->slots)
		list_add(c, slab);
	slab->used--;
	c->bytes -= class_size[slab->class];
	if (slab->used)
		return;
	list_remove(c, slab);
	give_pages(c, slab->page, HEAP_SLAB_PAGES);
	free(slab);
}

/* ------------------------------------------------------------------- both */

bool heap_code_alloc(struct heap_code *c, enum heap_warmth warmth, size_t size, size_t limit,
		     size_t *offset)
{
	size_t count, first;

	assert(size > 0);
	if (size <= HEAP_SMALL_MAX)
		return alloc_small(c, warmth, size, limit, offset);
	if (size > c->page_count * HEAP_PAGE)
		return false;
	count = (size + HEAP_PAGE - 1) / HEAP_PAGE;
	if (!take_pages(c, count, limit, &first))
		return false;
	c->pages[first].run = (uint32_t)count;
	c->bytes += count * HEAP_PAGE;
	*offset = first * HEAP_PAGE;
	return true;
}

void heap_code_free(struct heap_code *c, size_t offset)
{
	size_t page = offset / HEAP_PAGE;
	size_t run;

	assert(page < c->page_count && c->pages[page].taken);
	if (c->pages[page].slab) {
		free_small(c, c->pages[page].slab, offset);
		return;
	}
	run = c->pages[page].run;
	assert(run && offset % HEAP_PAGE == 0);
	c->bytes -= run * HEAP_PAGE;
	give_pages(c, page, run);
}

size_t heap_code_piece(const struct heap_code *c, size_t offset)
{
	const struct heap_page *page = &c->pages[offset / HEAP_PAGE];

	return page->slab ? class_size[page->slab->class] : (size_t)page->run * HEAP_PAGE;
}

bool heap_code_is_taken(const struct heap_code *c, size_t offset)
{
	const size_t page = offset / HEAP_PAGE;
	const struct heap_slab *slab;
	size_t slot;

	if (page >= c->page_count || !c->pages[page].taken)
		return false;
	slab = c->pages[page].slab;
	if (!slab)
		return true;
	slot = (offset - (size_t)slab->page * HEAP_PAGE) / class_size[slab->class];
	return slot < slab->slots && (slab->taken[slot / 64] >> (slot % 64) & 1);
}

/* ------------------------------------------------------------- compaction */

/* How many of the slabs of a list their pieces do not need. *count: all of them. */
static size_t spare_slabs(const struct heap_slab *list, size_t *count)
{
	size_t used = 0, slots = 1;

	*count = 0;
	for (const struct heap_slab *slab = list; slab; slab = slab->next) {
		used += slab->used;
		slots = slab->slots;
		++*count;
	}
	return *count - (used + slots - 1) / slots;
}

size_t heap_code_spare_pages(const struct heap_code *c)
{
	size_t spare = 0, count;

	for (unsigned warmth = 0; warmth < HEAP_WARMTHS; warmth++)
		for (unsigned class = 0; class < HEAP_CLASSES; class ++)
			spare += spare_slabs(c->partial[warmth][class], &count);
	return spare * HEAP_SLAB_PAGES;
}

static int by_pieces(const void *a, const void *b)
{
	const struct heap_slab *x = *(struct heap_slab *const *)a,
			       *y = *(struct heap_slab *const *)b;

	if (x->used != y->used)
		return x->used < y->used ? -1 : 1;
	return x->page < y->page ? -1 : x->page > y->page;
}

/* The emptiest ones of a list. Where there is no memory for sorting them nothing leaves. */
static void choose_leaving(struct heap_code *c, struct heap_slab *list)
{
	size_t count, spare = spare_slabs(list, &count), n = 0;
	struct heap_slab **slabs = spare ? malloc(count * sizeof(struct heap_slab *)) : NULL;

	if (!slabs)
		return;
	for (struct heap_slab *slab = list; slab; slab = slab->next)
		slabs[n++] = slab;
	qsort(slabs, count, sizeof(struct heap_slab *), by_pieces);
	for (n = 0; n < spare; n++) {
		list_remove(c, slabs[n]);
		slabs[n]->leaving = true;
		list_add(c, slabs[n]);
	}
	free(slabs);
}

void heap_code_begin_leaving(struct heap_code *c)
{
	for (unsigned warmth = 0; warmth < HEAP_WARMTHS; warmth++)
		for (unsigned class = 0; class < HEAP_CLASSES; class ++)
			choose_leaving(c, c->partial[warmth][class]);
}

bool heap_code_is_leaving(const struct heap_code *c, size_t offset)
{
	const struct heap_slab *slab = c->pages[offset / HEAP_PAGE].slab;

	return slab && slab->leaving;
}

void heap_code_end_leaving(struct heap_code *c)
{
	while (c->leaving) {
		struct heap_slab *slab = c->leaving;

		list_remove(c, slab);
		slab->leaving = false;
		list_add(c, slab);
	}
}
