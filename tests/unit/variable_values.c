/* SPDX-License-Identifier: MIT */
/*
 * variable_values.c - distributions, quantiles, tables and the clock of ticks:
 * values against what they are computed from by other means.
 *
 * Places here have an arena that belongs to no target; what code in a target
 * would write is written through our mapping.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "mutator/variable.h"

enum { CPUS = 3, SHIFT = 22, CODE = 1 << 20 };

struct fixture {
	struct arena arena[2];
	struct place place[2];
	struct session session;
};

static void start_place(struct place *p, struct arena *a, taddr_t data)
{
	struct dinst_error e = {0};
	void *map;

	a->code = 0x500000000000;
	a->data = data;
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
	p->arena = a;
	assert_int_equal(heap_create(a, &p->heap, &e), 0);
}

static void start(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	start_place(&f->place[0], &f->arena[0], 0x60000000);
	start_place(&f->place[1], &f->arena[1], 0x70000000);
}

static void finish(struct fixture *f)
{
	for (size_t i = 0; i < 2; i++) {
		heap_destroy(f->place[i].heap);
		munmap(f->arena[i].code_map, CODE + f->arena[i].data_size);
		close(f->arena[i].fd);
	}
}

/* As code at that place, on that CPU, would. */
static void count(const struct place *p, taddr_t counter, unsigned block, uint64_t n)
{
	*(uint64_t *)heap_map(p->heap, counter + ((taddr_t)block << SHIFT), 8) += n;
}

static unsigned bucket_of(uint64_t v)
{
	unsigned e = 0;

	while (v >> e >= 64)
		e++;
	return (e << 5) + (unsigned)(v >> e);
}

static void record(const struct variable *d, const struct place *p, unsigned element,
		   unsigned block, uint64_t v)
{
	const taddr_t row = variable_counter(d, p) + 8 * (taddr_t)VARIABLE_ROW * element;
	int64_t *extremes =
		heap_map(d->word_place->heap, d->word + 16 * (taddr_t)element, 2 * sizeof(int64_t));

	count(p, row + 8 * (taddr_t)bucket_of(v), block, 1);
	count(p, row + 8 * (taddr_t)VARIABLE_BUCKETS, block, v);
	if ((int64_t)v < extremes[0])
		extremes[0] = (int64_t)v;
	if ((int64_t)v > extremes[1])
		extremes[1] = (int64_t)v;
}

/* ----------------------------------------------------------- distributions */

static void buckets_cover_everything(void **state)
{
	(void)state;
	for (unsigned b = 0; b + 1 < VARIABLE_BUCKETS; b++) {
		const uint64_t lo = variable_bucket_start(b), hi = variable_bucket_start(b + 1);

		assert_true(lo < hi || hi == 0);
		if (lo > INT64_MAX)
			break;
		assert_int_equal(bucket_of(lo), b);
		assert_int_equal(bucket_of(hi - 1), b);
		assert_true(b < 64 ? hi - lo == 1 : (hi - lo) * 32 <= lo);
	}
	assert_true(bucket_of(INT64_MAX) < VARIABLE_BUCKETS);
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

enum { SAMPLES = 20000 };

/* Values of many orders of magnitude, by three laws. */
static uint64_t sample(unsigned law, unsigned *seed)
{
	const uint64_t r = (uint64_t)rand_r(seed) << 31 | (uint64_t)rand_r(seed);

	if (law == 0)
		return r % 100;
	if (law == 1)
		return r % 1000 * (uint64_t)(rand_r(seed) % 1000) + 1;
	return r >> (rand_r(seed) % 62);
}

/* Count and sum exact; every quantile in the bucket of the true one: within 1/32. */
static void quantiles_against_sorting(void **state)
{
	static const double fractions[] = {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999};
	uint64_t *values = malloc(SAMPLES * sizeof(*values));
	struct dinst_error e = {0};
	unsigned seed = 17;

	(void)state;
	assert_non_null(values);
	for (unsigned law = 0; law < 3; law++) {
		struct variable_value value;
		struct variable *d;
		struct fixture f;
		uint64_t sum = 0;

		start(&f);
		d = variable_new("d", MDL_DISTRIBUTION, VARIABLE_DISTRIBUTION, 1, &e);
		assert_non_null(d);
		for (size_t i = 0; i < 2; i++)
			assert_int_equal(variable_prepare(&f.session, d, &f.place[i], &e), 0);
		for (size_t i = 0; i < SAMPLES; i++) {
			values[i] = sample(law, &seed);
			sum += values[i];
			record(d, &f.place[i % 2], 0, (unsigned)(i % (CPUS + 1)), values[i]);
		}
		qsort(values, SAMPLES, sizeof(*values), by_size);
		assert_int_equal(variable_read(&f.session, d, 0, &value, &e), 0);
		assert_int_equal(value.count, SAMPLES);
		assert_int_equal(value.value, SAMPLES);
		assert_int_equal(value.sum, sum);
		assert_int_equal(value.min, values[0]);
		assert_int_equal(value.max, values[SAMPLES - 1]);
		for (size_t q = 0; q < sizeof(fractions) / sizeof(fractions[0]); q++) {
			const uint64_t exact = values[(size_t)(fractions[q] * SAMPLES + 0.999) - 1];
			const uint64_t got = (uint64_t)variable_quantile(&value, fractions[q]);
			const uint64_t apart = got > exact ? got - exact : exact - got;

			assert_true(apart * 32 <= exact);
		}
		assert_int_equal(variable_quantile(&value, 0), value.min);
		assert_int_equal(variable_quantile(&value, 1), value.max);
		variable_value_release(&value);
		variable_unref(&f.session, d);
		finish(&f);
	}
	free(values);
}

static void empty_and_single(void **state)
{
	struct dinst_error e = {0};
	int64_t *extremes;
	struct variable_value value;
	struct variable *d;
	struct fixture f;

	(void)state;
	start(&f);
	d = variable_new("d", MDL_DISTRIBUTION, VARIABLE_DISTRIBUTION, 3, &e);
	assert_non_null(d);
	/* Nothing is prepared, then nothing was recorded. */
	for (unsigned round = 0; round < 2; round++) {
		assert_int_equal(variable_read(&f.session, d, 1, &value, &e), 0);
		assert_int_equal(value.count, 0);
		assert_int_equal(value.min, 0);
		assert_int_equal(value.max, 0);
		assert_int_equal(value.sum, 0);
		assert_int_equal(variable_quantile(&value, 0.5), 0);
		variable_value_release(&value);
		assert_int_equal(variable_prepare(&f.session, d, &f.place[0], &e), 0);
	}
	record(d, &f.place[0], 1, 2, 123456789);
	assert_int_equal(variable_read(&f.session, d, 1, &value, &e), 0);
	for (unsigned q = 0; q <= 10; q++)
		assert_int_equal(variable_quantile(&value, q / 10.0), 123456789);
	variable_value_release(&value);
	/* Its bucket was written, and its extremes are not yet: the bucket says what they can be. */
	extremes = heap_map(f.place[0].heap, d->word + 16, 2 * sizeof(int64_t));
	extremes[0] = INT64_MAX;
	extremes[1] = INT64_MIN;
	assert_int_equal(variable_read(&f.session, d, 1, &value, &e), 0);
	assert_in_range(value.min, 123456789 - 123456789 / 32, 123456789);
	assert_in_range(value.max, 123456789, 123456789 + 123456789 / 32);
	variable_value_release(&value);
	/* The neighbours have nothing of it. */
	for (unsigned k = 0; k < 3; k += 2) {
		assert_int_equal(variable_read(&f.session, d, k, &value, &e), 0);
		assert_int_equal(value.count, 0);
		variable_value_release(&value);
	}
	/* Where it fails there is nothing to release. */
	memset(&value, 0xff, sizeof(value));
	assert_int_equal(variable_read(&f.session, d, 3, &value, &e), DINST_FAILED);
	variable_value_release(&value);
	variable_unref(&f.session, d);
	finish(&f);
}

/* What was recorded between two readings is what is different. */
static void differences(void **state)
{
	struct dinst_error e = {0};
	struct variable_value early, late, between;
	struct variable *d;
	struct fixture f;

	(void)state;
	start(&f);
	d = variable_new("d", MDL_DISTRIBUTION, VARIABLE_DISTRIBUTION, 1, &e);
	assert_non_null(d);
	assert_int_equal(variable_prepare(&f.session, d, &f.place[0], &e), 0);
	record(d, &f.place[0], 0, 0, 5);
	record(d, &f.place[0], 0, 1, 1000000);
	assert_int_equal(variable_read(&f.session, d, 0, &early, &e), 0);
	record(d, &f.place[0], 0, 0, 5);
	record(d, &f.place[0], 0, 0, 40);
	assert_int_equal(variable_read(&f.session, d, 0, &late, &e), 0);
	assert_int_equal(variable_difference(&late, &early, &between, &e), 0);
	assert_int_equal(between.count, 2);
	assert_int_equal(between.value, 2);
	assert_int_equal(between.sum, 45);
	assert_int_equal(between.min, 5);
	assert_int_equal(between.max, 40);
	assert_int_equal(between.bucket_count, 2);
	variable_value_release(&between);
	assert_int_equal(variable_difference(&late, &late, &between, &e), 0);
	assert_int_equal(between.count, 0);
	assert_int_equal(between.sum, 0);
	assert_int_equal(between.max, 0);
	variable_value_release(&between);
	variable_value_release(&early);
	variable_value_release(&late);
	variable_unref(&f.session, d);
	finish(&f);
}

/* ------------------------------------------------------------ other forms */

static void totals_of_all_places(void **state)
{
	struct dinst_error e = {0};
	struct variable_value value;
	int64_t values[5];
	struct variable *v;
	struct fixture f;

	(void)state;
	start(&f);
	v = variable_new("v", MDL_COUNTER, VARIABLE_TOTAL, 5, &e);
	assert_non_null(v);
	for (unsigned n = 0; n < 3; n++)
		for (size_t i = 0; i < 2; i++)
			assert_int_equal(variable_prepare(&f.session, v, &f.place[i], &e), 0);
	assert_int_equal(v->place_count, 2);
	for (unsigned k = 0; k < 5; k++)
		for (unsigned block = 0; block <= CPUS; block++) {
			count(&f.place[0], variable_counter(v, &f.place[0]) + 8 * k, block, k);
			count(&f.place[1], variable_counter(v, &f.place[1]) + 8 * k, block, 100);
		}
	assert_int_equal(variable_read_row(&f.session, v, 0, 5, values, &e), 0);
	for (unsigned k = 0; k < 5; k++) {
		assert_int_equal(values[k], (CPUS + 1) * (k + 100));
		assert_int_equal(variable_read(&f.session, v, k, &value, &e), 0);
		assert_int_equal(value.value, values[k]);
	}
	/* Counting down below nothing is a negative number, not a large one. */
	count(&f.place[0], variable_counter(v, &f.place[0]), 0, (uint64_t)-1000);
	assert_int_equal(variable_read(&f.session, v, 0, &value, &e), 0);
	assert_int_equal(value.value, 400 - 1000);
	assert_int_equal(variable_read_row(&f.session, v, 4, 2, values, &e), DINST_FAILED);
	variable_unref(&f.session, v);
	finish(&f);
}

static void levels_are_one_word(void **state)
{
	struct dinst_error e = {0};
	struct variable_value value;
	struct variable *v;
	struct fixture f;
	taddr_t word;

	(void)state;
	start(&f);
	v = variable_new("v", MDL_COUNTER, VARIABLE_LEVEL, 2, &e);
	assert_non_null(v);
	assert_int_equal(variable_prepare(&f.session, v, &f.place[1], &e), 0);
	word = variable_counter(v, &f.place[1]);
	assert_int_equal(variable_prepare(&f.session, v, &f.place[0], &e), 0);
	assert_int_equal(variable_counter(v, &f.place[0]), word);
	*(int64_t *)heap_map(f.place[1].heap, word + 8, 8) = -7;
	assert_int_equal(variable_read(&f.session, v, 1, &value, &e), 0);
	assert_int_equal(value.value, -7);
	assert_int_equal(variable_read(&f.session, v, 0, &value, &e), 0);
	assert_int_equal(value.value, 0);
	variable_unref(&f.session, v);
	finish(&f);
}

static void keys_by_place(void **state)
{
	struct dinst_error e = {0};
	struct arch_table *table;
	struct variable *v;
	struct fixture f;
	uint64_t *keys, full;
	size_t places;
	bool *used;

	(void)state;
	start(&f);
	assert_null(variable_new("t", MDL_VOID, VARIABLE_TABLE, 100, &e));
	dinst_error_clear(&e);
	v = variable_new("t", MDL_VOID, VARIABLE_TABLE, VARIABLE_ELEMENTS, &e);
	assert_non_null(v);
	assert_int_equal(variable_keys(&f.session, v, &keys, &used, &places, &full, &e), 0);
	assert_int_equal(places, VARIABLE_ELEMENTS);
	assert_false(used[0]);
	free(keys);
	free(used);
	assert_int_equal(variable_prepare(&f.session, v, &f.place[0], &e), 0);
	table = heap_map(f.place[0].heap, variable_counter(v, &f.place[0]), 1);
	assert_int_equal(1u << table->shift, VARIABLE_ELEMENTS);
	table->keys[0] = 0 + 1;
	table->keys[VARIABLE_ELEMENTS - 1] = 0x7fff12345678 + 1;
	table->full = 3;
	assert_int_equal(variable_keys(&f.session, v, &keys, &used, &places, &full, &e), 0);
	assert_int_equal(full, 3);
	for (size_t k = 1; k + 1 < places; k++)
		assert_false(used[k]);
	assert_true(used[0]);
	assert_int_equal(keys[0], 0);
	assert_true(used[VARIABLE_ELEMENTS - 1]);
	assert_int_equal(keys[VARIABLE_ELEMENTS - 1], 0x7fff12345678);
	free(keys);
	free(used);
	variable_unref(&f.session, v);
	finish(&f);
}

/* A key gets its place where code looks for it, and keeps it; what finds none is counted. */
static void place_for_a_key(void **state)
{
	enum { PLACES = 64, KEY = 4711 };
	struct dinst_error e = {0};
	struct arch_table *table;
	struct variable *v;
	struct fixture f;
	size_t at;

	(void)state;
	start(&f);
	v = variable_new("t", MDL_VOID, VARIABLE_TABLE, PLACES, &e);
	assert_non_null(v);
	assert_int_equal(variable_prepare(&f.session, v, &f.place[0], &e), 0);
	table = heap_map(f.place[0].heap, variable_counter(v, &f.place[0]), 1);
	at = arch_table_hash(KEY, (unsigned)table->shift);
	table->keys[at] = 1 + 1;
	assert_int_equal(variable_element_of(v, KEY), (at + 1) % PLACES);
	assert_int_equal(table->keys[(at + 1) % PLACES], KEY + 1);
	assert_int_equal(variable_element_of(v, KEY), (at + 1) % PLACES);
	assert_int_equal(table->keys[(at + 2) % PLACES], 0);
	assert_int_equal(table->full, 0);
	for (size_t n = 0; n < ARCH_TABLE_PROBE; n++)
		table->keys[(at + n) % PLACES] = n + 1;
	assert_int_equal(variable_element_of(v, KEY), PLACES);
	assert_int_equal(variable_element_of(v, UINT64_MAX), PLACES);
	assert_int_equal(table->full, 2);
	variable_unref(&f.session, v);
	finish(&f);
}

/* A table of given keys has each of them where code looks for it, and no free place. */
static void given_keys(void **state)
{
	enum { KEYS = 40, PLACES = 256 };
	struct dinst_error e = {0};
	uint64_t given[PLACES], *keys, full;
	struct arch_table *table;
	struct variable *v;
	struct fixture f;
	size_t places, found = 0;
	bool *used;

	(void)state;
	start(&f);
	for (unsigned k = 0; k < PLACES; k++)
		given[k] = k * 64;
	v = variable_new("t", MDL_VOID, VARIABLE_TABLE, PLACES, &e);
	assert_non_null(v);
	assert_int_equal(variable_set_keys(&f.session, v, given, KEYS, &e), 0);
	assert_int_equal(variable_prepare(&f.session, v, &f.place[0], &e), 0);
	table = heap_map(f.place[0].heap, variable_counter(v, &f.place[0]), 1);
	for (unsigned k = 0; k < PLACES; k++)
		assert_int_not_equal(table->keys[k], 0);
	for (unsigned k = 0; k < KEYS; k++) {
		size_t at = arch_table_hash(given[k], (unsigned)table->shift), n = 0;

		while (n < ARCH_TABLE_PROBE && table->keys[at] != given[k] + 1)
			n++, at = (at + 1) % PLACES;
		assert_true(n < ARCH_TABLE_PROBE);
	}
	assert_int_equal(variable_keys(&f.session, v, &keys, &used, &places, &full, &e), 0);
	for (size_t k = 0; k < places; k++)
		found += used[k];
	assert_int_equal(found, KEYS);
	free(keys);
	free(used);
	/* Where not all of them fit, none is taken. */
	for (unsigned k = 0; k < PLACES; k++)
		given[k] = 0x9e3779b97f4a7c15ull * k;
	assert_int_equal(variable_set_keys(&f.session, v, given, PLACES, &e), DINST_NO_MEMORY);
	variable_unref(&f.session, v);
	finish(&f);
}

/* Half of what a variable needs is not kept when there is no room for the other half. */
static void full_places_change_nothing(void **state)
{
	struct dinst_error e = {0};
	struct heap_stats before, after;
	struct variable *d;
	struct fixture f;
	taddr_t row;

	(void)state;
	start(&f);
	assert_int_equal(heap_alloc_counters(f.place[0].heap, (1 << SHIFT) / 8 - 2500, &row, &e),
			 0);
	d = variable_new("d", MDL_DISTRIBUTION, VARIABLE_DISTRIBUTION, 2, &e);
	assert_non_null(d);
	assert_int_equal(variable_prepare(&f.session, d, &f.place[0], &e), DINST_NO_MEMORY);
	heap_get_stats(f.place[1].heap, &before);
	dinst_error_clear(&e);
	assert_int_equal(variable_prepare(&f.session, d, &f.place[1], &e), 0);
	heap_get_stats(f.place[1].heap, &after);
	assert_true(after.counter_bytes >= before.counter_bytes + 2 * VARIABLE_ROW * 8);
	assert_int_equal(d->place_count, 1);
	variable_unref(&f.session, d);
	heap_get_stats(f.place[1].heap, &after);
	assert_int_equal(after.counter_bytes, before.counter_bytes);
	heap_unref_counter(f.place[0].heap, row);
	heap_get_stats(f.place[0].heap, &after);
	assert_int_equal(after.counter_bytes, 0);
	finish(&f);
}

/* ------------------------------------------------------------------ clock */

static uint64_t monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * Both clocks at one moment: of 64 pairs the one between whose two readings of
 * ticks the least were, for a machine with other work may stop us between any
 * two. Returns how many.
 */
static uint64_t both_clocks(uint64_t *ticks, uint64_t *ns)
{
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < 64; i++) {
		const uint64_t before = arch_clock_ticks();
		const uint64_t at = monotonic_ns();
		const uint64_t between = arch_clock_ticks() - before;

		if (between >= least)
			continue;
		least = between;
		*ticks = before;
		*ns = at;
	}
	return least;
}

/* A second of ticks is a second, within 20 ppm; what code would compute is what we compute. */
static void ticks_are_ns(void **state)
{
	const struct timespec pause = {1, 0};
	struct dinst_error e = {0};
	uint64_t multiplier, ticks = 0, later = 0, ns = 0, end = 0, span, took, unsure;
	unsigned shift;

	(void)state;
	ticks_begin();
	if (ticks_calibrate(&e)) {
		assert_int_equal(ticks_wall_clock(), ARCH_CLOCK_MONOTONIC);
		print_message("skipped: %s\n", e.text);
		skip();
	}
	assert_int_equal(ticks_wall_clock(), ARCH_CLOCK_TICKS);
	ticks_factor(&multiplier, &shift);
	assert_true(shift < 64 && multiplier);
	unsure = both_clocks(&ticks, &ns);
	took = (uint64_t)ticks_epoch() + ticks_to_ns(ticks);
	assert_true(took < ns + 1000000 && ns < took + 1000000);
	nanosleep(&pause, NULL);
	unsure += both_clocks(&later, &end);
	unsure = ticks_to_ns(unsure);
	span = ticks_to_ns(later - ticks);
	took = end - ns;
	span = span > took ? span - took : took - span;
	print_message("%llu ns off in %llu ns, read within %llu ns\n", (unsigned long long)span,
		      (unsigned long long)took, (unsigned long long)unsure);
	assert_true(unsure < 20000);
	assert_true(span < unsure + took / 1000000 * 20);
	assert_int_equal(ticks_to_ns(0), 0);
	for (uint64_t t = 1; t < (uint64_t)1 << 62; t *= 3)
		assert_true(ticks_to_ns(t) <= ticks_to_ns(t + t / 2 + 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_cover_everything),
		cmocka_unit_test(quantiles_against_sorting),
		cmocka_unit_test(empty_and_single),
		cmocka_unit_test(differences),
		cmocka_unit_test(totals_of_all_places),
		cmocka_unit_test(levels_are_one_word),
		cmocka_unit_test(keys_by_place),
		cmocka_unit_test(place_for_a_key),
		cmocka_unit_test(given_keys),
		cmocka_unit_test(full_places_change_nothing),
		cmocka_unit_test(ticks_are_ns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
