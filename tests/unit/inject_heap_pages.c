/* SPDX-License-Identifier: MIT */
/*
 * inject_heap_pages.c - whole pages of the heap for code: free ones are found again, however long they have been
 * looked for in vain.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "inject/heap_code.h"

enum { PAGES = 4096, MOST = 6, STEPS = 200000 };

static struct heap_code heap;
static uint16_t runs[PAGES]; /* how many pages were taken here, by their first one */
static bool taken[PAGES];

static size_t take(size_t count)
{
	size_t offset, page;

	if (!heap_code_alloc(&heap, HEAP_HOT, count * HEAP_PAGE, 0, &offset))
		return SIZE_MAX;
	assert_int_equal(offset % HEAP_PAGE, 0);
	page = offset / HEAP_PAGE;
	for (size_t i = 0; i < count; i++) {
		assert_false(taken[page + i]);
		taken[page + i] = true;
	}
	runs[page] = (uint16_t)count;
	return page;
}

static void give(size_t page)
{
	heap_code_free(&heap, page * HEAP_PAGE);
	for (size_t i = 0; i < runs[page]; i++)
		taken[page + i] = false;
	runs[page] = 0;
}

/* The most free pages in a row above the lowest one that was ever taken. */
static size_t longest(size_t lowest)
{
	size_t run = 0, most = 0;

	for (size_t page = lowest; page < PAGES; page++) {
		run = taken[page] ? 0 : run + 1;
		most = run > most ? run : most;
	}
	return most;
}

/* fear J7: pages that are free are used before others are, whatever was asked for in vain before */
static void test_free_pages_are_found(void **state)
{
	size_t lowest = PAGES, reused = 0, vain = 0;

	(void)state;
	srandom(11);
	assert_true(heap_code_init(&heap, (size_t)PAGES * HEAP_PAGE));
	for (size_t step = 0; step < STEPS; step++) {
		/* A page at least is more than a slab gives. */
		size_t count = 2 + (size_t)random() % (MOST - 1), page;

		if (random() % 100 < (step / 2000 % 2 ? 45 : 55)) {
			const bool is_free = step % 64 ? false : longest(lowest) >= count;

			page = take(count);
			if (is_free) {
				assert_true(page != SIZE_MAX && page >= lowest);
				reused++;
			}
			vain += page != SIZE_MAX && page < lowest;
			lowest = page < lowest ? page : lowest;
			continue;
		}
		page = (size_t)random() % PAGES;
		while (page < PAGES && !runs[page])
			page++;
		if (page < PAGES)
			give(page);
	}
	assert_true(reused > 100 && vain > 100);
	heap_code_release(&heap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_free_pages_are_found),
	};

	return cmocka_run_group_tests_name("heap: pages", tests, NULL, NULL);
}
