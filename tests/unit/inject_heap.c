/* SPDX-License-Identifier: MIT */
/*
 * inject_heap.c - the instrumentation heap against a model, and its speed.
 *
 * The arenas here belong to no target: the heap needs only their addresses and
 * a mapping of ours.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/journal_format.h"
#include "inject/cpus.h"
#include "tests/unit/heap_fixture.h"

/* --------------------------------------------------------------- property */

enum kind { NONE, CODE, COLD, COUNTER };

struct piece {
	enum kind kind;
	taddr_t address;
	size_t size;
	uint8_t fill;
	unsigned references;
};

enum { PIECES = 3000, STEPS = 60000 };

/* No two pieces share a byte: each is filled with its own, and looked at before it is freed. */
static void fill(struct fixture *f, struct piece *p, uint8_t value)
{
	uint8_t *map = heap_map(f->heap, p->address, p->size);

	assert_non_null(map);
	p->fill = value;
	memset(map, value, p->size);
}

static void check(struct fixture *f, const struct piece *p)
{
	const uint8_t *map = heap_map(f->heap, p->address, p->size);

	assert_non_null(map);
	for (size_t i = 0; i < p->size; i++)
		assert_int_equal(map[i], p->fill);
}

static void check_counter_is_fresh(struct fixture *f, const struct piece *p)
{
	assert_int_equal(heap_read_counter(f->heap, p->address), 0);
	for (unsigned cpu = 0; cpu <= CPUS; cpu++) {
		uint64_t *slot =
			heap_map(f->heap, p->address + ((taddr_t)cpu << f->arena.cpu_shift), 8);

		assert_non_null(slot);
		*slot = cpu + 1;
	}
	assert_int_equal(heap_read_counter(f->heap, p->address), 10);
}

static bool allocate(struct fixture *f, struct piece *p, unsigned *seed)
{
	struct dinst_error e = {0};
	size_t floor;
	int result;

	p->kind = (enum kind)(1 + rand_r(seed) % 3);
	p->references = 1;
	if (p->kind == CODE) {
		p->size = 1 + (size_t)rand_r(seed) % (rand_r(seed) % 20 ? 600 : 20000);
		result = heap_alloc_code(f->heap, p->size, &p->address, &e);
	} else if (p->kind == COLD) {
		p->size = 32 * (1 + (size_t)rand_r(seed) % 12);
		result = heap_alloc_cold(f->heap, p->size, &p->address, &e);
	} else {
		p->size = 8;
		result = heap_alloc_counter(f->heap, &p->address, &e);
	}
	if (result) {
		assert_int_equal(result, DINST_NO_MEMORY);
		assert_int_equal(e.code, DINST_NO_MEMORY);
		p->kind = NONE;
		return false;
	}
	if (p->kind == COUNTER) {
		assert_int_equal(p->address % 8, 0);
		assert_true(p->address >= f->arena.data + 64);
		check_counter_is_fresh(f, p);
		return true;
	}
	assert_int_equal(p->address % (p->kind == COLD ? 32 : 16), 0);
	assert_true(p->address >= f->arena.code + journal_size(&f->arena));
	/* The header tells a reader where code can be. */
	floor = journal_floor((const struct journal_header *)(void *)f->arena.code_map);
	assert_true(floor >= journal_size(&f->arena) && p->address >= f->arena.code + floor);
	assert_true(p->address + p->size <= f->arena.code + f->arena.code_size);
	fill(f, p, (uint8_t)rand_r(seed));
	return true;
}

static void release(struct fixture *f, struct piece *p)
{
	if (p->kind == COUNTER) {
		assert_int_equal(heap_read_counter(f->heap, p->address), 10);
		for (; p->references; p->references--)
			heap_unref_counter(f->heap, p->address);
	} else {
		check(f, p);
		heap_free_code(f->heap, p->address);
	}
	p->kind = NONE;
}

static void check_stats(const struct fixture *f, const struct piece *pieces)
{
	size_t counters = 0, code = 0;
	struct heap_stats stats;

	for (size_t i = 0; i < PIECES; i++) {
		counters += pieces[i].kind == COUNTER;
		code += pieces[i].kind == CODE || pieces[i].kind == COLD ? pieces[i].size : 0;
	}
	heap_get_stats(f->heap, &stats);
	assert_int_equal(stats.counter_bytes, counters * 8 * (CPUS + 1));
	assert_true(stats.code_bytes >= code && stats.code_bytes <= 2 * code + 32 * PIECES);
	assert_true(stats.used >= stats.code_bytes);
	assert_true(stats.touched >= stats.used && stats.touched <= stats.capacity);
}

/* Warm and cold pieces do not share a cache line, small ones not even a page. */
static void check_apart(const struct fixture *f, const struct piece *pieces)
{
	uint8_t *kinds = calloc(f->arena.code_size / 4096, 1);

	assert_non_null(kinds);
	for (size_t i = 0; i < PIECES; i++) {
		size_t page = (pieces[i].address - f->arena.code) / 4096;

		if ((pieces[i].kind != CODE && pieces[i].kind != COLD) || pieces[i].size > 4096)
			continue;
		assert_true(!kinds[page] || kinds[page] == pieces[i].kind);
		kinds[page] = (uint8_t)pieces[i].kind;
	}
	free(kinds);
}

static void random_use(void **state)
{
	struct piece *pieces = calloc(PIECES, sizeof(*pieces));
	unsigned seed = 4711, refused = 0;
	struct heap_stats stats;
	struct fixture f;

	(void)state;
	start(&f, (size_t)4 << 20, 16);
	/* What of the header says how much of it can be believed. */
	((struct journal_header *)(void *)f.arena.code_map)->code_size = f.arena.code_size;
	assert_non_null(pieces);
	for (int step = 0; step < STEPS; step++) {
		struct piece *p = &pieces[rand_r(&seed) % PIECES];

		if (p->kind == COUNTER && rand_r(&seed) % 4 == 0) {
			heap_ref_counter(f.heap, p->address);
			p->references++;
		} else if (p->kind != NONE) {
			release(&f, p);
		} else if (!allocate(&f, p, &seed)) {
			refused++;
		}
		if (step % 1000 == 0) {
			check_stats(&f, pieces);
			check_apart(&f, pieces);
		}
	}
	assert_true(refused < STEPS / 10);
	for (size_t i = 0; i < PIECES; i++)
		if (pieces[i].kind != NONE)
			release(&f, &pieces[i]);
	heap_get_stats(f.heap, &stats);
	assert_int_equal(stats.used, 0);
	assert_int_equal(stats.code_bytes, 0);
	assert_int_equal(stats.counter_bytes, 0);
	assert_false(stats.above_mark);
	free(pieces);
	finish(&f);
}

/* ----------------------------------------------------------------- limits */

static void fills_up_and_empties(void **state)
{
	struct dinst_error e = {0};
	taddr_t *addresses = calloc(1 << 16, sizeof(*addresses));
	struct heap_stats stats;
	size_t used = 0;
	struct fixture f;

	(void)state;
	assert_non_null(addresses);
	start(&f, (size_t)1 << 20, 16);
	for (int round = 0; round < 3; round++) {
		bool marked = false;

		used = 0;
		while (!heap_alloc_code(f.heap, 100, &addresses[used], &e)) {
			used++;
			heap_get_stats(f.heap, &stats);
			if (stats.above_mark && !marked) {
				marked = true;
				assert_true(stats.used > stats.capacity / 4 * 3);
				assert_true(stats.used < stats.capacity / 4 * 3 + 65536);
			}
		}
		assert_true(marked);
		assert_int_equal(e.code, DINST_NO_MEMORY);
		dinst_error_clear(&e);
		/* 128 bytes each, and less than one slab is lost. */
		assert_true(used * 128 + 16384 > stats.capacity);
		while (used)
			heap_free_code(f.heap, addresses[--used]);
	}
	/* Now all of it in one piece, but for what is less than a page. */
	heap_get_stats(f.heap, &stats);
	assert_int_equal(
		heap_alloc_code(f.heap, stats.capacity / 4096 * 4096 - 16384, addresses, &e), 0);
	assert_int_equal(heap_alloc_code(f.heap, 65536, addresses, &e), DINST_NO_MEMORY);
	assert_int_equal(heap_alloc_code(f.heap, SIZE_MAX, addresses, &e), DINST_NO_MEMORY);
	free(addresses);
	finish(&f);
}

/* ------------------------------------------------------------- compaction */

enum { MANY = 6000 };

struct thing {
	taddr_t at;
	size_t size;
	bool cold;
};

static taddr_t allocate_thing(struct heap *heap, const struct thing *t)
{
	struct dinst_error e = {0};
	taddr_t at;

	if (t->cold ? heap_alloc_cold(heap, t->size, &at, &e)
		    : heap_alloc_code(heap, t->size, &at, &e))
		fail_msg("%s", e.text);
	return at;
}

/* Moves what is to be moved, as its owner does; returns how many. */
static size_t move_things(struct fixture *f, struct thing *things)
{
	size_t moved = 0;

	heap_begin_compaction(f->heap);
	for (size_t i = 0; i < MANY; i++) {
		struct thing *t = &things[i];
		taddr_t to;

		if (!t->at || !heap_is_leaving(f->heap, t->at))
			continue;
		to = allocate_thing(f->heap, t);
		assert_false(heap_is_leaving(f->heap, to));
		memcpy(heap_map(f->heap, to, t->size), heap_map(f->heap, t->at, t->size), t->size);
		heap_free_code(f->heap, t->at);
		t->at = to;
		moved++;
	}
	heap_end_compaction(f->heap);
	return moved;
}

/*
 * fear J7: one of thirty pieces is left, on nearly every page: what moves finds room in the pages
 * that stay, nothing is lost, and the pages are free for any size
 */
static void moves_together(void **state)
{
	struct thing *things = calloc(MANY, sizeof(*things));
	struct heap_stats before, after;
	struct dinst_error e = {0};
	unsigned seed = 4711;
	struct fixture f;
	taddr_t large;
	size_t moved;

	(void)state;
	assert_non_null(things);
	start(&f, (size_t)16 << 20, 16);
	assert_false(heap_wants_compaction(f.heap));
	for (size_t i = 0; i < MANY; i++) {
		things[i].size = 16 + (size_t)rand_r(&seed) % 500;
		things[i].cold = rand_r(&seed) % 2;
		things[i].at = allocate_thing(f.heap, &things[i]);
		memset(heap_map(f.heap, things[i].at, things[i].size), (int)i, things[i].size);
	}
	assert_false(heap_wants_compaction(f.heap));
	for (size_t i = 0; i < MANY; i++)
		if (rand_r(&seed) % 30) {
			heap_free_code(f.heap, things[i].at);
			things[i].at = 0;
		}
	heap_get_stats(f.heap, &before);
	assert_true(heap_wants_compaction(f.heap));
	moved = move_things(&f, things);
	heap_get_stats(f.heap, &after);
	assert_true(moved > 20 && moved < MANY / 20);
	assert_false(heap_wants_compaction(f.heap));
	assert_true(after.used * 2 < before.used);
	assert_int_equal(after.code_bytes, before.code_bytes);
	assert_int_equal(after.high_water, before.high_water);
	assert_true(after.high_water >= before.used);
	assert_int_equal(move_things(&f, things), 0);
	for (size_t i = 0; i < MANY; i++)
		for (size_t k = 0; things[i].at && k < things[i].size; k++)
			assert_int_equal(((uint8_t *)heap_map(f.heap, things[i].at + k, 1))[0],
					 (uint8_t)i);
	/* No page beyond those that were in use before. */
	assert_int_equal(heap_alloc_code(f.heap, (before.used - after.used) / 4, &large, &e), 0);
	heap_get_stats(f.heap, &after);
	assert_int_equal(after.touched, before.touched);
	free(things);
	finish(&f);
}

/* fear J7: what is freed is filled, nothing that is in use is, and both can be told apart */
static void poisons_what_is_freed(void **state)
{
	enum { COUNT = 40 };
	struct thing things[COUNT] = {{0}};
	uint8_t poison[512];
	struct fixture f;

	(void)state;
	start(&f, (size_t)1 << 20, 16);
	heap_poison_freed(f.heap);
	for (size_t i = 0; i < COUNT; i++) {
		things[i].size = 32 + i % 5 * 32;
		things[i].at = allocate_thing(f.heap, &things[i]);
		memset(heap_map(f.heap, things[i].at, things[i].size), 0x11, things[i].size);
	}
	for (size_t i = 0; i < COUNT; i += 2)
		heap_free_code(f.heap, things[i].at);
	for (size_t i = 0; i < COUNT; i++) {
		const struct thing *t = &things[i];
		const uint8_t *now = heap_map(f.heap, t->at, t->size);

		arch_fill_poison(poison, t->size);
		assert_int_equal(heap_is_poison(f.heap, t->at), i % 2 == 0);
		assert_int_equal(heap_is_poison(f.heap, t->at + t->size - 1), i % 2 == 0);
		for (size_t k = 0; k < t->size; k++)
			assert_int_equal(now[k], i % 2 ? 0x11 : poison[k]);
	}
	/* The journal is no code, and what lies outside is not ours to judge. */
	assert_false(heap_is_poison(f.heap, f.arena.code));
	assert_false(heap_is_poison(f.heap, f.arena.code - 1));
	assert_false(heap_is_poison(f.heap, f.arena.code + f.arena.code_size));
	finish(&f);
}

static void counters_run_out(void **state)
{
	struct dinst_error e = {0};
	struct heap_stats stats;
	taddr_t first, last = 0;
	struct fixture f;
	size_t used = 1;

	(void)state;
	start(&f, (size_t)1 << 20, 16);
	assert_int_equal(heap_alloc_counter(f.heap, &first, &e), 0);
	while (!heap_alloc_counter(f.heap, &last, &e))
		used++;
	/* The table of CPUs and the first line are nobody's. */
	assert_int_equal(used, 65536 / 8 - 8 - (2 + cpus_most() + 7) / 8 * 8);
	/* Whatever somebody has put where the possible ones are told: no number leads beyond it. */
	assert_true(cpus_most() > f.arena.cpus);
	for (unsigned cpu = 0; cpu < cpus_most(); cpu++) {
		uint64_t word = 0;

		assert_true(heap_cpu_table(f.heap) + 8 * (cpu + 1) <= first);
		memcpy(&word, heap_map(f.heap, heap_cpu_table(f.heap) + 8 * cpu, 8), 8);
		assert_int_equal(word,
				 cpu < f.arena.cpus ? ((uint64_t)cpu << f.arena.cpu_shift) + 1 : 0);
	}
	assert_int_equal(last, f.arena.data + 65536 - 8);
	heap_get_stats(f.heap, &stats);
	assert_true(stats.above_mark);
	heap_unref_counter(f.heap, first + 800);
	assert_int_equal(heap_alloc_counter(f.heap, &last, &e), 0);
	assert_int_equal(last, first + 800);
	finish(&f);
}

static void maps_only_its_own(void **state)
{
	struct fixture f;
	taddr_t code, data;

	(void)state;
	start(&f, (size_t)1 << 20, 16);
	code = f.arena.code;
	data = f.arena.data;
	assert_ptr_equal(heap_map(f.heap, code, 1), f.arena.code_map);
	assert_ptr_equal(heap_map(f.heap, code + 10, f.arena.code_size - 10),
			 f.arena.code_map + 10);
	assert_null(heap_map(f.heap, code + 10, f.arena.code_size - 9));
	assert_null(heap_map(f.heap, code - 1, 1));
	assert_null(heap_map(f.heap, code - 1, 2));
	assert_null(heap_map(f.heap, code + f.arena.code_size, 1));
	assert_null(heap_map(f.heap, code, SIZE_MAX));
	assert_null(heap_map(f.heap, UINT64_MAX, 2));
	assert_ptr_equal(heap_map(f.heap, data + f.arena.data_size - 1, 1),
			 f.arena.data_map + f.arena.data_size - 1);
	finish(&f);
}

/* ------------------------------------------------------- faults of ours */

typedef void (*misuse)(struct fixture *f);

static void free_code_twice(struct fixture *f)
{
	taddr_t a, b;

	heap_alloc_code(f->heap, 64, &a, NULL);
	heap_alloc_code(f->heap, 64, &b, NULL);
	heap_free_code(f->heap, a);
	heap_free_code(f->heap, a);
}

static void free_code_inside(struct fixture *f)
{
	taddr_t a;

	heap_alloc_code(f->heap, 64, &a, NULL);
	heap_free_code(f->heap, a + 16);
}

static void free_large_inside(struct fixture *f)
{
	taddr_t a;

	heap_alloc_code(f->heap, 65536, &a, NULL);
	heap_free_code(f->heap, a + 4096);
}

static void free_foreign(struct fixture *f)
{
	heap_free_code(f->heap, f->arena.code + f->arena.code_size);
}

static void free_counter_twice(struct fixture *f)
{
	taddr_t a;

	heap_alloc_counter(f->heap, &a, NULL);
	heap_unref_counter(f->heap, a);
	heap_unref_counter(f->heap, a);
}

static void misuse_is_caught(void **state)
{
	static const misuse all[] = {free_code_twice, free_code_inside, free_large_inside,
				     free_foreign, free_counter_twice};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		pid_t child = fork();
		int status;

		assert_true(child >= 0);
		if (!child) {
			struct fixture f;

			alarm(10);
			signal(SIGABRT, SIG_DFL);
			if (!freopen("/dev/null", "w", stderr))
				_exit(1);
			start(&f, (size_t)1 << 20, 16);
			all[i](&f);
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
}

/* ------------------------------------------------------------------ speed */

static double milliseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void is_fast(void **state)
{
	enum { COUNT = 100000 };
	taddr_t *addresses = calloc(2 * COUNT, sizeof(*addresses));
	struct dinst_error e = {0};
	struct fixture f;
	double began;

	(void)state;
	assert_non_null(addresses);
	start(&f, (size_t)64 << 20, 20);
	began = milliseconds();
	for (size_t i = 0; i < COUNT; i++) {
		assert_int_equal(heap_alloc_code(f.heap, 64 + i % 7 * 32, &addresses[i], &e), 0);
		assert_int_equal(heap_alloc_counter(f.heap, &addresses[COUNT + i], &e), 0);
	}
	for (size_t i = 0; i < COUNT; i++) {
		heap_free_code(f.heap, addresses[i]);
		heap_unref_counter(f.heap, addresses[COUNT + i]);
	}
	/* Some 10 ms; a scan of the whole book-keeping per call would be seconds. */
	assert_true(milliseconds() - began < 500);
	free(addresses);
	finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_use),	    cmocka_unit_test(fills_up_and_empties),
		cmocka_unit_test(counters_run_out), cmocka_unit_test(maps_only_its_own),
		cmocka_unit_test(misuse_is_caught), cmocka_unit_test(is_fast),
		cmocka_unit_test(moves_together),   cmocka_unit_test(poisons_what_is_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
