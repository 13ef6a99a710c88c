/* SPDX-License-Identifier: MIT */
/*
 * heap_fixture.h - a heap without a target: its arena is memory of the test's own, as large as
 * start() is told, until finish().
 */
#ifndef DINST_TESTS_UNIT_HEAP_FIXTURE_H
#define DINST_TESTS_UNIT_HEAP_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "inject/heap.h"

enum { CPUS = 3 };

struct fixture {
	struct arena arena;
	struct heap *heap;
};

static inline void start(struct fixture *f, size_t code_size, unsigned cpu_shift)
{
	struct dinst_error e = {0};
	struct arena *a = &f->arena;
	void *map;

	memset(f, 0, sizeof(*f));
	a->code = 0x500000000000;
	a->data = 0x7f000000;
	a->code_size = code_size;
	a->cpus = CPUS;
	a->cpu_shift = cpu_shift;
	a->data_size = (size_t)(CPUS + 1) << cpu_shift;
	a->fd = -1;
	a->mode = ARENA_SHARED;
	map = mmap(NULL, a->code_size + a->data_size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	a->code_map = map;
	a->data_map = a->code_map + code_size;
	assert_int_equal(heap_create(a, &f->heap, &e), 0);
}

static inline void finish(struct fixture *f)
{
	heap_destroy(f->heap);
	munmap(f->arena.code_map, f->arena.code_size + f->arena.data_size);
}

#endif
