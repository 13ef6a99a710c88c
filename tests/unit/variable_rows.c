/* SPDX-License-Identifier: MIT */
/*
 * variable_rows.c - rows of counters and words in the data half of an arena:
 * against a model, under threads, and that looking at them costs no memory.
 *
 * The arenas here belong to no target: the heap needs only their addresses and
 * a mapping of ours. The memory is a memfd as in real ones.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/cpus.h"
#include "inject/heap.h"

enum { CPUS = 3, SHIFT = 20, CODE = 1 << 20, SLOTS = (1 << SHIFT) / 8 };

struct fixture {
	struct arena arena;
	struct heap *heap;
};

static void start(struct fixture *f)
{
	struct dinst_error e = {0};
	struct arena *a = &f->arena;
	void *map;

	memset(f, 0, sizeof(*f));
	a->code = 0x500000000000;
	a->data = 0x70000000;
	a->code_size = CODE;
	a->cpus = CPUS;
	a->cpu_shift = SHIFT;
	a->data_size = (size_t)(CPUS + 1) << SHIFT;
	a->mode = ARENA_SHARED;
	a->fd = memfd_create("test", MFD_CLOEXEC);
	assert_true(a->fd >= 0);
	assert_int_equal(ftruncate(a->fd, (off_t)(a->code_size + a->data_size)), 0);
	map = mmap(NULL, a->code_size + a->data_size, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	a->code_map = map;
	a->data_map = a->code_map + CODE;
	assert_int_equal(heap_create(a, &f->heap, &e), 0);
}

static void finish(struct fixture *f)
{
	heap_destroy(f->heap);
	munmap(f->arena.code_map, f->arena.code_size + f->arena.data_size);
	close(f->arena.fd);
}

static size_t pages(const struct fixture *f)
{
	struct stat st;

	assert_int_equal(fstat(f->arena.fd, &st), 0);
	return (size_t)st.st_blocks / 8;
}

static uint64_t *slot(const struct fixture *f, taddr_t counter, unsigned block)
{
	return heap_map(f->heap, counter + ((taddr_t)block << SHIFT), 8);
}

/* --------------------------------------------------------------- property */

struct row {
	taddr_t first;
	size_t count;
	bool words;
	uint64_t *values; /* what each must be worth */
};

enum { ROWS = 200, STEPS = 4000 };

static void add(const struct fixture *f, struct row *r, size_t n, unsigned *seed)
{
	const uint64_t more = (uint64_t)rand_r(seed);

	if (r->words)
		*(uint64_t *)heap_map(f->heap, r->first + 8 * n, 8) += more;
	else
		*slot(f, r->first + 8 * n, (unsigned)rand_r(seed) % (CPUS + 1)) += more;
	r->values[n] += more;
}

static void check(const struct fixture *f, const struct row *r)
{
	uint64_t *values = malloc(r->count * sizeof(*values));

	assert_non_null(values);
	if (r->words)
		heap_read_words(f->heap, r->first, r->count, values);
	else
		heap_read_counters(f->heap, r->first, r->count, values);
	assert_memory_equal(values, r->values, r->count * sizeof(*values));
	if (!r->words)
		assert_int_equal(heap_read_counter(f->heap, r->first + 8 * (r->count / 2)),
				 r->values[r->count / 2]);
	free(values);
}

static void make_row(struct fixture *f, struct row *r, unsigned *seed)
{
	static const size_t sizes[] = {1, 2, 7, 8, 9, 64, 513, 1921, 3000, 16384};
	struct dinst_error e = {0};
	int status;

	r->count = sizes[(size_t)rand_r(seed) % (sizeof(sizes) / sizeof(sizes[0]))];
	r->words = rand_r(seed) % 3 == 0;
	status = r->words ? heap_alloc_words(f->heap, r->count, &r->first, &e)
			  : heap_alloc_counters(f->heap, r->count, &r->first, &e);
	if (status) {
		assert_int_equal(status, DINST_NO_MEMORY);
		r->count = 0;
		return;
	}
	assert_int_equal(r->first % (r->count > 1 ? 64 : 8), 0);
	r->values = calloc(r->count, sizeof(*r->values));
	assert_non_null(r->values);
	check(f, r);
}

static void drop_row(struct fixture *f, struct row *r)
{
	check(f, r);
	heap_unref_counter(f->heap, r->first);
	free(r->values);
	*r = (struct row){0};
}

/* Rows come and go; each is zero at first and is worth what was added to it, no more, no less. */
static void rows_against_a_model(void **state)
{
	struct row rows[ROWS] = {{0}};
	unsigned seed = 4;
	struct heap_stats stats;
	struct fixture f;

	(void)state;
	start(&f);
	for (size_t step = 0; step < STEPS; step++) {
		struct row *r = &rows[(size_t)rand_r(&seed) % ROWS];

		if (!r->count)
			make_row(&f, r, &seed);
		else if (rand_r(&seed) % 2)
			drop_row(&f, r);
		for (size_t n = 0; r->count && n < 20; n++)
			add(&f, r, n ? (size_t)rand_r(&seed) % r->count : r->count - 1, &seed);
	}
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].count)
			drop_row(&f, &rows[i]);
	heap_get_stats(f.heap, &stats);
	assert_int_equal(stats.counter_bytes, 0);
	finish(&f);
}

/* Counters that there are: the table of CPUs and the first line are nobody's. */
static size_t room(void)
{
	return SLOTS - 8 - (2 + cpus_most() + 7) / 8 * 8;
}

/* All of the room is there for one row again when everything has been given back. */
static void nothing_is_lost(void **state)
{
	struct dinst_error e = {0};
	taddr_t rows[SLOTS / 1000], all;
	struct fixture f;
	size_t count = 0;

	(void)state;
	start(&f);
	while (!heap_alloc_counters(f.heap, 1000, &rows[count], &e))
		count++;
	assert_in_range(count, SLOTS / 1000 - 2, SLOTS / 1000);
	assert_int_equal(e.code, DINST_NO_MEMORY);
	for (size_t i = 0; i < count; i++)
		heap_unref_counter(f.heap, rows[(i * 7) % count]);
	assert_int_equal(heap_alloc_counters(f.heap, room(), &all, &e), 0);
	finish(&f);
}

/* A hole between rows is found again, and single counters use what rows leave over. */
static void holes_are_used(void **state)
{
	struct dinst_error e = {0};
	taddr_t a, b, c, again, one;
	struct fixture f;

	(void)state;
	start(&f);
	assert_int_equal(heap_alloc_counters(f.heap, 1921, &a, &e), 0);
	assert_int_equal(heap_alloc_counters(f.heap, 1921, &b, &e), 0);
	/* Rows begin at multiples of 64 counters. */
	assert_int_equal(heap_alloc_counters(f.heap, room() / 64 * 64 - 2 * 1984, &c, &e), 0);
	assert_int_equal(heap_alloc_counters(f.heap, 1921, &again, &e), DINST_NO_MEMORY);
	heap_ref_counter(f.heap, a);
	heap_unref_counter(f.heap, a);
	assert_int_equal(heap_alloc_counters(f.heap, 1921, &again, &e), DINST_NO_MEMORY);
	heap_unref_counter(f.heap, a);
	assert_int_equal(heap_alloc_counters(f.heap, 1921, &again, &e), 0);
	assert_int_equal(again, a);
	assert_int_equal(heap_alloc_counter(f.heap, &one, &e), 0);
	finish(&f);
}

/* ----------------------------------------------------------------- memory */

/* Reading what nobody wrote makes no page exist, however large it is. */
static void looking_costs_nothing(void **state)
{
	const size_t count = 16384 * 4;
	struct dinst_error e = {0};
	uint64_t *values = malloc(count * sizeof(*values));
	taddr_t row, words;
	struct fixture f;
	size_t before;

	(void)state;
	assert_non_null(values);
	start(&f);
	assert_int_equal(heap_alloc_counters(f.heap, count, &row, &e), 0);
	assert_int_equal(heap_alloc_words(f.heap, 16386, &words, &e), 0);
	before = pages(&f);
	heap_read_counters(f.heap, row, count, values);
	heap_read_words(f.heap, words, 16386, values);
	assert_int_equal(pages(&f), before);
	*slot(&f, row + 8 * 5000, 2) = 7;
	*slot(&f, row + 8 * 60000, CPUS) = 9;
	heap_read_counters(f.heap, row, count, values);
	assert_int_equal(pages(&f), before + 2);
	assert_int_equal(values[5000], 7);
	assert_int_equal(values[60000], 9);
	values[5000] = values[60000] = 0;
	for (size_t i = 0; i < count; i++)
		assert_int_equal(values[i], 0);
	/* Given back and taken again: zeros, and no page more. */
	heap_unref_counter(f.heap, row);
	assert_int_equal(heap_alloc_counters(f.heap, count, &row, &e), 0);
	heap_read_counters(f.heap, row, count, values);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(values[i], 0);
	assert_int_equal(pages(&f), before + 2);
	free(values);
	finish(&f);
}

/* ---------------------------------------------------------------- threads */

enum { THREADS = 4, ROUNDS = 200000, WIDTH = 1921 };

struct writer {
	struct fixture *f;
	taddr_t row;
	unsigned seed;
	pthread_t thread;
};

/* Each element of the row, in blocks that several threads share: as the locked path does it. */
static void *write_row(void *arg)
{
	struct writer *w = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		taddr_t counter = w->row + 8 * (taddr_t)(rand_r(&w->seed) % WIDTH);

		__atomic_fetch_add(slot(w->f, counter, i % (CPUS + 1)), 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Sums taken while others write never go back, and are exact in the end. */
static void exact_under_threads(void **state)
{
	struct writer writers[THREADS];
	struct dinst_error e = {0};
	uint64_t values[WIDTH], sum = 0, last[WIDTH] = {0};
	struct fixture f;
	taddr_t row;

	(void)state;
	start(&f);
	assert_int_equal(heap_alloc_counters(f.heap, WIDTH, &row, &e), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		writers[i] = (struct writer){&f, row, i + 1, 0};
		assert_int_equal(pthread_create(&writers[i].thread, NULL, write_row, &writers[i]),
				 0);
	}
	for (unsigned n = 0; n < 200; n++) {
		heap_read_counters(f.heap, row, WIDTH, values);
		for (size_t i = 0; i < WIDTH; i++)
			assert_true(values[i] >= last[i]);
		memcpy(last, values, sizeof(last));
	}
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(writers[i].thread, NULL), 0);
	heap_read_counters(f.heap, row, WIDTH, values);
	for (size_t i = 0; i < WIDTH; i++)
		sum += values[i];
	assert_int_equal(sum, (uint64_t)THREADS * ROUNDS);
	finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_against_a_model), cmocka_unit_test(nothing_is_lost),
		cmocka_unit_test(holes_are_used),	cmocka_unit_test(looking_costs_nothing),
		cmocka_unit_test(exact_under_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
